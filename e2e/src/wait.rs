//! Waiting for a condition, with a deadline and the last reason why it did not hold.

use std::fmt::Display;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

const POLL: Duration = Duration::from_millis(10);

/// Calls `probe` until it gives a value; after `limit` the error names `what` and the last reason.
pub fn until<T, E: Display>(
    what: &str,
    limit: Duration,
    mut probe: impl FnMut() -> Result<T, E>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        match probe() {
            Ok(value) => return Ok(value),
            Err(reason) if Instant::now() >= deadline => {
                bail!("{what}: not within {limit:?}: {reason}")
            }
            Err(_) => sleep(POLL),
        }
    }
}
