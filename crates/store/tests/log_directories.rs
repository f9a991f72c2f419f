//! A log whose files lie in several directories, some of them read-only.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::faulty::Faulty;
use common::{append, bodies, quiet, small_config};
use rocketmq_store::{Environment, RecoveryReport, Store, StoreConfig, StoreError};

fn config_of(root: &Path, writable: &[&str], read_only: &[&str]) -> StoreConfig {
    let mut config = small_config(root);
    config.commit_log_dirs = writable.iter().map(|name| root.join(name)).collect();
    config.read_only_commit_log_dirs = read_only.iter().map(|name| root.join(name)).collect();
    config
}

fn open(root: &Path, writable: &[&str], read_only: &[&str]) -> (Arc<Store>, RecoveryReport) {
    Store::open(config_of(root, writable, read_only), quiet()).unwrap()
}

fn open_error(root: &Path, writable: &[&str], read_only: &[&str]) -> StoreError {
    Store::open(config_of(root, writable, read_only), quiet()).unwrap_err()
}

/// Base offsets of the files in a directory, in units of the file length.
fn files(root: &Path, directory: &str) -> Vec<u64> {
    let mut files: Vec<u64> = std::fs::read_dir(root.join(directory))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse::<u64>().unwrap() / 4096)
        .collect();
    files.sort_unstable();
    files
}

fn path(root: &Path, directory: &str, index: u64) -> PathBuf {
    root.join(directory).join(format!("{:020}", index * 4096))
}

/// Three messages a file.
fn fill(store: &Store, from: u8, to: u8) {
    for n in from..to {
        append(store, "A", 0, &[n; 1200]);
    }
}

fn expected(to: u8) -> Vec<Vec<u8>> {
    (0..to).map(|n| vec![n; 1200]).collect()
}

#[test]
fn files_alternate_and_are_recovered_as_one_log() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    for clean in [false, true] {
        let (store, report) = open(root, &["b", "a"], &[]);
        assert_eq!(report.bytes_cut, 0, "{report}");
        let before = store.max_queue_offset("A", 0) as u8;
        assert_eq!(bodies(&store, "A", 0), expected(before));
        fill(&store, before, before + 9);
        assert_eq!(bodies(&store, "A", 0), expected(before + 9));
        if clean {
            store.shutdown().unwrap();
        }
    }
    assert_eq!((files(root, "a"), files(root, "b")), (vec![0, 2, 4], vec![1, 3, 5]));
    // One directory more: it takes its turn.
    std::fs::create_dir(root.join("c")).unwrap();
    let (store, report) = open(root, &["a", "b", "c"], &[]);
    assert_eq!((report.clean, report.files, report.queues_rebuilt), (true, 6, 0));
    fill(&store, 18, 27);
    assert_eq!(bodies(&store, "A", 0), expected(27));
    assert_eq!(files(root, "c"), [8]);
}

#[test]
fn a_full_disk_gets_no_new_files_and_the_least_used_one_decides() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let faulty = Faulty::default();
    let environment = Environment { file_system: Arc::new(faulty.clone()), ..quiet() };
    let (store, _) = Store::open(config_of(root, &["a", "b"], &[]), environment).unwrap();
    let used = |a: u64, b: u64| {
        *faulty.0.used_percent_of.lock().unwrap() = vec![("/a".into(), a), ("/b".into(), b)];
        store.tick().unwrap();
    };
    used(99, 50);
    fill(&store, 0, 9);
    assert_eq!((files(root, "a"), files(root, "b")), (vec![], vec![0, 1, 2]));
    assert_eq!(store.disk_used_percent(), 50.0);
    used(99, 91);
    assert!(store.writable().unwrap_err().to_string().contains("91 %"));
    used(20, 91);
    assert_eq!(store.writable(), Ok(()));
    fill(&store, 9, 15);
    assert_eq!(files(root, "a"), [3, 4]);

    // While the least used disk was over the watermark, files were removed, but the last one. Now
    // it is not, so the one left on the fuller disk stays.
    assert_eq!((store.min_physical_offset(), files(root, "b")), (2 * 4096, vec![2]));
}

#[test]
fn a_directory_that_cannot_take_a_file_is_passed_over() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let faulty = Faulty::default();
    let environment = Environment { file_system: Arc::new(faulty.clone()), ..quiet() };
    let (store, _) = Store::open(config_of(root, &["a", "b"], &[]), environment).unwrap();
    faulty.concern("/a/");
    faulty.0.allocate.store(true, std::sync::atomic::Ordering::SeqCst);
    fill(&store, 0, 6);
    assert_eq!((files(root, "a"), files(root, "b")), (vec![], vec![0, 1]));
    drop(store);
    let (store, _) = open(root, &["a", "b"], &[]);
    assert_eq!(bodies(&store, "A", 0), expected(6));
}

