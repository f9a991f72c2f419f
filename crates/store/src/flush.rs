//! Making the log, the queues and the index durable.
//!
//! One flusher syncs the log: waiters that came meanwhile form a group and share one sync. Another
//! thread tells those of the group in front, so that the next sync does not wait for all of that: to
//! wake a waiter can take longer than its share of a sync. It begins once as many wait as are still
//! to be told: at once, groups would be small, as those who are told come back with more; once all
//! are told, the disk would be idle meanwhile. A failed sync is final, since the kernel may have dropped the pages it could not write: the store then
//! refuses appends, and no sync is tried again until the directory was recovered.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::background::Parts;
use crate::commit_log::{Appender, CommitLog};
use crate::consume_queue::ConsumeQueue;
use crate::error::{Refusal, StoreError};
use crate::index::Index;
use crate::mapped_file_queue::MappedFile;
use crate::offset::{Durable, Published};
use crate::probe::ProbeError;

/// Pages in which RocketMQ counts what is not synced yet.
const PAGE_BYTES: u64 = 4096;

/// What a waiter is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DurableOutcome {
    /// The messages survive a loss of power.
    Durable,
    /// It is not known what survives; why.
    Failed(String),
}

/// What a waiter leaves to be called.
pub(crate) type DurableCallback = Box<dyn FnOnce(DurableOutcome) + Send>;

/// Those whose messages are durable and who do not know yet.
#[derive(Default)]
struct Served {
    callbacks: Vec<DurableCallback>,
    /// Whether the teller runs.
    has_teller: bool,
    /// Whether the flusher has ended, so that no more come.
    is_last: bool,
}

#[derive(Default)]
struct Waiters {
    waiting: Vec<(i64, DurableCallback)>,
    nudged: bool,
    stopped: bool,
    failed: Option<String>,
}

/// The one that syncs the log.
pub(crate) struct Flusher {
    durable: Published<Durable>,
    waiters: Mutex<Waiters>,
    wake: Condvar,
    /// Bounded by the number of those who wait. The teller takes all at once.
    served: Mutex<Served>,
    tell: Condvar,
    /// How many of those have not been told.
    untold: AtomicUsize,
    /// Held during a sync: there is one at a time.
    turn: Mutex<()>,
}

impl fmt::Debug for Flusher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flusher").field("durable", &self.durable).finish_non_exhaustive()
    }
}

impl Flusher {
    pub(crate) fn new() -> Flusher {
        Flusher {
            durable: Published::new(Durable(0)),
            waiters: Mutex::default(),
            wake: Condvar::new(),
            served: Mutex::default(),
            tell: Condvar::new(),
            untold: AtomicUsize::new(0),
            turn: Mutex::new(()),
        }
    }

    pub(crate) fn durable(&self) -> Durable {
        self.durable.get()
    }

    /// Sets what is durable, once, after recovery.
    pub(crate) fn begin_at(&self, end: i64) {
        self.durable.publish(Durable(end));
    }

    /// Calls `callback` once everything in front of `end` is durable: now, if it is already, else
    /// from another thread of the store.
    pub(crate) fn on_durable(&self, end: i64, callback: DurableCallback) {
        let mut waiters = self.waiters.lock();
        if let Some(reason) = &waiters.failed {
            let reason = reason.clone();
            drop(waiters);
            return callback(DurableOutcome::Failed(reason));
        }
        if self.durable.get().0 >= end {
            drop(waiters);
            return callback(DurableOutcome::Durable);
        }
        waiters.waiting.push((end, callback));
        self.wake_for_group(waiters);
    }

    /// Whether those who wait are enough to be served.
    fn is_group(&self, waiters: &Waiters) -> bool {
        let waiting = waiters.waiting.len();
        waiting > 0 && waiting >= self.untold.load(Ordering::Acquire)
    }

    fn wake_for_group(&self, waiters: MutexGuard<'_, Waiters>) {
        let is_group = self.is_group(&waiters);
        drop(waiters);
        if is_group {
            self.wake.notify_one();
        }
    }

    /// Keeps syncs from beginning, after the one that runs.
    pub(crate) fn take_turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// The log was cut: it is durable to `end` at most. Gives the waiters for what went, to be told so
    /// without locks.
    pub(crate) fn log_was_cut(&self, _turn: &MutexGuard<'_, ()>, end: i64) -> Vec<DurableCallback> {
        self.durable.publish(Durable(end.min(self.durable.get().0)));
        let mut waiters = self.waiters.lock();
        let (gone, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut waiters.waiting).into_iter().partition(|(wanted, _)| *wanted > end);
        waiters.waiting = waiting;
        gone.into_iter().map(|(_, callback)| callback).collect()
    }

