//! Cutting the end of a log that is a copy: what it holds and its master's does not.
//!
//! Owns the order of the steps, each durable before the next. Files behind the cut go first, from the
//! last on, then the rest of the file that is cut is wiped: from then on a crash leaves a log that ends
//! where it was cut, or later, and recovery makes all else agree with it. Then queues, index, deletions
//! of topics and the checkpoint follow. Only when all of it is on disk may other messages take the
//! place of those that went: nothing old may be found that looks as if it spoke of them.
//!
//! Readers do not notice: they see nothing behind the confirmed offset, and no cut goes below that.
//! Those who copy the log do see it; slices that they hold are waited for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use rocketmq_protocol::message::record::{self, LogItem, MessageRecord};

use crate::background::Parts;
use crate::dispatch::Dispatch;
use crate::error::{Refusal, StoreError};
use crate::flush::DurableOutcome;
use crate::mapped_file_queue::MappedFile;
use crate::store::Store;

/// How long slices behind the cut are waited for. Whoever copies the log drops them when its
/// connection ends.
const SLICES_WAIT: Duration = Duration::from_secs(5);

/// What [`Store::truncate_to`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Where the log ends now.
    pub end: i64,
    /// Bytes that went.
    pub bytes: u64,
    /// Messages that went; those of a batch count one by one.
    pub messages: u64,
}

/// Why a log was not cut.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TruncateError {
    /// The store takes messages of its own, or failed earlier.
    #[error("the log is not cut: {0}")]
    Refused(#[from] Refusal),
    /// The log does not hold that place.
    #[error("the log holds {start} to {end}, it cannot be cut at {to}")]
    Outside {
        /// Where it was to be cut.
        to: i64,
        /// Where it begins.
        start: i64,
        /// Where it ends.
        end: i64,
    },
    /// Consumers may have seen what would go.
    #[error("the log is confirmed to {confirmed}, it is not cut at {to}")]
    Confirmed {
        /// Where it would have to be cut: at a record.
        to: i64,
        /// What consumers may have seen.
        confirmed: i64,
    },
    /// What would go is still being sent to somebody. Nothing was changed.
    #[error("the log behind {to} is being sent to somebody still; try again")]
    InUse {
        /// Where it was to be cut.
        to: i64,
    },
    /// A step failed. Unless nothing was changed yet, the store refuses everything until it is opened
    /// again, which makes all agree with what is left of the log.
    #[error("the log was not cut to the end: {0}")]
    Store(#[from] StoreError),
}

/// Slices of the log handed out that may reach behind the confirmed offset.
#[derive(Debug, Default)]
pub(crate) struct Slices {
    count: Mutex<usize>,
    returned: Condvar,
}

impl Slices {
    /// Hands out a slice that a cut waits for.
    fn share(self: &Arc<Self>, slice: impl FnOnce() -> Option<Bytes>) -> Option<Bytes> {
        let mut count = self.count.lock();
        let bytes = slice()?;
        *count += 1;
        drop(count);
        Some(Bytes::from_owner(Counted { bytes, slices: Arc::clone(self) }))
    }

    /// Has no more slices made, which `withdraw` sees to, and waits until all are dropped. False if
    /// that takes too long.
    fn withdraw(&self, withdraw: impl FnOnce(), wait: Duration) -> bool {
        let until = Instant::now() + wait;
        let mut count = self.count.lock();
        withdraw();
        while *count > 0 {
            if self.returned.wait_until(&mut count, until).timed_out() {
                return *count == 0;
            }
        }
        true
    }
}

struct Counted {
    bytes: Bytes,
    slices: Arc<Slices>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        *self.slices.count.lock() -= 1;
        self.slices.returned.notify_all();
    }
}

impl Parts {
    /// A slice that may be taken away by a cut once the log is a copy, unless it is confirmed.
    pub(crate) fn share_written(
        &self,
        end: i64,
        slice: impl FnOnce() -> Option<Bytes>,
    ) -> Option<Bytes> {
        if end <= self.confirmation.visible_end() { slice() } else { self.slices.share(slice) }
    }
}

/// What lies behind a cut.
struct Surplus {
    /// The last end of a record that is not behind the place asked for.
    to: u64,
    messages: u64,
    /// Store time of the newest message that stays, 0 without one.
    timestamp_ms: i64,
}

impl Store {
    /// Cuts the end of the log at `physical_offset`, or at the nearest record in front of it; durable
    /// when it returns. Copies then go on from [`Cut::end`].
    ///
    /// Only on a store that [takes copies](Store::take_copies_only). Whoever waited for what went to be
    /// durable is told that it failed.
    ///
    /// # Errors
    /// [`TruncateError`]; nothing was changed, unless it is one of [`TruncateError::Store`].
    pub fn truncate_to(&self, physical_offset: i64) -> Result<Cut, TruncateError> {
        let parts = &self.parts;
        if let Some(refusal) = parts.writability.last_word() {
            return Err(refusal.into());
        }
        // Queues, index and checkpoint stand still, then the log, then its flusher.
        let flushing = parts.flushing.lock();
        let mut appender = parts.log.lock();
        self.intake.check_copies()?;
        let turn = parts.dispatcher.turn();
        let flusher = parts.flusher.take_turn();
        let surplus = parts.surplus(physical_offset)?;
        let (to, end) = (surplus.to as i64, self.written().0);
        let confirmed = self.confirmed().0;
        if to < confirmed {
            return Err(TruncateError::Confirmed { to, confirmed });
        }
        // The write buffer holds what follows the written end.
        parts.log.drop_buffer(&mut appender);
        if to == end {
            return Ok(Cut { end, ..Cut::default() });
        }
        parts.withdraw(surplus.to)?;
        parts.dispatcher.publish(&turn, to);
        let waiters = parts.flusher.log_was_cut(&flusher, to);
        let cut = parts.cut(&surplus);
        if let Err(error) = &cut {
            // It may have been a sync; in any case the parts do not agree any more.
            parts.refuse_after_failed_sync(error.to_string());
            tracing::error!(%error, to, "the log was not cut to the end, nothing is taken any more");
        }
        parts.log.cut_back(&mut appender, surplus.to, surplus.timestamp_ms);
        parts.confirmation.log_was_cut(to);
        drop((flusher, turn, appender, flushing));
        for callback in waiters {
            callback(DurableOutcome::Failed(format!("the log was cut at {to}")));
        }
        cut?;
        Ok(Cut { end: to, bytes: (end - to).unsigned_abs(), messages: surplus.messages })
    }

