//! How much of a queue may be seen while the newest records of the log are not confirmed.

use super::ConsumeQueue;
use super::format::{QueueFormat, QueueUnit, partition_point};
use crate::error::StoreError;

impl ConsumeQueue {
    /// The queue offset behind the newest entry whose record ends at or in front of `end`, a physical
    /// offset; never in front of the minimum. `i64::MAX` for all entries costs nothing.
    ///
    /// # Errors
    /// What the operating system says. The newest entries are in memory mostly.
    pub(crate) fn max_offset_in_front_of(&self, end: i64) -> Result<i64, StoreError> {
        if end == i64::MAX {
            return Ok(self.max_offset());
        }
        let (first, last) = {
            let state = self.state.lock();
            if state.max_physical <= end {
                // Moved with the lock alone, so it belongs to this record.
                return Ok(self.max_offset());
            }
            self.indexes_locked(&state)
        };
        let is_in_front = |entry: &QueueUnit| entry.unit.end_offset() <= end;
        // Few are not confirmed, so they are looked for from the end, in growing steps.
        let (mut low, mut high, mut step) = (first, last, 1);
        while high > first {
            let probe = (high - step).max(first);
            if self.entry_at(probe)?.is_none_or(|entry| is_in_front(&entry)) {
                low = probe + 1;
                break;
            }
            high = probe;
            step *= 2;
        }
        let index = partition_point((low, high), |index| self.entry_at(index), is_in_front)?;
        let max = match self.format() {
            QueueFormat::Simple => index,
            QueueFormat::Batch => match self.entry_at(index)? {
                Some(entry) => entry.queue_offset,
                None => self.max_offset(),
            },
        };
        Ok(max.max(self.min_offset()))
    }
}
