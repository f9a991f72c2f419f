//! Finding a message of a queue by its store time.
//!
//! The rules at the edges are RocketMQ 5's (`ConsumeQueue.getOffsetInQueueByTime`). RocketMQ picks
//! a file first and searches within it; store times never go back, so one search over the whole
//! queue finds the same.

use crate::commit_log::CommitLog;
use crate::consume_queue::ConsumeQueue;
use crate::error::StoreError;

/// Which of several messages is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Boundary {
    /// The first message that is not older.
    #[default]
    Lower,
    /// The last message that is not younger.
    Upper,
}

/// The offset that `timestamp_ms` stands for, between the queue's minimum and its maximum in front of
/// `visible_end`.
///
/// # Errors
/// What the operating system says when a file of the queue is read.
pub(crate) fn queue_offset_by_time(
    queue: &ConsumeQueue,
    log: &CommitLog,
    visible_end: i64,
    timestamp_ms: i64,
    boundary: Boundary,
) -> Result<i64, StoreError> {
    // The first offset whose message is younger (upper) or not older (lower). A record that is
    // gone counts as older than all.
    let first = queue.first_offset_behind(|entry| {
        if entry.unit.end_offset() > visible_end {
            // Nothing behind it is looked at: it may be cut meanwhile.
            return false;
        }
        let stored = log.store_timestamp_ms(entry.unit.physical_offset);
        match (stored, boundary) {
            (None, _) => true,
            (Some(stored), Boundary::Lower) => stored < timestamp_ms,
            (Some(stored), Boundary::Upper) => stored <= timestamp_ms,
        }
    })?;
    Ok(match boundary {
        Boundary::Lower => first,
        Boundary::Upper => (first - 1).max(queue.min_offset()),
    })
}
