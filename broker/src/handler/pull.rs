//! PULL_MESSAGE and LITE_PULL_MESSAGE: checks, the read, the answer, and the wait for new messages.
//!
//! A pull of messages that are in memory is answered inline on the connection's I/O thread. One that
//! would read cold disk, or whose expression is long, runs on a blocking thread. One that finds nothing
//! new is held in [`crate::long_poll`] and pulled again once, with waiting disallowed, on the thread
//! that dispatched the message it waited for; if its filter has to see messages, another thread looks
//! at them. RocketMQ's `PullMessageProcessor` and `PullRequestHoldService`.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::frame::{Frame, Ticket};
use rocketmq_protocol::header::pull::{
    PullMessageRequest, PullMessageResponse, SYS_FLAG_COMMIT_OFFSET, SYS_FLAG_SUBSCRIPTION,
    SYS_FLAG_SUSPEND,
};
use rocketmq_protocol::subscription::{MessageModel, SubscriptionData, TAG};
use rocketmq_remoting::{Connection, Output};
use rocketmq_store::{Arrival, ArrivalListener, GetLimits, GetResult, GetStatus, StoreError};

use crate::config::BrokerConfig;
use crate::filter::{self, ExpressionFilter, PullFilter, TagFilter};
use crate::long_poll::{self, HeldPull, SuggestedBroker, Woken};
use crate::metadata::perm;
use crate::replication;
use crate::state::BrokerState;

/// Value of `forbiddenType` beside NO_PERMISSION: what refuses (`ForbiddenType`).
#[derive(Clone, Copy)]
enum Forbidden {
    Broker = 1,
    Group = 2,
    Topic = 3,
    Broadcast = 4,
    Subscription = 5,
}

/// A checked pull, ready to read.
struct Pull<'a> {
    ticket: Ticket,
    request: RequestCode,
    began: Instant,
    /// Whether it waited for messages.
    was_held: bool,
    topic: &'a str,
    group: &'a str,
    queue_id: i32,
    queue_offset: i64,
    count_max: usize,
    filter: &'a PullFilter,
    topic_sys_flag: i32,
    group_sys_flag: i32,
    suggest: SuggestedBroker,
}

/// Why a pull is refused: what the client is told.
struct Refusal {
    code: ResponseCode,
    remark: String,
    forbidden: Option<Forbidden>,
}

impl Refusal {
    fn new(code: ResponseCode, remark: impl Into<String>) -> Refusal {
        Refusal { code, remark: remark.into(), forbidden: None }
    }

    fn forbidden(kind: Forbidden, remark: impl Into<String>) -> Refusal {
        let code = ResponseCode::NO_PERMISSION;
        Refusal { code, remark: remark.into(), forbidden: Some(kind) }
    }

    fn write(&self, ticket: Ticket, out: &mut Output) {
        let remark = Some(self.remark.as_str());
        match self.forbidden {
            Some(kind) => {
                let ext = [("forbiddenType", (kind as i32).to_string())];
                out.reply_header(ticket, self.code, remark, &ext);
            }
            None => out.reply_header(ticket, self.code, remark, &()),
        }
    }
}

/// Handles one pull request.
pub fn pull(state: &Arc<BrokerState>, conn: &Arc<Connection>, frame: &Frame<'_>, out: &mut Output) {
    let (ticket, request, began) = (frame.ticket(), frame.request_code(), Instant::now());
    if let Err(refusal) = try_pull(state, conn, frame, began, out) {
        refusal.write(ticket, out);
        state.metrics.answered(request, refusal.code, false, began, 1);
    }
}

