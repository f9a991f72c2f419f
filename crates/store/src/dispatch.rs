//! What follows from a record in the log: its entry in a ConsumeQueue, and news of its arrival.
//!
//! Driven from the log in order and at once. An append and a recovery come through the same door,
//! so a queue rebuilt after a crash is the queue that was lost.

use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rocketmq_protocol::hash;
use rocketmq_protocol::message::properties::{self, name};
use rocketmq_protocol::message::record::{MessageRecord, sys_flag};

use crate::consume_queue::{ConsumeQueue, INNER_BATCH_MAX, Pushed, QueueFormat, QueueUnit, Unit};
use crate::dispatch_properties::DispatchProperties;
use crate::error::StoreError;
use crate::offset::{Dispatched, Published};
use crate::queue_table::QueueTable;

/// The topic whose entries carry the deliver time instead of a tag's hash.
const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";
/// Delay of a level that is not configured (`DelayLevel` of RocketMQ's schedule service), in ms.
const UNKNOWN_LEVEL_DELAY_MS: i64 = 1_000;

/// Every so many messages of a queue the length of its unwritten entries is looked at.
const LOOK_EVERY: i64 = 64;

/// How the tags code of a record comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TagsCode {
    /// The hash of its tag, 0 without one.
    Hash(i64),
    /// Its deliver time, by delay level.
    DelayLevel(i32),
}

impl TagsCode {
    /// That of a record with this topic and property block, of which `found` are the properties.
    pub(crate) fn of(topic: &str, block: &[u8], found: &DispatchProperties<'_>) -> TagsCode {
        if topic == SCHEDULE_TOPIC
            && let Some(level) = properties::find(block, name::DELAY)
            && let Ok(level) = level.parse::<i32>()
            && level > 0
        {
            return TagsCode::DelayLevel(level);
        }
        TagsCode::Hash(found.tag().map_or(0, hash::tags_code))
    }

    pub(crate) fn resolve(self, store_timestamp_ms: i64, delay_levels_ms: &[i64]) -> i64 {
        match self {
            TagsCode::Hash(hash) => hash,
            TagsCode::DelayLevel(level) => {
                // Levels above the last one count as the last one.
                let level = usize::try_from(level).unwrap_or(0).min(delay_levels_ms.len());
                let delay = level.checked_sub(1).and_then(|index| delay_levels_ms.get(index));
                store_timestamp_ms.saturating_add(delay.copied().unwrap_or(UNKNOWN_LEVEL_DELAY_MS))
            }
        }
    }
}

/// Which kind of queue a record with these bits belongs to.
pub(crate) fn format_of(sys_flag: i32) -> QueueFormat {
    match sys_flag & sys_flag::INNER_BATCH {
        0 => QueueFormat::Simple,
        _ => QueueFormat::Batch,
    }
}

/// What the log says of one record, as far as dispatch needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dispatch<'a> {
    pub(crate) sys_flag: i32,
    /// Its entry. An inner batch whose properties do not say which messages it holds has none: its
    /// count is 0.
    pub(crate) entry: QueueUnit,
    pub(crate) store_timestamp_ms: i64,
    /// The record's property block.
    pub(crate) properties: &'a [u8],
}

impl<'a> Dispatch<'a> {
    pub(crate) fn of_record(record: &MessageRecord<'a>, delay_levels_ms: &[i64]) -> Dispatch<'a> {
        Dispatch::with_properties(
            record,
            &DispatchProperties::of(record.properties),
            delay_levels_ms,
        )
    }

    /// As [`Dispatch::of_record`], with the record's properties as far as they are wanted.
    pub(crate) fn with_properties(
        record: &MessageRecord<'a>,
        found: &DispatchProperties<'_>,
        delay_levels_ms: &[i64],
    ) -> Dispatch<'a> {
        let tags_code = TagsCode::of(record.topic, record.properties, found)
            .resolve(record.store_timestamp_ms, delay_levels_ms);
        let count = match format_of(record.sys_flag) {
            QueueFormat::Simple => 1,
            QueueFormat::Batch => inner_batch(record.queue_offset, record.properties).unwrap_or(0),
        };
        Dispatch {
            sys_flag: record.sys_flag,
            store_timestamp_ms: record.store_timestamp_ms,
            properties: record.properties,
            entry: QueueUnit {
                queue_offset: record.queue_offset,
                count,
                unit: Unit {
                    physical_offset: record.physical_offset,
                    // A record's size was read from a positive 32-bit word.
                    size: record.size as i32,
                    tags_code,
                },
            },
        }
    }

