//! Queues whose entries stand for inner batches.

use super::*;
use crate::file_system::RealFileSystem;
use proptest::prelude::*;
use std::path::Path;

/// Files of four entries.
fn queue(directory: &Path) -> ConsumeQueue {
    let files = QueueFiles {
        file_system: Arc::new(RealFileSystem),
        format: QueueFormat::Batch,
        directory: directory.join("batchconsumequeue"),
        file_bytes: 4 * BATCH_UNIT_BYTES as u64,
        ext: None,
        open_files: Default::default(),
    };
    ConsumeQueue::new("Orders".into(), 3, 0, Arc::new(files))
}

fn entry(queue_offset: i64, count: i64, physical_offset: i64) -> QueueUnit {
    QueueUnit { queue_offset, count, unit: Unit { physical_offset, size: 100, tags_code: 0 } }
}

fn push(queue: &ConsumeQueue, entry: QueueUnit) -> Pushed {
    queue.push_with_ext(&entry, entry.unit.physical_offset + 1, b"")
}

/// Batch n of `counts` has its record at 100 n.
fn fill(queue: &ConsumeQueue, counts: &[i64]) {
    for (n, count) in counts.iter().enumerate() {
        let added = push(queue, entry(queue.max_offset(), *count, n as i64 * 100));
        assert_eq!(added, Pushed::Added);
    }
}

fn read(queue: &ConsumeQueue, from: i64, count: usize) -> Vec<(i64, i64)> {
    let mut bytes = Vec::new();
    let index = queue.read(from, count, &mut bytes).unwrap();
    let entries = queue.format().entries(&bytes, index);
    entries.map(|entry| (entry.queue_offset, entry.count)).collect()
}

#[test]
fn files_are_full_length_and_hold_rocketmqs_entries() {
    let directory = tempfile::tempdir().unwrap();
    let queue = queue(directory.path());
    fill(&queue, &[3, 1, 2, 5, 4]);
    queue.write_tail().unwrap();
    queue.sync().unwrap();
    assert_eq!(queue.unsynced_bytes(), 0);
    let root = directory.path().join("batchconsumequeue/Orders/3");
    let first = std::fs::read(root.join("00000000000000000000")).unwrap();
    let second = std::fs::read(root.join("00000000000000000184")).unwrap();
    assert_eq!((first.len(), second.len()), (184, 184));
    let third = BatchUnit::decode(first[92..138].first_chunk().unwrap());
    assert_eq!((third.base_offset, third.count, third.store_timestamp_ms), (4, 2, 201));
    assert_eq!(second[46..], [0; 138]);
}

#[test]
fn a_message_in_the_middle_of_a_batch_is_found_with_its_batch() {
    let directory = tempfile::tempdir().unwrap();
    let queue = queue(directory.path());
    fill(&queue, &[3, 1, 2, 5, 4]);
    for written in [false, true] {
        if written {
            queue.write_tail().unwrap();
        }
        assert_eq!(read(&queue, 0, 2), [(0, 3), (3, 1)]);
        assert_eq!(read(&queue, 2, 1), [(0, 3)]);
        assert_eq!(read(&queue, 5, 1), [(4, 2)]);
        assert_eq!(read(&queue, 14, 9), [(11, 4)]);
        assert_eq!(read(&queue, 15, 9), []);
        assert_eq!(queue.entry(10).unwrap().unwrap(), entry(6, 5, 300));
        assert_eq!(queue.entry(15).unwrap(), None);
        assert_eq!(queue.entry(-1).unwrap(), None);
    }
    assert_eq!(read(&queue, 0, 9), [(0, 3), (3, 1), (4, 2), (6, 5)], "one file a read");
    assert_eq!((queue.min_offset(), queue.max_offset()), (0, 15));
}

#[test]
fn known_entries_are_ignored_gaps_are_told_and_need_no_filling() {
    let directory = tempfile::tempdir().unwrap();
    let queue = queue(directory.path());
    fill(&queue, &[3, 3]);
    assert_eq!(push(&queue, entry(3, 3, 100)), Pushed::Known);
    assert_eq!(push(&queue, entry(9, 1, 200)), Pushed::Gap { expected: 6 });
    assert!(queue.fill_gap(9));
    assert_eq!(push(&queue, entry(9, 1, 200)), Pushed::Added);
    assert_eq!(read(&queue, 7, 9), [(9, 1)], "readers go on behind the gap");
    assert_eq!(queue.entry(7).unwrap(), None);
    queue.write_tail().unwrap();
    let again = self::queue(directory.path());
    again.load(Some(0)).unwrap();
    assert_eq!((again.max_offset(), again.max_physical()), (10, 300));
}

#[test]
fn a_queue_that_begins_late_begins_with_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let queue = queue(directory.path());
    assert_eq!(push(&queue, entry(70, 2, 0)), Pushed::Added);
    assert_eq!((queue.min_offset(), queue.max_offset()), (70, 72));
    queue.write_tail().unwrap();
    let again = self::queue(directory.path());
    again.load(Some(0)).unwrap();
    assert_eq!((again.min_offset(), again.max_offset(), again.next_offset()), (70, 72, 72));
    assert!(again.may_lack_front(0).unwrap());
}

#[test]
fn a_topic_made_again_restarts_its_queue() {
    for (from, left) in [(0, 0), (4, 1), (6, 2)] {
        let directory = tempfile::tempdir().unwrap();
        let queue = queue(directory.path());
        fill(&queue, &[3, 3, 3, 3, 3, 3]);
        queue.write_tail().unwrap();
        assert_eq!(push(&queue, entry(from, 2, 9_000)), Pushed::Restarted);
        assert_eq!(queue.max_offset(), from + 2);
        let mut expected: Vec<_> = (0..left).map(|n| (n * 3, 3)).collect();
        expected.push((from, 2));
        assert_eq!(read(&queue, 0, 32), expected[..expected.len().min(1.max(left as usize))]);
        queue.write_tail().unwrap();
        let again = self::queue(directory.path());
        again.load(Some(0)).unwrap();
        assert_eq!(read(&again, 0, 32), expected, "{from}");
    }
}

