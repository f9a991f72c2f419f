//! A log whose end is not confirmed: readers do not see it, and it may be cut.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod common;

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use common::faulty::Faulty;
use common::{append, bodies, get, lively, message, open, quiet, small_config};
use rocketmq_protocol::message::batch;
use rocketmq_protocol::message::record::NewMessage;
use rocketmq_store::{
    AppendError, Arrival, ArrivalListener, Boundary, DurableOutcome, Environment, GetStatus,
    ProbeError, Refusal, Store, TruncateError,
};

/// What a test may have to wait for.
const PATIENCE: Duration = Duration::from_secs(20);

fn text(n: usize) -> Vec<u8> {
    format!("message {n} {}", "x".repeat(n * 37 % 300)).into_bytes()
}

/// Appends messages `from..to` to queues 0 and 1 of topic A, each with a key.
fn fill(store: &Store, from: usize, to: usize) {
    for n in from..to {
        let mut batch = store.new_batch();
        let key = format!("KEYS\x01k{n}\x02");
        let (body, properties) = (text(n), [key.as_bytes()]);
        let plain = message("A", (n % 2) as i32, &body);
        batch.push(&NewMessage { properties: &properties, ..plain }).unwrap();
        store.append(&mut batch).unwrap();
    }
}

fn append_inner_batch(store: &Store, count: usize) {
    let mut body = Vec::new();
    for _ in 0..count {
        let part = batch::BatchMessage { flag: 0, body: b"part", properties: b"" };
        batch::encode(&mut body, &part).unwrap();
    }
    let properties = [&b"UNIQ_KEY\x01batch\x02"[..]];
    let mut batch = store.new_batch();
    let plain = message("Batches", 0, &body);
    batch.push_inner_batch(&NewMessage { properties: &properties, ..plain }).unwrap();
    store.append(&mut batch).unwrap();
}

fn found(store: &Store, n: usize) -> bool {
    let key = format!("k{n}");
    let found = store.query_messages("A", &key, 0..=i64::MAX, 9, usize::MAX).unwrap().messages;
    assert!(found.len() <= 1, "{n} is there {} times", found.len());
    !found.is_empty()
}

/// Takes what the other one has behind the end.
fn copy(from: &Store, to: &Store) {
    while let Some(piece) = from.log_bytes(to.written().0, 1 << 20) {
        assert_eq!(to.append_copy(to.written().0, &piece).unwrap(), piece.len());
    }
}

fn assert_same(one: &Store, other: &Store) {
    assert_eq!(one.written(), other.written());
    for queue_id in [0, 1] {
        assert_eq!(bodies(one, "A", queue_id), bodies(other, "A", queue_id));
    }
    let mut offset = 0;
    while let Some(piece) = one.log_bytes(offset, 1 << 20) {
        assert_eq!(other.log_bytes(offset, 1 << 20).as_deref(), Some(&piece[..]));
        offset += piece.len() as i64;
    }
}

fn open_appointed(root: &Path) -> Arc<Store> {
    let (store, _) = open(root);
    store.show_confirmed_only().unwrap();
    store
}

#[derive(Default)]
struct Heard {
    arrivals: Mutex<Vec<(i32, i64)>>,
    grown: Mutex<usize>,
}

impl ArrivalListener for Heard {
    fn arrived(&self, batch: &[Arrival]) {
        let said = batch.iter().map(|arrival| (arrival.queue_id, arrival.max_queue_offset));
        self.arrivals.lock().unwrap().extend(said);
    }

    fn log_grew(&self) {
        *self.grown.lock().unwrap() += 1;
    }
}

