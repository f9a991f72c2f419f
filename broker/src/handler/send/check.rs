//! What makes the broker refuse a send, and what it reads from its properties.
//!
//! Timed messages are refused here until the broker has them: storing them as ordinary ones would
//! deliver what must not be delivered yet.

use std::sync::Arc;

use rocketmq_protocol::body::topic::TopicConfig;
use rocketmq_protocol::code::ResponseCode;
use rocketmq_protocol::header::send::SendMessageRequest;
use rocketmq_protocol::message::batch;
use rocketmq_protocol::message::properties::{self, name};
use rocketmq_protocol::message::record::sys_flag;
use rocketmq_protocol::names;
use rocketmq_remoting::Connection;
use rocketmq_store::MessageError;

use crate::clock::now_ms;
use crate::config::BrokerConfig;
use crate::delay;
use crate::handler::retry;
use crate::metadata::attributes;
use crate::metadata::perm;
use crate::metadata::persist::MetadataError;
use crate::state::BrokerState;
use crate::transaction::half;

/// What a refused send is told.
pub(super) struct Refusal {
    pub(super) code: ResponseCode,
    pub(super) remark: String,
}

impl Refusal {
    pub(super) fn new(code: ResponseCode, remark: impl Into<String>) -> Refusal {
        Refusal { code, remark: remark.into() }
    }
}

/// What a property block says to the broker.
#[derive(Default)]
pub(super) struct Said<'a> {
    pub(super) unique_key: Option<&'a str>,
    pub(super) delay: Option<&'a str>,
    pub(super) is_timed: bool,
    pub(super) is_transaction: bool,
    pub(super) does_not_wait: bool,
    /// It holds a property that the broker itself sets, so it cannot be stored as it is.
    pub(super) needs_rewrite: bool,
    pub(super) has_sharding_key: bool,
    /// It says how many messages an inner batch has.
    pub(super) has_inner_num: bool,
}

