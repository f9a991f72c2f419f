//! Apache's mqadmin 5.3.3, many calls in one process.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::environment;
use crate::process::Process;

/// A running shell around mqadmin.
pub struct Mqadmin {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    process: Process,
    namesrv: String,
}

impl Mqadmin {
    /// Starts it; its files are under `directory`.
    pub fn start(namesrv: &str, directory: &Path) -> Result<Mqadmin> {
        let home = directory.join("mqadmin");
        std::fs::create_dir_all(&home)?;
        let library = environment::java_library("mqadmin-5.3.3")?;
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
        #[derive(Deserialize)]
        struct Answer {
            output: String,
        }
        let order = format!("{}\t-n\t{}\n", arguments.join("\t"), self.namesrv);
        self.input.write_all(order.as_bytes())?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(
            !line.is_empty(),
            "mqadmin {arguments:?} ended its process, its log ends with:\n{}",
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
