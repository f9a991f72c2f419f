//! How far each delay level has been delivered: `config/delayOffset.json`.
//!
//! What is on disk never runs ahead of the log: an offset is written once the messages delivered in
//! front of it survive a loss of power. So a crash repeats deliveries and never skips one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rocketmq_protocol::body::DataVersion;
use serde::{Deserialize, Serialize};

use crate::clock::now_ms;
use crate::metadata::persist::{self, MetadataError};

/// Name of the file in the directory `config`.
const FILE: &str = "delayOffset.json";

/// Next offset in SCHEDULE_TOPIC_XXXX by level.
type Offsets = BTreeMap<i32, i64>;

/// The file's shape (`DelayOffsetSerializeWrapper`).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DelayOffsetTable {
    /// Counts the writes.
    pub data_version: DataVersion,
    /// Next offset in SCHEDULE_TOPIC_XXXX by level.
    pub offset_table: Offsets,
}

/// Progress of all levels.
#[derive(Debug)]
pub struct DelayProgress {
    path: PathBuf,
    state: Mutex<State>,
    /// Held during a write: an older table must not replace a newer one.
    writer: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    current: Offsets,
    /// What waits for the log in front of the physical offset to be durable.
    waiting: Option<(i64, Offsets)>,
    written: DelayOffsetTable,
}

impl DelayProgress {
    /// Loads the file of the directory `config`.
    ///
    /// # Errors
    /// When it and its previous version are damaged.
    pub fn load(config_dir: &Path) -> Result<DelayProgress, MetadataError> {
        let path = config_dir.join(FILE);
        let written: DelayOffsetTable = persist::load(&path)?.unwrap_or_default();
        let state = State { current: written.offset_table.clone(), waiting: None, written };
        Ok(DelayProgress { path, state: Mutex::new(state), writer: Mutex::default() })
    }

    /// The next offset to deliver of a level; none if nothing of it was ever delivered.
    pub fn get(&self, level: i32) -> Option<i64> {
        self.state.lock().current.get(&level).copied()
    }

    /// All that is in front of `queue_offset` is delivered.
    pub fn set(&self, level: i32, queue_offset: i64) {
        self.state.lock().current.insert(level, queue_offset);
    }

    /// The progress of all levels.
    pub fn all(&self) -> BTreeMap<i32, i64> {
        self.state.lock().current.clone()
    }

    /// The table as the file holds it, with what is not written yet.
    pub fn table(&self) -> DelayOffsetTable {
        let state = self.state.lock();
        DelayOffsetTable {
            data_version: state.written.data_version,
            offset_table: state.current.clone(),
        }
    }

    /// Writes what is durable by now. `written` is the end of the log, read before this call,
    /// `durable` the end of what survives a loss of power.
    ///
    /// # Errors
    /// When the file cannot be written; the old one is still there then.
    pub fn persist(&self, written: i64, durable: i64) -> Result<(), MetadataError> {
        let _writer = self.writer.lock();
        let due = {
            let mut state = self.state.lock();
            let due = state.waiting.take_if(|(end, _)| *end <= durable).map(|(_, offsets)| offsets);
            if state.waiting.is_none() {
                state.waiting = Some((written, state.current.clone()));
            }
            due
        };
        due.map_or(Ok(()), |offsets| self.write(offsets))
    }

    /// Writes everything; after the log was flushed.
    ///
    /// # Errors
    /// When the file cannot be written; the old one is still there then.
    pub fn persist_all(&self) -> Result<(), MetadataError> {
        let _writer = self.writer.lock();
        let current = self.all();
        self.write(current)
    }

    /// Takes over the progress of a master and writes it.
    ///
    /// # Errors
    /// When the file cannot be written; the old one is still there then.
    pub fn follow(&self, master: &DelayOffsetTable) -> Result<(), MetadataError> {
        let _writer = self.writer.lock();
        self.state.lock().current.clone_from(&master.offset_table);
        self.write(master.offset_table.clone())
    }

    fn write(&self, offsets: Offsets) -> Result<(), MetadataError> {
        let mut table = self.state.lock().written.clone();
        if table.offset_table == offsets {
            return Ok(());
        }
        table.offset_table = offsets;
        table.data_version.next(now_ms());
        persist::save(&self.path, &table)?;
        self.state.lock().written = table;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_disk(directory: &Path) -> Offsets {
        DelayProgress::load(directory).unwrap().all()
    }

    #[test]
    fn an_offset_is_written_once_its_deliveries_are_durable() {
        let directory = tempfile::tempdir().unwrap();
        let progress = DelayProgress::load(directory.path()).unwrap();
        progress.set(3, 10);
        progress.persist(1000, 0).unwrap();
        assert!(on_disk(directory.path()).is_empty());
        progress.set(3, 20);
        progress.persist(2000, 999).unwrap();
        assert!(on_disk(directory.path()).is_empty(), "the log is durable to 999 only");
        progress.persist(2000, 1000).unwrap();
        assert_eq!(on_disk(directory.path()), Offsets::from([(3, 10)]));
        progress.persist(2000, 2000).unwrap();
        assert_eq!(on_disk(directory.path()), Offsets::from([(3, 20)]));
        progress.set(4, 1);
        progress.persist_all().unwrap();
        assert_eq!(on_disk(directory.path()), Offsets::from([(3, 20), (4, 1)]));
    }

    #[test]
    fn a_file_of_either_java_version_is_read() {
        let directory = tempfile::tempdir().unwrap();
        for text in [
            r#"{"offsetTable":{12:0,6:0,3:7}}"#,
            r#"{"dataVersion":{"counter":4,"stateVersion":0,"timestamp":1},"offsetTable":{3:7,6:0,12:0}}"#,
        ] {
            std::fs::write(directory.path().join(FILE), text).unwrap();
            assert_eq!(on_disk(directory.path()), Offsets::from([(3, 7), (6, 0), (12, 0)]));
        }
    }
}
