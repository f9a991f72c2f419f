//! What a killed process, a failed append or a failed sync left behind.

use super::*;

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

/// Six messages of A are in the page cache alone. How much of them gets to the disk all the same is up
/// to chance.
fn killed_after_a_failed_sync(seed: u64) -> (SimulatedDisk, StoreConfig) {
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
    (disk, config)
}

#[test]
fn what_a_failed_sync_left_behind_is_written_again() {
    for seed in 0..16 {
        let (disk, config) = killed_after_a_failed_sync(seed);
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
fn what_a_failed_sync_of_a_new_queue_left_behind_is_written_again() {
    for seed in 0..16 {
        let disk = SimulatedDisk::new(Random::new(seed), clock(), false);
        let mut config = small_config(Path::new(ROOT));
        config.flush_consume_queue_least_pages = 0;
        let (store, _) = open_with(&disk, config.clone());
        append_small_and_large(&store, 2, 8);
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
fn a_failed_sync_is_known_even_if_the_next_process_was_killed_in_its_start() {
    for (seed, calls) in (0..16).flat_map(|seed| (1..12).map(move |calls| (seed, calls))) {
        let (disk, config) = killed_after_a_failed_sync(seed);
        disk.cut_after(calls);
        let environment = Environment {
            file_system: Arc::new(disk.clone()),
            clock: clock(),
            threads: false,
            ..Environment::default()
        };
        drop(Store::open(config.clone(), environment));
        disk.kill_process();
        let (store, _) = open_with(&disk, config.clone());
        lose_power(&disk, store);
        let (store, _) = open_with(&disk, config);
        assert_eq!(bodies(&store, "A", 0).len(), 6, "seed {seed}, killed after {calls} calls");
    }
}
