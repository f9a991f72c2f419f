//! Looking at a store directory that no broker uses: verifying it, printing what is in it, and
//! repairing it.
//!
//! [`check`] and the functions of [`dump`] open files for reading only, by calls that answer a lost
//! page with an error, so they work on a read-only mount and on a failing disk. [`repair()`] alone
//! writes. Nothing here prints: what is found comes back as values.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::StoreConfig;
use crate::error::StoreError;
use crate::file_system::{FileSystem, OpenMode, StoreFile};
use crate::topic_table;

pub mod dump;
mod finding;
mod index;
mod layout;
mod log;
mod queues;
mod repair;
mod small;

pub use finding::{CheckReport, Cut, Finding, QueueName, Severity};
pub use layout::found_config;
pub use repair::{Kept, Repaired, repair};

use finding::Findings;

/// Keeps brokers out of a directory while it is looked at.
#[derive(Debug)]
pub struct InspectionLock {
    _file: Option<Arc<dyn StoreFile>>,
}

impl InspectionLock {
    /// Takes the lock of a store directory together with others who only read. Nothing is written;
    /// a directory without a lock file has no broker.
    ///
    /// # Errors
    /// [`StoreError::Locked`] when a broker runs in the directory.
    pub fn take(
        file_system: &dyn FileSystem,
        root_dir: &Path,
    ) -> Result<InspectionLock, StoreError> {
        let path = root_dir.join("lock");
        let file = match file_system.open(&path, OpenMode::ReadOnly) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(InspectionLock { _file: None });
            }
            Err(error) => return Err(StoreError::io("open", &path)(error)),
        };
        if !file.try_lock_shared().map_err(StoreError::io("lock", &path))? {
            return Err(StoreError::Locked { directory: root_dir.to_owned(), lock: path });
        }
        Ok(InspectionLock { _file: Some(file) })
    }
}

/// Verifies every file of a store directory, each record, each ConsumeQueue entry and each entry of
/// the index, and that they agree in both directions. The log is read once. Writes nothing.
///
/// `config` says where the files lie and how long they are; [`found_config`] makes one of the
/// directory itself.
///
/// # Errors
/// When a directory cannot be listed. What cannot be read of a file is a finding.
pub fn check(
    file_system: &dyn FileSystem,
    config: &StoreConfig,
) -> Result<CheckReport, StoreError> {
    let mut findings = Findings::default();
    let mut report = CheckReport::default();
    small::check(file_system, config, &mut findings, &mut report)?;
    // What cannot be read of the table is a finding of its own.
    let topics = topic_table::topics(file_system, &config.root_dir).ok().flatten();
    let mut queues = queues::Queues::load(file_system, config, &mut findings)?;
    let mut index = index::IndexCheck::load(file_system, config, &mut findings, &mut report)?;
    log::check(file_system, config, &mut findings, &mut report, &mut queues, &mut index)?;
    report.rebuild_index = index.finish(&mut findings, &report);
    queues.compare(&mut findings, &mut report, topics.as_ref());
    small::check_times(config, &mut findings, &report, small::words(file_system, config));
    report.findings = findings.kept;
    report.findings_dropped = findings.dropped;
    report.damage = findings.damage;
    Ok(report)
}

/// All directories of the log.
fn log_directories(config: &StoreConfig) -> impl Iterator<Item = &PathBuf> {
    let mut seen = Vec::new();
    config.commit_log_dirs.iter().chain(&config.read_only_commit_log_dirs).filter(move |path| {
        let new = !seen.contains(path);
        seen.push(path);
        new
    })
}
