//! Directories that a Java broker 5.3.3 wrote, after a clean end and after kill -9, open here and
//! hold what Java says they hold.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod common;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::quiet;
use rocketmq_protocol::message::id::OffsetMessageId;
use rocketmq_protocol::message::properties::{self, name};
use rocketmq_protocol::message::record::{MAGIC_V1, MessageRecord, NewMessage};
use rocketmq_store::{
    Boundary, GetLimits, GetStatus, QueueFilter, RealFileSystem, RecoveryReport, Store,
    StoreConfig, inspect,
};
use serde_json::Value;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e/testdata/golden")
}

fn manifest() -> Value {
    let text = std::fs::read(golden().join("manifest.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// Unpacks one of the archives and returns its store directory.
fn unpack(name: &str, into: &Path) -> PathBuf {
    let packed = std::fs::read(golden().join(name)).unwrap();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(&packed[..]).unwrap();
    let mut tar = Vec::new();
    decoder.read_to_end(&mut tar).unwrap();
    tar::Archive::new(&tar[..]).unpack(into).unwrap();
    into.join("store")
}

fn open(root: &Path) -> (Arc<Store>, RecoveryReport) {
    let mut config = StoreConfig::new(root);
    config.commit_log_file_bytes = 65_536;
    config.consume_queue_file_bytes = 160;
    config.message_bytes_max = 32_768;
    config.index_slots = 100;
    config.index_entries = 150;
    Store::open(config, quiet()).unwrap()
}

/// Notes the tags code of the one message that is read.
struct NoteTagsCode(Cell<i64>);

impl QueueFilter for NoteTagsCode {
    fn matches_tags_code(&self, tags_code: i64) -> bool {
        self.0.set(tags_code);
        true
    }
}

const ONE: GetLimits = GetLimits { count_max: 1, bytes_max: 1 << 20 };

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_else(|| panic!("{field} of {value}"))
}

fn number(value: &Value, field: &str) -> i64 {
    value[field].as_i64().unwrap_or_else(|| panic!("{field} of {value}"))
}

/// Compares every record and every queue with the manifest.
fn assert_equals_manifest(store: &Store, manifest: &Value) {
    let expected = manifest["unclean"]["commitLog"].as_array().unwrap();
    let mut read = 0;
    for expected in expected {
        if expected.get("topic").is_none() {
            continue;
        }
        let physical_offset = number(expected, "physicalOffset");
        let bytes = store.message_at(physical_offset).expect("record");
        assert_same(&MessageRecord::decode(&bytes).unwrap(), expected);
        read += 1;
    }
    assert_eq!(read, 93);

    let queues = &manifest["unclean"]["consumeQueue [physicalOffset, size, tagsCode]"];
    let queues = queues.as_object().unwrap();
    let mut names = Vec::new();
    for topic in store.topics() {
        for queue_id in store.queues(&topic) {
            names.push(format!("{topic}/{queue_id}"));
        }
    }
    names.sort();
    assert_eq!(names, queues.keys().cloned().collect::<Vec<_>>());
    for (queue, units) in queues {
        let (topic, queue_id) = queue.split_once('/').unwrap();
        let queue_id: i32 = queue_id.parse().unwrap();
        let units = units.as_array().unwrap();
        assert_eq!(store.min_queue_offset(topic, queue_id), 0);
        assert_eq!(store.max_queue_offset(topic, queue_id), units.len() as i64, "{queue}");
        for (queue_offset, unit) in units.iter().enumerate() {
            let queue_offset = queue_offset as i64;
            let [physical, size, tags_code] = [0, 1, 2].map(|at| unit[at].as_i64().unwrap());
            assert_eq!(
                store.physical_offset_of(topic, queue_id, queue_offset).unwrap(),
                Some(physical)
            );
            let note = NoteTagsCode(Cell::new(0));
            let found = store.get_messages(topic, queue_id, queue_offset, ONE, &note).unwrap();
            assert_eq!((found.status, found.message_count), (GetStatus::Found, 1));
            assert_eq!(note.0.get(), tags_code, "{queue} {queue_offset}");
            let record = MessageRecord::decode(&found.messages[0]).unwrap();
            assert_eq!(record.physical_offset, physical);
            assert_eq!(record.size as i64, size);
            assert_eq!(record.queue_offset, queue_offset);
        }
    }
}

fn assert_same(record: &MessageRecord<'_>, expected: &Value) {
    assert_eq!(record.magic, MAGIC_V1);
    assert_eq!(record.topic, text(expected, "topic"));
    assert_eq!(i64::from(record.queue_id), number(expected, "queueId"));
    assert_eq!(record.queue_offset, number(expected, "queueOffset"));
    assert_eq!(record.physical_offset, number(expected, "physicalOffset"));
    assert_eq!(record.size as i64, number(expected, "size"));
    assert_eq!(i64::from(record.flag), number(expected, "flag"));
    assert_eq!(i64::from(record.sys_flag), number(expected, "sysFlag"));
    assert_eq!(i64::from(record.body_crc), number(expected, "bodyCRC"));
    assert!(record.body_matches_crc());
    assert_eq!(record.born_timestamp_ms, number(expected, "bornTimestamp"));
    assert_eq!(record.born_host.to_string(), text(expected, "bornHost"));
    assert_eq!(record.store_timestamp_ms, number(expected, "storeTimestamp"));
    assert_eq!(record.store_host.to_string(), text(expected, "storeHost"));
    assert_eq!(i64::from(record.reconsume_times), number(expected, "reconsumeTimes"));
    assert_eq!(record.prepared_transaction_offset, number(expected, "preparedTransactionOffset"));
    assert_eq!(record.body.len() as i64, number(expected, "bodyLength"));
    if let Some(body) = expected["bodyText"].as_str()
        && let Ok(found) = std::str::from_utf8(record.body)
    {
        assert_eq!(found, body);
    }
    let found: BTreeMap<_, _> = properties::iter_str(record.properties).collect();
    let properties = expected["properties"].as_object().unwrap();
    let properties: BTreeMap<_, _> =
        properties.iter().map(|(name, value)| (name.as_str(), value.as_str().unwrap())).collect();
    assert_eq!(found, properties);
    assert_eq!(record.property(name::UNIQ_KEY), expected["uniqKey"].as_str());
    assert_eq!(record.property(name::TAGS), expected["tags"].as_str());
    assert_eq!(record.property(name::KEYS), expected["keys"].as_str());
    let id =
        OffsetMessageId { store_host: record.store_host, physical_offset: record.physical_offset };
    assert_eq!(id.to_string(), text(expected, "msgId"));
}

/// Asks for each key of each record, and for each pair of topic and key how many records have it.
fn assert_keys_are_found(store: &Store, manifest: &Value) {
    let mut expected: BTreeMap<(String, String), Vec<i64>> = BTreeMap::new();
    for record in manifest["unclean"]["commitLog"].as_array().unwrap() {
        if record.get("topic").is_none() || number(record, "sysFlag") & 0xC == 0xC {
            continue;
        }
        let unique = record["uniqKey"].as_str();
        let words = record["keys"].as_str().unwrap_or_default().split(' ');
        for key in unique.into_iter().chain(words.filter(|word| !word.is_empty())) {
            let of_key = expected.entry((text(record, "topic").to_owned(), key.to_owned()));
            let offsets = of_key.or_default();
            let offset = number(record, "physicalOffset");
            if offsets.last() != Some(&offset) {
                offsets.push(offset);
            }
        }
    }
    assert!(expected.len() > 100, "{}", expected.len());
    for ((topic, key), offsets) in &expected {
        let found = store.query_messages(topic, key, 0..=i64::MAX, 64, usize::MAX).unwrap();
        let found: Vec<_> = found
            .messages
            .iter()
            .map(|message| MessageRecord::decode(message).unwrap().physical_offset)
            .collect();
        assert_eq!(&found, offsets, "{topic} {key}");
        let none = store.query_messages(topic, &format!("{key}x"), 0..=i64::MAX, 64, usize::MAX);
        assert!(none.unwrap().messages.is_empty());
    }
}

/// Every file below `root` with its contents.
fn contents(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                let bytes = std::fs::read(&path).unwrap();
                found.insert(path.strip_prefix(root).unwrap().to_owned(), bytes);
            }
        }
    }
    found
}