impl<'a> Said<'a> {
    pub(super) fn read(block: &'a [u8]) -> Said<'a> {
        let mut said = Said::default();
        for (key, value) in properties::iter_str(block) {
            match key {
                name::UNIQ_KEY => said.unique_key = Some(value),
                name::DELAY => said.delay = Some(value),
                name::TIMER_DELAY_SEC | name::TIMER_DELAY_MS | name::TIMER_DELIVER_MS => {
                    said.is_timed = true;
                }
                name::TRAN_MSG => said.is_transaction = value.eq_ignore_ascii_case("true"),
                name::WAIT => said.does_not_wait = value.eq_ignore_ascii_case("false"),
                name::SHARDING_KEY => said.has_sharding_key = true,
                name::INNER_NUM => said.has_inner_num = true,
                name::MSG_REGION | name::TRACE_ON | name::CLUSTER | name::POP_CK => {
                    said.needs_rewrite = true;
                }
                _ => {}
            }
        }
        said
    }

    /// The delay level that is asked for; 0 for none.
    pub(super) fn delay_level(&self) -> Result<i32, Refusal> {
        let Some(text) = self.delay else { return Ok(0) };
        text.trim().parse().map_err(|_| {
            let remark = format!("property DELAY is `{text}`, a delay level (integer) expected");
            Refusal::new(ResponseCode::SYSTEM_ERROR, remark)
        })
    }

    /// Refuses what this broker does not do yet. The codes are such that a producer gives up at
    /// once instead of trying other brokers.
    pub(super) fn require_ordinary(&self) -> Result<(), Refusal> {
        if self.is_timed {
            return Err(unsupported("timed messages", "send it without TIMER_ properties"));
        }
        Ok(())
    }

    /// Whether the message is one half of a transaction. One that a consumer hands back is not,
    /// whatever it once was: old clients send it back with all its properties.
    pub(super) fn is_half(&self, request: &SendMessageRequest<'_>, delay_level: i32) -> bool {
        self.is_transaction
            && !(request.reconsume_times.unwrap_or(0) > 0 && delay_level > 0)
            && !request.topic.starts_with(names::RETRY_PREFIX)
    }
}

pub(super) fn unsupported(what: &str, fix: &str) -> Refusal {
    let remark = format!("{what} are not supported by this broker version; {fix}");
    Refusal::new(ResponseCode::REQUEST_CODE_NOT_SUPPORTED, remark)
}

/// Checks everything about a send but its message, and chooses the queue.
pub(super) fn check(
    state: &BrokerState,
    config: &BrokerConfig,
    conn: &Connection,
    request: &SendMessageRequest<'_>,
) -> Result<(Arc<TopicConfig>, i32), Refusal> {
    let topic_name = &*request.topic;
    if now_ms() < config.start_accept_send_request_time_stamp {
        let remark = format!(
            "broker unable to service, until {} (startAcceptSendRequestTimeStamp)",
            config.start_accept_send_request_time_stamp
        );
        return Err(Refusal::new(ResponseCode::SYSTEM_ERROR, remark));
    }
    // Before a topic is created that the master does not know.
    state.role.takes_messages().map_err(|(code, remark)| Refusal::new(code, remark))?;
    let topic = match state.topics.get(topic_name) {
        Some(topic) => topic,
        None => create_topic(state, config, request)?,
    };
    if names::is_send_forbidden_topic(topic_name) {
        let remark = format!("sending message to topic[{topic_name}] is forbidden");
        return Err(Refusal::new(ResponseCode::NO_PERMISSION, remark));
    }
    if config.broker_permission & perm::WRITE == 0 && topic.order {
        let remark = format!("the broker[{}] sending message is forbidden", config.broker_ip1);
        return Err(Refusal::new(ResponseCode::NO_PERMISSION, remark));
    }
    check_queue_type(&topic, request)?;
    let queues = topic.write_queue_nums.max(topic.read_queue_nums);
    if request.queue_id >= queues {
        let remark = format!(
            "request queueId[{}] is illegal, topic {topic_name} has {queues} queues, producer: {}",
            request.queue_id,
            conn.remote_text()
        );
        return Err(Refusal::new(ResponseCode::INVALID_PARAMETER, remark));
    }
    if request.queue_id >= 0 {
        return Ok((topic, request.queue_id));
    }
    if topic.write_queue_nums < 1 {
        let remark = format!("topic {topic_name} has no queue for writing; raise writeQueueNums");
        return Err(Refusal::new(ResponseCode::NO_PERMISSION, remark));
    }
    let queue_id = rand::random_range(0..topic.write_queue_nums);
    Ok((topic, queue_id))
}

/// Refuses what does not go together with the topic's kind of queues.
fn check_queue_type(topic: &TopicConfig, request: &SendMessageRequest<'_>) -> Result<(), Refusal> {
    let is_batch = request.batch == Some(true);
    if !attributes::has_batch_queues(&topic.attributes) {
        // `HookUtils.checkInnerBatch`.
        return match request.sys_flag & sys_flag::INNER_BATCH {
            0 => Ok(()),
            _ => {
                let remark = format!(
                    "the message is an inner batch (sysFlag 0x80), topic {} has no batch queues \
                     (queue.type=BatchCQ)",
                    topic.topic_name
                );
                Err(Refusal::new(ResponseCode::MESSAGE_ILLEGAL, remark))
            }
        };
    }
    if is_batch {
        return Ok(());
    }
    // The Java broker takes it, but it gets no entry in the queue.
    let remark = format!(
        "topic {} has batch queues (queue.type=BatchCQ), in which no consumer would see a single \
         message; send batches, or make a topic without that attribute",
        topic.topic_name
    );
    Err(Refusal::new(ResponseCode::MESSAGE_ILLEGAL, remark))
}

/// Refuses a message that says it is an inner batch and is none (`HookUtils.checkInnerBatch`).
pub(super) fn check_no_inner_batch(said: &Said<'_>) -> Result<(), Refusal> {
    if !said.has_inner_num {
        return Ok(());
    }
    let remark = "the message has property INNER_NUM but is no inner batch; send it without";
    Err(Refusal::new(ResponseCode::MESSAGE_ILLEGAL, remark))
}

/// Where a message is stored: as it was sent, or elsewhere.
pub(super) struct Destination {
    pub(super) topic: Arc<TopicConfig>,
    pub(super) queue_id: i32,
    /// The queue that the producer is told.
    pub(super) answered_queue_id: i32,
    /// Whether it is not stored as it was sent.
    pub(super) is_redirected: bool,
    /// Whether it is to be delivered later.
    pub(super) is_delayed: bool,
    /// Properties that this adds.
    pub(super) properties: Vec<u8>,
}

/// Chooses where a message that was sent to `topic` and `queue_id` is stored: with a delay level in
/// the schedule topic, after too many retries among its group's dead letters.
pub(super) fn destination(
    state: &BrokerState,
    request: &SendMessageRequest<'_>,
    topic: Arc<TopicConfig>,
    queue_id: i32,
    delay_level: i32,
) -> Result<Destination, Refusal> {
    let failed = |error: MetadataError| not_made(&request.topic, &error);
    if let Some(group_name) = request.topic.strip_prefix(names::RETRY_PREFIX) {
        if !retry::is_storable(&request.topic) {
            let remark = retry::not_storable(&request.topic);
            return Err(Refusal::new(ResponseCode::MESSAGE_ILLEGAL, remark));
        }
        let Some(group) = state.groups.get_or_create(group_name) else {
            let remark = format!("subscription group not exist, {group_name}");
            return Err(Refusal::new(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, remark));
        };
        if retry::is_dead_letter(state, group_name, group.retry_max_times, request) {
            let mut properties = Vec::new();
            properties::append(&mut properties, name::DELAY, "-1");
            return Ok(Destination {
                topic: retry::dead_letter_topic(state, group_name).map_err(failed)?,
                queue_id: 0,
                answered_queue_id: 0,
                is_redirected: true,
                is_delayed: false,
                properties,
            });
        }
    }
    let levels = state.store.config().delay_levels_ms.len();
    let Some(diversion) = delay::divert(delay_level, levels, &request.topic, queue_id) else {
        return Ok(Destination {
            topic,
            queue_id,
            answered_queue_id: queue_id,
            is_redirected: false,
            is_delayed: false,
            properties: Vec::new(),
        });
    };
    let schedule = state.topics.create_internal(
        names::SCHEDULE_TOPIC,
        i32::try_from(levels).unwrap_or(i32::MAX),
        perm::READ | perm::WRITE,
    );
    Ok(Destination {
        topic: schedule.map_err(failed)?,
        queue_id: diversion.queue_id,
        answered_queue_id: queue_id,
        is_redirected: true,
        is_delayed: true,
        properties: diversion.properties,
    })
}

/// Where a half message is stored that was sent to `topic` and `queue_id`.
pub(super) fn half_destination(
    state: &BrokerState,
    config: &BrokerConfig,
    request: &SendMessageRequest<'_>,
    queue_id: i32,
    delay_level: i32,
    unique_key: &str,
) -> Result<Destination, Refusal> {
    if config.reject_transaction_message {
        let remark = format!(
            "the broker[{}] sending transaction message is forbidden (rejectTransactionMessage)",
            config.broker_ip1
        );
        return Err(Refusal::new(ResponseCode::NO_PERMISSION, remark));
    }
    if delay_level > 0 {
        // The Java broker stores it where nobody ever looks.
        let remark = format!(
            "a transactional message cannot be delayed (property DELAY is {delay_level}); send it \
             without a delay level"
        );
        return Err(Refusal::new(ResponseCode::MESSAGE_ILLEGAL, remark));
    }
    let rw = perm::READ | perm::WRITE;
    let topic = state
        .topics
        .create_internal(names::TRANS_HALF_TOPIC, half::QUEUES, rw)
        .map_err(|error| not_made(names::TRANS_HALF_TOPIC, &error))?;
    Ok(Destination {
        topic,
        queue_id: half::QUEUE_ID,
        answered_queue_id: queue_id,
        is_redirected: true,
        is_delayed: false,
        properties: half::prepared_properties(unique_key, &request.topic, queue_id),
    })
}

fn not_made(topic: &str, error: &MetadataError) -> Refusal {
    tracing::error!(topic, %error, "creating a topic failed");
    Refusal::new(ResponseCode::SYSTEM_ERROR, error.to_string())
}

/// Refuses a half message whose properties would leave no room for what a check of it adds.
pub(super) fn require_room_for_copies(pieces: &[&[u8]]) -> Result<(), Refusal> {
    let bytes = properties::joined_len(pieces);
    let bytes_max = properties::PROPERTIES_BYTES_MAX - half::PROPERTIES_BYTES_OF_COPIES;
    if bytes <= bytes_max {
        return Ok(());
    }
    let remark = format!(
        "the properties of a transactional message are {bytes} bytes with the broker's own, at most \
         {bytes_max} are allowed"
    );
    Err(Refusal::new(ResponseCode::MESSAGE_ILLEGAL, remark))
}

/// What a batch with a transactional message is told.
pub(super) fn transaction_in_batch() -> Refusal {
    let remark = "a batch must not hold transactional messages";
    Refusal::new(ResponseCode::MESSAGE_ILLEGAL, remark)
}

/// Creates the topic of a send, if it may be.
fn create_topic(
    state: &BrokerState,
    config: &BrokerConfig,
    request: &SendMessageRequest<'_>,
) -> Result<Arc<TopicConfig>, Refusal> {
    let topic_name = &*request.topic;
    if let Err(error) = names::validate_topic(topic_name) {
        return Err(Refusal::new(ResponseCode::INVALID_PARAMETER, error.to_string()));
    }
    if names::is_send_forbidden_topic(topic_name) {
        let remark = format!("sending message to topic[{topic_name}] is forbidden");
        return Err(Refusal::new(ResponseCode::NO_PERMISSION, remark));
    }
    // Bit 0 of a topic's flags is unit mode (RocketMQ's TopicSysFlag).
    let sys_flag = i32::from(request.unit_mode == Some(true));
    let created = match topic_name.strip_prefix(names::RETRY_PREFIX) {
        Some(group) => {
            if state.groups.get_or_create(group).is_none() {
                let remark = format!("subscription group not exist, {group}");
                return Err(Refusal::new(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, remark));
            }
            state.topics.create_internal(topic_name, 1, perm::READ | perm::WRITE).map(Some)
        }
        None => state.topics.create_on_send(
            topic_name,
            &request.default_topic,
            request.default_topic_queue_nums,
            sys_flag,
            config,
        ),
    };
    match created {
        Ok(Some(topic)) => Ok(topic),
        Ok(None) => {
            let remark = format!("topic[{topic_name}] not exist, apply first please!");
            Err(Refusal::new(ResponseCode::TOPIC_NOT_EXIST, remark))
        }
        Err(error) => Err(not_made(topic_name, &error)),
    }
}

/// Copies a property block without the properties that the broker sets or drops. Where the message
/// is redirected those of a delay and of a half message are among them.
pub(super) fn rewrite(block: &[u8], is_redirected: bool, out: &mut Vec<u8>) {
    out.clear();
    for (key, value) in properties::iter_str(block) {
        let is_dropped = match key {
            name::MSG_REGION | name::TRACE_ON | name::CLUSTER | name::POP_CK => true,
            name::DELAY
            | name::REAL_TOPIC
            | name::REAL_QID
            | name::TIMER_DELAY_SEC
            | name::TIMER_DELAY_MS
            | name::TIMER_DELIVER_MS
            | name::TRANSACTION_ID
            | name::TRANSACTION_CHECK_TIMES
            | name::TRAN_PREPARED_QUEUE_OFFSET => is_redirected,
            _ => false,
        };
        if !is_dropped {
            properties::append(out, key, value);
        }
    }
}

/// Checks the messages of a batch and counts them. `said_by_all` are the properties that they share.
pub(super) fn check_batch(
    request: &SendMessageRequest<'_>,
    body: &[u8],
    said_by_all: &Said<'_>,
) -> Result<usize, Refusal> {
    if request.sys_flag & sys_flag::TRANSACTION_MASK != 0 {
        return Err(transaction_in_batch());
    }
    if request.topic.starts_with(names::RETRY_PREFIX) {
        let remark = format!("batch sends to retry topic {} are not allowed", request.topic);
        return Err(Refusal::new(ResponseCode::MESSAGE_ILLEGAL, remark));
    }
    let mut count = 0;
    for message in batch::iter(body) {
        let message = message.map_err(|error| {
            let remark = format!("the body is no batch of messages: {error}");
            Refusal::new(ResponseCode::SYSTEM_ERROR, remark)
        })?;
        let said = Said::read(message.properties);
        if said.delay.or(said_by_all.delay).is_some() {
            let remark = "a batch must not hold delayed messages (property DELAY)";
            return Err(Refusal::new(ResponseCode::MESSAGE_ILLEGAL, remark));
        }
        if said.is_transaction || said_by_all.is_transaction {
            return Err(transaction_in_batch());
        }
        if said.is_timed || said_by_all.is_timed {
            return Err(unsupported("timed messages", "send it without TIMER_ properties"));
        }
        count += 1;
    }
    Ok(count)
}

pub(super) fn illegal(error: &MessageError) -> Refusal {
    Refusal::new(ResponseCode::MESSAGE_ILLEGAL, error.to_string())
}
