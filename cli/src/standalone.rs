//! `rmq standalone`: a name server and a broker in this process, with their files in one directory.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use rocketmq_broker::config::MetricsExporter as BrokerMetrics;
use rocketmq_broker::{Broker, BrokerConfig, StartError as BrokerStartError};
use rocketmq_namesrv::config::MetricsExporter as NamesrvMetrics;
use rocketmq_namesrv::{Namesrv, NamesrvConfig, StartError as NamesrvStartError};
use rocketmq_store::StoreError;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::{self, Exit};
use crate::output::{self, Format};

/// How long the broker may take to register at the name server in the same process.
const READY_TIMEOUT: Duration = Duration::from_secs(10);
/// How often that is looked up; it costs a read lock.
const READY_POLL: Duration = Duration::from_micros(500);

#[derive(clap::Args)]
#[command(after_help = "\
Topics are created on first use. Stop it with Ctrl-C or SIGTERM; what was acknowledged is kept in
the data directory. Clients: rmq send TOPIC BODY, rmq consume TOPIC --tail, or any RocketMQ client
with the printed name server.")]
pub struct Args {
    /// Directory of all files; made when it does not exist
    #[arg(long, value_name = "DIR", default_value = "rocketmq-data")]
    data: PathBuf,
    /// Address to listen on and to give to clients
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    host: IpAddr,
    /// Port of the broker; 0 takes any free one
    #[arg(long, value_name = "PORT", default_value_t = 10911)]
    port: u16,
    /// Port of the name server; 0 takes any free one
    #[arg(long, value_name = "PORT", default_value_t = 9876)]
    namesrv_port: u16,
    /// Port of the broker's metrics and health over HTTP; without it there is none
    #[arg(long, value_name = "PORT")]
    metrics_port: Option<u16>,
    /// A key of broker.conf, such as --set flushDiskType=SYNC_FLUSH; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

#[derive(Serialize)]
struct Started {
    namesrv: String,
    broker: String,
    data: PathBuf,
    pid: u32,
    ready_ms: u64,
}

pub fn run(args: &Args, format: Format) -> anyhow::Result<()> {
    let begun = Instant::now();
    let data = make_directory(&args.data)?;
    let settings = parse_settings(&args.settings)?;
    let signals = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .context("cannot start a runtime for signals")?;
    // Before the start, so that a signal that comes early is not lost.
    let (mut terminate, mut interrupt) = {
        let _inside = signals.enter();
        let listen = |kind| signal(kind).context("cannot listen for signals");
        (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?)
    };

    let namesrv = Namesrv::start(namesrv_config(args, &data)).map_err(namesrv_failed)?;
    let config = broker_config(args, &data, &namesrv.addr().to_string(), &settings)?;
    let broker = Broker::start(config).map_err(broker_failed)?;
    wait_until_registered(&namesrv)?;

    let ready_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let started = Started {
        namesrv: namesrv.addr().to_string(),
        broker: broker.addr().to_string(),
        data,
        pid: std::process::id(),
        ready_ms,
    };
    announce(&started, format)?;

    let cause = signals.block_on(async {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    });
    tracing::info!(cause, "stopping");
    broker.shutdown();
    namesrv.shutdown();
    if format == Format::Text {
        output::line("stopped")?;
    }
    Ok(())
}

/// The error of a start, with this program's options in place of the keys of a configuration file.
fn namesrv_failed(error: NamesrvStartError) -> anyhow::Error {
    match error {
        NamesrvStartError::Listen(error) => anyhow::anyhow!(
            "the name server does not start: {error}; if another rmq standalone runs, stop it, or choose \
             another port with --namesrv-port (0 takes any free one) or another address with --host"
        ),
        other => anyhow::Error::new(other).context("the name server does not start"),
    }
}

/// As [`namesrv_failed`].
fn broker_failed(error: BrokerStartError) -> anyhow::Error {
    match error {
        BrokerStartError::Store(StoreError::Locked { directory, .. }) => anyhow::anyhow!(
            "the broker does not start: {} is in use by another process; stop that one, or choose \
             another directory with --data",
            directory.display()
        ),
        BrokerStartError::System { action, source }
            if source.kind() == std::io::ErrorKind::AddrInUse
                || source.kind() == std::io::ErrorKind::AddrNotAvailable =>
        {
            anyhow::anyhow!(
                "the broker does not start: cannot {action}: {source}; choose another port with --port \
                 (0 takes any free one) or --metrics-port, or another address with --host"
            )
        }
        other => anyhow::Error::new(other).context("the broker does not start"),
    }
}

fn make_directory(dir: &Path) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(dir).with_context(|| {
        format!("cannot make the data directory {}, choose another with --data", dir.display())
    })?;
    std::fs::canonicalize(dir)
        .with_context(|| format!("cannot resolve the data directory {}", dir.display()))
}

