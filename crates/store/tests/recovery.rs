//! Opening directories as crashes, accidents and other hands leave them.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod common;

use std::path::{Path, PathBuf};

use common::{append, bodies, get, message, open, quiet, small_config, try_open};
use rocketmq_protocol::message::record::sys_flag;
use rocketmq_store::{Environment, FlushDiskType, GetStatus, Store, StoreError};

fn log_file(root: &Path, base_offset: u64) -> PathBuf {
    root.join("commitlog").join(format!("{base_offset:020}"))
}

fn overwrite(path: &Path, at: usize, bytes: &[u8]) {
    let mut contents = std::fs::read(path).unwrap();
    contents[at..at + bytes.len()].copy_from_slice(bytes);
    std::fs::write(path, contents).unwrap();
}

/// As kill -9 leaves it: nothing of what the store holds in memory is written.
fn kill(store: std::sync::Arc<Store>) {
    drop(store);
}

#[test]
fn a_fresh_directory_has_nothing_to_recover() {
    let directory = tempfile::tempdir().unwrap();
    let (store, report) = open(directory.path());
    assert!(report.clean);
    assert_eq!((report.files, report.log_end, report.bytes_cut), (0, 0, 0));
    assert_eq!(get(&store, "A", 0, 0).status, GetStatus::NoMatchedLogicQueue);
    assert_eq!(append(&store, "A", 0, b"first"), 0);
    assert_eq!(bodies(&store, "A", 0), [b"first"]);
}

#[test]
fn what_was_appended_is_there_after_a_clean_and_after_an_unclean_end() {
    let directory = tempfile::tempdir().unwrap();
    let mut expected: Vec<Vec<u8>> = Vec::new();
    for round in 0..6 {
        let (store, report) = open(directory.path());
        assert_eq!(report.clean, round % 2 == 0);
        assert_eq!(report.bytes_cut, 0, "{report}");
        assert_eq!(bodies(&store, "A", 0), expected);
        for n in 0..40 {
            let body = format!("{round} {n} {}", "x".repeat(n * 7)).into_bytes();
            assert_eq!(append(&store, "A", 0, &body), expected.len() as i64);
            expected.push(body);
        }
        if round % 2 == 0 {
            kill(store);
        } else {
            store.shutdown().unwrap();
        }
    }
}

#[test]
fn a_torn_tail_is_cut_at_every_byte() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("whole");
    let (store, _) = open(&root);
    for n in 0..5 {
        append(&store, "A", 0, format!("message {n}").as_bytes());
    }
    let end = store.max_physical_offset() as usize;
    let last = store.physical_offset_of("A", 0, 4).unwrap().unwrap() as usize;
    store.flush().unwrap();
    kill(store);
    let whole = std::fs::read(log_file(&root, 0)).unwrap();

    for torn in last..end {
        let root = directory.path().join(format!("torn-{torn}"));
        copy(&directory.path().join("whole"), &root);
        // What was not written reads as zeros.
        overwrite(&log_file(&root, 0), torn, &vec![0; end - torn]);
        let (store, report) = open(&root);
        let found = bodies(&store, "A", 0);
        let same = whole[torn..end].iter().all(|byte| *byte == 0);
        let kept = if same { 5 } else { 4 };
        assert_eq!(found.len(), kept, "torn at {torn}: {report}");
        assert_eq!(store.max_physical_offset() as usize, if same { end } else { last });
        assert_eq!(report.bytes_cut > 0, !same && torn >= last + 4, "{torn}: {report}");
        assert_eq!(append(&store, "A", 0, b"next"), kept as i64);
        kill(store);
        let (store, report) = open(&root);
        assert_eq!(report.bytes_cut, 0, "what was cut does not come back: {report}");
        assert_eq!(bodies(&store, "A", 0).len(), kept + 1);
        drop(store);
        std::fs::remove_dir_all(root).unwrap();
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}

