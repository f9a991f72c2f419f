//! The files of the CommitLog: fixed length, 20-digit names, mapped for reading, preallocated.
//!
//! Owns finding, making and removing files. What is in them is `commit_log`'s business, in which
//! directory they lie that of `log_directories`.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;

use crate::config::{FlushDiskType, StoreConfig};
use crate::error::StoreError;
use crate::file_system::{FileSystem, OpenMode, StoreFile};
use crate::log_directories::{LogDirectories, LogDirectory};
use crate::mapping::{HoldsMapping, Mapping, shared_slice};

/// Digits of a file name.
const NAME_DIGITS: usize = 20;

/// The name of the file whose first byte is `base_offset`.
pub(crate) fn file_name(base_offset: u64) -> String {
    format!("{base_offset:020}")
}

/// The base offset that a file name says, if it is one.
pub(crate) fn parse_file_name(name: &str) -> Option<u64> {
    if name.len() != NAME_DIGITS || !name.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    name.parse().ok().filter(|base| *base <= i64::MAX as u64)
}

/// One file, mapped as a whole.
#[derive(Debug)]
pub(crate) struct MappedFile {
    base_offset: u64,
    bytes: u64,
    path: PathBuf,
    directory: Arc<LogDirectory>,
    file: Arc<dyn StoreFile>,
    mapping: Mapping,
}

impl HoldsMapping for MappedFile {
    fn mapping(&self) -> &Mapping {
        &self.mapping
    }
}

impl MappedFile {
    fn open(
        file_system: &dyn FileSystem,
        directory: &Arc<LogDirectory>,
        base_offset: u64,
        bytes: u64,
    ) -> Result<MappedFile, StoreError> {
        let path = directory.path().join(file_name(base_offset));
        let mode = if directory.is_read_only() { OpenMode::ReadOnly } else { OpenMode::Existing };
        let file = file_system.open(&path, mode).map_err(StoreError::io("open", &path))?;
        MappedFile::map(directory, path, file, base_offset, bytes)
    }

    fn map(
        directory: &Arc<LogDirectory>,
        path: PathBuf,
        file: Arc<dyn StoreFile>,
        base_offset: u64,
        bytes: u64,
    ) -> Result<MappedFile, StoreError> {
        let mapping = file.map(bytes as usize).map_err(StoreError::io("map", &path))?;
        let directory = Arc::clone(directory);
        Ok(MappedFile { base_offset, bytes, path, directory, file, mapping })
    }

    /// Offset of the first byte.
    pub(crate) fn base_offset(&self) -> u64 {
        self.base_offset
    }

    /// Offset behind the last byte.
    pub(crate) fn end_offset(&self) -> u64 {
        self.base_offset + self.bytes
    }

    /// Whether `offset` lies in this file.
    pub(crate) fn holds(&self, offset: u64) -> bool {
        (self.base_offset..self.end_offset()).contains(&offset)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it may not be written, synced or removed: it lies in a read-only directory.
    pub(crate) fn is_read_only(&self) -> bool {
        self.directory.is_read_only()
    }

    pub(crate) fn file(&self) -> &dyn StoreFile {
        &*self.file
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Writes `bytes` at `offset`, which lies in this file, behind all that is published.
    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        debug_assert!(offset - self.base_offset >= self.mapping.published() as u64);
        self.file.write_at(bytes, offset - self.base_offset)
    }

    /// Lets readers see all in front of `offset`.
    pub(crate) fn publish(&self, offset: u64) {
        self.mapping.publish((offset - self.base_offset) as usize);
    }

    /// Takes back what was published from `offset` on, for who cuts the log; see [`Mapping::cut`].
    pub(crate) fn withdraw(&self, offset: u64) {
        self.mapping.cut(offset.saturating_sub(self.base_offset) as usize);
    }

    /// A slice of the published part that keeps the file alive.
    pub(crate) fn shared_slice(self: &Arc<Self>, offset: u64, bytes: usize) -> Option<Bytes> {
        let start = usize::try_from(offset.checked_sub(self.base_offset)?).ok()?;
        shared_slice(self, start..start.checked_add(bytes)?)
    }

    /// The published bytes from `offset` on.
    pub(crate) fn published_from(&self, offset: u64) -> Option<&[u8]> {
        let start = usize::try_from(offset.checked_sub(self.base_offset)?).ok()?;
        self.mapping.slice(start..self.mapping.published())
    }

    /// The published bytes from `offset`, `bytes` of them.
    pub(crate) fn slice(&self, offset: u64, bytes: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset.checked_sub(self.base_offset)?).ok()?;
        self.mapping.slice(start..start.checked_add(bytes)?)
    }
}

