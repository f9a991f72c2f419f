//! Which half messages are settled, and how far both topics are done. No I/O: `round` drives it.
//!
//! A half message is settled once it is decided, or once a copy of it stands for it: behind it in the
//! half topic after a check, or among those that are given up. [`Checker::half_offset`] never passes
//! one that is not. An op message is done once every half message that it names is settled, so an op
//! offset that was written down leaves no decision behind which is still needed.

use std::collections::BTreeMap;

/// Decisions kept in memory. Beyond them nothing more is read until some are used; what is undecided
/// as far as is known is asked about, which is allowed at any time.
pub const DECIDED_MAX: usize = 1 << 20;

/// The state of both topics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checker {
    /// The first half message that is not settled.
    half: i64,
    /// The first op message that was not read.
    op: i64,
    /// Decided half messages from `half` on, with the op message that says so.
    decided: BTreeMap<i64, i64>,
    /// Op messages that name half messages of `decided`, and how many.
    open_ops: BTreeMap<i64, usize>,
    decided_max: usize,
}

impl Checker {
    /// Goes on at these queue offsets.
    pub fn new(half_offset: i64, op_offset: i64) -> Checker {
        Checker {
            half: half_offset,
            op: op_offset,
            decided: BTreeMap::new(),
            open_ops: BTreeMap::new(),
            decided_max: DECIDED_MAX,
        }
    }

    /// The same with another bound on what is kept.
    #[cfg(test)]
    pub fn with_decided_max(mut self, decided_max: usize) -> Checker {
        self.decided_max = decided_max;
        self
    }

    /// The first half message that is not settled.
    pub fn half_offset(&self) -> i64 {
        self.half
    }

    /// The first op message that is not done.
    pub fn op_offset(&self) -> i64 {
        self.open_ops.keys().next().map_or(self.op, |first| self.op.min(*first))
    }

    /// The op message to read next.
    pub fn next_op(&self) -> i64 {
        self.op
    }

    /// Whether there is room for more decisions.
    pub fn has_room(&self) -> bool {
        self.decided.len() < self.decided_max
    }

    /// Whether an op message says that this half message is decided.
    pub fn is_decided(&self, half_offset: i64) -> bool {
        self.decided.contains_key(&half_offset)
    }

    /// Takes in an op message, which names decided half messages. Those in front of the first
    /// unsettled one are no news.
    pub fn read_op(&mut self, op_offset: i64, decided: impl IntoIterator<Item = i64>) {
        self.op = op_offset + 1;
        let mut named = 0;
        for half_offset in decided {
            if half_offset >= self.half && !self.is_decided(half_offset) {
                self.decided.insert(half_offset, op_offset);
                named += 1;
            }
        }
        if named > 0 {
            self.open_ops.insert(op_offset, named);
        }
    }

    /// Goes on reading op messages here: those between are gone from the log, or its tail is.
    pub fn move_ops(&mut self, to: i64) {
        self.op = to;
    }

    /// Settles decided half messages up to the first undecided one.
    pub fn settle_decided(&mut self) {
        while let Some(op_offset) = self.decided.remove(&self.half) {
            self.use_up(op_offset);
            self.half += 1;
        }
    }

    /// A copy stands for the first unsettled half message from now on.
    pub fn settle(&mut self) {
        if let Some(op_offset) = self.decided.remove(&self.half) {
            self.use_up(op_offset);
        }
        self.half += 1;
    }

    /// Goes on with this half message: those between are gone from the log, or its tail is.
    pub fn move_halves(&mut self, to: i64) {
        if to < self.half {
            // What was known is of offsets that will be given anew.
            self.decided.clear();
            self.open_ops.clear();
        } else {
            let kept = self.decided.split_off(&to);
            for op_offset in std::mem::replace(&mut self.decided, kept).into_values() {
                self.use_up(op_offset);
            }
        }
        self.half = to;
    }

    fn use_up(&mut self, op_offset: i64) {
        if let Some(named) = self.open_ops.get_mut(&op_offset) {
            *named -= 1;
            if *named == 0 {
                self.open_ops.remove(&op_offset);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_op_is_done_when_all_it_names_is_settled() {
        let mut checker = Checker::new(10, 3);
        checker.read_op(3, [11, 10]);
        checker.read_op(4, [4, 9]);
        checker.read_op(5, [13]);
        assert_eq!((checker.next_op(), checker.op_offset()), (6, 3));
        checker.settle_decided();
        assert_eq!((checker.half_offset(), checker.op_offset()), (12, 5), "4 named nothing new");
        checker.settle();
        checker.settle_decided();
        assert_eq!((checker.half_offset(), checker.op_offset()), (14, 6));
    }

    #[test]
    fn a_half_that_is_decided_twice_keeps_no_op_open() {
        let mut checker = Checker::new(0, 0);
        checker.read_op(0, [0]);
        checker.read_op(1, [0, 0]);
        checker.settle_decided();
        assert_eq!((checker.half_offset(), checker.op_offset()), (1, 2));
    }

    #[test]
    fn what_is_gone_from_the_log_is_passed_and_a_lost_tail_is_forgotten() {
        let mut checker = Checker::new(0, 0);
        checker.read_op(0, [1, 7]);
        checker.read_op(1, [2]);
        checker.move_halves(5);
        assert_eq!((checker.half_offset(), checker.op_offset()), (5, 0), "7 is still to come");
        checker.move_halves(8);
        assert_eq!(checker.op_offset(), 2);
        checker.read_op(2, [9]);
        checker.move_halves(6);
        assert!(!checker.is_decided(9), "another message will have this offset");
        assert_eq!((checker.half_offset(), checker.op_offset()), (6, 3));
        checker.move_ops(1);
        assert_eq!(checker.op_offset(), 1);
    }
}
