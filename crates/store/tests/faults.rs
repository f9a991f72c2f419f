//! What happens when the operating system refuses a call: a full disk, a broken one.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::faulty::Faulty;
use common::{append, bodies, message, open, small_config};
use rocketmq_store::{AppendError, DurableOutcome, Environment, Refusal, Store};

fn open_faulty(root: &Path, threads: bool) -> (Arc<Store>, Faulty) {
    let faulty = Faulty::default();
    let environment =
        Environment { file_system: Arc::new(faulty.clone()), threads, ..Environment::default() };
    let (store, _) = Store::open(small_config(root), environment).unwrap();
    (store, faulty)
}

fn try_append(store: &Store, body: &[u8]) -> Result<i64, AppendError> {
    let mut batch = store.new_batch();
    batch.push(&message("A", 0, body)).unwrap();
    store.append(&mut batch)?;
    batch.result(0).map(|result| result.queue_offset)
}

fn set(fault: &AtomicBool, value: bool) {
    fault.store(value, Ordering::SeqCst);
}

#[test]
fn a_full_disk_at_creation_refuses_and_resumes() {
    for fault in ["create", "allocate"] {
        let directory = tempfile::tempdir().unwrap();
        let (store, faulty) = open_faulty(directory.path(), false);
        faulty.concern("commitlog");
        let fault = if fault == "create" { &faulty.0.create } else { &faulty.0.allocate };
        assert_eq!(try_append(&store, &[1; 2000]).unwrap(), 0);
        assert_eq!(try_append(&store, &[2; 1000]).unwrap(), 1);
        set(fault, true);
        for _ in 0..3 {
            let error = try_append(&store, &[3; 2000]).unwrap_err();
            assert!(matches!(error, AppendError::CreateFile(_)), "{error}");
            assert!(error.to_string().contains("00000000000000004096"), "{error}");
        }
        set(fault, false);
        assert_eq!(try_append(&store, &[4; 2000]).unwrap(), 2);
        assert_eq!(bodies(&store, "A", 0), [vec![1; 2000], vec![2; 1000], vec![4; 2000]]);
        drop(store);
        let (store, report) = open(directory.path());
        assert_eq!(report.bytes_cut, 0, "{report}");
        assert_eq!(bodies(&store, "A", 0).len(), 3);
    }
}

#[test]
fn a_failed_write_counts_for_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (store, faulty) = open_faulty(directory.path(), false);
    faulty.concern("commitlog");
    assert_eq!(try_append(&store, b"one").unwrap(), 0);
    set(&faulty.0.write, true);
    let mut batch = store.new_batch();
    for queue_id in [0, 1, 0, 1] {
        batch.push(&message("A", queue_id, b"same")).unwrap();
    }
    let error = store.append(&mut batch).unwrap_err();
    assert!(matches!(error, AppendError::Write(_)), "{error}");
    assert!(matches!(batch.result(0), Err(AppendError::Write(_))));
    assert_eq!(store.max_queue_offset("A", 0), 1);
    set(&faulty.0.write, false);
    // Ends where the second of the half-written records began.
    let mut batch = store.new_batch();
    batch.push(&message("B", 5, b"same")).unwrap();
    store.append(&mut batch).unwrap();
    assert_eq!(try_append(&store, b"two").unwrap(), 1);
    drop(store);
    let (store, report) = open(directory.path());
    assert_eq!(report.bytes_cut, 0, "{report}");
    assert_eq!(bodies(&store, "A", 0), [b"one", b"two"]);
    assert_eq!(bodies(&store, "A", 1).len(), 0);
    assert_eq!(bodies(&store, "B", 5), [b"same"]);
}

