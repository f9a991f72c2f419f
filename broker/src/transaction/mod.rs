//! Transactions: half messages, decisions and checks (RocketMQ's `TransactionalMessageServiceImpl`).
//!
//! A message with TRAN_MSG=true is stored in RMQ_SYS_TRANS_HALF_TOPIC, queue 0, and remembers where it
//! was sent to (`half`). The producer's decision, END_TRANSACTION, stores it there or not, and is noted
//! as an op message in RMQ_SYS_TRANS_OP_HALF_TOPIC whose body lists the queue offsets of decided half
//! messages (`decisions`). A thread (`service`) goes through the half topic in rounds and asks a
//! producer of the group about what nobody decided (`round`); `checker` knows which half messages are
//! settled. How far both topics are done is kept as consumer offsets of a group of its own
//! (`progress`), so that a Java broker goes on where this one stopped, and the other way round.

mod bridge;
mod checker;
mod counts;
mod decisions;
pub mod half;
mod progress;
mod round;
mod service;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) use bridge::{op_bytes_max, write_decisions};
pub use counts::HalfCounts;
pub use decisions::{Deciding, Decisions};
pub use progress::Progress;
pub use service::CheckService;

use crate::metadata::persist::MetadataError;

/// What the handlers and the check service share.
#[derive(Debug)]
pub struct Transactions {
    /// Decisions that are not in the op topic yet.
    pub decisions: Decisions,
    /// Undecided half messages by topic, for people.
    pub counts: HalfCounts,
    /// How far both topics are done.
    pub progress: Progress,
    /// Counts the checks sent, so that the producers of a group take turns.
    checks: AtomicUsize,
}

impl Transactions {
    /// Loads what the directory `config` knows of transactions.
    ///
    /// # Errors
    /// When a file and its previous version are damaged.
    pub fn load(config_dir: &Path) -> Result<Transactions, MetadataError> {
        Ok(Transactions {
            decisions: Decisions::default(),
            counts: HalfCounts::load(config_dir)?,
            progress: Progress::default(),
            checks: AtomicUsize::new(0),
        })
    }

    /// Forgets what this broker did as a master at an earlier time: another one went on meanwhile.
    pub(crate) fn begin_anew(&self) {
        self.decisions.begin_anew();
        self.progress.clear();
    }

    fn next_check(&self) -> usize {
        self.checks.fetch_add(1, Ordering::Relaxed)
    }
}
