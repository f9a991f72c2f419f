//! Messages: as an application makes them, and as it receives them.

use std::net::SocketAddr;

use bytes::Bytes;
use rocketmq_protocol::body::MessageQueue;
use rocketmq_protocol::message::id::OffsetMessageId;
use rocketmq_protocol::message::properties::{self, KEY_SEPARATOR, name};
use rocketmq_protocol::message::record::{self, MessageRecord, sys_flag};
use rocketmq_protocol::names;

use crate::compression;
use crate::error::ClientError;

/// Largest body that is sent (maxMessageSize).
pub const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A message to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Where to.
    pub topic: String,
    /// What; at least one byte and at most [`BODY_BYTES_MAX`].
    pub body: Bytes,
    /// The application's own bits.
    pub flag: i32,
    properties: Vec<(String, String)>,
}

impl Message {
    /// A message without tag, keys and properties.
    pub fn new(topic: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { topic: topic.into(), body: body.into(), flag: 0, properties: Vec::new() }
    }

    /// Sets the tag by which consumers filter.
    #[must_use]
    pub fn tag(self, tag: impl Into<String>) -> Self {
        self.set(name::TAGS, tag.into())
    }

    /// Adds a key by which the message can be queried. Keys may not contain blanks.
    #[must_use]
    pub fn key(self, key: impl AsRef<str>) -> Self {
        let keys = match self.property(name::KEYS) {
            Some(keys) => format!("{keys}{KEY_SEPARATOR}{}", key.as_ref()),
            None => key.as_ref().to_owned(),
        };
        self.set(name::KEYS, keys)
    }

    /// Sets a property of the application's own. Its name may not be one that RocketMQ reserves.
    #[must_use]
    pub fn user_property(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.set(&name.into(), value.into())
    }

    /// Delays delivery by one of RocketMQ's levels: 1 is 1 s, 18 is 2 h.
    #[must_use]
    pub fn delay_level(self, level: u32) -> Self {
        self.set(name::DELAY, level.to_string())
    }

    /// Whether the broker answers only when flush and replication are done as configured; it does unless
    /// this says no.
    #[must_use]
    pub fn wait_store_ok(self, wait: bool) -> Self {
        self.set(name::WAIT, wait.to_string())
    }

    /// The value of a property.
    pub fn property(&self, name: &str) -> Option<&str> {
        self.properties.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// All properties, in the order they were set.
    pub fn properties(&self) -> impl Iterator<Item = (&str, &str)> {
        self.properties.iter().map(|(n, v)| (n.as_str(), v.as_str()))
    }

    fn set(mut self, name: &str, value: String) -> Self {
        match self.properties.iter_mut().find(|(n, _)| n == name) {
            Some((_, own)) => *own = value,
            None => self.properties.push((name.to_owned(), value)),
        }
        self
    }

    /// Checks everything the broker would refuse or readers would lose.
    ///
    /// # Errors
    /// [`ClientError::Name`] or [`ClientError::IllegalMessage`], which says what to change.
    pub fn validate(&self) -> Result<(), ClientError> {
        names::validate_topic(&self.topic)?;
        let illegal =
            |reason: String| Err(ClientError::IllegalMessage { topic: self.topic.clone(), reason });
        if names::is_send_forbidden_topic(&self.topic) {
            return illegal("the topic is the broker's own".to_owned());
        }
        if self.body.is_empty() {
            return illegal("the body is empty".to_owned());
        }
        if self.body.len() > BODY_BYTES_MAX {
            let bytes = self.body.len();
            return illegal(format!("the body has {bytes} bytes, at most {BODY_BYTES_MAX} may be"));
        }
        // Those that have a method of their own here.
        const SETTABLE: [&str; 4] = [name::TAGS, name::KEYS, name::DELAY, name::WAIT];
        for (name, value) in &self.properties {
            if name::RESERVED.contains(&name.as_str()) && !SETTABLE.contains(&name.as_str()) {
                return illegal(format!("property `{name}` is reserved"));
            }
            if name.is_empty() || value.is_empty() {
                return illegal(format!("property `{name}` has an empty name or value"));
            }
            if !properties::is_clean(name) || !properties::is_clean(value) {
                return illegal(format!(
                    "property `{name}` contains byte 1 or 2, which separate properties"
                ));
            }
        }
        Ok(())
    }

    /// The property block with RocketMQ's own properties of a message that is sent.
    pub(crate) fn encode_properties(&self, unique_key: &str) -> Result<String, ClientError> {
        let mut out = Vec::new();
        for (name, value) in &self.properties {
            properties::append(&mut out, name, value);
        }
        if self.property(name::WAIT).is_none() {
            properties::append(&mut out, name::WAIT, "true");
        }
        properties::append(&mut out, name::UNIQ_KEY, unique_key);
        if out.len() > properties::PROPERTIES_BYTES_MAX {
            return Err(ClientError::IllegalMessage {
                topic: self.topic.clone(),
                reason: format!(
                    "the properties have {} bytes, at most {} may be",
                    out.len(),
                    properties::PROPERTIES_BYTES_MAX
                ),
            });
        }
        Ok(String::from_utf8(out).expect("made of texts"))
    }
}

/// A message as it came from a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedMessage {
    /// Its topic; of a message that is tried again, the topic it was first sent to.
    pub topic: String,
    /// The queue it was read from.
    pub queue: MessageQueue,
    /// Its place in that queue.
    pub queue_offset: i64,
    /// What was sent, decompressed.
    pub body: Bytes,
    /// The application's own bits.
    pub flag: i32,
    /// RocketMQ's bits.
    pub sys_flag: i32,
    /// When the producer made it, in ms of the Unix epoch.
    pub born_timestamp_ms: i64,
    /// Who sent it.
    pub born_host: SocketAddr,
    /// When the broker stored it, in ms of the Unix epoch.
    pub store_timestamp_ms: i64,
    /// The broker that stored it.
    pub store_host: SocketAddr,
    /// Its place in the broker's CommitLog.
    pub physical_offset: i64,
    /// How often consuming it has failed.
    pub reconsume_times: i32,
    properties: Vec<(String, String)>,
}

