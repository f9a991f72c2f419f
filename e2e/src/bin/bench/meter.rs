//! What a process used, and whether the machine is quiet enough to ask.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::wait;

/// A machine busier than this at a round's start would measure its neighbours.
const LOAD_MAX: f64 = 3.0;
const LOAD_WAIT: Duration = Duration::from_secs(180);

/// Waits until the machine is quiet, but not forever: the figures then say what they are worth by
/// their spread.
pub fn wait_for_quiet() {
    let quiet = wait::until("a quiet machine", LOAD_WAIT, || {
        let load = std::fs::read_to_string("/proc/loadavg")?;
        let load: f64 = load.split(' ').next().unwrap_or_default().parse()?;
        ensure!(load < LOAD_MAX, "load average is {load}");
        Ok(())
    });
    if let Err(error) = quiet {
        eprintln!("measuring on a busy machine: {error:#}");
    }
}

/// User and system time of a process.
pub fn cpu_seconds(process: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name in parentheses may hold blanks; the fields behind it are counted from 3.
    let (_, fields) = stat.rsplit_once(')').context("no name in /proc/PID/stat")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |field: usize| -> Result<f64> {
        Ok(fields.get(field - 3).context("a short /proc/PID/stat")?.parse()?)
    };
    let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
    Ok((ticks(14)? + ticks(15)?) / ticks_per_second)
}

pub fn resident_mib(process: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: f64 =
        line.and_then(|line| line.split_whitespace().next()).context("no VmRSS")?.parse()?;
    Ok(kib / 1024.0)
}
