//! Popping messages, acknowledging them, and what belongs to it (5.x).

use std::borrow::Cow;

use crate::header;

header! {
    /// POP_MESSAGE (`PopMessageRequestHeader`).
    pub struct PopMessageRequest<'a> {
        /// The consumer group.
        consumer_group: Cow<'a, str> = "consumerGroup", required;
        /// The topic.
        topic: Cow<'a, str> = "topic", required;
        /// The queue, -1 for all.
        queue_id: i32 = "queueId", required;
        /// How many messages at most.
        max_msg_nums: i32 = "maxMsgNums", required;
        /// How long they stay hidden from others, in ms.
        invisible_time: i64 = "invisibleTime", required;
        /// How long the broker may hold the request, in ms.
        poll_time: i64 = "pollTime", required;
        /// When the request was made, in ms; 0 or absent means now.
        born_time: i64 = "bornTime", default(0);
        /// Where a new group begins: 0 at the oldest message, 1 at the newest.
        init_mode: i32 = "initMode", required;
        /// `TAG` or `SQL92`.
        expression_type: Option<Cow<'a, str>> = "expType", optional;
        /// Filter expression.
        expression: Option<Cow<'a, str>> = "exp", optional;
        /// Whether a queue is consumed in order.
        order: Option<bool> = "order", optional;
        /// Recognizes a repeated request in order mode.
        attempt_id: Option<Cow<'a, str>> = "attemptId", optional;
    }
}

header! {
    /// Answer to POP_MESSAGE (`PopMessageResponseHeader`).
    pub struct PopMessageResponse<'a> {
        /// When they were popped, in ms.
        pop_time: i64 = "popTime", required;
        /// How long they stay hidden, in ms.
        invisible_time: i64 = "invisibleTime", required;
        /// Queue of the revive topic that keeps track of them.
        revive_queue_id: i32 = "reviveQid", required;
        /// How many messages are left.
        rest_num: i64 = "restNum", required;
        /// First offset by queue.
        start_offset_info: Option<Cow<'a, str>> = "startOffsetInfo", optional;
        /// Offsets of the messages by queue.
        msg_offset_info: Option<Cow<'a, str>> = "msgOffsetInfo", optional;
        /// How often each was tried, in order mode.
        order_count_info: Option<Cow<'a, str>> = "orderCountInfo", optional;
    }
}

header! {
    /// ACK_MESSAGE (`AckMessageRequestHeader`).
    pub struct AckMessageRequest<'a> {
        /// The consumer group.
        consumer_group: Cow<'a, str> = "consumerGroup", required;
        /// The topic the message is in; of a retried one, the retry topic.
        topic: Cow<'a, str> = "topic", required;
        /// The queue.
        queue_id: i32 = "queueId", required;
        /// The message's POP_CK.
        extra_info: Cow<'a, str> = "extraInfo", required;
        /// Queue offset of the message.
        offset: i64 = "offset", required;
    }
}

header! {
    /// CHANGE_MESSAGE_INVISIBLETIME (`ChangeInvisibleTimeRequestHeader`).
    pub struct ChangeMessageInvisibleTimeRequest<'a> {
        /// The consumer group.
        consumer_group: Cow<'a, str> = "consumerGroup", required;
        /// The topic the message is in.
        topic: Cow<'a, str> = "topic", required;
        /// The queue.
        queue_id: i32 = "queueId", required;
        /// The message's POP_CK.
        extra_info: Cow<'a, str> = "extraInfo", required;
        /// Queue offset of the message.
        offset: i64 = "offset", required;
        /// How long it stays hidden from now, in ms.
        invisible_time: i64 = "invisibleTime", required;
    }
}

header! {
    /// Answer to CHANGE_MESSAGE_INVISIBLETIME (`ChangeInvisibleTimeResponseHeader`).
    pub struct ChangeMessageInvisibleTimeResponse {
        /// Now, in ms.
        pop_time: i64 = "popTime", required;
        /// How long it stays hidden, in ms.
        invisible_time: i64 = "invisibleTime", required;
        /// Queue of the revive topic that keeps track of it.
        revive_queue_id: i32 = "reviveQid", required;
    }
}

header! {
    /// PEEK_MESSAGE (`PeekMessageRequestHeader`).
    pub struct PeekMessageRequest<'a> {
        /// The consumer group.
        consumer_group: Cow<'a, str> = "consumerGroup", required;
        /// The topic.
        topic: Cow<'a, str> = "topic", required;
        /// The queue, -1 for all.
        queue_id: i32 = "queueId", required;
        /// How many messages at most.
        max_msg_nums: i32 = "maxMsgNums", required;
    }
}

header! {
    /// NOTIFICATION (`NotificationRequestHeader`).
    pub struct NotificationRequest<'a> {
        /// The consumer group.
        consumer_group: Cow<'a, str> = "consumerGroup", required;
        /// The topic.
        topic: Cow<'a, str> = "topic", required;
        /// The queue, -1 for all.
        queue_id: i32 = "queueId", required;
        /// How long the broker may hold the request, in ms.
        poll_time: i64 = "pollTime", required;
        /// When the request was made, in ms.
        born_time: i64 = "bornTime", required;
        /// Whether a queue is consumed in order.
        order: Option<bool> = "order", optional;
        /// Recognizes a repeated request in order mode.
        attempt_id: Option<Cow<'a, str>> = "attemptId", optional;
    }
}

header! {
    /// Answer to NOTIFICATION (`NotificationResponseHeader`).
    pub struct NotificationResponse {
        /// Whether there is a message to pop.
        has_msg: bool = "hasMsg", required;
        /// Whether the broker could not hold the request.
        polling_full: bool = "pollingFull", default(false);
    }
}

header! {
    /// POLLING_INFO (`PollingInfoRequestHeader`).
    pub struct PollingInfoRequest<'a> {
        /// The consumer group.
        consumer_group: Cow<'a, str> = "consumerGroup", required;
        /// The topic.
        topic: Cow<'a, str> = "topic", required;
        /// The queue.
        queue_id: i32 = "queueId", required;
    }
}

header! {
    /// Answer to POLLING_INFO (`PollingInfoResponseHeader`).
    pub struct PollingInfoResponse {
        /// How many requests the broker holds.
        polling_num: i32 = "pollingNum", required;
    }
}
