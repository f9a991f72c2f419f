//! Services and disruption budgets.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::meta;
use crate::crd::RocketMQCluster;

/// Whether a Service has an address of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Names of single pods only, ready or not: a broker registers before it is ready.
    Headless,
    /// An address, leading to ready pods.
    Address,
    /// An address, leading to the pod ready or not: clients decide, and the single pod that is
    /// selected is all there is.
    AddressOfOnePod,
}

pub(crate) fn service(
    cluster: &RocketMQCluster,
    name: String,
    kind: Kind,
    labels: &BTreeMap<String, String>,
    selector: &BTreeMap<String, String>,
    ports: &[(&str, i32)],
) -> Service {
    Service {
        metadata: meta(cluster, name, labels.clone()),
        spec: Some(ServiceSpec {
            cluster_ip: (kind == Kind::Headless).then(|| "None".to_owned()),
            publish_not_ready_addresses: (kind != Kind::Address).then_some(true),
            selector: Some(selector.clone()),
            ports: Some(
                ports
                    .iter()
                    .map(|(name, port)| ServicePort {
                        name: Some((*name).to_owned()),
                        port: *port,
                        target_port: Some(IntOrString::String((*name).to_owned())),
                        protocol: Some("TCP".to_owned()),
                        ..ServicePort::default()
                    })
                    .collect(),
            ),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

pub(crate) fn budget(
    cluster: &RocketMQCluster,
    name: String,
    labels: &BTreeMap<String, String>,
    selector: &BTreeMap<String, String>,
    unavailable_max: i32,
) -> PodDisruptionBudget {
    PodDisruptionBudget {
        metadata: meta(cluster, name, labels.clone()),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(unavailable_max)),
            selector: Some(LabelSelector {
                match_labels: Some(selector.clone()),
                ..LabelSelector::default()
            }),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    }
}