#[test]
fn a_clean_directory_opens_and_is_left_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let root = unpack("clean.tar.zst", directory.path());
    let before = contents(&root);
    let manifest = manifest();
    let (store, report) = open(&root);
    assert!(report.clean);
    assert_eq!((report.bytes_cut, report.entries_added, report.queues_rebuilt), (0, 0, 0));
    assert_eq!((report.queues, report.foreign.len()), (20, 0));
    // Its index lacks records: the Java broker had recovered from a crash.
    assert_eq!(report.index_files_rebuilt.len(), 1, "{report}");
    assert!(
        report.index_files_rebuilt[0].1.contains("lacks records between 109100 and"),
        "{report}"
    );
    assert_equals_manifest(&store, &manifest);
    assert_keys_are_found(&store, &manifest);
    assert!(root.join("abort").exists());
    store.shutdown().unwrap();
    drop(store);
    let after = contents(&root);
    // All but the completed index and what the checkpoint says of it.
    let beside_index = |files: &BTreeMap<PathBuf, Vec<u8>>| {
        let mut files = files.clone();
        files.retain(|path, _| !path.starts_with("index"));
        files.get_mut(Path::new("checkpoint")).unwrap()[16..24].fill(0);
        files
    };
    assert!(beside_index(&after) == beside_index(&before), "a look changes nothing else");

    let (store, report) = open(&root);
    assert_eq!((report.index_entries_added, report.index_files_rebuilt.len()), (0, 0));
    assert_keys_are_found(&store, &manifest);
    store.shutdown().unwrap();
    drop(store);
    assert!(contents(&root) == after, "a second look changes nothing at all");
}

