//! Requests about offsets: those that groups committed, and those that queues have
//! (ConsumerManageProcessor, AdminBrokerProcessor).

use std::collections::BTreeMap;
use std::sync::Arc;

use rocketmq_protocol::body::MessageQueue;
use rocketmq_protocol::body::offset::ResetOffsetBody;
use rocketmq_protocol::code::ResponseCode;
use rocketmq_protocol::frame::Frame;
use rocketmq_protocol::header::offset::{
    GetEarliestMsgStoretimeRequest, GetEarliestMsgStoretimeResponse, GetMaxOffsetRequest,
    GetMaxOffsetResponse, GetMinOffsetRequest, GetMinOffsetResponse,
    InvokeBrokerToResetOffsetRequest, QueryConsumerOffsetRequest, QueryConsumerOffsetResponse,
    SearchOffsetByTimestampRequest, SearchOffsetByTimestampResponse, UpdateConsumerOffsetRequest,
};
use rocketmq_protocol::response::Response;
use rocketmq_remoting::Connection;
use rocketmq_store::Boundary;
use tracing::{info, warn};

use crate::metadata::consumer_offset::QUEUE_ID_MAX;
use crate::request::header;
use crate::state::BrokerState;

/// QUERY_CONSUMER_OFFSET: where the group stands in a queue.
///
/// A group without an offset may begin at 0 if the queue's first message is still there and in
/// memory; otherwise the client decides by its own rule (QUERY_NOT_FOUND).
pub fn query_consumer_offset(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: QueryConsumerOffsetRequest<'_> = header!(frame);
    let (group, topic, queue_id) = (&request.consumer_group, &request.topic, request.queue_id);
    let offset = state.offsets.query(group, topic, queue_id).or_else(|| {
        let may_begin_at_zero = request.set_zero_if_not_found != Some(false)
            && state.store.min_queue_offset(topic, queue_id) <= 0
            && is_first_in_memory(state, topic, queue_id);
        may_begin_at_zero.then_some(0)
    });
    match offset {
        Some(offset) => Response::ok().with_header(&QueryConsumerOffsetResponse { offset }),
        None => Response::error(
            ResponseCode::QUERY_NOT_FOUND,
            "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
        ),
    }
}

/// UPDATE_CONSUMER_OFFSET: commits where the group stands in a queue.
pub fn update_consumer_offset(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: UpdateConsumerOffsetRequest<'_> = header!(frame);
    let (group, topic) = (&*request.consumer_group, &*request.topic);
    // Offsets of what does not exist would bring a deleted group or topic back to life.
    if state.groups.get_or_create(group).is_none() {
        let remark = format!("Group {group} not exist!");
        return Response::error(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, remark);
    }
    if !state.topics.contains(topic) {
        let remark = format!("Topic {topic} not exist!");
        return Response::error(ResponseCode::TOPIC_NOT_EXIST, remark);
    }
    let (Some(queue_id), Some(offset)) = (request.queue_id, request.commit_offset) else {
        let field = if request.queue_id.is_none() { "queueId" } else { "commitOffset" };
        let remark = format!("mandatory header field {field} is missing, topic {topic}");
        return Response::error(ResponseCode::INVALID_PARAMETER, remark);
    };
    if !(0..=QUEUE_ID_MAX).contains(&queue_id) {
        let remark =
            format!("queueId of topic {topic} is {queue_id}, allowed is 0 to {QUEUE_ID_MAX}");
        return Response::error(ResponseCode::INVALID_PARAMETER, remark);
    }
    let mut response = Response::ok();
    if state.offsets.pending_reset(group, topic, queue_id).is_some() {
        response.remark = Some("Offset has been previously reset".to_owned());
        return response;
    }
    state.offsets.commit(group, topic, queue_id, offset);
    response
}

/// GET_MAX_OFFSET: the offset that the queue's next message will have; 0 for an unknown queue.
pub fn get_max_offset(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: GetMaxOffsetRequest<'_> = header!(frame);
    let offset = state.store.max_queue_offset(&request.topic, request.queue_id).max(0);
    Response::ok().with_header(&GetMaxOffsetResponse { offset })
}

/// GET_MIN_OFFSET: the offset of the queue's first message; 0 for an unknown queue.
pub fn get_min_offset(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: GetMinOffsetRequest<'_> = header!(frame);
    let offset = state.store.min_queue_offset(&request.topic, request.queue_id).max(0);
    Response::ok().with_header(&GetMinOffsetResponse { offset })
}

/// GET_EARLIEST_MSG_STORETIME: when the queue's first message was stored, −1 if there is none.
pub fn get_earliest_msg_storetime(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: GetEarliestMsgStoretimeRequest<'_> = header!(frame);
    let (topic, queue_id) = (&request.topic, request.queue_id);
    let first = state.store.min_queue_offset(topic, queue_id);
    let timestamp = state.store_time_at(topic, queue_id, first).unwrap_or(-1);
    Response::ok().with_header(&GetEarliestMsgStoretimeResponse { timestamp })
}

