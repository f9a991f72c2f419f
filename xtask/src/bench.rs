//! `cargo xtask bench`: the figures of docs/benchmarks.md, against the Java broker or the machine's
//! limits in the same run.

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::{clients, process, workspace};

/// What to measure.
#[derive(Args)]
pub struct Options {
    /// The broker against the Java broker, or the store against the machine
    #[arg(value_enum, default_value_t = Subject::Broker)]
    subject: Subject,
    /// Passed on. Broker: --rounds N, --warmup-seconds N, --seconds N, --only TEXT. Store: --seconds N,
    /// --sustained-seconds N, --only TEXT, --directory PATH
    #[arg(last = true)]
    arguments: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Subject {
    Broker,
    Store,
}

/// Builds everything in the release profile and measures.
pub fn run(options: &Options) -> Result<()> {
    match options.subject {
        Subject::Broker => broker(&options.arguments),
        Subject::Store => process::run(
            workspace::cargo()
                .args(["bench", "--package", "rocketmq-store", "--bench", "store", "--"])
                .args(&options.arguments),
        ),
    }
}

fn broker(arguments: &[String]) -> Result<()> {
    let java = clients::java()?;
    process::run(workspace::cargo().args(["build", "--release", "--bins"]))?;
    let programs = workspace::target()?.join("release");
    process::run(
        std::process::Command::new(programs.join("bench"))
            .args(arguments)
            .env("ROCKETMQ_E2E_BIN_DIR", &programs)
            .env("ROCKETMQ_E2E_JAVA_DIR", java),
    )
}
