//! Apache's mqadmin 5.3.3: every call says what it should and shows no exception.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::admin::Mqadmin;
use e2e::line::Line;
use e2e::peer::{CLUSTER, Servers};
use e2e::programs::{Client, Programs};
use e2e::wait;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn mqadmin_works() -> Result<()> {
    const TOPIC: &str = "Administered";
    const GROUP: &str = "administered";
    let servers = Servers::start(&[])?;
    let namesrv = servers.namesrv_address();
    let broker = servers.broker.address();
    let mut admin = Mqadmin::start(&namesrv, servers.directory())?;

    let out = admin.succeed(&["updateTopic", "-t", TOPIC, "-b", &broker, "-r", "3", "-w", "3"])?;
    has(&out, &[&format!("create topic to {broker} success"), "readQueueNums=3", "perm=RW-"])?;
    let out =
        admin.succeed(&["updateTopic", "-t", "Doomed", "-c", CLUSTER, "-r", "2", "-w", "2"])?;
    has(&out, &[&format!("create topic to {broker} success")])?;
    let out = admin.succeed(&["updateSubGroup", "-b", &broker, "-g", GROUP, "-r", "7"])?;
    let said = format!("create subscription group to {broker} success");
    has(&out, &[&said, &format!("groupName={GROUP}"), "retryMaxTimes=7"])?;

    // A group with a member, and messages it has consumed.
    let programs = Programs::start(Client::Java53, servers.directory())?;
    let consumer =
        programs.consume(&namesrv, &["--topic", TOPIC, "--group", GROUP, "--tags", "A"])?;
    let arguments = [
        "--topic",
        TOPIC,
        "--count",
        "30",
        "--tags",
        "A",
        "--key-prefix",
        "seen",
        "--timeout-ms",
        "15000",
    ];
    let sent = programs.produce(&namesrv, &arguments)?.finish(LIMIT)?;
    let acknowledged = sent
        .iter()
        .filter(|line| matches!(line, Line::Send(sent) if sent.status == "SEND_OK"))
        .count();
    ensure!(acknowledged == 30, "{acknowledged} of 30 sends were acknowledged");
    consumer.wait_received(30, LIMIT)?;

    let out = admin.succeed(&["clusterList"])?;
    row(&out, &[CLUSTER, "broker-a", "0", &broker])?;
    topics(&mut admin, TOPIC)?;

    let out = admin.succeed(&["topicStatus", "-t", TOPIC])?;
    let mut total = 0;
    for queue in 0..3 {
        let row = row(&out, &["broker-a", &queue.to_string(), "0"])?;
        total += row[3].parse::<i64>().with_context(|| format!("max offset in {row:?}"))?;
    }
    ensure!(total == 30, "topicStatus shows {total} of 30 messages:\n{out}");

    // The client commits every 5 s; then each queue is listed, and the lag is gone.
    wait::until("a group without lag", LIMIT, || -> Result<()> {
        let out = admin.succeed(&["consumerProgress", "-g", GROUP])?;
        has(&out, &["Consume Diff Total: 0"])?;
        for queue in 0..3 {
            let row = row(&out, &[TOPIC, "broker-a", &queue.to_string()])?;
            ensure!(
                row.len() > 5 && row[3] == row[4] && row[5] == "0",
                "consumerProgress: {row:?}"
            );
        }
        Ok(())
    })?;
    let out = admin.succeed(&["consumerProgress"])?;
    row(&out, &[GROUP, "1"])?;

    let out = admin.succeed(&["consumerConnection", "-g", GROUP])?;
    has(&out, &["JAVA", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET"])?;
    row(&out, &[TOPIC, "A"])?;
    row(&out, &[&format!("%RETRY%{GROUP}"), "*"])?;

    let out = admin.succeed(&["brokerStatus", "-b", &broker])?;
    for key in ["brokerVersionDesc", "bootTimestamp", "msgPutTotalTodayNow", "putTps", "runtime"] {
        ensure!(out.lines().any(|line| line.starts_with(key)), "brokerStatus lacks {key}:\n{out}");
    }
    let put = value_of(&out, "msgPutTotalTodayNow")?;
    ensure!(put.parse::<u64>()? >= 30, "msgPutTotalTodayNow is {put}");

    query_by_id(&mut admin, TOPIC, &sent)?;
    query_by_key(&mut admin, TOPIC, &sent)?;

    let out =
        admin.succeed(&["sendMessage", "-t", TOPIC, "-p", "by hand", "-k", "hand", "-c", "A"])?;
    has(&out, &["SEND_OK", "broker-a"])?;
    consumer.wait("the message of mqadmin", LIMIT, |output| {
        output
            .lines
            .iter()
            .any(|line| {
                matches!(line, Line::Recv(message)
                    if message.keys.as_deref() == Some("hand") && message.body.as_deref() == Some("by hand"))
            })
            .then_some(())
    })?;
    consumer.stop()?;

    let out = admin.succeed(&["deleteTopic", "-t", "Doomed", "-c", CLUSTER])?;
    has(
        &out,
        &["delete topic [Doomed] from cluster", "delete topic [Doomed] from NameServer success"],
    )?;
    let out = admin.succeed(&["topicList"])?;
    ensure!(!out.lines().any(|line| line.trim() == "Doomed"), "a deleted topic is listed:\n{out}");
    // What is not there is an error that names it.
    let out = admin.call(&["topicStatus", "-t", "Doomed"])?;
    has(&out, &["CODE: 17", "Doomed"])
}

fn topics(admin: &mut Mqadmin, topic: &str) -> Result<()> {
    let out = admin.succeed(&["topicList"])?;
    for name in [topic, "Doomed"] {
        ensure!(out.lines().any(|line| line.trim() == name), "topicList lacks {name}:\n{out}");
    }
    let out = admin.succeed(&["topicList", "-c"])?;
    row(&out, &[CLUSTER, topic])?;

    let out = admin.succeed(&["topicRoute", "-t", topic])?;
    // fastjson leaves integer keys bare.
    let route: Value = serde_json::from_str(&out.replace("{0:", "{\"0\":"))
        .with_context(|| format!("topicRoute printed {out}"))?;
    let queues = &route["queueDatas"][0];
    ensure!(
        queues["brokerName"] == "broker-a"
            && queues["readQueueNums"] == 3
            && queues["writeQueueNums"] == 3
            && queues["perm"] == 6
            && route["brokerDatas"][0]["cluster"] == CLUSTER,
        "topicRoute: {route}"
    );
    Ok(())
}

fn query_by_id(admin: &mut Mqadmin, topic: &str, sent: &[Line]) -> Result<()> {
    let sent = sent
        .iter()
        .find_map(|line| match line {
            Line::Send(sent) => Some(sent),
            _ => None,
        })
        .context("no send")?;
    let id = sent.offset_msg_id.as_deref().context("a send without an offset id")?;
    // A Java broker names the topic among its groups, at which the command shows an error.
    let out = admin.call(&["queryMsgById", "-t", topic, "-i", id])?;
    for (name, value) in [
        ("OffsetID", id.to_owned()),
        ("Topic", topic.to_owned()),
        ("Tags", "[A]".to_owned()),
        ("Keys", format!("[{}]", sent.key)),
        ("Queue ID", sent.queue_id.unwrap_or(-1).to_string()),
        ("Queue Offset", sent.queue_offset.unwrap_or(-1).to_string()),
        ("Reconsume Times", "0".to_owned()),
    ] {
        let found = value_of(&out, name)?;
        ensure!(found == value, "queryMsgById: {name} is {found}, sent was {value}:\n{out}");
    }
    has(&out, &["MessageTrack [consumerGroup=administered, trackType=CONSUMED"])
}

/// By the key that the application gave, and by the unique key of the client.
fn query_by_key(admin: &mut Mqadmin, topic: &str, sent: &[Line]) -> Result<()> {
    let sent: Vec<_> = sent
        .iter()
        .filter_map(|line| match line {
            Line::Send(sent) => Some(sent),
            _ => None,
        })
        .collect();
    for sent in [sent.first(), sent.last()].into_iter().flatten() {
        let id = sent.msg_id.as_deref().context("a send without an id")?;
        // A row: message id, queue, offset in it.
        let out = admin.succeed(&["queryMsgByKey", "-t", topic, "-k", &sent.key])?;
        let queue_id = sent.queue_id.unwrap_or(-1).to_string();
        let queue_offset = sent.queue_offset.unwrap_or(-1).to_string();
        row(&out, &[id, &queue_id, &queue_offset])?;
        let rows = out.lines().filter(|line| line.starts_with(id)).count();
        ensure!(rows == 1, "queryMsgByKey shows the message {rows} times:\n{out}");

        let out = admin.succeed(&["queryMsgByUniqueKey", "-t", topic, "-i", id])?;
        for (name, value) in [
            ("Topic", topic.to_owned()),
            ("Keys", format!("[{}]", sent.key)),
            ("Queue ID", queue_id),
            ("Queue Offset", queue_offset),
        ] {
            let found = value_of(&out, name)?;
            ensure!(found == value, "queryMsgByUniqueKey: {name} is {found}, not {value}:\n{out}");
        }
    }
    // mqadmin prints the head alone when nothing is found.
    let out = admin.call(&["queryMsgByKey", "-t", topic, "-k", "nobody-has-this-key"])?;
    ensure!(
        !out.contains(&sent[0].key) && !out.contains("CODE: 3"),
        "queryMsgByKey printed:\n{out}"
    );
    Ok(())
}

/// Every text is in `out`.
pub fn has(out: &str, wanted: &[&str]) -> Result<()> {
    for text in wanted {
        ensure!(out.contains(text), "'{text}' is not in:\n{out}");
    }
    Ok(())
}

/// The first line whose words begin with `words`.
pub fn row<'a>(out: &'a str, words: &[&str]) -> Result<Vec<&'a str>> {
    out.lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|found| found.starts_with(words))
        .with_context(|| format!("no line begins with {words:?}:\n{out}"))
}

/// The value in a line `NAME : VALUE`.
fn value_of<'a>(out: &'a str, name: &str) -> Result<&'a str> {
    out.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(found, _)| found.trim() == name)
        .map(|(_, value)| value.trim())
        .with_context(|| format!("no '{name}' in:\n{out}"))
}
