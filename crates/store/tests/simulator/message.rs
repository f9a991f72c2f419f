//! Messages whose every byte follows from a number, so that they can be checked without being kept.

use rocketmq_protocol::message::record::NewMessage;

use super::random::Random;

/// Topics of the simulation. The last one makes records of version 2.
pub const TOPICS: [&str; 4] = [
    "A",
    "Orders",
    "%RETRY%group",
    "%RETRY%a-group-whose-name-is-so-long-that-the-topic-of-its-retries-does-not-fit-into-the-one-\
     byte-that-records-of-version-1-have-for-its-length",
];

/// What a message is made of, beside its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Index into [`TOPICS`].
    pub topic: usize,
    pub queue_id: i32,
    pub body_bytes: usize,
    pub padding_bytes: usize,
}

impl Spec {
    pub fn body(&self, id: u64) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.body_bytes + 16);
        body.extend_from_slice(&id.to_be_bytes());
        let mut random = Random::new(id);
        while body.len() < self.body_bytes {
            body.extend_from_slice(&random.next().to_be_bytes());
        }
        body.truncate(self.body_bytes.max(8));
        body
    }

    pub fn properties(&self, id: u64) -> Vec<u8> {
        let mut block = format!(
            "UNIQ_KEY\x01{}\x02KEYS\x01{} {}\x02TAGS\x01Tag{}\x02",
            unique_key(id),
            own_key(id),
            shared_key(id),
            id % 3
        )
        .into_bytes();
        if self.padding_bytes > 0 {
            block.extend_from_slice(b"p\x01");
            block.extend((0..self.padding_bytes).map(|n| b'a' + ((id as usize + n) % 26) as u8));
            block.push(2);
        }
        block
    }
}

pub fn unique_key(id: u64) -> String {
    format!("7F000001{id:024X}")
}

pub fn own_key(id: u64) -> String {
    format!("key{id}")
}

/// A key that other messages have as well.
pub fn shared_key(id: u64) -> String {
    format!("all{}", id % 4)
}

/// The number of the message with this body.
pub fn id_of(body: &[u8]) -> Option<u64> {
    body.first_chunk::<8>().map(|bytes| u64::from_be_bytes(*bytes))
}

pub fn new_message<'a>(spec: &Spec, body: &'a [u8], properties: &'a [&'a [u8]]) -> NewMessage<'a> {
    NewMessage {
        topic: TOPICS[spec.topic],
        queue_id: spec.queue_id,
        flag: 0,
        sys_flag: 0,
        born_timestamp_ms: 1,
        born_host: "127.0.0.1:1".parse().unwrap(),
        store_host: "127.0.0.1:10911".parse().unwrap(),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body,
        properties,
    }
}
