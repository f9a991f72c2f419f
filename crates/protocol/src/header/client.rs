//! Clients: their membership in groups, and what they tell of themselves.

use std::borrow::Cow;

use crate::header;

header! {
    /// Answer to HEART_BEAT.
    pub struct HeartBeatResponse {
        /// Whether the client must send its subscriptions.
        is_sub_change: bool = "IS_SUB_CHANGE", required;
        /// Whether the broker knows heart-beats by fingerprint.
        is_support_heart_beat_v2: bool = "IS_SUPPORT_HEART_BEAT_V2", required;
    }
}

header! {
    /// UNREGISTER_CLIENT (`UnregisterClientRequestHeader`).
    pub struct UnregisterClientRequest<'a> {
        /// The client's id.
        client_id: Cow<'a, str> = "clientID", required;
        /// Producer group it leaves.
        producer_group: Option<Cow<'a, str>> = "producerGroup", optional;
        /// Consumer group it leaves.
        consumer_group: Option<Cow<'a, str>> = "consumerGroup", optional;
    }
}

header! {
    /// GET_CONSUMER_LIST_BY_GROUP (`GetConsumerListByGroupRequestHeader`).
    pub struct GetConsumerListByGroupRequest<'a> {
        /// The consumer group.
        consumer_group: Cow<'a, str> = "consumerGroup", required;
    }
}

header! {
    /// NOTIFY_CONSUMER_IDS_CHANGED, from the broker to consumers
    /// (`NotifyConsumerIdsChangedRequestHeader`).
    pub struct NotifyConsumerIdsChangedRequest<'a> {
        /// The consumer group.
        consumer_group: Cow<'a, str> = "consumerGroup", required;
    }
}

header! {
    /// GET_CONSUMER_CONNECTION_LIST (`GetConsumerConnectionListRequestHeader`).
    pub struct GetConsumerConnectionListRequest<'a> {
        /// The consumer group.
        consumer_group: Cow<'a, str> = "consumerGroup", required;
    }
}

header! {
    /// GET_PRODUCER_CONNECTION_LIST (`GetProducerConnectionListRequestHeader`).
    pub struct GetProducerConnectionListRequest<'a> {
        /// The producer group.
        producer_group: Cow<'a, str> = "producerGroup", required;
    }
}

header! {
    /// GET_CONSUMER_RUNNING_INFO (`GetConsumerRunningInfoRequestHeader`).
    pub struct GetConsumerRunningInfoRequest<'a> {
        /// The consumer group.
        consumer_group: Cow<'a, str> = "consumerGroup", required;
        /// The client's id.
        client_id: Cow<'a, str> = "clientId", required;
        /// Whether the client adds its thread dump.
        jstack_enable: bool = "jstackEnable", default(false);
    }
}

header! {
    /// CONSUME_MESSAGE_DIRECTLY (`ConsumeMessageDirectlyResultRequestHeader`).
    pub struct ConsumeMessageDirectlyRequest<'a> {
        /// The consumer group.
        consumer_group: Cow<'a, str> = "consumerGroup", required;
        /// The client's id.
        client_id: Option<Cow<'a, str>> = "clientId", optional;
        /// Offset message id.
        msg_id: Option<Cow<'a, str>> = "msgId", optional;
        /// Set by the broker: its name.
        broker_name: Option<Cow<'a, str>> = "brokerName", optional;
        /// The topic.
        topic: Option<Cow<'a, str>> = "topic", optional;
        /// Set by the broker: unit flags of the topic.
        topic_sys_flag: Option<i32> = "topicSysFlag", optional;
        /// Set by the broker: unit flags of the group.
        group_sys_flag: Option<i32> = "groupSysFlag", optional;
    }
}
