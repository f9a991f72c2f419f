//! Verifying the CommitLog: every file, every record, and what lies behind the first bad byte.

use std::path::PathBuf;
use std::sync::Arc;

use rocketmq_protocol::message::record::{self, MessageRecord, place};

use super::finding::{CheckReport, Cut, Findings};
use super::index::IndexCheck;
use super::queues::Queues;
use crate::config::StoreConfig;
use crate::error::StoreError;
use crate::file_system::{FileSystem, OpenMode, StoreFile};
use crate::log_walk::{self, Step};
use crate::mapped_file_queue::{file_name, parse_file_name};

/// What is read of a file at a time, unless a record is longer.
const WINDOW_BYTES: u64 = 4 << 20;
/// Bytes of a record that say its size, magic and place.
const HEAD_BYTES: u64 = place::SYS_FLAG as u64;

const CUT: &str = "cut the log here";

/// A file of the log, as far as it can be used.
#[derive(Debug)]
pub(super) struct LogFile {
    pub(super) base_offset: u64,
    /// Bytes that are looked at: not more than configured, though the file may have more.
    pub(super) bytes: u64,
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn StoreFile>,
}

/// A part of a file in memory.
pub(super) struct Window<'a> {
    file: &'a LogFile,
    start: u64,
    buffer: Vec<u8>,
}

impl<'a> Window<'a> {
    pub(super) fn new(file: &'a LogFile) -> Window<'a> {
        Window { file, start: 0, buffer: Vec::new() }
    }

    /// The bytes from `position` on: at least `wanted`, or up to the end of the file.
    pub(super) fn at(&mut self, position: u64, wanted: u64) -> std::io::Result<&[u8]> {
        let wanted = wanted.min(self.file.bytes.saturating_sub(position));
        let held = self.start..self.start + self.buffer.len() as u64;
        if position < held.start || position + wanted > held.end {
            let bytes = WINDOW_BYTES.max(wanted).min(self.file.bytes - position);
            self.buffer.resize(bytes as usize, 0);
            self.start = position;
            if let Err(error) = self.file.file.read_at(&mut self.buffer, position) {
                self.buffer.clear();
                return Err(error);
            }
        }
        Ok(&self.buffer[(position - self.start) as usize..])
    }

    /// What stands at `position` of the file.
    pub(super) fn step(&mut self, position: u64) -> Result<Step<'_>, String> {
        let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
        let base_offset = self.file.base_offset;
        let physical_offset = base_offset + position;
        let rest = self.file.bytes - position;
        let head = self.at(position, HEAD_BYTES).map_err(unreadable)?;
        let size = match (word(head, place::TOTAL_SIZE), word(head, place::MAGIC)) {
            (Some(size), Some(record::MAGIC_V1 | record::MAGIC_V2)) => u64::from(size),
            _ => 0,
        };
        // Without this a wrong size could ask for the whole file.
        let said = head.get(place::PHYSICAL_OFFSET..).and_then(|rest| rest.first_chunk::<8>());
        if size > WINDOW_BYTES
            && let Some(said) = said.map(|bytes| u64::from_be_bytes(*bytes))
            && said != physical_offset
        {
            return Err(format!("record says physical offset {said}"));
        }
        let bytes = self.at(position, size.min(rest).max(HEAD_BYTES)).map_err(unreadable)?;
        log_walk::verify(bytes, physical_offset, base_offset, true)
    }

    /// The first sound record at or behind `position`.
    fn next_record(&mut self, mut position: u64) -> Option<u64> {
        while position + HEAD_BYTES <= self.file.bytes {
            let base_offset = self.file.base_offset;
            let Ok(bytes) = self.at(position, HEAD_BYTES) else {
                // Past what the disk cannot read.
                position += 4096 - position % 4096;
                continue;
            };
            let last = bytes.len() - HEAD_BYTES as usize;
            let candidate = (0..=last).find(|at| {
                let head = &bytes[*at..];
                matches!(word(head, place::MAGIC), Some(record::MAGIC_V1 | record::MAGIC_V2))
                    && head[place::PHYSICAL_OFFSET..].first_chunk::<8>()
                        == Some(&(base_offset + position + *at as u64).to_be_bytes())
            });
            let Some(candidate) = candidate else {
                position += last as u64 + 1;
                continue;
            };
            position += candidate as u64;
            if matches!(self.step(position), Ok(Step::Record(_))) {
                return Some(position);
            }
            position += 1;
        }
        None
    }

