//! Filters by expression, over raw sockets.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod common;

use std::time::{Duration, Instant};

use common::{
    Answer, Peer, TestBroker, eventually, start, start_in, start_with, topic_header, with_field,
};
use rocketmq_broker::BrokerConfig;
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::message::record;

const TOPIC: &str = "orders";
const GROUP: &str = "g";

fn filtering() -> TestBroker {
    start_with(|config| config.enable_property_filter = true)
}

/// Heart-beats as a consumer of `GROUP` with one subscription.
fn subscribe(peer: &mut Peer, topic: &str, kind: &str, expression: &str, version: i64) {
    let body = common::heartbeat("c1", GROUP, topic)
        .replace(r#""expressionType":"TAG""#, &format!(r#""expressionType":"{kind}""#))
        .replace(r#""subString":"*""#, &format!(r#""subString":"{expression}""#))
        .replace(r#""subVersion":1"#, &format!(r#""subVersion":{version}"#));
    peer.call(RequestCode::HEART_BEAT, &[], body.as_bytes()).ok();
}

/// Sends a message with these properties to queue 0.
fn send(peer: &mut Peer, topic: &str, pairs: &[(&str, &str)]) {
    let properties: String =
        pairs.iter().map(|(name, value)| format!("{name}\u{1}{value}\u{2}")).collect();
    let mut header = common::send_header(topic, "0");
    header = with_field(header, "i", &properties);
    peer.call(RequestCode::SEND_MESSAGE_V2, &header, b"body").ok();
}

/// Sends messages with `n` from 0 on.
fn send_numbered(peer: &mut Peer, count: usize) {
    for n in 0..count {
        send(peer, TOPIC, &[("n", &n.to_string())]);
    }
}

#[derive(Clone, Copy)]
struct Pull<'a> {
    topic: &'a str,
    offset: i64,
    version: i64,
    /// Type and text of an expression of its own.
    expression: Option<(&'a str, &'a str)>,
    wait_ms: Option<u64>,
}

impl Pull<'_> {
    fn from(offset: i64) -> Pull<'static> {
        Pull { topic: TOPIC, offset, version: 0, expression: None, wait_ms: None }
    }

    fn send(self, peer: &mut Peer) -> i32 {
        let flags = if self.wait_ms.is_some() { 2 } else { 0 };
        let flags = flags + if self.expression.is_some() { 4 } else { 0 };
        let (kind, text) = self.expression.unwrap_or(("TAG", ""));
        let numbers = [
            flags.to_string(),
            self.offset.to_string(),
            self.wait_ms.unwrap_or(0).to_string(),
            self.version.to_string(),
        ];
        let header = [
            ("consumerGroup", GROUP),
            ("topic", self.topic),
            ("queueId", "0"),
            ("queueOffset", &numbers[1]),
            ("maxMsgNums", "32"),
            ("sysFlag", &numbers[0]),
            ("commitOffset", "0"),
            ("suspendTimeoutMillis", &numbers[2]),
            ("subscription", text),
            ("subVersion", &numbers[3]),
            ("expressionType", kind),
        ];
        peer.send(RequestCode::PULL_MESSAGE, &header, b"", false)
    }

    fn call(self, peer: &mut Peer) -> Answer {
        let opaque = self.send(peer);
        peer.answer_of(opaque)
    }
}

/// The property `n` of the messages of an answer.
fn numbers(answer: &Answer) -> Vec<i32> {
    let number = |record: record::MessageRecord<'_>| record.property("n").unwrap().parse().unwrap();
    record::iter(&answer.body).map(|record| number(record.unwrap())).collect()
}

fn next_offset(answer: &Answer) -> i64 {
    answer.field("nextBeginOffset").parse().unwrap()
}

/// Everything that pulls from the queue's beginning to its end give.
fn pull_all(peer: &mut Peer, pull: Pull<'_>) -> Vec<i32> {
    let mut found = Vec::new();
    let mut offset = 0;
    loop {
        let answer = Pull { offset, ..pull }.call(peer);
        match ResponseCode(answer.code) {
            ResponseCode::SUCCESS => found.extend(numbers(&answer)),
            ResponseCode::PULL_RETRY_IMMEDIATELY => {}
            ResponseCode::PULL_NOT_FOUND => return found,
            _ => panic!("{answer:?}"),
        }
        assert!(next_offset(&answer) > offset, "{answer:?}");
        offset = next_offset(&answer);
    }
}