    /// Whether it belongs into a queue.
    pub(crate) fn has_entry(&self) -> bool {
        self.entry.count > 0 && !sys_flag::is_outside_queues(self.sys_flag)
    }

    pub(crate) fn format(&self) -> QueueFormat {
        format_of(self.sys_flag)
    }

    /// What is told of it.
    pub(crate) fn arrival(&self, queue: &ConsumeQueue) -> Arrival {
        let unit = self.entry.unit;
        Arrival {
            topic: Arc::clone(queue.topic()),
            queue_id: queue.queue_id(),
            max_queue_offset: self.entry.next_offset(),
            tags_code: self.format().tags_code(unit.tags_code),
            store_timestamp_ms: self.store_timestamp_ms,
            end_physical_offset: unit.end_offset(),
        }
    }
}

/// How many messages an inner batch has, as its properties say (`CommitLog.setBatchSizeIfNeeded`).
/// None if they do not say, or say another queue offset than the record.
fn inner_batch(queue_offset: i64, properties: &[u8]) -> Option<i64> {
    let base = properties::find(properties, name::INNER_BASE)?.parse::<i64>().ok()?;
    let count = properties::find(properties, name::INNER_NUM)?.parse::<i64>().ok()?;
    let is_sound = base == queue_offset && (1..=i64::from(INNER_BATCH_MAX)).contains(&count);
    is_sound.then_some(count)
}

/// News for those who wait for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Topic.
    pub topic: Arc<str>,
    /// Queue within the topic.
    pub queue_id: i32,
    /// The queue's maximum now: the offset behind the message that arrived.
    pub max_queue_offset: i64,
    /// The message's tags code; none for an inner batch without a tag, which any filter of tags may
    /// want: the client looks at the tags of its messages.
    pub tags_code: Option<i64>,
    /// When it was stored, in ms since the epoch.
    pub store_timestamp_ms: i64,
    /// Where its record ends in the log.
    pub end_physical_offset: i64,
}

/// Who wants to hear of arrivals.
pub trait ArrivalListener: Send + Sync {
    /// Messages can be read now: those of one append, or those that were confirmed together. Called
    /// on the thread of the append or of who confirms, without locks; it must not block. Calls of two threads may come in either order.
    fn arrived(&self, batch: &[Arrival]);

    /// The log has grown, by messages that readers may not see yet. For those who copy it; called like
    /// [`ArrivalListener::arrived`], in front of it.
    fn log_grew(&self) {}
}

/// Carries records from the log to the queues.
pub(crate) struct Dispatcher {
    table: Arc<QueueTable>,
    /// Held while a batch is dispatched. Taken before the append lock is let go, so that batches
    /// are dispatched in the order of the log.
    turn: Mutex<()>,
    dispatched: Published<Dispatched>,
}

impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatcher").field("dispatched", &self.dispatched).finish_non_exhaustive()
    }
}

impl Dispatcher {
    pub(crate) fn new(table: Arc<QueueTable>) -> Dispatcher {
        Dispatcher { table, turn: Mutex::new(()), dispatched: Published::new(Dispatched(0)) }
    }

