//! Checking, dumping and repairing directories, sound and damaged.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::faulty::Faulty;
use common::{append, bodies, message, open, small_config};
use rocketmq_protocol::message::record::{MessageRecord, NewMessage};
use rocketmq_store::consume_queue::QueueFormat;
use rocketmq_store::index::file::Layout;
use rocketmq_store::inspect::dump::{self, LogPlaceItem};
use rocketmq_store::inspect::{
    self, CheckReport, InspectionLock, Kept, QueueName, Severity, found_config,
};
use rocketmq_store::{FileSystem, RealFileSystem, StoreConfig, StoreError};

const MESSAGES: usize = 50;

fn log_file(root: &Path, base_offset: u64) -> PathBuf {
    root.join("commitlog").join(format!("{base_offset:020}"))
}

fn queue_file(root: &Path, queue_id: i32, base: u64) -> PathBuf {
    root.join(format!("consumequeue/A/{queue_id}/{base:020}"))
}

/// Three files of messages in two queues; returns where each record of queue 0 lies.
fn made(root: &Path, clean: bool) -> Vec<u64> {
    let (store, _) = open(root);
    for n in 0..MESSAGES {
        append(&store, "A", (n % 2) as i32, format!("message {n} {}", "x".repeat(100)).as_bytes());
    }
    let places = (0..MESSAGES as i64 / 2)
        .map(|offset| store.physical_offset_of("A", 0, offset).unwrap().unwrap() as u64)
        .collect();
    if clean {
        store.shutdown().unwrap();
    } else {
        store.flush().unwrap();
    }
    fs::create_dir_all(root.join("config")).unwrap();
    let topics = br#"{"topicConfigTable":{"A":{"topicName":"A"}}}"#;
    fs::write(root.join("config/topics.json"), topics).unwrap();
    places
}

/// Every file below `root` with its bytes.
fn contents(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                found.insert(path.clone(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    fs::File::options().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}

/// Checks, which must not change a byte.
fn check(root: &Path) -> CheckReport {
    let before = contents(root);
    let report = inspect::check(&RealFileSystem, &small_config(root)).unwrap();
    assert!(contents(root) == before, "a check changes nothing");
    report
}

/// The one finding of damage, as `file name`, `byte`, `text`.
fn only(report: &CheckReport) -> (String, Option<u64>, String) {
    let damage: Vec<_> =
        report.findings.iter().filter(|found| found.severity == Severity::Damage).collect();
    assert_eq!((damage.len(), report.damage), (1, 1), "{damage:#?}");
    let name = damage[0].path.file_name().unwrap().to_str().unwrap().to_owned();
    (name, damage[0].at, damage[0].what.clone())
}

/// Repairs as `rmq store repair --yes` does, and expects a directory without damage.
fn repair(root: &Path, kept: Kept) -> inspect::Repaired {
    let file_system: Arc<dyn FileSystem> = Arc::new(RealFileSystem);
    let config = small_config(root);
    let repaired = inspect::repair(&file_system, &config, 1234, kept, |_| true).unwrap().unwrap();
    assert_eq!(repaired.check.damage, 0, "{:#?}", repaired.check.findings);
    assert!(repaired.check.clean && !root.join("abort").exists());
    repaired
}

#[test]
fn a_sound_directory_has_no_findings() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let places = made(root, true);
    let report = check(root);
    assert_eq!(report.findings, []);
    assert!(report.clean && !report.needs_repair());
    assert_eq!((report.records, report.entries), (MESSAGES as u64, MESSAGES as u64));
    assert_eq!((report.queues, report.log_start, report.log_files), (2, 0, 3));
    assert!(report.log_end > *places.last().unwrap() && report.first_store_ms > 0);
    assert!(report.last_store_ms >= report.first_store_ms);
}

#[test]
fn an_unclean_directory_is_noted_and_no_damage() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let (store, _) = open(root);
    for _ in 0..10 {
        append(&store, "A", 0, b"body");
    }
    // Entries are in memory only, and the last record is torn.
    let last = store.physical_offset_of("A", 0, 9).unwrap().unwrap() as u64;
    drop(store);
    overwrite(&log_file(root, 0), last + 60, &[0; 40]);
    let report = check(root);
    assert!(!report.clean);
    assert_eq!(report.damage, 0, "{:#?}", report.findings);
    assert_eq!((report.records, report.log_end), (9, last));
    let repairs: Vec<_> = report.findings.iter().map(|found| found.repair.as_str()).collect();
    assert!(
        repairs.iter().any(|text| text.contains("next start cuts the log here")),
        "{repairs:?}"
    );
    open(root);
}

