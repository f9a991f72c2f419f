//! The files of a queue's ext units (RocketMQ's `ConsumeQueueExt`).
//!
//! Owns where a unit goes and how it is found again. As with the queue's entries, new units are
//! kept in memory and written in groups; they are written and synced before the entries that point
//! at them. A unit never spans files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::ConsumeQueue;
use super::ext_unit::{
    END_BYTES, END_MARK, ExtUnit, FilterBitMap, UNIT_BYTES_MAX, UNIT_BYTES_MIN, address_of,
    is_address, offset_of,
};
use super::open_files::{KeptOpen, OpenFiles};
use crate::config::StoreConfig;
use crate::dispatch::Dispatch;
use crate::error::StoreError;
use crate::file_system::{FileSystem, OpenMode, StoreFile};
use crate::mapped_file_queue::{file_name, list_log_files};
use crate::rewrite::rewrite;
use crate::store::Environment;

/// What a reader takes from a file at a time.
const WINDOW_BYTES: usize = 16 * 1024;

/// Where the units of all queues live and who makes their bit maps.
#[derive(Debug)]
pub(crate) struct ExtFiles {
    pub(crate) file_system: Arc<dyn FileSystem>,
    /// The directory `consumequeue_ext`.
    pub(crate) directory: PathBuf,
    /// `mappedFileSizeConsumeQueueExt`.
    pub(crate) file_bytes: u64,
    /// Whether new entries get units (`enableConsumeQueueExt`); else those that exist are read.
    pub(crate) is_written: bool,
    pub(crate) filter_bit_map: Option<Arc<dyn FilterBitMap>>,
    /// What a bit map is expected to take (`bitMapLengthConsumeQueueExt`, there in bits).
    pub(crate) bit_map_bytes: usize,
    pub(crate) open_files: OpenFiles,
}

impl ExtFiles {
    /// Where the units are, if there may be any: new ones, or some of an earlier time.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn of(
        config: &StoreConfig,
        environment: &Environment,
    ) -> Result<Option<Arc<ExtFiles>>, StoreError> {
        let directory = config.root_dir.join("consumequeue_ext");
        let file_system = &environment.file_system;
        let exists =
            file_system.exists(&directory).map_err(StoreError::io("look for", &directory))?;
        if !exists && !config.enable_consume_queue_ext {
            return Ok(None);
        }
        Ok(Some(Arc::new(ExtFiles {
            file_system: Arc::clone(file_system),
            directory,
            file_bytes: config.consume_queue_ext_file_bytes,
            is_written: config.enable_consume_queue_ext,
            filter_bit_map: environment.filter_bit_map.clone(),
            bit_map_bytes: usize::try_from(config.consume_queue_ext_bit_map_bits / 8).unwrap_or(0),
            open_files: Default::default(),
        })))
    }
}

impl ConsumeQueue {
    /// Whether the ext unit of a record's entry, if it has one, says what the record says. An entry
    /// that is not there, or stands for another record, is not this question's business.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn ext_agrees(&self, dispatch: &Dispatch<'_>) -> Result<bool, StoreError> {
        let Some(ext) = self.ext() else { return Ok(true) };
        let Some(entry) = self.entry(dispatch.entry.queue_offset)? else { return Ok(true) };
        let (unit, wanted) = (entry.unit, dispatch.entry.unit);
        let is_other = unit.physical_offset != wanted.physical_offset;
        if is_other || !is_address(unit.tags_code) {
            return Ok(true);
        }
        let mut reader = ExtReader::default();
        let found = reader.unit(ext, unit.tags_code)?;
        Ok(found.is_some_and(|found| {
            found.tags_code == wanted.tags_code
                && found.msg_store_time_ms == dispatch.store_timestamp_ms
        }))
    }
}

/// The units of one queue.
#[derive(Debug)]
pub(crate) struct QueueExt {
    files: Arc<ExtFiles>,
    directory: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    segments: Vec<Segment>,
    /// Where `tail` begins; what is in front of it is in the files.
    tail_start: u64,
    /// Bytes that are not in the files yet: units, end marks and what is left of a file.
    tail: Vec<u8>,
    directory_changed: bool,
}

#[derive(Debug)]
struct Segment {
    base: u64,
    file: Option<KeptOpen>,
    /// Whether it was written since the last sync.
    written: bool,
}

