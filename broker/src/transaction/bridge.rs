//! The store and the producers as a round sees them (RocketMQ's `TransactionalMessageBridge`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rocketmq_protocol::code::RequestCode;
use rocketmq_protocol::header::transaction::CheckTransactionStateRequest;
use rocketmq_protocol::message::id::OffsetMessageId;
use rocketmq_protocol::message::properties::name;
use rocketmq_protocol::message::record::{MessageRecord, NewMessage};
use rocketmq_protocol::names;
use rocketmq_remoting::Connection;
use rocketmq_store::{
    AppendBatch, AppendError, AppendResult, GetLimits, GetResult, GetStatus, MatchAll,
    MessageError, StoreError,
};

use super::half::{self, Destination};
use super::round::{Bridge, GivenUp, Half, Op, PutBack, Read};
use crate::clock::now_ms;
use crate::config::BrokerConfig;
use crate::metadata::perm;
use crate::metadata::persist::MetadataError;
use crate::metrics::MessageType;
use crate::state::BrokerState;

/// A round ends after this long, as in RocketMQ (`MAX_PROCESS_TIME_LIMIT`).
const ROUND_TIME_MAX: Duration = Duration::from_secs(60);
/// Op messages read at once (`OP_MSG_PULL_NUMS`).
const OPS_AT_ONCE: usize = 32;
/// A producer that has so many bytes unread is asked only if no other one of its group is there.
const UNREAD_BYTES_MAX: usize = 64 << 10;

/// Why a round ended early; the next one goes on there.
#[derive(Debug, thiserror::Error)]
pub enum RoundError {
    /// A topic cannot be read.
    #[error("cannot be read: {0}")]
    Read(#[from] StoreError),
    /// A message cannot be stored now.
    #[error("cannot be stored: {0}")]
    Append(#[from] AppendError),
    /// The topic for what is given up cannot be made.
    #[error("topic for what is given up: {0}")]
    Topic(#[from] MetadataError),
}

/// See [`Bridge`].
pub struct StoreBridge<'a> {
    state: &'a BrokerState,
    config: Arc<BrokerConfig>,
    batch: &'a mut AppendBatch,
    began: Instant,
}

impl<'a> StoreBridge<'a> {
    /// The bridge for one round, which begins now.
    pub fn new(state: &'a BrokerState, batch: &'a mut AppendBatch) -> StoreBridge<'a> {
        StoreBridge { state, config: state.config.load_full(), batch, began: Instant::now() }
    }

    fn read(&self, topic: &str, from: i64, count_max: usize) -> Result<GetResult, StoreError> {
        let limits = GetLimits { count_max, bytes_max: usize::MAX };
        self.state.store.get_messages(topic, half::QUEUE_ID, from, limits, &MatchAll)
    }

    /// Asks one producer of the group; whether any is there.
    fn ask(&self, record: &MessageRecord<'_>, block: &[u8], place: AppendResult) -> bool {
        let Some(group) = record.property(name::PGROUP) else { return false };
        let Ok(to) = Destination::of(record) else { return false };
        let at = (place.queue_offset, place.physical_offset);
        let Ok(body) = half::check_body(record, to, block, at) else { return false };
        let body = Bytes::from(body);
        let id = OffsetMessageId {
            store_host: self.state.identity.store_host,
            physical_offset: place.physical_offset,
        };
        let unique_key = record.property(name::UNIQ_KEY);
        let header = CheckTransactionStateRequest {
            topic: Some(names::TRANS_HALF_TOPIC.into()),
            tran_state_table_offset: place.queue_offset,
            commit_log_offset: place.physical_offset,
            msg_id: unique_key.map(Into::into),
            transaction_id: unique_key.map(Into::into),
            offset_msg_id: Some(id.to_string().into()),
        };
        let ext = (&header, [("bname", self.config.broker_name.as_str())]);
        let code = RequestCode::CHECK_TRANSACTION_STATE;
        self.producers(group)
            .iter()
            .any(|producer| producer.oneway(code, &ext, body.clone()).is_ok())
    }

    /// The live producers of a group, the one whose turn it is first; those that read slowly last.
    fn producers(&self, group: &str) -> Vec<Arc<Connection>> {
        let mut producers: Vec<Arc<Connection>> = self
            .state
            .clients
            .producers(group)
            .into_iter()
            .map(|channel| channel.connection)
            .filter(|connection| !connection.is_closed())
            .collect();
        if producers.len() > 1 {
            producers.sort_unstable_by_key(|connection| connection.id());
            let turn = self.state.transactions.next_check() % producers.len();
            producers.rotate_left(turn);
            producers.sort_by_key(|connection| connection.unwritten_bytes() > UNREAD_BYTES_MAX);
        }
        producers
    }
}

/// Appends one message.
fn append(
    state: &BrokerState,
    batch: &mut AppendBatch,
    message: &NewMessage<'_>,
    kind: MessageType,
) -> Result<Result<AppendResult, MessageError>, AppendError> {
    batch.clear();
    if let Err(error) = batch.push(message) {
        return Ok(Err(error));
    }
    let appended = state.store.append(batch);
    let placed = appended.and_then(|outcome| Ok((outcome, batch.result(0)?)));
    match &placed {
        Ok((outcome, placed)) => {
            state.transactions.progress.appended(outcome.end_physical_offset);
            state.metrics.stored(message.topic, kind, 1, placed.bytes);
        }
        Err(_) => state.metrics.store_failed(1),
    }
    placed.map(|(_, placed)| Ok(placed))
}

/// Puts waiting decisions into the op topic.
///
/// # Errors
/// When they cannot be stored; they go on waiting.
pub fn write_decisions(
    state: &BrokerState,
    config: &BrokerConfig,
    batch: &mut AppendBatch,
) -> Result<(), AppendError> {
    state.transactions.decisions.write(op_bytes_max(config), |body| {
        let message = half::op(body, now_ms(), state.identity.store_host, &[half::OP_PROPERTIES]);
        append(state, batch, &message, MessageType::Normal)?.map(drop).or_else(|error| {
            // The offsets of a few half messages fit in every log.
            tracing::error!(%error, body, "op message dropped, its half messages are asked about");
            Ok(())
        })
    })
}

/// The length that bodies of op messages may have.
pub fn op_bytes_max(config: &BrokerConfig) -> usize {
    let max = config.transaction_op_msg_max_size.min(config.max_message_size);
    usize::try_from(max).unwrap_or(usize::MAX)
}

impl Bridge for StoreBridge<'_> {
    type Record = Bytes;
    type Error = RoundError;

