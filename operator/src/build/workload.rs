//! StatefulSets of the two tiers, put together with their ConfigMaps, Services and budgets.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{
    StatefulSet, StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec,
    StatefulSetUpdateStrategy,
};
use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolumeClaim, PersistentVolumeClaimSpec, PodTemplateSpec,
    VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use rocketmq_replication::ReplicaId;

use super::service::{Kind, budget, service};
use super::{Appointed, Defaults, Scale, Tier, access, config, image, meta, names, pod};
use crate::crd::RocketMQCluster;
use crate::crd::cluster::VolumeRetention;

/// Seconds between the removal of a name server from its Service and its stop: new look-ups go
/// elsewhere meanwhile.
const NAME_SERVER_STOP_DELAY_SECONDS: i64 = 2;
/// Recovery of a large log after a crash may take long; a kill in its middle would start it anew.
const BROKER_START_SECONDS: i32 = 3600;
const NAME_SERVER_START_SECONDS: i32 = 60;

pub(crate) fn name_servers(cluster: &RocketMQCluster, scale: &Scale, defaults: &Defaults) -> Tier {
    let (name, namespace_name) = identity(cluster);
    let spec = &cluster.spec.name_servers;
    let selector = names::name_server_selector(&name);
    let labels = names::with_recommended(selector.clone(), &name, names::NAME_SERVER_TIER);
    let object = names::name_servers(&name);
    let text = config::name_server(&spec.config);
    let ports = [("remoting", names::NAME_SERVER_PORT), ("http", names::HTTP_PORT)];
    let template = pod::template(&pod::Parts {
        container: "namesrv",
        image: image::name_server(&cluster.spec, defaults),
        image_spec: &cluster.spec.image,
        config_map: object.clone(),
        config_file: config::NAME_SERVER_FILE,
        config_text: &text,
        ports: &ports,
        resources: spec.resources.as_ref(),
        default_requests: [("cpu", "50m"), ("memory", "64Mi")],
        grace_seconds: 30,
        stop_delay_seconds: Some(NAME_SERVER_STOP_DELAY_SECONDS),
        starts_when: pod::READY,
        start_seconds: NAME_SERVER_START_SECONDS,
        scratch_data: true,
        labels: &labels,
        selector: &selector,
        spread: selector.clone(),
        spread_over: &[pod::HOSTS],
        service_account: None,
        template: &spec.pod_template,
    });
    let headless = names::name_server_pods(&name);
    Tier {
        config: config_map(cluster, &object, &labels, config::NAME_SERVER_FILE, text),
        services: vec![
            service(cluster, headless.clone(), Kind::Headless, &labels, &selector, &ports),
            service(cluster, object.clone(), Kind::Address, &labels, &selector, &ports[..1]),
        ],
        workload: StatefulSet {
            metadata: meta(cluster, object.clone(), labels.clone()),
            spec: StatefulSetSpec {
                pod_management_policy: Some("Parallel".to_owned()),
                ..stateful_set_spec(scale.name_server_pods, headless, &selector, template)
            },
            ..StatefulSet::default()
        },
        budget: cluster
            .spec
            .pod_disruption_budget
            .enabled
            .then(|| budget(cluster, object, &labels, &selector, 1)),
        access: None,
    }
    .in_namespace(&namespace_name)
}

