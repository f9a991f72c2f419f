//! Figures of the last minute, hour and day from samples of running counters (RocketMQ's
//! `StatsItem`).
//!
//! The counters only grow; who counts knows nothing of samples. A window is what its newest sample
//! has more than its oldest.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// Time between two samples of the minute.
pub const RATE_INTERVAL_MS: u64 = 10_000;

/// A span of time that figures are kept for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// Sampled every 10 s.
    Minute,
    /// Sampled every 10 min.
    Hour,
    /// Sampled every hour.
    Day,
}

impl Window {
    /// From short to long.
    pub const ALL: [Window; 3] = [Window::Minute, Window::Hour, Window::Day];

    /// Time between two samples.
    pub fn interval_ms(self) -> u64 {
        match self {
            Window::Minute => RATE_INTERVAL_MS,
            Window::Hour => 600_000,
            Window::Day => 3_600_000,
        }
    }

    /// Samples that bound it.
    fn samples_max(self) -> usize {
        match self {
            Window::Minute | Window::Hour => 7,
            Window::Day => 25,
        }
    }
}

/// Figures of one counter in one window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// How much was counted.
    pub sum: u64,
    /// That a second.
    pub per_second: f64,
    /// That a time something was counted.
    pub per_time: f64,
}

#[derive(Clone, Copy, Debug)]
struct Sample<const N: usize> {
    at_ms: u64,
    sums: [u64; N],
}

/// Samples of `N` counters that belong together. By convention counter 0 says how many times
/// something was counted.
#[derive(Debug)]
pub(super) struct History<const N: usize>(Mutex<[VecDeque<Sample<N>>; 3]>);

impl<const N: usize> Default for History<N> {
    fn default() -> Self {
        Self(Mutex::new(std::array::from_fn(|_| VecDeque::new())))
    }
}

impl<const N: usize> History<N> {
    /// Takes in what the counters say now. As in RocketMQ, before the first sample of a window
    /// nothing was counted.
    pub(super) fn sample(&self, window: Window, monotonic_ms: u64, sums: [u64; N]) {
        let samples = &mut self.0.lock()[window as usize];
        if samples.is_empty() {
            let at_ms = monotonic_ms.saturating_sub(window.interval_ms());
            samples.push_back(Sample { at_ms, sums: [0; N] });
        }
        samples.push_back(Sample { at_ms: monotonic_ms, sums });
        if samples.len() > window.samples_max() {
            samples.pop_front();
        }
    }

    /// Figures of a counter; 0 before the first sample.
    pub(super) fn figures(&self, window: Window, counter: usize) -> Figures {
        let samples = &self.0.lock()[window as usize];
        let (Some(first), Some(last)) = (samples.front(), samples.back()) else {
            return Figures::default();
        };
        let grown = |index: usize| last.sums[index].saturating_sub(first.sums[index]);
        let (sum, times) = (grown(counter), grown(0));
        let seconds = last.at_ms.saturating_sub(first.at_ms) as f64 / 1_000.0;
        let ratio = |by: f64| if by > 0.0 { sum as f64 / by } else { 0.0 };
        Figures { sum, per_second: ratio(seconds), per_time: ratio(times as f64) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sample_counts_from_one_interval_before() {
        let history = History::<2>::default();
        assert_eq!(history.figures(Window::Minute, 1), Figures::default());
        history.sample(Window::Minute, 25_000, [5, 500]);
        let figures = history.figures(Window::Minute, 1);
        assert_eq!(figures, Figures { sum: 500, per_second: 50.0, per_time: 100.0 });
        assert_eq!(history.figures(Window::Hour, 1), Figures::default());
    }

    #[test]
    fn old_samples_leave_the_window() {
        let history = History::<1>::default();
        for step in 1..20 {
            history.sample(Window::Minute, step * 10_000, [500]);
            let sum = if step < 7 { 500 } else { 0 };
            assert_eq!(history.figures(Window::Minute, 0).sum, sum, "after {step} samples");
        }
        for hour in 1..=30 {
            history.sample(Window::Day, hour * 3_600_000, [hour]);
        }
        let day = history.figures(Window::Day, 0);
        assert_eq!(day.sum, 24);
        assert!((day.per_second - 1.0 / 3_600.0).abs() < 1e-9);
    }
}
