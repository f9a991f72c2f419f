//! Topic settings and figures (`TopicConfig`, `TopicConfigSerializeWrapper`, `TopicStatsTable`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::queue_mapping::{TopicQueueMappingDetail, TopicQueueMappingInfo};
use super::{DataVersion, MessageQueue};

/// Settings of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicConfig {
    /// Attributes, such as `message.type` (5.x).
    pub attributes: BTreeMap<String, String>,
    /// Whether it is ordered.
    pub order: bool,
    /// Bits: 4 read, 2 write, 1 inherit.
    pub perm: i32,
    /// Queues that consumers read.
    pub read_queue_nums: i32,
    /// `SINGLE_TAG` or `MULTI_TAG`.
    pub topic_filter_type: String,
    /// The topic.
    pub topic_name: String,
    /// Unit flags.
    pub topic_sys_flag: i32,
    /// Queues that producers write.
    pub write_queue_nums: i32,
}

impl Default for TopicConfig {
    /// 16 queues to read and write, as in Java.
    fn default() -> Self {
        TopicConfig {
            attributes: BTreeMap::new(),
            order: false,
            perm: 6,
            read_queue_nums: 16,
            topic_filter_type: "SINGLE_TAG".to_owned(),
            topic_name: String::new(),
            topic_sys_flag: 0,
            write_queue_nums: 16,
        }
    }
}

/// The whole topic table of a broker: answer to GET_ALL_TOPIC_CONFIG, and part of a registration
/// (`TopicConfigAndMappingSerializeWrapper`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicConfigSerializeWrapper {
    /// Its version.
    pub data_version: DataVersion,
    /// Version of the queue mappings (5.x).
    pub mapping_data_version: DataVersion,
    /// Settings by topic.
    pub topic_config_table: BTreeMap<String, TopicConfig>,
    /// Queue mappings of static topics, with history (5.x).
    pub topic_queue_mapping_detail_map: BTreeMap<String, TopicQueueMappingDetail>,
    /// Queue mappings of static topics (5.x).
    pub topic_queue_mapping_info_map: BTreeMap<String, TopicQueueMappingInfo>,
}

/// Body of UPDATE_AND_CREATE_TOPIC_LIST.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CreateTopicListBody {
    /// The topics.
    pub topic_config_list: Vec<TopicConfig>,
}

/// Bounds of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicOffset {
    /// Store time of the last message, in ms; 0 if there is none.
    pub last_update_timestamp: i64,
    /// Offset the next message will have.
    pub max_offset: i64,
    /// Offset of the first message.
    pub min_offset: i64,
}

/// Answer to GET_TOPIC_STATS_INFO.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicStatsTable {
    /// Bounds by queue.
    pub offset_table: BTreeMap<MessageQueue, TopicOffset>,
    /// Messages a second lately (5.x).
    pub topic_put_tps: f64,
}