pub(crate) fn broker_group(
    cluster: &RocketMQCluster,
    number: i32,
    scale: &Scale,
    defaults: &Defaults,
) -> Tier {
    let (name, namespace_name) = identity(cluster);
    let spec = &cluster.spec.brokers;
    let appointed = scale.appointed.get(&number).copied();
    let selector = names::broker_selector(&name, number);
    let labels = names::with_recommended(selector.clone(), &name, names::BROKER_TIER);
    let object = names::broker(&name, number);
    let group = config::Group {
        cluster: &name,
        namespace: &namespace_name,
        number,
        name_servers: scale.name_servers_listed,
        replicas: appointed.map(|appointed| appointed.pods.max(spec.pods_per_group())),
    };
    let text = config::broker(group, &cluster.spec);
    let mut ports = vec![
        ("remoting", names::BROKER_PORT),
        ("remoting-vip", names::BROKER_VIP_PORT),
        ("http", names::HTTP_PORT),
    ];
    let mut spread = selector.clone();
    let spread_over: &[&str] = if appointed.is_some() {
        ports.push(("ha", names::HA_PORT));
        &[pod::HOSTS, pod::ZONES]
    } else {
        spread.remove(names::GROUP_LABEL);
        &[pod::HOSTS]
    };
    let template = pod::template(&pod::Parts {
        container: names::BROKER_CONTAINER,
        image: image::broker(&cluster.spec, defaults),
        image_spec: &cluster.spec.image,
        config_map: object.clone(),
        config_file: config::BROKER_FILE,
        config_text: &text,
        ports: &ports,
        resources: spec.resources.as_ref(),
        default_requests: [("cpu", "100m"), ("memory", "256Mi")],
        grace_seconds: spec.termination_grace_period_seconds,
        stop_delay_seconds: None,
        // A slave is not ready before it has the whole log. That takes as long as it takes, and one
        // that hangs meanwhile is to be found out.
        starts_when: if appointed.is_some() { pod::ALIVE } else { pod::READY },
        start_seconds: BROKER_START_SECONDS,
        scratch_data: false,
        labels: &labels,
        selector: &selector,
        spread,
        spread_over,
        service_account: appointed.map(|_| object.clone()),
        template: &spec.pod_template,
    });
    let headless = names::broker_pods(&name, number);
    let deletes = spec.storage.retention.when_deleted == VolumeRetention::Delete;
    let mut master = selector.clone();
    if appointed.is_some_and(|appointed| appointed.by_role) {
        master.insert(names::ROLE_LABEL.to_owned(), names::MASTER_ROLE.to_owned());
    }
    let one = Kind::AddressOfOnePod;
    let mut services = vec![
        service(cluster, headless.clone(), Kind::Headless, &labels, &selector, &ports),
        service(cluster, object.clone(), one, &labels, &master, &ports[..2]),
    ];
    // An address that outlives the pod, for what slaves are read by and masters followed at.
    for replica in 1..=appointed.map_or(0, |appointed| appointed.pods) {
        let pod = names::replica_pod(&object, ReplicaId(replica.into()));
        let mut selector = selector.clone();
        selector.insert(names::POD_NAME_LABEL.to_owned(), pod.clone());
        let ports = [ports[0], ports[1], ports[3]];
        services.push(service(cluster, pod, one, &labels, &selector, &ports));
    }
    Tier {
        config: config_map(cluster, &object, &labels, config::BROKER_FILE, text),
        services,
        workload: StatefulSet {
            metadata: meta(cluster, object.clone(), labels.clone()),
            spec: StatefulSetSpec {
                volume_claim_templates: Some(vec![claim(cluster, &labels)]),
                persistent_volume_claim_retention_policy: Some(
                    StatefulSetPersistentVolumeClaimRetentionPolicy {
                        when_deleted: Some(if deletes { "Delete" } else { "Retain" }.to_owned()),
                        when_scaled: Some("Retain".to_owned()),
                    },
                ),
                // A replica must not wait for another one that may be lost.
                pod_management_policy: appointed.map(|_| "Parallel".to_owned()),
                ..stateful_set_spec(
                    appointed.map_or(1, |appointed| appointed.pods),
                    headless,
                    &selector,
                    template,
                )
            },
            ..StatefulSet::default()
        },
        budget: unavailable_max(cluster, appointed)
            .map(|max| budget(cluster, object.clone(), &labels, &selector, max)),
        access: appointed.map(|_| access::of(cluster, &object, &labels)),
    }
    .in_namespace(&namespace_name)
}

/// How many brokers of a group may be evicted at a time, `None` for as many as one likes.
fn unavailable_max(cluster: &RocketMQCluster, appointed: Option<Appointed>) -> Option<i32> {
    let budgets = &cluster.spec.pod_disruption_budget;
    let max = if appointed.is_some_and(|appointed| appointed.pods > 1) {
        Some(1)
    } else {
        budgets.protect_single_replica_groups.then_some(0)
    };
    max.filter(|_| budgets.enabled)
}

impl Tier {
    fn in_namespace(mut self, namespace: &str) -> Self {
        let namespace = Some(namespace.to_owned());
        self.config.metadata.namespace.clone_from(&namespace);
        for service in &mut self.services {
            service.metadata.namespace.clone_from(&namespace);
        }
        self.workload.metadata.namespace.clone_from(&namespace);
        if let Some(budget) = &mut self.budget {
            budget.metadata.namespace.clone_from(&namespace);
        }
        if let Some(access) = &mut self.access {
            access.in_namespace(namespace);
        }
        self
    }
}

/// Name and namespace; the API server sets both on every object it hands out.
fn identity(cluster: &RocketMQCluster) -> (String, String) {
    (
        cluster.metadata.name.clone().unwrap_or_default(),
        cluster.metadata.namespace.clone().unwrap_or_else(|| "default".to_owned()),
    )
}

fn stateful_set_spec(
    replicas: i32,
    headless: String,
    selector: &BTreeMap<String, String>,
    template: PodTemplateSpec,
) -> StatefulSetSpec {
    StatefulSetSpec {
        replicas: Some(replicas),
        service_name: Some(headless),
        selector: LabelSelector {
            match_labels: Some(selector.clone()),
            ..LabelSelector::default()
        },
        template,
        // The operator picks the pod to replace: it knows which one is safe to take.
        update_strategy: Some(StatefulSetUpdateStrategy {
            type_: Some("OnDelete".to_owned()),
            ..StatefulSetUpdateStrategy::default()
        }),
        revision_history_limit: Some(3),
        ..StatefulSetSpec::default()
    }
}

fn claim(cluster: &RocketMQCluster, labels: &BTreeMap<String, String>) -> PersistentVolumeClaim {
    let storage = &cluster.spec.brokers.storage;
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(pod::DATA_VOLUME.to_owned()),
            labels: Some(labels.clone()),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: storage.storage_class_name.clone(),
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([(
                    "storage".to_owned(),
                    Quantity(storage.size.clone()),
                )])),
                ..VolumeResourceRequirements::default()
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        ..PersistentVolumeClaim::default()
    }
}

fn config_map(
    cluster: &RocketMQCluster,
    name: &str,
    labels: &BTreeMap<String, String>,
    file: &str,
    text: String,
) -> ConfigMap {
    ConfigMap {
        metadata: meta(cluster, name.to_owned(), labels.clone()),
        data: Some(BTreeMap::from([(file.to_owned(), text)])),
        ..ConfigMap::default()
    }
}
