//! Reading messages of a queue, with RocketMQ's statuses and limits
//! (`DefaultMessageStore.getMessage`).

use std::sync::Arc;

use bytes::Bytes;
use rocketmq_protocol::message::record::place;

use crate::commit_log::CommitLog;
use crate::config::StoreConfig;
use crate::consume_queue::{ConsumeQueue, ExtReader, ExtUnit, Unit, is_address};
use crate::dispatch::Dispatch;
use crate::error::StoreError;
use crate::mapped_file_queue::MappedFile;

/// Most bytes of one read, whatever the caller asks for.
const READ_BYTES_MAX: usize = 128 << 20;
/// RocketMQ never asks for less.
const READ_BYTES_MIN: usize = 100;

/// What became of a read. The names are RocketMQ's `GetMessageStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GetStatus {
    /// Messages were found.
    Found,
    /// Nothing in the part looked at passed the filter.
    NoMatchedMessage,
    /// The messages are being removed from the log.
    MessageWasRemoving,
    /// A file of the queue is missing.
    OffsetFoundNull,
    /// The offset lies behind the maximum.
    OffsetOverflowBadly,
    /// The offset is the maximum: nothing has arrived yet.
    OffsetOverflowOne,
    /// The offset lies in front of the minimum.
    OffsetTooSmall,
    /// There is no such queue.
    NoMatchedLogicQueue,
    /// The queue never held a message.
    NoMessageInQueue,
}

impl GetStatus {
    /// The name as RocketMQ writes it, which is the remark of a pull's answer.
    pub fn name(self) -> &'static str {
        match self {
            GetStatus::Found => "FOUND",
            GetStatus::NoMatchedMessage => "NO_MATCHED_MESSAGE",
            GetStatus::MessageWasRemoving => "MESSAGE_WAS_REMOVING",
            GetStatus::OffsetFoundNull => "OFFSET_FOUND_NULL",
            GetStatus::OffsetOverflowBadly => "OFFSET_OVERFLOW_BADLY",
            GetStatus::OffsetOverflowOne => "OFFSET_OVERFLOW_ONE",
            GetStatus::OffsetTooSmall => "OFFSET_TOO_SMALL",
            GetStatus::NoMatchedLogicQueue => "NO_MATCHED_LOGIC_QUEUE",
            GetStatus::NoMessageInQueue => "NO_MESSAGE_IN_QUEUE",
        }
    }
}

/// How much one read may return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetLimits {
    /// Messages.
    pub count_max: usize,
    /// Bytes of their records. The first message is returned even if it is larger.
    pub bytes_max: usize,
}

/// Which messages are wanted.
pub trait QueueFilter {
    /// Whether a message with this tags code may be wanted.
    fn matches_tags_code(&self, tags_code: i64) -> bool {
        let _ = tags_code;
        true
    }

    /// The same for a message whose ConsumeQueue entry has an ext unit.
    fn matches_ext(&self, ext: &ExtUnit<'_>) -> bool {
        self.matches_tags_code(ext.tags_code)
    }

    /// Whether the message, given as its record, is wanted. Asked after the tags code.
    fn matches_record(&self, record: &[u8]) -> bool {
        let _ = record;
        true
    }
}

/// Every message.
#[derive(Clone, Copy, Debug, Default)]
pub struct MatchAll;

impl QueueFilter for MatchAll {}

/// What a read found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetResult {
    /// What became of it.
    pub status: GetStatus,
    /// Where to read next.
    pub next_begin_offset: i64,
    /// The queue's minimum at that time.
    pub min_offset: i64,
    /// The queue's maximum at that time.
    pub max_offset: i64,
    /// The records, back to back; neighbours in the log share one slice.
    pub messages: Vec<Bytes>,
    /// How many messages there are in `messages`; one record can be a batch of them.
    pub message_count: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Whether what was read lies so far back that a slave should serve it.
    pub suggest_slave: bool,
}

impl GetResult {
    fn empty(status: GetStatus, next_begin_offset: i64, min: i64, max: i64) -> GetResult {
        GetResult {
            status,
            next_begin_offset,
            min_offset: min,
            max_offset: max,
            messages: Vec::new(),
            message_count: 0,
            bytes: 0,
            suggest_slave: false,
        }
    }

    /// The answer where there is no queue.
    pub(crate) fn no_queue() -> GetResult {
        GetResult::empty(GetStatus::NoMatchedLogicQueue, 0, 0, 0)
    }
}

/// Where in the log a read may go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    /// How far behind the log's end a record is taken to be in memory.
    pub(crate) hot_bytes: i64,
    /// Where the part of the log ends that may be read.
    pub(crate) visible_end: i64,
}

/// Records that lie back to back in one file. It holds the file, so a removal in the middle of a
/// read does no harm.
struct Run {
    file: Arc<MappedFile>,
    start: u64,
    bytes: usize,
}

impl Run {
    fn finish(self, messages: &mut Vec<Bytes>) {
        // The part was sliced when it was looked at, so it is published.
        if let Some(bytes) = self.file.shared_slice(self.start, self.bytes) {
            messages.push(bytes);
        }
    }
}

