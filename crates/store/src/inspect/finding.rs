//! What an inspection found.

use std::path::{Path, PathBuf};

use crate::consume_queue::QueueFormat;

/// Findings that are kept; more are only counted.
const KEPT_MAX: usize = 10_000;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing has to be done: it is allowed, or the next start puts it right without loss.
    Note,
    /// Messages are lost or cannot be served as they should.
    Damage,
}

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The file or directory.
    pub path: PathBuf,
    /// Byte within the file, if it has a place.
    pub at: Option<u64>,
    /// What is wrong.
    pub what: String,
    /// What a repair does about it.
    pub repair: String,
}

/// Findings as they come in.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) kept: Vec<Finding>,
    pub(super) dropped: u64,
    pub(super) damage: u64,
}

impl Findings {
    pub(super) fn add(
        &mut self,
        severity: Severity,
        path: &Path,
        at: Option<u64>,
        what: impl Into<String>,
        repair: impl Into<String>,
    ) {
        if severity == Severity::Damage {
            self.damage += 1;
        }
        if self.kept.len() >= KEPT_MAX {
            self.dropped += 1;
            return;
        }
        let (what, repair) = (what.into(), repair.into());
        self.kept.push(Finding { severity, path: path.to_owned(), at, what, repair });
    }

    pub(super) fn note(&mut self, path: &Path, what: impl Into<String>, repair: impl Into<String>) {
        self.add(Severity::Note, path, None, what, repair);
    }

    pub(super) fn damage(
        &mut self,
        path: &Path,
        at: Option<u64>,
        what: impl Into<String>,
        repair: impl Into<String>,
    ) {
        self.add(Severity::Damage, path, at, what, repair);
    }
}

impl Findings {
    /// Turns damage in a file, and in files behind it in the log, into what the next start puts
    /// right.
    pub(super) fn torn_end(&mut self, path: &Path) {
        let from = self.kept.iter().position(|finding| {
            finding.severity == Severity::Damage && finding.at.is_some() && finding.path == path
        });
        let Some(from) = from else { return };
        for finding in &mut self.kept[from..] {
            if finding.severity == Severity::Damage && finding.at.is_some() {
                finding.severity = Severity::Note;
                finding.repair = "nothing, the next start cuts the log here".to_owned();
                self.damage -= 1;
            }
        }
    }
}

/// A queue of a topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueName {
    /// The topic.
    pub topic: String,
    /// Queue within the topic.
    pub queue_id: i32,
    /// Which kind of queue it is.
    pub format: QueueFormat,
}

/// Where the log stops being one, and what lies behind that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Physical offset of the first byte that counts as nothing.
    pub position: u64,
    /// The file that holds it, or where it should be.
    pub path: PathBuf,
    /// Why the log ends there.
    pub reason: String,
    /// Bytes of files from there on that are not zero, counted in pages of 4096.
    pub bytes: u64,
    /// Files that lie behind it as a whole.
    pub files: Vec<PathBuf>,
    /// Sound messages behind it.
    pub messages: u64,
    /// Store time of the first of them, in ms.
    pub first_store_ms: i64,
    /// Store time of the last of them, in ms.
    pub last_store_ms: i64,
}

/// What [`check`](super::check) found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Whether the last run ended cleanly.
    pub clean: bool,
    /// Everything that is not as it should be, in the order in which it was met.
    pub findings: Vec<Finding>,
    /// Findings beyond those kept.
    pub findings_dropped: u64,
    /// How many of all are damage.
    pub damage: u64,
    /// Files of the log.
    pub log_files: usize,
    /// Where the log begins.
    pub log_start: u64,
    /// Where it ends: behind the last message in front of a cut.
    pub log_end: u64,
    /// Sound messages in front of that.
    pub records: u64,
    /// Their bytes.
    pub record_bytes: u64,
    /// Store time of the first message, in ms; 0 without one.
    pub first_store_ms: i64,
    /// Store time of the last message, in ms.
    pub last_store_ms: i64,
    /// Messages without a place in a queue, because their topic was deleted.
    pub records_of_deleted_topics: u64,
    /// Queues.
    pub queues: usize,
    /// Their entries.
    pub entries: u64,
    /// Files of the index.
    pub index_files: usize,
    /// Their entries that are right; none where the files' sizes are not those of the settings.
    pub index_entries: u64,
    /// Whether a repair takes the index away, so that it is made from the log again.
    pub rebuild_index: bool,
    /// What a repair, or the next start after a crash, would cut off the log.
    pub cut: Option<Cut>,
    /// Files of the log that a repair takes out, because nothing can be made of them.
    pub misplaced: Vec<PathBuf>,
    /// Files of the log whose length a repair puts right.
    pub misshapen: Vec<PathBuf>,
    /// Queues that a repair builds anew.
    pub rebuild: Vec<QueueName>,
}

impl CheckReport {
    /// Whether a repair has anything to do.
    pub fn needs_repair(&self) -> bool {
        self.damage > 0
    }
}
