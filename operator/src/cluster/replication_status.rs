//! What is to be said of copies and masters: pure.

use kube::ResourceExt;

use super::status::Seen;
use crate::conditions::{Reason, Verdict};
use crate::crd::cluster::GroupStatus;
use crate::crd::{FENCE_ANNOTATION, RocketMQCluster};
use crate::failover::lease;
use crate::failover::request::{self, Named};

/// What comes before the names in an annotation that cannot be fenced.
const NOT_FENCED: &str = "cannot be fenced: ";

/// Whether every group has the copies it should have, and somebody to be master.
pub fn replication(cluster: &RocketMQCluster, seen: &Seen<'_>, groups: &[GroupStatus]) -> Verdict {
    let brokers = &cluster.spec.brokers;
    let min = brokers.replication.min_in_sync_replicas;
    let wanted = brokers.in_sync_replicas();
    let with_record = || groups.iter().filter(|group| group.master_epoch.is_some());
    let listed = |what: &dyn Fn(&GroupStatus) -> bool| -> Vec<String> {
        with_record().filter(|group| what(group)).map(short_of).collect()
    };
    let too_few = listed(&|group| in_sync(group) < min);
    let fewer = listed(&|group| in_sync(group) < wanted);
    let blocked: Vec<String> =
        seen.promotions.blocked.iter().map(|(group, why)| format!("{group}: {why}")).collect();
    let name = cluster.name_any();
    let foreign: Vec<String> =
        seen.world.foreign_leases.iter().map(|broker| lease::foreign(&name, broker)).collect();
    let (reason, message) = if !foreign.is_empty() {
        (Reason::ForeignLease, foreign.join("; "))
    } else if !blocked.is_empty() {
        (Reason::FailoverBlocked, format!("no master: {}", blocked.join("; ")))
    } else if !too_few.is_empty() {
        (
            Reason::TooFewInSync,
            format!(
                "fewer than the {min} copies without which nothing is taken in: {}",
                too_few.join(", ")
            ),
        )
    } else if !fewer.is_empty() {
        (
            Reason::ReplicasNotInSync,
            format!("fewer than {wanted} copies in sync: {}", fewer.join(", ")),
        )
    } else if brokers.replicas_per_group > 0 && with_record().count() < groups.len() {
        (Reason::Creating, "groups are being given their slaves".to_owned())
    } else if with_record().count() == 0 {
        (Reason::AsExpected, "no group is meant to have slaves".to_owned())
    } else {
        (Reason::AsExpected, format!("every group has {wanted} copies in sync"))
    };
    Verdict::new("ReplicationHealthy", reason == Reason::AsExpected, reason, message)
}

/// Whether an administrator's fence is in force.
pub fn fenced(cluster: &RocketMQCluster, seen: &Seen<'_>) -> Verdict {
    let pods: Vec<&str> = seen
        .tiers
        .iter()
        .filter_map(|tier| tier.members.as_ref())
        .flat_map(|members| &members.fenced)
        .map(String::as_str)
        .collect();
    let strangers: Vec<String> =
        request::strangers(cluster, seen.scale, FENCE_ANNOTATION, Named::Pods)
            .into_iter()
            .map(|(entry, why)| format!("{entry} ({why})"))
            .collect();
    let is_fenced = !pods.is_empty();
    let mut message = if is_fenced {
        format!("neither serve nor become master: {}", pods.join(", "))
    } else {
        "no broker is fenced".to_owned()
    };
    if !strangers.is_empty() {
        message += &format!("; {NOT_FENCED}{}", strangers.join(", "));
    }
    let reason = match (is_fenced, strangers.is_empty()) {
        (true, _) => Reason::FencedByAdministrator,
        (false, true) => Reason::AsExpected,
        (false, false) => Reason::FenceRefused,
    };
    Verdict::new("Fenced", is_fenced, reason, message)
}

/// What the message of the condition `Fenced` says of names that cannot be.
pub fn not_fenced(message: &str) -> Option<&str> {
    message.find(NOT_FENCED).map(|at| &message[at..])
}

/// What is allowed and may surprise.
pub fn warnings(cluster: &RocketMQCluster) -> Verdict {
    let brokers = &cluster.spec.brokers;
    let auto: Vec<&str> = ["autoCreateTopicEnable", "autoCreateSubscriptionGroup"]
        .into_iter()
        .filter(|key| {
            brokers.config.get(*key).is_some_and(|value| value.eq_ignore_ascii_case("true"))
        })
        .collect();
    let mut found = Vec::new();
    if !auto.is_empty() {
        found.push((
            Reason::AutoCreateEnabled,
            format!(
                "{} is true: clients that are still running bring back topics and consumer groups whose resource was deleted",
                auto.join(" and ")
            ),
        ));
    }
    if brokers.replicas_per_group == 0 {
        found.push((
            Reason::SingleReplica,
            "brokers.replicasPerGroup is 0: each message is on one volume alone, and a group is away while its broker is".to_owned(),
        ));
    } else if brokers.replication.min_in_sync_replicas >= brokers.pods_per_group() {
        found.push((
            Reason::NoSpareReplica,
            format!(
                "brokers.replication.minInSyncReplicas is {} of {}: a group takes nothing in while any of its brokers is away, also in a roll-out",
                brokers.replication.min_in_sync_replicas,
                brokers.pods_per_group()
            ),
        ));
    }
    match found.first() {
        None => Verdict::new(
            "Warning",
            false,
            Reason::AsExpected,
            "topics and consumer groups come from resources alone, and groups have slaves",
        ),
        Some((reason, _)) => {
            let texts: Vec<&str> = found.iter().map(|(_, text)| text.as_str()).collect();
            Verdict::new("Warning", true, *reason, texts.join("; "))
        }
    }
}

fn in_sync(group: &GroupStatus) -> i32 {
    let count = group.replicas.iter().filter(|replica| replica.in_sync).count();
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// A group with those of its brokers that lack messages.
fn short_of(group: &GroupStatus) -> String {
    let behind: Vec<&str> = group
        .replicas
        .iter()
        .filter(|replica| !replica.in_sync)
        .map(|replica| replica.pod.as_str())
        .collect();
    format!("{} (without {})", group.name, behind.join(", "))
}
