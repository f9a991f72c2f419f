//! A broker and its producers, without I/O: what the rounds are tried on.

use std::collections::BTreeSet;
use std::path::Path;

use rocketmq_protocol::names::{TRANS_GROUP, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC};

use super::super::*;
use super::RULES;
use crate::metadata::consumer_offset::ConsumerOffsets;
use crate::transaction::decisions::Decisions;
use crate::transaction::half::QUEUE_ID;
use crate::transaction::progress::{self, Progress};

/// What a producer is going to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Commit,
    RollBack,
    Never,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Copied {
    pub(super) transaction: usize,
    pub(super) born_ms: i64,
    pub(super) check_times: i32,
    pub(super) immunity_ms: Option<i64>,
}

/// The log: everything in the order in which it was stored.
#[derive(Clone, Debug)]
pub(super) enum Entry {
    Half(Copied),
    Op(Vec<i64>),
    Committed(usize),
    GivenUp(usize),
}

/// A broker and its producers.
pub(super) struct Model {
    pub(super) log: Vec<Entry>,
    /// How much of the log survives a loss of power.
    pub(super) durable: usize,
    pub(super) decisions: Decisions,
    pub(super) progress: Progress,
    pub(super) offsets: ConsumerOffsets,
    /// consumerOffset.json.
    pub(super) on_disk: (Option<i64>, Option<i64>),
    pub(super) checker: Option<Checker>,
    pub(super) decided_max: usize,
    pub(super) now_ms: i64,
    pub(super) fates: Vec<Fate>,
    /// Where the producers believe their half messages to be; none once a crash took them.
    pub(super) known: Vec<Option<i64>>,
    /// Checks under way: transaction and place.
    pub(super) asked: Vec<(usize, i64)>,
    pub(super) asked_times: Vec<u32>,
    pub(super) given_up: BTreeSet<usize>,
    /// Transactions that their producers decide while a round goes on.
    pub(super) meanwhile: Vec<usize>,
    /// Appends of the service until one fails.
    pub(super) fails_in: Option<u32>,
    /// Half messages that a round may look at.
    pub(super) steps: u32,
    pub(super) check_max: i32,
}

impl Model {
    pub(super) fn new(decided_max: usize, check_max: i32) -> Model {
        Model {
            log: Vec::new(),
            durable: 0,
            decisions: Decisions::default(),
            progress: Progress::default(),
            offsets: no_offsets(),
            on_disk: (None, None),
            checker: None,
            decided_max,
            now_ms: 1_000,
            fates: Vec::new(),
            known: Vec::new(),
            asked: Vec::new(),
            asked_times: Vec::new(),
            given_up: BTreeSet::new(),
            meanwhile: Vec::new(),
            fails_in: None,
            steps: u32::MAX,
            check_max,
        }
    }

    pub(super) fn halves(&self, log_end: usize) -> Vec<Copied> {
        let halves = self.log[..log_end].iter().filter_map(|entry| match entry {
            Entry::Half(half) => Some(*half),
            _ => None,
        });
        halves.collect()
    }

    pub(super) fn ops(&self, log_end: usize) -> Vec<Vec<i64>> {
        let ops = self.log[..log_end].iter().filter_map(|entry| match entry {
            Entry::Op(decided) => Some(decided.clone()),
            _ => None,
        });
        ops.collect()
    }

    pub(super) fn send(&mut self, fate: Fate, immunity_ms: Option<i64>) {
        let place = self.halves(self.log.len()).len() as i64;
        let transaction = self.fates.len();
        let born_ms = self.now_ms;
        self.log.push(Entry::Half(Copied { transaction, born_ms, check_times: 0, immunity_ms }));
        self.fates.push(fate);
        self.known.push(Some(place));
        self.asked_times.push(0);
    }

    /// END_TRANSACTION.
    pub(super) fn decide(&mut self, transaction: usize, place: i64) {
        let halves = self.halves(self.log.len());
        let is_there = usize::try_from(place).ok().and_then(|place| halves.get(place));
        if is_there.is_none_or(|half| half.transaction != transaction) {
            return;
        }
        match self.fates[transaction] {
            Fate::Commit => self.log.push(Entry::Committed(transaction)),
            Fate::RollBack => {}
            Fate::Never => return,
        }
        self.decisions.begin(place).done(16);
    }

