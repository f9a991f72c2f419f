//! The crash simulator: the store on a disk in memory that can lose power in the middle of any call.
//!
//! A seed decides everything: settings of the store, operations, when the power goes, what of the
//! unsynced is left, whether the machine goes down again while it recovers. After each start the
//! store is compared with a plain model. `cargo xtask simulate store` runs many seeds and replays
//! one; `tests/simulation.rs` runs some in every test run; `tests/fail_points.rs` uses the same disk
//! to fail each single call.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests may stop at a surprise")]
#![allow(dead_code, reason = "each user needs a part of it")]
#![allow(missing_docs, reason = "a part of tests")]

pub mod disk;
pub mod message;
pub mod metadata;
pub mod model;
mod power_cut;
mod scenario;

use std::fmt;

use disk::Call;
use rocketmq_simulation::{Outcome, Random, Simulation, Summary, caught};
use scenario::Scenario;

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    pub operations: u64,
    pub messages: u64,
    pub power_cuts: u64,
    pub process_kills: u64,
    pub failed_calls: u64,
}

impl Summary for Done {
    fn add(&mut self, other: &Done) {
        self.operations += other.operations;
        self.messages += other.messages;
        self.power_cuts += other.power_cuts;
        self.process_kills += other.process_kills;
        self.failed_calls += other.failed_calls;
    }
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} operations, {} messages, {} power cuts, {} killed processes, {} failed calls",
            self.operations, self.messages, self.power_cuts, self.process_kills, self.failed_calls
        )
    }
}

/// The store, and what crashes it.
pub struct CrashingStore;

impl Simulation for CrashingStore {
    const NAME: &'static str = "store";
    type Summary = Done;

    fn run(seed: u64, traced: bool) -> Outcome<Done> {
        finish(Scenario::new(Random::new(seed), traced))
    }
}

/// Runs one seed without cuts in the middle of calls, and lets a call of this kind fail after so
/// many have worked. The summary says whether there were as many.
pub fn run_with_fail_point(seed: u64, kind: Call, left: u64, traced: bool) -> Outcome<Done> {
    finish(Scenario::new(Random::new(seed), traced).with_fail_point(kind, left))
}

fn finish(mut scenario: Scenario) -> Outcome<Done> {
    let result = caught(|| scenario.run()).map(|()| scenario.summary);
    Outcome { result, trace: scenario.disk.take_trace() }
}
