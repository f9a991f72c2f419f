//! What the store must hold: a plain list per queue, and how much of it may be lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rocketmq_protocol::message::record;
use rocketmq_store::{GetLimits, GetStatus, MatchAll, Store};

use super::message::{self, Spec, TOPICS};

/// A message that the store said it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    pub id: u64,
    pub physical_offset: i64,
    pub end: i64,
    pub store_timestamp_ms: i64,
}

/// In which state a store is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Nothing happened to it.
    Running,
    /// It was opened again; everything in front of this offset must be there.
    Reopened {
        /// End of what may not be lost.
        kept: i64,
    },
}

#[derive(Debug, Default)]
pub struct Model {
    /// What each message is made of, by its number.
    pub specs: Vec<Spec>,
    /// By topic and queue; the index is the queue offset. Messages whose file has been removed stay
    /// in the list.
    pub queues: BTreeMap<(usize, i32), Vec<Message>>,
    /// Which topics have batch queues and which have not, as long as they are there.
    pub batch_topics: BTreeMap<usize, bool>,
    /// End of the log.
    pub written: i64,
    /// End of what was acknowledged as durable, moved by the store's callbacks.
    pub durable: Arc<AtomicI64>,
    /// Messages of each append that failed since one worked, in order: after a crash the first ones
    /// of one of them may be there. Not of two: what a failed one wrote is wiped before the next.
    pub in_flight: Vec<Vec<u64>>,
    /// Where the log begins at least.
    pub log_start: i64,
    /// What readers may see; nothing has to be confirmed if there is none.
    pub confirmed: Option<i64>,
    /// Topics whose deletion failed: after a crash they are there or not.
    pub deleting: BTreeSet<usize>,
}

/// Messages that are looked for by their keys.
const KEYS_CHECKED: usize = 20;
const LIMITS: GetLimits = GetLimits { count_max: 32, bytes_max: 1 << 20 };

/// What is found by a key is these messages, oldest first.
fn check_key(store: &Store, topic: usize, key: &str, messages: &[Message]) -> Result<(), String> {
    let name = TOPICS[topic];
    let found = store.query_messages(name, key, 0..=i64::MAX, usize::MAX, usize::MAX);
    let found = found.map_err(|error| format!("{name} by key {key}: {error}"))?.messages;
    let found: Vec<i64> = found
        .iter()
        .filter_map(|bytes| record::MessageRecord::decode(bytes).ok())
        .map(|record| record.physical_offset)
        .collect();
    let wanted: Vec<i64> = messages.iter().map(|message| message.physical_offset).collect();
    if found != wanted {
        return Err(format!("{name} by key {key}: {found:?} are found, not {wanted:?}"));
    }
    Ok(())
}

impl Model {
    pub fn durable(&self) -> i64 {
        self.durable.load(Ordering::SeqCst)
    }

    /// What readers may see of a queue, as its maximum.
    fn shown(&self, list: &[Message]) -> usize {
        let visible = self.confirmed.unwrap_or(i64::MAX);
        list.iter().rposition(|message| message.end <= visible).map_or(0, |last| last + 1)
    }

    /// The log was cut at `end`.
    pub fn cut(&mut self, end: i64) {
        for list in self.queues.values_mut() {
            list.retain(|message| message.end <= end);
        }
        self.queues.retain(|_, list| !list.is_empty());
        let queues = &self.queues;
        self.batch_topics.retain(|topic, _| queues.keys().any(|(of, _)| of == topic));
        self.in_flight.clear();
        self.written = end;
        self.durable.fetch_min(end, Ordering::SeqCst);
    }

    /// The log may have been cut anywhere from `to` on.
    pub fn may_be_cut(&mut self, to: i64) {
        let ends = self.queues.values().flatten().map(|message| message.end);
        let kept = ends.filter(|end| *end <= to).max().unwrap_or(0);
        let kept = kept.max(self.confirmed.unwrap_or(0));
        self.written = self.written.min(kept);
        self.durable.fetch_min(kept, Ordering::SeqCst);
    }

    pub fn remove_topic(&mut self, topic: usize) {
        self.queues.retain(|(of, _), _| *of != topic);
        self.batch_topics.remove(&topic);
    }

