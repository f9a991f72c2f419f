//! Topics of batch queues: one record and one entry for many messages.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use common::{LIMITS, append, get, message, quiet, small_config};
use rocketmq_protocol::message::batch;
use rocketmq_protocol::message::record::{self, NewMessage};
use rocketmq_store::consume_queue::QueueFormat;
use rocketmq_store::file_system::{FileSystem, RealFileSystem};
use rocketmq_store::inspect::{self, Kept, QueueName, dump, found_config};
use rocketmq_store::{
    AppendError, AppendResult, Boundary, GetLimits, GetStatus, QueueFilter, RecoveryReport, Store,
};

fn open(root: &Path) -> (Arc<Store>, RecoveryReport) {
    let mut config = small_config(root);
    config.batch_consume_queue_file_bytes = 4 * 46;
    Store::open(config, quiet()).unwrap()
}

fn inner_batch(count: usize) -> Vec<u8> {
    let mut body = Vec::new();
    for n in 0..count {
        let text = format!("message {n}");
        let part =
            batch::BatchMessage { flag: 0, body: text.as_bytes(), properties: b"TAGS\x01TagA\x02" };
        batch::encode(&mut body, &part).unwrap();
    }
    body
}

/// Appends an inner batch of so many messages.
fn append_batch(store: &Store, queue_id: i32, count: usize) -> AppendResult {
    let body = inner_batch(count);
    let properties = [&b"UNIQ_KEY\x01key\x02"[..]];
    let message = NewMessage { properties: &properties, ..message("Batches", queue_id, &body) };
    let mut batch = store.new_batch();
    batch.push_inner_batch(&message).unwrap();
    store.append(&mut batch).unwrap();
    batch.result(0).unwrap()
}

/// Base offset and count of each record from `from` on.
fn spans(store: &Store, from: i64) -> Vec<(i64, i64)> {
    let mut spans = Vec::new();
    let mut from = from;
    loop {
        let result = get(store, "Batches", 0, from);
        if result.status != GetStatus::Found {
            assert_eq!(result.status, GetStatus::OffsetOverflowOne, "{spans:?}");
            return spans;
        }
        let mut count = 0;
        for record in result.messages.iter().flat_map(|slice| record::iter(slice)) {
            let record = record.unwrap();
            let number = |name| record.property(name).unwrap().parse::<i64>().unwrap();
            assert_eq!(number("INNER_BASE"), record.queue_offset);
            spans.push((record.queue_offset, number("INNER_NUM")));
            count += number("INNER_NUM");
            from = record.queue_offset + number("INNER_NUM");
        }
        assert_eq!((result.message_count as i64, result.next_begin_offset), (count, from));
    }
}

const COUNTS: [usize; 7] = [3, 1, 4, 2, 5, 3, 2];
const SPANS: [(i64, i64); 7] = [(0, 3), (3, 1), (4, 4), (8, 2), (10, 5), (15, 3), (18, 2)];

fn filled(root: &Path) -> Arc<Store> {
    let (store, _) = open(root);
    for count in COUNTS {
        append_batch(&store, 0, count);
        append(&store, "Plain", 0, b"between");
    }
    store
}

#[test]
fn offsets_advance_by_the_messages_of_a_batch() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(directory.path());
    assert_eq!(spans(&store, 0), SPANS);
    assert_eq!(store.max_queue_offset("Batches", 0), 20);
    assert_eq!(append_batch(&store, 1, 2).queue_offset, 0, "each queue counts for itself");
    assert_eq!(append_batch(&store, 0, 2).queue_offset, 20);
}

#[test]
fn a_read_in_the_middle_of_a_batch_gets_all_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(directory.path());
    assert_eq!(spans(&store, 13), SPANS[4..]);
    assert_eq!(spans(&store, 9), SPANS[3..]);
    let at = |offset| store.physical_offset_of("Batches", 0, offset).unwrap();
    assert!(at(4).is_some() && at(4) == at(7) && at(8) != at(7));
    assert_eq!(at(20), None);
}

