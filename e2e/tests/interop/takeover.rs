//! A store directory goes from our broker to a Java broker and back: many files, rolled over, left by
//! a kill, and every message, queue offset and consumer offset is as it was.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::admin::Mqadmin;
use e2e::peer::{Peer, Servers};
use e2e::raw::{Raw, code};
use e2e::record::{self, Record};
use e2e::wait;
use serde_json::json;

const TOPIC: &str = "Handed";
const QUEUES: usize = 3;
const GROUP: &str = "handed";
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn a_5_3_broker_takes_our_store_over_and_gives_it_back() -> Result<()> {
    hand_over_and_back(Peer::Java)
}

#[test]
fn a_4_9_broker_takes_our_store_over_and_gives_it_back() -> Result<()> {
    hand_over_and_back(Peer::Java49)
}

/// What is known to be in each queue.
type Queues = [Vec<Record>; QUEUES];

fn hand_over_and_back(peer: Peer) -> Result<()> {
    // Twenty queue files and some ten log files.
    let settings = [("mappedFileSizeCommitLog", "262144"), ("mappedFileSizeConsumeQueue", "2000")];
    let mut servers = Servers::prepare("broker-a", &settings)?;
    servers.broker.hand_over(Peer::Ours)?;
    servers.broker.start()?;
    servers.create_topic(TOPIC, QUEUES as u32)?;
    let mut queues = Queues::default();
    send(&servers, &mut queues, "ours", 1500)?;
    check(&servers, &mut queues)?;
    let log_files = fs::read_dir(servers.broker.store().join("commitlog"))?.count();
    ensure!(log_files > 5, "{log_files} files of the log");
    commit(&servers)?;
    servers.broker.kill()?;

    servers.broker.hand_over(peer)?;
    servers.broker.start()?;
    check(&servers, &mut queues)?;
    ensure!(committed(&servers)? == Some(20), "consumer offset {:?}", committed(&servers)?);
    tool_reads(&servers, &queues)?;
    send(&servers, &mut queues, "java", 300)?;
    check(&servers, &mut queues)?;
    servers.broker.terminate()?;

    servers.broker.hand_over(Peer::Ours)?;
    servers.broker.start()?;
    check(&servers, &mut queues)?;
    ensure!(committed(&servers)? == Some(20), "consumer offset {:?}", committed(&servers)?);
    send(&servers, &mut queues, "ours again", 30)?;
    check(&servers, &mut queues)
}

fn connect(servers: &Servers) -> Result<Raw> {
    Raw::connect(&servers.broker.address(), LIMIT)
}

/// Sends to the queues in turn; places are filled in by the first [`check`].
fn send(servers: &Servers, queues: &mut Queues, who: &str, count: usize) -> Result<()> {
    let mut raw = connect(servers)?;
    for number in 0..count {
        let queue_id = number % QUEUES;
        let properties = format!(
            "KEYS\u{1}{who}-{number}\u{2}TAGS\u{1}Tag{}\u{2}WAIT\u{1}true\u{2}",
            number % 5
        );
        let mut body = format!("{who} {number} ").into_bytes();
        body.resize(1000 + number % 700, b'.');
        let fields = json!({"producerGroup": "raw", "topic": TOPIC, "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4", "queueId": queue_id.to_string(), "sysFlag": "0",
            "flag": "0", "bornTimestamp": "1700000000000", "properties": properties,
            "reconsumeTimes": "0", "unitMode": "false", "batch": "false"});
        let answer = raw.call(code::SEND_MESSAGE, &fields, &body)?;
        ensure!(answer.code == 0, "send: {} {}", answer.code, answer.remark);
        let queue_offset = queues[queue_id].len() as i64;
        let expected = queue_offset.to_string();
        ensure!(answer.field("queueOffset") == Some(&expected), "{:?}", answer.fields);
        queues[queue_id].push(Record { queue_offset, physical_offset: -1, body, properties });
    }
    Ok(())
}

/// Pulls every queue whole and compares it with what is known; what is seen first is remembered.
fn check(servers: &Servers, queues: &mut Queues) -> Result<()> {
    let mut raw = connect(servers)?;
    for (queue_id, queue) in queues.iter_mut().enumerate() {
        let mut offset = 0;
        while offset < queue.len() {
            let pull = json!({"consumerGroup": "reader", "topic": TOPIC,
                "queueId": queue_id.to_string(), "queueOffset": offset.to_string(),
                "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0",
                "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
                "expressionType": "TAG"});
            let answer = raw.call(code::PULL_MESSAGE, &pull, &[])?;
            ensure!(
                answer.code == 0,
                "pull {offset} of queue {queue_id}: {} {} {:?}",
                answer.code,
                answer.remark,
                answer.fields
            );
            let found = record::records(&answer.body)?;
            ensure!(!found.is_empty(), "pull {offset} of queue {queue_id} brought nothing");
            for found in found {
                let known = queue.get_mut(offset).context("a message that nobody sent")?;
                if known.physical_offset < 0 {
                    ensure!(
                        found.body == known.body && found.queue_offset == known.queue_offset,
                        "message {offset} of queue {queue_id} is not what was sent"
                    );
                    *known = found;
                } else {
                    ensure!(found == *known, "message {offset} of queue {queue_id} has changed");
                }
                offset += 1;
            }
        }
    }
    Ok(())
}

/// Commits a consumer offset and waits until it is on disk.
fn commit(servers: &Servers) -> Result<()> {
    let fields = json!({"consumerGroup": GROUP, "topic": TOPIC, "queueId": "1",
        "commitOffset": "20"});
    let answer = connect(servers)?.call(code::UPDATE_CONSUMER_OFFSET, &fields, &[])?;
    ensure!(answer.code == 0, "commit: {} {}", answer.code, answer.remark);
    let file = servers.broker.store().join("config/consumerOffset.json");
    wait::until("consumer offsets on disk", LIMIT, || {
        let text = fs::read_to_string(&file).unwrap_or_default();
        if text.contains(&format!("{TOPIC}@{GROUP}")) { Ok(()) } else { Err(text) }
    })
}

fn committed(servers: &Servers) -> Result<Option<i64>> {
    let fields = json!({"consumerGroup": GROUP, "topic": TOPIC, "queueId": "1"});
    let answer = connect(servers)?.call(code::QUERY_CONSUMER_OFFSET, &fields, &[])?;
    ensure!(answer.code == 0, "query offset: {} {}", answer.code, answer.remark);
    Ok(answer.field("offset").and_then(|text| text.parse().ok()))
}

/// Apache's tool finds messages of ours by id on the Java broker.
fn tool_reads(servers: &Servers, queues: &Queues) -> Result<()> {
    let mut admin = Mqadmin::start(&servers.namesrv_address(), servers.directory())?;
    let address = servers.broker.address();
    let port: u32 = address.rsplit(':').next().context("an address without a port")?.parse()?;
    for queue in queues {
        for record in [queue.first(), queue.last()].into_iter().flatten() {
            let id = format!("7F000001{port:08X}{:016X}", record.physical_offset);
            // It also looks for the message's consumers, and shows an exception where a group has none.
            let out = admin.call(&["queryMsgById", "-i", &id, "-t", TOPIC])?;
            let offset = format!("Queue Offset:        {}", record.queue_offset);
            ensure!(out.contains(&offset), "'{offset}' is not in:\n{out}");
        }
    }
    Ok(())
}
