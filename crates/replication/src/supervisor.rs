//! Who becomes master: what the operator decides about a group.
//!
//! A supervisor knows what the record says and what it sees of the replicas. It remembers only when it
//! saw something first, by its own clock; losing that memory, or having two of them at work, costs
//! time and nothing else, because every decision is a compare-and-swap on the record it was made from.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;

use crate::{Epoch, GroupRecord, Millis, ReplicaId, Versioned};

/// What a group is meant to be.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Replicas that the group is meant to have; their ids are 1 to this.
    pub replicas: usize,
    /// How long a lease counts after it was seen renewed, in milliseconds. The same for the replicas.
    pub lease_ms: u64,
    /// How long it waits for every member of the in-sync set to report before it takes the best of
    /// those who did, and for an appointed replica that does not report to take over, in
    /// milliseconds. An appointed one that reports has `lease_ms` for it.
    pub patience_ms: u64,
    /// Whether a replica that may lack acknowledged messages is appointed when there is no other.
    pub allow_unclean: bool,
    /// The highest epoch known from elsewhere, in case the record was lost.
    pub known_epoch: Epoch,
}

/// What is seen of a replica.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Which one.
    pub id: ReplicaId,
    /// What it says of itself, if it can be reached.
    pub report: Option<Report>,
    /// If the record names a holder that is a process of this replica: that process is proven to have
    /// ended. A node that does not answer is no proof.
    pub has_ended: bool,
    /// Whether it is fit to serve. Of two that have the same log, the ready one is appointed.
    pub is_ready: bool,
}

/// What a replica says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Which start of the process it is.
    pub incarnation: String,
    /// The newest epoch in its epoch file; 0 if there is none.
    pub last_epoch: Epoch,
    /// Where its log ends.
    pub log_end: i64,
}

/// What is to be done about a group now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing.
    Keep,
    /// Replace the record that was looked at, or make the first one. A conflict is no error: look
    /// again.
    Write {
        /// What it shall be.
        record: GroupRecord,
        /// Why.
        reason: Reason,
    },
    /// Nothing yet.
    Wait {
        /// Why.
        reason: Reason,
        /// When to look again at the latest.
        until: Option<Millis>,
    },
    /// There is nothing that it may do: somebody has to help, or something has to come back.
    Blocked(Reason),
}

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The group had no record and no messages.
    Created,
    /// The group had messages and no record; all its replicas were asked.
    RecordLost,
    /// The master gave its lease back.
    Released,
    /// The master's process has ended.
    Ended,
    /// The lease was not renewed for its whole duration.
    Expired,
    /// The one that was appointed did not take over.
    NotTaken,
    /// Nobody who has every acknowledged message is left: messages may be lost.
    Unclean,
    /// A member of the in-sync set does not report.
    MemberSilent(ReplicaId),
    /// A replica does not report, and without a record it may be the one that has most.
    ReplicaSilent(ReplicaId),
    /// The one that was appointed is taking over.
    TakingOver,
    /// No member of the in-sync set that may serve has what it should have.
    NoSafeCandidate,
    /// The master is fenced by an administrator.
    MasterFenced,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Reason::Created => "the group is new",
            Reason::RecordLost => "the group has messages and no record",
            Reason::Released => "the master gave its lease back",
            Reason::Ended => "the master's process has ended",
            Reason::Expired => "the master did not renew its lease",
            Reason::NotTaken => "the replica that was appointed did not take over",
            Reason::Unclean => {
                "no replica is left that has every acknowledged message; messages may be lost"
            }
            Reason::MemberSilent(id) => {
                return write!(f, "replica {id} of the in-sync set does not report");
            }
            Reason::ReplicaSilent(id) => {
                return write!(f, "there is no record, and replica {id} does not report");
            }
            Reason::TakingOver => "the replica that was appointed is taking over",
            Reason::NoSafeCandidate => {
                "no replica that may serve is known to have every acknowledged message"
            }
            Reason::MasterFenced => "the master is fenced by an administrator",
        };
        f.write_str(text)
    }
}

/// The decisions about one group.
#[derive(Debug)]
pub struct Supervisor {
    policy: Policy,
    /// What makes an observation of the lease, and when it was first made.
    observed: Option<(Observation, Millis)>,
    /// Since when somebody is looked for.
    vacant_since: Option<Millis>,
}

/// What changes with each sign of life.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Observation {
    epoch: Epoch,
    master: Option<ReplicaId>,
    holder: Option<crate::Holder>,
}

impl Supervisor {
    /// A supervisor that has seen nothing yet.
    pub fn new(policy: Policy) -> Supervisor {
        Supervisor { policy, observed: None, vacant_since: None }
    }

