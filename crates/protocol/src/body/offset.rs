//! Consumer offsets (`ConsumerOffsetSerializeWrapper`, `ResetOffsetBody`, ...).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{DataVersion, MessageQueue};

/// Answer to GET_ALL_CONSUMER_OFFSET.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerOffsetTable {
    /// Its version (5.x).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_version: Option<DataVersion>,
    /// Topics by group, derived from the table (5.x).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_topic_map: Option<BTreeMap<String, Vec<String>>>,
    /// Offset by queue, by `topic@group`.
    pub offset_table: BTreeMap<String, BTreeMap<i32, i64>>,
}

/// Answer to GET_ALL_DELAY_OFFSET.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DelayOffsetTable {
    /// Its version (5.x).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_version: Option<DataVersion>,
    /// Queue offset of the schedule topic, by delay level.
    pub offset_table: BTreeMap<i32, i64>,
}

/// Answer to INVOKE_BROKER_TO_RESET_OFFSET, and body of RESET_CONSUMER_CLIENT_OFFSET.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResetOffsetBody {
    /// Offset by queue.
    pub offset_table: BTreeMap<MessageQueue, i64>,
}

/// Body of RESET_CONSUMER_CLIENT_OFFSET when a C++ client asked for the reset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResetOffsetBodyForC {
    /// The queues with their offsets.
    pub offset_table: Vec<MessageQueueForC>,
}

/// A queue and its offset (`MessageQueueForC`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MessageQueueForC {
    /// The broker group.
    pub broker_name: String,
    /// The offset.
    pub offset: i64,
    /// The queue.
    pub queue_id: i32,
    /// The topic.
    pub topic: String,
}

impl ResetOffsetBodyForC {
    /// The same offsets in this shape.
    pub fn new(offset_table: &BTreeMap<MessageQueue, i64>) -> ResetOffsetBodyForC {
        let offset_table = offset_table
            .iter()
            .map(|(queue, offset)| MessageQueueForC {
                broker_name: queue.broker_name.clone(),
                offset: *offset,
                queue_id: queue.queue_id,
                topic: queue.topic.clone(),
            })
            .collect();
        ResetOffsetBodyForC { offset_table }
    }
}

/// Answer to INVOKE_BROKER_TO_GET_CONSUMER_STATUS and GET_CONSUMER_STATUS_FROM_CLIENT.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GetConsumerStatusBody {
    /// Offset by queue, by client.
    pub consumer_table: BTreeMap<String, BTreeMap<MessageQueue, i64>>,
    /// Offset by queue, of one client.
    pub message_queue_table: BTreeMap<MessageQueue, i64>,
}

/// Answer to QUERY_CORRECTION_OFFSET.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueryCorrectionOffsetBody {
    /// Offset by queue.
    pub correction_offsets: BTreeMap<i32, i64>,
}
