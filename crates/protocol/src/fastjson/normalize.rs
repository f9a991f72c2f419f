//! Turns what fastjson accepts into strict JSON.

use super::{DEPTH_MAX, JsonError};

/// How deep a key that is an object may itself have keys that are objects. Each level doubles the
/// backslashes in front of a quote, so it must be small.
const KEY_DEPTH_MAX: usize = 2;

/// Strict JSON that means the same as a text.
#[derive(Debug)]
pub struct Normal {
    /// The JSON, without white space and without null members. A key that was an object is a
    /// string with the JSON of that object.
    pub json: String,
    /// Whether a `{"$ref":"..."}` is in it.
    pub has_references: bool,
}

/// Turns a text that fastjson accepts into strict JSON.
///
/// The result is at most a small multiple of the text in size.
///
/// # Errors
///
/// The text is not JSON by fastjson's standards, or nests deeper than [`DEPTH_MAX`].
pub fn normalize(text: &str) -> Result<Normal, JsonError> {
    let mut reader = Reader { text, at: 0, has_references: false };
    let mut json = String::with_capacity(text.len() + text.len() / 16);
    reader.value(&mut json, DEPTH_MAX, KEY_DEPTH_MAX)?;
    if reader.peek().is_some() {
        return reader.error("the end of the text");
    }
    Ok(Normal { json, has_references: reader.has_references })
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    has_references: bool,
}

