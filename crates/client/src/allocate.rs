//! How the members of a consumer group divide a topic's queues.
//!
//! Every member computes the division by itself, so all must use the same strategy and see queues and
//! members in the same order: RocketMQ's (topic, broker name, queue id), and client ids as texts. The
//! strategies are those of RocketMQ's `AllocateMessageQueueStrategy` implementations, with their names.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use md5::{Digest, Md5};
use rocketmq_protocol::body::MessageQueue;

/// Divides queues among members.
pub trait AllocateStrategy: Debug + Send + Sync {
    /// RocketMQ's name of the strategy.
    fn name(&self) -> String;

    /// The queues of member `own_id`. `queues` and `ids` are sorted, and `own_id` is one of `ids`.
    fn divide(&self, own_id: &str, queues: &[MessageQueue], ids: &[String]) -> Vec<MessageQueue>;

    /// The queues of member `own_id`; none when it is not one of `ids`. Sorts both first.
    fn allocate(&self, own_id: &str, queues: &[MessageQueue], ids: &[String]) -> Vec<MessageQueue> {
        let (mut queues, mut ids) = (queues.to_vec(), ids.to_vec());
        queues.sort_unstable();
        ids.sort_unstable();
        ids.dedup();
        if !ids.iter().any(|id| id == own_id) {
            return Vec::new();
        }
        self.divide(own_id, &queues, &ids)
    }
}

fn index_of(own_id: &str, ids: &[String]) -> usize {
    ids.iter().position(|id| id == own_id).unwrap_or(ids.len())
}

/// `AVG`, the default: neighbouring queues to each, sizes differ by at most one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Average;

impl AllocateStrategy for Average {
    fn name(&self) -> String {
        "AVG".to_owned()
    }

    fn divide(&self, own_id: &str, queues: &[MessageQueue], ids: &[String]) -> Vec<MessageQueue> {
        let index = index_of(own_id, ids);
        let rest = queues.len() % ids.len();
        let size = if queues.len() <= ids.len() {
            1
        } else {
            queues.len() / ids.len() + usize::from(index < rest)
        };
        let start = if rest > 0 && index < rest { index * size } else { index * size + rest };
        queues.iter().skip(start).take(size).cloned().collect()
    }
}

/// `AVG_BY_CIRCLE`: dealt like cards.
#[derive(Debug, Clone, Copy, Default)]
pub struct AverageByCircle;

impl AllocateStrategy for AverageByCircle {
    fn name(&self) -> String {
        "AVG_BY_CIRCLE".to_owned()
    }

    fn divide(&self, own_id: &str, queues: &[MessageQueue], ids: &[String]) -> Vec<MessageQueue> {
        queues.iter().skip(index_of(own_id, ids)).step_by(ids.len()).cloned().collect()
    }
}

/// `CONFIG`: a fixed list. That each queue is in exactly one member's list is the user's care.
#[derive(Debug, Clone, Default)]
pub struct Config(pub Vec<MessageQueue>);

impl AllocateStrategy for Config {
    fn name(&self) -> String {
        "CONFIG".to_owned()
    }

    fn divide(&self, _own: &str, _queues: &[MessageQueue], _ids: &[String]) -> Vec<MessageQueue> {
        self.0.clone()
    }
}

/// `MACHINE_ROOM`: only queues of brokers named `room@...` with one of these rooms. Each member gets
/// neighbouring queues, and the first members one of the last queues.
#[derive(Debug, Clone, Default)]
pub struct MachineRoom(pub Vec<String>);

impl AllocateStrategy for MachineRoom {
    fn name(&self) -> String {
        "MACHINE_ROOM".to_owned()
    }

    fn divide(&self, own_id: &str, queues: &[MessageQueue], ids: &[String]) -> Vec<MessageQueue> {
        let index = index_of(own_id, ids);
        let in_rooms = queues.iter().filter(|queue| {
            let mut parts = queue.broker_name.split('@');
            let (room, name, more) = (parts.next(), parts.next(), parts.next());
            name.is_some() && more.is_none() && self.0.iter().any(|own| Some(own.as_str()) == room)
        });
        let in_rooms = in_rooms.collect::<Vec<_>>();
        let (size, rest) = (in_rooms.len() / ids.len(), in_rooms.len() % ids.len());
        let own = in_rooms.iter().skip(size * index).take(size);
        let last = (rest > index).then(|| in_rooms.get(index + size * ids.len())).flatten();
        own.chain(last).map(|queue| (*queue).clone()).collect()
    }
}

/// Tells in which room a broker or a client stands (RocketMQ's MachineRoomResolver).
pub trait Rooms: Debug + Send + Sync {
    /// The room of a queue's broker.
    fn of_queue(&self, queue: &MessageQueue) -> String;

    /// The room of a client.
    fn of_client(&self, client_id: &str) -> String;
}

