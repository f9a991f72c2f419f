//! Verifying the index: each file in itself, and its entries against the records of the log.
//!
//! Entries stand in the order of the log, so the walk over the log reads them once, beside it. Index
//! files are derived: damage in them costs no message, only that some are not found by key.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rocketmq_protocol::message::record::MessageRecord;

use super::finding::{CheckReport, Findings};
use crate::config::StoreConfig;
use crate::error::StoreError;
use crate::file_system::{FileSystem, OpenMode, StoreFile};
use crate::index::file::{ENTRY_BYTES, Entry, HEADER_BYTES, Header, Layout, SLOT_BYTES};
use crate::index::{NewEntry, is_file_name};

/// Entries, and slots, that are read at a time.
const CHUNK: u32 = 64 * 1024;
const REPAIR: &str = "make the index from the log again";

/// An index file whose own parts agree.
#[derive(Debug)]
struct SoundFile {
    path: PathBuf,
    file: Arc<dyn StoreFile>,
    header: Header,
}

/// The index beside a walk over the log.
#[derive(Debug)]
pub(super) struct IndexCheck {
    layout: Layout,
    clean: bool,
    files: Vec<SoundFile>,
    /// The file that is being read.
    current: usize,
    /// Number in it of the entry at `at` of `chunk`.
    number: u32,
    chunk: Vec<Entry>,
    at: usize,
    /// No entry is looked for any more: of damage the first is told, the rest follows from it.
    is_over: bool,
    is_damaged: bool,
}

impl IndexCheck {
    /// Opens the files and verifies each in itself.
    pub(super) fn load(
        file_system: &dyn FileSystem,
        config: &StoreConfig,
        findings: &mut Findings,
        report: &mut CheckReport,
    ) -> Result<IndexCheck, StoreError> {
        let mut check = IndexCheck {
            layout: config.index_layout(),
            clean: report.clean,
            files: Vec::new(),
            current: 0,
            number: 1,
            chunk: Vec::new(),
            at: 0,
            is_over: false,
            is_damaged: false,
        };
        let directory = config.root_dir.join("index");
        let is_there = file_system.exists(&directory);
        if !is_there.map_err(StoreError::io("look for", &directory))? {
            check.is_over = true;
            return Ok(check);
        }
        for entry in file_system.list(&directory).map_err(StoreError::io("list", &directory))? {
            let path = directory.join(&entry.name);
            if entry.is_directory || entry.is_special || !is_file_name(&entry.name) {
                findings.note(&path, "is no index file", "nothing, it is left alone");
                continue;
            }
            report.index_files += 1;
            let expected = check.layout.file_bytes();
            if entry.bytes != expected {
                // Length alone does not tell slots from entries.
                let what = format!(
                    "has {} bytes, {expected} are expected: its entries are not verified, unless the \
                     broker's configuration says maxHashSlotNum and maxIndexNum",
                    entry.bytes
                );
                findings.note(
                    &path,
                    what,
                    "nothing, the next start makes files that do not fit anew",
                );
                check.is_over = true;
                continue;
            }
            match check.verify(file_system, &path) {
                Ok(Some(file)) => check.files.push(file),
                Ok(None) => findings.note(&path, "is empty", "nothing, the next start removes it"),
                Err((at, what)) => {
                    check.tell(findings, &path, at, what);
                    check.is_over = true;
                }
            }
        }
        let out_of_order = check.files.windows(2).find_map(|pair| {
            let (begin, end) =
                (pair[1].header.begin_physical_offset, pair[0].header.end_physical_offset);
            (begin < end).then(|| (pair[1].path.clone(), begin, end))
        });
        if let Some((path, begin, end)) = out_of_order {
            let what = format!(
                "begins with the record at {begin}, in front of the end {end} of the file before"
            );
            check.tell(findings, &path, 0, what);
            check.is_over = true;
        }
        Ok(check)
    }

    /// Reads a file whole: header, entries, slots. Says at which byte it is wrong, and how.
    fn verify(
        &self,
        file_system: &dyn FileSystem,
        path: &Path,
    ) -> Result<Option<SoundFile>, (u64, String)> {
        let layout = self.layout;
        let unreadable =
            |at: u64| move |error: std::io::Error| (at, format!("cannot be read: {error}"));
        let file = file_system
            .open(path, OpenMode::ReadOnly)
            .map_err(|error| (0, format!("cannot be opened: {error}")))?;
        let mut bytes = [0; HEADER_BYTES];
        file.read_at(&mut bytes, 0).map_err(unreadable(0))?;
        let header = Header::decode(&bytes, &layout).map_err(|what| (0, what))?;
        if header.is_empty() {
            return Ok(None);
        }
        let sound = SoundFile { path: path.to_owned(), file, header };
        let mut heads = vec![0_u32; layout.slots as usize];
        let mut used = 0;
        let mut newest = header.begin_physical_offset;
        let mut number = 1;
        while number < header.next_entry {
            let at = layout.entry_position(number);
            let entries = sound.entries(&layout, number).map_err(unreadable(at))?;
            for entry in &entries {
                let wrong = |what: String| {
                    (layout.entry_position(number), format!("entry {number} {what}"))
                };
                if entry.key_hash < 0 || entry.seconds < 0 {
                    let (hash, seconds) = (entry.key_hash, entry.seconds);
                    return Err(wrong(format!("has the hash {hash} and the time {seconds} s")));
                }
                if entry.physical_offset < newest {
                    let offset = entry.physical_offset;
                    return Err(wrong(format!("is of the record at {offset}, behind {newest}")));
                }
                newest = entry.physical_offset;
                let head = &mut heads[layout.slot_of(entry.key_hash) as usize];
                // Java writes what an empty slot held, and takes what is out of range for 0.
                let previous = u32::try_from(entry.previous).unwrap_or(0);
                if previous != *head {
                    return Err(wrong(format!(
                        "says that {previous} comes before it in its chain, {head} does"
                    )));
                }
                used += u32::from(*head == 0);
                *head = number;
                number += 1;
            }
        }
        if newest != header.end_physical_offset {
            let end = header.end_physical_offset;
            let what = format!("header says that the last record is at {end}, it is at {newest}");
            return Err((0, what));
        }
        if used != header.slots_used {
            let said = header.slots_used;
            return Err((0, format!("header says that {said} slots are used, {used} are")));
        }
        let mut bytes = Vec::new();
        for first in (0..layout.slots).step_by(CHUNK as usize) {
            let count = CHUNK.min(layout.slots - first);
            let at = layout.slot_position(first);
            bytes.resize(count as usize * SLOT_BYTES, 0);
            sound.file.read_at(&mut bytes, at).map_err(unreadable(at))?;
            for (slot, word) in (first..).zip(bytes.as_chunks::<SLOT_BYTES>().0) {
                let said = i32::from_be_bytes(*word);
                let head = u32::try_from(said).ok().filter(|head| *head < header.next_entry);
                let expected = heads[slot as usize];
                if head.unwrap_or(0) != expected {
                    let what =
                        format!("slot {slot} leads to entry {said}, its newest is {expected}");
                    return Err((layout.slot_position(slot), what));
                }
            }
        }
        Ok(Some(sound))
    }

