use super::*;
use crate::file_system::RealFileSystem;
use proptest::prelude::*;

fn ext(root: &Path, file_bytes: u64) -> QueueExt {
    let files = ExtFiles {
        file_system: Arc::new(RealFileSystem),
        directory: root.join("consumequeue_ext"),
        file_bytes,
        is_written: true,
        filter_bit_map: None,
        bit_map_bytes: 8,
        open_files: Default::default(),
    };
    QueueExt::new(Arc::new(files), "Orders", 3)
}

fn unit(n: i64, filter_bit_map: &[u8]) -> ExtUnit<'_> {
    ExtUnit { tags_code: n, msg_store_time_ms: n + 1, filter_bit_map }
}

fn names(root: &Path) -> Vec<String> {
    let directory = root.join("consumequeue_ext/Orders/3");
    let listed = RealFileSystem.list(&directory).unwrap();
    listed.into_iter().map(|entry| entry.name).collect()
}

#[test]
fn a_file_ends_with_a_mark_and_four_free_bytes() {
    let directory = tempfile::tempdir().unwrap();
    // Room for two units of 22 bytes, and the end.
    let ext = ext(directory.path(), 50);
    let addresses: Vec<i64> = (0..3).map(|n| ext.append(&unit(n, &[1, 2])).unwrap()).collect();
    assert_eq!(addresses, [i64::MIN, i64::MIN + 22, i64::MIN + 50]);
    ext.write_tail().unwrap();
    let first = directory.path().join("consumequeue_ext/Orders/3").join(file_name(0));
    let bytes = std::fs::read(first).unwrap();
    assert_eq!(bytes.len(), 50);
    assert_eq!(bytes[44..], [0xFF, 0xFF, 0, 0, 0, 0]);
    assert_eq!(bytes[..2], 22i16.to_be_bytes());
    assert_eq!(ext.append(&unit(9, &[0; 40])), None, "it fits no file");
}

#[test]
fn units_end_behind_the_newest_entry_and_old_files_go() {
    let directory = tempfile::tempdir().unwrap();
    let first = ext(directory.path(), 50);
    let addresses: Vec<i64> = (0..9).map(|n| first.append(&unit(n, &[1, 2])).unwrap()).collect();
    first.write_tail().unwrap();
    first.sync().unwrap();
    assert_eq!(names(directory.path()).len(), 5);
    let again = ext(directory.path(), 50);
    again.load(Some(addresses[4])).unwrap();
    assert_eq!(names(directory.path()).len(), 3, "files behind it are gone");
    assert_eq!(again.append(&unit(50, &[])), Some(addresses[5]), "the next place");
    let mut reader = ExtReader::default();
    assert_eq!(reader.unit(&again, addresses[4]).unwrap(), Some(unit(4, &[1, 2])));
    assert_eq!(reader.unit(&again, addresses[5]).unwrap(), Some(unit(50, &[])));
    assert_eq!(reader.unit(&again, addresses[7]).unwrap(), None);
    again.remove_in_front(addresses[3]).unwrap();
    assert_eq!(names(directory.path()).len(), 2);
    assert_eq!(reader.unit(&again, addresses[0]).unwrap(), None);
    assert_eq!(reader.unit(&again, addresses[2]).unwrap(), Some(unit(2, &[1, 2])));

    let walked = ext(directory.path(), 50);
    walked.load(None).unwrap();
    assert_eq!(walked.append(&unit(51, &[])), Some(addresses[6]), "behind all that it finds");
    again.clear().unwrap();
    assert!(names(directory.path()).is_empty());
    assert_eq!(again.append(&unit(0, &[])), Some(i64::MIN));
}

#[test]
fn the_place_of_a_lost_unit_is_not_given_twice() {
    let directory = tempfile::tempdir().unwrap();
    let ext = ext(directory.path(), 4096);
    let lost = ext.append(&unit(1, &[])).unwrap();
    // The entry reached the disk, the unit did not.
    std::fs::create_dir_all(directory.path().join("consumequeue_ext/Orders/3")).unwrap();
    ext.load(Some(lost)).unwrap();
    assert_eq!(ext.append(&unit(2, &[])), Some(lost + 20));
    assert_eq!(ExtReader::default().unit(&ext, lost).unwrap(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Against a list: units of all lengths, written and reopened at any time.
    #[test]
    fn every_unit_is_found_at_its_address(
        steps in prop::collection::vec((0usize..60, 0u8..10), 1..80),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let mut ext = ext(directory.path(), 200);
        let mut model: Vec<(i64, i64, Vec<u8>)> = Vec::new();
        for (n, (bit_map_bytes, action)) in steps.into_iter().enumerate() {
            let (n, bit_map) = (n as i64, vec![n as u8; bit_map_bytes]);
            let address = ext.append(&unit(n, &bit_map)).unwrap();
            model.push((address, n, bit_map));
            if action < 3 {
                ext.write_tail().unwrap();
            }
            if action == 0 {
                ext = self::ext(directory.path(), 200);
                ext.load(Some(address)).unwrap();
            }
        }
        let mut reader = ExtReader::default();
        for (address, n, bit_map) in &model {
            let found = reader.unit(&ext, *address).unwrap();
            prop_assert_eq!(found, Some(unit(*n, bit_map)));
        }
    }
}