/// All files of a log, oldest first, without gaps.
#[derive(Debug)]
pub(crate) struct MappedFileQueue {
    file_system: Arc<dyn FileSystem>,
    directories: LogDirectories,
    file_bytes: u64,
    warm_up: Option<WarmUp>,
    files: RwLock<VecDeque<Arc<MappedFile>>>,
}

/// How a new file is filled with zeros before it is used (`warmMapedFileEnable`).
#[derive(Clone, Copy, Debug)]
struct WarmUp {
    /// Bytes after which it is synced meanwhile.
    sync_each_bytes: Option<u64>,
}

impl WarmUp {
    fn of(config: &StoreConfig) -> Option<WarmUp> {
        let pages = config.flush_least_pages_when_warm_mapped_file.max(1);
        let is_sync = config.flush_disk_type == FlushDiskType::Sync;
        let sync_each_bytes = is_sync.then_some(pages.saturating_mul(4096));
        config.warm_mapped_file_enable.then_some(WarmUp { sync_each_bytes })
    }

    fn run(self, file: &dyn StoreFile, bytes: u64) -> io::Result<()> {
        static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];
        let (mut position, mut synced) = (0, 0);
        while position < bytes {
            let step = (bytes - position).min(ZEROS.len() as u64);
            file.write_at(&ZEROS[..step as usize], position)?;
            position += step;
            if self.sync_each_bytes.is_some_and(|each| position - synced >= each) {
                file.sync_data()?;
                synced = position;
            }
        }
        Ok(())
    }
}

/// What [`MappedFileQueue::load`] found beside the files of the log.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// Entries whose names are not those of log files; left alone.
    pub(crate) foreign: Vec<PathBuf>,
    /// Empty last files, which a crash between creating and extending leaves; removed.
    pub(crate) removed_empty: Vec<PathBuf>,
    /// Files of read-only directories that were let go earlier, so that files behind them are gone.
    pub(crate) let_go: Vec<PathBuf>,
}

impl MappedFileQueue {
    /// The files of the log that `config` describes.
    pub(crate) fn new(file_system: Arc<dyn FileSystem>, config: &StoreConfig) -> MappedFileQueue {
        MappedFileQueue {
            file_system,
            directories: LogDirectories::of(config),
            file_bytes: config.commit_log_file_bytes,
            warm_up: WarmUp::of(config),
            files: RwLock::default(),
        }
    }

    pub(crate) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    pub(crate) fn directories(&self) -> &LogDirectories {
        &self.directories
    }

    /// Opens the files that exist, in whichever directory. The directories exist.
    ///
    /// # Errors
    /// When a file has another length than configured, a name that is no multiple of it, a twin in
    /// another directory, or when one is missing in the middle.
    pub(crate) fn load(&self) -> Result<Loaded, StoreError> {
        let mut loaded = Loaded::default();
        let found = self.list(&mut loaded)?;
        let found = self.without_let_go(found, &mut loaded);
        let mut files = VecDeque::with_capacity(found.len());
        let mut expected: Option<(u64, &Arc<LogDirectory>)> = None;
        for Found { base_offset, bytes, directory } in &found {
            let path = directory.path().join(file_name(*base_offset));
            if *bytes != self.file_bytes {
                return Err(StoreError::FileSize {
                    path,
                    bytes: *bytes,
                    expected: self.file_bytes,
                    key: "mappedFileSizeCommitLog",
                });
            }
            if base_offset % self.file_bytes != 0 {
                return Err(StoreError::FileName {
                    path,
                    file_bytes: self.file_bytes,
                    key: "mappedFileSizeCommitLog",
                });
            }
            if let Some((expected, beside)) = expected
                && expected != *base_offset
            {
                let path = beside.path().join(file_name(expected));
                return Err(StoreError::MissingFile { path });
            }
            expected = Some((base_offset + self.file_bytes, directory));
            files.push_back(Arc::new(MappedFile::open(
                &*self.file_system,
                directory,
                *base_offset,
                self.file_bytes,
            )?));
        }
        *self.files.write() = files;
        Ok(loaded)
    }

