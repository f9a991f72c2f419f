//! Who follows a master, how far each is, and who of them should be in the in-sync set.

use std::collections::{BTreeMap, BTreeSet};

use super::{Next, Replica, State};
use crate::{LinkId, Millis, Output, Refusal, ReplicaId, Settings};

/// How many pings back an answer still counts.
const PINGS_KEPT: usize = 16;

/// The slaves of a master.
#[derive(Debug, Default)]
pub(super) struct Slaves {
    of: BTreeMap<ReplicaId, Slave>,
    /// Pings and when they were sent, oldest first.
    pings: Vec<(u64, Millis)>,
}

#[derive(Debug)]
struct Slave {
    /// None when it is not connected.
    link: Option<LinkId>,
    /// It has everything in front of this.
    has: i64,
    /// A moment whose whole log it has by now.
    level_at: Millis,
    /// A moment, and where the log ended then.
    mark: (Millis, i64),
    /// It answered a frame on this connection, so its epoch file has this epoch.
    has_answered: bool,
    is_learner: bool,
    /// Is waited for, though nothing was written: it is about to join the set.
    is_joining: bool,
    /// Should be in the set.
    is_wanted: bool,
    /// When its connection ended, or this reign began without one.
    left_at: Millis,
    /// Until when it will not become master.
    promised: Millis,
}

impl Slaves {
    fn by_link(&mut self, link: LinkId) -> Option<&mut Slave> {
        self.of.values_mut().find(|slave| slave.link == Some(link))
    }

    pub(super) fn has_promised(&self, id: ReplicaId, now: Millis) -> bool {
        self.of.get(&id).is_some_and(|slave| slave.link.is_some() && now < slave.promised)
    }

    /// A connected slave's end, or what it had when it left.
    pub(super) fn has(&self, id: ReplicaId) -> Option<i64> {
        self.of.get(&id).map(|slave| slave.has)
    }

    pub(super) fn is_connected(&self, id: ReplicaId) -> bool {
        self.of.get(&id).is_some_and(|slave| slave.link.is_some())
    }

    /// Notes a ping and returns to whom it goes.
    pub(super) fn ping(&mut self, number: u64, now: Millis) -> Vec<LinkId> {
        let links: Vec<LinkId> = self.of.values().filter_map(|slave| slave.link).collect();
        if !links.is_empty() {
            if self.pings.len() == PINGS_KEPT {
                self.pings.remove(0);
            }
            self.pings.push((number, now));
        }
        links
    }

    /// An answer counts from when the ping was sent, and a tenth less than what was promised: the
    /// slave's clock may be faster.
    pub(super) fn pong(&mut self, link: LinkId, number: u64, promise_ms: u64) {
        let sent = self.pings.iter().find(|(ping, _)| *ping == number).map(|(_, sent)| *sent);
        if let (Some(sent), Some(slave)) = (sent, self.by_link(link)) {
            slave.promised = slave.promised.max(sent.after(promise_ms / 10 * 9));
        }
    }

    /// The set as it should be.
    pub(super) fn members(
        &self,
        recorded: &BTreeSet<ReplicaId>,
        me: ReplicaId,
    ) -> BTreeSet<ReplicaId> {
        let stay =
            recorded.iter().filter(|id| self.of.get(id).is_some_and(|slave| slave.is_wanted));
        let join = self.of.iter().filter(|(_, slave)| slave.is_wanted).map(|(id, _)| id);
        stay.chain(join).copied().chain([me]).collect()
    }

    /// Who is waited for without being in the set.
    fn joining(&self) -> impl Iterator<Item = ReplicaId> + '_ {
        self.of.iter().filter(|(_, slave)| slave.is_joining).map(|(id, _)| *id)
    }

    pub(super) fn deadlines(&self, settings: &Settings, next: &mut Next) {
        for slave in self.of.values() {
            if slave.link.is_some() {
                next.add(slave.level_at.after(settings.catch_up_ms));
                next.add(slave.level_at.after(settings.retry_ms));
                next.add(slave.promised);
            } else {
                next.add(slave.left_at.after(settings.retry_ms));
            }
        }
    }
}