#[test]
fn a_read_counts_messages_and_takes_one_batch_at_least() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(directory.path());
    let count = |from, count_max| {
        let limits = GetLimits { count_max, ..LIMITS };
        let filter = rocketmq_store::MatchAll;
        let result = store.get_messages("Batches", 0, from, limits, &filter).unwrap();
        (result.message_count, result.next_begin_offset)
    };
    assert_eq!(count(0, 1), (3, 3));
    assert_eq!(count(0, 7), (4, 4));
    assert_eq!(count(0, 8), (8, 8));
    assert_eq!(count(0, 32), (20, 20));
}

/// Takes messages with one tag.
struct Tagged(i64);

impl QueueFilter for Tagged {
    fn matches_tags_code(&self, tags_code: i64) -> bool {
        tags_code == self.0
    }
}

#[test]
fn a_batch_without_a_tag_passes_every_filter_of_tags() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    append_batch(&store, 0, 2);
    let found = |topic, filter| store.get_messages(topic, 0, 0, LIMITS, &filter).unwrap().status;
    assert_eq!(found("Batches", Tagged(2_598_919)), GetStatus::Found);
    append(&store, "Plain", 0, b"x");
    assert_eq!(found("Plain", Tagged(5)), GetStatus::NoMatchedMessage);
}

#[test]
fn a_search_by_time_finds_batches() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::new(rocketmq_store::clock::ManualClock::new(1_000));
    let mut config = small_config(directory.path());
    config.batch_consume_queue_file_bytes = 4 * 46;
    let environment = rocketmq_store::Environment { clock: Arc::clone(&clock) as _, ..quiet() };
    let (store, _) = Store::open(config, environment).unwrap();
    for count in COUNTS {
        append_batch(&store, 0, count);
        clock.advance(10);
    }
    let search = |time, boundary| store.queue_offset_by_time("Batches", 0, time, boundary).unwrap();
    let lower = [0, 1_000, 1_001, 1_010, 1_055, 1_060, 1_061];
    assert_eq!(lower.map(|time| search(time, Boundary::Lower)), [0, 0, 3, 3, 18, 18, 20]);
    let upper = [0, 1_000, 1_001, 1_010, 1_060, 9_999];
    assert_eq!(upper.map(|time| search(time, Boundary::Upper)), [0, 2, 2, 3, 19, 19]);
    assert_eq!(store.store_time_at("Batches", 0, 9).unwrap(), Some(1_030));
}

#[test]
fn every_kind_of_start_finds_the_same_queue() {
    for end in ["clean", "killed", "entries lost", "newest file lost", "queue lost"] {
        let directory = tempfile::tempdir().unwrap();
        let store = filled(directory.path());
        match end {
            "clean" => store.shutdown().unwrap(),
            "killed" => {}
            _ => store.flush().unwrap(),
        }
        drop(store);
        let queue = directory.path().join("batchconsumequeue/Batches/0");
        let newest = queue.join("00000000000000000184");
        match end {
            "entries lost" => {
                let mut bytes = fs::read(&newest).unwrap();
                bytes[46..].fill(0);
                fs::write(&newest, bytes).unwrap();
            }
            "newest file lost" => fs::remove_file(&newest).unwrap(),
            "queue lost" => fs::remove_dir_all(directory.path().join("batchconsumequeue")).unwrap(),
            _ => {}
        }
        let (store, report) = open(directory.path());
        assert_eq!(report.clean, end == "clean");
        assert_eq!(report.records_without_queue, 0, "{end}");
        assert_eq!(spans(&store, 0), SPANS, "{end}");
        assert_eq!(append_batch(&store, 0, 2).queue_offset, 20, "{end}");
        assert_eq!(spans(&store, 19).last(), Some(&(20, 2)), "{end}");
    }
}

