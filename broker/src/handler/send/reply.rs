//! SEND_REPLY_MESSAGE and its V2: hands the reply to a request to the client that waits for it, and
//! stores it (RocketMQ's `ReplyMessageProcessor`).
//!
//! The client is found by its id, which the reply carries in `REPLY_TO_CLIENT`, among the producers
//! of this broker: a requester heart-beats to every broker. Whether the reply could be handed over
//! decides the answer; storing it is for people who look later, so its failure is only counted.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::ext;
use rocketmq_protocol::frame::Frame;
use rocketmq_protocol::header::send::{
    PushReplyMessageRequest, SendMessageRequest, SendMessageResponse,
};
use rocketmq_protocol::message::id::OffsetMessageId;
use rocketmq_protocol::message::properties::{self, name};
use rocketmq_protocol::message::record::{NewMessage, sys_flag};
use rocketmq_protocol::response::Response;
use rocketmq_remoting::Connection;
use tracing::warn;

use super::answer::riders;
use super::check::{Refusal, check};
use crate::clock::now_ms;
use crate::handler::relay::{CLIENT_TIMEOUT, Later, at_once};
use crate::metrics::MessageType;
use crate::state::BrokerState;

/// A checked reply on its way.
struct Reply {
    /// Who waits for it; `None` if it does not say.
    requester: Option<String>,
    /// What the requester gets.
    fields: Vec<(std::borrow::Cow<'static, str>, String)>,
    body: Bytes,
    queue_id: i32,
    /// The record to store, if replies are stored.
    record: Option<Record>,
}

/// A reply as it is stored: as it came, without the properties of this broker, as in Java.
struct Record {
    topic: String,
    flag: i32,
    sys_flag: i32,
    born_timestamp_ms: i64,
    born_host: SocketAddr,
    reconsume_times: i32,
    properties: Vec<u8>,
}

/// Where a reply lies.
struct Stored {
    msg_id: String,
    queue_offset: i64,
}

/// SEND_REPLY_MESSAGE and SEND_REPLY_MESSAGE_V2.
pub fn send_reply_message(
    state: &Arc<BrokerState>,
    conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Later {
    match Reply::read(state, conn, frame) {
        Ok(reply) => Box::pin(reply.deliver(Arc::clone(state))),
        Err(refusal) => {
            let response = Response::error(refusal.code, refusal.remark);
            at_once(response.with_header(&riders(&state.config.load())))
        }
    }
}

impl Reply {
    fn read(state: &BrokerState, conn: &Connection, frame: &Frame<'_>) -> Result<Reply, Refusal> {
        let request: SendMessageRequest<'_> = frame
            .header()
            .map_err(|error| Refusal::new(ResponseCode::SYSTEM_ERROR, error.to_string()))?;
        let config = state.config.load();
        let (_, queue_id) = check(state, &config, conn, &request)?;
        let block = request.properties.as_deref().unwrap_or_default();
        let requester = properties::find(block.as_bytes(), name::REPLY_TO_CLIENT);
        let mut pushed_properties = block.as_bytes().to_vec();
        properties::append(&mut pushed_properties, name::PUSH_REPLY_TIME, &now_ms().to_string());
        let push = PushReplyMessageRequest {
            producer_group: request.producer_group.clone(),
            topic: request.topic.clone(),
            default_topic: request.default_topic.clone(),
            default_topic_queue_nums: request.default_topic_queue_nums,
            queue_id: request.queue_id,
            sys_flag: request.sys_flag,
            born_timestamp: request.born_timestamp,
            flag: request.flag,
            properties: Some(String::from_utf8_lossy(&pushed_properties)),
            reconsume_times: request.reconsume_times,
            unit_mode: request.unit_mode.unwrap_or(false),
            born_host: host_text(conn.remote()).into(),
            store_host: host_text(state.identity.store_host).into(),
            store_timestamp: now_ms(),
        };
        let record = config.store_reply_message_enable.then(|| Record {
            topic: request.topic.as_ref().to_owned(),
            flag: request.flag,
            sys_flag: request.sys_flag & !sys_flag::TRANSACTION_MASK,
            born_timestamp_ms: request.born_timestamp,
            born_host: conn.remote(),
            reconsume_times: request.reconsume_times.unwrap_or(0),
            properties: block.as_bytes().to_vec(),
        });
        Ok(Reply {
            requester: requester.map(str::to_owned),
            fields: ext::to_pairs(&push),
            body: Bytes::copy_from_slice(frame.body),
            queue_id,
            record,
        })
    }

    async fn deliver(mut self, state: Arc<BrokerState>) -> Response {
        let pushed = self.push(&state).await;
        let stored = match self.record.take() {
            Some(record) => {
                let (state, queue_id, body) = (Arc::clone(&state), self.queue_id, self.body);
                let storing = move || record.store(&state, queue_id, &body);
                // A panic in there has been reported by itself.
                tokio::task::spawn_blocking(storing).await.unwrap_or(None)
            }
            None => None,
        };
        let response = match &pushed {
            Ok(()) => Response::ok(),
            Err(remark) => Response::error(ResponseCode::SYSTEM_ERROR, remark.clone()),
        };
        // Clients read an answer of success, so it names a place even where there is none.
        let none = || pushed.is_ok().then(|| Stored { msg_id: "0".to_owned(), queue_offset: 0 });
        let config = state.config.load();
        let [region, trace] = riders(&config);
        match stored.or_else(none) {
            Some(place) => response.with_header(&SendMessageResponse {
                msg_id: place.msg_id.into(),
                queue_id: self.queue_id,
                queue_offset: place.queue_offset,
                msg_region: Some(region.1.into()),
                trace_on: Some(config.trace_on),
                ..SendMessageResponse::default()
            }),
            None => response.with_header(&[region, trace]),
        }
    }

    /// Hands the reply over, or says why that is not possible.
    async fn push(&self, state: &BrokerState) -> Result<(), String> {
        let Some(requester) = &self.requester else {
            return Err(format!("reply message properties[{}] is null", name::REPLY_TO_CLIENT));
        };
        let Some(connection) = state.clients.producer_connection(requester) else {
            let remark = format!("push reply message fail, channel of <{requester}> not found.");
            return Err(remark);
        };
        let code = RequestCode::PUSH_REPLY_MESSAGE_TO_CLIENT;
        let answer = connection.request(code, &self.fields, self.body.clone(), CLIENT_TIMEOUT);
        let said = match answer.await {
            Ok(answer) if answer.code == ResponseCode::SUCCESS => return Ok(()),
            Ok(answer) => answer.remark.unwrap_or_default(),
            Err(error) => error.to_string(),
        };
        Err(format!("push reply message to {requester} fail. {said}"))
    }
}

impl Record {
    /// Stores the reply; says where, or `None` with a log line.
    fn store(&self, state: &BrokerState, queue_id: i32, body: &[u8]) -> Option<Stored> {
        let mut batch = state.store.new_batch();
        let pushed = batch.push(&NewMessage {
            topic: &self.topic,
            queue_id,
            flag: self.flag,
            sys_flag: self.sys_flag,
            born_timestamp_ms: self.born_timestamp_ms,
            born_host: self.born_host,
            store_host: state.identity.store_host,
            reconsume_times: self.reconsume_times,
            prepared_transaction_offset: 0,
            body,
            properties: &[&self.properties],
        });
        if let Err(error) = pushed {
            warn!(topic = self.topic, %error, "reply not stored");
            return None;
        }
        let bytes = batch.bytes();
        if let Err(error) = state.store.append(&mut batch) {
            state.metrics.store_failed(1);
            warn!(topic = self.topic, %error, "reply not stored");
            return None;
        }
        state.metrics.stored(&self.topic, MessageType::Normal, 1, bytes);
        let place = batch.result(0).ok()?;
        let store_host = state.identity.store_host;
        let id = OffsetMessageId { store_host, physical_offset: place.physical_offset };
        Some(Stored { msg_id: id.to_string(), queue_offset: place.queue_offset })
    }
}

/// An address as RocketMQ writes it in a field: no brackets around an IPv6 address, the port behind
/// the last colon.
fn host_text(addr: SocketAddr) -> String {
    format!("{}:{}", addr.ip().to_canonical(), addr.port())
}
