//! One IndexFile to the byte (RocketMQ's `IndexFile` and `IndexHeader`): a header, a table of hash
//! slots, a table of entries. Entries of one slot form a chain from the newest to the oldest.
//!
//! Owns places, encoding and the checks that bytes from a disk must pass; does no I/O.

/// Bytes of the header.
pub const HEADER_BYTES: usize = 40;
/// Bytes of a hash slot.
pub const SLOT_BYTES: usize = 4;
/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 20;

/// Where the fields of the header lie.
pub mod header_place {
    #![allow(missing_docs, reason = "the names are those of the fields")]

    pub const BEGIN_TIMESTAMP: usize = 0;
    pub const END_TIMESTAMP: usize = 8;
    pub const BEGIN_PHY_OFFSET: usize = 16;
    pub const END_PHY_OFFSET: usize = 24;
    pub const HASH_SLOT_COUNT: usize = 32;
    pub const INDEX_COUNT: usize = 36;
}

/// Where the fields of an entry lie.
pub mod entry_place {
    #![allow(missing_docs, reason = "the names are those of the fields")]

    pub const KEY_HASH: usize = 0;
    pub const PHY_OFFSET: usize = 4;
    pub const TIME_DIFF: usize = 12;
    pub const PREV_INDEX_NO: usize = 16;
}

/// How many slots and entries a file has room for; the same for every file of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// `maxHashSlotNum`, at least 1.
    pub slots: u32,
    /// `maxIndexNum`, at least 2. Entry 0 is never used, so that one fewer fit.
    pub entries: u32,
}

impl Layout {
    /// Bytes of a file.
    pub fn file_bytes(&self) -> u64 {
        self.entry_position(0) + u64::from(self.entries) * ENTRY_BYTES as u64
    }

    /// The slot of a hash.
    pub fn slot_of(&self, key_hash: i32) -> u32 {
        // A hash that was checked or made here is not negative.
        key_hash.unsigned_abs() % self.slots.max(1)
    }

    /// Where a slot lies.
    pub fn slot_position(&self, slot: u32) -> u64 {
        HEADER_BYTES as u64 + u64::from(slot) * SLOT_BYTES as u64
    }

    /// Where an entry lies.
    pub fn entry_position(&self, number: u32) -> u64 {
        self.slot_position(self.slots) + u64::from(number) * ENTRY_BYTES as u64
    }
}

/// The header of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Store time of the first entry's record, in ms.
    pub begin_timestamp_ms: i64,
    /// Store time of the last entry's record, in ms.
    pub end_timestamp_ms: i64,
    /// Where the first entry's record lies.
    pub begin_physical_offset: i64,
    /// Where the last entry's record lies.
    pub end_physical_offset: i64,
    /// Slots that hold a chain.
    pub slots_used: u32,
    /// Number of the next entry; the first is 1.
    pub next_entry: u32,
}

impl Header {
    /// The header of a file without entries.
    pub const EMPTY: Header = Header {
        begin_timestamp_ms: 0,
        end_timestamp_ms: 0,
        begin_physical_offset: 0,
        end_physical_offset: 0,
        slots_used: 0,
        next_entry: 1,
    };

    /// Reads a header.
    ///
    /// # Errors
    /// Says which field cannot be right for a file of this layout.
    pub fn decode(bytes: &[u8; HEADER_BYTES], layout: &Layout) -> Result<Header, String> {
        let count = |at: usize, name: &str, max: u32| {
            let found = i32_at(bytes, at);
            u32::try_from(found)
                .ok()
                .filter(|found| *found <= max)
                .ok_or_else(|| format!("header says {name} {found}, at most {max} is possible"))
        };
        let next_entry = count(header_place::INDEX_COUNT, "indexCount", layout.entries)?.max(1);
        let header = Header {
            begin_timestamp_ms: i64_at(bytes, header_place::BEGIN_TIMESTAMP),
            end_timestamp_ms: i64_at(bytes, header_place::END_TIMESTAMP),
            begin_physical_offset: i64_at(bytes, header_place::BEGIN_PHY_OFFSET),
            end_physical_offset: i64_at(bytes, header_place::END_PHY_OFFSET),
            slots_used: count(header_place::HASH_SLOT_COUNT, "hashSlotCount", next_entry - 1)?,
            next_entry,
        };
        let (begin, end) = (header.begin_physical_offset, header.end_physical_offset);
        if begin < 0 || end < begin {
            return Err(format!("header says records from {begin} to {end}"));
        }
        Ok(header)
    }

    /// The bytes of the header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |at: usize, word: i64| {
            bytes[at..at + 8].copy_from_slice(&word.to_be_bytes());
        };
        put(header_place::BEGIN_TIMESTAMP, self.begin_timestamp_ms);
        put(header_place::END_TIMESTAMP, self.end_timestamp_ms);
        put(header_place::BEGIN_PHY_OFFSET, self.begin_physical_offset);
        put(header_place::END_PHY_OFFSET, self.end_physical_offset);
        let mut put = |at: usize, word: u32| {
            bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
        };
        put(header_place::HASH_SLOT_COUNT, self.slots_used);
        put(header_place::INDEX_COUNT, self.next_entry);
        bytes
    }

    /// Whether it has no entry.
    pub fn is_empty(&self) -> bool {
        self.next_entry <= 1
    }
}

