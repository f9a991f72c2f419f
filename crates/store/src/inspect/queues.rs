//! Verifying the ConsumeQueues, and that records and entries agree in both directions.
//!
//! Each queue is read once to find its end. The log's walk then looks each record's entry up and
//! marks it, in one bit. An entry without a mark at the end speaks of a record that is not there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foldhash::{HashMap, HashSet};
use rocketmq_protocol::body::topic::TopicConfig;
use rocketmq_protocol::message::record::{MessageRecord, sys_flag};

use super::finding::{CheckReport, Findings, QueueName, Severity};
use super::layout::directories;
use crate::config::StoreConfig;
use crate::consume_queue::{QueueFormat, QueueUnit, Unit};
use crate::deleted_topics;
use crate::dispatch::Dispatch;
use crate::error::StoreError;
use crate::file_system::{FileSystem, OpenMode, StoreFile};
use crate::mapped_file_queue::parse_file_name;
use crate::queue_table::is_directory_name;
use crate::topic_table;

/// Entries that are read of a queue at a time while the log is walked.
const WINDOW_UNITS: i64 = 256;
/// Memory for such windows; beyond it all are let go.
const WINDOWS_BYTES_MAX: usize = 64 << 20;
/// Findings that a queue gets one by one.
const FINDINGS_MAX: u64 = 5;
/// Queues without a directory that are told apart.
const LOST_MAX: usize = 100_000;
/// Prefix of queues whose entries speak of records of other topics.
const LMQ_PREFIX: &str = "%LMQ%";
/// The topic whose entries carry the deliver time, which depends on the configuration.
const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";

const REBUILD: &str = "build the queue anew from the log";

/// A queue.
struct Queue {
    name: QueueName,
    directory: PathBuf,
    file_bytes: u64,
    files: Vec<(u64, PathBuf, Arc<dyn StoreFile>)>,
    /// Index of the first entry.
    first: i64,
    /// Index behind the last entry.
    end: i64,
    /// Queue offset of the first message.
    first_offset: i64,
    /// Queue offset behind the last message.
    end_offset: i64,
    /// Index behind the entry that was last looked up.
    next: i64,
    /// Place of the first record that an entry speaks of.
    first_physical: i64,
    /// End of the last record that an entry speaks of.
    max_physical: i64,
    /// One bit for each entry: whether its record was met, or it needs none.
    met: Vec<u64>,
    window: Vec<u8>,
    window_first: i64,
    damage: u64,
    /// Records behind its end, which a crash left without an entry.
    missing: u64,
    /// Records that belong into a queue of the other kind.
    strays: u64,
}

/// Records that have no queue.
#[derive(Default)]
struct Lost {
    records: u64,
    first_physical: i64,
}

/// All queues.
pub(super) struct Queues<'a> {
    config: &'a StoreConfig,
    clean: bool,
    queues: HashMap<String, HashMap<i32, Queue>>,
    lost: HashMap<QueueName, Lost>,
    deletions: deleted_topics::Ends,
    /// Topics of batch queues.
    batch_topics: HashSet<String>,
    of_deleted_topics: u64,
    windows_bytes: usize,
}