#[test]
fn the_last_entry_stays_when_all_have_expired() {
    let directory = tempfile::tempdir().unwrap();
    let queue = queue(directory.path());
    fill(&queue, &[2; 9]);
    queue.write_tail().unwrap();
    assert_eq!(queue.follow_log_start(450).unwrap(), 1);
    assert_eq!(queue.min_offset(), 10);
    assert_eq!(queue.follow_log_start(800).unwrap(), 0, "the newest entry may still be lost");
    assert_eq!(queue.min_offset(), 16);
    assert_eq!(queue.follow_log_start(10_000).unwrap(), 1);
    assert_eq!((queue.min_offset(), queue.max_offset()), (18, 18));
    let again = self::queue(directory.path());
    again.load(Some(0)).unwrap();
    assert_eq!((again.max_offset(), again.max_physical()), (18, 900));
    again.follow_log_start(10_000).unwrap();
    assert_eq!(again.min_offset(), 18);
    assert_eq!(push(&again, entry(18, 1, 10_000)), Pushed::Added);
    assert_eq!(again.min_offset(), 18, "what is new can be read");
}

#[test]
fn entries_behind_the_log_are_cut() {
    let directory = tempfile::tempdir().unwrap();
    let queue = queue(directory.path());
    fill(&queue, &[2; 9]);
    queue.write_tail().unwrap();
    assert_eq!(push(&queue, entry(18, 5, 900)), Pushed::Added);
    queue.cut_behind_log(450).unwrap();
    assert_eq!((queue.max_offset(), queue.next_offset(), queue.max_physical()), (8, 8, 400));
    assert_eq!(push(&queue, entry(8, 1, 400)), Pushed::Added);
    queue.cut_behind_log(0).unwrap();
    assert_eq!((queue.max_offset(), queue.min_offset(), queue.max_physical()), (0, 0, 0));
}

#[test]
fn a_search_skips_what_is_in_front() {
    let directory = tempfile::tempdir().unwrap();
    let queue = queue(directory.path());
    fill(&queue, &[2, 3, 4]);
    let first = |physical| {
        queue.first_offset_behind(|entry| entry.unit.physical_offset < physical).unwrap()
    };
    assert_eq!([0, 1, 100, 101, 200, 201].map(first), [0, 2, 2, 5, 5, 9]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Pushing, writing, loading, and following the log in any order: each message is found in its
    /// batch, and reading from the minimum on yields every batch that is left.
    #[test]
    fn it_behaves_like_a_list(steps in prop::collection::vec((0..6u8, 1..40i64, 0..3i64), 1..60)) {
        let directory = tempfile::tempdir().unwrap();
        let mut queue = queue(directory.path());
        let mut model: Vec<QueueUnit> = Vec::new();
        let mut kept = 0;
        for (step, count, gap) in steps {
            let next = model.last().map_or(0, |last| last.next_offset());
            match step {
                0..=2 => {
                    // Where all have expired a gap would be in front of the queue.
                    let gap = if kept > 0 && kept == model.len() { 0 } else { gap };
                    let added = entry(next + gap, count, model.len() as i64 * 100);
                    if gap > 0 && !model.is_empty() {
                        queue.fill_gap(next + gap);
                    }
                    prop_assert_eq!(push(&queue, added), Pushed::Added);
                    model.push(added);
                }
                3 => queue.write_tail().unwrap(),
                4 => {
                    queue.write_tail().unwrap();
                    queue = self::queue(directory.path());
                    if !model.is_empty() {
                        queue.load((count % 2 == 1).then_some(0)).unwrap();
                    }
                    queue.follow_log_start(kept as i64 * 100).unwrap();
                }
                _ => {
                    kept = kept.max((count as usize).min(model.len()));
                    queue.write_tail().unwrap();
                    queue.follow_log_start(kept as i64 * 100).unwrap();
                }
            }
            let end = model.last().map_or(0, |last| last.next_offset());
            prop_assert_eq!(queue.max_offset(), end);
            let min = model.get(kept).map_or(end, |entry| entry.queue_offset);
            prop_assert_eq!(queue.min_offset(), min);
            for expected in &model[kept..] {
                for offset in [expected.queue_offset, expected.next_offset() - 1] {
                    prop_assert_eq!(queue.entry(offset).unwrap(), Some(*expected));
                }
            }
            let mut all = Vec::new();
            let mut from = min;
            while from < end {
                let found = read(&queue, from, 5);
                prop_assert!(!found.is_empty());
                from = found.last().map_or(end, |(base, count)| base + count);
                all.extend(found);
            }
            let expected: Vec<_> =
                model[kept..].iter().map(|entry| (entry.queue_offset, entry.count)).collect();
            prop_assert_eq!(all, expected);
        }
    }

    #[test]
    fn arbitrary_files_never_panic(bytes in prop::collection::vec(any::<u8>(), 184)) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("batchconsumequeue/Orders/3");
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("00000000000000000184"), &bytes).unwrap();
        let queue = queue(directory.path());
        queue.load(Some(0)).unwrap();
        queue.follow_log_start(5).unwrap();
        queue.cut_behind_log(1 << 40).unwrap();
        let _ = read(&queue, 9, 10);
        let _ = push(&queue, entry(3, 1, 1 << 41));
    }
}
