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
mod world;

use std::fmt;

use rocketmq_simulation::{Outcome, Random, Simulation, Summary, caught};
use world::World;

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
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

impl Summary for Done {
    fn add(&mut self, other: &Done) {
        self.events += other.events;
        self.acknowledged += other.acknowledged;
        self.reigns += other.reigns;
        self.faults += other.faults;
        self.excused += other.excused;
        self.blocked += other.blocked;
        self.simulated_ms += other.simulated_ms;
    }
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} faults, {} reigns, {} messages acknowledged, {:.0} hours of the groups; {} messages \
             lost with every copy that counted, {} groups left without a master for that",
            self.faults,
            self.reigns,
            self.acknowledged,
            self.simulated_ms as f64 / 3_600_000.0,
            self.excused,
            self.blocked
        )
    }
}

/// Groups of brokers.
pub struct Groups;

impl Simulation for Groups {
    const NAME: &'static str = "replication";
    type Summary = Done;

    fn run(seed: u64, traced: bool) -> Outcome<Done> {
        let mut world = World::new(Random::new(seed), traced);
        let result = caught(|| world.run()).map(|()| world.summary);
        Outcome { result, trace: std::mem::take(&mut world.trace) }
    }
}
