//! The store against a plain list, and readers against writers.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use common::{append, bodies, get, message, open, small_config};
use proptest::prelude::*;
use rocketmq_protocol::message::batch;
use rocketmq_protocol::message::record;
use rocketmq_store::clock::ManualClock;
use rocketmq_store::{
    Arrival, ArrivalListener, Boundary, DurableOutcome, Environment, FlushDiskType, GetLimits,
    GetStatus, MatchAll, QueueFilter, Store,
};

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<(u8, u16)>),
    ClientBatch(u8, Vec<u16>),
    Flush,
    Tick,
    Shutdown,
    Kill,
    DeleteTopic,
}

fn step() -> impl Strategy<Value = Step> {
    let size = 0..1200u16;
    prop_oneof![
        8 => prop::collection::vec((0..3u8, size.clone()), 1..12).prop_map(Step::Append),
        3 => (0..3u8, prop::collection::vec(0..300u16, 1..6))
            .prop_map(|(queue, sizes)| Step::ClientBatch(queue, sizes)),
        1 => Just(Step::Flush),
        2 => Just(Step::Tick),
        1 => Just(Step::Shutdown),
        2 => Just(Step::Kill),
        1 => Just(Step::DeleteTopic),
    ]
}

type Model = BTreeMap<(&'static str, i32), Vec<Vec<u8>>>;

/// Queues 0 and 1 are of topic A, which is deleted now and then, queue 2 is of topic B.
fn queue(n: u8) -> (&'static str, i32) {
    if n < 2 { ("A", i32::from(n)) } else { ("B", 0) }
}

fn body(counter: &mut u64, size: u16) -> Vec<u8> {
    *counter += 1;
    let mut body = counter.to_be_bytes().to_vec();
    body.resize(8 + usize::from(size), *counter as u8);
    body
}

fn run(steps: Vec<Step>) {
    let directory = tempfile::tempdir().unwrap();
    let (mut store, _) = open(directory.path());
    let mut model = Model::new();
    let mut counter = 0;
    let mut batch = store.new_batch();
    for step in steps {
        match step {
            Step::Append(messages) => {
                batch.clear();
                let mut expected = Vec::new();
                for (n, size) in messages {
                    let body = body(&mut counter, size);
                    let (topic, queue_id) = queue(n);
                    batch.push(&message(topic, queue_id, &body)).unwrap();
                    let list = model.entry(queue(n)).or_default();
                    expected.push(list.len() as i64);
                    list.push(body);
                }
                let outcome = store.append(&mut batch).unwrap();
                assert_eq!(outcome.appended, expected.len());
                assert_eq!(outcome.end_physical_offset, store.max_physical_offset());
                for (index, queue_offset) in expected.into_iter().enumerate() {
                    assert_eq!(batch.result(index).unwrap().queue_offset, queue_offset);
                }
            }
            Step::ClientBatch(n, sizes) => {
                batch.clear();
                let (topic, queue_id) = queue(n);
                let mut encoded = Vec::new();
                let list = model.entry(queue(n)).or_default();
                let first = list.len() as i64;
                for size in sizes {
                    let body = body(&mut counter, size);
                    let part = batch::BatchMessage { flag: 0, body: &body, properties: b"" };
                    batch::encode(&mut encoded, &part).unwrap();
                    list.push(body);
                }
                let range = batch.push_batch(&message(topic, queue_id, b""), &encoded).unwrap();
                store.append(&mut batch).unwrap();
                for (n, index) in range.enumerate() {
                    assert_eq!(batch.result(index).unwrap().queue_offset, first + n as i64);
                }
            }
            Step::Flush => store.flush().unwrap(),
            Step::Tick => store.tick().unwrap(),
            Step::Shutdown | Step::Kill => {
                let clean = matches!(step, Step::Shutdown);
                if clean {
                    store.shutdown().unwrap();
                }
                drop(store);
                let report;
                (store, report) = open(directory.path());
                assert_eq!((report.clean, report.bytes_cut), (clean, 0), "{report}");
                batch = store.new_batch();
            }
            Step::DeleteTopic => {
                let existed = model.keys().any(|(topic, _)| *topic == "A");
                assert_eq!(store.delete_topic("A").unwrap(), existed);
                // After a crash records of the deleted topic may be dispatched again; the broker,
                // which knows the topics, deletes it once more. Begin it anew to have it settled.
                model.retain(|(topic, _), _| *topic != "A");
                for n in 0..2 {
                    let body = body(&mut counter, 5);
                    append(&store, "A", i32::from(n), &body);
                    model.insert(queue(n), vec![body]);
                }
            }
        }
        for ((topic, queue_id), expected) in &model {
            assert_eq!(&bodies(&store, topic, *queue_id), expected, "{topic}-{queue_id}");
            assert_eq!(store.max_queue_offset(topic, *queue_id), expected.len() as i64);
        }
        assert_eq!(store.dispatched().0, store.written().0);
        assert!(store.durable().0 <= store.written().0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn the_store_is_a_list_per_queue(steps in prop::collection::vec(step(), 1..25)) {
        run(steps);
    }
}

/// Counts what arrives, per queue.
#[derive(Default)]
struct Listener {
    seen: Mutex<BTreeMap<i32, i64>>,
    arrivals: AtomicI64,
}

impl ArrivalListener for Listener {
    fn arrived(&self, batch: &[Arrival]) {
        let mut seen = self.seen.lock().unwrap();
        for arrival in batch {
            assert_eq!(&*arrival.topic, "A");
            let newest = seen.entry(arrival.queue_id).or_default();
            *newest = (*newest).max(arrival.max_queue_offset);
            self.arrivals.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[test]
fn readers_see_dense_whole_messages_while_writers_write() {
    const WRITERS: usize = 3;
    const BATCHES: usize = 150;
    let directory = tempfile::tempdir().unwrap();
    let mut config = small_config(directory.path());
    config.commit_log_file_bytes = 64 * 1024;
    config.flush_interval_consume_queue_ms = 5;
    config.flush_interval_commit_log_ms = 5;
    config.flush_disk_type = FlushDiskType::Sync;
    let (store, _) = Store::open(config, common::lively()).unwrap();
    let listener = Arc::new(Listener::default());
    store.set_arrival_listener(Arc::clone(&listener) as _);
    let writing = AtomicBool::new(true);
    let durable = Arc::new(AtomicI64::new(0));
    let appended = AtomicI64::new(0);

    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (store, durable, appended) = (&store, &durable, &appended);
                scope.spawn(move || {
                    let mut batch = store.new_batch();
                    for n in 0..BATCHES {
                        batch.clear();
                        for part in 0..1 + n % 7 {
                            let body = vec![writer as u8; 20 + (n * 13 + part) % 400];
                            batch.push(&message("A", (n + part) as i32 % 4, &body)).unwrap();
                        }
                        let outcome = store.append(&mut batch).unwrap();
                        appended.fetch_add(outcome.appended as i64, Ordering::SeqCst);
                        let durable = Arc::clone(durable);
                        let count = outcome.appended as i64;
                        store.on_durable(
                            outcome.end_physical_offset,
                            Box::new(move |outcome| {
                                assert_eq!(outcome, DurableOutcome::Durable);
                                durable.fetch_add(count, Ordering::SeqCst);
                            }),
                        );
                    }
                })
            })
            .collect();
        for queue_id in 0..4 {
            let (store, writing) = (&store, &writing);
            scope.spawn(move || {
                let mut from = 0;
                loop {
                    let more = writing.load(Ordering::SeqCst);
                    let result = get(store, "A", queue_id, from);
                    if result.status == GetStatus::Found {
                        for slice in &result.messages {
                            for record in record::iter(slice) {
                                let record = record.unwrap();
                                assert!(record.body_matches_crc());
                                assert_eq!(record.queue_offset, from);
                                from += 1;
                            }
                        }
                        assert_eq!(from, result.next_begin_offset);
                    } else if !more {
                        break;
                    }
                }
                assert_eq!(from, store.max_queue_offset("A", queue_id));
            });
        }
        for writer in writers {
            writer.join().unwrap();
        }
        writing.store(false, Ordering::SeqCst);
    });

    let total = appended.load(Ordering::SeqCst);
    let queues: i64 = (0..4).map(|queue_id| store.max_queue_offset("A", queue_id)).sum();
    assert_eq!(queues, total);
    assert_eq!(listener.arrivals.load(Ordering::SeqCst), total);
    for (queue_id, newest) in &*listener.seen.lock().unwrap() {
        assert_eq!(*newest, store.max_queue_offset("A", *queue_id));
    }
    // The last group is on its way: a flush behind it answers it.
    store.flush().unwrap();
    while durable.load(Ordering::SeqCst) < total {
        std::thread::yield_now();
    }
    store.shutdown().unwrap();
    drop(store);
    let (store, report) = {
        let mut config = small_config(directory.path());
        config.commit_log_file_bytes = 64 * 1024;
        Store::open(config, common::quiet()).unwrap()
    };
    assert!(report.clean && report.bytes_cut == 0, "{report}");
    let queues: i64 = (0..4).map(|queue_id| bodies(&store, "A", queue_id).len() as i64).sum();
    assert_eq!(queues, total);
}

#[test]
fn reads_keep_to_their_limits_and_merge_neighbours() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    for n in 0..40u8 {
        append(&store, "A", 0, &[n; 100]);
    }
    let read = |from, count_max, bytes_max| {
        let limits = GetLimits { count_max, bytes_max };
        store.get_messages("A", 0, from, limits, &MatchAll).unwrap()
    };
    let all = read(0, 100, 1 << 20);
    assert_eq!(all.message_count, 8, "one file of the queue holds eight");
    assert_eq!(all.messages.len(), 1, "they lie side by side");
    assert_eq!(read(0, 3, 1 << 20).message_count, 3);
    let size = all.bytes / 8;
    assert_eq!(read(0, 32, size * 2 + size / 2).message_count, 2);
    assert_eq!(read(0, 32, 0).message_count, 1, "the first always fits");
    let across: Vec<_> = (0..40)
        .step_by(8)
        .map(|from| read(from, 32, 1 << 20))
        .map(|result| (result.message_count, result.messages.len()))
        .collect();
    assert!(across.iter().all(|(count, _)| *count == 8));
    assert!(across.iter().any(|(_, slices)| *slices == 2), "a roll of the log splits a slice");

    let empty = |from| {
        let result = read(from, 32, 1 << 20);
        (result.status, result.next_begin_offset)
    };
    assert_eq!(empty(40), (GetStatus::OffsetOverflowOne, 40));
    assert_eq!(empty(41), (GetStatus::OffsetOverflowBadly, 40));
    assert_eq!(empty(i64::MAX), (GetStatus::OffsetOverflowBadly, 40));
    assert_eq!(empty(-1), (GetStatus::OffsetTooSmall, 0));
    assert_eq!(empty(i64::MIN), (GetStatus::OffsetTooSmall, 0));
    let none = store.get_messages("A", 1, 5, common::LIMITS, &MatchAll).unwrap();
    assert_eq!((none.status, none.next_begin_offset), (GetStatus::NoMatchedLogicQueue, 0));
}

struct Every(i64);

impl QueueFilter for Every {
    fn matches_tags_code(&self, tags_code: i64) -> bool {
        tags_code == self.0
    }
}

#[test]
fn a_filter_that_passes_nothing_still_moves_on() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    for _ in 0..20 {
        append(&store, "A", 0, b"x");
    }
    let wanted = Every(12345);
    let mut from = 0;
    for next in [8, 16, 20] {
        let result = store.get_messages("A", 0, from, common::LIMITS, &wanted).unwrap();
        assert_eq!((result.status, result.next_begin_offset), (GetStatus::NoMatchedMessage, next));
        from = next;
    }
    let tag = Every(rocketmq_protocol::hash::tags_code("TagA"));
    let result = store.get_messages("A", 0, 0, common::LIMITS, &tag).unwrap();
    assert_eq!((result.status, result.message_count), (GetStatus::Found, 8));
}

