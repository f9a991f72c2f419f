//! From what the directory `index` holds to an index that has every record of the log.
//!
//! After a clean end the files are trusted as far as they agree with the log. After a crash only
//! entries are that the checkpoint vouches for: the others are taken out, and the slots made anew
//! from the entries that stay. Where records are missing in front of a file, it goes with the newer
//! ones. What is missing at the end, however it came to be, is then read from the log. A file that cannot be trusted at all is removed, with the newer ones, and what they held
//! is read from the log as well: all of it is derived.

use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;

use rocketmq_protocol::message::record::{self, LogItem, MessageRecord};

use super::key::KeyHasher;
use super::open_file::{IndexFile, NewEntry, Scratch};
use super::{Index, IndexFiles, is_file_name};
use crate::commit_log::CommitLog;
use crate::dispatch_properties::DispatchProperties;
use crate::error::StoreError;
use crate::log_segments::{INLINE_BYTES, Segment, in_order, segments};
use crate::mapped_file_queue::MappedFile;

/// Entries that are collected before they are written.
const GROUP_ENTRIES: usize = 512 * 1024;

/// What [`Index::load`] found beside sound files.
#[derive(Debug, Default)]
pub(crate) struct LoadedIndex {
    /// Left alone.
    pub(crate) foreign: Vec<PathBuf>,
    /// Removed, with the reasons.
    pub(crate) removed: Vec<(PathBuf, String)>,
}

/// What recovery did.
#[derive(Debug, Default)]
pub(crate) struct IndexRecovery {
    /// Entries that were added.
    pub(crate) added: u64,
    /// Files that were removed because they could not be trusted, with the reasons.
    pub(crate) removed: Vec<(PathBuf, String)>,
}

