//! The index against a plain map, and against damage.

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;

use super::chain::ChainError;
use super::file::{ENTRY_BYTES, Entry, HEADER_BYTES};
use super::*;
use crate::clock::ManualClock;
use crate::file_system::RealFileSystem;

const LAYOUT: Layout = Layout { slots: 7, entries: 40 };

fn index(directory: &Path, layout: Layout) -> Index {
    Index::new(IndexFiles {
        file_system: Arc::new(RealFileSystem),
        clock: Arc::new(ManualClock::new(1_700_000_000_123)),
        directory: directory.to_owned(),
        layout,
    })
}

fn entry(n: i64, key_hash: i32) -> NewEntry {
    NewEntry { key_hash, physical_offset: n * 100, store_timestamp_ms: 10_000 + n * 700 }
}

/// Offsets of a hash in the files, newest first.
fn in_files(index: &Index, key_hash: i32) -> Vec<i64> {
    let mut offsets = Vec::new();
    for file in index.snapshot().iter().rev() {
        let mut chain = file.chain(key_hash).unwrap();
        while let Some(entry) = chain.next_entry().unwrap() {
            if entry.key_hash == key_hash {
                offsets.push(entry.physical_offset);
            }
        }
    }
    offsets
}

fn paths(index: &Index) -> Vec<String> {
    let name =
        |file: &Arc<IndexFile>| file.path().file_name().unwrap().to_str().unwrap().to_owned();
    index.snapshot().iter().map(name).collect()
}

#[test]
fn names_are_local_times_and_grow() {
    assert_eq!(name_of(1_700_000_000_123), 20_231_114_221_320_123);
    assert_eq!(name_of(i64::MAX).to_string().len(), NAME_DIGITS);
    assert!(is_file_name("20231114221320123") && !is_file_name("2023111422132012x"));
    let directory = tempfile::tempdir().unwrap();
    let index = index(directory.path(), LAYOUT);
    index.add((0..100).map(|n| entry(n, 1))).unwrap();
    index.write().unwrap();
    // Within one ms of a clock that stands.
    assert_eq!(paths(&index), ["20231114221320123", "20231114221320124", "20231114221320125"]);
}

