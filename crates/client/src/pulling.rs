//! Pulls queues and hands out what came, one batch of a queue at a time.
//!
//! Both consumers stand on this. Owns one task per queue, the progress of each queue, and the line of batches
//! ready to be received. A queue's next batch is pulled only when the last one is acknowledged, so messages of
//! a queue are received in order; and memory is bounded by one batch per queue.

mod request;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::Mutex;
use rocketmq_protocol::body::MessageQueue;
use rocketmq_protocol::subscription::SubscriptionData;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::error::ClientError;
use crate::member::Member;
use crate::message::ReceivedMessage;
use request::Outcome;

pub use request::StartFrom;

/// A batch that was not acknowledged is handed out again after this time
/// (suspendCurrentQueueTimeMillis).
const REDELIVER_AFTER: Duration = Duration::from_secs(1);
/// How long a queue that is given up waits for its batch to be acknowledged.
const GIVE_UP_WAIT: Duration = Duration::from_secs(1);
/// Pauses after failed pulls: the first, doubled up to the last (RocketMQ's is 3 s at once).
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// Pause after a pull that found nothing; brokers hold such pulls, so it matters where they do not.
const PAUSE_EMPTY: Duration = Duration::from_millis(20);
/// Position of a queue whose first offset is not known yet.
const UNKNOWN: i64 = -1;

/// How to pull.
#[derive(Debug, Clone)]
pub(crate) struct PullSettings {
    /// Messages of one pull.
    pub batch_messages_max: i32,
    /// How long the broker may hold a pull that finds nothing.
    pub suspend: Duration,
    /// Whether pulls carry the group's progress.
    pub commit_with_pull: bool,
}

/// Where a queue's consumption stands.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Next offset to be consumed.
    position: AtomicI64,
    /// What the broker was told last.
    committed: AtomicI64,
}

/// Messages of one queue, in order. Dropping it unacknowledged hands them out again.
#[derive(Debug)]
#[must_use = "a batch that is not acknowledged is handed out again"]
pub struct Batch {
    queue: MessageQueue,
    messages: Vec<ReceivedMessage>,
    next_offset: i64,
    progress: Arc<Progress>,
    acknowledged: oneshot::Sender<()>,
}

impl Batch {
    /// The queue.
    pub fn queue(&self) -> &MessageQueue {
        &self.queue
    }

    /// The messages, at least one.
    pub fn messages(&self) -> &[ReceivedMessage] {
        &self.messages
    }

    /// Says that the messages are consumed: they are not handed out again, and the queue's next ones are.
    pub fn ack(self) {
        self.take();
    }

    fn take(self) -> Vec<ReceivedMessage> {
        self.progress.position.store(self.next_offset, SeqCst);
        // Nobody listens when the queue was given up meanwhile.
        let _ = self.acknowledged.send(());
        self.messages
    }

    /// Acknowledges and returns the messages.
    pub(crate) fn into_messages(self) -> Vec<ReceivedMessage> {
        self.take()
    }
}

#[derive(Debug)]
struct Assigned {
    progress: Arc<Progress>,
    cancel: CancellationToken,
    task: JoinHandle<()>,
}

/// The queues that one consumer pulls.
#[derive(Debug)]
pub(crate) struct Pulling {
    pub(crate) member: Arc<Member>,
    pub(crate) group: String,
    settings: PullSettings,
    ready: Mutex<VecDeque<Batch>>,
    arrived: Notify,
    queues: Mutex<HashMap<MessageQueue, Assigned>>,
}

impl Pulling {
    pub(crate) fn new(member: Arc<Member>, group: String, settings: PullSettings) -> Self {
        Self {
            member,
            group,
            settings,
            ready: Mutex::default(),
            arrived: Notify::new(),
            queues: Mutex::default(),
        }
    }

    /// Begins to pull a queue, unless it is pulled already.
    pub(crate) fn assign(
        self: &Arc<Self>,
        queue: MessageQueue,
        subscription: Arc<SubscriptionData>,
        from: StartFrom,
        stored_first: bool,
    ) {
        let mut queues = self.queues.lock();
        if queues.contains_key(&queue) || self.member.stop.is_cancelled() {
            return;
        }
        let progress = Arc::new(Progress {
            position: AtomicI64::new(UNKNOWN),
            committed: AtomicI64::new(UNKNOWN),
        });
        let cancel = self.member.stop.child_token();
        let puller = Puller {
            pulling: self.clone(),
            queue: queue.clone(),
            subscription,
            progress: progress.clone(),
            cancel: cancel.clone(),
        };
        let task = self.member.tasks.spawn(puller.run(from, stored_first));
        queues.insert(queue, Assigned { progress, cancel, task });
    }

