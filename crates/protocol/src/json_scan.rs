//! A single-pass scanner over the JSON of a frame header.
//!
//! It borrows from the text, allocates nothing and builds no tree. It is strict on structure and
//! takes values as fastjson does where the frame header needs it (numbers written as strings and
//! the reverse). Bodies are read by [`crate::fastjson`], which tolerates far more.

use std::borrow::Cow;

/// How deep a value that nobody wants may nest before the header is refused.
const SKIP_DEPTH_MAX: usize = 32;

/// Why a text is no JSON object as a frame header has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScanError {
    /// Byte offset inside the header.
    pub at: usize,
    /// What would have been right there.
    pub expected: &'static str,
}

/// A string between its quotes, escapes still in it.
///
/// Invariant: if `escaped`, every backslash starts a whole escape sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Text<'a> {
    pub raw: &'a str,
    pub escaped: bool,
}

impl<'a> Text<'a> {
    /// The text itself; allocates only if there are escapes to undo.
    pub fn undo_escapes(self) -> Cow<'a, str> {
        if self.escaped { Cow::Owned(undo_escapes(self.raw)) } else { Cow::Borrowed(self.raw) }
    }
}

/// A JSON value that is no object and no array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar<'a> {
    /// A string.
    Text(Text<'a>),
    /// A number, `true` or `false`, as written.
    Bare(&'a str),
    /// `null`.
    Null,
}

/// The place of a scan in a text.
pub(crate) struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    pub fn new(text: &'a str) -> Scanner<'a> {
        Scanner { text, at: 0 }
    }

    fn error<T>(&self, expected: &'static str) -> Result<T, ScanError> {
        Err(ScanError { at: self.at, expected })
    }

    #[inline]
    fn bytes(&self) -> &'a [u8] {
        self.text.as_bytes()
    }

    /// The next byte that is not white space.
    #[inline]
    fn peek(&mut self) -> Option<u8> {
        while let Some(&byte) = self.bytes().get(self.at) {
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
                _ => return Some(byte),
            }
        }
        None
    }

    #[inline]
    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn slice(&self, start: usize, end: usize) -> Result<&'a str, ScanError> {
        // Both ends are at an ASCII byte, thus on character boundaries.
        self.text.get(start..end).ok_or(ScanError { at: start, expected: "a character boundary" })
    }

    /// Scans an object: calls `field` with each name; it must consume the value.
    pub fn object<E: From<ScanError>>(
        &mut self,
        mut field: impl FnMut(&mut Scanner<'a>, Text<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        if !self.eat(b'{') {
            return Ok(self.error("`{`")?);
        }
        if self.eat(b'}') {
            return Ok(());
        }
        loop {
            let name = self.string()?;
            if !self.eat(b':') {
                return Ok(self.error("`:`")?);
            }
            field(self, name)?;
            if self.eat(b'}') {
                return Ok(());
            }
            if !self.eat(b',') {
                return Ok(self.error("`,` or `}`")?);
            }
        }
    }

    /// Fails if anything but white space is left.
    pub fn end(&mut self) -> Result<(), ScanError> {
        if self.peek().is_some() { self.error("the end of the header") } else { Ok(()) }
    }

    /// Whether the next value is `null`; if so, it is consumed.
    pub fn null(&mut self) -> bool {
        let is_null = self.peek() == Some(b'n') && self.bytes()[self.at..].starts_with(b"null");
        self.at += if is_null { 4 } else { 0 };
        is_null
    }

    /// A string, its escapes checked but not undone.
    #[inline]
    pub fn string(&mut self) -> Result<Text<'a>, ScanError> {
        if !self.eat(b'"') {
            return self.error("`\"`");
        }
        self.string_after_quote()
    }

    fn string_after_quote(&mut self) -> Result<Text<'a>, ScanError> {
        let start = self.at;
        let mut escaped = false;
        loop {
            self.at += plain_len(self.bytes().get(self.at..).unwrap_or_default());
            match self.bytes().get(self.at) {
                Some(b'"') => {
                    let raw = self.slice(start, self.at)?;
                    self.at += 1;
                    return Ok(Text { raw, escaped });
                }
                Some(_) => {
                    escaped = true;
                    self.escape()?;
                }
                None => return self.error("`\"` at the end of a string"),
            }
        }
    }

    fn escape(&mut self) -> Result<(), ScanError> {
        match self.bytes().get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 2;
                Ok(())
            }
            Some(b'u') => {
                let digits = self.bytes().get(self.at + 2..self.at + 6);
                if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
                    return self.error("four hexadecimal digits after `\\u`");
                }
                self.at += 6;
                Ok(())
            }
            _ => self.error("an escape sequence of JSON"),
        }
    }

    /// A string, number, boolean or null.
    pub fn scalar(&mut self) -> Result<Scalar<'a>, ScanError> {
        match self.peek() {
            Some(b'"') => {
                self.at += 1;
                self.string_after_quote().map(Scalar::Text)
            }
            Some(b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                let start = self.at;
                let rest = self.bytes().get(start..).unwrap_or_default();
                let is_bare =
                    |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
                let len = rest.iter().position(|byte| !is_bare(byte)).unwrap_or(rest.len());
                let bare = self.slice(start, start + len)?;
                let known = match bare {
                    "true" | "false" => true,
                    "null" => {
                        self.at += len;
                        return Ok(Scalar::Null);
                    }
                    number => is_number(number.as_bytes()),
                };
                if !known {
                    return self.error("a string, a number, `true`, `false` or `null`");
                }
                self.at += len;
                Ok(Scalar::Bare(bare))
            }
            _ => self.error("a string, a number, `true`, `false` or `null`"),
        }
    }

    /// Passes over any value.
    pub fn skip_value(&mut self) -> Result<(), ScanError> {
        self.skip_nested(SKIP_DEPTH_MAX)
    }

    fn skip_nested(&mut self, depth_left: usize) -> Result<(), ScanError> {
        let Some(depth_left) = depth_left.checked_sub(1) else {
            return self.error("a value that nests less deep");
        };
        match self.peek() {
            Some(b'{') => self.object(|scanner, _name| scanner.skip_nested(depth_left)),
            Some(b'[') => {
                self.at += 1;
                if self.eat(b']') {
                    return Ok(());
                }
                loop {
                    self.skip_nested(depth_left)?;
                    if self.eat(b']') {
                        return Ok(());
                    }
                    if !self.eat(b',') {
                        return self.error("`,` or `]`");
                    }
                }
            }
            _ => self.scalar().map(|_| ()),
        }
    }
}