/// An entry: one key of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Hash of topic and key, not negative.
    pub key_hash: i32,
    /// Where the record lies.
    pub physical_offset: i64,
    /// Store time of the record, in whole seconds since the file's first one.
    pub seconds: i32,
    /// Number of the next older entry of the slot, 0 at the end.
    pub previous: i32,
}

impl Entry {
    /// Reads an entry.
    pub fn decode(bytes: &[u8; ENTRY_BYTES]) -> Entry {
        Entry {
            key_hash: i32_at(bytes, entry_place::KEY_HASH),
            physical_offset: i64_at(bytes, entry_place::PHY_OFFSET),
            seconds: i32_at(bytes, entry_place::TIME_DIFF),
            previous: i32_at(bytes, entry_place::PREV_INDEX_NO),
        }
    }

    /// The bytes of the entry.
    pub fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[entry_place::KEY_HASH..][..4].copy_from_slice(&self.key_hash.to_be_bytes());
        bytes[entry_place::PHY_OFFSET..][..8].copy_from_slice(&self.physical_offset.to_be_bytes());
        bytes[entry_place::TIME_DIFF..][..4].copy_from_slice(&self.seconds.to_be_bytes());
        bytes[entry_place::PREV_INDEX_NO..][..4].copy_from_slice(&self.previous.to_be_bytes());
        bytes
    }

    /// The entries that lie back to back in `bytes`.
    pub(crate) fn iter(bytes: &[u8]) -> impl Iterator<Item = Entry> {
        bytes.as_chunks::<ENTRY_BYTES>().0.iter().map(Entry::decode)
    }

    /// Earliest store time that its record can have, in ms, in a file that begins at
    /// `begin_timestamp_ms`; the latest is 999 ms later.
    pub fn timestamp_ms(&self, begin_timestamp_ms: i64) -> i64 {
        begin_timestamp_ms.saturating_add(i64::from(self.seconds) * 1_000)
    }
}

/// Whole seconds from the file's first store time to this one, as an entry holds them.
pub(crate) fn seconds_since(begin_timestamp_ms: i64, store_timestamp_ms: i64) -> i32 {
    if begin_timestamp_ms <= 0 {
        return 0;
    }
    let seconds = store_timestamp_ms.saturating_sub(begin_timestamp_ms) / 1_000;
    i32::try_from(seconds.max(0)).unwrap_or(i32::MAX)
}

/// The big-endian word at `at`; 0 where the bytes end, which a caller with an array never meets.
fn i32_at(bytes: &[u8], at: usize) -> i32 {
    let chunk = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    chunk.map_or(0, |chunk| i32::from_be_bytes(*chunk))
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    let chunk = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>());
    chunk.map_or(0, |chunk| i64::from_be_bytes(*chunk))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LAYOUT: Layout = Layout { slots: 100, entries: 150 };

    #[test]
    fn a_file_has_the_length_that_java_gives_it() {
        let layout = Layout { slots: 5_000_000, entries: 20_000_000 };
        assert_eq!(layout.file_bytes(), 420_000_040);
        assert_eq!(LAYOUT.file_bytes(), 3_440);
    }

    #[test]
    fn impossible_headers_are_named() {
        let good = Header { next_entry: 3, slots_used: 2, ..Header::EMPTY };
        assert_eq!(Header::decode(&good.encode(), &LAYOUT), Ok(good));
        assert_eq!(Header::decode(&[0; HEADER_BYTES], &LAYOUT), Ok(Header::EMPTY));
        for (bad, part) in [
            (Header { next_entry: 151, ..good }, "indexCount 151"),
            (Header { next_entry: u32::MAX, ..good }, "indexCount -1"),
            (Header { slots_used: 3, ..good }, "hashSlotCount 3"),
            (Header { begin_physical_offset: -1, ..good }, "from -1 to 0"),
            (Header { begin_physical_offset: 2, end_physical_offset: 1, ..good }, "from 2 to 1"),
        ] {
            let error = Header::decode(&bad.encode(), &LAYOUT).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn seconds_are_whole_and_in_range() {
        assert_eq!(seconds_since(10_000, 11_999), 1);
        assert_eq!(seconds_since(10_000, 9_000), 0, "the clock stepped back");
        assert_eq!(seconds_since(0, 9_000), 0);
        assert_eq!(seconds_since(1, i64::MAX), i32::MAX);
    }

    proptest! {
        #[test]
        fn identity(words in any::<(i32, i64, i32, i32)>()) {
            let (key_hash, physical_offset, seconds, previous) = words;
            let entry = Entry { key_hash, physical_offset, seconds, previous };
            prop_assert_eq!(Entry::decode(&entry.encode()), entry);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in any::<[u8; HEADER_BYTES]>(), entry in any::<[u8; ENTRY_BYTES]>()) {
            if let Ok(header) = Header::decode(&bytes, &LAYOUT) {
                prop_assert!(header.next_entry >= 1 && header.next_entry <= LAYOUT.entries);
                let again = Header::decode(&header.encode(), &LAYOUT);
                prop_assert_eq!(again, Ok(header));
            }
            let entry = Entry::decode(&entry);
            let _ = (entry.timestamp_ms(i64::MAX), LAYOUT.slot_of(entry.key_hash));
        }
    }
}