impl QueueExt {
    pub(crate) fn new(files: Arc<ExtFiles>, topic: &str, queue_id: i32) -> QueueExt {
        let directory = files.directory.join(topic).join(queue_id.to_string());
        QueueExt { files, directory, state: Mutex::default() }
    }

    fn path_of(&self, base: u64) -> PathBuf {
        self.directory.join(file_name(base))
    }

    /// Whether new entries get units.
    pub(super) fn is_written(&self) -> bool {
        self.files.is_written
    }

    /// The bit map of a message, if filters want one.
    pub(super) fn bit_map(&self, topic: &str, properties: &[u8]) -> Vec<u8> {
        let mut bit_map = Vec::new();
        if let Some(filter) = &self.files.filter_bit_map {
            bit_map.reserve_exact(self.files.bit_map_bytes);
            filter.bit_map(topic, properties, &mut bit_map);
        }
        bit_map
    }

    /// Adds a unit and returns its address; none if it is too long for one, or for a file.
    pub(super) fn append(&self, unit: &ExtUnit<'_>) -> Option<i64> {
        let bytes = unit.encoded_bytes()?;
        let file_bytes = self.files.file_bytes;
        if (bytes + END_BYTES) as u64 > file_bytes {
            return None;
        }
        let mut state = self.state.lock();
        let mut offset = state.tail_start + state.tail.len() as u64;
        let left = file_bytes - offset % file_bytes;
        if (bytes + END_BYTES) as u64 > left {
            // Less than a unit and its end. The mark is there unless the file ends before it.
            let mark = END_MARK.to_be_bytes();
            let end = state.tail.len() + left as usize;
            state.tail.extend_from_slice(&mark[..mark.len().min(left as usize)]);
            state.tail.resize(end, 0);
            offset += left;
        }
        let address = address_of(offset + bytes as u64).and(address_of(offset))?;
        unit.encode(&mut state.tail).then_some(address)
    }

