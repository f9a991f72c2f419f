//! The controller: who is master of each broker group (controller mode, 5.x).
//!
//! RocketMQ marks few of these fields as mandatory; what a request cannot do without is mandatory
//! here, so that its absence is an error and not a null.

use std::borrow::Cow;

use crate::header;

header! {
    /// CONTROLLER_ALTER_SYNC_STATE_SET (`AlterSyncStateSetRequestHeader`).
    pub struct AlterSyncStateSetRequest<'a> {
        /// The broker group.
        broker_name: Cow<'a, str> = "brokerName", required;
        /// The master that asks.
        master_broker_id: i64 = "masterBrokerId", required;
        /// The epoch it is master of.
        master_epoch: i32 = "masterEpoch", required;
    }
}

header! {
    /// Answer to CONTROLLER_ALTER_SYNC_STATE_SET (`AlterSyncStateSetResponseHeader`).
    pub struct AlterSyncStateSetResponse {
        /// The epoch of the new set.
        new_sync_state_set_epoch: Option<i32> = "newSyncStateSetEpoch", optional;
    }
}

header! {
    /// CONTROLLER_ELECT_MASTER (`ElectMasterRequestHeader`).
    pub struct ElectMasterRequest<'a> {
        /// The cluster.
        cluster_name: Cow<'a, str> = "clusterName", default(Cow::Borrowed(""));
        /// The broker group.
        broker_name: Cow<'a, str> = "brokerName", required;
        /// Who asks, or with `designateElect` who shall be master; -1 is nobody.
        broker_id: i64 = "brokerId", default(-1);
        /// Whether `brokerId` shall be master.
        designate_elect: bool = "designateElect", default(false);
    }
}

header! {
    /// Answer to CONTROLLER_ELECT_MASTER (`ElectMasterResponseHeader`).
    pub struct ElectMasterResponse<'a> {
        /// The master.
        master_broker_id: Option<i64> = "masterBrokerId", optional;
        /// Its address.
        master_address: Option<Cow<'a, str>> = "masterAddress", optional;
        /// Its epoch.
        master_epoch: Option<i32> = "masterEpoch", optional;
        /// The epoch of the set.
        sync_state_set_epoch: Option<i32> = "syncStateSetEpoch", optional;
    }
}

header! {
    /// CONTROLLER_REGISTER_BROKER (`RegisterBrokerToControllerRequestHeader`).
    pub struct RegisterBrokerToControllerRequest<'a> {
        /// The cluster.
        cluster_name: Cow<'a, str> = "clusterName", default(Cow::Borrowed(""));
        /// The broker group.
        broker_name: Cow<'a, str> = "brokerName", required;
        /// The id it was given.
        broker_id: i64 = "brokerId", required;
        /// Where clients reach it, as `host:port`.
        broker_address: Cow<'a, str> = "brokerAddress", required;
    }
}

header! {
    /// Answer to CONTROLLER_REGISTER_BROKER (`RegisterBrokerToControllerResponseHeader`).
    pub struct RegisterBrokerToControllerResponse<'a> {
        /// The cluster.
        cluster_name: Option<Cow<'a, str>> = "clusterName", optional;
        /// The broker group.
        broker_name: Option<Cow<'a, str>> = "brokerName", optional;
        /// The master, if one lives.
        master_broker_id: Option<i64> = "masterBrokerId", optional;
        /// Its address.
        master_address: Option<Cow<'a, str>> = "masterAddress", optional;
        /// Its epoch.
        master_epoch: Option<i32> = "masterEpoch", optional;
        /// The epoch of the set.
        sync_state_set_epoch: Option<i32> = "syncStateSetEpoch", optional;
    }
}

header! {
    /// CONTROLLER_GET_REPLICA_INFO (`GetReplicaInfoRequestHeader`).
    pub struct GetReplicaInfoRequest<'a> {
        /// The broker group.
        broker_name: Cow<'a, str> = "brokerName", required;
    }
}

header! {
    /// Answer to CONTROLLER_GET_REPLICA_INFO (`GetReplicaInfoResponseHeader`).
    pub struct GetReplicaInfoResponse<'a> {
        /// The master, if there is one.
        master_broker_id: Option<i64> = "masterBrokerId", optional;
        /// Its address.
        master_address: Option<Cow<'a, str>> = "masterAddress", optional;
        /// The newest epoch.
        master_epoch: Option<i32> = "masterEpoch", optional;
    }
}