#[test]
fn a_missing_directory_stops_the_start_and_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let (store, _) = open(root, &["a", "b"], &[]);
    fill(&store, 0, 6);
    drop(store);
    std::fs::rename(root.join("b"), root.join("unmounted")).unwrap();
    let error = open_error(root, &["a", "b"], &[]).to_string();
    assert!(error.contains(&root.join("b").display().to_string()), "{error}");
    assert!(error.contains("storePathCommitLog") && error.contains("mount"), "{error}");
    let error = open_error(root, &["a"], &["b"]).to_string();
    assert!(error.contains("readOnlyCommitLogStorePaths"), "{error}");
    // Mounted again, nothing is lost.
    std::fs::rename(root.join("unmounted"), root.join("b")).unwrap();
    let (store, _) = open(root, &["a", "b"], &[]);
    assert_eq!(bodies(&store, "A", 0), expected(6));
}

#[test]
fn a_directory_without_its_files_leaves_a_gap_that_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let (store, _) = open(root, &["a", "b"], &[]);
    fill(&store, 0, 9);
    drop(store);
    let error = open_error(root, &["a"], &[]);
    assert!(matches!(error, StoreError::MissingFile { .. }), "{error}");
    std::fs::copy(path(root, "b", 1), path(root, "a", 1)).unwrap();
    let error = open_error(root, &["a", "b"], &[]).to_string();
    assert!(error.contains(&path(root, "a", 1).display().to_string()), "{error}");
    assert!(error.contains(&path(root, "b", 1).display().to_string()), "{error}");
}

#[test]
fn read_only_directories_are_read_and_never_touched() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let (store, _) = open(root, &["old"], &[]);
    // Ends with the last byte of a file: what follows begins a new one.
    fill(&store, 0, 10);
    store.flush().unwrap();
    drop(store);
    let new = path(root, "new", 3);
    std::fs::create_dir(root.join("new")).unwrap();
    std::fs::rename(path(root, "old", 3), &new).unwrap();
    let state = || -> Vec<_> {
        (0..3)
            .map(|index| {
                let path = path(root, "old", index);
                let modified = path.metadata().unwrap().modified().unwrap();
                (std::fs::read(&path).unwrap(), modified)
            })
            .collect()
    };
    let before = state();
    for index in 0..3 {
        let read_only = std::fs::Permissions::from_mode(0o400);
        std::fs::set_permissions(path(root, "old", index), read_only).unwrap();
    }
    // The recovery after a crash walks through them.
    let (store, report) = open(root, &["new"], &["old"]);
    assert_eq!((report.clean, report.files, report.bytes_cut), (false, 4, 0), "{report}");
    fill(&store, 10, 20);
    assert_eq!(bodies(&store, "A", 0), expected(20));
    store.shutdown().unwrap();
    drop(store);

    // Retention lets them go without removing them, and they do not come back as a gap.
    let faulty = Faulty::default();
    let environment = Environment { file_system: Arc::new(faulty.clone()), ..quiet() };
    let config = config_of(root, &["new"], &["old"]);
    let (store, _) = Store::open(config.clone(), environment.clone()).unwrap();
    faulty.0.used_percent.store(86, std::sync::atomic::Ordering::SeqCst);
    store.tick().unwrap();
    assert!(store.min_physical_offset() >= 4 * 4096);
    assert!(!new.exists());
    let left = bodies(&store, "A", 0);
    store.shutdown().unwrap();
    drop(store);
    faulty.0.used_percent.store(0, std::sync::atomic::Ordering::SeqCst);
    let (store, report) = Store::open(config, environment).unwrap();
    assert_eq!(report.let_go.len(), 3);
    assert_eq!(bodies(&store, "A", 0), left);
    assert_eq!(state(), before);
}

#[test]
fn a_log_that_would_have_to_be_cut_in_a_read_only_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let (store, _) = open(root, &["old"], &[]);
    fill(&store, 0, 5);
    drop(store);
    std::fs::create_dir(root.join("new")).unwrap();
    let error = open_error(root, &["new"], &["old"]);
    assert!(
        matches!(&error, StoreError::ReadOnlyFile { path: found, .. }
            if *found == path(root, "old", 1)),
        "{error}"
    );
    std::fs::rename(path(root, "old", 1), path(root, "new", 1)).unwrap();
    let (store, _) = open(root, &["new"], &["old"]);
    assert_eq!(bodies(&store, "A", 0), expected(5));
}
