//! The property string of a message: `name 0x01 value 0x02`, repeated.
//!
//! Owns reading, finding and appending pairs, and the reserved names. The rules are those of
//! RocketMQ's `MessageDecoder.string2messageProperties`: a pair with an empty name or value is
//! dropped, the value is everything after the first 0x01, the last 0x02 may be missing, and of a
//! name that occurs twice the last one counts.

/// Separates a name from its value.
pub const NAME_VALUE_SEPARATOR: u8 = 1;
/// Ends a pair.
pub const PROPERTY_SEPARATOR: u8 = 2;
/// Largest property block of a record: its length is a signed 16-bit integer.
pub const PROPERTIES_BYTES_MAX: usize = i16::MAX as usize;
/// Separates the keys inside [`name::KEYS`].
pub const KEY_SEPARATOR: char = ' ';

/// Names that RocketMQ reserves (`MessageConst`).
pub mod name {
    #![allow(missing_docs, reason = "the names are RocketMQ's own and say what they are")]

    pub const KEYS: &str = "KEYS";
    pub const TAGS: &str = "TAGS";
    pub const WAIT: &str = "WAIT";
    pub const DELAY: &str = "DELAY";
    pub const RETRY_TOPIC: &str = "RETRY_TOPIC";
    pub const REAL_TOPIC: &str = "REAL_TOPIC";
    pub const REAL_QID: &str = "REAL_QID";
    pub const TRAN_MSG: &str = "TRAN_MSG";
    pub const PGROUP: &str = "PGROUP";
    pub const MIN_OFFSET: &str = "MIN_OFFSET";
    pub const MAX_OFFSET: &str = "MAX_OFFSET";
    pub const BUYER_ID: &str = "BUYER_ID";
    pub const ORIGIN_MESSAGE_ID: &str = "ORIGIN_MESSAGE_ID";
    pub const TRANSFER_FLAG: &str = "TRANSFER_FLAG";
    pub const CORRECTION_FLAG: &str = "CORRECTION_FLAG";
    pub const MQ2_FLAG: &str = "MQ2_FLAG";
    pub const RECONSUME_TIME: &str = "RECONSUME_TIME";
    pub const MSG_REGION: &str = "MSG_REGION";
    pub const TRACE_ON: &str = "TRACE_ON";
    pub const UNIQ_KEY: &str = "UNIQ_KEY";
    pub const EXTEND_UNIQ_INFO: &str = "EXTEND_UNIQ_INFO";
    pub const MAX_RECONSUME_TIMES: &str = "MAX_RECONSUME_TIMES";
    pub const CONSUME_START_TIME: &str = "CONSUME_START_TIME";
    pub const INNER_NUM: &str = "INNER_NUM";
    pub const INNER_BASE: &str = "INNER_BASE";
    pub const DUP_INFO: &str = "DUP_INFO";
    pub const CHECK_IMMUNITY_TIME_IN_SECONDS: &str = "CHECK_IMMUNITY_TIME_IN_SECONDS";
    pub const TRAN_PREPARED_QUEUE_OFFSET: &str = "TRAN_PREPARED_QUEUE_OFFSET";
    pub const TRANSACTION_ID: &str = "__transactionId__";
    pub const TRANSACTION_CHECK_TIMES: &str = "TRANSACTION_CHECK_TIMES";
    pub const INSTANCE_ID: &str = "INSTANCE_ID";
    pub const CORRELATION_ID: &str = "CORRELATION_ID";
    pub const REPLY_TO_CLIENT: &str = "REPLY_TO_CLIENT";
    pub const TTL: &str = "TTL";
    pub const ARRIVE_TIME: &str = "ARRIVE_TIME";
    pub const PUSH_REPLY_TIME: &str = "PUSH_REPLY_TIME";
    pub const CLUSTER: &str = "CLUSTER";
    pub const MSG_TYPE: &str = "MSG_TYPE";
    pub const INNER_MULTI_DISPATCH: &str = "INNER_MULTI_DISPATCH";
    pub const INNER_MULTI_QUEUE_OFFSET: &str = "INNER_MULTI_QUEUE_OFFSET";
    pub const BORN_HOST: &str = "__BORNHOST";
    pub const BORN_TIMESTAMP: &str = "BORN_TIMESTAMP";
    pub const DLQ_ORIGIN_TOPIC: &str = "DLQ_ORIGIN_TOPIC";
    pub const DLQ_ORIGIN_MESSAGE_ID: &str = "DLQ_ORIGIN_MESSAGE_ID";
    pub const SHARDING_KEY: &str = "__SHARDINGKEY";
    pub const CRC32: &str = "__CRC32#";
    pub const POP_CK: &str = "POP_CK";
    pub const POP_CK_OFFSET: &str = "POP_CK_OFFSET";
    pub const FIRST_POP_TIME: &str = "1ST_POP_TIME";
    pub const TIMER_DELAY_LEVEL: &str = "TIMER_DELAY_LEVEL";
    pub const TIMER_DELAY_MS: &str = "TIMER_DELAY_MS";
    pub const TIMER_DELAY_SEC: &str = "TIMER_DELAY_SEC";
    pub const TIMER_DELIVER_MS: &str = "TIMER_DELIVER_MS";
    pub const TIMER_ENQUEUE_MS: &str = "TIMER_ENQUEUE_MS";
    pub const TIMER_DEQUEUE_MS: &str = "TIMER_DEQUEUE_MS";
    pub const TIMER_ROLL_TIMES: &str = "TIMER_ROLL_TIMES";
    pub const TIMER_OUT_MS: &str = "TIMER_OUT_MS";
    pub const TIMER_DEL_UNIQKEY: &str = "TIMER_DEL_UNIQKEY";

