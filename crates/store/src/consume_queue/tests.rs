use super::*;
use crate::file_system::RealFileSystem;
use proptest::prelude::*;
use std::path::Path;

/// Files of eight entries, as in the golden directories.
fn queue(directory: &Path) -> ConsumeQueue {
    let files = QueueFiles {
        file_system: Arc::new(RealFileSystem),
        format: QueueFormat::Simple,
        directory: directory.join("consumequeue"),
        file_bytes: 160,
        ext: None,
        open_files: Default::default(),
    };
    ConsumeQueue::new("Orders".into(), 3, 0, Arc::new(files))
}

fn unit(n: i64) -> Unit {
    Unit { physical_offset: n * 100, size: 100, tags_code: n }
}

fn fill(queue: &ConsumeQueue, range: std::ops::Range<i64>) {
    for n in range {
        assert_eq!(queue.push(n, unit(n)), Pushed::Added);
    }
}

fn read(queue: &ConsumeQueue, from: i64, count: usize) -> Vec<i64> {
    let mut bytes = Vec::new();
    let index = queue.read(from, count, &mut bytes).unwrap();
    queue.format().entries(&bytes, index).map(|entry| entry.unit.tags_code).collect()
}

#[test]
fn entries_are_read_from_memory_and_from_files() {
    let directory = tempfile::tempdir().unwrap();
    let queue = queue(directory.path());
    fill(&queue, 0..10);
    assert_eq!(read(&queue, 8, 32), [8, 9]);
    queue.write_tail().unwrap();
    fill(&queue, 10..12);
    assert_eq!(read(&queue, 0, 32), [0, 1, 2, 3, 4, 5, 6, 7], "one file a read");
    assert_eq!(read(&queue, 8, 32), [8, 9], "files first, memory next");
    assert_eq!(read(&queue, 10, 1), [10]);
    assert_eq!(read(&queue, 12, 1), [0; 0]);
    assert_eq!(read(&queue, -1, 1), [0; 0]);
    assert_eq!(queue.max_offset(), 12);
    assert_eq!(queue.next_file_start(10), 16);
}

