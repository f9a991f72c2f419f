//! Routes and topic lists, from the name server.

use std::borrow::Cow;

use crate::header;

header! {
    /// GET_ROUTEINFO_BY_TOPIC (`GetRouteInfoRequestHeader`).
    pub struct GetRouteinfoByTopicRequest<'a> {
        /// The topic.
        topic: Cow<'a, str> = "topic", required;
        /// Whether the client reads strict JSON only.
        accept_standard_json_only: Option<bool> = "acceptStandardJsonOnly", optional;
    }
}

header! {
    /// GET_TOPICS_BY_CLUSTER (`GetTopicsByClusterRequestHeader`).
    pub struct GetTopicsByClusterRequest<'a> {
        /// The cluster.
        cluster: Cow<'a, str> = "cluster", required;
    }
}

header! {
    /// WIPE_WRITE_PERM_OF_BROKER (`WipeWritePermOfBrokerRequestHeader`).
    pub struct WipeWritePermOfBrokerRequest<'a> {
        /// The broker group.
        broker_name: Cow<'a, str> = "brokerName", required;
    }
}

header! {
    /// Answer to WIPE_WRITE_PERM_OF_BROKER (`WipeWritePermOfBrokerResponseHeader`).
    pub struct WipeWritePermOfBrokerResponse {
        /// How many topics it changed.
        wipe_topic_count: i32 = "wipeTopicCount", required;
    }
}

header! {
    /// ADD_WRITE_PERM_OF_BROKER (`AddWritePermOfBrokerRequestHeader`).
    pub struct AddWritePermOfBrokerRequest<'a> {
        /// The broker group.
        broker_name: Cow<'a, str> = "brokerName", required;
    }
}

header! {
    /// Answer to ADD_WRITE_PERM_OF_BROKER (`AddWritePermOfBrokerResponseHeader`).
    pub struct AddWritePermOfBrokerResponse {
        /// How many topics it changed.
        add_topic_count: i32 = "addTopicCount", required;
    }
}

header! {
    /// DELETE_TOPIC_IN_NAMESRV (`DeleteTopicFromNamesrvRequestHeader`).
    pub struct DeleteTopicInNamesrvRequest<'a> {
        /// The topic.
        topic: Cow<'a, str> = "topic", required;
        /// Only in this cluster.
        cluster_name: Option<Cow<'a, str>> = "clusterName", optional;
    }
}

header! {
    /// REGISTER_TOPIC_IN_NAMESRV (`RegisterTopicRequestHeader`).
    pub struct RegisterTopicInNamesrvRequest<'a> {
        /// The topic.
        topic: Cow<'a, str> = "topic", required;
    }
}
