//! Removing old files, and watching the disk (`DefaultMessageStore.CleanCommitLogService`).
//!
//! Files go from the oldest on, in whichever directory it lies, never the last one: at the hours of `deleteWhen`, or when the disk
//! is over `diskMaxUsedSpaceRatio`, those that expired; over `diskSpaceCleanForciblyRatio` also
//! those that did not. Queues follow where the log begins. A file that is still read loses its
//! name at once and its space with the last reader; it is never taken from under them. Over `diskSpaceWarningLevelRatio` nothing is appended until space returns.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

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

/// How often a manual removal is tried (`MAX_MANUAL_DELETE_FILE_TIMES`).
const MANUAL_ROUNDS: u32 = 20;

/// What removals remember from round to round.
#[derive(Debug, Default)]
pub(crate) struct Retention {
    /// Rounds that are left of a manual removal.
    manual_rounds: AtomicU32,
    /// Where the log began when the queues last followed it.
    followed: AtomicI64,
    hanging: Mutex<Hanging>,
    /// One removal at a time.
    turn: Mutex<()>,
}

/// Removed files that somebody still reads.
#[derive(Debug, Default)]
struct Hanging {
    files: Vec<HangingFile>,
    /// When they were last reported.
    reported_ms: i64,
}

#[derive(Debug)]
struct HangingFile {
    file: Weak<MappedFile>,
    removed_ms: i64,
}

impl Retention {
    /// Nothing to do yet: the queues follow the log, which begins at `log_start`.
    pub(crate) fn new(log_start: i64) -> Retention {
        Retention { followed: AtomicI64::new(log_start), ..Retention::default() }
    }

    /// The next rounds remove expired files at any hour.
    pub(crate) fn ask_manually(&self) {
        self.manual_rounds.store(MANUAL_ROUNDS, Ordering::Relaxed);
    }

    fn take_manual_round(&self) -> bool {
        let one_less = |rounds: u32| rounds.checked_sub(1);
        let taken = self.manual_rounds.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        taken.is_ok()
    }

    /// How many removed files of the log are still read.
    pub(crate) fn hanging(&self) -> usize {
        let mut hanging = self.hanging.lock();
        hanging.files.retain(|hanging| hanging.file.strong_count() > 0);
        hanging.files.len()
    }

    fn watch(&self, file: &Arc<MappedFile>, removed_ms: i64) {
        let file = Arc::downgrade(file);
        self.hanging.lock().files.push(HangingFile { file, removed_ms });
    }

    /// Reports files that are still read long after their removal, from time to time. Their space
    /// comes back with the last reader: taking it earlier would pull the bytes from under them.
    fn report_hanging(&self, config: &StoreConfig, now_ms: i64) -> usize {
        self.hanging();
        let mut hanging = self.hanging.lock();
        let after_ms = i64::try_from(config.destroy_mapped_file_interval_forcibly_ms);
        let after_ms = after_ms.unwrap_or(i64::MAX);
        let every_ms = i64::try_from(config.redelete_hanged_file_interval_ms).unwrap_or(i64::MAX);
        let long_ago = |file: &&HangingFile| file.removed_ms.saturating_add(after_ms) <= now_ms;
        let count = hanging.files.iter().filter(long_ago).count();
        if count == 0 || hanging.reported_ms.saturating_add(every_ms) > now_ms {
            return 0;
        }
        hanging.reported_ms = now_ms;
        tracing::warn!(
            count,
            "removed commit log files are still read, so their space is not free"
        );
        count
    }
}

/// Removes files of the log that are due, and what of queues and index goes with them. Returns how many
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
    let Parts { config, environment, retention, .. } = parts;
    let _turn = retention.turn.lock();
    retention.report_hanging(config, environment.clock.now_ms());
    let manual = manual || retention.take_manual_round();
    // First what an earlier round could not do.
    follow_log_start(parts, &mut pause)?;
    let removed = remove_log_files(parts, used, manual, &mut pause);
    follow_log_start(parts, &mut pause)?;
    removed
}

