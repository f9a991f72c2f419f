//! The suite of foreign clients: the plain programs on this machine under
//! Apache's Java clients and tools and the Go client.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::{Options, Tally, cargo_test};
use crate::{clients, images, workspace};

/// Builds the programs and the clients, then runs the tests.
pub fn run(options: &Options, tally: &mut Tally) -> Result<()> {
    let programs = images::programs()?;
    let java = clients::java()?;
    let go = clients::go()?;
    cargo_test(
        &["--package", "e2e", "--test", "interop"],
        options.only.as_deref(),
        |command| {
            environment(command, &programs, &java, &go);
            command.args(["--", "--show-output"]);
        },
        tally,
    )
}

/// What every end-to-end test finds in its environment; paths are absolute.
pub fn environment(command: &mut Command, programs: &Path, java: &Path, go: &Path) {
    command
        .env("ROCKETMQ_E2E_BIN_DIR", programs)
        .env("ROCKETMQ_E2E_CACHE", workspace::cache())
        .env("ROCKETMQ_E2E_JAVA_DIR", java)
        .env("ROCKETMQ_E2E_GO_PEER", go);
}
