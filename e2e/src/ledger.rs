//! The ledger: what was acknowledged, what arrived, and whether the two agree.
//!
//! What at-least-once allows, exactly:
//! - **Loss: never.** A send answered SEND_OK arrives in every group whose
//!   filter lets it through, at the very queue and offset the answer named.
//!   A send that failed, or was answered with another state, or was one-way,
//!   may or may not arrive.
//! - **Stored twice: only by the client's own retry.** A key stands at no more
//!   places (queue and offset) than its send had attempts; with retries off,
//!   at one.
//! - **Delivered twice: only after a disturbance.** One place is delivered to
//!   one group once, and once more for each disturbance (a crash of the broker,
//!   a member that joins, leaves or crashes) that the test declares.
//! - **A place never changes its message**, not even over a crash, once a
//!   consumer saw it.
//! - **Order within a queue.** Acknowledged sends of one sequential sender
//!   stand in a queue in the order they were sent. A consumer in order sees a
//!   place for the first time only after all smaller offsets it will see.
//! - Body, tag and id are those that were sent; nothing arrives that was never
//!   sent or that the filter excludes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as MapEntry;
use std::fmt;

use anyhow::{Result, bail};

use crate::line::{Line, QueueBounds, Received};

#[cfg(test)]
mod tests;

/// How many broken rules an error spells out.
const SHOWN_VIOLATIONS: usize = 20;

/// Where a message stands: broker, topic, queue, offset.
type Place = (String, String, i32, i64);

/// How messages were sent; decides what the ledger may demand of them.
#[derive(Debug, Clone, Copy)]
pub struct SendRules {
    /// Tries the client makes for one send: 1 + its retries.
    pub attempts: u32,
    /// Each thread waits for one answer before its next send.
    pub sequential: bool,
    /// Sent in batches. The 5.x client gives the messages of a batch one id on
    /// the wire and others in its result, so ids are not compared.
    pub batch: bool,
}

impl SendRules {
    /// Synchronous sends without retries.
    pub const SEQUENTIAL: SendRules = SendRules { attempts: 1, sequential: true, batch: false };
    /// Asynchronous or one-way sends without retries.
    pub const UNORDERED: SendRules = SendRules { attempts: 1, sequential: false, batch: false };
    /// Synchronous batches without retries.
    pub const BATCH: SendRules = SendRules { attempts: 1, sequential: true, batch: true };
}

/// What a group was meant to receive.
#[derive(Debug, Clone, Copy, Default)]
pub struct GroupRules<'a> {
    /// Only this topic.
    pub topic: &'a str,
    /// Only these tags; empty means all.
    pub tags: &'a [&'a str],
    /// One consumer at a time takes each queue in order.
    pub in_order: bool,
    /// Events after which a place may be delivered once more.
    pub disturbances: u32,
    /// One-way sends must arrive too: nothing disturbed the broker.
    pub one_way_arrives: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Acknowledged(Place),
    OneWay,
    Unknown,
}

#[derive(Debug)]
struct Send {
    topic: String,
    tags: String,
    body_length: u64,
    body_sha256: String,
    msg_id: Option<String>,
    outcome: Outcome,
    rules: SendRules,
}

/// Counts of a check that found nothing wrong.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Sends answered SEND_OK that the group had to receive.
    pub acknowledged: usize,
    /// Sends that failed or whose state is not SEND_OK.
    pub unknown: usize,
    /// Of those, how many arrived all the same.
    pub unknown_arrived: usize,
    /// Deliveries in all.
    pub deliveries: usize,
    /// Places beyond one for their key.
    pub stored_again: usize,
    /// Deliveries beyond one of their place.
    pub delivered_again: usize,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} acknowledged, {} of unknown fate ({} arrived), {} deliveries, {} stored again, \
             {} delivered again",
            self.acknowledged,
            self.unknown,
            self.unknown_arrived,
            self.deliveries,
            self.stored_again,
            self.delivered_again
        )
    }
}

