//! The JSON lines that the client programs print.
//!
//! The Java and Go programs under e2e/java and e2e/go write them; the fields
//! are the same in all of them.

use std::collections::BTreeMap;

use serde::Deserialize;

/// One line of output.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Line {
    /// A program process accepts orders.
    Serving,
    /// A producer or consumer has started.
    Ready,
    /// A consumer that was suspended from its start takes messages from now on.
    Resumed,
    /// The queues a push consumer holds have changed.
    Assigned {
        /// Each `topic/broker/queueId`.
        queues: Vec<String>,
    },
    /// A send was answered, or a one-way send was written.
    Send(Sent),
    /// A send failed: nobody knows whether it was stored.
    Error(SendError),
    /// A message was sent in a transaction, or could not be.
    Transaction(Transaction),
    /// A producer was asked about a transaction.
    Checked(Checked),
    /// A message arrived.
    Recv(Box<Received>),
    /// A queue that is about to be pulled, with its bounds.
    Queue(QueueBounds),
    /// The measured window of a bench begins.
    Measuring,
    /// The figures of a bench.
    Bench(BTreeMap<String, serde_json::Value>),
    /// The program ended as it should.
    Done(BTreeMap<String, serde_json::Value>),
    /// The program gave up.
    Failed {
        /// Why.
        error: String,
        /// The stack trace, where there is one.
        #[serde(default)]
        trace: String,
    },
}

/// The result of one send.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sent {
    /// Unique key `PREFIX-THREAD-SEQUENCE`.
    pub key: String,
    /// Topic it was sent to.
    pub topic: String,
    /// Tag, if it has one.
    pub tags: Option<String>,
    /// Number of the sending thread.
    pub thread: u32,
    /// Body length in bytes.
    pub body_length: u64,
    /// SHA-256 of the body, in hex.
    pub body_sha256: String,
    /// `SEND_OK`, another of RocketMQ's send states, `ONEWAY`, or `REPLIED` to a request.
    pub status: String,
    /// The client's unique id; absent for one-way sends and Go batches.
    pub msg_id: Option<String>,
    /// The broker's id, made of its address and the physical offset.
    pub offset_msg_id: Option<String>,
    /// Queue that took it; absent for one-way sends.
    pub queue_id: Option<i32>,
    /// Its place in that queue.
    pub queue_offset: Option<i64>,
    /// Broker that took it.
    pub broker_name: Option<String>,
    /// The body of the reply to a request.
    pub reply: Option<String>,
}

/// A send without an answer, or with an error.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SendError {
    /// Unique key.
    pub key: String,
    /// Topic it was sent to.
    pub topic: String,
    /// Tag, if it has one.
    pub tags: Option<String>,
    /// Number of the sending thread.
    pub thread: u32,
    /// Body length in bytes.
    pub body_length: u64,
    /// SHA-256 of the body, in hex.
    pub body_sha256: String,
    /// Response code, -1 when there was none.
    pub code: i64,
    /// The client's exception.
    pub error: String,
}

/// A message that was sent in a transaction.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Transaction {
    /// Unique key `PREFIX-THREAD-SEQUENCE`.
    pub key: String,
    /// What its producer decides, and when: `commit`, `rollback-1`, `never`.
    pub fate: String,
    /// One of RocketMQ's send states, or `FAILED`.
    pub status: String,
    /// The client's exception.
    pub error: Option<String>,
    /// The client's unique id.
    pub msg_id: Option<String>,
    /// The transaction's id, which is the same.
    pub transaction_id: Option<String>,
}

/// A check of a transaction.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Checked {
    /// The message's unique key.
    pub key: String,
    /// Its fate.
    pub fate: String,
    /// The topic that the producer sees.
    pub topic: String,
    /// The transaction's id.
    pub transaction_id: Option<String>,
    /// SHA-256 of the body, in hex.
    pub body_sha256: String,
}

/// A message as a consumer sees it.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)] // the fields of RocketMQ's MessageExt, under its names
pub struct Received {
    pub topic: String,
    pub broker_name: Option<String>,
    pub queue_id: i32,
    pub queue_offset: i64,
    pub msg_id: Option<String>,
    pub keys: Option<String>,
    pub tags: Option<String>,
    pub body: Option<String>,
    pub body_length: u64,
    pub body_sha256: String,
    pub flag: i32,
    pub sys_flag: i32,
    #[serde(rename = "bodyCRC")]
    pub body_crc: i32,
    pub size: i32,
    pub physical_offset: i64,
    pub reconsume_times: i32,
    pub prepared_transaction_offset: i64,
    pub born_timestamp: i64,
    pub born_host: String,
    pub store_timestamp: i64,
    pub store_host: String,
    pub properties: BTreeMap<String, String>,
}

/// First and next offset of a queue, when a pull of it began.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct QueueBounds {
    pub topic: String,
    pub broker_name: String,
    pub queue_id: i32,
    pub min_offset: i64,
    pub max_offset: i64,
}