fn remove_log_files(
    parts: &Parts,
    used: f64,
    manual: bool,
    pause: &mut impl FnMut(Duration) -> bool,
) -> Result<usize, StoreError> {
    let Parts { config, environment, log, retention, .. } = parts;
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
    // Records that are not confirmed may still be cut, which has to find where.
    let visible_end = parts.confirmation.visible_end();
    let may_go = |file: &MappedFile| {
        let is_due = forcibly
            || file
                .file()
                .modified_ms()
                .is_ok_and(|modified_ms| modified_ms.saturating_add(reserved_ms) < now_ms);
        is_due && file.end_offset() as i64 <= visible_end
    };
    if log.files.len() < 2 || !log.files.first().is_some_and(|file| may_go(&file)) {
        return Ok(0);
    }
    // A queue whose messages are all gone from the log cannot be built anew: where it goes on is
    // known to its own files alone.
    parts.flush_queues(true)?;
    let mut removed = 0;
    while removed < config.delete_file_batch_max {
        // Until its removal is durable a crash can bring a file back. Were it not synced then, the
        // log would end in it, in front of what is.
        let is_not_synced =
            |file: &MappedFile| file.end_offset() as i64 > parts.flusher.durable().0;
        if log.files.len() >= 2
            && log.files.first().is_some_and(|first| is_not_synced(&first) && may_go(&first))
        {
            let flushed = parts.flusher.flush(parts);
            flushed.map_err(|refusal| {
                let error = std::io::Error::other(refusal.to_string());
                StoreError::io("flush", &config.root_dir)(error)
            })?;
        }
        let gone = log.files.remove_first(may_go)?;
        let Some(gone) = gone else { break };
        removed += 1;
        let path = gone.path().display();
        if gone.is_read_only() {
            tracing::info!(%path, "commit log file let go, its directory is read-only");
        } else {
            // Each by itself: were they to go in another order, a crash would leave a gap. After a
            // failure it would, since a later sync may not know of this removal.
            log.files.sync_directory_of(&gone).inspect_err(|error| {
                parts.refuse_after_failed_sync(error.to_string());
                tracing::error!(%error, "sync of the commit log's directory failed, no more messages are taken");
            })?;
            retention.watch(&gone, now_ms);
            tracing::info!(%path, forcibly, "commit log file removed");
        }
        let interval = Duration::from_millis(config.delete_commit_log_files_interval_ms);
        if removed < config.delete_file_batch_max && !pause(interval) {
            break;
        }
    }
    Ok(removed)
}

/// Moves the minima of the queues to where the log begins and removes files in front of it, of the
/// index as well, if it moved since the last time.
fn follow_log_start(
    parts: &Parts,
    pause: &mut impl FnMut(Duration) -> bool,
) -> Result<(), StoreError> {
    let Parts { config, log, table, index, retention, .. } = parts;
    let log_start = log.min_offset();
    if log_start <= retention.followed.load(Ordering::Acquire) {
        return Ok(());
    }
    let interval = Duration::from_millis(config.delete_consume_queue_files_interval_ms);
    let mut failure = None;
    let mut is_paused = true;
    for queue in table.snapshot() {
        match queue.follow_log_start(log_start) {
            // When it is time to end, the minima still move; only the pauses are left out.
            Ok(removed) => is_paused = is_paused && (removed == 0 || pause(interval)),
            // The other queues need not wait for this one.
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    if let Some(index) = index {
        failure = failure.or(index.follow_log_start(log_start).err());
    }
    if let Some(error) = failure {
        return Err(error);
    }
    retention.followed.store(log_start, Ordering::Release);
    Ok(())
}

impl Parts {
    /// Lets every queue follow the log's beginning now, whether or not it moved.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn follow_log_start_now(&self) -> Result<(), StoreError> {
        let _turn = self.retention.turn.lock();
        self.retention.followed.store(-1, Ordering::Release);
        follow_log_start(self, &mut |_| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_removal_is_tried_twenty_times() {
        let retention = Retention::default();
        assert!(!retention.take_manual_round());
        retention.ask_manually();
        assert_eq!((0..100).filter(|_| retention.take_manual_round()).count(), 20);
    }

    #[test]
    fn hanging_files_are_reported_after_a_while_and_again_and_forgotten_when_let_go() {
        let directory = tempfile::tempdir().unwrap();
        let mut config = StoreConfig::new(directory.path());
        config.commit_log_dirs = vec![directory.path().to_owned()];
        config.commit_log_file_bytes = 4096;
        let files = crate::mapped_file_queue::MappedFileQueue::new(
            Arc::new(crate::file_system::RealFileSystem),
            &config,
        );
        let file = files.prepare(0).unwrap();
        let retention = Retention::default();
        retention.watch(&file, 1_000_000);
        assert_eq!(retention.hanging(), 1);
        let report = |now_ms| retention.report_hanging(&config, now_ms);
        assert_eq!(report(1_119_999), 0, "it was removed just now");
        assert_eq!(report(1_120_000), 1);
        assert_eq!(report(1_239_999), 0, "it was said just now");
        assert_eq!(report(1_240_000), 1);
        drop(file);
        assert_eq!((report(9_000_000), retention.hanging()), (0, 0));
    }
}
