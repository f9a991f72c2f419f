//! Topics: create, delete, read.

use std::borrow::Cow;

use crate::header;

header! {
    /// UPDATE_AND_CREATE_TOPIC and its static kind (`CreateTopicRequestHeader`).
    pub struct UpdateAndCreateTopicRequest<'a> {
        /// The topic.
        topic: Cow<'a, str> = "topic", required;
        /// Not used; RocketMQ calls it mandatory.
        default_topic: Option<Cow<'a, str>> = "defaultTopic", optional;
        /// Queues that consumers read.
        read_queue_nums: i32 = "readQueueNums", required;
        /// Queues that producers write.
        write_queue_nums: i32 = "writeQueueNums", required;
        /// Bits: 4 read, 2 write, 1 inherit.
        perm: i32 = "perm", required;
        /// `SINGLE_TAG` or `MULTI_TAG`.
        topic_filter_type: Cow<'a, str> = "topicFilterType", required;
        /// Unit flags.
        topic_sys_flag: Option<i32> = "topicSysFlag", optional;
        /// Whether it is ordered.
        order: bool = "order", default(false);
        /// Changes of attributes, `+key=value,-key` (5.x).
        attributes: Option<Cow<'a, str>> = "attributes", optional;
        /// Of a static topic: even if its mapping does not fit.
        force: Option<bool> = "force", optional;
    }
}

header! {
    /// DELETE_TOPIC_IN_BROKER (`DeleteTopicRequestHeader`).
    pub struct DeleteTopicRequest<'a> {
        /// The topic.
        topic: Cow<'a, str> = "topic", required;
    }
}

header! {
    /// GET_TOPIC_CONFIG (`GetTopicConfigRequestHeader`).
    pub struct GetTopicConfigRequest<'a> {
        /// The topic.
        topic: Cow<'a, str> = "topic", required;
    }
}

header! {
    /// GET_TOPIC_STATS_INFO (`GetTopicStatsInfoRequestHeader`).
    pub struct GetTopicStatsInfoRequest<'a> {
        /// The topic.
        topic: Cow<'a, str> = "topic", required;
    }
}

header! {
    /// QUERY_TOPIC_CONSUME_BY_WHO (`QueryTopicConsumeByWhoRequestHeader`).
    pub struct QueryTopicConsumeByWhoRequest<'a> {
        /// The topic.
        topic: Cow<'a, str> = "topic", required;
    }
}
