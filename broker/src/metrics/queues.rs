//! Figures by queue: what sends put into each queue and how long they took, and what was delivered out
//! of the queues of delayed messages (`incQueuePutNums`, `incTopicPutLatency`, `incQueueGetNums` of
//! RocketMQ's `BrokerStatsManager`).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::RwLock;

use super::history::{Figures, History, Window};
use super::stats::Stats;

/// What a history of a queue holds, in this order.
mod counter {
    pub const TIMES: usize = 0;
    pub const MESSAGES: usize = 1;
    pub const BYTES: usize = 2;
    pub const COUNT: usize = 3;
}

/// What a history of a queue's answers holds, in this order.
mod latency {
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

/// The figures that are kept by queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueFigure {
    Messages,
    Bytes,
    LatencyMs,
}

/// The counters of one queue.
#[derive(Debug, Default)]
struct QueueCounters {
    times: AtomicU64,
    messages: AtomicU64,
    bytes: AtomicU64,
    answers: AtomicU64,
    latency_ms: AtomicU64,
    history: History<{ counter::COUNT }>,
    latencies: History<{ latency::COUNT }>,
}

/// The counters of the queues of a topic.
#[derive(Debug, Default)]
pub(super) struct QueueTable(RwLock<HashMap<i32, Arc<QueueCounters>>>);

impl QueueTable {
    /// Counts what was put into a queue, or taken out of it.
    pub(super) fn add(&self, moved: &QueuePuts) {
        let counters = self.counters(moved.queue_id);
        counters.times.fetch_add(moved.puts as u64, Relaxed);
        counters.messages.fetch_add(moved.messages as u64, Relaxed);
        counters.bytes.fetch_add(moved.bytes as u64, Relaxed);
    }

    /// Counts sends that were answered in about the same time.
    pub(super) fn answered(&self, queue_id: i32, puts: usize, latency_ms: u64) {
        let counters = self.counters(queue_id);
        counters.answers.fetch_add(puts as u64, Relaxed);
        counters.latency_ms.fetch_add(latency_ms.saturating_mul(puts as u64), Relaxed);
    }

    /// Takes a sample of every queue.
    pub(super) fn sample(&self, window: Window, monotonic_ms: u64) {
        for counters in self.0.read().values() {
            let mut sums = [0; counter::COUNT];
            sums[counter::TIMES] = counters.times.load(Relaxed);
            sums[counter::MESSAGES] = counters.messages.load(Relaxed);
            sums[counter::BYTES] = counters.bytes.load(Relaxed);
            counters.history.sample(window, monotonic_ms, sums);
            let mut sums = [0; latency::COUNT];
            sums[latency::ANSWERS] = counters.answers.load(Relaxed);
            sums[latency::MS] = counters.latency_ms.load(Relaxed);
            counters.latencies.sample(window, monotonic_ms, sums);
        }
    }

    /// Figures of a queue, if anything was counted for it.
    pub(super) fn figures(&self, queue_id: i32, figure: QueueFigure) -> Option<Stats> {
        let queues = self.0.read();
        let counters = queues.get(&queue_id)?;
        let of = |window| -> Figures {
            match figure {
                QueueFigure::Messages => counters.history.figures(window, counter::MESSAGES),
                QueueFigure::Bytes => counters.history.figures(window, counter::BYTES),
                QueueFigure::LatencyMs => counters.latencies.figures(window, latency::MS),
            }
        };
        Some(Window::ALL.map(of))
    }

    fn counters(&self, queue_id: i32) -> Arc<QueueCounters> {
        if let Some(counters) = self.0.read().get(&queue_id) {
            return counters.clone();
        }
        self.0.write().entry(queue_id).or_default().clone()
    }
}