    fn now_ms(&self) -> i64 {
        now_ms()
    }

    fn goes_on(&mut self) -> bool {
        let decisions = &self.state.transactions.decisions;
        if decisions.is_ended() || self.began.elapsed() >= ROUND_TIME_MAX {
            return false;
        }
        // A long round must not hold up the decisions that come meanwhile.
        if !decisions.is_due(op_interval(&self.config)) {
            return true;
        }
        match write_decisions(self.state, &self.config, self.batch) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, "decisions on transactions not stored, trying again");
                false
            }
        }
    }

    fn write_decisions(&mut self) -> Result<(), RoundError> {
        Ok(write_decisions(self.state, &self.config, self.batch)?)
    }

    fn op_end(&self) -> i64 {
        self.state.store.max_queue_offset(names::TRANS_OP_HALF_TOPIC, half::QUEUE_ID)
    }

    fn half_end(&self) -> i64 {
        self.state.store.max_queue_offset(names::TRANS_HALF_TOPIC, half::QUEUE_ID)
    }

    fn read_ops(&mut self, from: i64) -> Result<Read<(Vec<Op>, i64)>, RoundError> {
        let found = self.read(names::TRANS_OP_HALF_TOPIC, from, OPS_AT_ONCE)?;
        match moved(&found, "decisions on transactions", from) {
            Some(moved) => Ok(moved),
            None => {
                let mut ops = Vec::new();
                for_each_record(&found, |record| {
                    ops.push((record.queue_offset, half::decided(record)));
                });
                Ok(Read::Found((ops, found.next_begin_offset)))
            }
        }
    }

    fn read_half(&mut self, queue_offset: i64) -> Result<Read<Half<Bytes>>, RoundError> {
        let found = self.read(names::TRANS_HALF_TOPIC, queue_offset, 1)?;
        if let Some(moved) = moved(&found, "half messages", queue_offset) {
            return Ok(moved);
        }
        let record = found.messages.first().cloned().unwrap_or_default();
        match MessageRecord::decode(&record) {
            Ok(half) => Ok(Read::Found(half::to_judge(&half, record.clone()))),
            Err(error) => {
                tracing::error!(queue_offset, %error, "half message passed over");
                Ok(Read::Moved(found.next_begin_offset))
            }
        }
    }

    fn put_back(&mut self, half: &Half<Bytes>, check: Option<i32>) -> Result<PutBack, RoundError> {
        let Ok(record) = MessageRecord::decode(&half.record) else {
            return Ok(PutBack::Impossible("it is no record"));
        };
        let block = match half::put_back_properties(&record, check) {
            Ok(block) => block,
            Err(why) => return Ok(PutBack::Impossible(why)),
        };
        let properties = [&*block];
        let message = half::copy(&record, self.state.identity.store_host, &properties);
        let (state, batch) = (self.state, &mut *self.batch);
        let decisions = &state.transactions.decisions;
        let mut place = None;
        let stored = decisions.put_back(half.queue_offset, || {
            match append(state, batch, &message, MessageType::Transaction) {
                Ok(Ok(placed)) => Ok(place.insert(placed).queue_offset),
                Ok(Err(error)) => Err(Err(error)),
                Err(error) => Err(Ok(error)),
            }
        });
        let stored = match stored {
            Ok(stored) => stored,
            Err(Ok(error)) => return Err(error.into()),
            Err(Err(error)) => {
                tracing::error!(queue_offset = half.queue_offset, %error, "half message");
                return Ok(PutBack::Impossible("it cannot be stored again"));
            }
        };
        if let (Some(times), Some(place)) = (check, place) {
            let is_asked = self.ask(&record, &block, place);
            tracing::debug!(
                queue_offset = half.queue_offset,
                copy = place.queue_offset,
                times,
                is_asked,
                group = record.property(name::PGROUP),
                "transaction checked"
            );
        }
        Ok(stored)
    }

    fn give_up(&mut self, half: &Half<Bytes>, why: GivenUp) -> Result<PutBack, RoundError> {
        let queue_offset = half.queue_offset;
        let Ok(record) = MessageRecord::decode(&half.record) else {
            tracing::error!(queue_offset, "half message dropped: it is no record");
            return Ok(PutBack::Done);
        };
        let (state, batch) = (self.state, &mut *self.batch);
        let topic = names::TRANS_CHECK_MAX_TIME_TOPIC;
        state.topics.create_internal(topic, half::QUEUES, perm::READ | perm::WRITE)?;
        let properties = [record.properties];
        let as_half = half::copy(&record, state.identity.store_host, &properties);
        let message = NewMessage { topic, queue_id: half::QUEUE_ID, ..as_half };
        let decisions = &state.transactions.decisions;
        let done = decisions.give_up(queue_offset, || {
            append(state, batch, &message, MessageType::Transaction).map(|stored| {
                if let Err(error) = stored {
                    tracing::error!(queue_offset, %error, "half message dropped");
                }
            })
        })?;
        if done == PutBack::Done {
            let real_topic = record.property(name::REAL_TOPIC).unwrap_or_default();
            let key = record.property(name::UNIQ_KEY);
            tracing::warn!(queue_offset, real_topic, key, ?why, "transaction given up");
            if !real_topic.is_empty() {
                state.transactions.counts.add(real_topic, -1);
            }
        }
        Ok(done)
    }

    fn settled(&mut self, half_offset: i64) {
        self.state.transactions.decisions.settled(half_offset);
    }
}

