//! `transientStorePoolEnable`: appends wait in a buffer, and what is committed is as any message.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod common;

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};

use common::faulty::Faulty;
use common::{append, bodies, lively, message, quiet, small_config};
use rocketmq_store::{
    AppendError, Arrival, ArrivalListener, DurableOutcome, Environment, FlushDiskType, Refusal,
    Store, StoreConfig,
};

fn config(root: &Path) -> StoreConfig {
    let mut config = small_config(root);
    config.transient_store_pool_enable = true;
    config
}

fn open(root: &Path) -> Arc<Store> {
    Store::open(config(root), quiet()).unwrap().0
}

struct Heard(mpsc::Sender<Arrival>);

impl ArrivalListener for Heard {
    fn arrived(&self, batch: &[Arrival]) {
        for arrival in batch {
            self.0.send(arrival.clone()).unwrap();
        }
    }
}

#[test]
fn readers_queues_and_listeners_see_committed_messages_alone() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let (sender, heard) = mpsc::channel();
    store.set_arrival_listener(Arc::new(Heard(sender)));
    for n in 0..3u8 {
        assert_eq!(append(&store, "A", 0, &[n; 100]), i64::from(n), "acknowledged with its place");
    }
    assert_eq!((store.max_queue_offset("A", 0), store.max_physical_offset()), (0, 0));
    assert!(store.uncommitted_bytes() > 300 && heard.try_recv().is_err());
    store.commit().unwrap();
    assert_eq!(store.uncommitted_bytes(), 0);
    assert_eq!(bodies(&store, "A", 0), [[0; 100], [1; 100], [2; 100]]);
    let offsets: Vec<i64> = heard.try_iter().map(|arrival| arrival.max_queue_offset).collect();
    assert_eq!(offsets, [1, 2, 3]);
    assert_eq!(store.dispatched().0, store.written().0);
}

#[test]
fn a_dying_process_loses_the_buffer_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    append(&store, "A", 0, b"committed");
    store.commit().unwrap();
    append(&store, "A", 0, b"lost");
    drop(store);
    let store = open(directory.path());
    assert_eq!(bodies(&store, "A", 0), [b"committed"]);
    assert_eq!(append(&store, "A", 0, b"next"), 1);
    store.shutdown().unwrap();
    drop(store);
    let (store, report) = Store::open(config(directory.path()), quiet()).unwrap();
    assert!(report.clean);
    assert_eq!(bodies(&store, "A", 0), [&b"committed"[..], b"next"], "a clean end commits");
}

#[test]
fn full_files_and_a_full_buffer_are_committed_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    // The buffer holds two files at most.
    config.transient_store_pool_size = 2;
    let (store, _) = Store::open(config.clone(), quiet()).unwrap();
    let mut expected = Vec::new();
    let mut batch = store.new_batch();
    for n in 0..40u8 {
        batch.clear();
        for part in 0..=n % 3 {
            let body = vec![n; 300 * (1 + usize::from(part))];
            batch.push(&message("A", 0, &body)).unwrap();
            expected.push(body);
        }
        store.append(&mut batch).unwrap();
        if n == 20 {
            assert!(store.dispatched().0 == store.written().0 && store.written().0 > 0);
        }
    }
    assert!(store.uncommitted_bytes() <= 2 * 4096);
    store.flush().unwrap();
    assert_eq!(bodies(&store, "A", 0), expected);
    drop(store);
    let (store, report) = Store::open(config, quiet()).unwrap();
    assert_eq!((report.bytes_cut, report.queues_rebuilt), (0, 0), "{report}");
    assert_eq!(bodies(&store, "A", 0), expected);
}

#[test]
fn a_failed_commit_refuses_appends_and_keeps_what_was_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let faulty = Faulty::default();
    let environment = Environment { file_system: Arc::new(faulty.clone()), ..quiet() };
    let (store, _) = Store::open(config(directory.path()), environment).unwrap();
    faulty.concern("commitlog");
    append(&store, "A", 0, b"one");
    faulty.0.write.store(true, Ordering::SeqCst);
    assert!(store.commit().is_err());
    let mut batch = store.new_batch();
    batch.push(&message("A", 0, b"two")).unwrap();
    let error = store.append(&mut batch).unwrap_err();
    assert!(matches!(error, AppendError::Refused(Refusal::Commit(_))), "{error}");
    assert_eq!(bodies(&store, "A", 0).len(), 0);
    faulty.0.write.store(false, Ordering::SeqCst);
    store.commit().unwrap();
    assert_eq!(store.writable(), Ok(()));
    assert_eq!(append(&store, "A", 0, b"two"), 1);
    store.commit().unwrap();
    assert_eq!(bodies(&store, "A", 0), [b"one", b"two"]);
    drop(store);
    let store = open(directory.path());
    assert_eq!(bodies(&store, "A", 0), [b"one", b"two"]);
}

#[test]
fn a_deleted_topic_does_not_come_back_out_of_the_buffer() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    append(&store, "A", 0, b"old");
    assert!(store.delete_topic("A").unwrap());
    assert_eq!(append(&store, "A", 0, b"new"), 0);
    store.commit().unwrap();
    assert_eq!(bodies(&store, "A", 0), [b"new"]);
}

#[test]
fn the_threads_commit_and_flush_by_themselves() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    // Only enough pages or a waiter can move it.
    config.commit_interval_commit_log_ms = 3_600_000;
    config.flush_interval_commit_log_ms = 3_600_000;
    config.flush_commit_log_timed = false;
    let (store, _) = Store::open(config, lively()).unwrap();
    let (sender, heard) = mpsc::channel();
    store.set_arrival_listener(Arc::new(Heard(sender)));
    for _ in 0..40 {
        append(&store, "A", 0, &[7; 1000]);
    }
    heard.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
    let end = {
        let mut batch = store.new_batch();
        batch.push(&message("A", 0, b"last")).unwrap();
        store.append(&mut batch).unwrap().end_physical_offset
    };
    let (sender, durable) = mpsc::channel();
    store.on_durable(end, Box::new(move |outcome| sender.send(outcome).unwrap()));
    let outcome = durable.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
    assert_eq!(outcome, DurableOutcome::Durable);
    assert_eq!(bodies(&store, "A", 0).len(), 41);
}

#[test]
fn it_contradicts_sync_flush() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    config.flush_disk_type = FlushDiskType::Sync;
    let error = Store::open(config, quiet()).unwrap_err().to_string();
    assert!(error.contains("transientStorePoolEnable") && error.contains("ASYNC_FLUSH"), "{error}");
}
