//! A batch of messages on its way into the log.
//!
//! Owns what can be done before the append lock is taken: checking, encoding, hashing. Messages
//! are encoded into one buffer, with the three fields that only the lock can assign left open, so
//! that the lock has little to do and one `pwrite` carries all. The buffers are reused: a batch in
//! steady use allocates nothing.

use std::ops::Range;
use std::sync::Arc;

use rocketmq_protocol::message::batch;
use rocketmq_protocol::message::properties::{
    NAME_VALUE_SEPARATOR, PROPERTIES_BYTES_MAX, PROPERTY_SEPARATOR, name,
};
use rocketmq_protocol::message::record::{
    self, BLANK_BYTES_MIN, NewMessage, Placement, TOPIC_BYTES_MAX_V1, sys_flag,
};

use crate::config::StoreConfig;
use crate::consume_queue::{ConsumeQueue, INNER_BATCH_MAX, QueueFormat};
use crate::dispatch::{Arrival, TagsCode, format_of};
use crate::dispatch_properties::DispatchProperties;
use crate::error::{AppendError, MessageError};
use crate::index::NewEntry;
use crate::index::key::KeyHasher;
use crate::log_walk::SECTOR_BYTES;
use crate::queue_table;

/// A record may exceed `maxMessageSize` by this much for its topic, properties and fixed fields
/// (`MessageExtEncoder`).
const RECORD_OVERHEAD_MAX: usize = 64 * 1024;
/// Messages that make a batch full.
const FULL_MESSAGES: usize = 256;
/// Bytes that make a batch full.
const FULL_BYTES: usize = 1 << 20;
/// What the buffer of a cleared batch keeps.
const KEPT_BYTES: usize = 2 << 20;
/// Digits of a base offset: those of the largest.
const INNER_BASE_DIGITS: usize = 19;
/// Queues of a batch that a message's are compared with before they are looked up.
const COMPARED_QUEUES: usize = 8;
/// Hashes of keys that a cleared batch has room for.
const KEPT_KEY_HASHES: usize = 4 * FULL_MESSAGES;

/// Where a message came to lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendResult {
    /// Byte in the CommitLog.
    pub physical_offset: i64,
    /// Index in its queue; 0 for records outside of queues.
    pub queue_offset: i64,
    /// Bytes of the record.
    pub bytes: usize,
    /// When it was stored, in ms since the epoch.
    pub store_timestamp_ms: i64,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendOutcome {
    /// End of the last record; what to wait for with `Store::on_durable`.
    pub end_physical_offset: i64,
    /// How many messages, from the first on, were appended. Less than the batch holds only when
    /// the log failed in the middle.
    pub appended: usize,
}

/// What a message is checked against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    body_bytes_max: usize,
    record_bytes_max: usize,
    group_bytes_max: usize,
    topic_bytes_max: usize,
    /// Whether keys are hashed.
    has_index: bool,
}

impl Limits {
    pub(crate) fn of(config: &StoreConfig) -> Limits {
        // A record never spans files and leaves room for the blank behind it.
        let fits_in_file = usize::try_from(config.commit_log_file_bytes)
            .unwrap_or(usize::MAX)
            .saturating_sub(BLANK_BYTES_MIN);
        let record_bytes_max =
            config.message_bytes_max.saturating_add(RECORD_OVERHEAD_MAX).min(fits_in_file);
        Limits {
            body_bytes_max: config.message_bytes_max,
            record_bytes_max,
            group_bytes_max: record_bytes_max,
            has_index: config.message_index_enable,
            topic_bytes_max: if config.auto_message_version_on_topic_len {
                queue_table::TOPIC_BYTES_MAX
            } else {
                TOPIC_BYTES_MAX_V1
            },
        }
    }
}

/// One encoded message.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Place of the record in the buffer.
    pub(crate) record: Range<usize>,
    topic: Range<usize>,
    /// Place of the record's property block in the buffer.
    pub(crate) properties: Range<usize>,
    pub(crate) queue_id: i32,
    pub(crate) sys_flag: i32,
    /// How many queue offsets it takes: one, or the messages of an inner batch.
    pub(crate) count: i64,
    pub(crate) tags_code: TagsCode,
    /// Place of its keys' hashes among those of the batch.
    pub(crate) key_hashes: Range<usize>,
    /// Which of the batch's queues it goes to; none for records outside of queues.
    pub(crate) queue: Option<usize>,
    pub(crate) result: AppendResult,
}