#[test]
fn a_failed_write_that_cannot_be_wiped_is_final() {
    let directory = tempfile::tempdir().unwrap();
    let (store, faulty) = open_faulty(directory.path(), false);
    faulty.concern("commitlog");
    try_append(&store, b"one").unwrap();
    set(&faulty.0.write, true);
    set(&faulty.0.zero, true);
    assert!(matches!(try_append(&store, b"two").unwrap_err(), AppendError::Write(_)));
    set(&faulty.0.write, false);
    set(&faulty.0.zero, false);
    let error = try_append(&store, b"three").unwrap_err();
    assert!(matches!(error, AppendError::Refused(Refusal::WriteFailed(_))), "{error}");
    assert_eq!(bodies(&store, "A", 0), [b"one"], "reading goes on");
    drop(store);
    let (store, _) = open(directory.path());
    assert_eq!(bodies(&store, "A", 0), [b"one"]);
    assert_eq!(append(&store, "A", 0, b"two"), 1);
}

#[test]
fn a_failed_roll_in_the_middle_keeps_what_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let (store, faulty) = open_faulty(directory.path(), false);
    faulty.concern("commitlog");
    let mut batch = store.new_batch();
    for n in 0..3u8 {
        batch.push(&message("A", 0, &[n; 1500])).unwrap();
    }
    append(&store, "A", 0, b"first");
    set(&faulty.0.allocate, true);
    let outcome = store.append(&mut batch).unwrap();
    assert_eq!(outcome.appended, 2);
    assert_eq!(
        (batch.result(0).unwrap().queue_offset, batch.result(1).unwrap().queue_offset),
        (1, 2)
    );
    assert!(matches!(batch.result(2), Err(AppendError::CreateFile(_))));
    set(&faulty.0.allocate, false);
    assert_eq!(append(&store, "A", 0, b"last"), 3);
    assert_eq!(bodies(&store, "A", 0).len(), 4);
}

#[test]
fn a_failed_sync_is_final() {
    let directory = tempfile::tempdir().unwrap();
    let (store, faulty) = open_faulty(directory.path(), true);
    faulty.concern("commitlog");
    try_append(&store, b"one").unwrap();
    let wait = |store: &Store| {
        let (sender, receiver) = std::sync::mpsc::channel();
        let end = store.max_physical_offset();
        store.on_durable(end, Box::new(move |outcome| sender.send(outcome).unwrap()));
        receiver.recv_timeout(std::time::Duration::from_secs(60)).unwrap()
    };
    assert_eq!(wait(&store), DurableOutcome::Durable);
    assert_eq!(store.durable().0, store.max_physical_offset());
    set(&faulty.0.sync, true);
    try_append(&store, b"two").unwrap();
    assert!(matches!(wait(&store), DurableOutcome::Failed(_)));
    set(&faulty.0.sync, false);
    let syncs = faulty.0.syncs.load(Ordering::SeqCst);
    assert!(matches!(wait(&store), DurableOutcome::Failed(_)), "it is not tried again");
    assert!(store.flush().is_err());
    assert_eq!(faulty.0.syncs.load(Ordering::SeqCst), syncs);
    let error = try_append(&store, b"three").unwrap_err();
    assert!(matches!(error, AppendError::Refused(Refusal::SyncFailed(_))), "{error}");
    assert!(store.shutdown().is_err());
    assert!(directory.path().join("abort").exists(), "it must be recovered");
    drop(store);
    let (store, report) = open(directory.path());
    assert!(!report.clean);
    assert_eq!(bodies(&store, "A", 0), [b"one", b"two"]);
    assert_eq!(append(&store, "A", 0, b"three"), 2);
}

#[test]
fn a_full_disk_for_queues_refuses_and_resumes_without_a_hole() {
    let directory = tempfile::tempdir().unwrap();
    let (store, faulty) = open_faulty(directory.path(), false);
    faulty.concern("consumequeue");
    for n in 0..10u8 {
        try_append(&store, &[n]).unwrap();
    }
    for fault in [&faulty.0.create, &faulty.0.write] {
        set(fault, true);
        assert!(store.tick().is_err());
        assert_eq!(bodies(&store, "A", 0).len(), 10, "entries in memory are read");
        let error = try_append(&store, b"x").unwrap_err();
        assert!(matches!(error, AppendError::Refused(Refusal::ConsumeQueue(_))), "{error}");
        set(fault, false);
    }
    store.tick().unwrap();
    assert_eq!(try_append(&store, &[10]).unwrap(), 10);
    store.shutdown().unwrap();
    drop(store);
    let (store, report) = open(directory.path());
    assert_eq!((report.clean, report.queues_rebuilt), (true, 0));
    assert_eq!(bodies(&store, "A", 0).len(), 11);
}

