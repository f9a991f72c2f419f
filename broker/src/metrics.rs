//! Counters of the hot paths, and their names in Prometheus: those of RocketMQ 5
//! (BrokerMetricsManager, DefaultStoreMetricsManager).
//!
//! Handlers look a counter up once per batch and add to it; the rest is read from the broker's
//! tables when somebody asks (`metrics/collector.rs`).

mod collector;
mod histogram;
mod history;
mod queues;
mod stats;
mod store_times;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use parking_lot::{Mutex, RwLock};
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::names;

pub use collector::registry;
pub use histogram::Histogram;
use history::History;
pub use history::{Figures, RATE_INTERVAL_MS, Window};
pub use queues::QueuePuts;
use queues::{QueueTable, latency, moved};
pub use stats::{Stats, UserTotals};
use stats::{broker_counter, group_counter, topic_counter};
pub use store_times::StoreTimes;

/// What kind a message is; a label of the incoming counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageType {
    /// No ordering key.
    Normal,
    /// With an ordering key (`__SHARDINGKEY`).
    Fifo,
    /// With a delay level.
    Delay,
    /// Of a transaction, decided or not.
    Transaction,
}

/// How many kinds there are.
const KINDS: usize = 4;

impl MessageType {
    const ALL: [Self; KINDS] = [Self::Normal, Self::Fifo, Self::Delay, Self::Transaction];

    fn label(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Fifo => "fifo",
            Self::Delay => "delay",
            Self::Transaction => "transaction",
        }
    }
}

/// Under which RocketMQ counts what it delivers of delayed messages.
const DELIVERY_GROUP: &str = "SCHEDULE_CONSUMER";

/// Bounds of `rocketmq_message_size`, bytes.
const SIZE_BOUNDS: &[u64] = &[1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20];
/// Bounds of `rocketmq_rpc_latency`, milliseconds.
const RPC_BOUNDS: &[u64] = &[1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000];
/// Bounds of `rocketmq_finish_message_latency`, seconds.
const FINISH_BOUNDS: &[u64] = &[5, 60, 600, 3_600, 43_200, 86_400];
/// Bounds of the creation times of topics and groups, milliseconds.
const CREATE_BOUNDS: &[u64] = &[10, 100, 1_000, 3_000, 5_000];

/// What came in for one topic and kind of message.
#[derive(Debug)]
pub struct TopicIn {
    messages: AtomicU64,
    bytes: AtomicU64,
    sizes: Histogram,
}

/// One topic's counters by kind of message.
#[derive(Debug)]
struct TopicEntry {
    kinds: [Arc<TopicIn>; KINDS],
    /// Sends, of which one may have stored many messages.
    puts: AtomicU64,
    latencies: QueueTable<{ latency::COUNT }>,
    history: History<{ topic_counter::COUNT }>,
}

impl TopicEntry {
    fn new() -> Self {
        Self {
            kinds: std::array::from_fn(|_| Arc::new(TopicIn::new())),
            puts: AtomicU64::new(0),
            latencies: QueueTable::default(),
            history: History::default(),
        }
    }

    fn messages(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.messages.load(Relaxed)).sum()
    }
}

/// What one group was given of one topic.
#[derive(Debug, Default)]
pub struct GroupOut {
    messages: AtomicU64,
    bytes: AtomicU64,
    /// Pulls that found something.
    pulls: AtomicU64,
    /// What they took together.
    latency_ms: AtomicU64,
    history: History<{ group_counter::COUNT }>,
}

/// Messages of one topic that one group sent back.
#[derive(Debug, Default)]
struct SentBack {
    messages: AtomicU64,
    history: History<1>,
}

/// What became of one topic's half messages.
#[derive(Debug)]
struct TopicTransactions {
    rolled_back: AtomicU64,
    /// Ages of those that were committed, seconds.
    committed: Histogram,
}

impl Default for TopicTransactions {
    fn default() -> Self {
        Self { rolled_back: AtomicU64::new(0), committed: Histogram::new(FINISH_BOUNDS) }
    }
}

