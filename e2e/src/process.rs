//! A child process with its output in files, killed when dropped.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::wait;

/// One running child.
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`; both output streams are appended to the file `log`.
    pub fn start(name: &str, command: &mut Command, log: &Path) -> Result<Process> {
        let file = File::options().create(true).append(true).open(log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        Self::spawn(name, command, log)
    }

    /// Starts `command` with piped input and output; its error stream is appended to the file `log`.
    pub fn start_piped(
        name: &str,
        command: &mut Command,
        log: &Path,
    ) -> Result<(Process, ChildStdin, ChildStdout)> {
        let file = File::options().create(true).append(true).open(log)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file);
        let mut process = Self::spawn(name, command, log)?;
        let input = process.child.stdin.take().context("no standard input")?;
        let output = process.child.stdout.take().context("no standard output")?;
        Ok((process, input, output))
    }

    fn spawn(name: &str, command: &mut Command, log: &Path) -> Result<Process> {
        let child = command.spawn().with_context(|| format!("start {name}: {command:?}"))?;
        Ok(Process { name: name.to_owned(), child, log: log.to_owned() })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Fails, with the end of its log, when the process is gone.
    pub fn check_running(&mut self) -> Result<()> {
        let status = self.child.try_wait()?;
        ensure!(
            status.is_none(),
            "{} ended with {:?}, its log ends with:\n{}",
            self.name,
            status,
            self.log_tail()
        );
        Ok(())
    }

    /// kill -9, and waits until it is gone.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        let status = self.child.wait()?;
        ensure!(
            status.signal() == Some(Signal::KILL.as_raw()),
            "{} was to be killed but had ended with {status}, its log ends with:\n{}",
            self.name,
            self.log_tail()
        );
        Ok(())
    }

    /// Sends a signal, and waits for nothing.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).with_context(|| format!("send {signal:?} to {}", self.name))
    }

    /// SIGTERM, then waits for the end; the status is the caller's to judge.
    pub fn terminate(&mut self, limit: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.wait(limit)
    }

    /// Waits for the end.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        wait::until(&format!("end of {}", self.name), limit, || {
            match self.child.try_wait().map_err(anyhow::Error::from)? {
                Some(status) => Ok(status),
                None => Err(anyhow::anyhow!("it still runs")),
            }
        })
    }

    /// Everything it printed to its log file.
    pub fn log_text(&self) -> String {
        std::fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// The last lines of its log.
    pub fn log_tail(&self) -> String {
        let text = self.log_text();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already; then there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
