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