#[test]
fn nobody_sees_what_is_not_confirmed() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_appointed(directory.path());
    let heard = Arc::new(Heard::default());
    store.set_arrival_listener(heard.clone());
    fill(&store, 0, 8);
    append_inner_batch(&store, 4);
    append_inner_batch(&store, 3);
    assert_eq!(*heard.grown.lock().unwrap(), 10, "those who copy the log are told at once");
    assert!(heard.arrivals.lock().unwrap().is_empty());
    assert_eq!(get(&store, "A", 0, 0).status, GetStatus::NoMessageInQueue);
    assert_eq!((store.max_queue_offset("A", 0), store.confirmed().0), (0, 0));

    // Of queue 0 two are shown, of queue 1 one.
    let third = store.written_message_at(0).unwrap().len() as i64;
    let third = third + store.written_message_at(third).unwrap().len() as i64;
    let place = third;
    let third_end = third + store.written_message_at(third).unwrap().len() as i64;
    store.confirm(third_end);
    assert_eq!(store.confirmed().0, third_end);
    assert_eq!(*heard.arrivals.lock().unwrap(), [(0, 1), (1, 1), (0, 2)]);
    assert_eq!((store.max_queue_offset("A", 0), store.max_queue_offset("A", 1)), (2, 1));
    assert_eq!((bodies(&store, "A", 0).len(), bodies(&store, "A", 1).len()), (2, 1));
    assert_eq!(get(&store, "A", 1, 1).status, GetStatus::OffsetOverflowOne);
    assert_eq!(get(&store, "A", 1, 2).status, GetStatus::OffsetOverflowBadly);
    assert!(found(&store, 2) && !found(&store, 3));
    assert!(store.message_at(place).is_some() && store.message_at(third_end).is_none());
    assert!(store.written_message_at(third_end).is_some());
    assert_eq!(store.physical_offset_of("A", 0, 1).unwrap(), Some(place));
    assert_eq!(store.physical_offset_of("A", 1, 1).unwrap(), None);
    assert!(store.is_queued("A", 1, 1, third_end).unwrap());
    assert!(!store.is_queued("A", 1, 1, place).unwrap());
    assert_eq!(store.queue_entries("A", 0, 0, 100).unwrap().unwrap().len(), 2);
    let at_time = |boundary| store.queue_offset_by_time("A", 0, i64::MAX, boundary).unwrap();
    assert_eq!((at_time(Boundary::Lower), at_time(Boundary::Upper)), (2, 1));
    assert_eq!(store.max_queue_offset("Batches", 0), 0);

    // It never goes back, and may run ahead of a log that is being copied.
    store.confirm(0);
    assert_eq!(store.confirmed().0, third_end);
    let written = store.written().0;
    let last = store.written_message_at(written - 1).map(|record| record.len());
    assert_eq!(last, None, "no record begins there");
    store.confirm(i64::MAX);
    assert_eq!(store.confirmed().0, written);
    assert_eq!((store.max_queue_offset("Batches", 0), bodies(&store, "A", 1).len()), (7, 4));
    fill(&store, 8, 9);
    assert_eq!(heard.arrivals.lock().unwrap().last(), Some(&(0, 5)));
}

#[test]
fn a_batch_is_shown_as_a_whole() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_appointed(directory.path());
    append_inner_batch(&store, 4);
    let first = store.written().0;
    append_inner_batch(&store, 3);
    store.confirm(first);
    assert_eq!(store.max_queue_offset("Batches", 0), 4);
    let read = get(&store, "Batches", 0, 0);
    assert_eq!((read.message_count, read.next_begin_offset, read.max_offset), (4, 4, 4));
    store.confirm(store.written().0 - 1);
    assert_eq!(store.max_queue_offset("Batches", 0), 4, "a part of a record shows nothing");
}

#[test]
fn what_was_confirmed_is_known_to_the_next_run() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_appointed(directory.path());
    fill(&store, 0, 5);
    let confirmed = store.written().0;
    store.confirm(confirmed);
    store.flush().unwrap();
    fill(&store, 5, 9);
    drop(store);
    let (store, _) = open(directory.path());
    assert_eq!(bodies(&store, "A", 0).len(), 5, "where nobody confirms all is shown");
    assert_eq!(store.show_confirmed_only().unwrap().0, confirmed);
    assert_eq!(bodies(&store, "A", 0).len(), 3);
    store.take_copies_only();
    let error = store.truncate_to(confirmed - 1).unwrap_err();
    assert!(matches!(error, TruncateError::Confirmed { .. }), "{error}");
}

#[test]
fn a_log_that_lost_what_was_confirmed_confirms_less() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_appointed(directory.path());
    fill(&store, 0, 5);
    let kept = store.written().0;
    fill(&store, 5, 9);
    store.confirm(store.written().0);
    store.flush().unwrap();
    drop(store);
    // The last messages are lost.
    let path = directory.path().join("commitlog/00000000000000000000");
    let mut file = std::fs::read(&path).unwrap();
    file[kept as usize..].fill(0);
    std::fs::write(&path, file).unwrap();
    for _ in 0..2 {
        let (store, report) = open(directory.path());
        assert_eq!(report.log_end, kept);
        assert_eq!(store.show_confirmed_only().unwrap().0, kept);
    }
}

/// Two that were the same to some place, and went apart.
fn forked(directory: &Path) -> (Arc<Store>, Arc<Store>, i64) {
    let new = open_appointed(&directory.join("new"));
    let old = open_appointed(&directory.join("old"));
    fill(&old, 0, 40);
    append_inner_batch(&old, 4);
    new.take_copies_only();
    copy(&old, &new);
    let fork = new.written().0;
    for store in [&old, &new] {
        store.confirm(fork);
    }
    new.take_messages();
    fill(&new, 100, 130);
    // More than a file of the log, of the queues and of the index.
    fill(&old, 200, 290);
    append_inner_batch(&old, 5);
    append(&old, "OnlyHere", 3, b"surplus");
    old.tick().unwrap();
    (new, old, fork)
}

