//! What the reconcilers ask of brokers and name servers, as a narrow trait: tests put a table in
//! its place, `admin` puts the client's administrative calls.

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use rocketmq_replication::Report;
use thiserror::Error;

/// A broker or name server refused a request or did not answer in time.
#[derive(Clone, Debug, Error)]
#[error("{operation} at {address}: {message}")]
pub struct AdminError {
    /// What was asked.
    pub operation: &'static str,
    /// Of whom.
    pub address: String,
    /// Why not.
    pub message: String,
    /// The response code, when there was a response.
    pub refused: Option<i32>,
}

/// A pending answer.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, AdminError>>;

/// A topic as a broker keeps it (RocketMQ's TopicConfig).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSettings {
    /// Queues that consumers see.
    pub read_queues: i32,
    /// Queues that producers see.
    pub write_queues: i32,
    /// perm bits.
    pub permission: i32,
    /// Whether messages are ordered by key.
    pub order: bool,
    /// `SINGLE_TAG` or `MULTI_TAG`.
    pub filter_type: String,
    /// topicSysFlag bits.
    pub sys_flag: i32,
}

/// A consumer group as a broker keeps it: the fields of RocketMQ's SubscriptionGroupConfig that a
/// ConsumerGroup manages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    /// Whether members may consume.
    pub consume_enabled: bool,
    /// Whether broadcast consumption is allowed.
    pub broadcast_enabled: bool,
    /// Whether members start at a queue's beginning.
    pub consume_from_min: bool,
    /// Whether members are told at once when others come or go.
    pub notify_on_membership_change: bool,
    /// Queues of the retry topic.
    pub retry_queues: i32,
    /// Deliveries before the dead-letter queue.
    pub max_retries: i32,
}

/// Offsets of one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueOffsets {
    /// First message still there.
    pub min_queue_offset: i64,
    /// One past the last message.
    pub max_queue_offset: i64,
    /// Store time of the last message, 0 when there is none.
    pub last_update_ms: i64,
}

/// How far a consumer group is in one topic on one broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Name of the consumer group.
    pub group: String,
    /// Consumer offset by queue.
    pub offsets: BTreeMap<i32, i64>,
}

/// Administrative requests. Each has a deadline; none is retried here.
pub trait BrokerAdmin: Send + Sync + 'static {
    /// brokerName and master address of every broker a name server knows, of one cluster.
    fn masters<'a>(
        &'a self,
        name_server: &'a str,
        cluster: &'a str,
    ) -> Answer<'a, BTreeMap<String, String>>;

    /// What a broker of a group with slaves has.
    fn replica<'a>(&'a self, broker: &'a str) -> Answer<'a, Report>;

    /// One topic on a broker.
    fn topic<'a>(&'a self, broker: &'a str, topic: &'a str) -> Answer<'a, Option<TopicSettings>>;

    /// Creates or updates a topic on a broker.
    fn put_topic<'a>(
        &'a self,
        broker: &'a str,
        topic: &'a str,
        settings: &'a TopicSettings,
    ) -> Answer<'a, ()>;

    /// Deletes a topic, its queues and its offsets on a broker. Success when it is not there.
    fn delete_topic<'a>(&'a self, broker: &'a str, topic: &'a str) -> Answer<'a, ()>;

    /// Deletes a topic's route on a name server. Success when it is not there.
    fn forget_topic<'a>(&'a self, name_server: &'a str, topic: &'a str) -> Answer<'a, ()>;

    /// Offsets of a topic's queues on a broker.
    fn queue_offsets<'a>(
        &'a self,
        broker: &'a str,
        topic: &'a str,
    ) -> Answer<'a, BTreeMap<i32, QueueOffsets>>;

    /// Every consumer group that keeps, or will keep, offsets for a topic on a broker. Broadcast
    /// groups are not among them: their offsets are with the clients.
    fn progress<'a>(&'a self, broker: &'a str, topic: &'a str) -> Answer<'a, Vec<Progress>>;

    /// One consumer group on a broker.
    fn group<'a>(&'a self, broker: &'a str, group: &'a str) -> Answer<'a, Option<GroupSettings>>;

    /// Creates or updates a consumer group on a broker; fields it does not manage keep their value.
    fn put_group<'a>(
        &'a self,
        broker: &'a str,
        group: &'a str,
        settings: &'a GroupSettings,
    ) -> Answer<'a, ()>;

    /// Deletes a consumer group, with its offsets when asked. Success when it is not there.
    fn delete_group<'a>(
        &'a self,
        broker: &'a str,
        group: &'a str,
        clean_offsets: bool,
    ) -> Answer<'a, ()>;

    /// Whether members of a consumer group are connected to a broker.
    fn has_members<'a>(&'a self, broker: &'a str, group: &'a str) -> Answer<'a, bool>;

    /// Another broker answers at this address from now on: what was remembered of it is void.
    fn forget<'a>(&'a self, broker: &'a str);
}