fn try_pull(
    state: &Arc<BrokerState>,
    conn: &Arc<Connection>,
    frame: &Frame<'_>,
    began: Instant,
    out: &mut Output,
) -> Result<(), Refusal> {
    let request: PullMessageRequest<'_> = frame
        .header()
        .map_err(|error| Refusal::new(ResponseCode::SYSTEM_ERROR, error.to_string()))?;
    let config = state.config.load();
    if config.broker_permission & perm::READ == 0 {
        let remark = format!("the broker[{}] pulling message is forbidden", config.broker_ip1);
        return Err(Refusal::forbidden(Forbidden::Broker, remark));
    }
    let is_lost = state.is_pull_astray(&request);
    if is_lost || (state.role.is_slave() && !config.slave_read_enable) {
        let (min_offset, max_offset) = queue_range(state, &request.topic, request.queue_id);
        let header = PullMessageResponse {
            next_begin_offset: request.queue_offset,
            min_offset,
            max_offset,
            ..PullMessageResponse::default()
        };
        let code = ResponseCode::PULL_RETRY_IMMEDIATELY;
        if is_lost {
            let mut last = Output::new();
            let remark = "this broker is a slave now; connect anew to reach the master";
            last.reply_header(frame.ticket(), code, Some(remark), &header);
            conn.send(last);
            conn.close();
            return Ok(());
        }
        let remark = "this slave serves no reads (slaveReadEnable)";
        out.reply_header(frame.ticket(), code, Some(remark), &header);
        return Ok(());
    }
    let group = state.groups.get_or_create(&request.consumer_group).ok_or_else(|| {
        let remark = format!("subscription group [{}] does not exist", request.consumer_group);
        Refusal::new(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, remark)
    })?;
    if !group.consume_enable {
        let remark = format!("subscription group no permission, {}", request.consumer_group);
        return Err(Refusal::forbidden(Forbidden::Group, remark));
    }
    let topic = state.topics.get(&request.topic).ok_or_else(|| {
        let remark = format!("topic[{}] not exist, apply first please!", request.topic);
        Refusal::new(ResponseCode::TOPIC_NOT_EXIST, remark)
    })?;
    if topic.perm & perm::READ == 0 {
        let remark = format!("the topic[{}] pulling message is forbidden", request.topic);
        return Err(Refusal::forbidden(Forbidden::Topic, remark));
    }
    if request.queue_id < 0 || request.queue_id >= topic.read_queue_nums {
        let remark = format!(
            "queueId[{}] is illegal, topic:[{}] topicConfig.readQueueNums:[{}] consumer:[{}]",
            request.queue_id,
            request.topic,
            topic.read_queue_nums,
            conn.remote_text()
        );
        return Err(Refusal::new(ResponseCode::INVALID_PARAMETER, remark));
    }
    let filter = filter_of(state, &config, &request, group.consume_broadcast_enable)?;
    let slave_read = config.slave_read_enable;
    let pull = Pull {
        ticket: frame.ticket(),
        request: frame.request_code(),
        began,
        was_held: false,
        topic: &request.topic,
        group: &request.consumer_group,
        queue_id: request.queue_id,
        queue_offset: request.queue_offset,
        count_max: usize::try_from(request.max_msg_nums).unwrap_or(0).max(1),
        filter: &filter,
        topic_sys_flag: topic.topic_sys_flag,
        group_sys_flag: group.group_sys_flag,
        suggest: SuggestedBroker {
            in_pace: if slave_read { group.broker_id } else { 0 },
            when_slow: if slave_read { group.which_broker_when_consume_slowly } else { 0 },
        },
    };
    if request.has_flag(SYS_FLAG_COMMIT_OFFSET) {
        state.offsets.commit(pull.group, pull.topic, pull.queue_id, request.commit_offset);
    }
    if let Some(reset_to) = state.offsets.take_reset(pull.group, pull.topic, pull.queue_id) {
        let (min_offset, max_offset) = queue_range(state, pull.topic, pull.queue_id);
        let header = PullMessageResponse {
            next_begin_offset: reset_to,
            min_offset,
            max_offset,
            ..pull.response(false)
        };
        let code = ResponseCode::PULL_OFFSET_MOVED;
        out.reply_header(pull.ticket, code, Some("OFFSET_RESET"), &header);
        return Ok(());
    }
    let wait = request.has_flag(SYS_FLAG_SUSPEND).then(|| {
        let wait_ms = match config.long_polling_enable {
            true => request.suspend_timeout_millis,
            false => config.short_polling_time_mills,
        };
        Duration::from_millis(u64::try_from(wait_ms).unwrap_or(0).min(WAIT_MS_MAX))
    });
    pull.run(state, conn, wait, out);
    Ok(())
}