    pub(super) fn append(&mut self, entry: Entry) -> Result<(), &'static str> {
        match &mut self.fails_in {
            Some(0) => {
                self.fails_in = None;
                return Err("disk full");
            }
            Some(left) => *left -= 1,
            None => {}
        }
        self.log.push(entry);
        Ok(())
    }

    pub(super) fn write_ops(&mut self) -> Result<(), &'static str> {
        let decisions = std::mem::take(&mut self.decisions);
        let written = decisions.write(16, |body| {
            let decided = body.split(',').filter_map(|text| text.parse().ok()).collect();
            self.append(Entry::Op(decided))
        });
        self.decisions = decisions;
        written
    }

    pub(super) fn round(&mut self, steps: u32) {
        self.steps = steps;
        let mut checker = self.checker.take().unwrap_or_else(|| {
            let (half, op) = progress::read(&self.offsets);
            Checker::new(half.unwrap_or(0), op.unwrap_or(0)).with_decided_max(self.decided_max)
        });
        let rules = Rules { check_max: self.check_max, ..RULES };
        // A failed round is gone on with later.
        let _ = run(&mut checker, self, &rules);
        self.progress.set((checker.half_offset(), checker.op_offset()));
        self.checker = Some(checker);
    }

    pub(super) fn publish(&mut self) {
        self.progress.publish(&self.offsets, self.log.len() as i64, self.durable as i64);
    }

    pub(super) fn persist(&mut self) {
        self.on_disk = progress::read(&self.offsets);
    }

    /// Power is lost, with some of what was not durable.
    pub(super) fn crash(&mut self, lost: usize) {
        let end = self.log.len().saturating_sub(lost).max(self.durable);
        self.log.truncate(end);
        self.durable = end;
        self.decisions = Decisions::default();
        self.progress = Progress::default();
        self.checker = None;
        self.asked.clear();
        self.offsets = no_offsets();
        let offsets = [(TRANS_HALF_TOPIC, self.on_disk.0), (TRANS_OP_HALF_TOPIC, self.on_disk.1)];
        for (topic, offset) in offsets {
            if let Some(offset) = offset {
                self.offsets.commit(TRANS_GROUP, topic, QUEUE_ID, offset);
            }
        }
        let halves = self.halves(end);
        for (transaction, known) in self.known.iter_mut().enumerate() {
            if halves.iter().all(|half| half.transaction != transaction) {
                *known = None;
            }
        }
        // It is given up only if the log still says so.
        self.given_up = self
            .log
            .iter()
            .filter_map(|entry| match entry {
                Entry::GivenUp(transaction) => Some(*transaction),
                _ => None,
            })
            .collect();
    }

    /// No offset has passed a half message that is not settled in the log as far as `log_end`.
    pub(super) fn check_offsets(&self, log_end: usize, half_offset: i64, op_offset: i64) {
        let halves = self.halves(log_end);
        let ops = self.ops(log_end);
        for (place, half) in halves.iter().enumerate().take(half_offset.max(0) as usize) {
            let is_decided = ops.iter().any(|decided| decided.contains(&(place as i64)));
            let has_copy =
                halves[place + 1..].iter().any(|copy| copy.transaction == half.transaction);
            let is_given_up = self.log[..log_end].iter().any(
                |entry| matches!(entry, Entry::GivenUp(given_up) if *given_up == half.transaction),
            );
            assert!(
                is_decided || has_copy || is_given_up,
                "half message {place} was passed ({half_offset}): {:?}",
                self.log
            );
        }
        assert!(half_offset <= halves.len() as i64, "offset {half_offset} of {halves:?}");
        for (place, decided) in ops.iter().enumerate().take(op_offset.max(0) as usize) {
            let needed = decided.iter().find(|half| **half >= half_offset);
            assert_eq!(needed, None, "op message {place} was passed ({op_offset})");
        }
    }

    pub(super) fn check_invariants(&self) {
        if let Some(checker) = &self.checker {
            self.check_offsets(self.log.len(), checker.half_offset(), checker.op_offset());
        }
        let (half, op) = self.on_disk;
        self.check_offsets(self.durable, half.unwrap_or(0), op.unwrap_or(0));
        for entry in &self.log {
            if let Entry::Committed(transaction) = entry {
                assert_eq!(self.fates[*transaction], Fate::Commit, "shown, but never committed");
            }
        }
    }

    /// Lets everything come to its end, with producers that answer.
    pub(super) fn settle(&mut self) {
        self.fails_in = None;
        for _ in 0..40 {
            self.now_ms += 100_000 / 40;
            self.round(u32::MAX);
            for (transaction, place) in std::mem::take(&mut self.asked) {
                self.decide(transaction, place);
            }
            self.durable = self.log.len();
            self.publish();
            self.publish();
            self.persist();
            self.check_invariants();
        }
        let end = self.halves(self.log.len()).len() as i64;
        let ops = self.ops(self.log.len()).len() as i64;
        assert_eq!(self.on_disk, (Some(end), Some(ops)), "everything is done in the end");
        for (transaction, known) in self.known.iter().enumerate() {
            let is_committed = self.log.iter().any(
                |entry| matches!(entry, Entry::Committed(committed) if *committed == transaction),
            );
            let is_given_up = self.given_up.contains(&transaction);
            match self.fates[transaction] {
                _ if known.is_none() => {}
                Fate::Commit => assert!(is_committed || is_given_up, "{transaction} is lost"),
                Fate::RollBack => assert!(!is_committed),
                Fate::Never => assert!(is_given_up, "{transaction} was never given up"),
            }
            if is_given_up {
                let times = self.asked_times[transaction];
                assert!(times >= self.check_max as u32, "given up after {times} checks");
            }
        }
    }
}

