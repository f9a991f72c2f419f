//! Delayed messages, retries and dead letters, as unmodified clients see them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::line::{Line, Received};
use e2e::peer::Servers;
use e2e::programs::{Client, Program, Programs, received};
use e2e::wait;

const LIMIT: Duration = Duration::from_secs(90);
/// Quick ones: a first retry has level 3.
const LEVELS: (&str, &str) = ("messageDelayLevel", "1s 2s 1s 1s 1s 1s 1s");
const DLQ: &str = "%DLQ%";

#[test]
fn java_4_9_delays_retries_and_gives_up() -> Result<()> {
    delays_retries_and_gives_up(Client::Java49)
}

#[test]
fn java_5_3_delays_retries_and_gives_up() -> Result<()> {
    delays_retries_and_gives_up(Client::Java53)
}

#[test]
fn go_delays_retries_and_gives_up() -> Result<()> {
    delays_retries_and_gives_up(Client::Go)
}

fn delays_retries_and_gives_up(client: Client) -> Result<()> {
    let servers = Servers::start(&[LEVELS])?;
    let programs = Programs::start(client, servers.directory())?;
    let context = |what: &str| format!("{client}: {what}");
    delayed(&servers, &programs).with_context(|| context("delayed"))?;
    retried(&servers, &programs).with_context(|| context("retried"))?;
    given_up(&servers, &programs).with_context(|| context("given up"))
}

fn acknowledged(producer: &Program) -> Result<Vec<String>> {
    let lines = producer.finish(LIMIT)?;
    let keys = lines.iter().filter_map(|line| match line {
        Line::Send(sent) if sent.status == "SEND_OK" => Some(sent.key.clone()),
        _ => None,
    });
    Ok(keys.collect())
}

/// What a consumer got, by key, once it got `count`.
fn deliveries(consumer: &Program, count: usize) -> Result<BTreeMap<String, Vec<Received>>> {
    let came = consumer.wait_received(count, LIMIT);
    let lines = consumer.stop()?;
    came?;
    let mut by_key: BTreeMap<String, Vec<Received>> = BTreeMap::new();
    for message in received(&lines) {
        by_key.entry(message.keys.clone().unwrap_or_default()).or_default().push(message.clone());
    }
    Ok(by_key)
}

fn delayed(servers: &Servers, programs: &Programs) -> Result<()> {
    const TOPIC: &str = "Delayed";
    servers.create_topic(TOPIC, 2)?;
    let namesrv = servers.namesrv_address();
    let arguments = ["--topic", TOPIC, "--group", "delayed", "--tags", "A"];
    let consumer = programs.consume(&namesrv, &arguments)?;
    let arguments = [
        "--topic",
        TOPIC,
        "--count",
        "20",
        "--tags",
        "A,B",
        "--delay-level",
        "2",
        "--retries",
        "0",
    ];
    let keys = acknowledged(&programs.produce(&namesrv, &arguments)?)?;
    ensure!(keys.len() == 20, "{} of 20 sends were acknowledged", keys.len());
    let by_key = deliveries(&consumer, 10)?;
    ensure!(by_key.len() == 10, "{} of 10 messages with tag A came", by_key.len());
    for (key, messages) in by_key {
        ensure!(messages.len() == 1 && keys.contains(&key), "{key} came {} times", messages.len());
        let message = &messages[0];
        let waited_ms = message.store_timestamp - message.born_timestamp;
        ensure!((1_990..7_000).contains(&waited_ms), "{key} waited {waited_ms} ms");
        ensure!(message.topic == TOPIC && message.reconsume_times == 0, "{message:?}");
        let property = |name: &str| message.properties.get(name).map(String::as_str);
        ensure!(property("DELAY") == Some("2"), "{key}: DELAY {:?}", property("DELAY"));
        ensure!(property("REAL_TOPIC") == Some(TOPIC), "{key}: {:?}", property("REAL_TOPIC"));
    }
    Ok(())
}

