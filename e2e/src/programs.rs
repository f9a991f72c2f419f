//! The foreign client programs: one process per client, in which many
//! producers and consumers run; each prints JSON lines that are kept here.

use std::collections::HashMap;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::environment;
use crate::line::{Line, Received};
use crate::process::Process;

const POLL: Duration = Duration::from_millis(20);

/// How long a program may take to do what is not a matter of message counts.
pub const START_LIMIT: Duration = Duration::from_secs(120);

/// One of the clients that judge us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// Apache's Java client 4.9.8.
    Java49,
    /// Apache's Java client 5.3.3.
    Java53,
    /// Apache's Go client 2.1.2.
    Go,
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Client::Java49 => "java-4.9.8",
            Client::Java53 => "java-5.3.3",
            Client::Go => "go-2.1.2",
        })
    }
}

impl Client {
    /// The command that runs the client's programs, with everything it writes kept under `directory`.
    pub fn command(self, directory: &Path) -> Result<Command> {
        self.command_with_heap(directory, "256m")
    }

    /// As [`Client::command`]; the Java clients' heap grows to `heap`, as `-Xmx` takes it.
    pub fn command_with_heap(self, directory: &Path, heap: &str) -> Result<Command> {
        let mut command = match self {
            Client::Go => Command::new(environment::go_program()?),
            Client::Java49 | Client::Java53 => {
                let library = environment::java_library(match self {
                    Client::Java49 => "4.9.8",
                    _ => "5.3.3",
                })?;
                let mut command = Command::new("java");
                command
                    .args(["-Xms64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"])
                    .arg(format!("-Xmx{heap}"))
                    .arg(format!("-Duser.home={}", directory.display()))
                    .arg(format!("-Drocketmq.client.logRoot={}", directory.display()))
                    .arg(format!("-Drocketmq.client.localOffsetStoreDir={}", directory.display()))
                    .arg("-cp")
                    .arg(format!("{}/*", library.display()))
                    .arg("rs.rocketmq.e2e.Main");
                command
            }
        };
        command.env("HOME", directory);
        Ok(command)
    }
}

/// What a program has printed so far.
#[derive(Default)]
pub struct Output {
    /// Every line.
    pub lines: Vec<Line>,
    /// How many messages arrived.
    pub received: usize,
    /// How many sends were answered SEND_OK.
    pub acknowledged: usize,
    ended: bool,
}

impl Output {
    fn push(&mut self, line: Line) {
        self.ended |= matches!(line, Line::Done(_) | Line::Failed { .. });
        self.received += usize::from(matches!(line, Line::Recv(_)));
        self.acknowledged +=
            usize::from(matches!(&line, Line::Send(sent) if sent.status == "SEND_OK"));
        self.lines.push(line);
    }
}

type Outputs = Arc<Mutex<HashMap<String, Output>>>;

/// A process of one client in which programs are started and stopped. It ends when this and all of its
/// programs are dropped.
pub struct Programs(Arc<Running>);

struct Running {
    client: Client,
    // Dropped first: the end of its input ends the process.
    input: Mutex<ChildStdin>,
    process: Process,
    outputs: Outputs,
    next: Mutex<u32>,
}

impl Programs {
    /// Starts the process; its files and its log are under `directory`.
    pub fn start(client: Client, directory: &Path) -> Result<Programs> {
        let home = directory.join(client.to_string());
        std::fs::create_dir_all(&home)?;
        let mut command = client.command(&home)?;
        command.arg("serve");
        Self::start_command(client, command, &home.join("stderr.log"))
    }

    /// Starts the process by a command of its own, wherever that runs it; its errors go to `log`.
    pub fn start_command(client: Client, mut command: Command, log: &Path) -> Result<Programs> {
        let (process, input, output) =
            Process::start_piped(&client.to_string(), &mut command, log)?;
        let outputs: Outputs = Arc::default();
        let reader = Arc::clone(&outputs);
        thread::spawn(move || read(output, &reader));
        Ok(Programs(Arc::new(Running {
            client,
            input: Mutex::new(input),
            process,
            outputs,
            next: Mutex::new(0),
        })))
    }

    /// Starts a producer; `arguments` are those of the programs under e2e/java and e2e/go.
    pub fn produce(&self, namesrv: &str, arguments: &[&str]) -> Result<Program> {
        self.run("produce", namesrv, arguments)
    }

    /// Starts a consumer.
    pub fn consume(&self, namesrv: &str, arguments: &[&str]) -> Result<Program> {
        self.run("consume", namesrv, arguments)
    }

    /// Starts a load; see the Bench program under e2e/java.
    pub fn bench(&self, namesrv: &str, arguments: &[&str]) -> Result<Program> {
        self.run("bench", namesrv, arguments)
    }

    /// Starts a producer that sends in transactions.
    pub fn transact(&self, namesrv: &str, arguments: &[&str]) -> Result<Program> {
        self.run("transact", namesrv, arguments)
    }

    /// Starts a large group that shares its queues anew; Java only.
    pub fn rebalance(&self, namesrv: &str, arguments: &[&str]) -> Result<Program> {
        self.run("rebalance", namesrv, arguments)
    }