impl<'a> Queues<'a> {
    /// Opens every queue and finds its end.
    pub(super) fn load(
        file_system: &dyn FileSystem,
        config: &'a StoreConfig,
        findings: &mut Findings,
    ) -> Result<Queues<'a>, StoreError> {
        let abort = config.root_dir.join("abort");
        let crashed = file_system.exists(&abort).map_err(StoreError::io("look for", &abort))?;
        let mut queues = Queues {
            config,
            clean: !crashed,
            queues: HashMap::default(),
            lost: HashMap::default(),
            // A damaged file is a finding of its own.
            deletions: deleted_topics::read(file_system, &config.root_dir).unwrap_or_default(),
            batch_topics: topic_table::batch_topics(file_system, &config.root_dir)
                .unwrap_or_default(),
            of_deleted_topics: 0,
            windows_bytes: 0,
        };
        for format in QueueFormat::ALL {
            queues.load_format(file_system, format, findings)?;
        }
        Ok(queues)
    }

    fn load_format(
        &mut self,
        file_system: &dyn FileSystem,
        format: QueueFormat,
        findings: &mut Findings,
    ) -> Result<(), StoreError> {
        let config = self.config;
        for topic in directories(file_system, &config.root_dir.join(format.directory_name()))? {
            let Some(name) = topic.file_name().and_then(|name| name.to_str()) else { continue };
            if !is_directory_name(name) {
                continue;
            }
            for directory in directories(file_system, &topic)? {
                let id = directory.file_name().and_then(|name| name.to_str());
                let queue_id = id.and_then(|id| id.parse().ok().filter(|n: &i32| *n >= 0));
                let Some(queue_id) = queue_id.filter(|n| Some(n.to_string().as_str()) == id) else {
                    findings.note(&directory, "is no queue", "nothing, it is left alone");
                    continue;
                };
                let name = QueueName { topic: name.to_owned(), queue_id, format };
                let queue = Queue::load(file_system, config, name, directory, findings)?;
                let queues = self.queues.entry(queue.name.topic.clone()).or_default();
                let Some(other) = queues.remove(&queue_id) else {
                    queues.insert(queue_id, queue);
                    continue;
                };
                let queue_stays = queue.max_physical > other.max_physical;
                let (stays, leftover) = if queue_stays { (queue, other) } else { (other, queue) };
                let what = "is a second queue of that name, of an older topic";
                findings.note(&leftover.directory, what, "nothing, the next start removes it");
                queues.insert(queue_id, stays);
            }
        }
        Ok(())
    }

    /// Looks up the entry of a sound record.
    pub(super) fn record(&mut self, record: &MessageRecord<'_>, findings: &mut Findings) {
        if sys_flag::is_outside_queues(record.sys_flag) {
            return;
        }
        if self.deletions.get(record.topic).is_some_and(|end| record.physical_offset < *end) {
            self.of_deleted_topics += 1;
            return;
        }
        let dispatch = Dispatch::of_record(record, &self.config.delay_levels_ms);
        let (wanted, format) = (dispatch.entry, dispatch.format());
        let queue = self.queues.get_mut(record.topic);
        let Some(queue) = queue.and_then(|queues| queues.get_mut(&record.queue_id)) else {
            if format == QueueFormat::Simple && self.batch_topics.contains(record.topic) {
                // A Java broker takes single messages for such a topic and shows them to nobody.
                return;
            }
            let name =
                QueueName { topic: record.topic.to_owned(), queue_id: record.queue_id, format };
            if self.lost.len() < LOST_MAX || self.lost.contains_key(&name) {
                let lost = self.lost.entry(name).or_default();
                if lost.records == 0 {
                    lost.first_physical = record.physical_offset;
                }
                lost.records += 1;
            } else {
                self.of_deleted_topics += 1;
            }
            return;
        };
        if queue.name.format != format || !dispatch.has_entry() {
            queue.strays += 1;
            return;
        }
        let offset = wanted.queue_offset;
        let place = record.physical_offset;
        if place < queue.first_physical && queue.first == 0 {
            // The topic was deleted and made again since, by a broker that wrote no list of those.
            self.of_deleted_topics += 1;
            return;
        }
        if offset < queue.first_offset || offset >= queue.end_offset {
            if offset >= queue.end_offset && !self.clean {
                queue.missing += 1;
            } else {
                let what = format!(
                    "holds messages {} to {}, the record at {place} has offset {offset}",
                    queue.first_offset, queue.end_offset
                );
                queue.say(Severity::Damage, None, what, REBUILD, findings);
            }
            return;
        }
        let before = queue.window.len();
        let found = queue.find(offset);
        let after = queue.window.len();
        let index = queue.next - 1;
        let at = Some(queue.place(index));
        match found {
            Ok(found) if found.unit.physical_offset == place => {
                queue.meet(index);
                if found.unit.size != wanted.unit.size {
                    let what = format!(
                        "entry {index} says {} bytes, the record at {place} has {}",
                        found.unit.size, wanted.unit.size
                    );
                    queue.say(Severity::Damage, at, what, REBUILD, findings);
                } else if (found.queue_offset, found.count) != (offset, wanted.count) {
                    let what = format!(
                        "entry {index} says {} messages from {} on, the record at {place} has {} \
                         from {offset} on",
                        found.count, found.queue_offset, wanted.count
                    );
                    queue.say(Severity::Damage, at, what, REBUILD, findings);
                } else if found.unit.tags_code != wanted.unit.tags_code
                    && !is_ext_address(found.unit.tags_code)
                {
                    let what = format!(
                        "entry {index} has tags code {}, that of the record at {place} is {}",
                        found.unit.tags_code, wanted.unit.tags_code
                    );
                    if record.topic == SCHEDULE_TOPIC {
                        let nothing = "nothing, messageDelayLevel may have been another one";
                        queue.say(Severity::Note, at, what, nothing, findings);
                    } else {
                        queue.say(Severity::Damage, at, what, REBUILD, findings);
                    }
                }
            }
            Ok(found) => {
                let what = format!(
                    "entry {index} points at {}, its record lies at {place}",
                    found.unit.physical_offset
                );
                queue.say(Severity::Damage, at, what, REBUILD, findings);
            }
            Err(error) => {
                let what = format!("entry {index} cannot be read: {error}");
                queue.say(Severity::Damage, at, what, REBUILD, findings);
            }
        }
        self.windows_bytes += after - before.min(after);
        if self.windows_bytes > WINDOWS_BYTES_MAX {
            self.windows_bytes = 0;
            for queue in self.queues.values_mut().flat_map(|queues| queues.values_mut()) {
                queue.window = Vec::new();
            }
        }
    }

    /// What the walk of the log left over. `topics` are those of the broker, if they are known.
    pub(super) fn compare(
        mut self,
        findings: &mut Findings,
        report: &mut CheckReport,
        topics: Option<&BTreeMap<String, TopicConfig>>,
    ) {
        let mut names: Vec<_> = Vec::new();
        for (topic, queues) in &self.queues {
            names.extend(queues.keys().map(|queue_id| (topic.clone(), *queue_id)));
        }
        names.sort();
        report.queues = names.len();
        for (topic, queue_id) in names {
            let Some(queue) =
                self.queues.get_mut(&topic).and_then(|queues| queues.get_mut(&queue_id))
            else {
                continue;
            };
            report.entries += (queue.end - queue.first) as u64;
            if !topic.starts_with(LMQ_PREFIX) {
                queue.unmet(self.clean, findings, report);
            }
            if queue.strays > 0 {
                let what = format!(
                    "{} records of it belong into a queue of the other kind, nobody reads them",
                    queue.strays
                );
                findings.note(&queue.directory, what, "nothing, they stay in the log");
            }
            if queue.missing > 0 {
                let what = format!("the entries of {} newest records are missing", queue.missing);
                findings.note(&queue.directory, what, "nothing, the next start adds them");
            }
            if queue.damage > FINDINGS_MAX {
                let what = format!("{} more entries are wrong", queue.damage - FINDINGS_MAX);
                findings.damage(&queue.directory, None, what, REBUILD);
            }
            if queue.damage > 0 {
                report.rebuild.push(queue.name.clone());
            }
        }
        let mut lost: Vec<_> = self.lost.into_iter().collect();
        lost.sort_by(|a, b| a.0.cmp(&b.0));
        for (name, lost) in lost {
            let exists = topics.is_some_and(|topics| topics.contains_key(&name.topic));
            if !exists || !is_directory_name(&name.topic) || name.queue_id < 0 {
                self.of_deleted_topics += lost.records;
                continue;
            }
            let path = self.config.root_dir.join(name.format.directory_name()).join(&name.topic);
            let path = path.join(name.queue_id.to_string());
            if self.clean {
                let what = format!(
                    "queue is missing, though {} records from {} on belong to it",
                    lost.records, lost.first_physical
                );
                findings.damage(&path, None, what, REBUILD);
                report.rebuild.push(name);
            } else {
                let what = format!("queue is missing, {} records belong to it", lost.records);
                findings.note(&path, what, "nothing, the next start makes it");
            }
        }
        report.records_of_deleted_topics = self.of_deleted_topics;
    }
}

