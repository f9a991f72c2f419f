//! The directories that hold the CommitLog's files (RocketMQ's `MultiPathMappedFileQueue`).
//!
//! Owns which directories there are, which of them may be written, which are nearly full, and where
//! the next file goes. The files of all of them form one log.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::config::StoreConfig;
use crate::directory::make_directory;
use crate::error::StoreError;
use crate::file_system::FileSystem;

/// One directory.
#[derive(Debug)]
pub(crate) struct LogDirectory {
    path: PathBuf,
    /// Nothing in it is ever made, written, synced or removed.
    is_read_only: bool,
    /// Whether its disk is over `diskSpaceCleanForciblyRatio`.
    is_full: AtomicBool,
    /// Files that were not made to the end and are no part of the log: they may still be there, or a
    /// loss of power may bring them back.
    leftovers: Mutex<BTreeSet<PathBuf>>,
}

impl LogDirectory {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// A file is being made in it, perhaps once more.
    pub(crate) fn making(&self, path: &Path) {
        self.leftovers.lock().remove(path);
    }

    /// It was not made to the end.
    pub(crate) fn not_made(&self, path: PathBuf) {
        self.leftovers.lock().insert(path);
    }

    /// Removes what was not made to the end, durably.
    fn remove_leftovers(&self, file_system: &dyn FileSystem) -> Result<(), StoreError> {
        // Held, so that none of them is being made meanwhile.
        let mut leftovers = self.leftovers.lock();
        if leftovers.is_empty() {
            return Ok(());
        }
        for path in leftovers.iter() {
            match file_system.remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(StoreError::io("remove", path)(error));
                }
                _ => {}
            }
        }
        file_system
            .sync_directory(&self.path)
            .map_err(StoreError::io("sync directory", &self.path))?;
        leftovers.clear();
        Ok(())
    }

    pub(crate) fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Release);
    }
}

/// All directories.
#[derive(Clone, Debug)]
pub(crate) struct LogDirectories {
    /// Those of `storePathCommitLog`, sorted: the order decides which one gets which file.
    writable: Vec<Arc<LogDirectory>>,
    read_only: Vec<Arc<LogDirectory>>,
}

impl LogDirectories {
    /// The directories of a configuration. One that is listed as both counts as read-only.
    pub(crate) fn of(config: &StoreConfig) -> LogDirectories {
        let made = |paths: &[PathBuf], is_read_only| {
            let mut paths = paths.to_vec();
            paths.retain(|path| {
                is_read_only || !config.read_only_commit_log_dirs.iter().any(|other| other == path)
            });
            paths.sort_unstable();
            paths.dedup();
            let directory = |path| {
                Arc::new(LogDirectory {
                    path,
                    is_read_only,
                    is_full: AtomicBool::new(false),
                    leftovers: Mutex::default(),
                })
            };
            paths.into_iter().map(directory).collect()
        };
        LogDirectories {
            writable: made(&config.commit_log_dirs, false),
            read_only: made(&config.read_only_commit_log_dirs, true),
        }
    }

    /// Those that files are made in.
    pub(crate) fn writable(&self) -> &[Arc<LogDirectory>] {
        &self.writable
    }