#[test]
fn a_file_is_what_java_writes() {
    let directory = tempfile::tempdir().unwrap();
    let index = index(directory.path(), LAYOUT);
    for entries in [vec![entry(3, 9), entry(3, 2), entry(4, 5)], vec![entry(5, 2)]] {
        index.add(entries.into_iter()).unwrap();
        index.write().unwrap();
    }
    let bytes = std::fs::read(index.snapshot()[0].path()).unwrap();
    assert_eq!(bytes.len() as u64, LAYOUT.file_bytes());
    let mut expected = Vec::new();
    for word in [12_100_i64, 13_500, 300, 500] {
        expected.extend(word.to_be_bytes());
    }
    // Slots 2 and 5 are used; the next entry is number 5.
    for word in [2, 5, 0, 0, 4, 0, 0, 3, 0] {
        expected.extend(i32::to_be_bytes(word));
    }
    // Entry 0 is never used.
    expected.extend([0; ENTRY_BYTES]);
    for (key_hash, offset, seconds, previous) in
        [(9_i32, 300_i64, 0_i32, 0_i32), (2, 300, 0, 1), (5, 400, 0, 0), (2, 500, 1, 2)]
    {
        expected.extend(key_hash.to_be_bytes());
        expected.extend(offset.to_be_bytes());
        expected.extend(seconds.to_be_bytes());
        expected.extend(previous.to_be_bytes());
    }
    assert_eq!(bytes[..expected.len()], expected);
    assert!(bytes[expected.len()..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_full_file_is_followed_by_another_and_wants_a_sync() {
    let directory = tempfile::tempdir().unwrap();
    let index = index(directory.path(), LAYOUT);
    let long = Duration::from_secs(3600);
    index.add((0..39).map(|n| entry(n, 3))).unwrap();
    index.write().unwrap();
    assert_eq!(index.snapshot().len(), 1, "39 entries fit, number 0 is never used");
    assert!(!index.is_sync_due(long));
    index.add([entry(40, 3)].into_iter()).unwrap();
    index.write().unwrap();
    assert_eq!(index.snapshot().len(), 2);
    assert!(index.is_sync_due(long));
    assert!(index.sync().unwrap());
    assert!(!index.is_sync_due(long) && !index.sync().unwrap());
    assert_eq!(in_files(&index, 3).len(), 40);
    index.follow_log_start(3_800).unwrap();
    assert_eq!(index.snapshot().len(), 2, "its last record is still there");
    index.follow_log_start(3_801).unwrap();
    assert_eq!(in_files(&index, 3), [4_000]);
    index.follow_log_start(9_999).unwrap();
    assert_eq!(index.snapshot().len(), 1, "the last file stays");
}

#[test]
fn a_repair_finds_the_first_damaged_entry_and_mends_the_slots() {
    let directory = tempfile::tempdir().unwrap();
    let index = index(directory.path(), LAYOUT);
    index.add((0..30).map(|n| entry(n, n as i32 % 5))).unwrap();
    index.write().unwrap();
    let file = Arc::clone(&index.snapshot()[0]);
    let whole = std::fs::read(file.path()).unwrap();
    let times = |offset: i64| Some(10_000 + offset * 7);

    // Slots full of nonsense, and an old entry behind the end.
    let mut damaged = whole.clone();
    damaged[HEADER_BYTES..LAYOUT.slot_position(7) as usize].fill(0x5A);
    damaged[LAYOUT.entry_position(35) as usize..][..ENTRY_BYTES].fill(1);
    std::fs::write(file.path(), &damaged).unwrap();
    assert!(matches!(file.chain(1).unwrap().next_entry(), Ok(None)));
    assert!(!file.repair(i64::MAX, times).unwrap());
    assert_eq!(std::fs::read(file.path()).unwrap(), whole);

    // What is not vouched for goes.
    assert!(!file.repair(2_000, times).unwrap());
    assert_eq!(file.header().next_entry, 21);
    assert_eq!(
        (file.header().end_physical_offset, file.header().end_timestamp_ms),
        (1_900, 23_300)
    );
    assert_eq!(in_files(&index, 3), [1_800, 1_300, 800, 300]);

    // An entry of which the front half got there.
    let at = LAYOUT.entry_position(11) as usize;
    let mut damaged = std::fs::read(file.path()).unwrap();
    damaged[at + 10..at + 20].fill(0);
    std::fs::write(file.path(), &damaged).unwrap();
    assert!(file.repair(i64::MAX, times).unwrap());
    assert_eq!(file.header().next_entry, 11);
    index.add((10..30).map(|n| entry(n, n as i32 % 5))).unwrap();
    index.write().unwrap();
    assert_eq!(std::fs::read(file.path()).unwrap(), whole);
}

#[test]
fn a_chain_in_a_circle_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let index = index(directory.path(), LAYOUT);
    index.add((0..30).map(|n| entry(n, 1))).unwrap();
    index.write().unwrap();
    let file = Arc::clone(&index.snapshot()[0]);
    let mut bytes = std::fs::read(file.path()).unwrap();
    let at = LAYOUT.entry_position(10) as usize;
    let circle = Entry { key_hash: 1, physical_offset: 900, seconds: 0, previous: 30 };
    bytes[at..at + ENTRY_BYTES].copy_from_slice(&circle.encode());
    std::fs::write(file.path(), bytes).unwrap();
    let mut chain = file.chain(1).unwrap();
    let mut count = 0;
    let error = loop {
        match chain.next_entry() {
            Ok(entry) => assert!(entry.is_some(), "it does not just end"),
            Err(error) => break error,
        }
        count += 1;
    };
    assert_eq!(count, 20);
    assert!(matches!(error, ChainError::Damaged { number: 10, slot: 1, .. }), "{error}");
}

proptest! {
    // Each case makes many files.
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever the groups, the files hold what a map holds, and are the same bytes.
    #[test]
    fn it_agrees_with_a_plain_map(
        hashes in prop::collection::vec(0..50_i32, 1..120),
        groups in prop::collection::vec(1..60_usize, 1..20),
        slots in 1..80_u32,
        entries in 8..90_u32,
    ) {
        let layout = Layout { slots, entries };
        let directory = tempfile::tempdir().unwrap();
        let grouped = index(&directory.path().join("grouped"), layout);
        let single = index(&directory.path().join("single"), layout);
        let mut map: BTreeMap<i32, Vec<i64>> = BTreeMap::new();
        let mut rest = hashes.iter().enumerate().map(|(n, hash)| entry(n as i64, *hash)).peekable();
        let mut groups = groups.into_iter().cycle();
        while rest.peek().is_some() {
            let group: Vec<_> = rest.by_ref().take(groups.next().unwrap()).collect();
            for entry in &group {
                map.entry(entry.key_hash).or_default().push(entry.physical_offset);
                single.add(std::iter::once(*entry)).unwrap();
                single.write().unwrap();
            }
            grouped.add(group.into_iter()).unwrap();
            grouped.write().unwrap();
        }
        for hash in 0..50 {
            let mut expected = map.remove(&hash).unwrap_or_default();
            expected.reverse();
            prop_assert_eq!(&in_files(&grouped, hash), &expected);
            prop_assert_eq!(&in_files(&single, hash), &expected);
        }
        prop_assert_eq!(paths(&grouped), paths(&single));
        for (a, b) in grouped.snapshot().iter().zip(single.snapshot()) {
            prop_assert_eq!(std::fs::read(a.path()).unwrap(), std::fs::read(b.path()).unwrap());
            prop_assert_eq!(a.header(), b.header());
        }
    }
}
