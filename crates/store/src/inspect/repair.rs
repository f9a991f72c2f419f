//! Making a damaged store directory one that opens, with as much of it as can be had.
//!
//! The log is cut at its first bad byte, as recovery cuts it; queues that disagree with the log are
//! built anew from it. What is taken away is kept in a directory of its own unless it shall not be.
//! The directory is marked as unclean before the first change, so that a crash in the middle leaves
//! nothing that could be taken for whole, and recovery itself has the last word.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::finding::{CheckReport, Cut, QueueName};
use super::small::KEPT_PREFIX;
use crate::config::StoreConfig;
use crate::error::StoreError;
use crate::file_system::{FileSystem, OpenMode};
use crate::index::is_file_name;
use crate::lock_file::{AbortFile, DirectoryLock};
use crate::mapped_file_queue::parse_file_name;
use crate::recovery::RecoveryReport;
use crate::store::{Environment, Store};

/// What is copied at a time.
const COPY_BYTES: u64 = 4 << 20;

/// What becomes of what a repair takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is moved to a directory `repair-<time in ms>` next to it.
    Aside,
    /// It is removed.
    Discarded,
}

/// What a repair did.
#[derive(Clone, Debug)]
pub struct Repaired {
    /// Where what was taken away is kept, if anything was and is.
    pub kept_in: Option<PathBuf>,
    /// Bytes that were copied or moved there.
    pub kept_bytes: u64,
    /// What the recovery found that opened the repaired directory.
    pub recovery: RecoveryReport,
    /// What a check finds now.
    pub check: CheckReport,
}

/// Checks a directory, asks `agree` whether to do what its report says, and does it.
///
/// `None` when there is nothing to do, or `agree` says no: nothing was written then, except that the
/// lock file may have been made.
///
/// # Errors
/// [`StoreError::Locked`] when a broker runs in the directory, [`StoreError::ReadOnlyFile`] when a
/// file in a read-only directory would have to change, or what the operating system says. The
/// directory can be repaired again then.
pub fn repair(
    file_system: &Arc<dyn FileSystem>,
    config: &StoreConfig,
    now_ms: i64,
    kept: Kept,
    agree: impl FnOnce(&CheckReport) -> bool,
) -> Result<Option<Repaired>, StoreError> {
    let config = config.clone().validated()?;
    let lock = DirectoryLock::take(&**file_system, &config.root_dir)?;
    let report = super::check(&**file_system, &config)?;
    if !report.needs_repair() || !agree(&report) {
        return Ok(None);
    }
    let mut work = Work {
        file_system: &**file_system,
        config: &config,
        aside: config.root_dir.join(format!("{KEPT_PREFIX}{now_ms}")),
        kept,
        kept_bytes: 0,
    };
    work.refuse_read_only(&report)?;
    let abort = AbortFile::new(&config.root_dir);
    let distrusted = abort.is_distrusted(&**file_system)?;
    abort.create(&**file_system, distrusted)?;
    work.mend_log(&report)?;
    for name in &report.rebuild {
        work.empty_queue(name)?;
    }
    if report.rebuild_index {
        work.empty_index()?;
    }
    let kept_in = (work.kept_bytes > 0).then_some(work.aside);
    let kept_bytes = work.kept_bytes;
    drop(lock);
    let environment = Environment {
        file_system: Arc::clone(file_system),
        threads: false,
        ..Environment::default()
    };
    let (store, recovery) = Store::open(config.clone(), environment)?;
    store.shutdown()?;
    drop(store);
    let check = super::check(&**file_system, &config)?;
    Ok(Some(Repaired { kept_in, kept_bytes, recovery, check }))
}

struct Work<'a> {
    file_system: &'a dyn FileSystem,
    config: &'a StoreConfig,
    aside: PathBuf,
    kept: Kept,
    kept_bytes: u64,
}

