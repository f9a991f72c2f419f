//! Bringing a queue's files and the log to agree: opening, cutting, clearing.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use super::format::{QueueFormat, QueueUnit, partition_point};
use super::{ConsumeQueue, Segment, State, is_address};
use crate::error::StoreError;
use crate::mapped_file_queue::{file_name, list_log_files};
use crate::rewrite::rewrite;

/// What is read of a file at a time.
const STEP_BYTES: usize = 64 * 1024;

/// What [`ConsumeQueue::load`] found.
#[derive(Debug, Default)]
pub(crate) struct LoadedQueue {
    /// Entries of the directory that are no files of the queue; left alone.
    pub(crate) foreign: Vec<PathBuf>,
}

impl ConsumeQueue {
    /// Opens what is on disk: finds the last entry, and drops what is behind it.
    ///
    /// Entries are checked from the third-last file on, as RocketMQ does; the first one that
    /// cannot have been written ends the queue. After an unclean end what is behind it is wiped;
    /// after a clean one that is not worth a call for each queue. `vouched_end` is given after an
    /// unclean end: entries of records in front of it were synced. What was not can be there in a
    /// newer file and lost in an older one, so the check begins no later than with those.
    ///
    /// # Errors
    /// When a file has another length than configured or the operating system refuses.
    pub(crate) fn load(&self, vouched_end: Option<i64>) -> Result<LoadedQueue, StoreError> {
        let clean = vouched_end.is_none();
        let directory = self.directory();
        let file_system = &self.files.file_system;
        let listed = list_log_files(&**file_system, &directory)?;
        let mut found = listed.files;
        if let Some(&(base, 0)) = found.last() {
            let path = directory.join(file_name(base));
            file_system.remove_file(&path).map_err(StoreError::io("remove", &path))?;
            found.pop();
        }
        if !clean {
            // A crash can keep the name of a file and lose its length, also of one that is not the
            // last. Without it the queue has a gap and ends there.
            for &(base, _) in found.iter().filter(|(_, bytes)| *bytes == 0) {
                let path = directory.join(file_name(base));
                file_system.remove_file(&path).map_err(StoreError::io("remove", &path))?;
            }
            found.retain(|(_, bytes)| *bytes > 0);
        }
        let mut state = self.state.lock();
        *state = State::default();
        for (base, bytes) in found {
            let path = directory.join(file_name(base));
            if bytes != self.files.file_bytes {
                return Err(StoreError::FileSize {
                    path,
                    bytes,
                    expected: self.files.file_bytes,
                    key: self.format().file_bytes_key(),
                });
            }
            if base % self.files.file_bytes != 0 {
                return Err(StoreError::FileName {
                    path,
                    file_bytes: self.files.file_bytes,
                    key: self.format().file_bytes_key(),
                });
            }
            state.segments.push(Segment { base, file: None, used: false, written: false });
        }
        // A gap between files ends the queue: what is behind it cannot be reached in order.
        let contiguous = state
            .segments
            .windows(2)
            .position(|pair| pair[1].base != pair[0].base + self.files.file_bytes)
            .map_or(state.segments.len(), |index| index + 1);
        let unit_bytes = self.format().unit_bytes();
        let mut end = None;
        let (mut max_physical, mut max_offset) = (0, 0);
        let mut newest_address = None;
        let mut index = contiguous.saturating_sub(3);
        let mut buffer = Vec::new();
        if let Some(vouched_end) = vouched_end {
            while index > 0 && !self.begins_in_front_of(&mut state, index, vouched_end)? {
                index -= 1;
            }
        }
        'files: while index < contiguous {
            let base = state.segments[index].base;
            let path = directory.join(file_name(base));
            let file = self.open(&mut state.segments[index], &path)?;
            let mut position = 0;
            while position < self.files.file_bytes {
                let step = (STEP_BYTES / unit_bytes * unit_bytes) as u64;
                buffer.resize((self.files.file_bytes - position).min(step) as usize, 0);
                file.read_at(&mut buffer, position).map_err(StoreError::io("read", &path))?;
                let first_index = self.files.index_of(base + position);
                for entry in self.format().entries(&buffer, first_index) {
                    let unit = entry.unit;
                    let in_order = (unit.is_filler() || unit.end_offset() > max_physical)
                        && entry.queue_offset >= max_offset;
                    if !entry.is_written() || !in_order {
                        end = Some(base + position);
                        break 'files;
                    }
                    max_physical = max_physical.max(unit.end_offset());
                    max_offset = entry.next_offset();
                    if is_address(unit.tags_code) {
                        newest_address = Some(unit.tags_code);
                    }
                    position += unit_bytes as u64;
                }
            }
            end = Some(base + self.files.file_bytes);
            index += 1;
        }
        let end_index = self.files.index_of(end.unwrap_or(0));
        state.max_physical = max_physical;
        state.tail_first = end_index;
        state.synced = end_index;
        self.drop_segments_behind(&mut state, end_index, !clean)?;
        if max_physical == 0 && end_index > 0 {
            // The checked files begin with an end; look for the newest entry in front of it.
            state.max_physical = self.last_physical(&mut state)?;
        }
        let end_offset = self.offset_behind(&mut state, end_index)?;
        let first_index = state.segments.first().map_or(0, |file| self.files.index_of(file.base));
        let min_offset = match self.format() {
            QueueFormat::Simple => first_index,
            QueueFormat::Batch => {
                let first = self.read_locked(&mut state, first_index, &mut buffer)?;
                first.map_or(0, |entry| entry.queue_offset)
            }
        };
        for segment in &mut state.segments {
            segment.file = None;
        }
        drop(state);
        if let Some(ext) = &self.ext {
            ext.load(newest_address)?;
        }
        self.min_offset.store(min_offset.min(end_offset), Ordering::Release);
        self.max_offset.store(end_offset, Ordering::Release);
        self.set_next_offset(end_offset);
        Ok(LoadedQueue { foreign: listed.foreign })
    }

    /// Whether a file begins with an entry whose record lies in front of `physical_offset`.
    fn begins_in_front_of(
        &self,
        state: &mut State,
        index: usize,
        physical_offset: i64,
    ) -> Result<bool, StoreError> {
        let base = state.segments[index].base;
        let path = self.directory().join(file_name(base));
        let file = self.open(&mut state.segments[index], &path)?;
        let mut bytes = vec![0; self.format().unit_bytes()];
        file.read_at(&mut bytes, 0).map_err(StoreError::io("read", &path))?;
        let first = self.format().entries(&bytes, self.files.index_of(base)).next();
        Ok(first.is_some_and(|entry| {
            entry.is_written()
                && !entry.unit.is_filler()
                && entry.unit.end_offset() <= physical_offset
        }))
    }

    /// The queue offset behind the entries in front of this index.
    fn offset_behind(&self, state: &mut State, index: i64) -> Result<i64, StoreError> {
        match self.format() {
            QueueFormat::Simple => Ok(index),
            QueueFormat::Batch => {
                let last = self.read_locked(state, index - 1, &mut Vec::new())?;
                Ok(last.map_or(0, |entry| entry.next_offset()))
            }
        }
    }

    /// Drops files at and behind the entry with this index, and if `wipe` the bytes, so that no old
    /// entry can be taken for a new one later.
    fn drop_segments_behind(
        &self,
        state: &mut State,
        index: i64,
        wipe: bool,
    ) -> Result<(), StoreError> {
        let end = self.files.position_of(index);
        let directory = self.directory();
        while let Some(last) = state.segments.last()
            && last.base >= end
        {
            let is_only = state.segments.len() == 1 && last.base == end && end > 0;
            if is_only && self.format() == QueueFormat::Simple {
                // All older files have expired. This one says where the queue goes on.
                break;
            }
            let path = directory.join(file_name(last.base));
            self.files.file_system.remove_file(&path).map_err(StoreError::io("remove", &path))?;
            state.segments.pop();
            state.directory_changed = true;
        }
        if wipe && let Some(last) = state.segments.len().checked_sub(1) {
            let base = state.segments[last].base;
            let path = directory.join(file_name(base));
            let position = end.saturating_sub(base);
            if position < self.files.file_bytes {
                let file = self.open(&mut state.segments[last], &path)?;
                file.zero_range(position, self.files.file_bytes - position)
                    .map_err(StoreError::io("wipe the end of", &path))?;
                state.segments[last].written = true;
            }
        }
        Ok(())
    }

    /// Index of the entry that holds `queue_offset`, or of the next behind it.
    ///
    /// # Errors
    /// What the operating system says.
    pub(super) fn index_locked(
        &self,
        state: &mut State,
        queue_offset: i64,
    ) -> Result<i64, StoreError> {
        match self.format() {
            QueueFormat::Simple => Ok(queue_offset),
            QueueFormat::Batch => {
                let indexes = self.indexes_locked(state);
                let mut buffer = Vec::new();
                let entry_at = |index| self.read_locked(state, index, &mut buffer);
                partition_point(indexes, entry_at, |entry| entry.next_offset() <= queue_offset)
            }
        }
    }

    /// Drops entries from this index on.
    ///
    /// # Errors
    /// When they cannot be wiped, or the one in front of a batch queue's cut cannot be read. They
    /// are dropped all the same: the files keep old entries that are overwritten in order, and the
    /// next recovery compares the last one with the log.
    pub(super) fn cut_to(&self, state: &mut State, index: i64) -> Result<(), StoreError> {
        let mut cut = Ok(());
        if index >= state.tail_first {
            state.tail.truncate(self.files.position_of(index - state.tail_first) as usize);
        } else {
            state.tail.clear();
            cut = self.drop_segments_behind(state, index, true);
            state.tail_first = index;
            state.synced = state.synced.min(index);
        }
        state.max_physical = 0;
        let offset_behind = self.offset_behind(state, index);
        let max = *offset_behind.as_ref().unwrap_or(&0);
        let min = self.min_offset.load(Ordering::Acquire);
        self.min_offset.store(min.min(max), Ordering::Release);
        self.max_offset.store(max, Ordering::Release);
        cut.and(offset_behind.map(drop))
    }

    /// Writes all files over themselves; see [`rewrite`].
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn rewrite(&self) -> Result<(), StoreError> {
        if let Some(ext) = &self.ext {
            ext.rewrite()?;
        }
        let mut state = self.state.lock();
        let directory = self.directory();
        for segment in &mut state.segments {
            let path = directory.join(file_name(segment.base));
            let file = self.open(segment, &path)?;
            rewrite(&*file, &path, self.files.file_bytes)?;
            segment.written = true;
        }
        Ok(())
    }

    /// Whether it has files, but not one entry: they say no more than where it goes on.
    pub(crate) fn is_bare(&self) -> bool {
        self.max_offset() > 0 && self.max_physical() == 0
    }

    /// Drops all entries: the queue is built anew.
    pub(crate) fn clear(&self) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        self.drop_segments_behind(&mut state, 0, true)?;
        if let Some(ext) = &self.ext {
            ext.clear()?;
        }
        *state = State { directory_changed: true, ..State::default() };
        drop(state);
        self.min_offset.store(0, Ordering::Release);
        self.max_offset.store(0, Ordering::Release);
        Ok(())
    }

    /// Removes the directory of a queue without entries, if nothing is in it.
    pub(crate) fn remove_empty_directory(&self) -> Result<(), StoreError> {
        let directory = self.directory();
        let file_system = &self.files.file_system;
        let exists =
            file_system.exists(&directory).map_err(StoreError::io("look for", &directory))?;
        if exists
            && file_system.list(&directory).map_err(StoreError::io("list", &directory))?.is_empty()
        {
            file_system
                .remove_directory(&directory)
                .map_err(StoreError::io("remove directory", &directory))?;
        }
        Ok(())
    }

    /// Whether the queue's first files seem to be missing: it does not begin with its first message,
    /// and the one that it begins with is still in the log, which begins at `log_start`. Removal of
    /// old files leaves that behind only if a file of the queue happens to begin just there.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn may_lack_front(&self, log_start: i64) -> Result<bool, StoreError> {
        let min = self.min_offset();
        if min == 0 || min == self.max_offset() {
            return Ok(false);
        }
        let first = self.entry(min)?.map(|entry| entry.unit);
        Ok(first.is_some_and(|unit| !unit.is_filler() && unit.physical_offset >= log_start))
    }

    /// Drops entries whose records do not lie in front of `log_end`.
    pub(crate) fn cut_behind_log(&self, log_end: i64) -> Result<(), StoreError> {
        self.cut_last_while(|entry| !entry.unit.is_filler() && entry.unit.end_offset() > log_end)
    }

    /// Drops entries from the newest on for as long as `wrong` says so.
    pub(crate) fn cut_last_while(
        &self,
        mut wrong: impl FnMut(&QueueUnit) -> bool,
    ) -> Result<(), StoreError> {
        let (first, end) = match self.format() {
            QueueFormat::Simple => (self.min_offset(), self.max_offset()),
            QueueFormat::Batch => self.indexes(),
        };
        let mut cut = end;
        let mut last_end = None;
        while cut > first {
            let Some(entry) = self.entry_at(cut - 1)? else { break };
            if !wrong(&entry) {
                last_end = Some(entry.unit.end_offset());
                break;
            }
            cut -= 1;
        }
        if cut < end {
            let mut state = self.state.lock();
            self.cut_to(&mut state, cut)?;
            state.max_physical = match last_end {
                Some(end) if end > 0 => end,
                _ => self.last_physical(&mut state)?,
            };
        }
        self.set_next_offset(self.max_offset());
        Ok(())
    }

    /// The end of the newest record that the files speak of.
    fn last_physical(&self, state: &mut State) -> Result<i64, StoreError> {
        let directory = self.directory();
        let end = self.files.position_of(state.tail_first);
        for index in (0..state.segments.len()).rev() {
            let base = state.segments[index].base;
            let path = directory.join(file_name(base));
            let file = self.open(&mut state.segments[index], &path)?;
            let mut bytes = vec![0; (end - base).min(self.files.file_bytes) as usize];
            file.read_at(&mut bytes, 0).map_err(StoreError::io("read", &path))?;
            let first_index = self.files.index_of(base);
            let mut entries = self.format().entries(&bytes, first_index);
            if let Some(entry) = entries.rfind(|entry| !entry.unit.is_filler()) {
                return Ok(entry.unit.end_offset());
            }
        }
        Ok(0)
    }
}
