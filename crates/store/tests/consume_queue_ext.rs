//! `enableConsumeQueueExt`: entries whose tags code is in a unit of its own, with a bit map.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod common;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use common::{LIMITS, append, bodies, message, quiet, small_config};
use rocketmq_protocol::hash;
use rocketmq_store::consume_queue::{ExtUnit, is_address};
use rocketmq_store::{
    Environment, FilterBitMap, GetStatus, QueueFilter, RecoveryReport, Store, StoreConfig,
};

const TAG_A: &[&[u8]] = &[b"TAGS\x01TagA\x02"];
const TAG_B: &[&[u8]] = &[b"TAGS\x01TagB\x02", b"a\x011\x02"];

/// One bit: whether the message has the property `a`.
#[derive(Debug)]
struct HasA;

impl FilterBitMap for HasA {
    fn bit_map(&self, topic: &str, properties: &[u8], out: &mut Vec<u8>) {
        assert_eq!(topic, "A");
        let has_a = rocketmq_protocol::message::properties::find(properties, "a").is_some();
        out.push(u8::from(has_a));
    }
}

fn config(root: &Path) -> StoreConfig {
    let mut config = small_config(root);
    config.enable_consume_queue_ext = true;
    config.consume_queue_ext_file_bytes = 32_771;
    config
}

fn environment() -> Environment {
    Environment { filter_bit_map: Some(Arc::new(HasA)), ..quiet() }
}

fn open(root: &Path) -> (Arc<Store>, RecoveryReport) {
    Store::open(config(root), environment()).unwrap()
}

fn append_tagged(store: &Store, properties: &[&[u8]]) {
    let mut batch = store.new_batch();
    let mut message = message("A", 0, b"body");
    message.properties = properties;
    batch.push(&message).unwrap();
    store.append(&mut batch).unwrap();
}

/// Ten messages, every third with tag B and property `a`.
fn fill(store: &Store) {
    for n in 0..10 {
        append_tagged(store, if n % 3 == 0 { TAG_B } else { TAG_A });
    }
}

/// Remembers what it was asked.
#[derive(Default)]
struct Asked {
    codes: Mutex<Vec<i64>>,
    units: Mutex<Vec<(i64, i64, Vec<u8>)>>,
}

impl QueueFilter for Asked {
    fn matches_tags_code(&self, tags_code: i64) -> bool {
        self.codes.lock().unwrap().push(tags_code);
        tags_code == hash::tags_code("TagB")
    }
    fn matches_ext(&self, ext: &ExtUnit<'_>) -> bool {
        let unit = (ext.tags_code, ext.msg_store_time_ms, ext.filter_bit_map.to_vec());
        self.units.lock().unwrap().push(unit);
        self.matches_tags_code(ext.tags_code)
    }
}

fn tag_b_offsets(store: &Store) -> (usize, Asked) {
    let asked = Asked::default();
    let result = store.get_messages("A", 0, 0, LIMITS, &asked).unwrap();
    // A file of the queue has eight entries.
    let rest = store.get_messages("A", 0, result.next_begin_offset, LIMITS, &asked).unwrap();
    (result.message_count + rest.message_count, asked)
}

fn ext_file(root: &Path) -> PathBuf {
    root.join("consumequeue_ext/A/0").join(format!("{:020}", 0))
}

/// The tags code words of the entries in the first file of the queue.
fn tags_codes(root: &Path) -> Vec<i64> {
    let file = root.join("consumequeue/A/0").join(format!("{:020}", 0));
    let bytes = std::fs::read(file).unwrap();
    bytes.chunks(20).map(|unit| i64::from_be_bytes(unit[12..].try_into().unwrap())).collect()
}

#[test]
fn readers_see_the_tags_code_and_the_bit_map_behind_the_address() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    assert_eq!(store.newest_message_time(), 0);
    fill(&store);
    assert_eq!(Some(store.newest_message_time()), store.store_time_at("A", 0, 9).unwrap());
    for is_written in [false, true] {
        if is_written {
            store.flush().unwrap();
        }
        let (found, asked) = tag_b_offsets(&store);
        assert_eq!(found, 4);
        let units = asked.units.into_inner().unwrap();
        assert_eq!(units.len(), 10);
        for (n, (tags_code, store_time_ms, bit_map)) in units.into_iter().enumerate() {
            let is_b = n % 3 == 0;
            assert_eq!(tags_code, hash::tags_code(if is_b { "TagB" } else { "TagA" }));
            assert_eq!(bit_map, [u8::from(is_b)]);
            assert_eq!(store.store_time_at("A", 0, n as i64).unwrap(), Some(store_time_ms));
        }
    }
    // Back to back, 21 bytes each.
    let expected: Vec<i64> = (0..8).map(|n| i64::MIN + n * 21).collect();
    assert_eq!(tags_codes(directory.path()), expected);
    assert_eq!(std::fs::read(ext_file(directory.path())).unwrap()[..2], 21i16.to_be_bytes());
}

