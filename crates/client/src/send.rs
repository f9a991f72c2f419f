//! A message or batch made ready to be sent: bytes and header, whatever the queue will be.

use std::time::Duration;

use bytes::Bytes;
use rocketmq_protocol::body::MessageQueue;
use rocketmq_protocol::code::RequestCode;
use rocketmq_protocol::header::send::{SendMessageRequest, SendMessageResponse};
use rocketmq_protocol::message::batch::{self, BatchMessage};
use rocketmq_protocol::message::properties::name;
use rocketmq_protocol::names;
use rocketmq_remoting::{Client, Request};

use crate::client_id::{ClientId, now_ms};
use crate::compression::{self, ZLIB_FLAGS};
use crate::error::ClientError;
use crate::message::{BODY_BYTES_MAX, Message};
use crate::producer::{ProducerBuilder, SendReceipt, SendStatus};

pub(crate) struct Outgoing {
    code: RequestCode,
    header: SendMessageRequest<'static>,
    body: Bytes,
    message_id: String,
}

impl Outgoing {
    /// One message; a large body is compressed.
    pub(crate) fn single(
        settings: &ProducerBuilder,
        id: &ClientId,
        message: &Message,
    ) -> Result<Self, ClientError> {
        message.validate()?;
        let message_id = id.unique_keys.next(now_ms());
        let properties = message.encode_properties(&message_id)?;
        let (body, sys_flag) = if message.body.len() > settings.compress_over_bytes {
            (compression::compress(&message.body).into(), ZLIB_FLAGS)
        } else {
            (message.body.clone(), 0)
        };
        let header = SendMessageRequest {
            sys_flag,
            flag: message.flag,
            properties: Some(properties.into()),
            batch: Some(false),
            ..header(settings, &message.topic)
        };
        Ok(Self { code: RequestCode::SEND_MESSAGE_V2, header, body, message_id })
    }

    /// A batch. It is never compressed: the broker takes it apart.
    pub(crate) fn batch(
        settings: &ProducerBuilder,
        id: &ClientId,
        messages: &[Message],
    ) -> Result<Self, ClientError> {
        let Some(first) = messages.first() else {
            return Err(ClientError::Setting {
                setting: "batch",
                value: "empty".to_owned(),
                expected: "at least one message",
            });
        };
        let illegal = |reason: &str| ClientError::IllegalMessage {
            topic: first.topic.clone(),
            reason: reason.to_owned(),
        };
        let mut body = Vec::new();
        let mut ids = Vec::with_capacity(messages.len());
        for message in messages {
            message.validate()?;
            if message.topic != first.topic {
                return Err(illegal("a batch is of one topic"));
            }
            if message.property(name::WAIT) != first.property(name::WAIT) {
                return Err(illegal("wait_store_ok differs within the batch"));
            }
            if message.property(name::DELAY).is_some() {
                return Err(illegal("a message of a batch cannot be delayed"));
            }
            if names::is_retry_topic(&message.topic) {
                return Err(illegal("a retry topic takes no batches"));
            }
            let message_id = id.unique_keys.next(now_ms());
            let properties = message.encode_properties(&message_id)?;
            let part = BatchMessage {
                flag: message.flag,
                body: &message.body,
                properties: properties.as_bytes(),
            };
            batch::encode(&mut body, &part).map_err(|e| illegal(&e.to_string()))?;
            ids.push(message_id);
        }
        if body.len() > BODY_BYTES_MAX {
            let bytes = body.len();
            return Err(illegal(&format!(
                "the batch has {bytes} bytes, at most {BODY_BYTES_MAX} may be"
            )));
        }
        // The broker waits as the batch says, not as its messages do.
        let wait = first.property(name::WAIT).map(|wait| format!("{}\u{1}{wait}\u{2}", name::WAIT));
        let header = SendMessageRequest {
            properties: wait.map(Into::into),
            batch: Some(true),
            ..header(settings, &first.topic)
        };
        let code = RequestCode::SEND_BATCH_MESSAGE;
        Ok(Self { code, header, body: body.into(), message_id: ids.join(",") })
    }

    pub(crate) fn topic(&self) -> &str {
        &self.header.topic
    }

