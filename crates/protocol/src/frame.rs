//! The frame: the unit that travels, in both header encodings (RocketMQ's `RemotingCommand` and
//! `RocketMQSerializable`). `docs/wire-protocol.md` draws it to the byte.
//!
//! Decoding borrows from the frame; encoding writes into the output buffer and patches the two
//! length words afterwards. What the extension fields mean is said in [`mod@crate::header`].

use std::borrow::Cow;
use std::ops::Range;

use bytes::{BufMut, BytesMut};
use thiserror::Error;

use crate::code::{RequestCode, ResponseCode};
use crate::ext::{
    BinaryExtWriter, EXT_FIELDS_MAX, ExtFields, ExtSource, JsonExtWriter, put_decimal,
    put_json_string,
};
use crate::header::{Header, HeaderError};
use crate::json_scan::{Scalar, ScanError, Scanner, Text};
use crate::language::LanguageCode;

/// The longest frame, its length word included, unless configured otherwise
/// (`com.rocketmq.remoting.frameMaxLength`).
pub const MAX_FRAME_BYTES: usize = 16_777_216;

/// Bytes of the word in front of a frame that counts what follows it.
pub const LENGTH_BYTES: usize = 4;

/// Flag bit of a response.
pub const FLAG_RESPONSE: i32 = 1;
/// Flag bit of a request that must not be answered, whatever happens.
pub const FLAG_ONEWAY: i32 = 2;

const HEADER_WORD_BYTES: usize = 4;
const HEADER_LENGTH_MASK: u32 = 0x00FF_FFFF;

/// How the header of a frame is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SerializeType {
    /// A JSON object as fastjson writes it.
    Json,
    /// RocketMQ's binary form.
    Binary,
}

/// Why bytes are no frame. The connection they came from cannot be read any further.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The length word says more than the configured bound.
    #[error("frame of {bytes} bytes exceeds the limit of {max_bytes} bytes")]
    TooLong {
        /// Length of the whole frame.
        bytes: u64,
        /// The bound.
        max_bytes: usize,
    },
    /// The length word is negative.
    #[error("frame length {0} is negative")]
    NegativeLength(i32),
    /// The frame ends inside a field.
    #[error("frame ends inside {field}: {need} bytes needed, {left} left")]
    Truncated {
        /// The field it ends in.
        field: &'static str,
        /// Bytes the field takes; for a negative length, 0.
        need: usize,
        /// Bytes that were left.
        left: usize,
    },
    /// A length inside the frame is negative.
    #[error("length {length} of {field} is negative")]
    Negative {
        /// The field.
        field: &'static str,
        /// The length.
        length: i32,
    },
    /// The top byte of the header word is neither 0 (JSON) nor 1 (ROCKETMQ).
    #[error("serialize type {0} is neither 0 (JSON) nor 1 (ROCKETMQ)")]
    SerializeType(u8),
    /// The header is no JSON object.
    #[error("header is not the JSON of a frame: {expected} expected at byte {at}")]
    Json {
        /// Byte offset in the header.
        at: usize,
        /// What would have been right there.
        expected: &'static str,
    },
    /// A fixed field of a JSON header has a value that cannot be.
    #[error("header field {field} is `{value}`, {expected} expected")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value, shortened.
        value: String,
        /// What would have been right.
        expected: &'static str,
    },
    /// A JSON header has no `code`.
    #[error("header has no field `code`")]
    NoCode,
    /// A text is not UTF-8.
    #[error("{field} is not UTF-8")]
    Utf8 {
        /// The field.
        field: &'static str,
    },
    /// There are too many extension fields.
    #[error("more than {EXT_FIELDS_MAX} extension fields")]
    TooManyExtFields,
}

impl From<ScanError> for FrameError {
    fn from(error: ScanError) -> FrameError {
        FrameError::Json { at: error.at, expected: error.expected }
    }
}

/// The length of the frame at the front of `buf`, its length word included.
///
/// `Ok(None)` means that more bytes are needed, `Ok(Some(n))` that `buf[..n]` is a whole frame.
/// A frame of 4 bytes (length 0) has nothing in it and is to be skipped, as Java's decoder does.
///
/// # Errors
///
/// The length is negative, or the frame longer than `max_bytes`; both are seen before its bytes are
/// there, so nothing has to be buffered for them.
pub fn frame_len(buf: &[u8], max_bytes: usize) -> Result<Option<usize>, FrameError> {
    let Some(word) = buf.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = i32::from_be_bytes(*word);
    let Ok(follow) = usize::try_from(length) else {
        return Err(FrameError::NegativeLength(length));
    };
    let bytes = LENGTH_BYTES + follow;
    if bytes > max_bytes {
        return Err(FrameError::TooLong { bytes: bytes as u64, max_bytes });
    }
    Ok((buf.len() >= bytes).then_some(bytes))
}

