//! A unit of a ConsumeQueueExt file.

use rocketmq_store::consume_queue::{ExtUnit, address_of, offset_of};

/// What the target does with its input.
pub fn run(bytes: &[u8]) {
    if let Some((unit, size)) = ExtUnit::decode(bytes) {
        let mut again = Vec::new();
        assert!(unit.encode(&mut again), "what was read can be written");
        assert_eq!(again, bytes[..size]);
    }
    if let Some(word) = bytes.first_chunk::<8>() {
        let tags_code = i64::from_be_bytes(*word);
        if let Some(offset) = offset_of(tags_code) {
            assert_eq!(address_of(offset), Some(tags_code));
        }
    }
}
