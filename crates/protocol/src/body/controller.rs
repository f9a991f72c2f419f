//! What the controller says of broker groups (`SyncStateSet`, `ElectMasterResponseBody`,
//! `BrokerReplicasInfo`).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::route::BrokerMemberGroup;

/// The replicas that have every acknowledged message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SyncStateSet {
    /// Their ids.
    pub sync_state_set: BTreeSet<i64>,
    /// How often the set was changed.
    pub sync_state_set_epoch: i32,
}

/// Answer to CONTROLLER_ELECT_MASTER.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ElectMasterResponseBody {
    /// All replicas, when another master was elected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_member_group: Option<BrokerMemberGroup>,
    /// The set.
    pub sync_state_set: BTreeSet<i64>,
}

/// Answer to CONTROLLER_GET_SYNC_STATE_DATA.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BrokerReplicasInfo {
    /// By broker group.
    pub replicas_info_table: BTreeMap<String, ReplicasInfo>,
}

/// A broker group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicasInfo {
    /// Replicas in the set.
    pub in_sync_replicas: Vec<ReplicaIdentity>,
    /// The master's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master_address: Option<String>,
    /// The master.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master_broker_id: Option<i64>,
    /// The newest epoch.
    pub master_epoch: i32,
    /// The others.
    pub not_in_sync_replicas: Vec<ReplicaIdentity>,
    /// How often the set was changed.
    pub sync_state_set_epoch: i32,
}

/// A replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaIdentity {
    /// Whether it was heard of lately.
    pub alive: bool,
    /// Its address.
    pub broker_address: String,
    /// Its id.
    pub broker_id: i64,
    /// Its group.
    pub broker_name: String,
}
