//! The figures of docs/benchmarks.md: our broker against Apache's, interleaved.
//!
//! Run by `cargo xtask bench`. Arguments: `--rounds N` (3), `--warmup-seconds N` (20), `--seconds N`
//! (20), `--only TEXT` (figures whose name holds it). The load and the broker share the machine, so
//! CPU per message is the honest figure; throughput ends where the load's own CPU ends.

mod delays;
mod filters;
mod java_client;
mod meter;
mod rebalance;
mod replication;
mod retries;
mod standalone;
mod transactions;
mod wire;

use anyhow::{Context, Result, bail, ensure};

struct Options {
    rounds: usize,
    warmup_seconds: u64,
    seconds: u64,
    only: String,
}

impl Options {
    fn wants(&self, name: &str) -> bool {
        name.contains(&self.only)
    }
}

fn main() -> Result<()> {
    let options = options()?;
    let directory = tempfile::tempdir()?;
    let place = |name: &str| directory.path().join(name);
    if options.wants("standalone") {
        standalone::run(&place("standalone"))?;
    }
    java_client::run(&place("java-client"), &options)?;
    if options.wants("delays") {
        delays::run(&place("delays"))?;
    }
    if options.wants("retries") {
        retries::run(&place("retries"))?;
    }
    if options.wants("transactions") {
        transactions::run(&place("transactions"))?;
    }
    if options.wants("rebalance") {
        rebalance::run(&place("rebalance"))?;
    }
    if options.wants("replication") {
        replication::run(&place("replication"), &options)?;
    }
    if options.wants("filters") {
        filters::run(&place("filters"))?;
    }
    Ok(())
}

fn options() -> Result<Options> {
    let mut options = Options { rounds: 3, warmup_seconds: 20, seconds: 20, only: String::new() };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().with_context(|| format!("{name} needs a value"))?;
        let number = || value.parse().with_context(|| format!("{name} {value}: a number expected"));
        match name.as_str() {
            "--rounds" => options.rounds = number()? as usize,
            "--warmup-seconds" => options.warmup_seconds = number()?,
            "--seconds" => options.seconds = number()?,
            "--only" => options.only = value,
            _ => bail!("{name}: expected --rounds, --warmup-seconds, --seconds or --only"),
        }
    }
    ensure!(options.rounds > 0 && options.seconds > 0, "--rounds and --seconds must be above 0");
    Ok(options)
}
