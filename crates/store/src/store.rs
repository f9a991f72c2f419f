//! The store: opening, appending, reading, and the threads behind them.
//!
//! Owns the order of things; each step is in a file of its own. What messages can be asked for is in
//! `queries`.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::append::{AppendBatch, AppendOutcome, Limits};
use crate::background::{Parts, Stop, Threads};
use crate::checkpoint::Checkpoint;
use crate::clock::{Clock, SystemClock};
use crate::commit::Committer;
use crate::commit_log::CommitLog;
use crate::config::StoreConfig;
use crate::confirm::Confirmation;
use crate::consume_queue::{ExtFiles, FilterBitMap, QueueFiles, QueueFormat, QueueUnit, Unit};
use crate::deleted_topics::DeletedTopics;
use crate::directory::make_directory;
use crate::dispatch::{ArrivalListener, Dispatch, Dispatcher};
use crate::error::{AppendError, Refusal, StoreError};
use crate::file_system::{FileSystem, RealFileSystem};
use crate::file_watch::Look;
use crate::flush::{DurableOutcome, Flusher, QueueFlusher};
use crate::index::{Index, IndexFiles};
use crate::lock_file::{AbortFile, DirectoryLock};
use crate::log_directories::LogDirectories;
use crate::mapped_file_queue::MappedFileQueue;
use crate::offset::{Dispatched, Durable, Written};
use crate::probe::Probe;
use crate::queue_table::QueueTable;
use crate::recovery::{Recovery, RecoveryReport, vouched_end};
use crate::retention::Retention;
use crate::role::Intake;
use crate::topic_table;
use crate::writability::Writability;

/// What the store takes from outside.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Files.
    pub file_system: Arc<dyn FileSystem>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Whether the store runs threads of its own. Without them nothing is flushed, preallocated or
    /// removed unless [`Store::flush`] and [`Store::tick`] are called.
    pub threads: bool,
    /// What makes bit maps for the units of `enableConsumeQueueExt`; without it they have none.
    pub filter_bit_map: Option<Arc<dyn FilterBitMap>>,
}

impl Default for Environment {
    fn default() -> Environment {
        Environment {
            file_system: Arc::new(RealFileSystem),
            clock: Arc::new(SystemClock),
            threads: true,
            filter_bit_map: None,
        }
    }
}

/// A store directory, open. Dropped without [`Store::shutdown`] it stays marked as unclean.
pub struct Store {
    pub(crate) parts: Arc<Parts>,
    threads: Threads,
    abort: AbortFile,
    /// How far behind the end of the log a record is taken to be in memory.
    pub(crate) hot_bytes: i64,
    is_shut_down: AtomicBool,
    pub(crate) intake: Intake,
    /// Dropped last: the directory is free only when everything else is closed.
    _lock: DirectoryLock,
}

