//! How fast the log is sent to a slave (`haFlowControlEnable`, `maxHaTransferByteInSecond`).

use std::time::Duration;

/// Bytes that were sent in the second that runs.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    second: u64,
    sent: u64,
}

impl Throttle {
    /// How many of `wanted` bytes may be sent now; if none, how long to wait. `limit` is bytes a
    /// second, none if there is no bound, `now_ms` a monotonic clock.
    pub(super) fn take(
        &mut self,
        limit: Option<u64>,
        wanted: usize,
        now_ms: u64,
    ) -> Result<usize, Duration> {
        let Some(limit) = limit else { return Ok(wanted) };
        let second = now_ms / 1_000;
        if second != self.second {
            *self = Throttle { second, sent: 0 };
        }
        let left = limit.saturating_sub(self.sent);
        if left == 0 {
            return Err(Duration::from_millis(1_000 - now_ms % 1_000));
        }
        let taken = usize::try_from(left).unwrap_or(usize::MAX).min(wanted);
        self.sent += taken as u64;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_second_has_more_than_its_share() {
        let mut throttle = Throttle::default();
        assert_eq!(throttle.take(None, 900, 5_000), Ok(900));
        assert_eq!(throttle.take(Some(1_000), 900, 5_100), Ok(900));
        assert_eq!(throttle.take(Some(1_000), 900, 5_200), Ok(100));
        assert_eq!(throttle.take(Some(1_000), 900, 5_300), Err(Duration::from_millis(700)));
        assert_eq!(throttle.take(Some(1_000), 900, 6_000), Ok(900));
        assert_eq!(throttle.take(Some(100), 900, 6_001), Err(Duration::from_millis(999)));
    }
}
