//! A slave: whose log it copies, where its own has to be cut, what it promises.

use super::{Replica, State};
use crate::{Epoch, EpochEntry, EpochTable, GroupRecord, LinkId, Millis, Output, Refusal};

/// Following the master of an epoch.
#[derive(Debug)]
pub(super) struct Following {
    pub epoch: Epoch,
    ha_address: String,
    /// The connection on which the master shook hands.
    pub link: Option<LinkId>,
    /// The log fits and grows.
    pub is_copying: bool,
    /// What the master says is confirmed.
    confirmed: i64,
}

impl Following {
    /// The log was cut.
    pub(super) fn log_fits(&mut self, out: &mut Vec<Output>) {
        if let Some(link) = self.link
            && !self.is_copying
        {
            self.is_copying = true;
            out.push(Output::Copy { link });
        }
    }
}

/// Until when this replica refuses to become master, because a master relies on that.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Promise {
    until: Millis,
    /// The connection that it was given on; none if it was the process before this one that gave it.
    link: Option<LinkId>,
}

impl Promise {
    pub(super) fn of_previous_process(now: Millis, promise_ms: u64) -> Promise {
        Promise { until: now.after(promise_ms), link: None }
    }

    pub(super) fn until(&self) -> Millis {
        self.until
    }

    pub(super) fn holds(&self, now: Millis) -> bool {
        now < self.until
    }
}

impl Replica {
    /// Follows whom the record says.
    pub(super) fn follow(&mut self, record: &GroupRecord, out: &mut Vec<Output>) {
        if let State::Following(following) = &self.state {
            if following.epoch == record.epoch && following.ha_address == record.addresses.ha {
                return;
            }
            self.unfollow(out);
        }
        self.state = State::Following(Following {
            epoch: record.epoch,
            ha_address: record.addresses.ha.clone(),
            link: None,
            is_copying: false,
            confirmed: 0,
        });
        out.push(Output::Follow {
            epoch: record.epoch,
            ha_address: record.addresses.ha.clone(),
            broker_address: record.addresses.broker.clone(),
        });
    }

    pub(super) fn master_hello(
        &mut self,
        link: LinkId,
        epoch: Epoch,
        theirs: &EpochTable,
        their_end: i64,
        out: &mut Vec<Output>,
    ) {
        match self.fit(epoch, theirs, their_end) {
            Err(reason) => {
                if matches!(reason, Refusal::UnknownEpoch { .. }) {
                    self.read(out);
                }
                out.push(Output::Refuse { link, reason });
            }
            Ok(to) => {
                // An epoch that began where the log is cut stays if the master has it as well.
                let mut common = EpochTable::default();
                for entry in self.epochs.entries() {
                    if entry.start < to || theirs.entries().contains(entry) {
                        // They were in order, and are.
                        let _ = common.push(*entry);
                    }
                }
                common.truncate_suffix(to.saturating_add(1));
                let surplus = self.log_end - to;
                self.epochs = common.clone();
                self.log_end = to;
                self.cuts += 1;
                if let State::Following(following) = &mut self.state {
                    following.link = Some(link);
                    following.is_copying = false;
                }
                out.push(Output::Truncate { to, surplus, epochs: common });
            }
        }
    }

    /// Where the log has to be cut to go on with the master's, or why it cannot.
    fn fit(&self, epoch: Epoch, theirs: &EpochTable, their_end: i64) -> Result<i64, Refusal> {
        let ours = self.epoch();
        let State::Following(following) = &self.state else {
            return Err(Refusal::OldEpoch { theirs: epoch, ours });
        };
        if epoch < following.epoch {
            return Err(Refusal::OldEpoch { theirs: epoch, ours: following.epoch });
        }
        if epoch > following.epoch {
            return Err(Refusal::UnknownEpoch { theirs: epoch, ours: following.epoch });
        }
        let is_empty = self.log_end == 0;
        let to = match self.epochs.consistent_point(self.log_end, theirs, their_end) {
            Some(to) => to,
            None if is_empty => 0,
            None => return Err(Refusal::NothingInCommon),
        };
        if to < self.confirmed {
            return Err(Refusal::BelowConfirmed { to, confirmed: self.confirmed });
        }
        Ok(to)
    }

    pub(super) fn master_sent(
        &mut self,
        link: LinkId,
        epoch: Epoch,
        entry: EpochEntry,
        confirmed: i64,
        out: &mut Vec<Output>,
    ) {
        if !self.is_current(link) {
            return;
        }
        let State::Following(following) = &mut self.state else { return };
        if epoch != following.epoch {
            let (theirs, ours) = (epoch, following.epoch);
            out.push(Output::Refuse { link, reason: Refusal::OldEpoch { theirs, ours } });
            return;
        }
        following.confirmed = following.confirmed.max(confirmed);
        // Bytes are never in the log before the epoch file knows whose they are.
        if self.epochs.last().is_none_or(|last| entry.epoch > last.epoch) {
            if self.epochs.push(entry).is_err() {
                out.push(Output::Refuse { link, reason: Refusal::Disorder });
                return;
            }
            out.push(Output::RecordEpochs(self.epochs.clone()));
        }
    }

    pub(super) fn confirm_as_slave(&mut self, out: &mut Vec<Output>) {
        if let State::Following(following) = &self.state
            && following.is_copying
        {
            let up_to = following.confirmed.min(self.log_end);
            self.confirm(up_to, out);
        }
    }

    pub(super) fn ping(&mut self, link: LinkId, number: u64, out: &mut Vec<Output>) {
        if self.is_current(link) {
            let until = self.now.after(self.settings.promise_ms).max(self.promise.until);
            self.promise = Promise { until, link: Some(link) };
            out.push(Output::Pong { link, number });
        }
    }

    pub(super) fn master_lost(&mut self, link: LinkId, closed_by_master: bool) {
        if closed_by_master && self.promise.link == Some(link) {
            self.promise = Promise::default();
        }
        if let State::Following(following) = &mut self.state
            && following.link == Some(link)
        {
            following.link = None;
            following.is_copying = false;
            // The record may say why.
            self.read_at = self.now;
        }
    }
}