/// Messages to be appended together. Made by `Store::new_batch`.
#[derive(Debug)]
pub struct AppendBatch {
    limits: Limits,
    pub(crate) buffer: Vec<u8>,
    pub(crate) entries: Vec<Entry>,
    /// What the index will have of the messages, in their order.
    pub(crate) key_hashes: Vec<i32>,
    /// Hashes keys of the newest entry's topic.
    hasher: Option<KeyHasher>,
    /// Where the entries go, while the batch is being appended.
    pub(crate) queues: Vec<Arc<ConsumeQueue>>,
    /// Ends, as indexes into `entries`, of the runs that must lie in one file.
    pub(crate) groups: Vec<usize>,
    /// How many entries, from the first on, have their results.
    pub(crate) appended: usize,
    pub(crate) error: Option<AppendError>,
    pub(crate) arrivals: Vec<Arrival>,
}

impl AppendBatch {
    pub(crate) fn new(limits: Limits) -> AppendBatch {
        AppendBatch {
            limits,
            buffer: Vec::new(),
            entries: Vec::new(),
            key_hashes: Vec::new(),
            hasher: None,
            queues: Vec::new(),
            groups: Vec::new(),
            appended: 0,
            error: None,
            arrivals: Vec::new(),
        }
    }

    /// How many messages it holds.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of its records.
    pub fn bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Whether it should be appended before more is added: at 256 messages or 1 MiB.
    pub fn is_full(&self) -> bool {
        self.entries.len() >= FULL_MESSAGES || self.buffer.len() >= FULL_BYTES
    }

    /// Empties it for the next use.
    pub fn clear(&mut self) {
        self.buffer.clear();
        self.buffer.shrink_to(KEPT_BYTES);
        self.entries.clear();
        self.key_hashes.clear();
        self.key_hashes.shrink_to(KEPT_KEY_HASHES);
        self.queues.clear();
        self.groups.clear();
        self.arrivals.clear();
        self.appended = 0;
        self.error = None;
    }

    /// Adds a message and returns its index.
    ///
    /// # Errors
    /// When the message cannot be stored; the batch is as it was before.
    pub fn push(&mut self, message: &NewMessage<'_>) -> Result<usize, MessageError> {
        if format_of(message.sys_flag) != QueueFormat::Simple {
            return Err(MessageError::InnerBatch { sys_flag: message.sys_flag });
        }
        self.encode(message)?;
        let index = self.entries.len() - 1;
        self.groups.push(index + 1);
        Ok(index)
    }

    /// Adds a client's batch body, which is the body of `message`, as one record with one entry in a
    /// batch queue, and returns its index. It takes as many queue offsets as the body has messages;
    /// the system flag and the properties that say so are added here.
    ///
    /// # Errors
    /// When it cannot be stored or the body cannot be read; the batch is as it was before.
    pub fn push_inner_batch(&mut self, message: &NewMessage<'_>) -> Result<usize, MessageError> {
        let mut count = 0;
        for part in batch::iter(message.body) {
            part?;
            count += 1;
        }
        if count == 0 {
            return Err(MessageError::BatchEmpty);
        }
        if count > i64::from(INNER_BATCH_MAX) {
            return Err(MessageError::BatchTooLong { count, max: INNER_BATCH_MAX });
        }
        // The place is known to the append lock alone, so its digits are as many for all: Java's
        // Long.parseLong takes zeros in front.
        let span = format!(
            "{}{SEPARATOR}{count}{END}{}{SEPARATOR}{:0width$}{END}",
            name::INNER_NUM,
            name::INNER_BASE,
            0,
            SEPARATOR = char::from(NAME_VALUE_SEPARATOR),
            END = char::from(PROPERTY_SEPARATOR),
            width = INNER_BASE_DIGITS,
        );
        // Behind all others: of two pairs with one name the last counts.
        let mut properties = Vec::with_capacity(message.properties.len() + 1);
        properties.extend_from_slice(message.properties);
        properties.push(span.as_bytes());
        self.encode(&NewMessage {
            sys_flag: message.sys_flag | sys_flag::NEED_UNWRAP | sys_flag::INNER_BATCH,
            properties: &properties,
            ..*message
        })?;
        let index = self.entries.len() - 1;
        self.entries[index].count = count;
        self.groups.push(index + 1);
        Ok(index)
    }