    /// Names that a producer may not use for properties of its own: clients refuse them.
    pub const RESERVED: &[&str] = &[
        TRACE_ON,
        MSG_REGION,
        KEYS,
        TAGS,
        WAIT,
        DELAY,
        RETRY_TOPIC,
        REAL_TOPIC,
        REAL_QID,
        TRAN_MSG,
        PGROUP,
        MIN_OFFSET,
        MAX_OFFSET,
        BUYER_ID,
        ORIGIN_MESSAGE_ID,
        TRANSFER_FLAG,
        CORRECTION_FLAG,
        MQ2_FLAG,
        RECONSUME_TIME,
        UNIQ_KEY,
        EXTEND_UNIQ_INFO,
        MAX_RECONSUME_TIMES,
        CONSUME_START_TIME,
        POP_CK,
        POP_CK_OFFSET,
        FIRST_POP_TIME,
        TRAN_PREPARED_QUEUE_OFFSET,
        DUP_INFO,
        INSTANCE_ID,
        CORRELATION_ID,
        REPLY_TO_CLIENT,
        TTL,
        ARRIVE_TIME,
        PUSH_REPLY_TIME,
        CLUSTER,
        MSG_TYPE,
        INNER_MULTI_QUEUE_OFFSET,
        TIMER_DELAY_MS,
        TIMER_DELAY_SEC,
        TIMER_DELIVER_MS,
        TIMER_ENQUEUE_MS,
        TIMER_DEQUEUE_MS,
        TIMER_ROLL_TIMES,
        TIMER_OUT_MS,
        TIMER_DEL_UNIQKEY,
        TIMER_DELAY_LEVEL,
        BORN_HOST,
        BORN_TIMESTAMP,
        DLQ_ORIGIN_TOPIC,
        DLQ_ORIGIN_MESSAGE_ID,
        CRC32,
    ];
}

/// Yields the pairs of `properties` in order, as bytes.
pub fn iter(properties: &[u8]) -> Iter<'_> {
    Iter { rest: properties }
}

/// Yields the pairs of `properties` in order; pairs that are not UTF-8 are left out.
pub fn iter_str(properties: &[u8]) -> impl Iterator<Item = (&str, &str)> {
    iter(properties).filter_map(|(name, value)| {
        Some((std::str::from_utf8(name).ok()?, std::str::from_utf8(value).ok()?))
    })
}

/// The pairs of a property string. See [`iter`].
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            let end = memchr::memchr(PROPERTY_SEPARATOR, self.rest);
            let (pair, rest) = match end {
                Some(end) => (&self.rest[..end], &self.rest[end + 1..]),
                None => (self.rest, &self.rest[self.rest.len()..]),
            };
            self.rest = rest;
            if let Some(middle) = memchr::memchr(NAME_VALUE_SEPARATOR, pair)
                && middle > 0
                && middle + 1 < pair.len()
            {
                return Some((&pair[..middle], &pair[middle + 1..]));
            }
        }
        None
    }
}

/// The value of `name` in `properties`, as bytes; the last one if it occurs several times.
pub fn find_bytes<'a>(properties: &'a [u8], name: &str) -> Option<&'a [u8]> {
    iter(properties).filter(|(found, _)| *found == name.as_bytes()).last().map(|(_, value)| value)
}

/// The value of `name` in `properties`; the last one if it occurs several times.
///
/// `None` as well when the value is not UTF-8.
pub fn find<'a>(properties: &'a [u8], name: &str) -> Option<&'a str> {
    find_bytes(properties, name).and_then(|value| std::str::from_utf8(value).ok())
}

/// The values of several names in `properties`, as [`find_bytes`] says each, in one pass.
///
/// The names are not empty and hold no separator.
// With names that are known where it is called, each comparison becomes one of words.
#[inline(always)]
pub fn find_each<'a, const N: usize>(
    properties: &'a [u8],
    names: [&str; N],
) -> [Option<&'a [u8]>; N] {
    let mut found = [None; N];
    let mut rest = properties;
    while !rest.is_empty() {
        let end = memchr::memchr(PROPERTY_SEPARATOR, rest).unwrap_or(rest.len());
        let pair = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or(&[]);
        for (name, found) in names.iter().zip(&mut found) {
            // Where the name would end is looked at first: of most pairs that is all.
            if pair.get(name.len()) == Some(&NAME_VALUE_SEPARATOR)
                && pair.len() > name.len() + 1
                && pair.starts_with(name.as_bytes())
            {
                *found = Some(&pair[name.len() + 1..]);
            }
        }
    }
    found
}

