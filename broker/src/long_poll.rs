//! Pulls that found nothing new and wait for it: the table that dispatch wakes.
//!
//! Owns which pulls wait, until when, and which of them an arrival concerns. It runs no pull itself:
//! what it hands out is pulled again by [`crate::handler::pull`], with waiting disallowed.
//!
//! A pull waits under its topic and queue. Three things end its wait: an arrival whose tag its filter
//! lets through, its deadline, and the sweep. The sweep is RocketMQ's (`PullRequestHoldService`, every
//! 5 s): a queue that grew only by messages the filter does not want wakes its pulls there, so that
//! the consumer's offset moves on although nothing matches.
//!
//! A filter by expression has to see the message. An arrival only marks its pulls here; they are then
//! looked at on another thread, so that no expression is evaluated on the way of an append. A pull
//! that wants nothing of what arrived is held again, and remembers how far was looked.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use rocketmq_protocol::code::RequestCode;
use rocketmq_protocol::frame::Ticket;
use rocketmq_remoting::{Connection, InFlight};
use smallvec::SmallVec;
use tokio::sync::Notify;

use crate::filter::PullFilter;

/// A pull as the table of waiting pulls keeps it.
pub struct HeldPull {
    /// Where the answer goes.
    pub conn: Arc<Connection>,
    /// Topic.
    pub topic: String,
    /// Queue.
    pub queue_id: i32,
    /// First queue offset wanted.
    pub queue_offset: i64,
    /// When it is answered even though nothing came.
    pub deadline: Instant,
    /// Which messages it wants.
    pub filter: PullFilter,
    /// Its filter wants nothing from `queue_offset` up to here.
    pub scanned_to: i64,
    pub(crate) ticket: Ticket,
    pub(crate) request: RequestCode,
    pub(crate) began: Instant,
    /// Whether it waited for messages.
    pub(crate) was_held: bool,
    pub(crate) group: String,
    pub(crate) count_max: usize,
    pub(crate) topic_sys_flag: i32,
    pub(crate) group_sys_flag: i32,
    pub(crate) suggest: SuggestedBroker,
    /// Keeps the request in its connection's in-flight bound while it waits.
    pub(crate) _in_flight: InFlight,
}

/// Which broker of the group `suggestWhichBrokerId` names.
#[derive(Clone, Copy)]
pub(crate) struct SuggestedBroker {
    pub(crate) in_pace: i64,
    pub(crate) when_slow: i64,
}

/// Time between two sweeps, as in RocketMQ's `PullRequestHoldService`.
pub const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Pulls that are ready to run again.
pub type Woken = SmallVec<[HeldPull; 4]>;

/// The waiting pulls of one broker.
pub struct LongPolls {
    table: Mutex<Table>,
    /// Equal to the number of pulls in `table`, so that an arrival sees without the lock that
    /// nobody waits.
    count: AtomicUsize,
    count_max: usize,
    deadline_moved: Notify,
    /// Whether some pull is to be looked at, see [`LongPolls::take_unlooked`].
    has_unlooked: AtomicBool,
    /// Whether somebody looks.
    is_looking: AtomicBool,
}

#[derive(Default)]
struct Table {
    topics: HashMap<String, HashMap<i32, Vec<Waiting>, RandomState>, RandomState>,
    /// Deadlines with the number of the pull that has it, so that equal deadlines stay apart.
    deadlines: BTreeMap<(Instant, u64), (String, i32)>,
    next_number: u64,
    /// Queues with pulls that are to be looked at; a queue may be there more than once.
    unlooked: VecDeque<(String, i32)>,
}

struct Waiting {
    number: u64,
    /// An arrival passed by that the filter did not want, or that nobody looked at yet.
    was_passed: bool,
    /// An arrival passed by that nobody looked at yet.
    is_unlooked: bool,
    pull: HeldPull,
}

impl LongPolls {
    /// An empty table that holds at most `count_max` pulls.
    pub fn new(count_max: usize) -> LongPolls {
        LongPolls {
            table: Mutex::default(),
            count: AtomicUsize::new(0),
            count_max,
            deadline_moved: Notify::new(),
            has_unlooked: AtomicBool::new(false),
            is_looking: AtomicBool::new(false),
        }
    }

