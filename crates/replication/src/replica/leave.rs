//! Handing over to another replica, and giving the lease back.

use super::reign::Reign;
use super::{Replica, State};
use crate::{Epoch, GroupRecord, Millis, ReplicaId};

/// How long a master waits, fenced, for the one that it hands over to, in milliseconds.
pub const HANDOVER_MS: u64 = 5000;

/// A master is about to cease to be one. It acknowledges nothing meanwhile.
#[derive(Debug)]
pub(super) struct Leave {
    /// To whom; to nobody if there is none who has everything.
    to: Option<ReplicaId>,
    /// When it stops waiting.
    pub until: Millis,
    /// It goes in any case.
    is_release: bool,
}

impl Replica {
    pub(super) fn release(&mut self) {
        let until = self.now.after(HANDOVER_MS);
        let me = self.settings.id;
        let members = self.in_sync().clone();
        match &mut self.state {
            State::Reigning(reign) => {
                let slaves = &reign.slaves;
                let connected = members.into_iter().filter(|id| slaves.is_connected(*id));
                // Of equals the first: the lowest id.
                let to = connected
                    .filter(|id| *id != me)
                    .max_by_key(|id| (slaves.has(*id), std::cmp::Reverse(*id)));
                reign.leave = Some(Leave { to, until, is_release: true });
            }
            // The lease may be ours already by a write that nobody knows about; if it is, it is
            // found to be unused, like that of a process that died.
            State::TakingOver(take_over) => {
                self.declined = take_over.epoch;
                self.state = State::Waiting;
            }
            State::Waiting | State::Following(_) => {}
        }
    }

    /// Begins to hand over if the record asks for it, and stops waiting when it has been long enough.
    pub(super) fn consider_leaving(&mut self) {
        let (now, me) = (self.now, self.settings.id);
        let Some(known) = self.record.as_ref().map(|versioned| &versioned.record) else { return };
        let State::Reigning(reign) = &mut self.state else { return };
        let target = known.handover.filter(|_| reign.is_serving);
        if let Some(to) = target
            && reign.leave.is_none()
            && reign.aborted.is_none()
        {
            let can = to != me && known.in_sync.contains(&to) && !known.fenced.contains(&to);
            if can {
                let until = now.after(HANDOVER_MS);
                reign.leave = Some(Leave { to: Some(to), until, is_release: false });
            } else {
                reign.aborted = Some(to);
            }
        }
        if let Some(leave) = &mut reign.leave
            && now >= leave.until
        {
            if leave.is_release {
                leave.to = None;
            } else {
                reign.aborted = leave.to;
                reign.leave = None;
            }
        }
    }

    /// The record by which it leaves, once it may.
    pub(super) fn wish_to_leave(&self, reign: &Reign, known: &GroupRecord) -> Option<GroupRecord> {
        let leave = reign.leave.as_ref()?;
        let gone = GroupRecord { holder: None, handover: None, vacated: true, ..known.clone() };
        let Some(to) = leave.to else { return Some(gone) };
        let is_level = known.in_sync.contains(&to)
            && reign.slaves.is_connected(to)
            && reign.slaves.has(to).is_some_and(|has| has >= self.log_end)
            && self.confirmed >= self.log_end;
        let epoch = Epoch(known.epoch.0.saturating_add(1));
        is_level.then_some(GroupRecord { epoch, master: Some(to), ..gone })
    }
}
