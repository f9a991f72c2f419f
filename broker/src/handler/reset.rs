//! INVOKE_BROKER_TO_RESET_OFFSET: moves a group in a topic to a time or an offset
//! (`AdminBrokerProcessor.resetOffset`, `Broker2Client.resetOffset`).
//!
//! With `useServerSideResetOffset` the broker keeps the new offset until the group's next pull, so
//! the group may be online or not. Without it the group's members are told to move, and a group
//! without members stays where it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use rocketmq_protocol::body::MessageQueue;
use rocketmq_protocol::body::offset::{ResetOffsetBody, ResetOffsetBodyForC};
use rocketmq_protocol::body::topic::TopicConfig;
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::fastjson;
use rocketmq_protocol::frame::Frame;
use rocketmq_protocol::header::offset::InvokeBrokerToResetOffsetRequest;
use rocketmq_protocol::language::LanguageCode;
use rocketmq_protocol::response::Response;
use rocketmq_protocol::version;
use rocketmq_remoting::Connection;
use rocketmq_store::Boundary;
use tracing::{info, warn};

use super::relay::too_old;
use crate::client_table::ClientChannel;
use crate::request::header;
use crate::state::BrokerState;

type Offsets = BTreeMap<MessageQueue, i64>;

/// INVOKE_BROKER_TO_RESET_OFFSET.
pub fn invoke_broker_to_reset_offset(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: InvokeBrokerToResetOffsetRequest<'_> = header!(frame);
    let topic = &*request.topic;
    let Some(topic_config) = state.topics.get(topic) else {
        let remark = format!("Topic {topic} not exist!");
        return Response::error(ResponseCode::TOPIC_NOT_EXIST, remark);
    };
    let reset = if state.config.load().use_server_side_reset_offset {
        reset_here(state, &request, &topic_config)
    } else {
        tell_members(state, &request, &topic_config, frame.language)
    };
    match reset {
        Ok(offset_table) => Response::ok().with_json(&ResetOffsetBody { offset_table }),
        Err(refusal) => refusal,
    }
}

fn reset_here(
    state: &BrokerState,
    request: &InvokeBrokerToResetOffsetRequest<'_>,
    topic_config: &TopicConfig,
) -> Result<Offsets, Response> {
    let (group, topic) = (&*request.group, &*request.topic);
    if state.role.is_slave() {
        let remark = "Can not reset offset in slave broker";
        return Err(Response::error(ResponseCode::SYSTEM_ERROR, remark));
    }
    if state.groups.get(group).is_none() {
        let remark = format!("Group {group} not exist!");
        return Err(Response::error(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, remark));
    }
    let queues = if request.queue_id >= 0 {
        request.queue_id..request.queue_id.saturating_add(1)
    } else {
        0..topic_config.read_queue_nums
    };
    if queues.end > topic_config.read_queue_nums.max(topic_config.write_queue_nums) {
        let remark = format!("topic {topic} has no queue {}", request.queue_id);
        return Err(Response::error(ResponseCode::INVALID_PARAMETER, remark));
    }
    let mut offset_table = Offsets::new();
    for queue_id in queues {
        let given = request.offset.filter(|offset| request.queue_id >= 0 && *offset != -1);
        let offset = match given {
            Some(offset) => within_queue(state, topic, queue_id, offset)?,
            None => offset_at(state, topic, queue_id, request.timestamp)?,
        };
        offset_table.insert(queue(state, topic, queue_id), offset);
    }
    for (queue, offset) in &offset_table {
        state.offsets.reset(group, topic, queue.queue_id, *offset);
    }
    info!(group, topic, queues = offset_table.len(), "consumer offsets reset");
    Ok(offset_table)
}

