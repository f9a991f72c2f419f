//! `cargo xtask test`: every suite, a summary line for each, and a last line with
//! the totals.

pub mod interop;
mod kubernetes;
mod tally;
mod unit;

use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};

use crate::cluster::{self, Choice};
use crate::progress::{say, seconds};
use crate::{process, workspace};
use tally::Tally;

/// What to test, and on which cluster.
#[derive(Args)]
pub struct Options {
    /// Only this suite
    suite: Option<Suite>,

    /// Afterwards remove the cluster and the Docker daemon, if they were started for the tests
    #[arg(long)]
    clean: bool,

    /// Run only the tests whose name contains this
    #[arg(long, value_name = "NAME")]
    only: Option<String>,

    #[command(flatten)]
    cluster: Choice,
}

/// The suites, from cheap to dear.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Suite {
    /// Formatting, lints, documentation, drift of generated files, and the tests of each crate
    Unit,
    /// The plain programs under Apache's Java clients, the Go client and mqadmin
    Interop,
    /// The operator and what it makes, on a real cluster
    Kubernetes,
}

impl Suite {
    fn name(self) -> &'static str {
        match self {
            Suite::Unit => "unit",
            Suite::Interop => "interop",
            Suite::Kubernetes => "kubernetes",
        }
    }
}

/// Runs the suites and prints what came of them. Fails if anything failed.
pub fn run(options: &Options) -> Result<()> {
    let was_up = cluster::is_up();
    let suites =
        options.suite.map_or_else(|| Suite::value_variants().to_vec(), |suite| vec![suite]);
    let mut summaries = Vec::new();
    let mut total = Tally::default();
    for suite in suites {
        say(format!("suite {}", suite.name()));
        let begin = Instant::now();
        let mut tally = Tally::default();
        let result = match suite {
            Suite::Unit => unit::run(options, &mut tally),
            Suite::Interop => interop::run(options, &mut tally),
            Suite::Kubernetes => kubernetes::run(options, &mut tally),
        };
        // A suite that could not be run to its end has failed, whatever passed before.
        if let Err(error) = result {
            eprintln!("suite {}: {error:#}", suite.name());
            tally.failed += 1;
        }
        if tally.passed + tally.failed == 0 {
            eprintln!("suite {}: no test was run", suite.name());
            tally.failed += 1;
        }
        summaries.push(format!("{:<10} {tally} in {}", suite.name(), seconds(begin.elapsed())));
        say(summaries.last().map_or("", String::as_str));
        total += tally;
    }
    if options.clean && !was_up && cluster::is_up() {
        cluster::down()?;
    }
    println!();
    for summary in &summaries {
        println!("{summary}");
    }
    println!("{total}");
    if total.failed > 0 {
        bail!("{} failed", total.failed);
    }
    Ok(())
}

/// Runs `cargo test` with these arguments and counts into `tally`.
fn cargo_test(
    arguments: &[&str],
    only: Option<&str>,
    prepare: impl FnOnce(&mut Command),
    tally: &mut Tally,
) -> Result<()> {
    let mut command = workspace::cargo();
    command.arg("test").args(arguments).arg("--no-fail-fast");
    command.args(only);
    prepare(&mut command);
    let mut counted = Tally::default();
    let success = process::watch(&mut command, |line| counted.read(line))?;
    *tally += counted;
    if !success && counted.failed == 0 {
        bail!("`cargo test {}` failed without a failed test", arguments.join(" "));
    }
    Ok(())
}
