//! The body of a SEND_BATCH_MESSAGE request: messages without topic, back to back.
//!
//! Layout of one (RocketMQ's `MessageDecoder.encodeMessage`): total size 4, magic 4 (zero),
//! body CRC 4 (zero, the broker computes its own), flag 4, body length 4, body, properties
//! length 2, properties.

use bytes::BufMut;

use super::properties::PROPERTIES_BYTES_MAX;

/// Bytes of a message in a batch besides its body and its properties.
pub const FIXED_BYTES: usize = 4 + 4 + 4 + 4 + 4 + 2;

/// One message of a batch body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchMessage<'a> {
    /// The producer's own flag.
    pub flag: i32,
    /// The body, as the client sent it.
    pub body: &'a [u8],
    /// The property block of this message alone.
    pub properties: &'a [u8],
}

/// Why a batch body cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The bytes end inside a message.
    #[error("batch body ends inside the message at byte {at}")]
    Truncated {
        /// Where the message begins.
        at: usize,
    },
    /// The total size of a message does not match its parts.
    #[error("message at byte {at} of the batch body says {said} bytes, its parts are {actual}")]
    Size {
        /// Where the message begins.
        at: usize,
        /// Its total-size word.
        said: i32,
        /// What its parts add up to.
        actual: usize,
    },
    /// A length inside a message is negative.
    #[error("message at byte {at} of the batch body has length {value} for its {field}")]
    Length {
        /// Where the message begins.
        at: usize,
        /// Which length.
        field: &'static str,
        /// Its value.
        value: i64,
    },
}

/// Iterates over the messages of a batch body; after an error it ends.
pub fn iter(body: &[u8]) -> Iter<'_> {
    Iter { body, at: 0 }
}

/// The messages of a batch body. See [`iter`].
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Result<BatchMessage<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.body.len() {
            return None;
        }
        match decode(self.body, self.at) {
            Ok((message, size)) => {
                self.at += size;
                Some(Ok(message))
            }
            Err(error) => {
                self.at = self.body.len();
                Some(Err(error))
            }
        }
    }
}

fn decode(body: &[u8], at: usize) -> Result<(BatchMessage<'_>, usize), BatchError> {
    let truncated = BatchError::Truncated { at };
    let mut rest = &body[at..];
    let said = take_i32(&mut rest).ok_or(truncated)?;
    let _magic = take_i32(&mut rest).ok_or(truncated)?;
    let _body_crc = take_i32(&mut rest).ok_or(truncated)?;
    let flag = take_i32(&mut rest).ok_or(truncated)?;
    let body_len = take_i32(&mut rest).ok_or(truncated)?;
    let body_len = usize::try_from(body_len).map_err(|_| BatchError::Length {
        at,
        field: "body",
        value: i64::from(body_len),
    })?;
    let (message_body, after) = rest.split_at_checked(body_len).ok_or(truncated)?;
    rest = after;
    let properties_len = take_i16(&mut rest).ok_or(truncated)?;
    let properties_len = usize::try_from(properties_len).map_err(|_| BatchError::Length {
        at,
        field: "properties",
        value: i64::from(properties_len),
    })?;
    let (properties, _) = rest.split_at_checked(properties_len).ok_or(truncated)?;
    let actual = FIXED_BYTES + body_len + properties_len;
    if usize::try_from(said) != Ok(actual) {
        return Err(BatchError::Size { at, said, actual });
    }
    Ok((BatchMessage { flag, body: message_body, properties }, actual))
}

fn take_i32(rest: &mut &[u8]) -> Option<i32> {
    let (bytes, after) = rest.split_first_chunk::<4>()?;
    *rest = after;
    Some(i32::from_be_bytes(*bytes))
}

fn take_i16(rest: &mut &[u8]) -> Option<i16> {
    let (bytes, after) = rest.split_first_chunk::<2>()?;
    *rest = after;
    Some(i16::from_be_bytes(*bytes))
}

/// Why a message does not fit in a batch body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeBatchError {
    /// The property block is longer than its length field can say.
    #[error("properties are {bytes} bytes, at most {PROPERTIES_BYTES_MAX} are allowed")]
    Properties {
        /// Its length.
        bytes: usize,
    },
    /// The message is longer than its length field can say.
    #[error("message is {bytes} bytes, at most {} are allowed", i32::MAX)]
    Message {
        /// Its length.
        bytes: usize,
    },
}

/// Appends one message to a batch body.
///
/// # Errors
/// When a length does not fit its field; nothing is written then.
pub fn encode(out: &mut impl BufMut, message: &BatchMessage<'_>) -> Result<(), EncodeBatchError> {
    let properties_len = i16::try_from(message.properties.len())
        .map_err(|_| EncodeBatchError::Properties { bytes: message.properties.len() })?;
    let bytes = FIXED_BYTES + message.body.len() + message.properties.len();
    let total = i32::try_from(bytes).map_err(|_| EncodeBatchError::Message { bytes })?;
    out.put_i32(total);
    out.put_i32(0);
    out.put_i32(0);
    out.put_i32(message.flag);
    out.put_u32(message.body.len() as u32);
    out.put_slice(message.body);
    out.put_i16(properties_len);
    out.put_slice(message.properties);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn wrong_sizes_are_named() {
        let mut body = Vec::new();
        encode(&mut body, &BatchMessage { flag: 1, body: b"one", properties: b"" }).unwrap();
        let whole = body.len();
        encode(&mut body, &BatchMessage { flag: 2, body: b"two", properties: b"a\x01b" }).unwrap();
        body[whole + 3] += 1;
        let read: Vec<_> = iter(&body).collect();
        assert_eq!(read[0], Ok(BatchMessage { flag: 1, body: b"one", properties: b"" }));
        assert_eq!(read[1], Err(BatchError::Size { at: whole, said: 29, actual: 28 }));
        assert_eq!(read.len(), 2);

        body.truncate(whole + 10);
        assert_eq!(iter(&body).last(), Some(Err(BatchError::Truncated { at: whole })));
        body.truncate(whole);
        body[16..20].copy_from_slice(&(-1i32).to_be_bytes());
        assert_eq!(
            iter(&body).last(),
            Some(Err(BatchError::Length { at: 0, field: "body", value: -1 }))
        );
    }

    #[test]
    fn too_long_properties_are_refused() {
        let properties = vec![b'x'; PROPERTIES_BYTES_MAX + 1];
        let mut out = Vec::new();
        let message = BatchMessage { flag: 0, body: b"", properties: &properties };
        assert_eq!(
            encode(&mut out, &message),
            Err(EncodeBatchError::Properties { bytes: PROPERTIES_BYTES_MAX + 1 })
        );
        assert!(out.is_empty());
    }

    proptest! {
        #[test]
        fn identity(messages in prop::collection::vec(
            (any::<i32>(), prop::collection::vec(any::<u8>(), 0..50),
             prop::collection::vec(any::<u8>(), 0..50)), 0..10)) {
            let mut body = Vec::new();
            for (flag, bytes, properties) in &messages {
                encode(&mut body, &BatchMessage { flag: *flag, body: bytes, properties }).unwrap();
            }
            let read: Result<Vec<_>, _> = iter(&body).collect();
            let read: Vec<_> = read.unwrap().into_iter()
                .map(|m| (m.flag, m.body.to_vec(), m.properties.to_vec())).collect();
            prop_assert_eq!(read, messages);
        }

        #[test]
        fn arbitrary_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(iter(&bytes).count() <= bytes.len() / FIXED_BYTES + 1);
        }
    }
}