#[test]
fn files_are_full_length_and_hold_rocketmqs_entries() {
    let directory = tempfile::tempdir().unwrap();
    let queue = queue(directory.path());
    fill(&queue, 0..9);
    queue.write_tail().unwrap();
    queue.sync().unwrap();
    let root = directory.path().join("consumequeue/Orders/3");
    let first = std::fs::read(root.join("00000000000000000000")).unwrap();
    let second = std::fs::read(root.join("00000000000000000160")).unwrap();
    assert_eq!((first.len(), second.len()), (160, 160));
    assert_eq!(first[20..40], [0, 0, 0, 0, 0, 0, 0, 100, 0, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(second[20..], [0; 140]);
}

#[test]
fn a_queue_that_begins_late_fills_its_first_file() {
    let directory = tempfile::tempdir().unwrap();
    let queue = queue(directory.path());
    fill(&queue, 10..12);
    assert_eq!((queue.min_offset(), queue.max_offset()), (10, 12));
    queue.write_tail().unwrap();
    let path = directory.path().join("consumequeue/Orders/3/00000000000000000160");
    let bytes = std::fs::read(path).unwrap();
    let filler = [0, 0, 0, 0, 0, 0, 0, 0, 0x7F, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(bytes[..20], filler);
    assert_eq!(bytes[20..40], filler);
    assert_eq!(Unit::decode(bytes[40..60].first_chunk().unwrap()), unit(10));

    let again = self::queue(directory.path());
    again.load(Some(0)).unwrap();
    assert_eq!((again.min_offset(), again.max_offset(), again.max_physical()), (8, 12, 1200));
    again.follow_log_start(0).unwrap();
    assert_eq!(again.min_offset(), 10, "fillers are no messages");
}

#[test]
fn known_entries_are_ignored_and_gaps_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let queue = queue(directory.path());
    fill(&queue, 0..3);
    assert_eq!(queue.push(1, unit(1)), Pushed::Known);
    assert_eq!(queue.push(5, unit(5)), Pushed::Gap { expected: 3 });
    assert!(!queue.fill_gap(i64::MAX));
    assert!(queue.fill_gap(5));
    assert_eq!(queue.push(5, unit(5)), Pushed::Added);
    assert_eq!(queue.max_offset(), 6);
}

#[test]
fn a_topic_made_again_restarts_its_queue() {
    let directory = tempfile::tempdir().unwrap();
    let queue = queue(directory.path());
    fill(&queue, 0..20);
    queue.write_tail().unwrap();
    let restart = Unit { physical_offset: 9_000, size: 50, tags_code: 77 };
    assert_eq!(queue.push(0, restart), Pushed::Restarted);
    assert_eq!((queue.min_offset(), queue.max_offset()), (0, 1));
    assert_eq!(read(&queue, 0, 32), [77]);
    queue.write_tail().unwrap();
    let again = self::queue(directory.path());
    again.load(Some(0)).unwrap();
    assert_eq!(read(&again, 0, 32), [77]);
}

#[test]
fn load_finds_the_end_and_wipes_what_is_behind() {
    for (written, damage_at) in [(0, None), (5, None), (8, None), (30, None), (30, Some(26))] {
        let directory = tempfile::tempdir().unwrap();
        let queue = queue(directory.path());
        fill(&queue, 0..written);
        queue.write_tail().unwrap();
        std::fs::create_dir_all(directory.path().join("consumequeue/Orders/3")).unwrap();
        let mut expected = written;
        if let Some(at) = damage_at {
            let path = directory.path().join("consumequeue/Orders/3/00000000000000000480");
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[(at as usize % 8) * 20..][..20].fill(0);
            std::fs::write(&path, bytes).unwrap();
            expected = at;
        }
        let again = self::queue(directory.path());
        again.load(Some(0)).unwrap();
        assert_eq!(again.max_offset(), expected);
        assert_eq!(again.max_physical(), expected * 100);
        assert_eq!(again.next_offset(), expected);
        fill(&again, expected..expected + 1);
        again.write_tail().unwrap();
        let third = self::queue(directory.path());
        third.load(Some(0)).unwrap();
        assert_eq!(third.max_offset(), expected + 1, "old entries must not come back");
    }
}

#[test]
fn a_file_of_the_wrong_length_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let queue = queue(directory.path());
    fill(&queue, 0..3);
    queue.write_tail().unwrap();
    let path = directory.path().join("consumequeue/Orders/3/00000000000000000000");
    std::fs::File::options().write(true).open(&path).unwrap().set_len(100).unwrap();
    let error = self::queue(directory.path()).load(Some(0)).unwrap_err();
    assert!(matches!(error, StoreError::FileSize { bytes: 100, expected: 160, .. }));
}

#[test]
fn the_minimum_follows_the_log_and_files_go() {
    let directory = tempfile::tempdir().unwrap();
    let queue = queue(directory.path());
    fill(&queue, 0..20);
    queue.write_tail().unwrap();
    assert_eq!(queue.follow_log_start(950).unwrap(), 1);
    assert_eq!(queue.min_offset(), 10);
    assert_eq!(queue.follow_log_start(10_000).unwrap(), 1);
    assert_eq!((queue.min_offset(), queue.max_offset()), (20, 20));
    assert_eq!(read(&queue, 16, 32), [16, 17, 18, 19], "the last file stays");
}

#[test]
fn entries_behind_the_log_are_cut() {
    let directory = tempfile::tempdir().unwrap();
    let queue = queue(directory.path());
    fill(&queue, 0..20);
    queue.write_tail().unwrap();
    fill(&queue, 20..22);
    queue.cut_behind_log(1_650).unwrap();
    assert_eq!((queue.max_offset(), queue.next_offset()), (16, 16));
    assert_eq!(queue.max_physical(), 1_600);
    fill(&queue, 16..18);
    queue.cut_behind_log(0).unwrap();
    assert_eq!((queue.max_offset(), queue.max_physical()), (0, 0));
    fill(&queue, 0..2);
}

#[test]
fn idle_files_are_closed_and_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let queue = queue(directory.path());
    fill(&queue, 0..10);
    queue.write_tail().unwrap();
    queue.sync().unwrap();
    assert_eq!(queue.unsynced_bytes(), 0);
    queue.close_idle_files();
    queue.close_idle_files();
    assert!(queue.state.lock().segments.iter().all(|segment| segment.file.is_none()));
    assert_eq!(read(&queue, 8, 32), [8, 9]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn units_are_identity(physical_offset in any::<i64>(), size in any::<i32>(),
                          tags_code in any::<i64>()) {
        let unit = Unit { physical_offset, size, tags_code };
        prop_assert_eq!(Unit::decode(&unit.encode()), unit);
    }

    /// Pushing, writing and loading in any order gives the same list.
    #[test]
    fn it_behaves_like_a_list(steps in prop::collection::vec(0..4u8, 1..60)) {
        let directory = tempfile::tempdir().unwrap();
        let mut queue = queue(directory.path());
        let mut model = 0;
        for step in steps {
            match step {
                0 | 1 => {
                    fill(&queue, model..model + 3);
                    model += 3;
                }
                2 => queue.write_tail().unwrap(),
                _ => {
                    queue.write_tail().unwrap();
                    queue = self::queue(directory.path());
                    if model > 0 {
                        queue.load(Some(0)).unwrap();
                    }
                }
            }
            let mut all = Vec::new();
            while (all.len() as i64) < model {
                let next = read(&queue, all.len() as i64, 5);
                prop_assert!(!next.is_empty());
                all.extend(next);
            }
            prop_assert_eq!(&all, &(0..model).collect::<Vec<_>>());
        }
    }

    #[test]
    fn arbitrary_files_never_panic(bytes in prop::collection::vec(any::<u8>(), 160)) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("consumequeue/Orders/3");
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("00000000000000000160"), &bytes).unwrap();
        let queue = queue(directory.path());
        queue.load(Some(0)).unwrap();
        queue.follow_log_start(5).unwrap();
        queue.cut_behind_log(1 << 40).unwrap();
        let _ = read(&queue, 9, 10);
    }
}
