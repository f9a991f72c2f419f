//! The pod of a tier: container, probes, restricted security context, volumes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapVolumeSource, Container, ContainerPort, EmptyDirVolumeSource, EnvVar,
    EnvVarSource, HTTPGetAction, Lifecycle, LifecycleHandler, ObjectFieldSelector,
    PodSecurityContext, PodSpec, PodTemplateSpec, Probe, ResourceRequirements, SeccompProfile,
    SecurityContext, SleepAction, TopologySpreadConstraint, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::names;
use crate::crd::cluster::{Image, PodTemplate, PullPolicy};

/// User and group of the images.
const USER: i64 = 65532;
/// Where the ConfigMap is mounted.
const CONFIG_DIR: &str = "/etc/rocketmq";
/// Label of nodes by which pods are spread over hosts.
pub(crate) const HOSTS: &str = "kubernetes.io/hostname";
/// Label of nodes by which pods are spread over zones.
pub(crate) const ZONES: &str = "topology.kubernetes.io/zone";
/// Name of the data volume and of the claim template.
pub(crate) const DATA_VOLUME: &str = "data";

/// Answered with success by a program that is fit to serve.
pub(crate) const READY: &str = "/readyz";
/// Answered with success by a program that need not be killed.
pub(crate) const ALIVE: &str = "/livez";

/// What tells the pods of the two tiers apart.
pub(crate) struct Parts<'a> {
    pub(crate) container: &'static str,
    pub(crate) image: String,
    pub(crate) image_spec: &'a Image,
    pub(crate) config_map: String,
    pub(crate) config_file: &'static str,
    pub(crate) config_text: &'a str,
    pub(crate) ports: &'a [(&'a str, i32)],
    pub(crate) resources: Option<&'a ResourceRequirements>,
    pub(crate) default_requests: [(&'a str, &'a str); 2],
    pub(crate) grace_seconds: i64,
    /// Seconds between the pod's removal from Services and the stop signal.
    pub(crate) stop_delay_seconds: Option<i64>,
    /// The probe that ends a start: [`READY`] or [`ALIVE`].
    pub(crate) starts_when: &'static str,
    /// Seconds a start may take; for a broker this covers recovery of the log.
    pub(crate) start_seconds: i32,
    /// Whether the data volume is a scratch directory; else a claim of that name is mounted.
    pub(crate) scratch_data: bool,
    pub(crate) labels: &'a BTreeMap<String, String>,
    pub(crate) selector: &'a BTreeMap<String, String>,
    /// Labels whose pods are kept apart by the default spread.
    pub(crate) spread: BTreeMap<String, String>,
    /// What they are kept apart over.
    pub(crate) spread_over: &'a [&'a str],
    /// Account whose token is mounted; without one no token is.
    pub(crate) service_account: Option<String>,
    pub(crate) template: &'a PodTemplate,
}

pub(crate) fn template(parts: &Parts<'_>) -> PodTemplateSpec {
    let mut labels = parts.template.labels.clone();
    labels.extend(parts.labels.clone());
    let mut annotations = parts.template.annotations.clone();
    annotations.insert(
        names::CONFIG_ANNOTATION.to_owned(),
        super::config::restart_checksum(parts.config_text),
    );
    debug_assert!(parts.selector.iter().all(|(k, v)| labels.get(k) == Some(v)));
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        }),
        spec: Some(spec(parts)),
    }
}

fn spec(parts: &Parts<'_>) -> PodSpec {
    let template = parts.template;
    PodSpec {
        automount_service_account_token: Some(parts.service_account.is_some()),
        service_account_name: parts.service_account.clone(),
        containers: vec![container(parts)],
        image_pull_secrets: non_empty(&parts.image_spec.pull_secrets),
        node_selector: (!template.node_selector.is_empty()).then(|| template.node_selector.clone()),
        tolerations: non_empty(&template.tolerations),
        affinity: template.affinity.clone(),
        topology_spread_constraints: Some(if template.topology_spread_constraints.is_empty() {
            parts.spread_over.iter().map(|key| soft_spread(parts, key)).collect()
        } else {
            template.topology_spread_constraints.clone()
        }),
        priority_class_name: template.priority_class_name.clone(),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            run_as_group: Some(USER),
            fs_group: Some(USER),
            fs_group_change_policy: Some("OnRootMismatch".to_owned()),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..SeccompProfile::default()
            }),
            ..PodSecurityContext::default()
        }),
        termination_grace_period_seconds: Some(parts.grace_seconds),
        volumes: Some(volumes(parts)),
        ..PodSpec::default()
    }
}

