//! Message ids: the broker's offset id and the client's unique key.
//!
//! The offset id (`MessageDecoder.createMessageId`) says where a message lies: store host, port
//! and physical offset, in upper-case hex: 32 characters for an IPv4 host, 56 for IPv6. The unique
//! key (`MessageClientIDSetter.createUniqID`) has the same lengths, is made by the producer and is
//! opaque to everyone else.

use std::fmt::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};

/// Characters of an id whose host is IPv4.
pub const ID_CHARS_V4: usize = 32;
/// Characters of an id whose host is IPv6.
pub const ID_CHARS_V6: usize = 56;

/// Where a message lies: the id that a broker gives to what it stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OffsetMessageId {
    /// The broker's address as written into the record.
    pub store_host: SocketAddr,
    /// Place of the record in the CommitLog, in bytes.
    pub physical_offset: i64,
}

/// Why a text is not an offset message id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageIdError {
    /// Neither 32 nor 56 characters.
    #[error("message id has {0} characters, 32 (IPv4) or 56 (IPv6) are expected")]
    Length(usize),
    /// A character is no hexadecimal digit.
    #[error("message id has a character at place {0} that is no hexadecimal digit")]
    Digit(usize),
    /// The port is not between 0 and 65535.
    #[error("message id holds port {0}, a port is 0 to 65535")]
    Port(i32),
}

impl OffsetMessageId {
    /// Reads an id, in either case of letters.
    ///
    /// # Errors
    /// When the length, a digit or the port is wrong.
    pub fn decode(text: &str) -> Result<OffsetMessageId, MessageIdError> {
        let ip_bytes = match text.len() {
            ID_CHARS_V4 => 4,
            ID_CHARS_V6 => 16,
            other => return Err(MessageIdError::Length(other)),
        };
        let mut bytes = [0u8; ID_CHARS_V6 / 2];
        for (place, digit) in text.bytes().enumerate() {
            let value = char::from(digit).to_digit(16).ok_or(MessageIdError::Digit(place))? as u8;
            bytes[place / 2] = bytes[place / 2] << 4 | value;
        }
        let mut ip = [0u8; 16];
        ip[..ip_bytes].copy_from_slice(&bytes[..ip_bytes]);
        let ip = if ip_bytes == 4 {
            IpAddr::V4(Ipv4Addr::new(ip[0], ip[1], ip[2], ip[3]))
        } else {
            IpAddr::V6(Ipv6Addr::from(ip))
        };
        let mut port = [0u8; 4];
        port.copy_from_slice(&bytes[ip_bytes..ip_bytes + 4]);
        let port = i32::from_be_bytes(port);
        let port = u16::try_from(port).map_err(|_| MessageIdError::Port(port))?;
        let mut offset = [0u8; 8];
        offset.copy_from_slice(&bytes[ip_bytes + 4..ip_bytes + 12]);
        Ok(OffsetMessageId {
            store_host: SocketAddr::new(ip, port),
            physical_offset: i64::from_be_bytes(offset),
        })
    }
}

impl fmt::Display for OffsetMessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0u8; ID_CHARS_V6];
        let mut len = 0;
        let mut put = |bytes: &[u8]| {
            const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
            for byte in bytes {
                text[len] = DIGITS[usize::from(byte >> 4)];
                text[len + 1] = DIGITS[usize::from(byte & 15)];
                len += 2;
            }
        };
        match self.store_host.ip() {
            IpAddr::V4(ip) => put(&ip.octets()),
            IpAddr::V6(ip) => put(&ip.octets()),
        }
        put(&u32::from(self.store_host.port()).to_be_bytes());
        put(&self.physical_offset.to_be_bytes());
        f.write_str(std::str::from_utf8(&text[..len]).map_err(|_| fmt::Error)?)
    }
}

/// Makes unique keys for messages that this process sends.
///
/// Layout: IP 4 or 16, low 16 bits of the process id, a 32-bit number of the maker (RocketMQ uses
/// its class loader's hash), milliseconds since the month began (32 bits), counter (16 bits).
#[derive(Debug)]
pub struct UniqueKeyMaker {
    prefix: String,
    counter: AtomicU32,
}

