//! Removing old files, and watching the disk (`DefaultMessageStore.CleanCommitLogService`).
//!
//! Files go from the oldest on, never the last one: at the hours of `deleteWhen`, or when the disk
//! is over `diskMaxUsedSpaceRatio`, those that expired; over `diskSpaceCleanForciblyRatio` also
//! those that did not. Over `diskSpaceWarningLevelRatio` nothing is appended until space returns.

use std::path::Path;
use std::time::Duration;

use crate::background::Parts;
use crate::config::StoreConfig;
use crate::error::{Refusal, StoreError};
use crate::file_system::FileSystem;
use crate::writability::Writability;

const HOUR_MS: i64 = 3_600_000;

/// Fuller of the two disks: its used ratio and the directory on it. A disk that cannot be asked
/// counts as empty, and is reported.
pub(crate) fn disk_used<'a>(file_system: &dyn FileSystem, paths: &[&'a Path]) -> (f64, &'a Path) {
    let mut fullest = (0.0, Path::new(""));
    for path in paths {
        match file_system.disk_space(path) {
            Ok(space) if space.used_ratio() >= fullest.0 => fullest = (space.used_ratio(), path),
            Ok(_) => {}
            Err(error) => tracing::warn!(path = %path.display(), %error, "disk cannot be measured"),
        }
    }
    fullest
}

/// Refuses or allows appends by how full the disk is.
pub(crate) fn watch_disk(
    file_system: &dyn FileSystem,
    config: &StoreConfig,
    writability: &Writability,
) -> f64 {
    let (used, path) = disk_used(file_system, &[&config.commit_log_dir, &config.root_dir]);
    let limit_percent = config.disk_space_warning_level_percent;
    if used * 100.0 > f64::from(limit_percent) {
        let refusal = Refusal::DiskFull {
            path: path.to_owned(),
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
    let Parts { config, environment, log, table, .. } = parts;
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
    let mut removed = 0;
    while removed < config.delete_file_batch_max {
        let gone = log.files.remove_first(|file| {
            forcibly
                || file
                    .file()
                    .modified_ms()
                    .is_ok_and(|modified_ms| modified_ms.saturating_add(reserved_ms) < now_ms)
        })?;
        let Some(gone) = gone else { break };
        removed += 1;
        tracing::info!(path = %gone.path().display(), forcibly, "commit log file removed");
        let interval = Duration::from_millis(config.delete_commit_log_files_interval_ms);
        if removed < config.delete_file_batch_max && !pause(interval) {
            break;
        }
    }
    if removed > 0 {
        let log_start = log.min_offset();
        for queue in table.snapshot() {
            queue.follow_log_start(log_start)?;
        }
    }
    Ok(removed)
}
