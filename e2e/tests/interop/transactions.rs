//! Transactions of unmodified clients: what is committed arrives, what is rolled back never does, over
//! kills of the broker and over a change of its make.

use std::collections::{BTreeMap, BTreeSet};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::line::{Checked, Line, Received};
use e2e::peer::{Peer, Servers};
use e2e::programs::{Client, Program, Programs, received};
use e2e::wait;

const LIMIT: Duration = Duration::from_secs(90);
/// Checks come soon, and often enough that none is given up.
const SETTINGS: &[(&str, &str)] = &[
    ("transactionCheckInterval", "1000"),
    ("transactionTimeOut", "2000"),
    ("transactionCheckMax", "1000"),
    // A decision that waits in memory is not known to a Java broker's checks.
    ("transactionOpBatchInterval", "500"),
];

#[test]
fn java_4_9_commits_rolls_back_and_answers_checks() -> Result<()> {
    every_fate(Client::Java49)
}

#[test]
fn java_5_3_commits_rolls_back_and_answers_checks() -> Result<()> {
    every_fate(Client::Java53)
}

#[test]
fn go_commits_rolls_back_and_answers_checks() -> Result<()> {
    every_fate(Client::Go)
}

fn every_fate(client: Client) -> Result<()> {
    const TOPIC: &str = "Paid";
    const FATES: &str = "commit,rollback,commit-1,rollback-1,commit-2";
    let servers = Servers::start(SETTINGS)?;
    servers.create_topic(TOPIC, 3)?;
    let namesrv = servers.namesrv_address();
    let programs = Programs::start(client, servers.directory())?;
    let consumer = programs.consume(&namesrv, &["--topic", TOPIC, "--group", "paid"])?;
    let arguments =
        ["--topic", TOPIC, "--count", "20", "--threads", "2", "--size", "5000", "--fates", FATES];
    let producer = programs.transact(&namesrv, &arguments)?;
    let fates = sent(&producer, 40)?;
    ensure!(fates.len() == 40, "{client}: {} of 40 were sent", fates.len());
    // 3 of 5 fates commit.
    consumer.wait_received(24, LIMIT).with_context(|| format!("{client}: the committed ones"))?;
    wait::until("all checks are answered", LIMIT, || {
        let asked = checks(&producer);
        let missing = fates.iter().filter(|(key, fate)| asked_times(&asked, key) < times(fate));
        let missing: Vec<_> = missing.collect();
        ensure!(missing.is_empty(), "{client}: not asked about {missing:?}");
        Ok(())
    })?;
    for asked in checks(&producer) {
        let fate = fates.get(&asked.key).context("a check of what nobody sent")?;
        ensure!(times(fate) > 0, "{client}: {} was decided, and asked about", asked.key);
        ensure!(asked.topic == TOPIC, "{client}: asked about topic {}", asked.topic);
    }
    producer.stop()?;
    let lines = consumer.stop()?;
    let mut came: BTreeMap<&str, Vec<&Received>> = BTreeMap::new();
    for message in received(&lines) {
        came.entry(message.keys.as_deref().unwrap_or_default()).or_default().push(message);
    }
    for (key, fate) in &fates {
        let messages = came.get(key.as_str()).map(Vec::as_slice).unwrap_or_default();
        let expected = usize::from(fate.starts_with("commit"));
        ensure!(
            messages.len() == expected,
            "{client}: {key} ({fate}) came {} times",
            messages.len()
        );
        for message in messages {
            ensure!(message.prepared_transaction_offset > 0 || key.ends_with("-0"), "{message:?}");
            ensure!(message.sys_flag & 0xC == 8, "{client}: system flag {}", message.sys_flag);
            ensure!(message.body_length == 5000, "{client}: {} bytes", message.body_length);
            let property = |name: &str| message.properties.get(name).map(String::as_str);
            ensure!(property("REAL_TOPIC") == Some(TOPIC), "{:?}", message.properties);
            ensure!(property("TRAN_MSG") == Some("true"), "{:?}", message.properties);
        }
    }
    Ok(())
}

