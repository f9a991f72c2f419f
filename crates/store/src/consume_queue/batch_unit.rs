//! The 46 bytes that say where an inner batch lies and which messages it holds (RocketMQ's
//! `BatchConsumeQueue`).

use super::unit::Unit;

/// Bytes of an entry.
pub const BATCH_UNIT_BYTES: usize = 46;
/// Where the parts of an entry lie.
pub mod batch_place {
    #![allow(missing_docs, reason = "the names are those of the fields")]

    pub const PHYSICAL_OFFSET: usize = 0;
    pub const SIZE: usize = 8;
    pub const TAGS_CODE: usize = 12;
    pub const STORE_TIME: usize = 20;
    pub const MSG_BASE_OFFSET: usize = 28;
    pub const BATCH_SIZE: usize = 36;
    pub const COMPACTED_OFFSET: usize = 38;
    pub const RESERVED: usize = 42;
}
/// What `compactedOffset` says in a queue that is not compacted.
pub const NOT_COMPACTED: i32 = -1;
/// Most messages of an inner batch: RocketMQ counts them in a signed 16-bit integer.
pub const INNER_BATCH_MAX: i16 = i16::MAX;

/// One entry of a batch queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchUnit {
    /// Where and how long the record is, and its tags code.
    pub unit: Unit,
    /// When the record was stored, in ms since the epoch.
    pub store_timestamp_ms: i64,
    /// Queue offset of the first message.
    pub base_offset: i64,
    /// How many messages; they have consecutive offsets.
    pub count: i16,
}

impl BatchUnit {
    /// Reads an entry; what a compaction wrote and the reserved bytes are passed over.
    pub fn decode(bytes: &[u8; BATCH_UNIT_BYTES]) -> BatchUnit {
        use batch_place::{
            BATCH_SIZE, MSG_BASE_OFFSET, PHYSICAL_OFFSET, SIZE, STORE_TIME, TAGS_CODE,
        };
        BatchUnit {
            unit: Unit {
                physical_offset: i64::from_be_bytes(part(bytes, PHYSICAL_OFFSET)),
                size: i32::from_be_bytes(part(bytes, SIZE)),
                tags_code: i64::from_be_bytes(part(bytes, TAGS_CODE)),
            },
            store_timestamp_ms: i64::from_be_bytes(part(bytes, STORE_TIME)),
            base_offset: i64::from_be_bytes(part(bytes, MSG_BASE_OFFSET)),
            count: i16::from_be_bytes(part(bytes, BATCH_SIZE)),
        }
    }

    /// The entry's bytes.
    pub fn encode(&self) -> [u8; BATCH_UNIT_BYTES] {
        use batch_place::{
            BATCH_SIZE, COMPACTED_OFFSET, MSG_BASE_OFFSET, PHYSICAL_OFFSET, SIZE, STORE_TIME,
            TAGS_CODE,
        };
        let mut bytes = [0; BATCH_UNIT_BYTES];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(PHYSICAL_OFFSET, &self.unit.physical_offset.to_be_bytes());
        put(SIZE, &self.unit.size.to_be_bytes());
        put(TAGS_CODE, &self.unit.tags_code.to_be_bytes());
        put(STORE_TIME, &self.store_timestamp_ms.to_be_bytes());
        put(MSG_BASE_OFFSET, &self.base_offset.to_be_bytes());
        put(BATCH_SIZE, &self.count.to_be_bytes());
        put(COMPACTED_OFFSET, &NOT_COMPACTED.to_be_bytes());
        bytes
    }
}

/// `N` bytes from `at` on, zeros where the entry has none.
fn part<const N: usize>(bytes: &[u8; BATCH_UNIT_BYTES], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_entry_has_rocketmqs_bytes() {
        let entry = BatchUnit {
            unit: Unit { physical_offset: 1, size: 2, tags_code: -3 },
            store_timestamp_ms: 4,
            base_offset: 5,
            count: 6,
        };
        let mut expected = Vec::new();
        expected.extend_from_slice(&1i64.to_be_bytes());
        expected.extend_from_slice(&2i32.to_be_bytes());
        expected.extend_from_slice(&(-3i64).to_be_bytes());
        expected.extend_from_slice(&4i64.to_be_bytes());
        expected.extend_from_slice(&5i64.to_be_bytes());
        expected.extend_from_slice(&6i16.to_be_bytes());
        expected.extend_from_slice(&(-1i32).to_be_bytes());
        expected.extend_from_slice(&0i32.to_be_bytes());
        assert_eq!(entry.encode()[..], expected);
    }

    proptest! {
        #[test]
        fn an_entry_reads_back(
            (physical_offset, size, tags_code) in any::<(i64, i32, i64)>(),
            (store_timestamp_ms, base_offset, count) in any::<(i64, i64, i16)>(),
        ) {
            let unit = Unit { physical_offset, size, tags_code };
            let entry = BatchUnit { unit, store_timestamp_ms, base_offset, count };
            prop_assert_eq!(BatchUnit::decode(&entry.encode()), entry);
        }
    }
}
