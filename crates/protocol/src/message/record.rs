//! One message as it lies in the CommitLog and travels in answers to pulls.
//!
//! Owns the layout of the record and of the blank that closes a file; see `docs/storage-format.md`
//! and RocketMQ's `MessageDecoder` and `MessageExtEncoder`. Placing records and verifying their
//! order is the store's business.
//!
//! Longer than most files: the layout, what writes it and what reads it stand side by side, so that
//! a change of one is seen against the others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::BufMut;

use super::properties;

/// Magic of a record whose topic length takes one byte.
pub const MAGIC_V1: u32 = 0xDAA3_20A7;
/// Magic of a record whose topic length takes two bytes (RocketMQ 5).
pub const MAGIC_V2: u32 = 0xDAA3_20AB;
/// Magic of the blank that fills the end of a CommitLog file.
pub const MAGIC_BLANK: u32 = 0xCBD4_3194;
/// Smallest blank: its length word and its magic.
pub const BLANK_BYTES_MIN: usize = 8;
/// Longest topic of a V1 record; its length is a signed byte.
pub const TOPIC_BYTES_MAX_V1: usize = 127;
/// Longest topic of a V2 record; its length is a signed 16-bit integer.
pub const TOPIC_BYTES_MAX_V2: usize = 32_767;
/// A V1 record with IPv4 hosts, besides body, topic and properties.
pub const FIXED_BYTES_V1: usize = 91;
/// What is in front of the body, with two IPv6 hosts.
const HEAD_BYTES_MAX: usize = 112;

/// Where the leading fields of a record begin. Behind [`place::BORN_HOST`] the places shift by 12
/// for each IPv6 host.
pub mod place {
    #![allow(missing_docs, reason = "the names are those of the fields")]

    pub const TOTAL_SIZE: usize = 0;
    pub const MAGIC: usize = 4;
    pub const BODY_CRC: usize = 8;
    pub const QUEUE_ID: usize = 12;
    pub const FLAG: usize = 16;
    pub const QUEUE_OFFSET: usize = 20;
    pub const PHYSICAL_OFFSET: usize = 28;
    pub const SYS_FLAG: usize = 36;
    pub const BORN_TIMESTAMP: usize = 40;
    pub const BORN_HOST: usize = 48;
    pub const STORE_TIMESTAMP_V4: usize = 56;
    pub const STORE_TIMESTAMP_V6: usize = 68;
}

/// Bits of a record's system flag (RocketMQ's `MessageSysFlag`).
pub mod sys_flag {
    /// The body is compressed, by the method in [`COMPRESSION_MASK`].
    pub const COMPRESSED: i32 = 0x1;
    /// The message carries several tags.
    pub const MULTI_TAGS: i32 = 0x2;
    /// Mask of the transaction state.
    pub const TRANSACTION_MASK: i32 = 0xC;
    /// A half message.
    pub const TRANSACTION_PREPARED: i32 = 0x4;
    /// A committed transaction's message.
    pub const TRANSACTION_COMMIT: i32 = 0x8;
    /// A rolled back transaction's mark.
    pub const TRANSACTION_ROLLBACK: i32 = 0xC;
    /// The born host is an IPv6 address.
    pub const BORN_HOST_V6: i32 = 0x10;
    /// The store host is an IPv6 address.
    pub const STORE_HOST_V6: i32 = 0x20;
    /// The client must unwrap the inner batch.
    pub const NEED_UNWRAP: i32 = 0x40;
    /// The record is an inner batch.
    pub const INNER_BATCH: i32 = 0x80;
    /// Mask of the compression method.
    pub const COMPRESSION_MASK: i32 = 0x700;
    /// LZ4 frames.
    pub const COMPRESSION_LZ4: i32 = 0x100;
    /// ZSTD frames.
    pub const COMPRESSION_ZSTD: i32 = 0x200;
    /// ZLIB; 0 means ZLIB too, from older clients.
    pub const COMPRESSION_ZLIB: i32 = 0x300;

    /// Whether a record with these bits takes no place in a ConsumeQueue: half messages and
    /// rollback marks.
    pub fn is_outside_queues(sys_flag: i32) -> bool {
        let state = sys_flag & TRANSACTION_MASK;
        state == TRANSACTION_PREPARED || state == TRANSACTION_ROLLBACK
    }
}

