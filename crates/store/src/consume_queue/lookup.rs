//! Finding entries of a queue: by index, by queue offset, and by where the log begins.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::format::{QueueFormat, QueueUnit, partition_point};
use super::{ConsumeQueue, State};
use crate::error::StoreError;
use crate::file_system::StoreFile;
use crate::mapped_file_queue::file_name;

/// Where entries are that [`ConsumeQueue::locate`] did not find in memory.
struct Place {
    file: Arc<dyn StoreFile>,
    base: u64,
    position: u64,
    bytes: usize,
}

impl ConsumeQueue {
    /// Reads entries into `out`, from the one that holds `queue_offset` or is the next behind it on,
    /// at most `count_max`, all of one file. Nothing is read at or behind the maximum, or where no
    /// file is. Returns the index of the first one, for [`QueueFormat::entries`].
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn read(
        &self,
        queue_offset: i64,
        count_max: usize,
        out: &mut Vec<u8>,
    ) -> Result<i64, StoreError> {
        let index = match self.format() {
            QueueFormat::Simple => queue_offset,
            QueueFormat::Batch => self.batch_index(queue_offset, out)?,
        };
        self.read_index(index, count_max, out)?;
        Ok(index)
    }

    /// The same by index.
    fn read_index(
        &self,
        index: i64,
        count_max: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let Some(place) = self.locate(&mut state, index, count_max, out)? else { return Ok(()) };
        drop(state);
        self.read_place(&place, out)
    }

    /// The same for the holder of the lock.
    pub(super) fn read_locked(
        &self,
        state: &mut State,
        index: i64,
        out: &mut Vec<u8>,
    ) -> Result<Option<QueueUnit>, StoreError> {
        if let Some(place) = self.locate(state, index, 1, out)? {
            self.read_place(&place, out)?;
        }
        Ok(self.format().entries(out, index).next())
    }

    /// Copies entries that are in memory, or says where in the files they are.
    fn locate(
        &self,
        state: &mut State,
        index: i64,
        count_max: usize,
        out: &mut Vec<u8>,
    ) -> Result<Option<Place>, StoreError> {
        out.clear();
        let unit_bytes = self.format().unit_bytes();
        let end = state.tail_first + (state.tail.len() / unit_bytes) as i64;
        if index < 0 || index >= end {
            return Ok(None);
        }
        let per_file = self.files.units_per_file();
        let file_left = per_file - index % per_file;
        let count = (count_max as i64).min(file_left).min(end - index);
        if index >= state.tail_first {
            let start = (index - state.tail_first) as usize * unit_bytes;
            out.extend_from_slice(&state.tail[start..start + count as usize * unit_bytes]);
            return Ok(None);
        }
        let count = count.min(state.tail_first - index);
        let base = (index / per_file) as u64 * self.files.file_bytes;
        let Ok(found) = state.segments.binary_search_by_key(&base, |segment| segment.base) else {
            return Ok(None);
        };
        let path = self.directory().join(file_name(base));
        let file = self.open(&mut state.segments[found], &path)?;
        let position = (index % per_file) as u64 * unit_bytes as u64;
        Ok(Some(Place { file, base, position, bytes: count as usize * unit_bytes }))
    }

    fn read_place(&self, place: &Place, out: &mut Vec<u8>) -> Result<(), StoreError> {
        out.resize(place.bytes, 0);
        place.file.read_at(out, place.position).map_err(|error| {
            StoreError::io("read", &self.directory().join(file_name(place.base)))(error)
        })
    }

