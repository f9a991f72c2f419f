//! Requests of administrators about topics (AdminBrokerProcessor).

use std::sync::Arc;
use std::time::{Duration, Instant};

use rocketmq_protocol::body::route::TopicList;
use rocketmq_protocol::body::topic::CreateTopicListBody;
use rocketmq_protocol::body::{TopicConfig, TopicConfigSerializeWrapper};
use rocketmq_protocol::code::ResponseCode;
use rocketmq_protocol::fastjson;
use rocketmq_protocol::frame::Frame;
use rocketmq_protocol::header::topic::{
    DeleteTopicRequest, GetTopicConfigRequest, UpdateAndCreateTopicRequest,
};
use rocketmq_protocol::response::Response;
use rocketmq_remoting::Connection;

use crate::metadata::topic::{TopicError, parse_attributes};
use crate::request::{bad_body, header};
use crate::state::BrokerState;

/// How long an answer waits for the name servers to know what changed: an administrator's next
/// step is often to use the topic. Shorter than any tool's own time-out.
pub const REGISTRATION_WAIT: Duration = Duration::from_secs(2);

/// UPDATE_AND_CREATE_TOPIC.
pub fn update_and_create_topic(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: UpdateAndCreateTopicRequest<'_> = header!(frame);
    let attributes = match parse_attributes(request.attributes.as_deref().unwrap_or_default()) {
        Ok(attributes) => attributes,
        Err(error) => return refused(&error),
    };
    let topic = TopicConfig {
        topic_name: request.topic.into_owned(),
        read_queue_nums: request.read_queue_nums,
        write_queue_nums: request.write_queue_nums,
        perm: request.perm,
        topic_filter_type: request.topic_filter_type.into_owned(),
        topic_sys_flag: request.topic_sys_flag.unwrap_or(0),
        order: request.order,
        attributes,
    };
    update(state, vec![topic])
}

/// UPDATE_AND_CREATE_TOPIC_LIST: several at once, all or none.
pub fn update_and_create_topic_list(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    match fastjson::from_slice::<CreateTopicListBody>(frame.body) {
        Ok(request) => update(state, request.topic_config_list),
        Err(error) => bad_body(frame, &error),
    }
}

fn update(state: &BrokerState, topics: Vec<TopicConfig>) -> Response {
    let began = Instant::now();
    let created: Vec<bool> = topics
        .iter()
        .filter(|topic| !state.topics.contains(&topic.topic_name))
        .map(|topic| state.topics.is_system(&topic.topic_name))
        .collect();
    let updated = state.topics.update(topics, &state.config.load());
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    for system in created {
        state.metrics.topic_created(updated.is_ok(), system, took_ms);
    }
    match updated {
        Ok(_) => {
            state.registration.wait_until_known(REGISTRATION_WAIT);
            Response::ok()
        }
        Err(error) => refused(&error),
    }
}

/// DELETE_TOPIC_IN_BROKER: the topic, its messages' queues, its groups' offsets, its locks. An
/// unknown topic is deleted already.
pub fn delete_topic_in_broker(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: DeleteTopicRequest<'_> = header!(frame);
    let topic = request.topic.trim();
    if topic.is_empty() {
        let remark = "The specified topic is blank.";
        return Response::error(ResponseCode::INVALID_PARAMETER, remark);
    }
    if state.config.load().validate_system_topic_when_update_topic && state.topics.is_system(topic)
    {
        return refused(&TopicError::System(topic.to_owned()));
    }
    let deleted: Result<bool, DeleteError> = state.topics.delete(topic, || {
        state.store.delete_topic(topic)?;
        state.offsets.remove_topic(topic);
        state.offsets.persist()?;
        state.filters.remove_topic(topic);
        state.filters.persist()?;
        Ok(())
    });
    if let Err(error) = deleted {
        let remark = format!("topic {topic} is not deleted: {error}");
        return Response::error(ResponseCode::SYSTEM_ERROR, remark);
    }
    state.locks.remove_topic(topic);
    state.metrics.remove_topic(topic);
    state.transactions.counts.remove(topic);
    state.registration.wait_until_known(REGISTRATION_WAIT);
    Response::ok()
}

/// Why a topic stays.
#[derive(Debug, thiserror::Error)]
enum DeleteError {
    #[error(transparent)]
    Metadata(#[from] crate::metadata::persist::MetadataError),
    #[error(transparent)]
    Store(#[from] rocketmq_store::StoreError),
}

/// GET_ALL_TOPIC_CONFIG: every topic, with the data version.
pub fn get_all_topic_config(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    _frame: &Frame<'_>,
) -> Response {
    let (data_version, topics) = state.topics.versioned_snapshot();
    let topic_config_table =
        topics.iter().map(|(name, topic)| (name.to_string(), (**topic).clone())).collect();
    Response::ok().with_json(&TopicConfigSerializeWrapper {
        data_version,
        topic_config_table,
        ..TopicConfigSerializeWrapper::default()
    })
}

/// GET_TOPIC_CONFIG: one topic.
pub fn get_topic_config(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: GetTopicConfigRequest<'_> = header!(frame);
    match state.topics.get(&request.topic) {
        Some(topic) => Response::ok().with_json(&*topic),
        None => {
            let remark = format!("No topic in this broker. topic: {}", request.topic);
            Response::error(ResponseCode::TOPIC_NOT_EXIST, remark)
        }
    }
}

/// GET_SYSTEM_TOPIC_LIST_FROM_BROKER: all reserved names.
pub fn get_system_topic_list(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    _frame: &Frame<'_>,
) -> Response {
    Response::ok()
        .with_json(&TopicList { topic_list: state.topics.reserved_names(), ..TopicList::default() })
}

fn refused(error: &TopicError) -> Response {
    Response::error(error.response_code(), error.to_string())
}
