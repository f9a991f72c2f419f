//! One replica: what it is, and what it does about whatever happens to it.
//!
//! This file owns the order of things: each input is taken in by the part that it concerns, then the
//! record is looked at, then what is due is done. The parts are
//!
//! - [`following`]: a slave, its master's log, its promises;
//! - [`take_over`]: from the appointment to the first message;
//! - [`reign`]: a master, what it may acknowledge, its renewals;
//! - [`slaves`]: who follows a master, and who of them counts;
//! - [`leave`]: handing over and giving back the lease;
//! - [`attempts`]: writes of the record whose outcome is not known.

mod attempts;
mod following;
mod leave;
mod reign;
mod slaves;
mod take_over;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use crate::{
    Epoch, EpochTable, FencedBy, Input, LinkId, Millis, Output, ReplicaId, Role, Settings,
    Versioned,
};
use attempts::Attempts;
use following::{Following, Promise};
pub use leave::HANDOVER_MS;
use reign::Reign;
use take_over::TakeOver;

impl Millis {
    pub(crate) fn after(self, ms: u64) -> Millis {
        Millis(self.0.saturating_add(ms))
    }
}

/// A replica of a group. Owns no clock, no socket and no disk: it is told what happened and says what
/// is to be done. Outputs are carried out in their order.
#[derive(Debug)]
pub struct Replica {
    settings: Settings,
    /// As the epoch file has them, or shall have them once what was asked for is done.
    epochs: EpochTable,
    log_end: i64,
    confirmed: i64,
    record: Option<Versioned>,
    state: State,
    promise: Promise,
    /// The epoch that it was asked to give back while it was taking over.
    declined: Epoch,
    attempts: Attempts,
    /// Answers to [`Output::Truncate`] and [`Output::Seal`] that have not come.
    cuts: u32,
    /// The time of the last input.
    now: Millis,
    is_started: bool,
    read_at: Millis,
    /// The record is not written again before.
    write_after: Millis,
    /// Attempts, probes and pings are counted together.
    last_number: u64,
    /// What was told last with [`Output::Fenced`].
    told: Option<FencedBy>,
}

/// The first of the times that are still to come: what was due and waits for something else needs no
/// tick.
struct Next {
    now: Millis,
    at: Option<Millis>,
}

impl Next {
    fn add(&mut self, at: Millis) {
        if at > self.now && self.at.is_none_or(|first| at < first) {
            self.at = Some(at);
        }
    }
}

#[derive(Debug)]
enum State {
    /// Knows nobody to follow.
    Waiting,
    Following(Following),
    TakingOver(TakeOver),
    /// Holds the lease.
    Reigning(Reign),
}

impl Replica {
    /// A replica that knows nothing of its group yet. `log_end` is where its log ends, whole;
    /// `epochs` is what the epoch file says. Epochs that begin behind the end are forgotten: that part
    /// of the log is lost.
    pub fn new(settings: Settings, mut epochs: EpochTable, log_end: i64) -> Replica {
        epochs.truncate_suffix(log_end.saturating_add(1));
        Replica {
            settings,
            epochs,
            log_end,
            confirmed: 0,
            record: None,
            state: State::Waiting,
            promise: Promise::default(),
            declined: Epoch(0),
            attempts: Attempts::default(),
            cuts: 0,
            now: Millis(0),
            is_started: false,
            read_at: Millis(0),
            write_after: Millis(0),
            last_number: 0,
            told: None,
        }
    }

    /// Takes in what happened at `now` and appends what is to be done to `out`.
    pub fn handle(&mut self, now: Millis, input: Input, out: &mut Vec<Output>) {
        if !self.is_started {
            self.is_started = true;
            // The process before this one may have promised something a moment ago.
            self.promise = Promise::of_previous_process(now, self.settings.promise_ms);
        }
        self.now = self.now.max(now);
        self.take_in(input, out);
        self.act(out);
    }

