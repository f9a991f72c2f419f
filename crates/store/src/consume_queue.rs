//! One queue of one topic: which record of the log is the n-th message.
//!
//! Owns the entries, their files and the queue's offsets (RocketMQ's `ConsumeQueue` and
//! `BatchConsumeQueue`; [`QueueFormat`] says how they differ). New entries are kept in memory and
//! written in groups: they are derived from the log, so losing the last of them costs a dispatch
//! during recovery and nothing else. Files are made when first written, without reserving their
//! length, since thousands of queues would take a disk. No file is mapped, none stays open for
//! long and few are open at a time (`OpenFiles`), so idle queues cost little.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use parking_lot::Mutex;

use crate::dispatch::Dispatch;
use crate::error::StoreError;
use crate::file_system::{FileSystem, OpenMode, StoreFile};
use crate::mapped_file_queue::file_name;

mod batch_unit;
mod ext;
mod ext_unit;
mod format;
mod lookup;
mod open_files;
mod repair;
mod unit;
mod visible;

pub use batch_unit::{BATCH_UNIT_BYTES, BatchUnit, INNER_BATCH_MAX, NOT_COMPACTED, batch_place};
pub(crate) use ext::{ExtFiles, ExtReader, QueueExt};
pub use ext_unit::{
    ADDRESS_MAX, END_BYTES, END_MARK, ExtUnit, FilterBitMap, UNIT_BYTES_MAX as EXT_UNIT_BYTES_MAX,
    UNIT_BYTES_MIN as EXT_UNIT_BYTES_MIN, address_of, is_address, offset_of, place as ext_place,
};
pub use format::{QueueFormat, QueueUnit};
use open_files::KeptOpen;
pub(crate) use open_files::OpenFiles;
pub use unit::{FILLER_SIZE, UNIT_BYTES, Unit, place};

/// Entries in memory before the appender itself writes them.
const TAIL_BYTES_MAX: usize = 16 * 1024;
/// What an entry buffer keeps when it is written out.
const TAIL_BYTES_KEPT: usize = 4 * 1024;
/// Longest run of missing entries that is filled up; more is taken for damage.
const GAP_UNITS_MAX: i64 = 1_000_000;

/// Where queues of one format live and how long their files are.
#[derive(Debug)]
pub(crate) struct QueueFiles {
    pub(crate) file_system: Arc<dyn FileSystem>,
    pub(crate) format: QueueFormat,
    /// The directory that holds their topics.
    pub(crate) directory: PathBuf,
    /// A multiple of the format's entry.
    pub(crate) file_bytes: u64,
    /// None when no queue has ext units.
    pub(crate) ext: Option<Arc<ExtFiles>>,
    pub(crate) open_files: OpenFiles,
}

impl QueueFiles {
    pub(crate) fn topic_directory(&self, topic: &str) -> PathBuf {
        self.directory.join(topic)
    }

    fn units_per_file(&self) -> i64 {
        self.index_of(self.file_bytes)
    }

    /// Index of the entry at a byte of the queue.
    fn index_of(&self, position: u64) -> i64 {
        (position / self.format.unit_bytes() as u64) as i64
    }

    /// Byte of the queue at which an entry begins.
    fn position_of(&self, index: i64) -> u64 {
        index.max(0) as u64 * self.format.unit_bytes() as u64
    }
}

/// What became of an entry handed to [`ConsumeQueue::push_with_ext`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// It is the queue's newest.
    Added,
    /// The queue has it already.
    Known,
    /// The queue held younger offsets of records that lie before this one (the topic was deleted
    /// and made again): they were dropped and this one is the newest.
    Restarted,
    /// Entries in front of it are missing; nothing was added.
    Gap {
        /// The offset that the queue expects next.
        expected: i64,
    },
    /// The queue is of the other format; nothing was added.
    OtherFormat,
}

/// A queue.
#[derive(Debug)]
pub(crate) struct ConsumeQueue {
    topic: Arc<str>,
    queue_id: i32,
    /// Queues are numbered as they are made, so that walks over them go the same way each time.
    pub(crate) number: u64,
    files: Arc<QueueFiles>,
    /// The offset of the next message, moved by the holder of the append lock alone.
    next_offset: AtomicI64,
    /// What readers see.
    max_offset: AtomicI64,
    min_offset: AtomicI64,
    /// Set when the topic is deleted; the queue is then out of the table.
    removed: AtomicBool,
    /// Whether it is in the list of queues with unwritten entries.
    pub(crate) listed: AtomicBool,
    ext: Option<Box<QueueExt>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Files that exist, oldest first: base position in bytes.
    segments: Vec<Segment>,
    /// Index of the first entry in `tail`; what is in front of it is in the files.
    tail_first: i64,
    /// Entries that are not in the files yet.
    tail: Vec<u8>,
    /// End of the record of the newest entry.
    max_physical: i64,
    /// Entries in front of this index are synced.
    synced: i64,
    /// Whether a file was made or removed since the last sync of the directory.
    directory_changed: bool,
    /// Whether the oldest file was removed since the queue was opened.
    removed_oldest: bool,
}

