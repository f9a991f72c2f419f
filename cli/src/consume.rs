//! `rmq consume`: as a member of a group, or looking on.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use rocketmq_client::{GroupConsumer, PullConsumer, ReceivedMessage, StartFrom};
use rocketmq_protocol::names;
use serde::Serialize;
use tokio::time::Instant;

use crate::connect::{self, Namesrv};
use crate::exit::{self, Exit};
use crate::output::{self, Format};

/// How long one wait for messages is when there is no timeout; nothing depends on it.
const POLL: Duration = Duration::from_secs(60);

#[derive(clap::Args)]
#[command(
    group = clap::ArgGroup::new("how").required(true).args(["group", "tail"]),
    after_help = "\
With --group, what was printed is acknowledged: the next run of the group goes on behind it.
With --tail, nothing is acknowledged and no group is disturbed.
Exit code 4 when --timeout ends it before --count messages, or before any message."
)]
pub struct Args {
    /// Topic to receive from
    topic: String,
    /// Consume as a member of this group, which shares the queues with its other members
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Look on: print what arrives from now on
    #[arg(long)]
    tail: bool,
    /// Tags to take, as in "a || b"
    #[arg(long, value_name = "EXPRESSION", default_value = "*")]
    tag: String,
    /// Where to begin: --tail begins at the last message unless this says first, a new group at the
    /// first unless this says last
    #[arg(long, value_enum)]
    from: Option<Beginning>,
    /// End after so many messages
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End when no message came for so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = connect::parse_seconds)]
    timeout: Option<Duration>,
    #[command(flatten)]
    namesrv: Namesrv,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Beginning {
    First,
    Last,
}

impl Beginning {
    fn start(self) -> StartFrom {
        match self {
            Self::First => StartFrom::First,
            Self::Last => StartFrom::Last,
        }
    }
}

pub async fn run(args: Args, format: Format) -> anyhow::Result<()> {
    // A consumer would wait for the topic to appear; who mistyped it should know.
    let admin = args.namesrv.admin()?;
    connect::done(admin.topic_route(&args.topic).await)?;
    admin.shutdown().await;
    let mut printed = Printed { format, wanted: args.count, count: 0, quiet_since: Instant::now() };
    let result = match &args.group {
        Some(group) => in_group(&args, group, &mut printed).await,
        None => tail(&args, &mut printed).await,
    };
    let ending = result?;
    if printed.is_enough() || (ending == Ending::Interrupted && args.count.is_none()) {
        return Ok(());
    }
    let wanted = args.count.map_or(String::new(), |count| format!(" of {count}"));
    let cause = match (ending, args.timeout) {
        (Ending::Interrupted, _) | (_, None) => "interrupted".to_owned(),
        (_, Some(timeout)) => format!("no message for {} s", timeout.as_secs_f64()),
    };
    Err(exit::error(
        Exit::Timeout,
        format!("{cause}; received {}{wanted} messages of topic {}", printed.count, args.topic),
    ))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The messages that were wanted are printed.
    Enough,
    /// Nothing came for the time of `--timeout`.
    Quiet,
    /// SIGINT or SIGTERM.
    Interrupted,
}

/// What was printed so far.
struct Printed {
    format: Format,
    wanted: Option<u64>,
    count: u64,
    quiet_since: Instant,
}

impl Printed {
    fn print(&mut self, message: &ReceivedMessage) -> anyhow::Result<()> {
        print(message, self.format)?;
        self.count += 1;
        self.quiet_since = Instant::now();
        Ok(())
    }

    fn has_all(&self) -> bool {
        self.wanted.is_some_and(|wanted| self.count >= wanted)
    }

    /// Whether it counts as a success.
    fn is_enough(&self) -> bool {
        self.count >= self.wanted.unwrap_or(1)
    }

    /// How long the next message may take.
    fn patience(&self, timeout: Option<Duration>) -> Duration {
        timeout.map_or(POLL, |timeout| timeout.saturating_sub(self.quiet_since.elapsed()))
    }
}

