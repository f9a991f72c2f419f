//! The records of transactions: a half message, what a commit makes of it, its copies, a check of it,
//! an op message. Their properties are those of RocketMQ's `TransactionalMessageBridge`.

use std::net::SocketAddr;

use rocketmq_protocol::message::properties::{self, PROPERTIES_BYTES_MAX, name};
use rocketmq_protocol::message::record::{
    MessageRecord, NewMessage, Placement, TooLong, encode_record, sys_flag,
};
use rocketmq_protocol::names;

use super::round::Half;

/// The queue of the half topic and of the op topic that is used.
pub const QUEUE_ID: i32 = 0;
/// Queues of each topic of transactions.
pub const QUEUES: i32 = 1;
/// Tag of an op message: the half messages that it names are decided.
const DECIDED_TAG: &str = "d";
/// Properties that a check and a delay of it add, with room for their longest values: a half message
/// must have room for them, or it could not be put back.
pub const PROPERTIES_BYTES_OF_COPIES: usize = 96;

/// Properties of a half message that say where it was sent to. Of a name that occurs twice the last
/// counts.
pub fn prepared_properties(unique_key: &str, topic: &str, queue_id: i32) -> Vec<u8> {
    let mut block = Vec::with_capacity(96 + unique_key.len() + topic.len());
    properties::append(&mut block, name::TRANSACTION_ID, unique_key);
    properties::append(&mut block, name::REAL_TOPIC, topic);
    properties::append(&mut block, name::REAL_QID, &queue_id.to_string());
    block
}

/// System flag of a half message: the half topic's queue shows it, so it is no prepared one there.
pub fn half_sys_flag(of_send: i32) -> i32 {
    of_send & !sys_flag::TRANSACTION_MASK
}

/// Where a half message was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination<'a> {
    /// REAL_TOPIC.
    pub topic: &'a str,
    /// REAL_QID.
    pub queue_id: i32,
}

impl<'a> Destination<'a> {
    /// Reads it.
    ///
    /// # Errors
    /// Which property is missing or wrong.
    pub fn of(record: &MessageRecord<'a>) -> Result<Destination<'a>, &'static str> {
        let topic = record
            .property(name::REAL_TOPIC)
            .ok_or("it does not say to which topic it was sent (property REAL_TOPIC)")?;
        let queue_id = record
            .property(name::REAL_QID)
            .and_then(|text| text.parse().ok())
            .filter(|queue_id| *queue_id >= 0)
            .ok_or("it does not say to which queue it was sent (property REAL_QID)")?;
        Ok(Destination { topic, queue_id })
    }
}

/// The message that a commit stores. Its properties stay as they are, as with the Java broker:
/// consumers see TRAN_MSG, REAL_TOPIC and REAL_QID.
pub fn committed<'a>(
    half: &MessageRecord<'a>,
    to: Destination<'a>,
    store_host: SocketAddr,
    properties: &'a [&'a [u8]],
) -> NewMessage<'a> {
    NewMessage {
        topic: to.topic,
        queue_id: to.queue_id,
        sys_flag: half_sys_flag(half.sys_flag) | sys_flag::TRANSACTION_COMMIT,
        prepared_transaction_offset: half.physical_offset,
        ..copy(half, store_host, properties)
    }
}

/// A copy of a half message under its own topic and queue, with other properties.
pub fn copy<'a>(
    half: &MessageRecord<'a>,
    store_host: SocketAddr,
    properties: &'a [&'a [u8]],
) -> NewMessage<'a> {
    NewMessage {
        topic: half.topic,
        queue_id: half.queue_id,
        flag: half.flag,
        sys_flag: half.sys_flag,
        born_timestamp_ms: half.born_timestamp_ms,
        born_host: half.born_host,
        store_host,
        reconsume_times: half.reconsume_times,
        prepared_transaction_offset: half.prepared_transaction_offset,
        body: half.body,
        properties,
    }
}

/// Properties of a copy that is put back: with how often it was asked about, or with the offset that
/// the half message had first.
///
/// # Errors
/// Why it cannot be stored with them.
pub fn put_back_properties(
    half: &MessageRecord<'_>,
    check: Option<i32>,
) -> Result<Vec<u8>, &'static str> {
    let (key, value) = match check {
        Some(times) => (name::TRANSACTION_CHECK_TIMES, times.to_string()),
        None => {
            let first = half.property(name::TRAN_PREPARED_QUEUE_OFFSET);
            let own = || half.queue_offset.to_string();
            (name::TRAN_PREPARED_QUEUE_OFFSET, first.map_or_else(own, str::to_owned))
        }
    };
    let block = with_property(half.properties, key, &value);
    if block.len() > PROPERTIES_BYTES_MAX {
        return Err("its properties leave no room for another one");
    }
    Ok(block)
}