/// The CRC of a body as records keep it: CRC-32 without its top bit.
pub fn body_crc(body: &[u8]) -> u32 {
    crc32fast::hash(body) & 0x7FFF_FFFF
}

/// What a producer and the broker say of a message before it has a place in the log.
#[derive(Clone, Copy, Debug)]
pub struct NewMessage<'a> {
    /// Topic; more than 127 bytes make a V2 record.
    pub topic: &'a str,
    /// Queue within the topic.
    pub queue_id: i32,
    /// The producer's own flag.
    pub flag: i32,
    /// System flag. The two host bits are set by the encoder from the hosts given.
    pub sys_flag: i32,
    /// When the producer made it, in ms since the epoch.
    pub born_timestamp_ms: i64,
    /// The producer's address. An IPv4-mapped IPv6 address is written as IPv4.
    pub born_host: SocketAddr,
    /// The broker's address.
    pub store_host: SocketAddr,
    /// How often consumers have handed it back.
    pub reconsume_times: i32,
    /// For a committed transaction: where its half message lies; else 0.
    pub prepared_transaction_offset: i64,
    /// The body as received, compressed or not.
    pub body: &'a [u8],
    /// The property block in pieces; between two pieces a separator is put where one is missing.
    pub properties: &'a [&'a [u8]],
}

/// The three fields of a record that only the append lock can assign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Index in the ConsumeQueue; 0 for records outside of queues.
    pub queue_offset: i64,
    /// Byte in the CommitLog.
    pub physical_offset: i64,
    /// When it was appended, in ms since the epoch.
    pub store_timestamp_ms: i64,
}

/// A length that no record can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {bytes} bytes, at most {max} are allowed")]
pub struct TooLong {
    /// Which part.
    pub field: &'static str,
    /// Its length.
    pub bytes: usize,
    /// What its length field can say.
    pub max: usize,
}

/// Appends `message` as a record and returns its size in bytes.
///
/// # Errors
/// When topic, properties or the whole cannot be said in their length fields; nothing is written
/// then.
pub fn encode_record(
    out: &mut impl BufMut,
    message: &NewMessage<'_>,
    placement: Placement,
) -> Result<usize, TooLong> {
    let topic = message.topic.as_bytes();
    if topic.len() > TOPIC_BYTES_MAX_V2 {
        return Err(TooLong { field: "topic", bytes: topic.len(), max: TOPIC_BYTES_MAX_V2 });
    }
    let properties_len = properties::joined_len(message.properties);
    if properties_len > properties::PROPERTIES_BYTES_MAX {
        return Err(TooLong {
            field: "properties",
            bytes: properties_len,
            max: properties::PROPERTIES_BYTES_MAX,
        });
    }
    let born_ip = message.born_host.ip().to_canonical();
    let store_ip = message.store_host.ip().to_canonical();
    let mut sys_flag = message.sys_flag & !(sys_flag::BORN_HOST_V6 | sys_flag::STORE_HOST_V6);
    let mut size = FIXED_BYTES_V1 + message.body.len() + topic.len() + properties_len;
    if born_ip.is_ipv6() {
        sys_flag |= sys_flag::BORN_HOST_V6;
        size += 12;
    }
    if store_ip.is_ipv6() {
        sys_flag |= sys_flag::STORE_HOST_V6;
        size += 12;
    }
    let v2 = topic.len() > TOPIC_BYTES_MAX_V1;
    size += usize::from(v2);
    let Ok(total) = i32::try_from(size) else {
        return Err(TooLong { field: "record", bytes: size, max: i32::MAX as usize });
    };

    // Put together aside: one copy into `out` costs less than sixteen.
    let mut head = [0; HEAD_BYTES_MAX];
    let mut rest = &mut head[..];
    rest.put_i32(total);
    rest.put_u32(if v2 { MAGIC_V2 } else { MAGIC_V1 });
    rest.put_u32(body_crc(message.body));
    rest.put_i32(message.queue_id);
    rest.put_i32(message.flag);
    rest.put_i64(placement.queue_offset);
    rest.put_i64(placement.physical_offset);
    rest.put_i32(sys_flag);
    rest.put_i64(message.born_timestamp_ms);
    put_host(&mut rest, born_ip, message.born_host.port());
    rest.put_i64(placement.store_timestamp_ms);
    put_host(&mut rest, store_ip, message.store_host.port());
    rest.put_i32(message.reconsume_times);
    rest.put_i64(message.prepared_transaction_offset);
    rest.put_u32(message.body.len() as u32);
    let head_bytes = HEAD_BYTES_MAX - rest.len();
    out.put_slice(&head[..head_bytes]);
    out.put_slice(message.body);
    if v2 {
        out.put_u16(topic.len() as u16);
    } else {
        out.put_u8(topic.len() as u8);
    }
    out.put_slice(topic);
    out.put_u16(properties_len as u16);
    properties::for_each_piece(message.properties, |piece| out.put_slice(piece));
    Ok(size)
}

