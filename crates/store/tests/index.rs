//! Finding messages by key: at once, in range, and after whatever happened to the files.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod common;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::faulty::Faulty;
use common::{LIMITS, message, quiet, small_config};
use rocketmq_protocol::message::record::{MessageRecord, NewMessage, sys_flag};
use rocketmq_store::clock::ManualClock;
use rocketmq_store::{Environment, MatchAll, RecoveryReport, Refusal, Store};

const ALL: std::ops::RangeInclusive<i64> = 0..=i64::MAX;

fn append(store: &Store, topic: &str, body: &str, properties: &str) {
    append_with(store, topic, body, properties, 0);
}

fn append_with(store: &Store, topic: &str, body: &str, properties: &str, sys_flag: i32) {
    let mut batch = store.new_batch();
    let properties: [&[u8]; 1] = [properties.as_bytes()];
    let message = message(topic, 0, body.as_bytes());
    batch.push(&NewMessage { properties: &properties, sys_flag, ..message }).unwrap();
    store.append(&mut batch).unwrap();
}

fn bodies(messages: &[bytes::Bytes]) -> Vec<String> {
    let body = |message: &bytes::Bytes| {
        String::from_utf8(MessageRecord::decode(message).unwrap().body.to_vec()).unwrap()
    };
    messages.iter().map(body).collect()
}

fn query(store: &Store, topic: &str, key: &str) -> Vec<String> {
    bodies(&store.query_messages(topic, key, ALL, 64, usize::MAX).unwrap().messages)
}

/// Appends message `n`: a unique key, a key of its own, and one of three shared ones.
fn append_numbered(store: &Store, n: usize) {
    let properties = format!("UNIQ_KEY\x01U{n}\x02KEYS\x01own-{n} shared-{}\x02", n % 3);
    append(store, "A", &n.to_string(), &properties);
}

/// Whether messages 0 to `count`, and no others, are found by each of their keys.
fn assert_numbered(store: &Store, count: usize, why: &str) {
    for n in 0..count {
        assert_eq!(query(store, "A", &format!("U{n}")), [n.to_string()], "U{n}: {why}");
        assert_eq!(query(store, "A", &format!("own-{n}")), [n.to_string()], "own-{n}: {why}");
    }
    for shared in 0..3 {
        let expected: Vec<_> = (shared..count).step_by(3).map(|n| n.to_string()).collect();
        let newest = &expected[expected.len().saturating_sub(64)..];
        assert_eq!(query(store, "A", &format!("shared-{shared}")), newest, "{why}");
    }
    assert!(query(store, "A", &format!("U{count}")).is_empty(), "{why}");
}

fn index_files(root: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> =
        std::fs::read_dir(root.join("index")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn open(root: &Path) -> (Arc<Store>, RecoveryReport) {
    common::open(root)
}

#[test]
fn a_message_is_found_as_soon_as_it_is_appended() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    assert!(query(&store, "A", "U0").is_empty());
    for n in 0..100 {
        append_numbered(&store, n);
        assert_eq!(query(&store, "A", &format!("U{n}")), [n.to_string()]);
        if n % 30 == 0 {
            store.tick().unwrap();
        }
    }
    assert_numbered(&store, 100, "partly in memory");
    store.flush().unwrap();
    assert_numbered(&store, 100, "in the files");
    assert!(index_files(directory.path()).len() > 5);
    assert!(query(&store, "B", "U1").is_empty(), "another topic");
    assert!(query(&store, "A", "U").is_empty() && query(&store, "A", "own-1 shared-1").is_empty());
}

#[test]
fn a_rollback_mark_has_no_entry_and_a_word_twice_is_one_message() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    append(&store, "A", "twice", "KEYS\x01k k\x02UNIQ_KEY\x01k\x02");
    append_with(&store, "A", "half", "KEYS\x01h\x02", sys_flag::TRANSACTION_PREPARED);
    append_with(&store, "A", "back", "KEYS\x01k\x02", sys_flag::TRANSACTION_ROLLBACK);
    for _ in 0..2 {
        assert_eq!(query(&store, "A", "k"), ["twice"]);
        assert_eq!(query(&store, "A", "h"), ["half"]);
        store.flush().unwrap();
    }
}

