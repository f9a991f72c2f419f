//! The file `config/deletedTopics.json`: which records of the log belong to topics that are gone.
//!
//! The messages of a deleted topic stay in the log until their files are removed. Recovery after a
//! crash, and building a queue anew, go through the log: they would bring the topic back, or mix
//! its old messages with those of a new topic of the same name. So a deletion is written down
//! first: records of the topic in front of a physical offset belong to no queue any more. RocketMQ
//! has no such file and leaves it alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::StoreError;
use crate::file_system::FileSystem;
use crate::small_file::{read_small_file, write_small_file};

/// Topic to the physical offset in front of which its records count no more.
pub(crate) type Ends = BTreeMap<String, i64>;

fn path_in(root_dir: &Path) -> PathBuf {
    root_dir.join("config").join("deletedTopics.json")
}

/// Reads the file, if there is one; writes nothing.
///
/// # Errors
/// When it is damaged.
pub(crate) fn read(file_system: &dyn FileSystem, root_dir: &Path) -> Result<Ends, StoreError> {
    let path = path_in(root_dir);
    let read = read_small_file(file_system, &path, |bytes| {
        serde_json::from_slice::<Ends>(bytes).map_err(|error| error.to_string())
    })?;
    if let Some(reason) = read.as_ref().and_then(|file| file.fallback.as_ref()) {
        tracing::warn!(path = %path.display(), reason, "deletions are read from the .bak");
    }
    Ok(read.map(|file| file.value).unwrap_or_default())
}

/// The deletions that the log still holds records of.
#[derive(Debug)]
pub(crate) struct DeletedTopics {
    file_system: Arc<dyn FileSystem>,
    path: PathBuf,
    ends: Mutex<Ends>,
}

impl DeletedTopics {
    /// Reads the file, if there is one.
    ///
    /// # Errors
    /// When it cannot be read or is damaged: going on without it could bring topics back.
    pub(crate) fn open(
        file_system: Arc<dyn FileSystem>,
        root_dir: &Path,
    ) -> Result<DeletedTopics, StoreError> {
        let path = path_in(root_dir);
        let ends = Mutex::new(read(&*file_system, root_dir)?);
        Ok(DeletedTopics { file_system, path, ends })
    }

    /// Whether a record was its topic's when that was deleted.
    pub(crate) fn holds(&self, topic: &str, physical_offset: i64) -> bool {
        let ends = self.ends.lock();
        !ends.is_empty() && ends.get(topic).is_some_and(|end| physical_offset < *end)
    }

    /// In front of which physical offset records of the topic count no more; 0 if it was not deleted.
    pub(crate) fn end_of(&self, topic: &str) -> i64 {
        let ends = self.ends.lock();
        ends.get(topic).copied().unwrap_or(0)
    }

    /// The deletions, each a topic and the end of its records.
    pub(crate) fn all(&self) -> Vec<(String, i64)> {
        self.ends.lock().iter().map(|(topic, end)| (topic.clone(), *end)).collect()
    }

    /// Writes down that the topic's records in front of `end` count no more; durable when it
    /// returns. Deletions without records in the log, which begins at `log_start`, are forgotten.
    ///
    /// # Errors
    /// When it cannot be written; the topic then counts as not deleted.
    pub(crate) fn add(&self, topic: &str, end: i64, log_start: i64) -> Result<(), StoreError> {
        let mut ends = self.ends.lock();
        let mut changed = ends.clone();
        changed.insert(topic.to_owned(), end);
        changed.retain(|_, end| *end > log_start);
        self.write(&changed)?;
        *ends = changed;
        Ok(())
    }

    /// Brings the deletions to agree with a log that was recovered. An end behind the log's would
    /// swallow messages of a new topic of that name; it comes from records that were lost.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn settle(
        &self,
        log_start: i64,
        log_end: i64,
        clean: bool,
    ) -> Result<(), StoreError> {
        let mut ends = self.ends.lock();
        let mut changed = ends.clone();
        for end in changed.values_mut() {
            *end = log_end.min(*end);
        }
        changed.retain(|_, end| *end > log_start);
        // A run that was killed may have left the file in the page cache alone.
        if *ends != changed || (!clean && !ends.is_empty()) {
            self.write(&changed)?;
            *ends = changed;
        }
        Ok(())
    }

    fn write(&self, ends: &Ends) -> Result<(), StoreError> {
        let text = serde_json::to_vec_pretty(ends)
            .map_err(|error| StoreError::io("write", &self.path)(error.into()))?;
        write_small_file(&*self.file_system, &self.path, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_system::RealFileSystem;

    fn open(root: &Path) -> DeletedTopics {
        DeletedTopics::open(Arc::new(RealFileSystem), root).unwrap()
    }

    #[test]
    fn records_in_front_of_a_deletion_count_no_more() {
        let directory = tempfile::tempdir().unwrap();
        let deleted = open(directory.path());
        assert!(!deleted.holds("A", 0));
        deleted.add("A", 100, 0).unwrap();
        deleted.add("B", 200, 0).unwrap();
        let deleted = open(directory.path());
        assert!(deleted.holds("A", 99) && !deleted.holds("A", 100) && !deleted.holds("C", 0));
        // The files that held A's records are removed.
        deleted.add("C", 300, 100).unwrap();
        assert_eq!(open(directory.path()).all(), [("B".to_owned(), 200), ("C".to_owned(), 300)]);
    }

    #[test]
    fn a_log_that_lost_its_end_does_not_lose_new_messages_too() {
        let directory = tempfile::tempdir().unwrap();
        open(directory.path()).add("A", 500, 0).unwrap();
        let deleted = open(directory.path());
        deleted.settle(0, 300, false).unwrap();
        assert!(deleted.holds("A", 299) && !deleted.holds("A", 300));
        assert!(!open(directory.path()).holds("A", 300));
        deleted.settle(300, 400, true).unwrap();
        assert!(open(directory.path()).all().is_empty());
    }

    #[test]
    fn a_damaged_file_is_not_taken_for_none() {
        let directory = tempfile::tempdir().unwrap();
        open(directory.path()).add("A", 1, 0).unwrap();
        let path = directory.path().join("config/deletedTopics.json");
        std::fs::write(&path, b"{").unwrap();
        let error = DeletedTopics::open(Arc::new(RealFileSystem), directory.path()).unwrap_err();
        assert!(error.to_string().contains("deletedTopics.json"), "{error}");
    }
}
