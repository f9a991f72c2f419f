//! Requests that brokers send to a member: members changed, offsets reset, tell your state.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};

use rocketmq_protocol::body::MessageQueue;
use rocketmq_protocol::body::offset::{GetConsumerStatusBody, ResetOffsetBody};
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::fastjson;
use rocketmq_protocol::frame::Frame;
use rocketmq_protocol::header::client::NotifyConsumerIdsChangedRequest;
use rocketmq_protocol::header::offset::{
    InvokeBrokerToGetConsumerStatusRequest, InvokeBrokerToResetOffsetRequest,
};
use rocketmq_protocol::response::Response;
use rocketmq_protocol::subscription::SubscriptionData;
use rocketmq_protocol::version;
use rocketmq_remoting::{ClientRequestHandler, Connection};
use serde::Serialize;
use tokio::sync::Notify;
use tracing::{debug, info, warn};

use super::Group;
use crate::pulling::StartFrom;

/// Answers brokers on the member's connections.
pub(super) struct GroupRequests {
    group_name: String,
    rebalance_wanted: Arc<Notify>,
    group: OnceLock<Weak<Group>>,
}

impl GroupRequests {
    pub(super) fn new(group_name: String, rebalance_wanted: Arc<Notify>) -> Self {
        Self { group_name, rebalance_wanted, group: OnceLock::new() }
    }

    /// From now on answers for `group`.
    pub(super) fn serve(&self, group: &Arc<Group>) {
        let _ = self.group.set(Arc::downgrade(group));
    }

    fn reset_offsets(&self, group: &Arc<Group>, request: &Frame<'_>) -> Option<Response> {
        let header = match request.header::<InvokeBrokerToResetOffsetRequest<'_>>() {
            Ok(header) => header,
            Err(error) => {
                return Some(Response::error(ResponseCode::SYSTEM_ERROR, error.to_string()));
            }
        };
        let offsets = match fastjson::from_slice::<ResetOffsetBody>(request.body) {
            Ok(body) => body.offset_table,
            Err(error) => {
                return Some(Response::error(ResponseCode::SYSTEM_ERROR, error.to_string()));
            }
        };
        info!(group = group.name, topic = %header.topic, "the broker resets offsets");
        let group = group.clone();
        let topic = header.topic.into_owned();
        let tasks = group.member.tasks.clone();
        tasks.spawn(async move { group.reset(&topic, offsets).await });
        None
    }
}

impl ClientRequestHandler for GroupRequests {
    fn handle(&self, conn: &Arc<Connection>, request: &Frame<'_>) -> Option<Response> {
        let group = self.group.get().and_then(Weak::upgrade);
        match (request.request_code(), group) {
            (RequestCode::NOTIFY_CONSUMER_IDS_CHANGED, _) => {
                let changed = request.header::<NotifyConsumerIdsChangedRequest<'_>>();
                if changed.is_ok_and(|header| header.consumer_group == self.group_name) {
                    self.rebalance_wanted.notify_one();
                }
                None
            }
            (RequestCode::RESET_CONSUMER_CLIENT_OFFSET, Some(group)) => {
                self.reset_offsets(&group, request)
            }
            (RequestCode::GET_CONSUMER_STATUS_FROM_CLIENT, Some(group)) => {
                let header = request.header::<InvokeBrokerToGetConsumerStatusRequest<'_>>();
                let topic = header.map(|h| h.topic.into_owned()).unwrap_or_default();
                let positions = group.pulling.positions().into_iter();
                let body = GetConsumerStatusBody {
                    message_queue_table: positions.filter(|(q, _)| q.topic == topic).collect(),
                    ..GetConsumerStatusBody::default()
                };
                Some(Response::ok().with_json(&body))
            }
            (RequestCode::GET_CONSUMER_RUNNING_INFO, Some(group)) => {
                Some(Response::ok().with_json(&group.running_info()))
            }
            (code, _) => {
                debug!(remote = conn.remote_text(), %code, "request of a broker not supported");
                Some(Response::error(
                    ResponseCode::REQUEST_CODE_NOT_SUPPORTED,
                    format!(" request type {} not supported", code.0),
                ))
            }
        }
    }
}

/// What a consumer tells of itself (RocketMQ's ConsumerRunningInfo).
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RunningInfo {
    mq_table: BTreeMap<MessageQueue, QueueInfo>,
    properties: BTreeMap<&'static str, String>,
    status_table: BTreeMap<String, String>,
    subscription_set: Vec<SubscriptionData>,
}

/// State of one queue (RocketMQ's ProcessQueueInfo).
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct QueueInfo {
    commit_offset: i64,
    droped: bool,
    locked: bool,
}

impl Group {
    fn running_info(&self) -> RunningInfo {
        let queue_info = |commit_offset| QueueInfo { commit_offset, droped: false, locked: false };
        RunningInfo {
            mq_table: self
                .pulling
                .positions()
                .into_iter()
                .map(|(queue, position)| (queue, queue_info(position)))
                .collect(),
            properties: BTreeMap::from([
                ("PROP_CLIENT_VERSION", version::name_of(version::CURRENT).into_owned()),
                ("PROP_CONSUMER_START_TIMESTAMP", self.started_ms.to_string()),
                ("PROP_CONSUMEORDERLY", "false".to_owned()),
                ("PROP_CONSUME_TYPE", "CONSUME_PASSIVELY".to_owned()),
                ("PROP_NAMESERVER_ADDR", self.member.name_servers.addrs().join(";")),
                ("PROP_THREADPOOL_CORE_SIZE", "1".to_owned()),
            ]),
            status_table: BTreeMap::new(),
            subscription_set: self.subscriptions.values().map(|s| (**s).clone()).collect(),
        }
    }

    /// Goes on at other offsets, in those of the queues that this member has.
    async fn reset(&self, topic: &str, offsets: BTreeMap<MessageQueue, i64>) {
        let Some(subscription) = self.subscriptions.get(topic) else { return };
        let held = self.pulling.assigned();
        for (queue, offset) in offsets {
            if !held.contains(&queue) {
                continue;
            }
            self.pulling.stop(std::slice::from_ref(&queue)).await;
            let from = StartFrom::Offset(offset);
            self.pulling.assign(queue.clone(), subscription.clone(), from, false);
        }
        if let Err(error) = self.pulling.commit(false).await {
            warn!(group = self.name, %error, "reset offsets not committed, it is tried again");
        }
    }
}