    /// Writes what is in memory to the files. Does not sync.
    ///
    /// # Errors
    /// What the operating system says; what was not written stays in memory.
    pub(super) fn write_tail(&self) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        while !state.tail.is_empty() {
            let offset = state.tail_start;
            let in_file = offset % self.files.file_bytes;
            let base = offset - in_file;
            let room = self.files.file_bytes - in_file;
            let step = (state.tail.len() as u64).min(room) as usize;
            let index = self.segment(&mut state, base)?;
            let path = self.path_of(base);
            let file = self.open(&mut state.segments[index], &path)?;
            file.write_at(&state.tail[..step], in_file).map_err(StoreError::io("write", &path))?;
            state.segments[index].written = true;
            state.tail.drain(..step);
            state.tail_start += step as u64;
        }
        Ok(())
    }

    /// The segment that begins at `base`, made if there is none.
    fn segment(&self, state: &mut State, base: u64) -> Result<usize, StoreError> {
        let index = match state.segments.binary_search_by_key(&base, |segment| segment.base) {
            Ok(index) => return Ok(index),
            Err(index) => index,
        };
        let file_system = &self.files.file_system;
        if state.segments.is_empty() {
            file_system
                .create_directory(&self.directory)
                .map_err(StoreError::io("create directory", &self.directory))?;
        }
        let path = self.path_of(base);
        let file =
            file_system.open(&path, OpenMode::Empty).map_err(StoreError::io("create", &path))?;
        file.set_len(self.files.file_bytes).map_err(StoreError::io("extend", &path))?;
        let file = self.files.open_files.keep(&file);
        state.segments.insert(index, Segment { base, file, written: true });
        state.directory_changed = true;
        Ok(index)
    }

    fn open(&self, segment: &mut Segment, path: &Path) -> Result<Arc<dyn StoreFile>, StoreError> {
        if let Some(kept) = &segment.file {
            return Ok(kept.file());
        }
        let opened = self.files.file_system.open(path, OpenMode::Existing);
        let file = opened.map_err(StoreError::io("open", path))?;
        segment.file = self.files.open_files.keep(&file);
        Ok(file)
    }

    /// Syncs what was written.
    ///
    /// # Errors
    /// What the operating system says; the caller must treat it as final.
    pub(super) fn sync(&self) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let mut files = Vec::new();
        for index in 0..state.segments.len() {
            if state.segments[index].written {
                let path = self.path_of(state.segments[index].base);
                let file = self.open(&mut state.segments[index], &path)?;
                state.segments[index].written = false;
                files.push((file, path));
            }
        }
        let directory_changed = std::mem::take(&mut state.directory_changed);
        drop(state);
        for (file, path) in &files {
            file.sync_data().map_err(StoreError::io("sync", path))?;
        }
        if directory_changed {
            // The directory itself and those above it may be new as well.
            for directory in self.directory.ancestors().take(4) {
                match self.files.file_system.sync_directory(directory) {
                    Ok(()) => {}
                    // The topic was deleted meanwhile.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(StoreError::io("sync directory", directory)(error)),
                }
            }
        }
        Ok(())
    }

    /// Writes all files over themselves; see [`rewrite`].
    ///
    /// # Errors
    /// What the operating system says.
    pub(super) fn rewrite(&self) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        for segment in &mut state.segments {
            let path = self.path_of(segment.base);
            let file = self.open(segment, &path)?;
            rewrite(&*file, &path, self.files.file_bytes)?;
            segment.written = true;
        }
        Ok(())
    }

    /// Closes files that are synced.
    pub(super) fn close_files(&self) {
        for segment in &mut self.state.lock().segments {
            if !segment.written {
                segment.file = None;
            }
        }
    }

    /// Forgets everything: the files are removed by whoever removes the topic.
    pub(super) fn forget(&self) {
        *self.state.lock() = State::default();
    }

    /// Opens what is on disk. `newest_address` is that of the newest entry of the queue that has
    /// one: units end behind it, and files behind those go.
    ///
    /// # Errors
    /// When a file has another length than configured or the operating system refuses.
    pub(super) fn load(&self, newest_address: Option<i64>) -> Result<(), StoreError> {
        let file_system = &self.files.file_system;
        let exists = file_system
            .exists(&self.directory)
            .map_err(StoreError::io("look for", &self.directory))?;
        // Until the end is known, everything is in the files.
        let mut state = State { tail_start: u64::MAX, ..State::default() };
        let mut found = Vec::new();
        if exists {
            found = list_log_files(&**file_system, &self.directory)?.files;
        }
        // A crash can keep the name of a file and lose its length.
        for &(base, _) in found.iter().filter(|(_, bytes)| *bytes == 0) {
            let path = self.path_of(base);
            file_system.remove_file(&path).map_err(StoreError::io("remove", &path))?;
        }
        found.retain(|(_, bytes)| *bytes > 0);
        for (base, bytes) in found {
            let path = self.path_of(base);
            let key = "mappedFileSizeConsumeQueueExt";
            let expected = self.files.file_bytes;
            if bytes != expected {
                return Err(StoreError::FileSize { path, bytes, expected, key });
            }
            if base % expected != 0 {
                return Err(StoreError::FileName { path, file_bytes: expected, key });
            }
            state.segments.push(Segment { base, file: None, written: false });
        }
        state.tail_start = match newest_address.and_then(offset_of) {
            // The unit's place even if it cannot be read: nothing else may be put there, or the
            // entry would find the wrong one.
            Some(offset) => {
                let mut reader = ExtReader::default();
                let bytes = reader
                    .read_at(self, &mut state, offset)?
                    .and_then(|bytes| ExtUnit::decode(bytes).map(|(_, bytes)| bytes));
                offset + bytes.unwrap_or(UNIT_BYTES_MIN) as u64
            }
            None => match state.segments.last().map(|last| last.base) {
                Some(base) => self.walk(&mut state, base)?,
                None => 0,
            },
        };
        let end = state.tail_start;
        while let Some(last) = state.segments.last()
            && last.base >= end
        {
            let path = self.path_of(last.base);
            file_system.remove_file(&path).map_err(StoreError::io("remove", &path))?;
            state.segments.pop();
            state.directory_changed = true;
        }
        for segment in &mut state.segments {
            segment.file = None;
        }
        *self.state.lock() = state;
        Ok(())
    }

    /// Where the units of the file at `base` end.
    fn walk(&self, state: &mut State, base: u64) -> Result<u64, StoreError> {
        let mut reader = ExtReader::default();
        let mut offset = base;
        while let Some(bytes) = reader.bytes_at(self, state, offset)?
            && let Some((_, bytes)) = ExtUnit::decode(bytes)
        {
            offset += bytes as u64;
        }
        Ok(offset)
    }

    /// Removes all units.
    ///
    /// # Errors
    /// What the operating system says.
    pub(super) fn clear(&self) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        while let Some(last) = state.segments.last() {
            let path = self.path_of(last.base);
            self.files.file_system.remove_file(&path).map_err(StoreError::io("remove", &path))?;
            state.segments.pop();
        }
        *state = State { directory_changed: true, ..State::default() };
        Ok(())
    }

    /// Removes files in front of the one that holds `address`.
    ///
    /// # Errors
    /// What the operating system says.
    pub(super) fn remove_in_front(&self, address: i64) -> Result<(), StoreError> {
        let Some(offset) = offset_of(address) else { return Ok(()) };
        let mut state = self.state.lock();
        while let Some(first) = state.segments.first()
            && first.base + self.files.file_bytes <= offset
        {
            let path = self.path_of(first.base);
            self.files.file_system.remove_file(&path).map_err(StoreError::io("remove", &path))?;
            state.segments.remove(0);
            state.directory_changed = true;
        }
        Ok(())
    }
}