#[test]
fn damage_in_the_log_is_found_at_its_byte() {
    for (field, at, bytes, what) in [
        ("body", 100, &b"?"[..], "body does not match its CRC"),
        ("magic", 4, b"\0\0\0\0", "magic"),
        ("size", 0, b"\0\0\x01\0", "256"),
        ("place", 28, b"\0\0\0\0\0\0\0\x07", "record says physical offset 7"),
        ("queue offset", 20, b"\xff", "record says queue offset -"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let places = made(root, true);
        let file = log_file(root, 0);
        overwrite(&file, places[3] + at, bytes);
        let report = check(root);
        let logged: Vec<_> = report.findings.iter().filter(|found| found.path == file).collect();
        assert_eq!(logged.len(), 1, "{field}: {logged:#?}");
        assert_eq!(logged[0].at, Some(places[3]), "{field}");
        assert!(logged[0].what.contains(what), "{field}: {}", logged[0].what);
        let cut = report.cut.as_ref().unwrap();
        assert_eq!((cut.position, cut.path.as_path()), (places[3], file.as_path()));
        // All but the damaged one: records behind it are found again.
        assert_eq!(report.records, 6, "{field}");
        assert_eq!(cut.messages, MESSAGES as u64 - 7, "{field}");
        assert_eq!(cut.files, [log_file(root, 4096), log_file(root, 8192)]);
        assert!(cut.first_store_ms > 0 && cut.last_store_ms >= cut.first_store_ms);
        assert!(cut.bytes > 4096 && report.log_end == places[3]);
    }
}

#[test]
fn a_cut_is_kept_aside_and_the_rest_serves() {
    for kept in [Kept::Aside, Kept::Discarded] {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let places = made(root, true);
        let whole = contents(root);
        overwrite(&log_file(root, 0), places[3] + 100, b"?");
        let damaged = fs::read(log_file(root, 0)).unwrap();
        let repaired = repair(root, kept);
        assert_eq!((repaired.check.records, repaired.check.log_end), (6, places[3]));
        let aside = root.join("repair-1234/commitlog");
        if kept == Kept::Aside {
            assert_eq!(repaired.kept_in, Some(root.join("repair-1234")));
            let name = format!("{:020}.from-{}", 0, places[3]);
            assert_eq!(fs::read(aside.join(name)).unwrap(), damaged[places[3] as usize..]);
            for base in [4096, 8192] {
                let file = log_file(root, base);
                assert!(!file.exists());
                assert_eq!(fs::read(aside.join(file.file_name().unwrap())).unwrap(), whole[&file]);
            }
        } else {
            assert!(repaired.kept_in.is_none() && !root.join("repair-1234").exists());
        }
        let (store, report) = open(root);
        assert!(report.clean && report.bytes_cut == 0, "{report}");
        assert_eq!((bodies(&store, "A", 0).len(), bodies(&store, "A", 1).len()), (3, 3));
        assert_eq!(append(&store, "A", 0, b"next"), 3);
    }
}

#[test]
fn files_of_the_log_that_do_not_fit_are_found_and_mended() {
    // Short, long, missing, off its place, a directory, a link.
    for accident in ["short", "long", "missing", "odd name", "directory", "link"] {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        made(root, true);
        let middle = log_file(root, 4096);
        match accident {
            "short" => {
                fs::File::options().write(true).open(&middle).unwrap().set_len(1000).unwrap()
            }
            "long" => fs::File::options().write(true).open(&middle).unwrap().set_len(9000).unwrap(),
            "missing" => fs::remove_file(&middle).unwrap(),
            "odd name" => fs::write(log_file(root, 4097), b"x").unwrap(),
            "directory" => fs::create_dir(log_file(root, 1 << 20)).unwrap(),
            _ => std::os::unix::fs::symlink("/dev/null", log_file(root, 1 << 20)).unwrap(),
        }
        let report = inspect::check(&RealFileSystem, &small_config(root)).unwrap();
        assert!(report.needs_repair(), "{accident}");
        let texts: Vec<_> = report.findings.iter().map(|found| found.what.as_str()).collect();
        let expected = match accident {
            "short" => "has 1000 bytes, 4096 are expected",
            "long" => "has 9000 bytes, 4096 are expected",
            "missing" => "is missing, though files behind it exist",
            "odd name" => "begins at a place that is no multiple of 4096",
            _ => "has the name of a log file but is none",
        };
        assert!(texts.iter().any(|text| text.contains(expected)), "{accident}: {texts:?}");
        let repaired = repair(root, Kept::Aside);
        let (store, _) = open(root);
        let left = bodies(&store, "A", 0).len() + bodies(&store, "A", 1).len();
        assert_eq!(left as u64, repaired.check.records);
        match accident {
            "short" | "missing" => assert!(left > 10 && left < MESSAGES, "{accident}: {left}"),
            _ => assert_eq!(left, MESSAGES, "{accident}"),
        }
    }
}

#[test]
fn queues_that_disagree_are_found_in_both_directions_and_rebuilt() {
    for accident in [
        "points elsewhere",
        "wrong size",
        "wrong tag",
        "hole",
        "lost file",
        "lost queue",
        "one entry too many",
        "short file",
    ] {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        made(root, true);
        let file = queue_file(root, 1, 160);
        let entry = 20 * 3;
        match accident {
            "points elsewhere" => overwrite(&file, entry, &77u64.to_be_bytes()),
            "wrong size" => overwrite(&file, entry + 8, &5u32.to_be_bytes()),
            "wrong tag" => overwrite(&file, entry + 12, &5u64.to_be_bytes()),
            "hole" => overwrite(&file, entry, &[0; 20]),
            "lost file" => fs::remove_file(&file).unwrap(),
            "lost queue" => fs::remove_dir_all(root.join("consumequeue/A/1")).unwrap(),
            "one entry too many" => {
                let last = queue_file(root, 1, 480);
                let bytes = fs::read(&last).unwrap();
                let end = bytes.chunks(20).position(|unit| unit == [0; 20]).unwrap() * 20;
                let mut extra = bytes[end - 20..end].to_vec();
                extra[0..8].copy_from_slice(&(1u64 << 40).to_be_bytes());
                overwrite(&last, end as u64, &extra);
            }
            _ => fs::File::options().write(true).open(&file).unwrap().set_len(159).unwrap(),
        }
        let report = check(root);
        let (topic, format) = ("A".to_owned(), QueueFormat::Simple);
        let expected = [QueueName { topic, queue_id: 1, format }];
        assert_eq!(report.rebuild, expected, "{accident}: {:#?}", report.findings);
        assert!(report.cut.is_none(), "{accident}");
        if accident == "wrong tag" {
            assert!(only(&report).2.contains("entry 11 has tags code 5"), "{:?}", only(&report));
            assert_eq!(only(&report).1, Some(60));
        }
        repair(root, Kept::Aside);
        let (store, _) = open(root);
        let total = bodies(&store, "A", 0).len() + bodies(&store, "A", 1).len();
        assert_eq!(total, MESSAGES, "{accident}");
    }
}

/// Messages with keys, in the settings of all these tests; returns where each lies.
fn made_with_keys(root: &Path) -> Vec<u64> {
    let (store, _) = open(root);
    let mut batch = store.new_batch();
    for n in 0..60 {
        let properties = format!("KEYS\u{1}k{n} all\u{2}UNIQ_KEY\u{1}U{n}\u{2}");
        batch
            .push(&NewMessage { properties: &[properties.as_bytes()], ..message("A", 0, b"x") })
            .unwrap();
    }
    store.append(&mut batch).unwrap();
    let places = (0..60).map(|index| batch.result(index).unwrap().physical_offset as u64).collect();
    store.shutdown().unwrap();
    places
}

fn index_files(root: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> =
        fs::read_dir(root.join("index")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn the_index_is_verified_against_itself_and_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let places = made_with_keys(root);
    let files = index_files(root);
    let report = check(root);
    assert_eq!(report.damage, 0, "{:#?}", report.findings);
    assert_eq!((report.index_files, report.index_entries), (files.len(), 180));
    let layout = Layout { slots: small_config(root).index_slots, entries: 50 };

    // Each part is damaged in turn, found at its byte, and made anew by a repair.
    let second = layout.entry_position(2);
    let damages: [(usize, u64, Vec<u8>, u64, &str); 6] = [
        (1, 36, 999_u32.to_be_bytes().to_vec(), 0, "indexCount 999"),
        (1, 32, 1_u32.to_be_bytes().to_vec(), 0, "slots are used"),
        (
            0,
            second + 4,
            (places[40] as i64).to_be_bytes().to_vec(),
            layout.entry_position(3),
            "behind",
        ),
        (0, second + 16, 40_u32.to_be_bytes().to_vec(), second, "comes before it in its chain"),
        (0, second + 12, (-1_i32).to_be_bytes().to_vec(), second, "the time -1 s"),
        (
            0,
            layout.slot_position(0),
            49_u32.to_be_bytes().to_vec(),
            layout.slot_position(0),
            "slot 0 leads to entry",
        ),
    ];
    for (file, at, bytes, found_at, what) in damages {
        let files = index_files(root);
        overwrite(&files[file], at, &bytes);
        let report = check(root);
        let (_, found, text) = only(&report);
        assert!(text.contains(what), "{what}: {text}");
        assert_eq!(found, Some(found_at), "{text}");
        assert!(report.rebuild_index);
        let repaired = repair(root, Kept::Discarded);
        assert_eq!(repaired.check.index_entries, 180);
    }
}

#[test]
fn an_entry_of_another_record_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    made_with_keys(root);
    // The hash of another key in the same slot keeps the file right in itself.
    let layout = Layout { slots: small_config(root).index_slots, entries: 50 };
    let file = &index_files(root)[0];
    let bytes = fs::read(file).unwrap();
    let at = layout.entry_position(5) as usize;
    let hash = i32::from_be_bytes(*bytes[at..].first_chunk().unwrap());
    let other = hash + layout.slots as i32;
    overwrite(file, at as u64, &other.to_be_bytes());
    let (_, found, text) = only(&check(root));
    assert_eq!(found, Some(at as u64));
    assert!(text.contains("entry 5 should be one of the record"), "{text}");
    assert_eq!(repair(root, Kept::Aside).check.index_entries, 180);
}

#[test]
fn a_shorter_index_is_a_note_and_the_next_start_completes_it() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    made_with_keys(root);
    let last = index_files(root).pop().unwrap();
    fs::remove_file(last).unwrap();
    let report = check(root);
    assert_eq!(report.damage, 0, "{:#?}", report.findings);
    assert!(report.findings.iter().any(|found| found.what.contains("ends in front of the record")));
    let (store, _) = open(root);
    store.shutdown().unwrap();
    drop(store);
    assert_eq!(check(root).index_entries, 180);
}