    /// Adds the messages of a client's batch body, all or none, and returns their indexes. They
    /// get consecutive queue offsets and lie in one file.
    ///
    /// `common` says what the messages share; its properties are appended to those of each
    /// message, its own body is not looked at.
    ///
    /// # Errors
    /// When one of them cannot be stored or the body cannot be read; the batch is as it was before.
    pub fn push_batch(
        &mut self,
        common: &NewMessage<'_>,
        body: &[u8],
    ) -> Result<Range<usize>, MessageError> {
        if format_of(common.sys_flag) != QueueFormat::Simple {
            return Err(MessageError::InnerBatch { sys_flag: common.sys_flag });
        }
        let first = self.entries.len();
        let start = self.buffer.len();
        let first_hash = self.key_hashes.len();
        let result = self.encode_all(common, body, start);
        if let Err(error) = result {
            self.entries.truncate(first);
            self.key_hashes.truncate(first_hash);
            self.buffer.truncate(start);
            return Err(error);
        }
        self.groups.push(self.entries.len());
        Ok(first..self.entries.len())
    }

    fn encode_all(
        &mut self,
        common: &NewMessage<'_>,
        body: &[u8],
        start: usize,
    ) -> Result<(), MessageError> {
        if body.len() > self.limits.body_bytes_max {
            return Err(MessageError::BodyTooLarge {
                bytes: body.len(),
                max: self.limits.body_bytes_max,
            });
        }
        let mut any = false;
        // Rarely more than one piece; the property blocks are joined without copying them first.
        let mut pieces: Vec<&[u8]> = Vec::with_capacity(1 + common.properties.len());
        for message in batch::iter(body) {
            let message = message?;
            pieces.clear();
            pieces.push(message.properties);
            pieces.extend_from_slice(common.properties);
            self.encode(&NewMessage {
                flag: message.flag,
                body: message.body,
                properties: &pieces,
                ..*common
            })?;
            let bytes = self.buffer.len() - start;
            if bytes > self.limits.group_bytes_max {
                return Err(MessageError::BatchTooLarge {
                    bytes,
                    max: self.limits.group_bytes_max,
                });
            }
            any = true;
        }
        if any { Ok(()) } else { Err(MessageError::BatchEmpty) }
    }