/// Counts since the start, independent of topics.
#[derive(Debug, Default)]
pub struct Totals {
    /// Messages stored.
    pub put: AtomicU64,
    /// Bytes of stored records.
    pub put_bytes: AtomicU64,
    /// Messages that could not be stored.
    pub put_failed: AtomicU64,
    /// Pulls that found messages.
    pub get_found: AtomicU64,
    /// Pulls that found nothing.
    pub get_miss: AtomicU64,
    /// Messages handed out.
    pub get_transferred: AtomicU64,
}

/// Labels of a request: code, answer's code, whether it had waited.
type RpcKey = (i32, i32, bool);

/// The counters of this broker.
#[derive(Debug, Default)]
pub struct BrokerMetrics {
    /// Independent of topics.
    pub totals: Totals,
    /// How long the store takes.
    pub store_times: StoreTimes,
    incoming: RwLock<HashMap<String, Arc<TopicEntry>>>,
    outgoing: RwLock<HashMap<String, HashMap<String, Arc<GroupOut>>>>,
    sent_back: RwLock<HashMap<String, HashMap<String, SentBack>>>,
    /// What was put into the queues of delayed messages.
    delayed_in: QueueTable<{ moved::COUNT }>,
    /// What was delivered out of them.
    delayed_out: QueueTable<{ moved::COUNT }>,
    broker_history: History<{ broker_counter::COUNT }>,
    /// When the next sample of each window is due.
    next_samples_ms: Mutex<[u64; 3]>,
    /// Messages of topics and groups that are gone, so that totals never fall.
    removed_put: AtomicU64,
    removed_get: AtomicU64,
    transactions: RwLock<HashMap<String, TopicTransactions>>,
    rpc: RwLock<HashMap<RpcKey, Arc<Histogram>>>,
    topic_creation: CreationTimes,
    group_creation: CreationTimes,
}

/// Times of creations, by (succeeded, system).
#[derive(Debug)]
struct CreationTimes([Histogram; 4]);

impl Default for CreationTimes {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Histogram::new(CREATE_BOUNDS)))
    }
}

impl CreationTimes {
    fn of(&self, succeeded: bool, system: bool) -> &Histogram {
        &self.0[usize::from(succeeded) * 2 + usize::from(system)]
    }
}

impl TopicIn {
    fn new() -> Self {
        Self {
            messages: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            sizes: Histogram::new(SIZE_BOUNDS),
        }
    }
}

impl BrokerMetrics {
    /// Messages of one topic and kind were stored one by one: how many, and their bytes in the log.
    pub fn stored(&self, topic: &str, kind: MessageType, messages: usize, bytes: usize) {
        self.stored_by(topic, kind, messages, messages, bytes);
    }

    /// So many sends stored messages of one topic and kind: how many, and their bytes in the log.
    pub fn stored_by(
        &self,
        topic: &str,
        kind: MessageType,
        puts: usize,
        messages: usize,
        bytes: usize,
    ) {
        let (messages, bytes) = (messages as u64, bytes as u64);
        if messages == 0 {
            return;
        }
        self.totals.put.fetch_add(messages, Relaxed);
        self.totals.put_bytes.fetch_add(bytes, Relaxed);
        let entry = self.topic_in(topic);
        entry.puts.fetch_add(puts as u64, Relaxed);
        let counters = &entry.kinds[kind as usize];
        counters.messages.fetch_add(messages, Relaxed);
        counters.bytes.fetch_add(bytes, Relaxed);
        counters.sizes.observe_many(bytes / messages, messages);
    }

    /// Sends to the topic, by queue, were answered in about the same time.
    pub fn puts_answered(&self, topic: &str, queues: &[QueuePuts], latency_ms: u64) {
        let entry = self.topic_in(topic);
        for puts in queues {
            if topic == names::SCHEDULE_TOPIC {
                self.delayed_in.add(puts.queue_id, puts.moved());
            }
            entry.latencies.add(puts.queue_id, puts.answered(latency_ms));
        }
    }