/// Topic and key are hashed as one text, and hashes of two texts can be equal.
#[test]
fn an_equal_hash_is_not_an_equal_key() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    append(&store, "A", "one", "KEYS\x01Aa\x02");
    append(&store, "A", "two", "KEYS\x01BB\x02");
    append(&store, "A#B", "three", "KEYS\x01C\x02");
    append(&store, "A", "four", "KEYS\x01B#C\x02");
    for _ in 0..2 {
        assert_eq!(query(&store, "A", "Aa"), ["one"]);
        assert_eq!(query(&store, "A", "BB"), ["two"]);
        assert_eq!(query(&store, "A#B", "C"), ["three"]);
        assert_eq!(query(&store, "A", "B#C"), ["four"]);
        store.flush().unwrap();
    }
}

#[test]
fn times_counts_and_bytes_are_bounds() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(1_000_000));
    let environment = Environment { clock: Arc::clone(&clock) as _, ..quiet() };
    let (store, _) = Store::open(small_config(directory.path()), environment).unwrap();
    let empty = store.query_messages("A", "k", ALL, 64, usize::MAX).unwrap();
    assert_eq!(empty.index_last_update_timestamp_ms, 0);
    // 300 ms apart, over several index files.
    for n in 0..120 {
        append(&store, "A", &n.to_string(), "KEYS\x01k\x02");
        clock.advance(300);
    }
    let time = |n: i64| 1_000_000 + n * 300;
    for in_files in [false, true] {
        if in_files {
            store.flush().unwrap();
        }
        let found = |from, to, count, bytes| {
            bodies(&store.query_messages("A", "k", from..=to, count, bytes).unwrap().messages)
        };
        let numbers =
            |range: std::ops::Range<i64>| range.map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!(found(0, i64::MAX, 1_000, usize::MAX), numbers(56..120), "maxMsgsNumBatch");
        assert_eq!(found(0, i64::MAX, 5, usize::MAX), numbers(115..120));
        assert_eq!(found(0, i64::MAX, 0, usize::MAX), numbers(0..0));
        for (from, to) in [(0, 0), (3, 3), (7, 40), (41, 60), (100, 119)] {
            assert_eq!(found(time(from), time(to), 64, usize::MAX), numbers(from..to + 1));
            assert_eq!(
                found(time(from) - 299, time(to) + 299, 64, usize::MAX),
                numbers(from..to + 1)
            );
            assert_eq!(found(time(from) + 1, time(to) - 1, 64, usize::MAX), numbers(from + 1..to));
        }
        assert_eq!(found(time(119) + 1, i64::MAX, 64, usize::MAX), numbers(0..0));
        assert_eq!(found(0, time(0) - 1, 64, usize::MAX), numbers(0..0));
        assert_eq!(found(i64::MAX, i64::MIN, 64, usize::MAX), numbers(0..0));
        assert_eq!(found(0, i64::MAX, 64, 1), numbers(119..120), "one in any case");
        assert_eq!(found(0, i64::MAX, 64, 350).len(), 3);
        let result = store.query_messages("A", "nothing", ALL, 1, 1).unwrap();
        assert_eq!(result.index_last_update_timestamp_ms, time(119));
        assert_eq!(
            Some(result.index_last_update_physical_offset),
            store.physical_offset_of("A", 0, 119).unwrap()
        );
    }
}

#[test]
fn messages_of_a_deleted_topic_are_not_found() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    for n in 0..10 {
        append_numbered(&store, n);
    }
    append(&store, "B", "stays", "KEYS\x01own-1\x02");
    store.flush().unwrap();
    assert!(store.delete_topic("A").unwrap());
    assert!(query(&store, "A", "U1").is_empty());
    assert_eq!(query(&store, "B", "own-1"), ["stays"]);
    // A topic of the same name has none of the old messages.
    append(&store, "A", "new", "KEYS\x01shared-1\x02");
    assert_eq!(query(&store, "A", "shared-1"), ["new"]);
    assert!(query(&store, "A", "U0").is_empty() && query(&store, "A", "U1").is_empty());
    store.shutdown().unwrap();
    drop(store);
    let (store, _) = open(directory.path());
    assert_eq!(query(&store, "A", "shared-1"), ["new"]);
    assert!(query(&store, "A", "U0").is_empty());
}

