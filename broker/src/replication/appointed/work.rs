//! What takes its time: cutting the log, writing the epoch file, becoming master or slave. One thread
//! does it, in the order in which it was asked for, while the driver goes on.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use rocketmq_replication::{Epoch, EpochTable, FencedBy, Input, LinkId};
use rocketmq_store::config::FlushDiskType;
use rocketmq_store::{DurableOutcome, TruncateError};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::group::{Group, LinkCommand, Reign, Target};
use crate::replication::Master;
use crate::state::BrokerState;

/// Pause before a file that cannot be written is tried again.
const WRITE_RETRY: Duration = Duration::from_secs(1);

/// What is to be done.
#[derive(Debug)]
pub(super) enum Work {
    /// Become master, unless it was told to step down since.
    Serve { epoch: Epoch, turn: u64 },
    /// Become a slave.
    StepDown(FencedBy),
    /// Take messages in or not.
    Fenced(Option<FencedBy>),
    /// Follow a master, unless it was told otherwise since.
    Follow { target: Target, broker_address: String },
    /// Let a link copy.
    Copy(LinkId),
    /// Cut the log.
    Truncate { to: i64, surplus: i64, epochs: EpochTable },
    /// Nothing is appended of a master any more; tell where the log ends.
    Seal,
    /// Write the epoch file.
    RecordEpochs(EpochTable),
}

/// Starts the thread; it ends when the sender is dropped, or at `stop` if something cannot be done.
///
/// # Errors
/// When the system has no thread to give.
pub(super) fn start(
    state: Arc<BrokerState>,
    group: Arc<Group>,
    stop: CancellationToken,
) -> io::Result<(mpsc::Sender<Work>, JoinHandle<()>)> {
    let (sender, wanted) = mpsc::channel();
    let worker = Worker { state, group, stop };
    let thread = std::thread::Builder::new().name("broker-role".to_owned()).spawn(move || {
        for work in wanted {
            worker.perform(work);
        }
    })?;
    Ok((sender, thread))
}

struct Worker {
    state: Arc<BrokerState>,
    group: Arc<Group>,
    stop: CancellationToken,
}

impl Worker {
    fn perform(&self, work: Work) {
        match work {
            Work::Serve { epoch, turn } => self.serve(epoch, turn),
            Work::StepDown(why) => self.state.become_slave(why),
            Work::Fenced(fenced) => self.state.set_fenced(fenced),
            Work::Follow { target, broker_address } => self.follow(target, broker_address),
            Work::Copy(link) => self.group.command(link, LinkCommand::Copy),
            Work::Truncate { to, surplus, epochs } => self.truncate(to, surplus, &epochs),
            Work::Seal => self.seal(),
            Work::RecordEpochs(epochs) => {
                if self.write(&epochs)
                    && let Some(last) = epochs.last()
                {
                    self.group.tell(Input::EpochRecorded(last.epoch));
                }
            }
        }
    }

    fn serve(&self, epoch: Epoch, turn: u64) {
        let group = &self.group;
        if group.turn.load(Ordering::Acquire) != turn {
            return;
        }
        self.state.replication.set_master(Master::default());
        if let Err(error) = self.state.become_master(i64::from(epoch.0)) {
            error!(%epoch, %error, "this broker was appointed and cannot serve; it gives its lease back");
            return group.tell(Input::Release);
        }
        let reign = Reign { epoch, ended: CancellationToken::new() };
        group.reign.send_if_modified(|current| {
            let is_current = group.turn.load(Ordering::Acquire) == turn;
            if is_current {
                *current = Some(reign);
            }
            is_current
        });
        group.log_moved();
    }

    fn follow(&self, target: Target, broker_address: String) {
        let appending = self.group.appending.lock();
        if *appending != target.generation {
            return;
        }
        let Target { generation: number, ref ha_address, .. } = target;
        let master = Master { number, broker: broker_address, ha: ha_address.clone() };
        info!(epoch = %target.epoch, broker = master.broker, ha = master.ha, "following a master");
        self.state.role.heard_of_epoch(i64::from(target.epoch.0));
        self.state.replication.set_master(master);
        self.group.target.send_replace(Some(target));
    }

    fn truncate(&self, to: i64, surplus: i64, epochs: &EpochTable) {
        let store = &self.state.store;
        self.group.begin_cut();
        if store.written().0 > to && !self.cut(to, surplus) {
            // The replica waits for this in vain, so it neither copies nor takes over.
            self.group.unfollow();
            return;
        }
        if self.is_on_disk() && self.write(epochs) {
            self.group.end_cut(store.written().0);
        }
    }

    /// Cuts the log, as soon as nobody is sent any more what goes. False if it cannot be cut.
    fn cut(&self, to: i64, surplus: i64) -> bool {
        loop {
            match self.state.store.truncate_to(to) {
                Ok(cut) => {
                    warn!(
                        to = cut.end,
                        bytes = cut.bytes,
                        messages = cut.messages,
                        surplus,
                        "the log was cut to fit the master's; what went was never confirmed"
                    );
                    return true;
                }
                Err(error @ TruncateError::InUse { .. }) if !self.stop.is_cancelled() => {
                    warn!(to, surplus, %error, "the log is not cut yet, trying again");
                }
                Err(error) => {
                    error!(to, surplus, %error, "the log cannot be cut to fit the master's; this broker stays out of its group until it is restarted");
                    return false;
                }
            }
        }
    }

    fn seal(&self) {
        self.group.begin_cut();
        if self.is_on_disk() {
            self.group.end_cut(self.state.store.written().0);
        }
    }

    /// Returns when the whole log is on disk, where that is what counts. False if the store has failed:
    /// then the replica waits in vain, so it neither copies nor takes the lease.
    fn is_on_disk(&self) -> bool {
        let store = &self.state.store;
        let end = store.written().0;
        let flushed = match store.config().flush_disk_type {
            FlushDiskType::Sync => {
                let (sender, flushed) = mpsc::channel();
                // It is called in any case.
                store.on_durable(end, Box::new(move |outcome| drop(sender.send(outcome))));
                flushed.recv().map_err(|error| error.to_string())
            }
            FlushDiskType::Async => Ok(DurableOutcome::Durable),
        };
        let failure = match (flushed, store.failure()) {
            (Ok(DurableOutcome::Durable), None) => return true,
            (_, Some(refusal)) => refusal.to_string(),
            (Ok(DurableOutcome::Failed(error)) | Err(error), None) => error,
        };
        error!(end, error = failure, "this broker stays out of its group until it is restarted");
        self.group.unfollow();
        false
    }

    /// Writes the epoch file, again and again if it has to be; false if the broker stops first.
    fn write(&self, epochs: &EpochTable) -> bool {
        loop {
            match self.group.epochs.replace(epochs.clone()) {
                Ok(()) => return true,
                Err(error) if self.stop.is_cancelled() => {
                    error!(%error, "the epoch file was not written at the stop");
                    return false;
                }
                Err(error) => {
                    error!(%error, "the epoch file is not written, trying again");
                    std::thread::sleep(WRITE_RETRY);
                }
            }
        }
    }
}
