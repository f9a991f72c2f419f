//! Messages that a consumer could not process: back to its retry topic, or to its dead letters
//! (`AbstractSendMessageProcessor.consumerSendMsgBack`, `handleRetryAndDLQ`).

use std::cell::RefCell;
use std::sync::Arc;

use rocketmq_protocol::body::topic::TopicConfig;
use rocketmq_protocol::code::ResponseCode;
use rocketmq_protocol::frame::Frame;
use rocketmq_protocol::header::send::{ConsumerSendMsgBackRequest, SendMessageRequest};
use rocketmq_protocol::message::id::OffsetMessageId;
use rocketmq_protocol::message::properties::{self, name};
use rocketmq_protocol::message::record::{MessageRecord, NewMessage};
use rocketmq_protocol::names;
use rocketmq_protocol::response::Response;
use rocketmq_remoting::Connection;
use rocketmq_store::AppendBatch;

use super::send::{Copies, append_error};
use super::transaction::{acknowledge, when_stored};
use crate::clock::monotonic_ms;
use crate::delay;
use crate::metadata::perm;
use crate::metadata::persist::MetadataError;
use crate::metrics::MessageType;
use crate::request::header;
use crate::state::BrokerState;

/// Queues of a dead-letter topic.
const DEAD_LETTER_QUEUES: i32 = 1;
/// Longest name of a topic in a record, in bytes.
const TOPIC_BYTES_MAX: usize = 255;
/// Delay level of the first retry; each further one waits a level longer.
const FIRST_RETRY_LEVEL: i32 = 3;

/// The topic of the group's messages that failed too often, made when the first one does.
///
/// # Errors
/// When `topics.json` cannot be written.
pub fn dead_letter_topic(
    state: &BrokerState,
    group: &str,
) -> Result<Arc<TopicConfig>, MetadataError> {
    let topic = format!("{}{group}", names::DLQ_PREFIX);
    state.topics.create_internal(&topic, DEAD_LETTER_QUEUES, perm::READ | perm::WRITE)
}

/// Whether a message that a consumer of `group` itself sends to its retry topic belongs to the dead
/// letters. `retry_max_times` is the group's.
pub fn is_dead_letter(
    state: &BrokerState,
    group: &str,
    retry_max_times: i32,
    request: &SendMessageRequest<'_>,
) -> bool {
    let max = request.max_reconsume_times.unwrap_or(retry_max_times);
    // A group that holds queue locks consumes in order: a retry would break it.
    request.reconsume_times.unwrap_or(0) > max || state.locks.has_lock(group, monotonic_ms())
}

/// Whether messages of this topic can be stored: it becomes the name of a directory. Names of groups
/// are checked less than those of topics, and a retry topic is made of one.
pub fn is_storable(topic: &str) -> bool {
    topic.len() <= TOPIC_BYTES_MAX && !topic.contains(['/', '\0'])
}

/// Says why not.
pub fn not_storable(topic: &str) -> String {
    format!(
        "topic {topic} cannot hold messages: it has {} bytes, {TOPIC_BYTES_MAX} are allowed, and no \
         slash or zero byte; rename the group",
        topic.len()
    )
}

thread_local! {
    /// Where a copy is encoded; kept for its buffers. A thread belongs to one broker.
    static COPY: RefCell<Option<AppendBatch>> = const { RefCell::new(None) };
}

/// Whether a message sent back can be copied on the connection's thread: it is in memory. One that
/// cannot be read is answered there as well. Nor may the copy have to wait for the in-sync set: the
/// consumer forgets the message for it.
pub fn is_quick(state: &BrokerState, frame: &Frame<'_>) -> bool {
    if Copies::waited_for(state, &state.config.load()) == Copies::InSyncSet {
        return false;
    }
    frame
        .header::<ConsumerSendMsgBackRequest<'_>>()
        .is_ok_and(|request| state.store.is_hot(request.offset))
}

