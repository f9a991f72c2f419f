//! The door to this repository's chores: `cargo xtask <command>`.
//!
//! Owns the command line; each command has a file of its own. Depends on no
//! crate of the product, so that it compiles in seconds: what needs the product
//! is run as a program.

mod bench;
mod clients;
mod cluster;
mod crds;
mod images;
mod interop;
mod plain;
mod process;
mod programs;
mod progress;
mod simulate;
mod test;
mod up;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Chores of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a Kubernetes cluster with the operator, an example RocketMQ and one message through it
    Up(up::Options),
    /// Remove the cluster that `up` and `test` started; what they built stays in the cache
    Down,
    /// Build the programs and the Java clients, make images of them and load them into the cluster
    Images(cluster::Choice),
    /// Run the tests: all suites, or the one named
    Test(test::Options),
    /// Run the interop scenarios against our servers and against Apache's, and print what differs
    Interop(interop::Options),
    /// Measure the figures of docs/benchmarks.md against the Java broker
    Bench(bench::Options),
    /// Crash the store, or a group of brokers, in a simulated world, seed after seed
    Simulate(simulate::Options),
    /// Write the custom resource definitions from the operator's Rust types, and deploy/ from its chart
    Crds(crds::Options),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Up(options) => up::run(&options),
        Command::Down => cluster::down(),
        Command::Images(choice) => images::run(&choice),
        Command::Test(options) => test::run(&options),
        Command::Interop(options) => interop::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Simulate(options) => simulate::run(&options),
        Command::Crds(options) => crds::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Returned from main it would come with a stack backtrace where RUST_BACKTRACE is set.
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