header! {
    /// Answer to CONTROLLER_GET_METADATA_INFO (`GetMetaDataResponseHeader`).
    pub struct GetMetaDataResponse<'a> {
        /// Name of the controllers' group.
        group: Option<Cow<'a, str>> = "group", optional;
        /// The leader's id, if it is known.
        controller_leader_id: Option<Cow<'a, str>> = "controllerLeaderId", optional;
        /// Its address.
        controller_leader_address: Option<Cow<'a, str>> = "controllerLeaderAddress", optional;
        /// Whether the one that answers is the leader.
        is_leader: Option<bool> = "isLeader", optional;
        /// All controllers, as `id:host:port;` each.
        peers: Option<Cow<'a, str>> = "peers", optional;
    }
}

header! {
    /// CLEAN_BROKER_DATA (`CleanControllerBrokerDataRequestHeader`).
    pub struct CleanBrokerDataRequest<'a> {
        /// The cluster.
        cluster_name: Option<Cow<'a, str>> = "clusterName", optional;
        /// The broker group.
        broker_name: Cow<'a, str> = "brokerName", required;
        /// Ids to forget, separated by `;`; absent or empty: the whole group.
        broker_controller_ids_to_clean: Option<Cow<'a, str>> =
            "brokerControllerIdsToClean", optional;
        /// Whether brokers that live may be forgotten.
        is_clean_living_broker: bool = "isCleanLivingBroker", default(false);
    }
}

header! {
    /// CONTROLLER_GET_NEXT_BROKER_ID (`GetNextBrokerIdRequestHeader`).
    pub struct GetNextBrokerIdRequest<'a> {
        /// The cluster.
        cluster_name: Cow<'a, str> = "clusterName", default(Cow::Borrowed(""));
        /// The broker group.
        broker_name: Cow<'a, str> = "brokerName", required;
    }
}

header! {
    /// Answer to CONTROLLER_GET_NEXT_BROKER_ID (`GetNextBrokerIdResponseHeader`).
    pub struct GetNextBrokerIdResponse<'a> {
        /// The cluster.
        cluster_name: Option<Cow<'a, str>> = "clusterName", optional;
        /// The broker group.
        broker_name: Option<Cow<'a, str>> = "brokerName", optional;
        /// The lowest id that nobody was given yet.
        next_broker_id: Option<i64> = "nextBrokerId", optional;
    }
}

header! {
    /// CONTROLLER_APPLY_BROKER_ID (`ApplyBrokerIdRequestHeader`).
    pub struct ApplyBrokerIdRequest<'a> {
        /// The cluster.
        cluster_name: Cow<'a, str> = "clusterName", default(Cow::Borrowed(""));
        /// The broker group.
        broker_name: Cow<'a, str> = "brokerName", required;
        /// The id it wants.
        applied_broker_id: i64 = "appliedBrokerId", required;
        /// `host:port;` and a mark of this broker, by which it may ask for its id again.
        register_check_code: Cow<'a, str> = "registerCheckCode", required;
    }
}

header! {
    /// Answer to CONTROLLER_APPLY_BROKER_ID (`ApplyBrokerIdResponseHeader`).
    pub struct ApplyBrokerIdResponse<'a> {
        /// The cluster.
        cluster_name: Option<Cow<'a, str>> = "clusterName", optional;
        /// The broker group.
        broker_name: Option<Cow<'a, str>> = "brokerName", optional;
    }
}

header! {
    /// NOTIFY_BROKER_ROLE_CHANGED, from the controller to a broker
    /// (`NotifyBrokerRoleChangedRequestHeader`).
    pub struct NotifyBrokerRoleChangedRequest<'a> {
        /// The master's address.
        master_address: Option<Cow<'a, str>> = "masterAddress", optional;
        /// Its epoch.
        master_epoch: Option<i32> = "masterEpoch", optional;
        /// The epoch of the set.
        sync_state_set_epoch: Option<i32> = "syncStateSetEpoch", optional;
        /// The master.
        master_broker_id: Option<i64> = "masterBrokerId", optional;
    }
}