    fn encode(&mut self, message: &NewMessage<'_>) -> Result<(), MessageError> {
        let first = message.properties.iter().find_map(|piece| piece.first());
        let last = message.properties.iter().rev().find_map(|piece| piece.last());
        if first == Some(&0) || last == Some(&0) {
            // Recovery takes a block for torn that begins or ends with zeros where the disk's
            // sectors meet. A pair without a name in front and behind changes nothing for readers.
            let mut closed = Vec::with_capacity(message.properties.len() + 2);
            closed.push(&[PROPERTY_SEPARATOR][..]);
            closed.extend_from_slice(message.properties);
            closed.push(&[PROPERTY_SEPARATOR]);
            return self.encode(&NewMessage { properties: &closed, ..*message });
        }
        let limits = &self.limits;
        if message.body.len() > limits.body_bytes_max {
            return Err(MessageError::BodyTooLarge {
                bytes: message.body.len(),
                max: limits.body_bytes_max,
            });
        }
        // Mostly the next message is of the same topic, and that was looked at.
        let is_same_topic = self
            .entries
            .last()
            .is_some_and(|last| self.buffer[last.topic.clone()] == *message.topic.as_bytes());
        if message.topic.len() > limits.topic_bytes_max {
            return Err(MessageError::TopicTooLong {
                bytes: message.topic.len(),
                max: limits.topic_bytes_max,
            });
        }
        if !is_same_topic && !queue_table::is_directory_name(message.topic) {
            return Err(MessageError::TopicName { topic: message.topic.to_owned() });
        }
        if message.queue_id < 0 {
            return Err(MessageError::QueueId { queue_id: message.queue_id });
        }
        let start = self.buffer.len();
        let size = record::encode_record(&mut self.buffer, message, Placement::default()).map_err(
            |error| match error.field {
                "properties" => MessageError::PropertiesTooLong {
                    bytes: error.bytes,
                    max: PROPERTIES_BYTES_MAX,
                },
                "topic" => MessageError::TopicTooLong { bytes: error.bytes, max: error.max },
                _ => MessageError::RecordTooLarge { bytes: error.bytes, max: error.max },
            },
        )?;
        if size > limits.record_bytes_max {
            self.buffer.truncate(start);
            return Err(MessageError::RecordTooLarge { bytes: size, max: limits.record_bytes_max });
        }
        let end = start + size;
        let properties_bytes =
            rocketmq_protocol::message::properties::joined_len(message.properties);
        let block = end - properties_bytes;
        // Most blocks are too short to fill a sector.
        if properties_bytes >= SECTOR_BYTES {
            let zeros = longest_run_of_zeros(&self.buffer[block..end]);
            if zeros >= SECTOR_BYTES {
                self.buffer.truncate(start);
                return Err(MessageError::PropertiesZeros { bytes: zeros, max: SECTOR_BYTES - 1 });
            }
        }
        let topic = block - 2 - message.topic.len()..block - 2;
        let found = DispatchProperties::of(&self.buffer[block..]);
        let first_hash = self.key_hashes.len();
        if self.limits.has_index {
            let known = self.hasher.filter(|_| is_same_topic);
            let hasher =
                *self.hasher.insert(known.unwrap_or_else(|| KeyHasher::new(message.topic)));
            let keys = found.index_keys(message.sys_flag);
            self.key_hashes.extend(keys.map(|key| hasher.hash(key)));
        }
        self.entries.push(Entry {
            record: start..end,
            topic,
            properties: block..end,
            queue_id: message.queue_id,
            sys_flag: message.sys_flag,
            count: 1,
            tags_code: TagsCode::of(message.topic, &self.buffer[block..], &found),
            key_hashes: first_hash..self.key_hashes.len(),
            queue: None,
            result: AppendResult {
                physical_offset: 0,
                queue_offset: 0,
                bytes: size,
                store_timestamp_ms: 0,
            },
        });
        Ok(())
    }

    /// What became of the message with this index, after `Store::append`.
    ///
    /// # Errors
    /// Why it was not appended. Also when the batch was never appended or holds no such message.
    pub fn result(&self, index: usize) -> Result<AppendResult, AppendError> {
        if index < self.appended {
            return Ok(self.entries[index].result);
        }
        Err(self.error.clone().unwrap_or(AppendError::NotAppended))
    }

    /// Finds the queue of each message. `find` gets topic, queue number and format.
    ///
    /// # Errors
    /// When a queue has another format than its message asks for.
    pub(crate) fn resolve_queues(
        &mut self,
        find: impl Fn(&str, i32, QueueFormat) -> Arc<ConsumeQueue>,
    ) -> Result<(), AppendError> {
        let AppendBatch { buffer, entries, queues, .. } = self;
        queues.clear();
        for entry in entries {
            entry.queue = None;
            if sys_flag::is_outside_queues(entry.sys_flag) {
                continue;
            }
            let topic = &buffer[entry.topic.clone()];
            let format = format_of(entry.sys_flag);
            let is_its = |queue: &&Arc<ConsumeQueue>| {
                queue.queue_id() == entry.queue_id
                    && queue.topic().as_bytes() == topic
                    && queue.format() == format
            };
            // A batch has few queues as a rule, and looking them up costs more than a comparison.
            let newest = queues.len().saturating_sub(COMPARED_QUEUES);
            let known = queues[newest..].iter().position(|queue| is_its(&queue));
            entry.queue = match known {
                Some(index) => Some(newest + index),
                None => {
                    // The bytes were copied from a &str.
                    let topic = std::str::from_utf8(topic).unwrap_or_default();
                    queues.push(with_format(find(topic, entry.queue_id, format), format)?);
                    Some(queues.len() - 1)
                }
            };
        }
        Ok(())
    }

