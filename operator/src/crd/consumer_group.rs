//! ConsumerGroup: one consumer group of a cluster, the same on each of its broker groups.
//! Owns its schema, rules and status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AdoptPolicy, ClusterRef, DeletionPolicy, DriftPolicy, Origin, rule};

/// A consumer group of a RocketMQ cluster.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[kube(
    group = "rocketmq.rs",
    version = "v1alpha1",
    kind = "ConsumerGroup",
    plural = "consumergroups",
    singular = "consumergroup",
    category = "rocketmq",
    namespaced,
    cel,
    derive = "PartialEq",
    doc = "A consumer group of a RocketMQ cluster.",
    status = "ConsumerGroupStatus",
    selectable = ".spec.clusterRef.name",
    printcolumn(name = "Group", type_ = "string", json_path = ".status.groupName"),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterRef.name"),
    printcolumn(name = "Policy", type_ = "string", json_path = ".spec.deletionPolicy"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = rule(
        "has(self.spec.groupName) || (size(self.metadata.name) <= 120 && self.metadata.name.matches('^[a-zA-Z0-9_%|-]+$'))",
        "'metadata.name: \"' + self.metadata.name + '\" is no consumer group name (letters, digits, \"_\", \"-\", \"%\", \"|\", at most 120): set spec.groupName'"
    )
)]
#[x_kube(validation = rule(
    "has(self.groupName) == has(oldSelf.groupName)",
    "'groupName: cannot be added or removed later, since the consumer group would change its name; create another ConsumerGroup'"
))]
#[serde(rename_all = "camelCase")]
pub struct ConsumerGroupSpec {
    /// The cluster of the consumer group. It cannot change.
    #[x_kube(validation = rule(
        "self == oldSelf",
        "'clusterRef.name: \"' + self.name + '\" differs from \"' + oldSelf.name + '\": a consumer group cannot move to another cluster; create another ConsumerGroup'"
    ))]
    pub cluster_ref: ClusterRef,

    /// Name of the consumer group on the brokers; metadata.name when absent. It cannot change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    #[x_kube(validation = rule(
        "self == oldSelf",
        "'groupName: \"' + self + '\" differs from \"' + oldSelf + '\": a consumer group cannot be renamed; create another ConsumerGroup'"
    ))]
    #[x_kube(validation = rule(
        "size(self) >= 1 && size(self) <= 120 && self.matches('^[a-zA-Z0-9_%|-]+$')",
        "'groupName: \"' + self + '\" is no consumer group name: use 1 to 120 letters, digits, \"_\", \"-\", \"%\" and \"|\"'"
    ))]
    #[x_kube(validation = rule(
        "!self.startsWith('CID_RMQ_SYS_') && !(self in ['TOOLS_CONSUMER', 'FILTERSRV_CONSUMER', 'SELF_TEST_C_GROUP', 'DEFAULT_CONSUMER', 'CLIENT_INNER_PRODUCER'])",
        "'groupName: \"' + self + '\" is reserved by RocketMQ: choose another name'"
    ))]
    pub group_name: Option<String>,

    /// Whether members may consume.
    #[serde(default = "yes")]
    pub consume_enabled: bool,

    /// Whether broadcast consumption is allowed.
    #[serde(default = "yes")]
    pub broadcast_enabled: bool,

    /// Whether members start at a queue's beginning when they have no offset.
    #[serde(default = "yes")]
    pub consume_from_min: bool,

    /// Whether members are told at once when others come or go.
    #[serde(default = "yes")]
    pub notify_on_membership_change: bool,

    /// Queues of the retry topic on each broker group.
    #[serde(default = "retry_queues")]
    #[x_kube(validation = rule(
        "self >= 0 && self <= 64",
        "'retryQueues: %d is outside 0..64; 0 means that failed messages are not retried'.format([self])"
    ))]
    pub retry_queues: i32,

    /// Deliveries before a message goes to the dead-letter queue.
    #[serde(default = "max_retries")]
    #[x_kube(validation = rule(
        "self >= -1 && self <= 1024",
        "'maxRetries: %d is outside -1..1024; -1 means without end'.format([self])"
    ))]
    pub max_retries: i32,

    /// What becomes of the consumer group when this resource is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,

    /// Whether the offsets are deleted with the consumer group.
    #[serde(default)]
    pub clean_offsets_on_delete: bool,

    /// What is done when brokers differ from this resource.
    #[serde(default)]
    pub drift_policy: DriftPolicy,

    /// What is done when the consumer group is on the brokers already.
    #[serde(default)]
    pub adopt: AdoptPolicy,
}

fn yes() -> bool {
    true
}

fn retry_queues() -> i32 {
    1
}

fn max_retries() -> i32 {
    16
}

impl ConsumerGroup {
    /// Name of the consumer group on the brokers.
    pub fn group_name(&self) -> &str {
        self.spec.group_name.as_deref().or(self.metadata.name.as_deref()).unwrap_or_default()
    }
}

/// What the operator last saw of a consumer group.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConsumerGroupStatus {
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions by type; all types are present from the first visit.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// Name of the consumer group on the brokers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_name: Option<String>,
    /// Who made the consumer group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The consumer group on each broker group.
    #[serde(default)]
    pub groups: Vec<SyncedGroup>,
}

/// The consumer group on one broker group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SyncedGroup {
    /// brokerName.
    pub name: String,
    /// Whether all of it is as wanted.
    pub synced: bool,
}

#[cfg(test)]
#[path = "consumer_group_tests.rs"]
mod tests;