/// How many bytes come before the first quote or backslash.
///
/// Eight at a time: names and values are too short for the set-up of a vectorized search to pay.
#[inline]
fn plain_len(bytes: &[u8]) -> usize {
    const LOW_BITS: u64 = 0x7F7F_7F7F_7F7F_7F7F;
    /// The high bit of each byte that is the one looked for, exactly: no carry between bytes.
    fn matches(word: u64, byte: u8) -> u64 {
        let different = word ^ u64::from_be_bytes([byte; 8]);
        !(((different & LOW_BITS) + LOW_BITS) | different | LOW_BITS)
    }
    let (words, tail) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_be_bytes(*word);
        let found = matches(word, b'"') | matches(word, b'\\');
        if found != 0 {
            return index * 8 + (found.leading_zeros() / 8) as usize;
        }
    }
    let in_tail = tail.iter().position(|byte| matches!(byte, b'"' | b'\\'));
    words.len() * 8 + in_tail.unwrap_or(tail.len())
}

/// JSON's number: digits, and at most one fraction and one exponent.
fn is_number(text: &[u8]) -> bool {
    fn digits(text: &[u8]) -> Option<&[u8]> {
        let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        (count > 0).then(|| &text[count..])
    }
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let Some(mut rest) = digits(text) else { return false };
    if let Some(fraction) = rest.strip_prefix(b".") {
        let Some(after) = digits(fraction) else { return false };
        rest = after;
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        let unsigned = match exponent {
            [b'+' | b'-', unsigned @ ..] => unsigned,
            unsigned => unsigned,
        };
        let Some(after) = digits(unsigned) else { return false };
        rest = after;
    }
    rest.is_empty()
}