fn parse_settings(settings: &[String]) -> anyhow::Result<Vec<(&str, &str)>> {
    settings
        .iter()
        .map(|setting| {
            setting.split_once('=').ok_or_else(|| {
                exit::error(Exit::Usage, format!("--set {setting}: write KEY=VALUE"))
            })
        })
        .collect()
}

fn namesrv_config(args: &Args, data: &Path) -> NamesrvConfig {
    let file = |name: &str| data.join("namesrv").join(name).to_string_lossy().into_owned();
    NamesrvConfig {
        bind_address: args.host.to_string(),
        listen_port: args.namesrv_port,
        metrics_exporter_type: NamesrvMetrics::Disable,
        kv_config_path: file("kvConfig.json"),
        config_store_path: file("namesrv.conf"),
        // Nobody waits longer for Ctrl-C.
        shutdown_wait_time_seconds: 3,
        ..NamesrvConfig::default()
    }
}

fn broker_config(
    args: &Args,
    data: &Path,
    namesrv_addr: &str,
    settings: &[(&str, &str)],
) -> anyhow::Result<BrokerConfig> {
    let mut config = BrokerConfig {
        broker_name: "standalone".to_owned(),
        broker_ip1: args.host.to_string(),
        bind_address: args.host.to_string(),
        listen_port: args.port,
        namesrv_addr: namesrv_addr.to_owned(),
        store_path_root_dir: data.join("store").to_string_lossy().into_owned(),
        metrics_exporter_type: match args.metrics_port {
            Some(_) => BrokerMetrics::Prom,
            None => BrokerMetrics::Disable,
        },
        metrics_prom_exporter_host: args.host.to_string(),
        metrics_prom_exporter_port: args.metrics_port.unwrap_or_default(),
        ..BrokerConfig::default()
    };
    for (key, value) in settings {
        let known = config
            .set(key, value)
            .map_err(|error| exit::error(Exit::Usage, format!("--set: {error}")))?;
        if !known {
            let text = format!("--set {key}: broker.conf has no such key (see broker -p)");
            return Err(exit::error(Exit::Usage, text));
        }
    }
    Ok(config)
}

fn wait_until_registered(namesrv: &Namesrv) -> anyhow::Result<()> {
    let deadline = Instant::now() + READY_TIMEOUT;
    while namesrv.broker_count() == 0 {
        if Instant::now() >= deadline {
            return Err(exit::error(
                Exit::Timeout,
                format!(
                    "the broker did not register within {} s; see the log with RUST_LOG=info",
                    READY_TIMEOUT.as_secs()
                ),
            ));
        }
        std::thread::sleep(READY_POLL);
    }
    Ok(())
}

fn announce(started: &Started, format: Format) -> anyhow::Result<()> {
    match format {
        Format::Json => output::json(started)?,
        Format::Text => output::line(&format!(
            "name server  {}\nbroker       {}\ndata         {}\nready in {} ms, stop with Ctrl-C",
            started.namesrv,
            started.broker,
            started.data.display(),
            started.ready_ms
        ))?,
    }
    Ok(())
}
