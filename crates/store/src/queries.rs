//! What a store can be asked about its messages and queues: each is a few lines here, and a file of its
//! own where it takes more.
//!
//! Readers see what is confirmed; see `confirm`.

use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::Bytes;
use rocketmq_protocol::message::record::{MessageRecord, sys_flag};

use crate::consume_queue::{QueueFormat, Unit};
use crate::error::StoreError;
use crate::index::{Query, QueryContext, QueryResult};
use crate::queue_entries::{QueueEntry, queue_entries};
use crate::read::{self, GetLimits, GetResult, QueueFilter, Reach};
use crate::store::Store;
use crate::time_search::{self, Boundary};

impl Store {
    /// Reads messages of a queue from `from_queue_offset` on.
    ///
    /// # Errors
    /// What the operating system says when a file of the queue is read.
    pub fn get_messages(
        &self,
        topic: &str,
        queue_id: i32,
        from_queue_offset: i64,
        limits: GetLimits,
        filter: &dyn QueueFilter,
    ) -> Result<GetResult, StoreError> {
        let Some(queue) = self.parts.table.find(topic, queue_id) else {
            return Ok(GetResult::no_queue());
        };
        read::get_messages(
            &queue,
            &self.parts.log,
            &self.parts.config,
            Reach { hot_bytes: self.hot_bytes, visible_end: self.parts.confirmation.visible_end() },
            from_queue_offset,
            limits,
            filter,
        )
    }

    /// Whether reading the record there is unlikely to wait for the disk: it lies within the newest
    /// part of the log that `accessMessageInMemoryMaxRatio` takes to be in memory.
    pub fn is_hot(&self, physical_offset: i64) -> bool {
        self.written().0.saturating_sub(physical_offset) <= self.hot_bytes
    }

    /// Where the record of a queue's message lies, for [`Store::is_hot`].
    ///
    /// # Errors
    /// What the operating system says when a file of the queue is read.
    pub fn physical_offset_of(
        &self,
        topic: &str,
        queue_id: i32,
        queue_offset: i64,
    ) -> Result<Option<i64>, StoreError> {
        let unit = self.written_unit(topic, queue_id, queue_offset)?;
        let visible_end = self.parts.confirmation.visible_end();
        let unit = unit.filter(|unit| unit.end_offset() <= visible_end);
        Ok(unit.map(|unit| unit.physical_offset))
    }

    /// Whether a queue shows the record at `physical_offset` as the message with this queue offset, to
    /// readers or once it is confirmed.
    ///
    /// # Errors
    /// What the operating system says when a file of the queue is read.
    pub fn is_queued(
        &self,
        topic: &str,
        queue_id: i32,
        queue_offset: i64,
        physical_offset: i64,
    ) -> Result<bool, StoreError> {
        let unit = self.written_unit(topic, queue_id, queue_offset)?;
        Ok(unit.is_some_and(|unit| unit.physical_offset == physical_offset))
    }

    fn written_unit(
        &self,
        topic: &str,
        queue_id: i32,
        queue_offset: i64,
    ) -> Result<Option<Unit>, StoreError> {
        let Some(queue) = self.parts.table.find(topic, queue_id) else { return Ok(None) };
        let unit = queue.entry(queue_offset)?.map(|entry| entry.unit);
        Ok(unit.filter(|unit| !unit.is_filler()))
    }

    /// Entries of a queue from `from_queue_offset` on, at most `count_max` and all of one file; none
    /// outside of the queue, `None` if there is no such queue.
    ///
    /// # Errors
    /// What the operating system says when a file of the queue is read.
    pub fn queue_entries(
        &self,
        topic: &str,
        queue_id: i32,
        from_queue_offset: i64,
        count_max: usize,
    ) -> Result<Option<Vec<QueueEntry>>, StoreError> {
        let Some(queue) = self.parts.table.find(topic, queue_id) else { return Ok(None) };
        let visible_end = self.parts.confirmation.visible_end();
        queue_entries(&queue, visible_end, from_queue_offset, count_max).map(Some)
    }

    /// The offset behind the newest message of a queue that readers may see, 0 if there is no such
    /// queue.
    pub fn max_queue_offset(&self, topic: &str, queue_id: i32) -> i64 {
        self.parts.visible_max(topic, queue_id)
    }

    /// The offset of the oldest message of a queue, 0 if there is no such queue.
    pub fn min_queue_offset(&self, topic: &str, queue_id: i32) -> i64 {
        self.parts.table.find(topic, queue_id).map_or(0, |queue| queue.min_offset())
    }

    /// The offset that a store time stands for; 0 if there is no such queue.
    ///
    /// # Errors
    /// What the operating system says when a file of the queue is read.
    pub fn queue_offset_by_time(
        &self,
        topic: &str,
        queue_id: i32,
        timestamp_ms: i64,
        boundary: Boundary,
    ) -> Result<i64, StoreError> {
        let Some(queue) = self.parts.table.find(topic, queue_id) else { return Ok(0) };
        let visible_end = self.parts.confirmation.visible_end();
        let log = &self.parts.log;
        time_search::queue_offset_by_time(&queue, log, visible_end, timestamp_ms, boundary)
    }

