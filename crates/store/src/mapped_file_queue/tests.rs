use super::*;
use crate::file_system::RealFileSystem;

fn queue(directory: &Path) -> MappedFileQueue {
    queue_of(&[directory], &[])
}

fn queue_of(writable: &[&Path], read_only: &[&Path]) -> MappedFileQueue {
    let mut config = StoreConfig::new("/x");
    config.commit_log_dirs = writable.iter().map(|path| path.to_path_buf()).collect();
    config.read_only_commit_log_dirs = read_only.iter().map(|path| path.to_path_buf()).collect();
    config.commit_log_file_bytes = 4096;
    MappedFileQueue::new(Arc::new(RealFileSystem), &config)
}

fn make(directory: &Path, base_offset: u64, bytes: u64) {
    let file = std::fs::File::create(directory.join(file_name(base_offset))).unwrap();
    file.set_len(bytes).unwrap();
}

#[test]
fn names_are_twenty_digits() {
    assert_eq!(file_name(1_073_741_824), "00000000001073741824");
    assert_eq!(parse_file_name("00000000001073741824"), Some(1_073_741_824));
    for name in ["", "0", "0000000000107374182x", "000000000010737418240", "99999999999999999999"] {
        assert_eq!(parse_file_name(name), None, "{name}");
    }
}

#[test]
fn files_are_found_by_offset() {
    let directory = tempfile::tempdir().unwrap();
    for base in [8192, 4096, 12_288] {
        make(directory.path(), base, 4096);
    }
    let queue = queue(directory.path());
    queue.load().unwrap();
    assert!(queue.find(4095).is_none());
    assert_eq!(queue.find(4096).unwrap().base_offset(), 4096);
    assert_eq!(queue.find(8191).unwrap().base_offset(), 4096);
    assert_eq!(queue.find(16_383).unwrap().base_offset(), 12_288);
    assert!(queue.find(16_384).is_none());
    assert_eq!(queue.remove_behind(8192).unwrap(), 2);
    assert_eq!(queue.remove_behind(0).unwrap(), 0, "the only file stays");
    assert_eq!(queue.len(), 1);
    assert!(queue.remove_first(|_| true).unwrap().is_none(), "the last file stays");
}

#[test]
fn what_does_not_fit_is_named() {
    let directory = tempfile::tempdir().unwrap();
    make(directory.path(), 0, 4096);
    make(directory.path(), 8192, 4096);
    let error = queue(directory.path()).load().unwrap_err();
    assert!(matches!(&error, StoreError::MissingFile { path } if path.ends_with(file_name(4096))));

    make(directory.path(), 4096, 5000);
    let error = queue(directory.path()).load().unwrap_err().to_string();
    assert!(error.contains(&file_name(4096)) && error.contains("mappedFileSizeCommitLog"));

    make(directory.path(), 4096, 4096);
    make(directory.path(), 12_300, 4096);
    assert!(matches!(queue(directory.path()).load().unwrap_err(), StoreError::FileName { .. }));
}

#[test]
fn foreign_entries_are_left_and_an_empty_last_file_goes() {
    let directory = tempfile::tempdir().unwrap();
    make(directory.path(), 0, 4096);
    make(directory.path(), 4096, 0);
    std::fs::write(directory.path().join("notes.txt"), b"mine").unwrap();
    let loaded = queue(directory.path()).load().unwrap();
    assert_eq!(loaded.foreign, [directory.path().join("notes.txt")]);
    assert_eq!(loaded.removed_empty, [directory.path().join(file_name(4096))]);
    assert!(directory.path().join("notes.txt").exists());
    assert!(!directory.path().join(file_name(4096)).exists());
}

#[test]
fn a_prepared_file_has_its_length() {
    let directory = tempfile::tempdir().unwrap();
    let queue = queue(directory.path());
    queue.load().unwrap();
    let file = queue.prepare(0).unwrap();
    assert_eq!(file.file().len_bytes().unwrap(), 4096);
    assert_eq!(queue.len(), 0);
    queue.push(file);
    let file = queue.last().unwrap();
    file.write(b"abc", 10).unwrap();
    file.publish(13);
    assert_eq!(file.slice(10, 3), Some(&b"abc"[..]));
    assert_eq!(file.shared_slice(10, 4), None);
    assert_eq!(&queue.first().unwrap().shared_slice(10, 3).unwrap()[..], b"abc");
}