/// The block with this value for a name, whatever it said of it before.
fn with_property(block: &[u8], key: &str, value: &str) -> Vec<u8> {
    let mut changed = Vec::with_capacity(block.len() + key.len() + value.len() + 2);
    for (name, other) in properties::iter(block) {
        if name != key.as_bytes() {
            changed.extend_from_slice(name);
            changed.push(properties::NAME_VALUE_SEPARATOR);
            changed.extend_from_slice(other);
            changed.push(properties::PROPERTY_SEPARATOR);
        }
    }
    properties::append(&mut changed, key, value);
    changed
}

/// The body of CHECK_TRANSACTION_STATE: the half message as a record of the topic that it was sent to,
/// at the place of its copy.
///
/// # Errors
/// When it is too long for a record.
pub fn check_body(
    half: &MessageRecord<'_>,
    to: Destination<'_>,
    copy_properties: &[u8],
    (queue_offset, physical_offset): (i64, i64),
) -> Result<Vec<u8>, TooLong> {
    let block = with_property(copy_properties, name::WAIT, "false");
    let message =
        NewMessage { topic: to.topic, queue_id: to.queue_id, ..copy(half, half.store_host, &[]) };
    let placement =
        Placement { queue_offset, physical_offset, store_timestamp_ms: half.store_timestamp_ms };
    let mut body = Vec::with_capacity(half.size + block.len());
    encode_record(&mut body, &NewMessage { properties: &[&block], ..message }, placement)?;
    Ok(body)
}

/// What judging a half message needs of it.
pub fn to_judge<R>(half: &MessageRecord<'_>, record: R) -> Half<R> {
    // As in Java, what is no number counts as none for the checks, and as the broker's own time for
    // the immunity.
    let check_times =
        half.property(name::TRANSACTION_CHECK_TIMES).map_or(0, |text| text.parse().unwrap_or(0));
    let immunity_ms = half.property(name::CHECK_IMMUNITY_TIME_IN_SECONDS).map(|text| {
        text.parse::<i64>()
            .ok()
            .filter(|seconds| *seconds != -1)
            .map_or(-1, |seconds| seconds.saturating_mul(1_000).max(0))
    });
    Half {
        queue_offset: half.queue_offset,
        born_ms: half.born_timestamp_ms,
        check_times,
        immunity_ms,
        fault: Destination::of(half).err(),
        record,
    }
}

/// An op message with this body.
pub fn op<'a>(
    body: &'a str,
    now_ms: i64,
    host: SocketAddr,
    properties: &'a [&'a [u8]],
) -> NewMessage<'a> {
    NewMessage {
        topic: names::TRANS_OP_HALF_TOPIC,
        queue_id: QUEUE_ID,
        flag: 0,
        sys_flag: 0,
        born_timestamp_ms: now_ms,
        born_host: host,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: body.as_bytes(),
        properties,
    }
}

/// Properties of an op message.
pub const OP_PROPERTIES: &[u8] = b"TAGS\x01d\x02WAIT\x01true\x02";

