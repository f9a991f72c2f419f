//! What the store's tests share: small stores, messages, reading back.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![allow(dead_code, reason = "each test uses a part of it")]

pub mod faulty;

use std::path::Path;
use std::sync::Arc;

use rocketmq_protocol::message::record::{self, NewMessage};
use rocketmq_store::{
    Environment, GetLimits, GetResult, GetStatus, MatchAll, RecoveryReport, Store, StoreConfig,
    StoreError,
};

/// Files of 4 KiB, eight queue entries and 49 index entries, so that few messages make many files.
pub fn small_config(root: &Path) -> StoreConfig {
    let mut config = StoreConfig::new(root);
    config.commit_log_file_bytes = 4096;
    config.consume_queue_file_bytes = 160;
    config.message_bytes_max = 2048;
    config.index_slots = 20;
    config.index_entries = 50;
    config
}

/// No threads: a test does what they would do when it wants to. The disk is empty, however full
/// the one below really is.
pub fn quiet() -> Environment {
    let file_system = Arc::new(faulty::Faulty::default());
    Environment { file_system, threads: false, ..Environment::default() }
}

/// As [`quiet`], with threads.
pub fn lively() -> Environment {
    Environment { threads: true, ..quiet() }
}

pub fn open(root: &Path) -> (Arc<Store>, RecoveryReport) {
    try_open(root).unwrap()
}

pub fn try_open(root: &Path) -> Result<(Arc<Store>, RecoveryReport), StoreError> {
    Store::open(small_config(root), quiet())
}

pub fn message<'a>(topic: &'a str, queue_id: i32, body: &'a [u8]) -> NewMessage<'a> {
    NewMessage {
        topic,
        queue_id,
        flag: 0,
        sys_flag: 0,
        born_timestamp_ms: 1,
        born_host: "127.0.0.1:1".parse().unwrap(),
        store_host: "127.0.0.1:10911".parse().unwrap(),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body,
        properties: &[b"TAGS\x01TagA\x02"],
    }
}

/// Appends one message and returns its queue offset.
pub fn append(store: &Store, topic: &str, queue_id: i32, body: &[u8]) -> i64 {
    let mut batch = store.new_batch();
    batch.push(&message(topic, queue_id, body)).unwrap();
    store.append(&mut batch).unwrap();
    batch.result(0).unwrap().queue_offset
}

pub const LIMITS: GetLimits = GetLimits { count_max: 32, bytes_max: 1 << 20 };

pub fn get(store: &Store, topic: &str, queue_id: i32, from: i64) -> GetResult {
    store.get_messages(topic, queue_id, from, LIMITS, &MatchAll).unwrap()
}

/// Bodies of all messages of a queue, checking that offsets have no hole.
pub fn bodies(store: &Store, topic: &str, queue_id: i32) -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    let mut from = store.min_queue_offset(topic, queue_id);
    loop {
        let result = get(store, topic, queue_id, from);
        match result.status {
            GetStatus::Found => {}
            GetStatus::OffsetOverflowOne
            | GetStatus::NoMatchedLogicQueue
            | GetStatus::NoMessageInQueue => return bodies,
            other => panic!("{other:?} at {from} of {topic}-{queue_id}"),
        }
        let mut count = 0;
        for slice in &result.messages {
            for record in record::iter(slice) {
                let record = record.unwrap();
                assert_eq!(record.queue_offset, from, "offsets are dense");
                assert_eq!((record.topic, record.queue_id), (topic, queue_id));
                assert!(record.body_matches_crc());
                bodies.push(record.body.to_vec());
                from += 1;
                count += 1;
            }
        }
        assert_eq!(count, result.message_count);
        assert_eq!(result.next_begin_offset, from);
        assert_eq!(result.bytes, result.messages.iter().map(|slice| slice.len()).sum::<usize>());
    }
}