#[test]
fn a_registered_filter_gives_what_matches_and_nothing_else() {
    let broker = filtering();
    let mut peer = broker.connect();
    send_numbered(&mut peer, 100);
    subscribe(&mut peer, TOPIC, "SQL92", "n BETWEEN 10 AND 12 OR n > 97", 1);
    assert_eq!(pull_all(&mut peer, Pull::from(0)), [10, 11, 12, 98, 99]);
    subscribe(&mut peer, TOPIC, "SQL92", "n = 5", 2);
    assert_eq!(pull_all(&mut peer, Pull::from(0)), [5]);
    // An older version changes nothing, a subscription by tag everything.
    subscribe(&mut peer, TOPIC, "SQL92", "n = 6", 1);
    assert_eq!(pull_all(&mut peer, Pull::from(0)), [5]);
    subscribe(&mut peer, TOPIC, "TAG", "*", 3);
    assert_eq!(pull_all(&mut peer, Pull::from(0)).len(), 100);
}

#[test]
fn a_pull_may_bring_its_own_filter() {
    let broker = filtering();
    let mut peer = broker.connect();
    send_numbered(&mut peer, 40);
    let pull = |text| Pull { expression: Some(("SQL92", text)), ..Pull::from(0) };
    assert_eq!(pull_all(&mut peer, pull("n IN ('3', '4')")), [3, 4]);
    assert_eq!(pull_all(&mut peer, pull("n > 37 AND TRUE")), [38, 39]);
    // So long that it is evaluated beside the I/O thread.
    let long = (0..300).map(|n| format!("n = {}", n * 7)).collect::<Vec<_>>().join(" OR ");
    assert_eq!(pull_all(&mut peer, pull(&long)), [0, 7, 14, 21, 28, 35]);
    let waiting = Pull { offset: 40, wait_ms: Some(100), ..pull(&long) }.call(&mut peer);
    assert_eq!(waiting.code, ResponseCode::PULL_NOT_FOUND.0);
}

#[test]
fn each_refusal_has_rocketmqs_code() {
    let broker = filtering();
    let mut peer = broker.connect();
    send_numbered(&mut peer, 1);
    let own = |kind, text| Pull { expression: Some((kind, text)), ..Pull::from(0) };
    Pull::from(0).call(&mut peer).refused(ResponseCode::SUBSCRIPTION_NOT_EXIST, "group info");
    let parse_failed = ResponseCode::SUBSCRIPTION_PARSE_FAILED;
    own("SQL92", "n >").call(&mut peer).refused(parse_failed, "found the end at character 4");
    own("SQL92", "").call(&mut peer).refused(parse_failed, "parse the consumer's subscription");
    own("XPATH", "n").call(&mut peer).refused(parse_failed, "`XPATH` is unknown");
    own("TAG", "||").call(&mut peer).refused(parse_failed, "parse the consumer's subscription");

    subscribe(&mut peer, "other", "SQL92", "n > 0", 1);
    Pull::from(0).call(&mut peer).refused(ResponseCode::SUBSCRIPTION_NOT_EXIST, "subscription");
    subscribe(&mut peer, TOPIC, "SQL92", "n >", 5);
    let not_exist = ResponseCode::FILTER_DATA_NOT_EXIST;
    let answer = Pull::from(0).call(&mut peer);
    answer.refused(not_exist, "Your expression may be wrong! `n >` is not an SQL92 expression");
    subscribe(&mut peer, TOPIC, "XPATH", "n", 6);
    Pull::from(0).call(&mut peer).refused(not_exist, "`XPATH` is unknown");
    let newer = Pull { version: 7, ..Pull::from(0) };
    newer.call(&mut peer).refused(ResponseCode::SUBSCRIPTION_NOT_LATEST, "not latest");
    subscribe(&mut peer, TOPIC, "SQL92", "n >= 0", 7);
    assert_eq!(numbers(&newer.call(&mut peer).ok()), [0]);
    // The subscription is newer than the filter: the text became empty.
    subscribe(&mut peer, TOPIC, "SQL92", "", 8);
    Pull { version: 8, ..Pull::from(0) }
        .call(&mut peer)
        .refused(ResponseCode::FILTER_DATA_NOT_LATEST, "filter data not latest");
}

