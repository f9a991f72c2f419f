//! Runs seeds of the crash simulator: `cargo xtask simulate store`.

#[path = "../tests/simulator/mod.rs"]
mod simulator;

use std::process::ExitCode;

fn main() -> ExitCode {
    rocketmq_simulation::run_as_program::<simulator::CrashingStore>()
}
