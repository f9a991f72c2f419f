//! What the crash simulator found, each without a seed: whatever was not synced is lost.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod common;
mod simulator;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{append, bodies, message, small_config};
use rocketmq_protocol::message::batch;
use rocketmq_store::clock::ManualClock;
use rocketmq_store::file_system::OpenMode;
use rocketmq_store::small_file::{read_small_file, write_small_file};
use rocketmq_store::{
    DurableOutcome, Environment, FileSystem, MessageError, RecoveryReport, Refusal, Store,
    StoreConfig,
};
use simulator::disk::{Call, SimulatedDisk};
use simulator::random::Random;

const ROOT: &str = "/data/store";

/// Not an hour at which old files are removed.
fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(1_700_000_000_000))
}

fn new_disk() -> SimulatedDisk {
    SimulatedDisk::new(Random::new(1), clock(), false)
}

fn open_with(disk: &SimulatedDisk, config: StoreConfig) -> (Arc<Store>, RecoveryReport) {
    let file_system = Arc::new(disk.clone());
    let environment =
        Environment { file_system, clock: clock(), threads: false, ..Environment::default() };
    Store::open(config, environment).unwrap()
}

fn open(disk: &SimulatedDisk) -> (Arc<Store>, RecoveryReport) {
    open_with(disk, small_config(Path::new(ROOT)))
}

fn lose_power(disk: &SimulatedDisk, store: Arc<Store>) {
    drop(store);
    disk.cut_power_and_lose_all();
}

fn kill(disk: &SimulatedDisk, store: Arc<Store>) {
    drop(store);
    disk.kill_process();
}

fn log_file(base_offset: u64) -> PathBuf {
    Path::new(ROOT).join(format!("commitlog/{base_offset:020}"))
}

#[test]
fn the_names_of_new_directories_are_durable() {
    let disk = new_disk();
    let (store, _) = open(&disk);
    append(&store, "A", 0, b"one");
    store.flush().unwrap();
    lose_power(&disk, store);
    let (store, report) = open(&disk);
    assert!(!report.clean);
    assert_eq!((report.queues_rebuilt, report.entries_added), (0, 0), "{report}");
    assert_eq!(bodies(&store, "A", 0), [b"one"]);
}

#[test]
fn a_small_file_is_durable_with_its_directory() {
    let disk = new_disk();
    let path = Path::new(ROOT).join("config/topics.json");
    write_small_file(&disk, &path, b"{}").unwrap();
    disk.cut_power_and_lose_all();
    let read = read_small_file(&disk, &path, |bytes| Ok(bytes.to_vec())).unwrap().unwrap();
    assert_eq!(read.value, b"{}");
}

#[test]
fn a_small_file_that_cannot_be_read_is_not_replaced_by_an_older_one() {
    let disk = new_disk();
    let path = Path::new(ROOT).join("config/topics.json");
    write_small_file(&disk, &path, b"1").unwrap();
    write_small_file(&disk, &path, b"2").unwrap();
    disk.fail_after(Some(Call::Read), 0, false);
    let error = read_small_file(&disk, &path, |bytes| Ok(bytes.to_vec())).unwrap_err();
    assert!(error.to_string().contains("topics.json"), "{error}");
}

#[test]
fn a_deleted_topic_does_not_come_back() {
    for killed in [false, true] {
        let disk = new_disk();
        let (store, _) = open(&disk);
        for _ in 0..20 {
            append(&store, "A", 0, b"old");
        }
        append(&store, "B", 0, b"kept");
        store.flush().unwrap();
        assert!(store.delete_topic("A").unwrap());
        if killed {
            kill(&disk, store)
        } else {
            lose_power(&disk, store)
        }
        let (store, _) = open(&disk);
        assert_eq!(store.topics(), ["B".into()]);
        assert_eq!(append(&store, "A", 0, b"new"), 0);
        store.flush().unwrap();
        lose_power(&disk, store);
        // Nor when its queue has to be built anew from the whole log.
        disk.remove_directory(&Path::new(ROOT).join("consumequeue/A")).unwrap();
        let (store, _) = open(&disk);
        assert_eq!(bodies(&store, "A", 0), [b"new"]);
        assert_eq!(bodies(&store, "B", 0), [b"kept"]);
    }
}