    /// A message that a consumer sent back was stored under the topic.
    pub fn copy_stored(&self, topic: &str, kind: MessageType, queue_id: i32, bytes: usize) {
        self.stored(topic, kind, 1, bytes);
        if topic == names::SCHEDULE_TOPIC {
            let put = QueuePuts { queue_id, puts: 1, messages: 1, bytes };
            self.delayed_in.add(queue_id, put.moved());
        }
    }

    /// Delayed messages left their queue, each on its own.
    pub fn delivered(&self, queue_id: i32, messages: usize, bytes: usize) {
        if messages == 0 {
            return;
        }
        let out = QueuePuts { queue_id, puts: messages, messages, bytes };
        self.delayed_out.add(queue_id, out.moved());
        let counters = self.group_out(DELIVERY_GROUP, names::SCHEDULE_TOPIC);
        counters.messages.fetch_add(messages as u64, Relaxed);
        counters.bytes.fetch_add(bytes as u64, Relaxed);
        counters.pulls.fetch_add(messages as u64, Relaxed);
    }

    /// A half message of the topic was committed at this age.
    pub fn committed(&self, topic: &str, age_ms: i64) {
        let age_s = u64::try_from(age_ms / 1_000).unwrap_or(0);
        self.transaction(topic, |counters| counters.committed.observe_many(age_s, 1));
    }

    /// A half message of the topic was rolled back.
    pub fn rolled_back(&self, topic: &str) {
        self.transaction(topic, |counters| {
            counters.rolled_back.fetch_add(1, Relaxed);
        });
    }

    fn transaction(&self, topic: &str, count: impl Fn(&TopicTransactions)) {
        if let Some(counters) = self.transactions.read().get(topic) {
            return count(counters);
        }
        count(self.transactions.write().entry(topic.to_owned()).or_default());
    }

    /// Messages could not be stored.
    pub fn store_failed(&self, messages: usize) {
        self.totals.put_failed.fetch_add(messages as u64, Relaxed);
    }

    /// A pull of the group was answered with messages (or with none: a miss) after so long, the wait
    /// for messages left out.
    pub fn pulled(&self, group: &str, topic: &str, messages: usize, bytes: usize, latency_ms: u64) {
        let (messages, bytes) = (messages as u64, bytes as u64);
        self.store_times.get(latency_ms);
        if messages == 0 {
            self.totals.get_miss.fetch_add(1, Relaxed);
            return;
        }
        self.totals.get_found.fetch_add(1, Relaxed);
        self.totals.get_transferred.fetch_add(messages, Relaxed);
        let counters = self.group_out(group, topic);
        counters.messages.fetch_add(messages, Relaxed);
        counters.bytes.fetch_add(bytes, Relaxed);
        counters.pulls.fetch_add(1, Relaxed);
        counters.latency_ms.fetch_add(latency_ms, Relaxed);
    }

    /// The group sent a message of the topic back.
    pub fn sent_back(&self, group: &str, topic: &str) {
        let mut sent_back = self.sent_back.write();
        let topics = sent_back.entry(group.to_owned()).or_default();
        topics.entry(topic.to_owned()).or_default().messages.fetch_add(1, Relaxed);
    }

    /// Requests of one kind were answered in about the same time; for hot paths once per batch.
    pub fn answered(
        &self,
        request: RequestCode,
        response: ResponseCode,
        was_held: bool,
        began: Instant,
        requests: u64,
    ) {
        let latency_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let key = (request.0, response.0, was_held);
        let found = self.rpc.read().get(&key).cloned();
        let histogram = found.unwrap_or_else(|| {
            let mut rpc = self.rpc.write();
            rpc.entry(key).or_insert_with(|| Arc::new(Histogram::new(RPC_BOUNDS))).clone()
        });
        histogram.observe_many(latency_ms, requests);
    }

    /// A topic was created, or could not be.
    pub fn topic_created(&self, succeeded: bool, system: bool, took_ms: u64) {
        self.topic_creation.of(succeeded, system).observe_many(took_ms, 1);
    }

    /// A subscription group was created, or could not be.
    pub fn group_created(&self, succeeded: bool, system: bool, took_ms: u64) {
        self.group_creation.of(succeeded, system).observe_many(took_ms, 1);
    }