#[test]
fn a_disk_over_the_warning_level_refuses_and_resumes_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let (store, faulty) = open_faulty(directory.path(), false);
    try_append(&store, b"one").unwrap();
    faulty.0.used_percent.store(91, Ordering::SeqCst);
    store.tick().unwrap();
    let error = try_append(&store, b"two").unwrap_err().to_string();
    assert!(error.contains("91 %") && error.contains("diskSpaceWarningLevelRatio"), "{error}");
    assert!(store.writable().is_err());
    assert_eq!(bodies(&store, "A", 0), [b"one"]);
    faulty.0.used_percent.store(90, Ordering::SeqCst);
    store.tick().unwrap();
    assert_eq!(try_append(&store, b"two").unwrap(), 1);
}

#[test]
fn old_files_go_by_age_or_by_need_and_minima_move() {
    let directory = tempfile::tempdir().unwrap();
    let (store, faulty) = open_faulty(directory.path(), false);
    for n in 0..40u8 {
        try_append(&store, &[n; 1000]).unwrap();
    }
    store.flush().unwrap();
    assert_eq!(store.remove_old_files(true).unwrap(), 0, "nothing has expired");
    let oldest = common::get(&store, "A", 0, 0).messages;

    faulty.0.used_percent.store(86, Ordering::SeqCst);
    store.tick().unwrap();
    assert!(store.min_physical_offset() > 0);
    let min = store.min_queue_offset("A", 0);
    assert!(min > 0);
    let first = store.physical_offset_of("A", 0, min).unwrap().unwrap();
    assert_eq!(first, store.min_physical_offset());
    let result = common::get(&store, "A", 0, 0);
    assert_eq!(result.status, rocketmq_store::GetStatus::OffsetTooSmall);
    assert_eq!(result.next_begin_offset, min);
    assert_eq!(bodies(&store, "A", 0).len() as i64, 40 - min);
    assert_eq!(&oldest[0][88..1088], &[0; 1000][..], "a slice outlives its file");

    faulty.0.used_percent.store(0, Ordering::SeqCst);
    drop(store);
    let (store, report) = open(directory.path());
    assert_eq!(report.queues_rebuilt, 0, "{report}");
    assert_eq!(store.min_queue_offset("A", 0), min);
    assert_eq!(bodies(&store, "A", 0).len() as i64, 40 - min);
    store.shutdown().unwrap();
    drop(store);
    // The queue is lost and its first messages are gone: it still begins where it did.
    std::fs::remove_dir_all(directory.path().join("consumequeue")).unwrap();
    let (store, _) = open(directory.path());
    assert_eq!((store.min_queue_offset("A", 0), store.max_queue_offset("A", 0)), (min, 40));
}

#[test]
fn expired_files_are_removed_at_their_hour() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::new(rocketmq_store::clock::ManualClock::new(0));
    let environment = Environment { clock: Arc::clone(&clock) as _, ..common::quiet() };
    let (store, _) = Store::open(small_config(directory.path()), environment).unwrap();
    for n in 0..20u8 {
        append(&store, "A", 0, &[n; 1000]);
    }
    let hour_ms = 3_600_000;
    let written_ms =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis()
            as i64;
    let at_hour =
        |hour: i64, days: i64| (written_ms / hour_ms / 24 + days) * 24 * hour_ms + hour * hour_ms;
    clock.set(at_hour(4, 1));
    store.tick().unwrap();
    assert_eq!(store.min_physical_offset(), 0, "72 hours have not passed");
    clock.set(at_hour(3, 6));
    store.tick().unwrap();
    assert_eq!(store.min_physical_offset(), 0, "it is not the hour");
    clock.set(at_hour(4, 6));
    store.tick().unwrap();
    assert_eq!(store.min_physical_offset(), store.max_physical_offset() / 4096 * 4096);
}