#[test]
fn the_chain_of_a_key_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let places = made_with_keys(root);
    let chains =
        |key: &str| dump::index_chains(&RealFileSystem, &small_config(root), "A", key).unwrap();
    let (hits, broken) = chains("k7");
    assert_eq!(broken, Vec::<String>::new());
    let ours: Vec<_> = hits.iter().filter(|hit| hit.has_key == Some(true)).collect();
    assert_eq!(ours.len(), 1, "{hits:#?}");
    assert_eq!(ours[0].entry.physical_offset as u64, places[7]);
    let all = chains("all").0;
    assert_eq!(all.iter().filter(|hit| hit.has_key == Some(true)).count(), 60);
    assert!(all.windows(2).all(|pair| {
        pair[0].path != pair[1].path
            || pair[0].entry.physical_offset >= pair[1].entry.physical_offset
    }));
    assert!(chains("none").0.iter().all(|hit| hit.has_key == Some(false)));
}

#[test]
fn messages_of_a_deleted_topic_are_no_damage() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let (store, _) = open(root);
    for _ in 0..20 {
        append(&store, "A", 0, b"old");
        append(&store, "B", 0, b"gone");
    }
    store.delete_topic("A").unwrap();
    store.delete_topic("B").unwrap();
    for _ in 0..5 {
        append(&store, "A", 0, b"new");
    }
    store.shutdown().unwrap();
    drop(store);
    let report = check(root);
    assert_eq!(report.findings, []);
    assert_eq!((report.records_of_deleted_topics, report.entries), (40, 5));
}

