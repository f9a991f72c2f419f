//! Queues whose messages are gone, files that are still read when they are removed, removal by
//! request.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::faulty::Faulty;
use common::{append, bodies, get, open, quiet, small_config};
use rocketmq_store::clock::ManualClock;
use rocketmq_store::{Environment, GetStatus, Store};

/// A store with a disk that can be made full.
fn open_full(root: &Path) -> (Arc<Store>, Faulty) {
    let faulty = Faulty::default();
    let environment = Environment { file_system: Arc::new(faulty.clone()), ..quiet() };
    (Store::open(small_config(root), environment).unwrap().0, faulty)
}

/// Removes all files of the log but the newest.
fn clean(store: &Store, faulty: &Faulty) {
    faulty.0.used_percent.store(86, Ordering::SeqCst);
    store.tick().unwrap();
    store.tick().unwrap();
    faulty.0.used_percent.store(0, Ordering::SeqCst);
    store.tick().unwrap();
}

fn queue_files(root: &Path, queue: &str) -> usize {
    std::fs::read_dir(root.join("consumequeue").join(queue)).map_or(0, Iterator::count)
}

/// `A-0` has 20 messages, all older than those of `B-0`, which keep the log going.
fn fill(store: &Store) {
    for n in 0..20 {
        append(store, "A", 0, &[n; 500]);
    }
    for n in 0..20 {
        append(store, "B", 0, &[n; 500]);
    }
    store.flush().unwrap();
}

#[test]
fn a_queue_whose_messages_are_all_gone_keeps_its_offsets() {
    let directory = tempfile::tempdir().unwrap();
    let (store, faulty) = open_full(directory.path());
    fill(&store);
    clean(&store, &faulty);
    assert_eq!((store.min_queue_offset("A", 0), store.max_queue_offset("A", 0)), (20, 20));
    assert_eq!(queue_files(directory.path(), "A/0"), 1, "the newest file stays");
    assert_eq!(get(&store, "A", 0, 3).status, GetStatus::OffsetTooSmall);
    assert_eq!(get(&store, "A", 0, 20).status, GetStatus::OffsetOverflowOne);
    store.shutdown().unwrap();
    drop(store);
    // The second time after a crash.
    for expected in [20, 21] {
        let (store, report) = open(directory.path());
        assert_eq!(report.bytes_cut, 0, "{report}");
        assert_eq!(store.max_queue_offset("A", 0), expected);
        assert_eq!(append(&store, "A", 0, b"next"), expected, "no offset is given twice");
        assert_eq!(get(&store, "A", 0, 3).next_begin_offset, 20);
    }
}

#[test]
fn queues_of_topics_that_are_no_more_go_when_their_messages_are_gone() {
    let directory = tempfile::tempdir().unwrap();
    let (store, faulty) = open_full(directory.path());
    fill(&store);
    append(&store, "A", 1, b"young");
    assert_eq!(store.remove_expired_queues("A").unwrap(), 0, "nothing is gone yet");
    clean(&store, &faulty);
    assert_eq!(store.remove_expired_queues("A").unwrap(), 1);
    assert_eq!(store.queues("A"), [1]);
    assert_eq!(queue_files(directory.path(), "A/0"), 0);
    assert_eq!(bodies(&store, "A", 1), [b"young"]);
    assert_eq!(store.remove_expired_queues("none").unwrap(), 0);
    for _ in 0..20 {
        append(&store, "B", 0, &[0; 500]);
    }
    clean(&store, &faulty);
    assert_eq!(store.remove_expired_queues("A").unwrap(), 1);
    assert!(!directory.path().join("consumequeue/A").exists());
    assert!(store.topics().iter().all(|topic| &**topic != "A"));
    drop(store);
    let (store, _) = open(directory.path());
    assert!(store.queues("A").is_empty(), "it does not come back");
}

#[test]
fn a_removed_file_stays_readable_for_who_holds_a_slice() {
    let directory = tempfile::tempdir().unwrap();
    let (store, faulty) = open_full(directory.path());
    fill(&store);
    let held = get(&store, "A", 0, 0).messages;
    clean(&store, &faulty);
    assert!(!directory.path().join("commitlog").join(format!("{:020}", 0)).exists());
    assert_eq!(store.removed_files_in_use(), held.len(), "a slice of each file");
    assert_eq!(&held[0][88..588], &[0; 500][..]);
    drop(held);
    assert_eq!(store.removed_files_in_use(), 0);
}

#[test]
fn expired_files_go_on_request_at_any_hour() {
    let directory = tempfile::tempdir().unwrap();
    let hour_ms = 3_600_000;
    let written_ms = i64::try_from(
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis(),
    )
    .unwrap();
    // Noon, long after the files were written.
    let noon = (written_ms / hour_ms / 24 + 10) * 24 * hour_ms + 12 * hour_ms;
    let environment = Environment { clock: Arc::new(ManualClock::new(noon)), ..quiet() };
    let (store, _) = Store::open(small_config(directory.path()), environment).unwrap();
    fill(&store);
    store.tick().unwrap();
    assert_eq!(store.min_physical_offset(), 0);
    store.remove_expired_files_soon();
    store.tick().unwrap();
    assert_eq!(store.min_physical_offset(), store.max_physical_offset() / 4096 * 4096);
    assert_eq!(store.min_queue_offset("A", 0), 20);
}

#[test]
fn queues_follow_the_log_even_if_they_could_not_at_first() {
    let directory = tempfile::tempdir().unwrap();
    let (store, faulty) = open_full(directory.path());
    fill(&store);
    // A file of the queue is gone, so it cannot be removed.
    let file = directory.path().join("consumequeue/A/0").join(format!("{:020}", 0));
    let kept = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    faulty.0.used_percent.store(86, Ordering::SeqCst);
    assert!(store.tick().is_err());
    assert!(store.min_queue_offset("B", 0) > 0, "the other queue does not wait");
    faulty.0.used_percent.store(0, Ordering::SeqCst);
    std::fs::write(&file, kept).unwrap();
    store.tick().unwrap();
    assert_eq!(store.min_queue_offset("A", 0), 20);
    assert_eq!(queue_files(directory.path(), "A/0"), 1);
    store.remove_expired_queue_files().unwrap();
}
