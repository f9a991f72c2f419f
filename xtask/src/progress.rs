//! Progress for a person who waits: what is being done and how long it took.

use std::sync::LazyLock;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a step may be silent before it says that it still works.
const REMINDER: Duration = Duration::from_secs(30);

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Prints one line after the time since the first line.
pub fn say(what: impl AsRef<str>) {
    let elapsed = START.elapsed();
    println!("[{:>4}s] {}", elapsed.as_secs(), what.as_ref());
}

/// Says what begins, does it, and says how long it took, with a reminder now and
/// then in between. Of a failure the error tells, not a second line.
pub fn step<T>(what: &str, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    say(format!("{what} ..."));
    let begin = Instant::now();
    let result = thread::scope(|scope| {
        // Dropped at the end of the work, which ends the reminders.
        let (_end, ended) = mpsc::channel::<()>();
        scope.spawn(move || {
            while ended.recv_timeout(REMINDER) == Err(RecvTimeoutError::Timeout) {
                say(format!("{what}: still at it after {}", seconds(begin.elapsed())));
            }
        });
        work()
    })?;
    say(format!("{what}: done in {}", seconds(begin.elapsed())));
    Ok(result)
}

/// A duration to a tenth of a second below a minute, to a second above.
pub fn seconds(duration: Duration) -> String {
    if duration < Duration::from_secs(60) {
        format!("{:.1} s", duration.as_secs_f64())
    } else {
        format!("{} min {:02} s", duration.as_secs() / 60, duration.as_secs() % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        assert_eq!(seconds(Duration::from_millis(1_249)), "1.2 s");
        assert_eq!(seconds(Duration::from_secs(605)), "10 min 05 s");
    }
}
