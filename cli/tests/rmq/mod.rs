//! The built program: single commands, and a standalone in a directory of its own.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// What one command printed and how it ended.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    pub fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// Each line of standard output as JSON.
    pub fn json_lines(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Standard output as one JSON value.
    pub fn json(&self) -> Value {
        let mut lines = self.json_lines();
        assert_eq!(lines.len(), 1, "{self:?}");
        lines.remove(0)
    }
}

pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rmq"));
    command.env_remove("NAMESRV_ADDR").env_remove("RUST_LOG");
    command
}

/// Runs a command to its end.
pub fn rmq(args: &[&str]) -> Ended {
    let output = program().args(args).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    Ended {
        code: output.status.code().expect("not ended by a signal"),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    }
}

/// A running `rmq standalone`; killed when dropped.
pub struct Standalone {
    child: Child,
    pub started: Value,
}

impl Standalone {
    /// Starts on free ports with small files, and waits until it says that it is ready.
    pub fn start(data: &Path, settings: &[&str]) -> Self {
        let mut command = program();
        command.args(["standalone", "-o", "json", "--port", "0", "--namesrv-port", "0", "--data"]);
        command.arg(data);
        let small = [
            "mappedFileSizeCommitLog=1048576",
            "mappedFileSizeConsumeQueue=20000",
            "flushConsumerOffsetInterval=100",
        ];
        for setting in small.iter().chain(settings) {
            command.args(["--set", setting]);
        }
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().expect("it says when it is ready").unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, started: serde_json::from_str(&first).unwrap() }
    }

    pub fn namesrv(&self) -> &str {
        self.started["namesrv"].as_str().unwrap()
    }

    /// Runs a command against it, with JSON output.
    pub fn rmq(&self, args: &[&str]) -> Ended {
        rmq(&[args, &["-o", "json", "-n", self.namesrv()]].concat())
    }

    /// Starts a command against it, with JSON output.
    pub fn spawn(&self, args: &[&str]) -> Child {
        program()
            .args(args)
            .args(["-o", "json", "-n", self.namesrv()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Sends a signal by name and waits for the end.
    pub fn end(mut self, signal: &str) -> ExitStatus {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap().success()
        );
        self.child.wait().unwrap()
    }
}

impl Drop for Standalone {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for a condition that another process brings about.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "not within 30 s: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