/// A decoded frame; it borrows from the bytes it was decoded from.
#[derive(Clone, Debug)]
pub struct Frame<'a> {
    /// The encoding of the header; an answer uses the same.
    pub serialize: SerializeType,
    /// Request code, or response code if [`Frame::is_response`].
    pub code: i32,
    /// What the sender is written in.
    pub language: LanguageCode,
    /// The sender's [`crate::version`].
    pub version: i32,
    /// Number by which the sender finds the answer to its request; it may be negative.
    pub opaque: i32,
    /// [`FLAG_RESPONSE`] and [`FLAG_ONEWAY`].
    pub flag: i32,
    /// A text for people; of a pull answer, the status.
    pub remark: Option<Cow<'a, str>>,
    /// The extension fields; see [`Frame::header`].
    pub ext: ExtFields<'a>,
    /// What follows the header.
    pub body: &'a [u8],
    body_start: usize,
}

/// What an answer needs to know of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Correlation number of the request.
    pub opaque: i32,
    /// Request code.
    pub code: i32,
    /// Encoding of the request, and thus of the answer.
    pub serialize: SerializeType,
    /// No answer may be written.
    pub oneway: bool,
    /// The requester's version.
    pub version: i32,
}

/// The fixed fields of a frame to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Request or response code.
    pub code: i32,
    /// What the sender is written in.
    pub language: LanguageCode,
    /// The sender's [`crate::version`].
    pub version: i32,
    /// Correlation number.
    pub opaque: i32,
    /// [`FLAG_RESPONSE`] and [`FLAG_ONEWAY`].
    pub flag: i32,
}

impl Head {
    /// The head of this project's answer to a request.
    pub fn response(ticket: Ticket, code: ResponseCode) -> Head {
        Head {
            code: code.0,
            language: LanguageCode::Rust,
            version: crate::version::CURRENT,
            opaque: ticket.opaque,
            flag: FLAG_RESPONSE,
        }
    }

    /// The head of a request of this project; `oneway` asks that it not be answered.
    pub fn request(code: RequestCode, opaque: i32, oneway: bool) -> Head {
        Head {
            code: code.0,
            language: LanguageCode::Rust,
            version: crate::version::CURRENT,
            opaque,
            flag: if oneway { FLAG_ONEWAY } else { 0 },
        }
    }
}

