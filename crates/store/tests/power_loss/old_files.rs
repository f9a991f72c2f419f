//! Queues and files of the log whose oldest messages went.

use super::*;

#[test]
fn offsets_go_on_when_all_messages_of_a_queue_have_expired() {
    let disk = new_disk();
    let (store, _) = open(&disk);
    append_small_and_large(&store, 8, 8);
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
        append_small_and_large(&store, 40, 12);
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
fn a_queue_of_which_an_empty_file_is_left_keeps_its_offsets_when_a_start_is_interrupted() {
    for seed in 0..60 {
        let disk = SimulatedDisk::new(Random::new(seed), clock(), false);
        let mut config = small_config(Path::new(ROOT));
        config.delete_commit_log_files_interval_ms = 0;
        config.delete_consume_queue_files_interval_ms = 0;
        let (store, _) = open_with(&disk, config);
        append_small_and_large(&store, 8, 8);
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