    /// The files of all directories, oldest first, each once. Removed are an empty last file, which
    /// a crash leaves, and one of two files for the same place that nothing was written to: making
    /// it failed, the other directory took over, and a loss of power brought it back.
    fn list(&self, loaded: &mut Loaded) -> Result<Vec<Found>, StoreError> {
        let mut found = Vec::new();
        for directory in self.directories.all() {
            let listed = list_log_files(&*self.file_system, directory.path())?;
            loaded.foreign.extend(listed.foreign);
            found.extend(listed.files.into_iter().map(|(base_offset, bytes)| Found {
                base_offset,
                bytes,
                directory: Arc::clone(directory),
            }));
        }
        found.sort_by_key(|file| (file.base_offset, file.bytes));
        let mut kept: Vec<Found> = Vec::with_capacity(found.len());
        for file in found {
            let Some(twin) = kept.pop_if(|last| last.base_offset == file.base_offset) else {
                kept.push(file);
                continue;
            };
            let (stays, goes) = match (self.may_go(&twin)?, self.may_go(&file)?) {
                (true, _) => (file, twin),
                (false, true) => (twin, file),
                (false, false) => {
                    let (first, second) = (twin.path(), file.path());
                    return Err(StoreError::DuplicateFile { first, second });
                }
            };
            kept.push(stays);
            self.remove_found(&goes, loaded)?;
        }
        let is_empty = |last: &mut Found| last.bytes == 0 && !last.directory.is_read_only();
        if let Some(last) = kept.pop_if(is_empty) {
            self.remove_found(&last, loaded)?;
        }
        Ok(kept)
    }

    /// Whether a file may be removed because nothing was ever written to it: the first record of a
    /// file begins with its first byte.
    fn may_go(&self, file: &Found) -> Result<bool, StoreError> {
        if file.directory.is_read_only() {
            return Ok(false);
        }
        let path = file.path();
        let mut begin = [0; 8];
        let bytes = begin.len().min(file.bytes as usize);
        self.file_system
            .open(&path, OpenMode::ReadOnly)
            .and_then(|file| file.read_at(&mut begin[..bytes], 0))
            .map_err(StoreError::io("read", &path))?;
        Ok(begin == [0; 8])
    }

    fn remove_found(&self, file: &Found, loaded: &mut Loaded) -> Result<(), StoreError> {
        let path = file.path();
        self.file_system.remove_file(&path).map_err(StoreError::io("remove", &path))?;
        // Durable before recovery removes files in front of it: alone it would lie behind a gap.
        let directory = file.directory.path();
        self.file_system
            .sync_directory(directory)
            .map_err(StoreError::io("sync directory", directory))?;
        loaded.removed_empty.push(path);
        Ok(())
    }

    /// Leaves out files of read-only directories in front of a gap: retention let them go, and
    /// removed files behind them that it may remove.
    fn without_let_go(&self, mut found: Vec<Found>, loaded: &mut Loaded) -> Vec<Found> {
        let joins = |pair: &[Found]| pair[0].base_offset + self.file_bytes == pair[1].base_offset;
        let Some(gap) = found.windows(2).rposition(|pair| !joins(pair)) else { return found };
        if found[..=gap].iter().all(|file| file.directory.is_read_only()) {
            loaded.let_go.extend(found.drain(..=gap).map(|file| file.path()));
        }
        found
    }