#[test]
fn without_the_switch_no_expression_is_served() {
    let broker = start();
    let mut peer = broker.connect();
    send_numbered(&mut peer, 1);
    let remark = "The broker does not support consumer to filter message by SQL92";
    for text in ["n > 0", "n >"] {
        subscribe(&mut peer, TOPIC, "SQL92", text, 1);
        Pull::from(0).call(&mut peer).refused(ResponseCode::SYSTEM_ERROR, remark);
        let own = Pull { expression: Some(("SQL92", text)), ..Pull::from(0) };
        own.call(&mut peer).refused(ResponseCode::SYSTEM_ERROR, remark);
    }
    // It works at once when it is switched on.
    subscribe(&mut peer, TOPIC, "SQL92", "n = 0", 2);
    let body = b"enablePropertyFilter=true";
    peer.call(RequestCode::UPDATE_BROKER_CONFIG, &[], body).ok();
    assert_eq!(numbers(&Pull::from(0).call(&mut peer).ok()), [0]);
}

#[test]
fn a_client_learns_of_its_mistake_before_it_starts() {
    let broker = filtering();
    let mut peer = broker.connect();
    let long = "n = 1 OR ".repeat(10_000);
    let deep = "(".repeat(100_000);
    for (kind, text, code, remark) in [
        ("TAG", "whatever ||", ResponseCode::SUCCESS, ""),
        ("SQL92", "n > 1", ResponseCode::SUCCESS, ""),
        ("SQL92", "n > 1 AND", ResponseCode::SUBSCRIPTION_PARSE_FAILED, "found the end"),
        ("SQL92", "", ResponseCode::SUBSCRIPTION_PARSE_FAILED, "found the end"),
        ("SQL92", &*long, ResponseCode::SUBSCRIPTION_PARSE_FAILED, "at most 65535"),
        ("SQL92", &deep[..60_000], ResponseCode::SUBSCRIPTION_PARSE_FAILED, "nested deeper"),
        ("XPATH", "n > 1", ResponseCode::SUBSCRIPTION_PARSE_FAILED, "allowed are TAG and SQL92"),
    ] {
        let body = format!(
            r#"{{"clientId":"c","group":"g","subscriptionData":{{"expressionType":"{kind}",
            "subString":"{text}","topic":"T"}}}}"#
        );
        let answer = peer.call(RequestCode::CHECK_CLIENT_CONFIG, &[], body.as_bytes());
        match code {
            ResponseCode::SUCCESS => answer.ok(),
            _ => answer.refused(code, remark),
        };
    }
}

/// Nothing matches, and the consumer still gets to the end, with bounded work at a time.
#[test]
fn a_filter_that_passes_nothing_moves_on() {
    let broker = filtering();
    let mut peer = broker.connect();
    let count = 2_500;
    send_numbered(&mut peer, count);
    subscribe(&mut peer, TOPIC, "SQL92", "n < 0", 1);
    let (mut offset, mut pulls) = (0, 0);
    loop {
        let answer = Pull::from(offset).call(&mut peer);
        if answer.code == ResponseCode::PULL_NOT_FOUND.0 {
            break;
        }
        assert_eq!(answer.code, ResponseCode::PULL_RETRY_IMMEDIATELY.0, "{answer:?}");
        assert_eq!(answer.remark.as_deref(), Some("NO_MATCHED_MESSAGE"));
        let next = next_offset(&answer);
        // maxFilterMessageSize in entries.
        assert!(next > offset && next <= offset + 800, "{offset} to {next}");
        offset = next;
        pulls += 1;
    }
    assert_eq!(offset, count as i64);
    assert!(pulls >= 4, "{pulls}");
}

#[test]
fn a_waiting_pull_is_woken_by_what_it_wants_alone() {
    let broker = filtering();
    let (mut peer, mut producer) = (broker.connect(), broker.connect());
    send_numbered(&mut producer, 3);
    subscribe(&mut peer, TOPIC, "SQL92", "n >= 100", 1);
    let wait = Pull { wait_ms: Some(60_000), ..Pull::from(3) };
    let opaque = wait.send(&mut peer);
    eventually("the pull waits", || broker.state().long_polls.len() == 1);
    for n in 0..20 {
        send(&mut producer, TOPIC, &[("n", &n.to_string())]);
    }
    eventually("they were looked at", || {
        !broker.state().long_polls.has_unlooked() && broker.state().long_polls.len() == 1
    });
    send(&mut producer, TOPIC, &[("n", "100")]);
    let answer = peer.answer_of(opaque).ok();
    assert_eq!(numbers(&answer), [100]);
    assert_eq!(next_offset(&answer), 24);
    // Its own expression as well.
    let opaque = Pull { expression: Some(("SQL92", "n = 7")), offset: 24, ..wait }.send(&mut peer);
    eventually("the pull waits", || broker.state().long_polls.len() == 1);
    send(&mut producer, TOPIC, &[("n", "8")]);
    send(&mut producer, TOPIC, &[("n", "7")]);
    assert_eq!(numbers(&peer.answer_of(opaque).ok()), [7]);
}

