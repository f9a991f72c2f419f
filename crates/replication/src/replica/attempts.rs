//! Writes of the record whose outcome is not known: they may have landed, or may land later.
//!
//! All of them are conditional on one version, the one that was last read, so that at most one can
//! ever land, and none once the record has another version. What counts is therefore the union of
//! what they would do.

use std::collections::BTreeSet;

use crate::{Attempt, GroupRecord, Millis, ReplicaId};

/// A write that was asked for.
#[derive(Clone, Debug)]
pub(super) struct Tried {
    pub attempt: Attempt,
    pub record: GroupRecord,
    pub sent: Millis,
}

/// What writes on the version that was last read may do.
#[derive(Clone, Debug, Default)]
pub(super) struct Attempts {
    /// The one whose outcome was not told yet.
    waiting: Option<Tried>,
    /// Those of which nobody knows.
    open: Possible,
    /// The record has changed, or may have, since it was last read.
    is_stale: bool,
}

/// What may come of writes.
#[derive(Clone, Debug, Default)]
pub(super) struct Possible {
    /// Everybody whom one of them puts into the in-sync set.
    members: BTreeSet<ReplicaId>,
    /// Whether one of them takes the lease from who wrote it.
    leaves: bool,
    /// What they would make the count of renewals, and when the first was asked for.
    renewal: Option<(u64, Millis)>,
}

impl Possible {
    fn add(&mut self, tried: &Tried) {
        self.members.extend(&tried.record.in_sync);
        match &tried.record.holder {
            None => self.leaves = true,
            Some(holder) => {
                self.renewal.get_or_insert((holder.renewals, tried.sent));
            }
        }
    }

    /// When the write was asked for that made the count of renewals what it is.
    pub(super) fn sent(&self, renewals: u64) -> Option<Millis> {
        self.renewal.filter(|(count, _)| *count == renewals).map(|(_, sent)| sent)
    }
}

impl Attempts {
    pub(super) fn begin(&mut self, tried: Tried) {
        self.waiting = Some(tried);
    }

    /// Whether another write may be asked for.
    pub(super) fn may_write(&self) -> bool {
        self.waiting.is_none() && !self.is_stale
    }

    /// Whether the record has to be read.
    pub(super) fn needs_read(&self) -> bool {
        self.is_stale || (self.waiting.is_none() && self.has_open())
    }

    fn has_open(&self) -> bool {
        self.open.leaves || self.open.renewal.is_some()
    }

    /// The write took place: none of the others can.
    pub(super) fn written(&mut self, attempt: Attempt) -> Option<Tried> {
        let tried = self.waiting.take_if(|tried| tried.attempt == attempt)?;
        *self = Attempts::default();
        Some(tried)
    }

    /// The write will never take place. That is no word on those before it: one of them may be the
    /// reason.
    pub(super) fn conflict(&mut self, attempt: Attempt) -> bool {
        let is_ours = self.waiting.take_if(|tried| tried.attempt == attempt).is_some();
        self.is_stale |= is_ours;
        is_ours
    }

    pub(super) fn unknown(&mut self, attempt: Attempt) -> bool {
        match self.waiting.take_if(|tried| tried.attempt == attempt) {
            None => false,
            Some(tried) => {
                self.open.add(&tried);
                true
            }
        }
    }

    /// The record was read and has the version that it had. Says whether that is odd: a write was
    /// refused since.
    pub(super) fn read_again(&mut self) -> bool {
        std::mem::take(&mut self.is_stale)
    }

    /// The record was read and has another version: whatever was tried has landed, and shows, or
    /// never will. Returns what it may have done.
    pub(super) fn resolved(&mut self) -> Possible {
        let mut possible = std::mem::take(self);
        if let Some(tried) = &possible.waiting {
            possible.open.add(tried);
        }
        possible.open
    }

    /// Who may be in the recorded set by now, besides those who were.
    pub(super) fn members(&self) -> impl Iterator<Item = ReplicaId> + '_ {
        let waiting = self.waiting.iter().flat_map(|tried| &tried.record.in_sync);
        self.open.members.iter().chain(waiting).copied()
    }

    /// Whether the lease may be somebody else's by now, through a write of our own.
    pub(super) fn may_have_left(&self) -> bool {
        self.open.leaves || self.waiting.as_ref().is_some_and(|tried| tried.record.holder.is_none())
    }
}
