//! `rmq group`: list and progress.

use std::collections::BTreeMap;

use clap::Subcommand;
use rocketmq_protocol::names;
use serde::Serialize;

use crate::connect::{self, Namesrv};
use crate::exit::{self, Exit};
use crate::output::{self, Format};

#[derive(Subcommand)]
pub enum Command {
    /// List consumer groups, with how many members each has now
    List(ListArgs),
    /// Show how far a group has consumed each queue
    Progress(ProgressArgs),
}

#[derive(clap::Args)]
pub struct ListArgs {
    /// Also groups of RocketMQ itself
    #[arg(long)]
    all: bool,
    /// Only on the masters of this cluster
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    #[command(flatten)]
    namesrv: Namesrv,
}

#[derive(clap::Args)]
pub struct ProgressArgs {
    /// Name of the group
    group: String,
    /// Only this topic
    #[arg(long, value_name = "NAME")]
    topic: Option<String>,
    #[command(flatten)]
    namesrv: Namesrv,
}

pub async fn run(command: Command, format: Format) -> anyhow::Result<()> {
    match command {
        Command::List(args) => list(args, format).await,
        Command::Progress(args) => progress(args, format).await,
    }
}

/// A group over all its brokers.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupRow {
    group: String,
    brokers: Vec<String>,
    members: usize,
    consume_enable: bool,
    retry_max_times: i32,
}

async fn list(args: ListArgs, format: Format) -> anyhow::Result<()> {
    let admin = args.namesrv.admin()?;
    let mut groups: BTreeMap<String, GroupRow> = BTreeMap::new();
    for broker in connect::masters(&admin, args.cluster.as_deref()).await? {
        let table = connect::done(admin.all_groups(&broker.addr).await)?;
        for (name, config) in table {
            if !args.all && names::is_system_group(&name) {
                continue;
            }
            let connection = connect::done(admin.consumer_connection(&broker.addr, &name).await)?;
            let members = connection.map_or(0, |connection| connection.connection_set.len());
            let row = groups.entry(name.clone()).or_insert_with(|| GroupRow {
                group: name,
                consume_enable: config.consume_enable,
                retry_max_times: config.retry_max_times,
                ..GroupRow::default()
            });
            row.brokers.push(broker.name.clone());
            // Every member is connected to every broker of its topics.
            row.members = row.members.max(members);
        }
    }
    let rows: Vec<GroupRow> = groups.into_values().collect();
    match format {
        Format::Json => output::json(&rows)?,
        Format::Text => output::table(
            &["GROUP", "MEMBERS", "RETRIES", "CONSUMES", "BROKERS"],
            &rows
                .iter()
                .map(|row| {
                    vec![
                        row.group.clone(),
                        row.members.to_string(),
                        row.retry_max_times.to_string(),
                        if row.consume_enable { "yes" } else { "no" }.to_owned(),
                        row.brokers.join(","),
                    ]
                })
                .collect::<Vec<_>>(),
        )?,
    }
    Ok(())
}

/// Progress in one queue.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct QueueRow {
    topic: String,
    broker: String,
    queue: i32,
    broker_offset: i64,
    consumer_offset: i64,
    lag: i64,
    /// Store time of the last consumed message.
    last_timestamp: i64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Progress {
    group: String,
    lag: i64,
    queues: Vec<QueueRow>,
}

async fn progress(args: ProgressArgs, format: Format) -> anyhow::Result<()> {
    let admin = args.namesrv.admin()?;
    let mut queues = Vec::new();
    let mut known = false;
    for broker in connect::masters(&admin, None).await? {
        let groups = connect::done(admin.all_groups(&broker.addr).await)?;
        known |= groups.contains_key(&args.group);
        let topic = args.topic.as_deref();
        let stats = connect::done(admin.consume_stats(&broker.addr, &args.group, topic).await)?;
        queues.extend(stats.offset_table.into_iter().map(|(queue, offset)| QueueRow {
            topic: queue.topic,
            broker: queue.broker_name,
            queue: queue.queue_id,
            broker_offset: offset.broker_offset,
            consumer_offset: offset.consumer_offset,
            // An unflushed tail may have been lost after the group had consumed it.
            lag: (offset.broker_offset - offset.consumer_offset).max(0),
            last_timestamp: offset.last_timestamp,
        }));
    }
    if queues.is_empty() && !known {
        return Err(exit::error(
            Exit::NotFound,
            format!(
                "group {} does not exist; groups are made when a consumer first connects, \
                 see rmq group list",
                args.group
            ),
        ));
    }
    queues.sort_by(|a, b| (&a.topic, &a.broker, a.queue).cmp(&(&b.topic, &b.broker, b.queue)));
    let lag = queues.iter().map(|row| row.lag).sum();
    let progress = Progress { group: args.group, lag, queues };
    match format {
        Format::Json => output::json(&progress)?,
        Format::Text => print(&progress)?,
    }
    Ok(())
}

fn print(progress: &Progress) -> anyhow::Result<()> {
    let rows: Vec<Vec<String>> = progress
        .queues
        .iter()
        .map(|row| {
            vec![
                row.topic.clone(),
                row.broker.clone(),
                row.queue.to_string(),
                row.broker_offset.to_string(),
                row.consumer_offset.to_string(),
                row.lag.to_string(),
                output::time(row.last_timestamp),
            ]
        })
        .collect();
    let head =
        ["TOPIC", "BROKER", "QUEUE", "BROKER OFFSET", "CONSUMER OFFSET", "LAG", "CONSUMED UP TO"];
    output::table(&head, &rows)?;
    let own = format!("{}{}", names::RETRY_PREFIX, progress.group);
    if progress.queues.iter().all(|row| row.topic == own) {
        output::line(&format!(
            "{} has consumed nothing of a topic that exists now{}",
            progress.group,
            if rows.is_empty() { String::new() } else { format!("; {own} is its own retry topic") }
        ))?;
    }
    output::line(&format!("total lag of {}: {}", progress.group, progress.lag))?;
    Ok(())
}
