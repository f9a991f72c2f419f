//! From what a directory holds to a log and queues that agree.
//!
//! After a clean end the walk begins at the newest file that the queues reach into, after a crash
//! not behind the newest file whose first message the checkpoint vouches for either
//! (`CommitLog.recoverNormally` and `recoverAbnormally`). Every record from there on is verified: size, magic, physical offset,
//! lengths, CRC. The first bad byte ends the log, and what is behind it is wiped, so that it cannot
//! be taken for messages later. Queues are then brought to agree with the log; one that lacks
//! entries is built anew from the whole log.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::HashSet;
use rocketmq_protocol::message::record::{self, LogItem, MessageRecord};

use crate::checkpoint::Checkpoint;
use crate::commit_log::CommitLog;
use crate::config::StoreConfig;
use crate::consume_queue::{ConsumeQueue, Pushed, QueueFormat};
use crate::deleted_topics::DeletedTopics;
use crate::dispatch::{Dispatch, Dispatcher};
use crate::error::StoreError;
use crate::file_system::FileSystem;
use crate::index::{Index, IndexRecovery};
use crate::mapped_file_queue::MappedFile;
use crate::queue_table::{self, QueueTable};
use crate::rewrite::rewrite;

mod verify;

use verify::{Ending, Reading};

/// What opening a directory found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Whether the last run ended cleanly.
    pub clean: bool,
    /// Files of the log.
    pub files: usize,
    /// Files that were walked.
    pub files_walked: usize,
    /// Bytes that were verified.
    pub bytes_walked: u64,
    /// Records that were verified.
    pub records_walked: u64,
    /// Bytes of the log that were given up, to the end of the file or files they lay in. Zeros
    /// behind a sound end do not count.
    pub bytes_cut: u64,
    /// Why the log ends where it does, when bytes were given up.
    pub cut_reason: Option<String>,
    /// Where the log begins.
    pub log_start: i64,
    /// Where the log ends.
    pub log_end: i64,
    /// Queues.
    pub queues: usize,
    /// Queues that lacked entries and were built anew.
    pub queues_rebuilt: usize,
    /// Entries that were added to queues, rebuilding apart.
    pub entries_added: u64,
    /// Records that could not be put into a queue: their topic or queue number leads nowhere, they
    /// are inner batches that do not say what they hold, or the queue is one of batches and they
    /// are none, or the other way round.
    pub records_without_queue: u64,
    /// Files and directories that are not the store's; they were left alone.
    pub foreign: Vec<PathBuf>,
    /// Empty last files that a crash left; they were removed.
    pub removed_empty: Vec<PathBuf>,
    /// Files of read-only directories that are no part of the log any more, since retention removed
    /// files behind them; they were left alone.
    pub let_go: Vec<PathBuf>,
    /// Entries that were added to the index.
    pub index_entries_added: u64,
    /// Index files that were removed because they could not be trusted, each with the reason; what
    /// they held was read from the log again.
    pub index_files_rebuilt: Vec<(PathBuf, String)>,
    /// How long it took.
    pub elapsed: Duration,
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} end; log {} to {} in {} files; walked {} records, {} bytes in {} files; cut {} bytes",
            if self.clean { "clean" } else { "unclean" },
            self.log_start,
            self.log_end,
            self.files,
            self.records_walked,
            self.bytes_walked,
            self.files_walked,
            self.bytes_cut,
        )?;
        if let Some(reason) = &self.cut_reason {
            write!(f, " ({reason})")?;
        }
        write!(
            f,
            "; {} queues, {} rebuilt, {} entries added; {} index entries added",
            self.queues, self.queues_rebuilt, self.entries_added, self.index_entries_added,
        )?;
        for (path, reason) in &self.index_files_rebuilt {
            write!(f, "; index file {} built anew ({reason})", path.display())?;
        }
        write!(f, "; {} ms", self.elapsed.as_millis())
    }
}

/// Where the walk ended.
struct End {
    position: u64,
    timestamp_ms: i64,
    reason: Option<String>,
}

