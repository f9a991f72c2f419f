//! Requests that wait for a consumer's reply (RequestResponse), as unmodified clients do them.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use e2e::line::Line;
use e2e::peer::{CLUSTER, Servers};
use e2e::programs::{Client, Programs, received};

const LIMIT: Duration = Duration::from_secs(90);
const REQUESTS: usize = 20;

#[test]
fn java_4_9_gets_replies() -> Result<()> {
    gets_replies(Client::Java49, Client::Java49)
}

#[test]
fn java_5_3_gets_replies() -> Result<()> {
    gets_replies(Client::Java53, Client::Java53)
}

#[test]
fn java_5_3_gets_replies_of_java_4_9() -> Result<()> {
    gets_replies(Client::Java53, Client::Java49)
}

#[test]
fn go_gets_replies() -> Result<()> {
    gets_replies(Client::Go, Client::Go)
}

#[test]
fn go_gets_replies_of_java_5_3() -> Result<()> {
    gets_replies(Client::Go, Client::Java53)
}

fn gets_replies(asks: Client, answers: Client) -> Result<()> {
    const TOPIC: &str = "Questions";
    let servers = Servers::start(&[])?;
    let namesrv = servers.namesrv_address();
    servers.create_topic(TOPIC, 2)?;
    let askers = Programs::start(asks, servers.directory())?;
    let answerers = Programs::start(answers, &servers.directory().join("answerers"))?;
    let consumer =
        answerers.consume(&namesrv, &["--topic", TOPIC, "--group", "answerers", "--reply"])?;
    match answers {
        // The Go program does not say which queues it holds.
        Client::Go => consumer.wait_ready()?,
        Client::Java49 | Client::Java53 => {
            consumer.wait_assigned(2)?;
        }
    }
    let count = REQUESTS.to_string();
    // One after the other: of several threads that begin together, the client has one tell the
    // broker of itself, and the others' replies may come before that.
    let arguments = [
        "--topic",
        TOPIC,
        "--mode",
        "request",
        "--count",
        &count,
        "--key-prefix",
        "asked",
        "--timeout-ms",
        "60000",
    ];
    let asked = askers.produce(&namesrv, &arguments)?.finish(LIMIT)?;
    let mut replied = 0;
    for line in &asked {
        match line {
            Line::Send(sent) => {
                ensure!(
                    sent.status == "REPLIED" && sent.reply == Some(format!("re: {}", sent.key)),
                    "the reply to {} is {:?}",
                    sent.key,
                    sent.reply
                );
                replied += 1;
            }
            Line::Error(error) => {
                let said = consumer.lines().last().cloned();
                bail!("{}: {}; the consumer: {said:?}", error.key, error.error);
            }
            _ => {}
        }
    }
    ensure!(replied == REQUESTS, "{replied} of {REQUESTS} requests were replied to");
    consumer.stop()?;
    // Replies are messages, too, in a topic of the cluster's own.
    let reply_topic = format!("{CLUSTER}_REPLY_TOPIC");
    let stored = askers.consume(&namesrv, &["--topic", &reply_topic, "--mode", "pull"])?;
    let stored = stored.finish(LIMIT)?;
    let bodies = received(&stored)
        .filter(|message| {
            message.body.as_deref().is_some_and(|body| body.starts_with("re: asked-"))
        })
        .count();
    // The Go program asks again until a reply finds it.
    let is_right = if asks == Client::Go { bodies >= REQUESTS } else { bodies == REQUESTS };
    ensure!(is_right, "{bodies} replies to {REQUESTS} requests are stored");
    Ok(())
}