    fn run(&self, program: &str, namesrv: &str, arguments: &[&str]) -> Result<Program> {
        let running = &self.0;
        let id = {
            let mut next = lock(&running.next);
            *next += 1;
            format!("{program}-{next}")
        };
        lock(&running.outputs).insert(id.clone(), Output::default());
        let order =
            format!("start\t{id}\t{program}\t--namesrv\t{namesrv}\t{}\n", arguments.join("\t"));
        lock(&running.input).write_all(order.as_bytes()).with_context(|| {
            format!(
                "{} takes no order, its log ends with:\n{}",
                running.client,
                running.process.log_tail()
            )
        })?;
        Ok(Program {
            name: format!("{} {program} {}", running.client, arguments.join(" ")),
            id,
            process: Arc::clone(running),
        })
    }
}

fn read(output: ChildStdout, outputs: &Outputs) {
    for text in BufReader::new(output).lines().map_while(Result::ok) {
        #[derive(serde::Deserialize)]
        struct Id {
            id: Option<String>,
        }
        let id = serde_json::from_str::<Id>(&text).ok().and_then(|line| line.id);
        // What is no line of a program (a client that prints on its own) is of no interest,
        // but a program's line must be understood.
        let Some(id) = id else { continue };
        let line = serde_json::from_str(&text).unwrap_or_else(|error| Line::Failed {
            error: format!("line not understood: {error}: {text}"),
            trace: String::new(),
        });
        lock(outputs).entry(id).or_default().push(line);
    }
    for program in lock(outputs).values_mut() {
        program.ended = true;
    }
}

/// A producer or consumer that runs in a [`Programs`] process.
pub struct Program {
    name: String,
    id: String,
    process: Arc<Running>,
}

impl Program {
    /// Waits until `enough` holds of what was printed so far, and gives back what it found.
    pub fn wait<T>(
        &self,
        what: &str,
        limit: Duration,
        mut enough: impl FnMut(&Output) -> Option<T>,
    ) -> Result<T> {
        let deadline = Instant::now() + limit;
        loop {
            {
                let programs = lock(&self.process.outputs);
                let output = programs.get(&self.id).context("unknown program")?;
                if let Some(Line::Failed { error, trace }) = output.lines.last() {
                    bail!("{}: {error}\n{trace}", self.name);
                }
                if let Some(found) = enough(output) {
                    return Ok(found);
                }
                if output.ended || Instant::now() >= deadline {
                    bail!(
                        "{}: {what} did not come {}; {} lines, the last ones: {:#?}",
                        self.name,
                        if output.ended { "before its end" } else { "in time" },
                        output.lines.len(),
                        &output.lines[output.lines.len().saturating_sub(3)..]
                    );
                }
            }
            thread::sleep(POLL);
        }
    }

    /// Waits until it has started.
    pub fn wait_ready(&self) -> Result<()> {
        self.wait("its start", START_LIMIT, |output| {
            output.lines.iter().any(|line| matches!(line, Line::Ready)).then_some(())
        })
    }

    /// Waits until a push consumer holds exactly `count` queues; gives their names.
    pub fn wait_assigned(&self, count: usize) -> Result<Vec<String>> {
        self.wait(&format!("{count} assigned queues"), START_LIMIT, |output| {
            let newest = output.lines.iter().rev().find_map(|line| match line {
                Line::Assigned { queues } => Some(queues),
                _ => None,
            });
            newest.filter(|queues| queues.len() == count).cloned()
        })
    }

    /// Waits until `count` messages have arrived.
    pub fn wait_received(&self, count: usize, limit: Duration) -> Result<()> {
        self.wait(&format!("{count} messages"), limit, |output| {
            (output.received >= count).then_some(())
        })
    }

    /// Waits until `count` sends were answered SEND_OK.
    pub fn wait_acknowledged(&self, count: usize, limit: Duration) -> Result<()> {
        self.wait(&format!("{count} acknowledged sends"), limit, |output| {
            (output.acknowledged >= count).then_some(())
        })
    }

    /// How many sends were answered SEND_OK so far.
    pub fn acknowledged(&self) -> usize {
        lock(&self.process.outputs).get(&self.id).map_or(0, |output| output.acknowledged)
    }

    /// Waits for the end; gives every line.
    pub fn finish(&self, limit: Duration) -> Result<Vec<Line>> {
        self.wait("its end", limit, |output| {
            matches!(output.lines.last(), Some(Line::Done(_))).then(|| output.lines.clone())
        })
    }

    /// Tells it to stop, waits for the end, gives every line.
    pub fn stop(&self) -> Result<Vec<Line>> {
        lock(&self.process.input).write_all(format!("stop\t{}\n", self.id).as_bytes())?;
        self.finish(START_LIMIT)
    }

    /// Every line so far.
    pub fn lines(&self) -> Vec<Line> {
        lock(&self.process.outputs)
            .get(&self.id)
            .map(|output| output.lines.clone())
            .unwrap_or_default()
    }
}

/// The messages among `lines`.
pub fn received(lines: &[Line]) -> impl Iterator<Item = &Received> {
    lines.iter().filter_map(|line| match line {
        Line::Recv(received) => Some(&**received),
        _ => None,
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