/// `MACHINE_ROOM_NEARBY-<inner>`: each room's queues go to the room's own members; those of rooms without
/// members go to all members.
#[derive(Debug, Clone)]
pub struct MachineRoomNearby {
    /// Divides within a room.
    pub inner: Arc<dyn AllocateStrategy>,
    /// Who stands where.
    pub rooms: Arc<dyn Rooms>,
}

impl AllocateStrategy for MachineRoomNearby {
    fn name(&self) -> String {
        format!("MACHINE_ROOM_NEARBY-{}", self.inner.name())
    }

    fn divide(&self, own_id: &str, queues: &[MessageQueue], ids: &[String]) -> Vec<MessageQueue> {
        let mut queues_by_room = BTreeMap::<String, Vec<MessageQueue>>::new();
        for queue in queues {
            queues_by_room.entry(self.rooms.of_queue(queue)).or_default().push(queue.clone());
        }
        let mut ids_by_room = BTreeMap::<String, Vec<String>>::new();
        for id in ids {
            ids_by_room.entry(self.rooms.of_client(id)).or_default().push(id.clone());
        }
        let own_room = self.rooms.of_client(own_id);
        let mut own = Vec::new();
        if let (Some(queues), Some(ids)) =
            (queues_by_room.remove(&own_room), ids_by_room.get(&own_room))
        {
            own.extend(self.inner.divide(own_id, &queues, ids));
        }
        for (room, queues) in queues_by_room {
            if !ids_by_room.contains_key(&room) {
                own.extend(self.inner.divide(own_id, &queues, ids));
            }
        }
        own
    }
}

/// `CONSISTENT_HASH`: a member that comes or goes moves few queues, at the price of uneven shares.
#[derive(Debug, Clone, Copy)]
pub struct ConsistentHash {
    /// Places of each member on the ring.
    pub virtual_nodes: usize,
}

impl Default for ConsistentHash {
    fn default() -> Self {
        Self { virtual_nodes: 10 }
    }
}

impl AllocateStrategy for ConsistentHash {
    fn name(&self) -> String {
        "CONSISTENT_HASH".to_owned()
    }

    fn divide(&self, own_id: &str, queues: &[MessageQueue], ids: &[String]) -> Vec<MessageQueue> {
        let mut ring = BTreeMap::new();
        for id in ids {
            for place in 0..self.virtual_nodes.max(1) {
                ring.insert(ring_place(&format!("{id}-{place}")), id.as_str());
            }
        }
        let owner = |queue: &MessageQueue| {
            let place = ring_place(&java_text(queue));
            ring.range(place..).chain(ring.iter()).next().map(|(_, id)| *id)
        };
        queues.iter().filter(|queue| owner(queue) == Some(own_id)).cloned().collect()
    }
}

/// The first four bytes of the MD5 (RocketMQ's ConsistentHashRouter.MD5Hash).
fn ring_place(key: &str) -> u32 {
    let digest = Md5::digest(key.as_bytes());
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
}