    /// Changes what the group is meant to be. What was seen stays.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// Decides, given the record as read and what was seen of the replicas after that. The record is
    /// to be replaced only on the condition that it has not changed since.
    pub fn decide(&mut self, now: Millis, record: Option<&Versioned>, seen: &[Seen]) -> Decision {
        let Some(Versioned { record, .. }) = record else {
            self.observed = None;
            return self.create(now, &GroupRecord::default(), seen);
        };
        if record.master.is_none() {
            return self.create(now, record, seen);
        }
        let since = self.observe(now, record);
        let master = seen.iter().find(|seen| Some(seen.id) == record.master);
        let (reason, vacated) = if record.holder.is_some() {
            let expires = since.after(self.policy.lease_ms);
            if master.is_some_and(|master| master.has_ended) {
                (Reason::Ended, true)
            } else if now >= expires {
                (Reason::Expired, false)
            } else {
                self.vacant_since = None;
                return Decision::Keep;
            }
        } else if record.reign == record.epoch || has_reigned(record, master) {
            (Reason::Released, record.vacated)
        } else {
            let report = master.and_then(|master| master.report.as_ref());
            let can = report.is_some_and(|report| is_qualified(record, record.master, report));
            let patience = if can { self.policy.lease_ms } else { self.policy.patience_ms };
            let until = since.after(patience);
            if now < until {
                return Decision::Wait { reason: Reason::TakingOver, until: Some(until) };
            }
            (Reason::NotTaken, record.vacated)
        };
        if record.master.is_some_and(|master| record.fenced.contains(&master))
            && record.handover.is_none()
        {
            return Decision::Blocked(Reason::MasterFenced);
        }
        self.appoint(now, record, seen, reason, vacated)
    }

    /// Since when the lease is seen as it is.
    fn observe(&mut self, now: Millis, record: &GroupRecord) -> Millis {
        let observation = Observation {
            epoch: record.epoch,
            master: record.master,
            holder: record.holder.clone(),
        };
        match &self.observed {
            Some((before, since)) if *before == observation => *since,
            _ => {
                self.observed = Some((observation, now));
                self.vacant_since = None;
                now
            }
        }
    }

    /// Appoints the best member of the in-sync set.
    fn appoint(
        &mut self,
        now: Millis,
        record: &GroupRecord,
        seen: &[Seen],
        reason: Reason,
        vacated: bool,
    ) -> Decision {
        let since = *self.vacant_since.get_or_insert(now);
        let until = since.after(self.policy.patience_ms);
        let silent = record.in_sync.iter().find(|id| report(seen, **id).is_none());
        if let Some(silent) = silent
            && now < until
        {
            return Decision::Wait { reason: Reason::MemberSilent(*silent), until: Some(until) };
        }
        let best = match elect(record, seen) {
            // An appointed one that did not take over is the last to be asked again.
            Some(best) if reason == Reason::NotTaken && Some(best) == record.master => {
                let others: Vec<Seen> =
                    seen.iter().filter(|seen| seen.id != best).cloned().collect();
                Some(elect(record, &others).unwrap_or(best))
            }
            best => best,
        };
        if let Some(best) = best {
            return Decision::Write { record: self.next(record, seen, best, vacated), reason };
        }
        // Nobody has what a member should have. If everybody was asked, the one that has most is the
        // best there can be; it must be a member, whom nobody waits for in vain.
        let everybody: BTreeSet<ReplicaId> = self.everybody().collect();
        let all_report = everybody.iter().all(|id| report(seen, *id).is_some());
        let most = best_of(seen, |_| true, record.master);
        let may_serve = |id: &ReplicaId| !record.fenced.contains(id);
        let of_all = most.filter(|most| all_report && record.in_sync.contains(most));
        // Somebody else may come back with more than nothing.
        let has_some = |seen: &Seen| {
            all_report || seen.report.as_ref().is_some_and(|report| report.log_end > 0)
        };
        let of_some = best_of(seen, |seen| may_serve(&seen.id) && has_some(seen), record.master);
        let of_some = of_some.filter(|_| self.policy.allow_unclean && vacated);
        let most = of_all.filter(may_serve).or(of_some);
        match most {
            Some(_) if now < until => {
                Decision::Wait { reason: Reason::NoSafeCandidate, until: Some(until) }
            }
            Some(most) => {
                let mut next = self.next(record, seen, most, vacated);
                next.in_sync = [most].into();
                next.in_sync_epoch = record.in_sync_epoch.saturating_add(1);
                next.reign = report(seen, most).map_or(Epoch(0), |report| report.last_epoch);
                Decision::Write { record: next, reason: Reason::Unclean }
            }
            None => match silent {
                Some(silent) => Decision::Blocked(Reason::MemberSilent(*silent)),
                None => Decision::Blocked(Reason::NoSafeCandidate),
            },
        }
    }

