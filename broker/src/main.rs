//! The `broker` program: command line, logs, signals.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Parser;
use rocketmq_broker::{Broker, BrokerConfig, LoadedConfig, StartError};
use tokio::signal::unix::{SignalKind, signal};
use tracing::warn;
use tracing_subscriber::EnvFilter;

/// RocketMQ broker.
#[derive(Parser)]
#[command(name = "broker", version, about, disable_help_flag = true)]
struct Arguments {
    /// Configuration file with RocketMQ's keys (broker.conf).
    #[arg(short = 'c', long = "configFile", value_name = "FILE")]
    config_file: Option<PathBuf>,
    /// Name servers, host:port;host:port; wins over the file and NAMESRV_ADDR.
    #[arg(short = 'n', long = "namesrvAddr", value_name = "ADDRESSES")]
    namesrv_addr: Option<String>,
    /// Print the effective configuration with all defaults and exit.
    #[arg(short = 'p', long = "printConfigItem")]
    print: bool,
    /// Print the important keys of the effective configuration and exit.
    #[arg(short = 'm', long = "printImportantConfig")]
    print_important: bool,
    /// Print this help.
    #[arg(short = 'h', long = "help", action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// What `-m` prints: where the broker is found and keeps its messages, and what it promises.
const IMPORTANT: [&str; 16] = [
    "autoCreateSubscriptionGroup",
    "autoCreateTopicEnable",
    "bindAddress",
    "brokerClusterName",
    "brokerIP1",
    "brokerId",
    "brokerName",
    "brokerRole",
    "deleteWhen",
    "fileReservedTime",
    "flushDiskType",
    "listenPort",
    "maxMessageSize",
    "namesrvAddr",
    "storePathCommitLog",
    "storePathRootDir",
];

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let mut loaded = match &arguments.config_file {
        Some(path) => LoadedConfig::from_file(path).map_err(told_once)?,
        None => LoadedConfig::without_file()?,
    };
    if let Some(namesrv_addr) = arguments.namesrv_addr {
        loaded.config.namesrv_addr = namesrv_addr;
        loaded.config.normalize()?;
    }
    if arguments.print || arguments.print_important {
        print_config(&loaded.config, arguments.print);
        for (key, _) in &loaded.unknown {
            eprintln!("warning: unknown configuration key {key}");
        }
        return Ok(());
    }
    init_logs();
    for (key, value) in &loaded.without_effect {
        tracing::debug!(key, value, "configuration key without effect in this broker");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the signal runtime")?;
    runtime.block_on(async {
        // Before the start: a signal during a long recovery must end it, not be lost.
        let mut terminate = signal(SignalKind::terminate()).context("cannot watch for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch for SIGINT")?;
        let starting = tokio::task::spawn_blocking(move || Broker::start(loaded));
        let broker = tokio::select! {
            started = starting => {
                started.context("the start ended early")?.map_err(told_once)?
            }
            _ = terminate.recv() => std::process::exit(0),
            _ = interrupt.recv() => std::process::exit(0),
        };
        println!("The broker boot success. address={}", broker.addr());
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        let stopping = tokio::task::spawn_blocking(move || broker.shutdown());
        tokio::select! {
            stopped = stopping => stopped.context("the stop ended early")?,
            _ = interrupt.recv() => {
                warn!("second interrupt, the next start recovers the store");
                std::process::exit(1);
            }
        }
        Ok(())
    })
}

/// The error without its causes, which its text names already.
fn told_once(error: StartError) -> anyhow::Error {
    anyhow::Error::msg(error.to_string())
}

fn print_config(config: &BrokerConfig, all: bool) {
    for (key, value) in config.to_properties() {
        if all || IMPORTANT.contains(&key) {
            println!("{key}={value}");
        }
    }
}

/// Logs to standard error; `RUST_LOG` chooses what, `LOG_FORMAT=json` the form.
fn init_logs() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    if std::env::var("LOG_FORMAT").is_ok_and(|format| format == "json") {
        logs.json().init();
    } else {
        logs.init();
    }
}