impl Drop for Store {
    fn drop(&mut self) {
        self.threads.end(&self.parts);
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("root_dir", &self.parts.config.root_dir)
            .field("written", &self.written())
            .field("durable", &self.durable())
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Opens a store directory, or makes one, and recovers it.
    ///
    /// # Errors
    /// When the configuration is out of range, the directory is locked by another process, holds
    /// files that do not fit, or the operating system refuses. Nothing was changed then, except
    /// that directories and the lock file may have been made.
    pub fn open(
        config: StoreConfig,
        environment: Environment,
    ) -> Result<(Arc<Store>, RecoveryReport), StoreError> {
        let config = config.validated()?;
        let file_system = &*environment.file_system;
        make_directory(file_system, &config.root_dir)?;
        let lock = DirectoryLock::take(file_system, &config.root_dir)?;
        let is_new = !Checkpoint::exists(file_system, &config.root_dir)?;
        LogDirectories::of(&config).make(file_system, is_new)?;
        let abort = AbortFile::new(&config.root_dir);
        let mut report =
            RecoveryReport { clean: !abort.exists(file_system)?, ..RecoveryReport::default() };
        let checkpoint = Checkpoint::open(file_system, &config.root_dir)?;
        let deleted_topics =
            DeletedTopics::open(Arc::clone(&environment.file_system), &config.root_dir)?;
        let log = CommitLog::new(
            MappedFileQueue::new(Arc::clone(&environment.file_system), &config),
            config.write_buffer_bytes_max(),
        );
        let loaded = log.files.load()?;
        report.foreign.extend(loaded.foreign);
        report.removed_empty.extend(loaded.removed_empty);
        report.let_go.extend(loaded.let_go);
        let queue_files = |format: QueueFormat, ext| QueueFiles {
            file_system: Arc::clone(&environment.file_system),
            format,
            directory: config.root_dir.join(format.directory_name()),
            file_bytes: config.queue_file_bytes(format),
            ext,
            open_files: Default::default(),
        };
        let table = Arc::new(QueueTable::new(
            queue_files(QueueFormat::Simple, ExtFiles::of(&config, &environment)?),
            queue_files(QueueFormat::Batch, None),
        ));
        // From here on the directory changes: a crash must not be taken for a clean end.
        let distrust = abort.is_distrusted(file_system)?;
        abort.create(file_system, distrust)?;
        let vouched_end = (!report.clean).then(|| vouched_end(&log, &checkpoint));
        let loaded = table.load(vouched_end)?;
        report.foreign.extend(loaded.foreign);
        let index = config.message_index_enable.then(|| {
            Index::new(IndexFiles {
                file_system: Arc::clone(&environment.file_system),
                clock: Arc::clone(&environment.clock),
                directory: config.root_dir.join("index"),
                layout: config.index_layout(),
            })
        });
        if let Some(index) = &index {
            let loaded = index.load()?;
            report.foreign.extend(loaded.foreign);
            report.index_files_rebuilt = loaded.removed;
        }
        let dispatcher = Dispatcher::new(Arc::clone(&table));
        let recovery = Recovery {
            config: &config,
            file_system,
            distrust,
            log: &log,
            table: &table,
            dispatcher: &dispatcher,
            checkpoint: &checkpoint,
            deleted_topics: &deleted_topics,
            batch_topics: &topic_table::batch_topics(file_system, &config.root_dir)?,
            index: index.as_ref(),
        };
        // Any failure may have been one of a sync.
        recovery.run(&mut report, loaded.empty).inspect_err(|_| {
            abort.distrust(file_system);
        })?;
        if distrust {
            abort.create(file_system, false)?;
        }

        let memory_bytes = i64::try_from(file_system.memory_bytes()).unwrap_or(i64::MAX);
        let hot_percent = i64::from(config.access_message_in_memory_max_percent.min(100));
        let parts = Arc::new(Parts {
            flusher: Flusher::new(),
            queue_flusher: QueueFlusher::new(),
            committer: Committer::default(),
            listener: RwLock::default(),
            confirmation: Confirmation::new(),
            slices: Arc::default(),
            probe: Probe::default(),
            flushing: Mutex::default(),
            writability: Writability::default(),
            retention: Retention::new(report.log_start),
            disk_used_percent: Mutex::new(0.0),
            sync_failed: AtomicBool::new(false),
            vouches_for_nothing: AtomicBool::new(false),
            stop: Stop::default(),
            config,
            environment,
            log,
            table,
            dispatcher,
            index,
            checkpoint,
            deleted_topics,
        });
        // Recovery synced what it found.
        parts.flusher.begin_at(report.log_end);
        parts.watch_disk();
        let threads = Threads::default();
        if parts.environment.threads {
            threads.start(&parts)?;
        }
        let store = Store {
            parts,
            threads,
            abort,
            hot_bytes: memory_bytes / 100 * hot_percent,
            is_shut_down: AtomicBool::new(false),
            intake: Intake::new(),
            _lock: lock,
        };
        Ok((Arc::new(store), report))
    }

    /// A batch to collect messages in. Keep it and use it again.
    pub fn new_batch(&self) -> AppendBatch {
        AppendBatch::new(Limits::of(&self.parts.config))
    }

    /// Appends the messages of a batch, in order, and makes them visible to readers.
    ///
    /// What became of each message says [`AppendBatch::result`]; what the batch held before is
    /// replaced only by [`AppendBatch::clear`].
    ///
    /// # Errors
    /// When nothing at all was appended, except that the batch was empty.
    pub fn append(&self, batch: &mut AppendBatch) -> Result<AppendOutcome, AppendError> {
        let result = self.append_and_dispatch(batch);
        if let Err(error) = &result {
            batch.error = Some(error.clone());
        }
        match result {
            Err(error) if batch.appended == 0 => return Err(error),
            _ => {}
        }
        self.parts.tell(&batch.arrivals);
        if !self.parts.config.flush_commit_log_timed {
            let unsynced = (self.written().0 - self.durable().0).max(0) as u64;
            if unsynced >= self.parts.config.flush_commit_log_least_pages.max(1) * 4096 {
                self.parts.flusher.nudge();
            }
        }
        let end_physical_offset = match batch.appended.checked_sub(1) {
            Some(last) => {
                let last = batch.entries[last].result;
                last.physical_offset + last.bytes as i64
            }
            None => self.written().0,
        };
        Ok(AppendOutcome { end_physical_offset, appended: batch.appended })
    }

    fn append_and_dispatch(&self, batch: &mut AppendBatch) -> Result<(), AppendError> {
        batch.appended = 0;
        batch.error = None;
        batch.arrivals.clear();
        self.intake.check_messages()?;
        self.parts.writability.check()?;
        if batch.is_empty() {
            return Ok(());
        }
        let find =
            |topic: &str, queue_id, format| self.parts.table.find_or_make(topic, queue_id, format);
        batch.resolve_queues(find)?;

        let mut appender = self.parts.log.lock();
        // Whoever shuts down takes the lock after refusing appends, whoever turns the intake with it.
        self.parts.writability.check()?;
        self.intake.check_messages()?;
        // A topic deleted since the queues were found has new ones.
        batch.replace_removed_queues(find)?;
        let now_ms = self.parts.environment.clock.now_ms();
        let result = self.parts.log.append(&mut appender, batch, now_ms, &self.parts.writability);
        if let Err(error) = &result {
            self.parts.settle_failed_write(&appender, error);
        }
        let uncommitted_bytes = self.parts.log.uncommitted_bytes(&appender);
        let turn = self.parts.dispatcher.turn();
        let written = self.written().0;
        drop(appender);
        if self.parts.config.transient_store_pool_enable {
            // Only what a full buffer or file made it commit is in the log yet.
            self.parts.dispatch_committed(&turn, &mut batch.arrivals);
            self.parts.nudge_committer(uncommitted_bytes);
            return result;
        }

        self.parts.add_to_index(batch.index_entries());
        let AppendBatch { buffer, entries, queues, arrivals, appended, .. } = batch;
        for entry in &mut entries[..*appended] {
            let placed = entry.result;
            let Some(queue) = entry.queue.take().map(|index| &queues[index]) else { continue };
            let tags_code = entry
                .tags_code
                .resolve(placed.store_timestamp_ms, &self.parts.config.delay_levels_ms);
            let dispatch = Dispatch {
                sys_flag: entry.sys_flag,
                store_timestamp_ms: placed.store_timestamp_ms,
                properties: &buffer[entry.properties.clone()],
                entry: QueueUnit {
                    queue_offset: placed.queue_offset,
                    count: entry.count,
                    // A record's size fits its 32-bit word.
                    unit: Unit {
                        physical_offset: placed.physical_offset,
                        size: placed.bytes as i32,
                        tags_code,
                    },
                },
            };
            if let Err(error) = self.parts.dispatcher.dispatch(queue, &dispatch) {
                // The entry is in memory and readable; the next tick writes it or finds out again.
                self.parts
                    .writability
                    .set_consume_queue(Some(Refusal::ConsumeQueue(error.to_string())));
            }
            arrivals.push(dispatch.arrival(queue));
        }
        queues.clear();
        // Also without a message: the blank at the end of a file may have been written.
        self.parts.dispatcher.publish(&turn, written);
        result
    }

    /// Calls `callback` once everything in front of `end_physical_offset` survives a loss of power:
    /// at once if it does already, else from a thread of the store, together with others. It must
    /// not block.
    pub fn on_durable(
        &self,
        end_physical_offset: i64,
        callback: Box<dyn FnOnce(DurableOutcome) + Send>,
    ) {
        self.parts.flusher.on_durable(end_physical_offset, callback);
    }

    /// Who hears of arrivals from now on.
    pub fn set_arrival_listener(&self, listener: Arc<dyn ArrivalListener>) {
        *self.parts.listener.write() = Some(listener);
    }

    /// Removes the queues of a topic, with their files and offsets, durably. Its messages stay in
    /// the log until that is removed, but nobody finds them by queue. False if there was no such
    /// topic.
    ///
    /// # Errors
    /// What the operating system says. The topic may be gone or not; delete it again.
    pub fn delete_topic(&self, topic: &str) -> Result<bool, StoreError> {
        // No message is on its way into one of the queues while both are held.
        let mut appender = self.parts.log.lock();
        // Nor does one wait in the write buffer to bring the topic back.
        let committed = self.parts.commit_locked(&mut appender);
        let turn = self.parts.dispatcher.turn();
        let mut arrivals = Vec::new();
        self.parts.dispatch_committed(&turn, &mut arrivals);
        let removed = match committed {
            Ok(()) => self.remove_topic(topic),
            Err(error) => {
                let error = std::io::Error::other(error.to_string());
                Err(StoreError::io("commit the log in", &self.parts.config.root_dir)(error))
            }
        };
        drop((turn, appender));
        self.parts.tell(&arrivals);
        removed
    }

    /// For the holder of the append lock.
    fn remove_topic(&self, topic: &str) -> Result<bool, StoreError> {
        if !self.parts.table.queue_ids(topic).is_empty() {
            // First of all: whatever happens next, recovery does not bring it back.
            let log_start = self.min_physical_offset();
            self.parts.deleted_topics.add(topic, self.written().0, log_start)?;
        }
        self.parts.table.remove_topic(topic)
    }

    /// Where the log begins.
    pub fn min_physical_offset(&self) -> i64 {
        self.parts.log.min_offset()
    }

    /// Where the log ends.
    pub fn max_physical_offset(&self) -> i64 {
        self.written().0
    }

    /// The end of what is written.
    pub fn written(&self) -> Written {
        self.parts.log.written()
    }

    /// The end of what is in the queues.
    pub fn dispatched(&self) -> Dispatched {
        self.parts.dispatcher.dispatched()
    }

    /// The end of what survives a loss of power.
    pub fn durable(&self) -> Durable {
        self.parts.flusher.durable()
    }

    /// Bytes of the log that are not in the queues yet.
    pub fn dispatch_behind_bytes(&self) -> i64 {
        let dispatched = self.dispatched().0;
        (self.written().0 - dispatched).max(0)
    }

    /// How full the fuller of the store's disks is, in percent, as last measured.
    pub fn disk_used_percent(&self) -> f64 {
        *self.parts.disk_used_percent.lock()
    }

    /// Whether messages are taken.
    ///
    /// # Errors
    /// Why not.
    pub fn writable(&self) -> Result<(), Refusal> {
        self.parts.writability.check()
    }

    /// Why nothing is taken any more until the store is opened anew, if so.
    pub fn failure(&self) -> Option<Refusal> {
        self.parts.writability.last_word()
    }

    /// The settings in effect.
    pub fn config(&self) -> &StoreConfig {
        &self.parts.config
    }

    /// The file system in use, for metadata next to the store.
    pub fn file_system(&self) -> &Arc<dyn FileSystem> {
        &self.parts.environment.file_system
    }

    /// The store's directory.
    pub fn root_dir(&self) -> &Path {
        &self.parts.config.root_dir
    }

    /// Bytes of acknowledged messages that wait in the write buffer of `transientStorePoolEnable`.
    pub fn uncommitted_bytes(&self) -> u64 {
        self.parts.log.uncommitted_bytes(&self.parts.log.lock())
    }

    /// Writes what waits in the write buffer of `transientStorePoolEnable` to the log and makes it
    /// visible to readers. Does not sync.
    ///
    /// # Errors
    /// What the operating system says; it stays in the buffer.
    pub fn commit(&self) -> Result<(), StoreError> {
        self.parts.commit(0).map(drop).map_err(|error| {
            let error = std::io::Error::other(error.to_string());
            StoreError::io("commit the log in", &self.parts.config.root_dir)(error)
        })
    }

    /// Commits and syncs the log, writes and syncs the queues, and moves the checkpoint.
    ///
    /// # Errors
    /// When a write or a sync failed.
    pub fn flush(&self) -> Result<(), StoreError> {
        self.commit()?;
        let flushed = self.parts.flusher.flush(&self.parts);
        if let Err(refusal) = flushed {
            let error = std::io::Error::other(refusal.to_string());
            return Err(StoreError::io("flush", &self.parts.config.root_dir)(error));
        }
        self.parts.flush_queues(true)
    }

    /// Does once what the store's threads do from time to time: commits, looks whether files were
    /// changed from outside, measures the disk, writes the queues, removes old files.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn tick(&self) -> Result<(), StoreError> {
        self.commit()?;
        self.parts.watch_files(Look::All);
        self.parts.watch_disk();
        self.parts.flush_queues(false)?;
        self.parts.remove_old_files(false).map(drop)
    }

