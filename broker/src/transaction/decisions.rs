//! Decisions on their way into the op topic, and what they are about.
//!
//! A decision waits in memory until enough of them fill an op message (`transactionOpMsgMaxSize`) or the
//! first one has waited long enough (`transactionOpBatchInterval`), as with RocketMQ's
//! `TransactionalOpBatchService`. What a crash takes away is asked about again. Until the check service
//! has passed a decided half message, its decision is known here too: no copy of it is made any more.
//!
//! While a commit is on its way into the log, its half message is left alone (see [`Deciding`]): a copy made
//! in between would be asked about, and the message delivered twice.
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
    /// Half messages that are being decided at this moment, once for each decision.
    deciding: Vec<i64>,
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

/// A half message that is being decided. Until this is [done](Deciding::done) or dropped it is neither put
/// back nor given up.
#[derive(Debug)]
pub struct Deciding<'a> {
    decisions: &'a Decisions,
    half_offset: i64,
    /// Its newest copy, if it was put back.
    copy: Option<i64>,
}

impl Deciding<'_> {
    fn offsets(&self) -> impl Iterator<Item = i64> + use<> {
        std::iter::once(self.half_offset).chain(self.copy)
    }

    /// Notes that the half message is decided. `op_bytes_max` is the length of an op message's body at
    /// which it is written without delay. True if so many wait that the caller has to
    /// [write](Decisions::write) them.
    pub fn done(self, op_bytes_max: usize) -> bool {
        self.decisions.add(self.offsets(), op_bytes_max)
    }
}

impl Drop for Deciding<'_> {
    fn drop(&mut self) {
        let deciding = &mut self.decisions.inner.lock().deciding;
        for queue_offset in self.offsets() {
            if let Some(index) = deciding.iter().position(|other| *other == queue_offset) {
                deciding.swap_remove(index);
            }
        }
    }
}

impl Decisions {
    /// Begins to decide a half message.
    pub fn begin(&self, half_offset: i64) -> Deciding<'_> {
        let mut inner = self.inner.lock();
        let copy = inner.newest.get(&half_offset).copied();
        inner.deciding.push(half_offset);
        inner.deciding.extend(copy);
        Deciding { decisions: self, half_offset, copy }
    }

    fn add(&self, offsets: impl Iterator<Item = i64>, op_bytes_max: usize) -> bool {
        let mut inner = self.inner.lock();
        for queue_offset in offsets {
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

    /// Puts a half message back unless it is decided or being decided. `append` stores the copy and
    /// gives its queue offset; no decision begins meanwhile.
    ///
    /// # Errors
    /// Those of `append`.
    pub fn put_back<E>(
        &self,
        half_offset: i64,
        append: impl FnOnce() -> Result<i64, E>,
    ) -> Result<PutBack, E> {
        let mut inner = self.inner.lock();
        if let Some(why_not) = inner.is_taken(half_offset) {
            return Ok(why_not);
        }
        let copy = append()?;
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
        Ok(PutBack::Done)
    }

    /// Gives a half message up: as [`Decisions::put_back`], without a copy in the
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
        if let Some(why_not) = inner.is_taken(half_offset) {
            return Ok(why_not);
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

    /// Forgets everything, for a check service that begins: queue offsets may mean other messages now.
    pub fn begin_anew(&self) {
        *self.inner.lock() = Inner::default();
    }

    /// Whether the check service is to end.
    pub fn is_ended(&self) -> bool {
        self.inner.lock().is_ended
    }
}

impl Inner {
    /// Why a half message must be left alone, if so.
    fn is_taken(&self, half_offset: i64) -> Option<PutBack> {
        if self.decided.contains(&half_offset) {
            return Some(PutBack::Decided);
        }
        self.deciding.contains(&half_offset).then_some(PutBack::Busy)
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

    fn decide(decisions: &Decisions, half_offset: i64, op_bytes_max: usize) -> bool {
        decisions.begin(half_offset).done(op_bytes_max)
    }

    fn put_back(decisions: &Decisions, from: i64, to: i64) -> bool {
        let stored: Result<_, Infallible> = decisions.put_back(from, || Ok(to));
        stored == Ok(PutBack::Done)
    }

    #[test]
    fn a_half_that_is_being_decided_is_left_alone() {
        let decisions = Decisions::default();
        assert!(put_back(&decisions, 5, 9));
        let (first, second) = (decisions.begin(5), decisions.begin(5));
        for offset in [5, 9] {
            let stored: Result<_, Infallible> = decisions.put_back(offset, || Ok(20));
            assert_eq!(stored, Ok(PutBack::Busy));
        }
        let given_up: Result<_, Infallible> = decisions.give_up(9, || Ok(()));
        assert_eq!(given_up, Ok(PutBack::Busy));
        drop(first);
        assert!(!put_back(&decisions, 9, 20), "the other one goes on");
        drop(second);
        assert!(put_back(&decisions, 9, 20), "neither came to its end");
        decisions.begin(9).done(4096);
        assert!(decisions.is_decided(20) && decisions.inner.lock().deciding.is_empty());
    }

    #[test]
    fn bodies_are_as_long_as_allowed_and_never_empty() {
        let decisions = Decisions::default();
        assert!(written(&decisions, 8).is_empty());
        for queue_offset in [1, 22, 333, 4444, 55_555_555_555] {
            assert!(!decide(&decisions, queue_offset, 4096));
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
        decide(&decisions, 7, 20);
        assert!(!decisions.is_due(hour) && decisions.is_due(Duration::ZERO));
        for queue_offset in 0..9 {
            decide(&decisions, queue_offset, 20);
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
        decide(&decisions, 1, 4096);
        decide(&decisions, 2, 4096);
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
        let full = (0..=WAITING_MAX as i64).map(|offset| decide(&decisions, offset, 4096));
        assert_eq!(full.filter(|is_full| *is_full).count(), 1, "only the last one");
    }

    #[test]
    fn a_decided_half_is_not_put_back_until_it_is_passed() {
        let decisions = Decisions::default();
        decide(&decisions, 5, 4096);
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
        decide(&decisions, 5, 4096);
        assert!(decisions.is_decided(12) && !decisions.is_decided(5));
        assert_eq!(written(&decisions, 4096), ["5,12,"]);
        decisions.settled(13);
        decide(&decisions, 9, 4096);
        assert_eq!(written(&decisions, 4096), ["9"], "forgotten with its end");
        assert!(decisions.inner.lock().newest.is_empty());
    }
}