#[test]
fn a_cut_goes_back_to_what_both_have_and_copying_goes_on() {
    for flushed in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let (new, old, fork) = forked(directory.path());
        if flushed {
            old.flush().unwrap();
        }
        let written = old.written().0;
        let files = |store: &Store| {
            let root = store.root_dir().join("commitlog");
            std::fs::read_dir(root).unwrap().count() as i64
        };
        assert!(files(&old) > fork / 4096 + 2);
        old.take_copies_only();
        // Within the first record that goes.
        let cut = old.truncate_to(fork + 50).unwrap();
        assert_eq!((cut.end, cut.bytes as i64), (fork, written - fork));
        assert_eq!(cut.messages, 90 + 5 + 1);
        assert_eq!((old.written().0, old.dispatched().0), (fork, fork));
        assert_eq!(old.durable().0, if flushed { fork } else { 0 });
        assert_eq!(files(&old), fork / 4096 + 1);
        assert_eq!(old.max_queue_offset("Batches", 0), 4);
        assert!(!old.topics().iter().any(|topic| &**topic == "OnlyHere"));
        assert_eq!(old.truncate_to(fork).unwrap().bytes, 0);
        old.tick().unwrap();

        copy(&new, &old);
        old.confirm(new.written().0);
        new.confirm(new.written().0);
        assert_same(&new, &old);
        for n in [0, 39, 100, 129] {
            assert!(found(&old, n), "{n}");
        }
        for n in [200, 201, 289] {
            assert!(!found(&old, n), "{n}");
        }

        // It may be master next.
        old.take_messages();
        let next = old.max_queue_offset("A", 0);
        assert_eq!(append(&old, "A", 0, b"as master"), next);
        append_inner_batch(&old, 2);
        old.confirm(old.written().0);
        assert_eq!(old.max_queue_offset("Batches", 0), 6);
        if flushed {
            old.shutdown().unwrap();
        }
        drop(old);
        let (old, report) = open(&directory.path().join("old"));
        assert_eq!((report.clean, report.bytes_cut, report.queues_rebuilt), (flushed, 0, 0));
        assert_eq!(old.max_queue_offset("A", 0), next + 1);
        assert!(found(&old, 129) && !found(&old, 289));
    }
}

#[test]
fn a_log_is_cut_where_a_file_begins_and_at_its_front() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_appointed(directory.path());
    fill(&store, 0, 60);
    store.take_copies_only();
    assert!(store.written().0 > 3 * 4096);
    let cut = store.truncate_to(2 * 4096).unwrap();
    assert_eq!((cut.end, store.min_physical_offset()), (2 * 4096, 0));
    // The end of the file in front is a blank, and goes with it.
    let cut = store.truncate_to(2 * 4096 - 1).unwrap();
    assert!(cut.end < 2 * 4096 && cut.messages == 0, "{cut:?}");
    let cut = store.truncate_to(0).unwrap();
    assert_eq!((cut.end, store.written().0, store.max_queue_offset("A", 0)), (0, 0, 0));
    assert!(store.topics().is_empty());
    store.take_messages();
    fill(&store, 0, 9);
    store.confirm(store.written().0);
    assert_eq!(
        (bodies(&store, "A", 0).len(), found(&store, 8), found(&store, 9)),
        (5, true, false)
    );
    drop(store);
    let (store, report) = open(directory.path());
    assert_eq!((report.bytes_cut, bodies(&store, "A", 1).len()), (0, 4));
}

#[test]
fn a_deletion_that_was_cut_hides_nothing_that_comes() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_appointed(directory.path());
    fill(&store, 0, 10);
    let fork = store.written().0;
    fill(&store, 10, 20);
    assert!(store.delete_topic("A").unwrap());
    store.take_copies_only();
    store.truncate_to(fork).unwrap();
    store.take_messages();
    fill(&store, 30, 34);
    drop(store);
    let (store, _) = open(directory.path());
    assert_eq!(bodies(&store, "A", 0), [text(30), text(32)]);
}