fn put_host(out: &mut impl BufMut, ip: IpAddr, port: u16) {
    match ip {
        IpAddr::V4(ip) => out.put_slice(&ip.octets()),
        IpAddr::V6(ip) => out.put_slice(&ip.octets()),
    }
    out.put_u32(u32::from(port));
}

/// Writes the placement into an encoded record. Returns false, and changes nothing, if `record` is
/// too short to be one.
pub fn set_placement(record: &mut [u8], placement: Placement) -> bool {
    let Some(flag) = read_i32(record, place::SYS_FLAG) else { return false };
    let store_timestamp = if flag & sys_flag::BORN_HOST_V6 == 0 {
        place::STORE_TIMESTAMP_V4
    } else {
        place::STORE_TIMESTAMP_V6
    };
    if record.len() < store_timestamp + 8 {
        return false;
    }
    let mut put = |at: usize, value: i64| {
        record[at..at + 8].copy_from_slice(&value.to_be_bytes());
    };
    put(place::QUEUE_OFFSET, placement.queue_offset);
    put(place::PHYSICAL_OFFSET, placement.physical_offset);
    put(store_timestamp, placement.store_timestamp_ms);
    true
}

/// The eight bytes that close a file with `bytes_left` bytes behind its last record.
pub fn blank(bytes_left: u32) -> [u8; BLANK_BYTES_MIN] {
    let mut bytes = [0; BLANK_BYTES_MIN];
    bytes[..4].copy_from_slice(&bytes_left.to_be_bytes());
    bytes[4..].copy_from_slice(&MAGIC_BLANK.to_be_bytes());
    bytes
}

/// A record, read in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageRecord<'a> {
    /// Bytes of the whole record.
    pub size: usize,
    /// [`MAGIC_V1`] or [`MAGIC_V2`].
    pub magic: u32,
    /// The stored CRC of the body; see [`MessageRecord::body_matches_crc`].
    pub body_crc: u32,
    /// Queue within the topic.
    pub queue_id: i32,
    /// The producer's own flag.
    pub flag: i32,
    /// Index in the ConsumeQueue.
    pub queue_offset: i64,
    /// Byte in the CommitLog.
    pub physical_offset: i64,
    /// See [`sys_flag`].
    pub sys_flag: i32,
    /// When the producer made it, in ms since the epoch.
    pub born_timestamp_ms: i64,
    /// The producer's address.
    pub born_host: SocketAddr,
    /// When it was appended, in ms since the epoch.
    pub store_timestamp_ms: i64,
    /// The broker's address.
    pub store_host: SocketAddr,
    /// How often consumers have handed it back.
    pub reconsume_times: i32,
    /// Where the half message of a committed transaction lies, else 0.
    pub prepared_transaction_offset: i64,
    /// The body as stored.
    pub body: &'a [u8],
    /// The topic.
    pub topic: &'a str,
    /// The property block; see [`properties`].
    pub properties: &'a [u8],
}

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Fewer bytes than the record needs.
    #[error("record needs {needed} bytes, there are {available}")]
    Truncated {
        /// What it would take, as far as known.
        needed: usize,
        /// What there is.
        available: usize,
    },
    /// The magic is none of a record.
    #[error("magic {0:#010x} is none of a record")]
    Magic(u32),
    /// A length or a port has an impossible value.
    #[error("{field} of a record is {value}")]
    Value {
        /// Which field.
        field: &'static str,
        /// What it says.
        value: i64,
    },
    /// The parts do not add up to the total size.
    #[error("record says {said} bytes, its parts are {actual}")]
    Size {
        /// The total-size word.
        said: usize,
        /// The sum of the parts.
        actual: usize,
    },
    /// The topic is not UTF-8.
    #[error("topic of a record is not UTF-8")]
    Topic,
}

