//! An index file: the bytes are one, of a layout that they choose; each chain ends and stays inside.

use rocketmq_store::index::chain::Chain;
use rocketmq_store::index::file::{ENTRY_BYTES, Entry, HEADER_BYTES, Header, Layout};

/// What the target does with its input.
pub fn run(bytes: &[u8]) {
    let Some((&[slots, entries], file)) = bytes.split_first_chunk::<2>() else { return };
    let layout = Layout { slots: u32::from(slots) + 1, entries: u32::from(entries) + 2 };
    let Some(header) = file.first_chunk::<HEADER_BYTES>() else { return };
    let Ok(header) = Header::decode(header, &layout) else { return };
    assert!(header.next_entry >= 1 && header.next_entry <= layout.entries);
    assert_eq!(Header::decode(&header.encode(), &layout), Ok(header));
    for slot in 0..layout.slots {
        let read = |buffer: &mut [u8], position: u64| {
            let end = position + buffer.len() as u64;
            assert!(end <= layout.file_bytes(), "a read beyond the end of the file");
            // What the bytes do not say is zero.
            buffer.fill(0);
            let from = file.len().min(position as usize);
            let found = &file[from..file.len().min(end as usize)];
            buffer[..found.len()].copy_from_slice(found);
            Ok(())
        };
        let Ok(mut chain) = Chain::new(layout, slot as i32, read, || header.next_entry) else {
            continue;
        };
        let mut count = 0;
        while let Ok(Some(entry)) = chain.next_entry() {
            count += 1;
            assert!(count < header.next_entry, "a chain longer than the file");
            assert_eq!(layout.slot_of(entry.key_hash), slot);
            let _ = entry.timestamp_ms(header.begin_timestamp_ms);
            let encoded: [u8; ENTRY_BYTES] = entry.encode();
            assert_eq!(Entry::decode(&encoded), entry);
        }
    }
}
