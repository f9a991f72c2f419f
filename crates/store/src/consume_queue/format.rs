//! The two kinds of queues, and what their entries have in common.
//!
//! Files, tail, cuts and searches of a queue work on the index of an entry within its queue. In a
//! simple queue that is the queue offset; in a batch queue an entry itself says which offsets it
//! stands for.

use super::batch_unit::{BATCH_UNIT_BYTES, BatchUnit};
use super::unit::{UNIT_BYTES, Unit};

/// Which kind of entries a queue has (RocketMQ's `CQType`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QueueFormat {
    /// One entry a message, below `consumequeue`.
    #[default]
    Simple,
    /// One entry an inner batch, below `batchconsumequeue`.
    Batch,
}

impl QueueFormat {
    /// Both.
    pub const ALL: [QueueFormat; 2] = [QueueFormat::Simple, QueueFormat::Batch];

    /// Bytes of an entry.
    pub const fn unit_bytes(self) -> usize {
        match self {
            QueueFormat::Simple => UNIT_BYTES,
            QueueFormat::Batch => BATCH_UNIT_BYTES,
        }
    }

    /// The directory, below the store's, that holds its queues.
    pub const fn directory_name(self) -> &'static str {
        match self {
            QueueFormat::Simple => "consumequeue",
            QueueFormat::Batch => "batchconsumequeue",
        }
    }

    /// The key of broker.conf that says how long its files are.
    pub const fn file_bytes_key(self) -> &'static str {
        match self {
            QueueFormat::Simple => "mappedFileSizeConsumeQueue",
            QueueFormat::Batch => "mapperFileSizeBatchConsumeQueue",
        }
    }

    /// The tags code to filter by, of an entry that has this one. A batch without a tag has none: the
    /// tags are those of its messages.
    pub(crate) fn tags_code(self, of_entry: i64) -> Option<i64> {
        match (self, of_entry) {
            (QueueFormat::Batch, 0) => None,
            _ => Some(of_entry),
        }
    }

    /// Yields the entries of `bytes`, the first of which is the queue's `first_index`-th; what is
    /// left behind the last whole one is ignored.
    pub fn entries(
        self,
        bytes: &[u8],
        first_index: i64,
    ) -> impl DoubleEndedIterator<Item = QueueUnit> + ExactSizeIterator + '_ {
        let chunks = bytes.chunks_exact(self.unit_bytes()).enumerate();
        chunks.map(move |(n, chunk)| self.decode(chunk, first_index + n as i64))
    }

    fn decode(self, chunk: &[u8], index: i64) -> QueueUnit {
        match self {
            QueueFormat::Simple => QueueUnit {
                queue_offset: index,
                count: 1,
                unit: chunk.first_chunk().map_or(Unit::UNWRITTEN, Unit::decode),
            },
            QueueFormat::Batch => chunk.first_chunk().map(BatchUnit::decode).map_or(
                QueueUnit { queue_offset: 0, count: 0, unit: Unit::UNWRITTEN },
                |batch| QueueUnit {
                    queue_offset: batch.base_offset,
                    count: i64::from(batch.count),
                    unit: batch.unit,
                },
            ),
        }
    }
}

/// An entry and the messages that it stands for (RocketMQ's `CqUnit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueUnit {
    /// Queue offset of its first message.
    pub queue_offset: i64,
    /// How many messages it stands for: 1 in a simple queue.
    pub count: i64,
    /// Where their record lies.
    pub unit: Unit,
}

impl QueueUnit {
    /// The queue offset behind its last message.
    pub fn next_offset(&self) -> i64 {
        self.queue_offset.saturating_add(self.count)
    }

    /// Whether one of its messages has this queue offset.
    pub fn holds(&self, queue_offset: i64) -> bool {
        (self.queue_offset..self.next_offset()).contains(&queue_offset)
    }

    /// Whether it can have been written by a broker; zeros cannot.
    pub fn is_written(&self) -> bool {
        self.unit.is_written() && self.queue_offset >= 0 && self.count > 0
    }
}

/// The first of the indexes `low..high` whose entry is not in front of what is looked for; entries
/// in front come first. One that is not there counts as in front: files go from the oldest on.
///
/// # Errors
/// Those of `entry_at`.
pub(super) fn partition_point<E>(
    (mut low, mut high): (i64, i64),
    mut entry_at: impl FnMut(i64) -> Result<Option<QueueUnit>, E>,
    mut is_in_front: impl FnMut(&QueueUnit) -> bool,
) -> Result<i64, E> {
    while low < high {
        let middle = low + (high - low) / 2;
        if entry_at(middle)?.is_none_or(|entry| is_in_front(&entry)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}