/// How often a producer has to be asked.
fn times(fate: &str) -> usize {
    fate.split_once('-').and_then(|(_, number)| number.parse().ok()).unwrap_or(0)
}

/// The fates of what was sent, by key, once so many were tried.
fn sent(producer: &Program, count: usize) -> Result<BTreeMap<String, String>> {
    producer.wait(&format!("{count} transactions"), LIMIT, |output| {
        let tried = output.lines.iter().filter(|line| matches!(line, Line::Transaction(_)));
        (tried.count() >= count).then_some(())
    })?;
    Ok(stored(producer))
}

/// The fates of what was acknowledged as a half message, by key.
fn stored(producer: &Program) -> BTreeMap<String, String> {
    let lines = producer.lines().into_iter();
    lines
        .filter_map(|line| match line {
            Line::Transaction(sent) if sent.status == "SEND_OK" => Some((sent.key, sent.fate)),
            _ => None,
        })
        .collect()
}

fn checks(producer: &Program) -> Vec<Checked> {
    let lines = producer.lines().into_iter();
    lines
        .filter_map(|line| match line {
            Line::Checked(checked) => Some(checked),
            _ => None,
        })
        .collect()
}

fn asked_times(asked: &[Checked], key: &str) -> usize {
    asked.iter().filter(|checked| checked.key == key).count()
}

/// kill -9 in the midst of transactions: decisions are lost on the way, and asked for again.
#[test]
fn transactions_survive_kills() -> Result<()> {
    const TOPIC: &str = "Survived";
    const KILLS: usize = 4;
    let settings = [SETTINGS, &[("mappedFileSizeCommitLog", "1048576")]].concat();
    let mut servers = Servers::start(&settings)?;
    servers.create_topic(TOPIC, 3)?;
    let namesrv = servers.namesrv_address();
    let programs = Programs::start(Client::Java53, servers.directory())?;
    let consumer = programs
        .consume(&namesrv, &["--topic", TOPIC, "--group", "survived", "--heartbeat-ms", "1000"])?;
    let fates = "commit,commit-1,rollback,commit,rollback-1";
    let common = ["--topic", TOPIC, "--threads", "4", "--rate", "200", "--count", "100000"];
    let other =
        ["--heartbeat-ms", "1000", "--timeout-ms", "2000", "--retries", "0", "--fates", fates];
    let producer = programs.transact(&namesrv, &[&common[..], &other].concat())?;
    for kill in 0..KILLS {
        let before = stored(&producer).len();
        wait::until("transactions after the start", LIMIT, || {
            let now = stored(&producer).len();
            if now >= before + 150 { Ok(()) } else { Err(format!("{} so far", now - before)) }
        })?;
        // A moment nobody chose.
        sleep(Duration::from_millis(rand::random_range(0..700)));
        servers.broker.kill().with_context(|| format!("kill {kill}"))?;
        servers.broker.start().with_context(|| format!("start after kill {kill}"))?;
    }
    let enough = stored(&producer).len() + 100;
    wait::until("transactions after the last start", LIMIT, || {
        let now = stored(&producer).len();
        if now >= enough { Ok(()) } else { Err(format!("{now} of {enough}")) }
    })?;
    // The producer goes on, so that it answers checks; what it sent until now must come to its end.
    let fates = stored(&producer);
    let committed: BTreeSet<&String> =
        fates.iter().filter(|(_, fate)| fate.starts_with("commit")).map(|(key, _)| key).collect();
    wait::until("every committed message", LIMIT, || {
        let lines = consumer.lines();
        let came: BTreeSet<&String> =
            received(&lines).filter_map(|message| message.keys.as_ref()).collect();
        let missing: Vec<_> = committed.difference(&came).take(5).collect();
        ensure!(missing.is_empty(), "of {} are missing {missing:?} ...", committed.len());
        Ok(())
    })?;
    producer.stop()?;
    let lines = consumer.stop()?;
    for message in received(&lines) {
        let fate = message.properties.get("fate").map(String::as_str).unwrap_or_default();
        ensure!(fate.starts_with("commit"), "{:?} has the fate {fate}", message.keys);
    }
    println!("{} transactions over {KILLS} kills, {} checks", fates.len(), checks(&producer).len());
    Ok(())
}

