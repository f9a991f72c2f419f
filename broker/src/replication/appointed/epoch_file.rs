//! The epoch file: which epochs the log on this disk has, and where each began (`EpochFileCache`).

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rocketmq_replication::{Epoch, EpochEntry, EpochTable};
use tokio::sync::Notify;

use crate::metadata::persist::{MetadataError, load_without_backup, save_bytes};

/// The epoch file and what is in it. Every change is on disk when its function returns.
#[derive(Debug)]
pub struct EpochFile {
    path: PathBuf,
    table: ArcSwap<EpochTable>,
    /// Held while the file is written, for which readers do not wait.
    writer: Mutex<()>,
    changed: Notify,
}

impl EpochFile {
    /// Reads the file of a log that ends at `log_end`. Entries behind that belong to a tail that the
    /// log lost with the power, and are removed from the file as well: the log may grow beyond where
    /// they began, with messages of another epoch.
    ///
    /// The `.bak` takes its place where a crash left no file: what was being written then was not relied
    /// on yet. It does not take the place of a damaged one, as with other metadata: it may lack the
    /// newest epoch, and messages of that one would pass for messages of the epoch before, which other
    /// logs have at the same place with other contents.
    ///
    /// # Errors
    /// When it is damaged, or cannot be read or written.
    pub fn open(path: PathBuf, log_end: i64) -> Result<EpochFile, MetadataError> {
        let parse = |bytes: &[u8]| {
            let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
            EpochTable::from_text(text).map_err(|error| error.to_string())
        };
        let table = load_without_backup(&path, parse)?.unwrap_or_default();
        let mut of_log = table.clone();
        // One that begins where the log ends holds nothing yet, and is true all the same.
        of_log.truncate_suffix(log_end.saturating_add(1));
        let table = ArcSwap::from_pointee(table);
        let file = EpochFile { path, table, writer: Mutex::new(()), changed: Notify::new() };
        file.replace(of_log)?;
        Ok(file)
    }

    /// What is in it.
    pub fn table(&self) -> EpochTable {
        EpochTable::clone(&self.table.load())
    }

    /// The epoch that the byte at `offset` belongs to, and where the next one begins, if any.
    pub fn at(&self, offset: i64) -> Option<(EpochEntry, Option<i64>)> {
        let table = self.table.load();
        let entries = table.entries();
        let index = entries.iter().rposition(|entry| entry.start <= offset)?;
        Some((entries[index], entries.get(index + 1).map(|next| next.start)))
    }

    /// Replaces what is in it; nothing is written if that is the same.
    ///
    /// # Errors
    /// When it cannot be written: it holds what it held then.
    pub fn replace(&self, next: EpochTable) -> Result<(), MetadataError> {
        let writer = self.writer.lock();
        if next != **self.table.load() {
            // An empty table, too: an entry that is not true any more must not come back.
            save_bytes(&self.path, next.to_text().as_bytes())?;
            self.table.store(Arc::new(next));
        }
        drop(writer);
        self.changed.notify_waiters();
        Ok(())
    }

    /// Returns once the file has this epoch, or a newer one.
    pub async fn has(&self, epoch: Epoch) {
        loop {
            let changed = self.changed.notified();
            if self.table.load().last().is_some_and(|last| last.epoch >= epoch) {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn entry(epoch: i32, start: i64) -> EpochEntry {
        EpochEntry { epoch: Epoch(epoch), start }
    }

    fn open(dir: &tempfile::TempDir, log_end: i64) -> EpochFile {
        EpochFile::open(dir.path().join("epochFileCheckpoint"), log_end).expect("an epoch file")
    }

    fn table(entries: &[EpochEntry]) -> EpochTable {
        EpochTable::new(entries.to_vec()).expect("in order")
    }

    #[test]
    fn what_was_written_is_there_after_a_restart() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = open(&dir, 0);
        file.replace(table(&[entry(1, 0), entry(2, 100), entry(3, 150)])).expect("written");
        let text = fs::read_to_string(dir.path().join("epochFileCheckpoint")).expect("a file");
        assert!(text.starts_with("3\n") && text.ends_with("\n1-0\n2-100\n3-150\n"), "{text}");
        let file = open(&dir, 150);
        assert_eq!(file.table().entries().len(), 3, "an epoch without a message is one");
        assert_eq!(file.at(99), Some((entry(1, 0), Some(100))));
        assert_eq!(file.at(150), Some((entry(3, 150), None)));
        file.replace(EpochTable::default()).expect("written");
        assert_eq!(open(&dir, 150).table(), EpochTable::default());
        assert_eq!(file.at(0), None);
    }

    #[test]
    fn a_lost_tail_takes_its_epochs_with_it() {
        let dir = tempfile::tempdir().expect("a directory");
        open(&dir, 0).replace(table(&[entry(1, 0), entry(2, 100)])).expect("written");
        assert_eq!(open(&dir, 60).table().entries(), [entry(1, 0)]);
    }

    #[tokio::test]
    async fn whoever_waits_for_an_epoch_goes_on_when_it_is_on_disk() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = open(&dir, 0);
        let write = async {
            tokio::task::yield_now().await;
            file.replace(table(&[entry(1, 0)])).expect("written");
            tokio::task::yield_now().await;
            file.replace(table(&[entry(1, 0), entry(4, 0)])).expect("written");
        };
        tokio::join!(file.has(Epoch(3)), write);
        file.has(Epoch(4)).await;
    }

    #[test]
    fn the_previous_version_stands_in_for_a_missing_file_and_not_for_a_damaged_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("epochFileCheckpoint");
        let file = open(&dir, 0);
        file.replace(table(&[entry(1, 0)])).expect("written");
        file.replace(table(&[entry(1, 0), entry(2, 5)])).expect("written");
        for damaged in ["2\n1\n1-0\n", ""] {
            fs::write(&path, damaged).expect("damaged");
            let error = EpochFile::open(path.clone(), 9).expect_err("damaged").to_string();
            let expected = ["epochFileCheckpoint is damaged", "may lack the newest"];
            assert!(expected.iter().all(|text| error.contains(text)), "{error}");
        }
        fs::remove_file(&path).expect("removed");
        assert_eq!(open(&dir, 9).table().entries(), [entry(1, 0)]);
    }
}