/// Whether a tags code is a place in a ConsumeQueueExt instead of a hash.
fn is_ext_address(tags_code: i64) -> bool {
    tags_code < i64::from(i32::MIN)
}

impl Queue {
    fn load(
        file_system: &dyn FileSystem,
        config: &StoreConfig,
        name: QueueName,
        directory: PathBuf,
        findings: &mut Findings,
    ) -> Result<Queue, StoreError> {
        let mut queue = Queue {
            file_bytes: config.queue_file_bytes(name.format),
            name,
            directory,
            files: Vec::new(),
            first: 0,
            end: 0,
            first_offset: 0,
            end_offset: 0,
            next: 0,
            first_physical: 0,
            max_physical: 0,
            met: Vec::new(),
            window: Vec::new(),
            window_first: 0,
            damage: 0,
            missing: 0,
            strays: 0,
        };
        queue.load_files(file_system, findings)?;
        queue.find_end(findings);
        queue.next = queue.first;
        queue.met = vec![0; ((queue.end - queue.first) as usize).div_ceil(64)];
        Ok(queue)
    }

    fn load_files(
        &mut self,
        file_system: &dyn FileSystem,
        findings: &mut Findings,
    ) -> Result<(), StoreError> {
        let directory = self.directory.clone();
        let entries = file_system.list(&directory).map_err(StoreError::io("list", &directory))?;
        let file_bytes = self.file_bytes;
        let last = entries.iter().rposition(|entry| parse_file_name(&entry.name).is_some());
        for (index, entry) in entries.iter().enumerate() {
            let path = directory.join(&entry.name);
            let Some(base) = parse_file_name(&entry.name) else {
                findings.note(&path, "is no file of the queue", "nothing, it is left alone");
                continue;
            };
            if entry.bytes == 0 && !entry.is_special && !entry.is_directory && last == Some(index) {
                findings.note(&path, "is empty", "nothing, the next start removes it");
                continue;
            }
            let expected = self.files.last().map(|(base, ..)| base + file_bytes);
            let wrong = if entry.is_directory || entry.is_special {
                Some("has the name of a queue file but is none".to_owned())
            } else if entry.bytes != file_bytes {
                Some(format!("has {} bytes, {file_bytes} are expected", entry.bytes))
            } else if base % file_bytes != 0 {
                Some(format!("begins at a place that is no multiple of {file_bytes}"))
            } else if expected.is_some_and(|expected| expected != base) {
                Some("does not follow the file in front of it".to_owned())
            } else {
                None
            };
            if let Some(what) = wrong {
                self.damage += 1;
                findings.damage(&path, None, what, REBUILD);
                continue;
            }
            match file_system.open(&path, OpenMode::ReadOnly) {
                Ok(file) => self.files.push((base, path, file)),
                Err(error) => {
                    self.damage += 1;
                    findings.damage(&path, None, format!("cannot be opened: {error}"), REBUILD);
                }
            }
        }
        Ok(())
    }