/// Everything that recovery works on.
pub(crate) struct Recovery<'a> {
    pub(crate) config: &'a StoreConfig,
    pub(crate) file_system: &'a dyn FileSystem,
    /// Whether a sync failed, so that what is read may not be on disk.
    pub(crate) distrust: bool,
    pub(crate) log: &'a CommitLog,
    pub(crate) table: &'a QueueTable,
    pub(crate) dispatcher: &'a Dispatcher,
    pub(crate) checkpoint: &'a Checkpoint,
    pub(crate) deleted_topics: &'a DeletedTopics,
    /// Topics of batch queues: what is no batch has no entry there.
    pub(crate) batch_topics: &'a HashSet<String>,
    pub(crate) index: Option<&'a Index>,
}

impl Recovery<'_> {
    /// Recovers; the files of the log and the queues are loaded. `empty` are queues that have a
    /// directory but no entry.
    ///
    /// # Errors
    /// What the operating system says. The directory can be recovered again then.
    pub(crate) fn run(
        &self,
        report: &mut RecoveryReport,
        empty: Vec<Arc<ConsumeQueue>>,
    ) -> Result<(), StoreError> {
        let started = Instant::now();
        let files = self.log.files.snapshot();
        let mut changed = !report.clean;
        report.files = files.len();
        let mut incomplete = Incomplete::default();
        let mut end = End { position: 0, timestamp_ms: 0, reason: None };
        if files.is_empty() {
            // A log never loses its last file: these are elsewhere.
            if self.table.snapshot().iter().any(|queue| queue.max_offset() > 0) {
                return Err(StoreError::LogMissing {
                    log: self.config.commit_log_dirs[0].clone(),
                    queues: self.table.directory().to_owned(),
                });
            }
        } else {
            if !report.clean {
                self.drop_entries_the_log_denies(&files)?;
            }
            for (topic, end) in self.deleted_topics.all() {
                self.table.remove_queues_in_front_of(&topic, end)?;
                changed = true;
            }
            let queues_reach = self.table.snapshot().iter().map(|queue| queue.max_physical()).max();
            let queues_reach = queues_reach.unwrap_or(0);
            let mut start = start_at(&files, queues_reach);
            if !report.clean {
                start = start.min(self.start_after_crash(&files));
            }
            for file in &files[..start] {
                file.publish(file.end_offset());
            }
            for queue in empty {
                incomplete.insert(queue.number, queue);
            }
            if !report.clean {
                for queue in self.table.snapshot() {
                    if queue.may_lack_front(files[0].base_offset() as i64)? {
                        incomplete.insert(queue.number, queue);
                    }
                }
            }
            end = self.walk(&files[start..], report, &mut incomplete)?;
            self.cut(&files[start..], &end, report)?;
            for queue in self.table.snapshot() {
                let max_offset = queue.max_offset();
                queue.cut_behind_log(end.position as i64)?;
                if queue.max_offset() < max_offset {
                    changed = true;
                    if report.clean {
                        // Either the log has lost its end, or the entries are wrong and hide
                        // messages that it still has.
                        tracing::warn!(
                            topic = &**queue.topic(),
                            queue_id = queue.queue_id(),
                            from = queue.max_offset(),
                            to = max_offset,
                            log_end = end.position,
                            "queue speaks of messages behind the end of the log, it is built anew"
                        );
                        incomplete.insert(queue.number, queue);
                    }
                }
            }
            if !report.clean && files[0].base_offset() == 0 {
                // No message has ever expired: such a queue has lost a file, and does not go on
                // where that ended.
                for queue in self.table.snapshot().into_iter().filter(|queue| queue.is_bare()) {
                    incomplete.insert(queue.number, queue);
                }
            }
            changed |= !incomplete.is_empty();
            self.rebuild(&files, incomplete, end.position, report)?;
        }
        let log_start = self.log.files.first().map_or(end.position, |file| file.base_offset());
        for queue in self.table.snapshot() {
            if queue.max_offset() == 0 {
                // A topic of which nothing is left must not look as if it were there.
                queue.remove_empty_directory()?;
                self.table.forget(&queue);
                continue;
            }
            queue.follow_log_start(log_start as i64)?;
            queue.set_next_offset(queue.max_offset());
        }
        if let Some(index) = self.index {
            let vouched_end = (!report.clean).then(|| self.index_vouched_end(&files));
            let IndexRecovery { added, removed } =
                index.recover(self.log, end.position as i64, vouched_end)?;
            if added > 0 {
                // All of it was synced.
                self.checkpoint.update(|words| {
                    words.index_msg_timestamp_ms =
                        words.index_msg_timestamp_ms.max(end.timestamp_ms);
                });
            }
            report.index_entries_added = added;
            report.index_files_rebuilt.extend(removed);
        }
        for file in &files {
            // Otherwise the walk would count as memory of the process.
            file.mapping().release_pages();
        }
        self.checkpoint.lower_to(end.timestamp_ms)?;
        if self.distrust {
            for queue in self.table.snapshot() {
                queue.rewrite()?;
            }
            self.checkpoint.rewrite()?;
        }
        if changed {
            self.sync_all()?;
        }
        self.deleted_topics.settle(log_start as i64, end.position as i64, report.clean)?;
        self.log.begin_at(end.position, end.timestamp_ms);
        self.dispatcher.publish(&self.dispatcher.turn(), end.position as i64);
        report.files = self.log.files.len();
        report.log_start = log_start as i64;
        report.log_end = end.position as i64;
        report.queues = self.table.snapshot().len();
        report.elapsed = started.elapsed();
        Ok(())
    }

    /// The newest file whose first message is not younger than the checkpoint; the first file if
    /// there is none.
    fn start_after_crash(&self, files: &[Arc<MappedFile>]) -> usize {
        newest_vouched(files, self.checkpoint.words().recovery_timestamp_ms()).unwrap_or(0)
    }

    /// Index entries of records in front of here were synced before the crash.
    fn index_vouched_end(&self, files: &[Arc<MappedFile>]) -> i64 {
        let vouched_ms = self.checkpoint.words().index_recovery_timestamp_ms();
        newest_vouched(files, vouched_ms).map_or(0, |index| files[index].base_offset() as i64)
    }

    /// Drops newest entries of queues that do not point at a record that says the same. After a
    /// crash a file of a queue may hold entries from before an earlier cut of the log.
    fn drop_entries_the_log_denies(&self, files: &[Arc<MappedFile>]) -> Result<(), StoreError> {
        for file in files {
            file.publish(file.end_offset());
        }
        for queue in self.table.snapshot() {
            queue.cut_last_while(|entry| {
                let unit = entry.unit;
                if unit.is_filler() {
                    return false;
                }
                let said = self.log.with_record(unit.physical_offset, |record| {
                    let dispatch = Dispatch::of_record(record, &self.config.delay_levels_ms);
                    record.topic == &**queue.topic()
                        && record.queue_id == queue.queue_id()
                        && dispatch.format() == queue.format()
                        && dispatch.entry.queue_offset == entry.queue_offset
                        && dispatch.entry.count == entry.count
                        && record.size == unit.size as usize
                });
                // An entry whose file has expired cannot be denied, except one that reaches into
                // the log: only a part of it was written.
                let expired = files
                    .first()
                    .is_some_and(|first| unit.end_offset() <= first.base_offset() as i64);
                !expired && said != Some(true)
            })?;
        }
        for file in files {
            file.mapping().cut(0);
        }
        Ok(())
    }

    /// Makes all that the store's directories hold durable. What a run that was killed, and this
    /// recovery, did to files and names may be in the page cache alone; from now on the checkpoint
    /// and a clean end vouch for it. One call for each disk, however many queues there are.
    fn sync_all(&self) -> Result<(), StoreError> {
        let log = self.log.files.directories().writable().iter().map(|directory| directory.path());
        for path in log.chain([&*self.config.root_dir]) {
            self.file_system.sync_all(path).map_err(StoreError::io("sync all of", path))?;
        }
        Ok(())
    }

    /// Verifies records from the first of `files` on and dispatches each.
    fn walk(
        &self,
        files: &[Arc<MappedFile>],
        report: &mut RecoveryReport,
        incomplete: &mut Incomplete,
    ) -> Result<End, StoreError> {
        let first = files.first().map_or(0, |file| file.base_offset());
        let mut end = End { position: first, timestamp_ms: 0, reason: None };
        for file in files {
            file.publish(file.end_offset());
        }
        let reading = Reading {
            check_crc: self.config.check_crc_on_recover,
            delay_levels_ms: &self.config.delay_levels_ms,
        };
        verify::verified(files, reading, |verified| {
            report.files_walked += usize::from(verified.begins_file);
            report.records_walked += verified.records;
            report.bytes_walked += verified.bytes;
            end.timestamp_ms = end.timestamp_ms.max(verified.timestamp_ms);
            for (topic, queue_id, run) in verified.runs.iter() {
                self.dispatch_run(topic, queue_id, run, report, incomplete)?;
            }
            end.position = verified.end;
            match verified.ending {
                Ending::GoesOn | Ending::Unwritten => {}
                Ending::NextFile => end.position = verified.file.end_offset(),
                Ending::Bad(reason) => {
                    end.reason = Some(format!(
                        "{reason} at byte {} of {}",
                        end.position - verified.file.base_offset(),
                        verified.file.path().display()
                    ));
                }
            }
            Ok(())
        })?;
        Ok(end)
    }

    /// Dispatches records that name one queue.
    fn dispatch_run<'d, 'r: 'd>(
        &self,
        topic: &str,
        queue_id: i32,
        run: impl Iterator<Item = &'d Dispatch<'r>>,
        report: &mut RecoveryReport,
        incomplete: &mut Incomplete,
    ) -> Result<(), StoreError> {
        let deleted_end = self.deleted_topics.end_of(topic);
        let mut run =
            run.filter(|dispatch| dispatch.entry.unit.physical_offset >= deleted_end).peekable();
        while let Some(first) = run.next() {
            let Some(queue) = self.destination(topic, queue_id, first, incomplete)? else {
                report.records_without_queue += 1;
                continue;
            };
            // The queue stays this one for all others of its format.
            let others = std::iter::from_fn(|| {
                run.next_if(|other| other.has_entry() && other.format() == queue.format())
            });
            let mut to_compare = Vec::new();
            let is_compared = !report.clean && queue.ext().is_some();
            self.dispatcher.dispatch_run(
                &queue,
                std::iter::once(first).chain(others),
                |dispatch, pushed| match pushed {
                    Pushed::Gap { .. } => {
                        incomplete.insert(queue.number, Arc::clone(&queue));
                    }
                    Pushed::Added | Pushed::Restarted => {
                        report.entries_added += 1;
                        // A queue that was empty and does not begin with its first message may be
                        // one whose files are gone.
                        let queue_offset = dispatch.entry.queue_offset;
                        if queue_offset > 0 && queue.min_offset() == queue_offset {
                            incomplete.insert(queue.number, Arc::clone(&queue));
                        }
                    }
                    Pushed::OtherFormat => report.records_without_queue += 1,
                    Pushed::Known if is_compared => to_compare.push(dispatch),
                    Pushed::Known => {}
                },
            )?;
            for dispatch in to_compare {
                // After a crash a ConsumeQueue entry may be on disk and its ext unit not.
                if !queue.ext_agrees(dispatch)? {
                    incomplete.insert(queue.number, Arc::clone(&queue));
                }
            }
        }
        Ok(())
    }

    /// The queue of a record that names this one; `None` if it can have none.
    fn destination(
        &self,
        topic: &str,
        queue_id: i32,
        dispatch: &Dispatch<'_>,
        incomplete: &mut Incomplete,
    ) -> Result<Option<Arc<ConsumeQueue>>, StoreError> {
        let has_none = queue_id < 0
            || !queue_table::is_directory_name(topic)
            || !dispatch.has_entry()
            || (self.is_stray(topic, dispatch) && self.table.find(topic, queue_id).is_none());
        if has_none {
            return Ok(None);
        }
        let queue = self.table.find_or_make(topic, queue_id, dispatch.format());
        self.with_format_of(dispatch, queue, incomplete).map(Some)
    }

    /// Whether a record is a single message that a Java broker took for a topic of batch queues.
    fn is_stray(&self, topic: &str, dispatch: &Dispatch<'_>) -> bool {
        dispatch.format() == QueueFormat::Simple && self.batch_topics.contains(topic)
    }

    /// The record's queue, made anew with the record's format if it has no entries: a directory
    /// alone may be what is left of a topic that was deleted and made again.
    fn with_format_of(
        &self,
        dispatch: &Dispatch<'_>,
        queue: Arc<ConsumeQueue>,
        incomplete: &mut Incomplete,
    ) -> Result<Arc<ConsumeQueue>, StoreError> {
        let format = dispatch.format();
        let stays = queue.format() == format
            || queue.max_offset() > 0
            || self.is_stray(queue.topic(), dispatch);
        if stays {
            return Ok(queue);
        }
        let made = self.table.remake(&queue, format)?;
        if incomplete.remove(&queue.number).is_some() {
            incomplete.insert(made.number, Arc::clone(&made));
        }
        Ok(made)
    }

    /// Ends the log: wipes the rest of its last file and removes files behind it.
    fn cut(
        &self,
        files: &[Arc<MappedFile>],
        end: &End,
        report: &mut RecoveryReport,
    ) -> Result<(), StoreError> {
        report.cut_reason.clone_from(&end.reason);
        if let Some(file) =
            files.iter().find(|file| file.is_read_only() && file.end_offset() > end.position)
        {
            let no_more = || format!("nothing is at byte {} of the log", end.position);
            let reason = end.reason.clone().unwrap_or_else(no_more);
            return Err(StoreError::ReadOnlyFile { path: file.path().to_owned(), reason });
        }
        let front = self.log.files.first().map(|file| file.base_offset());
        for file in files.iter().filter(|file| file.end_offset() > end.position) {
            let in_file = end.position.saturating_sub(file.base_offset());
            let holds_end = file.holds(end.position);
            // A file made ahead is empty; another one held messages.
            let used = !holds_end && first_record(file, |_| ()).is_some();
            if used || (holds_end && end.reason.is_some()) {
                report.bytes_cut += file.end_offset() - file.base_offset() - in_file;
                report.cut_reason.get_or_insert_with(|| {
                    format!(
                        "nothing at byte {} of the log, though later files hold messages",
                        end.position
                    )
                });
            }
            file.mapping().cut(in_file as usize);
            if in_file > 0 || front == Some(file.base_offset()) {
                file.file()
                    .zero_range(in_file, file.end_offset() - file.base_offset() - in_file)
                    .map_err(StoreError::io("wipe the end of", file.path()))?;
            }
        }
        self.log.files.remove_behind(end.position)?;
        for file in files {
            if file.base_offset() <= end.position && !file.is_read_only() {
                if self.distrust {
                    rewrite(file.file(), file.path(), file.end_offset() - file.base_offset())?;
                }
                file.file().sync_data().map_err(StoreError::io("sync", file.path()))?;
            }
        }
        Ok(())
    }

    /// Builds queues anew that lack entries, from the beginning of the log.
    fn rebuild(
        &self,
        files: &[Arc<MappedFile>],
        mut incomplete: Incomplete,
        end: u64,
        report: &mut RecoveryReport,
    ) -> Result<(), StoreError> {
        if incomplete.is_empty() {
            return Ok(());
        }
        let log_start = files.first().map_or(0, |file| file.base_offset());
        // The messages of these have expired, and only their file says where they go on. It stays
        // unless the log knows better: a crash could keep the removal and lose what comes after.
        let mut bare = HashSet::default();
        for queue in incomplete.values() {
            if queue.is_bare() && log_start > 0 {
                bare.insert(queue.number);
            } else {
                queue.clear()?;
            }
        }
        for file in files.iter().filter(|file| file.base_offset() < end) {
            let mut position = file.base_offset();
            while position < end {
                let bytes = file.published_from(position).unwrap_or(&[]);
                // Files in front of the walk were vouched for by an earlier run; should one be
                // damaged all the same, its rest is left out.
                let Ok(LogItem::Record(record)) = record::decode_log_item(bytes) else { break };
                position += record.size as u64;
                if self.deleted_topics.holds(record.topic, record.physical_offset) {
                    continue;
                }
                // Only queues that exist: a topic deleted long ago must not come back.
                let queue = self.table.find(record.topic, record.queue_id);
                let Some(queue) = queue.filter(|queue| incomplete.contains_key(&queue.number))
                else {
                    continue;
                };
                let dispatch = Dispatch::of_record(&record, &self.config.delay_levels_ms);
                if !dispatch.has_entry() {
                    continue;
                }
                if bare.remove(&queue.number)
                    && (dispatch.format() != queue.format()
                        || dispatch.entry.queue_offset != queue.max_offset())
                {
                    queue.clear()?;
                }
                let queue = self.with_format_of(&dispatch, queue, &mut incomplete)?;
                if let Some(Pushed::Gap { expected }) =
                    self.dispatcher.dispatch(&queue, &dispatch)?
                {
                    // Messages that the log itself has lost: readers skip over fillers.
                    tracing::warn!(
                        topic = record.topic,
                        queue_id = record.queue_id,
                        expected,
                        found = dispatch.entry.queue_offset,
                        "log lacks messages of a queue"
                    );
                    if queue.fill_gap(dispatch.entry.queue_offset) {
                        self.dispatcher.dispatch(&queue, &dispatch)?;
                    } else {
                        report.records_without_queue += 1;
                    }
                }
            }
            file.mapping().release_pages();
        }
        let rebuilt =
            |queue: &&Arc<ConsumeQueue>| queue.max_offset() > 0 && !bare.contains(&queue.number);
        report.queues_rebuilt = incomplete.values().filter(rebuilt).count();
        Ok(())
    }
}