/// Longest wait of a pull, whatever the client asks for: an hour. Clients ask for 15 to 30 s.
const WAIT_MS_MAX: u64 = 3_600_000;

/// The filter that a request brings, or the one its group registered by heart-beat.
fn filter_of(
    state: &BrokerState,
    config: &BrokerConfig,
    request: &PullMessageRequest<'_>,
    broadcast_enabled: bool,
) -> Result<PullFilter, Refusal> {
    if request.has_flag(SYS_FLAG_SUBSCRIPTION) {
        return filter_of_request(state, config, request);
    }
    let group = &*request.consumer_group;
    let topic = &*request.topic;
    let found = state.clients.with_consumers(group, |consumers| {
        (consumers.message_model, consumers.subscriptions.get(topic).cloned())
    });
    let Some((message_model, subscription)) = found else {
        let remark = format!("the consumer's group info not exist, group: {group}");
        return Err(Refusal::new(ResponseCode::SUBSCRIPTION_NOT_EXIST, remark));
    };
    if !broadcast_enabled && message_model == MessageModel::Broadcasting {
        let remark = format!("the consumer group[{group}] can not consume by broadcast way");
        return Err(Refusal::forbidden(Forbidden::Broadcast, remark));
    }
    if state.groups.is_read_forbidden(group, topic) {
        let remark = format!("the consumer group[{group}] is forbidden for topic[{topic}]");
        return Err(Refusal::forbidden(Forbidden::Subscription, remark));
    }
    let Some(subscription) = subscription else {
        let remark =
            format!("the consumer's subscription not exist, group: {group}, topic: {topic}");
        return Err(Refusal::new(ResponseCode::SUBSCRIPTION_NOT_EXIST, remark));
    };
    if subscription.sub_version < request.sub_version {
        let remark = "the consumer's subscription not latest";
        return Err(Refusal::new(ResponseCode::SUBSCRIPTION_NOT_LATEST, remark));
    }
    if subscription.is_tag_type() {
        return Ok(PullFilter::Tags(Arc::clone(&subscription.filter)));
    }
    require_expressions(config, &subscription.expression_type)?;
    let registered = state.filters.get(topic, group).ok_or_else(|| {
        let remark = "The broker's consumer filter data is not exist!Your expression may be wrong!";
        let reason = filter::compile(&subscription.expression_type, &subscription.sub_string).err();
        let reason = reason.map_or(String::new(), |error| format!(" {error}"));
        Refusal::new(ResponseCode::FILTER_DATA_NOT_EXIST, format!("{remark}{reason}"))
    })?;
    if registered.client_version() < request.sub_version {
        let remark = "the consumer's consumer filter data not latest";
        return Err(Refusal::new(ResponseCode::FILTER_DATA_NOT_LATEST, remark));
    }
    Ok(by_expression(state, config, topic, ExpressionFilter::of_group(registered)))
}

/// The filter that a request brings.
fn filter_of_request(
    state: &BrokerState,
    config: &BrokerConfig,
    request: &PullMessageRequest<'_>,
) -> Result<PullFilter, Refusal> {
    let refused = |error: &dyn std::fmt::Display| {
        let remark = format!("parse the consumer's subscription failed: {error}");
        Refusal::new(ResponseCode::SUBSCRIPTION_PARSE_FAILED, remark)
    };
    let expression = request.subscription.as_deref().unwrap_or_default();
    let expression_type = request.expression_type.as_deref().unwrap_or_default();
    if matches!(expression_type, "" | TAG) {
        let parsed = SubscriptionData::from_tags(&request.topic, expression, request.sub_version);
        let parsed = parsed.map_err(|error| refused(&error))?;
        return Ok(PullFilter::Tags(Arc::new(TagFilter::new(&parsed))));
    }
    require_expressions(config, expression_type)?;
    let expression = state.expressions.get(expression_type, expression);
    let filter = ExpressionFilter::of_pull(expression.map_err(|error| refused(&error))?);
    Ok(by_expression(state, config, &request.topic, filter))
}

fn by_expression(
    state: &BrokerState,
    config: &BrokerConfig,
    topic: &str,
    filter: ExpressionFilter,
) -> PullFilter {
    PullFilter::Expression(match config.filter_support_retry {
        true => filter.for_retries(topic, &state.filters),
        false => filter,
    })
}