    /// Stops pulling queues and commits their progress. A batch that was received and is not acknowledged
    /// is waited for, for one second.
    pub(crate) async fn revoke(&self, gone: &[MessageQueue]) {
        for (queue, progress) in self.stop(gone).await {
            if let Err(error) = self.commit_queue(&queue, &progress, true).await {
                debug!(%queue, %error, "progress of a queue that was given up is not committed");
            }
        }
    }

    /// Stops pulling queues without committing.
    pub(crate) async fn stop(&self, gone: &[MessageQueue]) -> Vec<(MessageQueue, Arc<Progress>)> {
        let stopped = {
            let mut queues = self.queues.lock();
            let stopped = gone.iter().filter_map(|queue| queues.remove_entry(queue));
            stopped.collect::<Vec<_>>()
        };
        for (_, assigned) in &stopped {
            assigned.cancel.cancel();
        }
        let mut progress = Vec::with_capacity(stopped.len());
        for (queue, assigned) in stopped {
            if assigned.task.await.is_err() {
                warn!(%queue, "a pull task ended by a panic");
            }
            progress.push((queue, assigned.progress));
        }
        progress
    }

    /// The next batch of any queue; `None` when the consumer is shut down.
    pub(crate) async fn receive(&self) -> Option<Batch> {
        loop {
            let arrived = self.arrived.notified();
            {
                let mut ready = self.ready.lock();
                if let Some(batch) = ready.pop_front() {
                    if !ready.is_empty() {
                        // One notification may have stood for several batches.
                        self.arrived.notify_one();
                    }
                    return Some(batch);
                }
            }
            tokio::select! {
                () = arrived => {}
                () = self.member.stop.cancelled() => return None,
            }
        }
    }

    /// The queues that are pulled, sorted.
    pub(crate) fn assigned(&self) -> Vec<MessageQueue> {
        let mut queues = self.queues.lock().keys().cloned().collect::<Vec<_>>();
        queues.sort_unstable();
        queues
    }

    /// Next offset to be consumed of each queue whose beginning is known.
    pub(crate) fn positions(&self) -> Vec<(MessageQueue, i64)> {
        let queues = self.queues.lock();
        let known = queues
            .iter()
            .map(|(queue, assigned)| (queue.clone(), assigned.progress.position.load(SeqCst)));
        known.filter(|(_, position)| *position != UNKNOWN).collect()
    }

    /// Commits every queue's progress. All are tried; the first failure is returned.
    pub(crate) async fn commit(&self, wait: bool) -> Result<(), ClientError> {
        let progress = {
            let queues = self.queues.lock();
            queues.iter().map(|(q, a)| (q.clone(), a.progress.clone())).collect::<Vec<_>>()
        };
        let mut failure = None;
        for (queue, progress) in progress {
            if let Err(error) = self.commit_queue(&queue, &progress, wait).await {
                failure = failure.or(Some(error));
            }
        }
        failure.map_or(Ok(()), Err)
    }

    async fn commit_queue(
        &self,
        queue: &MessageQueue,
        progress: &Progress,
        wait: bool,
    ) -> Result<(), ClientError> {
        let position = progress.position.load(SeqCst);
        if position == UNKNOWN || position == progress.committed.load(SeqCst) {
            return Ok(());
        }
        self.send_offset(queue, position, wait).await?;
        progress.committed.store(position, SeqCst);
        Ok(())
    }

    fn hand_out(&self, batch: Batch) {
        self.ready.lock().push_back(batch);
        self.arrived.notify_one();
    }

    /// Removes a queue's batch from the line; false when it was received already.
    fn take_back(&self, queue: &MessageQueue) -> bool {
        let mut ready = self.ready.lock();
        let before = ready.len();
        ready.retain(|batch| batch.queue != *queue);
        ready.len() < before
    }
}

/// The task of one queue.
struct Puller {
    pulling: Arc<Pulling>,
    queue: MessageQueue,
    subscription: Arc<SubscriptionData>,
    progress: Arc<Progress>,
    cancel: CancellationToken,
}

