//! What must be true, whatever happens.
//!
//! `Truth::confirmed` is everything that was confirmed by anybody: shown to consumers or, where
//! acknowledgements wait for copies, acknowledged. It must be in front of every later master's log,
//! except for what was lost with the disks of every member of the recorded set, or with the unsynced
//! tail of one of them.

use std::collections::{BTreeMap, BTreeSet};

use rocketmq_replication::{Epoch, GroupRecord, Reason, Refusal};

use super::keeper::Caller;
use super::world::{Event, Node, Record, World};

/// From the end of all faults to the first acknowledgement, at most. What may follow one upon the
/// other: a silent connection (20 s), a lease (15 s), an appointed one that is gone (15 s), a promise
/// (10 s), members that left and join again.
const MASTER_WITHIN_MS: u64 = 90_000;
/// And to the last replica's return into the set.
const WHOLE_WITHIN_MS: u64 = 180_000;

#[derive(Debug, Default)]
pub struct Truth {
    confirmed: Vec<Record>,
    /// Behind this, confirmed messages may be missing from a later master.
    excused: Option<usize>,
    /// Confirmed messages that were lost, as excused. Whoever has them may go on showing them until it
    /// learns better.
    lost: BTreeSet<u64>,
    /// Members that lost a tail with the power, and what they have left.
    tails: BTreeMap<usize, usize>,
    /// An unsynced tail was lost at some time.
    lost_a_tail: bool,
    /// Where the log of the newest master ended when it began.
    served_from: usize,
    /// Who acknowledged in an epoch.
    acknowledged_by: BTreeMap<Epoch, u64>,
    /// The newest epoch in which somebody took messages in.
    served: Epoch,
    pub acknowledged: u64,
    pub acknowledged_at_calm: u64,
    /// Replicas whose logs cannot be made to fit any more.
    pub refused: BTreeSet<usize>,
    /// Epochs whose master was appointed though it may lack something.
    unclean: BTreeSet<Epoch>,
    /// Every member's disk was lost at some time: it may be blocked.
    no_member_left: bool,
    calm_since: u64,
    has_master: bool,
}

