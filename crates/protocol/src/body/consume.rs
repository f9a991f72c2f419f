//! Progress and members of groups, for people (`ConsumeStats`, `ConsumerConnection`, ...).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::MessageQueue;
use crate::subscription::{ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData};

/// Progress of a group in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OffsetWrapper {
    /// Offset the next message will have.
    pub broker_offset: i64,
    /// The consumer offset; 0 if there is none.
    pub consumer_offset: i64,
    /// Store time of the last consumed message, in ms; 0 if there is none.
    pub last_timestamp: i64,
    /// Where the last pull went to (5.x).
    pub pull_offset: i64,
}

/// Answer to GET_CONSUME_STATS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumeStats {
    /// Messages a second lately.
    pub consume_tps: f64,
    /// Progress by queue.
    pub offset_table: BTreeMap<MessageQueue, OffsetWrapper>,
}

/// Answer to GET_BROKER_CONSUME_STATS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumeStatsList {
    /// The broker's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_addr: Option<String>,
    /// Progress by group.
    pub consume_stats_list: Vec<BTreeMap<String, Vec<ConsumeStats>>>,
    /// Messages not consumed yet.
    pub total_diff: i64,
    /// Messages pulled and not consumed yet.
    pub total_inflight_diff: i64,
}

/// A client's connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Connection {
    /// Where it comes from, as `ip:port`.
    pub client_addr: String,
    /// The client's id.
    pub client_id: String,
    /// What it is written in, such as `JAVA`.
    pub language: String,
    /// Its [`crate::version`].
    pub version: i32,
}

/// Answer to GET_CONSUMER_CONNECTION_LIST.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerConnection {
    /// The members.
    pub connection_set: Vec<Connection>,
    /// Where the group begins in a new queue.
    pub consume_from_where: ConsumeFromWhere,
    /// How it consumes.
    pub consume_type: ConsumeType,
    /// Who of the group gets a message.
    pub message_model: MessageModel,
    /// Subscription by topic.
    pub subscription_table: BTreeMap<String, SubscriptionData>,
}

/// Answer to GET_PRODUCER_CONNECTION_LIST.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProducerConnection {
    /// The members.
    pub connection_set: Vec<Connection>,
}

/// A producer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProducerInfo {
    /// The client's id.
    pub client_id: String,
    /// What it is written in.
    pub language: String,
    /// Time of its last heart-beat, in ms.
    pub last_update_timestamp: i64,
    /// Where it comes from.
    #[serde(rename = "remoteIP")]
    pub remote_ip: String,
    /// Its [`crate::version`].
    pub version: i32,
}

/// Answer to GET_ALL_PRODUCER_INFO.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProducerTableInfo {
    /// The producers by group.
    pub data: BTreeMap<String, Vec<ProducerInfo>>,
}

/// Answer to GET_CONSUMER_LIST_BY_GROUP (`GetConsumerListByGroupResponseBody`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerIdList {
    /// Ids of the members.
    pub consumer_id_list: Vec<String>,
}

/// Which time a queue covers, and how far a group is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueTimeSpan {
    /// Store time of the last consumed message, in ms.
    pub consume_time_stamp: i64,
    /// The same as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consume_time_stamp_str: Option<String>,
    /// How far the group is behind, in ms.
    pub delay_time: i64,
    /// Store time of the last message, in ms.
    pub max_time_stamp: i64,
    /// The same as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_time_stamp_str: Option<String>,
    /// The queue.
    pub message_queue: MessageQueue,
    /// Store time of the first message, in ms.
    pub min_time_stamp: i64,
    /// The same as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_time_stamp_str: Option<String>,
}

/// Answer to QUERY_CONSUME_TIME_SPAN.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueryConsumeTimeSpanBody {
    /// By queue.
    pub consume_time_span_set: Vec<QueueTimeSpan>,
}

/// Figures of a span of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BrokerStatsItem {
    /// Average of a call.
    pub avgpt: f64,
    /// Sum.
    pub sum: i64,
    /// Average a second.
    pub tps: f64,
}

/// Answer to VIEW_BROKER_STATS_DATA.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BrokerStatsData {
    /// The last day.
    pub stats_day: BrokerStatsItem,
    /// The last hour.
    pub stats_hour: BrokerStatsItem,
    /// The last minute.
    pub stats_minute: BrokerStatsItem,
}

/// An entry of a ConsumeQueue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumeQueueData {
    /// Bits of the filters it passes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bit_map: Option<String>,
    /// Whether the filter takes it.
    pub eval: bool,
    /// Its extension.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extend_data_json: Option<String>,
    /// Its properties or an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub msg: Option<String>,
    /// Physical offset.
    pub physic_offset: i64,
    /// Bytes of the record.
    pub physic_size: i32,
    /// Tag code.
    pub tags_code: i64,
}

/// Answer to QUERY_CONSUME_QUEUE.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueryConsumeQueueResponseBody {
    /// The filter as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter_data: Option<String>,
    /// Offset the next message will have.
    pub max_queue_index: i64,
    /// Offset of the first message.
    pub min_queue_index: i64,
    /// The entries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_data: Option<Vec<ConsumeQueueData>>,
    /// The group's subscription.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription_data: Option<SubscriptionData>,
}

/// A client's answer to CONSUME_MESSAGE_DIRECTLY.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumeMessageDirectlyResult {
    /// Whether it commits by itself.
    pub auto_commit: bool,
    /// `CR_SUCCESS`, `CR_LATER`, ...
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consume_result: Option<String>,
    /// Whether it consumes in order.
    pub order: bool,
    /// A text for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
    /// How long it took, in ms.
    pub spent_time_mills: i64,
}
