//! Entry point of the operator: settings, logs, signals.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use kube::Client;
use rocketmq_operator::admin::ClientAdmin;
use rocketmq_operator::metrics::Metrics;
use rocketmq_operator::settings::Settings;
use rocketmq_operator::{crd, run};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

/// Runs RocketMQ clusters, topics and consumer groups on Kubernetes.
#[derive(Parser)]
#[command(name = "operator", version)]
struct Arguments {
    /// Print the custom resource definitions as YAML and exit
    #[arg(long)]
    crds: bool,
    #[command(flatten)]
    settings: Settings,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if arguments.crds {
        let yaml = crd::yaml()?;
        return std::io::stdout().write_all(yaml.as_bytes()).context("print the definitions");
    }
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().json().with_env_filter(filter).init();
    // Passes wait for answers nearly all of their time; one thread carries thousands of topics.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    runtime.block_on(operate(arguments.settings))
}

async fn operate(settings: Settings) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    let client = Client::try_default().await.context("find the API server")?;
    let metrics = Metrics::default();
    let timeout = Duration::from_millis(settings.admin_timeout_ms);
    let admin =
        ClientAdmin::new(timeout, metrics.clone()).context("prepare administrative calls")?;
    let running = run::run(settings, client, Arc::new(admin), metrics, stop.clone());
    tokio::pin!(running);
    tokio::select! {
        result = &mut running => return result,
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping");
    stop.cancel();
    running.await
}