/// Undoes the escapes of a string that [`Scanner::string`] has checked.
///
/// Half of a surrogate pair, which Java can hold and UTF-8 cannot, becomes U+FFFD.
fn undo_escapes(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        out.push_str(&rest[..at]);
        // A checked escape has ASCII in all of its places.
        let escape = rest.as_bytes();
        let mut len = 2;
        match escape.get(at + 1) {
            Some(b'u') => {
                let unit = hex_unit(escape, at + 2);
                len = 6;
                let low = match unit {
                    0xD800..=0xDBFF if escape.get(at + 6..at + 8) == Some(b"\\u") => {
                        hex_unit(escape, at + 8)
                    }
                    _ => 0,
                };
                let scalar = if (0xDC00..=0xDFFF).contains(&low) {
                    len = 12;
                    0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00)
                } else {
                    unit
                };
                out.push(char::from_u32(scalar).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            Some(b'b') => out.push('\u{8}'),
            Some(b'f') => out.push('\u{c}'),
            Some(b'n') => out.push('\n'),
            Some(b'r') => out.push('\r'),
            Some(b't') => out.push('\t'),
            Some(&itself) => out.push(char::from(itself)),
            None => {}
        }
        rest = rest.get(at + len..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

/// The UTF-16 unit of the four hexadecimal digits at a place.
fn hex_unit(text: &[u8], at: usize) -> u32 {
    let digits = text.get(at..at + 4).unwrap_or_default();
    digits.iter().fold(0, |unit, &digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            b'A'..=b'F' => digit - b'A' + 10,
            _ => 0,
        };
        unit << 4 | u32::from(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn string(json: &str) -> Result<String, ScanError> {
        let mut scanner = Scanner::new(json);
        let text = scanner.string()?;
        scanner.end()?;
        Ok(text.undo_escapes().into_owned())
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(string(r#""a\u0001b\u0002""#).unwrap(), "a\u{1}b\u{2}");
        assert_eq!(string(r#""\"\\\/\b\f\n\r\t""#).unwrap(), "\"\\/\u{8}\u{c}\n\r\t");
        assert_eq!(string(r#""\ud83d\ude00!""#).unwrap(), "\u{1F600}!");
        assert_eq!(string(r#""\ud83d\u0041""#).unwrap(), "\u{FFFD}A");
        assert_eq!(string(r#""\ude00""#).unwrap(), "\u{FFFD}");
        assert_eq!(string("\"日本\u{1}\"").unwrap(), "日本\u{1}");
        let long = "x".repeat(100);
        assert_eq!(string(&format!("\"{long}\\n{long}\"")).unwrap(), format!("{long}\n{long}"));
    }

    #[test]
    fn quotes_and_backslashes_are_found_anywhere() {
        for len in 0..40 {
            let text = "!\u{80}\u{A2}#".repeat(10);
            let text = text.char_indices().take_while(|&(at, _)| at < len);
            let text: String = text.map(|(_, c)| c).collect();
            assert_eq!(plain_len(text.as_bytes()), text.len());
            for stop in ["\"", "\\"] {
                assert_eq!(plain_len(format!("{text}{stop}{stop}abc\"").as_bytes()), text.len());
            }
        }
    }

    #[test]
    fn broken_strings_are_refused_at_their_place() {
        assert_eq!(string(r#""abc"#).unwrap_err().at, 4);
        assert_eq!(string(r#""a\x""#).unwrap_err().at, 2);
        assert_eq!(string(r#""a\u00g1""#).unwrap_err().at, 2);
        assert_eq!(string(r#""a\u00"#).unwrap_err().at, 2);
        assert_eq!(string(r#""a\"#).unwrap_err().at, 2);
    }

    #[test]
    fn numbers_are_those_of_json() {
        for good in ["0", "-1", "12.5", "1e9", "1E-3", "-0.1e+2"] {
            assert!(is_number(good.as_bytes()), "{good}");
        }
        for bad in ["", "-", "1.", ".5", "1e", "1e+", "0x1", "1-2", "tru"] {
            assert!(!is_number(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn skipping_is_bounded_in_depth() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(Scanner::new(&nested(30)).skip_value().is_ok());
        assert!(Scanner::new(&nested(3000)).skip_value().is_err());
        assert!(Scanner::new(r#"{"a":[1,{"b":null},"x"],"c":true}"#).skip_value().is_ok());
        assert!(Scanner::new("[1,]").skip_value().is_err());
    }
}