impl Work<'_> {
    /// Nothing in a read-only directory may change.
    fn refuse_read_only(&self, report: &CheckReport) -> Result<(), StoreError> {
        let cut = report.cut.iter();
        let of_cut = cut.flat_map(|cut| std::iter::once(&cut.path).chain(&cut.files));
        for path in report.misplaced.iter().chain(&report.misshapen).chain(of_cut) {
            let read_only = &self.config.read_only_commit_log_dirs;
            if read_only.iter().any(|directory| path.starts_with(directory)) {
                let reason = report.cut.as_ref().map_or("it is damaged", |cut| &cut.reason);
                return Err(StoreError::ReadOnlyFile {
                    path: path.clone(),
                    reason: reason.to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Takes out what is no part of the log, cuts it, and gives its files their length.
    fn mend_log(&mut self, report: &CheckReport) -> Result<(), StoreError> {
        for path in &report.misplaced {
            self.take_away(path, "commitlog")?;
        }
        if let Some(cut) = &report.cut {
            // From the end, so that a crash leaves no hole.
            for path in cut.files.iter().rev() {
                self.take_away(path, "commitlog")?;
            }
            self.cut_file(cut)?;
        }
        for path in &report.misshapen {
            if self.file_system.exists(path).map_err(StoreError::io("look for", path))? {
                self.give_length(path)?;
            }
        }
        for directory in super::log_directories(self.config) {
            if self.file_system.exists(directory).map_err(StoreError::io("look for", directory))? {
                self.file_system
                    .sync_directory(directory)
                    .map_err(StoreError::io("sync directory", directory))?;
            }
        }
        Ok(())
    }

    /// Wipes what lies behind the cut in the file that holds it.
    fn cut_file(&mut self, cut: &Cut) -> Result<(), StoreError> {
        let path = &cut.path;
        let is_there = self.file_system.exists(path).map_err(StoreError::io("look for", path))?;
        if !is_there || cut.files.contains(path) {
            return Ok(());
        }
        let file = self
            .file_system
            .open(path, OpenMode::Existing)
            .map_err(StoreError::io("open", path))?;
        let bytes = file.len_bytes().map_err(StoreError::io("measure", path))?;
        let at = cut.position % self.config.commit_log_file_bytes;
        if at >= bytes {
            return Ok(());
        }
        if self.kept == Kept::Aside {
            self.copy(path, at, bytes)?;
        }
        file.zero_range(at, bytes - at).map_err(StoreError::io("wipe the end of", path))?;
        file.sync_data().map_err(StoreError::io("sync", path))
    }

    /// Extends or shortens a file to the configured length.
    fn give_length(&mut self, path: &Path) -> Result<(), StoreError> {
        let file = self
            .file_system
            .open(path, OpenMode::Existing)
            .map_err(StoreError::io("open", path))?;
        let bytes = file.len_bytes().map_err(StoreError::io("measure", path))?;
        let expected = self.config.commit_log_file_bytes;
        if bytes > expected && self.kept == Kept::Aside {
            self.copy(path, expected, bytes)?;
        }
        file.set_len(expected).map_err(StoreError::io("set the length of", path))?;
        file.sync_data().map_err(StoreError::io("sync", path))
    }

    /// Copies a part of a log file aside, durably.
    fn copy(&mut self, path: &Path, from: u64, to: u64) -> Result<(), StoreError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let directory = self.aside.join("commitlog");
        let target = directory.join(format!("{name}.from-{from}"));
        self.make(&directory)?;
        let source = self
            .file_system
            .open(path, OpenMode::ReadOnly)
            .map_err(StoreError::io("open", path))?;
        let copy = self
            .file_system
            .open(&target, OpenMode::New)
            .map_err(StoreError::io("create", &target))?;
        let mut buffer = Vec::new();
        let mut position = from;
        while position < to {
            let step = COPY_BYTES.min(to - position);
            buffer.resize(step as usize, 0);
            source.read_at(&mut buffer, position).map_err(StoreError::io("read", path))?;
            // The rest of a file is mostly zeros, and need not take a disk twice.
            if buffer.iter().any(|byte| *byte != 0) {
                copy.write_at(&buffer, position - from)
                    .map_err(StoreError::io("write", &target))?;
            }
            position += step;
        }
        copy.set_len(to - from).map_err(StoreError::io("extend", &target))?;
        copy.sync_data().map_err(StoreError::io("sync", &target))?;
        self.kept_bytes += to - from;
        self.file_system
            .sync_directory(&directory)
            .map_err(StoreError::io("sync directory", &directory))
    }

    /// Moves a file aside, or removes it.
    fn take_away(&mut self, path: &Path, below: &str) -> Result<(), StoreError> {
        let kept = self.kept;
        let entry = self.entry(path)?;
        if kept == Kept::Aside {
            let directory = self.aside.join(below);
            self.make(&directory)?;
            let target = directory.join(path.file_name().unwrap_or_default());
            match self.file_system.rename(path, &target) {
                Ok(()) => self.kept_bytes += entry.bytes.max(1),
                // A directory of the log on another disk.
                Err(error) if error.kind() == std::io::ErrorKind::CrossesDevices => {
                    self.copy(path, 0, entry.bytes)?;
                    self.remove(path, entry.is_directory)?;
                }
                Err(error) => return Err(StoreError::io("move aside", path)(error)),
            }
            return self
                .file_system
                .sync_directory(&directory)
                .map_err(StoreError::io("sync directory", &directory));
        }
        self.remove(path, entry.is_directory && !entry.is_special)
    }

    fn remove(&self, path: &Path, is_directory: bool) -> Result<(), StoreError> {
        let removed = if is_directory {
            self.file_system.remove_directory(path)
        } else {
            self.file_system.remove_file(path)
        };
        removed.map_err(StoreError::io("remove", path))
    }

    fn entry(&self, path: &Path) -> Result<crate::file_system::DirectoryEntry, StoreError> {
        let directory = path.parent().unwrap_or(Path::new("."));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let entries =
            self.file_system.list(directory).map_err(StoreError::io("list", directory))?;
        entries.into_iter().find(|entry| entry.name == name).ok_or_else(|| {
            StoreError::io("find", path)(std::io::Error::from(std::io::ErrorKind::NotFound))
        })
    }

    fn make(&self, directory: &Path) -> Result<(), StoreError> {
        self.file_system
            .create_directory(directory)
            .map_err(StoreError::io("create directory", directory))?;
        self.file_system
            .sync_directory(&self.config.root_dir)
            .map_err(StoreError::io("sync directory", &self.config.root_dir))
    }

    /// Takes the files of the index away; recovery makes them from the log.
    fn empty_index(&mut self) -> Result<(), StoreError> {
        let directory = self.config.root_dir.join("index");
        let entries =
            self.file_system.list(&directory).map_err(StoreError::io("list", &directory))?;
        for entry in entries {
            if !entry.is_directory && !entry.is_special && is_file_name(&entry.name) {
                self.take_away(&directory.join(&entry.name), "index")?;
            }
        }
        self.file_system
            .sync_directory(&directory)
            .map_err(StoreError::io("sync directory", &directory))
    }

    /// Leaves a queue as a directory without files, which recovery fills from the whole log.
    fn empty_queue(&mut self, name: &QueueName) -> Result<(), StoreError> {
        let root = name.format.directory_name();
        let below = format!("{root}/{}/{}", name.topic, name.queue_id);
        let directory = self.config.root_dir.join(&below);
        self.file_system
            .create_directory(&directory)
            .map_err(StoreError::io("create directory", &directory))?;
        let entries =
            self.file_system.list(&directory).map_err(StoreError::io("list", &directory))?;
        for entry in entries {
            if parse_file_name(&entry.name).is_some() {
                self.take_away(&directory.join(&entry.name), &below)?;
            }
        }
        self.file_system
            .sync_directory(&directory)
            .map_err(StoreError::io("sync directory", &directory))
    }
}