fn common(one: &[Record], other: &[Record]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

impl World {
    fn excuse(&mut self, behind: usize) {
        if behind < self.truth.confirmed.len() {
            let excused = self.truth.excused.unwrap_or(usize::MAX).min(behind);
            self.truth.excused = Some(excused);
        }
    }

    fn is_member(&self, node: usize) -> bool {
        let record = self.keeper.record.as_ref();
        record.is_some_and(|known| known.record.in_sync.contains(&Node::id(node)))
    }

    /// The unsynced tail of a log is gone. With synchronous flush nothing of it counted.
    pub fn tail_is_lost(&mut self, node: usize, left: usize) {
        if !self.setup.sync_flush {
            // What it had answered for counts with the master until it is not in the set; a write that
            // puts it there may be on its way.
            self.truth.lost_a_tail = true;
            let tail = self.truth.tails.entry(node).or_insert(left);
            *tail = (*tail).min(left);
        }
    }

    /// Whether a master takes a process of this node to be there that is gone: what that one said it has
    /// counts, and may make it a member once more.
    fn is_believed(&self, node: usize) -> bool {
        self.links.values().any(|link| {
            let (slave, inc) = link.slave;
            slave == node
                && !self.is_current(slave, inc)
                && self.is_current(link.master.0, link.master.1)
        })
    }

    /// A disk is gone. What another member has is not excused.
    pub fn disk_is_lost(&mut self, node: usize) {
        self.truth.refused.remove(&node);
        if self.is_member(node) {
            let others = (0..self.nodes.len()).filter(|other| self.is_member(*other));
            let most =
                others.map(|other| common(&self.truth.confirmed, &self.nodes[other].disk.log));
            let most = most.max().unwrap_or(0);
            self.excuse(most);
            let record = self.keeper.record.as_ref().map(|known| known.record.clone());
            self.count_members(&record.unwrap_or_default());
        }
    }

    /// Whether somebody is left whom the record lets be appointed. A write that was late may name one
    /// whose disk was lost meanwhile.
    fn count_members(&mut self, record: &GroupRecord) {
        let is_whole = |index: usize| {
            let last = self.nodes[index].disk.epochs.last().map_or(Epoch(0), |last| last.epoch);
            record.in_sync.contains(&Node::id(index)) && last >= record.reign
        };
        self.truth.no_member_left |= !(0..self.nodes.len()).any(is_whole);
    }

    /// A message is acknowledged.
    pub fn check_acknowledgement(&mut self, node: usize, end: usize) {
        let Some(process) = self.nodes[node].process.as_ref() else { return };
        let (inc, Some(epoch)) = (process.inc, process.serves) else {
            return self.fail(format!("replica {} acknowledges and is no master", node + 1));
        };
        let by = *self.truth.acknowledged_by.entry(epoch).or_insert(inc);
        if by != inc {
            self.fail(format!("two acknowledge in epoch {epoch}: processes {by} and {inc}"));
        }
        if epoch < self.truth.served {
            let served = self.truth.served;
            self.fail(format!("epoch {epoch} acknowledges after epoch {served} took messages in"));
        }
        self.truth.acknowledged += 1;
        self.summary.acknowledged += 1;
        if self.setup.waits_for_copies && end > self.truth.confirmed.len() {
            self.fail(format!("replica {} acknowledges {end}, which is not confirmed", node + 1));
        }
    }

    /// Consumers read at every replica, up to what is confirmed there.
    pub fn show(&mut self, node: usize) {
        let Node { process: Some(process), disk, .. } = &mut self.nodes[node] else { return };
        if process.is_astray {
            return;
        }
        let confirmed = usize::try_from(process.replica.confirmed()).unwrap();
        let shown = process.shown;
        let log = &disk.log;
        if confirmed > log.len() {
            let end = log.len();
            return self.fail(format!("replica {} has {end} of {confirmed}", node + 1));
        }
        let served = self.truth.served;
        for (at, here) in log.iter().copied().enumerate().take(confirmed).skip(shown) {
            match self.truth.confirmed.get(at) {
                // The newest master began without it, and it is confirmed only now.
                None if here.epoch < served.0 && at >= self.truth.served_from => {
                    process.is_astray = true;
                    if !self.truth.lost_a_tail && self.truth.unclean.is_empty() {
                        self.fail(format!(
                            "replica {} confirms {here:?}, which epoch {served} lacks",
                            node + 1
                        ));
                    }
                    return;
                }
                None if !self.truth.lost.contains(&here.id) => {
                    self.truth.confirmed.push(here);
                }
                Some(known) if *known == here => {}
                _ if self.truth.lost.contains(&here.id) => {
                    process.is_astray = true;
                    return;
                }
                known => {
                    let known = known.copied();
                    return self.fail(format!(
                        "replica {} shows {here:?} at {at}, where {known:?} was shown",
                        node + 1
                    ));
                }
            }
        }
        if let Some(process) = self.process(node) {
            process.shown = shown.max(confirmed);
        }
    }

    /// Somebody begins to take messages in.
    pub fn check_master(&mut self, node: usize, epoch: Epoch) {
        if epoch <= self.truth.served {
            let served = self.truth.served;
            self.fail(format!("epoch {epoch} begins after epoch {served}"));
        }
        let before = std::mem::replace(&mut self.truth.served, epoch);
        self.truth.served_from = self.nodes[node].disk.log.len();
        let has = common(&self.truth.confirmed, &self.nodes[node].disk.log);
        let lost = self.truth.confirmed.len() - has;
        let lost_before = std::mem::take(&mut self.truth.lost);
        if lost == 0 {
            return self.settle(node, lost_before);
        }
        let least = self.truth.tails.values().copied().chain(self.truth.excused).min();
        let is_excused = least.is_some_and(|excused| excused <= has);
        // An unclean appointment that nobody took up chose the set of the next one.
        let is_unclean = self.truth.unclean.iter().any(|unclean| *unclean > before);
        if is_excused || is_unclean {
            self.note(|| format!("{lost} confirmed messages are lost, and excused"));
            self.summary.excused += lost as u64;
            let lost = self.truth.confirmed.drain(has..).map(|record| record.id);
            self.truth.lost.extend(lost);
            self.truth.excused = None;
            for other in 0..self.nodes.len() {
                if let Some(process) = self.process(other) {
                    process.shown = process.shown.min(has);
                }
            }
            self.truth.unclean.insert(epoch);
            self.settle(node, lost_before);
        } else {
            let first = self.truth.confirmed[has];
            self.fail(format!(
                "replica {} is master of epoch {epoch} and lacks {lost} messages from {has} on: {first:?}",
                node + 1
            ));
        }
    }

    /// After a second loss something may be back that was lost in the first.
    fn settle(&mut self, node: usize, lost_before: BTreeSet<u64>) {
        self.truth.lost.extend(lost_before);
        for record in &self.nodes[node].disk.log {
            self.truth.lost.remove(&record.id);
        }
        // Its log is the one that counts now, whatever it showed before.
        let confirmed = self.truth.confirmed.len();
        if let Some(process) = self.process(node) {
            process.is_astray = false;
            process.shown = process.shown.min(confirmed);
        }
    }

    /// A replica finds that it cannot follow without losing what was confirmed.
    pub fn check_refusal(&mut self, node: usize, reason: &Refusal) {
        let was_lossy = !self.truth.unclean.is_empty();
        if matches!(reason, Refusal::Disorder) || !was_lossy {
            self.fail(format!("replica {} cannot follow: {reason}", node + 1));
        }
    }

    /// The record changes.
    pub fn check_write(&mut self, next: &GroupRecord, caller: Caller, reason: Option<Reason>) {
        let before = self.keeper.record.as_ref().map(|known| known.record.clone());
        if let Some(before) = before {
            let is_forward = next.epoch > before.epoch
                || (next.epoch == before.epoch
                    && next.master == before.master
                    && (next.holder.is_none()
                        || before.holder.as_ref().is_none_or(|holder| {
                            next.holder.as_ref().is_some_and(|next| {
                                next.incarnation == holder.incarnation
                                    && next.renewals > holder.renewals
                            })
                        })));
            if !is_forward {
                self.fail(format!("{caller:?} turns {before:?} into {next:?}"));
            }
            let is_new = next.epoch > before.epoch;
            if is_new && !next.master.is_some_and(|master| next.in_sync.contains(&master)) {
                self.fail(format!("{caller:?} appoints somebody outside the set: {next:?}"));
            }
            if is_new && reason != Some(Reason::Unclean) && next.in_sync != before.in_sync {
                self.fail(format!("{caller:?} appoints and changes the set: {next:?}"));
            }
        }
        self.count_members(next);
        let mut tails = std::mem::take(&mut self.truth.tails);
        tails.retain(|node, _| next.in_sync.contains(&Node::id(*node)) || self.is_believed(*node));
        self.truth.tails = tails;
        if reason == Some(Reason::Unclean) && self.setup.allow_unclean {
            self.truth.unclean.insert(next.epoch);
        }
    }

    /// After all faults: is the group whole again, in time?
    pub fn end(&mut self) {
        if self.truth.calm_since == 0 {
            let busy = self.nodes.iter().map(|node| node.disk.busy_until.max(node.paused_until));
            let busy = busy.max().unwrap_or(0);
            self.truth.calm_since = self.now.max(busy);
        }
        let waited = self.now.saturating_sub(self.truth.calm_since);
        self.truth.has_master |= self.truth.acknowledged > self.truth.acknowledged_at_calm;
        let record = self.keeper.record.as_ref().map(|known| known.record.clone());
        let members = record.as_ref().map_or(0, |record| record.in_sync.len());
        let is_excused = self.truth.excused.is_some()
            || !self.truth.unclean.is_empty()
            || self.truth.no_member_left
            || !self.truth.tails.is_empty();
        if self.truth.has_master && (members == self.nodes.len() || !self.truth.refused.is_empty())
        {
            self.has_ended = true;
        } else if waited > MASTER_WITHIN_MS && !self.truth.has_master {
            if is_excused && (self.is_blocked() || !self.truth.refused.is_empty()) {
                self.summary.blocked += 1;
                self.has_ended = true;
            } else {
                self.fail(format!(
                    "nobody acknowledges {waited} ms after the last fault: {record:?}"
                ));
            }
        } else if waited > WHOLE_WITHIN_MS {
            self.fail(format!("the set is not whole {waited} ms after the last fault: {record:?}"));
        }
        self.after(1000, Event::End);
    }
}