#[test]
fn offsets_are_found_by_time_with_rocketmqs_edges() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(0));
    let environment = Environment { clock: Arc::clone(&clock) as _, ..common::quiet() };
    let (store, _) = Store::open(small_config(directory.path()), environment).unwrap();
    // Offsets 0..30, three messages each 100 ms; then the clock steps back and time stands still.
    for n in 0..30 {
        clock.set(1_000 + n / 3 * 100);
        append(&store, "A", 0, b"x");
    }
    clock.set(5);
    append(&store, "A", 0, b"x");
    let find = |time, boundary| store.queue_offset_by_time("A", 0, time, boundary).unwrap();
    assert_eq!(find(1_100, Boundary::Lower), 3, "equal times: the earliest");
    assert_eq!(find(1_100, Boundary::Upper), 5, "equal times: the latest");
    assert_eq!(find(1_150, Boundary::Lower), 6);
    assert_eq!(find(1_150, Boundary::Upper), 5);
    assert_eq!(find(999, Boundary::Lower), 0);
    assert_eq!(find(999, Boundary::Upper), 0);
    assert_eq!(find(9_999, Boundary::Lower), 31, "newer than all: behind the last");
    assert_eq!(find(9_999, Boundary::Upper), 30);
    assert_eq!(store.store_time_at("A", 0, 30).unwrap(), Some(1_900), "never back");
    assert_eq!(store.queue_offset_by_time("B", 0, 5, Boundary::Lower).unwrap(), 0);
    assert_eq!(store.earliest_store_time("A", 0).unwrap(), Some(1_000));
    assert_eq!(store.earliest_message_time(), Some(1_000));
}

#[test]
fn appends_are_refused_after_shutdown_and_reads_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(small_config(directory.path()), common::lively()).unwrap();
    append(&store, "A", 0, b"one");
    store.shutdown().unwrap();
    store.shutdown().unwrap();
    let mut batch = store.new_batch();
    batch.push(&message("A", 0, b"two")).unwrap();
    let error = store.append(&mut batch).unwrap_err().to_string();
    assert_eq!(error, "store is not writable: the store is shut down");
    assert_eq!(bodies(&store, "A", 0), [b"one"]);
}