#[test]
fn a_deletion_does_not_swallow_messages_where_the_log_lost_its_end() {
    let disk = new_disk();
    let (store, _) = open(&disk);
    append(&store, "B", 0, b"kept");
    store.flush().unwrap();
    for _ in 0..5 {
        append(&store, "A", 0, b"old and lost");
    }
    store.delete_topic("A").unwrap();
    lose_power(&disk, store);
    let (store, _) = open(&disk);
    for n in 0..3 {
        assert_eq!(append(&store, "A", 0, b"new"), n);
    }
    kill(&disk, store);
    let (store, _) = open(&disk);
    assert_eq!(bodies(&store, "A", 0).len(), 3);
}

#[test]
fn offsets_go_on_when_all_messages_of_a_queue_have_expired() {
    let disk = new_disk();
    let (store, _) = open(&disk);
    for _ in 0..8 {
        append(&store, "A", 0, b"soon gone");
    }
    for n in 0..8u8 {
        append(&store, "B", 0, &[n; 1500]);
    }
    disk.set_used_percent(86);
    store.tick().unwrap();
    assert!(store.min_physical_offset() > 0);
    lose_power(&disk, store);
    let (store, _) = open(&disk);
    assert_eq!((store.min_queue_offset("A", 0), store.max_queue_offset("A", 0)), (8, 8));
    disk.set_used_percent(0);
    store.tick().unwrap();
    assert_eq!(append(&store, "A", 0, b"next"), 8);
}

#[test]
fn old_files_of_a_queue_go_in_order() {
    for seed in 0..20 {
        let disk = SimulatedDisk::new(Random::new(seed), clock(), false);
        let mut config = small_config(Path::new(ROOT));
        config.delete_commit_log_files_interval_ms = 0;
        config.delete_consume_queue_files_interval_ms = 0;
        let (store, _) = open_with(&disk, config);
        for _ in 0..40 {
            append(&store, "A", 0, b"soon gone");
        }
        for n in 0..12u8 {
            append(&store, "B", 0, &[n; 1500]);
        }
        disk.set_used_percent(86);
        store.tick().unwrap();
        assert_eq!((store.min_queue_offset("A", 0), store.max_queue_offset("A", 0)), (40, 40));
        drop(store);
        // Of the names that were removed and not synced any may be there again.
        disk.cut_power();
        let (store, _) = open(&disk);
        let offsets = (store.min_queue_offset("A", 0), store.max_queue_offset("A", 0));
        assert_eq!(offsets, (40, 40), "seed {seed}");
    }
}

#[test]
fn offsets_of_a_batch_queue_go_on_when_its_newest_batch_is_lost() {
    let disk = new_disk();
    let mut config = small_config(Path::new(ROOT));
    config.batch_consume_queue_file_bytes = 4 * 46;
    let open = || open_with(&disk, config.clone());
    let (store, _) = open();
    let mut body = Vec::new();
    for _ in 0..3 {
        let part = batch::BatchMessage { flag: 0, body: b"one of three", properties: b"" };
        batch::encode(&mut body, &part).unwrap();
    }
    let append_batch = |store: &Store| {
        let mut batch = store.new_batch();
        batch.push_inner_batch(&message("Batches", 0, &body)).unwrap();
        store.append(&mut batch).unwrap();
        batch.result(0).unwrap().queue_offset
    };
    for _ in 0..4 {
        append_batch(&store);
    }
    for n in 0..8u8 {
        append(&store, "B", 0, &[n; 1500]);
    }
    store.flush().unwrap();
    // The first entry of a new file, whose record is written and not synced.
    assert_eq!(append_batch(&store), 12);
    disk.set_used_percent(86);
    store.tick().unwrap();
    assert!(store.min_physical_offset() > 0);
    disk.sync_directory(&Path::new(ROOT).join("batchconsumequeue/Batches/0")).unwrap();
    let end = store.max_physical_offset();
    lose_power(&disk, store);
    disk.set_used_percent(0);
    let (store, report) = open();
    assert!(report.log_end < end, "{report}");
    assert_eq!(append_batch(&store), 12);
}