fn retried(servers: &Servers, programs: &Programs) -> Result<()> {
    const TOPIC: &str = "Retried";
    servers.create_topic(TOPIC, 2)?;
    let namesrv = servers.namesrv_address();
    let arguments = ["--topic", TOPIC, "--group", "retried", "--fail-times", "2"];
    let consumer = programs.consume(&namesrv, &arguments)?;
    let arguments = ["--topic", TOPIC, "--count", "6", "--retries", "0"];
    let sent = programs.produce(&namesrv, &arguments)?.finish(LIMIT)?;
    let ids: BTreeMap<&str, Option<&str>> = sent
        .iter()
        .filter_map(|line| match line {
            Line::Send(sent) => Some((sent.key.as_str(), sent.offset_msg_id.as_deref())),
            _ => None,
        })
        .collect();
    ensure!(ids.len() == 6, "{} of 6 sends were answered", ids.len());
    let by_key = deliveries(&consumer, 18)?;
    for (key, id) in ids {
        let messages = by_key.get(key).with_context(|| format!("{key} never came"))?;
        let times: Vec<i32> = messages.iter().map(|message| message.reconsume_times).collect();
        ensure!(times == [0, 1, 2], "{key} came with reconsumeTimes {times:?}");
        for message in &messages[1..] {
            ensure!(message.topic == TOPIC, "{key} came under {}", message.topic);
            let origin = message.properties.get("ORIGIN_MESSAGE_ID").map(String::as_str);
            ensure!(origin.is_some() && (id.is_none() || origin == id), "{origin:?}, not {id:?}");
        }
    }
    Ok(())
}

fn given_up(servers: &Servers, programs: &Programs) -> Result<()> {
    const TOPIC: &str = "GivenUp";
    const GROUP: &str = "given_up";
    servers.create_topic(TOPIC, 1)?;
    let namesrv = servers.namesrv_address();
    let consumer = programs.consume(
        &namesrv,
        &["--topic", TOPIC, "--group", GROUP, "--fail-times", "9", "--max-reconsume-times", "1"],
    )?;
    let arguments = ["--topic", TOPIC, "--count", "4", "--retries", "0"];
    let keys = acknowledged(&programs.produce(&namesrv, &arguments)?)?;
    ensure!(keys.len() == 4, "{} of 4 sends were acknowledged", keys.len());
    let dead_letters = format!("{DLQ}{GROUP}");
    consumer.wait_received(8, LIMIT)?;
    let found = wait::until("four dead letters", LIMIT, || {
        let arguments = ["--topic", &dead_letters, "--group", "undertaker", "--mode", "pull"];
        let lines = programs.consume(&namesrv, &arguments)?.finish(LIMIT)?;
        let found: Vec<Received> = received(&lines).cloned().collect();
        ensure!(found.len() >= 4, "{} so far", found.len());
        Ok(found)
    })?;
    let by_key = deliveries(&consumer, 8)?;
    for key in keys {
        let tries = by_key.get(&key).map_or(0, Vec::len);
        ensure!(tries == 2, "{key} was tried {tries} times");
        let dead: Vec<_> =
            found.iter().filter(|message| message.keys.as_ref() == Some(&key)).collect();
        ensure!(dead.len() == 1, "{key} is {} times among the dead letters", dead.len());
        ensure!(dead[0].reconsume_times == 2, "{key}: {} tries", dead[0].reconsume_times);
        let origin = dead[0].properties.get("RETRY_TOPIC").map(String::as_str);
        ensure!(origin == Some(TOPIC), "{key}: RETRY_TOPIC {origin:?}");
    }
    Ok(())
}

/// Messages that wait survive a kill, and come when they are due.
#[test]
fn delayed_messages_survive_a_kill() -> Result<()> {
    const TOPIC: &str = "Patient";
    let mut servers = Servers::start(&[("messageDelayLevel", "1s 6s")])?;
    servers.create_topic(TOPIC, 2)?;
    let namesrv = servers.namesrv_address();
    let programs = Programs::start(Client::Java53, servers.directory())?;
    let arguments = ["--topic", TOPIC, "--count", "300", "--threads", "4", "--delay-level", "2"];
    let keys = acknowledged(&programs.produce(&namesrv, &arguments)?)?;
    ensure!(keys.len() >= 300, "{} of 300 sends were acknowledged", keys.len());
    servers.broker.kill()?;
    servers.broker.start()?;
    let consumer = programs.consume(&namesrv, &["--topic", TOPIC, "--group", "patient"])?;
    let by_key = deliveries(&consumer, 300)?;
    for key in keys {
        ensure!(by_key.contains_key(&key), "{key} never came");
    }
    Ok(())
}