    /// Sends to one queue, once.
    pub(crate) async fn send(
        &self,
        client: &Client,
        addr: &str,
        queue: &MessageQueue,
        timeout: Duration,
    ) -> Result<SendReceipt, ClientError> {
        let answer = client.call(addr, self.request(queue), timeout).await?;
        let Some(status) = SendStatus::from_code(answer.code) else {
            return Err(answer.refused().into());
        };
        let stored = answer.header::<SendMessageResponse<'_>>()?;
        Ok(SendReceipt {
            status,
            message_id: self.message_id.clone(),
            offset_message_id: stored.msg_id.into_owned(),
            queue: MessageQueue { queue_id: stored.queue_id, ..queue.clone() },
            queue_offset: stored.queue_offset,
        })
    }

    pub(crate) async fn send_oneway(
        &self,
        client: &Client,
        addr: &str,
        queue: &MessageQueue,
    ) -> Result<(), ClientError> {
        Ok(client.oneway(addr, self.request(queue)).await?)
    }

    fn request(&self, queue: &MessageQueue) -> Request {
        let header = SendMessageRequest {
            queue_id: queue.queue_id,
            broker_name: Some(queue.broker_name.as_str().into()),
            ..self.header.clone()
        };
        Request::new(self.code).with_header(&header).with_body(self.body.clone())
    }
}

/// What all messages have in common.
fn header(settings: &ProducerBuilder, topic: &str) -> SendMessageRequest<'static> {
    SendMessageRequest {
        producer_group: settings.group.clone().into(),
        topic: topic.to_owned().into(),
        default_topic: names::AUTO_CREATE_TOPIC.into(),
        default_topic_queue_nums: settings.new_topic_queues,
        born_timestamp: now_ms(),
        reconsume_times: Some(0),
        unit_mode: Some(false),
        ..SendMessageRequest::default()
    }
}

#[cfg(test)]
mod tests {
    use rocketmq_protocol::message::properties;

    use super::*;
    use crate::namesrv::NameServers;
    use crate::producer::Producer;

    fn settings() -> (ProducerBuilder, ClientId) {
        let servers = NameServers::new(["127.0.0.1:9876"]).expect("valid");
        (Producer::builder(["127.0.0.1:9876"], "pg"), ClientId::new(&servers))
    }

    #[test]
    fn large_bodies_are_compressed() {
        let (settings, id) = settings();
        let small = Outgoing::single(&settings, &id, &Message::new("T", vec![7; 4096]));
        let small = small.expect("valid");
        assert_eq!((small.header.sys_flag, small.body.len()), (0, 4096));
        let large = Outgoing::single(&settings, &id, &Message::new("T", vec![7; 4097]));
        let large = large.expect("valid");
        assert_eq!(large.header.sys_flag, ZLIB_FLAGS);
        let undone = compression::decompress(&large.body, large.header.sys_flag);
        assert_eq!(undone.expect("zlib"), vec![7; 4097]);
    }

    #[test]
    fn a_batch_holds_each_message_with_its_own_id() {
        let (settings, id) = settings();
        let messages = [Message::new("T", "one").tag("a"), Message::new("T", "two")];
        let outgoing = Outgoing::batch(&settings, &id, &messages).expect("valid");
        assert_eq!(outgoing.header.batch, Some(true));
        let parts = batch::iter(&outgoing.body).collect::<Result<Vec<_>, _>>().expect("valid");
        assert_eq!(parts.iter().map(|part| part.body).collect::<Vec<_>>(), [b"one", b"two"]);
        let ids = parts.iter().filter_map(|part| properties::find(part.properties, name::UNIQ_KEY));
        assert_eq!(ids.collect::<Vec<_>>().join(","), outgoing.message_id);
    }

    #[test]
    fn batches_that_brokers_refuse_are_refused_here() {
        let (settings, id) = settings();
        let wrong: [&[Message]; 5] = [
            &[],
            &[Message::new("T", "x"), Message::new("U", "x")],
            &[Message::new("T", "x"), Message::new("T", "x").wait_store_ok(false)],
            &[Message::new("T", "x").delay_level(3)],
            &[Message::new("T", vec![0; 3 << 20]), Message::new("T", vec![0; 3 << 20])],
        ];
        for messages in wrong {
            assert!(Outgoing::batch(&settings, &id, messages).is_err(), "{}", messages.len());
        }
    }
}