#[test]
fn foreign_and_small_files_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    made(root, true);
    fs::write(root.join("notes.txt"), b"mine").unwrap();
    fs::write(root.join("commitlog/backup.tar"), b"mine").unwrap();
    fs::write(root.join("consumequeue/A/0/.swp"), b"mine").unwrap();
    let report = check(root);
    assert_eq!(report.damage, 0);
    let mut named: Vec<_> = report.findings.iter().map(|found| found.path.clone()).collect();
    named.sort();
    assert_eq!(
        named,
        ["commitlog/backup.tar", "consumequeue/A/0/.swp", "notes.txt"].map(|name| root.join(name))
    );
    overwrite(&root.join("checkpoint"), 8, &(-5i64).to_be_bytes());
    let report = check(root);
    assert_eq!(only(&report), ("checkpoint".to_owned(), Some(8), "the word is -5".to_owned()));
    overwrite(&root.join("checkpoint"), 8, &0i64.to_be_bytes());
    fs::write(root.join("config/consumerOffset.json"), b"{\"offsetTable\":").unwrap();
    let report = check(root);
    assert!(only(&report).2.contains("is damaged"), "{:?}", only(&report));
    fs::write(root.join("config/consumerOffset.json.bak"), b"{\"offsetTable\":{}}").unwrap();
    assert_eq!(check(root).damage, 0);
}