    /// Compares the store with the model, and after a crash takes over what of the undecided is
    /// there.
    pub fn check(&mut self, store: &Store, moment: Moment) -> Result<(), String> {
        let start = store.min_physical_offset();
        let end = store.max_physical_offset();
        if start < self.log_start {
            return Err(format!("log begins at {start}, though it was cut to {}", self.log_start));
        }
        match moment {
            Moment::Running if end != self.written => {
                return Err(format!("log ends at {end}, {} was said", self.written));
            }
            Moment::Running => {}
            Moment::Reopened { kept } => {
                if end < kept {
                    return Err(format!("log ends at {end}, {kept} was acknowledged"));
                }
                for list in self.queues.values_mut() {
                    list.retain(|message| message.end <= end);
                }
                self.settle_deletions(store);
            }
        }
        let durable = store.durable().0;
        if durable > end || (matches!(moment, Moment::Reopened { .. }) && durable != end) {
            return Err(format!("log ends at {end} and is said to be durable to {durable}"));
        }
        if store.dispatched() != rocketmq_store::offset::Dispatched(end) {
            return Err(format!("dispatched to {:?} of {end}", store.dispatched()));
        }

        let mut keys: BTreeSet<(usize, i32)> = self.queues.keys().copied().collect();
        for name in store.topics() {
            let topic = TOPICS.iter().position(|topic| **topic == *name);
            let topic = topic.ok_or_else(|| format!("topic {name} was never made"))?;
            keys.extend(store.queues(&name).into_iter().map(|queue_id| (topic, queue_id)));
        }
        let mut found_in_flight = BTreeSet::new();
        let mut places = Vec::new();
        for key in keys {
            self.check_queue(store, key, start, moment, &mut found_in_flight, &mut places)?;
        }
        self.check_index(store, &places)?;
        self.check_places(store, places, end)?;
        if let Moment::Reopened { .. } = moment {
            let count = found_in_flight.len();
            let are_first = |ids: &Vec<u64>| {
                ids.iter().copied().take(count).collect::<BTreeSet<u64>>() == found_in_flight
            };
            if count > 0 && !self.in_flight.iter().any(are_first) {
                return Err(format!(
                    "of the unfinished {:?} there are {found_in_flight:?}, not the first ones",
                    self.in_flight
                ));
            }
            self.in_flight.clear();
            // A topic of which nothing is left can be made anew with the other kind of queues.
            let queues = &self.queues;
            self.batch_topics.retain(|topic, _| queues.keys().any(|(of, _)| of == topic));
            self.written = end;
            self.durable.store(end, Ordering::SeqCst);
        }
        Ok(())
    }

    fn settle_deletions(&mut self, store: &Store) {
        let there = store.topics();
        for topic in std::mem::take(&mut self.deleting) {
            if !there.iter().any(|name| **name == *TOPICS[topic]) {
                self.remove_topic(topic);
            }
        }
    }

    fn check_queue(
        &mut self,
        store: &Store,
        (topic, queue_id): (usize, i32),
        start: i64,
        moment: Moment,
        found_in_flight: &mut BTreeSet<u64>,
        places: &mut Vec<Message>,
    ) -> Result<(), String> {
        let name = TOPICS[topic];
        let at = |text: String| format!("{name}-{queue_id}: {text}");
        let (min, max) =
            (store.min_queue_offset(name, queue_id), store.max_queue_offset(name, queue_id));
        let mut list = self.queues.remove(&(topic, queue_id)).unwrap_or_default();
        let mut next = list.partition_point(|message| message.physical_offset < start);
        if next < list.len() && min != next as i64 {
            return Err(at(format!("begins at {min}, the first message left is {next}")));
        }
        let found = read_queue(store, name, queue_id).map_err(at)?;
        for (queue_offset, message) in found {
            let expected = self.specs.get(message.id as usize);
            let expected = expected.filter(|spec| (spec.topic, spec.queue_id) == (topic, queue_id));
            let Some(count) = expected.map(Spec::count) else {
                return Err(at(format!("{queue_offset} holds message {} of another", message.id)));
            };
            match list.get(next) {
                Some(wanted) if *wanted == message => {}
                Some(wanted) => {
                    return Err(at(format!("{queue_offset} holds {message:?}, not {wanted:?}")));
                }
                None if moment != Moment::Running
                    && self.in_flight.iter().any(|ids| ids.contains(&message.id)) =>
                {
                    if !found_in_flight.insert(message.id) {
                        return Err(at(format!("message {} is there twice", message.id)));
                    }
                    list.extend(std::iter::repeat_n(message, count));
                }
                None => {
                    return Err(at(format!("{queue_offset} holds {message:?}, which is too much")));
                }
            }
            if queue_offset != next as i64 {
                return Err(at(format!("message {} is at {queue_offset}, not {next}", message.id)));
            }
            let taken = &list[next..];
            if taken.iter().take_while(|of_list| **of_list == message).count() != count {
                return Err(at(format!("message {} does not take {count} offsets", message.id)));
            }
            next += count;
            places.push(message);
        }
        let shown = self.shown(&list);
        if next < shown {
            return Err(at(format!("{:?} is missing", list[next])));
        }
        if next > shown.max(min as usize) {
            return Err(at(format!("{next} messages are shown, {shown} are confirmed")));
        }
        if moment != Moment::Running && start > 0 && min == max && max > list.len() as i64 {
            // Its messages were lost, but it is not known that they had not expired: their offsets
            // are not given out again.
            let lost = Message { id: u64::MAX, physical_offset: -1, end: 0, store_timestamp_ms: 0 };
            list.resize(max as usize, lost);
        }
        if max != (self.shown(&list) as i64).max(min) {
            return Err(at(format!("ends at {max}, {} messages were taken", list.len())));
        }
        if !list.is_empty() {
            self.queues.insert((topic, queue_id), list);
        }
        Ok(())
    }

