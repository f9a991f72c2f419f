//! A histogram over whole numbers that takes many equal observations at once.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts of observations at or below each bound, and of all.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One more than bounds: the last counts what is above all of them.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// An empty histogram with ascending bounds.
    pub fn new(bounds: &'static [u64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum: AtomicU64::new(0) }
    }

    /// Takes in `times` observations of `value`.
    pub fn observe_many(&self, value: u64, times: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(times, Relaxed);
        self.sum.fetch_add(value.saturating_mul(times), Relaxed);
    }

    /// Sum, count, and for each bound (the last is infinite) how many fell in its bucket alone.
    pub fn read(&self) -> (f64, u64, Vec<(f64, u64)>) {
        let counts: Vec<u64> = self.counts.iter().map(|count| count.load(Relaxed)).collect();
        let bounds = self.bounds.iter().map(|bound| *bound as f64).chain([f64::MAX]);
        let buckets = bounds.zip(counts.iter().copied()).collect();
        (self.sum.load(Relaxed) as f64, counts.iter().sum(), buckets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_own_bucket() {
        let histogram = Histogram::new(&[1, 10]);
        for (value, times) in [(0, 1), (1, 2), (2, 3), (10, 4), (11, 5)] {
            histogram.observe_many(value, times);
        }
        let (sum, count, buckets) = histogram.read();
        assert_eq!(count, 15);
        assert_eq!(sum, f64::from(2 + 2 * 3 + 10 * 4 + 11 * 5));
        assert_eq!(buckets.iter().map(|bucket| bucket.1).collect::<Vec<_>>(), [3, 7, 5]);
    }
}