    /// The first record, or one in place of a lost one.
    fn create(&mut self, now: Millis, record: &GroupRecord, seen: &[Seen]) -> Decision {
        let since = *self.vacant_since.get_or_insert(now);
        // Somebody may hold a lease on the record that is lost.
        let until = since.after(self.policy.lease_ms);
        if let Some(silent) = self.everybody().find(|id| report(seen, *id).is_none()) {
            let reason = Reason::ReplicaSilent(silent);
            let is_first = self.policy.known_epoch == Epoch(0) && silent != ReplicaId(1);
            if !is_first || has_log(seen) {
                return Decision::Blocked(reason);
            }
            if now < since.after(self.policy.patience_ms) {
                let until = Some(since.after(self.policy.patience_ms));
                return Decision::Wait { reason, until };
            }
        }
        let is_old = has_log(seen) || self.policy.known_epoch > Epoch(0);
        if is_old && now < until {
            return Decision::Wait { reason: Reason::RecordLost, until: Some(until) };
        }
        let best = if is_old { best_of(seen, |_| true, None) } else { Some(ReplicaId(1)) };
        let Some(best) = best.filter(|best| !record.fenced.contains(best)) else {
            return Decision::Blocked(Reason::NoSafeCandidate);
        };
        let mut next = self.next(record, seen, best, !is_old);
        next.in_sync = [best].into();
        next.in_sync_epoch = record.in_sync_epoch.saturating_add(1);
        next.reign = report(seen, best).map_or(Epoch(0), |report| report.last_epoch);
        let reason = if is_old { Reason::RecordLost } else { Reason::Created };
        Decision::Write { record: next, reason }
    }

    fn everybody(&self) -> impl Iterator<Item = ReplicaId> + use<> {
        let replicas = i64::try_from(self.policy.replicas).unwrap_or(i64::MAX);
        (1..=replicas).map(ReplicaId)
    }

    /// The record of the next epoch.
    fn next(
        &self,
        record: &GroupRecord,
        seen: &[Seen],
        master: ReplicaId,
        vacated: bool,
    ) -> GroupRecord {
        let reports = seen.iter().filter_map(|seen| seen.report.as_ref());
        let highest = reports.map(|report| report.last_epoch).max().unwrap_or_default();
        let highest = highest.max(record.epoch).max(self.policy.known_epoch);
        GroupRecord {
            epoch: Epoch(highest.0.saturating_add(1)),
            master: Some(master),
            holder: None,
            handover: None,
            vacated,
            ..record.clone()
        }
    }
}

/// The member of the in-sync set that should be master: it can be reached, is not fenced, and its log
/// is that of a member. Of those the one with the highest epoch, then the longest log, then a ready
/// one, then one that is not the master that was, then the lowest id.
pub fn elect(record: &GroupRecord, seen: &[Seen]) -> Option<ReplicaId> {
    best_of(
        seen,
        |seen| {
            seen.report.as_ref().is_some_and(|report| is_qualified(record, Some(seen.id), report))
        },
        record.master,
    )
}

fn is_qualified(record: &GroupRecord, id: Option<ReplicaId>, report: &Report) -> bool {
    id.is_some_and(|id| record.in_sync.contains(&id) && !record.fenced.contains(&id))
        && report.last_epoch >= record.reign
}

fn best_of(
    seen: &[Seen],
    may: impl Fn(&Seen) -> bool,
    master: Option<ReplicaId>,
) -> Option<ReplicaId> {
    let reported = seen.iter().filter(|seen| may(seen));
    reported
        .filter_map(|seen| Some((seen, seen.report.as_ref()?)))
        .max_by_key(|(seen, report)| {
            let is_other = Some(seen.id) != master;
            (report.last_epoch, report.log_end, seen.is_ready, is_other, Reverse(seen.id))
        })
        .map(|(seen, _)| seen.id)
}

/// The appointed master's epoch file has the epoch already, so an earlier process of it reigned, and
/// it will not again.
fn has_reigned(record: &GroupRecord, master: Option<&Seen>) -> bool {
    let report = master.and_then(|master| master.report.as_ref());
    report.is_some_and(|report| report.last_epoch >= record.epoch)
}

fn report(seen: &[Seen], id: ReplicaId) -> Option<&Report> {
    seen.iter().find(|seen| seen.id == id)?.report.as_ref()
}

fn has_log(seen: &[Seen]) -> bool {
    let mut reports = seen.iter().filter_map(|seen| seen.report.as_ref());
    reports.any(|report| report.log_end > 0 || report.last_epoch > Epoch(0))
}
