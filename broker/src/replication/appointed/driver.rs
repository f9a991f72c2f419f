//! What does as the replica says: talks to the record's keeper, to the links, to the store, and passes
//! on to `work` what takes its time. One thread, so that outputs are carried out in their order.
//!
//! Order across the two threads: what must hold at once when it is said, and harms nobody if it holds
//! too early, is done here (nothing more is appended of a master, no slave is served any more); the
//! rest of the same output follows in the worker.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use rocketmq_replication::{Attempt, GroupRecord, HANDOVER_MS, Input, Millis, Output, Role};
use rocketmq_store::DurableOutcome;
use rocketmq_store::config::FlushDiskType;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::end_that_counts;
use super::group::{Group, LinkCommand, Target, now};
use super::work::{self, Work};
use crate::coordinator::{Coordinator, LeaseRecord, Replaced, Timing};
use crate::error::StartError;
use crate::state::BrokerState;

/// Longest time between looks at the clock and the log: the timers' clock stands still while the
/// machine sleeps, the replica's does not, and a record outside of queues wakes nobody.
const LOOK: Duration = Duration::from_millis(100);
/// Time between looks where the log begins.
const LOG_START_LOOK: Duration = Duration::from_secs(10);
/// Outputs that are taken at a time.
const OUTPUTS_MAX: usize = 64;
/// Longest time that a probe or the like may delay the end of the thread.
const END: Duration = Duration::from_secs(1);

/// Who keeps the record.
pub(crate) enum Keeper {
    /// This one.
    Given(Arc<dyn Coordinator>),
    /// The API server, in the Lease of this name.
    Lease { name: String, config: Box<kube::Config> },
}

/// A group's member, driven. Dropping it ends it.
pub(crate) struct Driver {
    group: Arc<Group>,
    timing: Timing,
    stop: CancellationToken,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Driver {
    /// Starts it.
    ///
    /// # Errors
    /// When the keeper is not configured, or the system has no thread to give.
    pub(crate) fn start(
        state: &Arc<BrokerState>,
        group: &Arc<Group>,
        wanted: UnboundedReceiver<Output>,
        keeper: Keeper,
        timing: Timing,
    ) -> Result<Driver, StartError> {
        let failed = || StartError::system("start the threads of the group");
        let stop = CancellationToken::new();
        let (work, worker) =
            work::start(Arc::clone(state), Arc::clone(group), stop.clone()).map_err(failed())?;
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed())?;
        // Nothing is asked of it yet.
        let coordinator = match keeper {
            Keeper::Given(coordinator) => coordinator,
            Keeper::Lease { name, config } => {
                let _in_runtime = runtime.enter();
                Arc::new(LeaseRecord::connect(*config, &name, timing)?)
            }
        };
        let (state, shared, stopped) = (Arc::clone(state), Arc::clone(group), stop.clone());
        let run = move || {
            let (asks, asked) = mpsc::unbounded_channel();
            let keeper = keep(&shared, &*coordinator, asked);
            let changed = || {
                let _ = asks.send(Ask::Read);
            };
            let watching = coordinator.watch(&changed);
            let is_sync = state.store.config().flush_disk_type == FlushDiskType::Sync;
            let told_end = Cell::new(-1);
            let hands = Hands {
                state,
                group: &shared,
                asks: asks.clone(),
                work,
                timing,
                is_sync,
                told_end,
            };
            runtime.block_on(async {
                tokio::select! {
                    () = hands.drive(wanted) => {}
                    () = keeper => {}
                    () = watching => {}
                    () = stopped.cancelled() => {}
                }
            });
            shared.close_all();
            runtime.shutdown_timeout(END);
        };
        let thread = std::thread::Builder::new().name("broker-group".to_owned()).spawn(run);
        let thread = thread.map_err(failed())?;
        let threads = Mutex::new(vec![thread, worker]);
        Ok(Driver { group: Arc::clone(group), timing, stop, threads })
    }

