//! Messages by key over raw sockets.

mod common;

use common::{Peer, send_header, start, start_with, topic_header, with_field};
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::message::record;

fn send(peer: &mut Peer, topic: &str, body: &str, properties: &str) {
    let mut header = send_header(topic, "0");
    header = with_field(header, "i", properties);
    peer.call(RequestCode::SEND_MESSAGE_V2, &header, body.as_bytes()).ok();
}

fn query<'a>(key: &'a str, extra: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut header = vec![
        ("topic", "orders"),
        ("key", key),
        ("maxNum", "32"),
        ("beginTimestamp", "0"),
        ("endTimestamp", "9223372036854775807"),
    ];
    header.retain(|(name, _)| !extra.iter().any(|(other, _)| other == name));
    header.extend_from_slice(extra);
    header
}

fn bodies(answer: &common::Answer) -> Vec<String> {
    record::iter(&answer.body)
        .map(|record| String::from_utf8(record.expect("record").body.to_vec()).expect("text"))
        .collect()
}

#[test]
fn messages_are_found_by_key_and_by_unique_key() {
    let broker = start();
    let mut peer = broker.connect();
    let code = RequestCode::QUERY_MESSAGE;
    peer.call(RequestCode::UPDATE_AND_CREATE_TOPIC, &topic_header("orders", "1"), b"").ok();
    let none = peer.call(code, &query("k", &[]), b"");
    assert_eq!(none.field("indexLastUpdateTimestamp"), "0");
    none.refused(ResponseCode::QUERY_NOT_FOUND, "can not find message");
    for n in 0..40 {
        let properties = format!("KEYS\u{1}k own-{n}\u{2}UNIQ_KEY\u{1}U{n}\u{2}");
        send(&mut peer, "orders", &n.to_string(), &properties);
        // At once.
        let found = peer.call(code, &query(&format!("own-{n}"), &[]), b"").ok();
        assert_eq!(bodies(&found), [n.to_string()]);
    }
    let newest = |count: usize| (40 - count..40).map(|n| n.to_string()).collect::<Vec<_>>();
    assert_eq!(bodies(&peer.call(code, &query("k", &[]), b"").ok()), newest(32));
    let three = peer.call(code, &query("k", &[("maxNum", "3")]), b"").ok();
    assert_eq!(bodies(&three), newest(3));
    assert_ne!(three.field("indexLastUpdateTimestamp"), "0");
    assert!(three.field("indexLastUpdatePhyoffset").parse::<i64>().expect("number") > 0);
    // Of a unique key the broker looks for more than asked for, as RocketMQ does.
    let unique = [("_UNIQUE_KEY_QUERY", "true"), ("maxNum", "1")];
    assert_eq!(bodies(&peer.call(code, &query("U7", &unique), b"").ok()), ["7"]);
    assert_eq!(bodies(&peer.call(code, &query("k", &unique), b"").ok()).len(), 32);

    let not_found = ResponseCode::QUERY_NOT_FOUND;
    for extra in
        [("beginTimestamp", "9223372036854775807"), ("endTimestamp", "1"), ("maxNum", "-1")]
    {
        peer.call(code, &query("k", &[extra]), b"").refused(not_found, "time range");
    }
    peer.call(code, &query("k", &[("topic", "other")]), b"").refused(not_found, "time range");
    peer.call(code, &query("k", &[("maxNum", "many")]), b"")
        .refused(ResponseCode::SYSTEM_ERROR, "maxNum");
    peer.call(RequestCode::DELETE_TOPIC_IN_BROKER, &[("topic", "orders")], b"").ok();
    peer.call(code, &query("U7", &[]), b"").refused(not_found, "time range");
}

#[test]
fn a_broker_without_an_index_says_so() {
    let broker = start_with(|config| config.message_index_enable = false);
    let mut peer = broker.connect();
    peer.call(RequestCode::QUERY_MESSAGE, &query("k", &[]), b"")
        .refused(ResponseCode::QUERY_NOT_FOUND, "messageIndexEnable=false");
}
