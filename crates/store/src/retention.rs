//! Removing old files, and watching the disk (`DefaultMessageStore.CleanCommitLogService`).
//!
//! Files go from the oldest on, in whichever directory it lies, never the last one: at the hours of `deleteWhen`, or when the disk
//! is over `diskMaxUsedSpaceRatio`, those that expired; over `diskSpaceCleanForciblyRatio` also
//! those that did not. Over `diskSpaceWarningLevelRatio` nothing is appended until space returns.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::background::Parts;
use crate::config::StoreConfig;
use crate::error::{Refusal, StoreError};
use crate::file_system::FileSystem;
use crate::log_directories::LogDirectories;
use crate::mapped_file_queue::MappedFile;
use crate::writability::Writability;

const HOUR_MS: i64 = 3_600_000;

/// Used ratio of the disk below a path, 0 to 1; none if it cannot be asked, which is reported.
fn used_ratio(file_system: &dyn FileSystem, path: &Path) -> Option<f64> {
    match file_system.disk_space(path) {
        Ok(space) => Some(space.used_ratio()),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "disk cannot be measured");
            None
        }
    }
}

/// How full the disks are: that of the log or that of the queues, whichever is fuller, and the
/// directory on it. Of several directories of the log the least used one decides, since new files
/// can go there; those that are over `diskSpaceCleanForciblyRatio` get no new ones meanwhile. If no
/// disk can be asked, they count as empty.
fn measure(
    file_system: &dyn FileSystem,
    config: &StoreConfig,
    directories: &LogDirectories,
) -> (f64, PathBuf) {
    let full_percent = f64::from(config.disk_space_clean_forcibly_percent);
    let mut log: Option<(f64, PathBuf)> = None;
    for directory in directories.writable() {
        let used = used_ratio(file_system, directory.path());
        directory.set_full(used.is_none_or(|used| used * 100.0 > full_percent));
        if let Some(used) = used
            && log.as_ref().is_none_or(|(least, _)| used < *least)
        {
            log = Some((used, directory.path().to_owned()));
        }
    }
    let queues = used_ratio(file_system, &config.root_dir);
    match (log, queues) {
        (Some((log, path)), queues) if queues.is_none_or(|queues| log >= queues) => (log, path),
        (_, queues) => (queues.unwrap_or(0.0), config.root_dir.clone()),
    }
}

/// Refuses or allows appends by how full the disks are.
pub(crate) fn watch_disk(
    file_system: &dyn FileSystem,
    config: &StoreConfig,
    directories: &LogDirectories,
    writability: &Writability,
) -> f64 {
    let (used, path) = measure(file_system, config, directories);
    let limit_percent = config.disk_space_warning_level_percent;
    if used * 100.0 > f64::from(limit_percent) {
        let refusal = Refusal::DiskFull {
            path,
            // A ratio of at most 1.
            used_percent: (used * 100.0) as u32,
            limit_percent,
        };
        if writability.set_disk(Some(refusal.clone())) {
            tracing::error!(reason = %refusal, "no more messages are taken");
        }
    } else if writability.set_disk(None) {
        tracing::info!(used_percent = (used * 100.0) as u32, "disk has space again");
    }
    used
}

/// Removes files of the log that are due, and what of the queues goes with them. Returns how many
/// files of the log were removed. `pause` is waited between two files; it returns false to stop.
///
/// # Errors
/// What the operating system says.
pub(crate) fn remove_old_files(
    parts: &Parts,
    used: f64,
    manual: bool,
    mut pause: impl FnMut(Duration) -> bool,
) -> Result<usize, StoreError> {
    follow_log_start(parts)?;
    let Parts { config, environment, log, .. } = parts;
    let clock = &*environment.clock;
    let over = |percent: u32| used * 100.0 > f64::from(percent);
    let forcibly = config.clean_file_forcibly && over(config.disk_space_clean_forcibly_percent);
    let due = manual
        || config.delete_when_hours.contains(&clock.local_hour())
        || over(config.disk_max_used_space_percent);
    if !due && !forcibly {
        return Ok(0);
    }
    let reserved_ms =
        i64::try_from(config.file_reserved_hours).unwrap_or(i64::MAX).saturating_mul(HOUR_MS);
    let now_ms = clock.now_ms();
    let may_go = |file: &MappedFile| {
        forcibly
            || file
                .file()
                .modified_ms()
                .is_ok_and(|modified_ms| modified_ms.saturating_add(reserved_ms) < now_ms)
    };
    if log.files.len() < 2 || !log.files.first().is_some_and(|file| may_go(&file)) {
        return Ok(0);
    }
    // A queue whose messages are all gone from the log cannot be built anew: where it goes on is
    // known to its own files alone.
    parts.flush_queues(true)?;
    let mut removed = 0;
    while removed < config.delete_file_batch_max {
        let gone = log.files.remove_first(may_go)?;
        let Some(gone) = gone else { break };
        removed += 1;
        let path = gone.path().display();
        if gone.is_read_only() {
            tracing::info!(%path, "commit log file let go, its directory is read-only");
        } else {
            tracing::info!(%path, forcibly, "commit log file removed");
        }
        let interval = Duration::from_millis(config.delete_commit_log_files_interval_ms);
        if removed < config.delete_file_batch_max && !pause(interval) {
            break;
        }
    }
    follow_log_start(parts)?;
    Ok(removed)
}

/// Has the queues follow the log's minimum, if it moved since they last did. A queue that fails
/// does not keep the others back, and is tried again next time.
fn follow_log_start(parts: &Parts) -> Result<(), StoreError> {
    let log_start = parts.log.min_offset();
    let mut followed = parts.queues_follow.lock();
    if *followed >= log_start {
        return Ok(());
    }
    let mut failure = None;
    for queue in parts.table.snapshot() {
        if let Err(error) = queue.follow_log_start(log_start) {
            failure.get_or_insert(error);
        }
    }
    match failure {
        Some(error) => Err(error),
        None => {
            *followed = log_start;
            Ok(())
        }
    }
}