    /// Wakes the flusher before its interval is over.
    pub(crate) fn nudge(&self) {
        self.waiters.lock().nudged = true;
        self.wake.notify_one();
    }

    /// Ends [`Flusher::run`].
    pub(crate) fn stop(&self) {
        self.waiters.lock().stopped = true;
        self.wake.notify_one();
    }

    /// Syncs what was written so far and calls the waiters it serves.
    ///
    /// # Errors
    /// When a sync failed, now or earlier.
    pub(crate) fn flush(&self, parts: &Parts) -> Result<(), Refusal> {
        for callback in self.sync_group(parts)? {
            callback(DurableOutcome::Durable);
        }
        Ok(())
    }

    /// Syncs what was written so far. Returns the waiters whom that serves; after an error they were
    /// told.
    fn sync_group(&self, parts: &Parts) -> Result<Vec<DurableCallback>, Refusal> {
        let Parts { log, checkpoint, .. } = parts;
        let turn = self.turn.lock();
        let mut group = {
            let mut waiters = self.waiters.lock();
            let group = std::mem::take(&mut waiters.waiting);
            if let Some(reason) = waiters.failed.clone() {
                drop((waiters, turn));
                for (_, callback) in group {
                    callback(DurableOutcome::Failed(reason.clone()));
                }
                return Err(Refusal::SyncFailed(reason));
            }
            group
        };
        // In this order: the end covers every message up to this time.
        let timestamp_ms = log.timestamp_ms();
        let end = log.written().0;
        let from = self.durable.get().0;
        if let Err(error) = sync_files(log, from, end) {
            let reason = error.to_string();
            parts.refuse_after_failed_sync(reason.clone());
            let mut waiters = self.waiters.lock();
            waiters.failed = Some(reason.clone());
            group.append(&mut waiters.waiting);
            drop(waiters);
            drop(turn);
            tracing::error!(%error, "sync of the commit log failed, no more messages are taken");
            for (_, callback) in group {
                callback(DurableOutcome::Failed(reason.clone()));
            }
            return Err(Refusal::SyncFailed(reason));
        }
        self.durable.publish(Durable(end));
        checkpoint.update(|words| {
            words.physic_msg_timestamp_ms = words.physic_msg_timestamp_ms.max(timestamp_ms);
        });
        drop(turn);
        let mut served = Vec::with_capacity(group.len());
        for (wanted, callback) in group {
            if wanted <= end {
                served.push(callback);
            } else {
                // Only for someone who waits for what is not even written.
                self.waiters.lock().waiting.push((wanted, callback));
            }
        }
        Ok(served)
    }

    /// Lets the teller call these, or calls them if there is none.
    fn hand_over(&self, callbacks: Vec<DurableCallback>) {
        let mut served = self.served.lock();
        if served.has_teller {
            self.untold.fetch_add(callbacks.len(), Ordering::AcqRel);
            served.callbacks.extend(callbacks);
            drop(served);
            self.tell.notify_one();
            return;
        }
        drop(served);
        for callback in callbacks {
            callback(DurableOutcome::Durable);
        }
    }

    /// Lets [`Flusher::run_teller`] be counted on. To be called before any of the threads runs.
    pub(crate) fn expect_teller(&self) {
        self.served.lock().has_teller = true;
    }

    /// Calls those whom the flusher serves, until that has ended.
    pub(crate) fn run_teller(&self) {
        let mut served = self.served.lock();
        loop {
            let callbacks = std::mem::take(&mut served.callbacks);
            if callbacks.is_empty() {
                if served.is_last {
                    return;
                }
                self.tell.wait(&mut served);
                continue;
            }
            drop(served);
            for callback in callbacks {
                callback(DurableOutcome::Durable);
                self.untold.fetch_sub(1, Ordering::AcqRel);
                self.wake_for_group(self.waiters.lock());
            }
            served = self.served.lock();
        }
    }

    /// Ends [`Flusher::run_teller`] once it has called all.
    fn end_teller(&self) {
        self.served.lock().is_last = true;
        self.tell.notify_one();
    }

    /// Makes durable what the wipe after a failed write left, for the holder of the append lock,
    /// before anything is written in its place: a crash could otherwise bring back records of the
    /// failed write, or mix them with those that came instead.
    pub(crate) fn sync_wiped(&self, parts: &Parts, appender: &Appender) {
        // One sync at a time: a failure is told only once.
        let turn = self.turn.lock();
        if self.waiters.lock().failed.is_some() {
            return;
        }
        let Err(error) = parts.log.sync_current(appender) else { return };
        self.note_failure(parts, turn, &error);
    }

