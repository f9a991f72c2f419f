//! What a broker knows of its group while it runs: the replica that decides, its epochs, its links.
//!
//! Inputs are handled by whoever brings them, under one lock and without I/O; what is to be done goes
//! into one queue in that order, and one thread does it (`driver`). Locks are taken in this order:
//! `appending`, `cutting`, `replica`, `links`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rocketmq_replication::{
    Epoch, FencedBy, Input, LinkId, Millis, Output, Replica, ReplicaId, Role, Settings,
};
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::epoch_file::EpochFile;
use crate::clock::boot_ms;
use crate::role::AcknowledgeGate;

/// A group's member, running.
pub struct Group {
    /// How it behaves.
    pub settings: Settings,
    /// Mark of the group in handshakes.
    pub(super) mark: u16,
    replica: Mutex<Replica>,
    /// What is to be done, in order.
    outputs: mpsc::UnboundedSender<Output>,
    /// A deadline of the replica moved nearer.
    pub(super) deadline_moved: Notify,
    /// The log may have grown.
    log_moved: AtomicBool,
    pub(super) log_moves: Notify,
    /// The epochs of the log.
    pub epochs: EpochFile,
    next_link: AtomicU64,
    /// The reign during which slaves are served; none unless this broker is master.
    pub(super) reign: watch::Sender<Option<Reign>>,
    /// Slaves, and the master.
    links: Mutex<HashMap<LinkId, mpsc::UnboundedSender<LinkCommand>>>,
    /// Whom to follow.
    pub(super) target: watch::Sender<Option<Target>>,
    /// Which [`Target`] may append to the log; held while it does.
    pub(super) appending: Mutex<u64>,
    /// Grows with each step down: what was to be done for the reign before is not done any more.
    pub(super) turn: AtomicU64,
    /// Whether the log is being cut, and nobody may say where it ends.
    pub(super) cutting: Mutex<bool>,
}

/// A time as master.
#[derive(Clone, Debug)]
pub(super) struct Reign {
    pub(super) epoch: Epoch,
    /// Ends its links.
    pub(super) ended: CancellationToken,
}

/// A master to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Differs from that of any other.
    pub(super) generation: u64,
    pub(super) epoch: Epoch,
    pub(super) ha_address: String,
}

/// What a link is told to do.
#[derive(Debug)]
pub(super) enum LinkCommand {
    /// A slave's: copy from now on.
    Copy,
    /// A slave's: answer a ping.
    Pong(u64),
    /// A master's: ask for a promise.
    Ping(u64),
    /// Close it, and tell why.
    Refuse(String),
}

/// A look at a group, for people.
#[derive(Clone, Debug)]
pub struct GroupStatus {
    /// What this broker is.
    pub role: Role,
    /// The newest epoch that it knows.
    pub epoch: Epoch,
    /// Members of the in-sync set, as far as it knows them.
    pub in_sync: Vec<ReplicaId>,
    /// Everything in front of it is confirmed.
    pub confirmed: i64,
    /// Why it takes nothing in, if it does not.
    pub fenced: Option<FencedBy>,
}

impl Group {
    /// A replica that begins as a waiting one, and what it wants done.
    pub fn new(
        settings: Settings,
        mark: u16,
        epochs: EpochFile,
        log_end: i64,
    ) -> (Group, mpsc::UnboundedReceiver<Output>) {
        let (outputs, wanted) = mpsc::unbounded_channel();
        let group = Group {
            replica: Mutex::new(Replica::new(settings.clone(), epochs.table(), log_end)),
            settings,
            mark,
            outputs,
            deadline_moved: Notify::new(),
            log_moved: AtomicBool::new(false),
            log_moves: Notify::new(),
            epochs,
            next_link: AtomicU64::new(1),
            reign: watch::Sender::new(None),
            links: Mutex::default(),
            target: watch::Sender::new(None),
            appending: Mutex::new(0),
            turn: AtomicU64::new(0),
            cutting: Mutex::new(false),
        };
        (group, wanted)
    }

