//! Locks on queues, for ordered consumption (`LockBatchRequestBody` and its siblings).

use serde::{Deserialize, Serialize};

use super::MessageQueue;

/// Body of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LockBatchRequestBody {
    /// The client's id.
    pub client_id: String,
    /// The consumer group.
    pub consumer_group: String,
    /// The queues.
    pub mq_set: Vec<MessageQueue>,
    /// Whether other replicas need not be asked (5.x).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only_this_broker: Option<bool>,
}

/// Answer to LOCK_BATCH_MQ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LockBatchResponseBody {
    /// The queues that the client owns now.
    #[serde(rename = "lockOKMQSet")]
    pub lock_ok_mq_set: Vec<MessageQueue>,
}