#[test]
fn batches_behind_the_end_of_the_log_are_cut() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(directory.path());
    let last = store.physical_offset_of("Batches", 0, 10).unwrap().unwrap() as u64;
    store.flush().unwrap();
    drop(store);
    let file = fs::File::options()
        .write(true)
        .open(directory.path().join(format!("commitlog/{:020}", last / 4096 * 4096)))
        .unwrap();
    file.set_len(last % 4096 + 100).unwrap();
    file.set_len(4096).unwrap();
    let (store, report) = open(directory.path());
    assert!(report.bytes_cut > 0);
    assert_eq!(spans(&store, 0), SPANS[..4]);
    assert_eq!(append_batch(&store, 0, 2).queue_offset, 10);
}

#[test]
fn a_deleted_topic_can_be_made_again_with_the_other_kind_of_queues() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(directory.path());
    store.flush().unwrap();
    let body = inner_batch(1);
    let mut batch = store.new_batch();
    batch.push_inner_batch(&message("Plain", 0, &body)).unwrap();
    let error = store.append(&mut batch).unwrap_err();
    assert!(matches!(error, AppendError::QueueFormat { queue_id: 0, .. }), "{error:?}");
    assert!(error.to_string().contains("queue 0 of topic Plain is in consumequeue"), "{error}");
    let mut batch = store.new_batch();
    batch.push(&message("Batches", 0, b"x")).unwrap();
    let error = store.append(&mut batch).unwrap_err();
    assert!(error.to_string().contains("topic Batches is in batchconsumequeue"), "{error}");

    assert!(store.delete_topic("Batches").unwrap());
    assert!(!directory.path().join("batchconsumequeue/Batches").exists());
    assert_eq!(append(&store, "Batches", 0, b"plain now"), 0);
    drop(store);
    for lost in [None, Some("consumequeue/Batches"), Some("batchconsumequeue")] {
        if let Some(lost) = lost {
            fs::remove_dir_all(directory.path().join(lost)).unwrap();
        }
        let (store, _) = open(directory.path());
        assert_eq!(common::bodies(&store, "Batches", 0), [b"plain now"], "{lost:?}");
        store.flush().unwrap();
    }
}

#[test]
fn batches_are_found_by_key_and_by_place() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(directory.path());
    let found = store.query_messages("Batches", "key", 0..=i64::MAX, 64, 1 << 20).unwrap();
    assert_eq!(found.messages.len(), COUNTS.len());
    let placed = append_batch(&store, 0, 4);
    let record = store.message_at(placed.physical_offset).unwrap();
    assert_eq!(record.len(), placed.bytes);
}

#[test]
fn a_queue_goes_on_when_all_its_batches_have_expired() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(directory.path());
    for _ in 0..80 {
        append(&store, "Plain", 0, &[0; 200]);
    }
    let mut config = small_config(directory.path());
    config.batch_consume_queue_file_bytes = 4 * 46;
    config.file_reserved_hours = 0;
    drop(store);
    let (store, _) = Store::open(config, quiet()).unwrap();
    store.remove_old_files(true).unwrap();
    assert!(store.min_physical_offset() > 4096);
    assert_eq!(
        (store.min_queue_offset("Batches", 0), store.max_queue_offset("Batches", 0)),
        (20, 20)
    );
    assert_eq!(get(&store, "Batches", 0, 3).status, GetStatus::OffsetTooSmall);
    drop(store);
    let (store, _) = open(directory.path());
    assert_eq!(
        (store.min_queue_offset("Batches", 0), store.max_queue_offset("Batches", 0)),
        (20, 20)
    );
    assert_eq!(append_batch(&store, 0, 3).queue_offset, 20);
    assert_eq!(spans(&store, 20), [(20, 3)]);
}

