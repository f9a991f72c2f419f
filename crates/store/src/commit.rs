//! From the write buffer to the log: `transientStorePoolEnable` (RocketMQ's
//! `CommitRealTimeService`).
//!
//! Owns when the buffer is committed, and what follows: the committed records are dispatched, as
//! recovery does it, from the log. Readers, queues and the flusher see committed bytes alone. What
//! was acknowledged and is still in the buffer is lost when the process dies.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rocketmq_protocol::message::record::{self, LogItem, MessageRecord};

use crate::background::Parts;
use crate::commit_log::Appender;
use crate::dispatch::{Arrival, Dispatch};
use crate::error::{AppendError, Refusal};
use crate::index::NewEntry;

/// Pages in which RocketMQ counts what is not committed yet.
const PAGE_BYTES: u64 = 4096;

#[derive(Debug, Default)]
struct State {
    nudged: bool,
    stopped: bool,
}

/// The one that commits from time to time.
#[derive(Debug, Default)]
pub(crate) struct Committer {
    state: Mutex<State>,
    wake: Condvar,
}

impl Committer {
    /// Wakes the committer before its interval is over.
    pub(crate) fn nudge(&self) {
        self.state.lock().nudged = true;
        self.wake.notify_one();
    }

    /// Ends [`Committer::run`].
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.wake.notify_one();
    }

    /// Commits until stopped; at once returns if there is no buffer.
    pub(crate) fn run(&self, parts: &Parts) {
        let config = &parts.config;
        if !config.transient_store_pool_enable {
            return;
        }
        let interval = Duration::from_millis(config.commit_interval_commit_log_ms.max(1));
        let thorough = Duration::from_millis(config.commit_commit_log_thorough_interval_ms);
        let mut last_commit = Instant::now();
        loop {
            let mut state = self.state.lock();
            let until = Instant::now() + interval;
            while !state.nudged
                && !state.stopped
                && !self.wake.wait_until(&mut state, until).timed_out()
            {}
            if state.stopped {
                return;
            }
            state.nudged = false;
            drop(state);
            let least_pages = match last_commit.elapsed() >= thorough {
                true => 0,
                false => config.commit_commit_log_least_pages,
            };
            // A failure refuses appends and is logged where it arises.
            if parts.commit(least_pages).is_ok_and(|committed| committed) {
                last_commit = Instant::now();
                if !config.flush_commit_log_timed {
                    parts.flusher.nudge();
                }
            }
        }
    }
}

impl Parts {
    /// Commits the buffer if at least so many pages wait in it, dispatches what was committed and
    /// tells of the arrivals. Says whether anything was committed.
    ///
    /// # Errors
    /// What the operating system says; appends are refused until it works.
    pub(crate) fn commit(&self, least_pages: u64) -> Result<bool, AppendError> {
        if !self.config.transient_store_pool_enable {
            return Ok(false);
        }
        let mut arrivals = Vec::new();
        let mut appender = self.log.lock();
        let bytes = self.log.uncommitted_bytes(&appender);
        if bytes == 0 || bytes / PAGE_BYTES < least_pages {
            return Ok(false);
        }
        self.commit_locked(&mut appender)?;
        let turn = self.dispatcher.turn();
        drop(appender);
        self.dispatch_committed(&turn, &mut arrivals);
        drop(turn);
        self.tell(&arrivals);
        Ok(true)
    }

    /// Commits everything, for the holder of the append lock, who dispatches it.
    ///
    /// # Errors
    /// As [`Parts::commit`].
    pub(crate) fn commit_locked(&self, appender: &mut Appender) -> Result<(), AppendError> {
        if let Err(error) = self.log.commit(appender, &self.writability) {
            self.settle_failed_write(appender, &error);
            if self.writability.set_commit(Some(Refusal::Commit(error.to_string()))) {
                tracing::error!(%error, "write buffer cannot be committed");
            }
            return Err(error);
        }
        if self.writability.set_commit(None) {
            tracing::info!("write buffer can be committed again");
        }
        Ok(())
    }

    /// See [`crate::flush::Flusher::sync_wiped`].
    pub(crate) fn settle_failed_write(&self, appender: &Appender, error: &AppendError) {
        if matches!(error, AppendError::Write(_)) {
            self.flusher.sync_wiped(self, appender);
        }
    }

    /// Dispatches records that are written and not dispatched yet.
    pub(crate) fn dispatch_committed(
        &self,
        turn: &MutexGuard<'_, ()>,
        arrivals: &mut Vec<Arrival>,
    ) {
        // What recovery left lies in front of what is dispatched.
        let mut position = self.dispatcher.dispatched().0 as u64;
        let end = self.log.written().0 as u64;
        while position < end {
            let Some(file) = self.log.files.find(position) else { break };
            while let Some(bytes) = file.published_from(position)
                && let Ok(LogItem::Record(record)) = record::decode_log_item(bytes)
            {
                self.dispatch_record(&record, arrivals);
                position += record.size as u64;
            }
            // A blank, or the end of what is written.
            if file.end_offset() > end {
                break;
            }
            position = file.end_offset();
        }
        self.dispatcher.publish(turn, end as i64);
    }

    /// Dispatches a record; the caller holds the dispatcher's turn.
    pub(crate) fn dispatch_record(&self, record: &MessageRecord<'_>, arrivals: &mut Vec<Arrival>) {
        self.add_to_index(NewEntry::of_record(record));
        let dispatch = Dispatch::of_record(record, &self.config.delay_levels_ms);
        if !dispatch.has_entry() {
            return;
        }
        let (topic, queue_id) = (record.topic, record.queue_id);
        let queue = self.table.find_or_make(topic, queue_id, dispatch.format());
        if let Err(error) = self.dispatcher.dispatch(&queue, &dispatch) {
            // The entry is in memory and readable; the next tick writes it or finds out again.
            let refusal = Refusal::ConsumeQueue(error.to_string());
            self.writability.set_consume_queue(Some(refusal));
        }
        arrivals.push(dispatch.arrival(&queue));
    }

    /// Wakes the committer when enough waits in the buffer (`wakeCommitWhenPutMessage`).
    pub(crate) fn nudge_committer(&self, uncommitted_bytes: u64) {
        let least_bytes = self.config.commit_commit_log_least_pages.max(1) * PAGE_BYTES;
        if self.config.wake_commit_when_put_message && uncommitted_bytes >= least_bytes {
            self.committer.nudge();
        }
    }
}
