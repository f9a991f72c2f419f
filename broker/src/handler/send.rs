//! SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE: from a frame to an answer.
//!
//! All sends of one socket read go through one [`SendBatch`]: each is checked and encoded, then one
//! append writes them, and their answers leave together. Under synchronous flush the answers wait for
//! the group commit without holding a thread. RocketMQ's `SendMessageProcessor`.
//!
//! Delayed, timed and transactional messages and retries are refused here until the broker has them:
//! storing them as ordinary ones would deliver what must not be delivered yet.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt::Write;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocketmq_protocol::body::topic::TopicConfig;
use rocketmq_protocol::code::ResponseCode;
use rocketmq_protocol::frame::{Frame, Ticket};
use rocketmq_protocol::header::send::{SendMessageRequest, SendMessageResponse};
use rocketmq_protocol::message::batch;
use rocketmq_protocol::message::id::OffsetMessageId;
use rocketmq_protocol::message::properties::{self, name};
use rocketmq_protocol::message::record::{NewMessage, sys_flag};
use rocketmq_protocol::names;
use rocketmq_remoting::{Connection, InFlight, Output};
use rocketmq_store::{
    AppendBatch, AppendError, AppendResult, DurableOutcome, MessageError, Refusal as Refused,
};

use crate::clock::now_ms;
use crate::config::{BrokerConfig, FlushDiskType};
use crate::metadata::topic::perm;
use crate::metrics::MessageType;
use crate::state::BrokerState;

/// The sends of one socket read on their way into the log. Its buffers are reused.
pub struct SendBatch {
    append: AppendBatch,
    pending: Vec<PendingSend>,
    /// Where the appended messages lie.
    places: Vec<AppendResult>,
    /// The unique keys of `pending`, one behind the other.
    unique_keys: String,
    /// What each topic gets, for its counters; runs of one topic and kind are added up.
    counts: Vec<Count>,
    /// Scratch for a property block that has to be rewritten.
    rewritten: Vec<u8>,
}

struct Count {
    topic: Arc<TopicConfig>,
    kind: MessageType,
    messages: usize,
    bytes: usize,
}

/// A send whose messages are in the append batch.
struct PendingSend {
    ticket: Ticket,
    queue_id: i32,
    /// Its messages in the append batch.
    messages: Range<usize>,
    /// Its unique key in the batch's text; empty if it has none.
    unique_key: Range<usize>,
    /// Whether the producer waits for the flush (property WAIT is not `false`).
    waits: bool,
}

/// What a refused send is told.
struct Refusal {
    code: ResponseCode,
    remark: String,
}

impl Refusal {
    fn new(code: ResponseCode, remark: impl Into<String>) -> Refusal {
        Refusal { code, remark: remark.into() }
    }
}

/// What a property block says to the broker.
#[derive(Default)]
struct Said<'a> {
    unique_key: Option<&'a str>,
    delay: Option<&'a str>,
    is_timed: bool,
    is_transaction: bool,
    does_not_wait: bool,
    /// It holds a property that the broker itself sets, so it cannot be stored as it is.
    needs_rewrite: bool,
    has_sharding_key: bool,
}

impl<'a> Said<'a> {
    fn read(block: &'a [u8]) -> Said<'a> {
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
                name::MSG_REGION | name::TRACE_ON | name::CLUSTER | name::POP_CK => {
                    said.needs_rewrite = true;
                }
                _ => {}
            }
        }
        said
    }

    /// Refuses what this broker does not do yet. The codes are such that a producer gives up at
    /// once instead of trying other brokers.
    fn require_ordinary(&self) -> Result<(), Refusal> {
        if let Some(text) = self.delay {
            let level: i32 = text.trim().parse().map_err(|_| {
                let remark =
                    format!("property DELAY is `{text}`, a delay level (integer) expected");
                Refusal::new(ResponseCode::SYSTEM_ERROR, remark)
            })?;
            if level > 0 {
                let what = format!("delayed messages (property DELAY is {level})");
                return Err(unsupported(&what, "send it without a delay level"));
            }
        }
        if self.is_timed {
            return Err(unsupported("timed messages", "send it without TIMER_ properties"));
        }
        if self.is_transaction {
            return Err(unsupported("transactional messages", "send it without a transaction"));
        }
        Ok(())
    }
}