    /// Waits for the batches in front to be dispatched.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    pub(crate) fn dispatched(&self) -> Dispatched {
        self.dispatched.get()
    }

    /// Makes the end of what was dispatched known.
    pub(crate) fn publish(&self, _turn: &MutexGuard<'_, ()>, end: i64) {
        self.dispatched.publish(Dispatched(end));
    }

    /// Dispatches one record to its queue; the caller holds the turn.
    ///
    /// # Errors
    /// When entries had to be written out and could not be. The entry itself is kept in memory, so
    /// nothing is lost and the write is tried again.
    pub(crate) fn dispatch(
        &self,
        queue: &Arc<ConsumeQueue>,
        dispatch: &Dispatch<'_>,
    ) -> Result<Option<Pushed>, StoreError> {
        if !dispatch.has_entry() {
            return Ok(None);
        }
        if queue.format() != dispatch.format() {
            return Ok(Some(Pushed::OtherFormat));
        }
        let Dispatch { entry, store_timestamp_ms, properties, .. } = dispatch;
        let pushed = queue.push_with_ext(entry, *store_timestamp_ms, properties);
        if matches!(pushed, Pushed::Added | Pushed::Restarted) {
            self.table.list_unwritten(queue);
            // Looked at now and then: it costs a lock. Offsets of batches jump.
            let is_batch = dispatch.format() == QueueFormat::Batch;
            if (is_batch || entry.queue_offset % LOOK_EVERY == 0) && queue.tail_is_long() {
                queue.write_tail()?;
            }
        }
        Ok(Some(pushed))
    }

    /// Dispatches records of one queue, in the order of the log, and says what became of each that
    /// has an entry; see [`ConsumeQueue::push_run`]. For recovery, when nobody else has the turn.
    ///
    /// # Errors
    /// As [`Dispatcher::dispatch`].
    pub(crate) fn dispatch_run<'d, 'r: 'd>(
        &self,
        queue: &Arc<ConsumeQueue>,
        run: impl Iterator<Item = &'d Dispatch<'r>>,
        mut each: impl FnMut(&'d Dispatch<'r>, Pushed),
    ) -> Result<(), StoreError> {
        let mut has_new = false;
        queue.push_run(run, |dispatch, pushed| {
            has_new |= matches!(pushed, Pushed::Added | Pushed::Restarted);
            each(dispatch, pushed);
        });
        if has_new {
            self.table.list_unwritten(queue);
            if queue.tail_is_long() {
                queue.write_tail()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inner_batch_says_what_it_holds() {
        let said = |base: &str, num: &str| {
            let block = format!("INNER_NUM\x01{num}\x02INNER_BASE\x01{base}\x02");
            inner_batch(12, block.as_bytes())
        };
        assert_eq!(said("12", "3"), Some(3));
        assert_eq!(said("0000000000000000012", "32767"), Some(32_767));
        let wrong =
            [("13", "1"), ("12", "0"), ("12", "-1"), ("12", "32768"), ("x", "1"), ("12", "")];
        for (base, num) in wrong {
            assert_eq!(said(base, num), None, "{base} {num}");
        }
        assert_eq!(inner_batch(12, b"INNER_NUM\x013\x02"), None);
        assert_eq!(inner_batch(12, b"INNER_BASE\x0112\x02"), None);
    }

    #[test]
    fn tags_are_hashed_as_java_does() {
        let code = |block| TagsCode::of("Orders", block, &DispatchProperties::of(block));
        assert_eq!(code(b"KEYS\x01k\x02TAGS\x01TagA\x02"), TagsCode::Hash(2_598_919));
        assert_eq!(code(b"DELAY\x013\x02"), TagsCode::Hash(0));
    }

    #[test]
    fn the_schedule_topic_carries_deliver_times() {
        let levels = [1_000, 5_000];
        let resolve = |block: &[u8]| {
            let found = DispatchProperties::of(block);
            TagsCode::of(SCHEDULE_TOPIC, block, &found).resolve(100, &levels)
        };
        assert_eq!(resolve(b"DELAY\x011\x02"), 1_100);
        assert_eq!(resolve(b"DELAY\x012\x02"), 5_100);
        assert_eq!(resolve(b"DELAY\x0199\x02"), 5_100, "beyond the last level");
        assert_eq!(resolve(b"DELAY\x010\x02TAGS\x01TagA\x02"), 2_598_919);
        assert_eq!(TagsCode::DelayLevel(1).resolve(100, &[]), 1_100, "no levels at all");
    }
}
