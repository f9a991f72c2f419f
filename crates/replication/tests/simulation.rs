//! Some seeds of simulated groups in every test run. `cargo xtask simulate replication` runs more.

mod simulator;

use simulator::Groups;

/// As many as take a few seconds without optimisation.
const SEEDS: u64 = 2000;

#[test]
fn no_message_is_lost_and_no_two_are_masters() {
    rocketmq_simulation::check_seeds::<Groups>(SEEDS);
}

#[test]
fn the_same_seed_makes_the_same_run() {
    rocketmq_simulation::check_same_seeds::<Groups>(20);
}
