//! What a ConsumeQueue entry has no room for: tags code, store time and a bit map for filters
//! (RocketMQ's `ConsumeQueueExt.CqExtUnit`), and the address by which the entry finds it.

/// Bytes of a unit without a bit map.
pub const UNIT_BYTES_MIN: usize = 20;
/// Most bytes of a unit: its size is a signed 16-bit word.
pub const UNIT_BYTES_MAX: usize = i16::MAX as usize;
/// Bytes that stay free at the end of a file for [`END_MARK`].
pub const END_BYTES: usize = 4;
/// Stands where the next unit would begin when that is in the next file.
pub const END_MARK: i16 = -1;
/// An entry's tags code up to here is an address; hashes of tags are 32-bit numbers and above.
pub const ADDRESS_MAX: i64 = i32::MIN as i64 - 1;
/// Where the parts of a unit lie.
pub mod place {
    #![allow(missing_docs, reason = "the names are those of the fields")]

    pub const SIZE: usize = 0;
    pub const TAGS_CODE: usize = 2;
    pub const MSG_STORE_TIME: usize = 10;
    pub const BIT_MAP_SIZE: usize = 18;
    pub const FILTER_BIT_MAP: usize = 20;
}

/// Whether a ConsumeQueue entry's tags code is the address of a unit.
pub fn is_address(tags_code: i64) -> bool {
    tags_code <= ADDRESS_MAX
}

/// The address of the unit at byte `offset` of a queue's units; none if it is too far for one.
pub fn address_of(offset: u64) -> Option<i64> {
    let address = i64::MIN.checked_add_unsigned(offset)?;
    is_address(address).then_some(address)
}

/// The byte that an address stands for, if it is one.
pub fn offset_of(address: i64) -> Option<u64> {
    is_address(address).then(|| address.abs_diff(i64::MIN))
}

/// One unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtUnit<'a> {
    /// Hash of the tag, or deliver time in the schedule topic.
    pub tags_code: i64,
    /// When the message was stored, in ms since the epoch.
    pub msg_store_time_ms: i64,
    /// Bit i is bit i mod 8 of byte i / 8. Empty without filters.
    pub filter_bit_map: &'a [u8],
}

impl<'a> ExtUnit<'a> {
    /// Its length in bytes; none if the bit map is too long.
    pub fn encoded_bytes(&self) -> Option<usize> {
        let bytes = UNIT_BYTES_MIN.checked_add(self.filter_bit_map.len())?;
        (bytes <= UNIT_BYTES_MAX).then_some(bytes)
    }

    /// Appends the unit's bytes. False, and nothing appended, if the bit map is too long.
    pub fn encode(&self, out: &mut Vec<u8>) -> bool {
        let Some(bytes) = self.encoded_bytes() else { return false };
        // At most 32767.
        out.extend_from_slice(&(bytes as i16).to_be_bytes());
        out.extend_from_slice(&self.tags_code.to_be_bytes());
        out.extend_from_slice(&self.msg_store_time_ms.to_be_bytes());
        out.extend_from_slice(&(self.filter_bit_map.len() as i16).to_be_bytes());
        out.extend_from_slice(self.filter_bit_map);
        true
    }

    /// Reads the unit that `bytes` begin with, and its length. None where no whole unit stands:
    /// at [`END_MARK`], where nothing was written, or where the two sizes contradict each other.
    pub fn decode(bytes: &'a [u8]) -> Option<(ExtUnit<'a>, usize)> {
        let (size, rest) = bytes.split_first_chunk::<2>()?;
        let (tags_code, rest) = rest.split_first_chunk::<8>()?;
        let (store_time, rest) = rest.split_first_chunk::<8>()?;
        let (bit_map_bytes, rest) = rest.split_first_chunk::<2>()?;
        let size = usize::try_from(i16::from_be_bytes(*size)).ok()?;
        let bit_map_bytes = usize::try_from(i16::from_be_bytes(*bit_map_bytes)).ok()?;
        if size != UNIT_BYTES_MIN + bit_map_bytes {
            return None;
        }
        let unit = ExtUnit {
            tags_code: i64::from_be_bytes(*tags_code),
            msg_store_time_ms: i64::from_be_bytes(*store_time),
            filter_bit_map: rest.get(..bit_map_bytes)?,
        };
        Some((unit, size))
    }
}