#[test]
fn a_waiting_pull_learns_how_far_nothing_matched() {
    let broker = filtering();
    let (mut peer, mut producer) = (broker.connect(), broker.connect());
    send_numbered(&mut producer, 3);
    subscribe(&mut peer, TOPIC, "SQL92", "n >= 100", 1);
    // At its deadline, and without one at the sweep, which comes every 5 s.
    for (wait_ms, answered_by) in [(1_500, 4_000), (120_000, 12_000)] {
        let offset = broker.state().store.max_queue_offset(TOPIC, 0);
        let began = Instant::now();
        let opaque = Pull { wait_ms: Some(wait_ms), ..Pull::from(offset) }.send(&mut peer);
        eventually("the pull waits", || broker.state().long_polls.len() == 1);
        send_numbered(&mut producer, 5);
        let answer = peer.answer_of(opaque);
        assert_eq!(answer.code, ResponseCode::PULL_RETRY_IMMEDIATELY.0, "{answer:?}");
        assert!((offset + 1..=offset + 5).contains(&next_offset(&answer)), "{answer:?}");
        assert!(began.elapsed() < Duration::from_millis(answered_by), "{:?}", began.elapsed());
    }
    // Nothing came at all.
    let answer = Pull { wait_ms: Some(100), ..Pull::from(13) }.call(&mut peer);
    assert_eq!((answer.code, next_offset(&answer)), (ResponseCode::PULL_NOT_FOUND.0, 13));
}

/// Many groups wait on one queue under a steady stream; each gets its own messages, all of them.
#[test]
fn many_waiting_pulls_lose_nothing() {
    let broker = filtering();
    let mut producer = broker.connect();
    producer.call(RequestCode::UPDATE_AND_CREATE_TOPIC, &topic_header(TOPIC, "1"), b"").ok();
    let count = 400;
    std::thread::scope(|scope| {
        for remainder in 0..8 {
            let mut peer = broker.connect();
            scope.spawn(move || {
                let wanted: Vec<i32> = (0..count).filter(|n| n % 8 == remainder).collect();
                let list: Vec<String> = wanted.iter().map(|n| format!("'{n}'")).collect();
                let text = format!("n IN ({})", list.join(","));
                let mut found = Vec::new();
                let mut offset = 0;
                while found.len() < wanted.len() {
                    let expression = Some(("SQL92", &*text));
                    let pull = Pull { expression, wait_ms: Some(15_000), ..Pull::from(offset) };
                    let answer = pull.call(&mut peer);
                    if answer.code == ResponseCode::SUCCESS.0 {
                        found.extend(numbers(&answer));
                    }
                    offset = next_offset(&answer);
                }
                assert_eq!(found, wanted);
            });
        }
        send_numbered(&mut producer, count as usize);
    });
}

#[test]
fn retry_topics_are_filtered_by_the_origins_filter_if_wanted() {
    for filter_support_retry in [false, true] {
        let broker = start_with(|config| {
            config.enable_property_filter = true;
            config.filter_support_retry = filter_support_retry;
        });
        let mut peer = broker.connect();
        let retry_topic = format!("%RETRY%{GROUP}");
        subscribe(&mut peer, TOPIC, "SQL92", "n > 5", 1);
        for (origin, n) in [(TOPIC, "3"), (TOPIC, "7"), ("elsewhere", "3"), ("", "4")] {
            let pairs = [("n", n), ("RETRY_TOPIC", origin)];
            let pairs = if origin.is_empty() { &pairs[..1] } else { &pairs[..] };
            send(&mut peer, &retry_topic, pairs);
        }
        let mut of = |kind, text| {
            let expression = Some((kind, text));
            pull_all(&mut peer, Pull { topic: &retry_topic, expression, ..Pull::from(0) })
        };
        // What clients subscribe there gives everything, as in RocketMQ.
        assert_eq!(of("TAG", "*"), [3, 7, 3, 4]);
        // A message of a topic without a filter passes.
        let expected: &[i32] = if filter_support_retry { &[7, 3, 4] } else { &[3, 3] };
        assert_eq!(of("SQL92", "n = 3"), expected);
    }
}

