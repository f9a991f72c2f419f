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
use crate::small_file::read_whole;

/// Text of `abort` after a sync failed; longer than any process id.
const DISTRUST: &[u8] = b"sync failed";

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

    /// Whether a sync failed in the last run or since: see [`AbortFile::distrust`].
    pub(crate) fn is_distrusted(&self, file_system: &dyn FileSystem) -> Result<bool, StoreError> {
        match read_whole(file_system, &self.path) {
            Ok(text) => Ok(text == DISTRUST),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(StoreError::io("read", &self.path)(error)),
        }
    }

    /// Notes that a sync failed. The kernel then takes pages for clean that it could not write:
    /// they are read as they should be, and no later sync writes them. If the power goes, they are
    /// gone and recovery sees it. If only the process ends, recovery sees them and must write them
    /// again; the note goes the same way as they do, so it is not synced.
    ///
    /// False if even that failed: try again.
    pub(crate) fn distrust(&self, file_system: &dyn FileSystem) -> bool {
        let noted =
            file_system.open(&self.path, OpenMode::Any).and_then(|file| file.write_at(DISTRUST, 0));
        if let Err(error) = &noted {
            tracing::error!(path = %self.path.display(), %error,
                "failed sync cannot be noted; restart the machine, not just the broker");
        }
        noted.is_ok()
    }

    /// Makes the mark, durably: what happens next must not look like a clean end. `distrusted`
    /// keeps the note of a failed sync, also if the process is killed in here.
    pub(crate) fn create(
        &self,
        file_system: &dyn FileSystem,
        distrusted: bool,
    ) -> Result<(), StoreError> {
        let mode = if distrusted { OpenMode::Any } else { OpenMode::Empty };
        let file =
            file_system.open(&self.path, mode).map_err(StoreError::io("create", &self.path))?;
        let id = std::process::id().to_string();
        file.write_at(if distrusted { DISTRUST } else { id.as_bytes() }, 0)
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
        abort.create(&RealFileSystem, false).unwrap();
        let text = std::fs::read_to_string(directory.path().join("abort")).unwrap();
        assert_eq!(text, std::process::id().to_string());
        assert!(abort.exists(&RealFileSystem).unwrap());
        assert!(!abort.is_distrusted(&RealFileSystem).unwrap());
        assert!(abort.distrust(&RealFileSystem));
        assert!(abort.is_distrusted(&RealFileSystem).unwrap());
        abort.create(&RealFileSystem, true).unwrap();
        assert!(abort.is_distrusted(&RealFileSystem).unwrap());
        abort.remove(&RealFileSystem).unwrap();
        abort.remove(&RealFileSystem).unwrap();
        assert!(!abort.exists(&RealFileSystem).unwrap());
        assert!(!abort.is_distrusted(&RealFileSystem).unwrap());
    }
}
