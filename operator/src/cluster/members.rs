//! What the record of a group says, by the names of its pods; and how many pods it is to have: pure.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use rocketmq_replication::{Epoch, GroupRecord, ReplicaId};

use super::observe::{World, is_ready};
use crate::build::{Appointed, names};
use crate::crd::RocketMQCluster;
use crate::failover::lease;

/// The members of a group whose master is appointed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Epoch of the record.
    pub epoch: Epoch,
    /// Pod of the master of that epoch.
    pub master: Option<String>,
    /// Whether it has taken over.
    pub is_held: bool,
    /// Pod that it is asked to hand over to.
    pub handover: Option<String>,
    /// Pods that have every acknowledged message.
    pub in_sync: BTreeSet<String>,
    /// Pods that are fenced.
    pub fenced: BTreeSet<String>,
    /// Pods that the group is meant to keep.
    pub wanted: BTreeSet<String>,
    /// Copies below which it takes nothing in.
    pub min_in_sync: usize,
    /// Whether the roll-out may ask for a switchover now.
    pub may_ask: bool,
}

impl Members {
    /// The members of the group with this number; `None` if its master is not appointed.
    pub fn of(
        cluster: &RocketMQCluster,
        world: &World,
        number: i32,
        may_ask: bool,
    ) -> Option<Self> {
        let name = cluster.name_any();
        let broker = names::broker(&name, number);
        let appointed = appointed(cluster, world, number)?;
        // Of a group without a record nothing is known.
        let record = record(world, &broker).unwrap_or_default();
        let pod = |id: ReplicaId| names::replica_pod(&broker, id);
        let brokers = &cluster.spec.brokers;
        let wanted = brokers.pods_per_group();
        Some(Self {
            epoch: record.epoch,
            master: record.master.map(pod),
            is_held: record.holder.is_some(),
            handover: record.handover.map(pod),
            in_sync: record.in_sync.iter().copied().map(pod).collect(),
            fenced: record.fenced.iter().copied().map(pod).collect(),
            wanted: (1..=i64::from(wanted.min(appointed.pods)))
                .map(|id| pod(ReplicaId(id)))
                .collect(),
            min_in_sync: usize::try_from(brokers.replication.min_in_sync_replicas).unwrap_or(1),
            may_ask,
        })
    }

    /// Whether the group would go on without this pod: there are other copies enough. Where as many
    /// are required as there are, none can be spared, and one at a time is taken all the same.
    pub fn can_spare(&self, pod: &str) -> bool {
        let left = self.in_sync.iter().filter(|member| *member != pod).count();
        left >= self.min_in_sync.min(self.wanted.len().saturating_sub(1)).max(1)
    }
}

/// The record of a group, where there is one that can be read.
pub fn record(world: &World, broker: &str) -> Option<GroupRecord> {
    Some(lease::read(world.leases.get(broker)?).ok()?.record)
}

/// The groups whose masters are appointed.
pub fn all_appointed(
    cluster: &RocketMQCluster,
    world: &World,
    groups: i32,
) -> BTreeMap<i32, Appointed> {
    (0..groups).filter_map(|number| Some((number, appointed(cluster, world, number)?))).collect()
}

/// How a group whose master is appointed is to be built: it has slaves, or had some once, which its
/// Lease tells.
fn appointed(cluster: &RocketMQCluster, world: &World, number: i32) -> Option<Appointed> {
    let broker = names::broker(&cluster.name_any(), number);
    let wanted = cluster.spec.brokers.pods_per_group();
    if wanted == 1 && !world.leases.contains_key(&broker) {
        return None;
    }
    let set = world.stateful_sets.get(&broker);
    let existing = set.and_then(|set| set.spec.replicas).unwrap_or(0);
    let pods = if existing > wanted { fewer(cluster, world, &broker, existing) } else { wanted };
    let selects_role = world.services.get(&broker).is_none_or(|service| {
        let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        selector.is_some_and(|selector| selector.contains_key(names::ROLE_LABEL))
    });
    let by_role = selects_role
        || world.pods.values().any(|pod| {
            pod.labels().get(names::GROUP_LABEL) == Some(&broker)
                && pod.labels().get(names::ROLE_LABEL).is_some_and(|r| r == names::MASTER_ROLE)
        });
    Some(Appointed { pods, by_role })
}

/// The number of pods while there are more than wanted: one less when the last one can go. The master
/// cannot, nor one whose copy is needed, nor any while another is away.
fn fewer(cluster: &RocketMQCluster, world: &World, broker: &str, existing: i32) -> i32 {
    let Some(record) = record(world, broker) else { return existing };
    let last = ReplicaId(existing.into());
    let all_there = (1..=i64::from(existing)).all(|id| {
        let pod = world.pods.get(&names::replica_pod(broker, ReplicaId(id)));
        // The one that is to go may be anything.
        ReplicaId(id) == last || pod.is_some_and(is_ready)
    });
    let left = record.in_sync.iter().filter(|id| **id != last).count();
    let brokers = &cluster.spec.brokers;
    let needed = brokers.replication.min_in_sync_replicas.min(brokers.pods_per_group()).max(1);
    let enough = left >= usize::try_from(needed).unwrap_or(1);
    let is_master = record.master == Some(last) || record.handover == Some(last);
    if record.holder.is_some() && all_there && enough && !is_master {
        existing - 1
    } else {
        existing
    }
}
