//! A topic with batch queues: Java's batches come back message by message, also from a store directory
//! that went to a Java broker and back.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::admin::Mqadmin;
use e2e::ledger::{GroupRules, Ledger, SendRules};
use e2e::peer::{Peer, Servers};
use e2e::programs::{Client, Programs};
use e2e::raw::{Raw, code};
use e2e::record::{self, Record};
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(90);
const TOPIC: &str = "Batches";

/// As an administrator does it.
fn create_topic(servers: &Servers) -> Result<()> {
    let mut admin = Mqadmin::start(&servers.namesrv_address(), servers.directory())?;
    let broker = servers.broker.address();
    let arguments = [
        "updateTopic",
        "-t",
        TOPIC,
        "-b",
        &broker,
        "-r",
        "2",
        "-w",
        "2",
        "-a",
        "+queue.type=BatchCQ",
    ];
    admin.succeed(&arguments)?;
    servers.wait_routed(TOPIC)
}

#[test]
fn java_5_3_sends_batches_and_receives_their_messages() -> Result<()> {
    let servers = Servers::start(&[("mapperFileSizeBatchConsumeQueue", "460")])?;
    create_topic(&servers)?;
    let namesrv = servers.namesrv_address();
    let programs = Programs::start(Client::Java53, servers.directory())?;
    let all = GroupRules { topic: TOPIC, ..GroupRules::default() };
    let live = programs.consume(&namesrv, &["--topic", TOPIC, "--group", "live"])?;
    let mut ledger = Ledger::new();
    let arguments = [
        "--topic",
        TOPIC,
        "--mode",
        "batch",
        "--count",
        "400",
        "--batch-size",
        "7",
        "--threads",
        "2",
        "--tags",
        "A,B",
        "--key-prefix",
        "batch",
        "--retries",
        "0",
        "--timeout-ms",
        "15000",
    ];
    let sent = programs.produce(&namesrv, &arguments)?.finish(LIMIT)?;
    ledger.sent(&sent, SendRules::BATCH);
    let acknowledged = ledger.acknowledged(TOPIC);
    ensure!(acknowledged == 400, "{acknowledged} of 400 messages were acknowledged: {sent:?}");
    let late = programs.consume(&namesrv, &["--topic", TOPIC, "--group", "late"])?;
    let arguments = ["--topic", TOPIC, "--mode", "pull", "--group", "pull", "--tags", "*"];
    let pull = programs.consume(&namesrv, &arguments)?;
    for (group, consumer) in [("live", &live), ("late", &late)] {
        let came = consumer.wait_received(ledger.missing(&all, &[]), LIMIT);
        ledger.arrived(group, &consumer.stop()?);
        ledger.check(group, &all)?;
        came?;
    }
    ledger.arrived("pull", &pull.finish(LIMIT)?);
    ledger.check("pull", &GroupRules { in_order: true, ..all })?;
    ledger.check_no_holes("pull")
}

#[test]
fn a_5_3_broker_takes_batch_queues_over_and_gives_them_back() -> Result<()> {
    // Files of ten entries.
    let settings =
        [("mappedFileSizeCommitLog", "262144"), ("mapperFileSizeBatchConsumeQueue", "460")];
    let mut servers = Servers::prepare("broker-a", &settings)?;
    servers.broker.hand_over(Peer::Ours)?;
    servers.broker.start()?;
    create_topic(&servers)?;
    let mut batches = Batches::default();
    batches.send(&servers, "ours", 60)?;
    batches.check(&servers)?;
    servers.broker.kill()?;

    servers.broker.hand_over(Peer::Java)?;
    servers.broker.start()?;
    batches.check(&servers)?;
    batches.send(&servers, "java", 60)?;
    batches.check(&servers)?;
    servers.broker.terminate()?;

    servers.broker.hand_over(Peer::Ours)?;
    servers.broker.start()?;
    batches.check(&servers)?;
    batches.send(&servers, "ours again", 30)?;
    batches.check(&servers)?;
    servers.broker.kill()?;

    // What Java wrote counts after a crash too.
    let queues = servers.broker.store().join("batchconsumequeue");
    std::fs::remove_dir_all(queues)?;
    servers.broker.start()?;
    batches.check(&servers)
}

