//! Bytes of a CommitLog, of a pull's answer, of a client's batch; message ids.

use rocketmq_protocol::message::record::{self, LogItem, MessageRecord, NewMessage, Placement};
use rocketmq_protocol::message::{batch, id};

/// What the target does with its input.
pub fn run(bytes: &[u8]) {
    for record in record::iter(bytes).flatten() {
        round_trip(&record);
    }
    if let Ok(LogItem::Record(record)) = record::decode_log_item(bytes) {
        round_trip(&record);
    }
    let mut out = Vec::new();
    let whole = batch::iter(bytes).all(|message| match message {
        Ok(message) => batch::encode(&mut out, &message).is_ok(),
        Err(_) => false,
    });
    if whole {
        assert_eq!(batch::iter(&out).count(), batch::iter(bytes).count());
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = id::OffsetMessageId::decode(text);
    }
}

fn round_trip(record: &MessageRecord<'_>) {
    let mut out = Vec::new();
    let message = NewMessage {
        topic: record.topic,
        queue_id: record.queue_id,
        flag: record.flag,
        sys_flag: record.sys_flag,
        born_timestamp_ms: record.born_timestamp_ms,
        born_host: record.born_host,
        store_host: record.store_host,
        reconsume_times: record.reconsume_times,
        prepared_transaction_offset: record.prepared_transaction_offset,
        body: record.body,
        properties: &[record.properties],
    };
    let placement = Placement {
        queue_offset: record.queue_offset,
        physical_offset: record.physical_offset,
        store_timestamp_ms: record.store_timestamp_ms,
    };
    record::encode_record(&mut out, &message, placement).expect("what was read can be written");
    let again = MessageRecord::decode(&out).expect("what was written reads");
    assert_eq!((again.topic, again.body), (record.topic, record.body));
    assert_eq!(again.properties, record.properties);
    assert!(again.body_matches_crc());
}