    /// Tells the replica what happened. Never blocks on anything but another input.
    pub fn tell(&self, input: Input) {
        let mut wanted = Vec::new();
        let mut replica = self.replica.lock();
        let before = replica.next_deadline();
        replica.handle(now(), input, &mut wanted);
        let after = replica.next_deadline();
        for output in wanted {
            // Nobody listens any more once the broker stops.
            let _ = self.outputs.send(output);
        }
        drop(replica);
        if after.is_some_and(|after| before.is_none_or(|before| after < before)) {
            self.deadline_moved.notify_one();
        }
    }

    /// When the replica wants to hear a tick.
    pub(super) fn next_deadline(&self) -> Option<Millis> {
        self.replica.lock().next_deadline()
    }

    /// Whether what is confirmed may be acknowledged at this moment. To be asked when everything else
    /// is done: a process that was frozen in between must not answer.
    ///
    /// # Errors
    /// Why not.
    pub fn may_acknowledge(&self) -> Result<(), FencedBy> {
        let replica = self.replica.lock();
        replica.may_acknowledge(now())
    }

    /// What this broker is.
    pub fn role(&self) -> Role {
        self.replica.lock().role()
    }

    /// Everything in front of it is confirmed.
    pub fn confirmed(&self) -> i64 {
        self.replica.lock().confirmed()
    }

    /// How things stand.
    pub fn status(&self) -> GroupStatus {
        let replica = self.replica.lock();
        GroupStatus {
            role: replica.role(),
            epoch: replica.epoch(),
            in_sync: replica.in_sync().iter().copied().collect(),
            confirmed: replica.confirmed(),
            fenced: replica.may_take_in(now()).err(),
        }
    }

    /// The log has grown, or more of it is on disk. Cheap.
    pub fn log_moved(&self) {
        if !self.log_moved.swap(true, Ordering::AcqRel) {
            self.log_moves.notify_one();
        }
    }

    /// Whether it has since this was last asked.
    pub(super) fn take_log_moved(&self) -> bool {
        self.log_moved.swap(false, Ordering::AcqRel)
    }

    /// A new link, and what it is told.
    pub(super) fn open_link(&self) -> (LinkId, mpsc::UnboundedReceiver<LinkCommand>) {
        let link = LinkId(self.next_link.fetch_add(1, Ordering::Relaxed));
        let (sender, commands) = mpsc::unbounded_channel();
        self.links.lock().insert(link, sender);
        (link, commands)
    }

    pub(super) fn close_link(&self, link: LinkId) {
        self.links.lock().remove(&link);
    }

    /// Tells a link; one that has ended hears nothing.
    pub(super) fn command(&self, link: LinkId, command: LinkCommand) {
        if let Some(commands) = self.links.lock().get(&link) {
            let _ = commands.send(command);
        }
    }

    /// Slaves are served no more, and nothing is taken of a master: what was not appended yet will
    /// not be.
    pub(super) fn close_all(&self) {
        self.end_reign();
        self.unfollow();
    }

    pub(super) fn end_reign(&self) {
        self.turn.fetch_add(1, Ordering::AcqRel);
        if let Some(reign) = self.reign.send_replace(None) {
            reign.ended.cancel();
        }
    }

    /// Nothing is appended of the master that was followed once this returns. Returns the generation of
    /// the next one.
    pub(super) fn unfollow(&self) -> u64 {
        let mut appending = self.appending.lock();
        *appending += 1;
        self.target.send_replace(None);
        *appending
    }

    /// Nobody tells where the log ends until [`Group::end_cut`].
    pub(super) fn begin_cut(&self) {
        *self.cutting.lock() = true;
    }

    /// The log was cut, or was looked at, and ends there.
    pub(super) fn end_cut(&self, end: i64) {
        let mut cutting = self.cutting.lock();
        self.tell(Input::Truncated { end });
        *cutting = false;
        drop(cutting);
        self.log_moved();
    }
}

impl AcknowledgeGate for Group {
    fn may_acknowledge(&self) -> Result<(), FencedBy> {
        Group::may_acknowledge(self)
    }
}

/// This moment, for the replica.
pub(super) fn now() -> Millis {
    Millis(boot_ms())
}
