//! Some seeds of the crash simulator in every test run. `cargo xtask simulate store` runs more.

mod simulator;

use simulator::CrashingStore;

/// As many as take a few seconds without optimisation.
const SEEDS: u64 = 500;

#[test]
fn what_was_acknowledged_survives_every_crash() {
    rocketmq_simulation::check_seeds::<CrashingStore>(SEEDS);
}

#[test]
fn the_same_seed_makes_the_same_run() {
    rocketmq_simulation::check_same_seeds::<CrashingStore>(20);
}