fn unsupported(what: &str, fix: &str) -> Refusal {
    let remark = format!("{what} are not supported by this broker version; {fix}");
    Refusal::new(ResponseCode::REQUEST_CODE_NOT_SUPPORTED, remark)
}

impl SendBatch {
    /// An empty batch for this broker's store.
    pub fn new(state: &BrokerState) -> SendBatch {
        SendBatch {
            append: state.store.new_batch(),
            pending: Vec::new(),
            places: Vec::new(),
            unique_keys: String::new(),
            counts: Vec::new(),
            rewritten: Vec::new(),
        }
    }

    /// Whether no send is in it.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Checks a send and puts it in the batch, or refuses it into `out`. Appends when it is full.
    pub fn add(
        &mut self,
        state: &Arc<BrokerState>,
        conn: &Arc<Connection>,
        frame: &Frame<'_>,
        out: &mut Output,
    ) {
        let config = state.config.load();
        if let Err(refusal) = self.try_add(state, &config, conn, frame) {
            let remark = Some(refusal.remark.as_str());
            out.reply_header(frame.ticket(), refusal.code, remark, &riders(&config));
        }
        if self.append.is_full() {
            self.finish(state, conn, out);
        }
    }

    fn try_add(
        &mut self,
        state: &BrokerState,
        config: &BrokerConfig,
        conn: &Connection,
        frame: &Frame<'_>,
    ) -> Result<(), Refusal> {
        let request: SendMessageRequest<'_> = frame
            .header()
            .map_err(|error| Refusal::new(ResponseCode::SYSTEM_ERROR, error.to_string()))?;
        let (topic, queue_id) = check(state, config, conn, &request)?;
        let body_bytes_max = usize::try_from(config.max_message_size).unwrap_or(usize::MAX);
        if frame.body.is_empty() {
            let remark = format!("the body of a message to topic {} is empty", request.topic);
            return Err(Refusal::new(ResponseCode::SYSTEM_ERROR, remark));
        }
        if frame.body.len() > body_bytes_max {
            let remark = format!(
                "the body of a message to topic {} has {} bytes, at most {body_bytes_max} are \
                 allowed (maxMessageSize)",
                request.topic,
                frame.body.len(),
            );
            return Err(Refusal::new(ResponseCode::MESSAGE_ILLEGAL, remark));
        }
        if request.sys_flag & sys_flag::TRANSACTION_MASK != 0 {
            return Err(unsupported("transactional messages", "send it without a transaction"));
        }
        let hosts = (conn.remote(), state.identity.store_host);
        let (messages_before, bytes_before) = (self.append.len(), self.append.bytes());
        let kind = if request.batch == Some(true) {
            self.add_batch(&request, frame, queue_id, hosts, state)?
        } else {
            self.add_single(&request, frame, queue_id, hosts, state)?
        };
        let messages = self.append.len() - messages_before;
        let bytes = self.append.bytes() - bytes_before;
        self.count(topic, kind, messages, bytes);
        Ok(())
    }

    fn count(&mut self, topic: Arc<TopicConfig>, kind: MessageType, messages: usize, bytes: usize) {
        match self.counts.last_mut() {
            Some(last) if Arc::ptr_eq(&last.topic, &topic) && last.kind == kind => {
                last.messages += messages;
                last.bytes += bytes;
            }
            _ => self.counts.push(Count { topic, kind, messages, bytes }),
        }
    }