#[test]
fn only_a_copy_is_cut_and_never_what_is_confirmed() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    fill(&store, 0, 10);
    let written = store.written().0;
    let error = store.truncate_to(0).unwrap_err();
    assert!(matches!(error, TruncateError::Refused(Refusal::NoCopy)), "{error}");
    store.take_copies_only();
    let error = store.truncate_to(0).unwrap_err();
    assert!(matches!(error, TruncateError::Confirmed { to: 0, .. }), "all is: {error}");
    for outside in [-1, written + 1, i64::MAX] {
        let error = store.truncate_to(outside).unwrap_err();
        assert!(matches!(error, TruncateError::Outside { start: 0, .. }), "{error}");
    }
    assert_eq!((store.written().0, bodies(&store, "A", 0).len()), (written, 5));
}

#[test]
fn who_still_sends_the_end_of_the_log_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_appointed(directory.path());
    fill(&store, 0, 10);
    let whole = store.log_bytes(0, 1 << 20).unwrap();
    let before = whole.to_vec();
    store.take_copies_only();
    let cutting = Arc::clone(&store);
    let cut = std::thread::spawn(move || cutting.truncate_to(0));
    let begun = Instant::now();
    while store.log_bytes(0, 1 << 20).is_some() {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    assert_eq!(whole, before, "it is not changed under who holds it");
    assert!(!cut.is_finished());
    drop(whole);
    assert_eq!(cut.join().unwrap().unwrap().end, 0);
}

#[test]
fn who_waited_for_what_went_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_appointed(directory.path());
    fill(&store, 0, 4);
    let fork = store.written().0;
    fill(&store, 4, 8);
    let (sender, told) = mpsc::channel();
    for end in [fork, store.written().0] {
        let sender = sender.clone();
        store.on_durable(end, Box::new(move |outcome| sender.send((end, outcome)).unwrap()));
    }
    store.take_copies_only();
    store.truncate_to(fork).unwrap();
    let (end, outcome) = told.recv_timeout(PATIENCE).unwrap();
    assert!(end > fork && matches!(outcome, DurableOutcome::Failed(_)), "{outcome:?}");
    store.flush().unwrap();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), (fork, DurableOutcome::Durable));
}

#[test]
fn each_side_takes_what_is_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_appointed(directory.path());
    fill(&store, 0, 4);
    let mut batch = store.new_batch();
    batch.push(&message("A", 0, b"x")).unwrap();
    let piece = store.log_bytes(0, 1 << 20).unwrap();
    let mut refused = |append: bool| {
        let error = match append {
            true => store.append(&mut batch).unwrap_err(),
            false => store.append_copy(store.written().0, &piece).unwrap_err(),
        };
        let AppendError::Refused(refusal) = error else { panic!("{error}") };
        refusal
    };
    assert_eq!(refused(false), Refusal::NoCopy);
    store.take_copies_only();
    assert_eq!(refused(true), Refusal::Copy);
    store.take_nothing();
    assert_eq!((refused(true), refused(false)), (Refusal::Paused, Refusal::Paused));
    store.take_messages();
    assert_eq!(append(&store, "A", 0, b"next"), 2);
}

#[test]
fn the_append_path_is_proven_without_a_message() {
    let directory = tempfile::tempdir().unwrap();
    let faulty = Faulty::default();
    let environment = Environment { file_system: Arc::new(faulty.clone()), ..lively() };
    let (store, _) = Store::open(small_config(directory.path()), environment.clone()).unwrap();
    store.prove_append_path(PATIENCE).unwrap();
    fill(&store, 0, 4);
    let written = store.written();
    store.prove_append_path(PATIENCE).unwrap();
    assert_eq!(store.written(), written);
    store.flush().unwrap();

    // A disk that hangs: in time, and again while the first attempt hangs still.
    let hang = faulty.0.hang.lock().unwrap();
    let begun = Instant::now();
    for _ in 0..2 {
        let error = store.prove_append_path(Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, ProbeError::Stuck(_)), "{error}");
    }
    assert!(begun.elapsed() < PATIENCE);
    drop(hang);
    let begun = Instant::now();
    while store.prove_append_path(PATIENCE).is_err() {
        assert!(begun.elapsed() < PATIENCE, "it works again");
    }

    faulty.concern("commitlog");
    faulty.0.sync.store(true, Ordering::SeqCst);
    let error = store.prove_append_path(PATIENCE).unwrap_err();
    assert!(matches!(error, ProbeError::Store(_)), "{error}");
    let refused = store.writable().unwrap_err();
    assert!(matches!(refused, Refusal::SyncFailed(_)), "{refused}");
    let error = store.prove_append_path(PATIENCE).unwrap_err();
    assert!(matches!(error, ProbeError::Refused(_)), "{error}");
    faulty.0.sync.store(false, Ordering::SeqCst);
    drop(store);
    let (store, report) = Store::open(small_config(directory.path()), quiet()).unwrap();
    assert_eq!((report.bytes_cut, bodies(&store, "A", 0).len()), (0, 2));
}
