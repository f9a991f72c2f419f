//! The files `lock` and `abort` of a store directory.
//!
//! `lock` keeps a second process out: byte 0 is locked for as long as the store is open, and its
//! text is `lock` (RocketMQ's `DefaultMessageStore.start`). `abort` exists while the store is open,
//! so finding it at start means that the last run did not end cleanly; its text is the process id,
//! and after a failed sync of the log, on a line of its own, what of the log may be in memory alone.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::StoreError;
use crate::file_system::{FileSystem, OpenMode, StoreFile};

/// The lock of a store directory, held until dropped.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    _file: Arc<dyn StoreFile>,
}

impl DirectoryLock {
    /// Takes the lock.
    ///
    /// # Errors
    /// [`StoreError::Locked`] when another store holds it.
    pub(crate) fn take(
        file_system: &dyn FileSystem,
        root_dir: &Path,
    ) -> Result<DirectoryLock, StoreError> {
        let path = root_dir.join("lock");
        let file = file_system.open(&path, OpenMode::Any).map_err(StoreError::io("open", &path))?;
        if !file.try_lock().map_err(StoreError::io("lock", &path))? {
            return Err(StoreError::Locked { directory: root_dir.to_owned(), lock: path });
        }
        file.write_at(b"lock", 0).map_err(StoreError::io("write", &path))?;
        Ok(DirectoryLock { _file: file })
    }
}

/// Begins the line of `abort` that says from where on the log may be in memory alone.
const UNSYNCED_FROM: &str = "\nunsynced from ";
/// More of `abort` is not read.
const BYTES_MAX: u64 = 4096;

/// The mark of an unclean end.
#[derive(Debug)]
pub(crate) struct AbortFile {
    path: PathBuf,
}

impl AbortFile {
    pub(crate) fn new(root_dir: &Path) -> AbortFile {
        AbortFile { path: root_dir.join("abort") }
    }

    /// Whether the last run did not end cleanly.
    pub(crate) fn exists(&self, file_system: &dyn FileSystem) -> Result<bool, StoreError> {
        file_system.exists(&self.path).map_err(StoreError::io("look for", &self.path))
    }

    /// Notes that the log from `unsynced_from` on could not be synced. The system may then show
    /// bytes that are not on the disk and take them for written, for as long as it runs.
    pub(crate) fn note_failed_sync(
        &self,
        file_system: &dyn FileSystem,
        unsynced_from: i64,
    ) -> Result<(), StoreError> {
        let failed = StoreError::io("write", &self.path);
        let write = || -> io::Result<()> {
            let file = file_system.open(&self.path, OpenMode::Existing)?;
            let line = format!("{UNSYNCED_FROM}{unsynced_from}\n");
            file.write_at(line.as_bytes(), file.len_bytes()?)
        };
        write().map_err(failed)
    }

    /// What [`AbortFile::note_failed_sync`] noted, if that was done in the last run.
    pub(crate) fn failed_sync(
        &self,
        file_system: &dyn FileSystem,
    ) -> Result<Option<i64>, StoreError> {
        let failed = StoreError::io("read", &self.path);
        let read = || -> io::Result<Option<i64>> {
            let file = file_system.open(&self.path, OpenMode::Existing)?;
            let mut bytes = vec![0; file.len_bytes()?.min(BYTES_MAX) as usize];
            file.read_at(&mut bytes, 0)?;
            let text = String::from_utf8_lossy(&bytes);
            let offsets = text.lines().filter_map(|line| line.strip_prefix(&UNSYNCED_FROM[1..]));
            Ok(offsets.filter_map(|offset| offset.parse().ok()).min())
        };
        match read() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            result => result.map_err(failed),
        }
    }

    /// Makes the mark, durably: what happens next must not look like a clean end.
    pub(crate) fn create(&self, file_system: &dyn FileSystem) -> Result<(), StoreError> {
        let file = file_system
            .open(&self.path, OpenMode::Empty)
            .map_err(StoreError::io("create", &self.path))?;
        file.write_at(std::process::id().to_string().as_bytes(), 0)
            .map_err(StoreError::io("write", &self.path))?;
        file.sync_data().map_err(StoreError::io("sync", &self.path))?;
        self.sync_directory(file_system)
    }

    /// Takes the mark away, durably.
    pub(crate) fn remove(&self, file_system: &dyn FileSystem) -> Result<(), StoreError> {
        match file_system.remove_file(&self.path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(StoreError::io("remove", &self.path)(error)),
        }
        self.sync_directory(file_system)
    }

    fn sync_directory(&self, file_system: &dyn FileSystem) -> Result<(), StoreError> {
        let directory = self.path.parent().unwrap_or(Path::new("."));
        file_system.sync_directory(directory).map_err(StoreError::io("sync directory", directory))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_system::RealFileSystem;

    #[test]
    fn a_second_store_is_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let first = DirectoryLock::take(&RealFileSystem, directory.path()).unwrap();
        let error = DirectoryLock::take(&RealFileSystem, directory.path()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&directory.path().display().to_string()), "{text}");
        assert!(text.contains("storePathRootDir"), "{text}");
        assert_eq!(std::fs::read(directory.path().join("lock")).unwrap(), b"lock");
        drop(first);
        DirectoryLock::take(&RealFileSystem, directory.path()).unwrap();
    }

    #[test]
    fn abort_holds_the_process_id() {
        let directory = tempfile::tempdir().unwrap();
        let abort = AbortFile::new(directory.path());
        assert!(!abort.exists(&RealFileSystem).unwrap());
        abort.create(&RealFileSystem).unwrap();
        let text = std::fs::read_to_string(directory.path().join("abort")).unwrap();
        assert_eq!(text, std::process::id().to_string());
        assert!(abort.exists(&RealFileSystem).unwrap());
        assert_eq!(abort.failed_sync(&RealFileSystem).unwrap(), None);
        abort.note_failed_sync(&RealFileSystem, 4711).unwrap();
        abort.note_failed_sync(&RealFileSystem, 5000).unwrap();
        assert_eq!(abort.failed_sync(&RealFileSystem).unwrap(), Some(4711));
        abort.create(&RealFileSystem).unwrap();
        assert_eq!(abort.failed_sync(&RealFileSystem).unwrap(), None);
        abort.remove(&RealFileSystem).unwrap();
        abort.remove(&RealFileSystem).unwrap();
        assert_eq!(abort.failed_sync(&RealFileSystem).unwrap(), None);
        assert!(!abort.exists(&RealFileSystem).unwrap());
    }
}