    fn add_single(
        &mut self,
        request: &SendMessageRequest<'_>,
        frame: &Frame<'_>,
        queue_id: i32,
        hosts: (SocketAddr, SocketAddr),
        state: &BrokerState,
    ) -> Result<MessageType, Refusal> {
        let block = request.properties.as_deref().unwrap_or_default().as_bytes();
        let said = Said::read(block);
        said.require_ordinary()?;
        let made_key;
        let (unique_key, key_pair) = match said.unique_key {
            Some(key) => (key, String::new()),
            None => {
                made_key = state.unique_keys.next(now_ms());
                let pair = format!("{}\u{1}{made_key}\u{2}", name::UNIQ_KEY);
                (made_key.as_str(), pair)
            }
        };
        let block = if said.needs_rewrite {
            rewrite(block, &mut self.rewritten);
            self.rewritten.as_slice()
        } else {
            block
        };
        let first = self.append.len();
        let pieces = [block, key_pair.as_bytes(), &state.broker_properties];
        let message =
            NewMessage { properties: &pieces, ..new_message(request, queue_id, frame.body, hosts) };
        self.append.push(&message).map_err(|error| illegal(&error))?;
        self.add_pending(frame.ticket(), queue_id, first, unique_key, !said.does_not_wait);
        Ok(if said.has_sharding_key { MessageType::Fifo } else { MessageType::Normal })
    }

    fn add_batch(
        &mut self,
        request: &SendMessageRequest<'_>,
        frame: &Frame<'_>,
        queue_id: i32,
        hosts: (SocketAddr, SocketAddr),
        state: &BrokerState,
    ) -> Result<MessageType, Refusal> {
        if request.topic.starts_with(names::RETRY_PREFIX) {
            let remark = format!("batch sends to retry topic {} are not allowed", request.topic);
            return Err(Refusal::new(ResponseCode::MESSAGE_ILLEGAL, remark));
        }
        let common = request.properties.as_deref().unwrap_or_default().as_bytes();
        let said_by_all = Said::read(common);
        for message in batch::iter(frame.body) {
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
                let remark = "a batch must not hold transactional messages";
                return Err(Refusal::new(ResponseCode::MESSAGE_ILLEGAL, remark));
            }
            if said.is_timed || said_by_all.is_timed {
                return Err(unsupported("timed messages", "send it without TIMER_ properties"));
            }
        }
        let first = self.append.len();
        let pieces = [common, &state.broker_properties];
        let all = NewMessage { properties: &pieces, ..new_message(request, queue_id, &[], hosts) };
        self.append.push_batch(&all, frame.body).map_err(|error| illegal(&error))?;
        let unique_key = said_by_all.unique_key.unwrap_or_default();
        self.add_pending(frame.ticket(), queue_id, first, unique_key, !said_by_all.does_not_wait);
        Ok(MessageType::Normal)
    }

    fn add_pending(
        &mut self,
        ticket: Ticket,
        queue_id: i32,
        first: usize,
        unique_key: &str,
        waits: bool,
    ) {
        let key_start = self.unique_keys.len();
        self.unique_keys.push_str(unique_key);
        self.pending.push(PendingSend {
            ticket,
            queue_id,
            messages: first..self.append.len(),
            unique_key: key_start..self.unique_keys.len(),
            waits,
        });
    }

    /// Appends what is in the batch and answers into `out`, or later where the flush is waited for.
    pub fn finish(&mut self, state: &Arc<BrokerState>, conn: &Arc<Connection>, out: &mut Output) {
        if self.is_empty() {
            return;
        }
        let appended = state.store.append(&mut self.append);
        let answers = Answers {
            pending: std::mem::take(&mut self.pending),
            unique_keys: std::mem::take(&mut self.unique_keys),
            error: appended.as_ref().err().cloned(),
        };
        // An append that failed midway has stored what came before.
        self.places.extend((0..self.append.len()).map_while(|at| self.append.result(at).ok()));
        if let Some(error) = &answers.error {
            state.metrics.store_failed(self.append.len() - self.places.len());
            tracing::debug!(%error, "append failed");
        } else {
            for count in &self.counts {
                let topic = &count.topic.topic_name;
                state.metrics.stored(topic, count.kind, count.messages, count.bytes);
            }
        }
        let is_sync = state.config.load().flush_disk_type == FlushDiskType::SyncFlush;
        let end = self.places.last().map(|place| place.physical_offset + place.bytes as i64);
        match end {
            Some(end) if is_sync && answers.pending.iter().any(|send| send.waits) => {
                let waiting = FlushWait {
                    answers,
                    places: std::mem::take(&mut self.places),
                    state: Arc::clone(state),
                    in_flight: conn.hold(self.append.bytes()),
                };
                let wait = state.flush_waits.add(waiting);
                let answer = move |durable| FlushWait::answer_durable(&wait, durable);
                state.store.on_durable(end, Box::new(answer));
            }
            _ => {
                answers.write(state, &self.places, ResponseCode::SUCCESS, out);
                self.reuse(answers);
            }
        }
        self.places.clear();
        self.append.clear();
        self.counts.clear();
    }

    /// Forgets what is in the batch without appending it.
    pub fn discard(&mut self) {
        self.append.clear();
        self.pending.clear();
        self.places.clear();
        self.unique_keys.clear();
        self.counts.clear();
    }

    fn reuse(&mut self, mut answers: Answers) {
        answers.pending.clear();
        answers.unique_keys.clear();
        self.pending = answers.pending;
        self.unique_keys = answers.unique_keys;
    }
}