/// All sends and all arrivals of one test.
#[derive(Debug, Default)]
pub struct Ledger {
    sends: BTreeMap<String, Send>,
    /// Keys of sequential senders in the order of their answers.
    streams: BTreeMap<(String, u32), Vec<String>>,
    arrivals: BTreeMap<String, Vec<Received>>,
    bounds: BTreeMap<String, Vec<QueueBounds>>,
    violations: Vec<String>,
}

impl Ledger {
    /// An empty ledger.
    pub fn new() -> Ledger {
        Ledger::default()
    }

    /// Enters what a producer printed.
    pub fn sent(&mut self, lines: &[Line], rules: SendRules) {
        for line in lines {
            let (key, thread, send) = match line {
                Line::Send(sent) => {
                    let outcome = match (sent.status.as_str(), sent.queue_id, sent.queue_offset) {
                        ("SEND_OK", Some(queue), Some(offset)) => Outcome::Acknowledged((
                            sent.broker_name.clone().unwrap_or_default(),
                            sent.topic.clone(),
                            queue,
                            offset,
                        )),
                        ("ONEWAY", _, _) => Outcome::OneWay,
                        _ => Outcome::Unknown,
                    };
                    let send = Send {
                        topic: sent.topic.clone(),
                        tags: sent.tags.clone().unwrap_or_default(),
                        body_length: sent.body_length,
                        body_sha256: sent.body_sha256.clone(),
                        msg_id: sent.msg_id.clone(),
                        outcome,
                        rules,
                    };
                    (&sent.key, sent.thread, send)
                }
                Line::Error(error) => {
                    let send = Send {
                        topic: error.topic.clone(),
                        tags: error.tags.clone().unwrap_or_default(),
                        body_length: error.body_length,
                        body_sha256: error.body_sha256.clone(),
                        msg_id: None,
                        outcome: Outcome::Unknown,
                        rules,
                    };
                    (&error.key, error.thread, send)
                }
                _ => continue,
            };
            if rules.sequential && matches!(send.outcome, Outcome::Acknowledged(_)) {
                let prefix = key.rsplitn(3, '-').last().unwrap_or(key).to_owned();
                self.streams.entry((prefix, thread)).or_default().push(key.clone());
            }
            match self.sends.entry(key.clone()) {
                MapEntry::Vacant(place) => {
                    place.insert(send);
                }
                // The 5.x client may report one failure of an asynchronous send
                // twice, or after a success. What it was told of the store stands.
                MapEntry::Occupied(_) if send.outcome == Outcome::Unknown => {}
                MapEntry::Occupied(mut first) if first.get().outcome == Outcome::Unknown => {
                    first.insert(send);
                }
                MapEntry::Occupied(_) => {
                    self.violations.push(format!("{key}: the producer reported it twice"));
                }
            }
        }
    }

    /// Enters what a consumer of `group` printed. Consumers of a broadcast group
    /// are groups of their own here.
    pub fn arrived(&mut self, group: &str, lines: &[Line]) {
        for line in lines {
            match line {
                Line::Recv(received) => {
                    self.arrivals.entry(group.to_owned()).or_default().push((**received).clone());
                }
                Line::Queue(bounds) => {
                    self.bounds.entry(group.to_owned()).or_default().push(bounds.clone());
                }
                _ => {}
            }
        }
    }

    /// How many sends to `topic` were acknowledged.
    pub fn acknowledged(&self, topic: &str) -> usize {
        self.sends
            .values()
            .filter(|send| send.topic == topic && matches!(send.outcome, Outcome::Acknowledged(_)))
            .count()
    }

    /// Acknowledged sends that have not arrived in `lines`; for waiting.
    pub fn missing(&self, rules: &GroupRules<'_>, lines: &[Line]) -> usize {
        let arrived: std::collections::HashSet<&str> = lines
            .iter()
            .filter_map(|line| match line {
                Line::Recv(received) => received.keys.as_deref(),
                _ => None,
            })
            .collect();
        self.sends
            .iter()
            .filter(|(key, send)| demanded(send, rules) && !arrived.contains(key.as_str()))
            .count()
    }