/// Reads from `from` on.
///
/// # Errors
/// What the operating system says when a file of the queue is read.
pub(crate) fn get_messages(
    queue: &ConsumeQueue,
    log: &CommitLog,
    config: &StoreConfig,
    reach: Reach,
    from: i64,
    limits: GetLimits,
    filter: &dyn QueueFilter,
) -> Result<GetResult, StoreError> {
    let Reach { hot_bytes, visible_end } = reach;
    // The minimum first: it only grows, and never beyond the maximum.
    let min = queue.min_offset();
    let max = queue.max_offset_in_front_of(visible_end)?;
    let moved = |status, next| Ok(GetResult::empty(status, next, min, max));
    if max == 0 {
        return moved(GetStatus::NoMessageInQueue, 0);
    }
    if from < min {
        return moved(GetStatus::OffsetTooSmall, min);
    }
    if from == max {
        return moved(GetStatus::OffsetOverflowOne, from);
    }
    if from > max {
        return moved(GetStatus::OffsetOverflowBadly, max);
    }

    let count_max = limits.count_max.max(1);
    let bytes_max = limits.bytes_max.clamp(READ_BYTES_MIN, READ_BYTES_MAX);
    let format = queue.format();
    // Entries that are looked at.
    let mut left = (config.filter_bytes_max / format.unit_bytes()).max(count_max);
    let window = left;
    let end = max.min(queue.read_end(from));
    let log_end = log.written().0;

    let mut result = GetResult::empty(GetStatus::NoMatchedMessage, from, min, max);
    let mut run: Option<Run> = None;
    let mut file: Option<Arc<MappedFile>> = None;
    let mut skip_to = i64::MIN;
    let mut newest_read = 0;
    let mut buffer = Vec::new();
    let mut ext_reader = ExtReader::default();
    let mut chunk = count_max;
    'read: while left > 0 && result.next_begin_offset < end {
        // An entry stands for one message at least.
        let count = chunk.min(left).min((end - result.next_begin_offset) as usize);
        let index = queue.read(result.next_begin_offset, count, &mut buffer)?;
        if buffer.is_empty() {
            if result.message_count == 0 {
                result.status = GetStatus::OffsetFoundNull;
                result.next_begin_offset = queue.behind_missing_file(result.next_begin_offset);
            }
            break;
        }
        // When a filter passes little, look at more at a time.
        chunk = window;
        for entry in format.entries(&buffer, index) {
            let unit = entry.unit;
            // Entries of a batch queue are fewer than their messages.
            if unit.end_offset() > visible_end {
                break 'read;
            }
            let size = usize::try_from(unit.size).unwrap_or(0);
            let hot = log_end - unit.physical_offset <= hot_bytes;
            if result.message_count > 0 {
                let (bytes, count) = if hot {
                    (config.transfer_bytes_max_in_memory, config.transfer_count_max_in_memory)
                } else {
                    (config.transfer_bytes_max_on_disk, config.transfer_count_max_on_disk)
                };
                if result.message_count + entry.count.max(1) as usize > count_max
                    || result.message_count >= count
                    || result.bytes + size > bytes_max.min(bytes)
                {
                    break 'read;
                }
            }
            left -= 1;
            result.next_begin_offset = entry.next_offset();
            if unit.is_filler() || unit.physical_offset < skip_to {
                continue;
            }
            newest_read = unit.physical_offset;
            if format.tags_code(unit.tags_code).is_some()
                && !matches_entry(&mut ext_reader, queue, (log, config), unit, filter)?
            {
                continue;
            }
            // A negative offset is no place in the log.
            let place = u64::try_from(unit.physical_offset).unwrap_or(u64::MAX);
            if !file.as_ref().is_some_and(|file| file.holds(place)) {
                file = log.files.find(place);
            }
            let record = file.as_ref().and_then(|file| file.slice(place, size));
            let Some(record) = record.filter(|record| total_size(record) == Some(size)) else {
                if result.message_count == 0 {
                    result.status = GetStatus::MessageWasRemoving;
                }
                skip_to = log.next_file_start(unit.physical_offset);
                continue;
            };
            if !filter.matches_record(record) {
                continue;
            }
            match (&mut run, &file) {
                (Some(run), _)
                    if run.start + run.bytes as u64 == place && run.file.holds(place) =>
                {
                    run.bytes += size;
                }
                (_, Some(file)) => {
                    let next = Run { file: Arc::clone(file), start: place, bytes: size };
                    if let Some(done) = run.replace(next) {
                        done.finish(&mut result.messages);
                    }
                }
                (_, None) => continue,
            }
            skip_to = i64::MIN;
            result.status = GetStatus::Found;
            result.message_count += entry.count.max(1) as usize;
            result.bytes += size;
        }
    }
    if let Some(run) = run {
        run.finish(&mut result.messages);
    }
    result.suggest_slave = log_end - newest_read > hot_bytes;
    Ok(result)
}

/// Whether a message may be wanted, by what its ConsumeQueue entry says: the tags code, or the
/// address of its ext unit. If that cannot be read, the message itself says what stood there.
fn matches_entry(
    reader: &mut ExtReader,
    queue: &ConsumeQueue,
    (log, config): (&CommitLog, &StoreConfig),
    unit: Unit,
    filter: &dyn QueueFilter,
) -> Result<bool, StoreError> {
    if !is_address(unit.tags_code) {
        return Ok(filter.matches_tags_code(unit.tags_code));
    }
    if let Some(ext) = queue.ext()
        && let Some(ext_unit) = reader.unit(ext, unit.tags_code)?
    {
        return Ok(filter.matches_ext(&ext_unit));
    }
    let tags_code = log.with_record(unit.physical_offset, |record| {
        Dispatch::of_record(record, &config.delay_levels_ms).entry.unit.tags_code
    });
    // Without a record the read finds out itself that there is none.
    Ok(tags_code.is_none_or(|tags_code| filter.matches_tags_code(tags_code)))
}

/// The total-size word of a record.
fn total_size(record: &[u8]) -> Option<usize> {
    let word = record.get(place::TOTAL_SIZE..)?.first_chunk::<4>()?;
    Some(u32::from_be_bytes(*word) as usize)
}
