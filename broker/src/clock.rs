//! The clocks of the broker: wall time for what clients and files see, monotonic time for expiry,
//! which a step of the system clock must not disturb, and one that goes on while the machine sleeps for
//! what others rely on.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Wall clock, milliseconds since 1970.
pub fn now_ms() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
}

/// Milliseconds since this process first asked; never goes back.
pub fn monotonic_ms() -> u64 {
    u64::try_from(START.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds since the machine started, with the time in which it or this process stood still; never
/// goes back.
pub fn boot_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    // Neither is negative.
    now.tv_sec.unsigned_abs() * 1_000 + now.tv_nsec.unsigned_abs() / 1_000_000
}

/// A time in UTC as RocketMQ writes it, `yyyy-MM-dd#HH:mm:ss:SSS`.
pub fn time_text(ms_since_epoch: i64) -> String {
    const DAY_MS: i64 = 86_400_000;
    let (days, ms) = (ms_since_epoch.div_euclid(DAY_MS), ms_since_epoch.rem_euclid(DAY_MS));
    let (year, month, day) = date(days);
    let (hour, minute) = (ms / 3_600_000, ms / 60_000 % 60);
    let (second, milli) = (ms / 1_000 % 60, ms % 1_000);
    format!("{year:04}-{month:02}-{day:02}#{hour:02}:{minute:02}:{second:02}:{milli:03}")
}

/// The Gregorian date so many days after 1970-01-01.
fn date(days: i64) -> (i64, i64, i64) {
    // Years that begin in March have their leap day at the end; the calendar repeats every 400 years.
    const DAYS_OF_400_YEARS: i64 = 146_097;
    const FROM_MARCH_OF_YEAR_0: i64 = 719_468;
    let days = days + FROM_MARCH_OF_YEAR_0;
    let (era, day) = (days.div_euclid(DAYS_OF_400_YEARS), days.rem_euclid(DAYS_OF_400_YEARS));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    // Five months from March on, and again from August on, have 153 days.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + carry, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_rocketmq_writes_them() {
        for (ms, text) in [
            (0, "1970-01-01#00:00:00:000"),
            (-1, "1969-12-31#23:59:59:999"),
            (1_700_000_000_005, "2023-11-14#22:13:20:005"),
            (951_782_400_000, "2000-02-29#00:00:00:000"),
            (4_107_542_399_999, "2100-02-28#23:59:59:999"),
            (4_107_542_400_000, "2100-03-01#00:00:00:000"),
        ] {
            assert_eq!(time_text(ms), text);
        }
        // No time that fits is out of range.
        assert!(time_text(i64::MAX).starts_with("292278994-08-17#"));
        assert!(time_text(i64::MIN).ends_with(":192"));
    }
}
