//! Who keeps the record of a group: which broker is master, of which epoch, and who has everything.
//!
//! A [`Coordinator`] reads the record, says that it changed, and replaces it if it has not changed since.
//! What is written, and when, is decided by `rocketmq_replication`. Without a coordinator
//! (`coordinator=static`) there is no record: roles are those of the configuration.

mod identity;
mod kubernetes;

use std::sync::Arc;

use futures::future::BoxFuture;
use rocketmq_replication::{GroupRecord, RecordError, Versioned};

pub use identity::{Timing, replica_host, replica_id, settings};
pub use kubernetes::LeaseRecord;

/// Why a record cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum CoordinatorError {
    /// Its keeper did not answer, or answered with an error.
    #[error("the keeper of the group's record cannot be asked: {0}")]
    Unreachable(String),
    /// It is there and cannot be understood; it must not pass for none.
    #[error("the group's record {name}: {source}")]
    Damaged {
        /// What it is called.
        name: String,
        /// What is wrong with it.
        source: RecordError,
    },
}

/// How an attempt to replace the record ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// It took place; this is the record's new version.
    Written(String),
    /// It did not take place, and will not.
    Conflict,
    /// Nobody knows; the text says why.
    Unknown(String),
}

/// What stands for a keeper that the configuration names.
#[derive(Clone)]
pub struct Coordination {
    /// The keeper.
    pub coordinator: Arc<dyn Coordinator>,
    /// The times of the lease.
    pub timing: Timing,
}

/// The keeper of one group's record. None of its calls waits longer than a fraction of the time for
/// which a master relies on a renewal.
pub trait Coordinator: Send + Sync {
    /// The record as its keeper has it now, by its own word.
    ///
    /// # Errors
    /// When it cannot be read, or not understood.
    fn read(&self) -> BoxFuture<'_, Result<Option<Versioned>, CoordinatorError>>;

    /// Replaces the record if its version is still `expected`. An attempt that was not answered is not
    /// made a second time.
    fn replace<'a>(&'a self, expected: &'a str, record: &'a GroupRecord)
    -> BoxFuture<'a, Replaced>;

    /// Calls `changed` whenever there is a reason to read the record, for ever. Changes that follow
    /// each other closely may be one.
    fn watch<'a>(&'a self, changed: &'a (dyn Fn() + Send + Sync)) -> BoxFuture<'a, ()>;
}