    /// Finds queues anew that were removed since.
    ///
    /// # Errors
    /// As [`AppendBatch::resolve_queues`].
    pub(crate) fn replace_removed_queues(
        &mut self,
        find: impl Fn(&str, i32, QueueFormat) -> Arc<ConsumeQueue>,
    ) -> Result<(), AppendError> {
        for queue in self.queues.iter_mut().filter(|queue| queue.is_removed()) {
            let format = queue.format();
            *queue = with_format(find(queue.topic(), queue.queue_id(), format), format)?;
        }
        Ok(())
    }

    /// Assigns places to the messages `range`, the first of which begins at `physical_offset`.
    /// For the holder of the append lock.
    pub(crate) fn place(
        &mut self,
        range: Range<usize>,
        mut physical_offset: i64,
        store_timestamp_ms: i64,
    ) {
        let AppendBatch { buffer, entries, queues, .. } = self;
        for entry in &mut entries[range] {
            let queue_offset = match entry.queue {
                Some(queue) => {
                    let queue = &queues[queue];
                    let next = queue.next_offset();
                    queue.set_next_offset(next.saturating_add(entry.count));
                    next
                }
                None => 0,
            };
            let placement = Placement { queue_offset, physical_offset, store_timestamp_ms };
            let written = record::set_placement(&mut buffer[entry.record.clone()], placement);
            debug_assert!(written, "an encoded record has room for its placement");
            if format_of(entry.sys_flag) == QueueFormat::Batch {
                put_inner_base(&mut buffer[entry.record.clone()], queue_offset);
            }
            entry.result.physical_offset = physical_offset;
            entry.result.queue_offset = queue_offset;
            entry.result.store_timestamp_ms = store_timestamp_ms;
            physical_offset += entry.record.len() as i64;
        }
    }

    /// The index entries of the messages that were appended.
    pub(crate) fn index_entries(&self) -> impl Iterator<Item = NewEntry> {
        self.entries[..self.appended].iter().flat_map(|entry| {
            let AppendResult { physical_offset, store_timestamp_ms, .. } = entry.result;
            self.key_hashes[entry.key_hashes.clone()].iter().map(move |key_hash| NewEntry {
                key_hash: *key_hash,
                physical_offset,
                store_timestamp_ms,
            })
        })
    }

    /// Takes back what [`AppendBatch::place`] assigned to `range`, the newest part of the batch.
    pub(crate) fn unplace(&mut self, range: Range<usize>) {
        for entry in self.entries[range].iter().rev() {
            if let Some(queue) = entry.queue {
                let queue = &self.queues[queue];
                queue.set_next_offset(entry.result.queue_offset);
            }
        }
    }
}

/// The queue, if it has this format.
fn with_format(
    queue: Arc<ConsumeQueue>,
    format: QueueFormat,
) -> Result<Arc<ConsumeQueue>, AppendError> {
    if queue.format() == format {
        return Ok(queue);
    }
    Err(AppendError::QueueFormat {
        topic: queue.topic().to_string(),
        queue_id: queue.queue_id(),
        directory: queue.format().directory_name(),
    })
}