    /// Removes old files of the log, expired ones at any hour if `manual`. Returns how many.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn remove_old_files(&self, manual: bool) -> Result<usize, StoreError> {
        self.parts.remove_old_files(manual)
    }

    /// Lets the next rounds of removal take expired files at any hour, as DELETE_EXPIRED_COMMITLOG
    /// asks.
    pub fn remove_expired_files_soon(&self) {
        self.parts.retention.ask_manually();
    }

    /// How many removed files of the log are still read: their space returns with the last reader.
    pub fn removed_files_in_use(&self) -> usize {
        self.parts.retention.hanging()
    }

    /// Moves the minima of all queues to where the log begins, and removes their files in front of
    /// it; the newest file of a queue stays, so that its offsets go on.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn remove_expired_queue_files(&self) -> Result<(), StoreError> {
        self.parts.follow_log_start_now()
    }

    /// Removes the queues of a topic all of whose messages are gone from the log, with their files
    /// and offsets. Only for a topic that does not exist any more: a queue that comes back begins
    /// with offset 0. Returns how many were removed.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn remove_expired_queues(&self, topic: &str) -> Result<usize, StoreError> {
        let log_start = self.min_physical_offset();
        // No message is on its way into one of the queues while both are held.
        let appender = self.parts.log.lock();
        let turn = self.parts.dispatcher.turn();
        let removed = self.parts.table.remove_queues(topic, |queue| {
            // The next offset shows what waits in the write buffer.
            let newest = queue.max_offset();
            newest > 0 && queue.next_offset() == newest && queue.max_physical() <= log_start
        });
        drop((turn, appender));
        removed
    }

    /// Takes no more messages, flushes everything, ends the threads and marks the directory as
    /// clean. Reading goes on. A second call does nothing.
    ///
    /// # Errors
    /// When something could not be flushed: the directory then stays marked as unclean, and opening
    /// it recovers what is there.
    pub fn shutdown(&self) -> Result<(), StoreError> {
        if self.is_shut_down.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let failed = self.parts.writability.is_final();
        self.parts.writability.refuse_finally(Refusal::ShutDown);
        drop(self.parts.log.lock());
        self.threads.end(&self.parts);
        self.flush()?;
        if failed {
            return Ok(());
        }
        self.abort.remove(&*self.parts.environment.file_system)
    }
}