    /// Makes a file and reserves its space, without adding it to the log: in the directory whose
    /// turn it is, or in another one if that fails. A file of that name that was left half-made is
    /// made anew.
    ///
    /// # Errors
    /// What the operating system says, a full disk among it; nothing is left behind then.
    pub(crate) fn prepare(&self, base_offset: u64) -> Result<Arc<MappedFile>, StoreError> {
        let mut failure = None;
        for directory in self.directories.candidates(base_offset / self.file_bytes) {
            match self.prepare_in(&directory, base_offset) {
                Ok(file) => return Ok(Arc::new(file)),
                Err(error) => {
                    let path = directory.path().join(file_name(base_offset));
                    // Best effort: what stays is made anew next time, or removed later.
                    let _ = self.file_system.remove_file(&path);
                    directory.not_made(path);
                    failure.get_or_insert(error);
                }
            }
        }
        Err(failure.unwrap_or_else(|| StoreError::Config {
            key: "storePathCommitLog",
            value: "empty".to_owned(),
            allowed: "at least one directory",
        }))
    }

    fn prepare_in(
        &self,
        directory: &Arc<LogDirectory>,
        base_offset: u64,
    ) -> Result<MappedFile, StoreError> {
        let path = directory.path().join(file_name(base_offset));
        directory.making(&path);
        let file = self
            .file_system
            .open(&path, OpenMode::Empty)
            .map_err(StoreError::io("create", &path))?;
        file.allocate(self.file_bytes).map_err(StoreError::io("reserve space for", &path))?;
        if let Some(warm_up) = self.warm_up {
            warm_up.run(&*file, self.file_bytes).map_err(StoreError::io("fill", &path))?;
        }
        file.sync_data().map_err(StoreError::io("sync", &path))?;
        self.file_system
            .sync_directory(directory.path())
            .map_err(StoreError::io("sync directory", directory.path()))?;
        MappedFile::map(directory, path, file, base_offset, self.file_bytes)
    }

    /// Adds a prepared file behind the last one.
    pub(crate) fn push(&self, file: Arc<MappedFile>) {
        self.files.write().push_back(file);
    }

    /// The file that holds `offset`.
    pub(crate) fn find(&self, offset: u64) -> Option<Arc<MappedFile>> {
        let files = self.files.read();
        let first = files.front()?.base_offset;
        let index = offset.checked_sub(first)? / self.file_bytes;
        files.get(usize::try_from(index).ok()?).cloned()
    }

    pub(crate) fn first(&self) -> Option<Arc<MappedFile>> {
        self.files.read().front().cloned()
    }

    #[cfg(test)]
    pub(crate) fn last(&self) -> Option<Arc<MappedFile>> {
        self.files.read().back().cloned()
    }

    /// All files, oldest first.
    pub(crate) fn snapshot(&self) -> Vec<Arc<MappedFile>> {
        self.files.read().iter().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.files.read().len()
    }

    /// Takes the oldest file out of the log if `allowed` says so, and removes it unless its
    /// directory is read-only; never the last one that is left. Slices that readers hold stay
    /// readable. The caller syncs the directory before another one goes, see
    /// [`MappedFileQueue::sync_directory_of`].
    ///
    /// # Errors
    /// What the operating system says; the file then stays in the log.
    pub(crate) fn remove_first(
        &self,
        allowed: impl FnOnce(&MappedFile) -> bool,
    ) -> Result<Option<Arc<MappedFile>>, StoreError> {
        let first = {
            let mut files = self.files.write();
            if files.len() < 2 || !files.front().is_some_and(|first| allowed(first)) {
                return Ok(None);
            }
            files.pop_front()
        };
        let Some(first) = first else { return Ok(None) };
        if first.is_read_only() {
            return Ok(Some(first));
        }
        // A half-made one for the same place, in another directory, must not come back in its stead.
        let leftovers = self.directories.remove_leftovers(&*self.file_system);
        // Without the lock: giving back the blocks of a large file takes its time.
        let removed = leftovers.and_then(|()| {
            let removed = self.file_system.remove_file(&first.path);
            removed.map_err(StoreError::io("remove", &first.path))
        });
        if let Err(error) = removed {
            self.files.write().push_front(first);
            return Err(error);
        }
        Ok(Some(first))
    }

