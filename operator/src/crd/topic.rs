//! Topic: one topic of a cluster, the same on each of its broker groups.
//! Owns its schema, rules and status; the steps of a queue count change are in `topic::plan`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AdoptPolicy, ClusterRef, DeletionPolicy, DriftPolicy, Origin, rule};

/// A topic of a RocketMQ cluster.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[kube(
    group = "rocketmq.rs",
    version = "v1alpha1",
    kind = "Topic",
    plural = "topics",
    singular = "topic",
    category = "rocketmq",
    namespaced,
    cel,
    derive = "PartialEq",
    doc = "A topic of a RocketMQ cluster.",
    status = "TopicStatus",
    selectable = ".spec.clusterRef.name",
    printcolumn(name = "Topic", type_ = "string", json_path = ".status.topicName"),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterRef.name"),
    printcolumn(name = "Queues", type_ = "integer", json_path = ".spec.queuesPerGroup"),
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
        "has(self.spec.topicName) || (size(self.metadata.name) <= 127 && self.metadata.name.matches('^[a-zA-Z0-9_%|-]+$'))",
        "'metadata.name: \"' + self.metadata.name + '\" is no topic name (letters, digits, \"_\", \"-\", \"%\", \"|\", at most 127): set spec.topicName'"
    )
)]
#[x_kube(validation = rule(
    "has(self.topicName) == has(oldSelf.topicName)",
    "'topicName: cannot be added or removed later, since the topic would change its name; create another Topic'"
))]
#[serde(rename_all = "camelCase")]
pub struct TopicSpec {
    /// The cluster of the topic. It cannot change.
    #[x_kube(validation = rule(
        "self == oldSelf",
        "'clusterRef.name: \"' + self.name + '\" differs from \"' + oldSelf.name + '\": a topic cannot move to another cluster; create another Topic'"
    ))]
    pub cluster_ref: ClusterRef,

    /// Name of the topic on the brokers; metadata.name when absent. It cannot change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    #[x_kube(validation = rule(
        "self == oldSelf",
        "'topicName: \"' + self + '\" differs from \"' + oldSelf + '\": a topic cannot be renamed; create another Topic'"
    ))]
    #[x_kube(validation = rule(
        "size(self) >= 1 && size(self) <= 127 && self.matches('^[a-zA-Z0-9_%|-]+$')",
        "'topicName: \"' + self + '\" is no topic name: use 1 to 127 letters, digits, \"_\", \"-\", \"%\" and \"|\"'"
    ))]
    #[x_kube(validation = rule(
        "!self.startsWith('%RETRY%') && !self.startsWith('%DLQ%') && !self.startsWith('rmq_sys_') && !(self in ['TBW102', 'SCHEDULE_TOPIC_XXXX', 'BenchmarkTest', 'OFFSET_MOVED_EVENT', 'SELF_TEST_TOPIC', 'RMQ_SYS_TRANS_HALF_TOPIC', 'RMQ_SYS_TRANS_OP_HALF_TOPIC', 'RMQ_SYS_TRACE_TOPIC', 'TRANS_CHECK_MAX_TIME_TOPIC'])",
        "'topicName: \"' + self + '\" is reserved by RocketMQ (system topics, %RETRY%, %DLQ%, rmq_sys_): choose another name'"
    ))]
    pub topic_name: Option<String>,

    /// Queues on each broker group: both read and write count once no change is under way.
    #[x_kube(validation = rule(
        "self >= 1 && self <= 1024",
        "'queuesPerGroup: %d is outside 1..1024'.format([self])"
    ))]
    pub queues_per_group: i32,

    /// What clients may do with the topic.
    #[serde(default)]
    pub permission: Permission,

    /// What becomes of the topic when this resource is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,

    /// What is done when brokers differ from this resource.
    #[serde(default)]
    pub drift_policy: DriftPolicy,

    /// What is done when the topic is on the brokers already.
    #[serde(default)]
    pub adopt: AdoptPolicy,
}

/// What clients may do with a topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Permission {
    /// Send and receive.
    #[default]
    ReadWrite,
    /// Receive only.
    ReadOnly,
    /// Send only.
    WriteOnly,
}

impl Permission {
    /// The `perm` bits of RocketMQ's PermName: 4 read, 2 write.
    pub fn bits(self) -> i32 {
        match self {
            Self::ReadWrite => 6,
            Self::ReadOnly => 4,
            Self::WriteOnly => 2,
        }
    }
}

impl Topic {
    /// Name of the topic on the brokers.
    pub fn topic_name(&self) -> &str {
        self.spec.topic_name.as_deref().or(self.metadata.name.as_deref()).unwrap_or_default()
    }
}

/// What the operator last saw of a topic.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopicStatus {
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions by type; all types are present from the first visit.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// Name of the topic on the brokers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic_name: Option<String>,
    /// Who made the topic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The topic on each broker group.
    #[serde(default)]
    pub groups: Vec<TopicGroupStatus>,
    /// The queue count change under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize: Option<ResizeStatus>,
}

/// The topic on one broker group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopicGroupStatus {
    /// brokerName.
    pub name: String,
    /// Queues that consumers see.
    pub read_queues: i32,
    /// Queues that producers see.
    pub write_queues: i32,
    /// perm bits.
    pub permission: i32,
    /// Whether all of it is as wanted.
    pub synced: bool,
}

/// A queue count change under way. Enough to go on after a restart of the operator.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResizeStatus {
    /// Largest queue count when the change began.
    pub from: i32,
    /// Queue count it leads to.
    pub to: i32,
    /// What is being waited for.
    pub step: ResizeStep,
    /// When the step began, RFC 3339.
    pub since: String,
    /// Sum of the maximum offsets of the queues to retire, when last seen to move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retiring_offset: Option<i64>,
    /// What keeps the step from ending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked_by: Vec<String>,
}

/// Steps of a queue count change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ResizeStep {
    /// Growing: read counts are raised, consumers learn of the new queues.
    WaitForConsumers,
    /// Shrinking: write counts are lowered, producers learn of it; retired queues must stand still.
    WaitForProducers,
    /// Shrinking: consumer groups empty the retired queues.
    WaitForDrain,
}

#[cfg(test)]
#[path = "topic_tests.rs"]
mod tests;