impl<'a> Frame<'a> {
    /// Decodes a whole frame without its length word.
    ///
    /// # Errors
    ///
    /// The bytes are no frame; see [`FrameError`].
    pub fn decode(frame_without_length: &'a [u8]) -> Result<Frame<'a>, FrameError> {
        let mut reader = Reader { rest: frame_without_length };
        let word = u32::from_be_bytes(reader.array("the header word")?);
        let header = reader.take("the header", (word & HEADER_LENGTH_MASK) as usize)?;
        let body = reader.rest;
        let mut frame = Frame {
            serialize: SerializeType::Json,
            code: 0,
            language: LanguageCode::Other,
            version: 0,
            opaque: 0,
            flag: 0,
            remark: None,
            ext: ExtFields::new(),
            body,
            body_start: HEADER_WORD_BYTES + header.len(),
        };
        match (word >> 24) as u8 {
            0 => frame.read_json(header)?,
            1 => frame.read_binary(header)?,
            other => return Err(FrameError::SerializeType(other)),
        }
        Ok(frame)
    }

    fn read_json(&mut self, header: &'a [u8]) -> Result<(), FrameError> {
        let text = std::str::from_utf8(header);
        let text = text.map_err(|_| FrameError::Utf8 { field: "the header" })?;
        let mut scanner = Scanner::new(text);
        let mut has_code = false;
        scanner.object(|scanner, name| -> Result<(), FrameError> {
            match name.raw {
                "code" => {
                    let code = int(scanner, "code")?;
                    has_code |= code.is_some();
                    self.code = code.unwrap_or_default();
                }
                "version" => self.version = int(scanner, "version")?.unwrap_or_default(),
                "opaque" => self.opaque = int(scanner, "opaque")?.unwrap_or_default(),
                "flag" => self.flag = int(scanner, "flag")?.unwrap_or_default(),
                "language" => {
                    self.language = match scanner.scalar()? {
                        Scalar::Text(name) => LanguageCode::from_name(name.raw),
                        // fastjson takes the ordinal of an enum, too.
                        Scalar::Bare(code) => {
                            code.parse().map_or(LanguageCode::Other, LanguageCode::from_code)
                        }
                        Scalar::Null => LanguageCode::Other,
                    }
                }
                "remark" => {
                    self.remark = match scanner.scalar()? {
                        Scalar::Text(text) => Some(text.undo_escapes()),
                        Scalar::Bare(bare) => Some(Cow::Borrowed(bare)),
                        Scalar::Null => None,
                    }
                }
                "extFields" if !scanner.null() => {
                    scanner.object(|scanner, name| -> Result<(), FrameError> {
                        let value = match scanner.scalar()? {
                            Scalar::Text(text) => text,
                            Scalar::Bare(raw) => Text { raw, escaped: false },
                            Scalar::Null => return Ok(()),
                        };
                        match self.ext.push(name, value) {
                            true => Ok(()),
                            false => Err(FrameError::TooManyExtFields),
                        }
                    })?;
                }
                "extFields" => {}
                _ => scanner.skip_value()?,
            }
            Ok(())
        })?;
        scanner.end()?;
        if has_code { Ok(()) } else { Err(FrameError::NoCode) }
    }

    fn read_binary(&mut self, header: &'a [u8]) -> Result<(), FrameError> {
        self.serialize = SerializeType::Binary;
        let mut reader = Reader { rest: header };
        self.code = i32::from(i16::from_be_bytes(reader.array("code")?));
        let [language] = reader.array("language")?;
        self.language = LanguageCode::from_code(language);
        self.version = i32::from(i16::from_be_bytes(reader.array("version")?));
        self.opaque = i32::from_be_bytes(reader.array("opaque")?);
        self.flag = i32::from_be_bytes(reader.array("flag")?);
        let remark = reader.counted("remark")?;
        if !remark.is_empty() {
            self.remark = Some(Cow::Borrowed(utf8("remark", remark)?));
        }
        let mut pairs = Reader { rest: reader.counted("extFields")? };
        while !pairs.rest.is_empty() {
            let name_len = i16::from_be_bytes(pairs.array("the length of a field name")?);
            let name = pairs.take_signed("a field name", i32::from(name_len))?;
            let value = pairs.counted("a field value")?;
            let plain = |raw| Text { raw, escaped: false };
            let name = plain(utf8("a field name", name)?);
            let value = plain(utf8("a field value", value)?);
            if !self.ext.push(name, value) {
                return Err(FrameError::TooManyExtFields);
            }
        }
        // What follows is ignored, as Java's decoder does.
        Ok(())
    }

    /// Whether this is the answer to a request.
    pub fn is_response(&self) -> bool {
        self.flag & FLAG_RESPONSE != 0
    }

    /// Whether the sender wants no answer.
    pub fn is_oneway(&self) -> bool {
        self.flag & FLAG_ONEWAY != 0
    }

    /// The code of a request.
    pub fn request_code(&self) -> RequestCode {
        RequestCode(self.code)
    }

    /// The code of a response.
    pub fn response_code(&self) -> ResponseCode {
        ResponseCode(self.code)
    }

    /// The extension fields as a typed header.
    ///
    /// # Errors
    ///
    /// A mandatory field is missing, or a value cannot be what its field wants.
    pub fn header<H: Header<'a>>(&self) -> Result<H, HeaderError> {
        H::decode(&self.ext)
    }

    /// What an answer needs to know of this request.
    pub fn ticket(&self) -> Ticket {
        Ticket {
            opaque: self.opaque,
            code: self.code,
            serialize: self.serialize,
            oneway: self.is_oneway(),
            version: self.version,
        }
    }

    /// The fixed fields.
    pub fn head(&self) -> Head {
        Head {
            code: self.code,
            language: self.language,
            version: self.version,
            opaque: self.opaque,
            flag: self.flag,
        }
    }

    /// Where the body is in the bytes this frame was decoded from.
    pub fn body_range(&self) -> Range<usize> {
        self.body_start..self.body_start + self.body.len()
    }
}

/// A fixed integer field; `None` for `null`.
fn int(scanner: &mut Scanner<'_>, field: &'static str) -> Result<Option<i32>, FrameError> {
    let text = match scanner.scalar()? {
        Scalar::Bare(bare) => bare,
        Scalar::Text(text) => text.raw,
        Scalar::Null => return Ok(None),
    };
    let invalid = || FrameError::Field {
        field,
        value: text.chars().take(32).collect(),
        expected: "a 32-bit integer",
    };
    text.parse().map(Some).map_err(|_| invalid())
}

fn utf8<'a>(field: &'static str, bytes: &'a [u8]) -> Result<&'a str, FrameError> {
    std::str::from_utf8(bytes).map_err(|_| FrameError::Utf8 { field })
}

