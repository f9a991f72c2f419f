//! Opening directories that hold files as they should not be: each is named, and none is followed
//! blindly.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{append, bodies, open, try_open};
use rocketmq_store::StoreError;

const MESSAGES: usize = 50;

/// A directory with three files of the log and seven of a queue, and its middle file of each.
struct Made {
    directory: tempfile::TempDir,
    log_file: PathBuf,
    queue_file: PathBuf,
}

fn made() -> Made {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    for n in 0..MESSAGES {
        append(&store, "A", 0, format!("message {n} {}", "x".repeat(100)).as_bytes());
    }
    store.shutdown().unwrap();
    drop(store);
    let log_file = directory.path().join(format!("commitlog/{:020}", 4096));
    let queue_file = directory.path().join(format!("consumequeue/A/0/{:020}", 160));
    assert!(log_file.exists() && queue_file.exists());
    Made { directory, log_file, queue_file }
}

/// Every file below `root` but the lock, with its bytes.
fn contents(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                directories.push(entry.path());
            } else if kind.is_file() && entry.file_name() != "lock" {
                found.push((entry.path(), fs::read(entry.path()).unwrap()));
            }
        }
    }
    found.sort();
    found
}

/// Opens, which must fail without a change to any file but the mark of an unclean end.
fn refused(made: &Made) -> StoreError {
    let root = made.directory.path();
    let before = contents(root);
    let error = try_open(root).unwrap_err();
    let mut after = contents(root);
    after.retain(|(path, _)| !path.ends_with("abort"));
    assert!(after == before, "{error}: files changed");
    error
}

fn set_len(path: &Path, bytes: u64) {
    fs::File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

#[test]
fn an_empty_short_or_long_file_is_named() {
    for bytes in [0, 1, 100, 4095, 4097, 1 << 20] {
        let made = made();
        set_len(&made.log_file, bytes);
        let error = refused(&made);
        assert!(
            matches!(&error, StoreError::FileSize { path, bytes: found, expected: 4096, key }
                if *path == made.log_file && *found == bytes && *key == "mappedFileSizeCommitLog"),
            "{error}"
        );
    }
    for bytes in [0, 20, 159, 161] {
        let made = made();
        set_len(&made.queue_file, bytes);
        let error = refused(&made);
        assert!(
            matches!(&error, StoreError::FileSize { path, bytes: found, expected: 160, key }
                if *path == made.queue_file
                    && *found == bytes
                    && *key == "mappedFileSizeConsumeQueue"),
            "{error}"
        );
    }
}

#[test]
fn a_file_missing_in_the_middle_is_named() {
    let made = made();
    fs::remove_file(&made.log_file).unwrap();
    let error = refused(&made);
    assert!(
        matches!(&error, StoreError::MissingFile { path } if *path == made.log_file),
        "{error}"
    );
}

#[test]
fn a_missing_file_of_a_queue_is_built_anew() {
    let made = made();
    fs::remove_file(&made.queue_file).unwrap();
    let (store, report) = open(made.directory.path());
    // All behind the eight entries of the first file.
    assert_eq!(report.entries_added, MESSAGES as u64 - 8, "{report}");
    assert_eq!(bodies(&store, "A", 0).len(), MESSAGES);
}

#[test]
fn a_renamed_file_is_named() {
    // To a place where no file can begin.
    let odd = made();
    let to = odd.log_file.with_file_name(format!("{:020}", 4097));
    fs::rename(&odd.log_file, &to).unwrap();
    let error = refused(&odd);
    assert!(matches!(&error, StoreError::FileName { path, .. } if *path == to), "{error}");
    // Away from its place: the hole is named.
    for name in ["00000000000000004096.old".to_owned(), format!("{:020}", 1 << 30)] {
        let made = made();
        fs::rename(&made.log_file, made.log_file.with_file_name(name)).unwrap();
        let error = refused(&made);
        assert!(
            matches!(&error, StoreError::MissingFile { path } if *path == made.log_file),
            "{error}"
        );
    }
    // To where another part of the log belongs: its records say that they lie elsewhere.
    let swapped = made();
    let second = swapped.log_file.with_file_name(format!("{:020}", 8192));
    fs::rename(&second, &swapped.log_file).unwrap();
    fs::write(swapped.directory.path().join("abort"), b"1").unwrap();
    let (store, report) = open(swapped.directory.path());
    let reason = report.cut_reason.clone().unwrap();
    assert!(reason.contains("record says physical offset 8192"), "{reason}");
    assert!(reason.ends_with(&format!("at byte 0 of {}", swapped.log_file.display())), "{reason}");
    assert!(bodies(&store, "A", 0).len() < MESSAGES);
}

/// What is no file does not count as one, wherever it leads.
#[test]
fn directories_links_and_pipes_are_named_and_not_followed() {
    for of_queue in [false, true] {
        for what in ["directory", "link", "dangling link", "pipe"] {
            let made = made();
            let path = if of_queue { &made.queue_file } else { &made.log_file };
            let elsewhere = made.directory.path().join("elsewhere");
            fs::rename(path, &elsewhere).unwrap();
            match what {
                "directory" => fs::create_dir(path).unwrap(),
                "link" => std::os::unix::fs::symlink(&elsewhere, path).unwrap(),
                "dangling link" => std::os::unix::fs::symlink("nowhere", path).unwrap(),
                _ => {
                    let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
                    assert!(made.success());
                }
            }
            let error = refused(&made);
            let expected = match what {
                "directory" => "a directory",
                _ => "a symbolic link or a special file",
            };
            assert!(
                matches!(&error, StoreError::NotAFile { path: named, found }
                    if named == path && *found == expected),
                "{what}: {error}"
            );
            assert!(path.symlink_metadata().is_ok(), "{what} was left");
        }
    }
}

#[test]
fn a_last_file_that_is_no_file_is_not_taken_for_an_empty_one() {
    let made = made();
    let path = made.log_file.with_file_name(format!("{:020}", 1 << 20));
    std::os::unix::fs::symlink("/dev/null", &path).unwrap();
    let error = refused(&made);
    assert!(
        matches!(&error, StoreError::NotAFile { path: named, .. } if *named == path),
        "{error}"
    );
    assert!(path.symlink_metadata().is_ok());
}

#[test]
fn small_files_are_not_followed_elsewhere() {
    for name in ["abort", "lock", "checkpoint"] {
        let made = made();
        let path = made.directory.path().join(name);
        let precious = made.directory.path().join("precious");
        fs::write(&precious, b"keep me").unwrap();
        let _ = fs::remove_file(&path);
        std::os::unix::fs::symlink(&precious, &path).unwrap();
        let error = refused(&made).to_string();
        assert!(
            error.contains(path.to_str().unwrap()) && error.contains("symbolic link"),
            "{error}"
        );
        assert_eq!(fs::read(&precious).unwrap(), b"keep me");

        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let error = refused(&made).to_string();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
    }
}

/// Queues may lie on another disk.
#[test]
fn a_linked_directory_counts_as_one() {
    let made = made();
    let queues = made.directory.path().join("consumequeue");
    let elsewhere = tempfile::tempdir().unwrap();
    fs::rename(queues.join("A"), elsewhere.path().join("A")).unwrap();
    std::os::unix::fs::symlink(elsewhere.path().join("A"), queues.join("A")).unwrap();
    let (store, report) = open(made.directory.path());
    assert_eq!((report.queues_rebuilt, report.foreign.len()), (0, 0), "{report}");
    assert_eq!(bodies(&store, "A", 0).len(), MESSAGES);
}