#[test]
fn a_crash_loses_no_unit_and_gives_no_place_twice() {
    let directory = tempfile::tempdir().unwrap();
    for (round, flush) in [false, true, true, false].into_iter().enumerate() {
        let (store, report) = open(directory.path());
        assert_eq!((report.bytes_cut, report.queues_rebuilt), (0, 0), "{report}");
        assert_eq!(store.max_queue_offset("A", 0), round as i64 * 10);
        fill(&store);
        if flush {
            store.flush().unwrap();
        }
        let asked = Asked::default();
        let mut next = 0;
        let mut found = 0;
        while next < store.max_queue_offset("A", 0) {
            let result = store.get_messages("A", 0, next, LIMITS, &asked).unwrap();
            found += result.message_count;
            next = result.next_begin_offset;
        }
        assert_eq!(found, 4 * (round + 1));
    }
}

#[test]
fn units_that_the_disk_lost_are_made_again() {
    for damage in ["zeroed", "torn", "gone"] {
        let directory = tempfile::tempdir().unwrap();
        let (store, _) = open(directory.path());
        fill(&store);
        store.flush().unwrap();
        drop(store);
        let path = ext_file(directory.path());
        let mut bytes = std::fs::read(&path).unwrap();
        match damage {
            "gone" => std::fs::remove_file(&path).unwrap(),
            _ => {
                // The fourth unit, as a whole or behind its size.
                let from = if damage == "torn" { 65 } else { 63 };
                bytes[from..84].fill(0);
                if damage == "torn" {
                    bytes[82] = 1;
                }
                std::fs::write(&path, bytes).unwrap();
            }
        }
        // The checkpoint is younger than the messages by less than its margin.
        let (store, report) = open(directory.path());
        assert_eq!(report.queues_rebuilt, 1, "{damage}: {report}");
        let (found, asked) = tag_b_offsets(&store);
        assert_eq!((found, asked.units.into_inner().unwrap().len()), (4, 10), "{damage}");
    }
}

#[test]
fn where_a_unit_cannot_be_read_the_record_says_the_tag() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    fill(&store);
    store.shutdown().unwrap();
    drop(store);
    std::fs::remove_dir_all(directory.path().join("consumequeue_ext")).unwrap();
    // Neither where units are switched off nor where they are on.
    for is_enabled in [false, true] {
        let mut config = config(directory.path());
        config.enable_consume_queue_ext = is_enabled;
        let (store, _) = Store::open(config, environment()).unwrap();
        let (found, asked) = tag_b_offsets(&store);
        assert_eq!((found, asked.codes.into_inner().unwrap().len()), (4, 10));
        if is_enabled {
            // Nor does a new unit take the place of one that is gone.
            append_tagged(&store, TAG_A);
            let (found, asked) = tag_b_offsets(&store);
            assert_eq!((found, asked.units.into_inner().unwrap().len()), (4, 1));
        }
        store.shutdown().unwrap();
    }
}

#[test]
fn it_can_be_switched_on_and_off() {
    let directory = tempfile::tempdir().unwrap();
    for is_enabled in [true, false, true] {
        let mut config = config(directory.path());
        config.enable_consume_queue_ext = is_enabled;
        let (store, _) = Store::open(config, environment()).unwrap();
        append_tagged(&store, TAG_B);
        append_tagged(&store, TAG_A);
        store.shutdown().unwrap();
    }
    let codes = tags_codes(directory.path());
    let kinds: Vec<bool> = codes[..6].iter().map(|code| is_address(*code)).collect();
    assert_eq!(kinds, [true, true, false, false, true, true]);
    let (store, _) = open(directory.path());
    assert_eq!(tag_b_offsets(&store).0, 3);
}

#[test]
fn units_follow_the_log_and_go_with_their_topic() {
    let directory = tempfile::tempdir().unwrap();
    let faulty = common::faulty::Faulty::default();
    let environment =
        Environment { file_system: Arc::new(faulty.clone()), filter_bit_map: None, ..quiet() };
    let mut config = config(directory.path());
    config.delete_commit_log_files_interval_ms = 0;
    let (store, _) = Store::open(config, environment).unwrap();
    // Units of 20 bytes: 1638 to a file.
    for _ in 0..2_000 {
        append(&store, "A", 0, b"body");
    }
    store.flush().unwrap();
    let files =
        || std::fs::read_dir(directory.path().join("consumequeue_ext/A/0")).unwrap().count();
    assert_eq!(files(), 2);
    faulty.0.used_percent.store(86, std::sync::atomic::Ordering::SeqCst);
    while store.max_physical_offset() - store.min_physical_offset() > 4096 {
        store.tick().unwrap();
    }
    faulty.0.used_percent.store(0, std::sync::atomic::Ordering::SeqCst);
    store.tick().unwrap();
    assert_eq!(files(), 1);
    assert!(!bodies(&store, "A", 0).is_empty());
    store.delete_topic("A").unwrap();
    assert!(!directory.path().join("consumequeue_ext/A").exists());
    let result = store.get_messages("A", 0, 0, LIMITS, &Asked::default()).unwrap();
    assert_eq!(result.status, GetStatus::NoMatchedLogicQueue);
}