fn require_expressions(config: &BrokerConfig, expression_type: &str) -> Result<(), Refusal> {
    if config.enable_property_filter {
        return Ok(());
    }
    let remark =
        format!("The broker does not support consumer to filter message by {expression_type}");
    Err(Refusal::new(ResponseCode::SYSTEM_ERROR, remark))
}

fn queue_range(state: &BrokerState, topic: &str, queue_id: i32) -> (i64, i64) {
    (state.store.min_queue_offset(topic, queue_id), state.store.max_queue_offset(topic, queue_id))
}

impl Pull<'_> {
    /// Reads, and answers, waits, or leaves a slow read to a blocking thread. `wait` is how long it
    /// may wait, if it may.
    fn run(
        &self,
        state: &Arc<BrokerState>,
        conn: &Arc<Connection>,
        wait: Option<Duration>,
        out: &mut Output,
    ) {
        if self.is_slow(state) {
            let held = self.to_held(conn, Duration::ZERO);
            let blocking_state = Arc::clone(state);
            state.runtime.spawn_blocking(move || resume(&held, &blocking_state));
            return;
        }
        let result = self.read(state);
        let Some(wait) = wait.filter(|_| self.may_wait(state, &result)) else {
            self.answer(state, result, out);
            return;
        };
        if state.long_polls.hold(self.to_held(conn, wait)).is_err() {
            // The table is full: the client asks again, as if its wait were over.
            self.answer(state, result, out);
            return;
        }
        // What arrived between the read and the hold woke nobody.
        let max_offset = state.store.max_queue_offset(self.topic, self.queue_id);
        if max_offset <= self.queue_offset {
            return;
        }
        match self.filter {
            PullFilter::Tags(_) => {
                wake(state, state.long_polls.take_queue(self.topic, self.queue_id, max_offset));
            }
            PullFilter::Expression(_) => {
                state.long_polls.mark_unlooked(self.topic, self.queue_id, max_offset);
                look_soon(state);
            }
        }
    }

    /// Whether there is a message, and it is probably not in memory, or looking at those behind it
    /// takes long.
    fn is_slow(&self, state: &BrokerState) -> bool {
        let first = state.store.physical_offset_of(self.topic, self.queue_id, self.queue_offset);
        let is_costly = self.filter.is_costly();
        // An error shows itself again in the read, which answers it.
        first.ok().flatten().is_some_and(|offset| is_costly || !state.store.is_hot(offset))
    }

    fn read(&self, state: &BrokerState) -> Result<GetResult, StoreError> {
        let limits = GetLimits { count_max: self.count_max, bytes_max: usize::MAX };
        let filter = self.filter.as_queue_filter();
        state.store.get_messages(self.topic, self.queue_id, self.queue_offset, limits, filter)
    }

    /// Whether what was found is answered only when something new has come.
    fn may_wait(&self, state: &BrokerState, result: &Result<GetResult, StoreError>) -> bool {
        result.as_ref().is_ok_and(|found| {
            let code = response_code(found.status, self.queue_offset);
            let redirected = replication::redirect(state, &state.config.load(), code);
            redirected.map_or(code, |redirected| redirected.code) == ResponseCode::PULL_NOT_FOUND
        })
    }

    fn answer(&self, state: &BrokerState, result: Result<GetResult, StoreError>, out: &mut Output) {
        let result = match result {
            Ok(result) => result,
            Err(error) => {
                tracing::error!(topic = self.topic, queue_id = self.queue_id, %error, "pull failed");
                out.reply_error(self.ticket, ResponseCode::SYSTEM_ERROR, &error.to_string());
                self.count(state, ResponseCode::SYSTEM_ERROR);
                return;
            }
        };
        let mut code = response_code(result.status, self.queue_offset);
        let mut header = PullMessageResponse {
            next_begin_offset: result.next_begin_offset,
            min_offset: result.min_offset,
            max_offset: result.max_offset,
            ..self.response(result.suggest_slave)
        };
        if let Some(redirected) = replication::redirect(state, &state.config.load(), code) {
            code = redirected.code;
            // One that reads old messages may go on here.
            if let Some(which) = redirected.which_broker.filter(|_| !result.suggest_slave) {
                header.suggest_which_broker_id = which;
            }
            if redirected.keeps_offset {
                header.next_begin_offset = self.queue_offset;
            }
        }
        // What a waiting pull took is mostly its wait.
        let took = if self.was_held { Duration::ZERO } else { self.began.elapsed() };
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        state.metrics.pulled(self.group, self.topic, result.message_count, result.bytes, took_ms);
        let remark = Some(result.status.name());
        if code == ResponseCode::SUCCESS {
            state.offsets.pulled(self.group, self.topic, self.queue_id, result.next_begin_offset);
            out.reply_slices(self.ticket, code, remark, &header, result.messages);
        } else {
            out.reply_header(self.ticket, code, remark, &header);
        }
        self.count(state, code);
    }

    fn count(&self, state: &BrokerState, code: ResponseCode) {
        state.metrics.answered(self.request, code, self.was_held, self.began, 1);
    }

    fn response(&self, is_slow: bool) -> PullMessageResponse {
        let suggest = self.suggest;
        PullMessageResponse {
            suggest_which_broker_id: if is_slow { suggest.when_slow } else { suggest.in_pace },
            topic_sys_flag: Some(self.topic_sys_flag),
            group_sys_flag: Some(self.group_sys_flag),
            ..PullMessageResponse::default()
        }
    }

    fn to_held(&self, conn: &Arc<Connection>, wait: Duration) -> HeldPull {
        HeldPull {
            conn: Arc::clone(conn),
            topic: self.topic.to_owned(),
            queue_id: self.queue_id,
            queue_offset: self.queue_offset,
            deadline: Instant::now() + wait,
            filter: self.filter.clone(),
            scanned_to: self.queue_offset,
            ticket: self.ticket,
            request: self.request,
            began: self.began,
            was_held: !wait.is_zero(),
            group: self.group.to_owned(),
            count_max: self.count_max,
            topic_sys_flag: self.topic_sys_flag,
            group_sys_flag: self.group_sys_flag,
            suggest: self.suggest,
            _in_flight: conn.hold(HELD_PULL_BYTES),
        }
    }
}

