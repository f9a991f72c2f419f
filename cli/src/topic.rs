//! `rmq topic`: create, list, status, delete.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clap::Subcommand;
use rocketmq_client::Admin;
use rocketmq_protocol::body::TopicConfig;
use rocketmq_protocol::names;
use serde::Serialize;

use crate::connect::{self, Broker, Namesrv};
use crate::exit::{self, Exit};
use crate::output::{self, Format};

/// How long a new topic may take to be routed by the name server.
const ROUTED_TIMEOUT: Duration = Duration::from_secs(10);
/// How often that is asked.
const ROUTED_POLL: Duration = Duration::from_millis(20);

#[derive(Subcommand)]
pub enum Command {
    /// Create a topic on every master; done when clients can find it
    Create(CreateArgs),
    /// List topics with their queues on each broker
    List(ListArgs),
    /// Show the offsets of a topic's queues
    Status(StatusArgs),
    /// Delete a topic with its messages on every master, and its route
    Delete(DeleteArgs),
}

#[derive(clap::Args)]
pub struct CreateArgs {
    /// Name of the topic
    topic: String,
    /// Queues on each broker
    #[arg(long, value_name = "N", default_value_t = 8)]
    #[arg(value_parser = clap::value_parser!(i32).range(1..=65535))]
    queues: i32,
    /// What clients may do: rw, r or w
    #[arg(long, value_enum, default_value = "rw")]
    perm: Perm,
    /// Attribute, such as message.type=FIFO; may be repeated
    #[arg(long = "attribute", value_name = "KEY=VALUE", value_parser = connect::parse_pair)]
    attributes: Vec<(String, String)>,
    /// Change the topic when it exists with other settings
    #[arg(long)]
    update: bool,
    /// Only on the masters of this cluster
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    #[command(flatten)]
    namesrv: Namesrv,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Perm {
    Rw,
    R,
    W,
}

impl Perm {
    /// RocketMQ's PermName bits.
    fn bits(self) -> i32 {
        match self {
            Self::Rw => 6,
            Self::R => 4,
            Self::W => 2,
        }
    }
}

#[derive(clap::Args)]
pub struct ListArgs {
    /// Also topics of RocketMQ itself, and retry and dead-letter topics
    #[arg(long)]
    all: bool,
    /// Only on the masters of this cluster
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    #[command(flatten)]
    namesrv: Namesrv,
}

#[derive(clap::Args)]
pub struct StatusArgs {
    /// Name of the topic
    topic: String,
    #[command(flatten)]
    namesrv: Namesrv,
}

#[derive(clap::Args)]
pub struct DeleteArgs {
    /// Name of the topic
    topic: String,
    /// Only on the masters of this cluster
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    #[command(flatten)]
    namesrv: Namesrv,
}

pub async fn run(command: Command, format: Format) -> anyhow::Result<()> {
    match command {
        Command::Create(args) => create(args, format).await,
        Command::List(args) => list(args, format).await,
        Command::Status(args) => status(args, format).await,
        Command::Delete(args) => delete(args, format).await,
    }
}

/// A topic on one broker.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    topic: String,
    broker: String,
    read_queues: i32,
    write_queues: i32,
    perm: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<String, String>,
}

impl Row {
    fn new(broker: &Broker, config: &TopicConfig) -> Self {
        Self {
            topic: config.topic_name.clone(),
            broker: broker.name.clone(),
            read_queues: config.read_queue_nums,
            write_queues: config.write_queue_nums,
            perm: perm_text(config.perm),
            attributes: config.attributes.clone(),
        }
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.topic.clone(),
            self.broker.clone(),
            self.read_queues.to_string(),
            self.write_queues.to_string(),
            self.perm.clone(),
        ]
    }
}

fn perm_text(bits: i32) -> String {
    let read = if bits & 4 != 0 { "r" } else { "-" };
    let write = if bits & 2 != 0 { "w" } else { "-" };
    format!("{read}{write}")
}

