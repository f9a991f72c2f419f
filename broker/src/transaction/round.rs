//! One round through the half topic: which half message is waited for, asked about, put back or given
//! up. No I/O of its own: it acts on a [`Bridge`], which is the store in `bridge`, and a model
//! under seeded crashes in the tests.
//!
//! The order is what makes it safe. Op messages are read before a half message is judged, and a copy is
//! stored before the original counts as settled. So a crash at any point leads to a check too many at
//! worst, and never past a half message that nobody decided.

use super::checker::Checker;

/// What the service's settings say.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// A half message younger than this is not asked about (`transactionTimeOut`), ms.
    pub timeout_ms: i64,
    /// After so many checks it is given up (`transactionCheckMax`).
    pub check_max: i32,
    /// A half message older than this is given up (`fileReservedTime`), ms.
    pub kept_ms: i64,
}

/// An undecided half message, as far as judging it needs.
#[derive(Clone, Debug)]
pub struct Half<R> {
    /// Its place in the half topic.
    pub queue_offset: i64,
    /// When its producer made it, ms since the epoch.
    pub born_ms: i64,
    /// How often it was asked about.
    pub check_times: i32,
    /// The time that it asks for until its first check (CHECK_IMMUNITY_TIME_IN_SECONDS): `None` without
    /// the property, negative for the broker's own.
    pub immunity_ms: Option<i64>,
    /// Why nobody can be asked about it, if so.
    pub fault: Option<&'static str>,
    /// The message itself.
    pub record: R,
}

/// Why a half message is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenUp {
    /// It was asked about `transactionCheckMax` times.
    Asked,
    /// It is older than `fileReservedTime`.
    Old,
    /// It does not say where it belongs, or cannot be stored again.
    Faulty(&'static str),
}

/// What is to happen to an undecided half message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is young; the round ends here, for those behind it are younger.
    Wait,
    /// It asked to be left alone for longer: it goes to the end of the topic, so that others are not
    /// held up.
    PutBack,
    /// Its producer is asked, for the how manieth time.
    Check(i32),
    /// It goes to TRANS_CHECK_MAX_TIME_TOPIC.
    GiveUp(GivenUp),
}

/// Judges an undecided half message.
pub fn judge<R>(half: &Half<R>, rules: &Rules, now_ms: i64) -> Verdict {
    let age_ms = now_ms.saturating_sub(half.born_ms);
    if let Some(fault) = half.fault {
        return Verdict::GiveUp(GivenUp::Faulty(fault));
    }
    // Whatever the maximum, it is asked about once.
    if half.check_times >= rules.check_max.max(1) {
        return Verdict::GiveUp(GivenUp::Asked);
    }
    // With nothing reserved at all it still has its time to be decided.
    if age_ms > rules.kept_ms.max(rules.timeout_ms) {
        return Verdict::GiveUp(GivenUp::Old);
    }
    match half.immunity_ms {
        Some(asked_ms) => {
            let immunity_ms = if asked_ms < 0 { rules.timeout_ms } else { asked_ms };
            if age_ms < immunity_ms {
                return Verdict::PutBack;
            }
        }
        // A producer whose clock is ahead is asked at once, as by the Java broker: nobody can tell how
        // old its message is.
        None if (0..rules.timeout_ms).contains(&age_ms) => return Verdict::Wait,
        None => {}
    }
    Verdict::Check(half.check_times.saturating_add(1))
}

/// An op message: its offset and the half messages that it names.
pub type Op = (i64, Vec<i64>);

/// What was read from a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read<T> {
    /// What is there.
    Found(T),
    /// The log begins or ends elsewhere: go on at this offset.
    Moved(i64),
    /// Nothing can be read.
    Nothing,
}

/// What became of a half message that should go to the end of its topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutBack {
    /// Its copy stands for it.
    Done,
    /// It was decided in the meantime; no copy was made.
    Decided,
    /// It is being decided at this moment; no copy was made.
    Busy,
    /// No copy can be stored.
    Impossible(&'static str),
}

/// What a round acts on (RocketMQ's `TransactionalMessageBridge`).
pub trait Bridge {
    /// A half message.
    type Record;
    /// Why an action failed; the round ends, and the next one goes on at the same half message.
    type Error;

