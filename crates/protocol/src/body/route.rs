//! Where topics and brokers are: what the name server answers (`TopicRouteData`, `ClusterInfo`, `TopicList`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use super::queue_mapping::TopicQueueMappingInfo;

/// Queues of one topic on one broker group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueData {
    /// The broker group.
    pub broker_name: String,
    /// Bits: 4 read, 2 write, 1 inherit.
    pub perm: i32,
    /// Queues that consumers read.
    pub read_queue_nums: i32,
    /// Unit flags.
    pub topic_sys_flag: i32,
    /// Queues that producers write.
    pub write_queue_nums: i32,
}

/// Brokers of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BrokerData {
    /// Address by broker id; 0 is the master.
    pub broker_addrs: BTreeMap<i64, String>,
    /// The broker group.
    pub broker_name: String,
    /// The cluster.
    pub cluster: String,
    /// Whether a slave may stand in for the master (5.x).
    pub enable_acting_master: bool,
    /// The zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone_name: Option<String>,
}

/// Answer to GET_ROUTEINFO_BY_TOPIC. Written compactly, since the Go client cuts the text of
/// `brokerAddrs` at commas and colons.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicRouteData {
    /// The broker groups that have the topic.
    pub broker_datas: Vec<BrokerData>,
    /// Filter servers by broker address; of old versions.
    pub filter_server_table: BTreeMap<String, Vec<String>>,
    /// Queues of an ordered topic, such as `broker-a:4;broker-b:4`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order_topic_conf: Option<String>,
    /// The queues by broker group.
    pub queue_datas: Vec<QueueData>,
    /// Of a static topic: logical queues by broker group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic_queue_mapping_by_broker: Option<BTreeMap<String, TopicQueueMappingInfo>>,
}

/// Answer to GET_BROKER_CLUSTER_INFO.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterInfo {
    /// The broker groups by name.
    pub broker_addr_table: BTreeMap<String, BrokerData>,
    /// Names of broker groups by cluster.
    pub cluster_addr_table: BTreeMap<String, Vec<String>>,
}

/// A list of topics, the answer to several requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicList {
    /// Address of some broker; only the system topic list of the name server has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_addr: Option<String>,
    /// The topics.
    pub topic_list: Vec<String>,
}

/// Brokers of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BrokerMemberGroup {
    /// Address by broker id; 0 is the master.
    pub broker_addrs: BTreeMap<i64, String>,
    /// The broker group.
    pub broker_name: String,
    /// The cluster.
    pub cluster: String,
}

/// Answer to GET_BROKER_MEMBER_GROUP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GetBrokerMemberGroupBody {
    /// The group; without addresses if it is unknown.
    pub broker_member_group: BrokerMemberGroup,
}
