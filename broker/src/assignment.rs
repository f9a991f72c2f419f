//! Which queues a member of a group gets when the broker shares them out (QUERY_ASSIGNMENT), and by
//! which kind of request it consumes (`QueryAssignmentProcessor`, `MessageRequestModeManager`).
//!
//! Owns `config/messageRequestMode.json` and a short memory of routes: the queues to be shared out
//! are those of all brokers, which only the name servers know.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocketmq_protocol::body::MessageQueue;
use rocketmq_protocol::body::assignment::{
    MessageRequestModeTable, SetMessageRequestModeRequestBody,
};
use rocketmq_protocol::body::route::TopicRouteData;

use crate::metadata::perm;
use crate::metadata::persist::{self, MetadataError};

/// `messageRequestMode.json` below the store's config directory.
pub const FILE_NAME: &str = "messageRequestMode.json";

/// How long a route is believed, as a client believes one.
const ROUTE_AGE_MAX: Duration = Duration::from_secs(30);
/// Routes that are remembered; at more, all are asked for again.
const ROUTES_MAX: usize = 10_000;

/// What the broker remembers to share out queues.
pub struct Assignments {
    path: PathBuf,
    modes: Mutex<MessageRequestModeTable>,
    routes: Mutex<HashMap<String, Learnt>>,
}

/// A topic's queues, and when they were learnt.
type Learnt = (Instant, Arc<Vec<MessageQueue>>);

impl Assignments {
    /// Loads `messageRequestMode.json` from `config_dir`.
    ///
    /// # Errors
    /// When the file is damaged beyond its `.bak`.
    pub fn load(config_dir: &Path) -> Result<Assignments, MetadataError> {
        let path = config_dir.join(FILE_NAME);
        let modes = persist::load(&path)?.unwrap_or_default();
        Ok(Assignments { path, modes: Mutex::new(modes), routes: Mutex::default() })
    }

    /// Sets how a group consumes a topic.
    ///
    /// # Errors
    /// When the file cannot be written; nothing is changed then.
    pub fn set_mode(&self, mode: SetMessageRequestModeRequestBody) -> Result<(), MetadataError> {
        let mut modes = self.modes.lock();
        let mut changed = modes.clone();
        let groups = changed.message_request_mode_map.entry(mode.topic.clone()).or_default();
        groups.insert(mode.consumer_group.clone(), mode);
        persist::save(&self.path, &changed)?;
        *modes = changed;
        Ok(())
    }

    /// Takes over the table of a master.
    ///
    /// # Errors
    /// When the file cannot be written; nothing is changed then.
    pub fn follow(&self, table: MessageRequestModeTable) -> Result<(), MetadataError> {
        let mut modes = self.modes.lock();
        if *modes != table {
            persist::save(&self.path, &table)?;
            *modes = table;
        }
        Ok(())
    }

    /// The table in the file's shape.
    pub fn modes(&self) -> MessageRequestModeTable {
        self.modes.lock().clone()
    }

    /// Queues of a topic, if they were learnt lately.
    pub fn route(&self, topic: &str) -> Option<Arc<Vec<MessageQueue>>> {
        let routes = self.routes.lock();
        let (learnt, queues) = routes.get(topic)?;
        (learnt.elapsed() < ROUTE_AGE_MAX).then(|| queues.clone())
    }

    /// Remembers the queues of a topic.
    pub fn learn_route(&self, topic: &str, queues: Arc<Vec<MessageQueue>>) {
        let mut routes = self.routes.lock();
        if routes.len() >= ROUTES_MAX {
            routes.clear();
        }
        routes.insert(topic.to_owned(), (Instant::now(), queues));
    }
}

