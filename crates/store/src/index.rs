//! The index: finding messages of a topic by unique key or by key (RocketMQ's `IndexService`).
//!
//! Owns the files, oldest first, and the newest entries, which stay in memory until they are
//! written in a group: they are derived from the log, so losing them costs a walk during recovery
//! and nothing else. Queries look at both, so an entry is found as soon as it was added. What a key
//! is says `key`, what a file looks like `file`, how one is written `open_file`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};

use crate::clock::Clock;
use crate::error::StoreError;
use crate::file_system::FileSystem;

pub mod chain;
pub mod file;
pub(crate) mod key;
mod open_file;
mod query;
mod recovery;
#[cfg(test)]
mod tests;

pub use query::QueryResult;
pub(crate) use query::{Query, QueryContext};
pub(crate) use recovery::IndexRecovery;

use file::Layout;
pub(crate) use open_file::NewEntry;
use open_file::{IndexFile, Scratch};

/// Digits of a file name: local time of its making, to the millisecond.
const NAME_DIGITS: usize = 17;
/// Entries in memory that wake the writer before its time. The more are written at once, the less
/// each costs.
const WRITE_ENTRIES: usize = 64 * 1024;
/// Entries in memory at which the appender writes them itself: 6 MiB.
const MEMORY_ENTRIES_MAX: usize = 4 * WRITE_ENTRIES;
/// Bytes of entries that a buffer keeps when it is written out.
const KEPT_ENTRIES: usize = 2 * WRITE_ENTRIES;

/// Where index files live and how large they are.
#[derive(Clone, Debug)]
pub(crate) struct IndexFiles {
    pub(crate) file_system: Arc<dyn FileSystem>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The directory `index`.
    pub(crate) directory: PathBuf,
    pub(crate) layout: Layout,
}

/// The index of a store.
#[derive(Debug)]
pub(crate) struct Index {
    setting: IndexFiles,
    files: RwLock<Vec<Arc<IndexFile>>>,
    memory: Mutex<Memory>,
    /// Told when `memory` has grown enough to be written, and when it is time to end.
    grown: Condvar,
    /// Held by the one who writes.
    writer: Mutex<Writer>,
    synced: Mutex<Instant>,
    /// Whether a file was made or removed since the last sync of the directory.
    is_directory_changed: AtomicBool,
}

/// Entries that are not known to be in the files.
#[derive(Debug, Default)]
struct Memory {
    /// Older ones, on their way into the files.
    leaving: Arc<Vec<NewEntry>>,
    /// Newer ones.
    new: Vec<NewEntry>,
    stopped: bool,
}

#[derive(Debug, Default)]
struct Writer {
    scratch: Scratch,
    /// How many of the entries that are leaving are in the files already.
    done: usize,
    /// An empty buffer for what comes next.
    spare: Vec<NewEntry>,
}

impl Index {
    /// An index without files; see [`Index::load`].
    pub(crate) fn new(setting: IndexFiles) -> Index {
        Index {
            setting,
            files: RwLock::default(),
            memory: Mutex::default(),
            grown: Condvar::new(),
            writer: Mutex::default(),
            synced: Mutex::new(Instant::now()),
            is_directory_changed: AtomicBool::new(false),
        }
    }

    /// All files, oldest first.
    fn snapshot(&self) -> Vec<Arc<IndexFile>> {
        self.files.read().clone()
    }

    /// Adds entries, which come in the order of the log. The caller holds the dispatcher's turn.
    ///
    /// # Errors
    /// When so many wait in memory that they had to be written and could not be. The entries are
    /// kept, nothing is lost, and writing is tried again.
    pub(crate) fn add(&self, entries: impl Iterator<Item = NewEntry>) -> Result<(), StoreError> {
        let waiting = {
            let mut memory = self.memory.lock();
            let before = memory.new.len();
            memory.new.extend(entries);
            let waiting = memory.new.len();
            if before < WRITE_ENTRIES && waiting >= WRITE_ENTRIES {
                self.grown.notify_one();
            }
            waiting
        };
        if waiting >= MEMORY_ENTRIES_MAX { self.write() } else { Ok(()) }
    }

    /// Writes the entries in memory to the files. Does not sync.
    ///
    /// # Errors
    /// What the operating system says; what was not written stays in memory.
    pub(crate) fn write(&self) -> Result<(), StoreError> {
        let mut writer = self.writer.lock();
        let Writer { scratch, done, spare } = &mut *writer;
        let leaving = {
            let mut memory = self.memory.lock();
            // What an earlier call left behind goes first.
            if memory.leaving.is_empty() {
                if memory.new.is_empty() {
                    return Ok(());
                }
                memory.leaving =
                    Arc::new(std::mem::replace(&mut memory.new, std::mem::take(spare)));
                *done = 0;
            }
            Arc::clone(&memory.leaving)
        };
        while *done < leaving.len() {
            let file = self.file_to_write()?;
            *done += file.append(&leaving[*done..], scratch)?;
        }
        drop(leaving);
        let left = std::mem::take(&mut self.memory.lock().leaving);
        // A query may still look at it; then a new buffer is made when one is needed.
        if let Some(mut entries) = Arc::into_inner(left) {
            entries.clear();
            entries.shrink_to(KEPT_ENTRIES);
            *spare = entries;
        }
        Ok(())
    }

