//! `cargo xtask simulate`: the store crashes without end, against a model, and whole groups of brokers
//! lose power, connections and time; docs/testing.md says how to read what it finds.

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::{process, workspace};

/// What to simulate.
#[derive(Args)]
pub struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The message store on a disk that loses power
    Store(Seeds),
    /// A broker group: masters, slaves, operators, clocks and networks that fail
    Replication(Seeds),
}

/// Which seeds.
#[derive(Args)]
struct Seeds {
    /// How many to run
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0)]
    first_seed: u64,
    /// How many run at a time; all processors if not given
    #[arg(long)]
    threads: Option<u64>,
    /// Run this one alone and print everything that happens
    #[arg(long, conflicts_with_all = ["seeds", "first_seed", "threads"])]
    seed: Option<u64>,
}

/// Builds the simulator in the release profile and runs it.
pub fn run(options: &Options) -> Result<()> {
    let (package, seeds) = match &options.what {
        What::Store(seeds) => ("rocketmq-store", seeds),
        What::Replication(seeds) => ("rocketmq-replication", seeds),
    };
    let mut cargo = workspace::cargo();
    cargo.args(["run", "--release", "--quiet", "-p", package, "--example", "simulate"]);
    cargo.arg("--");
    match seeds.seed {
        Some(seed) => cargo.args(["--seed", &seed.to_string()]),
        None => cargo
            .args(["--seeds", &seeds.seeds.to_string()])
            .args(["--first-seed", &seeds.first_seed.to_string()]),
    };
    if let Some(threads) = seeds.threads {
        cargo.args(["--threads", &threads.to_string()]);
    }
    process::run(&mut cargo)
}
