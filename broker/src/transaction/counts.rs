//! How many half messages of each topic are undecided: `config/transactionMetrics` (RocketMQ's
//! `TransactionMetrics`; the file has no extension there either). For people alone: after a crash the
//! figures may be off by what the file had missed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rocketmq_protocol::body::DataVersion;
use serde::{Deserialize, Serialize};

use crate::clock::now_ms;
use crate::metadata::persist::{self, MetadataError};

/// Name of the file in the directory `config`.
const FILE: &str = "transactionMetrics";

/// The file's shape (`TransactionMetricsSerializeWrapper`).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Table {
    data_version: DataVersion,
    transaction_count: BTreeMap<String, Count>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Count {
    count: i64,
    time_stamp: i64,
}

/// Counts by topic.
#[derive(Debug)]
pub struct HalfCounts {
    path: PathBuf,
    table: Mutex<Table>,
    is_dirty: AtomicBool,
    writer: Mutex<()>,
}

impl HalfCounts {
    /// Loads the file of the directory `config`.
    ///
    /// # Errors
    /// When it and its previous version are damaged.
    pub fn load(config_dir: &Path) -> Result<HalfCounts, MetadataError> {
        let path = config_dir.join(FILE);
        let table = Mutex::new(persist::load(&path)?.unwrap_or_default());
        Ok(HalfCounts { path, table, is_dirty: AtomicBool::new(false), writer: Mutex::default() })
    }

    /// The topic has so many more undecided half messages, or fewer.
    pub fn add(&self, topic: &str, more: i64) {
        let mut table = self.table.lock();
        let timestamp = now_ms();
        table.data_version.next(timestamp);
        if !table.transaction_count.contains_key(topic) {
            table.transaction_count.insert(topic.to_owned(), Count::default());
        }
        if let Some(count) = table.transaction_count.get_mut(topic) {
            count.count = count.count.saturating_add(more);
            count.time_stamp = timestamp;
        }
        drop(table);
        self.is_dirty.store(true, Ordering::Release);
    }

    /// Forgets a topic.
    pub fn remove(&self, topic: &str) {
        if self.table.lock().transaction_count.remove(topic).is_some() {
            self.is_dirty.store(true, Ordering::Release);
        }
    }

    /// All counts.
    pub fn all(&self) -> Vec<(String, i64)> {
        let table = self.table.lock();
        table.transaction_count.iter().map(|(topic, count)| (topic.clone(), count.count)).collect()
    }

    /// Writes the file if anything changed since the last write.
    ///
    /// # Errors
    /// When it cannot be written; the next call tries again.
    pub fn persist(&self) -> Result<(), MetadataError> {
        let _writer = self.writer.lock();
        // Cleared before the copy: a change that comes after it marks the table again.
        if !self.is_dirty.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let table = self.table.lock().clone();
        persist::save(&self.path, &table)
            .inspect_err(|_| self.is_dirty.store(true, Ordering::Release))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_survive_a_reload_and_javas_file_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let text = r#"{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":7},
            "transactionCount":{"T":{"count":2,"timeStamp":5}}}"#;
        std::fs::write(directory.path().join(FILE), text).unwrap();
        let counts = HalfCounts::load(directory.path()).unwrap();
        counts.add("T", -1);
        counts.add("U", 1);
        counts.add("V", 1);
        counts.remove("V");
        counts.persist().unwrap();
        let again = HalfCounts::load(directory.path()).unwrap();
        assert_eq!(again.all(), [("T".to_owned(), 1), ("U".to_owned(), 1)]);
        assert_eq!(again.table.lock().data_version.counter, 6);
    }
}
