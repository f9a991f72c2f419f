//! END_TRANSACTION: a producer commits its half message or rolls it back
//! (`EndTransactionProcessor`). RESUME_CHECK_HALF_MESSAGE: an administrator has a message asked about
//! anew that was given up (`AdminBrokerProcessor`).

use std::sync::Arc;
use std::sync::mpsc;

use bytes::Bytes;
use rocketmq_protocol::code::ResponseCode;
use rocketmq_protocol::frame::Frame;
use rocketmq_protocol::header::message::ResumeCheckHalfMessageRequest;
use rocketmq_protocol::header::transaction::EndTransactionRequest;
use rocketmq_protocol::message::id::OffsetMessageId;
use rocketmq_protocol::message::properties::name;
use rocketmq_protocol::message::record::{MessageRecord, NewMessage, sys_flag};
use rocketmq_protocol::names;
use rocketmq_protocol::response::Response;
use rocketmq_remoting::Connection;
use rocketmq_replication::FencedBy;
use rocketmq_store::{DurableOutcome, StoreError};

use super::send::{Copies, append_error};
use crate::clock::now_ms;
use crate::config::{BrokerConfig, FlushDiskType};
use crate::flush_waits::WaitEnd;
use crate::metadata::attributes::has_batch_queues;
use crate::metrics::MessageType;
use crate::request::header;
use crate::role;
use crate::state::BrokerState;
use crate::transaction::half::{self, Destination};
use crate::transaction::{Deciding, op_bytes_max, write_decisions};

/// The producer does not know yet.
const UNDECIDED: i32 = 0;

/// Where the request is worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nothing is decided.
    Nowhere,
    /// On the connection's thread.
    Here,
    /// Where it may wait for the disk.
    Elsewhere,
}

/// Whether the request may block.
pub fn place_of(state: &BrokerState, frame: &Frame<'_>) -> Place {
    let Ok(request) = frame.header::<EndTransactionRequest<'_>>() else { return Place::Here };
    if request.commit_or_rollback == UNDECIDED {
        return Place::Nowhere;
    }
    let waits = !frame.is_oneway() && waits_for_others(state, &state.config.load());
    if waits || !state.store.is_hot(request.commit_log_offset) {
        Place::Elsewhere
    } else {
        Place::Here
    }
}

/// Whether a message counts as stored only once the disk or slaves have it.
pub(super) fn waits_for_others(state: &BrokerState, config: &BrokerConfig) -> bool {
    config.flush_disk_type == FlushDiskType::SyncFlush
        || Copies::waited_for(state, config) != Copies::None
}

/// END_TRANSACTION: stores the message where it was sent to, or not, and notes that it is decided.
/// Clients want no answer; who wants one gets it when the message is stored, under synchronous flush
/// and synchronous replication when it is on disk and copied.
pub fn end_transaction(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: EndTransactionRequest<'_> = header!(frame);
    let config = state.config.load();
    if state.role.is_slave() {
        let remark = "a slave takes no decisions on transactions";
        return Response::error(ResponseCode::SLAVE_NOT_AVAILABLE, remark);
    }
    let is_commit = match request.commit_or_rollback {
        sys_flag::TRANSACTION_COMMIT => true,
        sys_flag::TRANSACTION_ROLLBACK => false,
        other => {
            let remark = format!(
                "commitOrRollback field wrong: {other}, 0 (unknown), 8 (commit) or 12 (roll back) \
                 expected"
            );
            return Response::error(ResponseCode::SYSTEM_ERROR, remark);
        }
    };
    let Some(bytes) = record_at(state, request.commit_log_offset) else {
        return not_found(request.commit_log_offset);
    };
    let record = match half_in(state, &bytes, &request) {
        Ok(record) => record,
        Err(response) => return response,
    };
    if !request.from_transaction_check && is_too_late(&config, &record) {
        let remark = "the time for a decision is over (CHECK_IMMUNITY_TIME_IN_SECONDS); wait for \
                      the check";
        return Response::error(ResponseCode::ILLEGAL_OPERATION, remark);
    }
    if let Err(response) = require_match(&record, &request) {
        return response;
    }
    if is_commit {
        commit(state, &config, &record, !frame.is_oneway())
    } else {
        roll_back(state, &config, &record)
    }
}

