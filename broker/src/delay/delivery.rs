//! The thread that moves delayed messages to where they were sent, once they are due.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocketmq_protocol::message::properties::{self, name};
use rocketmq_protocol::message::record::{MessageRecord, NewMessage};
use rocketmq_protocol::names;
use rocketmq_store::{
    AppendBatch, AppendError, GetLimits, GetResult, GetStatus, QueueFilter, StoreError,
};

use crate::clock::now_ms;
use crate::metadata::attributes::has_batch_queues;
use crate::metrics::MessageType;
use crate::state::BrokerState;

/// Longest sleep while nothing is due, as in RocketMQ's `DELAY_FOR_A_WHILE`.
const IDLE: Duration = Duration::from_millis(100);
/// Sleep after a failure. RocketMQ waits 10 s; a full disk may have space again much sooner.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Why a level could not be delivered; it is tried again.
#[derive(Debug, thiserror::Error)]
enum DeliveryError {
    #[error("cannot be read: {0}")]
    Read(#[from] StoreError),
    #[error("cannot be stored: {0}")]
    Append(#[from] AppendError),
}

/// The running thread.
pub struct Delivery {
    /// Dropped to end it.
    stop: Mutex<Option<Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Delivery {
    /// Starts it.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn start(state: &Arc<BrokerState>) -> std::io::Result<Delivery> {
        let (stop, stopped) = channel();
        let state = Arc::clone(state);
        let thread = std::thread::Builder::new()
            .name("broker-delay".to_owned())
            .spawn(move || run(&state, &stopped))?;
        Ok(Delivery { stop: Mutex::new(Some(stop)), thread: Mutex::new(Some(thread)) })
    }

    /// Ends it and waits for that. What was delivered is noted in the progress.
    pub fn end(&self) {
        drop(self.stop.lock().take());
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that delivers delayed messages panicked");
        }
    }
}

fn run(state: &BrokerState, stopped: &Receiver<()>) {
    let levels = i32::try_from(state.store.config().delay_levels_ms.len()).unwrap_or(i32::MAX);
    let mut batch = state.store.new_batch();
    let mut last_write = Instant::now();
    loop {
        let mut sleep = IDLE;
        for level in 1..=levels {
            match deliver(state, level, &mut batch) {
                Ok(Next::More) => sleep = Duration::ZERO,
                Ok(Next::DueIn(wait)) => sleep = sleep.min(wait),
                Err(error) => {
                    tracing::warn!(level, %error, "delayed messages");
                    sleep = AFTER_FAILURE;
                    break;
                }
            }
        }
        let (written, safe) = (state.store.written().0, state.safe_end());
        state.delays.settle(written, safe);
        let interval_ms = state.config.load().flush_delay_offset_interval;
        if last_write.elapsed() >= Duration::from_millis(u64::try_from(interval_ms).unwrap_or(0)) {
            last_write = Instant::now();
            if let Err(error) = state.delays.persist(written, safe) {
                tracing::error!(%error, "progress of delayed messages not written, trying again");
            }
        }
        match stopped.recv_timeout(sleep) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// When to look at a level again.
enum Next {
    More,
    DueIn(Duration),
}

/// Lets through what is due, up to the first message that is not.
struct Due {
    now_ms: i64,
    /// The level's delay. A message that is due later than this from now was stored under a clock
    /// that has gone back since: it counts as due.
    delay_ms: i64,
    /// When the first message is due that is not yet.
    first_later_ms: Cell<Option<i64>>,
}

impl QueueFilter for Due {
    fn matches_tags_code(&self, due_ms: i64) -> bool {
        if self.first_later_ms.get().is_some() {
            return false;
        }
        let is_due = due_ms <= self.now_ms || due_ms > self.now_ms.saturating_add(self.delay_ms);
        if !is_due {
            self.first_later_ms.set(Some(due_ms));
        }
        is_due
    }
}

/// Delivers some of what is due of a level.
fn deliver(
    state: &BrokerState,
    level: i32,
    batch: &mut AppendBatch,
) -> Result<Next, DeliveryError> {
    let queue_id = level - 1;
    let store = &state.store;
    let min_offset = || store.min_queue_offset(names::SCHEDULE_TOPIC, queue_id);
    let from = state.delays.get(level).unwrap_or_else(min_offset);
    let delay_ms = usize::try_from(queue_id)
        .ok()
        .and_then(|index| store.config().delay_levels_ms.get(index))
        .copied()
        .unwrap_or(0);
    let due = Due { now_ms: now_ms(), delay_ms, first_later_ms: Cell::new(None) };
    let limits = GetLimits { count_max: 256, bytes_max: usize::MAX };
    let found = store.get_messages(names::SCHEDULE_TOPIC, queue_id, from, limits, &due)?;
    match found.status {
        GetStatus::Found => {
            let end = append(state, level, &found, batch)?;
            state.delays.set(level, end);
            Ok(Next::More)
        }
        GetStatus::NoMatchedMessage => {
            if let Some(due_ms) = due.first_later_ms.get() {
                let wait_ms = u64::try_from(due_ms - due.now_ms).unwrap_or(0);
                return Ok(Next::DueIn(Duration::from_millis(wait_ms)));
            }
            // Entries that stand for no message.
            state.delays.set(level, found.next_begin_offset);
            Ok(Next::More)
        }
        // The log has lost its front or its tail, or a piece in the middle.
        GetStatus::OffsetTooSmall
        | GetStatus::OffsetOverflowBadly
        | GetStatus::OffsetFoundNull
        | GetStatus::MessageWasRemoving => {
            let to = found.next_begin_offset;
            tracing::warn!(level, from, to, "delayed messages are gone from the log");
            state.delays.set(level, to);
            Ok(Next::More)
        }
        GetStatus::OffsetOverflowOne
        | GetStatus::NoMatchedLogicQueue
        | GetStatus::NoMessageInQueue => Ok(Next::DueIn(IDLE)),
    }
}

/// Stores the messages under their real topics; gives the offset behind the last one that is done.
fn append(
    state: &BrokerState,
    level: i32,
    found: &GetResult,
    batch: &mut AppendBatch,
) -> Result<i64, DeliveryError> {
    batch.clear();
    let mut topics = Vec::new();
    // Behind the last message that is in the batch, or that nobody can deliver.
    let mut end = found.next_begin_offset;
    let mut offsets = Vec::new();
    for mut records in found.messages.iter().map(|bytes| &bytes[..]) {
        while !records.is_empty() {
            let Ok(record) = MessageRecord::decode(records) else { break };
            records = records.get(record.size..).unwrap_or_default();
            end = record.queue_offset + 1;
            match restore(state, &record, batch) {
                Ok(topic) => {
                    topics.push((topic.to_owned(), record.size));
                    offsets.push(record.queue_offset);
                }
                Err(reason) => {
                    let physical_offset = record.physical_offset;
                    tracing::error!(level, physical_offset, reason, "delayed message dropped");
                }
            }
        }
    }
    let Err(error) = state.store.append(batch).map(drop) else {
        let appended = (0..batch.len()).take_while(|index| batch.result(*index).is_ok()).count();
        for (topic, bytes) in topics.iter().take(appended) {
            state.metrics.stored(topic, MessageType::Delay, 1, *bytes);
        }
        let bytes = topics.iter().take(appended).map(|(_, bytes)| bytes).sum();
        state.metrics.delivered(level - 1, appended, bytes);
        // An append may end midway, at a full disk.
        return Ok(offsets.get(appended).copied().unwrap_or(end));
    };
    state.metrics.store_failed(batch.len());
    Err(error.into())
}

/// Puts a message into the batch as it was sent, and gives its topic; or says why it cannot be.
fn restore<'a>(
    state: &BrokerState,
    record: &MessageRecord<'a>,
    batch: &mut AppendBatch,
) -> Result<&'a str, String> {
    let topic = properties::find(record.properties, name::REAL_TOPIC)
        .ok_or("it does not say to which topic it was sent (property REAL_TOPIC)")?;
    let queue_id: i32 = properties::find(record.properties, name::REAL_QID)
        .and_then(|text| text.parse().ok())
        .ok_or("it does not say to which queue it was sent (property REAL_QID)")?;
    if topic == names::TRANS_HALF_TOPIC {
        return Err("a half message of a transaction cannot be delayed".to_owned());
    }
    if state.topics.get(topic).is_some_and(|topic| has_batch_queues(&topic.attributes)) {
        return Err(format!("topic {topic} was made anew with batch queues (queue.type=BatchCQ)"));
    }
    // The properties stay as they are, as with the Java broker: consumers see DELAY, REAL_TOPIC
    // and REAL_QID. Nothing here looks at DELAY again, so it is not delayed twice.
    let message = NewMessage {
        topic,
        queue_id,
        flag: record.flag,
        sys_flag: record.sys_flag,
        born_timestamp_ms: record.born_timestamp_ms,
        born_host: record.born_host,
        store_host: state.identity.store_host,
        reconsume_times: record.reconsume_times,
        prepared_transaction_offset: record.prepared_transaction_offset,
        body: record.body,
        properties: &[record.properties],
    };
    batch.push(&message).map_err(|error| error.to_string())?;
    Ok(topic)
}
