//! Time, by argument: the system's clock, and one that tests turn by hand.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where the store gets its time from.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Wall-clock time in ms since the epoch. May step back.
    fn now_ms(&self) -> i64;

    /// Hour of the day, 0 to 23, in the local time zone.
    fn local_hour(&self) -> u8;

    /// What the local time zone is ahead of UTC now, in ms. UTC unless said otherwise.
    fn local_offset_ms(&self) -> i64 {
        0
    }
}

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
    }

    fn local_hour(&self) -> u8 {
        u8::try_from(jiff::Zoned::now().hour()).unwrap_or(0)
    }

    fn local_offset_ms(&self) -> i64 {
        i64::from(jiff::Zoned::now().offset().seconds()) * 1_000
    }
}

/// A clock that moves only when told to, in UTC.
#[derive(Debug, Default)]
pub struct ManualClock {
    now_ms: AtomicI64,
}

impl ManualClock {
    /// A clock that stands at `now_ms`.
    pub fn new(now_ms: i64) -> ManualClock {
        ManualClock { now_ms: AtomicI64::new(now_ms) }
    }

    /// Sets the time.
    pub fn set(&self, now_ms: i64) {
        self.now_ms.store(now_ms, Ordering::SeqCst);
    }

    /// Moves the time, back if negative.
    pub fn advance(&self, by_ms: i64) {
        self.now_ms.fetch_add(by_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn local_hour(&self) -> u8 {
        // A remainder of 24 fits.
        (self.now_ms().div_euclid(3_600_000)).rem_euclid(24) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_is_past_the_making_of_this_test() {
        assert!(SystemClock.now_ms() > 1_700_000_000_000);
        assert!(SystemClock.local_hour() < 24);
        assert!(SystemClock.local_offset_ms().abs() <= 26 * 3_600_000);
    }

    #[test]
    fn the_manual_clock_stands_until_moved() {
        let clock = ManualClock::new(3_600_000 * 5);
        assert_eq!((clock.now_ms(), clock.local_hour()), (18_000_000, 5));
        clock.advance(-3_600_000 * 6);
        assert_eq!(clock.local_hour(), 23);
    }
}
