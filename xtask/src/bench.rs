//! `cargo xtask bench`: the figures of docs/benchmarks.md, against the Java broker in the same run.

use anyhow::Result;
use clap::Args;

use crate::{clients, process, workspace};

/// What to measure.
#[derive(Args)]
pub struct Options {
    /// Passed on: --rounds N, --warmup-seconds N, --seconds N, --only TEXT
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Builds everything in the release profile and measures.
pub fn run(options: &Options) -> Result<()> {
    let java = clients::java()?;
    process::run(workspace::cargo().args(["build", "--release", "--bins"]))?;
    let programs = workspace::target()?.join("release");
    process::run(
        std::process::Command::new(programs.join("bench"))
            .args(&options.arguments)
            .env("ROCKETMQ_E2E_BIN_DIR", &programs)
            .env("ROCKETMQ_E2E_JAVA_DIR", java),
    )
}
