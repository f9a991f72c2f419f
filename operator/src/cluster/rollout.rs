//! Which pod to replace next: pure. At most one pod of the cluster is away at any time; name servers
//! go first, then the groups by number, and a pod that is broken anyway goes before all others, so
//! that a fix can get in.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use kube::ResourceExt;

use super::observe::is_ready;
use crate::build::names;

/// How long a pod may take to become ready before the roll-out counts as stuck.
const STUCK_AFTER: SignedDuration = SignedDuration::from_secs(600);

/// A tier or group with its pods.
#[derive(Clone, Debug)]
pub struct TierView<'a> {
    /// Name of the StatefulSet.
    pub name: String,
    /// Whether it is the name server tier.
    pub name_servers: bool,
    /// Pods it should have.
    pub replicas: i32,
    /// Whether the StatefulSet is there.
    pub exists: bool,
    /// Whether its controller has seen the newest template.
    pub observed: bool,
    /// Pods it has, by name.
    pub pods: Vec<PodView<'a>>,
}

/// A pod and how it stands to its template.
#[derive(Clone, Debug)]
pub struct PodView<'a> {
    /// Its name.
    pub name: String,
    /// Whether it is a name server.
    pub name_server: bool,
    /// The pod.
    pub pod: &'a Pod,
    /// Ready and meant to stay.
    pub ready: bool,
    /// On its way out.
    pub terminating: bool,
    /// Made of the newest template.
    pub updated: bool,
    /// Why it would be replaced, were it not updated.
    pub reason: RestartReason,
}

/// Why a pod is replaced. The names are API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartReason {
    /// The image is another one.
    ImageChanged,
    /// The configuration file is another one.
    ConfigRequiresRestart,
    /// Something else in the pod is another one.
    TemplateChanged,
}

impl RestartReason {
    /// The name as shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ImageChanged => "ImageChanged",
            Self::ConfigRequiresRestart => "ConfigRequiresRestart",
            Self::TemplateChanged => "TemplateChanged",
        }
    }
}

/// The next step.
#[derive(Clone, Debug)]
pub enum Roll<'a> {
    /// Every pod is there and current.
    Done,
    /// Pods are awaited; nothing is replaced meanwhile.
    Wait {
        /// What for.
        step: String,
        /// Whether a pod takes longer than it should.
        stuck: bool,
    },
    /// This pod goes now.
    Replace {
        /// The pod.
        pod: PodView<'a>,
        /// Why.
        reason: RestartReason,
    },
}

impl<'a> TierView<'a> {
    /// The tier as `wanted`, as the API server has it in `sets`, with its pods.
    pub fn new(
        name: String,
        name_servers: bool,
        wanted: &StatefulSet,
        sets: &BTreeMap<String, StatefulSet>,
        pods: &'a BTreeMap<String, Pod>,
    ) -> Self {
        let live = sets.get(&name);
        let observed = live.is_some_and(|set| {
            let seen = set.status.as_ref().and_then(|status| status.observed_generation);
            seen.is_some() && seen >= set.metadata.generation
        });
        let revision = live
            .and_then(|set| set.status.as_ref())
            .and_then(|status| status.update_revision.clone());
        let replicas = wanted.spec.replicas.unwrap_or(1);
        let prefix = format!("{name}-");
        let pods = pods
            .iter()
            .filter(|(pod_name, _)| {
                pod_name.strip_prefix(&prefix).is_some_and(|rest| {
                    !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit())
                })
            })
            .map(|(pod_name, pod)| PodView {
                name: pod_name.clone(),
                name_server: name_servers,
                pod,
                ready: is_ready(pod),
                terminating: pod.metadata.deletion_timestamp.is_some(),
                updated: !observed
                    || pod.labels().get("controller-revision-hash") == revision.as_ref(),
                reason: restart_reason(pod, &wanted.spec.template),
            })
            .collect();
        Self { name, name_servers, replicas, exists: live.is_some(), observed, pods }
    }

    /// Pods that are ready.
    pub fn ready(&self) -> i32 {
        count(self.pods.iter().filter(|pod| pod.ready))
    }

    /// Pods that are made of the newest template.
    pub fn updated(&self) -> i32 {
        if self.observed { count(self.pods.iter().filter(|pod| pod.updated)) } else { 0 }
    }
}

fn count<T>(items: impl Iterator<Item = T>) -> i32 {
    i32::try_from(items.count()).unwrap_or(i32::MAX)
}

fn restart_reason(pod: &Pod, template: &PodTemplateSpec) -> RestartReason {
    let wanted = template.spec.as_ref().and_then(|spec| spec.containers.first());
    // A mesh may have put its own container first.
    let runs = pod.spec.as_ref().and_then(|spec| {
        spec.containers.iter().find(|c| wanted.is_some_and(|wanted| wanted.name == c.name))
    });
    let wanted_config = template
        .metadata
        .as_ref()
        .and_then(|meta| meta.annotations.as_ref())
        .and_then(|annotations| annotations.get(names::CONFIG_ANNOTATION));
    if runs.map(|c| &c.image) != wanted.map(|c| &c.image) {
        RestartReason::ImageChanged
    } else if pod.annotations().get(names::CONFIG_ANNOTATION) != wanted_config {
        RestartReason::ConfigRequiresRestart
    } else {
        RestartReason::TemplateChanged
    }
}

/// The next step. `registered`: whether every ready name server knows the master of every group
/// that has a ready pod; a name server that was replaced starts empty.
pub fn plan<'a>(tiers: &[TierView<'a>], registered: bool, now: Timestamp) -> Roll<'a> {
    if let Some(tier) = tiers.iter().find(|tier| tier.exists && !tier.observed) {
        return wait(format!("StatefulSet {} to be observed", tier.name));
    }
    let pods = || tiers.iter().flat_map(|tier| &tier.pods);
    if let Some(pod) = pods().find(|pod| pod.terminating) {
        return Roll::Wait {
            step: format!("{} to stop", pod.name),
            stuck: pod
                .pod
                .metadata
                .deletion_timestamp
                .as_ref()
                .is_some_and(|since| now.duration_since(since.0) > STUCK_AFTER),
        };
    }
    if let Some(broken) = pods().find(|pod| !pod.ready && !pod.updated) {
        return Roll::Replace { pod: broken.clone(), reason: broken.reason };
    }
    if let Some(starting) = pods().find(|pod| !pod.ready) {
        let since = starting.pod.metadata.creation_timestamp.as_ref();
        return Roll::Wait {
            step: format!("{} to be ready", starting.name),
            stuck: since.is_some_and(|since| now.duration_since(since.0) > STUCK_AFTER),
        };
    }
    if let Some(tier) = tiers.iter().find(|tier| count(tier.pods.iter()) < tier.replicas) {
        return wait(format!("pods of {} to be created", tier.name));
    }
    let outdated = pods().find(|pod| !pod.updated);
    match outdated {
        None => Roll::Done,
        Some(_) if !registered => {
            wait("every broker to be registered with every name server".to_owned())
        }
        Some(pod) => Roll::Replace { pod: pod.clone(), reason: pod.reason },
    }
}

fn wait(step: String) -> Roll<'static> {
    Roll::Wait { step, stuck: false }
}

#[cfg(test)]
#[path = "rollout_tests.rs"]
mod tests;