    /// Gives the lease back, to another broker of the group if there is one that has everything, and
    /// returns when that is done or has taken too long.
    pub(crate) fn release(&self) {
        let is_master = || matches!(self.group.role(), Role::Master(_) | Role::TakingOver(_));
        if !is_master() {
            return;
        }
        info!("this broker stops, it hands its group over");
        self.group.tell(Input::Release);
        // Then it is a call or two.
        let deadline = now().0 + HANDOVER_MS + 2 * self.timing.call().as_millis() as u64;
        while is_master() {
            if now().0 > deadline {
                return warn!("the lease could not be given back, it runs out by itself");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends it: this broker serves no slave and follows no master any more. What was asked for is
    /// still done.
    pub(crate) fn end(&self) {
        self.stop.cancel();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                error!("a thread of the group panicked");
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.end();
    }
}

/// What the record's keeper is asked.
#[derive(Debug)]
enum Ask {
    Read,
    Write { attempt: Attempt, expected: String, record: Box<GroupRecord> },
}

/// Asks the keeper, one thing at a time.
async fn keep(group: &Group, coordinator: &dyn Coordinator, mut asked: UnboundedReceiver<Ask>) {
    let mut next = None;
    let mut is_reached = true;
    loop {
        let ask = match next.take() {
            Some(ask) => ask,
            None => match asked.recv().await {
                Some(ask) => ask,
                None => return,
            },
        };
        let failed = match ask {
            Ask::Read => {
                // Several reasons to read are one.
                while let Ok(ask) = asked.try_recv() {
                    if !matches!(ask, Ask::Read) {
                        next = Some(ask);
                        break;
                    }
                }
                match coordinator.read().await {
                    Ok(record) => {
                        group.tell(Input::Record(record));
                        None
                    }
                    Err(error) => Some(error.to_string()),
                }
            }
            Ask::Write { attempt, expected, record } => {
                match coordinator.replace(&expected, &record).await {
                    Replaced::Written(version) => {
                        group.tell(Input::Written(attempt, version));
                        None
                    }
                    Replaced::Conflict => {
                        debug!("the group's record has changed, it was not written");
                        group.tell(Input::Conflict(attempt));
                        None
                    }
                    Replaced::Unknown(why) => {
                        group.tell(Input::Unknown(attempt));
                        Some(why)
                    }
                }
            }
        };
        // Told once: a keeper that is gone is a state, not news.
        match failed {
            Some(error) if is_reached => {
                warn!(error, "the group's record can neither be read nor written");
                is_reached = false;
            }
            None if !is_reached => {
                info!("the group's record is reached again");
                is_reached = true;
            }
            _ => {}
        }
    }
}

/// What carries out outputs.
struct Hands<'a> {
    state: Arc<BrokerState>,
    group: &'a Arc<Group>,
    asks: UnboundedSender<Ask>,
    work: std_mpsc::Sender<Work>,
    timing: Timing,
    /// Whether only what is on disk counts.
    is_sync: bool,
    /// The end of the log that the replica was told last.
    told_end: Cell<i64>,
}

impl Hands<'_> {
    async fn drive(&self, mut wanted: UnboundedReceiver<Output>) {
        let group = self.group;
        let mut outputs = Vec::new();
        let mut log_starts = tokio::time::interval(LOG_START_LOOK);
        let mut log_start = -1;
        group.tell(Input::Tick);
        loop {
            // Whoever wakes this does not pay for it.
            tokio::task::coop::consume_budget().await;
            tokio::select! {
                biased;
                _ = wanted.recv_many(&mut outputs, OUTPUTS_MAX) => {
                    for output in outputs.drain(..) {
                        self.carry_out(output);
                    }
                }
                () = group.log_moves.notified() => self.measure_log(),
                () = group.deadline_moved.notified() => {}
                _ = log_starts.tick() => {
                    let start = self.state.store.min_physical_offset();
                    if start != log_start {
                        log_start = start;
                        group.tell(Input::LogStart(start));
                    }
                }
                () = tokio::time::sleep(until(group.next_deadline())) => {
                    if end_that_counts(&self.state.store) != self.told_end.get() {
                        group.log_moved();
                    }
                    if group.next_deadline().is_some_and(|deadline| now() >= deadline) {
                        group.tell(Input::Tick);
                    }
                }
            }
        }
    }

    fn carry_out(&self, output: Output) {
        let group = self.group;
        match output {
            Output::Read => self.ask(Ask::Read),
            Output::Write { attempt, expected, record } => {
                self.ask(Ask::Write { attempt, expected, record: Box::new(record) });
            }
            Output::Probe(number) => self.probe(number),
            Output::Follow { epoch, ha_address, broker_address } => {
                let generation = group.unfollow();
                let target = Target { generation, epoch, ha_address };
                self.put(Work::Follow { target, broker_address });
            }
            Output::Unfollow => {
                group.unfollow();
            }
            Output::Truncate { to, surplus, epochs } => {
                self.put(Work::Truncate { to, surplus, epochs });
            }
            Output::Seal => {
                group.unfollow();
                self.put(Work::Seal);
            }
            Output::Copy { link } => self.put(Work::Copy(link)),
            Output::RecordEpochs(epochs) => self.put(Work::RecordEpochs(epochs)),
            Output::Pong { link, number } => group.command(link, LinkCommand::Pong(number)),
            Output::Ping { link, number } => group.command(link, LinkCommand::Ping(number)),
            Output::Refuse { link, reason } => {
                group.command(link, LinkCommand::Refuse(reason.to_string()));
            }
            Output::Serve(epoch) => {
                let turn = group.turn.load(Ordering::Acquire);
                self.put(Work::Serve { epoch, turn });
            }
            Output::StepDown(why) => {
                group.end_reign();
                self.put(Work::StepDown(why));
            }
            Output::Confirm(end) => self.state.confirm(end),
            Output::Fenced(fenced) => self.put(Work::Fenced(fenced)),
        }
    }

    fn ask(&self, ask: Ask) {
        // Who answers lives as long as who asks.
        let _ = self.asks.send(ask);
    }

    fn put(&self, work: Work) {
        if self.work.send(work).is_err() {
            error!("the thread that changes roles has ended");
        }
    }

    fn probe(&self, number: u64) {
        let (state, group) = (Arc::clone(&self.state), Arc::clone(self.group));
        let limit = self.timing.call();
        tokio::task::spawn_blocking(move || match state.store.prove_append_path(limit) {
            Ok(()) => group.tell(Input::Proven(number)),
            Err(error) => warn!(%error, "the lease is not renewed, messages cannot be appended"),
        });
    }

    /// Tells where the log ends. Only this tells it, so that it is told in order.
    fn measure_log(&self) {
        let (store, group) = (&self.state.store, self.group);
        if !group.take_log_moved() {
            return;
        }
        let cut = group.cutting.lock();
        if *cut {
            return;
        }
        let end = end_that_counts(&self.state.store);
        group.tell(Input::LogEnd(end));
        drop(cut);
        self.told_end.set(end);
        let written = store.written().0;
        if self.is_sync && end < written {
            let group = Arc::clone(group);
            // After a failure nothing more gets to the disk, and it is told at once each time.
            let moved = move |outcome| {
                if outcome == DurableOutcome::Durable {
                    group.log_moved();
                }
            };
            store.on_durable(written, Box::new(moved));
        }
    }
}

/// How long to sleep until then.
fn until(deadline: Option<Millis>) -> Duration {
    let left = deadline.map(|deadline| deadline.0.saturating_sub(now().0));
    left.map_or(LOOK, |left| Duration::from_millis(left).min(LOOK))
}
