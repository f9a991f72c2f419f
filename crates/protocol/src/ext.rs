//! The extension fields of a frame: what a request or an answer says beyond its fixed fields.
//!
//! On the way in they are name and value pairs that borrow from the frame; on the way out a source
//! writes them straight into the output. Which names exist is said in [`mod@crate::header`].

use std::borrow::Cow;

use bytes::{BufMut, BytesMut};
use smallvec::SmallVec;

use crate::json_scan::Text;

/// The most extension fields a frame may have; RocketMQ's own have at most about twenty.
pub const EXT_FIELDS_MAX: usize = 512;

/// As many pairs as stay on the stack: a SEND has 14, and two more for a signature.
const INLINE: usize = 16;

/// Name and value, the flags of both side by side so that a pair stays small.
#[derive(Clone, Copy, Debug)]
struct Pair<'a> {
    name: &'a str,
    value: &'a str,
    name_escaped: bool,
    value_escaped: bool,
}

impl<'a> Pair<'a> {
    fn name(self) -> Text<'a> {
        Text { raw: self.name, escaped: self.name_escaped }
    }

    fn value(self) -> Text<'a> {
        Text { raw: self.value, escaped: self.value_escaped }
    }
}

/// A value as it is in the frame; its JSON escapes are undone only if somebody asks for it.
#[derive(Clone, Copy, Debug)]
pub struct ExtValue<'a>(Text<'a>);

impl<'a> ExtValue<'a> {
    /// The text; allocates only if there are JSON escapes to undo.
    pub fn text(self) -> Cow<'a, str> {
        self.0.undo_escapes()
    }

    /// Whether the value has no characters.
    pub fn is_empty(self) -> bool {
        self.0.raw.is_empty()
    }
}

/// The extension fields of one frame, in the order they came.
#[derive(Clone, Debug, Default)]
pub struct ExtFields<'a> {
    pairs: SmallVec<[Pair<'a>; INLINE]>,
}

impl<'a> ExtFields<'a> {
    pub(crate) fn new() -> ExtFields<'a> {
        ExtFields { pairs: SmallVec::new() }
    }

    /// Adds a pair unless [`EXT_FIELDS_MAX`] are there already; says whether it did.
    pub(crate) fn push(&mut self, name: Text<'a>, value: Text<'a>) -> bool {
        let has_room = self.pairs.len() < EXT_FIELDS_MAX;
        if has_room {
            self.pairs.push(Pair {
                name: name.raw,
                value: value.raw,
                name_escaped: name.escaped,
                value_escaped: value.escaped,
            });
        }
        has_room
    }

    /// Makes fields that borrow from a list; pairs beyond [`EXT_FIELDS_MAX`] are left out.
    pub fn from_pairs<N: AsRef<str>, V: AsRef<str>>(pairs: &'a [(N, V)]) -> ExtFields<'a> {
        let pairs = pairs.iter().take(EXT_FIELDS_MAX).map(|(name, value)| Pair {
            name: name.as_ref(),
            value: value.as_ref(),
            name_escaped: false,
            value_escaped: false,
        });
        ExtFields { pairs: pairs.collect() }
    }

    /// The value of a name. If a peer sent the name twice the last one counts, as in a Java map.
    pub fn get(&self, name: &str) -> Option<Cow<'a, str>> {
        let found = self.pairs.iter().rev().find(|pair| match pair.name_escaped {
            false => pair.name == name,
            true => pair.name().undo_escapes() == name,
        });
        found.map(|pair| pair.value().undo_escapes())
    }

    /// All names and values, escapes undone.
    pub fn iter(&self) -> impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)> + '_ {
        self.pairs.iter().map(|pair| (pair.name().undo_escapes(), pair.value().undo_escapes()))
    }

    /// Calls `visit` with every name and its value as it stands in the frame: the one pass in which
    /// [`crate::header::Header::decode`] fills a struct.
    ///
    /// # Errors
    ///
    /// The first error of `visit`.
    #[inline]
    pub fn try_for_each<E>(
        &self,
        mut visit: impl FnMut(&str, ExtValue<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        for pair in &self.pairs {
            if pair.name_escaped {
                visit(&pair.name().undo_escapes(), ExtValue(pair.value()))?;
            } else {
                visit(pair.name, ExtValue(pair.value()))?;
            }
        }
        Ok(())
    }

    /// How many pairs there are.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }
}

