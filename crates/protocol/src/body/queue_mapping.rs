//! Static topics: logical queues and the physical ones behind them (`TopicQueueMappingInfo`, `TopicQueueMappingDetail`, `LogicQueueMappingItem`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Which logical queues of a static topic a broker group holds now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicQueueMappingInfo {
    /// The broker group.
    pub bname: String,
    /// Physical by logical queue.
    pub curr_id_map: BTreeMap<i32, i32>,
    /// Whether it is being changed.
    pub dirty: bool,
    /// Version of the mapping.
    pub epoch: i64,
    /// `__global__` for one broker cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The topic.
    pub topic: String,
    /// How many logical queues the topic has.
    pub total_queues: i32,
}

/// The same with the history of each logical queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicQueueMappingDetail {
    /// The broker group.
    pub bname: String,
    /// Physical by logical queue.
    pub curr_id_map: BTreeMap<i32, i32>,
    /// Whether it is being changed.
    pub dirty: bool,
    /// Version of the mapping.
    pub epoch: i64,
    /// Where each logical queue has been.
    pub hosted_queues: BTreeMap<i32, Vec<LogicQueueMappingItem>>,
    /// `__global__` for one broker cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The topic.
    pub topic: String,
    /// How many logical queues the topic has.
    pub total_queues: i32,
}

/// A stretch of a logical queue in one physical queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LogicQueueMappingItem {
    /// The broker group.
    pub bname: String,
    /// First physical offset no longer part of it; -1 if still growing.
    pub end_offset: i64,
    /// Number of the stretch.
    #[serde(rename = "gen")]
    pub generation: i32,
    /// Logical offset of its beginning.
    pub logic_offset: i64,
    /// The physical queue.
    pub queue_id: i32,
    /// Physical offset of its beginning.
    pub start_offset: i64,
    /// When it ended, in ms; -1 if it did not.
    pub time_of_end: i64,
    /// When it began, in ms; -1 if not recorded.
    pub time_of_start: i64,
}