impl Replica {
    pub(super) fn slave_joined(
        &mut self,
        link: LinkId,
        replica: ReplicaId,
        end: i64,
        is_learner: bool,
        out: &mut Vec<Output>,
    ) {
        let (now, log_end, confirmed) = (self.now, self.log_end, self.confirmed);
        let (epoch, me) = (self.epoch(), self.settings.id);
        let counts = self.effective().contains(&replica);
        let reign = match &mut self.state {
            State::Reigning(reign) if reign.is_serving => reign,
            _ => return out.push(Output::Refuse { link, reason: Refusal::NoMaster(epoch) }),
        };
        if replica == me {
            return out.push(Output::Refuse { link, reason: Refusal::OwnId(replica) });
        }
        let old = reign.slaves.of.get(&replica);
        if let Some(link) = old.and_then(|slave| slave.link) {
            out.push(Output::Refuse { link, reason: Refusal::Replaced(replica) });
        }
        let is_lost = counts && end < confirmed;
        let slave = Slave {
            link: (!is_lost).then_some(link),
            has: end,
            // A stranger has to reach first what was there when it came.
            level_at: old.map_or(Millis(0), |slave| slave.level_at),
            mark: (now, log_end),
            has_answered: false,
            is_learner,
            is_joining: false,
            is_wanted: counts && !is_lost && old.is_some_and(|slave| slave.is_wanted),
            left_at: now,
            promised: Millis(0),
        };
        reign.slaves.of.insert(replica, slave);
        if is_lost {
            let reason = Refusal::Lost { replica, said: end, confirmed };
            out.push(Output::Refuse { link, reason });
        }
    }

    pub(super) fn slave_has(&mut self, link: LinkId, end: i64) {
        let (now, log_end) = (self.now, self.log_end);
        let State::Reigning(reign) = &mut self.state else { return };
        let Some(slave) = reign.slaves.by_link(link) else { return };
        slave.has_answered = true;
        slave.has = slave.has.max(end);
        if slave.has >= log_end {
            slave.level_at = now;
        } else if slave.has >= slave.mark.1 {
            slave.level_at = slave.level_at.max(slave.mark.0);
        }
        if slave.has >= slave.mark.1 {
            slave.mark = (now, log_end);
        }
    }

    pub(super) fn slave_left(&mut self, link: LinkId) {
        let now = self.now;
        let State::Reigning(reign) = &mut self.state else { return };
        if let Some(slave) = reign.slaves.by_link(link) {
            slave.link = None;
            slave.left_at = now;
            slave.promised = Millis(0);
            slave.is_joining = false;
        }
    }

    /// Decides who should be in the set. Whoever is about to join is waited for first, so that it has
    /// everything that is confirmed when the record is written.
    pub(super) fn consider_slaves(&mut self) {
        let (now, confirmed) = (self.now, self.confirmed);
        let (retry_ms, catch_up_ms) = (self.settings.retry_ms, self.settings.catch_up_ms);
        let effective = self.effective();
        let State::Reigning(reign) = &mut self.state else { return };
        // Whoever connects says who it is, and anybody may.
        reign.slaves.of.retain(|id, slave| slave.link.is_some() || effective.contains(id));
        for (id, slave) in &mut reign.slaves.of {
            let is_level = |within: u64| now < slave.level_at.after(within);
            if effective.contains(id) {
                slave.is_joining = false;
                slave.is_wanted &= match slave.link {
                    Some(_) => is_level(catch_up_ms),
                    None => now < slave.left_at.after(retry_ms),
                };
            } else {
                let may = slave.link.is_some() && slave.has_answered && !slave.is_learner;
                slave.is_joining = may && is_level(retry_ms);
                slave.is_wanted = slave.is_joining && slave.has >= confirmed;
            }
        }
    }

    pub(super) fn confirm_as_master(&mut self, out: &mut Vec<Output>) {
        let State::Reigning(reign) = &self.state else { return };
        if !reign.is_serving {
            return;
        }
        let effective = self.effective();
        // Somebody else may be master by now, and may lack what a member had when it said so, if
        // flushing is asynchronous and the power went.
        if !self.holds_out(reign, &effective, self.now) {
            return;
        }
        let needed = effective.into_iter().chain(reign.slaves.joining());
        let others = needed.filter(|id| *id != self.settings.id);
        // Whoever is in the set and was never here since the reign began has nothing.
        let least = others.map(|id| reign.slaves.has(id).unwrap_or(0)).min();
        let up_to = least.map_or(self.log_end, |least| least.min(self.log_end));
        self.confirm(up_to, out);
    }
}
