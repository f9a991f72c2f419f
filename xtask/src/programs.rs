//! Debian programs that a chore calls, installed where they are missing.
//!
//! What the cluster needs is not here: e2e/cluster/packages.sh looks after it.

use std::process::Command;

use anyhow::{Context, Result};

use crate::process;
use crate::progress::step;

/// Makes sure that `program` can be started, from the Debian package that has it.
pub fn require(program: &str, package: &str) -> Result<()> {
    if process::succeeds(Command::new("which").arg(program)) {
        return Ok(());
    }
    step(&format!("install the Debian package {package}"), || {
        process::capture(Command::new("apt-get").args(["update", "-q"]))?;
        process::capture(
            Command::new("apt-get")
                .args(["install", "-y", "-q", "--no-install-recommends", package])
                .env("DEBIAN_FRONTEND", "noninteractive"),
        )
    })
    .with_context(|| {
        format!(
            "`{program}` is missing: run as root, or install the Debian package {package} first"
        )
    })?;
    Ok(())
}
