//! Delayed messages and messages sent back, over a plain socket.

mod common;

use std::time::Instant;

use common::{
    Peer, TestBroker, eventually, pull_header, send_header, start, start_in, start_with,
    topic_header,
};
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::message::properties;
use rocketmq_protocol::message::record::MessageRecord;

const SCHEDULE: &str = "SCHEDULE_TOPIC_XXXX";

fn quick() -> TestBroker {
    start_with(|config| config.message_delay_level = "1s 2s 1s 1s".into())
}

fn send(peer: &mut Peer, topic: &str, properties: &str) -> common::Answer {
    let mut header = send_header(topic, "0");
    for (name, value) in &mut header {
        if *name == "i" {
            *value = properties;
        }
    }
    peer.call(RequestCode::SEND_MESSAGE_V2, &header, b"body")
}

/// Properties, and reconsume times, of the messages of a queue.
fn stored(peer: &mut Peer, topic: &str) -> Vec<(Vec<(String, String)>, i32)> {
    let pull = pull_header("g", topic, "0");
    let answer = peer.call(RequestCode::PULL_MESSAGE, &pull, b"");
    let mut bytes = &answer.body[..];
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let record = MessageRecord::decode(bytes).expect("a record");
        let pairs = properties::iter_str(record.properties);
        let pairs = pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        found.push((pairs, record.reconsume_times));
        bytes = &bytes[record.size..];
    }
    found
}

fn property<'a>(pairs: &'a [(String, String)], name: &str) -> Option<&'a str> {
    pairs.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

#[test]
fn a_delayed_message_waits_and_comes_once() {
    let broker = quick();
    let mut peer = broker.connect();
    peer.call(RequestCode::UPDATE_AND_CREATE_TOPIC, &topic_header("T", "1"), b"").ok();
    let sent_at = Instant::now();
    let answer = send(&mut peer, "T", "DELAY\u{1}1\u{2}TAGS\u{1}A\u{2}").ok();
    assert_eq!((answer.field("queueId"), answer.field("queueOffset")), ("0", "0"));
    assert!(stored(&mut peer, "T").is_empty(), "not yet");
    assert_eq!(broker.state().store.max_queue_offset(SCHEDULE, 0), 1);
    eventually("delivered", || broker.state().store.max_queue_offset("T", 0) == 1);
    assert!(sent_at.elapsed().as_millis() >= 1_000, "{:?}", sent_at.elapsed());
    let messages = stored(&mut peer, "T");
    let (pairs, times) = &messages[0];
    assert_eq!((property(pairs, "TAGS"), *times), (Some("A"), 0));
    assert_eq!(property(pairs, "REAL_TOPIC"), Some("T"));
    // Nothing is due any more, however often the thread looks.
    eventually("progress", || broker.state().delays.get(1) == Some(1));
    assert_eq!(broker.state().store.max_queue_offset("T", 0), 1);
    // A higher level than there is counts as the last one; bad ones are refused by name.
    let answer = send(&mut peer, "T", "DELAY\u{1}99\u{2}").ok();
    assert_eq!(answer.field("queueOffset"), "0");
    assert_eq!(broker.state().store.max_queue_offset(SCHEDULE, 3), 1);
    let text = "property DELAY is `soon`";
    send(&mut peer, "T", "DELAY\u{1}soon\u{2}").refused(ResponseCode::SYSTEM_ERROR, text);
    send(&mut peer, "T", "DELAY\u{1}0\u{2}").ok();
    send(&mut peer, "T", "DELAY\u{1}-3\u{2}").ok();
    assert!(broker.state().store.max_queue_offset("T", 0) >= 3, "no delay was asked for");
    let table: serde_json::Value =
        peer.call(RequestCode::GET_ALL_DELAY_OFFSET, &[], b"").ok().json();
    assert_eq!(table["offsetTable"]["1"], 1);
}

#[test]
fn a_stop_keeps_what_waits_and_repeats_nothing() {
    let broker = quick();
    let mut peer = broker.connect();
    peer.call(RequestCode::UPDATE_AND_CREATE_TOPIC, &topic_header("T", "1"), b"").ok();
    send(&mut peer, "T", "DELAY\u{1}1\u{2}").ok();
    eventually("delivered", || broker.state().store.max_queue_offset("T", 0) == 1);
    send(&mut peer, "T", "DELAY\u{1}2\u{2}").ok();
    drop(peer);
    let dir = broker.stop();
    let broker = start_in(dir, |config| config.message_delay_level = "1s 2s 1s 1s".into());
    assert_eq!(broker.state().delays.get(1), Some(1));
    eventually("the other one", || broker.state().store.max_queue_offset("T", 0) == 2);
    eventually("progress", || broker.state().delays.get(2) == Some(1));
    assert_eq!(broker.state().store.max_queue_offset("T", 0), 2);
}

