//! Status of a RocketMQCluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the operator last saw of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RocketMQClusterStatus {
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions by type; all types are present from the first visit.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// Version that every pod runs, once they agree: the tag of the broker image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Addresses to hand to clients.
    #[serde(default)]
    pub endpoints: Vec<Endpoint>,
    /// The name servers.
    #[serde(default)]
    pub name_servers: NameServersStatus,
    /// The broker groups by number.
    #[serde(default)]
    pub groups: Vec<GroupStatus>,
    /// Groups with a master at work whose pod is ready, of whatever template that is.
    #[serde(default)]
    pub groups_ready: i32,
    /// Groups wanted.
    #[serde(default)]
    pub groups_desired: i32,
    /// Groups whose master every ready name server knows.
    #[serde(default)]
    pub masters_writable: i32,
    /// `ready/wanted` groups, for the printed column.
    #[serde(default)]
    pub ready: String,
    /// Label selector of the broker pods, for the scale subresource.
    #[serde(default)]
    pub selector: String,
    /// The roll-out under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutStatus>,
    /// The volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageStatus>,
    /// The last promotion for want of a master.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failover: Option<FailoverStatus>,
}

/// One address for clients.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// Which listener it belongs to.
    pub name: String,
    /// `host:port` of the name servers.
    pub address: String,
}

/// The name server tier as seen.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NameServersStatus {
    /// Wanted name servers.
    pub desired: i32,
    /// Ready name servers.
    pub ready: i32,
    /// Pod names.
    #[serde(default)]
    pub names: Vec<String>,
}

/// One broker group as seen.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupStatus {
    /// brokerName.
    pub name: String,
    /// `Pending`, `NotReady`, `NoMaster`, `FailingOver`, `SwitchingOver`, `Fenced`, `Unregistered`,
    /// `Degraded` (serving, with a replica away), `Updating` or `Ready`.
    pub state: String,
    /// Pod that is the master.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<String>,
    /// Address that clients are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Whether every ready name server knows the master.
    #[serde(default)]
    pub writable: bool,
    /// Whether every pod runs the current template.
    #[serde(default)]
    pub updated: bool,
    /// Epoch of the group's record: it grows with each appointment of a master. Absent in a group
    /// that never had slaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master_epoch: Option<i32>,
    /// Pod that is to become master.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_master: Option<String>,
    /// The group's brokers. Empty in a group that never had slaves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<ReplicaStatus>,
}

/// One broker of a group with slaves.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaStatus {
    /// Its pod.
    pub pod: String,
    /// `Master`, `Slave` or, when its pod is missing, `Absent`.
    pub role: String,
    /// Epoch of the newest messages it has, when it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i32>,
    /// Whether it has every acknowledged message, so that it may become master.
    #[serde(default)]
    pub in_sync: bool,
    /// Whether its pod is ready.
    #[serde(default)]
    pub ready: bool,
    /// Tag of the image that its pod runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// A promotion.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailoverStatus {
    /// When the new master was seen at work.
    pub time: Option<Time>,
    /// brokerName.
    pub group: String,
    /// Pod that was master.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Pod that is master.
    pub to: String,
    /// Epoch of the new master.
    pub epoch: i32,
    /// Why.
    pub reason: String,
    /// Milliseconds between the loss being noticed and the new master being seen at work.
    pub duration_ms: i64,
}

/// A roll-out under way.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    /// Pods that run the current template.
    pub updated: i32,
    /// All pods.
    pub total: i32,
    /// What is being waited for.
    pub step: String,
}

/// The volumes as seen.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorageStatus {
    /// Size asked for.
    pub requested: String,
    /// Claims whose capacity is not yet that size.
    #[serde(default)]
    pub pending: Vec<String>,
}
