//! `cargo xtask interop`: the interop scenarios against our servers and against Apache's, side by side.
//!
//! What a scenario expects is what Apache's broker does; a scenario that fails there expects our own
//! reading of it. Those that must, because they show a difference that docs/compatibility.md lists,
//! are named with the reason in `e2e/tests/interop/differences.txt`; every other failure is one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use crate::progress::say;
use crate::test::interop;
use crate::{process, workspace};

/// Whom to compare with, and which scenarios.
#[derive(Args)]
pub struct Options {
    /// Whose broker and name server say what is expected
    #[arg(long, value_enum, default_value_t = Peer::Java)]
    peer: Peer,

    /// Run only the scenarios whose name contains this
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Peer {
    /// Apache's 5.3.3
    Java,
}

/// Whether each scenario held, by name.
type Outcomes = BTreeMap<String, bool>;

/// Runs the scenarios twice and prints a table. Fails if one fails on either side, those listed as
/// differences apart, and if a listed one holds.
pub fn run(options: &Options) -> Result<()> {
    let prepared = interop::Prepared::build()?;
    let run = |name: &str, peer: &str| -> Result<Outcomes> {
        say(format!("scenarios against {name}"));
        let mut command = workspace::cargo();
        command.args(["test", "--package", "e2e", "--test", "interop", "--no-fail-fast"]);
        command.args(options.only.as_deref());
        prepared.environment(&mut command);
        command.env("ROCKETMQ_E2E_PEER", peer);
        let mut outcomes = Outcomes::new();
        // Failed scenarios are read from the lines; that something failed is no news then.
        process::watch(&mut command, |line| outcomes.extend(outcome(line)))?;
        Ok(outcomes)
    };
    let ours = run("ours", "ours")?;
    let theirs = match options.peer {
        Peer::Java => run("Apache's 5.3.3", "java")?,
    };
    let path = workspace::root().join("e2e/tests/interop/differences.txt");
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let differences = differences(&text);
    let names: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    let mut failures = Vec::new();
    println!("\n| scenario | ours | Java 5.3.3 | difference |\n| --- | --- | --- | --- |");
    for name in names {
        let difference = differences.get(name.as_str());
        let shown = |held: Option<&bool>| match held {
            Some(true) => "holds",
            Some(false) => "FAILS",
            None => "not run",
        };
        let (own, their) = (ours.get(name), theirs.get(name));
        let reason = difference.copied().unwrap_or_default();
        println!("| {name} | {} | {} | {reason} |", shown(own), shown(their));
        if own != Some(&true) {
            failures.push(format!("{name} does not hold with our servers"));
        }
        match (their, difference) {
            (Some(true), Some(_)) => {
                failures.push(format!("{name} is listed as a difference and holds with Java"));
            }
            (Some(true), None) | (_, Some(_)) => {}
            (_, None) => failures.push(format!("{name} does not hold with Java and is not listed")),
        }
    }
    if ours.is_empty() {
        bail!("no scenario was run");
    }
    if !failures.is_empty() {
        bail!("{}", failures.join("\n"));
    }
    Ok(())
}

/// The scenario that a line of the test harness speaks of, and whether it held.
fn outcome(line: &str) -> Option<(String, bool)> {
    let (name, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
    match result {
        "ok" => Some((name.to_owned(), true)),
        "FAILED" => Some((name.to_owned(), false)),
        _ => None,
    }
}

/// Scenario and reason, from lines `name: reason`; `#` begins a comment.
fn differences(text: &str) -> BTreeMap<&str, &str> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(": ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_read_from_the_lines_of_the_harness() {
        let held = outcome("test clients::java_5_3_batch ... ok");
        assert_eq!(held, Some(("clients::java_5_3_batch".to_owned(), true)));
        assert_eq!(outcome("test a::b ... FAILED"), Some(("a::b".to_owned(), false)));
        assert_eq!(outcome("test result: FAILED. 1 passed; 1 failed"), None);
        assert_eq!(outcome("test a::b ... ignored"), None);
    }

    #[test]
    fn differences_have_reasons() {
        let text = "# Why\n\na::b: Java loses it\n";
        assert_eq!(differences(text), BTreeMap::from([("a::b", "Java loses it")]));
    }
}