    /// Where the first byte that is not zero stands, at or behind `position`, and how many pages
    /// hold such.
    fn used(&mut self, mut position: u64) -> (Option<u64>, u64) {
        let (mut first, mut pages) = (None, 0);
        while position < self.file.bytes {
            let step = WINDOW_BYTES.min(self.file.bytes - position);
            if let Ok(bytes) = self.at(position, step) {
                for (index, page) in bytes[..step as usize].chunks(4096).enumerate() {
                    if let Some(at) = page.iter().position(|byte| *byte != 0) {
                        first.get_or_insert(position + (index * 4096 + at) as u64);
                        pages += 1;
                    }
                }
            }
            position += step;
        }
        (first, pages * 4096)
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk::<4>().map(|word| u32::from_be_bytes(*word))
}

/// The files of the log, oldest first. What cannot be one is a finding.
pub(super) fn load(
    file_system: &dyn FileSystem,
    config: &StoreConfig,
    findings: &mut Findings,
    report: &mut CheckReport,
) -> Result<Vec<LogFile>, StoreError> {
    let mut found = Vec::new();
    for directory in super::log_directories(config) {
        if !file_system.exists(directory).map_err(StoreError::io("look for", directory))? {
            findings.note(directory, "directory does not exist", "nothing");
            continue;
        }
        for entry in file_system.list(directory).map_err(StoreError::io("list", directory))? {
            let path = directory.join(&entry.name);
            let Some(base_offset) = parse_file_name(&entry.name) else {
                findings.note(&path, "is no file of the log", "nothing, it is left alone");
                continue;
            };
            if entry.is_directory || entry.is_special {
                let what = "has the name of a log file but is none: a directory, a link or a pipe";
                findings.damage(&path, None, what, "take it out of the directory");
                report.misplaced.push(path);
            } else {
                found.push((base_offset, entry.bytes, path));
            }
        }
    }
    found.sort();
    let mut files = Vec::with_capacity(found.len());
    let last = found.last().map(|(base_offset, ..)| *base_offset);
    for (base_offset, bytes, path) in found {
        let expected = config.commit_log_file_bytes;
        if base_offset % expected != 0 {
            let what = format!("begins at a place that is no multiple of {expected}");
            findings.damage(&path, None, what, "take it out of the directory");
            report.misplaced.push(path);
            continue;
        }
        if files.last().is_some_and(|file: &LogFile| file.base_offset == base_offset) {
            let what = "is there twice, in two directories of the log";
            findings.damage(&path, None, what, "take it out of the directory");
            report.misplaced.push(path);
            continue;
        }
        if bytes == 0 && last == Some(base_offset) {
            findings.note(&path, "is empty", "nothing, the next start removes it");
            continue;
        }
        if bytes != expected {
            let what = format!("has {bytes} bytes, {expected} are expected");
            findings.damage(&path, None, what, "give it its length");
            report.misshapen.push(path.clone());
        }
        match file_system.open(&path, OpenMode::ReadOnly) {
            Ok(file) => {
                let bytes = bytes.min(expected);
                files.push(LogFile { base_offset, bytes, path, file });
            }
            Err(error) => {
                let what = format!("cannot be opened: {error}");
                findings.damage(&path, None, what, "nothing, a repair cannot open it either");
            }
        }
    }
    Ok(files)
}

/// The state of a walk.
struct Walk<'a, 'b> {
    findings: &'a mut Findings,
    report: &'a mut CheckReport,
    queues: &'a mut Queues<'b>,
    index: &'a mut IndexCheck,
}

/// Verifies the log and hands each sound record to the queues, and those in front of a cut to the
/// index.
pub(super) fn check(
    file_system: &dyn FileSystem,
    config: &StoreConfig,
    findings: &mut Findings,
    report: &mut CheckReport,
    queues: &mut Queues<'_>,
    index: &mut IndexCheck,
) -> Result<(), StoreError> {
    let files = load(file_system, config, findings, report)?;
    report.log_files = files.len();
    report.log_start = files.first().map_or(0, |file| file.base_offset);
    report.log_end = report.log_start;
    let mut walk = Walk { findings, report, queues, index };
    let mut ended = None;
    let mut expected = files.first().map(|file| file.base_offset);
    for file in &files {
        if let Some(expected) = expected.filter(|expected| *expected != file.base_offset) {
            let path = file.path.with_file_name(file_name(expected));
            walk.bad(&path, 0, expected, "is missing, though files behind it exist".to_owned());
        }
        expected = Some(file.base_offset + config.commit_log_file_bytes);
        walk.file(file, config, &mut ended);
        if let Some(cut) = &mut walk.report.cut
            && file.base_offset >= cut.position
        {
            cut.files.push(file.path.clone());
        }
    }
    if let Some(cut) = &mut report.cut {
        report.records -= cut.messages;
        report.log_end = cut.position.max(report.log_start);
        for file in files.iter().filter(|file| file.base_offset + file.bytes > cut.position) {
            let from = cut.position.saturating_sub(file.base_offset);
            cut.bytes += Window::new(file).used(from).1;
        }
        // What a crash tore off at the end is cut by the next start, and nothing sound with it.
        if !report.clean && cut.messages == 0 && report.misshapen.is_empty() {
            findings.torn_end(&cut.path);
        }
    }
    Ok(())
}

impl Walk<'_, '_> {
    /// Walks one file. `ended` is where an earlier file ended the log by zeros.
    fn file(&mut self, file: &LogFile, config: &StoreConfig, ended: &mut Option<(PathBuf, u64)>) {
        let mut window = Window::new(file);
        let mut position = 0;
        loop {
            let physical_offset = file.base_offset + position;
            if position >= file.bytes {
                if file.bytes < config.commit_log_file_bytes {
                    let what = "the file ends in the middle of the log".to_owned();
                    self.bad(&file.path, position, physical_offset, what);
                }
                return;
            }
            match window.step(position) {
                Ok(Step::Record(record)) => {
                    if let Some((path, end)) = ended.take() {
                        let at = end % config.commit_log_file_bytes;
                        let what = "nothing here, though messages follow".to_owned();
                        self.bad(&path, at, end, what);
                    }
                    let size = record.size as u64;
                    self.record(&record);
                    position += size;
                    self.report.log_end = file.base_offset + position;
                }
                Ok(Step::NextFile) => {
                    self.blank(file, position, &mut window);
                    self.report.log_end = file.base_offset + config.commit_log_file_bytes;
                    return;
                }
                Ok(Step::End) => {
                    let Some(used) = window.used(position).0 else {
                        ended.get_or_insert((file.path.clone(), physical_offset));
                        return;
                    };
                    let what = format!("nothing here, though bytes follow from byte {used} on");
                    self.bad(&file.path, position, physical_offset, what);
                    match window.next_record(used) {
                        Some(next) => position = next,
                        None => return,
                    }
                }
                Err(what) => {
                    self.bad(&file.path, position, physical_offset, what);
                    match window.next_record(position + 1) {
                        Some(next) => position = next,
                        None => return,
                    }
                }
            }
        }
    }