    /// Judges one group against everything sent.
    pub fn check(&self, group: &str, rules: &GroupRules<'_>) -> Result<Summary> {
        let mut violations = self.violations.clone();
        let mut summary = Summary::default();
        let none = Vec::new();
        let arrivals = self.arrivals.get(group).unwrap_or(&none);
        let mut owners: BTreeMap<Place, &str> = BTreeMap::new();
        let mut deliveries: BTreeMap<Place, u32> = BTreeMap::new();
        let mut places: BTreeMap<&str, Vec<Place>> = BTreeMap::new();
        let mut newest: BTreeMap<(String, String, i32), i64> = BTreeMap::new();

        for received in arrivals {
            summary.deliveries += 1;
            let key = received.keys.as_deref().unwrap_or("(no key)");
            let place = place_of(received);
            let Some(send) = self.sends.get(key) else {
                violations.push(format!("{key} at {place:?}: arrived but was never sent"));
                continue;
            };
            compare(key, send, received, rules, &mut violations);
            match owners.entry(place.clone()) {
                MapEntry::Vacant(owner) => {
                    owner.insert(key);
                    places.entry(key).or_default().push(place.clone());
                }
                MapEntry::Occupied(owner) if *owner.get() != key => violations.push(format!(
                    "{place:?}: held {} when it was first seen and {key} later",
                    owner.get()
                )),
                MapEntry::Occupied(_) => {}
            }
            let count = deliveries.entry(place.clone()).or_default();
            *count += 1;
            if *count > 1 {
                summary.delivered_again += 1;
                if *count > 1 + rules.disturbances {
                    violations.push(format!(
                        "{key} at {place:?}: delivered {count} times with {} disturbances",
                        rules.disturbances
                    ));
                }
            } else if rules.in_order {
                let queue = (place.0.clone(), place.1.clone(), place.2);
                let last = newest.entry(queue).or_insert(-1);
                if place.3 <= *last {
                    violations.push(format!("{key} at {place:?}: first seen after offset {last}"));
                }
                *last = place.3.max(*last);
            }
        }

        for (key, send) in self.sends.iter().filter(|(_, send)| let_through(send, rules)) {
            let found = places.get(key.as_str()).map(Vec::as_slice).unwrap_or_default();
            if found.len() > send.rules.attempts as usize {
                violations.push(format!(
                    "{key}: stored {} times by {} attempts, at {found:?}",
                    found.len(),
                    send.rules.attempts
                ));
            }
            summary.stored_again += found.len().saturating_sub(1);
            match &send.outcome {
                Outcome::Acknowledged(place) => {
                    summary.acknowledged += 1;
                    if found.is_empty() {
                        violations.push(format!("{key}: acknowledged at {place:?} and lost"));
                    } else if !found.contains(place) {
                        violations.push(format!(
                            "{key}: acknowledged at {place:?} but arrived from {found:?}"
                        ));
                    }
                }
                Outcome::OneWay => {
                    if rules.one_way_arrives && found.len() != 1 {
                        violations.push(format!(
                            "{key}: sent one way to a healthy broker, found {} times",
                            found.len()
                        ));
                    }
                }
                Outcome::Unknown => {
                    summary.unknown += 1;
                    summary.unknown_arrived += usize::from(!found.is_empty());
                }
            }
        }
        self.check_send_order(rules, &mut violations);
        conclude(group, violations)?;
        Ok(summary)
    }

