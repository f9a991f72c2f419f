//! The status of a cluster from what was read: pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt;
use rocketmq_replication::Report;

use super::observe::{Registration, World};
use super::rollout::{Roll, STUCK_AFTER, TierView};
use super::trouble::Trouble;
use super::{group_status, replication_status, volumes};
use crate::build::{Scale, names};
use crate::conditions::{Reason, Status, Verdict, find, merge};
use crate::context::namespace_of;
use crate::crd::RocketMQCluster;
use crate::crd::cluster::{
    Endpoint, FailoverStatus, GroupStatus, NameServersStatus, RocketMQClusterStatus, RolloutStatus,
    StorageStatus,
};
use crate::crd::settings::Refused;

/// Whether every ready name server knows the right master address of every group with a ready master.
pub fn all_registered(
    cluster: &RocketMQCluster,
    tiers: &[TierView<'_>],
    registrations: &[Registration],
) -> bool {
    tiers
        .iter()
        .filter(|tier| !tier.name_servers && tier.master().is_some_and(|pod| pod.ready))
        .filter_map(|tier| names::broker_number(&cluster.name_any(), &tier.name))
        .all(|number| knows_master(cluster, registrations, number))
}

/// Whether every ready name server knows the right master address of a group.
pub fn knows_master(
    cluster: &RocketMQCluster,
    registrations: &[Registration],
    number: i32,
) -> bool {
    let name = cluster.name_any();
    let address = names::broker_address(&name, &namespace_of(cluster), number);
    let broker = names::broker(&name, number);
    !registrations.is_empty()
        && registrations.iter().all(|registration| {
            registration
                .masters
                .as_ref()
                .is_ok_and(|masters| masters.get(&broker) == Some(&address))
        })
}

/// What a pass saw.
pub struct Seen<'a> {
    /// The children.
    pub world: &'a World,
    /// The tiers with their pods.
    pub tiers: &'a [TierView<'a>],
    /// What the name servers say.
    pub registrations: &'a [Registration],
    /// The next step of a roll-out.
    pub roll: &'a Roll<'a>,
    /// What is not rolled out.
    pub refused: &'a Refused,
    /// Pods that crash or cannot start.
    pub troubles: &'a [Trouble],
    /// What brokers of groups with slaves have, by the name of their pod.
    pub reports: &'a BTreeMap<String, Report>,
    /// What was seen of promotions.
    pub promotions: &'a Promotions,
    /// How many of each there should be.
    pub scale: &'a Scale,
    /// Version of the wanted broker image.
    pub version: &'a str,
}

/// What was seen of promotions.
#[derive(Clone, Debug, Default)]
pub struct Promotions {
    /// The last one that this process saw.
    pub last: Option<FailoverStatus>,
    /// Why there is none, by brokerName.
    pub blocked: BTreeMap<String, String>,
}

/// The status after a pass.
pub fn compute(
    cluster: &RocketMQCluster,
    seen: &Seen<'_>,
    now: Timestamp,
) -> RocketMQClusterStatus {
    let Seen { world, tiers, roll, scale, version, .. } = *seen;
    let name = cluster.name_any();
    let namespace = namespace_of(cluster);
    let name_servers = tiers.iter().find(|tier| tier.name_servers);
    let groups: Vec<GroupStatus> =
        (0..scale.groups).map(|number| group_status::of(cluster, seen, number)).collect();
    // A pod that is still to be replaced serves like any other.
    let groups_ready = count(groups.iter().filter(|group| !group_status::is_away(group)));
    let masters_writable = count(groups.iter().filter(|group| group.writable));
    let before = cluster.status.as_ref();
    let conditions = verdicts(cluster, seen, &groups, now);
    let current = tiers.iter().all(|t| t.observed && t.updated() == t.replicas);
    let requested = &cluster.spec.brokers.storage.size;
    RocketMQClusterStatus {
        observed_generation: cluster.metadata.generation,
        conditions: merge(
            before.map(|status| status.conditions.as_slice()).unwrap_or_default(),
            &conditions,
            cluster.metadata.generation,
            now,
        ),
        version: if current {
            Some(version.to_owned())
        } else {
            before.and_then(|status| status.version.clone())
        },
        endpoints: vec![Endpoint {
            name: "internal".to_owned(),
            address: names::bootstrap_address(&name, &namespace),
        }],
        name_servers: NameServersStatus {
            desired: scale.name_servers_listed,
            ready: name_servers.map_or(0, TierView::ready),
            names: name_servers
                .map(|tier| tier.pods.iter().map(|pod| pod.name.clone()).collect())
                .unwrap_or_default(),
        },
        groups,
        groups_ready,
        groups_desired: cluster.spec.brokers.groups,
        masters_writable,
        ready: format!("{groups_ready}/{}", cluster.spec.brokers.groups),
        selector: names::selector_text(&name, Some(names::BROKER_TIER)),
        rollout: rollout(tiers, roll, before.is_some_and(|status| status.rollout.is_some())),
        storage: Some(StorageStatus {
            requested: requested.clone(),
            pending: volumes::pending(world, requested),
        }),
        last_failover: seen
            .promotions
            .last
            .clone()
            .or_else(|| before.and_then(|status| status.last_failover.clone())),
    }
}

