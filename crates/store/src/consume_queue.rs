//! One queue of one topic: which record of the log is the n-th message.
//!
//! Owns the 20-byte entries, their files and the queue's offsets (RocketMQ's `ConsumeQueue`). New
//! entries are kept in memory and written in groups: they are derived from the log, so losing the
//! last of them costs a dispatch during recovery and nothing else. Files are made when first
//! written, without reserving their length, since thousands of queues would take a disk. No file is
//! mapped and none stays open for long, so idle queues cost little.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use parking_lot::Mutex;

use crate::error::StoreError;
use crate::file_system::{FileSystem, OpenMode, StoreFile};
use crate::mapped_file_queue::file_name;

mod ext;
mod ext_unit;
mod repair;
mod unit;

pub(crate) use ext::{ExtFiles, ExtReader, QueueExt};
pub use ext_unit::{
    ADDRESS_MAX, END_BYTES, END_MARK, ExtUnit, FilterBitMap, UNIT_BYTES_MAX as EXT_UNIT_BYTES_MAX,
    UNIT_BYTES_MIN as EXT_UNIT_BYTES_MIN, address_of, is_address, offset_of, place as ext_place,
};
pub use unit::{FILLER_SIZE, UNIT_BYTES, Unit, place, units};

/// Entries in memory before the appender itself writes them.
const TAIL_BYTES_MAX: usize = 16 * 1024;
/// What an entry buffer keeps when it is written out.
const TAIL_BYTES_KEPT: usize = 4 * 1024;
/// Longest run of missing entries that is filled up; more is taken for damage.
const GAP_UNITS_MAX: i64 = 1_000_000;

/// Where queues live and how long their files are.
#[derive(Debug)]
pub(crate) struct QueueFiles {
    pub(crate) file_system: Arc<dyn FileSystem>,
    /// The directory `consumequeue`.
    pub(crate) directory: PathBuf,
    /// A multiple of [`UNIT_BYTES`].
    pub(crate) file_bytes: u64,
    /// None when no queue has ext units.
    pub(crate) ext: Option<Arc<ExtFiles>>,
}

impl QueueFiles {
    pub(crate) fn topic_directory(&self, topic: &str) -> PathBuf {
        self.directory.join(topic)
    }

    fn units_per_file(&self) -> i64 {
        (self.file_bytes / UNIT_BYTES as u64) as i64
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
    /// Offset of the first entry in `tail`; what is in front of it is in the files.
    tail_first: i64,
    /// Entries that are not in the files yet.
    tail: Vec<u8>,
    /// End of the record of the newest entry.
    max_physical: i64,
    /// Entries in front of this offset are synced.
    synced: i64,
    /// Whether a file was made or removed since the last sync of the directory.
    directory_changed: bool,
}

#[derive(Debug)]
struct Segment {
    base: u64,
    file: Option<Arc<dyn StoreFile>>,
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

    /// Adds an entry. Entries come in the order of the log.
    #[cfg(test)]
    pub(crate) fn push(&self, queue_offset: i64, unit: Unit) -> Pushed {
        self.push_with_ext(queue_offset, unit, 0, b"")
    }