    /// Reads all entries: they go on until the first that was never written, and their records lie
    /// one behind the other.
    fn find_end(&mut self, findings: &mut Findings) {
        let (format, unit_bytes) = (self.name.format, self.unit_bytes());
        let per_file = self.per_file();
        self.first = self.files.first().map_or(0, |(base, ..)| (*base / unit_bytes) as i64);
        self.end = self.first;
        if format == QueueFormat::Simple {
            (self.first_offset, self.end_offset) = (self.first, self.first);
        }
        let mut ended = false;
        let mut buffer = Vec::new();
        for index in 0..self.files.len() {
            let (base, path, file) = &self.files[index];
            let (path, file) = (path.clone(), Arc::clone(file));
            let file_first = (*base / unit_bytes) as i64;
            let mut done = 0;
            while done < per_file {
                let count = (per_file - done).min(16 * WINDOW_UNITS);
                buffer.resize(count as usize * unit_bytes as usize, 0);
                if let Err(error) = file.read_at(&mut buffer, done as u64 * unit_bytes) {
                    self.damage += 1;
                    let at = Some(done as u64 * unit_bytes);
                    findings.damage(&path, at, format!("cannot be read: {error}"), REBUILD);
                    return;
                }
                for (n, entry) in format.entries(&buffer, file_first + done).enumerate() {
                    let unit = entry.unit;
                    let offset = file_first + done + n as i64;
                    let at = Some((done as u64 + n as u64) * unit_bytes);
                    if !entry.is_written() {
                        ended = true;
                        if unit != Unit::UNWRITTEN {
                            let what = format!("entry {offset} cannot have been written");
                            self.say_in(&path, at, what, findings);
                        }
                        continue;
                    }
                    if ended {
                        let what = format!("entry {offset} stands behind the queue's end");
                        self.say_in(&path, at, what, findings);
                        continue;
                    }
                    if !unit.is_filler() {
                        if unit.physical_offset < self.max_physical {
                            let what = format!(
                                "entry {offset} points at {}, in front of the end of the record \
                                 before it, {}",
                                unit.physical_offset, self.max_physical
                            );
                            self.say_in(&path, at, what, findings);
                        } else if entry.queue_offset < self.end_offset {
                            let what = format!(
                                "entry {offset} begins with message {}, the one before it ends \
                                 with {}",
                                entry.queue_offset, self.end_offset
                            );
                            self.say_in(&path, at, what, findings);
                        }
                        if self.max_physical == 0 {
                            self.first_physical = unit.physical_offset;
                        }
                        self.max_physical = unit.end_offset();
                    }
                    if self.end == self.first {
                        self.first_offset = entry.queue_offset;
                    }
                    self.end = offset + 1;
                    self.end_offset = entry.next_offset();
                }
                done += count;
            }
        }
    }

    fn unit_bytes(&self) -> u64 {
        self.name.format.unit_bytes() as u64
    }

