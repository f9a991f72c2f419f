//! Reading single things of a store directory: a record, entries of a queue, a chain of the index,
//! the checkpoint.

use std::io;
use std::path::PathBuf;

use rocketmq_protocol::message::record::MessageRecord;

use super::finding::Findings;
use super::log::{self, Window};
use super::{CheckReport, small};
use crate::checkpoint::CheckpointWords;
use crate::config::StoreConfig;
use crate::consume_queue::{QueueFormat, QueueUnit, Unit};
use crate::dispatch::Dispatch;
use crate::dispatch_properties::DispatchProperties;
use crate::error::StoreError;
use crate::file_system::{FileSystem, OpenMode};
use crate::index::chain::Chain;
use crate::index::file::{Entry, HEADER_BYTES, Header};
use crate::index::is_file_name;
use crate::index::key::KeyHasher;
use crate::log_walk::Step;
use crate::mapped_file_queue::file_name;

/// What stands at a place of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPlace {
    /// The file that holds the place.
    pub path: PathBuf,
    /// Byte within the file.
    pub at: u64,
    /// What is there.
    pub item: LogPlaceItem,
}

/// What is at a [`LogPlace`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogPlaceItem {
    /// A sound message; decode it with [`MessageRecord::decode`].
    Record(Vec<u8>),
    /// The rest of the file is unused and the log goes on in the next one.
    Blank,
    /// Nothing was ever written here.
    Empty,
    /// None of these, and why.
    Damaged(String),
}

/// Reads what begins at a physical offset; `None` if no file holds it.
///
/// # Errors
/// When a directory of the log cannot be listed.
pub fn log_place(
    file_system: &dyn FileSystem,
    config: &StoreConfig,
    physical_offset: u64,
) -> Result<Option<LogPlace>, StoreError> {
    let (mut findings, mut report) = (Findings::default(), CheckReport::default());
    let files = log::load(file_system, config, &mut findings, &mut report)?;
    let file = files
        .iter()
        .find(|file| (file.base_offset..file.base_offset + file.bytes).contains(&physical_offset));
    let Some(file) = file else { return Ok(None) };
    let at = physical_offset - file.base_offset;
    let mut window = Window::new(file);
    let size = match window.step(at) {
        Ok(Step::Record(record)) => Ok(record.size as u64),
        Ok(Step::NextFile) => Err(LogPlaceItem::Blank),
        Ok(Step::End) => Err(LogPlaceItem::Empty),
        Err(reason) => Err(LogPlaceItem::Damaged(reason)),
    };
    let item = match size {
        Err(item) => item,
        Ok(size) => match window.at(at, size) {
            Ok(bytes) => LogPlaceItem::Record(bytes[..size as usize].to_vec()),
            Err(error) => LogPlaceItem::Damaged(format!("cannot be read: {error}")),
        },
    };
    Ok(Some(LogPlace { path: file.path.clone(), at, item }))
}

/// An entry of a ConsumeQueue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueEntry {
    /// Queue offset of its first message.
    pub queue_offset: i64,
    /// How many messages it stands for; 1 except in batch queues.
    pub message_count: i64,
    /// The entry.
    pub unit: Unit,
    /// Store time of the message that it points at, in ms, if a sound record of this place in the
    /// queue lies there.
    pub store_timestamp_ms: Option<i64>,
}

/// Reads `count` entries of a queue, from the one that holds the message `from` on, or from its
/// first one. Entries that were never written end it. `None` if there is no such queue.
///
/// # Errors
/// When a file cannot be read.
pub fn queue_entries(
    file_system: &dyn FileSystem,
    config: &StoreConfig,
    topic: &str,
    queue_id: i32,
    from: Option<i64>,
    count: usize,
) -> Result<Option<Vec<QueueEntry>>, StoreError> {
    if !crate::queue_table::is_directory_name(topic) || queue_id < 0 {
        return Ok(None);
    }
    for format in QueueFormat::ALL {
        let directory = config.root_dir.join(format.directory_name()).join(topic);
        let directory = directory.join(queue_id.to_string());
        if file_system.exists(&directory).map_err(StoreError::io("look for", &directory))? {
            let queue = QueueDirectory { file_system, config, topic, queue_id, format, directory };
            return queue.entries(from, count).map(Some);
        }
    }
    Ok(None)
}