impl ReceivedMessage {
    /// The tag.
    pub fn tag(&self) -> Option<&str> {
        self.property(name::TAGS)
    }

    /// The keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.property(name::KEYS).unwrap_or("").split(KEY_SEPARATOR).filter(|key| !key.is_empty())
    }

    /// The value of a property. Of a name that occurs twice the last one counts.
    pub fn property(&self, name: &str) -> Option<&str> {
        self.properties.iter().rev().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// All properties, RocketMQ's own among them, as stored.
    pub fn properties(&self) -> impl Iterator<Item = (&str, &str)> {
        self.properties.iter().map(|(n, v)| (n.as_str(), v.as_str()))
    }

    /// The id that the producer gave it; the offset message id when it gave none.
    pub fn message_id(&self) -> String {
        self.property(name::UNIQ_KEY).map_or_else(|| self.offset_message_id(), str::to_owned)
    }

    /// The id that says at which broker and where in its log the message is.
    pub fn offset_message_id(&self) -> String {
        let Self { store_host, physical_offset, .. } = *self;
        OffsetMessageId { store_host, physical_offset }.to_string()
    }

    /// Reads a record. `body` is the record's body, which is kept without a copy unless compressed.
    fn from_record(
        record: &MessageRecord<'_>,
        body: Bytes,
        broker_name: &str,
    ) -> Result<Self, std::io::Error> {
        let body = match record.sys_flag & sys_flag::COMPRESSED {
            0 => body,
            _ => compression::decompress(&body, record.sys_flag)?.into(),
        };
        let pairs = properties::iter_str(record.properties);
        let properties = pairs.map(|(n, v)| (n.to_owned(), v.to_owned())).collect::<Vec<_>>();
        let mut message = Self {
            topic: record.topic.to_owned(),
            queue: MessageQueue {
                topic: record.topic.to_owned(),
                broker_name: broker_name.to_owned(),
                queue_id: record.queue_id,
            },
            queue_offset: record.queue_offset,
            body,
            flag: record.flag,
            sys_flag: record.sys_flag,
            born_timestamp_ms: record.born_timestamp_ms,
            born_host: record.born_host,
            store_timestamp_ms: record.store_timestamp_ms,
            store_host: record.store_host,
            physical_offset: record.physical_offset,
            reconsume_times: record.reconsume_times,
            properties,
        };
        if names::is_retry_topic(record.topic)
            && let Some(first) = message.property(name::RETRY_TOPIC)
        {
            message.topic = first.to_owned();
        }
        Ok(message)
    }
}

/// Reads the records of a pull's answer. A body that cannot be decompressed fails the whole: skipping it
/// would lose a message silently.
///
/// # Errors
/// [`ClientError::BrokenMessage`] naming the broker and the place.
pub(crate) fn decode_messages(
    bytes: &Bytes,
    broker_name: &str,
    addr: &str,
) -> Result<Vec<ReceivedMessage>, ClientError> {
    let broken = |reason: String| ClientError::BrokenMessage { addr: addr.to_owned(), reason };
    let mut messages = Vec::new();
    for record in record::iter(bytes) {
        let record = record.map_err(|e| broken(e.to_string()))?;
        let body = bytes.slice_ref(record.body);
        let message = ReceivedMessage::from_record(&record, body, broker_name).map_err(|e| {
            broken(format!(
                "body of the message at physical offset {}: {e}",
                record.physical_offset
            ))
        })?;
        messages.push(message);
    }
    Ok(messages)
}

