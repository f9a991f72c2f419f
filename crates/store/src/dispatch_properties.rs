//! What dispatch and the index look for in a message's properties, found in one pass.

use rocketmq_protocol::message::properties::{self, KEY_SEPARATOR, name};
use rocketmq_protocol::message::record::sys_flag;

/// The properties that lead to a message. One that is no text counts as missing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DispatchProperties<'a> {
    unique_key: Option<&'a [u8]>,
    keys: Option<&'a [u8]>,
    tag: Option<&'a [u8]>,
}

impl<'a> DispatchProperties<'a> {
    /// Those of a property block.
    pub(crate) fn of(block: &'a [u8]) -> DispatchProperties<'a> {
        let [unique_key, keys, tag] =
            properties::find_each(block, [name::UNIQ_KEY, name::KEYS, name::TAGS]);
        DispatchProperties { unique_key, keys, tag }
    }

    /// The tag.
    pub(crate) fn tag(&self) -> Option<&'a str> {
        text(self.tag)
    }

    /// The keys under which a record with these bits is indexed, in that order: its unique key, then
    /// each word of its KEYS (RocketMQ's `IndexService.buildIndex`). A rollback mark has none. A
    /// word that occurs twice comes twice.
    pub(crate) fn index_keys(
        &self,
        record_sys_flag: i32,
    ) -> impl Iterator<Item = &'a str> + use<'a> {
        let is_rollback =
            record_sys_flag & sys_flag::TRANSACTION_MASK == sys_flag::TRANSACTION_ROLLBACK;
        let found = if is_rollback { Self::default() } else { *self };
        let words = text(found.keys).map(|keys| keys.split(KEY_SEPARATOR));
        let words = words.into_iter().flatten().filter(|word| !word.is_empty());
        text(found.unique_key).into_iter().chain(words)
    }
}

fn text(value: Option<&[u8]>) -> Option<&str> {
    value.and_then(|value| std::str::from_utf8(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(sys_flag: i32, block: &[u8]) -> Vec<&str> {
        DispatchProperties::of(block).index_keys(sys_flag).collect()
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
        assert_eq!(DispatchProperties::of(block).tag(), Some("t"));
    }
}