/// Something that has extension fields to write: a header, a list of pairs, or `()` for none.
pub trait ExtSource {
    /// Writes every field.
    fn write_ext(&self, writer: &mut dyn ExtWriter);
}

/// Where extension fields are written to: one of the two encodings, or a list.
pub trait ExtWriter {
    /// Writes a text.
    fn str(&mut self, name: &str, value: &str);

    /// Writes an integer in decimal.
    fn int(&mut self, name: &str, value: i64);

    /// Writes `true` or `false`.
    fn bool(&mut self, name: &str, value: bool) {
        self.str(name, if value { "true" } else { "false" });
    }
}

impl ExtSource for () {
    fn write_ext(&self, _writer: &mut dyn ExtWriter) {}
}

impl ExtSource for ExtFields<'_> {
    fn write_ext(&self, writer: &mut dyn ExtWriter) {
        for (name, value) in self.iter() {
            writer.str(&name, &value);
        }
    }
}

impl<N: AsRef<str>, V: AsRef<str>> ExtSource for [(N, V)] {
    fn write_ext(&self, writer: &mut dyn ExtWriter) {
        for (name, value) in self {
            writer.str(name.as_ref(), value.as_ref());
        }
    }
}

impl<N: AsRef<str>, V: AsRef<str>> ExtSource for Vec<(N, V)> {
    fn write_ext(&self, writer: &mut dyn ExtWriter) {
        self.as_slice().write_ext(writer);
    }
}

impl<N: AsRef<str>, V: AsRef<str>, const COUNT: usize> ExtSource for [(N, V); COUNT] {
    fn write_ext(&self, writer: &mut dyn ExtWriter) {
        self.as_slice().write_ext(writer);
    }
}

impl<T: ExtSource + ?Sized> ExtSource for &T {
    fn write_ext(&self, writer: &mut dyn ExtWriter) {
        (**self).write_ext(writer);
    }
}

impl<A: ExtSource, B: ExtSource> ExtSource for (A, B) {
    /// Writes one source after the other, such as a header and what rides along with it.
    fn write_ext(&self, writer: &mut dyn ExtWriter) {
        self.0.write_ext(writer);
        self.1.write_ext(writer);
    }
}

/// The fields of a source as a list of pairs.
pub fn to_pairs(source: &dyn ExtSource) -> Vec<(Cow<'static, str>, String)> {
    struct Collect(Vec<(Cow<'static, str>, String)>);
    impl ExtWriter for Collect {
        fn str(&mut self, name: &str, value: &str) {
            self.0.push((Cow::Owned(name.to_owned()), value.to_owned()));
        }
        fn int(&mut self, name: &str, value: i64) {
            self.0.push((Cow::Owned(name.to_owned()), value.to_string()));
        }
    }
    let mut collect = Collect(Vec::new());
    source.write_ext(&mut collect);
    collect.0
}

/// Writes `"extFields":{...},` into a JSON header; nothing at all if there are no fields.
pub(crate) struct JsonExtWriter<'o> {
    out: &'o mut BytesMut,
    is_open: bool,
}

impl<'o> JsonExtWriter<'o> {
    pub fn new(out: &'o mut BytesMut) -> JsonExtWriter<'o> {
        JsonExtWriter { out, is_open: false }
    }

    fn name(&mut self, name: &str) {
        self.out.put_slice(if self.is_open { b"," } else { b"\"extFields\":{" });
        self.is_open = true;
        put_json_string(self.out, name);
        self.out.put_u8(b':');
    }

    pub fn finish(self) {
        if self.is_open {
            self.out.put_slice(b"},");
        }
    }
}

impl ExtWriter for JsonExtWriter<'_> {
    fn str(&mut self, name: &str, value: &str) {
        self.name(name);
        put_json_string(self.out, value);
    }

    fn int(&mut self, name: &str, value: i64) {
        // A string as well: values of extFields always are.
        self.name(name);
        self.out.put_u8(b'"');
        put_decimal(self.out, value);
        self.out.put_u8(b'"');
    }
}

/// Writes the pairs of a ROCKETMQ binary header (`RocketMQSerializable.mapSerialize`).
pub(crate) struct BinaryExtWriter<'o> {
    pub out: &'o mut BytesMut,
}

