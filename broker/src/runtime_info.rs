//! The figures of GET_BROKER_RUNTIME_INFO that need a memory: rates over 10 s, 60 s and 600 s,
//! and totals at midnight (StoreStatsService, BrokerStats).

mod table;

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;

use crate::metrics::{Totals, UserTotals};

pub use table::table;

/// Time between samples; the windows are counted in samples.
pub const SAMPLE_INTERVAL_MS: u64 = 1_000;

/// Length of the longest window, in samples.
const SAMPLES_MAX: usize = 601;

const DAY_MS: i64 = 86_400_000;

/// The totals at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    at_ms: u64,
    put: u64,
    found: u64,
    miss: u64,
    transferred: u64,
}

impl Sample {
    /// Reads the totals now.
    pub fn take(totals: &Totals, monotonic_ms: u64) -> Self {
        Self {
            at_ms: monotonic_ms,
            put: totals.put.load(Relaxed),
            found: totals.get_found.load(Relaxed),
            miss: totals.get_miss.load(Relaxed),
            transferred: totals.get_transferred.load(Relaxed),
        }
    }
}

/// Which rate is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Messages stored.
    Put,
    /// Pulls that found messages.
    GetFound,
    /// Pulls that found nothing.
    GetMiss,
    /// All pulls.
    GetTotal,
    /// Messages handed out.
    GetTransferred,
}

/// Totals at the last two midnights (UTC), without RocketMQ's own topics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mornings {
    /// Before yesterday.
    pub yesterday: UserTotals,
    /// Before today.
    pub today: UserTotals,
}

#[derive(Debug, Default)]
struct Inner {
    samples: VecDeque<Sample>,
    mornings: Mornings,
    day: Option<i64>,
}

/// Samples of the last ten minutes.
#[derive(Debug, Default)]
pub struct RuntimeStats(Mutex<Inner>);

impl RuntimeStats {
    /// Adds a sample; called once a second. `user_totals` is asked at midnight alone.
    pub fn sample(
        &self,
        sample: Sample,
        wall_clock_ms: i64,
        user_totals: impl FnOnce() -> UserTotals,
    ) {
        let mut inner = self.0.lock();
        let day = wall_clock_ms.div_euclid(DAY_MS);
        if inner.day.is_some_and(|last| last != day) {
            inner.mornings = Mornings { yesterday: inner.mornings.today, today: user_totals() };
        }
        inner.day = Some(day);
        inner.samples.push_back(sample);
        while inner.samples.len() > SAMPLES_MAX {
            inner.samples.pop_front();
        }
    }

    /// Averages a second over the last 10, 60 and 600 samples, as RocketMQ's tools read them:
    /// decimals with a blank between, a window that is not full yet is left out but its blank
    /// stays, and the first is always there.
    pub fn rates(&self, rate: Rate) -> String {
        let inner = self.0.lock();
        let window = |samples| average(&inner.samples, samples, rate).map(|tps| format!("{tps:?}"));
        // RocketMQ leaves none of this one out.
        let empty = if rate == Rate::GetTotal { "0.0" } else { "" };
        let or_empty = |figure: Option<String>| figure.unwrap_or_else(|| empty.to_owned());
        let ten = window(10).unwrap_or_else(|| "0.0".to_owned());
        format!("{ten} {} {}", or_empty(window(60)), or_empty(window(600)))
    }

    /// Totals at the last two midnights.
    pub fn mornings(&self) -> Mornings {
        self.0.lock().mornings
    }
}

fn average(samples: &VecDeque<Sample>, window: usize, rate: Rate) -> Option<f64> {
    let last = samples.back()?;
    let first = samples.get(samples.len().checked_sub(window + 1)?)?;
    let count = |sample: &Sample| match rate {
        Rate::Put => sample.put,
        Rate::GetFound => sample.found,
        Rate::GetMiss => sample.miss,
        Rate::GetTotal => sample.found + sample.miss,
        Rate::GetTransferred => sample.transferred,
    };
    let seconds = last.at_ms.saturating_sub(first.at_ms) as f64 / 1_000.0;
    (seconds > 0.0).then(|| count(last).saturating_sub(count(first)) as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(second: u64, put: u64) -> Sample {
        Sample { at_ms: second * 1_000, put, ..Sample::default() }
    }

    #[test]
    fn windows_fill_one_after_the_other() {
        let stats = RuntimeStats::default();
        assert_eq!(stats.rates(Rate::Put), "0.0  ");
        assert_eq!(stats.rates(Rate::GetTotal), "0.0 0.0 0.0");
        for second in 0..=10 {
            stats.sample(sample(second, second * 100), 0, UserTotals::default);
        }
        assert_eq!(stats.rates(Rate::Put), "100.0  ");
        for second in 11..=700 {
            stats.sample(sample(second, 1_000), 0, UserTotals::default);
        }
        assert_eq!(stats.rates(Rate::Put), "0.0 0.0 0.0");
        assert_eq!(stats.0.lock().samples.len(), SAMPLES_MAX);
        assert_eq!(stats.rates(Rate::GetTotal), "0.0 0.0 0.0");
    }

    #[test]
    fn midnight_moves_the_totals() {
        let stats = RuntimeStats::default();
        let total = |put| move || UserTotals { put, get: 2 * put };
        stats.sample(sample(0, 5), DAY_MS - 1, total(5));
        assert_eq!(stats.mornings(), Mornings::default());
        stats.sample(sample(1, 7), DAY_MS, total(7));
        stats.sample(sample(2, 9), 2 * DAY_MS, total(9));
        let mornings = stats.mornings();
        assert_eq!((mornings.yesterday.put, mornings.today.put), (7, 9));
        assert_eq!((mornings.yesterday.get, mornings.today.get), (14, 18));
    }
}