impl Puller {
    async fn run(self, from: StartFrom, stored_first: bool) {
        let Some(mut offset) = self.begin(from, stored_first).await else { return };
        let mut broker_id = 0;
        let mut pause = PAUSE_MIN;
        loop {
            let commit = self.progress.position.load(SeqCst);
            let pulling = &self.pulling;
            let pull = pulling.pull(&self.queue, &self.subscription, offset, commit, broker_id);
            let Some(pulled) = self.unless_cancelled(pull).await else { return };
            let pulled = match pulled {
                Ok(pulled) => pulled,
                Err(error) => {
                    warn!(queue = %self.queue, %error, "pull failed, it is tried again");
                    self.look_for_the_broker(&error).await;
                    if self.unless_cancelled(tokio::time::sleep(pause)).await.is_none() {
                        return;
                    }
                    pause = (pause * 2).min(PAUSE_MAX);
                    broker_id = 0;
                    continue;
                }
            };
            pause = PAUSE_MIN;
            broker_id = pulled.suggested_broker_id;
            let next = pulled.next_offset;
            match pulled.outcome {
                Outcome::Found(messages) => {
                    let wanted = messages.into_iter().filter(|m| self.is_wanted(m));
                    let wanted = wanted.collect::<Vec<_>>();
                    if !wanted.is_empty() {
                        match self.deliver(wanted, next).await {
                            Some(true) => {}
                            Some(false) => continue,
                            None => return,
                        }
                    }
                }
                Outcome::Filtered => {}
                Outcome::Nothing => {
                    if self.unless_cancelled(tokio::time::sleep(PAUSE_EMPTY)).await.is_none() {
                        return;
                    }
                }
                Outcome::Moved => {
                    warn!(queue = %self.queue, offset, next, "the broker moved the offset");
                }
            }
            offset = next;
            self.progress.position.store(offset, SeqCst);
        }
    }

    /// Finds the first offset, however long that takes.
    async fn begin(&self, from: StartFrom, stored_first: bool) -> Option<i64> {
        let mut pause = PAUSE_MIN;
        loop {
            let start = self.pulling.start_offset(&self.queue, from, stored_first);
            match self.unless_cancelled(start).await? {
                Ok((offset, is_stored)) => {
                    if is_stored {
                        self.progress.committed.store(offset, SeqCst);
                    }
                    self.progress.position.store(offset, SeqCst);
                    return Some(offset);
                }
                Err(error) => {
                    warn!(queue = %self.queue, %error, "no first offset, it is tried again");
                    self.look_for_the_broker(&error).await;
                    self.unless_cancelled(tokio::time::sleep(pause)).await?;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    /// Hands a batch out and waits for its acknowledgement. `Some(false)` when there was none, `None` when
    /// the queue is given up.
    async fn deliver(&self, messages: Vec<ReceivedMessage>, next_offset: i64) -> Option<bool> {
        let (sender, mut acknowledged) = oneshot::channel();
        self.pulling.hand_out(Batch {
            queue: self.queue.clone(),
            messages,
            next_offset,
            progress: self.progress.clone(),
            acknowledged: sender,
        });
        if let Some(done) = self.unless_cancelled(&mut acknowledged).await {
            if done.is_ok() {
                return Some(true);
            }
            self.unless_cancelled(tokio::time::sleep(REDELIVER_AFTER)).await?;
            return Some(false);
        }
        if !self.pulling.take_back(&self.queue) {
            // It is being consumed. Its acknowledgement, if it comes now, still counts.
            let _ = tokio::time::timeout(GIVE_UP_WAIT, acknowledged).await;
        }
        None
    }

    /// Brokers compare hashes of tags only.
    fn is_wanted(&self, message: &ReceivedMessage) -> bool {
        let tags = &self.subscription.tags_set;
        let by_tag = self.subscription.is_tag_type() && !tags.is_empty();
        !by_tag || message.tag().is_some_and(|tag| tags.contains(tag))
    }

    /// After a failure other than a refusal the broker may have another address.
    async fn look_for_the_broker(&self, error: &ClientError) {
        if error.response_code().is_none() {
            let fetch = self.pulling.member.fetch_route(&self.queue.topic);
            if let Some(Err(error)) = self.unless_cancelled(fetch).await {
                debug!(queue = %self.queue, %error, "route not refreshed");
            }
        }
    }

    async fn unless_cancelled<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            () = self.cancel.cancelled() => None,
        }
    }
}
