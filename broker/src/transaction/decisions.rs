//! Decisions on their way into the op topic, and what they are about.
//!
//! A decision waits in memory until enough of them fill an op message (`transactionOpMsgMaxSize`) or the
//! first one has waited long enough (`transactionOpBatchInterval`), as with RocketMQ's
//! `TransactionalOpBatchService`. What a crash takes away is asked about again. Until the check service
//! has passed a decided half message, its decision is known here too: no copy of it is made any more.
//!
//! A decision may name a half message that was put back since, because the producer took long. It then
//! decides the newest copy as well, so that nobody is asked for it again.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::round::PutBack;

/// Waiting decisions beyond which the one who decides writes them itself
/// (`MessageQueueOpContext`'s queue).
const WAITING_MAX: usize = 20_000;
/// Decided half messages and copies that are remembered. For what is beyond, a check too many is sent.
const KNOWN_MAX: usize = 1 << 20;

/// Decisions of all producers. See the module.
#[derive(Debug, Default)]
pub struct Decisions {
    inner: Mutex<Inner>,
    /// Tells the check service that there is something to do before its time.
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    /// Queue offsets of decided half messages, for the op topic.
    waiting: VecDeque<i64>,
    /// Bytes that they take in the bodies of op messages.
    waiting_bytes: usize,
    waiting_since: Option<Instant>,
    /// Decided half messages that the check service has not passed.
    decided: BTreeSet<i64>,
    /// What the check service has passed.
    settled: i64,
    /// The newest copy of a half message that was put back, by each of its earlier places.
    newest: HashMap<i64, i64>,
    /// The earlier places, by the newest.
    earlier: BTreeMap<i64, Vec<i64>>,
    /// An op message is full, or the service is to end.
    is_urgent: bool,
    is_ended: bool,
}

/// Whether the check service goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The time is over, or an op message is full.
    Work,
    /// It is to end.
    End,
}

impl Decisions {
    /// Notes that the half message is decided. `op_bytes_max` is the length of an op message's body at
    /// which it is written without delay. True if so many wait that the caller has to
    /// [write](Decisions::write) them.
    pub fn add(&self, half_offset: i64, op_bytes_max: usize) -> bool {
        let mut inner = self.inner.lock();
        let copy = inner.newest.get(&half_offset).copied();
        for queue_offset in std::iter::once(half_offset).chain(copy) {
            inner.waiting.push_back(queue_offset);
            inner.waiting_bytes += bytes_of(queue_offset);
            if queue_offset >= inner.settled && inner.decided.len() < KNOWN_MAX {
                inner.decided.insert(queue_offset);
            }
        }
        let is_first = inner.waiting_since.is_none();
        if is_first {
            inner.waiting_since = Some(Instant::now());
        }
        if inner.waiting_bytes >= op_bytes_max {
            inner.is_urgent = true;
        }
        if is_first || inner.is_urgent {
            self.wake.notify_one();
        }
        inner.waiting.len() > WAITING_MAX
    }

    /// Whether the half message is decided and the check service has not passed it yet.
    pub fn is_decided(&self, half_offset: i64) -> bool {
        self.inner.lock().decided.contains(&half_offset)
    }

    /// How many are not in the op topic yet.
    pub fn waiting(&self) -> usize {
        self.inner.lock().waiting.len()
    }

    /// Whether some are due for the op topic.
    pub fn is_due(&self, interval: Duration) -> bool {
        let inner = self.inner.lock();
        inner.is_urgent || inner.waiting_since.is_some_and(|since| since.elapsed() >= interval)
    }

    /// Writes all that wait, in op messages with bodies of up to `op_bytes_max` bytes; one holds at least
    /// one offset. What `append` cannot store goes on waiting.
    ///
    /// # Errors
    /// Those of `append`.
    pub fn write<E>(
        &self,
        op_bytes_max: usize,
        mut append: impl FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        // Held meanwhile, so that nobody takes the same decisions and their order is kept.
        let mut inner = self.inner.lock();
        inner.is_urgent = false;
        let mut body = String::new();
        while !inner.waiting.is_empty() {
            body.clear();
            let mut taken = 0;
            for queue_offset in &inner.waiting {
                let before = body.len();
                // Writing to a String cannot fail.
                let _ = write!(body, "{queue_offset},");
                if taken > 0 && body.len() > op_bytes_max {
                    body.truncate(before);
                    break;
                }
                taken += 1;
            }
            let bytes = body.len();
            if taken == 1 {
                // RocketMQ 4.9 knows op messages with one offset alone, and no comma in them.
                body.pop();
            }
            append(&body)?;
            inner.waiting.drain(..taken);
            inner.waiting_bytes = inner.waiting_bytes.saturating_sub(bytes);
        }
        inner.waiting_since = None;
        Ok(())
    }

    /// Puts a half message back unless it is decided. `append` stores the copy and gives its queue
    /// offset first; no decision is taken in meanwhile.
    ///
    /// # Errors
    /// Those of `append`.
    pub fn put_back<T, E>(
        &self,
        half_offset: i64,
        append: impl FnOnce() -> Result<(i64, T), E>,
    ) -> Result<Option<T>, E> {
        let mut inner = self.inner.lock();
        if inner.decided.contains(&half_offset) {
            return Ok(None);
        }
        let (copy, stored) = append()?;
        let mut earlier = inner.earlier.remove(&half_offset).unwrap_or_default();
        if inner.newest.len() < KNOWN_MAX {
            earlier.push(half_offset);
        }
        for place in &earlier {
            inner.newest.insert(*place, copy);
        }
        if !earlier.is_empty() {
            inner.earlier.insert(copy, earlier);
        }
        Ok(Some(stored))
    }

