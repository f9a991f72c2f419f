//! The requests of pulling: pull, offsets to begin at, offsets to commit.

use std::time::Duration;

use rocketmq_protocol::body::MessageQueue;
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::header::offset::{
    QueryConsumerOffsetRequest, QueryConsumerOffsetResponse, UpdateConsumerOffsetRequest,
};
use rocketmq_protocol::header::pull::{
    PullMessageRequest, PullMessageResponse, SYS_FLAG_COMMIT_OFFSET, SYS_FLAG_SUBSCRIPTION,
    SYS_FLAG_SUSPEND,
};
use rocketmq_protocol::names;
use rocketmq_protocol::subscription::SubscriptionData;
use rocketmq_remoting::Request;

use super::Pulling;
use crate::admin::Admin;
use crate::error::ClientError;
use crate::member::CALL_TIMEOUT;
use crate::message::{ReceivedMessage, decode_messages};
use crate::route::MASTER_ID;

/// How much longer than the broker may hold a pull the client waits for its answer.
const ANSWER_MARGIN: Duration = Duration::from_secs(10);
/// Bytes of one pull that a broker of 5.x keeps to.
const PULL_BYTES_MAX: i32 = 256 * 1024;

/// Where to begin in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartFrom {
    /// At the oldest message.
    First,
    /// Behind the newest message: only what comes from now on.
    Last,
    /// At this queue offset.
    Offset(i64),
    /// At the first message stored at this time or later, in ms of the Unix epoch.
    StoreTimeMs(i64),
}

/// What a pull brought.
pub(super) struct Pulled {
    pub outcome: Outcome,
    pub next_offset: i64,
    pub suggested_broker_id: i64,
}

pub(super) enum Outcome {
    Found(Vec<ReceivedMessage>),
    /// Nothing beyond the offset.
    Nothing,
    /// Messages, none of which is subscribed.
    Filtered,
    /// The offset was outside of the queue, or was reset.
    Moved,
}

impl Pulling {
    /// One pull. `commit` is the group's progress, sent along when it is known and the master is asked.
    pub(super) async fn pull(
        &self,
        queue: &MessageQueue,
        subscription: &SubscriptionData,
        offset: i64,
        commit: i64,
        broker_id: i64,
    ) -> Result<Pulled, ClientError> {
        let addr = self.broker_addr(queue, broker_id).await?;
        let mut sys_flag = SYS_FLAG_SUSPEND | SYS_FLAG_SUBSCRIPTION;
        if self.settings.commit_with_pull && commit > 0 && broker_id == MASTER_ID {
            sys_flag |= SYS_FLAG_COMMIT_OFFSET;
        }
        let header = PullMessageRequest {
            consumer_group: self.group.as_str().into(),
            topic: queue.topic.as_str().into(),
            queue_id: queue.queue_id,
            queue_offset: offset,
            max_msg_nums: self.settings.batch_messages_max,
            sys_flag,
            commit_offset: commit.max(0),
            suspend_timeout_millis: i64::try_from(self.settings.suspend.as_millis())
                .unwrap_or(i64::MAX),
            subscription: Some(subscription.sub_string.as_str().into()),
            sub_version: subscription.sub_version,
            expression_type: Some(subscription.expression_type.as_str().into()),
            max_msg_bytes: Some(PULL_BYTES_MAX),
            ..PullMessageRequest::default()
        };
        let request = Request::new(RequestCode::PULL_MESSAGE)
            .with_header(&header)
            .with_field("bname", &queue.broker_name);
        let timeout = self.settings.suspend + ANSWER_MARGIN;
        let answer = self.member.client.call(&addr, request, timeout).await?;
        let outcome = match answer.code {
            ResponseCode::SUCCESS => {
                Outcome::Found(decode_messages(&answer.body, &queue.broker_name, &addr)?)
            }
            ResponseCode::PULL_NOT_FOUND => Outcome::Nothing,
            ResponseCode::PULL_RETRY_IMMEDIATELY => Outcome::Filtered,
            ResponseCode::PULL_OFFSET_MOVED => Outcome::Moved,
            _ => return Err(answer.refused().into()),
        };
        let header = answer.header::<PullMessageResponse>()?;
        Ok(Pulled {
            outcome,
            next_offset: header.next_begin_offset,
            suggested_broker_id: header.suggest_which_broker_id,
        })
    }

