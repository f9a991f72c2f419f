//! When an asynchronous flush happens: timed, by pages, thoroughly; and files that are warmed up.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use common::faulty::Faulty;
use common::{append, lively, small_config};
use rocketmq_store::{Environment, FlushDiskType, Store, StoreConfig};

const NEVER_MS: u64 = 3_600_000;

fn open(root: &Path, change: impl FnOnce(&mut StoreConfig)) -> Arc<Store> {
    let mut config = small_config(root);
    config.flush_interval_commit_log_ms = NEVER_MS;
    config.flush_commit_log_thorough_interval_ms = NEVER_MS;
    change(&mut config);
    Store::open(config, lively()).unwrap().0
}

fn wait_until_durable(store: &Store) {
    let patience = Instant::now() + Duration::from_secs(20);
    while store.durable().0 < store.written().0 {
        assert!(Instant::now() < patience, "{store:?}");
        std::thread::yield_now();
    }
}

#[test]
fn the_next_sync_does_not_wait_until_those_of_the_last_one_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), |_| ());
    let patience = Duration::from_secs(20);
    let (let_go, held) = mpsc::channel::<()>();
    let (told, is_told) = mpsc::channel();
    append(&store, "A", 0, b"one");
    let slow = move |_| {
        told.send(()).unwrap();
        held.recv_timeout(patience).unwrap();
    };
    store.on_durable(store.written().0, Box::new(slow));
    is_told.recv_timeout(patience).unwrap();
    append(&store, "A", 0, b"two");
    store.on_durable(store.written().0, Box::new(|_| ()));
    wait_until_durable(&store);
    let_go.send(()).unwrap();
}

/// Twenty pages.
fn append_pages(store: &Store) {
    for _ in 0..80 {
        append(store, "A", 0, &[1; 1000]);
    }
}

#[test]
fn pages_wake_the_real_time_flush_and_not_the_timed_one() {
    let [timed, real_time] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let timed = open(timed.path(), |config| config.flush_commit_log_timed = true);
    let real_time = open(real_time.path(), |config| config.flush_commit_log_timed = false);
    append_pages(&timed);
    append_pages(&real_time);
    let patience = Instant::now() + Duration::from_secs(20);
    // The last pages may be fewer than make a flush.
    while real_time.durable().0 == 0 {
        assert!(Instant::now() < patience, "{real_time:?}");
        std::thread::yield_now();
    }
    assert_eq!(timed.durable().0, 0, "its interval is not over");
}

#[test]
fn a_timed_flush_waits_for_pages_until_the_thorough_interval() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), |config| {
        config.flush_interval_commit_log_ms = 1;
        config.flush_commit_log_least_pages = 1;
    });
    append_pages(&store);
    let left = || store.written().0 - store.durable().0;
    let patience = Instant::now() + Duration::from_secs(20);
    while left() >= 4096 {
        assert!(Instant::now() < patience, "{store:?}");
        std::thread::yield_now();
    }
    drop(store);

    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), |config| {
        config.flush_interval_commit_log_ms = 1;
        config.flush_commit_log_least_pages = 1_000_000;
        config.flush_commit_log_thorough_interval_ms = 1;
    });
    append(&store, "A", 0, b"one");
    wait_until_durable(&store);
}

#[test]
fn a_warmed_up_file_is_written_and_synced_before_it_is_used() {
    let directory = tempfile::tempdir().unwrap();
    let faulty = Faulty::default();
    let environment = Environment { file_system: Arc::new(faulty.clone()), ..common::quiet() };
    let mut config = small_config(directory.path());
    config.warm_mapped_file_enable = true;
    config.commit_log_file_bytes = 1 << 20;
    config.flush_disk_type = FlushDiskType::Sync;
    config.flush_least_pages_when_warm_mapped_file = 64;
    let (store, _) = Store::open(config, environment).unwrap();
    let before = faulty.0.syncs.load(Ordering::SeqCst);
    append(&store, "A", 0, b"one");
    // Four times 256 KiB, and once at the end.
    assert_eq!(faulty.0.syncs.load(Ordering::SeqCst) - before, 5);
    assert_eq!(common::bodies(&store, "A", 0), [b"one"]);
}