    /// The newest file if it has room, else a new one.
    fn file_to_write(&self) -> Result<Arc<IndexFile>, StoreError> {
        let last = self.files.read().last().cloned();
        if let Some(last) = &last
            && !last.is_full()
        {
            return Ok(Arc::clone(last));
        }
        let IndexFiles { file_system, clock, directory, layout } = &self.setting;
        // Names must grow, or files would change places; the clock may stand still or step back.
        let newest = last.as_ref().and_then(|file| file.path().file_name()?.to_str()?.parse().ok());
        let now: u64 = name_of(clock.now_ms().saturating_add(clock.local_offset_ms()));
        let name = newest.map_or(now, |newest: u64| now.max(newest + 1));
        let path = directory.join(format!("{name:0width$}", width = NAME_DIGITS));
        file_system
            .create_directory(directory)
            .map_err(StoreError::io("create directory", directory))?;
        let made = Arc::new(IndexFile::make(Arc::clone(file_system), path, *layout)?);
        self.is_directory_changed.store(true, Ordering::Release);
        self.files.write().push(Arc::clone(&made));
        Ok(made)
    }

    /// Whether files should be synced: when some time has passed, and at once when a file is full.
    pub(crate) fn is_sync_due(&self, interval: Duration) -> bool {
        let files = self.snapshot();
        let rolled = files.iter().rev().skip(1).any(|file| file.is_unsynced());
        rolled || self.synced.lock().elapsed() >= interval
    }

    /// Makes what is in the files durable. Returns whether there was something.
    ///
    /// # Errors
    /// What the operating system says; the caller must treat it as final.
    pub(crate) fn sync(&self) -> Result<bool, StoreError> {
        *self.synced.lock() = Instant::now();
        let files = self.snapshot();
        let mut found = false;
        for (index, file) in files.iter().enumerate() {
            found |= file.is_unsynced();
            file.sync()?;
            if index + 1 < files.len() {
                file.close();
            }
        }
        if self.is_directory_changed.swap(false, Ordering::AcqRel) {
            let IndexFiles { file_system, directory, .. } = &self.setting;
            file_system
                .sync_directory(directory)
                .map_err(StoreError::io("sync directory", directory))?;
        }
        Ok(found)
    }

    /// Removes a file, which an earlier call that failed may have done already.
    fn remove_file(&self, path: &Path) -> Result<(), StoreError> {
        match self.setting.file_system.remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StoreError::io("remove", path)(error))
            }
            _ => Ok(()),
        }
    }

    /// Removes files all of whose records are no longer in the log; the last one stays.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn follow_log_start(&self, log_start: i64) -> Result<(), StoreError> {
        let mut any = false;
        loop {
            let first = {
                let mut files = self.files.write();
                let expired =
                    files.first().is_some_and(|file| file.header().end_physical_offset < log_start);
                if files.len() < 2 || !expired {
                    break;
                }
                files.remove(0)
            };
            let path = first.path();
            if let Err(error) = self.remove_file(path) {
                self.files.write().insert(0, Arc::clone(&first));
                return Err(error);
            }
            tracing::info!(path = %path.display(), "index file removed");
            any = true;
        }
        // Should the removal not last, the file is removed again.
        self.is_directory_changed.fetch_or(any, Ordering::AcqRel);
        Ok(())
    }

    /// Takes out the entries of records at and behind `end`, durably: the log was cut there. The caller
    /// holds the dispatcher's turn. `time_of` says the store time of a record.
    ///
    /// # Errors
    /// What the operating system says; the caller must treat it as final.
    pub(crate) fn cut_behind(
        &self,
        end: i64,
        time_of: impl Fn(i64) -> Option<i64>,
    ) -> Result<(), StoreError> {
        let mut writer = self.writer.lock();
        {
            let mut memory = self.memory.lock();
            let mut left: Vec<NewEntry> = memory.leaving[writer.done.min(memory.leaving.len())..]
                .iter()
                .chain(&memory.new)
                .copied()
                .collect();
            left.retain(|entry| entry.physical_offset < end);
            memory.leaving = Arc::default();
            memory.new = left;
            writer.done = 0;
        }
        loop {
            let last = self.files.read().last().cloned();
            let reaches_behind = |last: &Arc<IndexFile>| {
                let header = last.header();
                header.is_empty() || header.end_physical_offset >= end
            };
            let Some(last) = last.filter(reaches_behind) else { break };
            let header = last.header();
            if !header.is_empty() && header.begin_physical_offset < end {
                last.repair(end, &time_of)?;
                if !last.header().is_empty() {
                    break;
                }
            }
            self.remove_file(last.path())?;
            self.files.write().pop();
            self.is_directory_changed.store(true, Ordering::Release);
        }
        self.sync().map(drop)
    }

    /// Waits until there is a group to write; false when it is time to end.
    pub(crate) fn wait_for_group(&self) -> bool {
        let mut memory = self.memory.lock();
        while memory.new.len() < WRITE_ENTRIES && !memory.stopped {
            self.grown.wait(&mut memory);
        }
        !memory.stopped
    }

    /// Ends [`Index::wait_for_group`].
    pub(crate) fn stop(&self) {
        self.memory.lock().stopped = true;
        self.grown.notify_all();
    }
}

/// The name of a file made at this local time, as a number of 17 digits.
fn name_of(local_ms: i64) -> u64 {
    let at = jiff::Timestamp::from_millisecond(local_ms.max(0)).unwrap_or(jiff::Timestamp::MAX);
    let at = at.to_zoned(jiff::tz::TimeZone::UTC).datetime();
    let date = i64::from(at.year()) * 10_000 + i64::from(at.month()) * 100 + i64::from(at.day());
    let time =
        i64::from(at.hour()) * 10_000 + i64::from(at.minute()) * 100 + i64::from(at.second());
    // A year has four digits and none of the parts is negative.
    ((date * 1_000_000 + time) * 1_000 + i64::from(at.millisecond())).unsigned_abs()
}

/// Whether a name is one of an index file.
pub(crate) fn is_file_name(name: &str) -> bool {
    name.len() == NAME_DIGITS && name.bytes().all(|byte| byte.is_ascii_digit())
}
