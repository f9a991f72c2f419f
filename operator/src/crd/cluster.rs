//! RocketMQCluster: name servers and broker groups of one cluster.
//! Owns its schema, rules and status; the children made of it are in `build`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, EnvVar, LocalObjectReference, ResourceRequirements, Toleration,
    TopologySpreadConstraint,
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rule;
use keys::{broker_keys, name_server_keys};

pub use keys::{OWNED_BROKER_KEYS, OWNED_NAME_SERVER_KEYS};
pub use replication::{Failover, FailoverPolicy, Replication, ReplicationMode};
pub use status::{
    Endpoint, FailoverStatus, GroupStatus, NameServersStatus, ReplicaStatus, RocketMQClusterStatus,
    RolloutStatus, StorageStatus,
};

mod keys;
mod replication;
mod status;

/// A RocketMQ cluster: a tier of name servers, and broker groups of a master and its slaves each.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[kube(
    group = "rocketmq.rs",
    version = "v1alpha1",
    kind = "RocketMQCluster",
    plural = "rocketmqclusters",
    singular = "rocketmqcluster",
    shortname = "rmq",
    category = "rocketmq",
    namespaced,
    cel,
    derive = "PartialEq",
    doc = "A RocketMQ cluster: name servers and broker groups with their volumes.",
    status = "RocketMQClusterStatus",
    scale(
        spec_replicas_path = ".spec.brokers.groups",
        status_replicas_path = ".status.groupsReady",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Groups", type_ = "integer", json_path = ".spec.brokers.groups"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.ready"),
    printcolumn(name = "Masters", type_ = "integer", json_path = ".status.mastersWritable"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "NameServers",
        type_ = "integer",
        json_path = ".status.nameServers.ready",
        priority = 1
    ),
    printcolumn(
        name = "LastFailover",
        type_ = "date",
        json_path = ".status.lastFailover.time",
        priority = 1
    ),
    validation = rule(
        "size(self.metadata.name) <= 40 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        "'metadata.name: \"' + self.metadata.name + '\" cannot name Services: use at most 40 characters, lower-case letters, digits and \"-\", starting with a letter'"
    ),
    validation = rule(
        "!(has(self.spec.brokers.replication) && self.spec.brokers.replication.mode == 'Async') || (has(self.spec.failover) && (!self.spec.failover.enabled || self.spec.failover.policy == 'Availability'))",
        "'brokers.replication.mode: Async asks for failover.policy: Availability, since a slave may lack messages that were acknowledged; set it, or use Sync'"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct RocketMQClusterSpec {
    /// Version of broker and name server: the tag of their images. When absent, the version that came
    /// with the operator; an upgrade of the operator then replaces the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(validation = rule(
        "self.matches('^[A-Za-z0-9_][A-Za-z0-9._-]*$')",
        "'version: \"' + self + '\" is no image tag: use letters, digits, \"_\", \".\" and \"-\"'"
    ))]
    pub version: Option<String>,

    /// Where images come from, when it is not the operator's default.
    #[serde(default, skip_serializing_if = "is_default")]
    pub image: Image,

    /// The name servers.
    #[serde(default)]
    pub name_servers: NameServers,

    /// The broker groups.
    pub brokers: Brokers,

    /// What is done when a master is lost. It concerns groups with slaves.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failover: Failover,

    /// Disruption budgets of the pods.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pod_disruption_budget: DisruptionBudgets,

    /// True stops every write of the operator for this cluster; status is still refreshed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub paused: bool,
}

/// Image references; what is not given comes from the operator.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Prefix of both images with its trailing slash, for example `registry.example.com/rocketmq/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub registry: Option<String>,
    /// Whole reference of the broker image; wins over registry and version and may carry a digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub broker: Option<String>,
    /// Whole reference of the name server image; wins over registry and version and may carry a digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub name_server: Option<String>,
    /// When the node pulls the images.
    #[serde(default)]
    pub pull_policy: PullPolicy,
    /// Secrets to pull with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub pull_secrets: Vec<LocalObjectReference>,
}

/// When a node pulls an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum PullPolicy {
    /// Only when the node lacks it.
    #[default]
    IfNotPresent,
    /// At every start.
    Always,
    /// The image must be on the node.
    Never,
}

/// The name server tier.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NameServers {
    /// Number of name servers, each of which knows every broker. At least 1.
    #[serde(default = "name_server_replicas")]
    #[x_kube(validation = rule(
        "self >= 1 && self <= 9",
        "'nameServers.replicas: %d is outside 1..9: every broker registers with each of them, and 3 suit most clusters'.format([self])"
    ))]
    pub replicas: i32,

    /// Keys of namesrv.conf as RocketMQ names them, values as text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = name_server_keys)]
    pub config: BTreeMap<String, String>,

    /// Requests and limits of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,

    /// Additions to the pods.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pod_template: PodTemplate,
}

impl Default for NameServers {
    fn default() -> Self {
        Self {
            replicas: name_server_replicas(),
            config: BTreeMap::new(),
            resources: None,
            pod_template: PodTemplate::default(),
        }
    }
}

fn name_server_replicas() -> i32 {
    3
}

