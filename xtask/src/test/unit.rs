//! The suite that needs nothing but cargo: formatting, lints, documentation,
//! drift of generated files, and the tests of every crate.

use std::process::Command;

use anyhow::Result;

use super::{Options, Tally, cargo_test};
use crate::progress::{say, step};
use crate::{process, workspace};

/// Runs the checks, then the tests.
pub fn run(options: &Options, tally: &mut Tally) -> Result<()> {
    if options.only.is_none() {
        check("formatting", workspace::cargo().args(["fmt", "--all", "--check"]), tally);
        check(
            "lints",
            workspace::cargo().args([
                "clippy",
                "--workspace",
                "--all-targets",
                "--",
                "--deny",
                "warnings",
            ]),
            tally,
        );
        check(
            "documentation",
            workspace::cargo()
                .args(["doc", "--workspace", "--no-deps", "--document-private-items"])
                .env("RUSTDOCFLAGS", "--deny warnings"),
            tally,
        );
        check(
            "generated definitions",
            workspace::cargo().args([
                "run",
                "--quiet",
                "--package",
                "xtask",
                "--",
                "crds",
                "--check",
            ]),
            tally,
        );
    }
    let only = options.only.as_deref();
    cargo_test(&["--workspace", "--exclude", "e2e"], only, |_| (), tally)?;
    // Of the end-to-end crate, what is tested without a broker or a cluster.
    cargo_test(&["--package", "e2e", "--lib"], only, |_| (), tally)
}

/// One check counts as one test; the others go on if it fails.
fn check(what: &str, command: &mut Command, tally: &mut Tally) {
    let result = step(what, || process::run(command));
    tally.check(result.is_ok());
    if let Err(error) = result {
        say(format!("{what}: FAILED: {error:#}"));
    }
}
