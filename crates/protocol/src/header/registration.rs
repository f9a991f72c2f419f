//! Brokers and name servers: registration and heart-beats.

use std::borrow::Cow;

use crate::header;

header! {
    /// REGISTER_BROKER (`RegisterBrokerRequestHeader`).
    pub struct RegisterBrokerRequest<'a> {
        /// The broker group.
        broker_name: Cow<'a, str> = "brokerName", required;
        /// Where clients reach it, as `host:port`.
        broker_addr: Cow<'a, str> = "brokerAddr", required;
        /// The cluster.
        cluster_name: Cow<'a, str> = "clusterName", required;
        /// Where slaves reach it, as `host:port`.
        ha_server_addr: Cow<'a, str> = "haServerAddr", required;
        /// 0 is the master.
        broker_id: i64 = "brokerId", required;
        /// After how long without a sign of life it is gone, in ms (5.x).
        heartbeat_timeout_millis: Option<i64> = "heartbeatTimeoutMillis", optional;
        /// Whether a slave may stand in for the master (5.x).
        enable_acting_master: Option<bool> = "enableActingMaster", optional;
        /// Whether the body is compressed.
        compressed: bool = "compressed", default(false);
        /// CRC-32 of the body with its sign bit cleared; 0 is not checked.
        body_crc32: i32 = "bodyCrc32", default(0);
        /// The broker's zone.
        zone_name: Option<Cow<'a, str>> = "__ZONE_NAME", optional;
    }
}

header! {
    /// Answer to REGISTER_BROKER (`RegisterBrokerResponseHeader`).
    pub struct RegisterBrokerResponse<'a> {
        /// To a slave: where its master hands out the log.
        ha_server_addr: Option<Cow<'a, str>> = "haServerAddr", optional;
        /// To a slave: its master.
        master_addr: Option<Cow<'a, str>> = "masterAddr", optional;
    }
}

header! {
    /// UNREGISTER_BROKER (`UnRegisterBrokerRequestHeader`).
    pub struct UnregisterBrokerRequest<'a> {
        /// The broker group.
        broker_name: Cow<'a, str> = "brokerName", required;
        /// The broker's address.
        broker_addr: Cow<'a, str> = "brokerAddr", required;
        /// The cluster.
        cluster_name: Cow<'a, str> = "clusterName", required;
        /// 0 is the master.
        broker_id: i64 = "brokerId", required;
    }
}

header! {
    /// QUERY_DATA_VERSION (`QueryDataVersionRequestHeader`).
    pub struct QueryDataVersionRequest<'a> {
        /// The broker group.
        broker_name: Cow<'a, str> = "brokerName", required;
        /// The broker's address.
        broker_addr: Cow<'a, str> = "brokerAddr", required;
        /// The cluster.
        cluster_name: Cow<'a, str> = "clusterName", required;
        /// 0 is the master.
        broker_id: i64 = "brokerId", required;
    }
}

header! {
    /// Answer to QUERY_DATA_VERSION (`QueryDataVersionResponseHeader`).
    pub struct QueryDataVersionResponse {
        /// Whether the name server's version differs.
        changed: bool = "changed", required;
    }
}

header! {
    /// BROKER_HEARTBEAT (`BrokerHeartbeatRequestHeader`).
    pub struct BrokerHeartbeatRequest<'a> {
        /// The cluster.
        cluster_name: Cow<'a, str> = "clusterName", required;
        /// The broker's address.
        broker_addr: Cow<'a, str> = "brokerAddr", required;
        /// The broker group.
        broker_name: Cow<'a, str> = "brokerName", required;
        /// 0 is the master.
        broker_id: Option<i64> = "brokerId", optional;
        /// The master epoch it knows.
        epoch: Option<i32> = "epoch", optional;
        /// End of its log.
        max_offset: Option<i64> = "maxOffset", optional;
        /// End of what is confirmed.
        confirm_offset: Option<i64> = "confirmOffset", optional;
        /// After how long without a sign of life it is gone, in ms.
        heartbeat_timeout_mills: Option<i64> = "heartbeatTimeoutMills", optional;
        /// Lower is preferred as master.
        election_priority: Option<i32> = "electionPriority", optional;
    }
}

header! {
    /// GET_BROKER_MEMBER_GROUP (`GetBrokerMemberGroupRequestHeader`).
    pub struct GetBrokerMemberGroupRequest<'a> {
        /// The cluster.
        cluster_name: Cow<'a, str> = "clusterName", required;
        /// The broker group.
        broker_name: Cow<'a, str> = "brokerName", required;
    }
}

header! {
    /// NOTIFY_MIN_BROKER_ID_CHANGE, from the name server to brokers
    /// (`NotifyMinBrokerIdChangeRequestHeader`).
    pub struct NotifyMinBrokerIdChangeRequest<'a> {
        /// The lowest id alive.
        min_broker_id: Option<i64> = "minBrokerId", optional;
        /// The broker group; the Java name server leaves it out.
        broker_name: Option<Cow<'a, str>> = "brokerName", optional;
        /// Its address.
        min_broker_addr: Option<Cow<'a, str>> = "minBrokerAddr", optional;
        /// The one that went.
        offline_broker_addr: Option<Cow<'a, str>> = "offlineBrokerAddr", optional;
        /// Where the lowest id hands out its log.
        ha_broker_addr: Option<Cow<'a, str>> = "haBrokerAddr", optional;
    }
}