    /// How many pulls wait.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether no pull waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lets a pull wait.
    ///
    /// The caller looks at the queue once more afterwards: a message that arrived between its read
    /// and this call woke nobody. See [`LongPolls::take_queue`].
    ///
    /// # Errors
    ///
    /// Gives the pull back when the table is full.
    pub fn hold(&self, pull: HeldPull) -> Result<(), Box<HeldPull>> {
        if self.len() >= self.count_max {
            return Err(Box::new(pull));
        }
        let deadline = pull.deadline;
        let mut table = self.table.lock();
        let number = table.next_number;
        table.next_number += 1;
        let is_first_to_end =
            table.deadlines.first_key_value().is_none_or(|(&(first, _), _)| deadline < first);
        table.deadlines.insert((deadline, number), (pull.topic.clone(), pull.queue_id));
        if !table.topics.contains_key(&pull.topic) {
            table.topics.insert(pull.topic.clone(), HashMap::default());
        }
        if let Some(queues) = table.topics.get_mut(&pull.topic) {
            let waiting = queues.entry(pull.queue_id).or_default();
            waiting.push(Waiting { number, was_passed: false, is_unlooked: false, pull });
        }
        self.count.fetch_add(1, Ordering::AcqRel);
        drop(table);
        if is_first_to_end {
            self.deadline_moved.notify_one();
        }
        Ok(())
    }

    /// Takes the pulls that a message with `tags_code` wakes, and notes the message for the others.
    /// `max_queue_offset` is the queue's maximum after it.
    pub fn take_arrived(
        &self,
        topic: &str,
        queue_id: i32,
        max_queue_offset: i64,
        tags_code: i64,
    ) -> Woken {
        if self.count.load(Ordering::Acquire) == 0 {
            return Woken::new();
        }
        let mut table = self.table.lock();
        let mut is_first_unlooked = false;
        let woken = self.take_from(&mut table, topic, queue_id, |waiting| {
            if max_queue_offset <= waiting.pull.scanned_to {
                return false;
            }
            let is_wanted = match &waiting.pull.filter {
                PullFilter::Tags(filter) => filter.matches_code(tags_code),
                PullFilter::Expression(_) => {
                    is_first_unlooked |= !waiting.is_unlooked;
                    waiting.is_unlooked = true;
                    false
                }
            };
            waiting.was_passed |= !is_wanted;
            is_wanted
        });
        if is_first_unlooked {
            table.unlooked.push_back((topic.to_owned(), queue_id));
            self.has_unlooked.store(true, Ordering::SeqCst);
        }
        woken
    }

    /// Whether [`LongPolls::take_unlooked`] would give something. Without a lock.
    pub fn has_unlooked(&self) -> bool {
        self.has_unlooked.load(Ordering::SeqCst)
    }

    // Who marks and who ends a look each write one of the two flags and then read the other:
    // sequentially consistent, so that at least one of them sees the other's.

    /// Whether the caller is to look at what [`LongPolls::take_unlooked`] gives: nobody else does.
    pub fn begin_look(&self) -> bool {
        !self.is_looking.swap(true, Ordering::SeqCst)
    }

    /// Ends a look that found nothing more; whether it has to go on, since something was marked after
    /// it found nothing.
    pub fn end_look(&self) -> bool {
        self.is_looking.store(false, Ordering::SeqCst);
        self.has_unlooked() && self.begin_look()
    }

    /// Takes the pulls of one queue that an arrival concerns which has to be looked at; `None` if
    /// there is no such queue. The caller looks, and holds those again that want nothing of it.
    pub fn take_unlooked(&self) -> Option<Woken> {
        let mut table = self.table.lock();
        let next = table.unlooked.pop_front();
        self.has_unlooked.store(!table.unlooked.is_empty(), Ordering::SeqCst);
        let (topic, queue_id) = next?;
        Some(self.take_from(&mut table, &topic, queue_id, |waiting| waiting.is_unlooked))
    }

    /// Marks the pulls of a queue that were not looked at up to `max_queue_offset`: what arrived
    /// between the look and the hold marked nobody.
    pub fn mark_unlooked(&self, topic: &str, queue_id: i32, max_queue_offset: i64) {
        let mut table = self.table.lock();
        let queues = table.topics.get_mut(topic);
        let Some(waiting) = queues.and_then(|queues| queues.get_mut(&queue_id)) else { return };
        let mut is_first = false;
        for waiting in waiting.iter_mut() {
            let is_by_expression = matches!(waiting.pull.filter, PullFilter::Expression(_));
            if is_by_expression && waiting.pull.scanned_to < max_queue_offset {
                is_first |= !waiting.is_unlooked;
                waiting.is_unlooked = true;
            }
        }
        if is_first {
            table.unlooked.push_back((topic.to_owned(), queue_id));
            self.has_unlooked.store(true, Ordering::SeqCst);
        }
    }