#[test]
fn a_5_3_broker_goes_on_with_our_transactions_and_gives_them_back() -> Result<()> {
    handed_over(Peer::Java)
}

#[test]
fn a_4_9_broker_goes_on_with_our_transactions_and_gives_them_back() -> Result<()> {
    handed_over(Peer::Java49)
}

/// Half messages and decisions of one make of broker, finished by the other.
fn handed_over(peer: Peer) -> Result<()> {
    const TOPIC: &str = "Passed";
    // 4.9 reads op messages of one decision each.
    let op_bytes: &[(&str, &str)] =
        if peer == Peer::Java49 { &[("transactionOpMsgMaxSize", "1")] } else { &[] };
    let mut servers = Servers::prepare("broker-a", &[SETTINGS, op_bytes].concat())?;
    let programs = Programs::start(Client::Java53, servers.directory())?;
    servers.broker.hand_over(Peer::Ours)?;
    servers.broker.start()?;
    servers.create_topic(TOPIC, 2)?;
    let mut fates = transact(&servers, &programs, "ours")?;
    servers.broker.terminate()?;
    servers.broker.hand_over(peer)?;
    servers.broker.start()?;
    finished(&servers, &programs, &fates)?;
    fates.extend(transact(&servers, &programs, "java")?);
    servers.broker.terminate()?;
    servers.broker.hand_over(Peer::Ours)?;
    servers.broker.start()?;
    finished(&servers, &programs, &fates)
}

/// Sends transactions whose producer is gone before anybody asks it.
fn transact(
    servers: &Servers,
    programs: &Programs,
    prefix: &str,
) -> Result<BTreeMap<String, String>> {
    let fates = "commit,rollback,commit-1,rollback-1";
    let common = ["--topic", "Passed", "--count", "8", "--key-prefix", prefix, "--fates", fates];
    let producer = programs.transact(&servers.namesrv_address(), &common)?;
    let fates = sent(&producer, 8)?;
    ensure!(fates.len() == 8, "{prefix}: {} of 8 were sent", fates.len());
    producer.stop()?;
    Ok(fates)
}

/// A producer of the group comes back, is asked, and everything is as its fate says.
fn finished(
    servers: &Servers,
    programs: &Programs,
    fates: &BTreeMap<String, String>,
) -> Result<()> {
    let namesrv = servers.namesrv_address();
    // It sends once: without that a 5.x producer knows no broker, and no broker knows it.
    let arguments = ["--topic", "Passed", "--fates", "rollback", "--key-prefix", "back"];
    let producer = programs.transact(&namesrv, &arguments)?;
    let group = format!("reader-{}", fates.len());
    let consumer = programs.consume(&namesrv, &["--topic", "Passed", "--group", &group])?;
    let committed = fates.values().filter(|fate| fate.starts_with("commit")).count();
    consumer.wait_received(committed, LIMIT).with_context(|| {
        let asked: Vec<String> = checks(&producer).into_iter().map(|checked| checked.key).collect();
        format!("asked about {asked:?}")
    })?;
    // The offsets of the half topic reach its end: nothing more is asked.
    let file = servers.broker.store().join("config/consumerOffset.json");
    wait::until("the transactions' offsets on disk", LIMIT, || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        ensure!(text.contains("RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS"), "{text}");
        ensure!(text.contains("RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS"), "{text}");
        Ok(())
    })?;
    let asked = checks(&producer);
    producer.stop()?;
    let lines = consumer.stop()?;
    let mut came: BTreeMap<&str, usize> = BTreeMap::new();
    for message in received(&lines) {
        *came.entry(message.keys.as_deref().unwrap_or_default()).or_default() += 1;
    }
    for (key, fate) in fates {
        let is_committed = fate.starts_with("commit");
        let count = came.get(key.as_str()).copied().unwrap_or(0);
        ensure!((count > 0) == is_committed, "{key} ({fate}) came {count} times");
    }
    for checked in asked {
        ensure!(times(&checked.fate) > 0, "{} ({}) was asked about", checked.key, checked.fate);
    }
    Ok(())
}
