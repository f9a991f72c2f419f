//! A master: what it may acknowledge, and how it keeps its lease.

use std::collections::BTreeSet;

use super::attempts::Possible;
use super::leave::Leave;
use super::slaves::Slaves;
use super::{Next, Replica, State};
use crate::{
    Attempt, Epoch, FencedBy, GroupRecord, Holder, LinkId, Millis, Output, ReplicaId, Settings,
};

/// Holding the lease.
#[derive(Debug)]
pub(super) struct Reign {
    pub epoch: Epoch,
    /// The epoch file has the epoch.
    pub is_serving: bool,
    /// When the last renewal that is known to have landed was sent.
    renewed: Option<Millis>,
    /// When the next renewal is due.
    renew_at: Millis,
    /// The append path was proven since the last write of the record.
    pub is_proven: bool,
    /// The proof that was asked for, and when; it may fail, which nobody tells.
    probe: Option<(u64, Millis)>,
    pub slaves: Slaves,
    pub leave: Option<Leave>,
    /// A handover that came to nothing; the record is to be rid of it.
    pub aborted: Option<ReplicaId>,
    ping_at: Millis,
}

impl Reign {
    pub(super) fn new(epoch: Epoch, renewed: Option<Millis>, renew_at: Millis) -> Reign {
        Reign {
            epoch,
            is_serving: false,
            renewed,
            renew_at,
            is_proven: false,
            probe: None,
            slaves: Slaves::default(),
            leave: None,
            aborted: None,
            ping_at: Millis(0),
        }
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.leave.is_some()
    }

    /// The record was read, with a version that is new to us.
    pub(super) fn saw(&mut self, record: &GroupRecord, incarnation: &str, done: &Possible) {
        if let Some(holder) = &record.holder
            && holder.incarnation == incarnation
            && let Some(sent) = done.sent(holder.renewals)
        {
            self.renewed = self.renewed.max(Some(sent));
        }
        if record.handover.is_none() {
            self.aborted = None;
        }
    }

    /// When the lease is over by this process's clock.
    fn lease_until(&self, settings: &Settings) -> Millis {
        self.renewed.map_or(Millis(0), |sent| sent.after(settings.renew_deadline_ms))
    }
}

impl Replica {
    /// Whether a message may be acknowledged now that everything else is done for it. To be asked
    /// after flush and copies, right in front of the answer: a process may be frozen at any moment.
    ///
    /// # Errors
    /// Why not.
    pub fn may_acknowledge(&self, now: Millis) -> Result<(), FencedBy> {
        let (State::Reigning(reign), Some(versioned)) = (&self.state, &self.record) else {
            return Err(FencedBy::Role);
        };
        if !reign.is_serving {
            return Err(FencedBy::Role);
        }
        if versioned.record.fenced.contains(&self.settings.id) {
            return Err(FencedBy::Administrator);
        }
        // A write that gives the lease away may still land. Before there is one, a handover stops nobody
        // who has been taken in.
        if self.attempts.may_have_left() {
            return Err(FencedBy::Handover);
        }
        let effective = self.effective();
        if effective.len() < self.settings.min_in_sync {
            return Err(FencedBy::InSyncSet);
        }
        if self.holds_out(reign, &effective, self.now.max(now)) {
            Ok(())
        } else {
            Err(FencedBy::Lease)
        }
    }

    /// Whether messages may be taken in: those that may be acknowledged, and none while it hands over,
    /// so that the next master can have everything.
    ///
    /// # Errors
    /// Why not.
    pub fn may_take_in(&self, now: Millis) -> Result<(), FencedBy> {
        match &self.state {
            State::Reigning(reign) if reign.is_serving && reign.is_leaving() => {
                Err(FencedBy::Handover)
            }
            _ => self.may_acknowledge(now),
        }
    }

    /// Whether nobody else can be master now.
    pub(super) fn holds_out(
        &self,
        reign: &Reign,
        effective: &BTreeSet<ReplicaId>,
        now: Millis,
    ) -> bool {
        now < reign.lease_until(&self.settings)
            // For a set of one this is true: nobody else may be appointed.
            || effective.iter().all(|id| {
                *id == self.settings.id || reign.slaves.has_promised(*id, now)
            })
    }

    /// Everybody who may be in the recorded set: who is appointed is one of them.
    pub(super) fn effective(&self) -> BTreeSet<ReplicaId> {
        self.in_sync().iter().copied().chain(self.attempts.members()).collect()
    }

    pub(super) fn proven(&mut self, number: u64) {
        if let State::Reigning(reign) = &mut self.state
            && reign.probe.is_some_and(|(asked, _)| asked == number)
        {
            reign.probe = None;
            reign.is_proven = true;
        }
    }

    /// A write of ours took place.
    pub(super) fn written(&mut self, attempt: Attempt, version: String, out: &mut Vec<Output>) {
        let Some(tried) = self.attempts.written(attempt) else { return };
        let (sent, record) = (tried.sent, tried.record.clone());
        self.record = Some(crate::Versioned { version, record: tried.record });
        self.write_after = self.now;
        match &mut self.state {
            State::Reigning(reign) => {
                if record.holder.is_some() {
                    reign.renewed = reign.renewed.max(Some(sent));
                }
                if record.handover.is_none() {
                    reign.aborted = None;
                }
            }
            State::TakingOver(take_over) => {
                if let Some(end) = take_over.sealed {
                    let epoch = take_over.epoch;
                    self.begin_reign(epoch, end, Some(sent), out);
                }
            }
            State::Waiting | State::Following(_) => {}
        }
    }

