//! The threads of a store: committer, flusher, the one that tells whose messages are durable,
//! preallocation, index, retention, and one that does the rest from time to time.
//!
//! Owns what the threads share with the store, and their beginning and end. What they do is in
//! `commit`, `flush`, `preallocation` and `retention`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};

use crate::checkpoint::Checkpoint;
use crate::commit::Committer;
use crate::commit_log::CommitLog;
use crate::config::StoreConfig;
use crate::confirm::Confirmation;
use crate::deleted_topics::DeletedTopics;
use crate::dispatch::{ArrivalListener, Dispatcher};
use crate::error::{Refusal, StoreError};
use crate::file_watch::{self, Look};
use crate::flush::{self, Flusher, QueueFlusher};
use crate::index::{Index, NewEntry};
use crate::lock_file::AbortFile;
use crate::probe::Probe;
use crate::queue_table::QueueTable;
use crate::retention::{self, Retention};
use crate::store::Environment;
use crate::truncate::Slices;
use crate::writability::Writability;

/// How long the writer of the index waits after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// What the store's threads work on.
pub(crate) struct Parts {
    pub(crate) config: StoreConfig,
    pub(crate) environment: Environment,
    pub(crate) log: CommitLog,
    pub(crate) table: Arc<QueueTable>,
    pub(crate) dispatcher: Dispatcher,
    pub(crate) confirmation: Confirmation,
    pub(crate) slices: Arc<Slices>,
    pub(crate) probe: Probe,
    /// Held while queues, index and checkpoint are brought to disk.
    pub(crate) flushing: Mutex<()>,
    /// Who hears of arrivals.
    pub(crate) listener: RwLock<Option<Arc<dyn ArrivalListener>>>,
    pub(crate) committer: Committer,
    /// None when messages are not indexed.
    pub(crate) index: Option<Index>,
    pub(crate) flusher: Flusher,
    pub(crate) queue_flusher: QueueFlusher,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) deleted_topics: DeletedTopics,
    pub(crate) writability: Writability,
    pub(crate) retention: Retention,
    pub(crate) disk_used_percent: Mutex<f64>,
    /// Whether a sync failed and that is not noted yet.
    pub(crate) sync_failed: AtomicBool,
    /// Whether a sync ever failed. Nothing is vouched for by the checkpoint from then on: what could
    /// not be synced counts as written in memory, and later syncs would not write it either.
    pub(crate) vouches_for_nothing: AtomicBool,
    pub(crate) stop: Stop,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("root_dir", &self.config.root_dir).finish_non_exhaustive()
    }
}

/// Tells the threads to end, and lets them sleep until then.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    fn set(&self) {
        *self.stopped.lock() = true;
        self.changed.notify_all();
    }

    /// Waits; false when it is time to end.
    fn sleep(&self, duration: Duration) -> bool {
        let until = Instant::now() + duration;
        let mut stopped = self.stopped.lock();
        while !*stopped && !self.changed.wait_until(&mut stopped, until).timed_out() {}
        !*stopped
    }
}

impl Parts {
    /// Writes queues and index and moves the checkpoint; see [`QueueFlusher::flush`].
    pub(crate) fn flush_queues(&self, thorough: bool) -> Result<(), StoreError> {
        let _flushing = self.flushing.lock();
        self.note_failed_sync();
        if self.vouches_for_nothing.load(Ordering::Acquire) {
            let error = std::io::Error::other("an earlier sync failed");
            return Err(StoreError::io("flush queues in", &self.config.root_dir)(error));
        }
        self.queue_flusher.flush(self, thorough)?;
        flush::flush_index(self, thorough)?;
        if self.confirmation.is_required() {
            let confirmed = self.confirmation.visible_end().min(self.flusher.durable().0);
            self.checkpoint.update(|words| {
                words.confirm_phy_offset = words.confirm_phy_offset.max(confirmed);
            });
        }
        self.checkpoint.persist().inspect_err(|error| {
            self.refuse_after_failed_sync(error.to_string());
            tracing::error!(%error, "checkpoint cannot be written, no more messages are taken");
        })
    }

    /// Takes no more messages, since it is not known what is on disk.
    pub(crate) fn refuse_after_failed_sync(&self, reason: String) {
        self.vouches_for_nothing.store(true, Ordering::Release);
        self.writability.refuse_finally(Refusal::SyncFailed(reason));
        self.sync_failed.store(true, Ordering::Release);
        self.note_failed_sync();
    }

    /// Leaves a note for the next start, once it can be written.
    fn note_failed_sync(&self) {
        if self.sync_failed.load(Ordering::Acquire) {
            let abort = AbortFile::new(&self.config.root_dir);
            let noted = abort.distrust(&*self.environment.file_system);
            self.sync_failed.store(!noted, Ordering::Release);
        }
    }

