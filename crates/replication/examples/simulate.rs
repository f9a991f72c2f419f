//! Runs seeds of simulated groups: `cargo xtask simulate replication`.

#[path = "../tests/simulator/mod.rs"]
mod simulator;

use std::process::ExitCode;

fn main() -> ExitCode {
    rocketmq_simulation::run_as_program::<simulator::Groups>()
}