    /// Compares the entries of a sound record in front of the log's cut. Records come in order.
    pub(super) fn record(
        &mut self,
        record: &MessageRecord<'_>,
        findings: &mut Findings,
        report: &mut CheckReport,
    ) {
        if self.is_over {
            return;
        }
        let offset = record.physical_offset;
        while let Some((entry, place)) = self.peek(findings)
            && entry.physical_offset < offset
        {
            // What is older than the log has expired with its file.
            if entry.physical_offset >= report.log_start as i64 {
                let what = format!(
                    "entry {} is of the record at {}, where none begins",
                    place.number, entry.physical_offset
                );
                self.tell_place(findings, &place, what);
                return;
            }
            self.advance();
        }
        for expected in NewEntry::of_record(record) {
            match self.peek(findings) {
                Some((entry, _))
                    if entry.physical_offset == offset && entry.key_hash == expected.key_hash =>
                {
                    report.index_entries += 1;
                    self.advance();
                }
                Some((_, place)) => {
                    let what = format!(
                        "entry {} should be one of the record at {offset} of the log",
                        place.number
                    );
                    self.tell_place(findings, &place, what);
                    return;
                }
                None if self.is_over => return,
                None => {
                    self.is_over = true;
                    if let Some(last) = self.files.last() {
                        let what = format!("ends in front of the record at {offset} of the log");
                        let repair = "nothing, the next start adds what is missing";
                        findings.note(&last.path.clone(), what, repair);
                    }
                    return;
                }
            }
        }
    }

    /// After the last record: what is left speaks of nothing. Says whether the index must be made
    /// anew.
    pub(super) fn finish(&mut self, findings: &mut Findings, report: &CheckReport) -> bool {
        // Where the log is cut, the next start cuts the index too.
        if !self.is_over
            && report.cut.is_none()
            && let Some((entry, place)) = self.peek(findings)
            && entry.physical_offset >= report.log_start as i64
        {
            let what = format!(
                "entry {} is of the record at {}, behind the end of the log",
                place.number, entry.physical_offset
            );
            self.tell_place(findings, &place, what);
        }
        self.is_damaged
    }

    /// The next entry and where it stands.
    fn peek(&mut self, findings: &mut Findings) -> Option<(Entry, Place)> {
        loop {
            let file = self.files.get(self.current)?;
            if let Some(entry) = self.chunk.get(self.at) {
                return Some((*entry, Place { file: self.current, number: self.number }));
            }
            if self.number >= file.header.next_entry {
                self.current += 1;
                self.number = 1;
                continue;
            }
            self.at = 0;
            match file.entries(&self.layout, self.number) {
                Ok(entries) => self.chunk = entries,
                Err(error) => {
                    let place = Place { file: self.current, number: self.number };
                    self.tell_place(findings, &place, format!("cannot be read: {error}"));
                    return None;
                }
            }
        }
    }

    fn advance(&mut self) {
        self.at += 1;
        self.number += 1;
    }

    fn tell_place(&mut self, findings: &mut Findings, place: &Place, what: String) {
        self.is_over = true;
        if let Some(file) = self.files.get(place.file) {
            let (path, at) = (file.path.clone(), self.layout.entry_position(place.number));
            self.tell(findings, &path, at, what);
        }
    }

    /// After a crash the next start trusts what the checkpoint vouches for and makes the rest anew.
    fn tell(&mut self, findings: &mut Findings, path: &Path, at: u64, what: String) {
        if self.clean {
            findings.damage(path, Some(at), what, REPAIR);
            self.is_damaged = true;
        } else {
            let repair = "nothing, the next start makes the end of the index anew";
            findings.note(path, format!("at byte {at}: {what}"), repair);
        }
    }
}

/// Where an entry stands.
#[derive(Clone, Copy, Debug)]
struct Place {
    file: usize,
    number: u32,
}

impl SoundFile {
    /// Entries from `number` on, a chunk of them.
    fn entries(&self, layout: &Layout, number: u32) -> std::io::Result<Vec<Entry>> {
        let count = CHUNK.min(self.header.next_entry - number);
        let mut bytes = vec![0; count as usize * ENTRY_BYTES];
        self.file.read_at(&mut bytes, layout.entry_position(number))?;
        Ok(Entry::iter(&bytes).collect())
    }
}
