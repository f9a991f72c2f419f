//! Progress and figures, for people.

use std::borrow::Cow;

use crate::header;

header! {
    /// GET_CONSUME_STATS (`GetConsumeStatsRequestHeader`).
    pub struct GetConsumeStatsRequest<'a> {
        /// The consumer group.
        consumer_group: Cow<'a, str> = "consumerGroup", required;
        /// Only this topic; empty or absent means all of the group.
        topic: Option<Cow<'a, str>> = "topic", optional;
        /// Only these topics, joined by `;`.
        topic_list: Option<Cow<'a, str>> = "topicList", optional;
    }
}

header! {
    /// GET_BROKER_CONSUME_STATS (`GetConsumeStatsInBrokerHeader`).
    pub struct GetBrokerConsumeStatsRequest {
        /// Whether ordered groups are meant.
        is_order: bool = "isOrder", required;
    }
}

header! {
    /// QUERY_CONSUME_TIME_SPAN (`QueryConsumeTimeSpanRequestHeader`).
    pub struct QueryConsumeTimeSpanRequest<'a> {
        /// The topic.
        topic: Cow<'a, str> = "topic", required;
        /// The consumer group.
        group: Cow<'a, str> = "group", required;
    }
}

header! {
    /// VIEW_BROKER_STATS_DATA (`ViewBrokerStatsDataRequestHeader`).
    pub struct ViewBrokerStatsDataRequest<'a> {
        /// Name of the figure, such as `TOPIC_PUT_NUMS`.
        stats_name: Cow<'a, str> = "statsName", required;
        /// Whose figure, such as a topic.
        stats_key: Cow<'a, str> = "statsKey", required;
    }
}

header! {
    /// QUERY_CONSUME_QUEUE (`QueryConsumeQueueRequestHeader`).
    pub struct QueryConsumeQueueRequest<'a> {
        /// The topic.
        topic: Cow<'a, str> = "topic", required;
        /// The queue.
        queue_id: i32 = "queueId", required;
        /// First queue offset.
        index: i64 = "index", required;
        /// How many entries.
        count: i32 = "count", required;
        /// Group whose filter is tried on them.
        consumer_group: Option<Cow<'a, str>> = "consumerGroup", optional;
    }
}