impl<'a> MessageRecord<'a> {
    /// Reads the record at the beginning of `bytes`, which may go on behind it.
    ///
    /// Verifies every length, but not the CRC.
    ///
    /// # Errors
    /// When the bytes are not one whole record.
    pub fn decode(bytes: &'a [u8]) -> Result<MessageRecord<'a>, RecordError> {
        let mut reader = Reader { bytes, at: 0 };
        let said = reader.i32()?;
        let magic = reader.u32()?;
        if magic != MAGIC_V1 && magic != MAGIC_V2 {
            return Err(RecordError::Magic(magic));
        }
        let size = usize::try_from(said)
            .map_err(|_| RecordError::Value { field: "total size", value: i64::from(said) })?;
        if size > bytes.len() {
            return Err(RecordError::Truncated { needed: size, available: bytes.len() });
        }
        // From here on a part that reaches beyond the record is a mismatch of sizes.
        let mut reader = Reader { bytes: &bytes[..size], at: reader.at };
        let read = |reader: &mut Reader<'a>| -> Result<MessageRecord<'a>, RecordError> {
            let body_crc = reader.u32()?;
            let queue_id = reader.i32()?;
            let flag = reader.i32()?;
            let queue_offset = reader.i64()?;
            let physical_offset = reader.i64()?;
            let sys_flag = reader.i32()?;
            let born_timestamp_ms = reader.i64()?;
            let born_host = reader.host(sys_flag & sys_flag::BORN_HOST_V6 != 0, "born port")?;
            let store_timestamp_ms = reader.i64()?;
            let store_host = reader.host(sys_flag & sys_flag::STORE_HOST_V6 != 0, "store port")?;
            let reconsume_times = reader.i32()?;
            let prepared_transaction_offset = reader.i64()?;
            let body_len = reader.i32()?;
            let body = reader.bytes(i64::from(body_len), "body length")?;
            let topic_len =
                if magic == MAGIC_V1 { i64::from(reader.i8()?) } else { i64::from(reader.i16()?) };
            let topic = reader.bytes(topic_len, "topic length")?;
            let properties_len = reader.i16()?;
            let properties = reader.bytes(i64::from(properties_len), "properties length")?;
            Ok(MessageRecord {
                size,
                magic,
                body_crc,
                queue_id,
                flag,
                queue_offset,
                physical_offset,
                sys_flag,
                born_timestamp_ms,
                born_host,
                store_timestamp_ms,
                store_host,
                reconsume_times,
                prepared_transaction_offset,
                body,
                topic: std::str::from_utf8(topic).map_err(|_| RecordError::Topic)?,
                properties,
            })
        };
        let record = read(&mut reader).map_err(|error| match error {
            RecordError::Truncated { needed, .. } => {
                RecordError::Size { said: size, actual: needed }
            }
            other => other,
        })?;
        if reader.at != size {
            return Err(RecordError::Size { said: size, actual: reader.at });
        }
        Ok(record)
    }

    /// Whether the stored CRC is that of the body.
    pub fn body_matches_crc(&self) -> bool {
        body_crc(self.body) == self.body_crc & 0x7FFF_FFFF
    }

    /// The value of a property; the last one if the name occurs several times.
    pub fn property(&self, name: &str) -> Option<&'a str> {
        properties::find(self.properties, name)
    }
}

/// Iterates over records that lie back to back, as in the body of a pull's answer; after an error
/// it ends.
pub fn iter(bytes: &[u8]) -> Iter<'_> {
    Iter { rest: bytes }
}