/// Old records behind a cut must not be taken for messages once shorter ones end where they begin.
#[test]
fn records_behind_a_cut_do_not_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    for n in 0..10 {
        append(&store, "A", n % 2, b"same size");
    }
    let third = store.physical_offset_of("A", 0, 1).unwrap().unwrap() as usize;
    store.flush().unwrap();
    kill(store);
    overwrite(&log_file(directory.path(), 0), third + 90, b"?");
    let (store, report) = open(directory.path());
    assert!(
        report.bytes_cut > 0 && report.cut_reason.as_ref().unwrap().contains("CRC"),
        "{report}"
    );
    assert_eq!((bodies(&store, "A", 0).len(), bodies(&store, "A", 1).len()), (1, 1));
    // Ends exactly where the fourth of the old records began.
    append(&store, "B", 7, b"same size");
    kill(store);
    let (store, report) = open(directory.path());
    assert_eq!(report.bytes_cut, 0, "{report}");
    assert_eq!((bodies(&store, "A", 0).len(), bodies(&store, "A", 1).len()), (1, 1));
    assert_eq!(bodies(&store, "B", 7), [b"same size"]);
}

#[test]
fn a_bad_crc_is_found_unless_told_not_to_look() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    append(&store, "A", 0, b"one");
    append(&store, "A", 0, b"two");
    let second = store.physical_offset_of("A", 0, 1).unwrap().unwrap() as usize;
    kill(store);
    overwrite(&log_file(directory.path(), 0), second + 88, b"?");
    let mut config = small_config(directory.path());
    config.check_crc_on_recover = false;
    let (store, report) = Store::open(config, quiet()).unwrap();
    assert_eq!((report.bytes_cut, store.max_queue_offset("A", 0)), (0, 2));
    kill(store);
    let (store, report) = open(directory.path());
    assert!(report.cut_reason.unwrap().contains("CRC"));
    assert_eq!(bodies(&store, "A", 0), [b"one"]);
}

#[test]
fn missing_short_and_empty_queues_are_rebuilt() {
    for clean in [true, false] {
        for accident in ["all", "one", "emptied", "short", "zeroed"] {
            let directory = tempfile::tempdir().unwrap();
            let (store, _) = open(directory.path());
            let mut expected = [Vec::new(), Vec::new()];
            for n in 0..200 {
                let body = format!("message {n}").into_bytes();
                append(&store, "A", n % 2, &body);
                expected[n as usize % 2].push(body);
            }
            store.flush().unwrap();
            if clean {
                store.shutdown().unwrap();
            }
            drop(store);
            let queues = directory.path().join("consumequeue");
            let queue = queues.join("A/1");
            match accident {
                "all" => std::fs::remove_dir_all(&queues).unwrap(),
                "one" => std::fs::remove_dir_all(&queue).unwrap(),
                "emptied" => {
                    std::fs::create_dir_all(&queue).unwrap();
                }
                "short" => {
                    for base in [800, 960, 1120, 1280, 1440, 1600, 1760, 1920] {
                        std::fs::remove_file(queue.join(format!("{base:020}"))).unwrap();
                    }
                }
                _ => std::fs::write(queue.join(format!("{:020}", 1920)), [0; 160]).unwrap(),
            }
            let (store, report) = open(directory.path());
            for (queue_id, expected) in expected.iter().enumerate() {
                assert_eq!(
                    &bodies(&store, "A", queue_id as i32),
                    expected,
                    "{accident}, clean {clean}: {report}"
                );
            }
            assert_eq!(append(&store, "A", 1, b"next"), 100);
        }
    }
}

#[test]
fn an_empty_last_file_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    append(&store, "A", 0, b"one");
    kill(store);
    std::fs::write(log_file(directory.path(), 4096), b"").unwrap();
    let (store, report) = open(directory.path());
    assert_eq!(report.removed_empty, [log_file(directory.path(), 4096)]);
    assert_eq!(bodies(&store, "A", 0), [b"one"]);
}