/// What was sent to queue 1, in order.
#[derive(Default)]
struct Batches {
    /// Queue offset, how many messages, and the record as it was first seen.
    sent: Vec<(i64, i64, Option<Record>)>,
    next: i64,
}

impl Batches {
    fn send(&mut self, servers: &Servers, who: &str, count: i64) -> Result<()> {
        let mut raw = Raw::connect(&servers.broker.address(), LIMIT)?;
        for number in 0..count {
            let messages = number % 5 + 1;
            let mut body = Vec::new();
            for message in 0..messages {
                let text = format!("{who} {number} {message} {}", ".".repeat(100));
                put(&mut body, text.as_bytes(), b"TAGS\x01TagA\x02");
            }
            let key = format!("{who}-{number}").replace(' ', "-");
            let fields = json!({"a": "raw", "b": TOPIC, "c": "TBW102", "d": "4", "e": "1",
                "f": "0", "g": "1700000000000", "h": "0", "i": format!("UNIQ_KEY\u{1}{key}\u{2}"),
                "j": "0", "k": "false", "m": "true"});
            let answer = raw.call(code::SEND_BATCH_MESSAGE, &fields, &body)?;
            ensure!(answer.code == 0, "send: {} {}", answer.code, answer.remark);
            ensure!(answer.field("batchUniqId") == Some(&key), "{:?}", answer.fields);
            let expected = self.next.to_string();
            ensure!(answer.field("queueOffset") == Some(&expected), "{:?}", answer.fields);
            self.sent.push((self.next, messages, None));
            self.next += messages;
        }
        Ok(())
    }

    /// Pulls everything, each time from the last message of a batch on.
    fn check(&mut self, servers: &Servers) -> Result<()> {
        let mut raw = Raw::connect(&servers.broker.address(), LIMIT)?;
        let mut at = 0;
        while at < self.sent.len() {
            let (base, count, _) = self.sent[at];
            let pull = json!({"consumerGroup": "reader", "topic": TOPIC, "queueId": "1",
                "queueOffset": (base + count - 1).to_string(), "maxMsgNums": "32", "sysFlag": "4",
                "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*",
                "subVersion": "0", "expressionType": "TAG"});
            let answer = raw.call(code::PULL_MESSAGE, &pull, &[])?;
            ensure!(answer.code == 0, "pull {base}: {} {}", answer.code, answer.remark);
            let found = record::records(&answer.body)?;
            ensure!(!found.is_empty(), "pull {base} brought nothing");
            for found in found {
                ensure!(at < self.sent.len(), "a batch that nobody sent: {found:?}");
                let (base, count, known) = &mut self.sent[at];
                ensure!(found.queue_offset == *base, "{} instead of {base}", found.queue_offset);
                ensure!(found.properties.contains(&format!("INNER_NUM\u{1}{count}\u{2}")));
                let known = known.get_or_insert_with(|| found.clone());
                ensure!(found == *known, "the batch at {base} has changed");
                at += 1;
            }
            let next = self.sent.get(at).map_or(self.next, |(base, ..)| *base).to_string();
            ensure!(answer.field("nextBeginOffset") == Some(&next), "{:?}", answer.fields);
            let max = self.next.to_string();
            ensure!(answer.field("maxOffset") == Some(&max), "{:?}", answer.fields);
        }
        Ok(())
    }
}

/// One message of a batch body.
fn put(out: &mut Vec<u8>, body: &[u8], properties: &[u8]) {
    let size = 22 + body.len() + properties.len();
    out.extend_from_slice(&(size as u32).to_be_bytes());
    out.extend_from_slice(&[0; 12]);
    out.extend_from_slice(&(body.len() as u32).to_be_bytes());
    out.extend_from_slice(body);
    out.extend_from_slice(&(properties.len() as u16).to_be_bytes());
    out.extend_from_slice(properties);
}
