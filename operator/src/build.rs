//! From a cluster's spec to its children: pure, so that golden files can show every byte.
//! Owns what the children look like; when they are applied is decided in `cluster`.

pub mod access;
pub mod config;
pub mod image;
pub mod names;
pub mod pod;
pub mod service;
pub mod workload;

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;

use crate::crd::RocketMQCluster;

/// What the operator adds to a spec.
#[derive(Clone, Debug)]
pub struct Defaults {
    /// Reference of the broker image; a cluster's version replaces its tag.
    pub broker_image: String,
    /// Reference of the name server image; a cluster's version replaces its tag.
    pub name_server_image: String,
}

/// What a build depends on besides the spec.
#[derive(Clone, Debug)]
pub struct Scale {
    /// Name servers that brokers are told of.
    pub name_servers_listed: i32,
    /// Name server pods; more than listed while a shorter list is rolled out.
    pub name_server_pods: i32,
    /// Broker groups; more than asked for when fewer were asked for than exist.
    pub groups: i32,
    /// Groups whose master is appointed, by number: those that have, or once had, slaves.
    pub appointed: BTreeMap<i32, Appointed>,
}

/// A group whose master is appointed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appointed {
    /// Its brokers; more than asked for while one that is to go is still needed.
    pub pods: i32,
    /// Whether the address that clients use leads to the pod that is labelled as master. Else it
    /// leads to any of the group's pods: to the only one there was before it got slaves.
    pub by_role: bool,
}

/// Every child of a cluster.
#[derive(Clone, Debug)]
pub struct Children {
    /// The name server tier.
    pub name_servers: Tier,
    /// The broker groups by number.
    pub brokers: Vec<Tier>,
}

/// The children of one tier or group.
#[derive(Clone, Debug)]
pub struct Tier {
    /// Configuration file.
    pub config: ConfigMap,
    /// Headless and client Services.
    pub services: Vec<Service>,
    /// Pods and volumes.
    pub workload: StatefulSet,
    /// Disruption budget, where there is one.
    pub budget: Option<PodDisruptionBudget>,
    /// What lets the pods at their group's Lease, where there is one.
    pub access: Option<access::Access>,
}

/// Builds every child of `cluster`.
pub fn children(cluster: &RocketMQCluster, scale: &Scale, defaults: &Defaults) -> Children {
    Children {
        name_servers: workload::name_servers(cluster, scale, defaults),
        brokers: (0..scale.groups)
            .map(|number| workload::broker_group(cluster, number, scale, defaults))
            .collect(),
    }
}

/// Metadata of a child: labels of its tier, and the cluster as its owner.
pub(crate) fn meta(
    cluster: &RocketMQCluster,
    name: String,
    labels: BTreeMap<String, String>,
) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: cluster.metadata.namespace.clone(),
        labels: Some(labels),
        owner_references: owner(cluster).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

fn owner(cluster: &RocketMQCluster) -> Option<OwnerReference> {
    cluster.controller_owner_ref(&())
}

#[cfg(test)]
#[path = "build/tests.rs"]
pub(crate) mod tests;