#[test]
fn files_that_do_not_fit_are_named_and_nothing_changes() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    append(&store, "A", 0, b"one");
    store.shutdown().unwrap();
    drop(store);
    std::fs::write(log_file(directory.path(), 4096), [0; 100]).unwrap();
    let error = try_open(directory.path()).unwrap_err();
    let path = log_file(directory.path(), 4096);
    assert!(
        matches!(&error, StoreError::FileSize { path: found, bytes: 100, expected: 4096, .. }
            if *found == path),
        "{error}"
    );
    assert!(!directory.path().join("abort").exists(), "still marked as clean");
    std::fs::write(&path, [0; 4096]).unwrap();
    std::fs::write(log_file(directory.path(), 12_288), [0; 4096]).unwrap();
    let error = try_open(directory.path()).unwrap_err();
    assert!(
        matches!(error, StoreError::MissingFile { path } if path == log_file(directory.path(), 8192))
    );
}

#[test]
fn foreign_files_are_reported_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    append(&store, "A", 0, b"one");
    store.flush().unwrap();
    kill(store);
    let foreign = [
        directory.path().join("commitlog/backup.tar"),
        directory.path().join("consumequeue/A/0/.swp"),
        directory.path().join("consumequeue/A/notes"),
        directory.path().join("consumequeue/lost+found.txt"),
    ];
    for path in &foreign {
        std::fs::write(path, b"mine").unwrap();
    }
    let (store, report) = open(directory.path());
    let mut found = report.foreign;
    found.sort();
    assert_eq!(found, foreign);
    assert_eq!(bodies(&store, "A", 0), [b"one"]);
    for path in &foreign {
        assert_eq!(std::fs::read(path).unwrap(), b"mine");
    }
}

#[test]
fn a_second_store_is_refused_while_the_first_is_open() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    let error = try_open(directory.path()).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    drop(store);
    open(directory.path());
}

#[test]
fn a_lost_file_in_the_middle_of_a_crash_ends_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    for n in 0..60 {
        append(&store, "A", 0, format!("message {n} {}", "x".repeat(100)).as_bytes());
    }
    let files = store.max_physical_offset() / 4096 + 1;
    assert!(files >= 3);
    let in_first =
        (0..60).filter(|n| store.physical_offset_of("A", 0, *n).unwrap().unwrap() < 4096).count();
    store.flush().unwrap();
    kill(store);
    // Power was lost, and of three dirty files the second never reached the disk.
    std::fs::write(log_file(directory.path(), 4096), [0; 4096]).unwrap();
    let (store, report) = open(directory.path());
    assert!(report.cut_reason.is_some() && report.bytes_cut >= 4096, "{report}");
    assert_eq!(bodies(&store, "A", 0).len(), in_first);
    assert_eq!(append(&store, "A", 0, b"next"), in_first as i64);
    kill(store);
    let (store, report) = open(directory.path());
    assert_eq!((report.bytes_cut, store.max_queue_offset("A", 0)), (0, in_first as i64 + 1));
}

#[test]
fn half_messages_and_rollbacks_take_no_place_in_a_queue() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    let mut batch = store.new_batch();
    for flag in [
        0,
        sys_flag::TRANSACTION_PREPARED,
        sys_flag::TRANSACTION_COMMIT,
        sys_flag::TRANSACTION_ROLLBACK,
        0,
    ] {
        let mut message = message("A", 0, b"body");
        message.sys_flag = flag;
        batch.push(&message).unwrap();
    }
    store.append(&mut batch).unwrap();
    let offsets: Vec<_> = (0..5).map(|n| batch.result(n).unwrap().queue_offset).collect();
    assert_eq!(offsets, [0, 0, 1, 0, 2]);
    assert_eq!(bodies(&store, "A", 0).len(), 3);
    kill(store);
    std::fs::remove_dir_all(directory.path().join("consumequeue")).ok();
    let (store, _) = open(directory.path());
    assert_eq!(bodies(&store, "A", 0).len(), 3);
}