    /// Judges a group that pulled whole queues: every offset between the bounds it printed was seen, once.
    pub fn check_no_holes(&self, group: &str) -> Result<()> {
        let mut violations = Vec::new();
        let mut seen: BTreeMap<(String, i32), Vec<i64>> = BTreeMap::new();
        for received in self.arrivals.get(group).into_iter().flatten() {
            seen.entry((received.topic.clone(), received.queue_id))
                .or_default()
                .push(received.queue_offset);
        }
        let bounds = self.bounds.get(group).map(Vec::as_slice).unwrap_or_default();
        if bounds.is_empty() {
            violations.push("no queue was pulled".to_owned());
        }
        for queue in bounds {
            let found = seen.remove(&(queue.topic.clone(), queue.queue_id)).unwrap_or_default();
            if !found.iter().copied().eq(queue.min_offset..queue.max_offset) {
                violations.push(format!(
                    "{}/{}: offsets {} to {} were announced, {} messages came, first difference at {:?}",
                    queue.topic,
                    queue.queue_id,
                    queue.min_offset,
                    queue.max_offset,
                    found.len(),
                    (queue.min_offset..queue.max_offset)
                        .zip(found.iter().map(Some).chain(std::iter::repeat(None)))
                        .find(|(wanted, found)| *found != Some(wanted))
                ));
            }
        }
        for (queue, offsets) in seen {
            violations
                .push(format!("{queue:?}: {} messages of a queue not announced", offsets.len()));
        }
        conclude(group, violations)
    }

    fn check_send_order(&self, rules: &GroupRules<'_>, violations: &mut Vec<String>) {
        for ((prefix, thread), keys) in &self.streams {
            let mut last: BTreeMap<(&str, i32), (i64, &str)> = BTreeMap::new();
            for key in keys {
                let Some(Send { outcome: Outcome::Acknowledged(place), topic, .. }) =
                    self.sends.get(key)
                else {
                    continue;
                };
                if topic != rules.topic {
                    continue;
                }
                if let Some((offset, earlier)) = last.insert((&place.0, place.2), (place.3, key))
                    && offset >= place.3
                {
                    violations.push(format!(
                        "{prefix} thread {thread}: {earlier} stands at offset {offset} of queue {}, \
                         the later {key} at {}",
                        place.2, place.3
                    ));
                }
            }
        }
    }
}

fn place_of(received: &Received) -> Place {
    (
        received.broker_name.clone().unwrap_or_default(),
        received.topic.clone(),
        received.queue_id,
        received.queue_offset,
    )
}

/// Whether the group's filter lets the message through.
fn let_through(send: &Send, rules: &GroupRules<'_>) -> bool {
    send.topic == rules.topic && (rules.tags.is_empty() || rules.tags.contains(&send.tags.as_str()))
}

/// Whether the message must arrive.
fn demanded(send: &Send, rules: &GroupRules<'_>) -> bool {
    let_through(send, rules)
        && match send.outcome {
            Outcome::Acknowledged(_) => true,
            Outcome::OneWay => rules.one_way_arrives,
            Outcome::Unknown => false,
        }
}

fn compare(
    key: &str,
    send: &Send,
    received: &Received,
    rules: &GroupRules<'_>,
    violations: &mut Vec<String>,
) {
    if received.topic != rules.topic {
        violations.push(format!("{key}: arrived from topic {}", received.topic));
    } else if !let_through(send, rules) {
        violations.push(format!("{key}: tag '{}' is not of {:?}", send.tags, rules.tags));
    }
    if (received.body_length, &received.body_sha256) != (send.body_length, &send.body_sha256) {
        violations.push(format!(
            "{key}: sent {} bytes, digest {}, arrived with {} bytes, digest {}",
            send.body_length, send.body_sha256, received.body_length, received.body_sha256
        ));
    }
    if received.tags.as_deref().unwrap_or_default() != send.tags {
        violations.push(format!(
            "{key}: sent with tag '{}', arrived with {:?}",
            send.tags, received.tags
        ));
    }
    if received.reconsume_times != 0 {
        violations.push(format!("{key}: consumed at once, yet arrived as a retry"));
    }
    if !send.rules.batch
        && let (Some(sent), Some(arrived)) = (&send.msg_id, &received.msg_id)
        && sent != arrived
    {
        violations.push(format!("{key}: sent as {sent}, arrived as {arrived}"));
    }
}

fn conclude(group: &str, violations: Vec<String>) -> Result<()> {
    if violations.is_empty() {
        return Ok(());
    }
    let shown = violations[..violations.len().min(SHOWN_VIOLATIONS)].join("\n  ");
    bail!("group {group}: the ledger is broken in {} places:\n  {shown}", violations.len())
}