/// The bit map of a message, for filters that are registered with the broker: a reader whose filter
/// has a bit that is not set need not look at the message (`CommitLogDispatcherCalcBitMap`).
pub trait FilterBitMap: std::fmt::Debug + Send + Sync {
    /// Puts the bit map of a message of `topic` with these properties into `out`, which is empty.
    /// Nothing if no filter asks for one. It must not block.
    fn bit_map(&self, topic: &str, properties: &[u8], out: &mut Vec<u8>);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_are_the_offsets_from_the_smallest_number_up() {
        assert_eq!(address_of(0), Some(i64::MIN));
        assert_eq!(address_of(20), Some(i64::MIN + 20));
        assert_eq!(offset_of(i64::MIN + 20), Some(20));
        let furthest = ADDRESS_MAX.abs_diff(i64::MIN);
        assert_eq!(address_of(furthest), Some(ADDRESS_MAX));
        assert_eq!((address_of(furthest + 1), address_of(u64::MAX)), (None, None));
        for tags_code in [0, 1, -1, i64::from(i32::MIN), i64::MAX] {
            assert_eq!(offset_of(tags_code), None, "{tags_code} is a hash or a time");
        }
    }

    #[test]
    fn what_is_no_unit_is_not_taken_for_one() {
        let mut bytes = Vec::new();
        let unit = ExtUnit { tags_code: 7, msg_store_time_ms: 8, filter_bit_map: &[1, 2] };
        assert!(unit.encode(&mut bytes));
        assert_eq!(ExtUnit::decode(&bytes), Some((unit, 22)));
        for len in 0..bytes.len() {
            assert_eq!(ExtUnit::decode(&bytes[..len]), None, "{len}");
        }
        assert_eq!(ExtUnit::decode(&[0; 64]), None);
        assert_eq!(ExtUnit::decode(&[0xFF; 64]), None, "the end mark");
        bytes[1] += 1;
        bytes.push(0);
        assert_eq!(ExtUnit::decode(&bytes), None, "sizes that contradict each other");
        let long = vec![0; UNIT_BYTES_MAX - UNIT_BYTES_MIN + 1];
        let unit = ExtUnit { filter_bit_map: &long, ..unit };
        bytes.clear();
        assert!(!unit.encode(&mut bytes) && bytes.is_empty());
    }

    proptest! {
        #[test]
        fn units_and_addresses_come_back(
            tags_code: i64,
            msg_store_time_ms: i64,
            filter_bit_map in prop::collection::vec(any::<u8>(), 0..300),
            behind in prop::collection::vec(any::<u8>(), 0..50),
            offset in 0..=ADDRESS_MAX.abs_diff(i64::MIN),
        ) {
            let unit = ExtUnit { tags_code, msg_store_time_ms, filter_bit_map: &filter_bit_map };
            let mut bytes = Vec::new();
            prop_assert!(unit.encode(&mut bytes));
            let len = bytes.len();
            prop_assert_eq!(Some(len), unit.encoded_bytes());
            bytes.extend_from_slice(&behind);
            prop_assert_eq!(ExtUnit::decode(&bytes), Some((unit, len)));
            prop_assert_eq!(offset_of(address_of(offset).unwrap()), Some(offset));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Some((unit, size)) = ExtUnit::decode(&bytes) {
                let mut again = Vec::new();
                prop_assert!(unit.encode(&mut again));
                prop_assert_eq!(&again[..], &bytes[..size]);
            }
        }
    }
}
