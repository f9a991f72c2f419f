//! Runs seeds of simulated groups: `cargo xtask simulate replication`.

#[path = "../tests/simulator/mod.rs"]
mod simulator;

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use simulator::{Failure, Summary};

const USAGE: &str = "usage: simulate [--seeds N] [--first-seed S] [--threads T] | --seed X";

struct Options {
    seeds: u64,
    first_seed: u64,
    threads: u64,
    replay: Option<u64>,
}

fn parse(arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let mut options = Options { seeds: 1000, first_seed: 0, threads, replay: None };
    let mut arguments = arguments;
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

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("error: {error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match options.replay {
        Some(seed) => replay(seed),
        None => run_all(&options),
    }
}

/// Runs one seed and prints everything that happens.
fn replay(seed: u64) -> ExitCode {
    for line in simulator::trace(seed) {
        println!("{line}");
    }
    match simulator::run(seed, false) {
        Ok(summary) => {
            println!("seed {seed} passes: {summary:?}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("seed {seed} fails: {}", failure.reason);
            ExitCode::FAILURE
        }
    }
}

fn report(failure: &Failure) {
    for line in &failure.trace {
        println!("{line}");
    }
    println!("seed {} fails: {}", failure.seed, failure.reason);
}

fn run_all(options: &Options) -> ExitCode {
    // A panic is part of a failure's reason; its backtrace comes with the replay.
    std::panic::set_hook(Box::new(|_| {}));
    let begun = Instant::now();
    let end = options.first_seed.saturating_add(options.seeds);
    let next = AtomicU64::new(options.first_seed);
    let shared = Mutex::new((Summary::default(), None::<Failure>));
    std::thread::scope(|scope| {
        for _ in 0..options.threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let result = simulator::run(seed, false);
                    let Ok(mut shared) = shared.lock() else { return };
                    match result {
                        Ok(summary) => shared.0.add(&summary),
                        Err(failure) => {
                            // Nobody begins another seed; the smallest one found is shown.
                            next.store(end, Ordering::Relaxed);
                            if shared.1.as_ref().is_none_or(|other| failure.seed < other.seed) {
                                shared.1 = Some(failure);
                            }
                        }
                    }
                }
            });
        }
    });
    let Ok((summary, failure)) = shared.into_inner() else { return ExitCode::FAILURE };
    if let Some(failure) = failure {
        report(&simulator::run(failure.seed, true).err().unwrap_or_else(|| failure.clone()));
        println!("replay it with: cargo xtask simulate replication --seed {}", failure.seed);
        return ExitCode::FAILURE;
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{} seeds from {} pass: {} faults, {} reigns, {} messages acknowledged, {:.0} hours of the \
         groups; {} messages lost with every copy that counted, {} groups left without a master for \
         that",
        options.seeds,
        options.first_seed,
        summary.faults,
        summary.reigns,
        summary.acknowledged,
        summary.simulated_ms as f64 / 3_600_000.0,
        summary.excused,
        summary.blocked
    );
    println!(
        "{seconds:.1} s, {:.0} seeds per second on {} threads",
        options.seeds as f64 / seconds,
        options.threads
    );
    ExitCode::SUCCESS
}
