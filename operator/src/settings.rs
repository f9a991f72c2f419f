//! Settings of the operator process. Every one is a flag and an environment variable.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;

/// Settings of the operator.
#[derive(Args, Clone, Debug)]
pub struct Settings {
    /// Namespaces to watch, comma separated; all when absent.
    #[arg(long, env = "WATCH_NAMESPACES", value_delimiter = ',')]
    pub watch_namespaces: Vec<String>,

    /// Broker image; a cluster's version replaces its tag.
    #[arg(long, env = "BROKER_IMAGE",
        default_value = concat!("rocketmq-rs/broker:", env!("CARGO_PKG_VERSION")))]
    pub broker_image: String,

    /// Name server image; a cluster's version replaces its tag.
    #[arg(long, env = "NAMESRV_IMAGE",
        default_value = concat!("rocketmq-rs/namesrv:", env!("CARGO_PKG_VERSION")))]
    pub namesrv_image: String,

    /// Seconds after which every client has refreshed its routes. A queue count change waits for
    /// one (growing) or two (shrinking) of these. RocketMQ's clients refresh every 30 s.
    #[arg(long, env = "CLIENT_REFRESH_SECONDS", default_value_t = 30,
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub client_refresh_seconds: u64,

    /// Seconds between two looks at a cluster that does not change.
    #[arg(long, env = "CLUSTER_RESYNC_SECONDS", default_value_t = 120,
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub cluster_resync_seconds: u64,

    /// Seconds between two looks at a topic or consumer group that does not change.
    #[arg(long, env = "TOPIC_RESYNC_SECONDS", default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub topic_resync_seconds: u64,

    /// Milliseconds a broker or name server may take to answer.
    #[arg(long, env = "ADMIN_TIMEOUT_MS", default_value_t = 3000,
        value_parser = clap::value_parser!(u64).range(100..=60_000))]
    pub admin_timeout_ms: u64,

    /// Passes that may run at a time, per kind and namespace.
    #[arg(long, env = "CONCURRENCY", default_value_t = 16,
        value_parser = clap::value_parser!(u16).range(1..=256))]
    pub concurrency: u16,

    /// Address of health and metrics.
    #[arg(long, env = "HTTP_ADDRESS", default_value = "0.0.0.0:8080")]
    pub http_address: SocketAddr,

    /// Whether a Lease decides which of several operators works.
    #[arg(long, env = "LEADER_ELECTION", default_value_t = true, action = clap::ArgAction::Set)]
    pub leader_election: bool,

    /// Namespace of the Lease; the pod's own, else `default`, when absent.
    #[arg(long, env = "POD_NAMESPACE", default_value = "default")]
    pub lease_namespace: String,

    /// Name of the Lease.
    #[arg(long, env = "LEASE_NAME", default_value = "rocketmq-operator")]
    pub lease_name: String,

    /// Name this process leads and reports events under; the pod's name.
    #[arg(long, env = "POD_NAME", default_value = "rocketmq-operator")]
    pub identity: String,
}

impl Settings {
    /// Time after which every client has refreshed its routes.
    pub fn client_refresh(&self) -> Duration {
        Duration::from_secs(self.client_refresh_seconds)
    }
}
