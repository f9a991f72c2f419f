//! Queue locks of ordered consumption (RebalanceLockManager): which client may consume which
//! queue of a group. In memory only; a lock that its holder does not renew expires.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rocketmq_protocol::body::MessageQueue;

/// A lock not renewed for this long belongs to nobody (`rocketmq.broker.rebalance.lockMaxLiveTime`).
pub const LOCK_LIVE_MS: u64 = 60_000;

/// All locks of this broker, by group and queue. Times are monotonic milliseconds.
#[derive(Debug, Default)]
pub struct LockTable {
    groups: Mutex<HashMap<String, HashMap<MessageQueue, Holder>>>,
}

#[derive(Debug)]
struct Holder {
    client_id: Arc<str>,
    renewed_ms: u64,
}

impl Holder {
    fn is_expired(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.renewed_ms) > LOCK_LIVE_MS
    }
}

impl LockTable {
    /// Takes or renews the lock of each queue for the client and returns those it now holds.
    pub fn lock_batch(
        &self,
        group: &str,
        client_id: &str,
        queues: Vec<MessageQueue>,
        now_ms: u64,
    ) -> Vec<MessageQueue> {
        if queues.is_empty() {
            return queues;
        }
        let client_id: Arc<str> = client_id.into();
        let mut groups = self.groups.lock();
        let held = groups.entry(group.to_owned()).or_default();
        let mut granted = Vec::with_capacity(queues.len());
        for queue in queues {
            match held.get_mut(&queue) {
                Some(holder) if holder.client_id != client_id && !holder.is_expired(now_ms) => {}
                Some(holder) => {
                    *holder = Holder { client_id: client_id.clone(), renewed_ms: now_ms };
                    granted.push(queue);
                }
                None => {
                    let holder = Holder { client_id: client_id.clone(), renewed_ms: now_ms };
                    held.insert(queue.clone(), holder);
                    granted.push(queue);
                }
            }
        }
        granted
    }

    /// Gives the queues back; a queue that another client holds stays locked.
    pub fn unlock_batch(&self, group: &str, client_id: &str, queues: &[MessageQueue]) {
        let mut groups = self.groups.lock();
        let Some(held) = groups.get_mut(group) else { return };
        for queue in queues {
            if held.get(queue).is_some_and(|holder| &*holder.client_id == client_id) {
                held.remove(queue);
            }
        }
        if held.is_empty() {
            groups.remove(group);
        }
    }

    /// Gives all queues back: another broker is asked for them from now on.
    pub fn clear(&self) {
        self.groups.lock().clear();
    }

    /// Whether the client holds the queue's lock now.
    pub fn is_locked_by(
        &self,
        group: &str,
        queue: &MessageQueue,
        client_id: &str,
        now_ms: u64,
    ) -> bool {
        let groups = self.groups.lock();
        groups
            .get(group)
            .and_then(|held| held.get(queue))
            .is_some_and(|holder| &*holder.client_id == client_id && !holder.is_expired(now_ms))
    }

    /// Whether any client holds an unexpired lock of the group.
    pub fn has_lock(&self, group: &str, now_ms: u64) -> bool {
        let groups = self.groups.lock();
        groups.get(group).is_some_and(|held| held.values().any(|h| !h.is_expired(now_ms)))
    }

    /// Forgets expired locks, so that groups and queues that are gone take no memory.
    pub fn expire(&self, now_ms: u64) {
        self.groups.lock().retain(|_, held| {
            held.retain(|_, holder| !holder.is_expired(now_ms));
            !held.is_empty()
        });
    }

    /// Forgets every lock on the topic's queues.
    pub fn remove_topic(&self, topic: &str) {
        self.groups.lock().retain(|_, held| {
            held.retain(|queue, _| queue.topic != topic);
            !held.is_empty()
        });
    }

