//! Requests that only a client can answer: what it is doing, where it stands, what it makes of a
//! message (`Broker2Client`, `AdminBrokerProcessor.callConsumer`).
//!
//! A client is asked over the connection it opened itself. No thread waits for its answer.

use std::collections::BTreeMap;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rocketmq_protocol::body::MessageQueue;
use rocketmq_protocol::body::offset::GetConsumerStatusBody;
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::ext;
use rocketmq_protocol::frame::Frame;
use rocketmq_protocol::header::HeaderError;
use rocketmq_protocol::header::client::{
    ConsumeMessageDirectlyRequest, GetConsumerRunningInfoRequest,
};
use rocketmq_protocol::header::offset::InvokeBrokerToGetConsumerStatusRequest;
use rocketmq_protocol::message::id::OffsetMessageId;
use rocketmq_protocol::response::Response;
use rocketmq_protocol::version;
use rocketmq_remoting::Connection;
use rocketmq_remoting::call::{CallError, ResponseFrame};
use tokio::task::JoinSet;
use tracing::debug;

use crate::client_table::ClientChannel;
use crate::state::BrokerState;

/// An answer that comes later.
pub type Later = Pin<Box<dyn Future<Output = Response> + Send>>;

/// How long a client may take for its answer, as in the Java broker.
pub const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it may take to say where it stands.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

/// The signature of the administrator's request. It is for the broker alone: who gets the rest of
/// the fields could otherwise send the request again.
const CREDENTIALS: [&str; 3] = ["AccessKey", "Signature", "SecurityToken"];

/// An answer that is known already.
pub fn at_once(response: Response) -> Later {
    Box::pin(ready(response))
}

fn refused(code: ResponseCode, remark: impl Into<String>) -> Later {
    at_once(Response::error(code, remark))
}

fn bad_header(error: &HeaderError) -> Later {
    refused(ResponseCode::SYSTEM_ERROR, error.to_string())
}

/// GET_CONSUMER_RUNNING_INFO: the client's own account of its queues, threads and rates.
pub fn get_consumer_running_info(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Later {
    let request: GetConsumerRunningInfoRequest<'_> = match frame.header() {
        Ok(request) => request,
        Err(error) => return bad_header(&error),
    };
    let (group, client_id) = (request.consumer_group.into_owned(), request.client_id.into_owned());
    let code = RequestCode::GET_CONSUMER_RUNNING_INFO;
    let body = Bytes::copy_from_slice(frame.body);
    call_consumer(state, code, &group, &client_id, fields_of(frame), body)
}

/// CONSUME_MESSAGE_DIRECTLY: has one client of a group consume a message now, and says what came of
/// it.
pub fn consume_message_directly(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Later {
    let request: ConsumeMessageDirectlyRequest<'_> = match frame.header() {
        Ok(request) => request,
        Err(error) => return bad_header(&error),
    };
    let Some(client_id) = request.client_id.as_deref().filter(|id| !id.is_empty()) else {
        return refused(ResponseCode::SYSTEM_ERROR, "header field clientId is missing");
    };
    let message_id = request.msg_id.as_deref().unwrap_or_default();
    let physical_offset = match OffsetMessageId::decode(message_id) {
        Ok(id) => id.physical_offset,
        Err(error) => {
            let remark = format!("header field msgId is `{message_id}`: {error}");
            return refused(ResponseCode::SYSTEM_ERROR, remark);
        }
    };
    let Some(message) = state.store.message_at(physical_offset) else {
        let remark =
            format!("there is no message at offset {physical_offset} (msgId {message_id})");
        return refused(ResponseCode::SYSTEM_ERROR, remark);
    };
    let mut fields = fields_of(frame);
    let mut set = |name: &'static str, value: String| {
        fields.retain(|(known, _)| known != name);
        fields.push((name.into(), value));
    };
    set("brokerName", state.config.load().broker_name.clone());
    if let Some(topic) = request.topic.as_deref().and_then(|topic| state.topics.get(topic)) {
        set("topicSysFlag", topic.topic_sys_flag.to_string());
    }
    if let Some(group) = state.groups.get(&request.consumer_group) {
        set("groupSysFlag", group.group_sys_flag.to_string());
    }
    let code = RequestCode::CONSUME_MESSAGE_DIRECTLY;
    call_consumer(state, code, &request.consumer_group, client_id, fields, message)
}

