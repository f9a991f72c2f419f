//! What people and the roll-out ask for: fences and planned switchovers.

use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use rocketmq_replication::{GroupRecord, Millis, ReplicaId, Versioned};

use super::memory::Handover;
use super::{Group, request};
use crate::cluster::observe::is_ready;
use crate::crd::{RocketMQCluster, SWITCHOVER_ANNOTATION};
use crate::error::Error;
use crate::events::Happening;
use request::Target;

/// How long a master may take to hand over or to say that it does not, in milliseconds. It gives up
/// by itself after 5 s.
const HANDOVER_MS: u64 = 30_000;

impl Group<'_> {
    /// Does one thing that is asked for. Returns whether the record was written, or is to be read
    /// again first.
    pub(super) async fn serve_people(
        &self,
        lease: &Lease,
        versioned: &Versioned,
        now: Millis,
    ) -> Result<bool, Error> {
        let record = &versioned.record;
        let found = (lease, versioned);
        let wanted = request::fenced(self.cluster.annotations(), &self.broker, self.ids());
        if wanted != record.fenced {
            let next = GroupRecord { fenced: wanted.clone(), ..record.clone() };
            if self.replace(found, &next).await?
                && let Some(master) = record
                    .master
                    .filter(|master| wanted.contains(master) && !record.fenced.contains(master))
            {
                let note = format!(
                    "{}: the master {} serves no more; nobody is promoted unless a switchover is asked for",
                    self.broker,
                    self.pod_name(master)
                );
                self.event(Happening::MasterFenced, note).await;
            }
            return Ok(true);
        }
        if record.handover.is_some() {
            return self.give_up(found, now).await;
        }
        let asked = request::switchover(self.cluster.annotations(), &self.broker);
        if let Some((entry, target)) = asked {
            return self.switch_over_for_people(found, &entry, target, now).await;
        }
        let asked = self.memory.lock().asked.clone();
        if let Some(asked) = asked {
            if self.unfit(record, asked.to).is_some() || record.master == Some(asked.to) {
                self.memory.lock().asked = None;
                return Ok(false);
            }
            if record.holder.is_none() {
                return Ok(false);
            }
            return self.hand_over(found, asked.to, &asked.reason, now).await;
        }
        Ok(false)
    }

    /// Ends a switchover that the master neither makes nor declines.
    async fn give_up(&self, found: (&Lease, &Versioned), now: Millis) -> Result<bool, Error> {
        let since = self.memory.lock().handover.as_ref().map(|handover| handover.since);
        let record = &found.1.record;
        let lease_ms =
            u64::try_from(self.cluster.spec.failover.lease_duration_seconds).unwrap_or(0) * 1000;
        let patience = HANDOVER_MS.max(lease_ms * 2);
        if since.is_none_or(|since| now.0.saturating_sub(since.0) < patience) {
            return Ok(false);
        }
        self.replace(found, &GroupRecord { handover: None, ..record.clone() }).await?;
        Ok(true)
    }

    async fn switch_over_for_people(
        &self,
        found: (&Lease, &Versioned),
        entry: &str,
        target: Target,
        now: Millis,
    ) -> Result<bool, Error> {
        // What was answered is taken away, and the cache may not know yet.
        let cluster = self.objects.get::<RocketMQCluster>(&self.cluster.name_any()).await?;
        let asked =
            cluster.and_then(|cluster| request::switchover(cluster.annotations(), &self.broker));
        if asked.as_ref().map(|(entry, _)| entry.as_str()) != Some(entry) {
            return Ok(false);
        }
        let record = &found.1.record;
        let to = match target {
            Target::Replica(to) => Some(to),
            Target::Any => self.best_target(record),
        };
        let Some(to) = to else {
            return self.decline(entry, "no slave has every message and is ready").await;
        };
        if record.master == Some(to) && record.holder.is_some() {
            let why = format!("{} is the master already", self.pod_name(to));
            return self.decline(entry, &why).await;
        }
        if let Some(why) = self.unfit(record, to) {
            return self.decline(entry, &format!("{} {why}", self.pod_name(to))).await;
        }
        let is_fenced = record.master.is_some_and(|master| record.fenced.contains(&master));
        if record.holder.is_none() && !is_fenced {
            // Somebody is being appointed; when that is done there is a master that can hand over.
            let blocked = self.memory.lock().blocked.clone();
            return match blocked {
                Some(why) => self.decline(entry, &format!("no master can hand over: {why}")).await,
                None => Ok(false),
            };
        }
        // From here on it is a request for this pod: done once, whoever goes on with it.
        self.take_away(SWITCHOVER_ANNOTATION, entry, Some(&self.pod_name(to))).await;
        self.hand_over(found, to, "asked for by annotation", now).await
    }

    /// Answers a request for a switchover that will not be.
    async fn decline(&self, entry: &str, why: &str) -> Result<bool, Error> {
        let note = format!("{}: {why}", self.broker);
        self.event(Happening::SwitchoverAborted, note).await;
        self.take_away(SWITCHOVER_ANNOTATION, entry, None).await;
        Ok(false)
    }

    /// The ready member of the in-sync set, other than the master, with the lowest id.
    fn best_target(&self, record: &GroupRecord) -> Option<ReplicaId> {
        record
            .in_sync
            .iter()
            .copied()
            .find(|id| Some(*id) != record.master && self.unfit(record, *id).is_none())
    }

    /// Why a replica cannot become master.
    fn unfit(&self, record: &GroupRecord, id: ReplicaId) -> Option<&'static str> {
        if record.fenced.contains(&id) {
            Some("is fenced")
        } else if !record.in_sync.contains(&id) {
            Some("is not in sync")
        } else if !self.pods.get(&id).is_some_and(|pod| is_ready(pod)) {
            Some("is not ready")
        } else {
            None
        }
    }

    /// Asks for it in the record: the master hands over. Where a fenced one has given its lease back,
    /// nobody has to, and the request lets the next one be appointed.
    async fn hand_over(
        &self,
        found: (&Lease, &Versioned),
        to: ReplicaId,
        why: &str,
        now: Millis,
    ) -> Result<bool, Error> {
        let record = &found.1.record;
        let next = GroupRecord { handover: Some(to), ..record.clone() };
        if self.replace(found, &next).await? {
            self.memory.lock().handover = Some(Handover { to, epoch: record.epoch, since: now });
            let from = record.master.map(|from| self.pod_name(from)).unwrap_or_default();
            let note = format!("{}: from {from} to {}, {why}", self.broker, self.pod_name(to));
            self.event(Happening::SwitchoverStarted, note).await;
        }
        Ok(true)
    }

    /// A switchover to `to` has ended, one way or the other.
    pub(super) async fn answer(&self, to: ReplicaId) {
        self.take_away(SWITCHOVER_ANNOTATION, &self.pod_name(to), None).await;
    }

    /// Takes an entry out of an annotation of the cluster. A failure leaves a request that is answered
    /// already; the next pass answers it again.
    pub(super) async fn take_away(&self, annotation: &str, entry: &str, instead: Option<&str>) {
        // The cache may not have the newest entries, but knows whether there are any.
        if instead == Some(entry) || !self.cluster.annotations().contains_key(annotation) {
            return;
        }
        let name = self.cluster.name_any();
        let done = async {
            let Some(cluster) = self.objects.get::<RocketMQCluster>(&name).await? else {
                return Ok(());
            };
            match request::answered(&cluster, annotation, entry, instead) {
                Some(patch) => self.objects.merge::<RocketMQCluster>(&name, &patch).await,
                None => Ok(()),
            }
        };
        if let Err(error) = done.await {
            tracing::warn!(group = self.broker, annotation, entry, %error, "annotation not taken away");
        }
    }
}
