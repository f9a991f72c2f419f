//! `rmq send`.

use std::io::BufRead;
use std::time::Duration;

use anyhow::Context;
use rocketmq_client::producer::ProducerBuilder;
use rocketmq_client::{Message, Producer, SendReceipt, SendStatus};
use rocketmq_protocol::names;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::connect::{self, Namesrv};
use crate::exit::{self, Exit};
use crate::output::{self, Format};

/// Lines that may be read ahead of the sends.
const LINES_MAX: usize = 16;

#[derive(clap::Args)]
pub struct Args {
    /// Topic to send to
    topic: String,
    /// Body of the message; without it, each line of standard input is one
    body: Option<String>,
    /// Tag by which consumers filter
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// Key by which the message can be queried; may be repeated
    #[arg(long = "key", value_name = "KEY")]
    keys: Vec<String>,
    /// Property of your own; may be repeated
    #[arg(long = "property", value_name = "NAME=VALUE", value_parser = connect::parse_pair)]
    properties: Vec<(String, String)>,
    /// Send the message so many times
    #[arg(long, value_name = "N", default_value_t = 1)]
    count: u64,
    /// Seconds that one send may take
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = connect::parse_seconds)]
    timeout: Duration,
    #[command(flatten)]
    namesrv: Namesrv,
}

/// One line of JSON for each message.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sent<'a> {
    status: &'static str,
    message_id: &'a str,
    offset_message_id: &'a str,
    broker: &'a str,
    queue: i32,
    queue_offset: i64,
}

pub async fn run(args: Args, format: Format) -> anyhow::Result<()> {
    let builder = Producer::builder([args.namesrv.addresses()], names::CLIENT_INNER_PRODUCER_GROUP);
    let producer = connect::done(start(builder, args.timeout).await)?;
    let result = send_all(&args, &producer, format).await;
    producer.shutdown().await;
    result
}

async fn start(
    builder: ProducerBuilder,
    timeout: Duration,
) -> Result<Producer, rocketmq_client::ClientError> {
    builder.send_timeout(timeout).start().await
}

async fn send_all(args: &Args, producer: &Producer, format: Format) -> anyhow::Result<()> {
    if let Some(body) = &args.body {
        for _ in 0..args.count {
            send(args, producer, body, format).await?;
        }
        return Ok(());
    }
    let mut lines = lines_of_standard_input();
    let mut sent = 0_u64;
    while let Some(line) = lines.recv().await {
        let line = line.context("cannot read standard input")?;
        if line.is_empty() {
            continue;
        }
        for _ in 0..args.count {
            send(args, producer, &line, format).await?;
            sent += 1;
        }
    }
    if sent == 0 && format == Format::Text {
        output::line("0 messages sent: standard input has no line that is not empty")?;
    }
    Ok(())
}

/// Lines as they come: `tail -f log | rmq send topic` sends each at once. They are read on a thread
/// of their own, so that heart-beats go on through a long silence; a read cannot be interrupted, so
/// the thread ends with the process.
fn lines_of_standard_input() -> mpsc::Receiver<std::io::Result<String>> {
    let (lines_in, lines) = mpsc::channel(LINES_MAX);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            if lines_in.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}

async fn send(args: &Args, producer: &Producer, body: &str, format: Format) -> anyhow::Result<()> {
    let mut message = Message::new(args.topic.clone(), body.to_owned());
    if let Some(tag) = &args.tag {
        message = message.tag(tag);
    }
    for key in &args.keys {
        message = message.key(key);
    }
    for (name, value) in &args.properties {
        message = message.user_property(name, value);
    }
    let receipt = connect::done(producer.send(message).await)?;
    print(&receipt, format)?;
    if receipt.status == SendStatus::SendOk {
        return Ok(());
    }
    Err(exit::error(
        Exit::Failure,
        format!(
            "message {} is stored, but not as safely as the broker is set to: {}",
            receipt.message_id,
            status(receipt.status)
        ),
    ))
}

/// RocketMQ's names of the outcomes.
fn status(status: SendStatus) -> &'static str {
    match status {
        SendStatus::SendOk => "SEND_OK",
        SendStatus::FlushDiskTimeout => "FLUSH_DISK_TIMEOUT",
        SendStatus::FlushSlaveTimeout => "FLUSH_SLAVE_TIMEOUT",
        SendStatus::SlaveNotAvailable => "SLAVE_NOT_AVAILABLE",
    }
}

fn print(receipt: &SendReceipt, format: Format) -> anyhow::Result<()> {
    let queue = &receipt.queue;
    match format {
        Format::Json => output::json(&Sent {
            status: status(receipt.status),
            message_id: &receipt.message_id,
            offset_message_id: &receipt.offset_message_id,
            broker: &queue.broker_name,
            queue: queue.queue_id,
            queue_offset: receipt.queue_offset,
        })?,
        Format::Text => output::line(&format!(
            "{}  {} queue {} offset {}  {}",
            status(receipt.status),
            queue.broker_name,
            queue.queue_id,
            receipt.queue_offset,
            receipt.message_id
        ))?,
    }
    Ok(())
}
