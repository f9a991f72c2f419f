//! The status of one broker group from what was read: pure.

use kube::ResourceExt;
use rocketmq_replication::ReplicaId;

use super::members::Members;
use super::rollout::{PodView, TierView};
use super::status::{Seen, knows_master};
use crate::build::{image, names};
use crate::context::namespace_of;
use crate::crd::RocketMQCluster;
use crate::crd::cluster::{GroupStatus, ReplicaStatus};

/// States of a group that takes nothing in.
const AWAY: [&str; 5] = ["Pending", "NotReady", "NoMaster", "FailingOver", "Fenced"];

/// Whether a group with this status serves, or would if name servers knew it.
pub fn is_away(group: &GroupStatus) -> bool {
    AWAY.contains(&group.state.as_str())
}

/// The status of the group with this number.
pub fn of(cluster: &RocketMQCluster, seen: &Seen<'_>, number: i32) -> GroupStatus {
    let name = cluster.name_any();
    let broker = names::broker(&name, number);
    let tier = seen.tiers.iter().find(|tier| tier.name == broker);
    let master = tier.and_then(TierView::master);
    let registered = knows_master(cluster, seen.registrations, number);
    let members = tier.and_then(|tier| tier.members.as_ref());
    let replicas = match (tier, members) {
        (Some(tier), Some(members)) => replicas(tier, members, seen),
        _ => Vec::new(),
    };
    let updated = match tier {
        Some(tier) => !tier.pods.is_empty() && tier.pods.iter().all(|pod| pod.updated),
        None => false,
    };
    let there = tier.is_some_and(|tier| !tier.pods.is_empty());
    let complete = replicas.iter().all(|replica| replica.ready && replica.in_sync);
    let blocked = seen.promotions.blocked.contains_key(&broker);
    let state = match (master, members) {
        _ if !there => "Pending",
        (_, Some(members)) if is_fenced(members) => "Fenced",
        (None, Some(_)) if blocked => "NoMaster",
        // The first master of a group that is being made.
        (None, Some(members)) if members.epoch.0 > 1 => "FailingOver",
        (None, _) => "NotReady",
        (_, Some(members)) if members.handover.is_some() => "SwitchingOver",
        (Some(pod), _) if !pod.ready => "NotReady",
        _ if !registered => "Unregistered",
        _ if !complete => "Degraded",
        _ if !updated => "Updating",
        _ => "Ready",
    };
    GroupStatus {
        name: broker,
        state: state.to_owned(),
        master: master.map(|pod| pod.name.clone()),
        address: Some(names::broker_address(&name, &namespace_of(cluster), number)),
        writable: registered && master.is_some_and(|pod| pod.ready) && state != "Fenced",
        updated,
        master_epoch: members.filter(|m| m.epoch.0 > 0).map(|members| members.epoch.0),
        target_master: members.and_then(target),
        replicas,
    }
}

fn is_fenced(members: &Members) -> bool {
    members.master.as_ref().is_some_and(|master| members.fenced.contains(master))
}

/// Who is to become master.
fn target(members: &Members) -> Option<String> {
    members.handover.clone().or_else(|| members.master.clone().filter(|_| !members.is_held))
}

fn replicas(tier: &TierView<'_>, members: &Members, seen: &Seen<'_>) -> Vec<ReplicaStatus> {
    (1..=i64::from(tier.replicas))
        .map(|id| {
            let name = names::replica_pod(&tier.name, ReplicaId(id));
            let pod = tier.pods.iter().find(|pod| pod.name == name);
            let is_master = members.is_held && members.master.as_ref() == Some(&name);
            let role = match pod {
                None => "Absent",
                Some(_) if is_master => "Master",
                Some(_) => "Slave",
            };
            ReplicaStatus {
                role: role.to_owned(),
                epoch: seen
                    .reports
                    .get(&name)
                    .map(|report| report.last_epoch.0)
                    .filter(|epoch| *epoch > 0),
                in_sync: members.in_sync.contains(&name),
                ready: pod.is_some_and(|pod| pod.ready),
                version: pod.and_then(version),
                pod: name,
            }
        })
        .collect()
}

fn version(pod: &PodView<'_>) -> Option<String> {
    let spec = pod.pod.spec.as_ref()?;
    let container =
        spec.containers.iter().find(|container| container.name == names::BROKER_CONTAINER)?;
    Some(image::version(container.image.as_deref()?).to_owned())
}
