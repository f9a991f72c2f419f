//! Which records count as whole, and where recovery looks for them.

use super::*;

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