    /// Syncs a file of the log for the proof that it can be. A failure is final like any other: the
    /// system tells it once.
    pub(crate) fn prove(
        &self,
        parts: &Parts,
        file: &MappedFile,
        deadline: Instant,
    ) -> Result<(), ProbeError> {
        let turn = self.turn.try_lock_until(deadline);
        let turn = turn.ok_or(ProbeError::Stuck("a sync of the log has not ended"))?;
        if let Some(reason) = &self.waiters.lock().failed {
            return Err(Refusal::SyncFailed(reason.clone()).into());
        }
        let synced = file.file().sync_data().map_err(StoreError::io("sync", file.path()));
        let Err(error) = synced else { return Ok(()) };
        self.note_failure(parts, turn, &error);
        Err(error.into())
    }

    /// Notes that a sync failed which nobody waited for.
    fn note_failure(&self, parts: &Parts, turn: MutexGuard<'_, ()>, error: &StoreError) {
        // Those who wait are told by the next flush, without locks of whoever calls this.
        let mut waiters = self.waiters.lock();
        waiters.failed = Some(error.to_string());
        waiters.nudged = true;
        drop((waiters, turn));
        self.wake.notify_one();
        parts.refuse_after_failed_sync(error.to_string());
        tracing::error!(%error, "sync of the commit log failed, no more messages are taken");
    }

    /// Flushes on demand and from time to time until stopped.
    pub(crate) fn run(&self, parts: &Parts) {
        /// Also after a panic: whoever ends the threads waits for the teller.
        struct EndsTeller<'a>(&'a Flusher);
        impl Drop for EndsTeller<'_> {
            fn drop(&mut self) {
                self.0.end_teller();
            }
        }
        let _ends = EndsTeller(self);
        self.flush_until_stopped(parts);
    }

    fn flush_until_stopped(&self, parts: &Parts) {
        let Parts { config, log, .. } = parts;
        let interval = Duration::from_millis(config.flush_interval_commit_log_ms.max(1));
        let thorough = Duration::from_millis(config.flush_commit_log_thorough_interval_ms);
        let mut last_flush = Instant::now();
        let mut last_turn = Instant::now();
        loop {
            let mut waiters = self.waiters.lock();
            // Those that came during the last sync are served at once, if they are enough.
            while !self.is_group(&waiters)
                && !waiters.nudged
                && !waiters.stopped
                && last_turn.elapsed() < interval
            {
                self.wake.wait_for(&mut waiters, interval.saturating_sub(last_turn.elapsed()));
            }
            if waiters.stopped {
                return;
            }
            let asked = !waiters.waiting.is_empty();
            let failed = waiters.failed.is_some();
            waiters.nudged = false;
            drop(waiters);
            last_turn = Instant::now();
            if asked && !failed && parts.commit(0).is_err() {
                // What they wait for is not even written; it is tried again after a while.
                let mut waiters = self.waiters.lock();
                if !waiters.stopped {
                    self.wake.wait_for(&mut waiters, interval);
                }
                continue;
            }
            let unsynced = (log.written().0 - self.durable.get().0).max(0) as u64;
            let pages = unsynced / PAGE_BYTES;
            if asked
                || failed
                || (unsynced > 0
                    && (pages >= config.flush_commit_log_least_pages
                        || last_flush.elapsed() >= thorough))
            {
                last_flush = Instant::now();
                match self.sync_group(parts) {
                    Ok(served) => self.hand_over(served),
                    // Final: waiters are answered by `on_durable` itself from now on.
                    Err(_) => return,
                }
            }
        }
    }
}

fn sync_files(log: &CommitLog, from: i64, end: i64) -> Result<(), StoreError> {
    if end <= from {
        return Ok(());
    }
    for file in log.files.snapshot() {
        let is_new = file.end_offset() as i64 > from && (file.base_offset() as i64) < end;
        if is_new && !file.is_read_only() {
            file.file().sync_data().map_err(StoreError::io("sync", file.path()))?;
        }
    }
    Ok(())
}

/// A store time all of whose messages, except those of the same ms, are dispatched.
fn dispatched_timestamp_ms(parts: &Parts) -> i64 {
    let timestamp_ms = parts.log.timestamp_ms();
    // Whoever published this time has passed here and is dispatched: an appender takes its turn
    // before it lets go of the append lock.
    let appender = parts.log.lock();
    let turn = parts.dispatcher.turn();
    drop((appender, turn));
    timestamp_ms
}