    /// Where to begin, and whether that is the group's stored offset.
    pub(super) async fn start_offset(
        &self,
        queue: &MessageQueue,
        from: StartFrom,
        stored_first: bool,
    ) -> Result<(i64, bool), ClientError> {
        let addr = self.broker_addr(queue, MASTER_ID).await?;
        if stored_first && let Some(offset) = self.stored_offset(queue, &addr).await? {
            return Ok((offset, true));
        }
        let member = &self.member;
        let admin = Admin::with_client(member.client.clone(), member.name_servers.clone())
            .with_timeout(CALL_TIMEOUT);
        let MessageQueue { topic, queue_id, .. } = queue;
        let offset = match from {
            StartFrom::Offset(offset) => offset,
            StartFrom::First => admin.min_offset(&addr, topic, *queue_id).await?,
            // What the group itself sent back is never skipped.
            StartFrom::Last if names::is_retry_topic(topic) => 0,
            StartFrom::Last => admin.max_offset(&addr, topic, *queue_id).await?,
            StartFrom::StoreTimeMs(ms) => admin.search_offset(&addr, topic, *queue_id, ms).await?,
        };
        Ok((offset, false))
    }

    /// The group's offset. Unlike the administrative call this lets the broker answer 0 for a group that
    /// is new in a queue that has all of its messages yet, as Java consumers do.
    pub(crate) async fn stored_offset(
        &self,
        queue: &MessageQueue,
        addr: &str,
    ) -> Result<Option<i64>, ClientError> {
        let header = QueryConsumerOffsetRequest {
            consumer_group: self.group.as_str().into(),
            topic: queue.topic.as_str().into(),
            queue_id: queue.queue_id,
            set_zero_if_not_found: None,
        };
        let request = Request::new(RequestCode::QUERY_CONSUMER_OFFSET).with_header(&header);
        let answer = self.member.call(addr, request).await?;
        if answer.code == ResponseCode::QUERY_NOT_FOUND {
            return Ok(None);
        }
        let offset = answer.into_ok()?.header::<QueryConsumerOffsetResponse>()?.offset;
        Ok((offset >= 0).then_some(offset))
    }

    /// Tells the broker the group's progress; with `wait`, until it has confirmed.
    pub(super) async fn send_offset(
        &self,
        queue: &MessageQueue,
        offset: i64,
        wait: bool,
    ) -> Result<(), ClientError> {
        let addr = self.broker_addr(queue, MASTER_ID).await?;
        let header = UpdateConsumerOffsetRequest {
            consumer_group: self.group.as_str().into(),
            topic: queue.topic.as_str().into(),
            queue_id: Some(queue.queue_id),
            commit_offset: Some(offset),
        };
        let request = Request::new(RequestCode::UPDATE_CONSUMER_OFFSET).with_header(&header);
        if wait {
            self.member.call(&addr, request).await?.into_ok()?;
        } else {
            self.member.client.oneway(&addr, request).await?;
        }
        Ok(())
    }

    pub(crate) async fn broker_addr(
        &self,
        queue: &MessageQueue,
        broker_id: i64,
    ) -> Result<String, ClientError> {
        let route = self.member.route(&queue.topic).await?;
        let addr = route.broker_addr(&queue.broker_name, broker_id).map(str::to_owned);
        addr.ok_or_else(|| ClientError::NoBroker {
            broker_name: queue.broker_name.clone(),
            topic: queue.topic.clone(),
        })
    }
}