/// Reads units, neighbours with one call.
#[derive(Debug, Default)]
pub(crate) struct ExtReader {
    window: Vec<u8>,
    start: u64,
}

impl ExtReader {
    /// The unit at `address`. None if there is none, or none that can be read.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn unit(
        &mut self,
        ext: &QueueExt,
        address: i64,
    ) -> Result<Option<ExtUnit<'_>>, StoreError> {
        let Some(offset) = offset_of(address) else { return Ok(None) };
        let bytes = self.bytes_at(ext, &mut ext.state.lock(), offset)?;
        Ok(bytes.and_then(ExtUnit::decode).map(|(unit, _)| unit))
    }

    /// Whether a whole unit at `offset` is in the window.
    fn in_window(&self, offset: u64) -> bool {
        let at = offset.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        let bytes = at.and_then(|at| self.window.get(at..));
        bytes.and_then(ExtUnit::decode).is_some()
    }

    /// Bytes that begin with the unit at `offset`, if one is there.
    fn bytes_at(
        &mut self,
        ext: &QueueExt,
        state: &mut State,
        offset: u64,
    ) -> Result<Option<&[u8]>, StoreError> {
        if self.in_window(offset) {
            return Ok(self.window.get((offset - self.start) as usize..));
        }
        self.read_at(ext, state, offset)
    }

    /// Bytes from `offset` on, as many as a unit may need or there are in the file.
    fn read_at(
        &mut self,
        ext: &QueueExt,
        state: &mut State,
        offset: u64,
    ) -> Result<Option<&[u8]>, StoreError> {
        self.start = offset;
        self.window.clear();
        if let Some(at) = offset.checked_sub(state.tail_start) {
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            let Some(bytes) = state.tail.get(at..) else { return Ok(None) };
            self.window.extend_from_slice(&bytes[..bytes.len().min(UNIT_BYTES_MAX)]);
            return Ok(Some(&self.window));
        }
        let file_bytes = ext.files.file_bytes;
        let in_file = offset % file_bytes;
        let base = offset - in_file;
        let Ok(index) = state.segments.binary_search_by_key(&base, |segment| segment.base) else {
            return Ok(None);
        };
        let path = ext.path_of(base);
        let file = ext.open(&mut state.segments[index], &path)?;
        // What is in the file behind the tail's beginning is older than the tail.
        let left = (file_bytes - in_file).min(state.tail_start - offset) as usize;
        self.window.resize(left.min(WINDOW_BYTES), 0);
        file.read_at(&mut self.window, in_file).map_err(StoreError::io("read", &path))?;
        // A unit with a long bit map may not be whole in it.
        let size = self.window.first_chunk::<2>().map_or(0, |size| i16::from_be_bytes(*size));
        let size = usize::try_from(size).unwrap_or(0);
        if size > self.window.len() && size <= left {
            self.window.resize(size, 0);
            file.read_at(&mut self.window, in_file).map_err(StoreError::io("read", &path))?;
        }
        Ok(Some(&self.window))
    }
}

#[cfg(test)]
mod tests;