#[test]
fn a_deleted_topic_begins_anew() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    for _ in 0..20 {
        append(&store, "A", 0, b"old");
    }
    store.flush().unwrap();
    assert!(store.delete_topic("A").unwrap());
    assert!(!store.delete_topic("A").unwrap());
    assert_eq!(get(&store, "A", 0, 0).status, GetStatus::NoMatchedLogicQueue);
    assert!(!directory.path().join("consumequeue/A").exists());
    assert_eq!(append(&store, "A", 0, b"new"), 0);
    assert_eq!(bodies(&store, "A", 0), [b"new"]);
    kill(store);
    // The old messages are still in the log, in front of the new one.
    for remove_queues in [false, true] {
        if remove_queues {
            std::fs::remove_dir_all(directory.path().join("consumequeue")).unwrap();
        }
        let (store, report) = open(directory.path());
        assert_eq!(bodies(&store, "A", 0), [b"new"], "{report}");
        store.shutdown().unwrap();
    }
}

#[test]
fn a_large_batch_lies_in_one_file_and_rolls_over() {
    use rocketmq_protocol::message::batch;
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    append(&store, "A", 0, &[1; 2000]);
    let mut body = Vec::new();
    for n in 0..8u8 {
        let part = batch::BatchMessage { flag: i32::from(n), body: &[n; 200], properties: b"" };
        batch::encode(&mut body, &part).unwrap();
    }
    let mut messages = store.new_batch();
    let range = messages.push_batch(&message("A", 1, b""), &body).unwrap();
    store.append(&mut messages).unwrap();
    for (n, index) in range.enumerate() {
        let result = messages.result(index).unwrap();
        assert!(result.physical_offset >= 4096, "the whole batch is in the second file");
        assert_eq!(result.queue_offset, n as i64);
    }
    let first = std::fs::read(log_file(directory.path(), 0)).unwrap();
    let blank = store.physical_offset_of("A", 0, 0).unwrap().unwrap() as usize + 2000 + 91 + 1 + 10;
    let left = (4096 - blank) as u32;
    assert_eq!(first[blank..blank + 4], left.to_be_bytes());
    assert_eq!(first[blank + 4..blank + 8], [0xCB, 0xD4, 0x31, 0x94]);
    kill(store);
    let (store, report) = open(directory.path());
    assert_eq!(report.bytes_cut, 0, "{report}");
    assert_eq!(bodies(&store, "A", 1).len(), 8);
}

#[test]
fn recovery_begins_where_the_checkpoint_says() {
    let directory = tempfile::tempdir().unwrap();
    let clock = std::sync::Arc::new(rocketmq_store::clock::ManualClock::new(1_000_000));
    let environment =
        || rocketmq_store::Environment { clock: std::sync::Arc::clone(&clock) as _, ..quiet() };
    let mut config = small_config(directory.path());
    config.flush_disk_type = FlushDiskType::Sync;
    let (store, _) = Store::open(config.clone(), environment()).unwrap();
    for n in 0..100 {
        clock.advance(1_000);
        append(&store, "A", 0, format!("message {n} {}", "x".repeat(100)).as_bytes());
    }
    store.flush().unwrap();
    kill(store);
    let (store, report) = Store::open(config, environment()).unwrap();
    assert!(!report.clean);
    assert!(report.files_walked <= 2 && report.files >= 4, "{report}");
    assert_eq!(bodies(&store, "A", 0).len(), 100);
}

#[test]
fn a_record_leaves_eight_bytes_of_its_file_for_the_blank() {
    for (spare, rolls) in [(8, false), (7, true)] {
        let directory = tempfile::tempdir().unwrap();
        let (store, _) = open(directory.path());
        append(&store, "A", 0, &[1; 2000]);
        let left = 4096 - store.max_physical_offset() as usize;
        // 91 bytes, the topic and `TAGS\x01TagA\x02` are not the body.
        append(&store, "A", 0, &vec![2; left - spare - 91 - 1 - 10]);
        let second = store.physical_offset_of("A", 0, 1).unwrap().unwrap();
        assert_eq!(second >= 4096, rolls, "{spare} bytes to spare");
        append(&store, "A", 0, &[3; 100]);
        kill(store);
        let (store, report) = open(directory.path());
        assert_eq!((report.bytes_cut, bodies(&store, "A", 0).len()), (0, 3), "{report}");
    }
}