fn print_rows(rows: &[Row], format: Format) -> anyhow::Result<()> {
    match format {
        Format::Json => output::json(&rows)?,
        Format::Text => output::table(
            &["TOPIC", "BROKER", "READ", "WRITE", "PERM"],
            &rows.iter().map(Row::cells).collect::<Vec<_>>(),
        )?,
    }
    Ok(())
}

async fn create(args: CreateArgs, format: Format) -> anyhow::Result<()> {
    names::validate_topic(&args.topic)
        .map_err(|error| exit::error(Exit::Usage, error.to_string()))?;
    let admin = args.namesrv.admin()?;
    let masters = connect::masters(&admin, args.cluster.as_deref()).await?;
    let wanted = TopicConfig {
        topic_name: args.topic.clone(),
        read_queue_nums: args.queues,
        write_queue_nums: args.queues,
        perm: args.perm.bits(),
        attributes: args.attributes.into_iter().collect(),
        ..TopicConfig::default()
    };
    let mut rows = Vec::new();
    for broker in &masters {
        let table = connect::done(admin.all_topic_config(&broker.addr).await)?;
        let existing = table.get(&args.topic);
        let differs = existing.is_some_and(|existing| !is_same(existing, &wanted));
        if let Some(existing) = existing.filter(|_| differs && !args.update) {
            return Err(exit::error(
                Exit::Failure,
                format!(
                    "topic {} exists on {} with {} read and {} write queues, perm {}; \
                     change it with --update",
                    args.topic,
                    broker.name,
                    existing.read_queue_nums,
                    existing.write_queue_nums,
                    perm_text(existing.perm)
                ),
            ));
        }
        if existing.is_none() || differs {
            connect::done(admin.create_topic(&broker.addr, &wanted).await)?;
        }
        rows.push(Row::new(broker, &wanted));
    }
    wait_until_routed(&admin, &args.topic, &masters).await?;
    print_rows(&rows, format)
}

fn is_same(existing: &TopicConfig, wanted: &TopicConfig) -> bool {
    let attributes_hold =
        wanted.attributes.iter().all(|(key, value)| existing.attributes.get(key) == Some(value));
    attributes_hold
        && existing.read_queue_nums == wanted.read_queue_nums
        && existing.write_queue_nums == wanted.write_queue_nums
        && existing.perm == wanted.perm
}

async fn wait_until_routed(admin: &Admin, topic: &str, masters: &[Broker]) -> anyhow::Result<()> {
    let deadline = Instant::now() + ROUTED_TIMEOUT;
    loop {
        let route = connect::route(admin, topic).await?;
        let missing = masters.iter().find(|broker| {
            let queues = route.iter().flat_map(|route| &route.queue_datas);
            !queues.into_iter().any(|queue| queue.broker_name == broker.name)
        });
        let Some(missing) = missing else { return Ok(()) };
        if Instant::now() >= deadline {
            return Err(exit::error(
                Exit::Timeout,
                format!(
                    "topic {topic} was created, but the name server does not route it to {} \
                     after {} s",
                    missing.name,
                    ROUTED_TIMEOUT.as_secs()
                ),
            ));
        }
        tokio::time::sleep(ROUTED_POLL).await;
    }
}

async fn list(args: ListArgs, format: Format) -> anyhow::Result<()> {
    let admin = args.namesrv.admin()?;
    let mut rows = Vec::new();
    for broker in connect::masters(&admin, args.cluster.as_deref()).await? {
        let table = connect::done(admin.all_topic_config(&broker.addr).await)?;
        rows.extend(
            table
                .values()
                .filter(|config| args.all || is_of_a_user(&config.topic_name, &broker))
                .map(|config| Row::new(&broker, config)),
        );
    }
    rows.sort_by(|a, b| (&a.topic, &a.broker).cmp(&(&b.topic, &b.broker)));
    print_rows(&rows, format)
}