    /// Store time of a queue's message, in ms.
    ///
    /// # Errors
    /// What the operating system says when a file of the queue is read.
    pub fn store_time_at(
        &self,
        topic: &str,
        queue_id: i32,
        queue_offset: i64,
    ) -> Result<Option<i64>, StoreError> {
        let physical_offset = self.physical_offset_of(topic, queue_id, queue_offset)?;
        Ok(physical_offset.and_then(|offset| self.parts.log.store_timestamp_ms(offset)))
    }

    /// Store time of a queue's oldest message, in ms.
    ///
    /// # Errors
    /// What the operating system says when a file of the queue is read.
    pub fn earliest_store_time(
        &self,
        topic: &str,
        queue_id: i32,
    ) -> Result<Option<i64>, StoreError> {
        self.store_time_at(topic, queue_id, self.min_queue_offset(topic, queue_id))
    }

    /// Store time of the oldest message of the log, in ms.
    pub fn earliest_message_time(&self) -> Option<i64> {
        self.parts.log.store_timestamp_ms(self.parts.log.min_offset())
    }

    /// Store time of the newest message of the log, in ms; 0 without one. No message that was
    /// dispatched, and so got its bit map, is newer.
    pub fn newest_message_time(&self) -> i64 {
        self.parts.log.timestamp_ms()
    }

    /// The record that begins at `physical_offset`, if readers may see it.
    pub fn message_at(&self, physical_offset: i64) -> Option<Bytes> {
        let visible_end = self.parts.confirmation.visible_end();
        // Nothing behind it is even looked at: it may be cut meanwhile.
        if physical_offset >= visible_end {
            return None;
        }
        let found = self.record_at(physical_offset)?;
        (physical_offset + found.len() as i64 <= visible_end).then_some(found)
    }

    pub(crate) fn record_at(&self, physical_offset: i64) -> Option<Bytes> {
        let bytes = self.parts.log.with_record(physical_offset, |record| record.size)?;
        self.parts.log.slice(physical_offset, bytes)
    }

    /// Messages of a topic with a key, which is a unique key or a word of their keys, and with a
    /// store time in this range: the newest, at most `count_max` and `maxMsgsNumBatch`, and at most
    /// `bytes_max` bytes together (but one in any case), oldest of them first. A message is found
    /// once its append returned, for as long as its queue shows it. May read from the disk.
    ///
    /// # Errors
    /// What the operating system says when a file of the index is read.
    pub fn query_messages(
        &self,
        topic: &str,
        key: &str,
        store_time_ms: RangeInclusive<i64>,
        count_max: usize,
        bytes_max: usize,
    ) -> Result<QueryResult, StoreError> {
        let Some(index) = &self.parts.index else { return Ok(QueryResult::default()) };
        let count_max = count_max.min(self.parts.config.query_count_max);
        let query = Query { topic, key, store_time_ms, count_max, bytes_max };
        let is_visible = |record: &MessageRecord<'_>| self.is_visible(record);
        let visible_end = self.parts.confirmation.visible_end();
        let log = &self.parts.log;
        index.query(&query, &QueryContext { log, visible_end, is_visible: &is_visible })
    }

    /// Whether the record still belongs to a topic that was not deleted: its queue shows it, or, if
    /// it is outside of queues, the topic has some.
    fn is_visible(&self, record: &MessageRecord<'_>) -> bool {
        if self.parts.deleted_topics.holds(record.topic, record.physical_offset) {
            return false;
        }
        if sys_flag::is_outside_queues(record.sys_flag) {
            return !self.parts.table.queue_ids(record.topic).is_empty();
        }
        let Some(queue) = self.parts.table.find(record.topic, record.queue_id) else {
            return false;
        };
        match queue.entry(record.queue_offset) {
            Ok(entry) => {
                entry.is_some_and(|entry| entry.unit.physical_offset == record.physical_offset)
            }
            // A queue file that cannot be read denies nothing.
            Err(_) => true,
        }
    }

    /// Numbers of a topic's queues that ever held a message, ascending.
    pub fn queues(&self, topic: &str) -> Vec<i32> {
        self.parts.table.queue_ids(topic)
    }

    /// Whether the topic's queues hold batches.
    pub fn has_batch_queue(&self, topic: &str) -> bool {
        let first = self.parts.table.queue_ids(topic).first().copied();
        let queue = first.and_then(|queue_id| self.parts.table.find(topic, queue_id));
        queue.is_some_and(|queue| queue.format() == QueueFormat::Batch)
    }

    /// Topics that have queues.
    pub fn topics(&self) -> Vec<Arc<str>> {
        self.parts.table.topics()
    }
}
