//! What a record is indexed under: its unique key, then each word of its KEYS (RocketMQ's
//! `IndexService.buildIndex`).

use rocketmq_protocol::hash::java_hash_onward;
use rocketmq_protocol::message::properties::{self, KEY_SEPARATOR, name};
use rocketmq_protocol::message::record::sys_flag;

/// Stands between topic and key in what is hashed.
const TOPIC_SEPARATOR: &str = "#";

/// The keys of a record with this property block, in the order in which they are indexed. A
/// rollback mark has none. A word that occurs twice comes twice.
pub(crate) fn keys_of(record_sys_flag: i32, block: &[u8]) -> impl Iterator<Item = &str> {
    let (mut unique, mut words) = (None, None);
    let rolled_back =
        record_sys_flag & sys_flag::TRANSACTION_MASK == sys_flag::TRANSACTION_ROLLBACK;
    if !rolled_back {
        // Of two properties with one name the last counts.
        for (found, value) in properties::iter(block) {
            if found == name::UNIQ_KEY.as_bytes() {
                unique = Some(value);
            } else if found == name::KEYS.as_bytes() {
                words = Some(value);
            }
        }
    }
    let unique = unique.and_then(|unique| std::str::from_utf8(unique).ok());
    let words = words.and_then(|words| std::str::from_utf8(words).ok()).unwrap_or_default();
    unique.into_iter().chain(words.split(KEY_SEPARATOR).filter(|word| !word.is_empty()))
}

/// Hashes the keys of one topic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyHasher {
    topic_hash: i32,
}

impl KeyHasher {
    pub(crate) fn new(topic: &str) -> KeyHasher {
        KeyHasher { topic_hash: java_hash_onward(java_hash_onward(0, topic), TOPIC_SEPARATOR) }
    }

    /// The hash of a key, not negative (`IndexFile.indexKeyHashMethod`).
    pub(crate) fn hash(&self, key: &str) -> i32 {
        // The smallest number has no absolute value; Java takes 0 for it.
        java_hash_onward(self.topic_hash, key).checked_abs().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(sys_flag: i32, block: &[u8]) -> Vec<&str> {
        keys_of(sys_flag, block).collect()
    }

    #[test]
    fn the_unique_key_comes_first_and_empty_words_do_not_count() {
        let block = b"KEYS\x01 a  b a \x02UNIQ_KEY\x01inner\x02TAGS\x01t\x02UNIQ_KEY\x01U\x02";
        assert_eq!(keys(0, block), ["U", "a", "b", "a"]);
        assert_eq!(keys(sys_flag::TRANSACTION_PREPARED, block).len(), 4);
        assert_eq!(keys(sys_flag::TRANSACTION_COMMIT, block).len(), 4);
        assert!(keys(sys_flag::TRANSACTION_ROLLBACK, block).is_empty());
        assert!(keys(0, b"TAGS\x01t\x02").is_empty());
        assert!(keys(0, b"KEYS\x01\xFF\x02").is_empty(), "no text");
    }

    #[test]
    fn hashes_are_those_of_java() {
        // "polygenelubricants" hashes to the smallest number.
        let hasher = KeyHasher { topic_hash: 0 };
        assert_eq!(hasher.hash("polygenelubricants"), 0);
        let expected = rocketmq_protocol::hash::java_hash("Orders#17").abs();
        assert_eq!(KeyHasher::new("Orders").hash("17"), expected);
    }
}
