//! Whose messages the store takes: clients', another log's, or nobody's.
//!
//! Owns the switch between them while the store is open. Whoever turns it takes the append lock, so
//! that nothing is on its way into the log from the other side once the call returns.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::error::Refusal;
use crate::store::Store;

/// What is taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Messages,
    Copies,
    Nothing,
}

/// What is taken in now.
#[derive(Debug)]
pub(crate) struct Intake(AtomicU8);

impl Intake {
    /// Messages are.
    pub(crate) fn new() -> Intake {
        Intake(AtomicU8::new(Takes::Messages as u8))
    }

    fn takes(&self) -> Takes {
        match self.0.load(Ordering::Acquire) {
            0 => Takes::Messages,
            1 => Takes::Copies,
            _ => Takes::Nothing,
        }
    }

    /// Whether messages of its own may be appended.
    pub(crate) fn check_messages(&self) -> Result<(), Refusal> {
        match self.takes() {
            Takes::Messages => Ok(()),
            Takes::Copies => Err(Refusal::Copy),
            Takes::Nothing => Err(Refusal::Paused),
        }
    }

    /// Whether bytes of another log may be appended.
    pub(crate) fn check_copies(&self) -> Result<(), Refusal> {
        match self.takes() {
            Takes::Copies => Ok(()),
            Takes::Messages => Err(Refusal::NoCopy),
            Takes::Nothing => Err(Refusal::Paused),
        }
    }
}

impl Store {
    /// From now on messages come from another log by [`Store::append_copy`] alone; appending them is
    /// refused with [`Refusal::Copy`]. What waits in the write buffer of `transientStorePoolEnable` is
    /// in the log when this returns, as far as it can be written.
    pub fn take_copies_only(&self) {
        self.turn_to(Takes::Copies);
        // A failure is told where it arises; `truncate_to` and `take_messages` drop what is left.
        let _ = self.parts.commit(0);
    }

    /// From now on nothing is taken in: appends of either kind are refused with [`Refusal::Paused`].
    pub fn take_nothing(&self) {
        self.turn_to(Takes::Nothing);
    }

    /// From now on messages are taken, and copies are refused with [`Refusal::NoCopy`]. Each queue
    /// goes on behind the newest message that it has.
    pub fn take_messages(&self) {
        let appender = self.parts.log.lock();
        // Copies bring their queue offsets with them, so nobody has counted. Messages in the write
        // buffer are counted, and in no queue yet.
        if self.parts.log.uncommitted_bytes(&appender) == 0 {
            let turn = self.parts.dispatcher.turn();
            for queue in self.parts.table.snapshot() {
                queue.set_next_offset(queue.max_offset());
            }
            drop(turn);
        }
        self.intake.0.store(Takes::Messages as u8, Ordering::Release);
        drop(appender);
    }

    fn turn_to(&self, takes: Takes) {
        let appender = self.parts.log.lock();
        self.intake.0.store(takes as u8, Ordering::Release);
        drop(appender);
    }
}