fn not_found(physical_offset: i64) -> Response {
    let remark = format!(
        "Find prepared transaction message failed, there is no half message at offset \
         {physical_offset}"
    );
    Response::error(ResponseCode::SYSTEM_ERROR, remark)
}

/// The record there, also if it waits in the write buffer of `transientStorePoolEnable` still.
fn record_at(state: &BrokerState, physical_offset: i64) -> Option<Bytes> {
    // It was acknowledged, which without synchronous replication is before it is confirmed.
    let found = state.store.written_message_at(physical_offset);
    if found.is_some() || !state.store.config().transient_store_pool_enable {
        return found;
    }
    if let Err(error) = state.store.commit() {
        tracing::warn!(%error, "the log's write buffer cannot be written");
    }
    state.store.written_message_at(physical_offset)
}

/// The half message in these bytes. The half topic must show it at this place: the offset comes from
/// the network, and might lead into a body that only looks like a half message.
fn half_in<'a>(
    state: &BrokerState,
    bytes: &'a Bytes,
    request: &EndTransactionRequest<'_>,
) -> Result<MessageRecord<'a>, Response> {
    let nothing = || not_found(request.commit_log_offset);
    let record = MessageRecord::decode(bytes).map_err(|_| nothing())?;
    if record.topic != names::TRANS_HALF_TOPIC || record.queue_id != half::QUEUE_ID {
        return Err(nothing());
    }
    match is_shown(state, &record, request.commit_log_offset) {
        Ok(true) => Ok(record),
        Ok(false) => Err(nothing()),
        Err(error) => Err(Response::error(ResponseCode::SYSTEM_ERROR, error.to_string())),
    }
}

/// Whether the queue that the record names shows it at this place.
fn is_shown(
    state: &BrokerState,
    record: &MessageRecord<'_>,
    physical_offset: i64,
) -> Result<bool, StoreError> {
    let (topic, queue_id) = (record.topic, record.queue_id);
    state.store.is_queued(topic, queue_id, record.queue_offset, physical_offset)
}

/// RESUME_CHECK_HALF_MESSAGE: puts a message among the half messages as one that was never asked
/// about. It is meant for those that were given up, and takes one that still waits, too.
pub fn resume_check_half_message(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: ResumeCheckHalfMessageRequest<'_> = header!(frame);
    let failed = |why: String| {
        let remark =
            format!("message {} is not put back to the half messages: {why}", request.msg_id);
        Response::error(ResponseCode::SYSTEM_ERROR, remark)
    };
    let physical_offset = match OffsetMessageId::decode(&request.msg_id) {
        Ok(id) => id.physical_offset,
        Err(error) => return failed(error.to_string()),
    };
    let none = || failed(format!("there is no half message at offset {physical_offset}"));
    let Some(bytes) = record_at(state, physical_offset) else { return none() };
    let Ok(record) = MessageRecord::decode(&bytes) else { return none() };
    if ![names::TRANS_HALF_TOPIC, names::TRANS_CHECK_MAX_TIME_TOPIC].contains(&record.topic) {
        return none();
    }
    match is_shown(state, &record, physical_offset) {
        Ok(true) => {}
        Ok(false) => return none(),
        Err(error) => return failed(error.to_string()),
    }
    let to = match Destination::of(&record) {
        Ok(to) => to,
        Err(why) => return failed(why.to_owned()),
    };
    let properties = match half::put_back_properties(&record, Some(0)) {
        Ok(properties) => properties,
        Err(why) => return failed(why.to_owned()),
    };
    let properties = [properties.as_slice()];
    let message = NewMessage {
        topic: names::TRANS_HALF_TOPIC,
        queue_id: half::QUEUE_ID,
        sys_flag: half::half_sys_flag(record.sys_flag),
        ..half::copy(&record, state.identity.store_host, &properties)
    };
    let mut batch = state.store.new_batch();
    if let Err(error) = batch.push(&message) {
        return failed(error.to_string());
    }
    let bytes = batch.bytes();
    if let Err(error) = state.store.append(&mut batch) {
        state.metrics.store_failed(1);
        return failed(error.to_string());
    }
    state.metrics.stored(names::TRANS_HALF_TOPIC, MessageType::Transaction, 1, bytes);
    state.transactions.counts.add(to.topic, 1);
    tracing::info!(real_topic = to.topic, physical_offset, "half message is checked anew");
    Response::ok()
}