fn container(parts: &Parts<'_>) -> Container {
    Container {
        name: parts.container.to_owned(),
        image: Some(parts.image.clone()),
        image_pull_policy: Some(
            match parts.image_spec.pull_policy {
                PullPolicy::IfNotPresent => "IfNotPresent",
                PullPolicy::Always => "Always",
                PullPolicy::Never => "Never",
            }
            .to_owned(),
        ),
        args: Some(vec!["-c".to_owned(), format!("{CONFIG_DIR}/{}", parts.config_file)]),
        env: Some(environment(&parts.template.env, parts.service_account.is_some())),
        ports: Some(
            parts
                .ports
                .iter()
                .map(|(name, port)| ContainerPort {
                    name: Some((*name).to_owned()),
                    container_port: *port,
                    protocol: Some("TCP".to_owned()),
                    ..ContainerPort::default()
                })
                .collect(),
        ),
        resources: Some(parts.resources.cloned().unwrap_or_else(|| {
            ResourceRequirements {
                requests: Some(
                    parts
                        .default_requests
                        .iter()
                        .map(|(k, v)| ((*k).to_owned(), Quantity((*v).to_owned())))
                        .collect(),
                ),
                ..ResourceRequirements::default()
            }
        })),
        startup_probe: Some(probe(parts.starts_when, 1, parts.start_seconds, 5)),
        readiness_probe: Some(probe(READY, 2, 3, 5)),
        liveness_probe: Some(probe(ALIVE, 10, 6, 5)),
        // The last lines of a crashed program then stand in the pod's status, where the operator and
        // people look first.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        lifecycle: parts.stop_delay_seconds.map(|seconds| Lifecycle {
            pre_stop: Some(LifecycleHandler {
                sleep: Some(SleepAction { seconds }),
                ..LifecycleHandler::default()
            }),
            ..Lifecycle::default()
        }),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                ..Capabilities::default()
            }),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(vec![
            mount("config", CONFIG_DIR, true),
            mount(DATA_VOLUME, "/data", false),
            mount("tmp", "/tmp", false),
        ]),
        ..Container::default()
    }
}

fn probe(path: &str, period_seconds: i32, failures: i32, timeout_seconds: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String("http".to_owned()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period_seconds),
        failure_threshold: Some(failures),
        timeout_seconds: Some(timeout_seconds),
        ..Probe::default()
    }
}

/// `appointed`: whether the broker has to say which process it is.
fn environment(extra: &[EnvVar], appointed: bool) -> Vec<EnvVar> {
    let mut own = vec![
        ("POD_NAME", "metadata.name"),
        ("POD_NAMESPACE", "metadata.namespace"),
        ("POD_IP", "status.podIP"),
    ];
    if appointed {
        own.push(("POD_UID", "metadata.uid"));
    }
    own.iter()
        .map(|(name, path)| EnvVar {
            name: (*name).to_owned(),
            value_from: Some(EnvVarSource {
                field_ref: Some(ObjectFieldSelector {
                    field_path: (*path).to_owned(),
                    ..ObjectFieldSelector::default()
                }),
                ..EnvVarSource::default()
            }),
            ..EnvVar::default()
        })
        .chain(extra.iter().filter(|e| own.iter().all(|(name, _)| *name != e.name)).cloned())
        .collect()
}

fn soft_spread(parts: &Parts<'_>, over: &str) -> TopologySpreadConstraint {
    TopologySpreadConstraint {
        max_skew: 1,
        topology_key: over.to_owned(),
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        label_selector: Some(LabelSelector {
            match_labels: Some(parts.spread.clone()),
            ..LabelSelector::default()
        }),
        ..TopologySpreadConstraint::default()
    }
}

fn volumes(parts: &Parts<'_>) -> Vec<Volume> {
    let scratch = |name: &str| Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    };
    let mut volumes = vec![
        Volume {
            name: "config".to_owned(),
            config_map: Some(ConfigMapVolumeSource {
                name: parts.config_map.clone(),
                ..ConfigMapVolumeSource::default()
            }),
            ..Volume::default()
        },
        scratch("tmp"),
    ];
    if parts.scratch_data {
        volumes.push(scratch(DATA_VOLUME));
    }
    volumes
}

fn mount(name: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}

fn non_empty<T: Clone>(list: &[T]) -> Option<Vec<T>> {
    (!list.is_empty()).then(|| list.to_vec())
}
