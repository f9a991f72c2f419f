//! What a client tells of itself (`HeartbeatData`, `CheckClientRequestBody`).

use serde::{Deserialize, Serialize};

use crate::subscription::{ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData};

/// Body of HEART_BEAT.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeartbeatData {
    /// The client's id.
    #[serde(rename = "clientID")]
    pub client_id: String,
    /// Consumer groups it is a member of.
    pub consumer_data_set: Vec<ConsumerData>,
    /// Hash of what else is in it; 0 if the client does not make one (5.x).
    pub heartbeat_fingerprint: i32,
    /// Producer groups it is a member of.
    pub producer_data_set: Vec<ProducerData>,
    /// Whether the subscriptions are left out, since they are known (5.x).
    pub without_sub: bool,
}

/// Membership in a consumer group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerData {
    /// Where the group begins in a new queue.
    pub consume_from_where: ConsumeFromWhere,
    /// How it consumes.
    pub consume_type: ConsumeType,
    /// The group.
    pub group_name: String,
    /// Who of the group gets a message.
    pub message_model: MessageModel,
    /// What it subscribes to.
    pub subscription_data_set: Vec<SubscriptionData>,
    /// Whether the client is in unit mode.
    pub unit_mode: bool,
}

/// Membership in a producer group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProducerData {
    /// The group.
    pub group_name: String,
}

/// Body of CHECK_CLIENT_CONFIG.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CheckClientRequestBody {
    /// The client's id.
    pub client_id: String,
    /// The consumer group.
    pub group: String,
    /// The namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The subscription to check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription_data: Option<SubscriptionData>,
}
