//! Routes: which broker groups have a topic, with how many queues, at which addresses.
//!
//! Owns the cache of one client. Entries are fetched on first use and again every 30 s, all of those in use.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rocketmq_protocol::body::MessageQueue;
use rocketmq_protocol::body::route::TopicRouteData;
use rocketmq_remoting::Client;
use tracing::debug;

use crate::error::ClientError;
use crate::namesrv::NameServers;

/// Perm bit: consumers may read.
pub const PERM_READ: i32 = 4;
/// Perm bit: producers may write.
pub const PERM_WRITE: i32 = 2;
/// Id of a group's master.
pub const MASTER_ID: i64 = 0;

/// Where one topic is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Route {
    /// Queues that may be written, in RocketMQ's order.
    pub write_queues: Vec<MessageQueue>,
    /// Queues that may be read, in RocketMQ's order.
    pub read_queues: Vec<MessageQueue>,
    /// Addresses by broker name, then broker id; id 0 is the master.
    pub brokers: BTreeMap<String, BTreeMap<i64, String>>,
}

impl Route {
    /// Reads what the name server said. Queues are written only where the group has a master.
    pub fn from_data(topic: &str, data: &TopicRouteData) -> Self {
        let mut route = Self::default();
        for broker in &data.broker_datas {
            route.brokers.insert(broker.broker_name.clone(), broker.broker_addrs.clone());
        }
        for queues in &data.queue_datas {
            let Some(addrs) = route.brokers.get(&queues.broker_name) else { continue };
            let make = |queue_id| MessageQueue {
                topic: topic.to_owned(),
                broker_name: queues.broker_name.clone(),
                queue_id,
            };
            if queues.perm & PERM_READ != 0 && !addrs.is_empty() {
                route.read_queues.extend((0..queues.read_queue_nums).map(make));
            }
            if queues.perm & PERM_WRITE != 0 && addrs.contains_key(&MASTER_ID) {
                route.write_queues.extend((0..queues.write_queue_nums).map(make));
            }
        }
        route.read_queues.sort_unstable();
        route.write_queues.sort_unstable();
        route
    }

    /// Address of a broker: that with the wanted id, else the master, else any.
    pub fn broker_addr(&self, broker_name: &str, broker_id: i64) -> Option<&str> {
        let addrs = self.brokers.get(broker_name)?;
        let addr = addrs.get(&broker_id).or_else(|| addrs.get(&MASTER_ID));
        addr.or_else(|| addrs.values().next()).map(String::as_str)
    }

    /// Address of a group's master.
    pub fn master_addr(&self, broker_name: &str) -> Option<&str> {
        self.brokers.get(broker_name)?.get(&MASTER_ID).map(String::as_str)
    }
}

/// The routes that one client uses.
#[derive(Debug)]
pub(crate) struct Routes {
    by_topic: RwLock<HashMap<String, Arc<Route>>>,
    timeout: Duration,
}

impl Routes {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { by_topic: RwLock::default(), timeout }
    }

    /// The route as last fetched.
    pub(crate) fn known(&self, topic: &str) -> Option<Arc<Route>> {
        self.by_topic.read().get(topic).cloned()
    }

    /// Fetches a route now.
    pub(crate) async fn fetch(
        &self,
        client: &Client,
        name_servers: &NameServers,
        topic: &str,
    ) -> Result<Arc<Route>, ClientError> {
        let data = name_servers.topic_route(client, topic, self.timeout).await?;
        let route = Arc::new(Route::from_data(topic, &data));
        self.by_topic.write().insert(topic.to_owned(), route.clone());
        Ok(route)
    }

    /// Enters a route that was derived from another topic's.
    pub(crate) fn insert(&self, topic: &str, route: Route) -> Arc<Route> {
        let route = Arc::new(route);
        self.by_topic.write().insert(topic.to_owned(), route.clone());
        route
    }

    /// Fetches all known routes again. One that cannot be fetched stays as it is: brokers may well be
    /// there while name servers are not.
    pub(crate) async fn refresh(&self, client: &Client, name_servers: &NameServers) {
        let topics = self.by_topic.read().keys().cloned().collect::<Vec<_>>();
        for topic in topics {
            if let Err(error) = self.fetch(client, name_servers, &topic).await {
                debug!(topic, %error, "route not refreshed");
            }
        }
    }

    /// Addresses of all known brokers, masters only if wanted.
    pub(crate) fn broker_addrs(&self, masters_only: bool) -> Vec<String> {
        let routes = self.by_topic.read();
        let brokers = routes.values().flat_map(|route| route.brokers.values()).flatten();
        let wanted = brokers.filter(|(id, _)| !masters_only || **id == MASTER_ID);
        let mut addrs = wanted.map(|(_, addr)| addr.clone()).collect::<Vec<_>>();
        addrs.sort_unstable();
        addrs.dedup();
        addrs
    }
}

#[cfg(test)]
mod tests {
    use rocketmq_protocol::body::route::{BrokerData, QueueData};

    use super::*;

    fn data() -> TopicRouteData {
        let broker = |name: &str, ids: &[i64]| BrokerData {
            broker_name: name.to_owned(),
            broker_addrs: ids.iter().map(|id| (*id, format!("{name}:{id}"))).collect(),
            ..BrokerData::default()
        };
        let queues = |name: &str, perm, read, write| QueueData {
            broker_name: name.to_owned(),
            perm,
            read_queue_nums: read,
            write_queue_nums: write,
            topic_sys_flag: 0,
        };
        TopicRouteData {
            broker_datas: vec![broker("b", &[0, 1]), broker("a", &[1]), broker("c", &[0])],
            queue_datas: vec![
                queues("b", 6, 3, 2),
                queues("a", 6, 1, 1),
                queues("c", 4, 1, 1),
                queues("gone", 6, 8, 8),
            ],
            ..TopicRouteData::default()
        }
    }

    #[test]
    fn queues_follow_permission_and_master() {
        let route = Route::from_data("T", &data());
        let ids = |queues: &[MessageQueue]| {
            queues.iter().map(|q| format!("{}{}", q.broker_name, q.queue_id)).collect::<Vec<_>>()
        };
        // `a` has no master, `c` may not be written, `gone` has no address.
        assert_eq!(ids(&route.write_queues), ["b0", "b1"]);
        assert_eq!(ids(&route.read_queues), ["a0", "b0", "b1", "b2", "c0"]);
    }

    #[test]
    fn a_broker_is_found_by_id_else_its_master_else_any() {
        let route = Route::from_data("T", &data());
        assert_eq!(route.broker_addr("b", 1), Some("b:1"));
        assert_eq!(route.broker_addr("b", 7), Some("b:0"));
        assert_eq!(route.broker_addr("a", 0), Some("a:1"));
        assert_eq!(route.broker_addr("x", 0), None);
        assert_eq!(route.master_addr("a"), None);
    }
}