/// A queue that entries are read of.
struct QueueDirectory<'a> {
    file_system: &'a dyn FileSystem,
    config: &'a StoreConfig,
    topic: &'a str,
    queue_id: i32,
    format: QueueFormat,
    directory: PathBuf,
}

impl QueueDirectory<'_> {
    fn entries(&self, from: Option<i64>, count: usize) -> Result<Vec<QueueEntry>, StoreError> {
        let listed = crate::mapped_file_queue::list_log_files(self.file_system, &self.directory)?;
        let file_bytes = self.config.queue_file_bytes(self.format);
        let unit_bytes = self.format.unit_bytes() as u64;
        let per_file = (file_bytes / unit_bytes) as i64;
        let first = listed.files.first().map_or(0, |(base, _)| (*base / unit_bytes) as i64);
        let from = from.unwrap_or(0);
        let mut index = match self.format {
            QueueFormat::Simple => from.max(first),
            // An entry alone says what it holds; what is in front of `from` is left out.
            QueueFormat::Batch => first,
        };
        let (mut findings, mut report) = (Findings::default(), CheckReport::default());
        let log_files = log::load(self.file_system, self.config, &mut findings, &mut report)?;
        let mut entries = Vec::new();
        let mut bytes = vec![0; unit_bytes as usize];
        while entries.len() < count {
            let base = (index / per_file) as u64 * file_bytes;
            if !listed.files.iter().any(|(found, _)| *found == base) {
                break;
            }
            let path = self.directory.join(file_name(base));
            let file = self
                .file_system
                .open(&path, OpenMode::ReadOnly)
                .map_err(StoreError::io("open", &path))?;
            while entries.len() < count && index < (base / unit_bytes) as i64 + per_file {
                let at = (index % per_file) as u64 * unit_bytes;
                match file.read_at(&mut bytes, at) {
                    Ok(()) => {}
                    // A file that is too short.
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                        return Ok(entries);
                    }
                    Err(error) => return Err(StoreError::io("read", &path)(error)),
                }
                let entry = self.format.entries(&bytes, index).next();
                let Some(entry) = entry.filter(QueueUnit::is_written) else {
                    return Ok(entries);
                };
                index += 1;
                if entry.next_offset() <= from {
                    continue;
                }
                entries.push(QueueEntry {
                    queue_offset: entry.queue_offset,
                    message_count: entry.count,
                    unit: entry.unit,
                    store_timestamp_ms: self.store_time(&log_files, &entry),
                });
            }
        }
        Ok(entries)
    }

    /// Store time of an entry's record, if a sound one lies there.
    fn store_time(&self, files: &[log::LogFile], entry: &QueueUnit) -> Option<i64> {
        let unit = entry.unit;
        let place = u64::try_from(unit.physical_offset).ok()?;
        let file = files
            .iter()
            .find(|file| (file.base_offset..file.base_offset + file.bytes).contains(&place))?;
        let size = u64::try_from(unit.size).ok()?;
        let mut bytes = vec![0; usize::try_from(size.min(file.bytes)).ok()?];
        file.file.read_at(&mut bytes, place - file.base_offset).ok()?;
        let record = MessageRecord::decode(&bytes).ok()?;
        let dispatch = Dispatch::of_record(&record, &self.config.delay_levels_ms);
        let same = record.physical_offset == unit.physical_offset
            && record.size as u64 == size
            && record.topic == self.topic
            && record.queue_id == self.queue_id
            && dispatch.entry.queue_offset == entry.queue_offset;
        same.then_some(record.store_timestamp_ms)
    }
}