#[test]
fn what_a_killed_process_left_in_the_page_cache_is_durable_once_it_is_recovered() {
    let disk = new_disk();
    let (store, _) = open(&disk);
    for n in 0..30u8 {
        append(&store, "A", 0, &[n; 300]);
    }
    store.tick().unwrap();
    kill(&disk, store);
    let (store, report) = open(&disk);
    assert_eq!(store.durable().0, report.log_end);
    // A clean end vouches for the queue as well.
    store.shutdown().unwrap();
    lose_power(&disk, store);
    let (store, report) = open(&disk);
    assert!(report.clean);
    assert_eq!((report.queues_rebuilt, report.entries_added), (0, 0), "{report}");
    assert_eq!(bodies(&store, "A", 0).len(), 30);
}

#[test]
fn what_a_failed_sync_left_behind_is_written_again() {
    // How much of it got to the disk all the same is up to chance.
    for seed in 0..16 {
        let disk = SimulatedDisk::new(Random::new(seed), clock(), false);
        let mut config = small_config(Path::new(ROOT));
        config.commit_log_file_bytes = 16_384;
        let (store, _) = open_with(&disk, config.clone());
        for _ in 0..6 {
            append(&store, "A", 0, &[7; 2000]);
        }
        disk.fail_after(Some(Call::Sync), 0, false);
        assert!(store.flush().is_err());
        disk.heal();
        kill(&disk, store);
        let (store, report) = open_with(&disk, config.clone());
        assert_eq!((store.durable().0, store.max_queue_offset("A", 0)), (report.log_end, 6));
        lose_power(&disk, store);
        let (store, _) = open_with(&disk, config);
        assert_eq!(bodies(&store, "A", 0).len(), 6, "seed {seed}");
    }
}

#[test]
fn after_a_failed_sync_the_checkpoint_vouches_for_nothing_more() {
    let disk = new_disk();
    let clock = clock();
    let open = || {
        let environment = Environment {
            file_system: Arc::new(disk.clone()),
            clock: clock.clone(),
            threads: false,
            ..Environment::default()
        };
        Store::open(small_config(Path::new(ROOT)), environment).unwrap().0
    };
    let store = open();
    append(&store, "B", 0, b"first");
    store.flush().unwrap();
    // The newest files hold nothing of A, so that only the checkpoint can tell where to look for it.
    for topic in ["A", "B"] {
        for _ in 0..30 {
            append(&store, topic, 0, &[7; 400]);
            clock.advance(10_000);
        }
    }
    // The names of the queue's files are not on the disk, and a later sync does not know it.
    disk.fail_after(Some(Call::SyncDirectory), 0, false);
    assert!(store.flush().is_err());
    assert!(disk.heal());
    assert!(store.tick().is_err(), "nothing is written any more");
    lose_power(&disk, store);
    assert_eq!(bodies(&open(), "A", 0).len(), 30);
}

#[test]
fn a_sector_that_is_missing_in_the_properties_makes_a_record_torn() {
    let disk = new_disk();
    let (store, _) = open(&disk);
    append(&store, "A", 0, b"whole");
    let padding = [b"p\x01".as_slice(), &[b'x'; 2000], b"\x02"].concat();
    let mut batch = store.new_batch();
    let mut long = message("A", 0, b"torn");
    let properties = [&padding[..]];
    long.properties = &properties;
    batch.push(&long).unwrap();
    store.append(&mut batch).unwrap();
    store.flush().unwrap();
    kill(&disk, store);
    let file = disk.open(&log_file(0), OpenMode::Existing).unwrap();
    file.write_at(&[0; 512], 1024).unwrap();
    drop(file);
    let (store, report) = open(&disk);
    assert!(report.cut_reason.unwrap().contains("torn"));
    assert_eq!(bodies(&store, "A", 0), [b"whole"]);
}