#[test]
fn an_unclean_directory_is_recovered() {
    let directory = tempfile::tempdir().unwrap();
    let root = unpack("unclean.tar.zst", directory.path());
    let manifest = manifest();
    let (store, report) = open(&root);
    assert!(!report.clean);
    assert_eq!((report.bytes_cut, report.queues_rebuilt), (0, 0), "{report}");
    assert_eq!(report.files, 4, "the empty fifth file is given back");
    assert_equals_manifest(&store, &manifest);
    assert_keys_are_found(&store, &manifest);
    store.shutdown().unwrap();
    drop(store);
    assert!(!root.join("abort").exists());
    let (store, report) = open(&root);
    assert!(report.clean);
    assert_equals_manifest(&store, &manifest);
    drop(store);
}

#[test]
fn a_check_finds_nothing_wrong_with_what_java_wrote() {
    for archive in ["clean.tar.zst", "unclean.tar.zst"] {
        let directory = tempfile::tempdir().unwrap();
        let root = unpack(archive, directory.path());
        let before = contents(&root);
        let config = inspect::found_config(&RealFileSystem, &root).unwrap();
        assert_eq!((config.commit_log_file_bytes, config.consume_queue_file_bytes), (65_536, 160));
        let report = inspect::check(&RealFileSystem, &config).unwrap();
        assert_eq!(report.damage, 0, "{archive}: {:#?}", report.findings);
        assert_eq!((report.queues, report.records), (20, 93), "{archive}");
        assert_eq!(report.clean, archive == "clean.tar.zst");
        assert_eq!(contents(&root), before, "a check changes nothing");
    }
}

#[test]
fn an_index_is_rebuilt_and_one_of_java_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let root = unpack("clean.tar.zst", directory.path());
    let before = contents(&root.join("index"));
    let (store, _) = open(&root);
    let mut batch = store.new_batch();
    let properties: [&[u8]; 1] = [b"UNIQ_KEY\x01U1\x02KEYS\x01ours shared-0\x02"];
    let message = common::message("GoldenNormal", 0, b"ours");
    batch.push(&NewMessage { properties: &properties, ..message }).unwrap();
    store.append(&mut batch).unwrap();
    assert_ours_is_found(&store);
    store.shutdown().unwrap();
    drop(store);
    let after = contents(&root.join("index"));
    let first = before.keys().next().unwrap();
    assert!(before.len() == 2 && after.len() == 2);
    assert!(before[first] == after[first], "a full file stays as it is");

    // Built anew from the log, but for the names, with the entry of ours in the right place.
    std::fs::remove_dir_all(root.join("index")).unwrap();
    let (store, report) = open(&root);
    assert!(report.clean && report.index_entries_added > 150, "{report}");
    assert_ours_is_found(&store);
    store.shutdown().unwrap();
    drop(store);
    let again = contents(&root.join("index"));
    assert!(
        again.into_values().eq(after.into_values()),
        "but for the names the files are the same"
    );
}

/// The newest message of each key is the one that was appended here.
fn assert_ours_is_found(store: &Store) {
    for key in ["U1", "ours", "shared-0"] {
        let found = store.query_messages("GoldenNormal", key, 0..=i64::MAX, 64, usize::MAX);
        let found = found.unwrap().messages;
        assert_eq!(MessageRecord::decode(found.last().unwrap()).unwrap().body, b"ours");
        assert_eq!(found.len() > 1, key == "shared-0");
    }
}

#[test]
fn queues_are_rebuilt_to_the_byte() {
    let manifest = manifest();
    for archive in ["clean.tar.zst", "unclean.tar.zst"] {
        let directory = tempfile::tempdir().unwrap();
        let root = unpack(archive, directory.path());
        let before = contents(&root.join("consumequeue"));
        std::fs::remove_dir_all(root.join("consumequeue")).unwrap();
        let (store, report) = open(&root);
        assert_eq!(report.queues, 20);
        assert_equals_manifest(&store, &manifest);
        store.shutdown().unwrap();
        drop(store);
        assert_eq!(contents(&root.join("consumequeue")), before);
    }
}

#[test]
fn messages_are_appended_behind_those_of_java() {
    let directory = tempfile::tempdir().unwrap();
    let root = unpack("unclean.tar.zst", directory.path());
    let manifest = manifest();
    let (store, _) = open(&root);
    let max = store.max_queue_offset("GoldenNormal", 1);
    let last = store.store_time_at("GoldenNormal", 1, max - 1).unwrap().unwrap();
    for n in 0..100 {
        assert_eq!(common::append(&store, "GoldenNormal", 1, &[7; 2000]), max + n);
    }
    let by_time = store.queue_offset_by_time("GoldenNormal", 1, last + 1, Boundary::Lower);
    assert_eq!(by_time.unwrap(), max);
    drop(store);
    let (store, report) = open(&root);
    assert!(!report.clean);
    assert_eq!(store.max_queue_offset("GoldenNormal", 1), max + 100);
    let found = common::get(&store, "GoldenNormal", 1, max - 1);
    assert_eq!(found.status, GetStatus::Found);
    drop((store, manifest));
}
