//! How long the store takes, as `mqadmin brokerStatus` shows it (RocketMQ's `StoreStatsService`).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::histogram::Histogram;

/// Bounds of what an append took, in ms; those of [`SHOWN`] are among them.
const BOUNDS: &[u64] = &[
    0, 1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 75, 100, 150, 200, 300, 500, 700, 1_000, 2_000, 3_000,
    4_000, 5_000, 10_000,
];

/// What RocketMQ shows: the end of each span in ms, and how it is written.
const SHOWN: [(u64, &str); 13] = [
    (0, "<=0ms"),
    (10, "0~10ms"),
    (50, "10~50ms"),
    (100, "50~100ms"),
    (200, "100~200ms"),
    (500, "200~500ms"),
    (1_000, "500ms~1s"),
    (2_000, "1~2s"),
    (3_000, "2~3s"),
    (4_000, "3~4s"),
    (5_000, "4~5s"),
    (10_000, "5~10s"),
    (u64::MAX, "10s~"),
];

/// Times of the store since the start.
#[derive(Debug)]
pub struct StoreTimes {
    puts: Histogram,
    put_max_ms: AtomicU64,
    get_max_ms: AtomicU64,
}

impl Default for StoreTimes {
    fn default() -> Self {
        Self {
            puts: Histogram::new(BOUNDS),
            put_max_ms: AtomicU64::new(0),
            get_max_ms: AtomicU64::new(0),
        }
    }
}

impl StoreTimes {
    /// An append of so many messages took so long.
    pub fn put(&self, messages: usize, took_ms: u64) {
        self.puts.observe_many(took_ms, messages as u64);
        self.put_max_ms.fetch_max(took_ms, Relaxed);
    }

    /// A pull took so long.
    pub fn get(&self, took_ms: u64) {
        self.get_max_ms.fetch_max(took_ms, Relaxed);
    }

    /// The longest append, in ms.
    pub fn put_max_ms(&self) -> u64 {
        self.put_max_ms.load(Relaxed)
    }

    /// The longest pull, in ms; what it waited for messages is left out.
    pub fn get_max_ms(&self) -> u64 {
        self.get_max_ms.load(Relaxed)
    }

    /// How many messages were appended in which time, as RocketMQ writes it.
    pub fn put_distribution(&self) -> String {
        let (_, _, buckets) = self.puts.read();
        let mut buckets = buckets.into_iter().peekable();
        let mut spans = Vec::with_capacity(SHOWN.len());
        for (end, name) in SHOWN {
            let mut count = 0;
            // The last bound is infinite.
            while let Some((_, inside)) = buckets.next_if(|(bound, _)| *bound <= end as f64) {
                count += inside;
            }
            if end == u64::MAX {
                count += buckets.by_ref().map(|(_, inside)| inside).sum::<u64>();
            }
            spans.push(format!("[{name}]:{count}"));
        }
        spans.join(" ")
    }

    /// In which time so many of the messages (0 to 1) were appended, in ms, to the next bound; -1 before
    /// the first.
    pub fn put_percentile_ms(&self, share: f64) -> f64 {
        let (_, count, buckets) = self.puts.read();
        let wanted = count as f64 * share;
        let mut passed = 0;
        for (bound, inside) in buckets {
            passed += inside;
            if passed > 0 && passed as f64 >= wanted {
                return bound.min(self.put_max_ms() as f64);
            }
        }
        -1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_as_rocketmq_shows_them() {
        let times = StoreTimes::default();
        assert_eq!(times.put_percentile_ms(0.99), -1.0);
        times.put(90, 0);
        times.put(5, 10);
        times.put(4, 11);
        times.put(1, 60_000);
        times.get(3);
        times.get(2);
        assert_eq!(
            times.put_distribution(),
            "[<=0ms]:90 [0~10ms]:5 [10~50ms]:4 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 \
             [500ms~1s]:0 [1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:1"
        );
        assert_eq!(times.put_percentile_ms(0.5), 0.0);
        assert_eq!(times.put_percentile_ms(0.99), 15.0);
        assert_eq!(times.put_percentile_ms(0.999), 60_000.0);
        assert_eq!((times.put_max_ms(), times.get_max_ms()), (60_000, 3));
    }
}
