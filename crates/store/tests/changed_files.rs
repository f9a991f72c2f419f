//! Files of the log that someone else changes while the store is open.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use common::{append, lively, message, open, quiet, small_config};
use rocketmq_store::clock::ManualClock;
use rocketmq_store::mapping::LOST_PAGE_EXIT_CODE;
use rocketmq_store::{Environment, Refusal, Store, StoreError};

fn log_file(root: &Path, base_offset: u64) -> PathBuf {
    root.join("commitlog").join(format!("{base_offset:020}"))
}

fn truncate(path: &Path, bytes: u64) {
    std::fs::File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

fn fill(store: &Store, count: usize) {
    for n in 0..count {
        append(store, "A", 0, format!("message {n} {}", "x".repeat(100)).as_bytes());
    }
}

/// The reason why the store takes nothing, and that it is what an append is told.
fn refusal(store: &Arc<Store>) -> Refusal {
    let refusal = store.writable().unwrap_err();
    let mut batch = store.new_batch();
    batch.push(&message("A", 0, b"more")).unwrap();
    let error = store.append(&mut batch).unwrap_err().to_string();
    assert!(error.contains(&refusal.to_string()), "{error}");
    refusal
}

#[test]
fn a_truncated_file_is_noticed_and_nothing_is_appended_behind_it() {
    for (base_offset, bytes) in [(0, 100), (0, 5000), (8192, 0)] {
        let directory = tempfile::tempdir().unwrap();
        let (store, _) = open(directory.path());
        fill(&store, 50);
        assert!(store.max_physical_offset() > 8192);
        store.tick().unwrap();
        store.writable().unwrap();
        let path = log_file(directory.path(), base_offset);
        truncate(&path, bytes);
        store.tick().unwrap();
        let found = format!("has {bytes} bytes, 4096 are expected");
        assert_eq!(refusal(&store), Refusal::FileChanged { path: path.clone(), found });
        assert_eq!(path.metadata().unwrap().len(), bytes, "it was not grown again");
        store.shutdown().unwrap();
        drop(store);
        assert!(directory.path().join("abort").exists(), "it was no clean end");
    }
}

#[test]
fn a_file_that_lost_its_name_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    fill(&store, 50);
    let path = log_file(directory.path(), 4096);
    std::fs::rename(&path, directory.path().join("elsewhere")).unwrap();
    store.tick().unwrap();
    let found = "was removed or renamed".to_owned();
    assert_eq!(refusal(&store), Refusal::FileChanged { path: path.clone(), found });
    drop(store);
    let error = common::try_open(directory.path()).unwrap_err();
    assert!(matches!(error, StoreError::MissingFile { path: missing } if missing == path));
}

#[test]
fn files_that_the_store_removes_itself_are_not_missed() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = small_config(directory.path());
    config.file_reserved_hours = 0;
    // Long behind the files' times, so that they have expired.
    let clock = Arc::new(ManualClock::new(1 << 50));
    let (store, _) = Store::open(config, Environment { clock, ..quiet() }).unwrap();
    fill(&store, 50);
    assert!(store.remove_old_files(true).unwrap() > 0);
    store.tick().unwrap();
    store.writable().unwrap();
}

#[test]
fn the_threads_notice_by_themselves() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = small_config(directory.path());
    config.flush_interval_consume_queue_ms = 1;
    let (store, _) = Store::open(config, lively()).unwrap();
    append(&store, "A", 0, b"one");
    truncate(&log_file(directory.path(), 0), 10);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while store.writable().is_ok() {
        assert!(std::time::Instant::now() < deadline, "not noticed within 30 s");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(matches!(refusal(&store), Refusal::FileChanged { .. }));
}

#[test]
fn reading_what_is_gone_ends_the_process_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_store_reads_what_is_gone", "--ignored", "--nocapture"])
        .env("CHANGED_FILES_DIRECTORY", directory.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(LOST_PAGE_EXIT_CODE), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    let line = format!(
        "mapped file {} was truncated or its disk failed at byte 0; the broker stops; run rmq \
         store check\n",
        log_file(directory.path(), 4096).display()
    );
    assert!(text.ends_with(&line), "{text}");
    // What is left says so by name at the next start.
    let error = common::try_open(directory.path()).unwrap_err();
    assert!(
        matches!(&error, StoreError::FileSize { path, bytes: 0, .. }
            if *path == log_file(directory.path(), 4096)),
        "{error}"
    );
}

#[test]
#[ignore = "ends its process; run by another test"]
fn a_store_reads_what_is_gone() {
    let root = PathBuf::from(std::env::var_os("CHANGED_FILES_DIRECTORY").expect("run by a test"));
    let (store, _) = open(&root);
    fill(&store, 50);
    truncate(&log_file(&root, 4096), 0);
    common::bodies(&store, "A", 0);
    unreachable!("the second file is gone");
}