type Fields = Vec<(std::borrow::Cow<'static, str>, String)>;

/// The request's fields as the client gets them.
fn fields_of(frame: &Frame<'_>) -> Fields {
    let mut fields: Fields = frame
        .ext
        .iter()
        .map(|(name, value)| (name.into_owned().into(), value.into_owned()))
        .collect();
    fields.retain(|(name, _)| !CREDENTIALS.contains(&&**name));
    fields
}

/// Hands a request to one consumer; its answer is the answer.
fn call_consumer(
    state: &BrokerState,
    code: RequestCode,
    group: &str,
    client_id: &str,
    fields: Fields,
    body: Bytes,
) -> Later {
    let Some(client) = state.clients.consumer(group, client_id) else {
        let remark = format!("The Consumer <{group}> <{client_id}> not online");
        return refused(ResponseCode::SYSTEM_ERROR, remark);
    };
    if client.version < version::V3_1_8_SNAPSHOT {
        let remark = format!(
            "The Consumer <{client_id}> Version <{}> too low to finish, please upgrade it to \
             V3_1_8_SNAPSHOT",
            version::name_of(client.version)
        );
        return refused(ResponseCode::SYSTEM_ERROR, remark);
    }
    let who = format!("<{group}> <{client_id}>");
    Box::pin(async move {
        match client.connection.request(code, &fields, body, CLIENT_TIMEOUT).await {
            Ok(answer) => answer.into(),
            Err(error @ CallError::Timeout { .. }) => {
                let remark = format!("consumer {who} Timeout: {error}");
                Response::error(ResponseCode::CONSUME_MSG_TIMEOUT, remark)
            }
            Err(error) => {
                let remark = format!("invoke consumer {who} Exception: {error}");
                Response::error(ResponseCode::SYSTEM_ERROR, remark)
            }
        }
    })
}

/// INVOKE_BROKER_TO_GET_CONSUMER_STATUS: where each member of a group stands in its queues, by the
/// members' own word. A member that does not answer is left out.
pub fn invoke_broker_to_get_consumer_status(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Later {
    let request: InvokeBrokerToGetConsumerStatusRequest<'_> = match frame.header() {
        Ok(request) => request,
        Err(error) => return bad_header(&error),
    };
    let members: Option<Vec<ClientChannel<Connection>>> = state
        .clients
        .with_consumers(&request.group, |members| members.channels().cloned().collect());
    let Some(members) = members else {
        let remark = format!("No Any Consumer online in the consumer group: [{}]", request.group);
        return refused(ResponseCode::SYSTEM_ERROR, remark);
    };
    if let Some(old) = members.iter().find(|member| member.version < version::V3_0_7_SNAPSHOT) {
        return refused(ResponseCode::SYSTEM_ERROR, too_old(old.version));
    }
    let wanted = request.client_addr.as_deref().map(str::trim).filter(|id| !id.is_empty());
    let fields = InvokeBrokerToGetConsumerStatusRequest { client_addr: None, ..request.clone() };
    let fields = ext::to_pairs(&fields);
    let mut asked = JoinSet::new();
    for member in members {
        if wanted.is_none_or(|wanted| wanted == &*member.client_id) {
            asked.spawn_on(status_of(member, fields.clone()), &state.runtime);
        }
    }
    Box::pin(async move {
        let mut consumer_table = BTreeMap::new();
        while let Some(answered) = asked.join_next().await {
            if let Ok(Some((client_id, queues))) = answered {
                consumer_table.insert(client_id, queues);
            }
        }
        let body = GetConsumerStatusBody { consumer_table, ..GetConsumerStatusBody::default() };
        Response::ok().with_json(&body)
    })
}

/// What RocketMQ says of a client that cannot do it.
pub fn too_old(client_version: i32) -> String {
    let name = version::name_of(client_version);
    format!("the client does not support this feature. version={name}")
}

async fn status_of(
    member: ClientChannel<Connection>,
    fields: Fields,
) -> Option<(String, BTreeMap<MessageQueue, i64>)> {
    let code = RequestCode::GET_CONSUMER_STATUS_FROM_CLIENT;
    let answer = member.connection.request(code, &fields, Bytes::new(), STATUS_TIMEOUT).await;
    let body = answer
        .and_then(ResponseFrame::into_ok)
        .and_then(|answer| if answer.body.is_empty() { Ok(None) } else { answer.json().map(Some) });
    match body {
        Ok(body) => {
            let body: GetConsumerStatusBody = body?;
            Some((member.client_id.to_string(), body.message_queue_table))
        }
        Err(error) => {
            debug!(client_id = %member.client_id, %error, "consumer did not say where it stands");
            None
        }
    }
}