    /// Adds an entry, and its ext unit if new entries get one. Entries come in the order of the
    /// log. `properties` are the message's, for the bit map.
    pub(crate) fn push_with_ext(
        &self,
        queue_offset: i64,
        mut unit: Unit,
        store_timestamp_ms: i64,
        properties: &[u8],
    ) -> Pushed {
        let mut state = self.state.lock();
        if unit.end_offset() <= state.max_physical {
            return Pushed::Known;
        }
        let expected = state.tail_first + (state.tail.len() / UNIT_BYTES) as i64;
        let mut outcome = Pushed::Added;
        if queue_offset != expected {
            let empty = expected == 0 && state.segments.is_empty();
            if queue_offset < expected {
                if let Err(error) = self.cut_to(&mut state, queue_offset) {
                    tracing::warn!(topic = %self.topic, queue_id = self.queue_id, %error,
                        "could not wipe dropped consume queue entries");
                }
                outcome = Pushed::Restarted;
            } else if empty {
                // The queue begins here; the file's front is filled when it is written.
                state.tail_first = queue_offset;
                state.synced = queue_offset;
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
        state.tail.extend_from_slice(&unit.encode());
        state.max_physical = unit.end_offset();
        self.max_offset.store(queue_offset + 1, Ordering::Release);
        outcome
    }

    /// Fills a gap with entries that stand for no record, so that what follows can be added.
    /// False when the gap is too long to be anything but damage.
    pub(crate) fn fill_gap(&self, to_queue_offset: i64) -> bool {
        let mut state = self.state.lock();
        let expected = state.tail_first + (state.tail.len() / UNIT_BYTES) as i64;
        if to_queue_offset.saturating_sub(expected) > GAP_UNITS_MAX {
            return false;
        }
        for _ in expected..to_queue_offset {
            state.tail.extend_from_slice(&Unit::FILLER.encode());
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
        let units = done / UNIT_BYTES;
        state.tail_first += units as i64;
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
        let per_file = self.files.units_per_file();
        while *done < state.tail.len() {
            let first = state.tail_first + (*done / UNIT_BYTES) as i64;
            let base = (first / per_file) as u64 * self.files.file_bytes;
            let position = (first % per_file) as u64 * UNIT_BYTES as u64;
            let room = (self.files.file_bytes - position) as usize;
            let end = state.tail.len().min(*done + room);
            let is_first_file = state.segments.is_empty();
            let index = self.segment(state, base)?;
            let path = self.directory().join(file_name(base));
            let file = self.open(&mut state.segments[index], &path)?;
            if is_first_file && position > 0 {
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
        state.segments.push(Segment { base, file: Some(file), used: true, written: true });
        state.directory_changed = true;
        Ok(state.segments.len() - 1)
    }

    fn open(
        &self,
        segment: &mut Segment,
        path: &std::path::Path,
    ) -> Result<Arc<dyn StoreFile>, StoreError> {
        segment.used = true;
        if let Some(file) = &segment.file {
            return Ok(Arc::clone(file));
        }
        let file = self
            .files
            .file_system
            .open(path, OpenMode::Existing)
            .map_err(StoreError::io("open", path))?;
        segment.file = Some(Arc::clone(&file));
        Ok(file)
    }

    /// Bytes that are in the files but not synced.
    pub(crate) fn unsynced_bytes(&self) -> u64 {
        let state = self.state.lock();
        (state.tail_first - state.synced).max(0) as u64 * UNIT_BYTES as u64
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

    /// Reads entries from `queue_offset` on into `out`, at most `count_max`, all of one file.
    /// Nothing is read at or behind the maximum, or where no file is.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn read(
        &self,
        queue_offset: i64,
        count_max: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        out.clear();
        let mut state = self.state.lock();
        let max = state.tail_first + (state.tail.len() / UNIT_BYTES) as i64;
        if queue_offset < 0 || queue_offset >= max {
            return Ok(());
        }
        let per_file = self.files.units_per_file();
        let file_left = per_file - queue_offset % per_file;
        let count = (count_max as i64).min(file_left).min(max - queue_offset);
        if queue_offset >= state.tail_first {
            let start = (queue_offset - state.tail_first) as usize * UNIT_BYTES;
            let end = start + count as usize * UNIT_BYTES;
            out.extend_from_slice(&state.tail[start..end]);
            return Ok(());
        }
        let count = count.min(state.tail_first - queue_offset);
        let base = (queue_offset / per_file) as u64 * self.files.file_bytes;
        let Ok(index) = state.segments.binary_search_by_key(&base, |segment| segment.base) else {
            return Ok(());
        };
        let path = self.directory().join(file_name(base));
        let file = self.open(&mut state.segments[index], &path)?;
        drop(state);
        out.resize(count as usize * UNIT_BYTES, 0);
        let position = (queue_offset % per_file) as u64 * UNIT_BYTES as u64;
        file.read_at(out, position).map_err(StoreError::io("read", &path))
    }

    /// The entry at `queue_offset`.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn unit(&self, queue_offset: i64) -> Result<Option<Unit>, StoreError> {
        let mut bytes = Vec::with_capacity(UNIT_BYTES);
        self.read(queue_offset, 1, &mut bytes)?;
        Ok(units(&bytes).next())
    }

    /// First offset that begins a file behind the one that holds `queue_offset`.
    pub(crate) fn next_file_start(&self, queue_offset: i64) -> i64 {
        let per_file = self.files.units_per_file();
        (queue_offset.max(0) / per_file + 1) * per_file
    }

    /// Moves the minimum to the first entry whose record lies at or behind `log_start`, and removes
    /// files that hold only older ones. The last file stays. Returns how many were removed.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn follow_log_start(&self, log_start: i64) -> Result<usize, StoreError> {
        let max = self.max_offset();
        let (mut low, mut high) = (self.min_offset(), max);
        // Entries lie in the order of the log, fillers (offset 0) in front of all.
        while low < high {
            let middle = low + (high - low) / 2;
            match self.unit(middle)? {
                Some(unit) if unit.physical_offset >= log_start && !unit.is_filler() => {
                    high = middle;
                }
                Some(_) => low = middle + 1,
                None => break,
            }
        }
        self.min_offset.fetch_max(low, Ordering::Release);
        if let Some(ext) = &self.ext
            && let Some(unit) = self.unit(low)?
        {
            ext.remove_in_front(unit.tags_code)?;
        }
        let mut state = self.state.lock();
        let per_file = self.files.units_per_file();
        let mut removed = 0;
        while state.segments.len() > 1
            && state.segments[0].base as i64 / UNIT_BYTES as i64 + per_file <= low
        {
            let path = self.directory().join(file_name(state.segments[0].base));
            self.files.file_system.remove_file(&path).map_err(StoreError::io("remove", &path))?;
            state.segments.remove(0);
            state.directory_changed = true;
            removed += 1;
        }
        Ok(removed)
    }
}

#[cfg(test)]
mod tests;