/// A message that asked not to be checked for a time must be decided within it, or by the answer to a
/// check.
fn is_too_late(config: &BrokerConfig, record: &MessageRecord<'_>) -> bool {
    let Some(asked) = record.property(name::CHECK_IMMUNITY_TIME_IN_SECONDS) else { return false };
    let asked_ms = asked.parse::<i64>().map_or(0, |seconds| seconds.saturating_mul(1_000));
    let age_ms = now_ms().saturating_sub(record.born_timestamp_ms);
    age_ms > asked_ms.max(config.transaction_time_out)
}

/// Whether the half message is the one that is meant, and the producer's own.
fn require_match(
    record: &MessageRecord<'_>,
    request: &EndTransactionRequest<'_>,
) -> Result<(), Response> {
    let wrong = |remark: String| Err(Response::error(ResponseCode::SYSTEM_ERROR, remark));
    let group = record.property(name::PGROUP);
    if group != Some(&*request.producer_group) {
        return wrong(format!(
            "The producer group wrong: {}, the half message is of {}",
            request.producer_group,
            group.unwrap_or("none (property PGROUP)")
        ));
    }
    if record.queue_offset != request.tran_state_table_offset {
        return wrong(format!(
            "The transaction state table offset wrong: {}, the half message has {}",
            request.tran_state_table_offset, record.queue_offset
        ));
    }
    if record.physical_offset != request.commit_log_offset {
        return wrong(format!("The commit log offset wrong: {}", request.commit_log_offset));
    }
    Ok(())
}

fn commit(
    state: &BrokerState,
    config: &BrokerConfig,
    record: &MessageRecord<'_>,
    is_answered: bool,
) -> Response {
    let to = match Destination::of(record) {
        Ok(to) => to,
        Err(why) => {
            let remark = format!("the half message cannot be committed: {why}");
            return Response::error(ResponseCode::SYSTEM_ERROR, remark);
        }
    };
    let topic = state.topics.get(to.topic);
    if topic.is_some_and(|topic| has_batch_queues(&topic.attributes)) {
        let remark = format!(
            "topic {} was made anew with batch queues (queue.type=BatchCQ), which hold no single \
             message",
            to.topic
        );
        return Response::error(ResponseCode::MESSAGE_ILLEGAL, remark);
    }
    let properties = [record.properties];
    let message = half::committed(record, to, state.identity.store_host, &properties);
    let mut batch = state.store.new_batch();
    if let Err(error) = batch.push(&message) {
        return Response::error(ResponseCode::MESSAGE_ILLEGAL, error.to_string());
    }
    let bytes = batch.bytes();
    let deciding = state.transactions.decisions.begin(record.queue_offset);
    let end = match state.store.append(&mut batch) {
        Ok(outcome) => outcome.end_physical_offset,
        Err(error) => {
            state.metrics.store_failed(1);
            let (code, remark) = append_error(&error);
            return Response::error(code, remark);
        }
    };
    state.metrics.stored(to.topic, MessageType::Transaction, 1, bytes);
    // Behind the message in the log: a crash may take the decision alone, never the message alone.
    if let Err(response) = decide(state, config, deciding) {
        tracing::warn!(remark = response.remark.as_deref(), "decision lost, it is asked for again");
    }
    let age_ms = now_ms().saturating_sub(record.born_timestamp_ms);
    state.metrics.committed(to.topic, age_ms);
    state.transactions.counts.add(to.topic, -1);
    let waits = record.property(name::WAIT).is_none_or(|text| !text.eq_ignore_ascii_case("false"));
    if is_answered && waits {
        return when_stored(state, config, end);
    }
    acknowledge(state)
}

