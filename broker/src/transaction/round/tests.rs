//! Rounds against a model of log, producers and crashes.

mod model;

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use model::{Copied, Fate, Model};

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

#[test]
fn a_decision_about_nothing_holds_up_nothing() {
    let mut model = Model::new(1 << 20, 3);
    model.send(Fate::Commit, None);
    model.log.push(model::Entry::Op(vec![0, 7, i64::MAX, i64::MIN]));
    model.round(u32::MAX);
    let checker = model.checker.as_ref().unwrap();
    assert_eq!((checker.half_offset(), checker.op_offset()), (1, 1));
    // The half message that gets such an offset later is asked about as any other one.
    for _ in 0..7 {
        model.send(Fate::Never, None);
    }
    model.now_ms += 1_000;
    model.round(u32::MAX);
    assert_eq!(model.asked.len(), 7);
}

/// A topic whose front is gone from the log, and whose records cannot all be read.
#[test]
fn what_the_log_has_lost_is_passed_over() {
    struct Gone {
        inner: Model,
        first: i64,
    }
    impl Bridge for Gone {
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
    let mut bridge = Gone { inner, first: 2 };
    let mut checker = Checker::new(0, 0);
    run(&mut checker, &mut bridge, &RULES).unwrap();
    assert_eq!(
        (checker.half_offset(), checker.op_offset()),
        (4, 3),
        "ops that cannot be read stay"
    );
    assert_eq!(bridge.inner.given_up, BTreeSet::from([2, 3]));
    // The tail of both topics was lost.
    let mut checker = Checker::new(9, 9);
    run(&mut checker, &mut bridge, &RULES).unwrap();
    assert_eq!((checker.half_offset(), checker.op_offset()), (4, 5));
}