#[derive(Debug)]
struct Segment {
    base: u64,
    file: Option<KeptOpen>,
    /// Whether the open file was used since the last sweep.
    used: bool,
    /// Whether it was written since the last sync.
    written: bool,
}

impl ConsumeQueue {
    /// A queue without entries.
    pub(crate) fn new(
        topic: Arc<str>,
        queue_id: i32,
        number: u64,
        files: Arc<QueueFiles>,
    ) -> ConsumeQueue {
        let ext = files
            .ext
            .as_ref()
            .map(|ext_files| Box::new(QueueExt::new(Arc::clone(ext_files), &topic, queue_id)));
        ConsumeQueue {
            ext,
            topic,
            queue_id,
            number,
            files,
            next_offset: AtomicI64::new(0),
            max_offset: AtomicI64::new(0),
            min_offset: AtomicI64::new(0),
            removed: AtomicBool::new(false),
            listed: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    pub(crate) fn topic(&self) -> &Arc<str> {
        &self.topic
    }

    pub(crate) fn queue_id(&self) -> i32 {
        self.queue_id
    }

    pub(crate) fn format(&self) -> QueueFormat {
        self.files.format
    }

    fn directory(&self) -> PathBuf {
        self.files.topic_directory(&self.topic).join(self.queue_id.to_string())
    }

    /// The offset behind the newest entry.
    pub(crate) fn max_offset(&self) -> i64 {
        self.max_offset.load(Ordering::Acquire)
    }

    /// The offset of the oldest entry whose record is still in the log.
    pub(crate) fn min_offset(&self) -> i64 {
        self.min_offset.load(Ordering::Acquire)
    }

    /// Where the record of the newest entry ends, 0 without entries.
    pub(crate) fn max_physical(&self) -> i64 {
        self.state.lock().max_physical
    }

    /// The next offset to assign. For the holder of the append lock.
    pub(crate) fn next_offset(&self) -> i64 {
        self.next_offset.load(Ordering::Relaxed)
    }

    /// Sets the next offset to assign. For the holder of the append lock.
    pub(crate) fn set_next_offset(&self, queue_offset: i64) {
        self.next_offset.store(queue_offset, Ordering::Relaxed);
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    pub(crate) fn set_removed(&self) {
        self.removed.store(true, Ordering::Release);
        let mut state = self.state.lock();
        state.segments.clear();
        state.tail = Vec::new();
        if let Some(ext) = &self.ext {
            ext.forget();
        }
    }

    /// Its ext units, if it may have some.
    pub(crate) fn ext(&self) -> Option<&QueueExt> {
        self.ext.as_deref()
    }

    /// Adds an entry of a simple queue. Entries come in the order of the log.
    #[cfg(test)]
    pub(crate) fn push(&self, queue_offset: i64, unit: Unit) -> Pushed {
        self.push_with_ext(&QueueUnit { queue_offset, count: 1, unit }, 0, b"")
    }

    /// Adds an entry, and its ext unit if new entries get one. Entries come in the order of the
    /// log. `properties` are the message's, for the bit map.
    pub(crate) fn push_with_ext(
        &self,
        entry: &QueueUnit,
        store_timestamp_ms: i64,
        properties: &[u8],
    ) -> Pushed {
        self.push_locked(&mut self.state.lock(), entry, store_timestamp_ms, properties)
    }

    /// Adds what belongs into this queue of records that come in the order of the log, and says
    /// what became of each. `each` is called with the queue locked: it must not ask the queue for
    /// more than its offsets.
    pub(crate) fn push_run<'d, 'r: 'd>(
        &self,
        run: impl Iterator<Item = &'d Dispatch<'r>>,
        mut each: impl FnMut(&'d Dispatch<'r>, Pushed),
    ) {
        let mut state = self.state.lock();
        for dispatch in run.filter(|dispatch| dispatch.has_entry()) {
            let Dispatch { entry, store_timestamp_ms, properties, .. } = dispatch;
            let pushed = if dispatch.format() == self.format() {
                self.push_locked(&mut state, entry, *store_timestamp_ms, properties)
            } else {
                Pushed::OtherFormat
            };
            each(dispatch, pushed);
        }
    }

    fn push_locked(
        &self,
        state: &mut State,
        entry: &QueueUnit,
        store_timestamp_ms: i64,
        properties: &[u8],
    ) -> Pushed {
        let QueueUnit { queue_offset, count, mut unit } = *entry;
        if unit.end_offset() <= state.max_physical {
            return Pushed::Known;
        }
        // Changed only by holders of the lock.
        let expected = self.max_offset.load(Ordering::Relaxed);
        let mut outcome = Pushed::Added;
        if queue_offset != expected {
            let empty = expected == 0 && state.segments.is_empty();
            if queue_offset < expected {
                let index = match self.index_locked(state, queue_offset) {
                    Ok(index) => index,
                    Err(error) => {
                        tracing::warn!(topic = %self.topic, queue_id = self.queue_id, %error,
                            "could not read consume queue entries");
                        return Pushed::Gap { expected };
                    }
                };
                if let Err(error) = self.cut_to(state, index) {
                    tracing::warn!(topic = %self.topic, queue_id = self.queue_id, %error,
                        "could not wipe dropped consume queue entries");
                }
                outcome = Pushed::Restarted;
            } else if empty {
                // The queue begins here; the file's front is filled when it is written.
                if self.format() == QueueFormat::Simple {
                    state.tail_first = queue_offset;
                    state.synced = queue_offset;
                }
                self.min_offset.store(queue_offset, Ordering::Release);
            } else {
                return Pushed::Gap { expected };
            }
        }
        if let Some(ext) = self.ext().filter(|ext| ext.is_written()) {
            let bit_map = ext.bit_map(&self.topic, properties);
            let ext_unit = ExtUnit {
                tags_code: unit.tags_code,
                msg_store_time_ms: store_timestamp_ms,
                filter_bit_map: &bit_map,
            };
            // Where there is no room for a unit the entry says its tags code itself.
            unit.tags_code = ext.append(&ext_unit).unwrap_or(unit.tags_code);
        }
        match self.format() {
            QueueFormat::Simple => state.tail.extend_from_slice(&unit.encode()),
            QueueFormat::Batch => {
                let base_offset = queue_offset;
                // Dispatch lets no larger one through.
                let count = i16::try_from(count).unwrap_or(INNER_BATCH_MAX);
                let batch = BatchUnit { unit, store_timestamp_ms, base_offset, count };
                state.tail.extend_from_slice(&batch.encode());
            }
        }
        state.max_physical = unit.end_offset();
        self.max_offset.store(entry.next_offset(), Ordering::Release);
        outcome
    }

    /// Fills a gap with entries that stand for no record, so that what follows can be added; a
    /// batch queue needs none. False when the gap is too long to be anything but damage.
    pub(crate) fn fill_gap(&self, to_queue_offset: i64) -> bool {
        let mut state = self.state.lock();
        if self.format() == QueueFormat::Simple {
            let expected = self.max_offset.load(Ordering::Relaxed);
            if to_queue_offset.saturating_sub(expected) > GAP_UNITS_MAX {
                return false;
            }
            for _ in expected..to_queue_offset {
                state.tail.extend_from_slice(&Unit::FILLER.encode());
            }
        }
        self.max_offset.fetch_max(to_queue_offset, Ordering::Release);
        true
    }

    /// Whether the appender should write the entries out itself.
    pub(crate) fn tail_is_long(&self) -> bool {
        self.state.lock().tail.len() >= TAIL_BYTES_MAX
    }

    /// Writes the entries in memory to the files. Does not sync.
    ///
    /// # Errors
    /// What the operating system says; entries that were not written stay in memory.
    pub(crate) fn write_tail(&self) -> Result<(), StoreError> {
        if self.is_removed() {
            return Ok(());
        }
        let mut state = self.state.lock();
        // First: no entry points at a unit that is not there.
        if let Some(ext) = &self.ext {
            ext.write_tail()?;
        }
        let mut done = 0;
        let result = self.write_units(&mut state, &mut done);
        state.tail_first += (done / self.format().unit_bytes()) as i64;
        if done == state.tail.len() {
            state.tail.clear();
            if state.tail.capacity() > TAIL_BYTES_KEPT {
                state.tail.shrink_to(TAIL_BYTES_KEPT);
            }
        } else {
            state.tail.drain(..done);
        }
        result
    }

    fn write_units(&self, state: &mut State, done: &mut usize) -> Result<(), StoreError> {
        while *done < state.tail.len() {
            let start = self.files.position_of(state.tail_first) + *done as u64;
            let position = start % self.files.file_bytes;
            let base = start - position;
            let room = (self.files.file_bytes - position) as usize;
            let end = state.tail.len().min(*done + room);
            let is_first_file = state.segments.is_empty();
            let index = self.segment(state, base)?;
            let path = self.directory().join(file_name(base));
            let file = self.open(&mut state.segments[index], &path)?;
            if is_first_file && position > 0 {
                // A batch queue begins with a file.
                let filler = Unit::FILLER.encode().repeat((position / UNIT_BYTES as u64) as usize);
                file.write_at(&filler, 0).map_err(StoreError::io("write", &path))?;
            }
            file.write_at(&state.tail[*done..end], position)
                .map_err(StoreError::io("write", &path))?;
            state.segments[index].written = true;
            *done = end;
        }
        Ok(())
    }

    /// The segment that begins at `base`, made if it is the next one.
    fn segment(&self, state: &mut State, base: u64) -> Result<usize, StoreError> {
        if let Ok(index) = state.segments.binary_search_by_key(&base, |segment| segment.base) {
            return Ok(index);
        }
        let directory = self.directory();
        let file_system = &self.files.file_system;
        if state.segments.is_empty() {
            file_system
                .create_directory(&directory)
                .map_err(StoreError::io("create directory", &directory))?;
        }
        let path = directory.join(file_name(base));
        let file =
            file_system.open(&path, OpenMode::Empty).map_err(StoreError::io("create", &path))?;
        file.set_len(self.files.file_bytes).map_err(StoreError::io("extend", &path))?;
        let file = self.files.open_files.keep(&file);
        state.segments.push(Segment { base, file, used: true, written: true });
        state.directory_changed = true;
        Ok(state.segments.len() - 1)
    }

    fn open(
        &self,
        segment: &mut Segment,
        path: &std::path::Path,
    ) -> Result<Arc<dyn StoreFile>, StoreError> {
        segment.used = true;
        if let Some(kept) = &segment.file {
            return Ok(kept.file());
        }
        let file = self
            .files
            .file_system
            .open(path, OpenMode::Existing)
            .map_err(StoreError::io("open", path))?;
        segment.file = self.files.open_files.keep(&file);
        Ok(file)
    }

    /// Bytes that are in the files but not synced.
    pub(crate) fn unsynced_bytes(&self) -> u64 {
        let state = self.state.lock();
        self.files.position_of(state.tail_first - state.synced)
    }

    /// Syncs what was written. The lock is not held meanwhile.
    ///
    /// # Errors
    /// What the operating system says; the caller must treat it as final.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        if self.is_removed() {
            return Ok(());
        }
        let target = state.tail_first;
        let directory = self.directory();
        let mut files = Vec::new();
        for index in 0..state.segments.len() {
            if state.segments[index].written {
                let path = directory.join(file_name(state.segments[index].base));
                let file = self.open(&mut state.segments[index], &path)?;
                state.segments[index].written = false;
                files.push((file, path));
            }
        }
        let directory_changed = std::mem::take(&mut state.directory_changed);
        drop(state);
        if let Some(ext) = &self.ext {
            ext.sync()?;
        }
        for (file, path) in &files {
            file.sync_data().map_err(StoreError::io("sync", path))?;
        }
        if directory_changed {
            // The directory itself and the two above it may be new as well.
            let topic_directory = self.files.topic_directory(&self.topic);
            for directory in [&directory, &topic_directory, &self.files.directory] {
                match self.files.file_system.sync_directory(directory) {
                    Ok(()) => {}
                    Err(_) if self.is_removed() => return Ok(()),
                    Err(error) => return Err(StoreError::io("sync directory", directory)(error)),
                }
            }
        }
        let mut state = self.state.lock();
        state.synced = state.synced.max(target);
        Ok(())
    }

    /// Closes files that nobody used since the last call.
    pub(crate) fn close_idle_files(&self) {
        let mut state = self.state.lock();
        for segment in &mut state.segments {
            if !segment.used && !segment.written {
                segment.file = None;
            }
            segment.used = false;
        }
        if state.tail.is_empty() {
            state.tail = Vec::new();
        }
        if let Some(ext) = &self.ext {
            ext.close_files();
        }
    }
}

#[cfg(test)]
mod batch_tests;
#[cfg(test)]
mod tests;
