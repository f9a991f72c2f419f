//! Transactions over plain sockets: half messages, decisions, checks, and a restart between each.

mod common;

use std::time::Instant;

use common::{Answer, Peer, TestBroker, eventually, start, start_in, start_with, topic_header};
use rocketmq_broker::BrokerConfig;
use rocketmq_broker::clock::now_ms;
use rocketmq_broker::config::{BrokerRole, FlushDiskType};
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::message::id::OffsetMessageId;
use rocketmq_protocol::message::record::{MessageRecord, NewMessage, sys_flag};
use rocketmq_store::{GetLimits, MatchAll};

const HALF: &str = "RMQ_SYS_TRANS_HALF_TOPIC";
const OP: &str = "RMQ_SYS_TRANS_OP_HALF_TOPIC";
const GIVEN_UP: &str = "TRANS_CHECK_MAX_TIME_TOPIC";
const GROUP: &str = "CID_RMQ_SYS_TRANS";
const COMMIT: &str = "8";
const ROLL_BACK: &str = "12";

/// Checks as soon as possible.
fn eager(config: &mut BrokerConfig) {
    config.transaction_check_interval = 50;
    config.transaction_time_out = 0;
    config.transaction_check_max = 1_000_000;
    config.transaction_op_batch_interval = 0;
    config.flush_interval_commit_log = 20;
    config.flush_commit_log_least_pages = 0;
}

/// No checks while a test lasts.
fn lazy(config: &mut BrokerConfig) {
    config.transaction_check_interval = 3_600_000;
    config.transaction_op_batch_interval = 0;
}

fn create(peer: &mut Peer, topic: &str, queues: &str) {
    peer.call(RequestCode::UPDATE_AND_CREATE_TOPIC, &topic_header(topic, queues), b"").ok();
}

/// A send to queue 1 with these fields instead of the usual ones.
fn send_with(peer: &mut Peer, topic: &str, properties: &str, other: &[(&str, &str)]) -> Answer {
    let born = now_ms().to_string();
    let mut header = common::send_header(topic, "1");
    for (name, value) in &mut header {
        match *name {
            "g" => *value = &born,
            "i" => *value = properties,
            _ => {}
        }
        if let Some((_, given)) = other.iter().find(|(given, _)| given == name) {
            *value = given;
        }
    }
    peer.call(RequestCode::SEND_MESSAGE_V2, &header, b"body")
}

fn half_properties(more: &str) -> String {
    format!("TRAN_MSG\u{1}true\u{2}PGROUP\u{1}payers\u{2}UNIQ_KEY\u{1}key-1\u{2}{more}")
}

/// What identifies a half message.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    queue_offset: String,
    physical_offset: String,
}

/// Sends a half message as the Java client does.
fn prepare(peer: &mut Peer, topic: &str, more: &str) -> Place {
    place_of(&send_with(peer, topic, &half_properties(more), &[("f", "4")]).ok())
}

fn place_of(answer: &Answer) -> Place {
    let id = answer.field("msgId");
    let physical_offset = i64::from_str_radix(&id[16..], 16).expect("an id").to_string();
    Place { queue_offset: answer.field("queueOffset").to_owned(), physical_offset }
}

fn end_fields<'a>(place: &'a Place, what: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        ("topic", "T"),
        ("producerGroup", "payers"),
        ("tranStateTableOffset", &place.queue_offset),
        ("commitLogOffset", &place.physical_offset),
        ("commitOrRollback", what),
        ("fromTransactionCheck", "false"),
        ("msgId", "key-1"),
        ("transactionId", "key-1"),
        ("bname", "broker-a"),
    ]
}

fn end(peer: &mut Peer, place: &Place, what: &str) -> Answer {
    peer.call(RequestCode::END_TRANSACTION, &end_fields(place, what), b"")
}

/// Comes as a producer of the group.
fn join(peer: &mut Peer, client: &str, group: &str) {
    let body = format!(
        r#"{{"clientID":"{client}","consumerDataSet":[],"producerDataSet":[{{"groupName":"{group}"}}]}}"#
    );
    peer.call(RequestCode::HEART_BEAT, &[], body.as_bytes()).ok();
}

/// A check as a producer gets it.
struct Check {
    place: Place,
    times: String,
    frame: Answer,
}

fn next_check(peer: &mut Peer) -> Check {
    let frame = peer.request(RequestCode::CHECK_TRANSACTION_STATE);
    let record = MessageRecord::decode(&frame.body).expect("a record");
    let times = record.property("TRANSACTION_CHECK_TIMES").expect("a count").to_owned();
    let place = Place {
        queue_offset: frame.field("tranStateTableOffset").to_owned(),
        physical_offset: frame.field("commitLogOffset").to_owned(),
    };
    Check { place, times, frame }
}