#[test]
fn files_follow_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = small_config(directory.path());
    config.file_reserved_hours = 0;
    config.delete_commit_log_files_interval_ms = 0;
    config.delete_file_batch_max = 4;
    // A clock ahead of the times of all files: each is old enough.
    let year_2100 = Arc::new(ManualClock::new(4_102_444_800_000));
    let environment = Environment { clock: year_2100, ..quiet() };
    let (store, _) = Store::open(config, environment).unwrap();
    for n in 0..200 {
        append_numbered(&store, n);
    }
    store.flush().unwrap();
    let before = index_files(directory.path());
    assert_eq!(store.remove_old_files(true).unwrap(), 4);
    let after = index_files(directory.path());
    assert!(after.len() < before.len(), "{before:?} {after:?}");
    assert!(before.ends_with(&after));
    let first = store.min_queue_offset("A", 0) as usize;
    assert!(first > 0);
    assert!(query(&store, "A", &format!("U{}", first - 1)).is_empty());
    for n in first..200 {
        assert_eq!(query(&store, "A", &format!("U{n}")), [n.to_string()]);
    }
    while store.remove_old_files(true).unwrap() > 0 {}
    assert!(!index_files(directory.path()).is_empty(), "the last one stays");
    store.shutdown().unwrap();
    drop(store);
    let (store, report) = open(directory.path());
    assert_eq!(report.index_entries_added, 0, "{report}");
    assert_eq!(query(&store, "A", "U199"), ["199"]);
}

#[test]
fn the_index_is_complete_after_each_end() {
    for clean in [true, false] {
        for flushed in [0, 70, 149] {
            let directory = tempfile::tempdir().unwrap();
            let (store, _) = open(directory.path());
            for n in 0..150 {
                append_numbered(&store, n);
                if n == flushed {
                    store.flush().unwrap();
                }
            }
            if clean {
                store.shutdown().unwrap();
            }
            drop(store);
            let (store, report) = open(directory.path());
            assert_eq!(report.clean, clean);
            assert!(report.index_files_rebuilt.is_empty(), "{report}");
            assert_eq!(report.index_entries_added > 0, !clean, "{report}");
            assert_numbered(&store, 150, &report.to_string());
            append_numbered(&store, 150);
            assert_numbered(&store, 151, "goes on");
        }
    }
}

/// Entries that the checkpoint vouches for are not read from the log again.
#[test]
fn a_crash_costs_only_what_the_checkpoint_does_not_cover() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(1_000_000));
    let environment = Environment { clock: Arc::clone(&clock) as _, ..quiet() };
    let (store, _) = Store::open(small_config(directory.path()), environment.clone()).unwrap();
    for n in 0..150 {
        append_numbered(&store, n);
        clock.advance(1_000);
    }
    store.flush().unwrap();
    let newest = index_files(directory.path()).pop().unwrap();
    for n in 150..155 {
        append_numbered(&store, n);
    }
    store.tick().unwrap();
    drop(store);
    // The header got to the disk, the slots did not.
    let mut bytes = std::fs::read(&newest).unwrap();
    bytes[40..120].fill(0);
    std::fs::write(&newest, bytes).unwrap();
    let (store, report) = Store::open(small_config(directory.path()), environment).unwrap();
    assert!((15..120).contains(&report.index_entries_added), "{report}");
    assert_numbered(&store, 155, &report.to_string());
}

