//! How far each delay level has been delivered: `config/delayOffset.json`.
//!
//! What is on disk never runs ahead of the log: an offset is written once the messages delivered in
//! front of it are safe: they survive a loss of power and, where the master is appointed, a change of
//! the master. So a crash repeats deliveries and never skips one, nor does a broker that steps down, or
//! a slave that copied the progress.

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
    /// What waits for the log in front of the physical offset to be safe.
    waiting: Option<(i64, Offsets)>,
    /// What is delivered for good.
    settled: Offsets,
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
        let settled = written.offset_table.clone();
        let state = State { current: settled.clone(), waiting: None, settled, written };
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

    /// The table of what is delivered for good, for who takes it over without the end of the log.
    pub fn settled_table(&self) -> DelayOffsetTable {
        let state = self.state.lock();
        DelayOffsetTable {
            data_version: state.written.data_version,
            offset_table: state.settled.clone(),
        }
    }

    /// Notes what is delivered for good by now. `written` is the end of the log, read before this call,
    /// `safe` the end of what no loss of power and no other master takes away.
    pub fn settle(&self, written: i64, safe: i64) {
        let mut state = self.state.lock();
        if let Some((_, offsets)) = state.waiting.take_if(|(end, _)| *end <= safe) {
            state.settled = offsets;
        }
        if state.waiting.is_none() && state.current != state.settled {
            state.waiting = Some((written, state.current.clone()));
        }
    }

    /// Goes back to what is delivered for good: the end of the log may be cut.
    pub fn fall_back(&self) {
        let mut state = self.state.lock();
        state.current = state.settled.clone();
        state.waiting = None;
    }

    /// Settles, and writes what is settled; see [`DelayProgress::settle`].
    ///
    /// # Errors
    /// When the file cannot be written; the old one is still there then.
    pub fn persist(&self, written: i64, safe: i64) -> Result<(), MetadataError> {
        let _writer = self.writer.lock();
        self.settle(written, safe);
        let settled = self.state.lock().settled.clone();
        self.write(settled)
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
        {
            let mut state = self.state.lock();
            state.current.clone_from(&master.offset_table);
            state.settled.clone_from(&master.offset_table);
            state.waiting = None;
        }
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
    fn what_may_be_cut_is_neither_handed_on_nor_kept() {
        let directory = tempfile::tempdir().unwrap();
        let progress = DelayProgress::load(directory.path()).unwrap();
        let settled = || progress.settled_table().offset_table;
        progress.set(3, 10);
        progress.settle(1000, 900);
        progress.set(3, 11);
        progress.settle(2000, 999);
        assert!(settled().is_empty());
        progress.settle(2000, 1000);
        assert_eq!(settled(), Offsets::from([(3, 10)]));
        assert_eq!(progress.table().offset_table, Offsets::from([(3, 11)]));
        progress.persist(2000, 1000).unwrap();
        assert_eq!(on_disk(directory.path()), Offsets::from([(3, 10)]));
        progress.fall_back();
        assert_eq!(progress.get(3), Some(10), "it is delivered again");
        progress.settle(3000, 3000);
        assert_eq!(settled(), Offsets::from([(3, 10)]));
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