/// The half messages that an op message names: several, each with a comma behind it, from 5.x; one from
/// 4.9. A message that says nothing of the kind names none.
pub fn decided(op: &MessageRecord<'_>) -> Vec<i64> {
    if op.property(name::TAGS) != Some(DECIDED_TAG) {
        return Vec::new();
    }
    let Ok(text) = std::str::from_utf8(op.body) else { return Vec::new() };
    text.split(',').filter_map(|offset| offset.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(bytes: &mut Vec<u8>, topic: &str, body: &[u8], block: &[u8]) {
        let host = "127.0.0.1:10911".parse().unwrap();
        let message = NewMessage { topic, body, flag: 7, ..op("", 5, host, &[]) };
        let placement = Placement { queue_offset: 3, physical_offset: 999, store_timestamp_ms: 6 };
        encode_record(bytes, &NewMessage { properties: &[block], ..message }, placement).unwrap();
    }

    fn with_half<T>(block: &[u8], look: impl FnOnce(&MessageRecord<'_>) -> T) -> T {
        let mut bytes = Vec::new();
        record(&mut bytes, names::TRANS_HALF_TOPIC, b"body", block);
        look(&MessageRecord::decode(&bytes).unwrap())
    }

    #[test]
    fn op_messages_of_both_versions_are_read() {
        let cases: [(&[u8], &[u8], &[i64]); 7] = [
            (b"0,17,5,", OP_PROPERTIES, &[0, 17, 5]),
            (b"42", OP_PROPERTIES, &[42]),
            (b"", OP_PROPERTIES, &[]),
            (b",,x,-1,99999999999999999999,4", OP_PROPERTIES, &[-1, 4]),
            (b"\xff1", OP_PROPERTIES, &[]),
            (b"1,", b"TAGS\x01e\x02", &[]),
            (b"1,", b"", &[]),
        ];
        for (body, block, expected) in cases {
            let mut bytes = Vec::new();
            record(&mut bytes, names::TRANS_OP_HALF_TOPIC, body, block);
            assert_eq!(decided(&MessageRecord::decode(&bytes).unwrap()), expected, "{body:?}");
        }
    }

    #[test]
    fn a_copy_counts_its_checks_and_remembers_its_first_place() {
        let block = b"KEYS\x01k\x02TRANSACTION_CHECK_TIMES\x013\x02TAGS\x01A";
        let checked = with_half(block, |half| put_back_properties(half, Some(4))).unwrap();
        assert_eq!(checked, b"KEYS\x01k\x02TAGS\x01A\x02TRANSACTION_CHECK_TIMES\x014\x02");
        let delayed = with_half(block, |half| put_back_properties(half, None)).unwrap();
        let first = |block: &[u8]| {
            properties::find(block, name::TRAN_PREPARED_QUEUE_OFFSET).map(str::to_owned)
        };
        assert_eq!(first(&delayed).as_deref(), Some("3"));
        let times = properties::find(&delayed, name::TRANSACTION_CHECK_TIMES);
        assert_eq!(times, Some("3"), "waiting is no check");
        let again = with_half(b"TRAN_PREPARED_QUEUE_OFFSET\x011\x02", |half| {
            put_back_properties(half, None)
        });
        assert_eq!(first(&again.unwrap()).as_deref(), Some("1"));
        let long = [b"k\x01".to_vec(), vec![b'v'; PROPERTIES_BYTES_MAX - 3]].concat();
        with_half(&long, |half| put_back_properties(half, Some(1))).unwrap_err();
    }

    #[test]
    fn a_check_shows_the_message_as_it_was_sent() {
        let block = prepared_properties("key", "T", 2);
        with_half(&block, |half| {
            let to = Destination::of(half).unwrap();
            assert_eq!(to, Destination { topic: "T", queue_id: 2 });
            let copied = put_back_properties(half, Some(1)).unwrap();
            let body = check_body(half, to, &copied, (8, 4444)).unwrap();
            let shown = MessageRecord::decode(&body).unwrap();
            assert_eq!((shown.topic, shown.queue_id, shown.body), ("T", 2, &b"body"[..]));
            assert_eq!((shown.queue_offset, shown.physical_offset, shown.flag), (8, 4444, 7));
            assert_eq!(shown.store_timestamp_ms, 6);
            assert_eq!(shown.property(name::WAIT), Some("false"));
            assert_eq!(shown.property(name::TRANSACTION_CHECK_TIMES), Some("1"));
            assert_eq!(shown.property(name::TRANSACTION_ID), Some("key"));
            assert!(shown.body_matches_crc());
        });
    }

    #[test]
    fn a_commit_is_marked_and_names_its_half() {
        let block = prepared_properties("key", "T", 2);
        with_half(&block, |half| {
            let to = Destination::of(half).unwrap();
            let message = committed(half, to, half.store_host, &[]);
            assert_eq!((message.topic, message.queue_id, message.flag), ("T", 2, 7));
            assert_eq!(message.sys_flag & sys_flag::TRANSACTION_MASK, sys_flag::TRANSACTION_COMMIT);
            assert_eq!(message.prepared_transaction_offset, 999);
        });
    }

    #[test]
    fn what_a_half_says_is_read_as_java_reads_it() {
        let half = |block: &[u8]| with_half(block, |half| to_judge(half, ()));
        let nothing = half(b"");
        assert_eq!((nothing.check_times, nothing.immunity_ms), (0, None));
        assert!(nothing.fault.is_some(), "no destination");
        let sent = prepared_properties("key", "T", 0);
        assert_eq!(half(&sent).fault, None);
        assert!(half(b"REAL_TOPIC\x01T\x02REAL_QID\x01-1\x02").fault.is_some());
        for (text, expected) in
            [("5", 5_000), ("-1", -1), ("soon", -1), ("-7", 0), ("9223372036854775807", i64::MAX)]
        {
            let block = format!("CHECK_IMMUNITY_TIME_IN_SECONDS\u{1}{text}\u{2}");
            assert_eq!(half(block.as_bytes()).immunity_ms, Some(expected), "{text}");
        }
        assert_eq!(half(b"TRANSACTION_CHECK_TIMES\x01x\x02").check_times, 0);
    }
}