/// Slots of entries that were not vouched for may be on the disk without the header.
#[test]
fn slots_that_lead_behind_the_header_are_mended() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(1_000_000));
    let environment = Environment { clock: Arc::clone(&clock) as _, ..quiet() };
    let (store, _) = Store::open(small_config(directory.path()), environment.clone()).unwrap();
    let append_without_keys = || append(&store, "A", &"x".repeat(500), "TAGS\x01t\x02");
    for n in 0..10 {
        append_numbered(&store, n);
    }
    // Into the next log file, without keys: the index ends in front of what is vouched for.
    clock.advance(10_000);
    while store.max_physical_offset() < 5_000 {
        append_without_keys();
    }
    clock.advance(10_000);
    append_without_keys();
    store.flush().unwrap();
    let index = index_files(directory.path()).pop().unwrap();
    let header = std::fs::read(&index).unwrap()[..40].to_vec();
    for n in 10..14 {
        append_numbered(&store, n);
    }
    store.tick().unwrap();
    drop(store);
    let mut bytes = std::fs::read(&index).unwrap();
    assert_ne!(bytes[..40], header);
    bytes[..40].copy_from_slice(&header);
    std::fs::write(&index, bytes).unwrap();
    let (store, report) = Store::open(small_config(directory.path()), environment).unwrap();
    assert_numbered(&store, 14, &report.to_string());
}

#[test]
fn damaged_files_are_named_and_built_anew() {
    for clean in [true, false] {
        for accident in
            ["all", "empty", "short", "long", "garbage", "header", "first", "gap", "older log"]
        {
            let directory = tempfile::tempdir().unwrap();
            let (store, _) = open(directory.path());
            for n in 0..70 {
                append_numbered(&store, n);
            }
            store.flush().unwrap();
            if clean {
                store.shutdown().unwrap();
            }
            drop(store);
            let index = directory.path().join("index");
            let files = index_files(directory.path());
            let mut bad = files.last().unwrap();
            let whole = std::fs::read(bad).unwrap();
            match accident {
                "all" => std::fs::remove_dir_all(&index).unwrap(),
                "empty" => std::fs::write(bad, b"").unwrap(),
                "short" => std::fs::write(bad, &whole[..whole.len() - 1]).unwrap(),
                "long" => std::fs::write(bad, [&whole[..], b"x"].concat()).unwrap(),
                "garbage" => std::fs::write(bad, vec![0xA5; whole.len()]).unwrap(),
                "header" => {
                    std::fs::write(bad, [&[0x7F; 40], &whole[40..]].concat()).unwrap();
                }
                "first" => {
                    bad = &files[0];
                    std::fs::write(bad, [&[0x7F; 40], &whole[40..]].concat()).unwrap();
                }
                "gap" => std::fs::remove_file(&files[1]).unwrap(),
                // Of another store: its records are elsewhere.
                _ => {
                    let mut other = whole.clone();
                    for at in (120 + 20..other.len()).step_by(20) {
                        other[at + 11] ^= 1;
                    }
                    other[23] ^= 1;
                    other[31] ^= 1;
                    std::fs::write(bad, other).unwrap();
                }
            }
            let (store, report) = open(directory.path());
            let why = format!("{accident}, clean {clean}: {report}");
            assert_numbered(&store, 70, &why);
            let named: Vec<_> = report.index_files_rebuilt.iter().map(|(path, _)| path).collect();
            // After a crash nothing of it is trusted, so that it goes without being looked at.
            if accident == "gap" {
                assert!(clean != named.is_empty(), "{why}");
            } else if accident != "all" && accident != "older log" {
                assert_eq!(named.first(), Some(&bad), "{why}");
                assert!(why.contains(&bad.display().to_string()));
            }
            assert!(report.index_entries_added > 0, "{why}");
            append_numbered(&store, 70);
            store.shutdown().unwrap();
            drop(store);
            let (store, report) = open(directory.path());
            assert_eq!(report.index_entries_added, 0, "{report}");
            assert_numbered(&store, 71, &why);
        }
    }
}

#[test]
fn entries_of_records_that_were_cut_go_with_them() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    for n in 0..30 {
        append_numbered(&store, n);
    }
    store.shutdown().unwrap();
    let cut = store.physical_offset_of("A", 0, 20).unwrap().unwrap() as usize;
    drop(store);
    let file = directory.path().join("commitlog").join(format!("{:020}", cut / 4096 * 4096));
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[cut % 4096 + 90] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    std::fs::write(directory.path().join("abort"), b"1").unwrap();
    let (store, report) = open(directory.path());
    assert!(report.bytes_cut > 0, "{report}");
    assert_numbered(&store, 20, &report.to_string());
    for n in 20..40 {
        append_numbered(&store, n);
    }
    assert_numbered(&store, 40, "others in their place");
    store.shutdown().unwrap();
    drop(store);
    assert_numbered(&open(directory.path()).0, 40, "and again");
}

