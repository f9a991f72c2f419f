//! Names, small files and the deletion of topics.

use super::*;

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