/// SEARCH_OFFSET_BY_TIMESTAMP: the first message stored at or after a time, or the last before it.
pub fn search_offset_by_timestamp(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: SearchOffsetByTimestampRequest<'_> = header!(frame);
    let upper = request.boundary_type.as_deref().is_some_and(|b| b.eq_ignore_ascii_case("upper"));
    let boundary = if upper { Boundary::Upper } else { Boundary::Lower };
    let (topic, queue_id) = (&request.topic, request.queue_id);
    match state.store.queue_offset_by_time(topic, queue_id, request.timestamp, boundary) {
        Ok(offset) => Response::ok().with_header(&SearchOffsetByTimestampResponse { offset }),
        Err(error) => Response::error(ResponseCode::SYSTEM_ERROR, error.to_string()),
    }
}

/// GET_ALL_CONSUMER_OFFSET: the whole table, as in the file.
pub fn get_all_consumer_offset(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    _frame: &Frame<'_>,
) -> Response {
    Response::ok().with_json(&state.offsets.snapshot())
}

/// GET_ALL_DELAY_OFFSET: how far each delay level is delivered, as in the file.
pub fn get_all_delay_offset(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    _frame: &Frame<'_>,
) -> Response {
    Response::ok().with_json(&state.delays.table())
}

/// INVOKE_BROKER_TO_RESET_OFFSET: moves a group in a topic to a time or an offset. The broker
/// keeps the new offset until the group's next pull (`useServerSideResetOffset`), so the group may
/// be online or not.
pub fn invoke_broker_to_reset_offset(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: InvokeBrokerToResetOffsetRequest<'_> = header!(frame);
    let config = state.config.load();
    if !config.use_server_side_reset_offset {
        let remark = "resetting offsets through online consumers is not supported by this broker \
                      version; set useServerSideResetOffset=true";
        return Response::error(ResponseCode::SYSTEM_ERROR, remark);
    }
    let (group, topic) = (&*request.group, &*request.topic);
    let Some(topic_config) = state.topics.get(topic) else {
        let remark = format!("Topic {topic} not exist!");
        return Response::error(ResponseCode::TOPIC_NOT_EXIST, remark);
    };
    if state.groups.get(group).is_none() {
        let remark = format!("Group {group} not exist!");
        return Response::error(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, remark);
    }
    let queues = if request.queue_id >= 0 {
        request.queue_id..request.queue_id.saturating_add(1)
    } else {
        0..topic_config.read_queue_nums
    };
    if queues.end > topic_config.read_queue_nums.max(topic_config.write_queue_nums) {
        let remark = format!("topic {topic} has no queue {}", request.queue_id);
        return Response::error(ResponseCode::INVALID_PARAMETER, remark);
    }
    let mut offset_table = BTreeMap::new();
    for queue_id in queues {
        let (min, max) = queue_range(state, topic, queue_id);
        let offset = match request.offset.filter(|offset| request.queue_id >= 0 && *offset >= 0) {
            Some(offset) if (min..=max + 1).contains(&offset) => offset,
            Some(offset) => {
                let remark = format!(
                    "offset {offset} of queue {queue_id} of topic {topic} is out of range, \
                     allowed is {min} to {}",
                    max + 1
                );
                return Response::error(ResponseCode::SYSTEM_ERROR, remark);
            }
            None if request.timestamp < 0 => max,
            None => {
                let (store, time) = (&state.store, request.timestamp);
                match store.queue_offset_by_time(topic, queue_id, time, Boundary::Lower) {
                    Ok(offset) => offset,
                    Err(error) => {
                        return Response::error(ResponseCode::SYSTEM_ERROR, error.to_string());
                    }
                }
            }
        };
        let queue = MessageQueue {
            topic: topic.to_owned(),
            broker_name: config.broker_name.clone(),
            queue_id,
        };
        offset_table.insert(queue, offset);
    }
    for (queue, offset) in &offset_table {
        state.offsets.reset(group, topic, queue.queue_id, *offset);
    }
    info!(group, topic, queues = offset_table.len(), "consumer offsets reset");
    Response::ok().with_json(&ResetOffsetBody { offset_table })
}

/// Whether the queue's first message is near enough to the end of the log to be in memory.
fn is_first_in_memory(state: &BrokerState, topic: &str, queue_id: i32) -> bool {
    match state.store.physical_offset_of(topic, queue_id, 0) {
        Ok(Some(physical_offset)) => state.store.is_hot(physical_offset),
        Ok(None) => false,
        Err(error) => {
            warn!(topic, queue_id, %error, "first message of the queue cannot be found");
            false
        }
    }
}

/// First offset and next offset of a queue.
fn queue_range(state: &BrokerState, topic: &str, queue_id: i32) -> (i64, i64) {
    let min = state.store.min_queue_offset(topic, queue_id).max(0);
    (min, state.store.max_queue_offset(topic, queue_id).max(min))
}