    /// Every directory.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<LogDirectory>> {
        self.writable.iter().chain(&self.read_only)
    }

    /// Makes directories of a log that has none yet. Once one directory exists, another that is
    /// missing may be a disk that is not mounted: going on without its files would lose the
    /// messages in them. In a new store, one that never came to open its log, it is one that a
    /// crash of the first start left unmade.
    ///
    /// # Errors
    /// [`StoreError::MissingDirectory`] names it; or what the operating system says.
    pub(crate) fn make(
        &self,
        file_system: &dyn FileSystem,
        is_new_store: bool,
    ) -> Result<(), StoreError> {
        let exists = |directory: &Arc<LogDirectory>| {
            let path = directory.path();
            file_system.exists(path).map_err(StoreError::io("look for", path))
        };
        let mut missing = Vec::new();
        for directory in self.all() {
            if !exists(directory)? {
                missing.push(directory);
            }
        }
        let is_first_start = is_new_store || missing.len() == self.all().count();
        let refused = |directory: &&&Arc<LogDirectory>| directory.is_read_only || !is_first_start;
        if let Some(directory) = missing.iter().find(refused) {
            let key = if directory.is_read_only() {
                "readOnlyCommitLogStorePaths"
            } else {
                "storePathCommitLog"
            };
            return Err(StoreError::MissingDirectory { path: directory.path.clone(), key });
        }
        for directory in &self.writable {
            make_directory(file_system, directory.path())?;
        }
        Ok(())
    }

    /// Sees to it that files that were not made to the end are gone for good.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn remove_leftovers(&self, file_system: &dyn FileSystem) -> Result<(), StoreError> {
        self.writable.iter().try_for_each(|directory| directory.remove_leftovers(file_system))
    }

    /// Where the file with this index of the log (its offset by the file length) may go, best
    /// first: round-robin over the directories that are not nearly full, over all that may be
    /// written if all are.
    pub(crate) fn candidates(&self, file_index: u64) -> Vec<Arc<LogDirectory>> {
        let has_space = |directory: &&Arc<LogDirectory>| !directory.is_full.load(Ordering::Acquire);
        let mut candidates: Vec<_> = self.writable.iter().filter(has_space).cloned().collect();
        if candidates.is_empty() {
            candidates.clone_from(&self.writable);
        }
        if !candidates.is_empty() {
            // A remainder of a length fits.
            let first = (file_index % candidates.len() as u64) as usize;
            candidates.rotate_left(first);
        }
        candidates
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_system::RealFileSystem;

    fn directories(writable: &[&str], read_only: &[&str]) -> LogDirectories {
        let mut config = StoreConfig::new("/x");
        config.commit_log_dirs = writable.iter().map(PathBuf::from).collect();
        config.read_only_commit_log_dirs = read_only.iter().map(PathBuf::from).collect();
        LogDirectories::of(&config)
    }

    fn first(directories: &LogDirectories, file_index: u64) -> String {
        directories.candidates(file_index)[0].path().display().to_string()
    }

    #[test]
    fn files_go_round_robin_over_directories_with_space() {
        let directories = directories(&["/c", "/a", "/b", "/a", "/r"], &["/r"]);
        let turn = |from: u64| [0, 1, 2].map(|n| first(&directories, from + n));
        assert_eq!(turn(0), ["/a", "/b", "/c"]);
        assert_eq!(turn(3), ["/a", "/b", "/c"]);
        assert_eq!(directories.all().count(), 4);

        directories.writable()[1].set_full(true);
        assert_eq!(turn(4), ["/a", "/c", "/a"]);
        assert_eq!(directories.candidates(5).len(), 2, "the next one is tried when one fails");
        for directory in directories.writable() {
            directory.set_full(true);
        }
        assert_eq!(turn(0), ["/a", "/b", "/c"], "if all are full they are used all the same");
        directories.writable()[1].set_full(false);
        assert_eq!(turn(0), ["/b", "/b", "/b"]);
    }

    #[test]
    fn directories_are_made_for_a_first_start_only() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name).display().to_string();
        let (a, b, r) = (path("a"), path("b"), path("r"));
        let make = |writable: &[&str], read_only: &[&str]| {
            directories(writable, read_only).make(&RealFileSystem, false)
        };
        let error = make(&[&a, &b], &[&r]).unwrap_err().to_string();
        assert!(error.contains(&r) && error.contains("readOnlyCommitLogStorePaths"), "{error}");
        make(&[&a, &b], &[]).unwrap();
        make(&[&a, &b], &[]).unwrap();
        std::fs::remove_dir(&b).unwrap();
        let error = make(&[&a, &b], &[]).unwrap_err();
        assert!(
            matches!(&error, StoreError::MissingDirectory { path, key: "storePathCommitLog" }
                if path.display().to_string() == b),
            "{error}"
        );
    }
}