/// Waits for SIGINT or SIGTERM.
async fn interrupted() -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let listen = |kind| signal(kind).context("cannot listen for signals");
    let (mut interrupt, mut terminate) =
        (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

async fn in_group(args: &Args, group: &str, printed: &mut Printed) -> anyhow::Result<Ending> {
    let builder = GroupConsumer::builder([args.namesrv.addresses()], group)
        .subscribe(args.topic.as_str(), args.tag.as_str())
        .start_from(args.from.unwrap_or(Beginning::First).start())
        // A batch is acknowledged as a whole; with a count it must not go beyond it.
        .batch_messages_max(if args.count.is_some() { 1 } else { 32 });
    let consumer = connect::done(builder.start().await)?;
    let result = tokio::select! {
        interrupted = interrupted() => interrupted.map(|()| Ending::Interrupted),
        ending = receive(&consumer, args.timeout, printed) => ending,
    };
    // Commits what was acknowledged.
    consumer.shutdown().await;
    result
}

async fn receive(
    consumer: &GroupConsumer,
    timeout: Option<Duration>,
    printed: &mut Printed,
) -> anyhow::Result<Ending> {
    while !printed.has_all() {
        let patience = printed.patience(timeout);
        match tokio::time::timeout(patience, consumer.receive()).await {
            Ok(Some(batch)) => {
                for message in batch.messages() {
                    printed.print(message)?;
                }
                batch.ack();
            }
            Ok(None) => return Ok(Ending::Interrupted),
            Err(_) if timeout.is_some() => return Ok(Ending::Quiet),
            Err(_) => {}
        }
    }
    Ok(Ending::Enough)
}

async fn tail(args: &Args, printed: &mut Printed) -> anyhow::Result<Ending> {
    // Every broker knows this group, also where groups are not made on first use.
    let builder = PullConsumer::builder([args.namesrv.addresses()], names::TOOLS_GROUP)
        .filter(args.tag.as_str());
    let consumer = connect::done(builder.start().await)?;
    let result = tokio::select! {
        interrupted = interrupted() => interrupted.map(|()| Ending::Interrupted),
        ending = look_on(&consumer, args, printed) => ending,
    };
    consumer.shutdown().await;
    result
}

async fn look_on(
    consumer: &PullConsumer,
    args: &Args,
    printed: &mut Printed,
) -> anyhow::Result<Ending> {
    let queues = connect::done(consumer.queues(&args.topic).await)?;
    let from = args.from.unwrap_or(Beginning::Last).start();
    connect::done(consumer.assign(queues, from).await)?;
    while !printed.has_all() {
        let messages = consumer.poll(printed.patience(args.timeout)).await;
        if messages.is_empty() && args.timeout.is_some() {
            return Ok(Ending::Quiet);
        }
        for message in &messages {
            if !printed.has_all() {
                printed.print(message)?;
            }
        }
    }
    Ok(Ending::Enough)
}

/// Prints a message.
pub fn print(message: &ReceivedMessage, format: Format) -> anyhow::Result<()> {
    match format {
        Format::Json => output::json(&Received::new(message))?,
        Format::Text => output::line(&text(message))?,
    }
    Ok(())
}

/// One line of JSON. The body is text when it is UTF-8, else base64.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Received<'a> {
    topic: &'a str,
    broker: &'a str,
    queue: i32,
    queue_offset: i64,
    message_id: String,
    offset_message_id: String,
    born_timestamp: i64,
    store_timestamp: i64,
    reconsume_times: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<&'a str>,
    keys: Vec<&'a str>,
    properties: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
}

impl<'a> Received<'a> {
    fn new(message: &'a ReceivedMessage) -> Self {
        let body = std::str::from_utf8(&message.body).ok();
        Self {
            topic: &message.topic,
            broker: &message.queue.broker_name,
            queue: message.queue.queue_id,
            queue_offset: message.queue_offset,
            message_id: message.message_id(),
            offset_message_id: message.offset_message_id(),
            born_timestamp: message.born_timestamp_ms,
            store_timestamp: message.store_timestamp_ms,
            reconsume_times: message.reconsume_times,
            tag: message.tag(),
            keys: message.keys().collect(),
            properties: message.properties().collect(),
            body,
            body_base64: body.is_none().then(|| output::base64(&message.body)),
        }
    }
}

/// One line for people; bytes that are no text are shown as replacement characters.
fn text(message: &ReceivedMessage) -> String {
    let keys: Vec<&str> = message.keys().collect();
    let mut line = format!(
        "{} queue {} offset {}",
        message.queue.broker_name, message.queue.queue_id, message.queue_offset
    );
    if let Some(tag) = message.tag() {
        line.push_str(&format!("  tag {tag}"));
    }
    if !keys.is_empty() {
        line.push_str(&format!("  keys {}", keys.join(" ")));
    }
    line.push_str("  ");
    line.push_str(&String::from_utf8_lossy(&message.body));
    line
}
