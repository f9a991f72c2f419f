//! Java's string hash, which RocketMQ stores on disk and sends over the wire.

/// `String.hashCode()`: `31 * h + unit` over the UTF-16 code units, wrapping at 32 bits.
pub fn java_hash(text: &str) -> i32 {
    let units = text.encode_utf16();
    units.fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
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
        assert_eq!(tags_code("polygenelubricants"), i64::from(i32::MIN));
    }
}