    fn per_file(&self) -> i64 {
        (self.file_bytes / self.unit_bytes()) as i64
    }

    /// The entry that holds `offset`, or that in front of it; the queue has messages up to there.
    /// `next` points behind it, also if it cannot be read.
    fn find(&mut self, offset: i64) -> std::io::Result<QueueUnit> {
        if self.name.format == QueueFormat::Simple {
            self.next = offset + 1;
            return self.entry(offset);
        }
        // Records come in the order of the entries; only what is wrong has to be looked for.
        if self.next < self.end {
            let entry = self.entry(self.next)?;
            if entry.queue_offset == offset {
                self.next += 1;
                return Ok(entry);
            }
        }
        let (mut low, mut high) = (self.first, self.end);
        while low < high {
            let middle = low + (high - low) / 2;
            self.next = middle + 1;
            if self.entry(middle)?.queue_offset <= offset {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        self.next = low.max(self.first + 1);
        self.entry(self.next - 1)
    }

    /// The entry with this index, which the queue has.
    fn entry(&mut self, index: i64) -> std::io::Result<QueueUnit> {
        let (format, unit_bytes) = (self.name.format, self.unit_bytes());
        let held = (self.window.len() as u64 / unit_bytes) as i64;
        if index < self.window_first || index >= self.window_first + held {
            let per_file = self.per_file();
            let count = WINDOW_UNITS.min(per_file - index % per_file).min(self.end - index);
            let base = (index / per_file) as u64 * self.file_bytes;
            let found = self.files.binary_search_by_key(&base, |(base, ..)| *base);
            let (.., file) = found
                .ok()
                .and_then(|found| self.files.get(found))
                .ok_or_else(|| std::io::Error::other("its file is missing"))?;
            self.window.resize(count as usize * unit_bytes as usize, 0);
            self.window_first = index;
            let place = (index % per_file) as u64 * unit_bytes;
            if let Err(error) = file.read_at(&mut self.window, place) {
                self.window.clear();
                return Err(error);
            }
        }
        let at = (index - self.window_first) as usize;
        let mut entries = format.entries(&self.window, self.window_first);
        entries.nth(at).ok_or_else(|| std::io::Error::other("it is not there"))
    }

    /// Byte of an entry within its file.
    fn place(&self, index: i64) -> u64 {
        (index as u64).saturating_mul(self.unit_bytes()) % self.file_bytes
    }

    fn meet(&mut self, index: i64) {
        let bit = (index - self.first) as usize;
        self.met[bit / 64] |= 1 << (bit % 64);
    }

    /// Entries whose record was not met.
    fn unmet(&mut self, clean: bool, findings: &mut Findings, report: &CheckReport) {
        for bit in 0..(self.end - self.first) as usize {
            if self.met[bit / 64] == u64::MAX || self.met[bit / 64] >> (bit % 64) & 1 == 1 {
                continue;
            }
            let offset = self.first + bit as i64;
            // What cannot be read was said by the walk.
            let Ok(entry) = self.entry(offset) else { continue };
            let unit = entry.unit;
            let expired = unit.physical_offset < report.log_start as i64;
            if unit.is_filler() || expired {
                continue;
            }
            let at = Some(self.place(offset));
            let behind = unit.physical_offset >= report.log_end as i64;
            let what = if behind {
                format!("entry {offset} points at {}, behind the log's end", unit.physical_offset)
            } else {
                format!(
                    "entry {offset} points at {}, where no such record lies",
                    unit.physical_offset
                )
            };
            if behind && (!clean || report.cut.is_some()) {
                let repair = "nothing, it is dropped with what is cut off the log";
                self.say(Severity::Note, at, what, repair, findings);
            } else {
                self.say(Severity::Damage, at, what, REBUILD, findings);
            }
        }
    }

    fn say_in(&mut self, path: &Path, at: Option<u64>, what: String, findings: &mut Findings) {
        self.damage += 1;
        if self.damage <= FINDINGS_MAX {
            findings.damage(path, at, what, REBUILD);
        }
    }

    /// A finding of this queue; beyond the first few only their number is kept.
    fn say(
        &mut self,
        severity: Severity,
        at: Option<u64>,
        what: String,
        repair: &str,
        findings: &mut Findings,
    ) {
        if severity == Severity::Note {
            findings.add(severity, &self.directory, at, what, repair);
            return;
        }
        self.damage += 1;
        if self.damage <= FINDINGS_MAX {
            findings.add(severity, &self.directory, at, what, repair);
        }
    }
}