fn send_back(peer: &mut Peer, offset: &str, group: &str, level: &str) -> common::Answer {
    let header = [
        ("offset", offset),
        ("group", group),
        ("delayLevel", level),
        ("originMsgId", "x"),
        ("originTopic", "T"),
        ("unitMode", "false"),
        ("maxReconsumeTimes", "2"),
    ];
    peer.call(RequestCode::CONSUMER_SEND_MSG_BACK, &header, b"")
}

#[test]
fn a_message_sent_back_comes_again_until_it_is_dead() {
    let broker = quick();
    let mut peer = broker.connect();
    peer.call(RequestCode::UPDATE_AND_CREATE_TOPIC, &topic_header("T", "1"), b"").ok();
    send(&mut peer, "T", "KEYS\u{1}k\u{2}").ok();
    send_back(&mut peer, "0", "g", "0").ok();
    eventually("retry", || broker.state().store.max_queue_offset("%RETRY%g", 0) == 1);
    let messages = stored(&mut peer, "%RETRY%g");
    let (pairs, times) = &messages[0];
    assert_eq!(*times, 1);
    assert_eq!(property(pairs, "RETRY_TOPIC"), Some("T"));
    assert_eq!(property(pairs, "KEYS"), Some("k"));
    assert_eq!(property(pairs, "DELAY"), Some("3"));
    assert_eq!(property(pairs, "REAL_TOPIC"), Some("%RETRY%g"));
    let origin = property(pairs, "ORIGIN_MESSAGE_ID").expect("an origin").to_owned();
    assert!(origin.ends_with("0000000000000000"), "{origin}");
    // Straight to the dead letters.
    send_back(&mut peer, "0", "g", "-1").ok();
    assert_eq!(broker.state().store.max_queue_offset("%DLQ%g", 0), 1);
    assert_eq!(stored(&mut peer, "%DLQ%g")[0].1, 1);
    // After too many tries as well.
    let again = broker.state().store.physical_offset_of("%RETRY%g", 0, 0).unwrap().unwrap();
    send_back(&mut peer, &again.to_string(), "g", "4").ok();
    eventually("second retry", || broker.state().store.max_queue_offset("%RETRY%g", 0) == 2);
    let last = broker.state().store.physical_offset_of("%RETRY%g", 0, 1).unwrap().unwrap();
    let (pairs, times) = stored(&mut peer, "%RETRY%g").remove(1);
    assert_eq!((times, property(&pairs, "ORIGIN_MESSAGE_ID")), (2, Some(origin.as_str())));
    send_back(&mut peer, &last.to_string(), "g", "0").ok();
    assert_eq!(broker.state().store.max_queue_offset("%DLQ%g", 0), 2);

    send_back(&mut peer, "777777", "g", "0").refused(ResponseCode::SYSTEM_ERROR, "777777");
    send_back(&mut peer, "-5", "g", "0").refused(ResponseCode::SYSTEM_ERROR, "-5");
}

#[test]
fn a_retry_sent_by_the_client_itself_may_be_a_dead_letter() {
    let broker = start();
    let mut peer = broker.connect();
    let mut header = send_header("%RETRY%g", "0");
    header.retain(|(name, _)| *name != "j");
    header.extend([("j", "2"), ("l", "1")]);
    peer.call(RequestCode::SEND_MESSAGE_V2, &header, b"body").ok();
    assert_eq!(broker.state().store.max_queue_offset("%DLQ%g", 0), 1);
    assert_eq!(broker.state().store.max_queue_offset("%RETRY%g", 0), 0);
    let mut header = send_header("%RETRY%g", "0");
    header.retain(|(name, _)| *name != "j");
    header.extend([("j", "1"), ("l", "1")]);
    peer.call(RequestCode::SEND_MESSAGE_V2, &header, b"body").ok();
    assert_eq!(broker.state().store.max_queue_offset("%RETRY%g", 0), 1);
}

#[test]
fn a_group_without_retry_queues_drops_what_is_sent_back() {
    let broker = start();
    let mut peer = broker.connect();
    let group = br#"{"groupName":"none","retryQueueNums":0}"#;
    peer.call(RequestCode::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, &[], group).ok();
    send(&mut peer, "TBW102", "").ok();
    send_back(&mut peer, "0", "none", "0").ok();
    assert_eq!(broker.state().store.max_queue_offset("%RETRY%none", 0), 0);
    let broker = start_with(|config| config.auto_create_subscription_group = false);
    let answer = send_back(&mut broker.connect(), "0", "stranger", "0");
    answer.refused(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, "stranger");
}

#[test]
fn a_group_whose_retry_topic_cannot_be_stored_is_told_so() {
    let broker = start();
    let mut peer = broker.connect();
    send(&mut peer, "TBW102", "").ok();
    let long = "g".repeat(255);
    send_back(&mut peer, "0", &long, "1").refused(ResponseCode::MESSAGE_ILLEGAL, "262 bytes");
    let group = br#"{"groupName":"../../x"}"#;
    let answer = peer.call(RequestCode::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, &[], group);
    answer.refused(ResponseCode::SYSTEM_ERROR, "../../x");
}
