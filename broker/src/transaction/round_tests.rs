//! Rounds against a model of log, producers and crashes.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use rocketmq_protocol::names::{TRANS_GROUP, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC};

use super::*;
use crate::metadata::consumer_offset::ConsumerOffsets;
use crate::transaction::decisions::Decisions;
use crate::transaction::half::QUEUE_ID;
use crate::transaction::progress::{self, Progress};

const RULES: Rules = Rules { timeout_ms: 100, check_max: 3, kept_ms: 1_000_000 };

fn half(born_ms: i64) -> Half<()> {
    let record = ();
    Half { queue_offset: 0, born_ms, check_times: 0, immunity_ms: None, fault: None, record }
}

#[test]
fn verdicts_are_javas() {
    let at = |half: Half<()>, now_ms| judge(&half, &RULES, now_ms);
    assert_eq!(at(half(0), 0), Verdict::Wait);
    assert_eq!(at(half(0), 99), Verdict::Wait);
    assert_eq!(at(half(0), 100), Verdict::Check(1));
    assert_eq!(at(half(1), 0), Verdict::Check(1), "the producer's clock is ahead");
    assert_eq!(at(half(0), 1_000_001), Verdict::GiveUp(GivenUp::Old));
    assert_eq!(at(Half { check_times: 2, ..half(0) }, 500), Verdict::Check(3));
    assert_eq!(at(Half { check_times: 3, ..half(0) }, 500), Verdict::GiveUp(GivenUp::Asked));
    let immune = |ms| Half { immunity_ms: Some(ms), ..half(0) };
    assert_eq!(at(immune(50), 49), Verdict::PutBack);
    assert_eq!(at(immune(50), 50), Verdict::Check(1), "it may ask for less than the broker's time");
    assert_eq!(at(immune(5_000), 4_999), Verdict::PutBack);
    assert_eq!(at(immune(-1), 99), Verdict::PutBack);
    assert_eq!(at(immune(-1), 100), Verdict::Check(1));
    assert_eq!(at(Half { fault: Some("x"), ..half(0) }, 0), Verdict::GiveUp(GivenUp::Faulty("x")));
    let rules = Rules { check_max: 0, kept_ms: 0, ..RULES };
    assert_eq!(judge(&half(0), &rules, 50), Verdict::Wait, "it has its time to be decided");
    assert_eq!(judge(&half(0), &rules, 100), Verdict::Check(1), "and is asked about once");
}

/// What a producer is going to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Commit,
    RollBack,
    Never,
}

#[derive(Clone, Copy, Debug)]
struct Copied {
    transaction: usize,
    born_ms: i64,
    check_times: i32,
    immunity_ms: Option<i64>,
}

/// The log: everything in the order in which it was stored.
#[derive(Clone, Debug)]
enum Entry {
    Half(Copied),
    Op(Vec<i64>),
    Committed(usize),
    GivenUp(usize),
}

/// A broker and its producers.
struct Model {
    log: Vec<Entry>,
    /// How much of the log survives a loss of power.
    durable: usize,
    decisions: Decisions,
    progress: Progress,
    offsets: ConsumerOffsets,
    /// consumerOffset.json.
    on_disk: (Option<i64>, Option<i64>),
    checker: Option<Checker>,
    decided_max: usize,
    now_ms: i64,
    fates: Vec<Fate>,
    /// Where the producers believe their half messages to be; none once a crash took them.
    known: Vec<Option<i64>>,
    /// Checks under way: transaction and place.
    asked: Vec<(usize, i64)>,
    asked_times: Vec<u32>,
    given_up: BTreeSet<usize>,
    /// Transactions that their producers decide while a round goes on.
    meanwhile: Vec<usize>,
    /// Appends of the service until one fails.
    fails_in: Option<u32>,
    /// Half messages that a round may look at.
    steps: u32,
    check_max: i32,
}