#[test]
fn sound_properties_never_look_torn() {
    let disk = new_disk();
    let (store, _) = open(&disk);
    let mut batch = store.new_batch();
    let zeros = [b"a\x01".as_slice(), &[0; 512], b"b\x02"].concat();
    let properties = [&zeros[..]];
    let mut refused = message("A", 0, b"");
    refused.properties = &properties;
    let error = batch.push(&refused).unwrap_err();
    assert_eq!(error, MessageError::PropertiesZeros { bytes: 512, max: 511 });
    // Zeros at either end, wherever the sectors happen to meet.
    for size in 0..600 {
        batch.clear();
        let body = vec![1; size];
        let properties = [&b"\0\0a\x01b\0\0"[..]];
        let mut taken = message("A", 0, &body);
        taken.properties = &properties;
        batch.push(&taken).unwrap();
        store.append(&mut batch).unwrap();
    }
    kill(&disk, store);
    let (store, report) = open(&disk);
    assert_eq!((report.bytes_cut, store.max_queue_offset("A", 0)), (0, 600), "{report}");
}

#[test]
fn a_queue_file_that_lost_its_length_does_not_stop_the_start() {
    let disk = new_disk();
    let (store, _) = open(&disk);
    for n in 0..30u8 {
        append(&store, "A", 0, &[n]);
    }
    store.flush().unwrap();
    kill(&disk, store);
    for base_offset in [0, 160] {
        let path = Path::new(ROOT).join(format!("consumequeue/A/0/{base_offset:020}"));
        disk.open(&path, OpenMode::Empty).unwrap();
        let (store, _) = open(&disk);
        assert_eq!(bodies(&store, "A", 0).len(), 30, "file {base_offset}");
        store.flush().unwrap();
        kill(&disk, store);
    }
}

#[test]
fn a_first_start_that_was_interrupted_is_begun_again() {
    let disk = new_disk();
    let mut config = small_config(Path::new(ROOT));
    config.commit_log_dirs = vec!["/a/log".into(), "/b/log".into()];
    disk.create_directory(&config.commit_log_dirs[0]).unwrap();
    let (store, _) = open_with(&disk, config.clone());
    for n in 0..9u8 {
        append(&store, "A", 0, &[n; 1200]);
    }
    kill(&disk, store);
    // A file that one directory could not take after all, and whose removal was lost.
    let twin = Path::new("/b/log/00000000000000000000");
    disk.open(twin, OpenMode::New).unwrap().set_len(4096).unwrap();
    let (store, report) = open_with(&disk, config);
    assert_eq!(report.removed_empty, [twin]);
    assert_eq!(bodies(&store, "A", 0).len(), 9);
}

