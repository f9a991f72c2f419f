//! Key-value configuration by namespace, kept in kvConfig.json (RocketMQ's KVConfigManager).
//!
//! A change is on disk before it is visible or acknowledged. Changes block on the disk; questions
//! never wait for them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use parking_lot::{Mutex, RwLock};
use rocketmq_protocol::fastjson;
use serde::{Deserialize, Serialize};

use crate::safe_file::{self, FileError};

/// The namespace of ordered topics: topic → `brokerA:4;brokerB:4`.
pub const ORDER_TOPIC_CONFIG: &str = "ORDER_TOPIC_CONFIG";

type Namespaces = BTreeMap<String, BTreeMap<String, String>>;

/// The file's content (RocketMQ's KVConfigSerializeWrapper).
#[derive(Default, Deserialize, Serialize)]
struct Content {
    #[serde(rename = "configTable", default)]
    config_table: Namespaces,
}

/// See the module's text.
#[derive(Debug)]
pub struct KvTable {
    path: PathBuf,
    namespaces: RwLock<Namespaces>,
    /// Held over the disk write, so that files are written in the order of the changes.
    writer: Mutex<()>,
}

impl KvTable {
    /// Reads the file; a missing one is an empty table.
    ///
    /// # Errors
    /// The file cannot be read, or it and its `.bak` are damaged.
    pub fn load(path: &Path) -> Result<Self, FileError> {
        let content = safe_file::read(path, |bytes| {
            fastjson::from_slice::<Content>(bytes).map_err(|error| error.to_string())
        })?;
        Ok(Self {
            path: path.to_owned(),
            namespaces: RwLock::new(content.unwrap_or_default().config_table),
            writer: Mutex::new(()),
        })
    }

    /// One value.
    pub fn get(&self, namespace: &str, key: &str) -> Option<String> {
        self.namespaces.read().get(namespace)?.get(key).cloned()
    }

    /// All of a namespace; `None` when nothing was ever put there.
    pub fn namespace(&self, namespace: &str) -> Option<BTreeMap<String, String>> {
        self.namespaces.read().get(namespace).cloned()
    }

    /// Sets a value.
    ///
    /// # Errors
    /// The file cannot be written; the table is then unchanged.
    pub fn put(&self, namespace: &str, key: &str, value: &str) -> Result<(), FileError> {
        self.change(|namespaces| {
            let entries = namespaces.entry(namespace.to_owned()).or_default();
            entries.insert(key.to_owned(), value.to_owned()).as_deref() != Some(value)
        })
    }

    /// Removes a value. The namespace stays, empty, as in RocketMQ.
    ///
    /// # Errors
    /// The file cannot be written; the table is then unchanged.
    pub fn delete(&self, namespace: &str, key: &str) -> Result<(), FileError> {
        self.change(|namespaces| {
            namespaces.get_mut(namespace).is_some_and(|entries| entries.remove(key).is_some())
        })
    }

    /// Applies a change that says whether it changed anything.
    fn change(&self, change: impl FnOnce(&mut Namespaces) -> bool) -> Result<(), FileError> {
        let _writer = self.writer.lock();
        let mut content = Content { config_table: self.namespaces.read().clone() };
        if !change(&mut content.config_table) {
            return Ok(());
        }
        safe_file::write(&self.path, &fastjson::to_vec(&content))?;
        *self.namespaces.write() = content.config_table;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("namesrv/kvConfig.json");
        let kv = KvTable::load(&path).unwrap();
        assert_eq!(kv.namespace(ORDER_TOPIC_CONFIG), None);
        kv.put(ORDER_TOPIC_CONFIG, "T", "broker-a:4").unwrap();
        kv.put(ORDER_TOPIC_CONFIG, "U", "ü \"quoted\"").unwrap();
        kv.put("other", "k", "v").unwrap();
        kv.delete("other", "k").unwrap();

        let again = KvTable::load(&path).unwrap();
        assert_eq!(again.get(ORDER_TOPIC_CONFIG, "T").as_deref(), Some("broker-a:4"));
        assert_eq!(again.get(ORDER_TOPIC_CONFIG, "U").as_deref(), Some("ü \"quoted\""));
        assert_eq!(again.get("other", "k"), None);
        assert_eq!(again.namespace("other"), Some(BTreeMap::new()), "an emptied namespace stays");
    }

    #[test]
    fn a_file_that_the_java_name_server_wrote_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kvConfig.json");
        std::fs::write(&path, r#"{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"broker-a:4"}}}"#)
            .unwrap();
        let kv = KvTable::load(&path).unwrap();
        assert_eq!(kv.get(ORDER_TOPIC_CONFIG, "T").as_deref(), Some("broker-a:4"));
    }

    #[test]
    fn a_change_that_cannot_be_written_is_refused_and_not_visible() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kvConfig.json");
        let kv = KvTable::load(&path).unwrap();
        kv.put("n", "k", "1").unwrap();
        // A directory in the temporary file's place makes every write fail, for root too.
        std::fs::create_dir(dir.path().join("kvConfig.json.tmp")).unwrap();
        assert!(kv.put("n", "k", "2").is_err());
        assert!(kv.delete("n", "k").is_err());
        assert_eq!(kv.get("n", "k").as_deref(), Some("1"));
        assert_eq!(KvTable::load(&path).unwrap().get("n", "k").as_deref(), Some("1"));
    }

    #[test]
    fn a_damaged_file_stops_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kvConfig.json");
        std::fs::write(&path, r#"{"configTable":{"ORDER"#).unwrap();
        let text = KvTable::load(&path).unwrap_err().to_string();
        assert!(text.contains("kvConfig.json is damaged"), "{text}");
    }
}