pub(super) fn no_offsets() -> ConsumerOffsets {
    ConsumerOffsets::load(Path::new("/nowhere"), 500).unwrap()
}

impl Bridge for Model {
    type Record = Copied;
    type Error = &'static str;

    fn now_ms(&self) -> i64 {
        self.now_ms
    }

    fn goes_on(&mut self) -> bool {
        if let Some(transaction) = self.meanwhile.pop()
            && let Some(place) = self.known[transaction]
        {
            self.decide(transaction, place);
        }
        let goes_on = self.steps > 0;
        self.steps = self.steps.saturating_sub(1);
        goes_on
    }

    fn write_decisions(&mut self) -> Result<(), &'static str> {
        self.write_ops()
    }

    fn op_end(&self) -> i64 {
        self.ops(self.log.len()).len() as i64
    }

    fn half_end(&self) -> i64 {
        self.halves(self.log.len()).len() as i64
    }

    fn read_ops(&mut self, from: i64) -> Result<Read<(Vec<Op>, i64)>, &'static str> {
        let ops: Vec<Op> = self
            .ops(self.log.len())
            .into_iter()
            .enumerate()
            .map(|(offset, decided)| (offset as i64, decided))
            .filter(|(offset, _)| (from..from + 2).contains(offset))
            .collect();
        let next = ops.last().map_or(from, |(offset, _)| offset + 1);
        Ok(if ops.is_empty() { Read::Nothing } else { Read::Found((ops, next)) })
    }

    fn read_half(&mut self, queue_offset: i64) -> Result<Read<Half<Copied>>, &'static str> {
        let halves = self.halves(self.log.len());
        Ok(match halves.get(queue_offset as usize) {
            Some(record) => Read::Found(Half {
                queue_offset,
                born_ms: record.born_ms,
                check_times: record.check_times,
                immunity_ms: record.immunity_ms,
                fault: None,
                record: *record,
            }),
            None => Read::Nothing,
        })
    }

    fn put_back(
        &mut self,
        half: &Half<Copied>,
        check: Option<i32>,
    ) -> Result<PutBack, &'static str> {
        let place = self.half_end();
        let check_times = check.unwrap_or(half.check_times);
        let copied = Copied { check_times, ..half.record };
        let decisions = std::mem::take(&mut self.decisions);
        let stored = decisions
            .put_back(half.queue_offset, || self.append(Entry::Half(copied)).map(|()| place));
        self.decisions = decisions;
        let stored = stored?;
        if check.is_some() && stored == PutBack::Done {
            self.asked.push((copied.transaction, place));
            self.asked_times[copied.transaction] += 1;
        }
        Ok(stored)
    }

    fn give_up(&mut self, half: &Half<Copied>, why: GivenUp) -> Result<PutBack, &'static str> {
        assert_eq!(why, GivenUp::Asked);
        let transaction = half.record.transaction;
        let decisions = std::mem::take(&mut self.decisions);
        let done =
            decisions.give_up(half.queue_offset, || self.append(Entry::GivenUp(transaction)));
        self.decisions = decisions;
        if done == Ok(PutBack::Done) {
            self.given_up.insert(transaction);
        }
        done
    }

    fn settled(&mut self, half_offset: i64) {
        self.decisions.settled(half_offset);
    }
}
