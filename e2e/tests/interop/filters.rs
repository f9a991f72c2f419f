//! Filters by SQL92 expressions, as unmodified clients use them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::line::{Line, Received};
use e2e::peer::Servers;
use e2e::programs::{Client, Program, Programs, received};
use e2e::raw::{Raw, code};
use e2e::wait;
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(90);
const SETTINGS: [(&str, &str); 2] =
    [("enablePropertyFilter", "true"), ("messageDelayLevel", "1s 1s 1s 1s 1s")];
/// Bit maps beside the queues' entries do the first half of the work.
const BIT_MAPS: [(&str, &str); 2] =
    [("enableConsumeQueueExt", "true"), ("enableCalcFilterBitMap", "true")];

#[test]
fn java_4_9_filters_by_expressions() -> Result<()> {
    filters_by_expressions(Client::Java49, &SETTINGS)
}

#[test]
fn java_5_3_filters_by_expressions() -> Result<()> {
    filters_by_expressions(Client::Java53, &SETTINGS)
}

#[test]
fn java_5_3_filters_by_expressions_with_bit_maps() -> Result<()> {
    filters_by_expressions(Client::Java53, &[SETTINGS, BIT_MAPS].concat())
}

#[test]
fn go_filters_by_expressions() -> Result<()> {
    filters_by_expressions(Client::Go, &SETTINGS)
}

fn filters_by_expressions(client: Client, settings: &[(&str, &str)]) -> Result<()> {
    let servers = Servers::start(settings)?;
    let programs = Programs::start(client, servers.directory())?;
    let context = |what: &str| format!("{client}: {what}");
    modes(client, &servers, &programs).with_context(|| context("modes"))?;
    retried(&servers, &programs).with_context(|| context("retried"))?;
    if client != Client::Go {
        // The Go client does not ask before it starts, and keeps what a pull is told to itself.
        refused(&servers, &programs).with_context(|| context("refused"))?;
    }
    Ok(())
}

/// Sends so many messages, with `seq` from 0 on and tags A and B in turn.
fn produce(
    servers: &Servers,
    programs: &Programs,
    topic: &str,
    prefix: &str,
    count: u32,
) -> Result<()> {
    let count_text = count.to_string();
    let arguments = [
        "--topic",
        topic,
        "--count",
        &count_text,
        "--tags",
        "A,B",
        "--key-prefix",
        prefix,
        "--retries",
        "0",
    ];
    let lines = programs.produce(&servers.namesrv_address(), &arguments)?.finish(LIMIT)?;
    let sent =
        lines.iter().filter(|line| matches!(line, Line::Send(sent) if sent.status == "SEND_OK"));
    ensure!(sent.count() == count as usize, "not all of {count} sends were acknowledged");
    Ok(())
}

/// How often each key came.
fn times(lines: &[Line]) -> BTreeMap<String, usize> {
    let mut times = BTreeMap::new();
    for message in received(lines) {
        *times.entry(message.keys.clone().unwrap_or_default()).or_default() += 1;
    }
    times
}

fn ensure_keys(lines: &[Line], keys: impl IntoIterator<Item = String>) -> Result<()> {
    let expected: BTreeMap<String, usize> = keys.into_iter().map(|key| (key, 1)).collect();
    let found = times(lines);
    ensure!(found == expected, "{found:?} came, expected {expected:?}");
    Ok(())
}