/// Waits for the group commit and for slaves, as far as sends do. When that takes too long the message
/// counts as stored, as in Java; but not where it counts only when the whole in-sync set has it.
pub(super) fn when_stored(
    state: &BrokerState,
    config: &BrokerConfig,
    end_physical_offset: i64,
) -> Response {
    let (sender, ends) = mpsc::channel();
    if config.flush_disk_type == FlushDiskType::SyncFlush {
        let sender = sender.clone();
        // Nobody waits any more after the time-out.
        let wait = state.flush_waits.add(Box::new(move |end| drop(sender.send(end))));
        let flushed = move |outcome| wait.end(WaitEnd::Flushed(outcome));
        state.store.on_durable(end_physical_offset, Box::new(flushed));
    }
    let copies = Copies::waited_for(state, config);
    if copies != Copies::None {
        let sender = sender.clone();
        let wait = state.copy_waits.add(Box::new(move |end| drop(sender.send(end))));
        copies.on_copied(state, end_physical_offset, wait);
    }
    drop(sender);
    // Each wait ends once, in time or not.
    for end in ends {
        match end {
            WaitEnd::Flushed(DurableOutcome::Durable) | WaitEnd::Copied => {}
            WaitEnd::Flushed(DurableOutcome::Failed(reason)) => {
                let remark = format!("the message may not be on disk: {reason}");
                return Response::error(ResponseCode::SERVICE_NOT_AVAILABLE, remark);
            }
            WaitEnd::TimedOut if copies == Copies::InSyncSet => {
                let remark = "not every replica of the in-sync set has the message";
                return Response::error(ResponseCode::FLUSH_SLAVE_TIMEOUT, remark);
            }
            WaitEnd::TimedOut => {}
            WaitEnd::SteppedDown(code) => {
                let (_, remark) = role::refusal(FencedBy::Role);
                return Response::error(code, remark);
            }
        }
    }
    acknowledge(state)
}

/// Says that it is stored, unless that may not be said any more.
pub(super) fn acknowledge(state: &BrokerState) -> Response {
    match state.role.may_acknowledge() {
        Ok(()) => Response::ok(),
        Err(fenced) => {
            let (code, remark) = role::refusal(fenced);
            Response::error(code, remark)
        }
    }
}

fn roll_back(state: &BrokerState, config: &BrokerConfig, record: &MessageRecord<'_>) -> Response {
    let deciding = state.transactions.decisions.begin(record.queue_offset);
    if let Err(response) = decide(state, config, deciding) {
        return response;
    }
    if let Some(topic) = record.property(name::REAL_TOPIC) {
        state.metrics.rolled_back(topic);
        state.transactions.counts.add(topic, -1);
    }
    Response::ok()
}

/// Notes that the half message is decided.
fn decide(
    state: &BrokerState,
    config: &BrokerConfig,
    deciding: Deciding<'_>,
) -> Result<(), Response> {
    if !deciding.done(op_bytes_max(config)) {
        return Ok(());
    }
    // The thread that writes them does not keep up.
    write_decisions(state, config, &mut state.store.new_batch()).map_err(|error| {
        let (code, remark) = append_error(&error);
        Response::error(code, remark)
    })
}