impl Index {
    /// Opens the files that exist. The first that is damaged is removed, and all newer ones, since
    /// they would have to come before what replaces it.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn load(&self) -> Result<LoadedIndex, StoreError> {
        let IndexFiles { file_system, directory, layout, .. } = &self.setting;
        let mut loaded = LoadedIndex::default();
        let exists =
            file_system.exists(directory).map_err(StoreError::io("look for", directory))?;
        if !exists {
            return Ok(loaded);
        }
        let mut files: Vec<Arc<IndexFile>> = Vec::new();
        let mut bad: Option<PathBuf> = None;
        // Sorted by name, which is by age.
        for found in file_system.list(directory).map_err(StoreError::io("list", directory))? {
            let path = directory.join(&found.name);
            if found.is_directory || found.is_special || !is_file_name(&found.name) {
                loaded.foreign.push(path);
                continue;
            }
            let reason = if let Some(bad) = &bad {
                Some(format!("the file {} in front of it is damaged", bad.display()))
            } else if found.bytes != layout.file_bytes() {
                let expected = layout.file_bytes();
                Some(format!("it has {} bytes, {expected} are expected", found.bytes))
            } else {
                match IndexFile::load(Arc::clone(file_system), path.clone(), *layout)? {
                    Err(reason) => Some(reason),
                    // Made for entries that never came.
                    Ok(file) if file.header().is_empty() => {
                        self.remove_file(file.path())?;
                        continue;
                    }
                    Ok(file) => {
                        let reason = out_of_order(files.last(), &file);
                        files.push(Arc::new(file));
                        reason
                    }
                }
            };
            if let Some(reason) = reason {
                bad.get_or_insert_with(|| path.clone());
                files.pop_if(|file| file.path() == path);
                self.remove_file(&path)?;
                loaded.removed.push((path, reason));
            }
        }
        *self.files.write() = files;
        Ok(loaded)
    }

    /// Brings the index to agree with the recovered log, which ends at `log_end`. Entries of records
    /// at or behind `vouched_end` are not trusted; after a clean end, when there is none, all are.
    ///
    /// # Errors
    /// What the operating system says. The directory can be recovered again then.
    pub(crate) fn recover(
        &self,
        log: &CommitLog,
        log_end: i64,
        vouched_end: Option<i64>,
    ) -> Result<IndexRecovery, StoreError> {
        let mut recovery = IndexRecovery::default();
        let log_start = log.files.first().map_or(log_end, |file| file.base_offset() as i64);
        loop {
            // The lock is let go before the body.
            let last = self.files.read().last().cloned();
            let Some(last) = last else { break };
            let reason = self.trim(&last, log, log_start, log_end, vouched_end)?;
            let Some(reason) = reason else { break };
            self.remove_file(last.path())?;
            self.files.write().pop();
            if !reason.is_empty() {
                recovery.removed.push((last.path().to_owned(), reason));
            }
        }
        self.remove_behind_gap(log, log_start, log_end, &mut recovery)?;
        recovery.added = self.catch_up(log, log_start, log_end)?;
        self.sync()?;
        Ok(recovery)
    }

    /// Removes files from the first on in front of which records have no entry: a Java broker leaves
    /// such a gap after a crash, and so does someone who takes a file away.
    fn remove_behind_gap(
        &self,
        log: &CommitLog,
        log_start: i64,
        log_end: i64,
        recovery: &mut IndexRecovery,
    ) -> Result<(), StoreError> {
        let files = self.snapshot();
        for (index, file) in files.iter().enumerate() {
            let begin = file.header().begin_physical_offset;
            let (from, known) = indexed_end(&files[..index], log_start)?;
            if begin <= from {
                continue;
            }
            let mut missing = None;
            for_each_record(log, from, log_end, |record| {
                let skip = if record.physical_offset == from { known } else { 0 };
                let found = DispatchProperties::of(record.properties);
                if found.index_keys(record.sys_flag).nth(skip).is_some() {
                    missing = Some(record.physical_offset);
                }
                Ok(missing.is_none() && record.physical_offset < begin)
            })?;
            if missing == Some(begin) {
                continue;
            }
            let reason = format!("the index lacks records between {from} and {begin}");
            for file in files[index..].iter().rev() {
                self.remove_file(file.path())?;
                self.files.write().pop();
                recovery.removed.push((file.path().to_owned(), reason.clone()));
            }
            break;
        }
        Ok(())
    }

    /// Takes out of the newest file what is not to be trusted. Returns why the file must go, empty
    /// when it merely has no entry left.
    fn trim(
        &self,
        file: &IndexFile,
        log: &CommitLog,
        log_start: i64,
        log_end: i64,
        vouched_end: Option<i64>,
    ) -> Result<Option<String>, StoreError> {
        let header = file.header();
        let trusted_end = vouched_end.map_or(log_end, |end| end.min(log_end));
        if header.begin_physical_offset >= trusted_end {
            return Ok(Some(String::new()));
        }
        // After a crash in any case: of what was written behind the last entry that is vouched for,
        // slots may be on the disk and the header not.
        if vouched_end.is_some() || header.end_physical_offset >= trusted_end {
            if file.repair(trusted_end, |offset| log.store_timestamp_ms(offset))? {
                tracing::warn!(
                    path = %file.path().display(),
                    entries = file.header().next_entry - 1,
                    "index file is damaged, its end is built anew"
                );
            }
            if file.header().is_empty() {
                return Ok(Some(String::new()));
            }
        }
        let end = file.header().end_physical_offset;
        let hash = file.newest_hash()?;
        let agrees = log.with_record(end, |record| {
            let hasher = KeyHasher::new(record.topic);
            let found = DispatchProperties::of(record.properties);
            found.index_keys(record.sys_flag).any(|key| hasher.hash(key) == hash)
        });
        if end >= log_start && agrees != Some(true) {
            return Ok(Some(format!(
                "the record at {end} of the log is not that of its last entry"
            )));
        }
        Ok(None)
    }

    /// Adds what the index lacks of the log in front of `log_end`. Returns how many entries. Records
    /// are read on all cores, and a thread of its own writes.
    fn catch_up(&self, log: &CommitLog, log_start: i64, log_end: i64) -> Result<u64, StoreError> {
        let (from, known) = indexed_end(&self.snapshot(), log_start)?;
        let bytes = u64::try_from(log_end - from).unwrap_or(0);
        if bytes <= INLINE_BYTES {
            let (mut group, mut scratch) = (Vec::new(), Scratch::default());
            self.read_entries(log, from, log_end, known, |entries| {
                group.extend(entries);
                Ok(true)
            })?;
            return self.write_group(&mut group, &mut scratch);
        }
        thread::scope(|scope| {
            // One group waits while another one is written.
            let (full, groups) = mpsc::sync_channel::<Vec<NewEntry>>(1);
            let write = move || {
                let mut scratch = Scratch::default();
                let mut added = 0;
                for mut group in groups {
                    added += self.write_group(&mut group, &mut scratch)?;
                }
                Ok(added)
            };
            let writer = thread::Builder::new().name("store-index".to_owned());
            let writer = writer
                .spawn_scoped(scope, write)
                .map_err(StoreError::io("start a thread for", &self.setting.directory))?;
            let mut group = Vec::with_capacity(GROUP_ENTRIES);
            let read = self.read_entries(log, from, log_end, known, |entries| {
                if group.len() + entries.len() > GROUP_ENTRIES {
                    let full_group = std::mem::take(&mut group);
                    group.reserve(GROUP_ENTRIES);
                    // Without a reader it has failed, which is told below.
                    if full.send(full_group).is_err() {
                        return Ok(false);
                    }
                }
                group.extend(entries);
                Ok(true)
            });
            // As above.
            let _ = full.send(group);
            drop(full);
            let written = writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            read.and(written)
        })
    }

    /// Hands out the entries of the log from the record at `from` on, of which `known` are there
    /// already, to `log_end`, a segment's at a time, for as long as `take` says so.
    fn read_entries(
        &self,
        log: &CommitLog,
        from: i64,
        log_end: i64,
        known: usize,
        mut take: impl FnMut(Vec<NewEntry>) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let files = log.files.snapshot();
        let place = from.max(0) as u64..log_end.max(0) as u64;
        let with_threads = place.end.saturating_sub(place.start) > INLINE_BYTES;
        let work = |segment| entries_of(segment, log_end as u64, from, known);
        // Of a file that is damaged, though an earlier run vouched for it, the rest is left out.
        let mut damaged: Option<u64> = None;
        in_order(segments(&files, place), with_threads, work, |found| {
            let base = found.file.base_offset();
            if damaged == Some(base) {
                return Ok(true);
            }
            damaged = (!found.is_whole).then_some(base);
            take(found.entries)
        })?;
        for file in files {
            file.mapping().release_pages();
        }
        Ok(())
    }

    fn write_group(
        &self,
        group: &mut Vec<NewEntry>,
        scratch: &mut Scratch,
    ) -> Result<u64, StoreError> {
        let mut done = 0;
        while done < group.len() {
            done += self.file_to_write()?.append(&group[done..], scratch)?;
        }
        group.clear();
        Ok(done as u64)
    }
}