    /// Each message is found by each of its keys, and nothing else is. Looking for all of them
    /// would take most of a run's time, so it is some of them each time.
    fn check_index(&self, store: &Store, places: &[Message]) -> Result<(), String> {
        let each = places.len() / KEYS_CHECKED + 1;
        let mut shared: BTreeMap<(usize, String), Vec<Message>> = BTreeMap::new();
        for (index, message) in places.iter().enumerate() {
            let topic = self.specs[message.id as usize].topic;
            if (index + places.len()).is_multiple_of(each) {
                for key in [message::unique_key(message.id), message::own_key(message.id)] {
                    check_key(store, topic, &key, &[*message])?;
                }
            }
            shared.entry((topic, message::shared_key(message.id))).or_default().push(*message);
        }
        let each = shared.len() / 4 + 1;
        for ((topic, key), mut messages) in shared.into_iter().step_by(each) {
            messages.sort_unstable_by_key(|message| message.physical_offset);
            let oldest = messages.len().saturating_sub(store.config().query_count_max);
            check_key(store, topic, &key, &messages[oldest..])?;
        }
        Ok(())
    }

    /// Records lie side by side and in the order of their time, and each is found by its place.
    fn check_places(
        &self,
        store: &Store,
        mut places: Vec<Message>,
        end: i64,
    ) -> Result<(), String> {
        places.sort_unstable_by_key(|message| message.physical_offset);
        let mut reached = 0;
        let mut time_ms = 0;
        for message in &places {
            if message.physical_offset < reached || message.end > end {
                return Err(format!("{message:?} lies at a wrong place, log ends at {end}"));
            }
            if message.store_timestamp_ms < time_ms {
                return Err(format!("{message:?} is older than the one in front, {time_ms}"));
            }
            (reached, time_ms) = (message.end, message.store_timestamp_ms);
            let bytes = store.message_at(message.physical_offset).map(|bytes| bytes.len() as i64);
            if bytes != Some(message.end - message.physical_offset) {
                return Err(format!("{message:?} is not found by its place"));
            }
            self.check_contents(&store.message_at(message.physical_offset).unwrap_or_default())?;
        }
        Ok(())
    }

    fn check_contents(&self, bytes: &[u8]) -> Result<(), String> {
        for record in record::iter(bytes) {
            let record = record.map_err(|error| error.to_string())?;
            let id = message::id_of(&record).ok_or("a body is empty")?;
            let spec = self.specs.get(id as usize).ok_or("a message was never sent")?;
            if record.body != spec.body(id) {
                return Err(format!("message {id} has another body"));
            }
            if record.properties != spec.stored_properties(id, record.queue_offset) {
                return Err(format!(
                    "message {id} has other properties: {:?}",
                    String::from_utf8_lossy(record.properties)
                ));
            }
        }
        Ok(())
    }
}

/// The records of a queue with their offsets, as a consumer gets them.
fn read_queue(store: &Store, topic: &str, queue_id: i32) -> Result<Vec<(i64, Message)>, String> {
    let mut messages = Vec::new();
    let mut from = store.min_queue_offset(topic, queue_id);
    loop {
        let result = store
            .get_messages(topic, queue_id, from, LIMITS, &MatchAll)
            .map_err(|error| error.to_string())?;
        match result.status {
            GetStatus::Found => {}
            GetStatus::OffsetOverflowOne
            | GetStatus::NoMatchedLogicQueue
            | GetStatus::NoMessageInQueue => return Ok(messages),
            other => return Err(format!("{other:?} at {from}")),
        }
        for slice in &result.messages {
            for record in record::iter(slice) {
                let record = record.map_err(|error| error.to_string())?;
                if record.topic != topic || record.queue_id != queue_id {
                    return Err(format!("{from} is of {}-{}", record.topic, record.queue_id));
                }
                if record.queue_offset != from {
                    return Err(format!("{from} says that it is {}", record.queue_offset));
                }
                let id = message::id_of(&record).ok_or_else(|| format!("{from} is empty"))?;
                let inner_num = record.property("INNER_NUM").map(str::parse);
                let count: i64 = inner_num.unwrap_or(Ok(1)).map_err(|_| format!("{from}: num"))?;
                messages.push((
                    from,
                    Message {
                        id,
                        physical_offset: record.physical_offset,
                        end: record.physical_offset + record.size as i64,
                        store_timestamp_ms: record.store_timestamp_ms,
                    },
                ));
                from += count;
            }
        }
        if result.next_begin_offset != from {
            return Err(format!("next is {}, not {from}", result.next_begin_offset));
        }
    }
}