    fn record(&mut self, record: &MessageRecord<'_>) {
        let stored_ms = record.store_timestamp_ms;
        self.report.records += 1;
        match &mut self.report.cut {
            Some(cut) => {
                cut.messages += 1;
                if cut.messages == 1 {
                    cut.first_store_ms = stored_ms;
                }
                cut.last_store_ms = stored_ms;
            }
            None => {
                self.report.record_bytes += record.size as u64;
                if self.report.records == 1 {
                    self.report.first_store_ms = stored_ms;
                }
                self.report.last_store_ms = stored_ms;
                self.index.record(record, self.findings, self.report);
            }
        }
        self.queues.record(record, self.findings);
    }

    /// The word in front of a blank says how much of the file is left.
    fn blank(&mut self, file: &LogFile, position: u64, window: &mut Window<'_>) {
        let left = file.bytes - position;
        let said = window.at(position, 4).ok().and_then(|bytes| word(bytes, 0));
        if let Some(said) = said
            && left > 0
            && u64::from(said) != left.min(u64::from(u32::MAX))
        {
            let what =
                format!("at byte {position} a blank says that {said} bytes are left, {left} are");
            self.findings.note(&file.path, what, "nothing, readers go by the magic");
        }
    }

    /// Something that is no message: the log ends there, unless it has ended before.
    fn bad(&mut self, path: &std::path::Path, at: u64, position: u64, what: String) {
        if self.report.cut.is_some() {
            let repair = "nothing, it lies behind the place where the log is cut";
            self.findings.damage(path, Some(at), what, repair);
            return;
        }
        self.findings.damage(path, Some(at), what.clone(), CUT);
        self.report.cut = Some(Cut {
            position,
            path: path.to_owned(),
            reason: what,
            bytes: 0,
            files: Vec::new(),
            messages: 0,
            first_store_ms: 0,
            last_store_ms: 0,
        });
    }
}
