//! Topics with `queue.type=BatchCQ`, as a client meets them.

mod common;

use common::{Peer, TestBroker, pull_header, send_header, start, topic_header, with_field};
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::message::batch;
use rocketmq_protocol::message::record::{self, MessageRecord};

const TOPIC: &str = "batches";

fn with_topic() -> (TestBroker, Peer) {
    let broker = start();
    let mut peer = broker.connect();
    let mut header = topic_header(TOPIC, "2");
    header.push(("attributes", "+queue.type=BatchCQ"));
    peer.call(RequestCode::UPDATE_AND_CREATE_TOPIC, &header, b"").ok();
    (broker, peer)
}

fn body(messages: usize) -> Vec<u8> {
    let mut body = Vec::new();
    for n in 0..messages {
        let text = format!("message {n}");
        let message =
            batch::BatchMessage { flag: 0, body: text.as_bytes(), properties: b"TAGS\x01TagA\x02" };
        batch::encode(&mut body, &message).expect("a batch");
    }
    body
}

fn batch_header<'a>(topic: &'a str, properties: &'a str) -> Vec<(&'a str, &'a str)> {
    let mut header = send_header(topic, "1");
    for (key, value) in &mut header {
        match *key {
            "i" => *value = properties,
            "m" => *value = "true",
            _ => {}
        }
    }
    header
}

const KEY: &str = "UNIQ_KEY\u{1}7F000001\u{2}WAIT\u{1}true";

fn pull(peer: &mut Peer, offset: &str, subscription: &str) -> common::Answer {
    let header = with_field(pull_header("readers", TOPIC, offset), "queueId", "1");
    let mut header = with_field(header, "subscription", subscription);
    header.push(("expressionType", "TAG"));
    peer.call(RequestCode::PULL_MESSAGE, &header, b"")
}

#[test]
fn a_batch_becomes_one_record_with_the_offsets_of_its_messages() {
    let (broker, mut peer) = with_topic();
    for (count, offset) in [(3, "0"), (2, "3"), (4, "5")] {
        let sent =
            peer.call(RequestCode::SEND_BATCH_MESSAGE, &batch_header(TOPIC, KEY), &body(count));
        let sent = sent.ok();
        assert_eq!(sent.field("queueOffset"), offset);
        assert_eq!(sent.field("batchUniqId"), "7F000001");
        assert_eq!(sent.field("msgId").len(), 32, "one record has one id");
    }
    let at = [("topic", TOPIC), ("queueId", "1")];
    assert_eq!(peer.call(RequestCode::GET_MAX_OFFSET, &at, b"").ok().field("offset"), "9");
    assert_eq!(peer.call(RequestCode::GET_MIN_OFFSET, &at, b"").ok().field("offset"), "0");

    let found = pull(&mut peer, "4", "*").ok();
    assert_eq!((found.field("nextBeginOffset"), found.field("maxOffset")), ("9", "9"));
    let records: Vec<MessageRecord<'_>> =
        record::iter(&found.body).map(|record| record.expect("a record")).collect();
    let spans: Vec<_> = records
        .iter()
        .map(|record| (record.queue_offset, record.property("INNER_NUM").expect("a count")))
        .collect();
    assert_eq!(spans, [(3, "2"), (5, "4")], "the batch that holds the offset comes whole");
    assert_eq!(records[0].sys_flag & 0xC0, 0xC0);
    assert_eq!(records[0].body, body(2), "the client takes it apart");
    assert_eq!(records[0].property("UNIQ_KEY"), Some("7F000001"));
    assert_eq!(records[0].property("CLUSTER"), Some("DefaultCluster"));
    let state = broker.state();
    assert_eq!(
        state.store.message_at(records[0].physical_offset).expect("it").len(),
        records[0].size
    );

    let tagged = pull(&mut peer, "0", "TagA").ok();
    assert_eq!(tagged.field("nextBeginOffset"), "9", "the client looks at the tags");
}

