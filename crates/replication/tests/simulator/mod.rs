//! Whole groups on simulated disks, networks and clocks: brokers that carry out what
//! [`rocketmq_replication::Replica`] asks for, a keeper of the record, one or two operators, clients
//! that send and consumers that read, and everything that can go wrong with them.
//!
//! A seed decides everything. After each step it is checked that nobody acknowledges what somebody
//! newer does, that no acknowledged and no shown message is missing from a later master, and in the end
//! that a group without faults takes messages again. `docs/testing.md` says more.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests may stop at a surprise")]
#![allow(dead_code, reason = "each user needs a part of it")]
#![allow(missing_docs, reason = "a part of tests")]

mod checks;
mod faults;
mod keeper;
mod network;
mod operator;
mod process;
mod random;
mod world;

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};

use world::World;

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub events: u64,
    pub acknowledged: u64,
    pub reigns: u64,
    pub faults: u64,
    /// Acknowledged messages that were lost with every copy that counted, or by an unclean election.
    pub excused: u64,
    /// Groups that were rightly left without a master in the end.
    pub blocked: u64,
    /// Milliseconds of the groups' time.
    pub simulated_ms: u64,
}

impl Summary {
    pub fn add(&mut self, other: &Summary) {
        self.events += other.events;
        self.acknowledged += other.acknowledged;
        self.reigns += other.reigns;
        self.faults += other.faults;
        self.excused += other.excused;
        self.blocked += other.blocked;
        self.simulated_ms += other.simulated_ms;
    }
}

/// A run that showed a defect.
#[derive(Clone, Debug)]
pub struct Failure {
    pub seed: u64,
    pub reason: String,
    /// What happened, when the run was traced.
    pub trace: Vec<String>,
}

/// Runs one seed.
///
/// # Errors
/// What went wrong.
pub fn run(seed: u64, traced: bool) -> Result<Summary, Failure> {
    let mut world = World::new(random::Random::new(seed), traced);
    let result = panic::catch_unwind(AssertUnwindSafe(|| world.run()));
    let reason = match result {
        Ok(Ok(())) => return Ok(world.summary),
        Ok(Err(reason)) => reason,
        Err(panic) => format!("panic: {}", text_of(&*panic)),
    };
    Err(Failure { seed, reason, trace: std::mem::take(&mut world.trace) })
}

/// Runs one seed and returns everything that it did.
pub fn trace(seed: u64) -> Vec<String> {
    let mut world = World::new(random::Random::new(seed), true);
    let result = panic::catch_unwind(AssertUnwindSafe(|| world.run()));
    let mut trace = std::mem::take(&mut world.trace);
    trace.push(format!("{:?}", result.map_err(|panic| text_of(&*panic))));
    trace
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
        (Some(text), _) => text.clone(),
        (None, Some(text)) => (*text).to_owned(),
        (None, None) => "without a message".to_owned(),
    }
}