/// How long a decision may wait for others.
pub fn op_interval(config: &BrokerConfig) -> Duration {
    Duration::from_millis(u64::try_from(config.transaction_op_batch_interval).unwrap_or(0))
}

/// Where to go on, unless messages were found.
fn moved<T>(found: &GetResult, what: &str, from: i64) -> Option<Read<T>> {
    match found.status {
        GetStatus::Found => None,
        // Entries that stand for no message.
        GetStatus::NoMatchedMessage => Some(Read::Moved(found.next_begin_offset)),
        // The log has lost its front or its tail, or a piece in the middle.
        GetStatus::OffsetTooSmall
        | GetStatus::OffsetOverflowBadly
        | GetStatus::OffsetFoundNull
        | GetStatus::MessageWasRemoving => {
            let to = found.next_begin_offset;
            tracing::warn!(from, to, "{what} are gone from the log");
            Some(Read::Moved(to))
        }
        GetStatus::OffsetOverflowOne
        | GetStatus::NoMatchedLogicQueue
        | GetStatus::NoMessageInQueue => Some(Read::Nothing),
    }
}

fn for_each_record(found: &GetResult, mut each: impl FnMut(&MessageRecord<'_>)) {
    for mut records in found.messages.iter().map(|bytes| &bytes[..]) {
        while !records.is_empty() {
            let Ok(record) = MessageRecord::decode(records) else { break };
            records = records.get(record.size..).unwrap_or_default();
            each(&record);
        }
    }
}
