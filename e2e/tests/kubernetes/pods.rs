//! The process in a pod, from the machine that the nodes run on.

use std::fs;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Sends a signal to the broker in `pod`.
pub fn signal(pod: &Value, signal: Signal) -> Result<()> {
    let container = pod["status"]["containerStatuses"][0]["containerID"]
        .as_str()
        .and_then(|id| id.rsplit_once('/'))
        .context("a pod without a container")?
        .1
        .to_owned();
    let process = fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .find(|process| {
            let cgroup = fs::read_to_string(format!("/proc/{process}/cgroup"));
            let command = fs::read_to_string(format!("/proc/{process}/comm"));
            cgroup.is_ok_and(|text| text.contains(&container))
                && command.is_ok_and(|name| name.trim() == "broker")
        })
        .context("the broker's process is not on this machine")?;
    let process = Pid::from_raw(process).context("process 0")?;
    kill_process(process, signal).context("the broker's process is gone")
}
