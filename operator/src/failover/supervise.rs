//! Appointing a master: what is seen of the replicas goes to the supervisor, and what it decides is
//! done.

use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::runtime::controller::Action;
use rocketmq_replication::{
    Decision, Epoch, GroupRecord, Millis, Policy, Reason, ReplicaId, Report, Seen, Versioned,
};

use super::lease::{self, Created};
use super::memory::Loss;
use super::{Group, SOON, request, sight};
use crate::cluster::observe::is_ready;
use crate::conditions::whole_seconds;
use crate::crd::ALLOW_UNCLEAN_ANNOTATION;
use crate::crd::cluster::{FailoverPolicy, FailoverStatus};
use crate::error::Error;
use crate::events::Happening;

/// How long each member of the in-sync set is waited for, in milliseconds: it may have more than the
/// others where their disks lost something. A container that is started again is back by then.
const PATIENCE_FOR_MESSAGES_MS: u64 = 2_000;
/// The same where serving comes first.
const PATIENCE_FOR_SERVING_MS: u64 = 500;

impl Group<'_> {
    /// Looks whether there is a master, and appoints one if not.
    pub(super) async fn supervise(
        &self,
        found: Option<(&Lease, &Versioned)>,
    ) -> Result<Action, Error> {
        let record = found.map(|(_, versioned)| versioned);
        let policy = self.policy();
        let lease_ms = policy.lease_ms;
        let ended = found.is_some_and(|(lease, versioned)| self.holder_ended(lease, versioned));
        let now = self.ctx.monotonic();
        let mut decision = {
            let seen = self.seen(record, ended, &[]);
            self.memory.lock().supervisor(policy.clone()).decide(now, record, &seen)
        };
        let doubtful = record.is_some_and(|versioned| self.is_doubtful(&versioned.record));
        if decision != Decision::Keep || doubtful {
            let reports = self.reports().await;
            let seen = self.seen(record, ended, &reports);
            let now = self.ctx.monotonic();
            decision = self.memory.lock().supervisor(policy).decide(now, record, &seen);
        }
        let now = self.ctx.monotonic();
        tracing::debug!(group = self.broker, ?decision, "decided");
        match decision {
            Decision::Keep => {
                let mut memory = self.memory.lock();
                memory.loss = None;
                memory.blocked = None;
                // Each renewal is an event; without one the lease runs out then.
                let left = lease_ms.saturating_sub(now.0.saturating_sub(memory.renewed.0));
                let left = if doubtful { SOON } else { Duration::from_millis(left).max(SOON) };
                Ok(Action::requeue(left))
            }
            Decision::Wait { reason, until } => {
                self.note_loss(now, reason);
                let left = until.map_or(SOON, |until| {
                    Duration::from_millis(until.0.saturating_sub(now.0)).min(SOON)
                });
                Ok(Action::requeue(left.max(Duration::from_millis(10))))
            }
            Decision::Blocked(reason) => {
                self.note_loss(now, reason);
                if is_loss(reason) {
                    self.blocked(label(reason), self.explained(reason)).await;
                }
                Ok(Action::requeue(SOON))
            }
            Decision::Write { record, reason } => self.appoint(found, record, reason, now).await,
        }
    }

    fn policy(&self) -> Policy {
        let spec = &self.cluster.spec.failover;
        let status = self.cluster.status.as_ref();
        let known = status.and_then(|status| {
            status.groups.iter().find(|group| group.name == self.broker)?.master_epoch
        });
        Policy {
            replicas: usize::try_from(self.size).unwrap_or(1),
            lease_ms: u64::try_from(spec.lease_duration_seconds).unwrap_or(15) * 1000,
            patience_ms: match spec.policy {
                FailoverPolicy::Durability => PATIENCE_FOR_MESSAGES_MS,
                FailoverPolicy::Availability => PATIENCE_FOR_SERVING_MS,
            },
            allow_unclean: spec.allow_unclean
                || request::unclean(self.cluster.annotations(), &self.broker),
            known_epoch: Epoch(known.unwrap_or(0)),
        }
    }

    /// Whether the holder may have ended although its lease has not: its pod is another one, or not
    /// ready. Then a younger process on its volume may tell.
    fn is_doubtful(&self, record: &GroupRecord) -> bool {
        let (Some(holder), Some(master)) = (&record.holder, record.master) else { return false };
        let uid = holder.incarnation.split(':').next();
        !self
            .pods
            .get(&master)
            .is_some_and(|pod| is_ready(pod) && pod.metadata.uid.as_deref() == uid)
    }

    /// Whether the process that holds the lease is proven to have ended, by its pod now or before.
    fn holder_ended(&self, lease: &Lease, versioned: &Versioned) -> bool {
        let record = &versioned.record;
        let (Some(holder), Some(master)) = (&record.holder, record.master) else { return false };
        let mut memory = self.memory.lock();
        if self.pods.get(&master).is_some_and(|pod| sight::has_ended(holder, lease, pod)) {
            memory.ended = Some(holder.incarnation.clone());
        }
        memory.ended.as_ref() == Some(&holder.incarnation)
    }

    fn seen(
        &self,
        record: Option<&Versioned>,
        ended: bool,
        reports: &[(ReplicaId, Report)],
    ) -> Vec<Seen> {
        let record = record.map(|versioned| &versioned.record);
        let master = record.and_then(|record| record.master);
        let holder = record.and_then(|record| record.holder.as_ref());
        self.ids()
            .map(|id| {
                let report = reports.iter().find(|(who, _)| *who == id).map(|(_, said)| said);
                // Two processes never have one store open: the one that answers has taken it over.
                let replaced = holder.zip(report).is_some_and(|(holder, report)| {
                    !report.incarnation.is_empty() && report.incarnation != holder.incarnation
                });
                Seen {
                    id,
                    report: report.cloned(),
                    has_ended: Some(id) == master && (ended || replaced),
                    is_ready: self.pods.get(&id).is_some_and(|pod| is_ready(pod)),
                }
            })
            .collect()
    }

    /// Asks every broker that has an address, all at once.
    async fn reports(&self) -> Vec<(ReplicaId, Report)> {
        let asked = self.pods.iter().filter_map(|(id, pod)| {
            let address = sight::address(pod)?;
            Some(async move {
                match self.ctx.admin.replica(&address).await {
                    Ok(report) => Some((*id, report)),
                    Err(error) => {
                        tracing::debug!(group = self.broker, replica = %id, %error, "no report");
                        None
                    }
                }
            })
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    fn note_loss(&self, now: Millis, reason: Reason) {
        if is_loss(reason) {
            self.memory.lock().lost(now);
        }
    }

    /// Makes a decision hold, unless it is to wait or is not wanted.
    async fn appoint(
        &self,
        found: Option<(&Lease, &Versioned)>,
        record: GroupRecord,
        reason: Reason,
        now: Millis,
    ) -> Result<Action, Error> {
        let before = found.map(|(_, versioned)| &versioned.record);
        let Some(to) = record.master else {
            return Err(Error::NotYet(format!("{}: nobody is appointed", self.broker)));
        };
        // Neither `enabled` nor `delaySeconds` is about a change that was asked for.
        let unasked =
            before.is_some_and(|before| before.master != Some(to) && before.handover.is_none());
        let since = match reason {
            Reason::Created => now,
            _ => self.memory.lock().lost(now).since,
        };
        let failover = &self.cluster.spec.failover;
        if unasked && !failover.enabled {
            let master = before.and_then(|before| before.master);
            let text = format!(
                "{reason}; failover.enabled is false: nobody is promoted in place of {}",
                master.map_or_else(|| "the master".to_owned(), |master| self.pod_name(master))
            );
            self.blocked("Disabled", text).await;
            return Ok(Action::requeue(SOON));
        }
        let delay_ms = u64::try_from(failover.delay_seconds).unwrap_or(0) * 1000;
        if unasked && now.0.saturating_sub(since.0) < delay_ms {
            return Ok(Action::requeue(SOON));
        }
        let written = match found {
            Some(found) => self.replace(found, &record).await?,
            None => {
                let (objects, cluster) = (&self.objects, &self.cluster);
                match lease::create(objects, cluster, self.number, &record).await? {
                    Created::Made(_) => true,
                    // The watch has not brought it.
                    Created::Known => return Ok(Action::requeue(SOON)),
                    Created::Foreign => {
                        let text = lease::foreign(&cluster.name_any(), &self.broker);
                        self.blocked("ForeignLease", text).await;
                        return Ok(Action::requeue(lease::FOREIGN_RETRY));
                    }
                }
            }
        };
        if !written {
            return Ok(Action::requeue(Duration::from_millis(10)));
        }
        self.memory.lock().blocked = None;
        if reason != Reason::Created {
            self.memory.lock().lost(now).appointed = Some((now, reason));
            let note = format!(
                "{}: {reason}; {} is appointed, epoch {}",
                self.broker,
                self.pod_name(to),
                record.epoch
            );
            self.event(Happening::FailoverStarted, note).await;
        }
        if reason == Reason::Unclean {
            let note = format!("{}: {} is appointed; {reason}", self.broker, self.pod_name(to));
            self.event(Happening::UncleanElection, note).await;
            self.take_away(ALLOW_UNCLEAN_ANNOTATION, &self.broker, None).await;
        }
        // The watch brings what was written.
        Ok(Action::requeue(SOON))
    }

    /// A loss is made good.
    pub(super) async fn failed_over(
        &self,
        now: Millis,
        to: ReplicaId,
        epoch: i32,
        from: Option<String>,
        loss: &Loss,
    ) {
        let pod = self.pod_name(to);
        let (appointed, reason) = match &loss.appointed {
            Some((at, reason)) => (Some(*at), label(*reason)),
            // By another process of the operator, or the master itself came back in time.
            None => (None, "Unknown"),
        };
        let took_ms = now.0.saturating_sub(loss.since.0);
        self.ctx.metrics.failed_over(reason, "completed");
        let elected = appointed.unwrap_or(loss.since);
        let seconds = |from: Millis, to: Millis| to.0.saturating_sub(from.0) as f64 / 1000.0;
        self.ctx.metrics.failover_phase("elect", seconds(loss.since, elected));
        self.ctx.metrics.failover_phase("take_over", seconds(elected, now));
        self.memory.lock().last_failover = Some(FailoverStatus {
            time: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(whole_seconds(
                self.ctx.now(),
            ))),
            group: self.broker.clone(),
            from: from.clone(),
            to: pod.clone(),
            epoch,
            reason: reason.to_owned(),
            duration_ms: i64::try_from(took_ms).unwrap_or(i64::MAX),
        });
        let note = format!(
            "{}, epoch {epoch}, {:.1} s after the loss was noticed",
            self.is_master(&pod, from.as_deref()),
            seconds(loss.since, now)
        );
        self.event(Happening::FailoverCompleted, note).await;
    }

    /// A reason with the pods by their names.
    fn explained(&self, reason: Reason) -> String {
        match reason {
            Reason::MemberSilent(id) | Reason::ReplicaSilent(id) => {
                format!("{reason} ({})", self.pod_name(id))
            }
            _ => reason.to_string(),
        }
    }
}

/// Whether a master is lost where nobody is appointed for this reason, and people should hear of it. A
/// group that is new has lost nobody, nor has one whose master handed over; `Progressing` shows both.
fn is_loss(reason: Reason) -> bool {
    !matches!(reason, Reason::Created | Reason::TakingOver)
}

/// A reason as the status and metrics name it.
fn label(reason: Reason) -> &'static str {
    match reason {
        Reason::Created => "Created",
        Reason::RecordLost => "RecordLost",
        Reason::Released => "Released",
        Reason::Ended => "MasterEnded",
        Reason::Expired => "LeaseExpired",
        Reason::NotTaken => "NotTaken",
        Reason::Unclean => "Unclean",
        Reason::MemberSilent(_) => "MemberSilent",
        Reason::ReplicaSilent(_) => "ReplicaSilent",
        Reason::TakingOver => "TakingOver",
        Reason::NoSafeCandidate => "NoSafeCandidate",
        Reason::MasterFenced => "MasterFenced",
    }
}