/// Old messages and new ones, pushed and pulled: those that match, and only those.
fn modes(client: Client, servers: &Servers, programs: &Programs) -> Result<()> {
    const TOPIC: &str = "Filtered";
    const SQL: &str = "seq >= 20 AND seq < 40 AND (TAGS = 'A' OR none IS NOT NULL)";
    servers.create_topic(TOPIC, 2)?;
    produce(servers, programs, TOPIC, "old", 60)?;
    let namesrv = servers.namesrv_address();
    let consume = |mode: &str, group: &str| {
        let arguments = ["--topic", TOPIC, "--mode", mode, "--group", group, "--sql", SQL];
        programs.consume(&namesrv, &arguments)
    };
    let old = || (20..40).step_by(2).map(|seq| format!("old-0-{seq}"));
    let new = || (20..30).step_by(2).map(|seq| format!("new-0-{seq}"));
    let mut waiting: Vec<(&str, Program)> = Vec::new();
    let mut modes = vec![("push", "sql-push"), ("orderly", "sql-orderly")];
    if client != Client::Go {
        // The Go client's poll names every expression a tag.
        modes.push(("lite-pull", "sql-lite"));
    }
    for (mode, group) in modes {
        waiting.push((group, consume(mode, group)?));
    }
    for (group, consumer) in &waiting {
        consumer.wait_received(10, LIMIT).with_context(|| (*group).to_owned())?;
    }
    let pulled = consume("pull", "sql-pull")?.finish(LIMIT)?;
    ensure_keys(&pulled, old()).context("sql-pull")?;
    // Nobody wants the last ones.
    produce(servers, programs, TOPIC, "new", 30)?;
    produce(servers, programs, TOPIC, "unwanted", 20)?;
    for (group, consumer) in &waiting {
        consumer.wait_received(15, LIMIT).with_context(|| (*group).to_owned())?;
        // Of what nobody wants only push consumers of the Java client commit offsets.
        if client != Client::Go && *group != "sql-lite" {
            wait::until("offsets at the end", LIMIT, || ends_reached(servers, TOPIC, group, 110))
                .with_context(|| (*group).to_owned())?;
        }
        let lines = consumer.stop()?;
        ensure_keys(&lines, old().chain(new())).with_context(|| (*group).to_owned())?;
    }
    Ok(())
}

/// Whether the group's offsets are behind all messages of the topic, wanted or not.
fn ends_reached(servers: &Servers, topic: &str, group: &str, count: i64) -> Result<()> {
    let mut broker = Raw::connect(&servers.broker.address(), LIMIT)?;
    let mut sum = 0;
    for queue_id in ["0", "1"] {
        let fields = json!({"consumerGroup": group, "topic": topic, "queueId": queue_id});
        let answer = broker.call(code::QUERY_CONSUMER_OFFSET, &fields, &[])?;
        let offset = answer.field("offset").context("no offset")?;
        sum += offset.parse::<i64>()?;
    }
    ensure!(sum == count, "{sum} of {count} are behind");
    Ok(())
}

/// A message that failed comes again to the group whose filter it passed.
fn retried(servers: &Servers, programs: &Programs) -> Result<()> {
    const TOPIC: &str = "FilteredRetry";
    servers.create_topic(TOPIC, 1)?;
    let namesrv = servers.namesrv_address();
    let arguments = [
        "--topic",
        TOPIC,
        "--group",
        "sql-retried",
        "--sql",
        "seq BETWEEN 3 AND 5",
        "--fail-times",
        "2",
    ];
    let consumer = programs.consume(&namesrv, &arguments)?;
    produce(servers, programs, TOPIC, "r", 12)?;
    let came = consumer.wait_received(9, LIMIT);
    let lines = consumer.stop()?;
    came?;
    let mut tries: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for Received { keys, reconsume_times, .. } in received(&lines) {
        tries.entry(keys.clone().unwrap_or_default()).or_default().push(*reconsume_times);
    }
    let expected: BTreeMap<String, Vec<i32>> =
        (3..=5).map(|seq| (format!("r-0-{seq}"), vec![0, 1, 2])).collect();
    ensure!(tries == expected, "{tries:?} came, expected {expected:?}");
    Ok(())
}

/// What is no expression is an error at the start of a consumer, and at a pull.
fn refused(servers: &Servers, programs: &Programs) -> Result<()> {
    const TOPIC: &str = "Refused";
    servers.create_topic(TOPIC, 1)?;
    produce(servers, programs, TOPIC, "x", 1)?;
    for mode in ["push", "lite-pull"] {
        let arguments =
            ["--topic", TOPIC, "--mode", mode, "--group", "sql-bad", "--sql", "seq >= AND 5"];
        let consumer = programs.consume(&servers.namesrv_address(), &arguments)?;
        let error = match consumer.finish(LIMIT) {
            Ok(lines) => anyhow::bail!("{mode}: started: {lines:?}"),
            Err(error) => format!("{error:#}"),
        };
        ensure!(error.contains("CODE: 23"), "{mode}: {error}");
    }
    Ok(())
}
