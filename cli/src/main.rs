//! The `rmq` program: command line and exit code. Each command is a module of its own.

mod connect;
mod consume;
mod exit;
mod group;
mod message;
mod output;
mod send;
mod standalone;
mod store;
mod topic;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::output::Format;

/// RocketMQ on one machine, and administration of any RocketMQ cluster.
#[derive(Parser)]
#[command(name = "rmq", version, after_help = AFTER_HELP)]
struct Args {
    /// How results are printed
    #[arg(short = 'o', long = "output", value_enum, default_value = "text", global = true)]
    output: Format,
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Exit codes: 0 success; 1 failure; 2 wrong arguments; 3 the topic, group or broker does not exist;
4 nothing came in time; 5 no name server or broker could be reached; 6 the store directory is
damaged; 74 a file was truncated or its disk failed while it was read.
Errors and logs go to standard error; RUST_LOG sets the level of the logs (default warn).";

#[derive(Subcommand)]
enum Command {
    /// Run a name server and a broker in this process
    Standalone(standalone::Args),
    /// Create, list, inspect and delete topics
    #[command(subcommand)]
    Topic(topic::Command),
    /// Send messages
    Send(send::Args),
    /// Receive messages, as a member of a group or by looking on
    Consume(consume::Args),
    /// Print single messages by id and by key
    #[command(subcommand)]
    Message(message::Command),
    /// List consumer groups and their progress
    #[command(subcommand)]
    Group(group::Command),
    /// Check, print and repair the files of a broker that is stopped
    #[command(subcommand)]
    Store(store::Command),
}

fn main() -> ExitCode {
    let args = Args::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env()
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn")),
        )
        .init();
    let result = match args.command {
        Command::Standalone(command) => standalone::run(&command, args.output),
        Command::Topic(command) => connect::block_on(topic::run(command, args.output)),
        Command::Send(command) => connect::block_on(send::run(command, args.output)),
        Command::Consume(command) => connect::block_on(consume::run(command, args.output)),
        Command::Message(command) => connect::block_on(message::run(command, args.output)),
        Command::Store(command) => store::run(command, args.output),
        Command::Group(command) => connect::block_on(group::run(command, args.output)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has seen enough (`rmq topic list | head`).
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rmq: {}", told_once(&error));
            exit::code_of(&error).into()
        }
    }
}

/// An error with those of its causes that its text does not name already.
fn told_once(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |text, cause| match cause.to_string() {
        cause if text.is_empty() => cause,
        cause if text.contains(&cause) => text,
        cause => format!("{text}: {cause}"),
    })
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn causes_are_told_once() {
        let inner = anyhow::anyhow!("no space left");
        let error = inner.context("write /x: no space left").context("cannot start");
        assert_eq!(told_once(&error), "cannot start: write /x: no space left");
    }

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }
}