    /// Adds entries to the index; the caller holds the dispatcher's turn.
    pub(crate) fn add_to_index(&self, entries: impl Iterator<Item = NewEntry>) {
        let Some(index) = &self.index else { return };
        if let Err(error) = index.add(entries) {
            // The entries are in memory and found; the next tick writes them or finds out again.
            self.writability.set_index(Some(Refusal::Index(error.to_string())));
        }
    }

    /// Measures the disk and refuses or allows appends.
    pub(crate) fn watch_disk(&self) {
        let file_system = &*self.environment.file_system;
        let directories = self.log.files.directories();
        let used = retention::watch_disk(file_system, &self.config, directories, &self.writability);
        *self.disk_used_percent.lock() = used * 100.0;
    }

    /// Refuses appends for good when a file of the log was changed from outside.
    pub(crate) fn watch_files(&self, look: Look) {
        if self.writability.is_final() {
            return;
        }
        let file_system = &*self.environment.file_system;
        match file_watch::changed_file(file_system, &self.log, look) {
            Ok(None) => {}
            Ok(Some(refusal)) => {
                tracing::error!(reason = %refusal, "no more messages are taken");
                self.writability.refuse_finally(refusal);
            }
            Err(error) => tracing::warn!(%error, "commit log files cannot be looked at"),
        }
    }

    /// Removes files of the log that are due; see [`retention::remove_old_files`].
    pub(crate) fn remove_old_files(&self, manual: bool) -> Result<usize, StoreError> {
        let used = *self.disk_used_percent.lock() / 100.0;
        retention::remove_old_files(self, used, manual, |interval| self.stop.sleep(interval))
    }

    /// Writes the index when there is a group to write; what comes slower the ticks write.
    fn run_index(&self) {
        let Some(index) = &self.index else { return };
        while index.wait_for_group() {
            if flush::write_index(self, index).is_err() && !self.stop.sleep(RETRY_INTERVAL) {
                return;
            }
        }
    }

    fn run_ticks(&self) {
        let interval = Duration::from_millis(self.config.flush_interval_consume_queue_ms.max(1));
        let clean = Duration::from_millis(self.config.clean_resource_interval_ms);
        let mut last_look = Instant::now();
        while self.stop.sleep(interval) {
            // A failure refuses appends and is logged where it arises.
            let _ = self.flush_queues(false);
            let due = last_look.elapsed() >= clean;
            self.watch_files(if due { Look::All } else { Look::Newest });
            if due {
                last_look = Instant::now();
                self.watch_disk();
            }
        }
    }

    /// On a thread of its own: it pauses between files, and many queues have many.
    fn run_retention(&self) {
        let interval = Duration::from_millis(self.config.clean_resource_interval_ms.max(1));
        while self.stop.sleep(interval) {
            if let Err(error) = self.remove_old_files(false) {
                tracing::warn!(%error, "old files could not be removed");
            }
        }
    }
}

/// The threads.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    running: Mutex<Vec<JoinHandle<()>>>,
}

impl Threads {
    /// Starts all.
    ///
    /// # Errors
    /// When the system has no thread to give; those that run are ended by [`Threads::end`].
    pub(crate) fn start(&self, parts: &Arc<Parts>) -> Result<(), StoreError> {
        type Body = fn(&Parts);
        parts.flusher.expect_teller();
        let threads: [(&str, Body); 7] = [
            ("store-commit", |parts| parts.committer.run(parts)),
            ("store-flush", |parts| parts.flusher.run(parts)),
            ("store-tell", |parts| parts.flusher.run_teller()),
            ("store-allocate", |parts| parts.log.preallocation.run(&parts.log.files)),
            ("store-retention", Parts::run_retention),
            ("store-index", Parts::run_index),
            ("store-tick", Parts::run_ticks),
        ];
        for (name, run) in threads {
            let shared = Arc::clone(parts);
            let thread = std::thread::Builder::new().name(name.to_owned());
            match thread.spawn(move || run(&shared)) {
                Ok(thread) => self.running.lock().push(thread),
                Err(error) => {
                    self.end(parts);
                    return Err(StoreError::io("start threads for", &parts.config.root_dir)(error));
                }
            }
        }
        Ok(())
    }

    /// Ends all and waits for them. A second call does nothing.
    pub(crate) fn end(&self, parts: &Parts) {
        parts.stop.set();
        parts.committer.stop();
        parts.flusher.stop();
        parts.log.preallocation.stop();
        if let Some(index) = &parts.index {
            index.stop();
        }
        for thread in std::mem::take(&mut *self.running.lock()) {
            // The last owner of the store may be a callback that one of them called.
            if thread.thread().id() != std::thread::current().id() {
                // A panic was reported by the thread itself.
                let _ = thread.join();
            }
        }
    }
}