/// Puts the base offset of an inner batch into the last property of its record.
fn put_inner_base(record: &mut [u8], queue_offset: i64) {
    let mut rest = queue_offset;
    let digits = record.iter_mut().rev().skip_while(|byte| !byte.is_ascii_digit());
    for digit in digits.take(INNER_BASE_DIGITS) {
        // A remainder of 0 to 9.
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

fn longest_run_of_zeros(bytes: &[u8]) -> usize {
    let (mut longest, mut run) = (0, 0);
    for byte in bytes {
        run = if *byte == 0 { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch_of(config: &StoreConfig) -> AppendBatch {
        AppendBatch::new(Limits::of(config))
    }

    fn message<'a>(topic: &'a str, body: &'a [u8], properties: &'a [&'a [u8]]) -> NewMessage<'a> {
        NewMessage {
            topic,
            queue_id: 0,
            flag: 0,
            sys_flag: 0,
            born_timestamp_ms: 1,
            born_host: "127.0.0.1:1".parse().unwrap(),
            store_host: "127.0.0.1:2".parse().unwrap(),
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body,
            properties,
        }
    }

    #[test]
    fn a_bad_message_leaves_its_neighbours_alone() {
        let mut config = StoreConfig::new("/x");
        config.message_bytes_max = 10;
        let mut batch = batch_of(&config);
        assert_eq!(batch.push(&message("A", b"one", &[])), Ok(0));
        let bytes = batch.bytes();
        let long = vec![b'x'; PROPERTIES_BYTES_MAX + 1];
        for (message, expected) in [
            (message("A", b"01234567890", &[]), MessageError::BodyTooLarge { bytes: 11, max: 10 }),
            (message("../A", b"", &[]), MessageError::TopicName { topic: "../A".to_owned() }),
            (
                message(&"t".repeat(256), b"", &[]),
                MessageError::TopicTooLong { bytes: 256, max: 255 },
            ),
            (
                message("A", b"", &[&long]),
                MessageError::PropertiesTooLong {
                    bytes: PROPERTIES_BYTES_MAX + 1,
                    max: PROPERTIES_BYTES_MAX,
                },
            ),
            (
                NewMessage { queue_id: -1, ..message("A", b"", &[]) },
                MessageError::QueueId { queue_id: -1 },
            ),
        ] {
            assert_eq!(batch.push(&message), Err(expected));
            assert_eq!((batch.len(), batch.bytes()), (1, bytes));
        }
        assert_eq!(batch.push(&message("B", b"two", &[])), Ok(1));
        assert_eq!(batch.groups, [1, 2]);
    }

    #[test]
    fn a_property_block_never_ends_in_a_zero_byte() {
        let mut batch = batch_of(&StoreConfig::new("/x"));
        batch.push(&message("A", b"", &[b"a\x01b\0", b""])).unwrap();
        let record =
            record::MessageRecord::decode(&batch.buffer[batch.entries[0].record.clone()]).unwrap();
        assert_eq!(record.properties.last(), Some(&PROPERTY_SEPARATOR));
        assert_eq!(record.property("a"), Some("b\0"));
    }

    #[test]
    fn a_client_batch_is_taken_whole_or_not_at_all() {
        let mut config = StoreConfig::new("/x");
        config.commit_log_file_bytes = 4096;
        let mut batch = batch_of(&config);
        let mut body = Vec::new();
        for text in [&b"one"[..], b"two"] {
            let part = batch::BatchMessage { flag: 3, body: text, properties: b"TAGS\x01TagA" };
            batch::encode(&mut body, &part).unwrap();
        }
        let common = message("A", b"", &[b"CLUSTER\x01c\x02"]);
        assert_eq!(batch.push_batch(&common, &body), Ok(0..2));
        let record =
            record::MessageRecord::decode(&batch.buffer[batch.entries[1].record.clone()]).unwrap();
        assert_eq!((record.flag, record.body), (3, &b"two"[..]));
        assert_eq!(record.properties, b"TAGS\x01TagA\x02CLUSTER\x01c\x02");
        assert_eq!(batch.entries[1].tags_code, TagsCode::Hash(2_598_919));
        assert_eq!(&batch.buffer[batch.entries[1].topic.clone()], b"A");

        let bytes = batch.bytes();
        assert_eq!(batch.push_batch(&common, &[]), Err(MessageError::BatchEmpty));
        let half = &body[..body.len() - 1];
        assert!(matches!(batch.push_batch(&common, half), Err(MessageError::Batch(_))));
        let mut large = Vec::new();
        for _ in 0..3 {
            let part = batch::BatchMessage { flag: 0, body: &[0; 1500], properties: b"" };
            batch::encode(&mut large, &part).unwrap();
        }
        let error = batch.push_batch(&common, &large);
        assert!(matches!(error, Err(MessageError::BatchTooLarge { max: 4088, .. })), "{error:?}");
        assert_eq!((batch.len(), batch.bytes(), batch.groups.as_slice()), (2, bytes, &[2][..]));
    }

    #[test]
    fn an_inner_batch_is_one_record_that_says_its_span_when_it_is_placed() {
        let mut body = Vec::new();
        for text in [&b"one"[..], b"two", b"three"] {
            let part = batch::BatchMessage { flag: 0, body: text, properties: b"" };
            batch::encode(&mut body, &part).unwrap();
        }
        let mut batch = batch_of(&StoreConfig::new("/x"));
        // What a client says of it itself does not count.
        let lies = &b"INNER_BASE\x019\x02INNER_NUM\x0199\x02UNIQ_KEY\x01U"[..];
        let properties = [lies];
        let message = message("A", &body, &properties);
        assert_eq!(batch.push_inner_batch(&message), Ok(0));
        assert_eq!((batch.len(), batch.entries[0].count), (1, 3));
        let queue = |_: &str, queue_id, format| {
            assert_eq!(format, QueueFormat::Batch);
            let files = crate::consume_queue::QueueFiles {
                file_system: Arc::new(crate::file_system::RealFileSystem),
                format,
                directory: "/x".into(),
                file_bytes: 46,
                ext: None,
                open_files: Default::default(),
            };
            let queue = ConsumeQueue::new("A".into(), queue_id, 0, Arc::new(files));
            queue.set_next_offset(1_234);
            Arc::new(queue)
        };
        batch.resolve_queues(queue).unwrap();
        batch.place(0..1, 77, 5);
        let queue = Arc::clone(&batch.queues[batch.entries[0].queue.unwrap()]);
        assert_eq!(queue.next_offset(), 1_237);
        let record = record::MessageRecord::decode(&batch.buffer).unwrap();
        assert_eq!(record.sys_flag & 0xC0, 0xC0);
        assert_eq!((record.queue_offset, record.physical_offset), (1_234, 77));
        assert_eq!(record.property("INNER_NUM"), Some("3"));
        assert_eq!(record.property("INNER_BASE"), Some("0000000000000001234"));
        assert_eq!(record.property("UNIQ_KEY"), Some("U"));
        assert!(record.body_matches_crc());
        batch.place(0..1, 77, 5);
        batch.unplace(0..1);
        assert_eq!(queue.next_offset(), 1_237);
        queue.set_next_offset(i64::MAX - 3);
        batch.place(0..1, 77, 5);
        let record = record::MessageRecord::decode(&batch.buffer).unwrap();
        assert_eq!(record.property("INNER_BASE"), Some("9223372036854775804"));
    }

    #[test]
    fn what_is_no_inner_batch_is_refused_as_one_and_the_other_way_round() {
        let mut batch = batch_of(&StoreConfig::new("/x"));
        let flagged = NewMessage { sys_flag: 0x80, ..message("A", b"x", &[]) };
        let refused = Err(MessageError::InnerBatch { sys_flag: 0x80 });
        assert_eq!(batch.push(&flagged), refused);
        let refused = Err(MessageError::InnerBatch { sys_flag: 0x80 });
        assert_eq!(batch.push_batch(&flagged, b"x"), refused);
        assert_eq!(batch.push_inner_batch(&message("A", b"", &[])), Err(MessageError::BatchEmpty));
        let error = batch.push_inner_batch(&message("A", b"junk", &[]));
        assert!(matches!(error, Err(MessageError::Batch(_))), "{error:?}");
        let mut body = Vec::new();
        for _ in 0..=INNER_BATCH_MAX {
            let part = batch::BatchMessage { flag: 0, body: b"x", properties: b"" };
            batch::encode(&mut body, &part).unwrap();
        }
        let error = batch.push_inner_batch(&message("A", &body, &[]));
        assert_eq!(error, Err(MessageError::BatchTooLong { count: 32_768, max: 32_767 }));
        assert!(batch.is_empty() && batch.bytes() == 0);
    }

    #[test]
    fn a_record_larger_than_a_file_is_refused() {
        let mut config = StoreConfig::new("/x");
        config.commit_log_file_bytes = 4096;
        let mut batch = batch_of(&config);
        let error = batch.push(&message("A", &[0; 4000], &[]));
        assert_eq!(error, Err(MessageError::RecordTooLarge { bytes: 4092, max: 4088 }));
        assert!(batch.is_empty() && batch.bytes() == 0);
        assert!(batch.push(&message("A", &[0; 3996], &[])).is_ok());
    }

    #[test]
    fn it_is_full_by_count_or_bytes() {
        let mut batch = batch_of(&StoreConfig::new("/x"));
        for _ in 0..FULL_MESSAGES {
            assert!(!batch.is_full());
            batch.push(&message("A", b"", &[])).unwrap();
        }
        assert!(batch.is_full());
        batch.clear();
        batch.push(&message("A", &vec![0; FULL_BYTES], &[])).unwrap();
        assert!(batch.is_full());
        assert!(matches!(batch.result(0), Err(AppendError::NotAppended)));
    }
}
