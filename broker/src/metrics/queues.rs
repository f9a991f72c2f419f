//! Figures by queue: what sends put into each queue and how long they took, and what was delivered out
//! of the queues of delayed messages (`incQueuePutNums`, `incTopicPutLatency`, `incQueueGetNums` of
//! RocketMQ's `BrokerStatsManager`).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use foldhash::HashMap;
use parking_lot::RwLock;

use super::history::{History, Window};
use super::stats::Stats;

/// What is counted of messages that move into a queue, or out of it, in this order.
pub(super) mod moved {
    pub const TIMES: usize = 0;
    pub const MESSAGES: usize = 1;
    pub const BYTES: usize = 2;
    pub const COUNT: usize = 3;
}

/// What is counted of answers to sends, in this order.
pub(super) mod latency {
    pub const ANSWERS: usize = 0;
    pub const MS: usize = 1;
    pub const COUNT: usize = 2;
}

/// What so many sends put into one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuePuts {
    /// The queue.
    pub queue_id: i32,
    /// Sends, of which one may bring many messages.
    pub puts: usize,
    /// Messages.
    pub messages: usize,
    /// Their bytes in the log.
    pub bytes: usize,
}

impl QueuePuts {
    /// As [`moved`].
    pub(super) fn moved(&self) -> [u64; moved::COUNT] {
        let mut by = [0; moved::COUNT];
        by[moved::TIMES] = self.puts as u64;
        by[moved::MESSAGES] = self.messages as u64;
        by[moved::BYTES] = self.bytes as u64;
        by
    }

    /// As [`latency`], for sends that were answered in about the same time.
    pub(super) fn answered(&self, latency_ms: u64) -> [u64; latency::COUNT] {
        let mut by = [0; latency::COUNT];
        by[latency::ANSWERS] = self.puts as u64;
        by[latency::MS] = latency_ms.saturating_mul(self.puts as u64);
        by
    }
}

/// Counters by queue, `N` for each.
#[derive(Debug)]
pub(super) struct QueueTable<const N: usize>(RwLock<HashMap<i32, QueueCounters<N>>>);

#[derive(Debug)]
struct QueueCounters<const N: usize> {
    sums: [AtomicU64; N],
    history: History<N>,
}

impl<const N: usize> QueueCounters<N> {
    fn add(&self, by: [u64; N]) {
        for (sum, by) in self.sums.iter().zip(by) {
            sum.fetch_add(by, Relaxed);
        }
    }
}

impl<const N: usize> Default for QueueTable<N> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<const N: usize> QueueTable<N> {
    /// Counts.
    pub(super) fn add(&self, queue_id: i32, by: [u64; N]) {
        if let Some(counters) = self.0.read().get(&queue_id) {
            return counters.add(by);
        }
        let made = || QueueCounters {
            sums: std::array::from_fn(|_| AtomicU64::new(0)),
            history: History::default(),
        };
        self.0.write().entry(queue_id).or_insert_with(made).add(by);
    }

    /// Takes a sample of every queue.
    pub(super) fn sample(&self, window: Window, monotonic_ms: u64) {
        for counters in self.0.read().values() {
            let sums = counters.sums.each_ref().map(|sum| sum.load(Relaxed));
            counters.history.sample(window, monotonic_ms, sums);
        }
    }

    /// Figures of a queue, if anything was counted for it.
    pub(super) fn figures(&self, queue_id: i32, counter: usize) -> Option<Stats> {
        let queues = self.0.read();
        let counters = queues.get(&queue_id)?;
        Some(Window::ALL.map(|window| counters.history.figures(window, counter)))
    }
}
