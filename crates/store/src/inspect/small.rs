//! Verifying what is beside the log and the queues: `checkpoint`, `abort`, `config/*.json`, and
//! what does not belong to the store.

use std::path::Path;

use rocketmq_protocol::fastjson;

use super::finding::{CheckReport, Findings};
use crate::checkpoint::{CheckpointWords, FILE_BYTES};
use crate::config::StoreConfig;
use crate::error::StoreError;
use crate::file_system::FileSystem;
use crate::small_file::read_whole;

/// Names that RocketMQ gives to files and directories of a store.
const KNOWN: &[&str] = &[
    "abort",
    "abort.bak",
    "batchconsumequeue",
    "brokerIdentity",
    "brokerIdentity-temp",
    "checkpoint",
    "commitlog",
    "compaction",
    "config",
    "consumequeue",
    "consumequeue_ext",
    "consumequeue_r",
    "epochFileCheckpoint",
    "epochFileCheckpoint.bak",
    "index",
    "kvStore",
    "lock",
    "timerlog",
    "timerwheel",
];

/// The beginning of the names of directories that a repair keeps things in.
pub(super) const KEPT_PREFIX: &str = "repair-";

/// Verifies the small files.
pub(super) fn check(
    file_system: &dyn FileSystem,
    config: &StoreConfig,
    findings: &mut Findings,
    report: &mut CheckReport,
) -> Result<(), StoreError> {
    let root = &config.root_dir;
    report.clean = true;
    for entry in file_system.list(root).map_err(StoreError::io("list", root))? {
        let path = root.join(&entry.name);
        let name = entry.name.as_str();
        if name == "abort" {
            report.clean = false;
            let what = "the last run did not end cleanly";
            findings.note(&path, what, "nothing, the next start recovers");
        } else if name == "checkpoint" {
            checkpoint(file_system, &path, findings);
        } else if !KNOWN.contains(&name) && !name.starts_with(KEPT_PREFIX) {
            findings.note(&path, "does not belong to a store", "nothing, it is left alone");
        }
    }
    let directory = root.join("config");
    if !file_system.exists(&directory).map_err(StoreError::io("look for", &directory))? {
        return Ok(());
    }
    for entry in file_system.list(&directory).map_err(StoreError::io("list", &directory))? {
        if entry.name.ends_with(".json") && !entry.is_directory {
            table(file_system, &directory.join(&entry.name), findings);
        }
    }
    Ok(())
}

fn checkpoint(file_system: &dyn FileSystem, path: &Path, findings: &mut Findings) {
    let bytes = match read_whole(file_system, path) {
        Ok(bytes) => bytes,
        Err(error) => {
            let repair = "nothing, put a file in its place or remove it";
            findings.damage(path, None, format!("cannot be read: {error}"), repair);
            return;
        }
    };
    if bytes.len() != FILE_BYTES {
        let what = format!("has {} bytes, {FILE_BYTES} are expected", bytes.len());
        findings.note(path, what, "nothing, missing words count as zero");
    }
    let words = CheckpointWords::decode(&bytes);
    for (at, word) in [
        (0, words.physic_msg_timestamp_ms),
        (8, words.logics_msg_timestamp_ms),
        (16, words.index_msg_timestamp_ms),
        (24, words.master_flushed_offset),
        (32, words.confirm_phy_offset),
    ] {
        if word < 0 {
            let repair = "set the word to zero, so that all is walked";
            findings.damage(path, Some(at), format!("the word is {word}"), repair);
        }
    }
}

/// A checkpoint must not vouch for what the log does not hold.
pub(super) fn check_times(
    config: &StoreConfig,
    findings: &mut Findings,
    report: &CheckReport,
    words: Option<CheckpointWords>,
) {
    let Some(words) = words else { return };
    let path = config.root_dir.join("checkpoint");
    let last_ms = report.last_store_ms;
    if report.records > 0 && report.cut.is_none() && words.physic_msg_timestamp_ms > last_ms {
        let what = format!(
            "says that messages up to store time {} are on disk, the newest is of {last_ms}",
            words.physic_msg_timestamp_ms
        );
        findings.note(&path, what, "nothing, messages may have been cut before");
    }
}

/// The checkpoint, if it can be read.
pub(super) fn words(file_system: &dyn FileSystem, config: &StoreConfig) -> Option<CheckpointWords> {
    let path = config.root_dir.join("checkpoint");
    let bytes = read_whole(file_system, &path).ok()?;
    Some(CheckpointWords::decode(&bytes))
}

fn table(file_system: &dyn FileSystem, path: &Path, findings: &mut Findings) {
    let backup = path.with_extension("json.bak");
    let read = |path: &Path| -> Result<(), String> {
        let bytes =
            read_whole(file_system, path).map_err(|error| format!("cannot be read: {error}"))?;
        if bytes.is_empty() {
            return Err("is empty".to_owned());
        }
        let parsed = fastjson::from_slice::<serde_json::Value>(&bytes);
        parsed.map(drop).map_err(|error| format!("is damaged: {error}"))
    };
    if let Err(what) = read(path) {
        if read(&backup).is_ok() {
            findings.note(path, what, "nothing, the broker takes its .bak");
        } else {
            let repair = "nothing, restore it from a backup";
            findings.damage(path, None, format!("{what}, and its .bak is no better"), repair);
        }
    }
}