#[test]
fn single_messages_that_a_java_broker_took_get_no_queue() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    append(&store, "Batches", 0, b"acknowledged and never shown");
    drop(store);
    fs::remove_dir_all(directory.path().join("consumequeue/Batches")).unwrap_or_default();
    let config = directory.path().join("config");
    fs::create_dir_all(&config).unwrap();
    let topics = r#"{"topicConfigTable":{"Batches":{"topicName":"Batches",
        "attributes":{"queue.type":"BatchCQ"}}}}"#;
    fs::write(config.join("topics.json"), topics).unwrap();
    let (store, report) = open(directory.path());
    assert_eq!(report.records_without_queue, 1);
    assert!(store.queues("Batches").is_empty());
    assert_eq!(append_batch(&store, 0, 2).queue_offset, 0);
    assert_eq!(spans(&store, 0), [(0, 2)]);
    store.shutdown().unwrap();
    drop(store);
    let mut checked = small_config(directory.path());
    checked.batch_consume_queue_file_bytes = 4 * 46;
    let report = inspect::check(&RealFileSystem, &checked).unwrap();
    assert_eq!(report.damage, 0, "{:#?}", report.findings);
}

#[test]
fn a_check_reads_batch_queues_and_a_repair_builds_them_anew() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(directory.path());
    store.shutdown().unwrap();
    drop(store);
    let config = found_config(&RealFileSystem, directory.path()).unwrap();
    assert_eq!(config.batch_consume_queue_file_bytes, 4 * 46);
    let sound = inspect::check(&RealFileSystem, &config).unwrap();
    assert_eq!((sound.damage, sound.queues, sound.entries), (0, 2, 14), "{:#?}", sound.findings);

    let entries = |from| {
        let found = dump::queue_entries(&RealFileSystem, &config, "Batches", 0, from, 3).unwrap();
        let found = found.unwrap().into_iter();
        assert!(found.clone().all(|entry| entry.store_timestamp_ms.is_some()));
        found.map(|entry| (entry.queue_offset, entry.message_count)).collect::<Vec<_>>()
    };
    assert_eq!(entries(None), SPANS[..3]);
    assert_eq!(entries(Some(9)), SPANS[3..6]);

    let queue = directory.path().join("batchconsumequeue/Batches/0/00000000000000000000");
    let bytes = fs::read(&queue).unwrap();
    let expected =
        [QueueName { topic: "Batches".to_owned(), queue_id: 0, format: QueueFormat::Batch }];
    // Of the second entry: its place, size, tags code, base offset and count.
    for at in [46 + 7, 46 + 11, 46 + 19, 46 + 35, 46 + 37] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        fs::write(&queue, &damaged).unwrap();
        let report = inspect::check(&RealFileSystem, &config).unwrap();
        assert!(report.damage > 0, "byte {at}");
        assert_eq!(report.rebuild, expected, "byte {at}: {:#?}", report.findings);
    }
    let file_system: Arc<dyn FileSystem> = Arc::new(RealFileSystem);
    let repaired = inspect::repair(&file_system, &config, 7, Kept::Aside, |_| true).unwrap();
    let repaired = repaired.unwrap();
    assert_eq!(repaired.check.damage, 0, "{:#?}", repaired.check.findings);
    assert_eq!(fs::read(&queue).unwrap(), bytes);
    let (store, _) = open(directory.path());
    assert_eq!(spans(&store, 0), SPANS);
}

#[test]
fn a_slave_has_the_same_batch_queue() {
    let directory = tempfile::tempdir().unwrap();
    let master = filled(&directory.path().join("master"));
    let (slave, _) = open(&directory.path().join("slave"));
    slave.take_copies_only();
    while let Some(piece) = master.log_bytes(slave.written().0, 1 << 20) {
        let taken = slave.append_copy(slave.written().0, &piece).unwrap();
        assert_eq!(taken, piece.len());
    }
    assert_eq!(slave.written(), master.written());
    assert_eq!(spans(&slave, 0), SPANS);
    assert_eq!(slave.max_queue_offset("Batches", 0), 20);
}

#[test]
fn batches_in_the_write_buffer_show_when_they_are_committed() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = small_config(directory.path());
    config.batch_consume_queue_file_bytes = 4 * 46;
    config.transient_store_pool_enable = true;
    let (store, _) = Store::open(config, quiet()).unwrap();
    for (count, (base, _)) in COUNTS.into_iter().zip(SPANS) {
        assert_eq!(append_batch(&store, 0, count).queue_offset, base);
    }
    store.commit().unwrap();
    assert_eq!(spans(&store, 0), SPANS);
}
