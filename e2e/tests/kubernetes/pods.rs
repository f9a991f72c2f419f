//! The process in a pod and its network, from the machine that the nodes run on.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Sends a signal to the broker in `pod`.
pub fn signal(pod: &Value, signal: Signal) -> Result<()> {
    kill_process(broker_of(pod)?, signal).context("the broker's process is gone")
}

fn broker_of(pod: &Value) -> Result<Pid> {
    let container = pod["status"]["containerStatuses"][0]["containerID"]
        .as_str()
        .and_then(|id| id.rsplit_once('/'))
        .context("a pod without a container")?
        .1
        .to_owned();
    process("the broker", "broker", |process| {
        let cgroup = fs::read_to_string(format!("/proc/{process}/cgroup"));
        cgroup.is_ok_and(|text| text.contains(&container))
    })
}

fn process(what: &str, name: &str, is_wanted: impl Fn(i32) -> bool) -> Result<Pid> {
    let found = fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .find(|process| {
            let command = fs::read_to_string(format!("/proc/{process}/comm"));
            command.is_ok_and(|found| found.trim() == name) && is_wanted(*process)
        })
        .with_context(|| format!("{what} is not on this machine"))?;
    Pid::from_raw(found).context("process 0")
}

/// The network of a pod. It outlives the pod's containers.
pub struct Network(File);

impl Network {
    /// That of the pod that a broker runs in.
    pub fn of(pod: &Value) -> Result<Network> {
        let process = broker_of(pod)?.as_raw_nonzero();
        Ok(Network(File::open(format!("/proc/{process}/ns/net"))?))
    }

    /// Lets nothing in or out, or mends that.
    pub fn cut(&self, is_cut: bool) -> Result<()> {
        let change = if is_cut { "--insert" } else { "--delete" };
        let network = format!("--net=/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd());
        for chain in ["INPUT", "OUTPUT"] {
            let status = Command::new("nsenter")
                .args([&network, "iptables", "--wait", change, chain, "--jump", "DROP"])
                .status()
                .context("nsenter, iptables")?;
            ensure!(status.success(), "iptables {change} {chain} ended with {status}");
        }
        Ok(())
    }
}