    /// Gives a half message up unless it is decided: as [`Decisions::put_back`], without a copy in the
    /// half topic.
    ///
    /// # Errors
    /// Those of `append`.
    pub fn give_up<E>(
        &self,
        half_offset: i64,
        append: impl FnOnce() -> Result<(), E>,
    ) -> Result<PutBack, E> {
        let inner = self.inner.lock();
        if inner.decided.contains(&half_offset) {
            return Ok(PutBack::Decided);
        }
        append()?;
        drop(inner);
        Ok(PutBack::Done)
    }

    /// The check service has passed everything in front of this half message: it is forgotten.
    pub fn settled(&self, half_offset: i64) {
        let mut inner = self.inner.lock();
        inner.settled = half_offset;
        if inner.decided.first().is_some_and(|first| *first < half_offset) {
            inner.decided = inner.decided.split_off(&half_offset);
        }
        while let Some(first) = inner.earlier.first_entry().filter(|e| *e.key() < half_offset) {
            for place in first.remove() {
                inner.newest.remove(&place);
            }
        }
    }

    /// Waits until an op message is full, the first decision came, the time is over, or the end.
    pub fn wait(&self, time: Duration) -> Woken {
        let mut inner = self.inner.lock();
        if !inner.is_urgent && !inner.is_ended {
            self.wake.wait_for(&mut inner, time);
        }
        if inner.is_ended { Woken::End } else { Woken::Work }
    }

    /// Ends the check service.
    pub fn end(&self) {
        self.inner.lock().is_ended = true;
        self.wake.notify_all();
    }

    /// Whether the check service is to end.
    pub fn is_ended(&self) -> bool {
        self.inner.lock().is_ended
    }
}

/// Bytes of an offset and its comma in the body of an op message.
fn bytes_of(queue_offset: i64) -> usize {
    2 + queue_offset.checked_ilog10().unwrap_or(0) as usize
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn written(decisions: &Decisions, op_bytes_max: usize) -> Vec<String> {
        let mut bodies = Vec::new();
        let done: Result<(), Infallible> = decisions.write(op_bytes_max, |body| {
            bodies.push(body.to_owned());
            Ok(())
        });
        done.unwrap();
        bodies
    }

    fn put_back(decisions: &Decisions, from: i64, to: i64) -> bool {
        let stored: Result<_, Infallible> = decisions.put_back(from, || Ok((to, ())));
        stored.unwrap().is_some()
    }

    #[test]
    fn bodies_are_as_long_as_allowed_and_never_empty() {
        let decisions = Decisions::default();
        assert!(written(&decisions, 8).is_empty());
        for queue_offset in [1, 22, 333, 4444, 55_555_555_555] {
            assert!(!decisions.add(queue_offset, 4096));
        }
        assert_eq!(written(&decisions, 9), ["1,22,333,", "4444", "55555555555"]);
        assert_eq!(decisions.waiting(), 0);
        assert!(written(&decisions, 9).is_empty());
    }

    #[test]
    fn a_full_op_message_and_an_old_decision_are_due() {
        let decisions = Decisions::default();
        let hour = Duration::from_secs(3600);
        assert!(!decisions.is_due(Duration::ZERO), "nothing waits");
        decisions.add(7, 20);
        assert!(!decisions.is_due(hour) && decisions.is_due(Duration::ZERO));
        for queue_offset in 0..9 {
            decisions.add(queue_offset, 20);
        }
        assert!(decisions.is_due(hour));
        assert_eq!(decisions.wait(hour), Woken::Work);
        assert_eq!(decisions.inner.lock().waiting_bytes, 20);
        written(&decisions, 100);
        assert!(!decisions.is_due(hour));
        assert_eq!(decisions.inner.lock().waiting_bytes, 0);
    }

    #[test]
    fn what_cannot_be_stored_goes_on_waiting() {
        let decisions = Decisions::default();
        decisions.add(1, 4096);
        decisions.add(2, 4096);
        let mut calls = 0;
        let failed = decisions.write(2, |_| {
            calls += 1;
            if calls == 2 { Err("disk full") } else { Ok(()) }
        });
        assert_eq!(failed, Err("disk full"));
        assert_eq!(written(&decisions, 4096), ["2"]);
    }

    #[test]
    fn the_one_who_decides_writes_when_too_many_wait() {
        let decisions = Decisions::default();
        let full = (0..=WAITING_MAX as i64).map(|offset| decisions.add(offset, 4096));
        assert_eq!(full.filter(|is_full| *is_full).count(), 1, "only the last one");
    }

    #[test]
    fn a_decided_half_is_not_put_back_until_it_is_passed() {
        let decisions = Decisions::default();
        decisions.add(5, 4096);
        assert!(!put_back(&decisions, 5, 9), "not in the op topic yet");
        written(&decisions, 4096);
        assert!(!put_back(&decisions, 5, 9), "not read yet");
        let given_up: Result<_, Infallible> = decisions.give_up(5, || Ok(()));
        assert_eq!(given_up, Ok(PutBack::Decided));
        decisions.settled(6);
        assert!(!decisions.is_decided(5));
    }

    #[test]
    fn a_late_decision_decides_the_newest_copy() {
        let decisions = Decisions::default();
        assert!(put_back(&decisions, 5, 9));
        decisions.settled(9);
        assert!(put_back(&decisions, 9, 12));
        decisions.settled(12);
        decisions.add(5, 4096);
        assert!(decisions.is_decided(12) && !decisions.is_decided(5));
        assert_eq!(written(&decisions, 4096), ["5,12,"]);
        decisions.settled(13);
        decisions.add(9, 4096);
        assert_eq!(written(&decisions, 4096), ["9"], "forgotten with its end");
        assert!(decisions.inner.lock().newest.is_empty());
    }
}