/// The broker groups. Each group has one master, and each of its brokers a volume.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[x_kube(validation = rule(
    "!has(self.replication) || !has(self.replication.inSyncReplicas) || self.replication.inSyncReplicas <= self.replicasPerGroup + 1",
    "'brokers.replication.inSyncReplicas: %d is more than the %d brokers of a group: lower it, or raise brokers.replicasPerGroup'.format([self.replication.inSyncReplicas, self.replicasPerGroup + 1])"
))]
#[x_kube(validation = rule(
    "!has(self.replication) || self.replication.minInSyncReplicas <= (has(self.replication.inSyncReplicas) ? self.replication.inSyncReplicas : self.replicasPerGroup + 1)",
    "'brokers.replication.minInSyncReplicas: %d is more than %d copies: lower it, or raise brokers.replication.inSyncReplicas or brokers.replicasPerGroup'.format([self.replication.minInSyncReplicas, has(self.replication.inSyncReplicas) ? self.replication.inSyncReplicas : self.replicasPerGroup + 1])"
))]
#[serde(rename_all = "camelCase")]
pub struct Brokers {
    /// Number of broker groups. It can grow; taking a group away is refused, since its messages
    /// would be lost to consumers.
    #[x_kube(validation = rule(
        "self >= 1 && self <= 256",
        "'brokers.groups: %d is outside 1..256'.format([self])"
    ))]
    #[x_kube(validation = rule(
        "self >= oldSelf",
        "'brokers.groups: %d is less than %d: groups cannot be removed, since their unconsumed messages would be stranded; keep at least %d'.format([self, oldSelf, oldSelf])"
    ))]
    pub groups: i32,

    /// Slaves of each group. With 1 or more, the loss of a master is made good by the promotion of a
    /// slave. With 0, the default, a group is away while its only broker is, and its messages are on
    /// one volume alone.
    #[serde(default)]
    #[x_kube(validation = rule(
        "self >= 0 && self <= 8",
        "'brokers.replicasPerGroup: %d is outside 0..8'.format([self])"
    ))]
    pub replicas_per_group: i32,

    /// How messages get to the slaves.
    #[serde(default, skip_serializing_if = "is_default")]
    pub replication: Replication,

    /// Keys of broker.conf as RocketMQ names them, values as text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = broker_keys)]
    pub config: BTreeMap<String, String>,

    /// The volume of each broker.
    pub storage: Storage,

    /// Requests and limits of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,

    /// Seconds a broker gets to flush and unregister before it is killed.
    #[serde(default = "termination_grace_seconds")]
    #[x_kube(validation = rule(
        "self >= 10 && self <= 3600",
        "'brokers.terminationGracePeriodSeconds: %d is outside 10..3600: a broker needs time to flush'.format([self])"
    ))]
    pub termination_grace_period_seconds: i64,

    /// Additions to the pods.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pod_template: PodTemplate,
}

fn termination_grace_seconds() -> i64 {
    300
}

impl Brokers {
    /// Brokers of a group, its master included.
    pub fn pods_per_group(&self) -> i32 {
        self.replicas_per_group.saturating_add(1)
    }

    /// Copies that a group is to have, the master's included.
    pub fn in_sync_replicas(&self) -> i32 {
        self.replication.in_sync_replicas.unwrap_or_else(|| self.pods_per_group())
    }
}

/// The volume that holds a broker's CommitLog, ConsumeQueue and config.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[x_kube(validation = rule(
    "has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)",
    "'brokers.storage.storageClassName: \"' + (has(self.storageClassName) ? self.storageClassName : '') + '\" differs from \"' + (has(oldSelf.storageClassName) ? oldSelf.storageClassName : '') + '\": the class of a volume cannot change; keep it'"
))]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// Size of each broker's volume, for example `20Gi`. It can grow where the class allows it.
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(validation = rule(
        "isQuantity(self) && quantity(self).compareTo(quantity('64Mi')) >= 0",
        "'brokers.storage.size: \"' + self + '\" is no size of 64Mi or more: write a Kubernetes quantity such as 20Gi'"
    ))]
    #[x_kube(validation = rule(
        "!isQuantity(self) || !isQuantity(oldSelf) || quantity(self).compareTo(quantity(oldSelf)) >= 0",
        "'brokers.storage.size: ' + self + ' is less than ' + oldSelf + ': volumes cannot shrink; keep at least ' + oldSelf"
    ))]
    pub size: String,

    /// Storage class; the cluster's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub storage_class_name: Option<String>,

    /// What becomes of the volumes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub retention: Retention,
}

/// What becomes of the volumes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retention {
    /// When the cluster is deleted. Retained volumes are taken up again by a cluster of the same
    /// name.
    #[serde(default)]
    pub when_deleted: VolumeRetention,
}

/// Whether volumes outlive their cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum VolumeRetention {
    /// They stay.
    #[default]
    Retain,
    /// They are deleted with it.
    Delete,
}

/// Disruption budgets.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DisruptionBudgets {
    /// Keeps evictions from taking more than one name server at a time.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Refuses the eviction of brokers of groups without slaves: a node with one cannot be drained
    /// until this is taken back or the pod is deleted by hand. Of a group with slaves one broker at a
    /// time may be evicted, whatever this says.
    #[serde(default)]
    pub protect_single_replica_groups: bool,
}

impl Default for DisruptionBudgets {
    fn default() -> Self {
        Self { enabled: true, protect_single_replica_groups: false }
    }
}

fn yes() -> bool {
    true
}

/// Additions to the pods of a tier.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodTemplate {
    /// More labels; those of the operator win.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub labels: BTreeMap<String, String>,
    /// More annotations; those of the operator win.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub annotations: BTreeMap<String, String>,
    /// Nodes the pods may run on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub node_selector: BTreeMap<String, String>,
    /// Taints the pods tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub tolerations: Vec<Toleration>,
    /// Node and pod affinity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Spread of the pods; replaces the operator's soft spread over hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// Priority class of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// More environment variables of the container; those of the operator win.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub env: Vec<EnvVar>,
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
