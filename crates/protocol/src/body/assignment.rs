//! Which queues a member consumes and how, decided by the broker (5.x).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::MessageQueue;
use crate::subscription::MessageModel;

/// Body of QUERY_ASSIGNMENT.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueryAssignmentRequestBody {
    /// The client's id.
    pub client_id: String,
    /// The consumer group.
    pub consumer_group: String,
    /// Who of the group gets a message.
    pub message_model: MessageModel,
    /// `AVG` or `AVG_BY_CIRCLE`.
    pub strategy_name: String,
    /// The topic.
    pub topic: String,
}

/// A queue, and how to consume it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MessageQueueAssignment {
    /// Whatever else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attachments: Option<BTreeMap<String, String>>,
    /// The queue.
    pub message_queue: MessageQueue,
    /// `PULL` or `POP`.
    pub mode: String,
}

/// Answer to QUERY_ASSIGNMENT.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueryAssignmentResponseBody {
    /// The queues; absent means no change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_queue_assignments: Option<Vec<MessageQueueAssignment>>,
}

/// Body of SET_MESSAGE_REQUEST_MODE, and an entry of `messageRequestMode.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SetMessageRequestModeRequestBody {
    /// The consumer group.
    pub consumer_group: String,
    /// `PULL` or `POP`.
    pub mode: String,
    /// How many other members may pop a queue; below 1 all.
    pub pop_share_queue_num: i32,
    /// The topic.
    pub topic: String,
}

/// Answer to GET_ALL_MESSAGE_REQUEST_MODE.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MessageRequestModeTable {
    /// Mode by topic and group.
    pub message_request_mode_map:
        BTreeMap<String, BTreeMap<String, SetMessageRequestModeRequestBody>>,
}