impl Reader<'_> {
    fn error<T>(&self, expected: &'static str) -> Result<T, JsonError> {
        Err(JsonError::Syntax { at: self.at, expected })
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// The next byte that is neither white space nor in a comment.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.byte()? {
                b' ' | b'\t' | b'\n' | b'\r' | 0x0C | 0x08 => self.at += 1,
                b'/' => {
                    let rest = self.text.get(self.at..)?;
                    let end = if rest.starts_with("//") {
                        rest.find('\n').map(|end| end + 1)
                    } else if rest.starts_with("/*") {
                        rest.find("*/").map(|end| end + 2)
                    } else {
                        return Some(b'/');
                    };
                    self.at += end.unwrap_or(rest.len());
                }
                byte => return Some(byte),
            }
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn eat_commas(&mut self) -> bool {
        let mut any = false;
        while self.eat(b',') {
            any = true;
        }
        any
    }

    fn value(
        &mut self,
        out: &mut String,
        depth_left: usize,
        key_depth_left: usize,
    ) -> Result<(), JsonError> {
        match self.peek() {
            Some(b'{') => self.object(out, depth_left, key_depth_left),
            Some(b'[') => self.array(out, depth_left, key_depth_left),
            Some(quote @ (b'"' | b'\'')) => self.string(out, quote),
            Some(b'-' | b'+' | b'.' | b'0'..=b'9') => self.number(out),
            Some(b'a'..=b'z' | b'A'..=b'Z') => self.word(out),
            _ => self.error("a value"),
        }
    }

    fn object(
        &mut self,
        out: &mut String,
        depth_left: usize,
        key_depth_left: usize,
    ) -> Result<(), JsonError> {
        let Some(depth_left) = depth_left.checked_sub(1) else {
            return self.error("JSON that nests less deep");
        };
        self.at += 1;
        out.push('{');
        let first_member = out.len();
        loop {
            self.eat_commas();
            if self.eat(b'}') {
                break;
            }
            let member = out.len();
            if member > first_member {
                out.push(',');
            }
            let name = out.len();
            self.key(out, depth_left, key_depth_left)?;
            self.has_references |= out.get(name..) == Some("\"$ref\"");
            if !self.eat(b':') {
                return self.error("`:`");
            }
            out.push(':');
            let value = out.len();
            self.value(out, depth_left, key_depth_left)?;
            if out.get(value..) == Some("null") {
                out.truncate(member);
            }
            if self.peek() != Some(b'}') && !self.eat_commas() {
                return self.error("`,` or `}`");
            }
        }
        out.push('}');
        Ok(())
    }

    fn array(
        &mut self,
        out: &mut String,
        depth_left: usize,
        key_depth_left: usize,
    ) -> Result<(), JsonError> {
        let Some(depth_left) = depth_left.checked_sub(1) else {
            return self.error("JSON that nests less deep");
        };
        self.at += 1;
        out.push('[');
        let first_element = out.len();
        loop {
            self.eat_commas();
            if self.eat(b']') {
                break;
            }
            if out.len() > first_element {
                out.push(',');
            }
            self.value(out, depth_left, key_depth_left)?;
            if self.peek() != Some(b']') && !self.eat_commas() {
                return self.error("`,` or `]`");
            }
        }
        out.push(']');
        Ok(())
    }

    /// A key: quoted, a bare word or number, or an object.
    fn key(
        &mut self,
        out: &mut String,
        depth_left: usize,
        key_depth_left: usize,
    ) -> Result<(), JsonError> {
        match self.peek() {
            Some(quote @ (b'"' | b'\'')) => self.string(out, quote),
            Some(b'{') => {
                let Some(key_depth_left) = key_depth_left.checked_sub(1) else {
                    return self.error("a key that nests less deep");
                };
                let mut object = String::new();
                self.object(&mut object, depth_left, key_depth_left)?;
                out.push('"');
                object.chars().for_each(|c| push_escaped(out, c));
                out.push('"');
                Ok(())
            }
            _ => {
                let rest = self.text.get(self.at..).unwrap_or_default();
                let is_name = |c: char| {
                    c.is_alphanumeric() || matches!(c, '_' | '$' | '-' | '.' | '@' | '%' | '|')
                };
                let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
                if end == 0 {
                    return self.error("a name");
                }
                out.push('"');
                out.push_str(&rest[..end]);
                out.push('"');
                self.at += end;
                Ok(())
            }
        }
    }

    fn number(&mut self, out: &mut String) -> Result<(), JsonError> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c));
        let text = &rest[..end.unwrap_or(rest.len())];
        // fastjson marks the type of a number by a letter when it writes class names.
        let digits = text.strip_suffix(['L', 'S', 'B', 'F', 'D']).unwrap_or(text);
        let digits = digits.strip_prefix('+').unwrap_or(digits);
        let (sign, digits) = match digits.strip_prefix('-') {
            Some(digits) => ("-", digits),
            None => ("", digits),
        };
        let (mantissa, exponent) = match digits.find(['e', 'E']) {
            Some(at) => digits.split_at(at),
            None => (digits, ""),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let power = exponent.get(1..).unwrap_or_default();
        let power = power.strip_prefix(['+', '-']).unwrap_or(power);
        if !all_digits(whole)
            || !all_digits(fraction)
            || !all_digits(power)
            || (whole.is_empty() && fraction.is_empty())
            || (power.is_empty() && !exponent.is_empty())
        {
            return self.error("a number");
        }
        self.at += text.len();
        let whole = whole.trim_start_matches('0');
        out.push_str(sign);
        out.push_str(if whole.is_empty() { "0" } else { whole });
        if mantissa.contains('.') {
            out.push('.');
            out.push_str(if fraction.is_empty() { "0" } else { fraction });
        }
        out.push_str(exponent);
        Ok(())
    }

    fn word(&mut self, out: &mut String) -> Result<(), JsonError> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let json = match &rest[..end] {
            "true" => "true",
            "false" => "false",
            "null" | "undefined" | "NaN" => "null",
            _ => return self.error("`true`, `false` or `null`"),
        };
        out.push_str(json);
        self.at += end;
        Ok(())
    }

    fn string(&mut self, out: &mut String, quote: u8) -> Result<(), JsonError> {
        self.at += 1;
        out.push('"');
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let plain = rest
                .bytes()
                .position(|byte| byte == quote || byte == b'\\' || byte == b'"' || byte < 0x20);
            let Some(plain) = plain else { return self.error("the end of a string") };
            // All four end a run at an ASCII byte, which is a character boundary.
            out.push_str(&rest[..plain]);
            self.at += plain;
            match self.byte() {
                Some(byte) if byte == quote => {
                    self.at += 1;
                    out.push('"');
                    return Ok(());
                }
                Some(b'\\') => self.escape(out)?,
                Some(byte) => {
                    push_escaped(out, char::from(byte));
                    self.at += 1;
                }
                None => return self.error("the end of a string"),
            }
        }
    }

    /// An escape, in JSON's or one of fastjson's additional forms.
    fn escape(&mut self, out: &mut String) -> Result<(), JsonError> {
        let Some(&kind) = self.text.as_bytes().get(self.at + 1) else {
            return self.error("an escape sequence");
        };
        let c = match kind {
            b'"' | b'\'' | b'\\' | b'/' => char::from(kind),
            b'b' => '\u{8}',
            b'f' | b'F' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'v' => '\u{b}',
            b'0'..=b'7' => char::from(kind - b'0'),
            b'x' => {
                let unit = self.hex(2)?;
                self.at += 4;
                push_escaped(out, char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER));
                return Ok(());
            }
            b'u' => {
                let c = self.utf16()?;
                push_escaped(out, c);
                return Ok(());
            }
            _ => return self.error("an escape sequence"),
        };
        self.at += 2;
        push_escaped(out, c);
        Ok(())
    }

    /// One or two `\uXXXX`; half of a surrogate pair, which UTF-8 cannot hold, becomes U+FFFD.
    fn utf16(&mut self) -> Result<char, JsonError> {
        let unit = self.hex(4)?;
        self.at += 6;
        let is_pair = (0xD800..0xDC00).contains(&unit)
            && self.text.as_bytes().get(self.at..self.at + 2) == Some(b"\\u");
        if is_pair {
            let low = self.hex(4)?;
            if (0xDC00..0xE000).contains(&low) {
                self.at += 6;
                let scalar = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
                return Ok(char::from_u32(scalar).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
        }
        Ok(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    /// The digits behind the two bytes of an escape's beginning.
    fn hex(&self, digits: usize) -> Result<u32, JsonError> {
        let text = self.text.get(self.at + 2..self.at + 2 + digits);
        let text = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match text.and_then(|text| u32::from_str_radix(text, 16).ok()) {
            Some(unit) => Ok(unit),
            None => self.error("hexadecimal digits"),
        }
    }
}

/// Appends a character of a string, escaped where JSON wants it.
fn push_escaped(out: &mut String, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\0'..='\u{1f}' => {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            out.push_str("\\u00");
            out.push(char::from(HEX[(c as usize) >> 4]));
            out.push(char::from(HEX[(c as usize) & 15]));
        }
        _ => out.push(c),
    }
}
