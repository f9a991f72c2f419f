//! Whether the store takes messages, and if not, why.
//!
//! Reasons that pass are lifted by whoever set them; a failed sync or write is final until the
//! store is opened again.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::error::Refusal;

#[derive(Debug, Default)]
struct Reasons {
    last_word: Option<Refusal>,
    disk: Option<Refusal>,
    consume_queue: Option<Refusal>,
    commit: Option<Refusal>,
    index: Option<Refusal>,
}

impl Reasons {
    /// The weightiest.
    fn first(&self) -> Option<&Refusal> {
        let Reasons { last_word, disk, consume_queue, commit, index } = self;
        let reasons = [last_word, commit, disk, consume_queue, index];
        reasons.into_iter().find_map(Option::as_ref)
    }
}

/// The reasons against writing.
#[derive(Debug, Default)]
pub(crate) struct Writability {
    refused: AtomicBool,
    reasons: Mutex<Reasons>,
}

impl Writability {
    /// Whether an append may go on. Costs one load when it may.
    ///
    /// # Errors
    /// The weightiest reason against it.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        if !self.refused.load(Ordering::Acquire) {
            return Ok(());
        }
        match self.reasons.lock().first() {
            Some(refusal) => Err(refusal.clone()),
            None => Ok(()),
        }
    }

    fn change(&self, change: impl FnOnce(&mut Reasons)) {
        let mut reasons = self.reasons.lock();
        change(&mut reasons);
        self.refused.store(reasons.first().is_some(), Ordering::Release);
    }

    /// Refuses for good. The first such reason stays.
    pub(crate) fn refuse_finally(&self, refusal: Refusal) {
        self.change(|reasons| {
            if reasons.last_word.is_none() {
                reasons.last_word = Some(refusal);
            }
        });
    }

    /// Whether writing is refused for good.
    pub(crate) fn is_final(&self) -> bool {
        self.reasons.lock().last_word.is_some()
    }

    /// Why writing is refused for good, if it is.
    pub(crate) fn last_word(&self) -> Option<Refusal> {
        self.reasons.lock().last_word.clone()
    }

    /// Sets or lifts the reason of a full disk. True if that changed whether there is one.
    pub(crate) fn set_disk(&self, refusal: Option<Refusal>) -> bool {
        let mut changed = false;
        self.change(|reasons| {
            changed = reasons.disk.is_some() != refusal.is_some();
            reasons.disk = refusal;
        });
        changed
    }

    /// Sets or lifts the reason of a write buffer that cannot be committed. True if that changed
    /// whether there is one.
    pub(crate) fn set_commit(&self, refusal: Option<Refusal>) -> bool {
        let mut changed = false;
        self.change(|reasons| {
            changed = reasons.commit.is_some() != refusal.is_some();
            reasons.commit = refusal;
        });
        changed
    }

    /// Sets or lifts the reason of an unwritable ConsumeQueue. True if that changed whether there
    /// is one.
    pub(crate) fn set_consume_queue(&self, refusal: Option<Refusal>) -> bool {
        let mut changed = false;
        self.change(|reasons| {
            changed = reasons.consume_queue.is_some() != refusal.is_some();
            reasons.consume_queue = refusal;
        });
        changed
    }

    /// Sets or lifts the reason of an unwritable index. True if that changed whether there is one.
    pub(crate) fn set_index(&self, refusal: Option<Refusal>) -> bool {
        let mut changed = false;
        self.change(|reasons| {
            changed = reasons.index.is_some() != refusal.is_some();
            reasons.index = refusal;
        });
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passing_reasons_are_lifted_and_final_ones_stay() {
        let writability = Writability::default();
        assert_eq!(writability.check(), Ok(()));
        assert!(writability.set_consume_queue(Some(Refusal::ConsumeQueue("full".to_owned()))));
        assert!(writability.check().is_err());
        assert!(writability.set_index(Some(Refusal::Index("full".to_owned()))));
        assert!(writability.set_consume_queue(None));
        assert_eq!(writability.check(), Err(Refusal::Index("full".to_owned())));
        assert!(writability.set_index(None));
        assert_eq!(writability.check(), Ok(()));
        writability.refuse_finally(Refusal::SyncFailed("EIO".to_owned()));
        writability.refuse_finally(Refusal::ShutDown);
        assert!(!writability.set_disk(None));
        assert_eq!(writability.check(), Err(Refusal::SyncFailed("EIO".to_owned())));
        assert!(writability.is_final());
    }
}
