//! The bits that a filter registration has in the bit maps of messages (RocketMQ's `BloomFilter` and
//! `BloomFilterData`).
//!
//! Each registration, a group's for a topic, gets a few bits by hash. A message's bit map has the bits
//! of the registrations that match it, so a registration one of whose bits is missing does not. The
//! bits are RocketMQ's own: a Java broker reads the maps made here, and the other way round.

use serde::{Deserialize, Serialize};

/// Longest bit map, in bits: an ext unit has room for so many.
pub const BITS_MAX: u32 = 261_976;

/// How many bits there are, and how many a registration gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BloomFilter {
    bit_count: u32,
    hash_count: u32,
}

/// The bits of one registration, as `consumerFilter.json` has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BloomBits {
    /// Bits of the filter that they belong to.
    pub bit_num: i32,
    /// Which.
    pub bit_pos: Vec<i32>,
}

impl BloomFilter {
    /// A filter with room for so many registrations that match one message: of those that do not,
    /// `error_rate_percent` in a hundred seem to (`expectConsumerNumUseFilter`,
    /// `maxErrorRateOfBloomFilter`). Values below 1, and rates above 99, count as those.
    pub fn new(error_rate_percent: i32, registrations: i32) -> BloomFilter {
        let error_rate = f64::from(error_rate_percent.clamp(1, 99)) / 100.0;
        let registrations = f64::from(registrations.max(1));
        // As RocketMQ writes it, since a rounding error would be another length.
        let log = |base: f64, of: f64| of.ln() / base.ln();
        let hash_count = log(0.5, error_rate).ceil();
        let bits = registrations * log(2.0, 1.0 / error_rate) * log(2.0, std::f64::consts::E);
        let bytes = (bits.ceil() / 8.0).ceil();
        let bit_count = ((bytes * 8.0) as u32).clamp(8, BITS_MAX);
        BloomFilter { bit_count, hash_count: (hash_count as u32).max(1) }
    }

    /// Length of a bit map in bits; a multiple of 8.
    pub fn bit_count(&self) -> u32 {
        self.bit_count
    }

    /// The bits of a group's registration for a topic.
    pub fn bits_of(&self, group: &str, topic: &str) -> BloomBits {
        let hash = murmur3_low(format!("{group}#{topic}").as_bytes());
        let (low, high) = (hash as i32, (hash >> 32) as i32);
        let position = |n: u32| {
            let combined = low.wrapping_add(high.wrapping_mul(n as i32));
            let positive = if combined < 0 { !combined } else { combined };
            // At most BITS_MAX.
            positive % self.bit_count as i32
        };
        BloomBits {
            bit_num: self.bit_count as i32,
            bit_pos: (1..=self.hash_count).map(position).collect(),
        }
    }

    /// Whether these bits can be bits of this filter (`BloomFilter.isValid`).
    pub fn owns(&self, bits: &BloomBits) -> bool {
        bits.bit_num == self.bit_count as i32
            && bits.bit_pos.len() == self.hash_count as usize
            && bits.bit_pos.iter().all(|position| (0..bits.bit_num).contains(position))
    }
}

impl BloomBits {
    /// Sets the bits in a bit map; those beyond its end are left out.
    pub fn set_in(&self, bit_map: &mut [u8]) {
        for (byte, mask) in self.places() {
            if let Some(byte) = bit_map.get_mut(byte) {
                *byte |= mask;
            }
        }
    }

    /// Whether all bits are set in a bit map.
    pub fn are_set_in(&self, bit_map: &[u8]) -> bool {
        self.places().all(|(byte, mask)| bit_map.get(byte).is_some_and(|byte| byte & mask != 0))
    }

    fn places(&self) -> impl Iterator<Item = (usize, u8)> {
        self.bit_pos.iter().map(|position| {
            let position = usize::try_from(*position).unwrap_or(usize::MAX);
            (position / 8, 1 << (position % 8))
        })
    }
}

/// The first eight bytes of murmur3_128 (x64, seed 0), low byte first, which is what Guava's
/// `HashCode.asLong` gives.
fn murmur3_low(bytes: &[u8]) -> u64 {
    const C1: u64 = 0x87C3_7B91_1142_53D5;
    const C2: u64 = 0x4CF5_AD43_2745_937F;
    let scramble_low = |k: u64| k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
    let scramble_high = |k: u64| k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);
    let word =
        |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |word, byte| (word << 8) | u64::from(*byte));
    let (mut h1, mut h2) = (0_u64, 0_u64);
    let (blocks, tail) = bytes.as_chunks::<16>();
    for block in blocks {
        h1 ^= scramble_low(word(&block[..8]));
        h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52DC_E729);
        h2 ^= scramble_high(word(&block[8..]));
        h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5AB5);
    }
    let (low, high) = tail.split_at(tail.len().min(8));
    h1 ^= scramble_low(word(low));
    h2 ^= scramble_high(word(high));
    h1 ^= bytes.len() as u64;
    h2 ^= bytes.len() as u64;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    let finish = |mut k: u64| {
        k = (k ^ (k >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
        k = (k ^ (k >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
        k ^ (k >> 33)
    };
    finish(h1).wrapping_add(finish(h2))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published vectors of murmur3_128 x64 with seed 0: the first half of each digest.
    #[test]
    fn the_hash_is_murmur3() {
        for (text, digest) in [
            ("", 0),
            ("hello", 0xCBD8_A7B3_41BD_9B02),
            ("hello, world", 0x342F_AC62_3A5E_BC8E),
            ("19 Jan 2038 at 3:14:07 AM", 0xB89E_5988_B737_AFFC),
            ("The quick brown fox jumps over the lazy dog.", 0xCD99_481F_9EE9_02C9),
        ] {
            assert_eq!(murmur3_low(text.as_bytes()), digest, "{text}");
        }
    }

    #[test]
    fn lengths_and_bits_are_rocketmqs() {
        let filter = BloomFilter::new(20, 32);
        assert_eq!((filter.bit_count, filter.hash_count), (112, 3));
        // From a consumerFilter.json of RocketMQ 5.3.3.
        let bits = filter.bits_of("GoldenSqlGroup", "GoldenNormal");
        assert_eq!(bits, BloomBits { bit_num: 112, bit_pos: vec![58, 96, 27] });
        assert!(filter.owns(&bits));
        for (rate, registrations, bit_count, hash_count) in
            [(1, 1, 16, 7), (50, 8, 16, 1), (25, 16, 48, 2), (99, 1, 8, 1), (10, 128, 616, 4)]
        {
            let filter = BloomFilter::new(rate, registrations);
            let expected = (bit_count, hash_count);
            assert_eq!((filter.bit_count, filter.hash_count), expected, "{rate} {registrations}");
        }
    }

    #[test]
    fn bits_are_set_and_found_again() {
        let bits = BloomBits { bit_num: 16, bit_pos: vec![0, 9, 15] };
        let mut bit_map = [0; 2];
        assert!(!bits.are_set_in(&bit_map));
        bits.set_in(&mut bit_map);
        assert_eq!(bit_map, [0b1, 0b1000_0010]);
        assert!(bits.are_set_in(&bit_map));
        assert!(!bits.are_set_in(&bit_map[..1]), "a shorter one");
        let odd = BloomBits { bit_num: 16, bit_pos: vec![-1, 400] };
        odd.set_in(&mut bit_map);
        assert!(!odd.are_set_in(&bit_map));
        assert!(!BloomFilter::new(50, 8).owns(&odd));
    }
}