/// Set from the first look at a pod of an older template until every pod is there and current.
fn rollout(tiers: &[TierView<'_>], roll: &Roll<'_>, under_way: bool) -> Option<RolloutStatus> {
    let outdated = tiers.iter().flat_map(|tier| &tier.pods).any(|pod| !pod.updated);
    if !outdated && !under_way {
        return None;
    }
    let step = match roll {
        Roll::Done => return None,
        Roll::Wait { step, .. } => format!("waiting for {step}"),
        Roll::Replace { pod, reason } => format!("replacing {} ({})", pod.name, reason.as_str()),
        Roll::Switchover { group, to, .. } => format!("switching {group} over to {to}"),
    };
    Some(RolloutStatus {
        updated: tiers.iter().map(TierView::updated).sum(),
        total: tiers.iter().map(|tier| tier.replicas).sum(),
        step,
    })
}

fn verdicts(
    cluster: &RocketMQCluster,
    seen: &Seen<'_>,
    groups: &[GroupStatus],
    now: Timestamp,
) -> Vec<Verdict> {
    let Seen { world, tiers, registrations, roll, refused, troubles, scale, .. } = *seen;
    let spec = &cluster.spec;
    let name_servers_ready =
        tiers.iter().filter(|tier| tier.name_servers).map(TierView::ready).sum::<i32>();
    let name_servers = Verdict::new(
        "NameServersReady",
        name_servers_ready >= scale.name_servers_listed,
        if name_servers_ready >= scale.name_servers_listed {
            Reason::AsExpected
        } else {
            Reason::NameServersNotReady
        },
        format!(
            "{name_servers_ready} of {} name servers are ready{}",
            scale.name_servers_listed,
            causes(troubles, |pod| tiers
                .iter()
                .any(|tier| tier.name_servers && tier.pods.iter().any(|view| view.name == pod)))
        ),
    );

    let not_ready: Vec<String> = groups.iter().filter_map(not_ready).collect();
    let brokers = Verdict::new(
        "BrokersReady",
        not_ready.is_empty(),
        if not_ready.is_empty() { Reason::AsExpected } else { Reason::BrokersNotReady },
        if not_ready.is_empty() {
            format!("{} of {} groups are ready", groups.len(), groups.len())
        } else {
            let cause = causes(troubles, |pod| {
                groups.iter().any(|group| {
                    group.master.as_deref() == Some(pod)
                        || group.replicas.iter().any(|replica| replica.pod == pod)
                })
            });
            format!("not ready: {}{cause}", not_ready.join(", "))
        },
    );

    let unregistered: Vec<&str> =
        groups.iter().filter(|group| !group.writable).map(|group| group.name.as_str()).collect();
    let silent: Vec<String> = registrations
        .iter()
        .filter_map(|r| r.masters.as_ref().err().map(|error| format!("{}: {error}", r.name_server)))
        .collect();
    let available = Verdict::new(
        "Available",
        unregistered.is_empty(),
        if unregistered.is_empty() { Reason::AsExpected } else { Reason::MastersNotRegistered },
        if unregistered.is_empty() {
            "every group has a master that every ready name server knows".to_owned()
        } else if silent.is_empty() {
            format!("without a known master: {}", unregistered.join(", "))
        } else {
            format!("name servers do not answer: {}", silent.join("; "))
        },
    );

    let outdated: Vec<&str> = tiers
        .iter()
        .flat_map(|tier| &tier.pods)
        .filter(|pod| !pod.updated)
        .map(|pod| pod.name.as_str())
        .collect();
    let unobserved = tiers.iter().any(|tier| !tier.observed);
    let config = if let Some(text) = refused.text() {
        Verdict::new("ConfigApplied", false, Reason::InvalidSpec, text)
    } else {
        config_applied(unobserved, &outdated)
    };
    let pending = volumes::pending(world, &spec.brokers.storage.size);
    let missing = world.claims.is_empty();
    let storage = Verdict::new(
        "StorageReady",
        pending.is_empty() && !missing,
        match (missing, pending.is_empty()) {
            (true, _) => Reason::Creating,
            (false, true) => Reason::AsExpected,
            (false, false) => Reason::VolumesResizing,
        },
        if missing {
            "volumes are being created".to_owned()
        } else if pending.is_empty() {
            format!("every volume has {}", spec.brokers.storage.size)
        } else {
            format!("not yet {}: {}", spec.brokers.storage.size, pending.join(", "))
        },
    );

    let blocked = scale.groups > spec.brokers.groups;
    let scale_in = Verdict::new(
        "ScaleInBlocked",
        blocked,
        if blocked { Reason::ScaleInNotSupported } else { Reason::AsExpected },
        if blocked {
            format!(
                "brokers.groups: {} is less than the {} groups that exist: groups are not removed, since unconsumed messages would be stranded; set it to {}",
                spec.brokers.groups, scale.groups, scale.groups
            )
        } else {
            "no group is to be removed".to_owned()
        },
    );

    let stuck = match roll {
        // For copies to come in sync, unless for what has a time of its own.
        Roll::Wait { stuck, .. } => {
            *stuck || (!outdated.is_empty() && behind_for_long(cluster, now))
        }
        _ => false,
    };
    let step = match roll {
        Roll::Done => "every pod is there and current".to_owned(),
        Roll::Wait { step, .. } => format!("waiting for {step}"),
        Roll::Replace { pod, reason } => format!("replacing {} ({})", pod.name, reason.as_str()),
        Roll::Switchover { group, to, .. } => format!("switching {group} over to {to}"),
    };
    let in_state = |state: &str| groups.iter().any(|group| group.state == state);
    let progressing = !matches!(roll, Roll::Done);
    let (reason, fault) = match troubles.first() {
        // The cause, not that it takes long.
        Some(first) => {
            let all: Vec<String> = troubles.iter().map(Trouble::sentence).collect();
            (first.reason, all.join("; "))
        }
        None if stuck => (Reason::RolloutStuck, format!("{step} for more than 10 minutes")),
        None => (Reason::AsExpected, "no pod fails".to_owned()),
    };
    let degraded = Verdict::new("Degraded", reason != Reason::AsExpected, reason, fault);
    let progress = Verdict::new(
        "Progressing",
        progressing && !spec.paused,
        match (progressing, spec.paused, outdated.is_empty()) {
            (_, true, _) => Reason::Paused,
            (false, ..) => Reason::AsExpected,
            (true, ..) if in_state("FailingOver") => Reason::FailingOver,
            (true, ..) if in_state("SwitchingOver") => Reason::SwitchingOver,
            (true, _, true) => Reason::Creating,
            (true, _, false) => Reason::RollingOut,
        },
        step,
    );
    let paused = Verdict::new(
        "ReconciliationPaused",
        spec.paused,
        if spec.paused { Reason::Paused } else { Reason::AsExpected },
        if spec.paused {
            "spec.paused is true: nothing is changed, and no slave is promoted"
        } else {
            "spec.paused is false"
        },
    );

    let replication = replication_status::replication(cluster, seen, groups);
    let fenced = replication_status::fenced(cluster, seen);
    let warning = replication_status::warnings(cluster);

    let must_hold = [&name_servers, &brokers, &available, &replication, &config, &storage];
    // What people have to correct comes before what follows from it.
    let refused_first = Some(&config).filter(|config| config.reason == Reason::InvalidSpec);
    let failing = refused_first
        .or_else(|| must_hold.into_iter().find(|verdict| verdict.status != Status::True));
    let ready = match failing {
        Some(verdict) => Verdict::new("Ready", false, verdict.reason, verdict.message.clone()),
        None if blocked => {
            Verdict::new("Ready", false, Reason::ScaleInNotSupported, scale_in.message.clone())
        }
        None => Verdict::new("Ready", true, Reason::AsExpected, "the cluster is as specified"),
    };
    vec![
        ready,
        available,
        name_servers,
        brokers,
        replication,
        progress,
        config,
        storage,
        degraded,
        scale_in,
        warning,
        fenced,
        paused,
    ]
}

fn config_applied(unobserved: bool, outdated: &[&str]) -> Verdict {
    let (status, reason, message) = if unobserved {
        (Status::Unknown, Reason::NotEvaluated, "StatefulSets are being created".to_owned())
    } else if outdated.is_empty() {
        (
            Status::True,
            Reason::AsExpected,
            "every pod runs the configuration of the spec".to_owned(),
        )
    } else {
        let message = format!("to be replaced: {}", outdated.join(", "));
        (Status::False, Reason::ConfigOutdated, message)
    };
    Verdict::new("ConfigApplied", status, reason, message)
}

/// Whether copies have been missing for longer than a step of a roll-out should take.
fn behind_for_long(cluster: &RocketMQCluster, now: Timestamp) -> bool {
    let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice());
    find(conditions.unwrap_or_default(), "ReplicationHealthy").is_some_and(|condition| {
        let since = condition.last_transition_time.0;
        condition.status == "False" && now.duration_since(since) > STUCK_AFTER
    })
}

/// What is not ready of a group: itself, or its slaves.
fn not_ready(group: &GroupStatus) -> Option<String> {
    if group_status::is_away(group) {
        return Some(group.name.clone());
    }
    let pods: Vec<&str> = group
        .replicas
        .iter()
        .filter(|replica| !replica.ready)
        .map(|replica| replica.pod.as_str())
        .collect();
    (!pods.is_empty()).then(|| pods.join(", "))
}

/// The troubles of some pods, to be put behind a sentence.
fn causes(troubles: &[Trouble], of: impl Fn(&str) -> bool) -> String {
    troubles.iter().filter(|t| of(&t.pod)).map(|t| format!("; {}", t.sentence())).collect()
}

fn count<T>(items: impl Iterator<Item = T>) -> i32 {
    i32::try_from(items.count()).unwrap_or(i32::MAX)
}
