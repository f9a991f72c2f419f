//! The store's figures of docs/benchmarks.md, each beside the machine's limit in the same run.
//!
//! `cargo xtask bench store`. Arguments: `--seconds N` (2, of one measurement), `--sustained-seconds N`
//! (120), `--only TEXT` (cases whose name holds it), `--directory PATH` (the system's for temporary
//! files: name one on the disk to be measured).

mod append;
mod bed;
mod counting;
mod dispatch;
mod limits;
mod read;

use std::path::PathBuf;
use std::time::Duration;

use bed::{Options, Result};

type Case = fn(&Options) -> Result;

const CASES: [(&str, Case); 9] = [
    ("limits", limits::run),
    ("append", append::against_bare),
    ("threads", append::threads),
    ("dispatch", dispatch::against_append),
    ("sync", append::sync_flush),
    ("pull", read::pull),
    ("recovery", read::recovery),
    ("scale", read::scale),
    ("sustained", append::sustained),
];

fn main() -> Result {
    let options = options()?;
    for (_, run) in CASES.iter().filter(|(name, _)| name.contains(&options.only)) {
        run(&options)?;
    }
    Ok(())
}

fn options() -> Result<Options> {
    let mut options = Options {
        directory: std::env::temp_dir(),
        window: Duration::from_secs(2),
        sustained: Duration::from_secs(120),
        only: String::new(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        // `cargo bench` adds this one.
        if name == "--bench" {
            continue;
        }
        let value = arguments.next().ok_or_else(|| format!("{name}: a value expected"))?;
        let seconds = || -> Result<Duration> {
            let seconds = value.parse().map_err(|error| format!("{name} {value}: {error}"))?;
            Ok(Duration::from_secs(seconds))
        };
        match name.as_str() {
            "--seconds" => options.window = seconds()?,
            "--sustained-seconds" => options.sustained = seconds()?,
            "--only" => options.only = value,
            "--directory" => options.directory = PathBuf::from(value),
            _ => {
                let known = "--seconds, --sustained-seconds, --only or --directory";
                return Err(format!("{name}: {known} expected").into());
            }
        }
    }
    Ok(options)
}
