//! Messages a second over the last minute, from samples of a counter.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// Time between samples.
pub const RATE_INTERVAL_MS: u64 = 10_000;

/// Samples of a minute.
const SAMPLES_MAX: usize = 7;

/// Samples (time, count) of one counter.
#[derive(Debug, Default)]
pub(super) struct Rate(Mutex<VecDeque<(u64, u64)>>);

impl Rate {
    pub(super) fn sample(&self, monotonic_ms: u64, count: u64) {
        let mut samples = self.0.lock();
        samples.push_back((monotonic_ms, count));
        if samples.len() > SAMPLES_MAX {
            samples.pop_front();
        }
    }

    /// 0 until there are two samples.
    pub(super) fn per_second(&self) -> f64 {
        let samples = self.0.lock();
        let (Some(first), Some(last)) = (samples.front(), samples.back()) else { return 0.0 };
        let seconds = last.0.saturating_sub(first.0) as f64 / 1_000.0;
        if seconds > 0.0 { last.1.saturating_sub(first.1) as f64 / seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_samples_leave_the_window() {
        let rate = Rate::default();
        rate.sample(0, 0);
        assert_eq!(rate.per_second(), 0.0);
        rate.sample(10_000, 500);
        assert_eq!(rate.per_second(), 50.0);
        for step in 2..20 {
            rate.sample(step * 10_000, 500);
        }
        assert_eq!(rate.per_second(), 0.0);
    }
}
