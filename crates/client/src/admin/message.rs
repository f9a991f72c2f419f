//! Single messages: by their offset id, by key.

use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::header::message::{QueryMessageRequest, ViewMessageByIdRequest};
use rocketmq_protocol::message::id::OffsetMessageId;
use rocketmq_remoting::Request;

use super::Admin;
use crate::error::ClientError;
use crate::message::{ReceivedMessage, decode_messages};

impl Admin {
    /// The message stored at a physical offset of the broker at `addr`; `None` when there is none.
    ///
    /// # Errors
    /// When the broker does not answer, or the message cannot be read.
    pub async fn view_message_at(
        &self,
        addr: &str,
        topic: Option<&str>,
        physical_offset: i64,
    ) -> Result<Option<ReceivedMessage>, ClientError> {
        let header =
            ViewMessageByIdRequest { topic: topic.map(Into::into), offset: physical_offset };
        let request = Request::new(RequestCode::VIEW_MESSAGE_BY_ID).with_header(&header);
        let answer = self.call(addr, request).await?;
        if answer.code == ResponseCode::SYSTEM_ERROR {
            return Ok(None);
        }
        let answer = answer.into_ok()?;
        Ok(decode_messages(&answer.body, "", addr)?.into_iter().next())
    }

    /// The message with an offset message id, asked of the broker that the id names.
    ///
    /// # Errors
    /// When `id` is no offset message id, the broker does not answer, or the message cannot be read.
    pub async fn view_message(
        &self,
        topic: &str,
        id: &str,
    ) -> Result<Option<ReceivedMessage>, ClientError> {
        let id = OffsetMessageId::decode(id).map_err(|error| ClientError::Setting {
            setting: "offset message id",
            value: format!("`{id}` ({error})"),
            expected: "32 or 56 hexadecimal digits",
        })?;
        let addr = id.store_host.to_string();
        self.view_message_at(&addr, Some(topic), id.physical_offset).await
    }

    /// Messages of a topic with a key at a broker, of the given store times in ms, at most `max`. With
    /// `unique` the key is a unique key (message id of the producer).
    ///
    /// # Errors
    /// When the broker does not answer or keeps no index, or a message cannot be read.
    pub async fn query_message(
        &self,
        addr: &str,
        topic: &str,
        key: &str,
        unique: bool,
        max: i32,
        store_time_ms: std::ops::RangeInclusive<i64>,
    ) -> Result<Vec<ReceivedMessage>, ClientError> {
        let header = QueryMessageRequest {
            topic: topic.into(),
            key: key.into(),
            max_num: max,
            begin_timestamp: *store_time_ms.start(),
            end_timestamp: *store_time_ms.end(),
            unique_key_query: unique,
            ..QueryMessageRequest::default()
        };
        let request = Request::new(RequestCode::QUERY_MESSAGE).with_header(&header);
        let answer = self.call(addr, request).await?;
        if answer.code == ResponseCode::QUERY_NOT_FOUND {
            return Ok(Vec::new());
        }
        let mut messages = decode_messages(&answer.into_ok()?.body, "", addr)?;
        // The index knows hashes only.
        messages.retain(|message| match unique {
            true => message.message_id() == key,
            false => message.keys().any(|own| own == key),
        });
        Ok(messages)
    }
}
