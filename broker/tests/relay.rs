//! What only a client can answer: administrators' questions to consumers, and replies to requests.

mod common;

use common::{Answer, Peer, eventually, send_header, start, start_with, topic_header, with_field};
use rocketmq_protocol::body::MessageQueue;
use rocketmq_protocol::body::offset::{
    GetConsumerStatusBody, ResetOffsetBody, ResetOffsetBodyForC,
};
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::language::LanguageCode;
use rocketmq_protocol::message::id::OffsetMessageId;
use rocketmq_protocol::message::properties;
use rocketmq_protocol::message::record::MessageRecord;

const ERROR: ResponseCode = ResponseCode::SYSTEM_ERROR;
const INFO: RequestCode = RequestCode::GET_CONSUMER_RUNNING_INFO;

fn ask_info(admin: &mut Peer) -> i32 {
    let fields = [
        ("consumerGroup", "g"),
        ("clientId", "c1"),
        ("jstackEnable", "true"),
        ("AccessKey", "me"),
        ("Signature", "secret"),
    ];
    admin.send(INFO, &fields, b"", false)
}

#[test]
fn a_consumers_account_of_itself_goes_to_who_asked() {
    let broker = start();
    let (mut consumer, mut admin) = (broker.connect(), broker.connect());
    consumer.heartbeat("c1", "g", "T");
    let asked = ask_info(&mut admin);
    let request = consumer.request(INFO);
    assert_eq!(request.field("consumerGroup"), "g");
    assert_eq!(request.field("jstackEnable"), "true");
    assert!(!request.ext.iter().any(|(name, _)| name == "AccessKey" || name == "Signature"));
    consumer.respond(&request, ResponseCode::SUCCESS, "", br#"{"jstack":"x"}"#);
    assert_eq!(admin.answer_of(asked).ok().text(), r#"{"jstack":"x"}"#);
    // Its refusal goes through, too, and others are served while it thinks.
    let asked = ask_info(&mut admin);
    let request = consumer.request(INFO);
    admin.call(RequestCode::GET_BROKER_RUNTIME_INFO, &[], b"").ok();
    consumer.respond(&request, ERROR, "not this group", b"");
    admin.answer_of(asked).refused(ERROR, "not this group");
}

#[test]
fn a_consumer_that_cannot_answer_is_named() {
    let broker = start();
    let mut admin = broker.connect();
    let fields = [("consumerGroup", "g"), ("clientId", "c1")];
    admin.call(INFO, &fields, b"").refused(ERROR, "The Consumer <g> <c1> not online");
    admin.call(INFO, &[("consumerGroup", "g")], b"").refused(ERROR, "clientId");
    let mut old = broker.connect();
    old.version = 61;
    old.heartbeat("c1", "g", "T");
    admin.call(INFO, &fields, b"").refused(ERROR, "too low to finish");
    drop(old);
    let mut consumer = broker.connect();
    consumer.heartbeat("c2", "g", "T");
    let asked = admin.send(INFO, &[("consumerGroup", "g"), ("clientId", "c2")], b"", false);
    consumer.request(INFO);
    drop(consumer);
    admin.answer_of(asked).refused(ERROR, "invoke consumer <g> <c2> Exception");
}

#[test]
fn one_consumer_consumes_a_message_on_demand() {
    const CODE: RequestCode = RequestCode::CONSUME_MESSAGE_DIRECTLY;
    let broker = start();
    let (mut consumer, mut admin) = (broker.connect(), broker.connect());
    let (_, msg_id) = admin.produce("T", 0, b"body");
    consumer.heartbeat("c1", "g", "T");
    let mut fields =
        vec![("consumerGroup", "g"), ("clientId", "c1"), ("msgId", &*msg_id), ("topic", "T")];
    fields.push(("brokerName", "chosen by the tool"));
    let asked = admin.send(CODE, &fields, b"", false);
    let request = consumer.request(CODE);
    assert_eq!(request.field("brokerName"), "broker-a");
    assert_eq!(request.field("topicSysFlag"), "0");
    assert_eq!(request.field("groupSysFlag"), "0");
    assert_eq!(request.ext.iter().filter(|(name, _)| name == "brokerName").count(), 1);
    let record = MessageRecord::decode(&request.body).expect("a message");
    assert_eq!((record.topic, record.body), ("T", &b"body"[..]));
    consumer.respond(&request, ResponseCode::SUCCESS, "", br#"{"consumeResult":"CR_SUCCESS"}"#);
    assert!(admin.answer_of(asked).ok().text().contains("CR_SUCCESS"));
    let group = ("consumerGroup", "g");
    admin.call(CODE, &[group, ("msgId", &msg_id)], b"").refused(ERROR, "clientId");
    let client = ("clientId", "c1");
    admin.call(CODE, &[group, client, ("msgId", "x")], b"").refused(ERROR, "msgId is `x`");
    admin.call(CODE, &[group, client], b"").refused(ERROR, "msgId");
    let nowhere = OffsetMessageId {
        store_host: "127.0.0.1:1".parse().expect("an address"),
        physical_offset: 1 << 40,
    };
    let nowhere = nowhere.to_string();
    admin.call(CODE, &[group, client, ("msgId", &nowhere)], b"").refused(ERROR, "no message");
}

#[test]
fn members_say_where_they_stand() {
    const CODE: RequestCode = RequestCode::INVOKE_BROKER_TO_GET_CONSUMER_STATUS;
    const TO_CLIENT: RequestCode = RequestCode::GET_CONSUMER_STATUS_FROM_CLIENT;
    let broker = start();
    let (mut first, mut second, mut admin) = (broker.connect(), broker.connect(), broker.connect());
    let fields = [("topic", "T"), ("group", "g")];
    admin.call(CODE, &fields, b"").refused(ERROR, "No Any Consumer online");
    first.heartbeat("c1", "g", "T");
    second.heartbeat("c2", "g", "T");
    let asked = admin.send(CODE, &fields, b"", false);
    let (one, two) = (first.request(TO_CLIENT), second.request(TO_CLIENT));
    assert_eq!((one.field("topic"), one.field("group")), ("T", "g"));
    let body = br#"{"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:7}}"#;
    first.respond(&one, ResponseCode::SUCCESS, "", body);
    second.respond(&two, ERROR, "no such group here", b"");
    let said: GetConsumerStatusBody = admin.answer_of(asked).ok().json();
    let queue = MessageQueue { topic: "T".into(), broker_name: "broker-a".into(), queue_id: 0 };
    assert_eq!(said.consumer_table.len(), 1, "who does not answer is left out");
    assert_eq!(said.consumer_table["c1"][&queue], 7);
    // The field is called an address and holds an id.
    let asked = admin.send(CODE, &[fields[0], fields[1], ("clientAddr", "c2")], b"", false);
    let two = second.request(TO_CLIENT);
    second.respond(&two, ResponseCode::SUCCESS, "", b"");
    let said: GetConsumerStatusBody = admin.answer_of(asked).ok().json();
    assert!(said.consumer_table.is_empty());
    assert!(!first.got_request(TO_CLIENT));
    let mut old = broker.connect();
    old.version = 27;
    old.heartbeat("c3", "g", "T");
    admin.call(CODE, &fields, b"").refused(ERROR, "does not support this feature");
}

#[test]
fn without_resets_in_the_broker_members_are_told_to_move() {
    const CODE: RequestCode = RequestCode::INVOKE_BROKER_TO_RESET_OFFSET;
    const TO_CLIENT: RequestCode = RequestCode::RESET_CONSUMER_CLIENT_OFFSET;
    let broker = start_with(|config| config.use_server_side_reset_offset = false);
    let (mut consumer, mut admin) = (broker.connect(), broker.connect());
    admin.call(RequestCode::UPDATE_AND_CREATE_TOPIC, &topic_header("T", "1"), b"").ok();
    for _ in 0..3 {
        admin.produce("T", 0, b"body");
    }
    let reset = |admin: &mut Peer, timestamp: &str, is_force: &str| -> Answer {
        let fields =
            [("topic", "T"), ("group", "g"), ("timestamp", timestamp), ("isForce", is_force)];
        admin.call(CODE, &fields, b"")
    };
    reset(&mut admin, "0", "true").refused(ERROR, "THe consumer group <g> not exist");
    broker.state().groups.get_or_create("g").expect("a group");
    broker.state().offsets.commit("g", "T", 0, 2);
    reset(&mut admin, "0", "true").refused(ResponseCode::CONSUMER_NOT_ONLINE, "not online");
    consumer.heartbeat("c1", "g", "T");
    let offset = |body: ResetOffsetBody| *body.offset_table.values().next().expect("a queue");
    assert_eq!(offset(reset(&mut admin, "0", "false").ok().json()), 0);
    let told = consumer.request(TO_CLIENT);
    assert_eq!(
        (told.field("topic"), told.field("group"), told.field("timestamp")),
        ("T", "g", "0")
    );
    assert_eq!(offset(told.json()), 0);
    // Forward only if that is forced.
    assert_eq!(offset(reset(&mut admin, "-1", "false").ok().json()), 2);
    assert_eq!(offset(consumer.request(TO_CLIENT).json()), 2);
    assert_eq!(offset(reset(&mut admin, "-1", "true").ok().json()), 3);
    assert_eq!(offset(consumer.request(TO_CLIENT).json()), 3);
    admin.language = LanguageCode::Cpp;
    reset(&mut admin, "0", "true").ok();
    let told: ResetOffsetBodyForC = consumer.request(TO_CLIENT).json();
    assert_eq!((told.offset_table[0].topic.as_str(), told.offset_table[0].offset), ("T", 0));
    assert_eq!(broker.state().offsets.query("g", "T", 0), Some(2), "members commit themselves");
}

const REPLY_TOPIC: &str = "DefaultCluster_REPLY_TOPIC";
const PUSH: RequestCode = RequestCode::PUSH_REPLY_MESSAGE_TO_CLIENT;

fn reply(peer: &mut Peer, properties: &str, body: &[u8]) -> i32 {
    let mut fields = send_header(REPLY_TOPIC, "0");
    fields = with_field(fields, "i", properties);
    peer.send(RequestCode::SEND_REPLY_MESSAGE_V2, &fields, body, false)
}

#[test]
fn a_reply_reaches_who_asked_and_is_stored() {
    let broker = start();
    let (mut requester, mut replier) = (broker.connect(), broker.connect());
    requester.heartbeat("asker", "g", "T");
    let properties = "REPLY_TO_CLIENT\u{1}asker\u{2}CORRELATION_ID\u{1}7\u{2}MSG_TYPE\u{1}reply";
    let sent = reply(&mut replier, properties, b"answer");
    let pushed = requester.request(PUSH);
    assert_eq!(pushed.body, b"answer");
    assert_eq!((pushed.field("topic"), pushed.field("producerGroup")), (REPLY_TOPIC, "producers"));
    assert!(pushed.field("bornHost").starts_with("127.0.0.1:"));
    assert!(pushed.field("storeHost").starts_with("127.0.0.1:"));
    let block = pushed.field("properties").as_bytes();
    assert_eq!(properties::find(block, "CORRELATION_ID"), Some("7"));
    assert_eq!(properties::find(block, "MSG_TYPE"), Some("reply"));
    assert!(properties::find(block, "PUSH_REPLY_TIME").is_some());
    requester.respond(&pushed, ResponseCode::SUCCESS, "", b"");
    let answer = replier.answer_of(sent).ok();
    assert_eq!((answer.field("queueId"), answer.field("queueOffset")), ("0", "0"));
    assert_eq!((answer.field("MSG_REGION"), answer.field("TRACE_ON")), ("DefaultRegion", "true"));
    let id = OffsetMessageId::decode(answer.field("msgId")).expect("an id");
    let stored = broker.state().store.message_at(id.physical_offset).expect("the reply");
    let record = MessageRecord::decode(&stored).expect("a message");
    assert_eq!((record.topic, record.body), (REPLY_TOPIC, &b"answer"[..]));
    assert_eq!(record.properties, properties.as_bytes(), "as it was sent");
}

#[test]
fn a_reply_that_reaches_nobody_is_an_error_and_is_stored_all_the_same() {
    let broker = start();
    let (mut requester, mut replier) = (broker.connect(), broker.connect());
    let sent = reply(&mut replier, "REPLY_TO_CLIENT\u{1}gone\u{2}", b"answer");
    let answer = replier.answer_of(sent);
    assert_eq!(answer.field("queueOffset"), "0");
    answer.refused(ERROR, "channel of <gone> not found");
    let sent = reply(&mut replier, "", b"answer");
    replier.answer_of(sent).refused(ERROR, "[REPLY_TO_CLIENT] is null");
    requester.heartbeat("asker", "g", "T");
    let sent = reply(&mut replier, "REPLY_TO_CLIENT\u{1}asker\u{2}", b"answer");
    let pushed = requester.request(PUSH);
    requester.respond(&pushed, ERROR, "too late", b"");
    replier.answer_of(sent).refused(ERROR, "push reply message to asker fail. too late");
    let sent = reply(&mut replier, "REPLY_TO_CLIENT\u{1}asker\u{2}", b"answer");
    requester.request(PUSH);
    drop(requester);
    replier.answer_of(sent).refused(ERROR, "push reply message to asker fail");
    eventually("the requester is gone", || {
        broker.state().clients.producer_connection("asker").is_none()
    });
    let sent = reply(&mut replier, "REPLY_TO_CLIENT\u{1}asker\u{2}", b"answer");
    replier.answer_of(sent).refused(ERROR, "channel of <asker> not found");
    let max = [("topic", REPLY_TOPIC), ("queueId", "0")];
    let max = replier.call(RequestCode::GET_MAX_OFFSET, &max, b"").ok();
    assert_eq!(max.field("offset"), "5");
}

#[test]
fn a_reply_need_not_be_stored_and_is_checked_like_a_send() {
    let broker = start_with(|config| config.store_reply_message_enable = false);
    let (mut requester, mut replier) = (broker.connect(), broker.connect());
    requester.heartbeat("asker", "g", "T");
    let sent = reply(&mut replier, "REPLY_TO_CLIENT\u{1}asker\u{2}", b"");
    let pushed = requester.request(PUSH);
    assert_eq!(pushed.body, b"");
    requester.respond(&pushed, ResponseCode::SUCCESS, "", b"");
    let answer = replier.answer_of(sent).ok();
    assert_eq!((answer.field("msgId"), answer.field("queueOffset")), ("0", "0"));
    let max = [("topic", REPLY_TOPIC), ("queueId", "0")];
    let max = replier.call(RequestCode::GET_MAX_OFFSET, &max, b"").ok();
    assert_eq!(max.field("offset"), "0");
    for (field, value, code, remark) in [
        ("e", "9", ResponseCode::INVALID_PARAMETER, "queueId[9]"),
        ("e", "x", ERROR, "`x`"),
        ("b", "SCHEDULE_TOPIC_XXXX", ResponseCode::NO_PERMISSION, "forbidden"),
    ] {
        let mut fields = send_header(REPLY_TOPIC, "0");
        fields.retain(|(name, _)| *name != field);
        fields.push((field, value));
        let answer = replier.call(RequestCode::SEND_REPLY_MESSAGE_V2, &fields, b"x");
        assert_eq!(answer.field("TRACE_ON"), "true");
        answer.refused(code, remark);
    }
    replier.call(RequestCode::SEND_REPLY_MESSAGE, &[("topic", "x")], b"").refused(ERROR, "missing");
}