/// Tells the members of the group to go on from other offsets; they commit them themselves.
fn tell_members(
    state: &BrokerState,
    request: &InvokeBrokerToResetOffsetRequest<'_>,
    topic_config: &TopicConfig,
    language: LanguageCode,
) -> Result<Offsets, Response> {
    let (group, topic) = (&*request.group, &*request.topic);
    let mut offset_table = Offsets::new();
    for queue_id in 0..topic_config.write_queue_nums {
        let Some(committed) = state.offsets.query(group, topic, queue_id) else {
            let remark = format!("THe consumer group <{group}> not exist");
            return Err(Response::error(ResponseCode::SYSTEM_ERROR, remark));
        };
        let wanted = offset_at(state, topic, queue_id, request.timestamp)?;
        let offset = if request.is_force { wanted } else { wanted.min(committed) };
        offset_table.insert(queue(state, topic, queue_id), offset);
    }
    let members: Vec<ClientChannel<Connection>> = state
        .clients
        .with_consumers(group, |members| members.channels().cloned().collect())
        .unwrap_or_default();
    if members.is_empty() {
        let remark = format!(
            "Consumer not online, so can not reset offset, Group: {group} Topic: {topic} \
             Timestamp: {}",
            request.timestamp
        );
        return Err(Response::error(ResponseCode::CONSUMER_NOT_ONLINE, remark));
    }
    if let Some(old) = members.iter().find(|member| member.version < version::V3_0_7_SNAPSHOT) {
        return Err(Response::error(ResponseCode::SYSTEM_ERROR, too_old(old.version)));
    }
    // The shape goes by who asks, not by who is told: an administrator of a group of C++ clients
    // uses the C++ tool.
    let body = match language {
        LanguageCode::Cpp => fastjson::to_vec(&ResetOffsetBodyForC::new(&offset_table)),
        _ => fastjson::to_vec(&ResetOffsetBody { offset_table: offset_table.clone() }),
    };
    let body = Bytes::from(body);
    // Java fills in neither `isForce` nor the queue.
    let header = InvokeBrokerToResetOffsetRequest {
        topic: topic.into(),
        group: group.into(),
        timestamp: request.timestamp,
        ..InvokeBrokerToResetOffsetRequest::default()
    };
    let mut told = 0;
    for member in &members {
        let code = RequestCode::RESET_CONSUMER_CLIENT_OFFSET;
        match member.connection.oneway(code, &header, body.clone()) {
            Ok(()) => told += 1,
            Err(error) => warn!(group, topic, %error, "consumer not told of its new offsets"),
        }
    }
    info!(group, topic, members = told, "consumers told of their new offsets");
    Ok(offset_table)
}

fn within_queue(
    state: &BrokerState,
    topic: &str,
    queue_id: i32,
    offset: i64,
) -> Result<i64, Response> {
    let min = state.store.min_queue_offset(topic, queue_id).max(0);
    let max = state.store.max_queue_offset(topic, queue_id).max(min);
    if (min..=max + 1).contains(&offset) {
        return Ok(offset);
    }
    let remark = format!(
        "offset {offset} of queue {queue_id} of topic {topic} is out of range, allowed is {min} to \
         {}",
        max + 1
    );
    Err(Response::error(ResponseCode::SYSTEM_ERROR, remark))
}

/// The offset of a time; below 0 stands for the queue's end.
fn offset_at(
    state: &BrokerState,
    topic: &str,
    queue_id: i32,
    timestamp: i64,
) -> Result<i64, Response> {
    if timestamp < 0 {
        return Ok(state.store.max_queue_offset(topic, queue_id).max(0));
    }
    let found = state.store.queue_offset_by_time(topic, queue_id, timestamp, Boundary::Lower);
    found.map_err(|error| Response::error(ResponseCode::SYSTEM_ERROR, error.to_string()))
}

fn queue(state: &BrokerState, topic: &str, queue_id: i32) -> MessageQueue {
    let broker_name = state.config.load().broker_name.clone();
    MessageQueue { topic: topic.to_owned(), broker_name, queue_id }
}