/// Queues that lack entries, by number.
type Incomplete = BTreeMap<u64, Arc<ConsumeQueue>>;

/// The newest file that begins in front of what the queues reach; the first if there is none.
fn start_at(files: &[Arc<MappedFile>], queues_reach: i64) -> usize {
    let reach = u64::try_from(queues_reach).unwrap_or(0);
    files.iter().rposition(|file| file.base_offset() <= reach).unwrap_or(0)
}

/// The newest file whose first message is not younger than `vouched_ms`.
fn newest_vouched(files: &[Arc<MappedFile>], vouched_ms: i64) -> Option<usize> {
    let vouched = |file: &MappedFile| {
        first_record(file, |record| {
            record.store_timestamp_ms != 0 && record.store_timestamp_ms <= vouched_ms
        })
        .unwrap_or(false)
    };
    files.iter().rposition(|file| vouched(file))
}

/// Records in front of here, and their queue entries, were synced before a crash: the checkpoint
/// says so. The files of the log are loaded.
pub(crate) fn vouched_end(log: &CommitLog, checkpoint: &Checkpoint) -> i64 {
    let files = log.files.snapshot();
    let vouched = newest_vouched(&files, checkpoint.words().recovery_timestamp_ms());
    vouched.map_or(0, |index| files[index].base_offset() as i64)
}

/// Reads the first record of a file, if it begins with one.
fn first_record<T>(file: &MappedFile, read: impl FnOnce(&MessageRecord<'_>) -> T) -> Option<T> {
    let before = file.mapping().published();
    file.publish(file.end_offset());
    let found = file
        .published_from(file.base_offset())
        .and_then(|bytes| MessageRecord::decode(bytes).ok())
        .filter(|record| record.physical_offset == file.base_offset() as i64)
        .map(|record| read(&record));
    file.mapping().cut(before);
    found
}