/// The record at which what `files` hold ends, and how many of its keys they have: it may have more.
/// Where the log begins if they hold nothing of it.
fn indexed_end(files: &[Arc<IndexFile>], log_start: i64) -> Result<(i64, usize), StoreError> {
    let end = files.last().map(|file| file.header().end_physical_offset);
    let Some(end) = end.filter(|end| *end >= log_start) else { return Ok((log_start, 0)) };
    let mut known = 0;
    for file in files.iter().rev() {
        let (count, is_all) = file.newest_of(end)?;
        known += count;
        if !is_all {
            break;
        }
    }
    Ok((end, known))
}

/// The entries of a segment.
struct Found<'f> {
    file: &'f MappedFile,
    entries: Vec<NewEntry>,
    /// Whether every record up to its end could be read.
    is_whole: bool,
}

/// Those of a segment, of which nothing behind `log_end` counts. Of the record at `from` the first
/// `known` are left out.
fn entries_of(segment: Segment<'_>, log_end: u64, from: i64, known: usize) -> Found<'_> {
    let Segment { file, start, end } = segment;
    let end = end.unwrap_or(file.end_offset()).min(log_end);
    let mut position = start;
    let mut entries = Vec::with_capacity(4096);
    let mut hasher: Option<(&str, KeyHasher)> = None;
    while position < end {
        let bytes = file.published_from(position).unwrap_or(&[]);
        let Ok(LogItem::Record(record)) = record::decode_log_item(bytes) else { break };
        if record.physical_offset != position as i64 {
            break;
        }
        let skip = if record.physical_offset == from { known } else { 0 };
        let hasher = match hasher {
            Some((topic, hasher)) if topic == record.topic => hasher,
            _ => {
                let new = KeyHasher::new(record.topic);
                hasher = Some((record.topic, new));
                new
            }
        };
        entries.extend(NewEntry::of_record_with(&record, hasher).skip(skip));
        position += record.size as u64;
    }
    Found { file, entries, is_whole: position >= end }
}

/// Hands out the records of the log from `from`, where one begins, to `log_end`, for as long as
/// `each` says so. They were verified, or vouched for by an earlier run; should a file be damaged
/// all the same, its rest is left out.
fn for_each_record(
    log: &CommitLog,
    from: i64,
    log_end: i64,
    mut each: impl FnMut(&MessageRecord<'_>) -> Result<bool, StoreError>,
) -> Result<(), StoreError> {
    for file in log.files.snapshot() {
        let mut position = from.max(file.base_offset() as i64);
        if position >= (file.end_offset() as i64).min(log_end) {
            continue;
        }
        while position < log_end {
            let bytes = file.published_from(position as u64).unwrap_or(&[]);
            let Ok(LogItem::Record(record)) = record::decode_log_item(bytes) else { break };
            if record.physical_offset != position {
                break;
            }
            if !each(&record)? {
                return Ok(());
            }
            position += record.size as i64;
        }
        file.mapping().release_pages();
    }
    Ok(())
}

/// Why a file cannot come behind `last`.
fn out_of_order(last: Option<&Arc<IndexFile>>, file: &IndexFile) -> Option<String> {
    let end = last?.header().end_physical_offset;
    let begin = file.header().begin_physical_offset;
    (begin < end)
        .then(|| format!("it begins at {begin}, in front of the end {end} of the file before"))
}