#[test]
fn messages_older_than_lost_ones_are_looked_for_all_the_same() {
    let disk = new_disk();
    let clock = clock();
    let open = || {
        let environment = Environment {
            file_system: Arc::new(disk.clone()),
            clock: clock.clone(),
            threads: false,
            ..Environment::default()
        };
        Store::open(small_config(Path::new(ROOT)), environment).unwrap()
    };
    let (store, _) = open();
    append(&store, "A", 0, b"soon gone");
    store.flush().unwrap();
    // What is left of the log when its first file has gone was never synced.
    for n in 0..2u8 {
        append(&store, "B", 0, &[n; 1500]);
    }
    let mut batch = store.new_batch();
    batch.push(&message("B", 0, &[2; 1500])).unwrap();
    disk.fail_after(Some(Call::Write), 1, false);
    assert!(store.append(&mut batch).is_err());
    assert!(disk.heal());
    store.flush().unwrap();
    assert_eq!(store.durable().0, 4096);
    append(&store, "B", 0, &[2; 1500]);
    disk.set_used_percent(86);
    store.tick().unwrap();
    disk.set_used_percent(0);
    lose_power(&disk, store);
    let (store, report) = open();
    assert_eq!((report.log_start, report.log_end), (4096, 4096), "{report}");
    clock.advance(-3 * 3_600_000);
    append(&store, "A", 0, b"kept");
    for n in 0..6u8 {
        append(&store, "B", 0, &[n; 1500]);
    }
    store.tick().unwrap();
    // Of the queues that of B is synced alone: it reaches into the newest file.
    let queue = Path::new(ROOT).join("consumequeue/B/0");
    for path in
        [queue.join("00000000000000000000"), log_file(4096), log_file(8192), log_file(12_288)]
    {
        disk.open(&path, OpenMode::Existing).unwrap().sync_data().unwrap();
    }
    for directory in queue.ancestors().take(3) {
        disk.sync_directory(directory).unwrap();
    }
    lose_power(&disk, store);
    let (store, _) = open();
    assert_eq!(bodies(&store, "A", 0), [b"kept"]);
}

#[test]
fn an_older_file_of_a_queue_is_looked_at_if_it_was_not_synced() {
    let disk = new_disk();
    let (store, _) = open(&disk);
    for n in 0..40u8 {
        append(&store, "A", 0, &[n]);
    }
    store.tick().unwrap();
    kill(&disk, store);
    // Newer files got to the disk, this one did not.
    let path = Path::new(ROOT).join("consumequeue/A/0/00000000000000000160");
    disk.open(&path, OpenMode::Existing).unwrap().zero_range(0, 160).unwrap();
    let (store, _) = open(&disk);
    assert_eq!(bodies(&store, "A", 0).len(), 40);
}

#[test]
fn a_removal_that_cannot_be_made_durable_is_the_last() {
    let disk = new_disk();
    let (store, _) = open(&disk);
    for n in 0..12u8 {
        append(&store, "A", 0, &[n; 1500]);
    }
    store.flush().unwrap();
    disk.set_used_percent(86);
    disk.fail_after(Some(Call::SyncDirectory), 0, false);
    assert!(store.tick().is_err());
    assert!(disk.heal());
    assert!(matches!(store.writable(), Err(Refusal::SyncFailed(_))));
    let start = store.min_physical_offset();
    assert!(store.tick().is_err() && store.remove_old_files(true).is_err());
    assert_eq!(store.min_physical_offset(), start);
    lose_power(&disk, store);
    let (store, report) = open(&disk);
    assert_eq!(report.log_start, 0);
    assert_eq!(bodies(&store, "A", 0).len(), 12);
}

#[test]
fn what_a_failed_append_wrote_does_not_come_back_once_others_took_its_place() {
    for seed in 0..60 {
        let disk = SimulatedDisk::new(Random::new(seed), clock(), false);
        let (store, _) = open(&disk);
        append(&store, "A", 0, b"kept");
        store.flush().unwrap();
        let mut batch = store.new_batch();
        for _ in 0..4 {
            batch.push(&message("A", 0, b"failed")).unwrap();
        }
        disk.fail_after(Some(Call::Write), 0, false);
        assert!(store.append(&mut batch).is_err());
        assert!(disk.heal());
        append(&store, "A", 0, b"taken");
        drop(store);
        disk.cut_power();
        let (store, _) = open(&disk);
        let found = bodies(&store, "A", 0);
        assert!(found.iter().all(|body| body != b"failed"), "seed {seed}: {found:?}");
    }
}