impl UniqueKeyMaker {
    /// A maker for the process `pid` at `ip`; `salt` tells apart makers of one process.
    pub fn new(ip: IpAddr, pid: u32, salt: u32) -> UniqueKeyMaker {
        let mut prefix = String::with_capacity(44);
        let octets: &[u8] = match &ip {
            IpAddr::V4(ip) => &ip.octets(),
            IpAddr::V6(ip) => &ip.octets(),
        };
        for octet in octets {
            let _ = write!(prefix, "{octet:02X}");
        }
        let _ = write!(prefix, "{:04X}{salt:08X}", pid & 0xFFFF);
        UniqueKeyMaker { prefix, counter: AtomicU32::new(0) }
    }

    /// The next key; `now_ms` is the time since the epoch.
    pub fn next(&self, now_ms: i64) -> String {
        let since_month_ms = (now_ms - month_start_ms(now_ms)) as u32;
        let count = self.counter.fetch_add(1, Ordering::Relaxed) & 0xFFFF;
        let mut key = String::with_capacity(self.prefix.len() + 12);
        key.push_str(&self.prefix);
        let _ = write!(key, "{since_month_ms:08X}{count:04X}");
        key
    }
}

/// The UTC start of the month that holds `now_ms`. RocketMQ takes the local month; only the
/// difference enters the key, so keys of both stay apart from each other all the same.
fn month_start_ms(now_ms: i64) -> i64 {
    const DAY_MS: i64 = 86_400_000;
    let days = now_ms.div_euclid(DAY_MS);
    // Day of the month from days since the epoch, by eras of 400 years that begin on 1 March.
    let day_of_era = (days + 719_468).rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5;
    (days - day_of_month) * DAY_MS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn java_ids_decode() {
        let id = OffsetMessageId::decode("7F00000100002B670000000000000123").unwrap();
        assert_eq!(id.store_host, "127.0.0.1:11111".parse().unwrap());
        assert_eq!(id.physical_offset, 0x123);
        assert_eq!(id.to_string(), "7F00000100002B670000000000000123");
    }

    #[test]
    fn wrong_ids_are_named() {
        assert_eq!(OffsetMessageId::decode("7F"), Err(MessageIdError::Length(2)));
        let port = OffsetMessageId::decode("7F00000100012B670000000000000123");
        assert_eq!(port, Err(MessageIdError::Port(0x12B67)));
        let digit = OffsetMessageId::decode("7F00000100002B6700000000000001ZZ");
        assert_eq!(digit, Err(MessageIdError::Digit(30)));
        // 32 bytes that are not 32 characters.
        assert!(OffsetMessageId::decode("ééééééééééééééééé".get(..32).unwrap()).is_err());
    }

    #[test]
    fn months_begin_on_their_first_day() {
        // 2024-02-29T12:00:00Z, 2024-03-01T00:00:00Z, 1970-01-01, 2026-11-30T23:59:59.999Z
        assert_eq!(month_start_ms(1_709_208_000_000), 1_706_745_600_000);
        assert_eq!(month_start_ms(1_709_251_200_000), 1_709_251_200_000);
        assert_eq!(month_start_ms(5), 0);
        assert_eq!(month_start_ms(1_796_083_199_999), 1_793_491_200_000);
    }

    #[test]
    fn unique_keys_differ_and_have_javas_length() {
        let maker = UniqueKeyMaker::new("10.0.0.1".parse().unwrap(), 70_000, 7);
        let first = maker.next(1_709_208_000_000);
        let second = maker.next(1_709_208_000_000);
        assert_eq!(first.len(), ID_CHARS_V4);
        assert_eq!(&first[..20], "0A000001117000000007");
        assert_ne!(first, second);
        let maker = UniqueKeyMaker::new("::1".parse().unwrap(), 1, 1);
        assert_eq!(maker.next(0).len(), ID_CHARS_V6);
    }

    proptest! {
        #[test]
        fn identity(v6 in any::<bool>(), ip in any::<u128>(), port in any::<u16>(),
                    physical_offset in any::<i64>()) {
            let ip = if v6 { IpAddr::V6(ip.into()) } else { IpAddr::V4((ip as u32).into()) };
            let id = OffsetMessageId { store_host: SocketAddr::new(ip, port), physical_offset };
            prop_assert_eq!(OffsetMessageId::decode(&id.to_string()).unwrap(), id);
        }

        #[test]
        fn arbitrary_text_never_panics(text in ".{0,60}") {
            let _ = OffsetMessageId::decode(&text);
        }
    }
}
