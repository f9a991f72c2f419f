//! Questions to the route table. Nothing here changes it.

use std::collections::BTreeSet;

use rocketmq_protocol::body::data_version::DataVersion;
use rocketmq_protocol::body::route::{
    BrokerData, BrokerMemberGroup, ClusterInfo, QueueData, TopicList, TopicRouteData,
};

use super::{Group, MASTER_ID, PERM_WRITE, RouteTable};

/// Topics of this prefix carry a group's membership; an acting master never answers for them.
const SYNC_BROKER_MEMBER_PREFIX: &str = "rmq_sys_SYNC_BROKER_MEMBER_";

/// Bit of a topic's system flag: belongs to a unit (RocketMQ's TopicSysFlag).
const FLAG_UNIT: i32 = 1;
/// Bit of a topic's system flag: subscribed by a unit.
const FLAG_UNIT_SUB: i32 = 2;

/// Which topics a unit topic list holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitTopics {
    /// With the unit flag (GET_UNIT_TOPIC_LIST).
    Unit,
    /// With the unit subscription flag (GET_HAS_UNIT_SUB_TOPIC_LIST).
    HasUnitSub,
    /// With the unit subscription flag and without the unit flag
    /// (GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST).
    HasUnitSubUnunit,
}

impl RouteTable {
    /// Where a topic's queues are; `None` when no live group has it.
    ///
    /// With `acting_master`, a group without a master shows its lowest slave under id 0 for a topic
    /// that cannot be written, so that clients go on reading.
    pub fn route(&self, topic: &str, acting_master: bool) -> Option<TopicRouteData> {
        let queues = self.topics.get(topic)?;
        let mut route = TopicRouteData {
            queue_datas: queues.values().cloned().collect(),
            topic_queue_mapping_by_broker: self.mappings.get(topic).cloned(),
            ..TopicRouteData::default()
        };
        for queue in queues.values() {
            let Some(group) = self.groups.get(&queue.broker_name) else { continue };
            for addr in group.addrs.values() {
                if let Some(servers) = self.filter_servers.get(addr) {
                    route.filter_server_table.insert(addr.clone(), servers.clone());
                }
            }
            let mut data = broker_data(&queue.broker_name, group);
            if acting_master && !topic.starts_with(SYNC_BROKER_MEMBER_PREFIX) {
                show_acting_master(&mut data, queue);
            }
            route.broker_datas.push(data);
        }
        if route.broker_datas.is_empty() { None } else { Some(route) }
    }

    /// Every cluster with its groups, every group with its addresses.
    pub fn cluster_info(&self) -> ClusterInfo {
        ClusterInfo {
            broker_addr_table: self
                .groups
                .iter()
                .map(|(name, group)| (name.clone(), broker_data(name, group)))
                .collect(),
            cluster_addr_table: self
                .clusters
                .iter()
                .map(|(cluster, names)| (cluster.clone(), names.iter().cloned().collect()))
                .collect(),
        }
    }

    /// The addresses of one group; empty when it is unknown.
    pub fn member_group(&self, cluster: &str, broker_name: &str) -> BrokerMemberGroup {
        BrokerMemberGroup {
            cluster: cluster.to_owned(),
            broker_name: broker_name.to_owned(),
            broker_addrs: self
                .groups
                .get(broker_name)
                .map(|group| group.addrs.clone())
                .unwrap_or_default(),
        }
    }

    /// The version of the topic table that a broker last registered.
    pub fn data_version(&self, cluster: &str, broker_addr: &str) -> Option<DataVersion> {
        let live = self.live.get(broker_addr)?;
        (live.cluster == cluster).then_some(live.data_version)
    }

    /// All topics, sorted.
    pub fn topic_list(&self) -> TopicList {
        list(self.topics.keys().cloned().collect())
    }

    /// Topics that any group of the cluster has; none for an unknown cluster.
    pub fn topics_of_cluster(&self, cluster: &str) -> TopicList {
        let Some(names) = self.clusters.get(cluster) else { return TopicList::default() };
        list(
            self.topics
                .iter()
                .filter(|(_, queues)| queues.keys().any(|name| names.contains(name)))
                .map(|(topic, _)| topic.clone())
                .collect(),
        )
    }

    /// Names of clusters and groups, each of which is a topic too, and the address of some broker.
    pub fn system_topic_list(&self) -> TopicList {
        let mut topics: BTreeSet<String> = self.clusters.keys().cloned().collect();
        topics.extend(self.groups.keys().cloned());
        TopicList {
            broker_addr: self
                .groups
                .values()
                .find_map(|group| group.addrs.values().next().cloned()),
            ..list(topics)
        }
    }

    /// Topics by their unit flags. As in RocketMQ, one group's flags speak for the topic.
    pub fn unit_topic_list(&self, which: UnitTopics) -> TopicList {
        let wanted = |flags: i32| match which {
            UnitTopics::Unit => flags & FLAG_UNIT != 0,
            UnitTopics::HasUnitSub => flags & FLAG_UNIT_SUB != 0,
            UnitTopics::HasUnitSubUnunit => flags & (FLAG_UNIT | FLAG_UNIT_SUB) == FLAG_UNIT_SUB,
        };
        list(
            self.topics
                .iter()
                .filter(|(_, queues)| {
                    queues.values().next().is_some_and(|queue| wanted(queue.topic_sys_flag))
                })
                .map(|(topic, _)| topic.clone())
                .collect(),
        )
    }

    /// Whether some broker last registered on the connection.
    pub fn is_registered_on(&self, connection: u64) -> bool {
        self.live.values().any(|live| live.connection == connection)
    }

    /// How many brokers are registered.
    pub fn broker_count(&self) -> usize {
        self.live.len()
    }

    /// How many topics have a route.
    pub fn topic_count(&self) -> usize {
        self.topics.len()
    }

    /// How many groups have a live broker.
    pub fn group_count(&self) -> usize {
        self.groups.len()
    }
}

fn list(topics: BTreeSet<String>) -> TopicList {
    TopicList { topic_list: topics.into_iter().collect(), ..TopicList::default() }
}

fn broker_data(broker_name: &str, group: &Group) -> BrokerData {
    BrokerData {
        cluster: group.cluster.clone(),
        broker_name: broker_name.to_owned(),
        broker_addrs: group.addrs.clone(),
        zone_name: group.zone_name.clone(),
        enable_acting_master: group.enable_acting_master,
    }
}

fn show_acting_master(data: &mut BrokerData, queue: &QueueData) {
    let has_master = data.broker_addrs.contains_key(&MASTER_ID);
    if has_master || !data.enable_acting_master || queue.perm & PERM_WRITE != 0 {
        return;
    }
    if let Some((_, addr)) = data.broker_addrs.pop_first() {
        data.broker_addrs.insert(MASTER_ID, addr);
    }
}
