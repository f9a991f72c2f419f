//! `rmq message`: single messages, by id and by key.

use clap::Subcommand;
use rocketmq_client::{Admin, ReceivedMessage};

use crate::connect::{self, Namesrv};
use crate::consume;
use crate::exit::{self, Exit};
use crate::output::Format;

#[derive(Subcommand)]
pub enum Command {
    /// Print messages of a topic by id, by unique key or by key
    Get(GetArgs),
}

#[derive(clap::Args)]
#[command(
    group = clap::ArgGroup::new("which").required(true).args(["id", "unique_key", "key"]),
    after_help = "\
Messages are printed as rmq consume prints them, oldest first. No group is disturbed.
Exit code 3 when there is none."
)]
pub struct GetArgs {
    /// Topic of the messages
    topic: String,
    /// The message with this offset message id, as rmq send prints it with -o json
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Messages with this unique key, the message id that their producer gave them
    #[arg(long, value_name = "KEY")]
    unique_key: Option<String>,
    /// Messages that were sent with this key
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// At most so many of each broker, the newest; brokers have a limit of their own, usually 64
    #[arg(long, value_name = "N", default_value_t = 32)]
    #[arg(value_parser = clap::value_parser!(i32).range(1..))]
    max: i32,
    #[command(flatten)]
    namesrv: Namesrv,
}

pub async fn run(command: Command, format: Format) -> anyhow::Result<()> {
    let Command::Get(args) = command;
    let admin = args.namesrv.admin()?;
    let (messages, what) = match (&args.id, &args.unique_key, &args.key) {
        (Some(id), ..) => {
            let found = connect::done(admin.view_message(&args.topic, id).await)?;
            // An id says a place, which may hold a message of another topic.
            let found = found.filter(|message| message.topic == args.topic);
            (found.into_iter().collect(), format!("id {id}"))
        }
        (_, Some(key), _) => (query(&admin, &args, key, true).await?, format!("unique key {key}")),
        (.., key) => {
            // The argument group demands one of the three.
            let key = key.as_deref().unwrap_or_default();
            (query(&admin, &args, key, false).await?, format!("key {key}"))
        }
    };
    if messages.is_empty() {
        let text = format!("topic {} has no message with {what}", args.topic);
        return Err(exit::error(Exit::NotFound, text));
    }
    for message in &messages {
        consume::print(message, format)?;
    }
    Ok(())
}

/// Asks each master of the topic.
async fn query(
    admin: &Admin,
    args: &GetArgs,
    key: &str,
    unique: bool,
) -> anyhow::Result<Vec<ReceivedMessage>> {
    let route = connect::done(admin.topic_route(&args.topic).await)?;
    let mut messages = Vec::new();
    for broker in route.broker_datas {
        let Some(addr) = broker.broker_addrs.get(&0) else { continue };
        let query = admin.query_message(addr, &args.topic, key, unique, args.max, 0..=i64::MAX);
        for mut message in connect::done(query.await)? {
            message.queue.broker_name.clone_from(&broker.broker_name);
            messages.push(message);
        }
    }
    messages.sort_by_key(|message| message.store_timestamp_ms);
    Ok(messages)
}