/// Whether `text` can be a name or a value: neither separator occurs in it.
pub fn is_clean(text: &str) -> bool {
    !text.bytes().any(|byte| byte == NAME_VALUE_SEPARATOR || byte == PROPERTY_SEPARATOR)
}

/// Appends one pair, first closing the block if its last pair lacks the closing separator.
///
/// Name and value must be [clean](is_clean) and not empty, or the pair is dropped by readers.
pub fn append(out: &mut Vec<u8>, name: &str, value: &str) {
    if out.last().is_some_and(|&byte| byte != PROPERTY_SEPARATOR) {
        out.push(PROPERTY_SEPARATOR);
    }
    out.extend_from_slice(name.as_bytes());
    out.push(NAME_VALUE_SEPARATOR);
    out.extend_from_slice(value.as_bytes());
    out.push(PROPERTY_SEPARATOR);
}

/// Bytes of `pieces` joined as [`for_each_piece`] joins them.
pub fn joined_len(pieces: &[&[u8]]) -> usize {
    let mut len = 0;
    for_each_piece(pieces, |bytes| len += bytes.len());
    len
}

/// Hands out the bytes of a property block that is made of several pieces.
///
/// A separator is put between two pieces when the first one is not closed, as RocketMQ does when
/// it appends the properties of a batch to those of a message (`MessageExtEncoder`).
pub fn for_each_piece(pieces: &[&[u8]], mut each: impl FnMut(&[u8])) {
    let mut open = false;
    for piece in pieces {
        let Some(&last) = piece.last() else { continue };
        if open {
            each(&[PROPERTY_SEPARATOR]);
        }
        each(piece);
        open = last != PROPERTY_SEPARATOR;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_as_rocketmq_does() {
        type Case = (&'static [u8], &'static [(&'static str, &'static str)]);
        let cases: &[Case] = &[
            (b"", &[]),
            (b"a\x01b\x02", &[("a", "b")]),
            (b"a\x01b", &[("a", "b")]),
            (b"a\x01b\x02c\x01d", &[("a", "b"), ("c", "d")]),
            (b"a\x01\x02c\x01d\x02", &[("c", "d")]),
            (b"\x01b\x02c\x01d\x02", &[("c", "d")]),
            (b"a\x02c\x01d\x02", &[("c", "d")]),
            (b"a\x01b\x01c\x02", &[("a", "b\x01c")]),
            (b"\x02\x02\x02a\x01b\x02\x02", &[("a", "b")]),
        ];
        for (bytes, expected) in cases {
            let found: Vec<_> = iter_str(bytes).collect();
            assert_eq!(&found, expected, "{bytes:?}");
        }
    }

    #[test]
    fn the_last_of_a_name_counts() {
        let block = b"UNIQ_KEY\x01first\x02WAIT\x01true\x02UNIQ_KEY\x01second\x02";
        assert_eq!(find(block, name::UNIQ_KEY), Some("second"));
        assert_eq!(find(block, name::TAGS), None);
        assert_eq!(find(b"TAGS\x01\xff\x02", name::TAGS), None);
        assert_eq!(find_bytes(b"TAGS\x01\xff\x02", name::TAGS), Some(&[0xff][..]));
    }

    #[test]
    fn append_closes_an_open_block() {
        let mut block = b"a\x01b".to_vec();
        append(&mut block, "c", "d");
        assert_eq!(block, b"a\x01b\x02c\x01d\x02");
    }

    #[test]
    fn pieces_are_joined_with_one_separator() {
        let pieces: &[&[u8]] = &[b"", b"a\x01b", b"", b"c\x01d\x02", b"e\x01f\x02"];
        let mut joined = Vec::new();
        for_each_piece(pieces, |bytes| joined.extend_from_slice(bytes));
        assert_eq!(joined, b"a\x01b\x02c\x01d\x02e\x01f\x02");
        assert_eq!(joined_len(pieces), joined.len());
    }

    proptest! {
        #[test]
        fn appended_pairs_read_back(pairs in prop::collection::vec(
            ("[^\u{1}\u{2}]{1,12}", "[^\u{1}\u{2}]{1,12}"), 0..20)) {
            let mut block = Vec::new();
            for (name, value) in &pairs {
                append(&mut block, name, value);
            }
            let found: Vec<_> =
                iter_str(&block).map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
            prop_assert_eq!(found, pairs);
        }

        #[test]
        fn one_pass_finds_what_single_ones_find(block in "[ab\u{1}\u{2}]{0,60}") {
            let names = ["a", "ab", "b", "bba"];
            let found = find_each(block.as_bytes(), names);
            prop_assert_eq!(found, names.map(|name| find_bytes(block.as_bytes(), name)));
        }

        #[test]
        fn arbitrary_bytes_end(bytes in prop::collection::vec(0u8..4, 0..200)) {
            for (name, value) in iter(&bytes) {
                prop_assert!(!name.is_empty() && !value.is_empty());
                prop_assert_eq!(find_bytes(&bytes, "x"), None);
            }
        }
    }
}