/// What a waiting pull counts in its connection's in-flight bound: about its memory.
const HELD_PULL_BYTES: usize = 512;

impl HeldPull {
    /// The pull from where its filter has not looked yet.
    fn onward(&self) -> Pull<'_> {
        Pull {
            ticket: self.ticket,
            request: self.request,
            began: self.began,
            was_held: self.was_held,
            topic: &self.topic,
            group: &self.group,
            queue_id: self.queue_id,
            queue_offset: self.scanned_to,
            count_max: self.count_max,
            filter: &self.filter,
            topic_sys_flag: self.topic_sys_flag,
            group_sys_flag: self.group_sys_flag,
            suggest: self.suggest,
        }
    }

    fn answer(&self, state: &BrokerState, mut result: Result<GetResult, StoreError>) {
        let pull = self.onward();
        if self.scanned_to > self.queue_offset
            && let Ok(result) = &mut result
            && result.status == GetStatus::OffsetOverflowOne
        {
            // There was something, only nothing that the filter wants.
            result.status = GetStatus::NoMatchedMessage;
        }
        let mut out = Output::new();
        pull.answer(state, result, &mut out);
        self.conn.send(out);
    }
}

/// Pulls again and answers whatever is found.
fn resume(held: &HeldPull, state: &BrokerState) {
    if !held.conn.is_closed() {
        held.answer(state, held.onward().read(state));
    }
}

/// Has the waiting pulls looked at that an arrival concerns and whose filters have to see it, on a
/// thread that may block; at most one at a time looks.
fn look_soon(state: &Arc<BrokerState>) {
    if state.long_polls.begin_look() {
        let state = Arc::clone(state);
        let runtime = state.runtime.clone();
        runtime.spawn_blocking(move || {
            loop {
                while let Some(marked) = state.long_polls.take_unlooked() {
                    marked.into_iter().for_each(|held| look(held, &state));
                }
                if !state.long_polls.end_look() {
                    return;
                }
            }
        });
    }
}