    /// Messages that came in for the topic since the start.
    pub fn topic_messages_in(&self, topic: &str) -> u64 {
        self.incoming.read().get(topic).map_or(0, |entry| entry.messages())
    }

    /// Messages of the topic that the group was given since the start.
    pub fn group_messages_out(&self, group: &str, topic: &str) -> u64 {
        let outgoing = self.outgoing.read();
        let counters = outgoing.get(group).and_then(|topics| topics.get(topic));
        counters.map_or(0, |counters| counters.messages.load(Relaxed))
    }

    /// Messages a second that came in for the topic in the last minute.
    pub fn topic_put_tps(&self, topic: &str) -> f64 {
        let incoming = self.incoming.read();
        incoming.get(topic).map_or(0.0, |entry| {
            entry.history.figures(Window::Minute, topic_counter::MESSAGES).per_second
        })
    }

    /// Messages a second of the topic that the group was given in the last minute.
    pub fn group_get_tps(&self, group: &str, topic: &str) -> f64 {
        let outgoing = self.outgoing.read();
        let counters = outgoing.get(group).and_then(|topics| topics.get(topic));
        counters.map_or(0.0, |counters| {
            counters.history.figures(Window::Minute, group_counter::MESSAGES).per_second
        })
    }

    /// Forgets the topic's counters.
    pub fn remove_topic(&self, topic: &str) {
        let (mut put, mut get) = (0, 0);
        if let Some(entry) = self.incoming.write().remove(topic) {
            put += entry.messages();
        }
        self.transactions.write().remove(topic);
        self.outgoing.write().retain(|_, topics| {
            if let Some(counters) = topics.remove(topic) {
                get += counters.messages.load(Relaxed);
            }
            !topics.is_empty()
        });
        self.sent_back.write().retain(|_, topics| {
            topics.remove(topic);
            !topics.is_empty()
        });
        if !names::is_system_topic(topic) {
            self.removed_put.fetch_add(put, Relaxed);
            self.removed_get.fetch_add(get, Relaxed);
        }
    }

    /// Forgets the group's counters.
    pub fn remove_group(&self, group: &str) {
        let removed = self.outgoing.write().remove(group).unwrap_or_default();
        let user = removed.iter().filter(|(topic, _)| !names::is_system_topic(topic));
        let get = user.map(|(_, counters)| counters.messages.load(Relaxed)).sum();
        self.removed_get.fetch_add(get, Relaxed);
        self.sent_back.write().remove(group);
    }

    fn topic_in(&self, topic: &str) -> Arc<TopicEntry> {
        if let Some(entry) = self.incoming.read().get(topic) {
            return entry.clone();
        }
        let mut incoming = self.incoming.write();
        incoming.entry(topic.to_owned()).or_insert_with(|| Arc::new(TopicEntry::new())).clone()
    }

    fn group_out(&self, group: &str, topic: &str) -> Arc<GroupOut> {
        if let Some(counters) = self.outgoing.read().get(group).and_then(|topics| topics.get(topic))
        {
            return counters.clone();
        }
        let mut outgoing = self.outgoing.write();
        outgoing.entry(group.to_owned()).or_default().entry(topic.to_owned()).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_counts_as_its_messages() {
        let metrics = BrokerMetrics::default();
        metrics.stored("T", MessageType::Normal, 32, 3_200);
        metrics.stored("T", MessageType::Fifo, 1, 100);
        metrics.stored("T", MessageType::Fifo, 0, 0);
        metrics.pulled("g", "T", 5, 500, 1);
        metrics.pulled("g", "T", 0, 0, 1);
        assert_eq!(metrics.topic_messages_in("T"), 33);
        assert_eq!(metrics.group_messages_out("g", "T"), 5);
        assert_eq!(metrics.totals.get_miss.load(Relaxed), 1);
        metrics.remove_topic("T");
        assert_eq!(metrics.topic_messages_in("T"), 0);
        assert_eq!(metrics.group_messages_out("g", "T"), 0);
        assert_eq!(metrics.totals.put.load(Relaxed), 33, "totals stay");
    }
}