#[test]
fn a_directory_in_use_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    made(root, true);
    let (store, _) = open(root);
    let error = InspectionLock::take(&RealFileSystem, root).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    let file_system: Arc<dyn FileSystem> = Arc::new(RealFileSystem);
    let error = inspect::repair(&file_system, &small_config(root), 1, Kept::Aside, |_| true);
    assert!(matches!(error, Err(StoreError::Locked { .. })));
    store.shutdown().unwrap();
    drop(store);
    let held = InspectionLock::take(&RealFileSystem, root).unwrap();
    InspectionLock::take(&RealFileSystem, root).expect("two may look");
    assert!(matches!(common::try_open(root), Err(StoreError::Locked { .. })));
    drop(held);
}

/// As on a read-only mount.
#[test]
fn looking_asks_for_nothing_but_reading() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let places = made(root, true);
    let faulty = Faulty::default();
    faulty.0.read_only.store(true, Ordering::SeqCst);
    let config = found_config(&faulty, root).unwrap();
    let _lock = InspectionLock::take(&faulty, root).unwrap();
    let report = inspect::check(&faulty, &config).unwrap();
    assert_eq!(report.findings, []);
    assert!(dump::log_place(&faulty, &config, places[2]).unwrap().is_some());
    let entries = dump::queue_entries(&faulty, &config, "A", 0, None, 4).unwrap().unwrap();
    assert_eq!(entries.len(), 4);
    assert!(dump::checkpoint(&faulty, &config).is_some());
}

#[test]
fn what_the_disk_cannot_read_is_a_finding() {
    for (part, of_queue) in [("00000000000000004096", false), ("consumequeue/A/1", true)] {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        made(root, true);
        let faulty = Faulty::default();
        faulty.concern(part);
        faulty.0.read.store(true, Ordering::SeqCst);
        let report = inspect::check(&faulty, &small_config(root)).unwrap();
        let named = report.findings.iter().find(|found| found.what.contains("cannot be read"));
        let named = named.unwrap_or_else(|| panic!("{part}: {:#?}", report.findings));
        assert!(named.path.to_str().unwrap().contains(part), "{named:?}");
        // What lies behind a cut takes its entries along.
        assert_eq!(report.rebuild.iter().any(|queue| queue.queue_id == 1), of_queue);
        assert_eq!(report.cut.is_none(), of_queue);
    }
}