    /// Takes the pulls of a queue that start below `max_queue_offset`, whatever their filters.
    pub fn take_queue(&self, topic: &str, queue_id: i32, max_queue_offset: i64) -> Woken {
        self.take_where(topic, queue_id, |waiting| waiting.pull.scanned_to < max_queue_offset)
    }

    /// Takes the pulls whose deadline has passed.
    pub fn take_expired(&self, now: Instant) -> Woken {
        let mut table = self.table.lock();
        let mut woken = Woken::new();
        while let Some(entry) = table.deadlines.first_entry()
            && entry.key().0 <= now
        {
            let (_, number) = *entry.key();
            let (topic, queue_id) = entry.remove();
            let taken =
                table.remove_from_queue(&topic, queue_id, |waiting| waiting.number == number);
            woken.extend(taken.into_iter().map(|waiting| waiting.pull));
        }
        self.count.fetch_sub(woken.len(), Ordering::AcqRel);
        woken
    }

    /// Takes the pulls that arrivals passed by since they began to wait, and those whose
    /// connection is gone.
    pub fn take_passed(&self) -> Woken {
        let queues: Vec<(String, i32)> = {
            let table = self.table.lock();
            let queues = table.topics.iter().flat_map(|(topic, queues)| {
                let concerned = queues.iter().filter(|(_, waiting)| waiting.iter().any(is_due));
                concerned.map(move |(&queue_id, _)| (topic.clone(), queue_id))
            });
            queues.collect()
        };
        let taken = queues
            .iter()
            .flat_map(|(topic, queue_id)| self.take_where(topic, *queue_id, |w| is_due(w)));
        taken.collect()
    }

    /// Takes every pull; for the stop of the broker.
    pub fn take_all(&self) -> Vec<HeldPull> {
        let mut table = self.table.lock();
        table.deadlines.clear();
        table.unlooked.clear();
        let queues = std::mem::take(&mut table.topics);
        let pulls: Vec<HeldPull> = queues
            .into_values()
            .flat_map(HashMap::into_values)
            .flatten()
            .map(|waiting| waiting.pull)
            .collect();
        self.count.fetch_sub(pulls.len(), Ordering::AcqRel);
        pulls
    }

    /// Returns at the next deadline, at the latest at `until`.
    pub async fn next_deadline(&self, until: Instant) {
        loop {
            let moved = self.deadline_moved.notified();
            let first = self.table.lock().deadlines.first_key_value().map(|(&(first, _), _)| first);
            let wake_at = first.map_or(until, |first| first.min(until));
            tokio::select! {
                () = tokio::time::sleep_until(wake_at.into()) => return,
                () = moved => {}
            }
        }
    }

    fn take_where(
        &self,
        topic: &str,
        queue_id: i32,
        is_taken: impl FnMut(&mut Waiting) -> bool,
    ) -> Woken {
        self.take_from(&mut self.table.lock(), topic, queue_id, is_taken)
    }

    fn take_from(
        &self,
        table: &mut Table,
        topic: &str,
        queue_id: i32,
        is_taken: impl FnMut(&mut Waiting) -> bool,
    ) -> Woken {
        let taken = table.remove_from_queue(topic, queue_id, is_taken);
        for waiting in &taken {
            table.deadlines.remove(&(waiting.pull.deadline, waiting.number));
        }
        self.count.fetch_sub(taken.len(), Ordering::AcqRel);
        taken.into_iter().map(|waiting| waiting.pull).collect()
    }
}

fn is_due(waiting: &Waiting) -> bool {
    let pull = &waiting.pull;
    waiting.was_passed || pull.scanned_to > pull.queue_offset || pull.conn.is_closed()
}

impl Table {
    /// Removes the waiting pulls of a queue that `is_taken` says, and the queue if it is empty then.
    fn remove_from_queue(
        &mut self,
        topic: &str,
        queue_id: i32,
        mut is_taken: impl FnMut(&mut Waiting) -> bool,
    ) -> SmallVec<[Waiting; 4]> {
        let mut taken = SmallVec::new();
        let Some(queues) = self.topics.get_mut(topic) else { return taken };
        let Some(waiting) = queues.get_mut(&queue_id) else { return taken };
        let mut at = 0;
        while at < waiting.len() {
            if is_taken(&mut waiting[at]) {
                taken.push(waiting.swap_remove(at));
            } else {
                at += 1;
            }
        }
        if waiting.is_empty() {
            queues.remove(&queue_id);
            if queues.is_empty() {
                self.topics.remove(topic);
            }
        }
        taken
    }
}