    /// The record that begins at `physical_offset`, also if it is not confirmed yet. For work on
    /// messages that were acknowledged, on a master.
    pub fn written_message_at(&self, physical_offset: i64) -> Option<Bytes> {
        self.parts.share_written(i64::MAX, || self.record_at(physical_offset))
    }
}

impl Parts {
    /// What lies behind a place of the log.
    fn surplus(&self, physical_offset: i64) -> Result<Surplus, TruncateError> {
        let (start, end) = (self.log.min_offset(), self.log.written().0);
        if !(start..=end).contains(&physical_offset) {
            return Err(TruncateError::Outside { to: physical_offset, start, end });
        }
        let at = physical_offset.unsigned_abs();
        let mut surplus = Surplus { to: 0, messages: 0, timestamp_ms: 0 };
        let mut found = None;
        let files = self.log.files.snapshot();
        // A file in front of it says how old the newest message that stays is.
        let holder = files.iter().rposition(|file| file.base_offset() <= at);
        let first = holder.map_or(0, |holder| holder.saturating_sub(1));
        for file in &files[first..] {
            let mut position = file.base_offset();
            while let Some(bytes) = file.published_from(position)
                && let Ok(LogItem::Record(record)) = record::decode_log_item(bytes)
            {
                let next = position + record.size as u64;
                if next > at {
                    found.get_or_insert(position);
                    surplus.messages += self.messages_of(&record);
                } else {
                    surplus.timestamp_ms = record.store_timestamp_ms;
                }
                position = next;
            }
            // A blank, or the end. Whoever asks for a place within the blank gets its begin.
            if at < file.end_offset() && position <= at {
                found.get_or_insert(if at == file.base_offset() { at } else { position });
            }
        }
        surplus.to = found.unwrap_or(at);
        Ok(surplus)
    }

    fn messages_of(&self, record: &MessageRecord<'_>) -> u64 {
        let dispatch = Dispatch::of_record(record, &self.config.delay_levels_ms);
        dispatch.entry.count.max(1).unsigned_abs()
    }

    /// Takes back what was published behind `to`, and waits for slices of it.
    fn withdraw(&self, to: u64) -> Result<(), TruncateError> {
        let files = self.files_behind(to);
        let published: Vec<u64> = files
            .iter()
            .map(|file| file.base_offset() + file.mapping().published() as u64)
            .collect();
        if let Some(file) = files.iter().find(|file| file.is_read_only()) {
            let reason = format!("the log is to be cut at {to}");
            let path = file.path().to_owned();
            return Err(StoreError::ReadOnlyFile { path, reason }.into());
        }
        let written = self.log.written();
        let withdraw = || {
            self.log.publish_end(to);
            for file in &files {
                file.withdraw(to);
            }
        };
        if self.slices.withdraw(withdraw, SLICES_WAIT) {
            return Ok(());
        }
        for (file, end) in files.iter().zip(published) {
            file.publish(end);
        }
        self.log.publish_end(written.0.unsigned_abs());
        Err(TruncateError::InUse { to: to as i64 })
    }

    fn files_behind(&self, to: u64) -> Vec<Arc<MappedFile>> {
        let mut files = self.log.files.snapshot();
        files.retain(|file| file.end_offset() > to);
        files
    }

    /// The steps; see the module.
    fn cut(&self, surplus: &Surplus) -> Result<(), StoreError> {
        let to = surplus.to;
        let end = to as i64;
        let files = &self.log.files;
        // The file made ahead must not stay behind a gap.
        self.log.preallocation.forget();
        files.remove_made_ahead()?;
        files.remove_behind(to)?;
        if let Some(file) = files.find(to) {
            let in_file = to - file.base_offset();
            file.file()
                .zero_range(in_file, file.end_offset() - to)
                .map_err(StoreError::io("wipe the end of", file.path()))?;
            file.file().sync_data().map_err(StoreError::io("sync", file.path()))?;
        }
        for queue in self.table.snapshot() {
            if queue.max_physical() > end {
                queue.cut_behind_log(end)?;
            } else if queue.max_offset() > 0 {
                continue;
            }
            if queue.max_offset() == 0 {
                // A topic of which nothing is left must not look as if it were there.
                queue.set_removed();
                self.table.forget(&queue);
                self.table.remove_directory_of(&queue)?;
            } else {
                queue.sync()?;
            }
        }
        if let Some(index) = &self.index {
            index.cut_behind(end, |offset| self.log.store_timestamp_ms(offset))?;
        }
        self.deleted_topics.settle(self.log.min_offset(), end, true)?;
        self.checkpoint.lower_to(surplus.timestamp_ms)
    }
}