/// Not RocketMQ's own. Cluster and broker name are topics too, as is the cluster's reply topic.
fn is_of_a_user(topic: &str, broker: &Broker) -> bool {
    !(names::is_system_topic(topic)
        || topic.starts_with(names::RETRY_PREFIX)
        || topic.starts_with(names::DLQ_PREFIX)
        || topic == broker.name
        || topic == broker.cluster
        || topic == format!("{}_REPLY_TOPIC", broker.cluster))
}

/// A queue of the topic.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct QueueRow {
    broker: String,
    queue: i32,
    min_offset: i64,
    max_offset: i64,
    last_update_timestamp: i64,
}

async fn status(args: StatusArgs, format: Format) -> anyhow::Result<()> {
    let admin = args.namesrv.admin()?;
    let Some(route) = connect::route(&admin, &args.topic).await? else {
        return Err(connect::no_such_topic(&args.topic));
    };
    let mut rows = Vec::new();
    for data in &route.broker_datas {
        let Some(addr) = data.broker_addrs.values().next() else { continue };
        // A broker may have lost the topic that the name server still routes to it.
        let stats = connect::done(admin.topic_stats(addr, &args.topic).await)?.unwrap_or_default();
        rows.extend(stats.offset_table.into_iter().map(|(queue, offset)| QueueRow {
            broker: queue.broker_name,
            queue: queue.queue_id,
            min_offset: offset.min_offset,
            max_offset: offset.max_offset,
            last_update_timestamp: offset.last_update_timestamp,
        }));
    }
    rows.sort_by(|a, b| (&a.broker, a.queue).cmp(&(&b.broker, b.queue)));
    match format {
        Format::Json => output::json(&rows)?,
        Format::Text => output::table(
            &["BROKER", "QUEUE", "MIN", "MAX", "LAST MESSAGE"],
            &rows
                .iter()
                .map(|row| {
                    vec![
                        row.broker.clone(),
                        row.queue.to_string(),
                        row.min_offset.to_string(),
                        row.max_offset.to_string(),
                        output::time(row.last_update_timestamp),
                    ]
                })
                .collect::<Vec<_>>(),
        )?,
    }
    Ok(())
}

async fn delete(args: DeleteArgs, format: Format) -> anyhow::Result<()> {
    let admin = args.namesrv.admin()?;
    let mut deleted_on = Vec::new();
    for broker in connect::masters(&admin, args.cluster.as_deref()).await? {
        let table = connect::done(admin.all_topic_config(&broker.addr).await)?;
        if table.contains_key(&args.topic) {
            connect::done(admin.delete_topic_in_broker(&broker.addr, &args.topic).await)?;
            deleted_on.push(broker.name);
        }
    }
    let routed = connect::route(&admin, &args.topic).await?.is_some();
    if deleted_on.is_empty() && !routed {
        return Err(connect::no_such_topic(&args.topic));
    }
    // The brokers' own registrations never take a topic away.
    connect::done(admin.delete_topic_in_namesrv(&args.topic, args.cluster.as_deref()).await)?;
    match format {
        Format::Json => {
            output::json(&serde_json::json!({"topic": args.topic, "brokers": deleted_on}))?;
        }
        Format::Text => {
            output::line(&format!("topic {} deleted on {}", args.topic, deleted_on.join(", ")))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_read_like_those_of_files() {
        assert_eq!([6, 4, 2, 0, 7].map(perm_text), ["rw", "r-", "-w", "--", "rw"]);
    }

    #[test]
    fn only_topics_of_users_are_listed() {
        let broker = Broker {
            name: "broker-a".to_owned(),
            cluster: "DefaultCluster".to_owned(),
            addr: String::new(),
        };
        for topic in [
            "TBW102",
            "%RETRY%g",
            "%DLQ%g",
            "broker-a",
            "DefaultCluster",
            "DefaultCluster_REPLY_TOPIC",
            "rmq_sys_wheel_timer",
        ] {
            assert!(!is_of_a_user(topic, &broker), "{topic}");
        }
        assert!(is_of_a_user("orders", &broker));
    }
}