fn answer_check(peer: &mut Peer, place: &Place, what: &str) {
    let mut fields = end_fields(place, what);
    fields.retain(|(name, _)| *name != "fromTransactionCheck");
    fields.push(("fromTransactionCheck", "true"));
    peer.oneway(RequestCode::END_TRANSACTION, &fields, b"");
}

/// Looks at each record of a queue.
fn records<T>(
    broker: &TestBroker,
    topic: &str,
    queue_id: i32,
    mut look: impl FnMut(&MessageRecord<'_>) -> T,
) -> Vec<T> {
    let store = &broker.state().store;
    let limits = GetLimits { count_max: 256, bytes_max: usize::MAX };
    let from = store.min_queue_offset(topic, queue_id);
    let found = store.get_messages(topic, queue_id, from, limits, &MatchAll).expect("read");
    let mut all = Vec::new();
    for mut bytes in found.messages.iter().map(|bytes| &bytes[..]) {
        while !bytes.is_empty() {
            let record = MessageRecord::decode(bytes).expect("a record");
            all.push(look(&record));
            bytes = &bytes[record.size..];
        }
    }
    all
}

fn count(broker: &TestBroker, topic: &str, queue_id: i32) -> i64 {
    broker.state().store.max_queue_offset(topic, queue_id)
}

fn ops(broker: &TestBroker) -> Vec<String> {
    records(broker, OP, 0, |record| String::from_utf8(record.body.to_vec()).expect("text"))
}

/// The half messages that op messages name.
fn decided(broker: &TestBroker) -> Vec<String> {
    let bodies = ops(broker).into_iter();
    bodies
        .flat_map(|body| body.split_terminator(',').map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

fn offsets(broker: &TestBroker) -> (Option<i64>, Option<i64>) {
    let of = |topic| broker.state().offsets.query(GROUP, topic, 0);
    (of(HALF), of(OP))
}

#[test]
fn a_half_message_waits_where_nobody_consumes() {
    let broker = start_with(lazy);
    let mut peer = broker.connect();
    create(&mut peer, "T", "4");
    let more = "TAGS\u{1}A\u{2}__transactionId__\u{1}old\u{2}REAL_TOPIC\u{1}other\u{2}";
    let answer = send_with(&mut peer, "T", &half_properties(more), &[("f", "5")]).ok();
    assert_eq!((answer.field("queueId"), answer.field("queueOffset")), ("1", "0"));
    assert_eq!(answer.field("transactionId"), "key-1");
    assert_eq!((0..4).map(|queue| count(&broker, "T", queue)).sum::<i64>(), 0);
    let found = records(&broker, HALF, 0, |record| {
        let property = |name| record.property(name).map(str::to_owned);
        assert_eq!(property("REAL_TOPIC").as_deref(), Some("T"));
        assert_eq!(property("REAL_QID").as_deref(), Some("1"));
        assert_eq!(property("__transactionId__").as_deref(), Some("key-1"));
        assert_eq!(property("TRAN_MSG").as_deref(), Some("true"));
        assert_eq!(property("TAGS").as_deref(), Some("A"));
        assert_eq!(property("CLUSTER").as_deref(), Some("DefaultCluster"));
        record.sys_flag
    });
    assert_eq!(found, [1], "compressed still, and not of a transaction");
    // The property decides, not the flag.
    send_with(&mut peer, "T", &half_properties(""), &[("f", "0")]).ok();
    assert_eq!(count(&broker, HALF, 0), 2);
    let answer = send_with(&mut peer, "T", "TRAN_MSG\u{1}no\u{2}", &[("f", "4")]).ok();
    assert_eq!(answer.field("queueOffset"), "0");
    assert_eq!((count(&broker, HALF, 0), count(&broker, "T", 1)), (2, 0), "in no queue");
    // Without a key the broker makes one.
    let answer = send_with(&mut peer, "T", "TRAN_MSG\u{1}TRUE\u{2}", &[]).ok();
    assert_eq!(answer.field("transactionId").len(), 32);
    assert_eq!(count(&broker, HALF, 0), 3);
}

#[test]
fn sends_that_cannot_be_half_messages_are_refused_or_are_none() {
    let broker = start_with(lazy);
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    // A message that an old client's consumer hands back, whatever it once was.
    let back = half_properties("DELAY\u{1}3\u{2}");
    send_with(&mut peer, "T", &back, &[("j", "1")]).ok();
    assert_eq!((count(&broker, HALF, 0), count(&broker, "SCHEDULE_TOPIC_XXXX", 2)), (0, 1));
    send_with(&mut peer, "%RETRY%g", &half_properties(""), &[("e", "0"), ("j", "1")]).ok();
    assert_eq!((count(&broker, HALF, 0), count(&broker, "%RETRY%g", 0)), (0, 1));
    let answer = send_with(&mut peer, "T", &back, &[]);
    answer.refused(ResponseCode::MESSAGE_ILLEGAL, "property DELAY is 3");
    // There must be room for what a check adds.
    let long = "k\u{1}".to_owned() + &"v".repeat(32_600);
    let answer = send_with(&mut peer, "T", &half_properties(&long), &[]);
    answer.refused(ResponseCode::MESSAGE_ILLEGAL, "properties of a transactional message");
    for (more, flag) in [("TRAN_MSG\u{1}true\u{2}", "0"), ("", "4")] {
        let answer = send_with(&mut peer, "T", more, &[("m", "true"), ("f", flag)]);
        let code =
            if flag == "4" { ResponseCode::MESSAGE_ILLEGAL } else { ResponseCode::SYSTEM_ERROR };
        assert_eq!(answer.code, code.0, "{answer:?}");
    }
    let fields = common::send_header("T", "0");
    let mut fields: Vec<_> =
        fields.into_iter().filter(|(name, _)| *name != "i" && *name != "m").collect();
    fields.extend([("i", "TRAN_MSG\u{1}true\u{2}"), ("m", "true")]);
    let message =
        [&[0, 0, 0, 23, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1][..], b"x\0\0"].concat();
    let answer = peer.call(RequestCode::SEND_BATCH_MESSAGE, &fields, &message);
    answer.refused(ResponseCode::MESSAGE_ILLEGAL, "transactional");
    assert_eq!(count(&broker, HALF, 0), 0);

    let broker = start_with(|config| config.reject_transaction_message = true);
    let answer = send_with(&mut broker.connect(), "TBW102", &half_properties(""), &[]);
    answer.refused(ResponseCode::NO_PERMISSION, "sending transaction message is forbidden");
    assert_eq!(count(&broker, HALF, 0), 0);
}

#[test]
fn a_commit_delivers_and_a_rollback_does_not() {
    let broker = start_with(lazy);
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    let first = prepare(&mut peer, "T", "KEYS\u{1}k\u{2}TAGS\u{1}A\u{2}");
    let second = prepare(&mut peer, "T", "");
    end(&mut peer, &second, ROLL_BACK).ok();
    end(&mut peer, &first, COMMIT).ok();
    let found = records(&broker, "T", 1, |record| {
        assert_eq!(record.sys_flag & sys_flag::TRANSACTION_MASK, sys_flag::TRANSACTION_COMMIT);
        assert_eq!(record.property("TRAN_MSG"), Some("true"), "as the Java broker leaves it");
        assert_eq!(record.property("REAL_TOPIC"), Some("T"));
        (record.queue_offset, record.prepared_transaction_offset.to_string())
    });
    assert_eq!(found, [(0, first.physical_offset.clone())]);
    eventually("op messages", || decided(&broker).len() == 2);
    assert_eq!(decided(&broker), ["1", "0"]);
    let tags = records(&broker, OP, 0, |record| record.property("TAGS").map(str::to_owned));
    assert!(tags.iter().all(|tag| tag.as_deref() == Some("d")));
    // The committed message is found by its key as any other one.
    let query = [("topic", "T"), ("key", "k"), ("maxNum", "9"), ("beginTimestamp", "0")];
    let query = [&query[..], &[("endTimestamp", "9999999999999")]].concat();
    assert!(!peer.call(RequestCode::QUERY_MESSAGE, &query, b"").ok().body.is_empty());
    // Nothing remembers a decision.
    end(&mut peer, &first, COMMIT).ok();
    assert_eq!(count(&broker, "T", 1), 2);
    let (_, text) = common::http(broker.broker.metrics_addr().expect("metrics"), "/metrics");
    for line in [
        "rocketmq_commit_messages_total{",
        "rocketmq_rollback_messages_total{",
        "rocketmq_half_messages{",
        "rocketmq_finish_message_latency_milliseconds_count{",
        "message_type=\"transaction\"",
    ] {
        assert!(text.contains(line), "{line} is missing in {text}");
    }
}

#[test]
fn bad_decisions_are_refused_by_name_and_change_nothing() {
    let broker = start_with(lazy);
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    let half = prepare(&mut peer, "T", "");
    let (_, ordinary) = peer.produce("T", 0, b"TRAN_MSG");
    let ordinary = i64::from_str_radix(&ordinary[16..], 16).expect("an id").to_string();
    let wrong = |name: &'static str, value: &'static str| {
        let mut fields: Vec<(String, String)> = end_fields(&half, COMMIT)
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        fields.retain(|(field, _)| field != name);
        if !value.is_empty() {
            fields.push((name.to_owned(), value.to_owned()));
        }
        fields
    };
    let ordinary: &'static str = ordinary.leak();
    let cases = [
        (wrong("producerGroup", "thieves"), "The producer group wrong: thieves"),
        (wrong("tranStateTableOffset", "7"), "state table offset wrong: 7"),
        (wrong("commitLogOffset", "1"), "no half message at offset 1"),
        (wrong("commitLogOffset", "-5"), "offset -5"),
        (wrong("commitLogOffset", "9223372036854775807"), "offset 9223372036854775807"),
        (wrong("commitLogOffset", ordinary), "no half message at offset"),
        (wrong("commitOrRollback", "4"), "commitOrRollback field wrong: 4"),
        (wrong("commitOrRollback", "commit"), "commitOrRollback"),
        (wrong("commitOrRollback", ""), "commitOrRollback"),
        (wrong("producerGroup", ""), "producerGroup"),
        (wrong("msgId", ""), "msgId"),
        (wrong("commitLogOffset", ""), "commitLogOffset"),
    ];
    for (fields, remark) in cases {
        let fields: Vec<(&str, &str)> =
            fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let answer = peer.call(RequestCode::END_TRANSACTION, &fields, b"");
        answer.refused(ResponseCode::SYSTEM_ERROR, remark);
    }
    // Undecided is no news, and not answered.
    let opaque = peer.send(RequestCode::END_TRANSACTION, &end_fields(&half, "0"), b"", false);
    assert!(!peer.was_answered(opaque));
    assert_eq!((count(&broker, "T", 1), count(&broker, OP, 0)), (0, 0));
    assert_eq!(broker.state().transactions.decisions.waiting(), 0);
    // A half message of a producer without a group belongs to nobody.
    let answer = send_with(&mut peer, "T", "TRAN_MSG\u{1}true\u{2}", &[]).ok();
    let place = place_of(&answer);
    end(&mut peer, &place, COMMIT).refused(ResponseCode::SYSTEM_ERROR, "none (property PGROUP)");
    end(&mut peer, &half, COMMIT).ok();
}

#[test]
fn a_body_that_looks_like_a_half_message_is_none() {
    let broker = start_with(lazy);
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    let host = "127.0.0.1:1".parse().expect("an address");
    let block = half_properties("REAL_TOPIC\u{1}T\u{2}REAL_QID\u{1}0\u{2}");
    let forged = NewMessage {
        topic: HALF,
        queue_id: 0,
        flag: 0,
        sys_flag: 0,
        born_timestamp_ms: 1,
        born_host: host,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: b"forged",
        properties: &[block.as_bytes()],
    };
    // Where the body of the next message is going to lie.
    let at = broker.state().store.max_physical_offset() + 88;
    let placement = rocketmq_protocol::message::record::Placement {
        queue_offset: 0,
        physical_offset: at,
        store_timestamp_ms: 1,
    };
    let mut body = Vec::new();
    rocketmq_protocol::message::record::encode_record(&mut body, &forged, placement)
        .expect("record");
    peer.produce("T", 0, &body);
    let found = broker.state().store.message_at(at).expect("it looks like a message");
    assert_eq!(MessageRecord::decode(&found).expect("a record").body, b"forged");
    let place = Place { queue_offset: "0".into(), physical_offset: at.to_string() };
    end(&mut peer, &place, COMMIT).refused(ResponseCode::SYSTEM_ERROR, "no half message");
    assert_eq!(count(&broker, "T", 0), 1);
}

#[test]
fn decisions_share_op_messages_of_a_bounded_length() {
    let broker = start_with(|config| {
        lazy(config);
        config.transaction_op_msg_max_size = 7;
        config.transaction_op_batch_interval = 3_600_000;
    });
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    let places: Vec<Place> = (0..5).map(|_| prepare(&mut peer, "T", "")).collect();
    for place in &places[..3] {
        end(&mut peer, place, ROLL_BACK).ok();
    }
    assert_eq!(broker.state().transactions.decisions.waiting(), 3);
    end(&mut peer, &places[3], ROLL_BACK).ok();
    eventually("as many as are allowed", || !ops(&broker).is_empty());
    // Three fill one, and the one that is left needs no comma: RocketMQ 4.9 reads that.
    eventually("the rest", || decided(&broker).len() == 4);
    assert_eq!(ops(&broker), ["0,1,2,", "3"]);
    end(&mut peer, &places[4], ROLL_BACK).ok();
    drop(peer);
    // A stop writes what waits.
    let broker = start_in(broker.stop(), lazy);
    assert_eq!(decided(&broker), ["0", "1", "2", "3", "4"]);
}

#[test]
fn an_undecided_half_is_asked_about_until_it_is_decided() {
    let broker = start_with(eager);
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    join(&mut peer, "p1", "payers");
    let half = prepare(&mut peer, "T", "KEYS\u{1}k\u{2}");
    let check = next_check(&mut peer);
    assert_ne!(check.place, half, "it names the copy");
    assert_eq!(check.times, "1");
    let frame = &check.frame;
    assert_eq!((frame.field("topic"), frame.field("bname")), (HALF, "broker-a"));
    assert_eq!((frame.field("msgId"), frame.field("transactionId")), ("key-1", "key-1"));
    let id = frame.field("offsetMsgId");
    let physical_offset = i64::from_str_radix(&id[16..], 16).expect("an id").to_string();
    assert_eq!(physical_offset, check.place.physical_offset);
    let record = MessageRecord::decode(&frame.body).expect("a record");
    assert_eq!((record.topic, record.queue_id, record.body), ("T", 1, &b"body"[..]));
    assert_eq!(record.queue_offset.to_string(), check.place.queue_offset);
    assert_eq!(
        (record.property("PGROUP"), record.property("WAIT")),
        (Some("payers"), Some("false"))
    );
    answer_check(&mut peer, &check.place, "0");
    let again = next_check(&mut peer);
    assert_eq!(again.times, "2");
    answer_check(&mut peer, &again.place, COMMIT);
    eventually("it is delivered", || count(&broker, "T", 1) >= 1);
    // What is asked about meanwhile is answered too; then nobody is asked any more.
    settle(&broker, &mut peer);
    assert_eq!(count(&broker, GIVEN_UP, 0), 0);
    let found = records(&broker, "T", 1, |record| record.property("KEYS").map(str::to_owned));
    assert!(found.iter().all(|key| key.as_deref() == Some("k")));
}

/// Answers all checks by a rollback until everything is settled and said so.
fn settle(broker: &TestBroker, peer: &mut Peer) {
    eventually("all is settled", || {
        while peer.got_request(RequestCode::CHECK_TRANSACTION_STATE) {
            let check = next_check(peer);
            answer_check(peer, &check.place, ROLL_BACK);
        }
        let (half, op) = offsets(broker);
        half == Some(count(broker, HALF, 0)) && op == Some(count(broker, OP, 0))
    });
}

#[test]
fn producers_of_the_group_take_turns_and_others_are_not_asked() {
    let broker = start_with(eager);
    let mut peers = [broker.connect(), broker.connect(), broker.connect()];
    create(&mut peers[0], "T", "2");
    for (peer, (client, group)) in
        peers.iter_mut().zip([("p1", "payers"), ("p2", "payers"), ("p3", "others")])
    {
        join(peer, client, group);
    }
    prepare(&mut peers[0], "T", "");
    let [first, second, other] = &mut peers;
    next_check(first);
    next_check(second);
    assert!(!other.got_request(RequestCode::CHECK_TRANSACTION_STATE));
}

#[test]
fn after_the_last_check_it_is_given_up_and_shown_where_people_look() {
    let broker = start_with(|config| {
        eager(config);
        config.transaction_check_max = 2;
    });
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    join(&mut peer, "p1", "payers");
    prepare(&mut peer, "T", "KEYS\u{1}k\u{2}");
    assert_eq!(next_check(&mut peer).times, "1");
    let last = next_check(&mut peer);
    assert_eq!(last.times, "2");
    eventually("it is given up", || count(&broker, GIVEN_UP, 0) == 1);
    let found = records(&broker, GIVEN_UP, 0, |record| {
        assert_eq!(record.property("REAL_TOPIC"), Some("T"));
        record.property("KEYS").map(str::to_owned)
    });
    assert_eq!(found, [Some("k".to_owned())]);
    settle(&broker, &mut peer);
    assert!(!peer.got_request(RequestCode::CHECK_TRANSACTION_STATE));
    assert_eq!(count(&broker, HALF, 0), 3);
    // A late answer is carried out all the same.
    answer_check(&mut peer, &last.place, COMMIT);
    eventually("it is delivered", || count(&broker, "T", 1) == 1);
}

#[test]
fn what_was_given_up_can_be_asked_about_anew() {
    const CODE: RequestCode = RequestCode::RESUME_CHECK_HALF_MESSAGE;
    const ERROR: ResponseCode = ResponseCode::SYSTEM_ERROR;
    let broker = start_with(|config| {
        eager(config);
        config.transaction_check_max = 1;
    });
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    join(&mut peer, "p1", "payers");
    prepare(&mut peer, "T", "");
    assert_eq!(next_check(&mut peer).times, "1");
    eventually("it is given up", || count(&broker, GIVEN_UP, 0) == 1);
    let id = |physical_offset: i64| {
        let store_host = broker.state().identity.store_host;
        OffsetMessageId { store_host, physical_offset }.to_string()
    };
    let given_up = broker.state().store.physical_offset_of(GIVEN_UP, 0, 0).expect("a queue");
    let given_up = id(given_up.expect("a message"));
    let (_, other) = peer.produce("T", 0, b"no half message");
    let nowhere = id(1 << 40);
    for (wrong, why) in
        [("x", "message id has 1 characters"), (&other, "no half message"), (&nowhere, "no half")]
    {
        peer.call(CODE, &[("topic", "T"), ("msgId", wrong)], b"").refused(ERROR, why);
    }
    peer.call(CODE, &[("topic", "T")], b"").refused(ERROR, "msgId");
    peer.call(CODE, &[("topic", "T"), ("msgId", &given_up)], b"").ok();
    let check = next_check(&mut peer);
    assert_eq!(check.times, "1", "counted from the beginning");
    answer_check(&mut peer, &check.place, COMMIT);
    eventually("it is delivered", || count(&broker, "T", 1) == 1);
}

#[test]
fn a_half_that_says_not_where_it_belongs_or_is_too_old_holds_up_nobody() {
    let broker = start_with(eager);
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    join(&mut peer, "p1", "payers");
    let old = (now_ms() - 73 * 3_600_000).to_string();
    send_with(&mut peer, "T", &half_properties(""), &[("g", &old)]).ok();
    append(&broker, HALF, b"x", b"PGROUP\x01payers\x02");
    prepare(&mut peer, "T", "KEYS\u{1}k\u{2}");
    let check = next_check(&mut peer);
    let record = MessageRecord::decode(&check.frame.body).expect("a record");
    assert_eq!(record.property("KEYS"), Some("k"));
    assert_eq!(count(&broker, GIVEN_UP, 0), 2);
}

fn append(broker: &TestBroker, topic: &str, body: &[u8], block: &[u8]) {
    let host = "127.0.0.1:1".parse().expect("an address");
    let store = &broker.state().store;
    let mut batch = store.new_batch();
    let message = NewMessage {
        topic,
        queue_id: 0,
        flag: 0,
        sys_flag: 0,
        born_timestamp_ms: now_ms(),
        born_host: host,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body,
        properties: &[block],
    };
    batch.push(&message).expect("a message");
    store.append(&mut batch).expect("appended");
}

/// Op messages of both Java versions decide; what is no op message decides nothing and stops nothing.
#[test]
fn the_decisions_of_a_java_broker_hold() {
    let broker = start_with(lazy);
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    for number in 0..5 {
        prepare(&mut peer, "T", &format!("KEYS\u{1}k{number}\u{2}"));
    }
    append(&broker, OP, b"1", b"TAGS\x01d\x02");
    append(&broker, OP, b"nonsense", b"TAGS\x01d\x02");
    append(&broker, OP, b"0,", b"");
    append(&broker, OP, b"2,4,", b"TAGS\x01d\x02WAIT\x01true\x02");
    drop(peer);
    let broker = start_in(broker.stop(), eager);
    let mut peer = broker.connect();
    join(&mut peer, "p1", "payers");
    for _ in 0..2 {
        let check = next_check(&mut peer);
        let record = MessageRecord::decode(&check.frame.body).expect("a record");
        let key = record.property("KEYS").expect("a key");
        assert!(key == "k0" || key == "k3", "{key} is decided");
        answer_check(&mut peer, &check.place, ROLL_BACK);
    }
    settle(&broker, &mut peer);
    assert_eq!(count(&broker, "T", 1), 0);
}

/// With a restart after every step, the broker and its offsets always know what is left to do.
#[test]
fn nothing_is_forgotten_over_restarts() {
    let broker = start_with(lazy);
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    let [committed, rolled_back, open] =
        ["c", "r", "o"].map(|key| prepare(&mut peer, "T", &format!("KEYS\u{1}{key}\u{2}")));
    drop(peer);

    let broker = start_in(broker.stop(), lazy);
    let mut peer = broker.connect();
    end(&mut peer, &committed, COMMIT).ok();
    drop(peer);
    let broker = start_in(broker.stop(), lazy);
    let mut peer = broker.connect();
    end(&mut peer, &rolled_back, ROLL_BACK).ok();
    drop(peer);
    assert_eq!(count(&broker, HALF, 0), 3);

    let broker = start_in(broker.stop(), eager);
    let mut peer = broker.connect();
    join(&mut peer, "p1", "payers");
    let check = next_check(&mut peer);
    assert_ne!(check.place, open);
    let record = MessageRecord::decode(&check.frame.body).expect("a record");
    assert_eq!(record.property("KEYS"), Some("o"), "the others are decided");
    drop(peer);

    // The answer comes to the next start.
    let broker = start_in(broker.stop(), lazy);
    assert!(offsets(&broker).0 >= Some(3), "the copies stand for it: {:?}", offsets(&broker));
    let mut peer = broker.connect();
    answer_check(&mut peer, &check.place, COMMIT);
    eventually("it is delivered", || count(&broker, "T", 1) == 2);
    drop(peer);

    let broker = start_in(broker.stop(), eager);
    let mut peer = broker.connect();
    join(&mut peer, "p1", "payers");
    settle(&broker, &mut peer);
    drop(peer);
    let broker = start_in(broker.stop(), eager);
    let done = offsets(&broker);
    assert_eq!(done, (Some(count(&broker, HALF, 0)), Some(count(&broker, OP, 0))));
    let keys = records(&broker, "T", 1, |record| record.property("KEYS").map(str::to_owned));
    assert_eq!(keys, [Some("c".to_owned()), Some("o".to_owned())]);
    let counts = broker.state().transactions.counts.all();
    assert!(counts.iter().all(|(_, count)| *count <= 0), "{counts:?}");
}

#[test]
fn a_half_may_ask_to_be_left_alone_for_a_time() {
    let broker = start_with(eager);
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    join(&mut peer, "p1", "payers");
    let immune = "CHECK_IMMUNITY_TIME_IN_SECONDS\u{1}3600\u{2}KEYS\u{1}immune\u{2}";
    let half = prepare(&mut peer, "T", immune);
    prepare(&mut peer, "T", "KEYS\u{1}other\u{2}");
    let check = next_check(&mut peer);
    let record = MessageRecord::decode(&check.frame.body).expect("a record");
    assert_eq!(record.property("KEYS"), Some("other"), "it is not held up");
    answer_check(&mut peer, &check.place, ROLL_BACK);
    // Its copies remember its first place and burn no checks. A decision that names it decides them.
    eventually("it was put back several times", || {
        let copies = records(&broker, HALF, 0, |record| {
            let first = record.property("TRAN_PREPARED_QUEUE_OFFSET");
            assert!(first.is_none() || record.property("TRANSACTION_CHECK_TIMES").is_none());
            first == Some("0")
        });
        copies.into_iter().filter(|is_copy| *is_copy).count() >= 3
    });
    end(&mut peer, &half, COMMIT).ok();
    settle(&broker, &mut peer);
    assert_eq!(count(&broker, "T", 1), 1);
    // The next round that goes through all of the topic puts nothing back but what is new.
    let halves = count(&broker, HALF, 0);
    prepare(&mut peer, "T", "");
    let check = next_check(&mut peer);
    assert_eq!(check.place.queue_offset, (halves + 1).to_string());
    answer_check(&mut peer, &check.place, ROLL_BACK);
    settle(&broker, &mut peer);
    // A decision after that time is refused, unless it answers a check.
    let late = (now_ms() - 10_000).to_string();
    let block = half_properties("CHECK_IMMUNITY_TIME_IN_SECONDS\u{1}5\u{2}");
    let answer = send_with(&mut peer, "T", &block, &[("g", &late)]).ok();
    let place = place_of(&answer);
    end(&mut peer, &place, COMMIT).refused(ResponseCode::ILLEGAL_OPERATION, "wait for the check");
}

#[test]
fn a_log_whose_front_is_gone_is_gone_on_with() {
    let small = |config: &mut BrokerConfig| {
        config.mapped_file_size_commit_log = 4_096;
        config.max_message_size = 2_048;
        config.clean_resource_interval = 100;
        config.disk_max_used_space_ratio = 95;
        config.clean_file_forcibly_enable = false;
        config.delete_when = String::new();
    };
    let broker = start_with(|config| {
        lazy(config);
        small(config);
        config.file_reserved_time = 0;
    });
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    let lost = prepare(&mut peer, "T", "KEYS\u{1}lost\u{2}");
    end(&mut peer, &lost, ROLL_BACK).ok();
    eventually("an op message", || count(&broker, OP, 0) == 1);
    broker.state().offsets.commit(GROUP, HALF, 0, 0);
    broker.state().offsets.commit(GROUP, OP, 0, 0);
    for _ in 0..8 {
        peer.produce("T", 0, &[0; 1000]);
    }
    peer.call(RequestCode::DELETE_EXPIRED_COMMITLOG, &[], b"").ok();
    let store = &broker.state().store;
    eventually("it is removed", || store.min_queue_offset(HALF, 0) == 1);
    end(&mut peer, &lost, COMMIT).refused(ResponseCode::SYSTEM_ERROR, "no half message");
    drop(peer);
    let broker = start_in(broker.stop(), |config| {
        eager(config);
        small(config);
    });
    let mut peer = broker.connect();
    join(&mut peer, "p1", "payers");
    prepare(&mut peer, "T", "KEYS\u{1}kept\u{2}");
    let check = next_check(&mut peer);
    let record = MessageRecord::decode(&check.frame.body).expect("a record");
    assert_eq!(record.property("KEYS"), Some("kept"));
    answer_check(&mut peer, &check.place, ROLL_BACK);
    settle(&broker, &mut peer);
}

#[test]
fn an_administrator_may_set_the_offsets_back() {
    let broker = start_with(eager);
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    join(&mut peer, "p1", "payers");
    prepare(&mut peer, "T", "");
    let check = next_check(&mut peer);
    answer_check(&mut peer, &check.place, ROLL_BACK);
    settle(&broker, &mut peer);
    // The first half message has no op message of its own: it is asked about again.
    broker.state().offsets.commit(GROUP, HALF, 0, 0);
    next_check(&mut peer);
}

#[test]
fn an_answer_waits_for_the_disk_where_sends_do() {
    let broker = start_with(|config| {
        lazy(config);
        config.flush_disk_type = FlushDiskType::SyncFlush;
    });
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    let half = prepare(&mut peer, "T", "WAIT\u{1}true\u{2}");
    end(&mut peer, &half, COMMIT).ok();
    let store = &broker.state().store;
    let at = store.physical_offset_of("T", 1, 0).expect("read").expect("it is there");
    assert!(store.durable().0 > at, "durable to {}, the message is at {at}", store.durable().0);
}

#[test]
fn an_answer_waits_for_slaves_where_sends_do() {
    let broker = start_with(|config| {
        lazy(config);
        config.broker_role = BrokerRole::SyncMaster;
        config.in_sync_replicas = 2;
        config.slave_timeout = 300;
    });
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    let answer = send_with(&mut peer, "T", &half_properties("WAIT\u{1}true\u{2}"), &[]);
    assert_eq!(answer.code, ResponseCode::FLUSH_SLAVE_TIMEOUT.0, "no slave is there");
    let place = place_of(&answer);
    let began = Instant::now();
    // As in Java, what is stored here alone counts as committed.
    end(&mut peer, &place, COMMIT).ok();
    assert!(began.elapsed().as_millis() >= 300, "{:?}", began.elapsed());
    assert_eq!(count(&broker, "T", 1), 1);
}

#[test]
fn a_slave_decides_nothing_and_asks_nobody() {
    let broker = start_with(|config| {
        eager(config);
        config.broker_role = BrokerRole::Slave;
        config.broker_id = 1;
        // Nobody listens there.
        config.ha_master_address = "127.0.0.1:1".into();
    });
    let mut peer = broker.connect();
    join(&mut peer, "p1", "payers");
    let place = Place { queue_offset: "0".into(), physical_offset: "0".into() };
    for what in [COMMIT, ROLL_BACK] {
        end(&mut peer, &place, what).refused(ResponseCode::SLAVE_NOT_AVAILABLE, "slave");
    }
    let answer = send_with(&mut peer, "TBW102", &half_properties(""), &[]);
    answer.refused(ResponseCode::SERVICE_NOT_AVAILABLE, "slave");
}

#[test]
fn a_decision_finds_its_half_in_the_write_buffer() {
    let broker = start_with(|config| {
        lazy(config);
        config.transient_store_pool_enable = true;
        config.commit_interval_commit_log = 3_600_000;
        config.commit_commit_log_thorough_interval = 3_600_000;
        config.commit_commit_log_least_pages = 1_000;
        config.wake_commit_when_put_message = false;
    });
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    let half = prepare(&mut peer, "T", "");
    assert_eq!(count(&broker, HALF, 0), 0, "it waits in the buffer");
    end(&mut peer, &half, COMMIT).ok();
    broker.state().store.commit().expect("committed");
    assert_eq!(count(&broker, "T", 1), 1);
}

#[test]
fn producers_that_are_gone_are_passed_over() {
    let broker = start();
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    drop(peer);
    let broker = start_in(broker.stop(), |config| {
        eager(config);
        config.transaction_check_max = 1_000;
    });
    let mut peer = broker.connect();
    let mut gone = broker.connect();
    join(&mut gone, "p1", "payers");
    prepare(&mut peer, "T", "");
    drop(gone);
    eventually("it is put back without anybody to ask", || count(&broker, HALF, 0) > 3);
    join(&mut peer, "p2", "payers");
    next_check(&mut peer);
}
