//! The `namesrv` program: command line, configuration file, logs and signals.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Parser;
use rocketmq_namesrv::{Namesrv, NamesrvConfig};
use rocketmq_protocol::config;
use tokio::signal::unix::{SignalKind, signal};

/// RocketMQ name server.
///
/// Logs go to standard error; RUST_LOG sets their level (default info). Health and metrics are
/// served over HTTP on metricsPromExporterPort (5558): /livez, /readyz, /metrics.
#[derive(Parser)]
#[command(name = "namesrv", version)]
struct Args {
    /// Configuration file in RocketMQ's namesrv.conf format; changes made by requests are written
    /// back to it
    #[arg(short = 'c', long = "configFile", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print every key with its effective value and exit
    #[arg(short = 'p', long = "printConfigItem")]
    print: bool,
    /// Accepted for mqnamesrv's sake; a name server needs no other name server
    #[arg(short = 'n', long = "namesrvAddr", value_name = "ADDRESSES")]
    namesrv: Option<String>,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(log_filter())
        .init();
    let config = read_config(args.config.as_deref())?;
    if args.print {
        print!("{}", config::write(&config.to_properties()));
        return Ok(());
    }
    if let Some(addresses) = args.namesrv {
        tracing::warn!(addresses, "-n has no meaning for a name server and is ignored");
    }
    run(config)
}

/// RUST_LOG, or what is worth knowing. The Raft library tells each step of its own, as errors too; the
/// controller says what of it matters.
fn log_filter() -> tracing_subscriber::EnvFilter {
    let wanted = std::env::var("RUST_LOG").unwrap_or_else(|_| "info".to_owned());
    let quiet = if wanted.contains("openraft") { "" } else { ",openraft=off" };
    tracing_subscriber::EnvFilter::try_new(wanted + quiet)
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,openraft=off"))
}

fn read_config(file: Option<&Path>) -> anyhow::Result<NamesrvConfig> {
    let Some(file) = file else {
        return Ok(NamesrvConfig::default());
    };
    let bytes = std::fs::read(file)
        .with_context(|| format!("cannot read the configuration file {}", file.display()))?;
    let pairs = config::parse_file(&bytes)
        .with_context(|| format!("configuration file {}", file.display()))?;
    let (mut config, unknown) = NamesrvConfig::from_properties(&pairs)
        .with_context(|| format!("configuration file {}", file.display()))?;
    for key in unknown {
        tracing::warn!(key, file = %file.display(), "unknown configuration key ignored");
    }
    for key in config.changed_without_effect() {
        tracing::info!(key, "configuration key has no effect in this name server");
    }
    let absolute = std::path::absolute(file)
        .with_context(|| format!("cannot resolve the path {}", file.display()))?;
    config.config_store_path = absolute.to_string_lossy().into_owned();
    config.validate().with_context(|| format!("configuration file {}", file.display()))?;
    Ok(config)
}

fn run(config: NamesrvConfig) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime for signals")?;
    // Before the start, so that a signal that comes early is not lost.
    let (mut terminate, mut interrupt) = {
        let _inside = runtime.enter();
        let listen = |kind| signal(kind).context("cannot listen for signals");
        (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?)
    };
    let namesrv = Namesrv::start(config)?;
    let cause = runtime.block_on(async {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    });
    tracing::info!(cause, "name server stopping");
    namesrv.shutdown();
    tracing::info!("name server stopped");
    Ok(())
}
