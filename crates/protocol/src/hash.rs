//! Java's string hash, which RocketMQ stores on disk and sends over the wire.

/// `String.hashCode()`: `31 * h + unit` over the UTF-16 code units, wrapping at 32 bits.
pub fn java_hash(text: &str) -> i32 {
    java_hash_onward(0, text)
}

/// The hash of a text that begins with one whose hash is `hash`, and goes on with `text`.
pub fn java_hash_onward(mut hash: i32, text: &str) -> i32 {
    let step = |hash: i32, unit: u16| hash.wrapping_mul(31).wrapping_add(i32::from(unit));
    if !text.is_ascii() {
        return text.encode_utf16().fold(hash, step);
    }
    // Four at a time: each step alone would wait for the one in front.
    let (chunks, rest) = text.as_bytes().as_chunks::<4>();
    for chunk in chunks {
        let [a, b, c, d] = chunk.map(i32::from);
        let four = a * (31 * 31 * 31) + b * (31 * 31) + c * 31 + d;
        hash = hash.wrapping_mul(31 * 31 * 31 * 31).wrapping_add(four);
    }
    rest.iter().fold(hash, |hash, byte| step(hash, u16::from(*byte)))
}

/// The tag code of a ConsumeQueue entry and of a subscription (`MessageExtBrokerInner
/// .tagsString2tagsCode`): the hash of the tag, 0 without one.
pub fn tags_code(tag: &str) -> i64 {
    i64::from(java_hash(tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_java() {
        assert_eq!(java_hash(""), 0);
        assert_eq!(java_hash("TagA"), 2_598_919);
        assert_eq!(java_hash("TagB"), 2_598_920);
        // Wraps around.
        assert_eq!(java_hash("polygenelubricants"), i32::MIN);
        // Beyond the basic plane: two UTF-16 units, 0xD83D and 0xDE00.
        assert_eq!(java_hash("\u{1F600}"), 0xD83D * 31 + 0xDE00);
        for (text, at) in [("orders#key-17", 6), ("gr\u{fc}n#\u{1F600}!", 6), ("a", 1), ("", 0)] {
            let units = text.encode_utf16();
            let slow =
                units.fold(0_i32, |h, unit| h.wrapping_mul(31).wrapping_add(i32::from(unit)));
            assert_eq!(java_hash(text), slow);
            assert_eq!(java_hash_onward(java_hash(&text[..at]), &text[at..]), slow);
        }
        assert_eq!(tags_code("polygenelubricants"), i64::from(i32::MIN));
    }
}