/// Long enough to be read by several threads; what an earlier run vouched for is not verified.
#[test]
fn a_long_log_is_indexed_anew_and_only_the_rest_of_a_damaged_file_left_out() {
    const COUNT: usize = 1_000;
    let directory = tempfile::tempdir().unwrap();
    let reopen = || {
        let mut config = small_config(directory.path());
        config.commit_log_file_bytes = 2 << 20;
        Store::open(config, quiet()).unwrap()
    };
    let (store, _) = reopen();
    let padding = "x".repeat(9_000);
    let mut places = Vec::new();
    for n in 0..COUNT {
        let keys = format!("UNIQ_KEY\x01U{n}\x02KEYS\x01own-{n} shared-{}\x02", n % 3);
        append(&store, "A", &n.to_string(), &format!("PAD\x01{padding}\x02{keys}"));
        places.push(store.physical_offset_of("A", 0, n as i64).unwrap().unwrap());
    }
    assert!(store.written().0 > 8 << 20);
    // Its index is in memory yet.
    drop(store);
    let (store, report) = reopen();
    assert_eq!(report.index_entries_added, 3 * COUNT as u64);
    assert_numbered(&store, COUNT, "after a crash");
    store.shutdown().unwrap();
    drop(store);

    std::fs::remove_dir_all(directory.path().join("index")).unwrap();
    let file_bytes = 2 << 20;
    let in_second = |place: &&i64| (file_bytes..2 * file_bytes).contains(*place);
    let left_out = places.iter().filter(in_second).count() - 5;
    let damaged = *places.iter().filter(in_second).nth(5).unwrap();
    let path = directory.path().join("commitlog").join(format!("{file_bytes:020}"));
    let file = std::fs::File::options().write(true).open(path).unwrap();
    // The physical offset that it says.
    file.write_all_at(b"?", (damaged - file_bytes) as u64 + 28).unwrap();
    let (store, report) = reopen();
    assert_eq!(report.index_entries_added, 3 * (COUNT - left_out) as u64);
    let found = (0..COUNT).filter(|n| !query(&store, "A", &format!("own-{n}")).is_empty());
    assert_eq!(found.count(), COUNT - left_out);
}

#[test]
fn other_files_are_reported_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    append_numbered(&store, 0);
    store.shutdown().unwrap();
    drop(store);
    let foreign = directory.path().join("index/2023.bak");
    std::fs::write(&foreign, b"mine").unwrap();
    let (store, report) = open(directory.path());
    assert_eq!(report.foreign, std::slice::from_ref(&foreign));
    assert_eq!(std::fs::read(foreign).unwrap(), b"mine");
    assert_numbered(&store, 1, "beside it");
}

#[test]
fn without_an_index_nothing_is_found_and_files_are_left_and_later_completed() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    append_numbered(&store, 0);
    store.shutdown().unwrap();
    drop(store);
    let before = std::fs::read(&index_files(directory.path())[0]).unwrap();
    let mut config = small_config(directory.path());
    config.message_index_enable = false;
    let (store, _) = Store::open(config, quiet()).unwrap();
    append_numbered(&store, 1);
    assert!(query(&store, "A", "U0").is_empty() && query(&store, "A", "U1").is_empty());
    store.shutdown().unwrap();
    drop(store);
    assert_eq!(std::fs::read(&index_files(directory.path())[0]).unwrap(), before);
    let (store, report) = open(directory.path());
    assert_eq!(report.index_entries_added, 3);
    assert_numbered(&store, 2, "with the one that was missing");
}