    /// The entry with this index.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn entry_at(&self, index: i64) -> Result<Option<QueueUnit>, StoreError> {
        self.entry_at_with(index, &mut Vec::with_capacity(self.format().unit_bytes()))
    }

    fn entry_at_with(
        &self,
        index: i64,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<QueueUnit>, StoreError> {
        self.read_index(index, 1, buffer)?;
        Ok(self.format().entries(buffer, index).next())
    }

    /// The entry that holds `queue_offset`.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn entry(&self, queue_offset: i64) -> Result<Option<QueueUnit>, StoreError> {
        let mut buffer = Vec::with_capacity(self.format().unit_bytes());
        let index = self.read(queue_offset, 1, &mut buffer)?;
        let found = self.format().entries(&buffer, index).next();
        Ok(found.filter(|entry| entry.holds(queue_offset)))
    }

    /// Indexes of the entries that there are.
    pub(super) fn indexes(&self) -> (i64, i64) {
        self.indexes_locked(&self.state.lock())
    }

    /// The same for the holder of the lock.
    pub(super) fn indexes_locked(&self, state: &State) -> (i64, i64) {
        let files_first = state.segments.first().map(|segment| self.files.index_of(segment.base));
        let tail_units = self.files.index_of(state.tail.len() as u64);
        (files_first.unwrap_or(state.tail_first), state.tail_first + tail_units)
    }

    /// The first of the entries from the minimum on that is not in front of what is looked for, by
    /// its queue offset; the maximum if there is none. Entries in front come first.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn first_offset_behind(
        &self,
        is_in_front: impl FnMut(&QueueUnit) -> bool,
    ) -> Result<i64, StoreError> {
        self.first_behind(is_in_front).map(|(_, queue_offset)| queue_offset)
    }

    /// The same with the entry's index.
    fn first_behind(
        &self,
        is_in_front: impl FnMut(&QueueUnit) -> bool,
    ) -> Result<(i64, i64), StoreError> {
        // The maximum first: what is added meanwhile lies behind it.
        let max = self.max_offset();
        let indexes = match self.format() {
            QueueFormat::Simple => (self.min_offset(), max),
            QueueFormat::Batch => self.indexes(),
        };
        let mut buffer = Vec::new();
        let entry_at = |index| self.entry_at_with(index, &mut buffer);
        let index = partition_point(indexes, entry_at, is_in_front)?;
        let queue_offset = match self.format() {
            QueueFormat::Simple => index,
            QueueFormat::Batch if index == indexes.1 => max,
            QueueFormat::Batch => self.entry_at(index)?.map_or(max, |entry| entry.queue_offset),
        };
        Ok((index, queue_offset))
    }

    /// Index of the entry of a batch queue that holds `queue_offset`, or of the next behind it.
    fn batch_index(&self, queue_offset: i64, buffer: &mut Vec<u8>) -> Result<i64, StoreError> {
        let mut state = self.state.lock();
        let (mut first, end) = self.indexes_locked(&state);
        // Most readers are near the end, where entries are in memory.
        let tail_first = state.tail_first;
        if let Some(entry) = self.read_locked(&mut state, tail_first, buffer)?
            && entry.queue_offset <= queue_offset
        {
            first = tail_first;
        }
        drop(state);
        let entry_at = |index| self.entry_at_with(index, buffer);
        partition_point((first, end), entry_at, |entry| entry.next_offset() <= queue_offset)
    }

    /// Where one read that begins at `queue_offset` ends at the latest: simple queues are read a
    /// file at a time.
    pub(crate) fn read_end(&self, queue_offset: i64) -> i64 {
        match self.format() {
            QueueFormat::Simple => self.next_file_start(queue_offset),
            QueueFormat::Batch => i64::MAX,
        }
    }

    /// Where to go on when there is no entry at `queue_offset`: its file is gone.
    pub(crate) fn behind_missing_file(&self, queue_offset: i64) -> i64 {
        match self.format() {
            QueueFormat::Simple => self.next_file_start(queue_offset),
            QueueFormat::Batch => {
                let min = self.min_offset();
                if min > queue_offset { min } else { self.max_offset() }
            }
        }
    }

    /// First offset of a simple queue that begins a file behind the one that holds `queue_offset`.
    pub(super) fn next_file_start(&self, queue_offset: i64) -> i64 {
        let per_file = self.files.units_per_file();
        (queue_offset.max(0) / per_file + 1) * per_file
    }

    /// Moves the minimum to the first entry whose record lies at or behind `log_start`, and removes
    /// files that hold only older ones. The last file stays, of a batch queue the last entry: it
    /// alone says where the queue goes on. Returns how many were removed.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn follow_log_start(&self, log_start: i64) -> Result<usize, StoreError> {
        // Entries lie in the order of the log, fillers (offset 0) in front of all.
        let (index, min_offset) = self.first_behind(|entry| {
            entry.unit.is_filler() || entry.unit.physical_offset < log_start
        })?;
        self.min_offset.fetch_max(min_offset, Ordering::Release);
        if let Some(ext) = self.ext()
            && let Some(entry) = self.entry_at(index)?
        {
            ext.remove_in_front(entry.unit.tags_code)?;
        }
        // An entry of an expired record is synced before the record goes, and never cut; one of a
        // younger record may be lost with it in a crash.
        let kept = match self.format() {
            QueueFormat::Simple => index,
            QueueFormat::Batch => index - 1,
        };
        let mut state = self.state.lock();
        let per_file = self.files.units_per_file();
        let mut removed = 0;
        while state.segments.len() > 1
            && self.files.index_of(state.segments[0].base) + per_file <= kept
        {
            let directory = self.directory();
            let path = directory.join(file_name(state.segments[0].base));
            if state.removed_oldest {
                // A crash must not bring a file back and lose the one behind it: a gap would end
                // the queue there.
                self.files
                    .file_system
                    .sync_directory(&directory)
                    .map_err(StoreError::io("sync directory", &directory))?;
            }
            self.files.file_system.remove_file(&path).map_err(StoreError::io("remove", &path))?;
            state.segments.remove(0);
            state.directory_changed = true;
            state.removed_oldest = true;
            removed += 1;
        }
        Ok(removed)
    }
}