/// Writes index entries from memory to the files.
///
/// # Errors
/// When they could not be written; they stay in memory, and writing is tried again. Appends are
/// refused only when no more fit there.
pub(crate) fn write_index(parts: &Parts, index: &Index) -> Result<(), StoreError> {
    index.write().inspect_err(|error| tracing::warn!(%error, "index cannot be written"))?;
    if parts.writability.set_index(None) {
        tracing::info!("index can be written again");
    }
    Ok(())
}

/// Writes the index, syncs it when `thorough` or when it is time, and moves the checkpoint then.
///
/// # Errors
/// When something could not be written (tried again next time) or synced (final).
pub(crate) fn flush_index(parts: &Parts, thorough: bool) -> Result<(), StoreError> {
    let Parts { config, checkpoint, .. } = parts;
    let Some(index) = &parts.index else { return Ok(()) };
    let timestamp_ms = dispatched_timestamp_ms(parts);
    write_index(parts, index)?;
    let interval = Duration::from_millis(config.flush_consume_queue_thorough_interval_ms);
    if !thorough && !index.is_sync_due(interval) {
        return Ok(());
    }
    let synced = index.sync().inspect_err(|error| {
        parts.refuse_after_failed_sync(error.to_string());
        tracing::error!(%error, "sync of the index failed, no more messages are taken");
    })?;
    // A look alone changes nothing.
    if synced {
        checkpoint.update(|words| {
            words.index_msg_timestamp_ms = words.index_msg_timestamp_ms.max(timestamp_ms);
        });
    }
    Ok(())
}

/// The one that writes and syncs the queues.
#[derive(Debug)]
pub(crate) struct QueueFlusher {
    state: Mutex<QueueState>,
}

#[derive(Debug)]
struct QueueState {
    unsynced: Vec<Arc<ConsumeQueue>>,
    last_thorough: Instant,
}

impl QueueFlusher {
    pub(crate) fn new() -> QueueFlusher {
        QueueFlusher {
            state: Mutex::new(QueueState { unsynced: Vec::new(), last_thorough: Instant::now() }),
        }
    }

    /// Writes entries from memory to the files, syncs queues that have enough unsynced ones, all of
    /// them when `thorough` or when it is time, and moves the checkpoint when nothing is left.
    ///
    /// # Errors
    /// When something could not be written (tried again next time) or synced (final).
    pub(crate) fn flush(&self, parts: &Parts, thorough: bool) -> Result<(), StoreError> {
        let Parts { config, table, checkpoint, writability, .. } = parts;
        let mut state = self.state.lock();
        let interval = Duration::from_millis(config.flush_consume_queue_thorough_interval_ms);
        let thorough = thorough || state.last_thorough.elapsed() >= interval;

        let timestamp_ms = dispatched_timestamp_ms(parts);
        let mut failure = None;
        for queue in table.take_unwritten() {
            match queue.write_tail() {
                Ok(()) => state.unsynced.push(queue),
                Err(error) => {
                    table.list_unwritten(&queue);
                    failure = Some(error);
                }
            }
        }
        if let Some(error) = failure {
            let refusal = Refusal::ConsumeQueue(error.to_string());
            if writability.set_consume_queue(Some(refusal)) {
                tracing::error!(%error, "consume queue cannot be written");
            }
            return Err(error);
        }
        if writability.set_consume_queue(None) {
            tracing::info!("consume queue can be written again");
        }

        state.unsynced.sort_unstable_by_key(|queue| queue.number);
        state.unsynced.dedup_by(|a, b| Arc::ptr_eq(a, b));
        let least_bytes = config.flush_consume_queue_least_pages * PAGE_BYTES;
        let mut left = Vec::new();
        for queue in std::mem::take(&mut state.unsynced) {
            if !thorough && queue.unsynced_bytes() < least_bytes {
                left.push(queue);
                continue;
            }
            if let Err(error) = queue.sync() {
                parts.refuse_after_failed_sync(error.to_string());
                tracing::error!(%error, "sync of a consume queue failed, no more messages are taken");
                return Err(error);
            }
        }
        state.unsynced = left;
        if thorough {
            state.last_thorough = Instant::now();
            for queue in table.snapshot() {
                queue.close_idle_files();
            }
        }
        if state.unsynced.is_empty() {
            checkpoint.update(|words| {
                words.logics_msg_timestamp_ms = words.logics_msg_timestamp_ms.max(timestamp_ms);
            });
        }
        Ok(())
    }
}
