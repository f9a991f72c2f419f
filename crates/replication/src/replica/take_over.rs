//! From the appointment to the first message: the log is sealed, the lease is taken by
//! compare-and-swap, the epoch is put into the epoch file, and only then messages are taken in.

use super::attempts::Tried;
use super::reign::Reign;
use super::{Replica, State};
use crate::{Attempt, Epoch, EpochEntry, GroupRecord, Holder, Output};

/// Has been appointed and does not hold the lease yet.
#[derive(Debug)]
pub(super) struct TakeOver {
    pub epoch: Epoch,
    /// Where the log ends, once it is sealed.
    pub sealed: Option<i64>,
}

impl Replica {
    /// Begins to take over if the record says so and nothing stands against it.
    pub(super) fn maybe_take_over(
        &mut self,
        record: &GroupRecord,
        holds: bool,
        out: &mut Vec<Output>,
    ) {
        let me = self.settings.id;
        let is_appointed = record.master == Some(me)
            && (record.holder.is_none() || holds)
            && record.in_sync.contains(&me)
            && !record.fenced.contains(&me);
        // Nobody reigns twice in an epoch: what an earlier process of this replica appended in it may
        // be lost.
        let is_new = record.epoch > self.last_epoch().max(self.declined);
        // The disk is another one than when it became a member of the set.
        let has_lost_disk = self.last_epoch() < record.reign;
        if is_appointed && is_new && !has_lost_disk && !self.is_bound(record) {
            self.cuts += 1;
            self.state = State::TakingOver(TakeOver { epoch: record.epoch, sealed: None });
            out.push(Output::Seal);
        }
    }

    /// Whether it has promised not to become master now, to somebody who may rely on it.
    fn is_bound(&self, record: &GroupRecord) -> bool {
        // A set without others was this replica's own: nobody else's lease rests on its word.
        let is_own = record.in_sync.len() == 1;
        !record.vacated && !is_own && self.promise.holds(self.now)
    }

    /// Takes the lease once the log is sealed; begins to reign if the record shows that it has.
    pub(super) fn go_on_taking_over(&mut self, out: &mut Vec<Output>) {
        let State::TakingOver(TakeOver { epoch, sealed: Some(end) }) = self.state else { return };
        let Some(versioned) = &self.record else { return };
        if versioned.record.holder.is_some() {
            // It is this process: `obey` has made sure. When the write was sent is not known any
            // more, so nothing rests on this lease before its first renewal.
            return self.begin_reign(epoch, end, None, out);
        }
        if !self.attempts.may_write() || self.now < self.write_after {
            return;
        }
        let record = GroupRecord {
            holder: Some(Holder { incarnation: self.settings.incarnation.clone(), renewals: 1 }),
            in_sync: [self.settings.id].into(),
            in_sync_epoch: versioned.record.in_sync_epoch.saturating_add(1),
            addresses: self.settings.addresses.clone(),
            handover: None,
            vacated: false,
            ..versioned.record.clone()
        };
        self.write(record, out);
    }

    /// Asks for the record to be replaced by this one.
    pub(super) fn write(&mut self, record: GroupRecord, out: &mut Vec<Output>) {
        let Some(versioned) = &self.record else { return };
        let expected = versioned.version.clone();
        let attempt = Attempt(self.next_number());
        self.write_after = self.now.after(self.settings.retry_ms);
        self.attempts.begin(Tried { attempt, record: record.clone(), sent: self.now });
        out.push(Output::Write { attempt, expected, record });
    }

    /// The lease is held: the epoch begins where the log ends.
    pub(super) fn begin_reign(
        &mut self,
        epoch: Epoch,
        end: i64,
        renewed: Option<crate::Millis>,
        out: &mut Vec<Output>,
    ) {
        // A log without any epoch comes from a broker that knew none; all of it is this one's.
        let start = if self.epochs.entries().is_empty() { 0 } else { end };
        if self.epochs.push(EpochEntry { epoch, start }).is_err() {
            // Cannot be: the epoch is newer than the last one, which began in this log.
            self.state = State::Waiting;
            return;
        }
        self.log_end = end;
        let renew_at = renewed.map_or(self.now, |sent| sent.after(self.settings.retry_ms));
        self.state = State::Reigning(Reign::new(epoch, renewed, renew_at));
        out.push(Output::RecordEpochs(self.epochs.clone()));
    }

    /// The epoch file has the new epoch: messages may come.
    pub(super) fn epoch_recorded(&mut self, epoch: Epoch, out: &mut Vec<Output>) {
        if let State::Reigning(reign) = &mut self.state
            && reign.epoch == epoch
            && !reign.is_serving
        {
            reign.is_serving = true;
            // The file was synced just now, on the disk of the log.
            reign.is_proven = true;
            self.told = None;
            out.push(Output::Serve(epoch));
        }
    }
}