    /// The time, ms since the epoch.
    fn now_ms(&self) -> i64;
    /// Whether the round may go on. Called before each half message.
    fn goes_on(&mut self) -> bool;
    /// Puts decisions that wait in memory into the op topic.
    ///
    /// # Errors
    /// When they cannot be stored.
    fn write_decisions(&mut self) -> Result<(), Self::Error>;
    /// The offset behind the newest op message.
    fn op_end(&self) -> i64;
    /// The offset behind the newest half message.
    fn half_end(&self) -> i64;
    /// Some op messages from `from` on, and where to read next.
    ///
    /// # Errors
    /// When they cannot be read.
    fn read_ops(&mut self, from: i64) -> Result<Read<(Vec<Op>, i64)>, Self::Error>;
    /// The half message there.
    ///
    /// # Errors
    /// When it cannot be read.
    fn read_half(&mut self, queue_offset: i64) -> Result<Read<Half<Self::Record>>, Self::Error>;
    /// Stores a copy at the end of the half topic, unless a decision came. With `check`, the copy says
    /// that it was asked about so many times, and then a producer of its group is asked about it.
    ///
    /// # Errors
    /// When the copy cannot be stored now.
    fn put_back(
        &mut self,
        half: &Half<Self::Record>,
        check: Option<i32>,
    ) -> Result<PutBack, Self::Error>;
    /// Stores a copy among those that are given up, unless a decision came.
    ///
    /// # Errors
    /// When it cannot be stored now.
    fn give_up(&mut self, half: &Half<Self::Record>, why: GivenUp) -> Result<PutBack, Self::Error>;
    /// Everything in front of this half message is settled.
    fn settled(&mut self, half_offset: i64);
}

/// Goes through the half topic once. Ends at the first half message that must be waited for, or that
/// came after the round began.
///
/// # Errors
/// What the bridge says. Everything up to there holds.
pub fn run<B: Bridge>(
    checker: &mut Checker,
    bridge: &mut B,
    rules: &Rules,
) -> Result<(), B::Error> {
    bridge.write_decisions()?;
    let half_end = bridge.half_end();
    if checker.half_offset() > half_end {
        checker.move_halves(half_end);
    }
    let op_end = bridge.op_end();
    if checker.next_op() > op_end {
        checker.move_ops(op_end);
    }
    while bridge.goes_on() {
        let is_stuck = read_ops(checker, bridge, op_end)?;
        checker.settle_decided();
        bridge.settled(checker.half_offset());
        let queue_offset = checker.half_offset();
        if queue_offset >= half_end {
            break;
        }
        if checker.has_room() && checker.next_op() < op_end && !is_stuck {
            // What was settled made room for more decisions.
            continue;
        }
        let half = match bridge.read_half(queue_offset)? {
            Read::Found(half) => half,
            Read::Moved(to) if to > queue_offset => {
                checker.move_halves(to);
                continue;
            }
            Read::Moved(_) | Read::Nothing => break,
        };
        let mut done = match judge(&half, rules, bridge.now_ms()) {
            Verdict::Wait => break,
            Verdict::PutBack => bridge.put_back(&half, None)?,
            Verdict::Check(times) => bridge.put_back(&half, Some(times))?,
            Verdict::GiveUp(why) => bridge.give_up(&half, why)?,
        };
        if let PutBack::Impossible(why) = done {
            done = bridge.give_up(&half, GivenUp::Faulty(why))?;
        }
        match done {
            PutBack::Done => checker.settle(),
            PutBack::Decided => {
                // Only once the op topic says so: the decision may be in memory alone.
                bridge.write_decisions()?;
                checker.settle();
            }
            // The next round sees what became of it.
            PutBack::Busy | PutBack::Impossible(_) => break,
        }
    }
    bridge.settled(checker.half_offset());
    Ok(())
}

/// Reads op messages up to `op_end`, as far as there is room for what they say. True if some of them
/// cannot be read: what they decided is asked about, which does no harm.
fn read_ops<B: Bridge>(
    checker: &mut Checker,
    bridge: &mut B,
    op_end: i64,
) -> Result<bool, B::Error> {
    while checker.next_op() < op_end && checker.has_room() {
        let from = checker.next_op();
        match bridge.read_ops(from)? {
            Read::Found((ops, next)) => {
                // Asked for after they were read: what they name was stored before them. A decision about
                // nothing must not hold the op offset for ever.
                let half_end = bridge.half_end();
                for (op_offset, decided) in ops {
                    checker.read_op(op_offset, decided.into_iter().filter(|half| *half < half_end));
                }
                // Behind entries that stand for no message, too.
                checker.move_ops(next.max(checker.next_op()));
            }
            Read::Moved(to) if to > from => checker.move_ops(to),
            Read::Moved(_) | Read::Nothing => return Ok(true),
        }
        if checker.next_op() <= from {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests;