/// The queues of a route that consumers read, sorted.
pub fn readable_queues(topic: &str, route: &TopicRouteData) -> Vec<MessageQueue> {
    let readable = route.queue_datas.iter().filter(|queues| queues.perm & perm::READ != 0);
    let mut all: Vec<MessageQueue> = readable
        .flat_map(|queues| {
            (0..queues.read_queue_nums).map(|queue_id| MessageQueue {
                topic: topic.to_owned(),
                broker_name: queues.broker_name.clone(),
                queue_id,
            })
        })
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// A rule by which the members of a group divide queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Each gets a run of queues (`AllocateMessageQueueAveragely`).
    Average,
    /// Queue by queue in turn (`AllocateMessageQueueAveragelyByCircle`).
    AverageByCircle,
}

impl Strategy {
    /// The strategy of a name; RocketMQ's broker knows these two of the client's.
    pub fn from_name(name: &str) -> Option<Strategy> {
        match name {
            "AVG" => Some(Strategy::Average),
            "AVG_BY_CIRCLE" => Some(Strategy::AverageByCircle),
            _ => None,
        }
    }

    /// The queues of one member. Both lists are sorted, so that every member comes to the same
    /// division. A member that is not in the list gets nothing.
    pub fn allocate<'a>(
        self,
        client_id: &str,
        queues: &'a [MessageQueue],
        client_ids: &[String],
    ) -> Vec<&'a MessageQueue> {
        let Some(index) = client_ids.iter().position(|id| id == client_id) else {
            return Vec::new();
        };
        match self {
            Strategy::Average => {
                let (share, rest) =
                    (queues.len() / client_ids.len(), queues.len() % client_ids.len());
                let start = index * share + index.min(rest);
                let count = share + usize::from(index < rest);
                queues.iter().skip(start).take(count).collect()
            }
            Strategy::AverageByCircle => {
                queues.iter().skip(index).step_by(client_ids.len()).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rocketmq_protocol::body::route::QueueData;

    use super::*;

    fn queues(count: i32) -> Vec<MessageQueue> {
        let route = TopicRouteData {
            queue_datas: vec![
                QueueData {
                    broker_name: "b".into(),
                    perm: 6,
                    read_queue_nums: count,
                    ..QueueData::default()
                },
                QueueData {
                    broker_name: "write-only".into(),
                    perm: 2,
                    read_queue_nums: 4,
                    ..QueueData::default()
                },
            ],
            ..TopicRouteData::default()
        };
        readable_queues("T", &route)
    }

    fn shares(strategy: Strategy, count: i32, clients: usize) -> Vec<Vec<i32>> {
        let ids: Vec<String> = (0..clients).map(|index| format!("c{index}")).collect();
        let queues = queues(count);
        ids.iter()
            .map(|id| strategy.allocate(id, &queues, &ids).iter().map(|q| q.queue_id).collect())
            .collect()
    }

    #[test]
    fn queues_are_divided_as_clients_divide_them() {
        assert_eq!(shares(Strategy::Average, 8, 3), [vec![0, 1, 2], vec![3, 4, 5], vec![6, 7]]);
        assert_eq!(shares(Strategy::Average, 2, 3), [vec![0], vec![1], vec![]]);
        assert_eq!(shares(Strategy::AverageByCircle, 5, 2), [vec![0, 2, 4], vec![1, 3]]);
        assert_eq!(shares(Strategy::AverageByCircle, 1, 2), [vec![0], vec![]]);
        let ids = ["c0".to_owned()];
        assert!(Strategy::Average.allocate("stranger", &queues(3), &ids).is_empty());
        assert_eq!(Strategy::from_name("CONSISTENT_HASH"), None);
    }

    #[test]
    fn modes_survive_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let mode = SetMessageRequestModeRequestBody {
            consumer_group: "g".into(),
            mode: "PULL".into(),
            topic: "T".into(),
            ..SetMessageRequestModeRequestBody::default()
        };
        Assignments::load(dir.path()).unwrap().set_mode(mode.clone()).unwrap();
        let again = Assignments::load(dir.path()).unwrap();
        assert_eq!(again.modes().message_request_mode_map["T"]["g"], mode);
        // A slave's are those of its master, whatever it had before.
        again.follow(MessageRequestModeTable::default()).unwrap();
        let followed = Assignments::load(dir.path()).unwrap().modes();
        assert_eq!(followed, MessageRequestModeTable::default());
    }
}