#[test]
fn files_of_several_directories_are_one_log() {
    let root = tempfile::tempdir().unwrap();
    let [a, b, r] = ["a", "b", "r"].map(|name| root.path().join(name));
    for path in [&a, &b, &r] {
        std::fs::create_dir(path).unwrap();
    }
    make(&r, 0, 4096);
    make(&a, 8192, 4096);
    make(&b, 4096, 4096);
    // Left by a failed attempt to make what the other directory then took.
    make(&a, 4096, 0);
    let queue = queue_of(&[&a, &b], &[&r]);
    let loaded = queue.load().unwrap();
    assert_eq!(loaded.removed_empty, [a.join(file_name(4096))]);
    assert_eq!(queue.find(5000).unwrap().path(), b.join(file_name(4096)));
    assert!(queue.first().unwrap().is_read_only());
    assert_eq!(queue.prepare(12_288).unwrap().path(), b.join(file_name(12_288)));

    assert!(queue.remove_first(|_| true).unwrap().is_some());
    assert!(r.join(file_name(0)).exists(), "a read-only file is let go, not removed");
    assert!(queue.remove_first(|_| true).unwrap().is_some());
    assert!(!b.join(file_name(4096)).exists());
    std::fs::remove_file(b.join(file_name(12_288))).unwrap();
    let loaded = queue.load().unwrap();
    assert_eq!(loaded.let_go, [r.join(file_name(0))]);
    assert_eq!((queue.len(), queue.first().unwrap().base_offset()), (1, 8192));
}

#[test]
fn twins_and_gaps_across_directories_are_named() {
    let root = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| root.path().join(name));
    std::fs::create_dir(&a).unwrap();
    std::fs::create_dir(&b).unwrap();
    make(&a, 0, 4096);
    make(&b, 0, 4096);
    for path in [&a, &b] {
        std::fs::write(path.join(file_name(0)), [1; 4096]).unwrap();
    }
    let error = queue_of(&[&a, &b], &[]).load().unwrap_err();
    assert!(
        matches!(&error, StoreError::DuplicateFile { first, second }
            if *first == a.join(file_name(0)) && *second == b.join(file_name(0))),
        "{error}"
    );
    std::fs::remove_file(b.join(file_name(0))).unwrap();
    make(&b, 8192, 4096);
    let error = queue_of(&[&a, &b], &[]).load().unwrap_err();
    assert!(matches!(error, StoreError::MissingFile { .. }), "{error}");
}

#[test]
fn a_twin_that_nothing_was_written_to_goes() {
    let root = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| root.path().join(name));
    std::fs::create_dir(&a).unwrap();
    std::fs::create_dir(&b).unwrap();
    for (used, unused) in [(&a, &b), (&b, &a)] {
        std::fs::write(used.join(file_name(0)), [1; 4096]).unwrap();
        for bytes in [0, 7, 4096] {
            make(unused, 0, bytes);
            let queue = queue_of(&[&a, &b], &[]);
            assert_eq!(queue.load().unwrap().removed_empty, [unused.join(file_name(0))]);
            assert_eq!(queue.first().unwrap().path(), used.join(file_name(0)));
        }
        // Where nothing may be removed, it is not decided.
        make(unused, 0, 4096);
        let error = queue_of(&[used], &[unused]).load().unwrap_err();
        assert!(matches!(error, StoreError::DuplicateFile { .. }), "{error}");
        std::fs::remove_file(unused.join(file_name(0))).unwrap();
        std::fs::remove_file(used.join(file_name(0))).unwrap();
    }
}

#[test]
fn a_file_that_was_not_made_does_not_outlive_the_one_that_was() {
    let root = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| root.path().join(name));
    for path in [&a, &b] {
        std::fs::create_dir(path).unwrap();
    }
    let queue = queue_of(&[&a, &b], &[]);
    queue.load().unwrap();
    queue.push(queue.prepare(0).unwrap());
    // Where it can neither be made nor removed.
    let twin = b.join(file_name(4096));
    std::fs::create_dir(&twin).unwrap();
    let second = queue.prepare(4096).unwrap();
    assert_eq!(second.path(), a.join(file_name(4096)));
    queue.push(second);
    queue.push(queue.prepare(8192).unwrap());
    assert!(queue.remove_first(|_| true).is_err(), "the twin would be found in its place");
    assert_eq!(queue.len(), 3);
    std::fs::remove_dir(&twin).unwrap();
    std::fs::write(&twin, [0; 4096]).unwrap();
    assert!(queue.remove_first(|_| true).unwrap().is_some());
    assert!(!twin.exists());
}
