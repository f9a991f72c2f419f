//! How the members of a group share queues, and where a new group begins.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use e2e::line::Line;
use e2e::peer::{Broker, Namesrv, Peer, Servers};
use e2e::programs::{Client, Program, Programs, received};
use e2e::raw::{Raw, code};
use e2e::wait;
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(90);
const QUEUES: usize = 8;

#[test]
fn java_4_9_members_share_by_every_strategy() -> Result<()> {
    every_strategy(Client::Java49)
}

#[test]
fn java_5_3_members_share_by_every_strategy() -> Result<()> {
    every_strategy(Client::Java53)
}

/// Two brokers in two rooms, and members in both: whatever the strategy, each queue has one member, also
/// after one of them has left.
fn every_strategy(client: Client) -> Result<()> {
    const TOPIC: &str = "Strategies";
    let directory = tempfile::Builder::new().prefix("rocketmq-e2e-").tempdir()?;
    let peer = Peer::from_environment();
    let namesrv = Namesrv::start(peer, &directory.path().join("namesrv"))?;
    let mut brokers = Vec::new();
    for (place, name) in [("east", "east@broker-a"), ("west", "west@broker-b")] {
        let place = directory.path().join(place);
        let mut broker = Broker::new(peer, &place, &namesrv.address(), name, &[])?;
        broker.start()?;
        create_topic(&broker, TOPIC)?;
        brokers.push(broker);
    }
    wait::until("both brokers in the route", LIMIT, || {
        let answer = Raw::connect(&namesrv.address(), LIMIT)?.call(
            code::GET_ROUTEINFO_BY_TOPIC,
            &json!({"topic": TOPIC}),
            &[],
        )?;
        let route = String::from_utf8_lossy(&answer.body).into_owned();
        ensure!(route.contains("east@broker-a") && route.contains("west@broker-b"), "{route}");
        Ok(())
    })?;
    let programs = Programs::start(client, directory.path())?;
    for strategy in ["average", "circle", "hash", "room", "nearby"] {
        let group = format!("by-{strategy}");
        let join = |member: &str| {
            let instance = format!("{member}-{strategy}");
            let arguments = [
                "--topic",
                TOPIC,
                "--group",
                &group,
                "--strategy",
                strategy,
                "--instance",
                &instance,
            ];
            programs.consume(&namesrv.address(), &arguments)
        };
        let members = ["east", "west", "east-2"];
        let joined = members.iter().map(|name| join(name)).collect::<Result<Vec<Program>>>()?;
        shared(&joined)
            .with_context(|| format!("{client}, {strategy}, {} members", joined.len()))?;
        joined[2].stop()?;
        shared(&joined[..2]).with_context(|| format!("{client}, {strategy}, one left"))?;
        for member in &joined[..2] {
            member.stop()?;
        }
    }
    Ok(())
}

/// Waits until every queue of both brokers has one member.
fn shared(members: &[Program]) -> Result<()> {
    wait::until("every queue has one member", LIMIT, || {
        let mut all = BTreeSet::new();
        let mut count = 0;
        for member in members {
            let lines = member.lines();
            let newest = lines.iter().rev().find_map(|line| match line {
                Line::Assigned { queues } => Some(queues.clone()),
                _ => None,
            });
            let queues = newest.unwrap_or_default();
            count += queues.len();
            all.extend(queues);
        }
        ensure!(
            all.len() == 2 * QUEUES && count == all.len(),
            "{count} places, {} queues",
            all.len()
        );
        Ok(())
    })
}

fn create_topic(broker: &Broker, topic: &str) -> Result<()> {
    let queues = QUEUES.to_string();
    let fields = json!({
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues,
        "writeQueueNums": queues, "perm": "6", "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0", "order": "false",
    });
    let answer = Raw::connect(&broker.address(), LIMIT)?.call(
        code::UPDATE_AND_CREATE_TOPIC,
        &fields,
        &[],
    )?;
    ensure!(answer.code == 0, "create {topic}: {}: {}", answer.code, answer.remark);
    Ok(())
}

#[test]
fn java_4_9_groups_begin_where_they_ask_to() -> Result<()> {
    begin_where_asked(Client::Java49)
}

#[test]
fn java_5_3_groups_begin_where_they_ask_to() -> Result<()> {
    begin_where_asked(Client::Java53)
}

fn begin_where_asked(client: Client) -> Result<()> {
    const TOPIC: &str = "Beginnings";
    let servers = Servers::start(&[])?;
    servers.create_topic(TOPIC, 2)?;
    let programs = Programs::start(client, servers.directory())?;
    let namesrv = servers.namesrv_address();
    let produce = |prefix: &str| -> Result<()> {
        let arguments = ["--topic", TOPIC, "--count", "30", "--key-prefix", prefix];
        programs.produce(&namesrv, &arguments)?.finish(LIMIT).map(drop)
    };
    produce("early")?;
    // The client takes a time to the second.
    let between_ms = next_second()?;
    produce("late")?;
    let time = between_ms.to_string();
    let consume = |group: &str, more: &[&str]| -> Result<Program> {
        let arguments = ["--topic", TOPIC, "--group", group];
        programs.consume(&namesrv, &[&arguments[..], more].concat())
    };
    let first = consume("from-first", &["--from", "first", "--batch-size", "8"])?;
    let timed = consume("from-time", &["--from", "time", "--from-time-ms", &time])?;
    let paused = consume("suspended", &["--suspend-ms", "2000"])?;
    first.wait_received(60, LIMIT)?;
    // As with RocketMQ: a queue that still begins with its first message, in memory, is read from
    // there, whatever a new group asks for.
    timed.wait_received(60, LIMIT)?;
    paused.wait_received(60, LIMIT)?;
    let lines = paused.lines();
    let resumed = lines.iter().position(|line| matches!(line, Line::Resumed)).context("resumed")?;
    ensure!(received(&lines[..resumed]).next().is_none(), "a suspended consumer got messages");
    first.stop()?;
    paused.stop()?;
    timed.stop()?;
    // A group that has offsets goes on from them, wherever it asks to begin.
    produce("later")?;
    let again = consume("from-time", &["--from", "first"])?;
    again.wait_received(30, LIMIT)?;
    let lines = again.stop()?;
    ensure!(
        received(&lines).all(|message| {
            message.keys.as_deref().is_some_and(|key| key.starts_with("later-"))
        }),
        "it began again"
    );
    Ok(())
}

/// Waits for the second after the current one, and returns its beginning in ms.
fn next_second() -> Result<u128> {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map(|passed| passed.as_millis());
    let begin = (now()? / 1000 + 1) * 1000;
    wait::until("the next second", LIMIT, || {
        ensure!(now()? > begin, "not yet");
        Ok(())
    })?;
    Ok(begin)
}
