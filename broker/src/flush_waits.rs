//! Waits for the group commit, and for slaves, with their time-outs (`syncFlushTimeout`,
//! `slaveTimeout`).
//!
//! A wait is ended by who is waited for or by its time-out, whichever comes first. What its end means to a
//! producer is the business of `handler::send`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocketmq_protocol::code::ResponseCode;
use rocketmq_store::DurableOutcome;

/// How a wait ended.
#[derive(Debug)]
pub enum WaitEnd {
    /// The flusher said so.
    Flushed(DurableOutcome),
    /// Enough slaves have it.
    Copied,
    /// Nothing was heard in time.
    TimedOut,
    /// The broker is no master any more: what was stored may go. Sends are answered with this code.
    SteppedDown(ResponseCode),
}

/// What is called, once, at the end of a wait. It must not block.
pub type OnEnd = Box<dyn FnOnce(WaitEnd) + Send>;

/// A wait that the flusher and the time-out both want to end; the first one does.
#[derive(Clone)]
pub struct Wait(Arc<Mutex<Option<OnEnd>>>);

impl Wait {
    /// Ends the wait, unless it has ended.
    pub fn end(&self, end: WaitEnd) {
        let on_end = self.0.lock().take();
        if let Some(on_end) = on_end {
            on_end(end);
        }
    }

    /// Whether it has.
    pub fn has_ended(&self) -> bool {
        self.0.lock().is_none()
    }
}

/// The waits of one broker. All have the same time-out, so they end in the order they came and a
/// queue is enough.
pub struct FlushWaits {
    waits: Mutex<VecDeque<(Instant, Wait)>>,
    timeout: Duration,
}

impl FlushWaits {
    /// No waits; each may last `timeout`.
    pub fn new(timeout: Duration) -> FlushWaits {
        FlushWaits { waits: Mutex::default(), timeout }
    }

    /// Begins a wait.
    pub fn add(&self, on_end: OnEnd) -> Wait {
        let wait = Wait(Arc::new(Mutex::new(Some(on_end))));
        let mut waits = self.waits.lock();
        // Those that ended in time are dropped from the front, so that what is kept is bounded by
        // the oldest one that still waits.
        while waits.front().is_some_and(|(_, front)| front.has_ended()) {
            waits.pop_front();
        }
        waits.push_back((Instant::now() + self.timeout, wait.clone()));
        wait
    }

    /// Ends all waits: the broker is no master any more.
    pub fn end_all(&self, code: ResponseCode) {
        let waits = std::mem::take(&mut *self.waits.lock());
        for (_, wait) in waits {
            wait.end(WaitEnd::SteppedDown(code));
        }
    }

    /// Ends the waits that are over by `now`.
    pub fn end_expired(&self, now: Instant) {
        loop {
            let mut waits = self.waits.lock();
            let is_over = waits.front().is_some_and(|(end, wait)| *end <= now || wait.has_ended());
            let Some((_, wait)) = waits.pop_front_if(|_| is_over) else { return };
            drop(waits);
            wait.end(WaitEnd::TimedOut);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_end_counts_and_the_rest_does_nothing() {
        let waits = FlushWaits::new(Duration::from_secs(5));
        let ends: Arc<Mutex<Vec<(u8, bool)>>> = Arc::default();
        let wait = |number: u8| {
            let ends = Arc::clone(&ends);
            waits.add(Box::new(move |end| {
                ends.lock().push((number, matches!(end, WaitEnd::TimedOut)));
            }))
        };
        let (first, second, third) = (wait(1), wait(2), wait(3));
        second.end(WaitEnd::Flushed(DurableOutcome::Durable));
        waits.end_expired(Instant::now());
        assert_eq!(*ends.lock(), [(2, false)]);
        waits.end_expired(Instant::now() + Duration::from_secs(6));
        assert_eq!(*ends.lock(), [(2, false), (1, true), (3, true)]);
        for ended in [first, second, third] {
            ended.end(WaitEnd::TimedOut);
        }
        assert_eq!(ends.lock().len(), 3);
        assert!(waits.waits.lock().is_empty());
    }
}
