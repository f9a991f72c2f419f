//! Consumer offsets and the bounds of queues.

use std::borrow::Cow;

use crate::header;

header! {
    /// QUERY_CONSUMER_OFFSET (`QueryConsumerOffsetRequestHeader`).
    pub struct QueryConsumerOffsetRequest<'a> {
        /// The consumer group.
        consumer_group: Cow<'a, str> = "consumerGroup", required;
        /// The topic.
        topic: Cow<'a, str> = "topic", required;
        /// The queue.
        queue_id: i32 = "queueId", required;
        /// Whether 0 may be answered for a group without an offset; absent means yes (5.x).
        set_zero_if_not_found: Option<bool> = "setZeroIfNotFound", optional;
    }
}

header! {
    /// Answer to QUERY_CONSUMER_OFFSET (`QueryConsumerOffsetResponseHeader`).
    pub struct QueryConsumerOffsetResponse {
        /// The consumer offset.
        offset: i64 = "offset", required;
    }
}

header! {
    /// UPDATE_CONSUMER_OFFSET (`UpdateConsumerOffsetRequestHeader`). Queue and offset are answered
    /// for by the handler: 5.x brokers name them with a code of their own.
    pub struct UpdateConsumerOffsetRequest<'a> {
        /// The consumer group.
        consumer_group: Cow<'a, str> = "consumerGroup", required;
        /// The topic.
        topic: Cow<'a, str> = "topic", required;
        /// The queue; RocketMQ calls it mandatory.
        queue_id: Option<i32> = "queueId", optional;
        /// The consumer offset; RocketMQ calls it mandatory.
        commit_offset: Option<i64> = "commitOffset", optional;
    }
}

header! {
    /// SEARCH_OFFSET_BY_TIMESTAMP (`SearchOffsetRequestHeader`).
    pub struct SearchOffsetByTimestampRequest<'a> {
        /// The topic.
        topic: Cow<'a, str> = "topic", required;
        /// The queue.
        queue_id: i32 = "queueId", required;
        /// Store time to look for, in ms.
        timestamp: i64 = "timestamp", required;
        /// `LOWER` (also if absent) or `UPPER`, in any case (5.x).
        boundary_type: Option<Cow<'a, str>> = "boundaryType", optional;
    }
}

header! {
    /// Answer to SEARCH_OFFSET_BY_TIMESTAMP (`SearchOffsetResponseHeader`).
    pub struct SearchOffsetByTimestampResponse {
        /// The queue offset.
        offset: i64 = "offset", required;
    }
}

header! {
    /// GET_MAX_OFFSET (`GetMaxOffsetRequestHeader`).
    pub struct GetMaxOffsetRequest<'a> {
        /// The topic.
        topic: Cow<'a, str> = "topic", required;
        /// The queue.
        queue_id: i32 = "queueId", required;
        /// Whether only what consumers may see counts.
        committed: bool = "committed", default(true);
    }
}

header! {
    /// Answer to GET_MAX_OFFSET (`GetMaxOffsetResponseHeader`).
    pub struct GetMaxOffsetResponse {
        /// Queue offset the next message will have.
        offset: i64 = "offset", required;
    }
}

header! {
    /// GET_MIN_OFFSET (`GetMinOffsetRequestHeader`).
    pub struct GetMinOffsetRequest<'a> {
        /// The topic.
        topic: Cow<'a, str> = "topic", required;
        /// The queue.
        queue_id: i32 = "queueId", required;
    }
}

header! {
    /// Answer to GET_MIN_OFFSET (`GetMinOffsetResponseHeader`).
    pub struct GetMinOffsetResponse {
        /// First queue offset.
        offset: i64 = "offset", required;
    }
}

header! {
    /// GET_EARLIEST_MSG_STORETIME (`GetEarliestMsgStoretimeRequestHeader`).
    pub struct GetEarliestMsgStoretimeRequest<'a> {
        /// The topic.
        topic: Cow<'a, str> = "topic", required;
        /// The queue.
        queue_id: i32 = "queueId", required;
    }
}

header! {
    /// Answer to GET_EARLIEST_MSG_STORETIME (`GetEarliestMsgStoretimeResponseHeader`).
    pub struct GetEarliestMsgStoretimeResponse {
        /// Store time of the queue's first message, in ms; -1 if there is none.
        timestamp: i64 = "timestamp", required;
    }
}

header! {
    /// QUERY_CORRECTION_OFFSET (`QueryCorrectionOffsetHeader`).
    pub struct QueryCorrectionOffsetRequest<'a> {
        /// Groups left out, joined by commas.
        filter_groups: Option<Cow<'a, str>> = "filterGroups", optional;
        /// The group compared with.
        compare_group: Cow<'a, str> = "compareGroup", required;
        /// The topic.
        topic: Cow<'a, str> = "topic", required;
    }
}

header! {
    /// CLONE_GROUP_OFFSET (`CloneGroupOffsetRequestHeader`).
    pub struct CloneGroupOffsetRequest<'a> {
        /// Group to copy from.
        src_group: Cow<'a, str> = "srcGroup", required;
        /// Group to copy to.
        dest_group: Cow<'a, str> = "destGroup", required;
        /// Only this topic.
        topic: Option<Cow<'a, str>> = "topic", optional;
        /// Whether the source group may be offline.
        offline: bool = "offline", default(false);
    }
}

header! {
    /// INVOKE_BROKER_TO_RESET_OFFSET, and RESET_CONSUMER_CLIENT_OFFSET to a client
    /// (`ResetOffsetRequestHeader`).
    pub struct InvokeBrokerToResetOffsetRequest<'a> {
        /// The topic.
        topic: Cow<'a, str> = "topic", required;
        /// The consumer group.
        group: Cow<'a, str> = "group", required;
        /// Store time to reset to, in ms; -1 for the newest message.
        timestamp: i64 = "timestamp", required;
        /// Whether an offset may also move forward.
        is_force: bool = "isForce", required;
        /// Only this queue; -1 for all.
        queue_id: i32 = "queueId", default(-1);
        /// With a queue: the offset, in place of the time.
        offset: Option<i64> = "offset", optional;
    }
}

header! {
    /// INVOKE_BROKER_TO_GET_CONSUMER_STATUS, and GET_CONSUMER_STATUS_FROM_CLIENT to a client
    /// (`GetConsumerStatusRequestHeader`).
    pub struct InvokeBrokerToGetConsumerStatusRequest<'a> {
        /// The topic.
        topic: Cow<'a, str> = "topic", required;
        /// The consumer group.
        group: Cow<'a, str> = "group", required;
        /// Only the client of this id, in spite of the name.
        client_addr: Option<Cow<'a, str>> = "clientAddr", optional;
    }
}