    /// A write of ours will never take place.
    pub(super) fn conflict(&mut self, attempt: Attempt, out: &mut Vec<Output>) {
        if self.attempts.conflict(attempt) {
            self.write_after = self.now;
            self.read(out);
        }
    }

    /// Nobody knows about a write of ours.
    pub(super) fn unknown(&mut self, attempt: Attempt, out: &mut Vec<Output>) {
        if self.attempts.unknown(attempt) {
            self.read(out);
        }
    }

    /// Everything that is due while it holds the lease.
    pub(super) fn go_on_reigning(&mut self, out: &mut Vec<Output>) {
        self.consider_leaving();
        self.consider_slaves();
        self.confirm_as_master(out);
        self.ping_slaves(out);
        self.keep_record(out);
    }

    /// Asks the members of the set for promises.
    fn ping_slaves(&mut self, out: &mut Vec<Output>) {
        let number = self.last_number + 1;
        let (now, retry_ms) = (self.now, self.settings.retry_ms);
        let State::Reigning(reign) = &mut self.state else { return };
        if !reign.is_serving || now < reign.ping_at {
            return;
        }
        reign.ping_at = now.after(retry_ms);
        let links = reign.slaves.ping(number, now);
        if !links.is_empty() {
            self.last_number = number;
            out.extend(links.into_iter().map(|link| Output::Ping { link, number }));
        }
    }

    pub(super) fn pong(&mut self, link: LinkId, number: u64) {
        let promise_ms = self.settings.promise_ms;
        if let State::Reigning(reign) = &mut self.state {
            reign.slaves.pong(link, number, promise_ms);
        }
    }

    /// Renews the lease, and changes what has to change. Each write does both, and needs a proof of
    /// the append path since the last one: whoever cannot write must not keep others from it.
    fn keep_record(&mut self, out: &mut Vec<Output>) {
        let wish = self.wish();
        let number = self.last_number + 1;
        let State::Reigning(reign) = &mut self.state else { return };
        if wish.is_none() && self.now < reign.renew_at {
            return;
        }
        if !self.attempts.may_write() || self.now < self.write_after {
            return;
        }
        if !reign.is_proven {
            let is_open = reign.probe.is_some_and(|(_, until)| self.now < until);
            if !is_open {
                reign.probe = Some((number, self.now.after(self.settings.retry_ms)));
                self.last_number = number;
                out.push(Output::Probe(number));
            }
            return;
        }
        let Some(record) = wish.or_else(|| self.record.as_ref().map(|known| known.record.clone()))
        else {
            return;
        };
        let record = self.renewed(record);
        let renew_at = self.now.after(self.settings.retry_ms);
        if let State::Reigning(reign) = &mut self.state {
            reign.renew_at = renew_at;
            reign.is_proven = false;
        }
        self.write(record, out);
    }

    /// The record with one renewal more, if it leaves the lease with us.
    fn renewed(&self, mut record: GroupRecord) -> GroupRecord {
        if let State::Reigning(reign) = &self.state {
            // Not earlier: members of the set must have the epoch in their files.
            if reign.is_serving {
                record.reign = reign.epoch;
            }
        }
        if let Some(holder) = record.holder.as_mut() {
            *holder = Holder {
                incarnation: self.settings.incarnation.clone(),
                renewals: holder.renewals.saturating_add(1),
            };
        }
        record
    }

    /// How the record should be other than it is.
    fn wish(&self) -> Option<GroupRecord> {
        let State::Reigning(reign) = &self.state else { return None };
        let known = &self.record.as_ref()?.record;
        if let Some(record) = self.wish_to_leave(reign, known) {
            return Some(record);
        }
        // Asked at each input, and mostly for nothing: the record is copied only if there is something.
        let members = || reign.slaves.members(&known.in_sync, self.settings.id);
        let members = reign.is_serving.then(members).filter(|members| *members != known.in_sync);
        let is_new = reign.is_serving && known.reign != reign.epoch;
        let is_aborted = reign.aborted.is_some() && known.handover.is_some();
        if members.is_none() && !is_new && !is_aborted {
            return None;
        }
        let mut wish = known.clone();
        if is_new {
            wish.reign = reign.epoch;
        }
        if let Some(members) = members {
            wish.in_sync = members;
            wish.in_sync_epoch = known.in_sync_epoch.saturating_add(1);
        }
        if is_aborted {
            wish.handover = None;
        }
        Some(wish)
    }

    pub(super) fn reign_deadlines(&self, reign: &Reign, next: &mut Next) {
        for at in [reign.renew_at, reign.ping_at, self.write_after] {
            next.add(at);
        }
        next.add(reign.lease_until(&self.settings));
        if let Some(leave) = &reign.leave {
            next.add(leave.until);
        }
        if let Some((_, until)) = reign.probe {
            next.add(until);
        }
        reign.slaves.deadlines(&self.settings, next);
    }
}
