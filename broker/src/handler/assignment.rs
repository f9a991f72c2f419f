//! QUERY_ASSIGNMENT and the requests about how groups consume (`QueryAssignmentProcessor`).

use std::sync::Arc;

use rocketmq_protocol::body::MessageQueue;
use rocketmq_protocol::body::assignment::{
    MessageQueueAssignment, QueryAssignmentRequestBody, QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
};
use rocketmq_protocol::body::route::{QueueData, TopicRouteData};
use rocketmq_protocol::code::ResponseCode;
use rocketmq_protocol::fastjson;
use rocketmq_protocol::frame::Frame;
use rocketmq_protocol::names;
use rocketmq_protocol::response::Response;
use rocketmq_protocol::subscription::MessageModel;
use rocketmq_remoting::Connection;
use tracing::debug;

use super::relay::{Later, at_once};
use crate::assignment::{Strategy, readable_queues};
use crate::request::bad_body;
use crate::state::BrokerState;

/// The only mode of this broker.
const PULL: &str = "PULL";

/// QUERY_ASSIGNMENT: the queues of one member of a group, for clients that leave the sharing out to
/// the broker. An answer without queues, not an empty list of them, says that nothing is known and
/// nothing changes.
pub fn query_assignment(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Later {
    let request: QueryAssignmentRequestBody = match fastjson::from_slice(frame.body) {
        Ok(request) => request,
        Err(error) => return at_once(bad_body(frame, &error)),
    };
    let state = Arc::clone(state);
    Box::pin(async move {
        let queues = queues_of(&state, &request.topic).await;
        let assigned = queues.and_then(|queues| share(&state, &request, &queues));
        let message_queue_assignments = assigned.map(|queues| {
            let assignment = |message_queue| MessageQueueAssignment {
                attachments: None,
                message_queue,
                mode: PULL.to_owned(),
            };
            queues.into_iter().map(assignment).collect()
        });
        Response::ok().with_json(&QueryAssignmentResponseBody { message_queue_assignments })
    })
}

fn share(
    state: &BrokerState,
    request: &QueryAssignmentRequestBody,
    queues: &[MessageQueue],
) -> Option<Vec<MessageQueue>> {
    let all = request.message_model == MessageModel::Broadcasting
        || !state.config.load().server_load_balancer_enable;
    if all {
        return Some(queues.to_vec());
    }
    let client_ids = state.clients.consumer_ids(&request.consumer_group);
    if client_ids.is_empty() || queues.is_empty() || request.client_id.trim().is_empty() {
        return None;
    }
    let strategy = Strategy::from_name(&request.strategy_name)?;
    let assigned = strategy.allocate(&request.client_id, queues, &client_ids);
    Some(assigned.into_iter().cloned().collect())
}

/// Queues of a topic on all brokers; `None` if the topic has no route. A broker without name servers
/// is all the brokers there are.
async fn queues_of(state: &BrokerState, topic: &str) -> Option<Arc<Vec<MessageQueue>>> {
    if let Some(known) = state.assignments.route(topic) {
        return Some(known);
    }
    if !state.registration.has_name_servers() {
        return own_queues(state, topic).map(Arc::new);
    }
    match state.registration.topic_route(topic).await {
        Ok(route) => {
            let queues = Arc::new(readable_queues(topic, &route));
            state.assignments.learn_route(topic, queues.clone());
            Some(queues)
        }
        Err(error) => {
            debug!(topic, %error, "no route to share out the queues of");
            None
        }
    }
}

fn own_queues(state: &BrokerState, topic: &str) -> Option<Vec<MessageQueue>> {
    let config = state.topics.get(topic)?;
    let own = QueueData {
        broker_name: state.config.load().broker_name.clone(),
        perm: config.perm,
        read_queue_nums: config.read_queue_nums,
        ..QueueData::default()
    };
    let route = TopicRouteData { queue_datas: vec![own], ..TopicRouteData::default() };
    Some(readable_queues(topic, &route))
}

/// SET_MESSAGE_REQUEST_MODE: whether a group pulls or pops a topic. This broker has pulls alone.
pub fn set_message_request_mode(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: SetMessageRequestModeRequestBody = match fastjson::from_slice(frame.body) {
        Ok(request) => request,
        Err(error) => return bad_body(frame, &error),
    };
    if request.topic.starts_with(names::RETRY_PREFIX) {
        let remark = "retry topic is not allowed to set mode";
        return Response::error(ResponseCode::NO_PERMISSION, remark);
    }
    if !state.topics.contains(&request.topic) {
        let remark = format!("topic[{}] not exist", request.topic);
        return Response::error(ResponseCode::TOPIC_NOT_EXIST, remark);
    }
    if state.groups.get_or_create(&request.consumer_group).is_none() {
        let remark = "subscription group does not exist";
        return Response::error(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, remark);
    }
    if request.mode != PULL {
        let remark = format!(
            "mode `{}` is not supported by this broker version, allowed is PULL: it has no POP \
             consumption",
            request.mode
        );
        return Response::error(ResponseCode::REQUEST_CODE_NOT_SUPPORTED, remark);
    }
    match state.assignments.set_mode(request) {
        Ok(()) => Response::ok(),
        Err(error) => Response::error(ResponseCode::SYSTEM_ERROR, error.to_string()),
    }
}

/// GET_ALL_MESSAGE_REQUEST_MODE: the whole table, as in the file.
pub fn get_all_message_request_mode(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    _frame: &Frame<'_>,
) -> Response {
    Response::ok().with_json(&state.assignments.modes())
}