fn with_bit_maps(config: &mut BrokerConfig) {
    config.enable_property_filter = true;
    config.enable_consume_queue_ext = true;
    config.enable_calc_filter_bit_map = true;
    config.mapped_file_size_consume_queue_ext = 65_536;
}

/// Bit maps spare looks; they never change what a group gets, whenever it registered and whatever
/// happened to the broker.
#[test]
fn bit_maps_change_nothing_but_the_work() {
    let mut broker = start_with(with_bit_maps);
    let mut peer = broker.connect();
    let unit = |broker: &TestBroker| {
        let path = broker.dir.path().join(format!("store/consumequeue_ext/{TOPIC}/0"));
        broker.state().store.flush().unwrap();
        let files = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        std::fs::read(files.max().unwrap()).unwrap()
    };
    assert_eq!(broker.state().config.load().bit_map_length_consume_queue_ext, 112);
    // Before there is a filter: no map.
    send(&mut peer, TOPIC, &[("n", "1")]);
    assert_eq!(unit(&broker)[..2], [0, 20]);
    subscribe(&mut peer, TOPIC, "SQL92", "n > 5", 1);
    let registered = broker.state().filters.get(TOPIC, GROUP).unwrap();
    // The registration counts from the next millisecond on.
    let later = Instant::now() + Duration::from_millis(2);
    eventually("time passes", || Instant::now() > later);
    for n in ["6", "2", "x"] {
        send(&mut peer, TOPIC, &[("n", n)]);
    }
    let units = unit(&broker);
    let map_of = |index: usize| &units[20 + index * 34 + 20..20 + index * 34 + 34];
    for (index, is_excluded) in [(0, false), (1, true), (2, true)] {
        assert_eq!(registered.is_excluded_by(map_of(index), i64::MAX), is_excluded, "{index}");
    }
    assert_eq!(pull_all(&mut peer, Pull::from(0)), [6]);
    // Another expression: older maps speak of the former one.
    subscribe(&mut peer, TOPIC, "SQL92", "n < 5", 2);
    assert_eq!(pull_all(&mut peer, Pull::from(0)), [1, 2]);
    for n in 0..60 {
        send(&mut peer, TOPIC, &[("n", &n.to_string())]);
    }
    let expected = [1, 2, 0, 1, 2, 3, 4];
    assert_eq!(pull_all(&mut peer, Pull::from(0)), expected);
    for _ in 0..2 {
        broker = start_in(broker.stop(), with_bit_maps);
        peer = broker.connect();
        Pull::from(0).call(&mut peer).refused(ResponseCode::SUBSCRIPTION_NOT_EXIST, "");
        subscribe(&mut peer, TOPIC, "SQL92", "n < 5", 2);
        assert_eq!(pull_all(&mut peer, Pull::from(0)), expected);
    }
    // Switched off while it runs: what comes has no map.
    peer.call(RequestCode::UPDATE_BROKER_CONFIG, &[], b"enableCalcFilterBitMap=false").ok();
    send(&mut peer, TOPIC, &[("n", "-1")]);
    assert_eq!(pull_all(&mut peer, Pull::from(0))[7..], [-1]);
}

#[test]
fn registrations_are_written_and_go_with_group_and_topic() {
    let broker = filtering();
    let mut peer = broker.connect();
    send_numbered(&mut peer, 1);
    subscribe(&mut peer, TOPIC, "SQL92", "n > 5", 1);
    let dir = broker.stop();
    let file = dir.path().join("store/config/consumerFilter.json");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(r#""expression": "n > 5""#), "{text}");
    let broker = start_in(dir, |config| config.enable_property_filter = true);
    let mut peer = broker.connect();
    assert!(broker.state().filters.get(TOPIC, GROUP).is_some());
    peer.call(RequestCode::DELETE_SUBSCRIPTIONGROUP, &[("groupName", GROUP)], b"").ok();
    assert!(broker.state().filters.get(TOPIC, GROUP).is_none());
    subscribe(&mut peer, TOPIC, "SQL92", "n > 5", 1);
    assert!(broker.state().filters.get(TOPIC, GROUP).is_some());
    peer.call(RequestCode::DELETE_TOPIC_IN_BROKER, &[("topic", TOPIC)], b"").ok();
    assert!(broker.state().filters.get(TOPIC, GROUP).is_none());
    assert!(!std::fs::read_to_string(&file).unwrap().contains("n > 5"));
}