/// Reads fields from the front of a slice.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, field: &'static str, bytes: usize) -> Result<&'a [u8], FrameError> {
        let left = self.rest.len();
        let split = self.rest.split_at_checked(bytes);
        let (taken, rest) = split.ok_or(FrameError::Truncated { field, need: bytes, left })?;
        self.rest = rest;
        Ok(taken)
    }

    fn take_signed(&mut self, field: &'static str, length: i32) -> Result<&'a [u8], FrameError> {
        let bytes = usize::try_from(length);
        self.take(field, bytes.map_err(|_| FrameError::Negative { field, length })?)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], FrameError> {
        let left = self.rest.len();
        let split = self.rest.split_first_chunk::<N>();
        let (taken, rest) = split.ok_or(FrameError::Truncated { field, need: N, left })?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Bytes behind their length as an int.
    fn counted(&mut self, field: &'static str) -> Result<&'a [u8], FrameError> {
        let length = i32::from_be_bytes(self.array(field)?);
        self.take_signed(field, length)
    }
}

/// Appends a whole frame up to its body. `body_len` bytes of body are counted in the length word;
/// the caller appends them.
///
/// The binary encoding holds a code in 16 bits; a frame whose code needs more is written in JSON,
/// which every peer reads. The caller keeps header and body within what its peer accepts
/// ([`MAX_FRAME_BYTES`]).
pub fn encode_head(
    out: &mut BytesMut,
    serialize: SerializeType,
    head: Head,
    remark: Option<&str>,
    ext: &dyn ExtSource,
    body_len: usize,
) {
    let start = out.len();
    out.put_bytes(0, LENGTH_BYTES + HEADER_WORD_BYTES);
    let code_in_16_bits = i16::try_from(head.code);
    let type_byte = match (serialize, code_in_16_bits) {
        (SerializeType::Binary, Ok(code)) => {
            write_binary(out, code, head, remark, ext);
            1
        }
        _ => {
            write_json(out, head, remark, ext);
            0
        }
    };
    let header_len = out.len() - start - LENGTH_BYTES - HEADER_WORD_BYTES;
    let length = HEADER_WORD_BYTES + header_len + body_len;
    debug_assert!(header_len <= HEADER_LENGTH_MASK as usize && length <= i32::MAX as usize);
    let header_word = (header_len as u32 & HEADER_LENGTH_MASK) | (type_byte << 24);
    out[start..start + 4].copy_from_slice(&(length as u32).to_be_bytes());
    out[start + 4..start + 8].copy_from_slice(&header_word.to_be_bytes());
}

/// Appends a whole frame; see [`encode_head`].
pub fn encode(
    out: &mut BytesMut,
    serialize: SerializeType,
    head: Head,
    remark: Option<&str>,
    ext: &dyn ExtSource,
    body: &[u8],
) {
    encode_head(out, serialize, head, remark, ext, body.len());
    out.put_slice(body);
}

/// Keys in alphabetical order, absent when null, as fastjson writes them.
fn write_json(out: &mut BytesMut, head: Head, remark: Option<&str>, ext: &dyn ExtSource) {
    out.put_slice(b"{\"code\":");
    put_decimal(out, i64::from(head.code));
    out.put_u8(b',');
    let mut fields = JsonExtWriter::new(out);
    ext.write_ext(&mut fields);
    fields.finish();
    out.put_slice(b"\"flag\":");
    put_decimal(out, i64::from(head.flag));
    out.put_slice(b",\"language\":\"");
    out.put_slice(head.language.name().as_bytes());
    out.put_slice(b"\",\"opaque\":");
    put_decimal(out, i64::from(head.opaque));
    if let Some(remark) = remark {
        out.put_slice(b",\"remark\":");
        put_json_string(out, remark);
    }
    out.put_slice(b",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":");
    put_decimal(out, i64::from(head.version));
    out.put_u8(b'}');
}

fn write_binary(
    out: &mut BytesMut,
    code: i16,
    head: Head,
    remark: Option<&str>,
    ext: &dyn ExtSource,
) {
    out.put_i16(code);
    out.put_u8(head.language.code());
    // Java casts likewise; versions are below 1000.
    out.put_i16(head.version as i16);
    out.put_i32(head.opaque);
    out.put_i32(head.flag);
    let remark = remark.unwrap_or_default();
    out.put_i32(remark.len() as i32);
    out.put_slice(remark.as_bytes());
    let len_at = out.len();
    out.put_i32(0);
    ext.write_ext(&mut BinaryExtWriter { out });
    let len = (out.len() - len_at - 4) as i32;
    out[len_at..len_at + 4].copy_from_slice(&len.to_be_bytes());
}