/// As one that was written for another place and never wiped: its CRC is right.
#[test]
fn a_record_that_says_another_place_ends_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    append(&store, "A", 0, b"one");
    append(&store, "A", 0, b"two");
    let second = store.physical_offset_of("A", 0, 1).unwrap().unwrap();
    kill(store);
    let other_place = (second + 4096).to_be_bytes();
    overwrite(&log_file(directory.path(), 0), second as usize + 28, &other_place);
    let (store, report) = open(directory.path());
    assert!(report.cut_reason.unwrap().contains("physical offset"));
    assert_eq!(bodies(&store, "A", 0), [b"one"]);
}

#[test]
fn a_log_that_is_elsewhere_stops_the_start() {
    let directory = tempfile::tempdir().unwrap();
    for unclean in [false, true] {
        let (store, _) = open(directory.path());
        append(&store, "A", 0, b"one");
        store.flush().unwrap();
        let expected = bodies(&store, "A", 0);
        if !unclean {
            store.shutdown().unwrap();
        }
        drop(store);
        let (log, elsewhere) =
            (directory.path().join("commitlog"), directory.path().join("elsewhere"));
        std::fs::rename(&log, &elsewhere).unwrap();
        std::fs::create_dir(&log).unwrap();
        for _ in 0..2 {
            let config = small_config(directory.path());
            let error = Store::open(config, Environment::default()).unwrap_err().to_string();
            assert!(error.contains("commitlog") && error.contains("mount"), "{error}");
        }
        std::fs::remove_dir(&log).unwrap();
        std::fs::rename(&elsewhere, &log).unwrap();
        let (store, _) = open(directory.path());
        assert_eq!(bodies(&store, "A", 0), expected);
    }
}

#[test]
fn a_torn_filler_in_front_of_a_queue_hides_no_message() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    let mut left = Vec::new();
    for n in 0..40 {
        let body = format!("message {n} {}", "x".repeat(100)).into_bytes();
        let mut batch = store.new_batch();
        batch.push(&message("A", 0, &body)).unwrap();
        store.append(&mut batch).unwrap();
        if batch.result(0).unwrap().physical_offset >= 4096 {
            left.push(body);
        }
    }
    kill(store);
    std::fs::remove_file(log_file(directory.path(), 0)).unwrap();
    let queue = directory.path().join("consumequeue/A/0");
    std::fs::create_dir_all(&queue).unwrap();
    // Of a filler's size, i32::MAX, the first byte alone.
    let mut file = vec![0; 160];
    file[8] = 0x7f;
    std::fs::write(queue.join(format!("{:020}", 160)), file).unwrap();
    let (store, _) = open(directory.path());
    assert!(!left.is_empty());
    assert_eq!(bodies(&store, "A", 0), left);
}

#[test]
fn a_wrong_entry_found_after_a_clean_stop_hides_no_message() {
    use std::os::unix::fs::FileExt;
    // The first and the last of three entries speak of a place far behind the log.
    for entry in [0_u64, 2] {
        let directory = tempfile::tempdir().unwrap();
        let (store, _) = open(directory.path());
        for body in [b"one", b"two", b"six"] {
            append(&store, "A", 0, body);
        }
        store.shutdown().unwrap();
        drop(store);
        let path = directory.path().join("consumequeue/A/0/00000000000000000000");
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.write_all_at(&(1_i64 << 62).to_be_bytes(), entry * 20).unwrap();
        let (store, _) = open(directory.path());
        assert_eq!(bodies(&store, "A", 0), [b"one", b"two", b"six"], "entry {entry}");
        assert_eq!(append(&store, "A", 0, b"new"), 3);
    }
}
