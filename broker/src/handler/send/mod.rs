//! SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE: from a frame to an answer.
//!
//! All sends of one socket read go through one [`SendBatch`]: each is checked and encoded, then one
//! append writes them, and their answers leave together. Under synchronous flush the answers wait for
//! the group commit without holding a thread. RocketMQ's `SendMessageProcessor`.

mod answer;
mod check;
mod copies;
pub mod reply;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rocketmq_protocol::body::topic::TopicConfig;
use rocketmq_protocol::code::ResponseCode;
use rocketmq_protocol::frame::Frame;
use rocketmq_protocol::header::send::SendMessageRequest;
use rocketmq_protocol::message::properties::name;
use rocketmq_protocol::message::record::{NewMessage, sys_flag};
use rocketmq_remoting::{Connection, Output};
use rocketmq_store::{AppendBatch, AppendResult};
use smallvec::SmallVec;

use crate::clock::now_ms;
use crate::config::{BrokerConfig, FlushDiskType};
use crate::flush_waits::WaitEnd;
use crate::metadata::attributes::has_batch_queues;
use crate::metrics::{MessageType, QueuePuts};
use crate::role::held_sends::{Hold, busy_remark};
use crate::state::BrokerState;
use crate::transaction::half;

pub(super) use answer::append_error;
use answer::{Answers, PendingSend, StoredWait, riders};
use check::{
    Refusal, Said, check, check_batch, check_no_inner_batch, destination, half_destination,
    illegal, require_room_for_copies, rewrite,
};
pub(super) use copies::Copies;

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
    /// What each queue gets.
    puts: Vec<TopicPuts>,
    /// The topics to which half messages among them were sent.
    halves: Vec<Arc<TopicConfig>>,
    /// Scratch for a property block that has to be rewritten.
    rewritten: Vec<u8>,
    /// When the read that is being served began.
    began: Instant,
}

/// How many queues of a topic are searched for the one to count a send for.
const QUEUES_SEARCHED: usize = 16;

/// The queues of one topic that a run of sends goes to.
pub(super) struct TopicPuts {
    pub(super) topic: Arc<TopicConfig>,
    pub(super) queues: SmallVec<[QueuePuts; 8]>,
}