    /// Forgets every lock of the group.
    pub fn remove_group(&self, group: &str) {
        self.groups.lock().remove(group);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn queue(id: i32) -> MessageQueue {
        MessageQueue { topic: "T".into(), broker_name: "b".into(), queue_id: id }
    }

    #[test]
    fn a_lock_is_exclusive_until_it_expires() {
        let table = LockTable::default();
        let first = table.lock_batch("g", "a", vec![queue(0), queue(1)], 0);
        assert_eq!(first.len(), 2);
        assert_eq!(table.lock_batch("g", "b", vec![queue(1), queue(2)], 10), [queue(2)]);
        assert!(table.lock_batch("g", "b", vec![queue(1)], LOCK_LIVE_MS).is_empty());
        assert_eq!(table.lock_batch("g", "b", vec![queue(1)], LOCK_LIVE_MS + 1), [queue(1)]);
        assert!(!table.is_locked_by("g", &queue(1), "a", LOCK_LIVE_MS + 1));
    }

    #[test]
    fn only_the_holder_unlocks() {
        let table = LockTable::default();
        table.lock_batch("g", "a", vec![queue(0)], 0);
        table.unlock_batch("g", "b", &[queue(0)]);
        assert!(table.is_locked_by("g", &queue(0), "a", 1));
        table.unlock_batch("g", "a", &[queue(0)]);
        assert_eq!(table.lock_batch("g", "b", vec![queue(0)], 2), [queue(0)]);
    }

    #[test]
    fn groups_do_not_see_each_other_and_expired_entries_go() {
        let table = LockTable::default();
        table.lock_batch("g", "a", vec![queue(0)], 0);
        assert_eq!(table.lock_batch("h", "b", vec![queue(0)], 0), [queue(0)]);
        table.expire(LOCK_LIVE_MS + 1);
        assert!(table.groups.lock().is_empty());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Lock { client: u8, queues: Vec<i32> },
        Unlock { client: u8, queues: Vec<i32> },
        Wait(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let queues = || prop::collection::vec(0..4i32, 0..4);
        prop_oneof![
            (0..3u8, queues()).prop_map(|(client, queues)| Step::Lock { client, queues }),
            (0..3u8, queues()).prop_map(|(client, queues)| Step::Unlock { client, queues }),
            (0..LOCK_LIVE_MS * 2).prop_map(Step::Wait),
        ]
    }

    proptest! {
        /// Against a model: at most one live holder a queue, and exactly the granted ones hold.
        #[test]
        fn agrees_with_a_model(steps in prop::collection::vec(step(), 0..60)) {
            let table = LockTable::default();
            let mut model: BTreeMap<i32, (u8, u64)> = BTreeMap::new();
            let mut now = 0;
            for step in steps {
                match step {
                    Step::Wait(ms) => now += ms,
                    Step::Lock { client, queues } => {
                        let asked = queues.iter().copied().map(queue).collect();
                        let granted = table.lock_batch("g", &client.to_string(), asked, now);
                        let mut expected = Vec::new();
                        for id in queues {
                            let free = match model.get(&id) {
                                Some((holder, at)) => *holder == client || now - at > LOCK_LIVE_MS,
                                None => true,
                            };
                            if free {
                                model.insert(id, (client, now));
                                expected.push(queue(id));
                            }
                        }
                        prop_assert_eq!(granted, expected);
                    }
                    Step::Unlock { client, queues } => {
                        let asked: Vec<_> = queues.iter().copied().map(queue).collect();
                        table.unlock_batch("g", &client.to_string(), &asked);
                        for id in queues {
                            if model.get(&id).is_some_and(|(holder, _)| *holder == client) {
                                model.remove(&id);
                            }
                        }
                    }
                }
                for id in 0..4 {
                    for client in 0..3u8 {
                        let expected = model
                            .get(&id)
                            .is_some_and(|(h, at)| *h == client && now - at <= LOCK_LIVE_MS);
                        let held = table.is_locked_by("g", &queue(id), &client.to_string(), now);
                        prop_assert_eq!(held, expected);
                    }
                }
            }
        }
    }
}