    /// Makes the removal of a file durable.
    ///
    /// # Errors
    /// What the operating system says; the caller must treat it as final.
    pub(crate) fn sync_directory_of(&self, file: &MappedFile) -> Result<(), StoreError> {
        let directory = file.directory.path();
        self.file_system
            .sync_directory(directory)
            .map_err(StoreError::io("sync directory", directory))
    }

    /// Removes files behind the last one, made ahead for a log that would have grown into them. Nobody
    /// makes one meanwhile.
    pub(crate) fn remove_made_ahead(&self) -> Result<(), StoreError> {
        let Some(end) = self.files.read().back().map(|last| last.end_offset()) else {
            return Ok(());
        };
        let mut ahead = Vec::new();
        for directory in self.directories.writable() {
            let listed = list_log_files(&*self.file_system, directory.path())?;
            let found = listed.files.into_iter().filter(|(base_offset, _)| *base_offset >= end);
            ahead.extend(found.map(|(base_offset, _)| (base_offset, directory)));
        }
        ahead.sort_unstable_by_key(|(base_offset, _)| std::cmp::Reverse(*base_offset));
        for (base_offset, directory) in ahead {
            let path = directory.path().join(file_name(base_offset));
            self.file_system.remove_file(&path).map_err(StoreError::io("remove", &path))?;
            self.file_system
                .sync_directory(directory.path())
                .map_err(StoreError::io("sync directory", directory.path()))?;
        }
        Ok(())
    }

    /// Removes every file that begins at or behind `offset`, but not the only one: it says where
    /// the log begins. None of them may be read-only.
    pub(crate) fn remove_behind(&self, offset: u64) -> Result<usize, StoreError> {
        let mut files = self.files.write();
        let mut removed = 0;
        while files.len() > 1
            && let Some(last) = files.back()
            && last.base_offset >= offset
        {
            if removed == 0 {
                // What a run that was killed removed would leave a gap if it came back alone.
                for directory in self.directories.writable() {
                    self.file_system
                        .sync_directory(directory.path())
                        .map_err(StoreError::io("sync directory", directory.path()))?;
                }
            }
            self.file_system
                .remove_file(&last.path)
                .map_err(StoreError::io("remove", &last.path))?;
            // Each by itself: were they to go in another order, a crash would leave a gap.
            self.sync_directory_of(last)?;
            files.pop_back();
            removed += 1;
        }
        Ok(removed)
    }
}

/// A file that [`MappedFileQueue::load`] found.
struct Found {
    base_offset: u64,
    bytes: u64,
    directory: Arc<LogDirectory>,
}

impl Found {
    fn path(&self) -> PathBuf {
        self.directory.path().join(file_name(self.base_offset))
    }
}

/// The entries of a directory of 20-digit files.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    /// Base offset and length, oldest first.
    pub(crate) files: Vec<(u64, u64)>,
    /// Everything else.
    pub(crate) foreign: Vec<PathBuf>,
}

/// Lists a directory of 20-digit files.
///
/// # Errors
/// When something that is no file has such a name, or the operating system refuses.
pub(crate) fn list_log_files(
    file_system: &dyn FileSystem,
    directory: &Path,
) -> Result<Listed, StoreError> {
    let mut listed = Listed::default();
    for entry in file_system.list(directory).map_err(StoreError::io("list", directory))? {
        match parse_file_name(&entry.name) {
            Some(base_offset) if !entry.is_directory && !entry.is_special => {
                listed.files.push((base_offset, entry.bytes));
            }
            Some(_) => {
                let found = match entry.is_special {
                    true => "a symbolic link or a special file",
                    false => "a directory",
                };
                return Err(StoreError::NotAFile { path: directory.join(&entry.name), found });
            }
            None => listed.foreign.push(directory.join(&entry.name)),
        }
    }
    listed.files.sort_unstable();
    Ok(listed)
}

#[cfg(test)]
mod tests;