#[test]
fn nobody_is_told_that_messages_are_durable_after_a_sync_behind_a_failed_append() {
    let disk = new_disk();
    let (store, _) = open(&disk);
    append(&store, "A", 0, b"taken");
    let (told, heard) = std::sync::mpsc::channel();
    let end = store.max_physical_offset();
    store.on_durable(end, Box::new(move |outcome| told.send(outcome).unwrap()));
    let mut batch = store.new_batch();
    batch.push(&message("A", 0, b"failed")).unwrap();
    disk.fail_after(None, 0, true);
    assert!(store.append(&mut batch).is_err());
    assert!(disk.heal());
    assert!(matches!(store.writable(), Err(Refusal::SyncFailed(_) | Refusal::WriteFailed(_))));
    assert!(store.flush().is_err());
    assert!(matches!(heard.recv().unwrap(), DurableOutcome::Failed(_)));
    assert!(store.durable().0 < end);
}

#[test]
fn a_queue_of_which_an_empty_file_is_left_keeps_its_offsets_when_a_start_is_interrupted() {
    for seed in 0..60 {
        let disk = SimulatedDisk::new(Random::new(seed), clock(), false);
        let mut config = small_config(Path::new(ROOT));
        config.delete_commit_log_files_interval_ms = 0;
        config.delete_consume_queue_files_interval_ms = 0;
        let (store, _) = open_with(&disk, config);
        for _ in 0..8 {
            append(&store, "A", 0, b"soon gone");
        }
        for n in 0..8u8 {
            append(&store, "B", 0, &[n; 1500]);
        }
        store.flush().unwrap();
        // The first entry of a new file, whose record is lost.
        append(&store, "A", 0, b"not synced");
        disk.set_used_percent(86);
        store.tick().unwrap();
        disk.set_used_percent(0);
        disk.sync_directory(&Path::new(ROOT).join("consumequeue/A/0")).unwrap();
        lose_power(&disk, store);
        let (store, _) = open(&disk);
        let offsets =
            |store: &Store| (store.min_queue_offset("A", 0), store.max_queue_offset("A", 0));
        assert_eq!(offsets(&store), (8, 8));
        kill(&disk, store);
        disk.cut_after(seed % 20 + 1);
        let environment = Environment {
            file_system: Arc::new(disk.clone()),
            clock: clock(),
            threads: false,
            ..Environment::default()
        };
        drop(Store::open(small_config(Path::new(ROOT)), environment));
        disk.cut_power();
        let (store, _) = open(&disk);
        assert_eq!(offsets(&store), (8, 8), "seed {seed}");
        assert_eq!(append(&store, "A", 0, b"next"), 8);
    }
}

#[test]
fn what_a_failed_sync_of_a_new_queue_left_behind_is_written_again() {
    for seed in 0..16 {
        let disk = SimulatedDisk::new(Random::new(seed), clock(), false);
        let mut config = small_config(Path::new(ROOT));
        config.flush_consume_queue_least_pages = 0;
        let (store, _) = open_with(&disk, config.clone());
        for _ in 0..2 {
            append(&store, "A", 0, b"soon gone");
        }
        for n in 0..8u8 {
            append(&store, "B", 0, &[n; 1500]);
        }
        disk.fail_after(Some(Call::Sync), 0, false);
        assert!(store.tick().is_err());
        disk.heal();
        kill(&disk, store);
        let (store, _) = open_with(&disk, config.clone());
        disk.set_used_percent(86);
        store.tick().unwrap();
        disk.set_used_percent(0);
        assert!(store.min_physical_offset() > 0);
        lose_power(&disk, store);
        let (store, _) = open_with(&disk, config);
        assert_eq!(store.max_queue_offset("A", 0), 2, "seed {seed}");
    }
}

