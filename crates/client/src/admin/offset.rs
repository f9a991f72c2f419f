//! Offsets: a queue's bounds and a group's progress.

use std::collections::BTreeMap;

use rocketmq_protocol::body::message_queue::MessageQueue;
use rocketmq_protocol::body::offset::{ConsumerOffsetTable, ResetOffsetBody};
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::header::offset::{
    GetEarliestMsgStoretimeRequest, GetEarliestMsgStoretimeResponse, GetMaxOffsetRequest,
    GetMaxOffsetResponse, GetMinOffsetRequest, GetMinOffsetResponse,
    InvokeBrokerToResetOffsetRequest, QueryConsumerOffsetRequest, QueryConsumerOffsetResponse,
    SearchOffsetByTimestampRequest, SearchOffsetByTimestampResponse, UpdateConsumerOffsetRequest,
};
use rocketmq_remoting::Request;

use super::Admin;
use crate::error::ClientError;

/// Where to set a group's offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetTo {
    /// Behind the newest message.
    Newest,
    /// To the first message stored at this time or later, in ms of the Unix epoch.
    StoreTimeMs(i64),
}

impl Admin {
    /// Queue offset that the next message will have; 0 for an unknown topic or queue.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn max_offset(
        &self,
        addr: &str,
        topic: &str,
        queue_id: i32,
    ) -> Result<i64, ClientError> {
        let header = GetMaxOffsetRequest { topic: topic.into(), queue_id, committed: true };
        let request = Request::new(RequestCode::GET_MAX_OFFSET).with_header(&header);
        Ok(self.ok(addr, request).await?.header::<GetMaxOffsetResponse>()?.offset)
    }

    /// Queue offset of the oldest message; 0 for an unknown topic or queue.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn min_offset(
        &self,
        addr: &str,
        topic: &str,
        queue_id: i32,
    ) -> Result<i64, ClientError> {
        let header = GetMinOffsetRequest { topic: topic.into(), queue_id };
        let request = Request::new(RequestCode::GET_MIN_OFFSET).with_header(&header);
        Ok(self.ok(addr, request).await?.header::<GetMinOffsetResponse>()?.offset)
    }

    /// Queue offset of the first message stored at `timestamp_ms` or later; the next offset when all are
    /// older.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn search_offset(
        &self,
        addr: &str,
        topic: &str,
        queue_id: i32,
        timestamp_ms: i64,
    ) -> Result<i64, ClientError> {
        let header = SearchOffsetByTimestampRequest {
            topic: topic.into(),
            queue_id,
            timestamp: timestamp_ms,
            boundary_type: None,
        };
        let request = Request::new(RequestCode::SEARCH_OFFSET_BY_TIMESTAMP).with_header(&header);
        Ok(self.ok(addr, request).await?.header::<SearchOffsetByTimestampResponse>()?.offset)
    }

    /// Store time of a queue's oldest message in ms of the Unix epoch; `None` when it has none.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn earliest_store_time(
        &self,
        addr: &str,
        topic: &str,
        queue_id: i32,
    ) -> Result<Option<i64>, ClientError> {
        let header = GetEarliestMsgStoretimeRequest { topic: topic.into(), queue_id };
        let request = Request::new(RequestCode::GET_EARLIEST_MSG_STORETIME).with_header(&header);
        let answer = self.ok(addr, request).await?;
        let timestamp_ms = answer.header::<GetEarliestMsgStoretimeResponse>()?.timestamp;
        Ok((timestamp_ms >= 0).then_some(timestamp_ms))
    }

    /// The offset a group has for a queue; `None` when it has none.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn consumer_offset(
        &self,
        addr: &str,
        group: &str,
        topic: &str,
        queue_id: i32,
    ) -> Result<Option<i64>, ClientError> {
        let header = QueryConsumerOffsetRequest {
            consumer_group: group.into(),
            topic: topic.into(),
            queue_id,
            set_zero_if_not_found: Some(false),
        };
        let request = Request::new(RequestCode::QUERY_CONSUMER_OFFSET).with_header(&header);
        let answer = self.call(addr, request).await?;
        if answer.code == ResponseCode::QUERY_NOT_FOUND {
            return Ok(None);
        }
        let offset = answer.into_ok()?.header::<QueryConsumerOffsetResponse>()?.offset;
        Ok((offset >= 0).then_some(offset))
    }

    /// Sets the offset a group has for a queue. Members that consume the queue now go on where they are,
    /// and overwrite it; see [`Admin::reset_offsets`].
    ///
    /// # Errors
    /// When the broker does not answer, or knows neither group nor topic.
    pub async fn update_consumer_offset(
        &self,
        addr: &str,
        group: &str,
        topic: &str,
        queue_id: i32,
        offset: i64,
    ) -> Result<(), ClientError> {
        let header = UpdateConsumerOffsetRequest {
            consumer_group: group.into(),
            topic: topic.into(),
            queue_id: Some(queue_id),
            commit_offset: Some(offset),
        };
        let request = Request::new(RequestCode::UPDATE_CONSUMER_OFFSET).with_header(&header);
        self.ok(addr, request).await.map(drop)
    }

    /// Every group's offsets at a broker: by `topic@group`, then queue.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn all_consumer_offsets(
        &self,
        addr: &str,
    ) -> Result<BTreeMap<String, BTreeMap<i32, i64>>, ClientError> {
        let request = Request::new(RequestCode::GET_ALL_CONSUMER_OFFSET);
        Ok(self.json::<ConsumerOffsetTable>(addr, request).await?.offset_table)
    }

    /// Sets a group's offsets of a whole topic at a broker, with the members told. `force` allows going
    /// forward, too. Returns the new offsets.
    ///
    /// # Errors
    /// When the broker does not answer or refuses; an older one wants the group to be online.
    pub async fn reset_offsets(
        &self,
        addr: &str,
        group: &str,
        topic: &str,
        to: ResetTo,
        force: bool,
    ) -> Result<BTreeMap<MessageQueue, i64>, ClientError> {
        let header = InvokeBrokerToResetOffsetRequest {
            topic: topic.into(),
            group: group.into(),
            timestamp: match to {
                ResetTo::Newest => -1,
                ResetTo::StoreTimeMs(ms) => ms,
            },
            is_force: force,
            ..InvokeBrokerToResetOffsetRequest::default()
        };
        let request = Request::new(RequestCode::INVOKE_BROKER_TO_RESET_OFFSET).with_header(&header);
        let answer = self.ok(addr, request).await?;
        if answer.body.is_empty() {
            return Ok(BTreeMap::new());
        }
        Ok(answer.json::<ResetOffsetBody>()?.offset_table)
    }
}
