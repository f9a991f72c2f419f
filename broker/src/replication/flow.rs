//! Bytes a second over a link, for people (RocketMQ's `FlowMonitor`).

use parking_lot::Mutex;

/// Counts bytes, and knows how many there were in the last whole second.
#[derive(Debug, Default)]
pub(super) struct Flow(Mutex<Seconds>);

#[derive(Debug, Default)]
struct Seconds {
    /// The second that is counted, since the epoch.
    now: i64,
    /// Bytes in it.
    bytes: i64,
    /// Bytes in the one before.
    before: i64,
}

impl Flow {
    pub(super) fn add(&self, bytes: usize, now_ms: i64) {
        let mut seconds = self.0.lock();
        seconds.turn(now_ms);
        seconds.bytes = seconds.bytes.saturating_add(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Bytes in the last whole second.
    pub(super) fn per_second(&self, now_ms: i64) -> i64 {
        let mut seconds = self.0.lock();
        seconds.turn(now_ms);
        seconds.before
    }
}

impl Seconds {
    fn turn(&mut self, now_ms: i64) {
        let second = now_ms.div_euclid(1_000);
        if second == self.now {
            return;
        }
        self.before = if second == self.now.saturating_add(1) { self.bytes } else { 0 };
        self.bytes = 0;
        self.now = second;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_whole_second_counts() {
        let flow = Flow::default();
        assert_eq!(flow.per_second(5_000), 0);
        flow.add(10, 5_100);
        flow.add(20, 5_900);
        assert_eq!(flow.per_second(5_999), 0, "this second is not over");
        assert_eq!(flow.per_second(6_000), 30);
        flow.add(1, 6_500);
        assert_eq!(flow.per_second(6_999), 30);
        assert_eq!(flow.per_second(7_000), 1);
        assert_eq!(flow.per_second(9_000), 0);
        flow.add(7, 9_000);
        assert_eq!(flow.per_second(4_000), 0, "the clock was set back");
    }
}
