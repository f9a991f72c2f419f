//! Pulling messages.

use std::borrow::Cow;

use crate::header;

header! {
    /// PULL_MESSAGE and LITE_PULL_MESSAGE (`PullMessageRequestHeader`). The bits of `sys_flag` are
    /// the constants of this module.
    pub struct PullMessageRequest<'a> {
        /// The consumer group.
        consumer_group: Cow<'a, str> = "consumerGroup", required;
        /// The topic.
        topic: Cow<'a, str> = "topic", required;
        /// The queue.
        queue_id: i32 = "queueId", required;
        /// Where to read from.
        queue_offset: i64 = "queueOffset", required;
        /// How many messages at most; below 1 it means one.
        max_msg_nums: i32 = "maxMsgNums", required;
        /// What else is meant; see [`SYS_FLAG_COMMIT_OFFSET`] and following.
        sys_flag: i32 = "sysFlag", required;
        /// The group's consumer offset; counts if `sys_flag` says so.
        commit_offset: i64 = "commitOffset", required;
        /// How long the broker may hold the request, in ms.
        suspend_timeout_millis: i64 = "suspendTimeoutMillis", required;
        /// Filter expression; counts if `sys_flag` says so.
        subscription: Option<Cow<'a, str>> = "subscription", optional;
        /// Version of the subscription the client works by, in ms.
        sub_version: i64 = "subVersion", default(0);
        /// `TAG` or `SQL92`; absent means `TAG`.
        expression_type: Option<Cow<'a, str>> = "expressionType", optional;
        /// How many bytes at most; said by 5.x clients.
        max_msg_bytes: Option<i32> = "maxMsgBytes", optional;
        /// Which part of a proxy asks; absent or -1 means a client.
        request_source: Option<i32> = "requestSource", optional;
        /// Client behind a proxy. The name on the wire is misspelt, and stays so.
        proxy_forward_client_id: Option<Cow<'a, str>> = "proxyFrowardClientId", optional;
    }
}

header! {
    /// Answer to a pull with code 0, 19, 20 or 21 (`PullMessageResponseHeader`); Java clients fail
    /// without it.
    pub struct PullMessageResponse {
        /// Id of the broker to pull from next.
        suggest_which_broker_id: i64 = "suggestWhichBrokerId", required;
        /// Where to read from next.
        next_begin_offset: i64 = "nextBeginOffset", required;
        /// First offset of the queue.
        min_offset: i64 = "minOffset", required;
        /// Offset the next message of the queue will have.
        max_offset: i64 = "maxOffset", required;
        /// Of a static topic: physical minus logical offset.
        offset_delta: Option<i64> = "offsetDelta", optional;
        /// Unit flags of the topic (5.x).
        topic_sys_flag: Option<i32> = "topicSysFlag", optional;
        /// Unit flags of the group (5.x).
        group_sys_flag: Option<i32> = "groupSysFlag", optional;
        /// With code 16: what forbids it. 1 broker, 2 group, 3 topic, 4 broadcast, 5 subscription.
        forbidden_type: Option<i32> = "forbiddenType", optional;
    }
}

/// Bit of `sys_flag`: `commit_offset` is to be recorded (`PullSysFlag.FLAG_COMMIT_OFFSET`).
pub const SYS_FLAG_COMMIT_OFFSET: i32 = 1;
/// Bit of `sys_flag`: the broker may hold the request (`PullSysFlag.FLAG_SUSPEND`).
pub const SYS_FLAG_SUSPEND: i32 = 1 << 1;
/// Bit of `sys_flag`: `subscription` is the filter (`PullSysFlag.FLAG_SUBSCRIPTION`).
pub const SYS_FLAG_SUBSCRIPTION: i32 = 1 << 2;
/// Bit of `sys_flag`: filter by a class, which no version still does.
pub const SYS_FLAG_CLASS_FILTER: i32 = 1 << 3;
/// Bit of `sys_flag`: from a lite pull consumer (`PullSysFlag.FLAG_LITE_PULL_MESSAGE`).
pub const SYS_FLAG_LITE_PULL: i32 = 1 << 4;

impl PullMessageRequest<'_> {
    /// Whether `sys_flag` has a bit.
    pub fn has_flag(&self, bit: i32) -> bool {
        self.sys_flag & bit != 0
    }
}