#[test]
fn ext_units_that_a_failed_sync_left_behind_are_written_again() {
    for seed in 0..16 {
        let disk = SimulatedDisk::new(Random::new(seed), clock(), false);
        let mut config = small_config(Path::new(ROOT));
        config.enable_consume_queue_ext = true;
        config.flush_consume_queue_least_pages = 0;
        let (store, _) = open_with(&disk, config.clone());
        append(&store, "A", 0, b"one");
        // Of a queue its ext files are synced first.
        disk.fail_after(Some(Call::Sync), 0, false);
        assert!(store.tick().is_err());
        let (_, path) = disk.last_failed().unwrap();
        assert!(path.starts_with(Path::new(ROOT).join("consumequeue_ext")), "{path:?}");
        disk.heal();
        let read = || {
            let mut bytes = [0; 20];
            disk.open(&path, OpenMode::ReadOnly).unwrap().read_at(&mut bytes, 0).unwrap();
            bytes
        };
        let written = read();
        assert_ne!(written, [0; 20]);
        kill(&disk, store);
        let (store, _) = open_with(&disk, config.clone());
        lose_power(&disk, store);
        assert_eq!(read(), written, "seed {seed}");
    }
}

#[test]
fn a_start_that_was_killed_while_it_removed_files_leaves_no_gap() {
    let disk = new_disk();
    let mut config = small_config(Path::new(ROOT));
    config.commit_log_dirs = vec!["/a/log".into(), "/b/log".into()];
    for directory in &config.commit_log_dirs {
        disk.create_directory(directory).unwrap();
        disk.sync_directory(directory.parent().unwrap()).unwrap();
        disk.sync_directory(Path::new("/")).unwrap();
    }
    let (store, _) = open_with(&disk, config.clone());
    for n in 0..6u8 {
        append(&store, "A", 0, &[n; 1500]);
    }
    store.flush().unwrap();
    kill(&disk, store);
    let file =
        |directory: &str, base_offset: u64| Path::new(directory).join(format!("{base_offset:020}"));
    let first = disk.open(&file("/a/log", 0), OpenMode::Existing).unwrap();
    first.write_at(&[0; 100], 0).unwrap();
    first.sync_data().unwrap();
    // As a start does before it is killed.
    disk.remove_file(&file("/a/log", 8192)).unwrap();
    disk.kill_process();
    disk.fail_after(Some(Call::SyncAll), 0, true);
    let environment = Environment {
        file_system: Arc::new(disk.clone()),
        clock: clock(),
        threads: false,
        ..Environment::default()
    };
    Store::open(config.clone(), environment).unwrap_err();
    disk.heal();
    assert!(!disk.exists(&file("/b/log", 4096)).unwrap());
    disk.cut_power_and_lose_all();
    let (_, report) = open_with(&disk, config);
    assert_eq!(report.log_end, 0, "{report}");
}

#[test]
fn a_queue_whose_messages_are_all_lost_begins_anew_unless_some_may_have_expired() {
    let disk = new_disk();
    let (store, _) = open(&disk);
    for _ in 0..9 {
        append(&store, "A", 0, b"not synced");
    }
    store.tick().unwrap();
    // Only the second file of the queue gets to the disk.
    let queue = Path::new(ROOT).join("consumequeue/A/0");
    let file = queue.join("00000000000000000160");
    disk.open(&file, OpenMode::Existing).unwrap().sync_data().unwrap();
    for directory in queue.ancestors().take(4) {
        disk.sync_directory(directory).unwrap();
    }
    lose_power(&disk, store);
    let (store, report) = open(&disk);
    assert_eq!((report.log_end, store.topics().len()), (0, 0), "{report}");
    assert_eq!(append(&store, "A", 0, b"first"), 0);
}

#[test]
fn a_log_file_is_durable_before_it_is_removed() {
    let disk = new_disk();
    let (store, _) = open(&disk);
    for n in 0..12u8 {
        append(&store, "A", 0, &[n; 1500]);
    }
    disk.set_used_percent(86);
    // The removal stays in memory.
    disk.fail_after(Some(Call::SyncDirectory), 3, false);
    assert!(store.tick().is_err());
    assert!(disk.heal());
    assert!(store.min_physical_offset() > 0);
    let _ = store.flush();
    let durable = store.durable().0;
    lose_power(&disk, store);
    let (_, report) = open(&disk);
    assert!(report.log_end >= durable && durable > 0, "{durable}: {report}");
}
