//! How many files of queues stay open between uses: a bound on descriptors, however many queues there
//! are.
//!
//! Beyond it a file is opened for each use and closed again, which costs two calls. Nothing is lost by
//! closing: what was written is in the page cache, and the sync opens the file anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::file_system::StoreFile;

/// Files of one kind that stay open.
const OPEN_FILES_MAX: usize = 512;

/// Counts the files that are kept open.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenFiles(Arc<AtomicUsize>);

/// A file that is kept open; counted until it is dropped.
#[derive(Debug)]
pub(super) struct KeptOpen {
    file: Arc<dyn StoreFile>,
    open: Arc<AtomicUsize>,
}

impl OpenFiles {
    /// Keeps a file open if the bound allows it.
    pub(super) fn keep(&self, file: &Arc<dyn StoreFile>) -> Option<KeptOpen> {
        if self.0.fetch_add(1, Ordering::Relaxed) >= OPEN_FILES_MAX {
            self.0.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(KeptOpen { file: Arc::clone(file), open: Arc::clone(&self.0) })
    }
}

impl KeptOpen {
    pub(super) fn file(&self) -> Arc<dyn StoreFile> {
        Arc::clone(&self.file)
    }
}

impl Drop for KeptOpen {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_system::{FileSystem, OpenMode, RealFileSystem};

    #[test]
    fn no_more_than_the_bound_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let file = RealFileSystem.open(&directory.path().join("x"), OpenMode::Empty).unwrap();
        let open = OpenFiles::default();
        let mut kept: Vec<_> = (0..OPEN_FILES_MAX).map(|_| open.keep(&file)).collect();
        assert!(kept.iter().all(Option::is_some));
        assert!(open.keep(&file).is_none());
        kept.pop();
        assert!(open.keep(&file).is_some());
    }
}
