//! Apache's mqadmin, many calls in one process.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::environment;
use crate::process::Process;

/// A version of mqadmin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// 4.9.8.
    V49,
    /// 5.3.3.
    V53,
}

impl Tool {
    /// As Apache numbers it.
    pub fn version(self) -> &'static str {
        match self {
            Tool::V49 => "4.9.8",
            Tool::V53 => "5.3.3",
        }
    }
}

/// A running shell around mqadmin.
pub struct Mqadmin {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    process: Process,
    namesrv: String,
}

impl Mqadmin {
    /// Starts 5.3.3; its files are under `directory`.
    pub fn start(namesrv: &str, directory: &Path) -> Result<Mqadmin> {
        Self::start_version(Tool::V53, namesrv, directory)
    }

    /// Starts it; its files are under `directory`.
    pub fn start_version(tool: Tool, namesrv: &str, directory: &Path) -> Result<Mqadmin> {
        let home = directory.join("mqadmin");
        std::fs::create_dir_all(home.join("conf"))?;
        // 4.9 knows this place alone, and does not start without.
        std::fs::write(
            home.join("conf/logback_tools.xml"),
            "<configuration><root level=\"OFF\"/></configuration>",
        )?;
        let library = environment::java_library(&format!("mqadmin-{}", tool.version()))?;
        let mut command = Command::new("java");
        command
            .args(["-Xms64m", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"])
            .arg(format!("-Duser.home={}", home.display()))
            .arg(format!("-Drocketmq.client.logRoot={}", home.display()))
            .env("ROCKETMQ_HOME", &home)
            // Some commands leave files where they are run.
            .current_dir(&home)
            .arg("-cp")
            .arg(format!("{}/*", library.display()))
            .arg("rs.rocketmq.e2e.AdminShell");
        let (process, input, output) =
            Process::start_piped("mqadmin", &mut command, &home.join("stderr.log"))?;
        Ok(Mqadmin { input, output: BufReader::new(output), process, namesrv: namesrv.to_owned() })
    }

    /// One call, with the name server's address added; gives all it printed.
    pub fn call(&mut self, arguments: &[&str]) -> Result<String> {
        let order = format!("{}\t-n\t{}\n", arguments.join("\t"), self.namesrv);
        self.order(&order)
    }

    /// The names of its sub-commands.
    pub fn commands(&mut self) -> Result<Vec<String>> {
        let names = self.order("commands\n")?;
        Ok(names.lines().map(str::to_owned).collect())
    }

    fn order(&mut self, order: &str) -> Result<String> {
        #[derive(Deserialize)]
        struct Answer {
            output: String,
        }
        self.input.write_all(order.as_bytes())?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(
            !line.is_empty(),
            "mqadmin {order:?} ended its process, its log ends with:\n{}",
            self.process.log_tail()
        );
        let answer: Answer =
            serde_json::from_str(&line).with_context(|| format!("mqadmin printed {line}"))?;
        Ok(answer.output)
    }

    /// As `call`, and fails when an exception shows in what it printed.
    pub fn succeed(&mut self, arguments: &[&str]) -> Result<String> {
        let output = self.call(arguments)?;
        ensure!(
            !output.contains("Exception") && !output.contains("\tat org.apache"),
            "mqadmin {} failed:\n{output}",
            arguments.join(" ")
        );
        Ok(output)
    }
}