/// Checks everything about a send but its message, and chooses the queue.
fn check(
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
        Err(error) => {
            tracing::error!(topic = topic_name, %error, "creating a topic failed");
            Err(Refusal::new(ResponseCode::SYSTEM_ERROR, error.to_string()))
        }
    }
}

fn new_message<'a>(
    request: &'a SendMessageRequest<'_>,
    queue_id: i32,
    body: &'a [u8],
    (born_host, store_host): (SocketAddr, SocketAddr),
) -> NewMessage<'a> {
    NewMessage {
        topic: &request.topic,
        queue_id,
        flag: request.flag,
        sys_flag: request.sys_flag,
        born_timestamp_ms: request.born_timestamp,
        born_host,
        store_host,
        reconsume_times: request.reconsume_times.unwrap_or(0),
        prepared_transaction_offset: 0,
        body,
        properties: &[],
    }
}

/// Copies a property block without the properties that the broker sets or drops.
fn rewrite(block: &[u8], out: &mut Vec<u8>) {
    out.clear();
    for (key, value) in properties::iter_str(block) {
        if !matches!(key, name::MSG_REGION | name::TRACE_ON | name::CLUSTER | name::POP_CK) {
            properties::append(out, key, value);
        }
    }
}

/// The fields that ride on every answer to a send, errors included.
fn riders(config: &BrokerConfig) -> [(&'static str, &str); 2] {
    let trace_on = if config.trace_on { "true" } else { "false" };
    [("MSG_REGION", config.region_id.as_str()), ("TRACE_ON", trace_on)]
}

fn illegal(error: &MessageError) -> Refusal {
    Refusal::new(ResponseCode::MESSAGE_ILLEGAL, error.to_string())
}

/// What a send is told whose append failed.
fn refused(error: Option<&AppendError>) -> (ResponseCode, String) {
    match error {
        Some(error @ AppendError::Refused(_)) => {
            (ResponseCode::SERVICE_NOT_AVAILABLE, error.to_string())
        }
        Some(error) => (ResponseCode::SYSTEM_ERROR, error.to_string()),
        None => (ResponseCode::SYSTEM_ERROR, "the message was not appended".to_owned()),
    }
}

/// Sends whose append has ended, to be answered.
struct Answers {
    pending: Vec<PendingSend>,
    unique_keys: String,
    error: Option<AppendError>,
}

impl Answers {
    /// Answers every send with where its messages lie, or with why they were not stored. `places`
    /// has the messages that were; `code` is for producers who wait for the flush, the others only
    /// wanted them stored.
    fn write(
        &self,
        state: &BrokerState,
        places: &[AppendResult],
        code: ResponseCode,
        out: &mut Output,
    ) {
        let config = state.config.load();
        let mut msg_id = String::new();
        for send in &self.pending {
            let Some(stored) = places.get(send.messages.clone()) else {
                let (code, remark) = refused(self.error.as_ref());
                out.reply_header(send.ticket, code, Some(&remark), &riders(&config));
                continue;
            };
            msg_id.clear();
            for place in stored {
                if !msg_id.is_empty() {
                    msg_id.push(',');
                }
                let store_host = state.identity.store_host;
                let id = OffsetMessageId { store_host, physical_offset: place.physical_offset };
                // Writing to a String cannot fail.
                let _ = write!(msg_id, "{id}");
            }
            let unique_key = &self.unique_keys[send.unique_key.clone()];
            let header = SendMessageResponse {
                msg_id: Cow::Borrowed(&msg_id),
                queue_id: send.queue_id,
                queue_offset: stored.first().map_or(0, |place| place.queue_offset),
                transaction_id: (!unique_key.is_empty()).then_some(Cow::Borrowed(unique_key)),
                msg_region: Some(Cow::Borrowed(&config.region_id)),
                trace_on: Some(config.trace_on),
                ..SendMessageResponse::default()
            };
            let code = if send.waits { code } else { ResponseCode::SUCCESS };
            out.reply_header(send.ticket, code, None, &header);
        }
    }
}

/// Sends that wait for the group commit.
pub struct FlushWait {
    answers: Answers,
    places: Vec<AppendResult>,
    state: Arc<BrokerState>,
    in_flight: InFlight,
}

/// A wait that the group commit and its time-out both want to end; the first one does.
type SharedWait = Arc<Mutex<Option<FlushWait>>>;

impl FlushWait {
    /// Ends a wait by what the flusher says; runs on its thread.
    fn answer_durable(shared: &SharedWait, durable: DurableOutcome) {
        let Some(mut wait) = shared.lock().take() else { return };
        let code = match durable {
            DurableOutcome::Durable => ResponseCode::SUCCESS,
            DurableOutcome::Failed(reason) => {
                // Nobody knows what is on disk: to the producer it was not stored.
                wait.places.clear();
                wait.answers.error = Some(AppendError::Refused(Refused::SyncFailed(reason)));
                ResponseCode::SERVICE_NOT_AVAILABLE
            }
        };
        wait.answer(code);
    }

    fn answer(self, code: ResponseCode) {
        let mut out = Output::new();
        self.answers.write(&self.state, &self.places, code, &mut out);
        self.in_flight.connection().send(out);
    }
}

/// The time-outs of waits for the group commit (`syncFlushTimeout`). All waits have the same
/// time-out, so they end in the order they came and a queue is enough.
pub struct FlushWaits {
    waits: Mutex<VecDeque<(Instant, SharedWait)>>,
    timeout: Duration,
}

impl FlushWaits {
    /// No waits; each may last `timeout`.
    pub fn new(timeout: Duration) -> FlushWaits {
        FlushWaits { waits: Mutex::default(), timeout }
    }

    fn add(&self, wait: FlushWait) -> SharedWait {
        let shared = Arc::new(Mutex::new(Some(wait)));
        let mut waits = self.waits.lock();
        // Those that ended in time are dropped from the front, so that what is kept is bounded by
        // the oldest one that still waits.
        while waits.front().is_some_and(|(_, front)| front.lock().is_none()) {
            waits.pop_front();
        }
        waits.push_back((Instant::now() + self.timeout, Arc::clone(&shared)));
        shared
    }

    /// Answers FLUSH_DISK_TIMEOUT for waits that are over: stored, but perhaps not on disk.
    pub fn answer_expired(&self, now: Instant) {
        loop {
            let mut waits = self.waits.lock();
            let is_over =
                waits.front().is_some_and(|(end, wait)| *end <= now || wait.lock().is_none());
            let Some((_, wait)) = waits.pop_front_if(|_| is_over) else { return };
            drop(waits);
            if let Some(wait) = wait.lock().take() {
                wait.answer(ResponseCode::FLUSH_DISK_TIMEOUT);
            }
        }
    }
}
