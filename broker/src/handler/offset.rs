//! Requests about offsets: those that groups committed, and those that queues have
//! (ConsumerManageProcessor, AdminBrokerProcessor).

use std::collections::BTreeMap;
use std::sync::Arc;

use rocketmq_protocol::body::offset::QueryCorrectionOffsetBody;
use rocketmq_protocol::code::ResponseCode;
use rocketmq_protocol::frame::Frame;
use rocketmq_protocol::header::offset::{
    CloneGroupOffsetRequest, GetEarliestMsgStoretimeRequest, GetEarliestMsgStoretimeResponse,
    GetMaxOffsetRequest, GetMaxOffsetResponse, GetMinOffsetRequest, GetMinOffsetResponse,
    QueryConsumerOffsetRequest, QueryConsumerOffsetResponse, QueryCorrectionOffsetRequest,
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
    // A slave that becomes master has what is confirmed, and not always the rest.
    let table = match state.store.shows_confirmed_only() {
        true => state.delays.settled_table(),
        false => state.delays.table(),
    };
    Response::ok().with_json(&table)
}

/// CLONE_GROUP_OFFSET: lets one group go on where another stands, in a topic or in all of them.
pub fn clone_group_offset(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: CloneGroupOffsetRequest<'_> = header!(frame);
    let (from, to) = (&*request.src_group, &*request.dest_group);
    let topics = match request.topic.as_deref().map(str::trim).filter(|topic| !topic.is_empty()) {
        Some(topic) => vec![topic.to_owned()],
        None => state.offsets.topics_of(from),
    };
    for topic in &topics {
        let left = !request.offline && state.clients.has_left(from, topic);
        if state.topics.contains(topic) && !left {
            state.offsets.clone_topic(from, to, topic);
        }
    }
    info!(from, to, ?topics, "consumer offsets cloned");
    Response::ok()
}

/// QUERY_CORRECTION_OFFSET: the least offset that any group has in each queue of a topic, or the
/// greatest number there is where the group that is compared with is behind all others.
pub fn query_correction_offset(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: QueryCorrectionOffsetRequest<'_> = header!(frame);
    let topic = &*request.topic;
    let left_out: Vec<&str> =
        request.filter_groups.as_deref().unwrap_or_default().split(',').collect();
    let mut correction_offsets = BTreeMap::new();
    for group in state.offsets.groups_of(topic) {
        if left_out.contains(&group.as_str()) {
            continue;
        }
        for (queue_id, offset) in state.offsets.of_topic(&group, topic) {
            // What lies in front of the queue is no place to go on from.
            if offset >= state.store.min_queue_offset(topic, queue_id) {
                let least = correction_offsets.entry(queue_id).or_insert(offset);
                *least = offset.min(*least);
            }
        }
    }
    for (queue_id, offset) in state.offsets.of_topic(&request.compare_group, topic) {
        if let Some(least) = correction_offsets.get_mut(&queue_id)
            && *least > offset
        {
            *least = i64::MAX;
        }
    }
    Response::ok().with_json(&QueryCorrectionOffsetBody { correction_offsets })
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
