//! What the tests of transactions share.

use rocketmq_broker::BrokerConfig;
use rocketmq_broker::clock::now_ms;
use rocketmq_protocol::code::RequestCode;
use rocketmq_protocol::message::record::{MessageRecord, NewMessage};
use rocketmq_store::{GetLimits, MatchAll};

use super::{Answer, Peer, TestBroker, eventually, send_header, topic_header};

pub const HALF: &str = "RMQ_SYS_TRANS_HALF_TOPIC";
pub const OP: &str = "RMQ_SYS_TRANS_OP_HALF_TOPIC";
pub const GIVEN_UP: &str = "TRANS_CHECK_MAX_TIME_TOPIC";
pub const GROUP: &str = "CID_RMQ_SYS_TRANS";
pub const COMMIT: &str = "8";
pub const ROLL_BACK: &str = "12";

/// Checks as soon as possible.
pub fn eager(config: &mut BrokerConfig) {
    config.transaction_check_interval = 50;
    config.transaction_time_out = 0;
    config.transaction_check_max = 1_000_000;
    config.transaction_op_batch_interval = 0;
    config.flush_interval_commit_log = 20;
    config.flush_commit_log_least_pages = 0;
}

/// No checks while a test lasts.
pub fn lazy(config: &mut BrokerConfig) {
    config.transaction_check_interval = 3_600_000;
    config.transaction_op_batch_interval = 0;
}

pub fn create(peer: &mut Peer, topic: &str, queues: &str) {
    peer.call(RequestCode::UPDATE_AND_CREATE_TOPIC, &topic_header(topic, queues), b"").ok();
}

/// A send to queue 1 with these fields instead of the usual ones.
pub fn send_with(peer: &mut Peer, topic: &str, properties: &str, other: &[(&str, &str)]) -> Answer {
    let born = now_ms().to_string();
    let mut header = send_header(topic, "1");
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

pub fn half_properties(more: &str) -> String {
    format!("TRAN_MSG\u{1}true\u{2}PGROUP\u{1}payers\u{2}UNIQ_KEY\u{1}key-1\u{2}{more}")
}

/// What identifies a half message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub queue_offset: String,
    pub physical_offset: String,
}

/// Sends a half message as the Java client does.
pub fn prepare(peer: &mut Peer, topic: &str, more: &str) -> Place {
    place_of(&send_with(peer, topic, &half_properties(more), &[("f", "4")]).ok())
}

pub fn place_of(answer: &Answer) -> Place {
    let id = answer.field("msgId");
    let physical_offset = i64::from_str_radix(&id[16..], 16).expect("an id").to_string();
    Place { queue_offset: answer.field("queueOffset").to_owned(), physical_offset }
}

pub fn end_fields<'a>(place: &'a Place, what: &'a str) -> Vec<(&'a str, &'a str)> {
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

pub fn end(peer: &mut Peer, place: &Place, what: &str) -> Answer {
    peer.call(RequestCode::END_TRANSACTION, &end_fields(place, what), b"")
}

/// Comes as a producer of the group.
pub fn join(peer: &mut Peer, client: &str, group: &str) {
    let body = format!(
        r#"{{"clientID":"{client}","consumerDataSet":[],"producerDataSet":[{{"groupName":"{group}"}}]}}"#
    );
    peer.call(RequestCode::HEART_BEAT, &[], body.as_bytes()).ok();
}

/// A check as a producer gets it.
pub struct Check {
    pub place: Place,
    pub times: String,
    pub frame: Answer,
}

pub fn next_check(peer: &mut Peer) -> Check {
    let frame = peer.request(RequestCode::CHECK_TRANSACTION_STATE);
    let record = MessageRecord::decode(&frame.body).expect("a record");
    let times = record.property("TRANSACTION_CHECK_TIMES").expect("a count").to_owned();
    let place = Place {
        queue_offset: frame.field("tranStateTableOffset").to_owned(),
        physical_offset: frame.field("commitLogOffset").to_owned(),
    };
    Check { place, times, frame }
}

pub fn answer_check(peer: &mut Peer, place: &Place, what: &str) {
    let mut fields = end_fields(place, what);
    fields.retain(|(name, _)| *name != "fromTransactionCheck");
    fields.push(("fromTransactionCheck", "true"));
    peer.oneway(RequestCode::END_TRANSACTION, &fields, b"");
}

/// Looks at each record of a queue.
pub fn records<T>(
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

pub fn count(broker: &TestBroker, topic: &str, queue_id: i32) -> i64 {
    broker.state().store.max_queue_offset(topic, queue_id)
}

pub fn ops(broker: &TestBroker) -> Vec<String> {
    records(broker, OP, 0, |record| String::from_utf8(record.body.to_vec()).expect("text"))
}

/// The half messages that op messages name.
pub fn decided(broker: &TestBroker) -> Vec<String> {
    let bodies = ops(broker).into_iter();
    bodies
        .flat_map(|body| body.split_terminator(',').map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

pub fn offsets(broker: &TestBroker) -> (Option<i64>, Option<i64>) {
    let of = |topic| broker.state().offsets.query(GROUP, topic, 0);
    (of(HALF), of(OP))
}

/// Answers all checks by a rollback until everything is settled and said so.
pub fn settle(broker: &TestBroker, peer: &mut Peer) {
    eventually("all is settled", || {
        while peer.got_request(RequestCode::CHECK_TRANSACTION_STATE) {
            let check = next_check(peer);
            answer_check(peer, &check.place, ROLL_BACK);
        }
        let (half, op) = offsets(broker);
        half == Some(count(broker, HALF, 0)) && op == Some(count(broker, OP, 0))
    });
}

pub fn append(broker: &TestBroker, topic: &str, body: &[u8], block: &[u8]) {
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