/// The text that Java's MessageQueue.toString gives, which is what is hashed.
fn java_text(queue: &MessageQueue) -> String {
    let MessageQueue { topic, broker_name, queue_id } = queue;
    format!("MessageQueue [topic={topic}, brokerName={broker_name}, queueId={queue_id}]")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn queues(broker: &str, count: usize) -> Vec<MessageQueue> {
        let queue = |id| MessageQueue {
            topic: "T".to_owned(),
            broker_name: broker.to_owned(),
            queue_id: i32::try_from(id).expect("small"),
        };
        (0..count).map(queue).collect()
    }

    fn ids(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("10.0.0.{n}@{n}")).collect()
    }

    fn queue_ids(queues: &[MessageQueue]) -> Vec<i32> {
        queues.iter().map(|queue| queue.queue_id).collect()
    }

    fn shares(
        strategy: &dyn AllocateStrategy,
        queues: &[MessageQueue],
        ids: &[String],
    ) -> Vec<Vec<i32>> {
        ids.iter().map(|id| queue_ids(&strategy.allocate(id, queues, ids))).collect()
    }

    #[test]
    fn java_known_values() {
        let (q, c) = (queues("b", 8), ids(3));
        assert_eq!(shares(&Average, &q, &c), [vec![0, 1, 2], vec![3, 4, 5], vec![6, 7]]);
        assert_eq!(shares(&AverageByCircle, &q, &c), [vec![0, 3, 6], vec![1, 4, 7], vec![2, 5]]);
        // More members than queues.
        assert_eq!(shares(&Average, &queues("b", 2), &c), [vec![0], vec![1], vec![]]);
        let rooms = MachineRoom(vec!["room1".to_owned()]);
        let mut mixed = queues("room1@b", 8);
        mixed.extend(queues("room2@b", 4));
        assert_eq!(shares(&rooms, &mixed, &c), [vec![0, 1, 6], vec![2, 3, 7], vec![4, 5]]);
        assert_eq!(shares(&Config(queues("b", 2)), &q, &c), [vec![0, 1], vec![0, 1], vec![0, 1]]);
    }

    #[test]
    fn ring_places_are_those_of_md5() {
        // MD5("") = d41d8cd98f00b204..., MD5("a") = 0cc175b9c0f1b6a8...
        assert_eq!(ring_place(""), 0xd41d_8cd9);
        assert_eq!(ring_place("a"), 0x0cc1_75b9);
        assert_eq!(
            java_text(&queues("b", 1)[0]),
            "MessageQueue [topic=T, brokerName=b, queueId=0]"
        );
    }

    #[test]
    fn a_stranger_gets_nothing() {
        assert!(Average.allocate("stranger", &queues("b", 4), &ids(2)).is_empty());
        assert!(Average.allocate("stranger", &queues("b", 4), &[]).is_empty());
    }

    #[derive(Debug)]
    struct ByPrefix;

    impl Rooms for ByPrefix {
        fn of_queue(&self, queue: &MessageQueue) -> String {
            queue.broker_name.split('-').next().unwrap_or_default().to_owned()
        }
        fn of_client(&self, client_id: &str) -> String {
            client_id.split('-').next().unwrap_or_default().to_owned()
        }
    }

    fn nearby() -> MachineRoomNearby {
        MachineRoomNearby { inner: Arc::new(Average), rooms: Arc::new(ByPrefix) }
    }

    #[test]
    fn nearby_members_come_first() {
        let mut all = queues("room1-b", 4);
        all.extend(queues("room2-b", 4));
        all.extend(queues("room3-b", 2));
        let members = ["room1-x", "room2-x", "room2-y"].map(str::to_owned);
        let strategy = nearby();
        assert_eq!(strategy.name(), "MACHINE_ROOM_NEARBY-AVG");
        let of = |id: &str| {
            let own = strategy.allocate(id, &all, &members);
            own.iter()
                .map(|q| format!("{}{}", &q.broker_name[4..5], q.queue_id))
                .collect::<Vec<_>>()
        };
        // Room 3 has nobody: its two queues go to the first two of all three members.
        assert_eq!(of("room1-x"), ["10", "11", "12", "13", "30"]);
        assert_eq!(of("room2-x"), ["20", "21", "31"]);
        assert_eq!(of("room2-y"), ["22", "23"]);
    }

    fn every_queue_once(
        strategy: &dyn AllocateStrategy,
        queue_count: usize,
        members: usize,
    ) -> Vec<usize> {
        let mut all = queues("room1-b", queue_count / 2);
        all.extend(queues("room2-b", queue_count - queue_count / 2));
        let ids = (0..members).map(|n| format!("room{}-{n}", n % 3)).collect::<Vec<_>>();
        let mut owners = BTreeMap::<MessageQueue, usize>::new();
        let mut sizes = Vec::new();
        for id in &ids {
            let own = strategy.allocate(id, &all, &ids);
            sizes.push(own.len());
            for queue in own {
                *owners.entry(queue).or_default() += 1;
            }
        }
        assert!(owners.values().all(|count| *count == 1), "{owners:?}");
        assert_eq!(owners.len(), all.len());
        sizes
    }

    proptest! {
        #[test]
        fn every_queue_has_exactly_one_owner(queues in 0_usize..70, members in 1_usize..20) {
            for even in [&Average as &dyn AllocateStrategy, &AverageByCircle] {
                let sizes = every_queue_once(even, queues, members);
                let (least, most) = (sizes.iter().min(), sizes.iter().max());
                prop_assert!(most.unwrap_or(&0) - least.unwrap_or(&0) <= 1, "{:?}", sizes);
            }
            every_queue_once(&ConsistentHash::default(), queues, members);
            every_queue_once(&nearby(), queues, members);
        }

        /// Of consistent hashing's point: who stays keeps what it had.
        #[test]
        fn a_leaving_member_moves_only_its_own_queues(queues_count in 1_usize..60, members in 2_usize..12) {
            let strategy = ConsistentHash::default();
            let (all, before) = (queues("b", queues_count), ids(members));
            let after = &before[1..];
            for id in after {
                let kept = strategy.allocate(id, &all, &before);
                let now = strategy.allocate(id, &all, after);
                prop_assert!(kept.iter().all(|queue| now.contains(queue)));
            }
        }

        #[test]
        fn order_of_arguments_does_not_matter(queues_count in 0_usize..40, members in 1_usize..9) {
            let (all, all_ids) = (queues("b", queues_count), ids(members));
            let (mut other, mut other_ids) = (all.clone(), all_ids.clone());
            other.reverse();
            other_ids.reverse();
            for id in &all_ids {
                prop_assert_eq!(
                    Average.allocate(id, &all, &all_ids),
                    Average.allocate(id, &other, &other_ids)
                );
            }
        }
    }
}
