//! Which pod to replace next: pure. At most one pod of the cluster is away at any time; name servers
//! go first, then the groups by number, and a pod that is broken anyway goes before all others, so
//! that a fix can get in. In a group with slaves they go one at a time, each back in sync before the
//! next, and the master last, when it has handed over to one of them.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use kube::ResourceExt;

use super::members::Members;
use super::observe::is_ready;
use crate::build::names;

/// How long a pod may take to become ready before the roll-out counts as stuck.
pub(crate) const STUCK_AFTER: SignedDuration = SignedDuration::from_secs(600);

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
    /// Who is what in a group whose master is appointed.
    pub members: Option<Members>,
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
    /// The master of this group is to hand over, so that its pod can go.
    Switchover {
        /// brokerName.
        group: String,
        /// Pod that is to be master.
        to: String,
        /// What for.
        purpose: &'static str,
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
        Self { name, name_servers, replicas, exists: live.is_some(), observed, pods, members: None }
    }

    /// The tier with what its record says.
    #[must_use]
    pub fn with_members(self, members: Option<Members>) -> Self {
        Self { members, ..self }
    }

    /// The pod of the master: of the one that has taken over, or of the only one there is.
    pub fn master(&self) -> Option<&PodView<'a>> {
        match &self.members {
            None => self.pods.first(),
            Some(members) if members.is_held => {
                self.pods.iter().find(|pod| Some(&pod.name) == members.master.as_ref())
            }
            Some(_) => None,
        }
    }

    /// Whether a pod that is not ready runs, and is a slave that lacks messages.
    fn copies(&self, pod: &PodView<'_>) -> bool {
        let lacks =
            self.members.as_ref().is_some_and(|members| !members.in_sync.contains(&pod.name));
        let status = pod.pod.status.as_ref();
        let mut containers =
            status.and_then(|status| status.container_statuses.as_ref()).into_iter().flatten();
        lacks
            && containers
                .any(|one| one.name == names::BROKER_CONTAINER && one.started == Some(true))
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
    let mut unready = tiers
        .iter()
        .flat_map(|tier| tier.pods.iter().map(move |pod| (tier, pod)))
        .filter(|(_, pod)| !pod.ready);
    if let Some((_, starting)) = unready.clone().find(|(tier, pod)| !tier.copies(pod)) {
        let since = starting.pod.metadata.creation_timestamp.as_ref();
        return Roll::Wait {
            step: format!("{} to be ready", starting.name),
            stuck: since.is_some_and(|since| now.duration_since(since.0) > STUCK_AFTER),
        };
    }
    // A slave is not ready before it has the log, which takes as long as it takes.
    if let Some((_, copying)) = unready.next() {
        return wait(format!("{} to be in sync", copying.name));
    }
    if let Some(tier) = tiers.iter().find(|tier| count(tier.pods.iter()) < tier.replicas) {
        return wait(format!("pods of {} to be created", tier.name));
    }
    let unsettled = tiers.iter().find_map(settled_first);
    let outdated = tiers.iter().find(|tier| tier.pods.iter().any(|pod| !pod.updated));
    match (unsettled, outdated) {
        (Some(roll), _) => roll,
        (None, None) => Roll::Done,
        (None, Some(_)) if !registered => {
            wait("every broker to be registered with every name server".to_owned())
        }
        (None, Some(tier)) => next_of(tier),
    }
}

/// What has to come before any healthy pod goes: each group has its master at work, where it may stay,
/// and every copy it should have.
fn settled_first<'a>(tier: &TierView<'a>) -> Option<Roll<'a>> {
    let members = tier.members.as_ref()?;
    let name = &tier.name;
    if let Some(to) = &members.handover {
        return Some(wait(format!("{name} to switch over to {to}")));
    }
    if !members.is_held {
        // A broker that has not learned yet to look at the record, and has all there is, learns it by
        // a restart.
        let alone = tier.pods.iter().find(|pod| {
            !pod.updated
                && Some(&pod.name) == members.master.as_ref()
                && members.in_sync.iter().eq([&pod.name])
        });
        return Some(match alone {
            Some(pod) => Roll::Replace { pod: pod.clone(), reason: pod.reason },
            None => wait(format!("a master of {name}")),
        });
    }
    if let Some(behind) = tier.pods.iter().find(|pod| !members.in_sync.contains(&pod.name)) {
        // If it is to be replaced anyway, what keeps it behind may be what the new one mends.
        return Some(if behind.updated || Some(&behind.name) == members.master.as_ref() {
            wait(format!("{} to be in sync", behind.name))
        } else {
            Roll::Replace { pod: behind.clone(), reason: behind.reason }
        });
    }
    let master = members.master.as_ref()?;
    if members.wanted.contains(master) {
        return None;
    }
    Some(switch_over(tier, members, "its pod is to be removed", |_| true))
}

/// The next pod of a tier whose pods are all well: slaves come before their master, which hands over
/// first.
fn next_of<'a>(tier: &TierView<'a>) -> Roll<'a> {
    let mut outdated = tier.pods.iter().filter(|pod| !pod.updated);
    let master = tier.members.as_ref().and_then(|members| members.master.as_ref());
    let is_master = |pod: &PodView<'_>| master == Some(&pod.name);
    let replace = |pod: &PodView<'a>| Roll::Replace { pod: pod.clone(), reason: pod.reason };
    let Some(members) = &tier.members else {
        return outdated.next().map_or(Roll::Done, replace);
    };
    let slaves_first = outdated.clone().find(|pod| !is_master(pod));
    match slaves_first.or_else(|| outdated.next()) {
        None => Roll::Done,
        // Nobody else is there to be master meanwhile.
        Some(pod) if tier.pods.len() == 1 => replace(pod),
        Some(pod) if is_master(pod) => {
            switch_over(tier, members, "its pod is to be replaced", |to| to.updated)
        }
        Some(pod) if !members.can_spare(&pod.name) => {
            wait(format!("{} to have the copies it needs without {}", tier.name, pod.name))
        }
        Some(pod) => replace(pod),
    }
}

fn switch_over(
    tier: &TierView<'_>,
    members: &Members,
    purpose: &'static str,
    may: impl Fn(&PodView<'_>) -> bool,
) -> Roll<'static> {
    let to = tier.pods.iter().find(|pod| {
        may(pod)
            && pod.ready
            && Some(&pod.name) != members.master.as_ref()
            && members.in_sync.contains(&pod.name)
            && members.wanted.contains(&pod.name)
            && !members.fenced.contains(&pod.name)
    });
    match to {
        None => wait(format!("a slave of {} that can be master", tier.name)),
        Some(_) if !members.may_ask => wait(format!("another try to switch {} over", tier.name)),
        Some(pod) => Roll::Switchover { group: tier.name.clone(), to: pod.name.clone(), purpose },
    }
}

fn wait(step: String) -> Roll<'static> {
    Roll::Wait { step, stuck: false }
}

#[cfg(test)]
#[path = "rollout_tests.rs"]
mod tests;