/// Records back to back. See [`iter`].
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Iter<'a> {
    type Item = Result<MessageRecord<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let record = MessageRecord::decode(self.rest);
        self.rest = match &record {
            Ok(record) => &self.rest[record.size..],
            Err(_) => &[],
        };
        Some(record)
    }
}

/// What stands at a place of a CommitLog file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogItem<'a> {
    /// A message.
    Record(MessageRecord<'a>),
    /// The rest of the file is unused; go on in the next one.
    Blank,
}

/// Reads what begins at the first of `bytes`, which are the rest of a CommitLog file.
///
/// # Errors
/// When it is neither a whole record nor a blank.
pub fn decode_log_item(bytes: &[u8]) -> Result<LogItem<'_>, RecordError> {
    if let Some(magic) = read_i32(bytes, place::MAGIC)
        && magic as u32 == MAGIC_BLANK
    {
        return Ok(LogItem::Blank);
    }
    MessageRecord::decode(bytes).map(LogItem::Record)
}

fn read_i32(bytes: &[u8], at: usize) -> Option<i32> {
    let chunk = bytes.get(at..)?.first_chunk::<4>()?;
    Some(i32::from_be_bytes(*chunk))
}

/// A cursor whose every step is checked against the end.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

// Inlined by force: recovery reads millions of records a second, and calls cost half of that.
impl<'a> Reader<'a> {
    #[inline(always)]
    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let chunk =
            self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<N>()).ok_or(
                RecordError::Truncated { needed: self.at + N, available: self.bytes.len() },
            )?;
        self.at += N;
        Ok(*chunk)
    }

    #[inline(always)]
    fn i8(&mut self) -> Result<i8, RecordError> {
        self.chunk::<1>().map(i8::from_be_bytes)
    }

    #[inline(always)]
    fn i16(&mut self) -> Result<i16, RecordError> {
        self.chunk::<2>().map(i16::from_be_bytes)
    }

    #[inline(always)]
    fn i32(&mut self) -> Result<i32, RecordError> {
        self.chunk::<4>().map(i32::from_be_bytes)
    }

    #[inline(always)]
    fn u32(&mut self) -> Result<u32, RecordError> {
        self.chunk::<4>().map(u32::from_be_bytes)
    }

    #[inline(always)]
    fn i64(&mut self) -> Result<i64, RecordError> {
        self.chunk::<8>().map(i64::from_be_bytes)
    }

    #[inline(always)]
    fn bytes(&mut self, len: i64, field: &'static str) -> Result<&'a [u8], RecordError> {
        let len = usize::try_from(len).map_err(|_| RecordError::Value { field, value: len })?;
        let available = self.bytes.len();
        // A length is at most 2^31 - 1 and the cursor lies within a buffer: no overflow.
        let end = self.at + len;
        let bytes = self
            .bytes
            .get(self.at..end)
            .ok_or(RecordError::Truncated { needed: end, available })?;
        self.at = end;
        Ok(bytes)
    }

    #[inline(always)]
    fn host(&mut self, v6: bool, field: &'static str) -> Result<SocketAddr, RecordError> {
        let ip = if v6 {
            IpAddr::V6(Ipv6Addr::from(self.chunk::<16>()?))
        } else {
            IpAddr::V4(Ipv4Addr::from(self.chunk::<4>()?))
        };
        let port = self.i32()?;
        let port = u16::try_from(port)
            .map_err(|_| RecordError::Value { field, value: i64::from(port) })?;
        Ok(SocketAddr::new(ip, port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message<'a>(properties: &'a [&'a [u8]]) -> NewMessage<'a> {
        NewMessage {
            topic: "Orders",
            queue_id: 3,
            flag: 7,
            sys_flag: 0,
            born_timestamp_ms: 1_700_000_000_000,
            born_host: "10.0.0.9:41722".parse().unwrap(),
            store_host: "127.0.0.1:10911".parse().unwrap(),
            reconsume_times: 2,
            prepared_transaction_offset: 0,
            body: b"hello",
            properties,
        }
    }

    #[test]
    fn fields_lie_where_rocketmq_puts_them() {
        let mut out = Vec::new();
        let placement =
            Placement { queue_offset: 5, physical_offset: 1000, store_timestamp_ms: 99 };
        let size = encode_record(&mut out, &message(&[b"TAGS\x01a\x02"]), placement).unwrap();
        assert_eq!(size, out.len());
        assert_eq!(size, FIXED_BYTES_V1 + 5 + 6 + 7);
        assert_eq!(out[place::TOTAL_SIZE..4], (size as u32).to_be_bytes());
        assert_eq!(out[place::MAGIC..8], MAGIC_V1.to_be_bytes());
        assert_eq!(out[place::BODY_CRC..12], body_crc(b"hello").to_be_bytes());
        assert_eq!(out[place::QUEUE_ID..16], 3i32.to_be_bytes());
        assert_eq!(out[place::FLAG..20], 7i32.to_be_bytes());
        assert_eq!(out[place::QUEUE_OFFSET..28], 5i64.to_be_bytes());
        assert_eq!(out[place::PHYSICAL_OFFSET..36], 1000i64.to_be_bytes());
        assert_eq!(out[place::SYS_FLAG..40], [0; 4]);
        assert_eq!(out[place::BORN_HOST..56], [10, 0, 0, 9, 0, 0, 0xA2, 0xFA]);
        assert_eq!(out[place::STORE_TIMESTAMP_V4..64], 99i64.to_be_bytes());
        assert_eq!(out[72..76], 2i32.to_be_bytes());
        assert_eq!(out[84..88], 5i32.to_be_bytes());
        assert_eq!(&out[88..93], b"hello");
        assert_eq!(out[93], 6);
    }

    #[test]
    fn a_long_topic_makes_a_v2_record() {
        let topic = "t".repeat(200);
        let mut new = message(&[]);
        new.topic = &topic;
        let mut out = Vec::new();
        encode_record(&mut out, &new, Placement::default()).unwrap();
        let record = MessageRecord::decode(&out).unwrap();
        assert_eq!((record.magic, record.topic), (MAGIC_V2, topic.as_str()));
        new.topic = &topic[..127];
        out.clear();
        encode_record(&mut out, &new, Placement::default()).unwrap();
        assert_eq!(MessageRecord::decode(&out).unwrap().magic, MAGIC_V1);
    }

    #[test]
    fn mapped_ipv4_hosts_are_written_as_ipv4() {
        let mut new = message(&[]);
        new.born_host = "[::ffff:10.0.0.9]:1".parse().unwrap();
        new.sys_flag = sys_flag::BORN_HOST_V6 | sys_flag::STORE_HOST_V6;
        let mut out = Vec::new();
        encode_record(&mut out, &new, Placement::default()).unwrap();
        let record = MessageRecord::decode(&out).unwrap();
        assert_eq!(record.sys_flag, 0);
        assert_eq!(record.born_host, "10.0.0.9:1".parse().unwrap());
    }

    #[test]
    fn lengths_beyond_their_fields_are_refused() {
        let block = vec![b'p'; properties::PROPERTIES_BYTES_MAX + 1];
        let mut out = Vec::new();
        let error = encode_record(&mut out, &message(&[&block]), Placement::default());
        assert_eq!(error.unwrap_err().field, "properties");
        let topic = "t".repeat(TOPIC_BYTES_MAX_V2 + 1);
        let new = NewMessage { topic: &topic, ..message(&[]) };
        assert_eq!(encode_record(&mut out, &new, Placement::default()).unwrap_err().field, "topic");
        assert!(out.is_empty());
    }

    #[test]
    fn every_truncation_is_an_error() {
        let mut out = Vec::new();
        encode_record(&mut out, &message(&[b"TAGS\x01a\x02"]), Placement::default()).unwrap();
        for len in 0..out.len() {
            assert!(
                matches!(MessageRecord::decode(&out[..len]), Err(RecordError::Truncated { .. })),
                "{len}"
            );
        }
    }

    #[test]
    fn a_negative_length_is_named() {
        let mut out = Vec::new();
        encode_record(&mut out, &message(&[]), Placement::default()).unwrap();
        let size = out.len();
        let mut bad = out.clone();
        bad[84] = 0xFF;
        assert!(matches!(
            MessageRecord::decode(&bad),
            Err(RecordError::Value { field: "body length", .. })
        ));
        let mut bad = out.clone();
        bad[size - 2] = 0x80;
        assert!(matches!(
            MessageRecord::decode(&bad),
            Err(RecordError::Value { field: "properties length", .. })
        ));
        let mut bad = out;
        bad[0..4].copy_from_slice(&(size as i32 - 1).to_be_bytes());
        assert_eq!(
            MessageRecord::decode(&bad),
            Err(RecordError::Size { said: size - 1, actual: size })
        );
    }

    #[test]
    fn blanks_are_told_from_records() {
        let mut bytes = blank(20).to_vec();
        bytes.extend_from_slice(&[0xAA; 12]);
        assert_eq!(decode_log_item(&bytes), Ok(LogItem::Blank));
        assert_eq!(decode_log_item(&[0; 100]), Err(RecordError::Magic(0)));
        assert!(decode_log_item(&[]).is_err());
    }

    fn host() -> impl Strategy<Value = SocketAddr> {
        (any::<bool>(), any::<u128>(), any::<u16>()).prop_map(|(v6, ip, port)| {
            let ip = if v6 { IpAddr::V6(ip.into()) } else { IpAddr::V4((ip as u32).into()) };
            SocketAddr::new(ip.to_canonical(), port)
        })
    }

    proptest! {
        #[test]
        fn identity(
            topic in "[a-zA-Z%]{1,200}", queue_id in any::<i32>(), flag in any::<i32>(),
            flags in any::<i32>(), times in any::<(i64, i64, i32, i64)>(),
            born_host in host(), store_host in host(),
            body in prop::collection::vec(any::<u8>(), 0..100),
            block in prop::collection::vec(any::<u8>(), 0..100),
            queue_offset in any::<i64>(), physical_offset in any::<i64>(),
        ) {
            let pieces: [&[u8]; 1] = [&block];
            let new = NewMessage {
                topic: &topic, queue_id, flag, sys_flag: flags, born_timestamp_ms: times.0,
                born_host, store_host, reconsume_times: times.2,
                prepared_transaction_offset: times.3, body: &body, properties: &pieces,
            };
            let mut out = vec![0xEE; 3];
            let size = encode_record(&mut out, &new, Placement::default()).unwrap();
            let placement =
                Placement { queue_offset, physical_offset, store_timestamp_ms: times.1 };
            prop_assert!(set_placement(&mut out[3..], placement));
            out.extend_from_slice(b"behind");
            let record = MessageRecord::decode(&out[3..]).unwrap();
            let hosts = sys_flag::BORN_HOST_V6 | sys_flag::STORE_HOST_V6;
            prop_assert_eq!(record.sys_flag & !hosts, flags & !hosts);
            prop_assert!(record.body_matches_crc());
            prop_assert_eq!(record, MessageRecord {
                size, magic: record.magic, body_crc: record.body_crc, queue_id, flag,
                queue_offset, physical_offset, sys_flag: record.sys_flag,
                born_timestamp_ms: times.0, born_host, store_timestamp_ms: times.1, store_host,
                reconsume_times: times.2, prepared_transaction_offset: times.3, body: &body,
                topic: &topic, properties: &block,
            });
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..300),
                                       magic in 0..3usize) {
            if let Some(place) = bytes.get_mut(place::MAGIC..place::MAGIC + 4) {
                let magic = [MAGIC_V1, MAGIC_V2, MAGIC_BLANK][magic];
                place.copy_from_slice(&magic.to_be_bytes());
            }
            let len = bytes.len() as u32;
            if let Some(place) = bytes.get_mut(..4) {
                place.copy_from_slice(&len.to_be_bytes());
            }
            let _ = decode_log_item(&bytes);
            let _ = set_placement(&mut bytes, Placement::default());
            let _ = iter(&bytes).count();
        }

        #[test]
        fn one_changed_byte_never_panics(at in 0..200usize, value in any::<u8>()) {
            let mut out = Vec::new();
            encode_record(&mut out, &message(&[b"TAGS\x01a\x02"]), Placement::default()).unwrap();
            let at = at % out.len();
            out[at] = value;
            if let Ok(record) = MessageRecord::decode(&out) {
                prop_assert_eq!(record.size, out.len());
            }
        }
    }
}
