//! RocketMQCluster: name servers and broker groups of one cluster.
//! Owns its schema, rules and status; the children made of it are in `build`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, EnvVar, LocalObjectReference, ResourceRequirements, Toleration,
    TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::rule;
use super::settings::{self, Settings};

/// Keys of broker.conf that follow from the rest of the resource, with what to do instead: one owner
/// per key.
pub const OWNED_BROKER_KEYS: &[(&str, &str)] = &[
    ("bindAddress", "brokers listen on every address of their pod"),
    ("brokerClusterName", "it is metadata.name"),
    ("brokerConfigPath", "the file is made by the operator"),
    ("brokerIP1", "brokers advertise the name of their Service"),
    ("brokerIP2", "brokers advertise the name of their Service"),
    ("brokerId", "each group has one broker, its master"),
    ("brokerName", "it is metadata.name, -broker- and the group's number"),
    ("brokerPermission", "use a Topic's permission"),
    ("brokerRole", "each group has one broker, its master"),
    ("enableControllerMode", "groups have one broker"),
    ("enableDLegerCommitLog", "groups have one broker"),
    ("fetchNameSrvAddrByDnsLookup", "brokers know every name server by name"),
    ("fetchNamesrvAddrByAddressServer", "brokers know every name server by name"),
    ("haListenPort", "groups have one broker"),
    ("haMasterAddress", "groups have one broker"),
    ("listenPort", "it is 10911"),
    ("metricsExporterType", "metrics are served for Prometheus"),
    ("metricsPromExporterHost", "metrics are served on every address of the pod"),
    ("metricsPromExporterPort", "it is 5557"),
    ("namesrvAddr", "it follows from nameServers.replicas"),
    ("readOnlyCommitLogStorePaths", "the store is on the group's volume"),
    ("rocketmqHome", "the store is on the group's volume"),
    ("storePathCommitLog", "the store is on the group's volume"),
    ("storePathRootDir", "the store is on the group's volume"),
];

/// Keys of namesrv.conf that the operator sets, with what to do instead.
pub const OWNED_NAME_SERVER_KEYS: &[(&str, &str)] = &[
    ("bindAddress", "name servers listen on every address of their pod"),
    ("configStorePath", "the file is made by the operator"),
    ("enableControllerInNamesrv", "groups have one broker"),
    ("kvConfigPath", "it is in the pod's scratch directory"),
    ("listenPort", "it is 9876"),
    ("metricsExporterType", "metrics are served for Prometheus"),
    ("metricsPromExporterHost", "metrics are served on every address of the pod"),
    ("metricsPromExporterPort", "it is 5557"),
    ("rocketmqHome", "it is the pod's scratch directory"),
];

fn broker_keys(schema: &mut Schema) {
    let rules = vec![settings::buffered_sync_rule()];
    configuration(schema, settings::BROKER, 128, OWNED_BROKER_KEYS, rules);
}

fn name_server_keys(schema: &mut Schema) {
    configuration(schema, settings::NAME_SERVER, 64, OWNED_NAME_SERVER_KEYS, Vec::new());
}

/// The schema of a configuration file's entries. A rule per key, since a message that names the key
/// by an expression costs more than the API server allows.
fn configuration(
    schema: &mut Schema,
    settings: Settings,
    entries_max: u32,
    owned: &[(&str, &str)],
    more: Vec<serde_json::Value>,
) {
    let field = settings.field;
    let mut rules = vec![json!({
        "rule": "self.all(k, k.matches('^[A-Za-z][A-Za-z0-9]*$'))",
        "message": format!("{field}: a key is letters and digits, as RocketMQ names it"),
    })];
    rules.extend(settings.rules(owned));
    rules.extend(more);
    rules.extend(owned.iter().map(|(key, instead)| {
        json!({
            "rule": format!("!('{key}' in self)"),
            "message": format!("{field}.{key} is set by the operator ({instead}): remove it"),
        })
    }));
    schema.insert("maxProperties".to_owned(), json!(entries_max));
    schema.insert(
        "additionalProperties".to_owned(),
        // One line: a line break would be another entry.
        json!({"type": "string", "maxLength": 1024, "pattern": "^[^\\n\\r]*$"}),
    );
    schema.insert("x-kubernetes-validations".to_owned(), json!(rules));
}

/// A RocketMQ cluster: a tier of name servers and broker groups of one master each.
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
    validation = rule(
        "size(self.metadata.name) <= 40 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        "'metadata.name: \"' + self.metadata.name + '\" cannot name Services: use at most 40 characters, lower-case letters, digits and \"-\", starting with a letter'"
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

/// The broker groups. Each group has one master and its own volume.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
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

    /// Keys of broker.conf as RocketMQ names them, values as text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = broker_keys)]
    pub config: BTreeMap<String, String>,

    /// The volume of each group.
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

/// The volume that holds a group's CommitLog, ConsumeQueue and config.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[x_kube(validation = rule(
    "has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)",
    "'brokers.storage.storageClassName: \"' + (has(self.storageClassName) ? self.storageClassName : '') + '\" differs from \"' + (has(oldSelf.storageClassName) ? oldSelf.storageClassName : '') + '\": the class of a volume cannot change; keep it'"
))]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// Size of each group's volume, for example `20Gi`. It can grow where the class allows it.
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
    /// Refuses the eviction of brokers. A group has one replica, so a node with a broker cannot be
    /// drained until this is taken back or the pod is deleted by hand.
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
    /// Groups whose pod is ready, of whatever template it is.
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
    /// `Pending`, `NotReady`, `Unregistered`, `Updating` or `Ready`.
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
    /// Whether the pod runs the current template.
    #[serde(default)]
    pub updated: bool,
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

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
