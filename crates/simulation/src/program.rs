//! The program that runs seeds, or replays one.

use std::process::ExitCode;
use std::time::Instant;

use crate::Simulation;
use crate::seeds::{processors, replay_with, run_seeds};

const USAGE: &str = "usage: simulate [--seeds N] [--first-seed S] [--threads T] | --seed X";

struct Options {
    seeds: u64,
    first_seed: u64,
    threads: u64,
    replay: Option<u64>,
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options { seeds: 1000, first_seed: 0, threads: processors(), replay: None };
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} lacks its number"))?;
        let number: u64 =
            value.parse().map_err(|_| format!("{name} is {value}, allowed is a number"))?;
        match name.as_str() {
            "--seeds" => options.seeds = number,
            "--first-seed" => options.first_seed = number,
            "--threads" => options.threads = number.clamp(1, 1024),
            "--seed" => options.replay = Some(number),
            _ => return Err(format!("{name} is not known")),
        }
    }
    Ok(options)
}

/// The `main` of a simulation's program, by the arguments of the process. Prints what was done, or
/// everything that led to the failure.
pub fn run_as_program<S: Simulation>() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("error: {error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match options.replay {
        Some(seed) => replay::<S>(seed),
        None => run_all::<S>(&options),
    }
}

fn replay<S: Simulation>(seed: u64) -> ExitCode {
    let outcome = S::run(seed, true);
    for line in &outcome.trace {
        println!("{line}");
    }
    match outcome.result {
        Ok(summary) => {
            println!("seed {seed} passes: {summary}");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            println!("seed {seed} fails: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn run_all<S: Simulation>(options: &Options) -> ExitCode {
    let Options { seeds, first_seed, threads, .. } = *options;
    // A panic is part of a failure's reason; its backtrace comes with the replay.
    std::panic::set_hook(Box::new(|_| {}));
    let begun = Instant::now();
    let all = first_seed..first_seed.saturating_add(seeds);
    match run_seeds::<S>(all, threads) {
        Ok(summary) => {
            let seconds = begun.elapsed().as_secs_f64();
            let rate = seeds as f64 / seconds;
            println!("{seeds} seeds from {first_seed} pass: {summary}");
            println!("{seconds:.1} s, {rate:.0} seeds per second on {threads} threads");
            ExitCode::SUCCESS
        }
        Err((seed, reason)) => {
            for line in S::run(seed, true).trace {
                println!("{line}");
            }
            println!("seed {seed} fails: {reason}\n{}", replay_with::<S>(seed));
            ExitCode::FAILURE
        }
    }
}