/// CONSUMER_SEND_MSG_BACK: stores a copy of the message for another try, later.
pub fn consumer_send_msg_back(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: ConsumerSendMsgBackRequest<'_> = header!(frame);
    let group_name = &*request.group;
    // Before a topic is created that the master does not know.
    if let Err((code, remark)) = state.role.takes_messages() {
        return Response::error(code, remark);
    }
    let Some(group) = state.groups.get_or_create(group_name) else {
        let remark = format!("subscription group not exist, {group_name}");
        return Response::error(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, remark);
    };
    let config = state.config.load();
    if config.broker_permission & perm::WRITE == 0 {
        let remark = format!("the broker[{}] sending message is forbidden", config.broker_ip1);
        return Response::error(ResponseCode::NO_PERMISSION, remark);
    }
    if group.retry_queue_nums <= 0 {
        // The group wants no retries.
        return Response::ok();
    }
    let retry_topic = names::retry_topic(group_name);
    if !is_storable(&retry_topic) {
        return Response::error(ResponseCode::MESSAGE_ILLEGAL, not_storable(&retry_topic));
    }
    let Some(bytes) = state.store.message_at(request.offset) else {
        let remark = format!("look message by offset failed, {}", request.offset);
        return Response::error(ResponseCode::SYSTEM_ERROR, remark);
    };
    let Ok(record) = MessageRecord::decode(&bytes) else {
        let remark = format!("there is no message at offset {}", request.offset);
        return Response::error(ResponseCode::SYSTEM_ERROR, remark);
    };
    let max = request.max_reconsume_times.unwrap_or(group.retry_max_times);
    let is_dead = request.delay_level < 0 || record.reconsume_times >= max;
    let topic = if is_dead {
        dead_letter_topic(state, group_name)
    } else {
        state.topics.create_internal(&retry_topic, group.retry_queue_nums, perm::READ | perm::WRITE)
    };
    let topic = match topic {
        Ok(topic) => topic,
        Err(error) => {
            tracing::error!(group = group_name, %error, "topic of a message sent back");
            return Response::error(ResponseCode::SYSTEM_ERROR, error.to_string());
        }
    };
    if topic.perm & perm::WRITE == 0 {
        let remark = format!("the topic[{}] sending message is forbidden", topic.topic_name);
        return Response::error(ResponseCode::NO_PERMISSION, remark);
    }
    let level = match (is_dead, request.delay_level) {
        (true, _) => 0,
        (false, 0) => FIRST_RETRY_LEVEL.saturating_add(record.reconsume_times),
        (false, level) => level,
    };
    let queue_id = rand::random_range(0..topic.write_queue_nums.max(1));
    let end = match store_copy(state, &record, &topic, queue_id, level) {
        Ok(end) => end,
        Err(response) => return response,
    };
    let response = match Copies::waited_for(state, &config) {
        Copies::InSyncSet => when_stored(state, &config, end),
        Copies::None | Copies::Slaves(_) => acknowledge(state),
    };
    if response.code == ResponseCode::SUCCESS {
        // Under the topic that the application knows.
        let first_topic = properties::find(record.properties, name::RETRY_TOPIC);
        state.metrics.sent_back(group_name, first_topic.unwrap_or(record.topic));
    }
    response
}

/// Appends a copy of `record` under `topic`, delayed by `level`. Returns where it ends in the log.
fn store_copy(
    state: &BrokerState,
    record: &MessageRecord<'_>,
    topic: &Arc<TopicConfig>,
    queue_id: i32,
    level: i32,
) -> Result<i64, Response> {
    let levels = state.store.config().delay_levels_ms.len();
    let diversion = delay::divert(level, levels, &topic.topic_name, queue_id);
    let properties = copied_properties(record);
    let (stored_topic, stored_queue, more) = match &diversion {
        Some(diversion) => (names::SCHEDULE_TOPIC, diversion.queue_id, &*diversion.properties),
        None => (&*topic.topic_name, queue_id, &[][..]),
    };
    let copy = NewMessage {
        topic: stored_topic,
        queue_id: stored_queue,
        flag: record.flag,
        sys_flag: record.sys_flag,
        born_timestamp_ms: record.born_timestamp_ms,
        born_host: record.born_host,
        store_host: state.identity.store_host,
        reconsume_times: record.reconsume_times.saturating_add(1),
        prepared_transaction_offset: 0,
        body: record.body,
        properties: &[&properties, more],
    };
    COPY.with_borrow_mut(|batch| {
        let batch = batch.get_or_insert_with(|| state.store.new_batch());
        batch.clear();
        if let Err(error) = batch.push(&copy) {
            return Err(Response::error(ResponseCode::MESSAGE_ILLEGAL, error.to_string()));
        }
        match state.store.append(batch) {
            Ok(appended) => {
                let kind =
                    if diversion.is_some() { MessageType::Delay } else { MessageType::Normal };
                state.metrics.copy_stored(stored_topic, kind, stored_queue, batch.bytes());
                Ok(appended.end_physical_offset)
            }
            Err(error) => {
                state.metrics.store_failed(1);
                let (code, remark) = append_error(&error);
                Err(Response::error(code, remark))
            }
        }
    })
}

/// The message's properties without those of an earlier delay, and with where it came from.
fn copied_properties(record: &MessageRecord<'_>) -> Vec<u8> {
    let mut block = Vec::with_capacity(record.properties.len() + 128);
    let (mut has_retry_topic, mut has_origin) = (false, false);
    for (key, value) in properties::iter_str(record.properties) {
        match key {
            name::DELAY | name::REAL_TOPIC | name::REAL_QID | name::WAIT => continue,
            name::RETRY_TOPIC => has_retry_topic = true,
            name::ORIGIN_MESSAGE_ID => has_origin = true,
            _ => {}
        }
        properties::append(&mut block, key, value);
    }
    if !has_retry_topic {
        properties::append(&mut block, name::RETRY_TOPIC, record.topic);
    }
    if !has_origin {
        let id = OffsetMessageId {
            store_host: record.store_host,
            physical_offset: record.physical_offset,
        };
        properties::append(&mut block, name::ORIGIN_MESSAGE_ID, &id.to_string());
    }
    properties::append(&mut block, name::WAIT, "false");
    block
}