/// A full disk keeps entries in memory, where they are found.
#[test]
fn what_cannot_be_written_stays_in_memory() {
    for fault in ["create", "write", "half a write"] {
        let directory = tempfile::tempdir().unwrap();
        let faulty = Faulty::default();
        let environment =
            Environment { file_system: Arc::new(faulty.clone()), threads: false, ..quiet() };
        let config = small_config(directory.path());
        let (store, _) = Store::open(config.clone(), environment.clone()).unwrap();
        let mut count = 0;
        if fault == "half a write" {
            while count < 10 {
                append_numbered(&store, count);
                count += 1;
            }
            store.flush().unwrap();
        }
        faulty.concern("/index/");
        let fault = if fault == "create" { &faulty.0.create } else { &faulty.0.write };
        fault.store(true, Ordering::SeqCst);
        for _ in 0..60 {
            append_numbered(&store, count);
            count += 1;
            if count % 20 == 0 {
                let error = store.tick().unwrap_err().to_string();
                assert!(error.contains("/index/20"), "{error}");
            }
        }
        assert_numbered(&store, count, "in memory");
        assert!(store.writable().is_ok(), "there is room in memory");
        fault.store(false, Ordering::SeqCst);
        store.tick().unwrap();
        assert_numbered(&store, count, "written");
        store.shutdown().unwrap();
        drop(store);
        let (store, report) = Store::open(config, environment).unwrap();
        assert_eq!(report.index_entries_added, 0, "{report}");
        assert_numbered(&store, count, "and read");
    }
}

#[test]
fn a_full_memory_refuses_and_resumes() {
    let directory = tempfile::tempdir().unwrap();
    let faulty = Faulty::default();
    let environment =
        Environment { file_system: Arc::new(faulty.clone()), threads: false, ..quiet() };
    let mut config = small_config(directory.path());
    config.commit_log_file_bytes = 64 << 20;
    config.message_bytes_max = 40_000;
    config.index_entries = 1_000_000;
    let (store, _) = Store::open(config, environment).unwrap();
    faulty.concern("/index/");
    faulty.0.create.store(true, Ordering::SeqCst);
    let keys = format!("KEYS\x01{}\x02", "k ".repeat(16_000));
    let mut appended = 0;
    while store.writable().is_ok() {
        append(&store, "A", &appended.to_string(), &keys);
        appended += 1;
        assert!(appended < 100, "memory has a bound");
    }
    assert!(matches!(store.writable(), Err(Refusal::Index(_))));
    assert_eq!(query(&store, "A", "k").len(), appended);
    faulty.0.create.store(false, Ordering::SeqCst);
    store.tick().unwrap();
    assert!(store.writable().is_ok());
    append(&store, "A", "next", &keys);
    assert_eq!(query(&store, "A", "k").len(), appended + 1);
    let read = store.get_messages("A", 0, 0, LIMITS, &MatchAll).unwrap();
    assert!(read.message_count > 0);
}

#[test]
fn a_failed_sync_is_final() {
    let directory = tempfile::tempdir().unwrap();
    let faulty = Faulty::default();
    let environment =
        Environment { file_system: Arc::new(faulty.clone()), threads: false, ..quiet() };
    let (store, _) = Store::open(small_config(directory.path()), environment).unwrap();
    append_numbered(&store, 0);
    faulty.concern("/index/");
    faulty.0.sync.store(true, Ordering::SeqCst);
    store.flush().unwrap_err();
    assert!(matches!(store.writable(), Err(Refusal::SyncFailed(_))));
    drop(store);
    let (store, report) = open(directory.path());
    assert!(!report.clean);
    assert_numbered(&store, 1, &report.to_string());
}

#[test]
fn threads_write_it_while_it_is_asked() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = small_config(directory.path());
    config.flush_interval_consume_queue_ms = 1;
    let (store, _) = Store::open(config, common::lively()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..300 {
                append_numbered(&store, n);
            }
        });
        let mut found = 0;
        while found < 300 {
            if query(&store, "A", &format!("U{found}")) == [found.to_string()] {
                found += 1;
            }
            for shared in 0..3 {
                let numbers = query(&store, "A", &format!("shared-{shared}"));
                let numbers: Vec<usize> = numbers.iter().map(|n| n.parse().unwrap()).collect();
                assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 3), "{numbers:?}");
            }
        }
    });
    store.shutdown().unwrap();
    assert_numbered(&store, 300, "all");
}
