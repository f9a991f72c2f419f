//! Messages whose every byte follows from a number, so that they can be checked without being kept.

use rocketmq_protocol::message::batch;
use rocketmq_protocol::message::record::{MessageRecord, NewMessage, sys_flag};

use rocketmq_simulation::Random;

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
    /// How many messages it has as an inner batch; 0 if it is none.
    pub inner: usize,
}

impl Spec {
    /// How many queue offsets it takes.
    pub fn count(&self) -> usize {
        self.inner.max(1)
    }

    pub fn body(&self, id: u64) -> Vec<u8> {
        if self.inner == 0 {
            return self.plain_body(id);
        }
        let mut body = Vec::new();
        for _ in 0..self.inner {
            let part = batch::BatchMessage {
                flag: 0,
                body: &self.plain_body(id),
                properties: b"TAGS\x01TagA\x02",
            };
            batch::encode(&mut body, &part).expect("it is short");
        }
        body
    }

    /// The property block of its record, which lies at this offset of its queue.
    pub fn stored_properties(&self, id: u64, queue_offset: i64) -> Vec<u8> {
        let mut block = self.properties(id);
        if self.inner > 0 {
            let count = self.inner;
            let span = format!("INNER_NUM\x01{count}\x02INNER_BASE\x01{queue_offset:019}\x02");
            block.extend_from_slice(span.as_bytes());
        }
        block
    }

    fn plain_body(&self, id: u64) -> Vec<u8> {
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

/// The number of the message with this record.
pub fn id_of(record: &MessageRecord<'_>) -> Option<u64> {
    let body = match record.sys_flag & sys_flag::INNER_BATCH {
        0 => record.body,
        _ => batch::iter(record.body).next()?.ok()?.body,
    };
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