impl Model {
    fn new(decided_max: usize, check_max: i32) -> Model {
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

    fn halves(&self, log_end: usize) -> Vec<Copied> {
        let halves = self.log[..log_end].iter().filter_map(|entry| match entry {
            Entry::Half(half) => Some(*half),
            _ => None,
        });
        halves.collect()
    }

    fn ops(&self, log_end: usize) -> Vec<Vec<i64>> {
        let ops = self.log[..log_end].iter().filter_map(|entry| match entry {
            Entry::Op(decided) => Some(decided.clone()),
            _ => None,
        });
        ops.collect()
    }

    fn send(&mut self, fate: Fate, immunity_ms: Option<i64>) {
        let place = self.halves(self.log.len()).len() as i64;
        let transaction = self.fates.len();
        let born_ms = self.now_ms;
        self.log.push(Entry::Half(Copied { transaction, born_ms, check_times: 0, immunity_ms }));
        self.fates.push(fate);
        self.known.push(Some(place));
        self.asked_times.push(0);
    }

    /// END_TRANSACTION.
    fn decide(&mut self, transaction: usize, place: i64) {
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

    fn append(&mut self, entry: Entry) -> Result<(), &'static str> {
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

    fn write_ops(&mut self) -> Result<(), &'static str> {
        let decisions = std::mem::take(&mut self.decisions);
        let written = decisions.write(16, |body| {
            let decided = body.split(',').filter_map(|text| text.parse().ok()).collect();
            self.append(Entry::Op(decided))
        });
        self.decisions = decisions;
        written
    }

    fn round(&mut self, steps: u32) {
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

    fn publish(&mut self) {
        self.progress.publish(&self.offsets, self.log.len() as i64, self.durable as i64);
    }

    fn persist(&mut self) {
        self.on_disk = progress::read(&self.offsets);
    }

    /// Power is lost, with some of what was not durable.
    fn crash(&mut self, lost: usize) {
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
    fn check_offsets(&self, log_end: usize, half_offset: i64, op_offset: i64) {
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

    fn check_invariants(&self) {
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
    fn settle(&mut self) {
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

fn no_offsets() -> ConsumerOffsets {
    ConsumerOffsets::load(Path::new("/nowhere"), 500).unwrap()
}

impl World for Model {
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

#[derive(Clone, Debug)]
enum Step {
    Send(Fate, Option<i64>),
    /// A producer decides about the half message as it was sent.
    Decide(prop::sample::Index),
    /// The same in the middle of a round.
    Meanwhile(prop::sample::Index),
    /// A producer answers a check.
    Answer(prop::sample::Index),
    /// A check is lost on its way.
    Forget(prop::sample::Index),
    WriteOps,
    Round(u32),
    /// The service's next but so many append fails.
    Fail(u32),
    Flush(prop::sample::Index),
    Publish,
    Persist,
    Wait(i64),
    Crash(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    let fate = prop_oneof![Just(Fate::Commit), Just(Fate::RollBack), Just(Fate::Never)];
    let immunity = prop_oneof![3 => Just(None), 1 => (0..1_500_i64).prop_map(Some)];
    let index = any::<prop::sample::Index>;
    prop_oneof![
        6 => (fate, immunity).prop_map(|(fate, immunity)| Step::Send(fate, immunity)),
        5 => index().prop_map(Step::Decide),
        3 => index().prop_map(Step::Meanwhile),
        4 => index().prop_map(Step::Answer),
        1 => index().prop_map(Step::Forget),
        2 => Just(Step::WriteOps),
        5 => prop_oneof![1 => 0..6_u32, 2 => Just(u32::MAX)].prop_map(Step::Round),
        1 => (0..3_u32).prop_map(Step::Fail),
        3 => index().prop_map(Step::Flush),
        4 => Just(Step::Publish),
        3 => Just(Step::Persist),
        3 => (0..200_i64).prop_map(Step::Wait),
        2 => index().prop_map(Step::Crash),
    ]
}

fn take(model: &mut Model, step: &Step) {
    match step {
        Step::Send(fate, immunity_ms) => model.send(*fate, *immunity_ms),
        Step::Decide(which) if !model.known.is_empty() => {
            let transaction = which.index(model.known.len());
            if let Some(place) = model.known[transaction] {
                model.decide(transaction, place);
            }
        }
        Step::Meanwhile(which) if !model.known.is_empty() => {
            model.meanwhile.push(which.index(model.known.len()));
        }
        Step::Answer(which) if !model.asked.is_empty() => {
            let (transaction, place) = model.asked.remove(which.index(model.asked.len()));
            model.decide(transaction, place);
        }
        Step::Forget(which) if !model.asked.is_empty() => {
            model.asked.remove(which.index(model.asked.len()));
        }
        Step::Decide(_) | Step::Meanwhile(_) | Step::Answer(_) | Step::Forget(_) => {}
        Step::WriteOps => {
            // What fails goes on waiting.
            let _ = model.write_ops();
        }
        Step::Round(steps) => model.round(*steps),
        Step::Fail(appends) => model.fails_in = Some(*appends),
        Step::Flush(how_far) => {
            let rest = model.log.len() - model.durable;
            model.durable += how_far.index(rest + 1);
        }
        Step::Publish => model.publish(),
        Step::Persist => model.persist(),
        Step::Wait(ms) => model.now_ms += ms,
        Step::Crash(how_much) => {
            let rest = model.log.len() - model.durable;
            model.crash(how_much.index(rest + 1));
        }
    }
    model.check_invariants();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Whatever happens in whatever order: no committed message is lost, none that was rolled back is
    /// shown, an undecided one is asked about until the maximum, and no offset passes one.
    #[test]
    fn nothing_is_lost_or_shown_in_vain(
        steps in prop::collection::vec(step(), 0..120),
        decided_max in prop_oneof![Just(1_usize), Just(3), Just(1 << 20)],
        check_max in 1..6_i32,
    ) {
        let mut model = Model::new(decided_max, check_max);
        for step in &steps {
            take(&mut model, step);
        }
        model.settle();
    }
}

#[test]
fn a_decision_in_memory_is_written_before_its_half_is_passed() {
    let mut model = Model::new(1 << 20, 3);
    model.send(Fate::Commit, None);
    model.now_ms += 1_000;
    // It comes when the round has written what waited, and its op message cannot be stored.
    model.meanwhile = vec![0];
    model.fails_in = Some(0);
    model.round(u32::MAX);
    assert_eq!(model.checker.as_ref().unwrap().half_offset(), 0, "the op message was not stored");
    model.round(u32::MAX);
    assert_eq!(model.checker.as_ref().unwrap().half_offset(), 1);
    assert!(model.asked.is_empty(), "nobody was asked");
    assert!(!model.decisions.is_due(Duration::ZERO));
}

#[test]
fn a_half_that_waits_holds_up_the_round_and_an_immune_one_does_not() {
    let mut model = Model::new(1 << 20, 3);
    model.send(Fate::Never, Some(100_000));
    model.send(Fate::Never, None);
    model.now_ms += 50;
    model.round(u32::MAX);
    assert_eq!(model.checker.as_ref().unwrap().half_offset(), 1, "only the first one was put back");
    model.now_ms += 50;
    model.round(u32::MAX);
    assert_eq!(model.asked, [(1, 3)]);
    assert_eq!(model.checker.as_ref().unwrap().half_offset(), 3, "copies are for the next round");
    let copies = model.halves(model.log.len());
    assert_eq!(copies.len(), 5);
    assert_eq!((copies[2].check_times, copies[4].check_times), (0, 0), "waiting is no check");
}

/// A topic whose front is gone from the log, and whose records cannot all be read.
#[test]
fn what_the_log_has_lost_is_passed_over() {
    struct Gone {
        inner: Model,
        first: i64,
    }
    impl World for Gone {
        type Record = Copied;
        type Error = &'static str;
        fn now_ms(&self) -> i64 {
            self.inner.now_ms()
        }
        fn goes_on(&mut self) -> bool {
            true
        }
        fn write_decisions(&mut self) -> Result<(), &'static str> {
            Ok(())
        }
        fn op_end(&self) -> i64 {
            5
        }
        fn half_end(&self) -> i64 {
            self.inner.half_end()
        }
        fn read_ops(&mut self, from: i64) -> Result<Read<(Vec<Op>, i64)>, &'static str> {
            Ok(if from < 3 { Read::Moved(3) } else { Read::Nothing })
        }
        fn read_half(&mut self, offset: i64) -> Result<Read<Half<Copied>>, &'static str> {
            if offset < self.first {
                Ok(Read::Moved(self.first))
            } else {
                self.inner.read_half(offset)
            }
        }
        fn put_back(&mut self, _: &Half<Copied>, _: Option<i32>) -> Result<PutBack, &'static str> {
            Ok(PutBack::Impossible("full"))
        }
        fn give_up(&mut self, half: &Half<Copied>, why: GivenUp) -> Result<PutBack, &'static str> {
            assert_eq!(why, GivenUp::Faulty("full"));
            self.inner.give_up(half, GivenUp::Asked)
        }
        fn settled(&mut self, _: i64) {}
    }
    let mut inner = Model::new(1 << 20, 3);
    for _ in 0..4 {
        inner.send(Fate::Never, None);
    }
    inner.now_ms += 1_000;
    let mut world = Gone { inner, first: 2 };
    let mut checker = Checker::new(0, 0);
    run(&mut checker, &mut world, &RULES).unwrap();
    assert_eq!(
        (checker.half_offset(), checker.op_offset()),
        (4, 3),
        "ops that cannot be read stay"
    );
    assert_eq!(world.inner.given_up, BTreeSet::from([2, 3]));
    // The tail of both topics was lost.
    let mut checker = Checker::new(9, 9);
    run(&mut checker, &mut world, &RULES).unwrap();
    assert_eq!((checker.half_offset(), checker.op_offset()), (4, 5));
}
