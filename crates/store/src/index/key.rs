//! The hash of what a record is indexed under.

use rocketmq_protocol::hash::java_hash_onward;

/// Stands between topic and key in what is hashed.
const TOPIC_SEPARATOR: &str = "#";

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

    #[test]
    fn hashes_are_those_of_java() {
        // "polygenelubricants" hashes to the smallest number.
        let hasher = KeyHasher { topic_hash: 0 };
        assert_eq!(hasher.hash("polygenelubricants"), 0);
        let expected = rocketmq_protocol::hash::java_hash("Orders#17").abs();
        assert_eq!(KeyHasher::new("Orders").hash("17"), expected);
    }
}