#[test]
fn what_no_consumer_would_see_is_refused() {
    let (_broker, mut peer) = with_topic();
    let illegal = ResponseCode::MESSAGE_ILLEGAL;
    peer.call(RequestCode::SEND_MESSAGE_V2, &send_header(TOPIC, "1"), b"x")
        .refused(illegal, "queue.type=BatchCQ), in which no consumer would see a single message");
    let send = RequestCode::SEND_BATCH_MESSAGE;
    peer.call(send, &batch_header(TOPIC, "WAIT\u{1}true"), &body(2))
        .refused(illegal, "a unique key (property UNIQ_KEY of the batch)");
    peer.call(send, &batch_header(TOPIC, KEY), b"junk")
        .refused(ResponseCode::SYSTEM_ERROR, "no batch of messages");
    let at = [("topic", TOPIC), ("queueId", "1")];
    assert_eq!(peer.call(RequestCode::GET_MAX_OFFSET, &at, b"").ok().field("offset"), "0");
}

#[test]
fn inner_batches_are_refused_elsewhere() {
    let (_broker, mut peer) = with_topic();
    peer.call(RequestCode::UPDATE_AND_CREATE_TOPIC, &topic_header("plain", "2"), b"").ok();
    let illegal = ResponseCode::MESSAGE_ILLEGAL;
    let mut header = send_header("plain", "1");
    header = with_field(header, "f", "192");
    peer.call(RequestCode::SEND_MESSAGE_V2, &header, b"x").refused(illegal, "sysFlag 0x80");
    let mut header = send_header("plain", "1");
    header = with_field(header, "i", "INNER_NUM\u{1}3\u{2}");
    peer.call(RequestCode::SEND_MESSAGE_V2, &header, b"x").refused(illegal, "INNER_NUM");
    let header = batch_header("plain", "INNER_NUM\u{1}3\u{2}");
    peer.call(RequestCode::SEND_BATCH_MESSAGE, &header, &body(3)).refused(illegal, "INNER_NUM");
    let header = batch_header("plain", KEY);
    let sent = peer.call(RequestCode::SEND_BATCH_MESSAGE, &header, &body(3)).ok();
    assert!(sent.ext.iter().all(|(key, _)| key != "batchUniqId"), "{sent:?}");
}

#[test]
fn a_held_pull_is_woken_by_a_batch() {
    let (broker, mut peer) = with_topic();
    let mut reader = broker.connect();
    let header = [
        ("consumerGroup", "readers"),
        ("topic", TOPIC),
        ("queueId", "1"),
        ("queueOffset", "0"),
        ("maxMsgNums", "32"),
        ("sysFlag", "6"),
        ("commitOffset", "0"),
        ("suspendTimeoutMillis", "20000"),
        ("subscription", "TagA"),
        ("subVersion", "0"),
        ("expressionType", "TAG"),
    ];
    let opaque = reader.send(RequestCode::PULL_MESSAGE, &header, b"", false);
    common::eventually("the pull waits", || broker.state().long_polls.len() == 1);
    peer.call(RequestCode::SEND_BATCH_MESSAGE, &batch_header(TOPIC, KEY), &body(3)).ok();
    let found = reader.answer_of(opaque).ok();
    assert_eq!(found.field("nextBeginOffset"), "3");
}

#[test]
fn a_member_that_cannot_consume_sends_messages_back_by_itself() {
    let (_broker, mut peer) = with_topic();
    let sent = peer.call(RequestCode::SEND_BATCH_MESSAGE, &batch_header(TOPIC, KEY), &body(3)).ok();
    let offset = u64::from_str_radix(&sent.field("msgId")[16..], 16).expect("an id").to_string();
    peer.heartbeat("c1", "readers", TOPIC);
    let header = [
        ("group", "readers"),
        ("offset", &*offset),
        ("delayLevel", "0"),
        ("originMsgId", sent.field("msgId")),
        ("originTopic", TOPIC),
        ("unitMode", "false"),
        ("maxReconsumeTimes", "16"),
    ];
    // The record holds all messages of the batch. After an error the client sends the one to the
    // group's retry topic.
    peer.call(RequestCode::CONSUMER_SEND_MSG_BACK, &header, b"")
        .refused(ResponseCode::MESSAGE_ILLEGAL, "inner batch");
}
