//! Consumer groups: create, delete, read.

use std::borrow::Cow;

use crate::header;

header! {
    /// DELETE_SUBSCRIPTIONGROUP (`DeleteSubscriptionGroupRequestHeader`).
    pub struct DeleteSubscriptionGroupRequest<'a> {
        /// The consumer group.
        group_name: Cow<'a, str> = "groupName", required;
        /// Whether its offsets go, too. 4.9 calls it `removeOffset`.
        clean_offset: bool = "cleanOffset" | "removeOffset", default(false);
    }
}

header! {
    /// GET_SUBSCRIPTIONGROUP_CONFIG (`GetSubscriptionGroupConfigRequestHeader`).
    pub struct GetSubscriptionGroupConfigRequest<'a> {
        /// The consumer group.
        group: Cow<'a, str> = "group", required;
    }
}

header! {
    /// UPDATE_AND_GET_GROUP_FORBIDDEN (`UpdateGroupForbiddenRequestHeader`).
    pub struct UpdateAndGetGroupForbiddenRequest<'a> {
        /// The consumer group.
        group: Cow<'a, str> = "group", required;
        /// The topic.
        topic: Cow<'a, str> = "topic", required;
        /// Whether the group may read the topic; absent only asks.
        readable: Option<bool> = "readable", optional;
    }
}

header! {
    /// QUERY_TOPICS_BY_CONSUMER (`QueryTopicsByConsumerRequestHeader`).
    pub struct QueryTopicsByConsumerRequest<'a> {
        /// The consumer group.
        group: Cow<'a, str> = "group", required;
    }
}

header! {
    /// QUERY_SUBSCRIPTION_BY_CONSUMER (`QuerySubscriptionByConsumerRequestHeader`).
    pub struct QuerySubscriptionByConsumerRequest<'a> {
        /// The consumer group.
        group: Cow<'a, str> = "group", required;
        /// The topic.
        topic: Option<Cow<'a, str>> = "topic", optional;
    }
}
