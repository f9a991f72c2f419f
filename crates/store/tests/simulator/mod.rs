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
pub mod random;
mod scenario;

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};

use disk::Call;
use random::Random;
use scenario::Scenario;

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub operations: u64,
    pub messages: u64,
    pub power_cuts: u64,
    pub process_kills: u64,
    pub failed_calls: u64,
}

impl Summary {
    pub fn add(&mut self, other: &Summary) {
        self.operations += other.operations;
        self.messages += other.messages;
        self.power_cuts += other.power_cuts;
        self.process_kills += other.process_kills;
        self.failed_calls += other.failed_calls;
    }
}

/// A run that showed a defect.
#[derive(Clone, Debug)]
pub struct Failure {
    pub seed: u64,
    pub reason: String,
    /// Operations and calls, when the run was traced.
    pub trace: Vec<String>,
}

/// Runs one seed.
///
/// # Errors
/// What the store did wrong.
pub fn run(seed: u64, traced: bool) -> Result<Summary, Failure> {
    finish(seed, Scenario::new(Random::new(seed), traced))
}

/// Runs one seed without cuts in the middle of calls, and lets a call of this kind fail after so
/// many have worked. The summary says whether there were as many.
///
/// # Errors
/// What the store did wrong.
pub fn run_with_fail_point(
    seed: u64,
    kind: Call,
    left: u64,
    traced: bool,
) -> Result<Summary, Failure> {
    finish(seed, Scenario::new(Random::new(seed), traced).with_fail_point(kind, left))
}

fn finish(seed: u64, mut scenario: Scenario) -> Result<Summary, Failure> {
    let result = panic::catch_unwind(AssertUnwindSafe(|| scenario.run()));
    let reason = match result {
        Ok(Ok(())) => return Ok(scenario.summary),
        Ok(Err(reason)) => reason,
        Err(panic) => format!("panic: {}", text_of(&*panic)),
    };
    Err(Failure { seed, reason, trace: scenario.disk.take_trace() })
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
        (Some(text), _) => text.clone(),
        (None, Some(text)) => (*text).to_owned(),
        (None, None) => "without a message".to_owned(),
    }
}