struct Count {
    topic: Arc<TopicConfig>,
    kind: MessageType,
    puts: usize,
    messages: usize,
    bytes: usize,
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
            puts: Vec::new(),
            halves: Vec::new(),
            rewritten: Vec::new(),
            began: Instant::now(),
        }
    }

    /// Whether no send is in it.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Takes a send in, as [`SendBatch::add`], or holds it while the broker hands over.
    pub fn take_in(
        &mut self,
        state: &Arc<BrokerState>,
        conn: &Arc<Connection>,
        frame: &Frame<'_>,
        out: &mut Output,
    ) {
        if !state.held_sends.is_holding() {
            return self.add(state, conn, frame, out);
        }
        match state.held_sends.hold(conn, frame) {
            Hold::Held => {}
            Hold::Released => self.add(state, conn, frame, out),
            Hold::Full => {
                let remark = busy_remark(Duration::ZERO, state.held_sends.len());
                out.reply_error(frame.ticket(), ResponseCode::SYSTEM_BUSY, &remark);
                let code = ResponseCode::SYSTEM_BUSY;
                state.metrics.answered(frame.request_code(), code, false, self.began, 1);
            }
        }
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
            let is_lost = state.is_sender_astray();
            let mut last = Output::new();
            let out = if is_lost { &mut last } else { &mut *out };
            out.reply_header(frame.ticket(), refusal.code, remark, &riders(&config));
            if is_lost {
                conn.send(last);
                conn.close();
            }
            state.metrics.answered(frame.request_code(), refusal.code, false, self.began, 1);
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
        let hosts = (conn.remote(), state.identity.store_host);
        let (messages_before, bytes_before) = (self.append.len(), self.append.bytes());
        let (topic, queue_id, kind, messages) = if request.batch == Some(true) {
            let messages = match has_batch_queues(&topic.attributes) {
                true => self.add_inner_batch(&request, frame, queue_id, hosts, state)?,
                false => {
                    self.add_batch(&request, frame, queue_id, hosts, state)?;
                    self.append.len() - messages_before
                }
            };
            (topic, queue_id, MessageType::Normal, messages)
        } else {
            let (topic, queue_id, kind) =
                self.add_single(&request, frame, topic, queue_id, hosts, state)?;
            (topic, queue_id, kind, 1)
        };
        let bytes = self.append.bytes() - bytes_before;
        self.count_queue(&topic, QueuePuts { queue_id, puts: 1, messages, bytes });
        self.count(topic, kind, messages, bytes);
        Ok(())
    }

    fn count_queue(&mut self, topic: &Arc<TopicConfig>, put: QueuePuts) {
        let found = self.puts.last_mut().filter(|last| Arc::ptr_eq(&last.topic, topic));
        let Some(of_topic) = found else {
            let queues = SmallVec::from_slice(&[put]);
            return self.puts.push(TopicPuts { topic: Arc::clone(topic), queues });
        };
        // A topic with more queues than are looked at has some twice, which costs little.
        let near = of_topic.queues.iter_mut().rev().take(QUEUES_SEARCHED);
        match near.into_iter().find(|queue| queue.queue_id == put.queue_id) {
            Some(queue) => {
                queue.puts += put.puts;
                queue.messages += put.messages;
                queue.bytes += put.bytes;
            }
            None => of_topic.queues.push(put),
        }
    }

    fn count(&mut self, topic: Arc<TopicConfig>, kind: MessageType, messages: usize, bytes: usize) {
        match self.counts.last_mut() {
            Some(last) if Arc::ptr_eq(&last.topic, &topic) && last.kind == kind => {
                last.puts += 1;
                last.messages += messages;
                last.bytes += bytes;
            }
            _ => self.counts.push(Count { topic, kind, puts: 1, messages, bytes }),
        }
    }

    fn add_single(
        &mut self,
        request: &SendMessageRequest<'_>,
        frame: &Frame<'_>,
        topic: Arc<TopicConfig>,
        queue_id: i32,
        hosts: (SocketAddr, SocketAddr),
        state: &BrokerState,
    ) -> Result<(Arc<TopicConfig>, i32, MessageType), Refusal> {
        let block = request.properties.as_deref().unwrap_or_default().as_bytes();
        let said = Said::read(block);
        check_no_inner_batch(&said)?;
        let delay_level = said.delay_level()?;
        let made_key;
        let (unique_key, key_pair) = match said.unique_key {
            Some(key) => (key, String::new()),
            None => {
                made_key = state.unique_keys.next(now_ms());
                let pair = format!("{}\u{1}{made_key}\u{2}", name::UNIQ_KEY);
                (made_key.as_str(), pair)
            }
        };
        let mut half_of = None;
        let to = if said.is_half(request, delay_level) {
            half_of = Some(topic);
            let config = state.config.load();
            half_destination(state, &config, request, queue_id, delay_level, unique_key)?
        } else {
            // A send that only its flag calls half is stored where no queue shows it, so never later.
            let is_shown = !sys_flag::is_outside_queues(request.sys_flag);
            destination(state, request, topic, queue_id, if is_shown { delay_level } else { 0 })?
        };
        if !to.is_delayed {
            said.require_ordinary()?;
        }
        let block = if said.needs_rewrite || to.is_redirected {
            rewrite(block, to.is_redirected, &mut self.rewritten);
            self.rewritten.as_slice()
        } else {
            block
        };
        let first = self.append.len();
        let pieces = [block, key_pair.as_bytes(), &*to.properties, &state.broker_properties];
        let as_sent = new_message(request, to.queue_id, frame.body, hosts);
        let mut message =
            NewMessage { topic: &to.topic.topic_name, properties: &pieces, ..as_sent };
        if half_of.is_some() {
            require_room_for_copies(&pieces)?;
            message.sys_flag = half::half_sys_flag(message.sys_flag);
        }
        self.append.push(&message).map_err(|error| illegal(&error))?;
        let waits = !said.does_not_wait;
        self.add_pending(frame, to.answered_queue_id, first, unique_key, waits);
        let kind = match (to.is_delayed, said.has_sharding_key) {
            _ if half_of.is_some() => MessageType::Transaction,
            (true, _) => MessageType::Delay,
            (false, true) => MessageType::Fifo,
            (false, false) => MessageType::Normal,
        };
        self.halves.extend(half_of);
        Ok((to.topic, to.queue_id, kind))
    }

    fn add_batch(
        &mut self,
        request: &SendMessageRequest<'_>,
        frame: &Frame<'_>,
        queue_id: i32,
        hosts: (SocketAddr, SocketAddr),
        state: &BrokerState,
    ) -> Result<(), Refusal> {
        let common = request.properties.as_deref().unwrap_or_default().as_bytes();
        let said_by_all = Said::read(common);
        check_no_inner_batch(&said_by_all)?;
        check_batch(request, frame.body, &said_by_all)?;
        let first = self.append.len();
        let pieces = [common, &state.broker_properties];
        let all = NewMessage { properties: &pieces, ..new_message(request, queue_id, &[], hosts) };
        self.append.push_batch(&all, frame.body).map_err(|error| illegal(&error))?;
        let unique_key = said_by_all.unique_key.unwrap_or_default();
        self.add_pending(frame, queue_id, first, unique_key, !said_by_all.does_not_wait);
        Ok(())
    }

    /// Adds a batch to a topic with batch queues: one record with one entry, which the client takes
    /// apart. Returns how many messages it holds.
    fn add_inner_batch(
        &mut self,
        request: &SendMessageRequest<'_>,
        frame: &Frame<'_>,
        queue_id: i32,
        hosts: (SocketAddr, SocketAddr),
        state: &BrokerState,
    ) -> Result<usize, Refusal> {
        let common = request.properties.as_deref().unwrap_or_default().as_bytes();
        let said = Said::read(common);
        let messages = check_batch(request, frame.body, &said)?;
        let Some(unique_key) = said.unique_key else {
            // The Java broker stores its messages one by one, and no consumer sees them.
            let remark = format!(
                "topic {} has batch queues (queue.type=BatchCQ), which take a batch with a unique \
                 key (property UNIQ_KEY of the batch) alone",
                request.topic
            );
            return Err(Refusal::new(ResponseCode::MESSAGE_ILLEGAL, remark));
        };
        let first = self.append.len();
        let pieces = [common, &state.broker_properties];
        let as_sent = new_message(request, queue_id, frame.body, hosts);
        let message = NewMessage { properties: &pieces, ..as_sent };
        self.append.push_inner_batch(&message).map_err(|error| illegal(&error))?;
        self.add_pending(frame, queue_id, first, unique_key, !said.does_not_wait);
        if let Some(send) = self.pending.last_mut() {
            send.is_inner_batch = true;
        }
        Ok(messages)
    }

    fn add_pending(
        &mut self,
        frame: &Frame<'_>,
        queue_id: i32,
        first: usize,
        unique_key: &str,
        waits: bool,
    ) {
        let key_start = self.unique_keys.len();
        self.unique_keys.push_str(unique_key);
        self.pending.push(PendingSend {
            ticket: frame.ticket(),
            request: frame.request_code(),
            queue_id,
            messages: first..self.append.len(),
            unique_key: key_start..self.unique_keys.len(),
            is_inner_batch: false,
            waits,
        });
    }

    /// Appends what is in the batch and answers into `out`, or later where the flush is waited for.
    pub fn finish(&mut self, state: &Arc<BrokerState>, conn: &Arc<Connection>, out: &mut Output) {
        if self.is_empty() {
            return;
        }
        let append_began = Instant::now();
        let appended = state.store.append(&mut self.append);
        let took_ms = u64::try_from(append_began.elapsed().as_millis()).unwrap_or(u64::MAX);
        state.metrics.store_times.put(self.append.len(), took_ms);
        let answers = Answers {
            pending: std::mem::take(&mut self.pending),
            unique_keys: std::mem::take(&mut self.unique_keys),
            puts: std::mem::take(&mut self.puts),
            error: appended.as_ref().err().cloned(),
            withdrawn: None,
            began: self.began,
        };
        // An append that failed midway has stored what came before.
        self.places.extend((0..self.append.len()).map_while(|at| self.append.result(at).ok()));
        if let Some(error) = &answers.error {
            state.metrics.store_failed(self.append.len() - self.places.len());
            tracing::debug!(%error, "append failed");
        } else {
            for count in &self.counts {
                let Count { topic, kind, puts, messages, bytes } = count;
                state.metrics.stored_by(&topic.topic_name, *kind, *puts, *messages, *bytes);
            }
            for topic in &self.halves {
                state.transactions.counts.add(&topic.topic_name, 1);
            }
        }
        let config = state.config.load();
        let is_sync = config.flush_disk_type == FlushDiskType::SyncFlush;
        let copies = Copies::waited_for(state, &config);
        drop(config);
        let end = self.places.last().map(|place| place.physical_offset + place.bytes as i64);
        match end {
            Some(end)
                if (is_sync || copies != Copies::None)
                    && answers.pending.iter().any(|send| send.waits) =>
            {
                let waiting = StoredWait {
                    answers,
                    places: std::mem::take(&mut self.places),
                    state: Arc::clone(state),
                    in_flight: conn.hold(self.append.bytes()),
                    end,
                    copies,
                };
                if is_sync {
                    let wait = state.flush_waits.add(Box::new(|end| waiting.flushed(end)));
                    let flushed = move |outcome| wait.end(WaitEnd::Flushed(outcome));
                    state.store.on_durable(end, Box::new(flushed));
                } else {
                    waiting.wait_for_copies();
                }
            }
            _ => {
                let mut answers = answers;
                answers.withdraw_if_closed(state, &mut self.places);
                answers.write(state, &self.places, ResponseCode::SUCCESS, out);
                self.reuse(answers);
            }
        }
        self.places.clear();
        self.append.clear();
        self.counts.clear();
        self.halves.clear();
    }

    /// Begins a socket read: forgets what an earlier one may have left behind.
    pub fn begin(&mut self, began: Instant) {
        self.began = began;
        self.append.clear();
        self.pending.clear();
        self.places.clear();
        self.unique_keys.clear();
        self.counts.clear();
        self.puts.clear();
        self.halves.clear();
    }

    fn reuse(&mut self, mut answers: Answers) {
        answers.pending.clear();
        answers.unique_keys.clear();
        answers.puts.clear();
        self.pending = answers.pending;
        self.unique_keys = answers.unique_keys;
        self.puts = answers.puts;
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
