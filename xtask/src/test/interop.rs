//! The suite of foreign clients: the plain programs on this machine under
//! Apache's Java clients and tools and the Go client.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::{Options, Tally, cargo_test};
use crate::{clients, images, workspace};

/// Everything that the tests start, built.
pub struct Prepared {
    programs: PathBuf,
    java: PathBuf,
    go: PathBuf,
}

impl Prepared {
    /// Builds the programs and the clients.
    pub fn build() -> Result<Prepared> {
        Ok(Prepared { programs: images::programs()?, java: clients::java()?, go: clients::go()? })
    }

    /// Tells the tests where they are.
    pub fn environment(&self, command: &mut Command) {
        environment(command, &self.programs, &self.java, &self.go);
    }
}

/// Builds the programs and the clients, then runs the tests.
pub fn run(options: &Options, tally: &mut Tally) -> Result<()> {
    let prepared = Prepared::build()?;
    cargo_test(
        &["--package", "e2e", "--test", "interop"],
        options.only.as_deref(),
        |command| {
            prepared.environment(command);
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