    fn take_in(&mut self, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Tick => {}
            Input::LogEnd(end) => self.log_end = end,
            Input::LogStart(start) => self.log_starts(start, out),
            Input::Proven(number) => self.proven(number),
            Input::Truncated { end } => self.truncated(end, out),
            Input::EpochRecorded(epoch) => self.epoch_recorded(epoch, out),
            Input::Record(read) => self.record_read(read),
            Input::Written(attempt, version) => self.written(attempt, version, out),
            Input::Conflict(attempt) => self.conflict(attempt, out),
            Input::Unknown(attempt) => self.unknown(attempt, out),
            Input::SlaveJoined { link, replica, end, is_learner } => {
                self.slave_joined(link, replica, end, is_learner, out);
            }
            Input::SlaveHas { link, end } => self.slave_has(link, end),
            Input::Pong { link, number } => self.pong(link, number),
            Input::SlaveLeft(link) => self.slave_left(link),
            Input::MasterHello { link, epoch, epochs, log_end } => {
                self.master_hello(link, epoch, &epochs, log_end, out);
            }
            Input::MasterSent { link, epoch, entry, confirmed } => {
                self.master_sent(link, epoch, entry, confirmed, out);
            }
            Input::Ping { link, number } => self.ping(link, number, out),
            Input::MasterLost { link, closed_by_master } => {
                self.master_lost(link, closed_by_master);
            }
            Input::Release => self.release(),
        }
    }

    /// Does what is due.
    fn act(&mut self, out: &mut Vec<Output>) {
        self.obey(out);
        match self.state {
            State::Waiting => {}
            State::Following(_) => self.confirm_as_slave(out),
            State::TakingOver(_) => self.go_on_taking_over(out),
            State::Reigning(_) => self.go_on_reigning(out),
        }
        let fenced = match &self.state {
            State::Reigning(reign) if reign.is_serving => self.may_take_in(self.now).err(),
            _ => None,
        };
        if fenced != self.told {
            self.told = fenced;
            if self.role_is_master() {
                out.push(Output::Fenced(fenced));
            }
        }
        // A master reads when it has a reason to: each renewal tells it whether the record changed.
        let reads = !matches!(self.state, State::Reigning(_)) || self.attempts.needs_read();
        if reads && self.now >= self.read_at {
            self.read(out);
        }
    }

    fn read(&mut self, out: &mut Vec<Output>) {
        self.read_at = self.now.after(self.settings.retry_ms);
        out.push(Output::Read);
    }

    /// When [`Input::Tick`] is needed, if nothing happens before.
    pub fn next_deadline(&self) -> Option<Millis> {
        if !self.is_started {
            return Some(Millis(0));
        }
        let mut next = Next { now: self.now, at: None };
        next.add(self.read_at);
        next.add(self.promise.until());
        if let State::Reigning(reign) = &self.state {
            self.reign_deadlines(reign, &mut next);
        }
        next.at
    }

    /// What it is.
    pub fn role(&self) -> Role {
        match &self.state {
            State::Following(Following { epoch, is_copying: true, .. }) => Role::Slave(*epoch),
            State::Waiting | State::Following(_) => Role::Waiting,
            State::TakingOver(take_over) => Role::TakingOver(take_over.epoch),
            State::Reigning(reign) if reign.is_serving => Role::Master(reign.epoch),
            State::Reigning(reign) => Role::TakingOver(reign.epoch),
        }
    }

    fn role_is_master(&self) -> bool {
        matches!(self.role(), Role::Master(_))
    }

    /// The highest epoch that it knows of.
    pub fn epoch(&self) -> Epoch {
        let recorded = self.record.as_ref().map_or(Epoch(0), |versioned| versioned.record.epoch);
        recorded.max(self.last_epoch())
    }

    /// The epochs of its log.
    pub fn epochs(&self) -> &EpochTable {
        &self.epochs
    }

    fn last_epoch(&self) -> Epoch {
        self.epochs.last().map_or(Epoch(0), |entry| entry.epoch)
    }

    /// Everything in front of this offset may be shown to consumers. Never falls.
    pub fn confirmed(&self) -> i64 {
        self.confirmed
    }

    /// The in-sync set as the record had it when it was last read or written.
    pub fn in_sync(&self) -> &BTreeSet<ReplicaId> {
        static NOBODY: BTreeSet<ReplicaId> = BTreeSet::new();
        self.record.as_ref().map_or(&NOBODY, |versioned| &versioned.record.in_sync)
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn confirm(&mut self, up_to: i64, out: &mut Vec<Output>) {
        if up_to > self.confirmed {
            self.confirmed = up_to;
            out.push(Output::Confirm(up_to));
        }
    }

    /// The connection to a master ends, if there is one.
    fn unfollow(&mut self, out: &mut Vec<Output>) {
        if matches!(self.state, State::Following(_)) {
            self.state = State::Waiting;
            out.push(Output::Unfollow);
        }
    }

    fn log_starts(&mut self, start: i64, out: &mut Vec<Output>) {
        let entries = self.epochs.entries().len();
        self.epochs.truncate_prefix(start);
        if self.epochs.entries().len() < entries {
            out.push(Output::RecordEpochs(self.epochs.clone()));
        }
    }

    fn truncated(&mut self, end: i64, out: &mut Vec<Output>) {
        self.cuts = self.cuts.saturating_sub(1);
        self.log_end = end;
        if self.cuts > 0 {
            return;
        }
        match &mut self.state {
            State::Following(following) => following.log_fits(out),
            State::TakingOver(take_over) => take_over.sealed = Some(end),
            State::Waiting | State::Reigning(_) => {}
        }
    }

    /// The record was read.
    fn record_read(&mut self, read: Option<Versioned>) {
        // Whoever removed the record did not end anybody's reign by it: what was agreed on stands
        // until there is another record.
        let Some(read) = read else { return };
        if let Some(known) = &self.record {
            if known.version == read.version {
                // Says nothing about attempts: they may still land.
                if self.attempts.read_again() {
                    // What refuses writes of this version may go on to.
                    self.write_after = self.now.after(self.settings.retry_ms);
                }
                return;
            }
            // Read before what is known; the keeper's versions are never used again.
            if read.record.epoch < known.record.epoch {
                return;
            }
        }
        let resolved = self.attempts.resolved();
        if let State::Reigning(reign) = &mut self.state {
            reign.saw(&read.record, &self.settings.incarnation, &resolved);
        }
        self.record = Some(read);
    }

    /// Brings the state into line with the record.
    fn obey(&mut self, out: &mut Vec<Output>) {
        // It is put back below; nothing in between looks at it.
        let Some(known) = self.record.take() else { return };
        let record = &known.record;
        let is_master = record.master == Some(self.settings.id);
        let holds = is_master
            && record
                .holder
                .as_ref()
                .is_some_and(|holder| holder.incarnation == self.settings.incarnation);
        match &self.state {
            State::Reigning(reign) if !holds || reign.epoch != record.epoch => {
                let why = if reign.is_leaving() { FencedBy::Handover } else { FencedBy::Role };
                if reign.is_serving {
                    out.push(Output::StepDown(why));
                }
                self.state = State::Waiting;
                self.attempts = Attempts::default();
                self.told = None;
            }
            State::TakingOver(take_over) => {
                let is_free = record.holder.is_none() || holds;
                if !is_master || !is_free || take_over.epoch != record.epoch {
                    self.state = State::Waiting;
                    self.attempts = Attempts::default();
                }
            }
            _ => {}
        }
        if matches!(self.state, State::Waiting | State::Following(_)) {
            if record.holder.is_some() && !is_master {
                self.follow(record, out);
            } else {
                self.unfollow(out);
                self.maybe_take_over(record, holds, out);
            }
        }
        self.record = Some(known);
    }

    fn is_current(&self, link: LinkId) -> bool {
        matches!(&self.state, State::Following(following) if following.link == Some(link))
    }
}