/// An entry of the index in the chain of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexHit {
    /// The index file.
    pub path: PathBuf,
    /// The entry.
    pub entry: Entry,
    /// Store time of its record to the second, in ms.
    pub store_timestamp_ms: i64,
    /// Whether it is one of the key, and its record has it; other keys may have the same hash or only
    /// the same slot. `None` if no sound record lies there.
    pub has_key: Option<bool>,
}

/// Reads the chains of a topic's key, newest file first, each from the newest entry on. Also the
/// reason where a chain cannot be followed to its end.
///
/// # Errors
/// When the directory or a file cannot be read.
pub fn index_chains(
    file_system: &dyn FileSystem,
    config: &StoreConfig,
    topic: &str,
    key: &str,
) -> Result<(Vec<IndexHit>, Vec<String>), StoreError> {
    let directory = config.root_dir.join("index");
    if !file_system.exists(&directory).map_err(StoreError::io("look for", &directory))? {
        return Ok((Vec::new(), Vec::new()));
    }
    let (mut findings, mut report) = (Findings::default(), CheckReport::default());
    let log_files = log::load(file_system, config, &mut findings, &mut report)?;
    let layout = config.index_layout();
    let key_hash = KeyHasher::new(topic).hash(key);
    let (mut hits, mut broken) = (Vec::new(), Vec::new());
    let listed = file_system.list(&directory).map_err(StoreError::io("list", &directory))?;
    for found in listed.iter().rev().filter(|found| is_file_name(&found.name)) {
        let path = directory.join(&found.name);
        if found.bytes != layout.file_bytes() {
            broken.push(format!(
                "{} has {} bytes, {} are expected; give the broker's configuration",
                path.display(),
                found.bytes,
                layout.file_bytes()
            ));
            continue;
        }
        let file =
            file_system.open(&path, OpenMode::ReadOnly).map_err(StoreError::io("open", &path))?;
        let mut bytes = [0; HEADER_BYTES];
        file.read_at(&mut bytes, 0).map_err(StoreError::io("read", &path))?;
        let header = match Header::decode(&bytes, &layout) {
            Ok(header) => header,
            Err(reason) => {
                broken.push(format!("{}: {reason}", path.display()));
                continue;
            }
        };
        let read = |buffer: &mut [u8], at: u64| file.read_at(buffer, at);
        let mut chain = Chain::new(layout, key_hash, read, || header.next_entry)
            .map_err(StoreError::io("read", &path))?;
        loop {
            match chain.next_entry() {
                Ok(Some(entry)) => hits.push(IndexHit {
                    path: path.clone(),
                    entry,
                    store_timestamp_ms: entry.timestamp_ms(header.begin_timestamp_ms),
                    has_key: has_key(&log_files, entry.physical_offset, topic, key)
                        .map(|has_key| has_key && entry.key_hash == key_hash),
                }),
                Ok(None) => break,
                Err(error) => {
                    broken.push(format!("{}: {error}", path.display()));
                    break;
                }
            }
        }
    }
    Ok((hits, broken))
}

fn has_key(files: &[log::LogFile], physical_offset: i64, topic: &str, key: &str) -> Option<bool> {
    let place = u64::try_from(physical_offset).ok()?;
    let file = files
        .iter()
        .find(|file| (file.base_offset..file.base_offset + file.bytes).contains(&place))?;
    match Window::new(file).step(place - file.base_offset) {
        Ok(Step::Record(record)) => {
            let found = DispatchProperties::of(record.properties);
            let has_key = found.index_keys(record.sys_flag).any(|found| found == key);
            Some(record.topic == topic && has_key)
        }
        _ => None,
    }
}

/// Reads the checkpoint; `None` if there is none that can be read.
pub fn checkpoint(file_system: &dyn FileSystem, config: &StoreConfig) -> Option<CheckpointWords> {
    small::words(file_system, config)
}