/// Answers a waiting pull if its filter wants something of what arrived; else it waits on.
fn look(mut held: HeldPull, state: &BrokerState) {
    if held.conn.is_closed() {
        return;
    }
    let result = held.onward().read(state);
    match &result {
        Ok(found) if found.status == GetStatus::NoMatchedMessage => {
            held.scanned_to = found.next_begin_offset;
        }
        Ok(found)
            if found.max_offset <= held.scanned_to && held.onward().may_wait(state, &result) => {}
        _ => {
            held.answer(state, result);
            return;
        }
    }
    let (topic, queue_id, scanned_to) = (held.topic.clone(), held.queue_id, held.scanned_to);
    if let Err(held) = state.long_polls.hold(held) {
        // The table is full: the client asks again, as if its wait were over.
        resume(&held, state);
        return;
    }
    // What arrived meanwhile marked nobody, and one look goes so far only.
    let max_offset = state.store.max_queue_offset(&topic, queue_id);
    if max_offset > scanned_to {
        state.long_polls.mark_unlooked(&topic, queue_id, max_offset);
    }
}

/// The response code of a read, as `PullMessageProcessor` chooses it.
fn response_code(status: GetStatus, queue_offset: i64) -> ResponseCode {
    match status {
        GetStatus::Found => ResponseCode::SUCCESS,
        GetStatus::NoMatchedMessage | GetStatus::MessageWasRemoving => {
            ResponseCode::PULL_RETRY_IMMEDIATELY
        }
        GetStatus::NoMatchedLogicQueue | GetStatus::NoMessageInQueue if queue_offset != 0 => {
            ResponseCode::PULL_OFFSET_MOVED
        }
        GetStatus::NoMatchedLogicQueue
        | GetStatus::NoMessageInQueue
        | GetStatus::OffsetFoundNull
        | GetStatus::OffsetOverflowOne => ResponseCode::PULL_NOT_FOUND,
        GetStatus::OffsetOverflowBadly | GetStatus::OffsetTooSmall => {
            ResponseCode::PULL_OFFSET_MOVED
        }
    }
}

fn wake(state: &BrokerState, woken: Woken) {
    for held in woken {
        resume(&held, state);
    }
}

/// Wakes waiting pulls at dispatch, on the dispatching thread: what they want was just written, so
/// it is in memory.
pub struct PullWaker(Weak<BrokerState>);

impl PullWaker {
    /// A waker for this broker; it does not keep the broker alive.
    pub fn new(state: &Arc<BrokerState>) -> PullWaker {
        PullWaker(Arc::downgrade(state))
    }
}

impl ArrivalListener for PullWaker {
    fn log_grew(&self) {
        if let Some(state) = self.0.upgrade() {
            state.replication.log_grew();
            if let Some(group) = &state.group {
                group.log_moved();
            }
        }
    }

    fn arrived(&self, batch: &[Arrival]) {
        let Some(state) = self.0.upgrade() else { return };
        if state.long_polls.is_empty() {
            return;
        }
        for arrival in batch {
            let (queue_id, max) = (arrival.queue_id, arrival.max_queue_offset);
            let polls = &state.long_polls;
            let woken = match arrival.tags_code {
                Some(tags_code) => polls.take_arrived(&arrival.topic, queue_id, max, tags_code),
                None => polls.take_queue(&arrival.topic, queue_id, max),
            };
            wake(&state, woken);
        }
        if state.long_polls.has_unlooked() {
            look_soon(&state);
        }
    }
}

/// Answers waiting pulls at their deadlines, and those that the sweep concerns, until the broker
/// stops.
pub async fn answer_expired(state: Arc<BrokerState>) {
    let mut next_sweep = Instant::now() + long_poll::SWEEP_INTERVAL;
    loop {
        state.long_polls.next_deadline(next_sweep).await;
        let now = Instant::now();
        wake(&state, state.long_polls.take_expired(now));
        if now >= next_sweep {
            next_sweep = now + long_poll::SWEEP_INTERVAL;
            wake(&state, state.long_polls.take_passed());
        }
    }
}

/// Answers every waiting pull; when the broker stops, or its role changes.
pub fn answer_all(state: &BrokerState) {
    for held in state.long_polls.take_all() {
        resume(&held, state);
    }
}