#[cfg(test)]
mod tests {
    use rocketmq_protocol::message::record::{NewMessage, Placement, encode_record};

    use super::*;

    #[test]
    fn messages_that_brokers_refuse_are_refused_here() {
        let good = Message::new("T", "x").tag("a").key("k1").key("k2").user_property("p", "v");
        good.validate().expect("good");
        assert_eq!(good.property("KEYS"), Some("k1 k2"));
        let wrong = [
            (Message::new("a/b", "x"), "/"),
            (Message::new("T", ""), "empty"),
            (Message::new("T", vec![0; BODY_BYTES_MAX + 1]), "4194305"),
            (Message::new("T", "x").user_property("UNIQ_KEY", "1"), "UNIQ_KEY"),
            (Message::new("T", "x").user_property("a\u{1}", "1"), "byte 1 or 2"),
            (Message::new("T", "x").user_property("a", ""), "empty"),
            (Message::new("SCHEDULE_TOPIC_XXXX", "x"), "own"),
        ];
        for (message, part) in wrong {
            let error = message.validate().expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
        }
        let long = Message::new("T", "x").user_property("p", "v".repeat(40_000));
        assert!(long.encode_properties("K").is_err());
    }

    #[test]
    fn properties_carry_what_the_client_adds() {
        let text = Message::new("T", "x").tag("a").encode_properties("KEY").expect("short");
        assert_eq!(text, "TAGS\u{1}a\u{2}WAIT\u{1}true\u{2}UNIQ_KEY\u{1}KEY\u{2}");
        let text = Message::new("T", "x").wait_store_ok(false).encode_properties("K");
        assert_eq!(text.expect("short"), "WAIT\u{1}false\u{2}UNIQ_KEY\u{1}K\u{2}");
    }

    fn stored(topic: &str, flags: i32, body: &[u8], properties: &[u8]) -> Bytes {
        let message = NewMessage {
            topic,
            queue_id: 3,
            flag: 5,
            sys_flag: flags,
            born_timestamp_ms: 1,
            born_host: ([10, 0, 0, 1], 1000).into(),
            store_host: ([127, 0, 0, 1], 10911).into(),
            reconsume_times: 1,
            prepared_transaction_offset: 0,
            body,
            properties: &[properties],
        };
        let placement =
            Placement { queue_offset: 7, physical_offset: 0x123, store_timestamp_ms: 2 };
        let mut out = Vec::new();
        encode_record(&mut out, &message, placement).expect("encodes");
        out.into()
    }

    #[test]
    fn records_become_messages() {
        let large = vec![1; 10_000];
        let mut bytes = stored("T", 0, b"plain", b"TAGS\x01a\x02KEYS\x01k1 k2\x02").to_vec();
        let packed = compression::compress(&large);
        let flags = compression::ZLIB_FLAGS;
        bytes.extend(stored("%RETRY%g", flags, &packed, b"RETRY_TOPIC\x01T\x02UNIQ_KEY\x01U\x02"));
        let messages = decode_messages(&bytes.into(), "b", "addr").expect("decodes");
        let [plain, retried] = messages.as_slice() else { panic!("two") };
        assert_eq!(&plain.body[..], b"plain");
        assert_eq!((plain.tag(), plain.keys().collect::<Vec<_>>()), (Some("a"), vec!["k1", "k2"]));
        assert_eq!(plain.message_id(), "7F00000100002A9F0000000000000123");
        assert_eq!((plain.queue_offset, plain.queue.queue_id, plain.reconsume_times), (7, 3, 1));
        assert_eq!(&retried.body[..], large);
        assert_eq!((retried.topic.as_str(), retried.queue.topic.as_str()), ("T", "%RETRY%g"));
        assert_eq!(retried.message_id(), "U");
    }

    #[test]
    fn broken_records_name_the_broker() {
        let error = decode_messages(&Bytes::from_static(b"no record"), "b", "1.2.3.4:1");
        assert!(error.expect_err("broken").to_string().contains("1.2.3.4:1"));
        let bytes = stored("T", compression::ZLIB_FLAGS, b"not zlib", b"");
        let error = decode_messages(&bytes, "b", "addr").expect_err("broken");
        assert!(error.to_string().contains("physical offset 291"), "{error}");
    }
}
