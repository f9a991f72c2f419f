//! The custom resource types of group `rocketmq.rs`, version `v1alpha1`, and the YAML made of them.
//! Owns schema, validation rules and status shapes; knows nothing of how a resource is reconciled.
//!
//! A field stands here only when it works: an unknown field is refused by the API server, which is
//! kinder than one that is accepted and ignored.

pub mod cluster;
pub mod consumer_group;
pub mod settings;
pub mod topic;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::core::cel::{Message, Rule};
use kube::{CustomResourceExt, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use cluster::RocketMQCluster;
pub use consumer_group::ConsumerGroup;
pub use topic::Topic;

/// API group of the resources.
pub const GROUP: &str = "rocketmq.rs";
/// API version of the resources.
pub const VERSION: &str = "v1alpha1";
/// Present only while `deletionPolicy` is `Delete`.
pub const FINALIZER: &str = "rocketmq.rs/delete-from-brokers";
/// `"false"` stops the management of a Topic or ConsumerGroup, its deletion included.
pub const MANAGED_ANNOTATION: &str = "rocketmq.rs/managed";
/// `"true"` lets a deletion go on although the topic or consumer group is in use.
pub const FORCE_DELETE_ANNOTATION: &str = "rocketmq.rs/force-delete";
/// Names the consumer groups (comma separated, `*` for all) that a queue shrink does not wait for.
pub const SKIP_DRAIN_ANNOTATION: &str = "rocketmq.rs/skip-drain";

/// Pods, comma separated, that must neither serve nor become master; `*` for all. It holds while it is
/// there.
pub const FENCE_ANNOTATION: &str = "rocketmq.rs/fence";
/// Asks for another master: pods that shall be it, or groups where any other in sync will do, comma
/// separated. The operator takes away what it has answered.
pub const SWITCHOVER_ANNOTATION: &str = "rocketmq.rs/switchover";
/// Groups, comma separated, that may once get a master that lacks acknowledged messages. The operator
/// takes away what it has made use of.
pub const ALLOW_UNCLEAN_ANNOTATION: &str = "rocketmq.rs/allow-unclean";

/// The cluster, in the same namespace, that a Topic or ConsumerGroup belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRef {
    /// metadata.name of the RocketMQCluster.
    #[schemars(length(min = 1, max = 40))]
    pub name: String,
}

/// What becomes of the topic or consumer group on the brokers when its resource is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum DeletionPolicy {
    /// It stays on the brokers, with its messages and offsets.
    #[default]
    Retain,
    /// It is deleted from every broker group and name server.
    Delete,
}

/// What is done when brokers differ from the resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum DriftPolicy {
    /// The difference is undone, queue counts by the safe steps.
    #[default]
    Correct,
    /// The difference is reported in the condition `Drifted` and an event.
    Warn,
    /// The difference is neither undone nor reported.
    Ignore,
}

/// What is done with a topic or consumer group that is on the brokers before its resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum AdoptPolicy {
    /// It is taken over only when it equals the resource.
    IfIdentical,
    /// It is taken over and brought to the resource's values.
    #[default]
    Update,
    /// It is never taken over.
    Never,
}

/// Who made what a Topic or ConsumerGroup describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Origin {
    /// The operator made it for this resource.
    Created,
    /// It was on the brokers already.
    Adopted,
}

/// A rule whose message is computed, so that it can name the refused value. Numbers go through
/// `format`: for `string(number)` the API server assumes a text without bound, and refuses its cost.
pub(crate) fn rule(expression: &str, message_expression: &str) -> Rule {
    Rule::new(expression).message(Message::Expression(message_expression.to_owned()))
}

/// The three definitions, ready to be applied.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    vec![RocketMQCluster::crd(), Topic::crd(), ConsumerGroup::crd()]
        .into_iter()
        .map(complete)
        .collect()
}

/// Adds what the derive cannot express: keyed condition lists, so that server-side apply and
/// `kubectl wait` treat them as maps by type. Takes away the descriptions inside Kubernetes' own
/// types, which are two thirds of the text and known from pods: `kubectl apply` keeps a copy of a
/// definition in an annotation, and that has a limit.
fn complete(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        if let Some(root) = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut()) {
            shorten(root, false);
        }
        let conditions = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut())
            .and_then(|root| root.properties.as_mut())
            .and_then(|properties| properties.get_mut("status"))
            .and_then(|status| status.properties.as_mut())
            .and_then(|properties| properties.get_mut("conditions"));
        if let Some(conditions) = conditions {
            conditions.x_kubernetes_list_type = Some("map".to_owned());
            conditions.x_kubernetes_list_map_keys = Some(vec!["type".to_owned()]);
        }
    }
    crd
}

/// Fields of ours that hold types of Kubernetes.
const FOREIGN_FIELDS: &[&str] = &[
    "affinity",
    "conditions",
    "env",
    "pullSecrets",
    "resources",
    "tolerations",
    "topologySpreadConstraints",
];

fn shorten(schema: &mut JSONSchemaProps, foreign: bool) {
    for (name, property) in schema.properties.iter_mut().flatten() {
        if foreign {
            property.description = None;
        }
        shorten(property, foreign || FOREIGN_FIELDS.contains(&name.as_str()));
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        if foreign {
            items.description = None;
        }
        shorten(items, foreign);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        if foreign {
            values.description = None;
        }
        shorten(values, foreign);
    }
}

/// The definitions as YAML documents, separated by `---` lines.
///
/// # Errors
/// Fails when a definition cannot be written as YAML, which no input can cause.
pub fn yaml() -> anyhow::Result<String> {
    let documents = definitions()
        .iter()
        .map(|crd| Ok(serde_saphyr::to_string(crd)?.trim().to_owned() + "\n"))
        .collect::<anyhow::Result<Vec<_>>>()?;
    Ok(documents.join("---\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// The files in crds/ and in the chart of the definitions are made of the types.
    #[test]
    fn checked_in_definitions_equal_the_types() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("workspace root");
        let yaml = yaml().expect("yaml");
        for (crd, wanted) in definitions().iter().zip(yaml.split("---\n")) {
            let file = format!("{}.yaml", crd.spec.names.plural);
            for (folder, kept) in [("crds", false), ("charts/rocketmq-crds/templates", true)] {
                let path = root.join(folder).join(&file);
                let mut found = std::fs::read_to_string(&path)
                    .unwrap_or_else(|e| panic!("{}: {e}; run `cargo xtask crds`", path.display()));
                if kept {
                    let keep = "  annotations:\n    helm.sh/resource-policy: keep\n";
                    assert!(found.contains(keep), "{} is deleted with its chart", path.display());
                    found = found.replacen(keep, "", 1);
                }
                assert!(
                    found == wanted,
                    "{} differs from the types; run `cargo xtask crds`",
                    path.display()
                );
            }
        }
    }

    /// `kubectl apply` stores a definition in an annotation of at most 256 KiB.
    #[test]
    fn definitions_are_short_enough_to_be_applied() {
        for crd in definitions() {
            let size = serde_json::to_string(&crd).expect("json").len();
            assert!(size < 128 * 1024, "{:?} has {size} bytes", crd.metadata.name);
        }
    }

    #[test]
    fn conditions_are_a_map_by_type() {
        for crd in definitions() {
            let yaml = serde_saphyr::to_string(&crd).expect("yaml");
            assert!(yaml.contains("x-kubernetes-list-map-keys"), "{:?}", crd.metadata.name);
        }
    }
}