#[test]
fn a_repair_that_is_not_agreed_to_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let places = made(root, true);
    overwrite(&log_file(root, 0), places[3] + 100, b"?");
    let before = contents(root);
    let file_system: Arc<dyn FileSystem> = Arc::new(RealFileSystem);
    let mut asked = 0;
    let done = inspect::repair(&file_system, &small_config(root), 1, Kept::Aside, |report| {
        asked += 1;
        assert!(report.cut.is_some());
        false
    });
    assert!(done.unwrap().is_none());
    assert_eq!(asked, 1);
    assert!(contents(root) == before);
}

#[test]
fn sizes_are_found_from_the_files() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    made(root, true);
    fs::File::options().write(true).open(log_file(root, 8192)).unwrap().set_len(5000).unwrap();
    let found = found_config(&RealFileSystem, root).unwrap();
    assert_eq!((found.commit_log_file_bytes, found.consume_queue_file_bytes), (4096, 160));
    let empty = tempfile::tempdir().unwrap();
    let found = found_config(&RealFileSystem, empty.path()).unwrap();
    let default = StoreConfig::new(empty.path());
    assert_eq!(found.commit_log_file_bytes, default.commit_log_file_bytes);
    assert!(found_config(&RealFileSystem, &empty.path().join("nowhere")).is_err());
}

#[test]
fn single_things_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let places = made(root, true);
    let config = small_config(root);
    let place = dump::log_place(&RealFileSystem, &config, places[20]).unwrap().unwrap();
    let LogPlaceItem::Record(bytes) = &place.item else { panic!("{place:?}") };
    let record = MessageRecord::decode(bytes).unwrap();
    assert_eq!((record.queue_offset, record.topic, bytes.len()), (20, "A", record.size));
    assert_eq!(place.at, places[20] % 4096);
    let item = |offset| dump::log_place(&RealFileSystem, &config, offset).unwrap().unwrap().item;
    assert!(matches!(item(places[20] + 1), LogPlaceItem::Damaged(_)));
    assert_eq!(item(12_000), LogPlaceItem::Empty);
    assert_eq!(dump::log_place(&RealFileSystem, &config, 1 << 40).unwrap(), None);

    let entries = |from, count| {
        dump::queue_entries(&RealFileSystem, &config, "A", 0, from, count).unwrap().unwrap()
    };
    let all = entries(None, 1000);
    assert_eq!(all.len(), MESSAGES / 2);
    for (n, entry) in all.iter().enumerate() {
        assert_eq!((entry.queue_offset, entry.unit.physical_offset), (n as i64, places[n] as i64));
        assert!(entry.store_timestamp_ms.is_some());
    }
    assert_eq!(entries(Some(5), 7), all[5..12]);
    assert_eq!(entries(Some(1000), 7), []);
    let none = |topic, queue_id| {
        dump::queue_entries(&RealFileSystem, &config, topic, queue_id, None, 1).unwrap()
    };
    assert!(none("A", 7).is_none() && none("../A", 0).is_none() && none("A", -1).is_none());
    let words = dump::checkpoint(&RealFileSystem, &config).unwrap();
    assert!(words.physic_msg_timestamp_ms > 0);
}

/// Whatever is in the files, a check ends with a report.
#[test]
fn arbitrary_damage_never_panics() {
    use proptest::test_runner::{Config, TestRunner};
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    made(root, true);
    let files: Vec<_> = contents(root).into_iter().filter(|(_, bytes)| !bytes.is_empty()).collect();
    let mut runner = TestRunner::new(Config::with_cases(150));
    let strategy =
        (0..files.len(), proptest::num::u64::ANY, proptest::collection::vec(0..=255u8, 1..40));
    runner
        .run(&strategy, |(file, at, bytes)| {
            let (path, whole) = &files[file];
            overwrite(path, at % whole.len() as u64, &bytes);
            inspect::check(&RealFileSystem, &small_config(root)).unwrap();
            fs::write(path, whole).unwrap();
            Ok(())
        })
        .unwrap();
}
