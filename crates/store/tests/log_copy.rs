//! A log that follows another one by its bytes.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod common;

use std::sync::Arc;

use common::{append, bodies, open};
use rocketmq_store::{AppendError, Refusal, Store};

fn fill(master: &Store, from: usize, count: usize) {
    for n in from..from + count {
        append(
            master,
            "A",
            (n % 2) as i32,
            format!("message {n} {}", "x".repeat(n % 300)).as_bytes(),
        );
    }
}

/// Copies everything in pieces of `piece_bytes`; what is not taken waits, as with a slave.
fn copy(master: &Store, slave: &Store, piece_bytes: usize) {
    let mut waiting = Vec::new();
    let mut next = slave.written().0;
    while let Some(piece) = master.log_bytes(next, piece_bytes) {
        next += piece.len() as i64;
        waiting.extend_from_slice(&piece);
        let taken = slave.append_copy(next - waiting.len() as i64, &waiting).unwrap();
        waiting.drain(..taken);
    }
    assert!(waiting.is_empty(), "the master's log ends with a whole record");
}

fn assert_same(master: &Store, slave: &Store) {
    assert_eq!(slave.written(), master.written());
    assert_eq!(slave.dispatched().0, master.written().0);
    for queue_id in [0, 1] {
        assert_eq!(bodies(slave, "A", queue_id), bodies(master, "A", queue_id));
        assert_eq!(slave.max_queue_offset("A", queue_id), master.max_queue_offset("A", queue_id));
    }
}

fn stores(directory: &tempfile::TempDir) -> (Arc<Store>, Arc<Store>) {
    let (master, _) = open(&directory.path().join("master"));
    let (slave, _) = open(&directory.path().join("slave"));
    slave.take_copies_only();
    (master, slave)
}

#[test]
fn pieces_of_any_length_make_the_same_log() {
    for piece_bytes in [1, 7, 100, 4096, 1 << 20] {
        let directory = tempfile::tempdir().unwrap();
        let (master, slave) = stores(&directory);
        fill(&master, 0, 60);
        copy(&master, &slave, piece_bytes);
        assert_same(&master, &slave);
        fill(&master, 60, 5);
        copy(&master, &slave, piece_bytes);
        assert_same(&master, &slave);
    }
}

#[test]
fn a_copy_goes_on_after_a_clean_stop_and_after_a_crash() {
    for clean in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let (master, slave) = stores(&directory);
        fill(&master, 0, 40);
        copy(&master, &slave, 1000);
        if clean {
            slave.shutdown().unwrap();
        }
        drop(slave);
        let (slave, report) = open(&directory.path().join("slave"));
        slave.take_copies_only();
        assert_eq!((report.clean, report.bytes_cut), (clean, 0));
        assert_same(&master, &slave);
        fill(&master, 40, 40);
        copy(&master, &slave, 1000);
        assert_same(&master, &slave);
    }
}

#[test]
fn an_empty_log_may_begin_with_any_file_and_only_there() {
    let directory = tempfile::tempdir().unwrap();
    let (master, slave) = stores(&directory);
    fill(&master, 0, 60);
    let last_file = master.written().0 / 4096 * 4096;
    assert!(last_file > 0);
    let piece = master.log_bytes(last_file, 1 << 20).unwrap();
    let error = slave.append_copy(last_file + 1, &piece).unwrap_err();
    assert!(matches!(error, AppendError::NotNext { expected: 0, .. }), "{error}");
    assert_eq!(slave.append_copy(last_file, &piece).unwrap(), piece.len());
    assert_eq!((slave.min_physical_offset(), slave.written()), (last_file, master.written()));
    let error = slave.append_copy(0, &piece).unwrap_err();
    assert!(matches!(error, AppendError::NotNext { physical_offset: 0, .. }), "{error}");
    let begin = slave.min_queue_offset("A", 0);
    assert_eq!(bodies(&slave, "A", 0), bodies(&master, "A", 0)[begin as usize..]);
}

#[test]
fn damaged_bytes_end_the_copy_in_front_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let (master, slave) = stores(&directory);
    fill(&master, 0, 10);
    let second = master.physical_offset_of("A", 1, 0).unwrap().unwrap() as usize;
    let piece = master.log_bytes(0, 1 << 20).unwrap();
    // The size, the magic, the place, and the body of the second record.
    for (at, what) in [(0, "bytes, of which"), (4, "no magic"), (28, "says physical"), (90, "CRC")]
    {
        let mut damaged = piece.to_vec();
        damaged[second + at] ^= 0x55;
        let from = slave.written().0 as usize;
        let error = slave.append_copy(from as i64, &damaged[from..]).unwrap_err();
        let AppendError::Damaged { physical_offset, reason } = &error else { panic!("{error}") };
        assert!(reason.contains(what), "{what}: {reason}");
        assert_eq!(*physical_offset as usize, second);
        assert_eq!(slave.written().0 as usize, second, "what is sound is taken");
        assert_eq!(bodies(&slave, "A", 0).len(), 1);
    }
    copy(&master, &slave, 512);
    assert_same(&master, &slave);
}

#[test]
fn a_copy_takes_no_messages_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let (master, slave) = stores(&directory);
    let mut batch = slave.new_batch();
    batch.push(&common::message("A", 0, b"x")).unwrap();
    let error = slave.append(&mut batch).unwrap_err();
    assert!(matches!(error, AppendError::Refused(Refusal::Copy)), "{error}");
    assert!(slave.writable().is_ok(), "it is in order all the same");
    assert_eq!(master.log_bytes(0, 10), None);
    assert_eq!(master.log_bytes(-1, 10), None);
    slave.shutdown().unwrap();
    assert!(matches!(slave.append_copy(0, b"x"), Err(AppendError::Refused(Refusal::ShutDown))));
}