impl BinaryExtWriter<'_> {
    fn name(&mut self, name: &str) -> bool {
        // The format has 15 bits for the length of a name; no name of ours comes near.
        let Ok(len) = i16::try_from(name.len()) else { return false };
        self.out.put_i16(len);
        self.out.put_slice(name.as_bytes());
        true
    }
}

impl ExtWriter for BinaryExtWriter<'_> {
    fn str(&mut self, name: &str, value: &str) {
        // As long as the frame itself is bounded a value is, far below 31 bits.
        let Ok(len) = i32::try_from(value.len()) else { return };
        if self.name(name) {
            self.out.put_i32(len);
            self.out.put_slice(value.as_bytes());
        }
    }

    fn int(&mut self, name: &str, value: i64) {
        if self.name(name) {
            let len_at = self.out.len();
            self.out.put_i32(0);
            put_decimal(self.out, value);
            let len = (self.out.len() - len_at - 4) as i32;
            self.out[len_at..len_at + 4].copy_from_slice(&len.to_be_bytes());
        }
    }
}

/// Writes an integer in decimal.
pub(crate) fn put_decimal(out: &mut BytesMut, value: i64) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        // Room for it: the greatest magnitude, 2^63, has 19 digits.
        at -= 1;
        digits[at] = b'-';
    }
    out.put_slice(&digits[at..]);
}

/// Writes a JSON string with its quotes.
pub(crate) fn put_json_string(out: &mut BytesMut, text: &str) {
    out.reserve(text.len() + 2);
    out.put_u8(b'"');
    let mut rest = text.as_bytes();
    // Most texts need no escape. Without an early exit this looks at many bytes at a time.
    let needs_escape = rest.iter().fold(false, |found, &byte| found | must_escape(byte));
    if needs_escape {
        while let Some(at) = rest.iter().position(|&byte| must_escape(byte)) {
            out.put_slice(&rest[..at]);
            put_escape(out, rest[at]);
            rest = &rest[at + 1..];
        }
    }
    out.put_slice(rest);
    out.put_u8(b'"');
}

fn must_escape(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

fn put_escape(out: &mut BytesMut, byte: u8) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    match byte {
        b'"' => out.put_slice(b"\\\""),
        b'\\' => out.put_slice(b"\\\\"),
        b'\n' => out.put_slice(b"\\n"),
        b'\r' => out.put_slice(b"\\r"),
        b'\t' => out.put_slice(b"\\t"),
        _ => {
            out.put_slice(b"\\u00");
            out.put_u8(HEX[usize::from(byte >> 4)]);
            out.put_u8(HEX[usize::from(byte & 15)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_those_of_the_standard_library() {
        for value in [0, 7, -1, 10, 479, i64::MAX, i64::MIN, -1_000_000] {
            let mut out = BytesMut::new();
            put_decimal(&mut out, value);
            assert_eq!(out, value.to_string().as_bytes());
        }
    }

    #[test]
    fn the_last_of_equal_names_counts() {
        let pairs = [("a", "1"), ("b", "2"), ("a", "3")];
        let fields = ExtFields::from_pairs(&pairs);
        assert_eq!(fields.get("a").as_deref(), Some("3"));
        assert_eq!(fields.get("c"), None);
        assert_eq!(fields.len(), 3);
    }

    #[test]
    fn json_strings_escape_what_must_be() {
        let mut out = BytesMut::new();
        put_json_string(&mut out, "k\u{1}v\u{2}\"\\\n\u{1f}é");
        assert_eq!(out, "\"k\\u0001v\\u0002\\\"\\\\\\n\\u001Fé\"".as_bytes());
    }
}
