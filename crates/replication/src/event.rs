//! What a replica is told, and what it wants done.

use crate::{Epoch, EpochTable, GroupRecord, MasterAddresses, ReplicaId, Versioned};

/// Milliseconds of this process's monotonic clock. It goes on while the process is frozen
/// (`CLOCK_BOOTTIME`), and says nothing about any other clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(pub u64);

/// A connection between a master and a slave; never used twice by a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u64);

/// A write of the record that was asked for; never used twice by a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attempt(pub u64);

/// How a replica behaves. Fixed for the life of a process.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who it is.
    pub id: ReplicaId,
    /// Which start of the process it is; see [`crate::Holder::incarnation`].
    pub incarnation: String,
    /// Where it is found when it is master.
    pub addresses: MasterAddresses,
    /// Members of the in-sync set below which nothing is taken in (`minInSyncReplicas`), the master
    /// included.
    pub min_in_sync: usize,
    /// How long the holder relies on a renewal, from when it was sent, in milliseconds. Shorter than
    /// the lease holds for others after they saw it renewed.
    pub renew_deadline_ms: u64,
    /// Pause between renewals, and between attempts at anything.
    pub retry_ms: u64,
    /// A member of the in-sync set that has not had everything for this long leaves it
    /// (`haMaxTimeSlaveNotCatchup`).
    pub catch_up_ms: u64,
    /// How long a slave that answered a ping refuses to become master, unless its master closed the
    /// link. It lets the master go on without the record's keeper.
    pub promise_ms: u64,
}

/// What a replica is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Knows no master, or is cutting its log to fit.
    Waiting,
    /// Copies the log of the master of this epoch.
    Slave(Epoch),
    /// Was appointed, and is taking over.
    TakingOver(Epoch),
    /// Takes messages in.
    Master(Epoch),
}

/// Why a master does not acknowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FencedBy {
    /// It is no master (any more).
    Role,
    /// Its lease ran out by its own clock, and not every member of the set has promised.
    Lease,
    /// The in-sync set has fewer than `min_in_sync` members.
    InSyncSet,
    /// It hands over.
    Handover,
    /// An administrator fenced it.
    Administrator,
}

/// Why a slave is turned away. The text is for the log and for the other side.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// This broker is no master.
    #[error("this broker is not the master of epoch {0}")]
    NoMaster(Epoch),
    /// The other side has this broker's own id.
    #[error("replica {0} is this broker itself, or another broker with its id")]
    OwnId(ReplicaId),
    /// A replica with that id is connected and alive.
    #[error("replica {0} is connected already; the older connection was closed")]
    Replaced(ReplicaId),
    /// It said that it has more than there is.
    #[error("replica {replica} says it has {said}, the log ends at {end}")]
    Beyond {
        /// Who.
        replica: ReplicaId,
        /// What it says.
        said: i64,
        /// Where this log ends.
        end: i64,
    },
    /// The master of an older epoch.
    #[error("epoch {theirs} is older than {ours}")]
    OldEpoch {
        /// What it says.
        theirs: Epoch,
        /// What is known here.
        ours: Epoch,
    },
    /// The master of an epoch that the record, as last read, does not know.
    #[error("epoch {theirs} is newer than {ours}, the record's when it was last read")]
    UnknownEpoch {
        /// What it says.
        theirs: Epoch,
        /// What is known here.
        ours: Epoch,
    },
    /// The two logs have nothing in common.
    #[error("no epoch of this log is one of the master's")]
    NothingInCommon,
    /// To follow this master, messages would have to be cut that were shown to consumers.
    #[error(
        "the master's log agrees up to {to} only, and all up to {confirmed} was confirmed here"
    )]
    BelowConfirmed {
        /// Up to where the logs are the same.
        to: i64,
        /// What was confirmed.
        confirmed: i64,
    },
    /// A member of the in-sync set has lost what it had. It gets nothing until the record says that it
    /// is no member, lest it be appointed with a part of the log.
    #[error(
        "replica {replica} lost what it had behind {said}: {confirmed} is confirmed, and it counted"
    )]
    Lost {
        /// Who.
        replica: ReplicaId,
        /// What it has.
        said: i64,
        /// What it had, at least.
        confirmed: i64,
    },
    /// The epochs that the other side says are in no order.
    #[error("the master's epochs are in no order")]
    Disorder,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// Time went by; needed when [`crate::Replica::next_deadline`] has come.
    Tick,

    /// The log holds everything in front of `end` in the way that counts for acknowledging: written,
    /// or on disk where flushing is synchronous. On a slave it is what it reports.
    LogEnd(i64),
    /// The log now begins there: older files were removed. Epochs that ended in front of it are
    /// forgotten.
    LogStart(i64),
    /// The append path was proven by a bounded write and flush, asked for by [`Output::Probe`].
    Proven(u64),
    /// The log was cut, as asked by [`Output::Truncate`] or [`Output::Seal`]; it ends there, whole, and
    /// all of it is on disk if flushing is synchronous. Each is answered, in the order of asking.
    Truncated {
        /// Where it ends now.
        end: i64,
    },
    /// The epoch file that ends with this epoch is on disk, as asked by [`Output::RecordEpochs`].
    EpochRecorded(Epoch),

    /// The record as read. None: there is no record (yet).
    ///
    /// Reads and writes go to the keeper one at a time, in the order in which they were asked for, and
    /// a read is answered by the keeper itself, not by a cache: what is told is never older than what
    /// was told before. A watch is a reason to read, not a read. A read that fails is not told; it is
    /// asked for again after `retry_ms`.
    Record(Option<Versioned>),
    /// A write took place; this is its version.
    Written(Attempt, String),
    /// A write did not and will not take place: the record had changed.
    Conflict(Attempt),
    /// Nobody knows whether a write took place or will; the keeper does not answer.
    Unknown(Attempt),

    /// As master: a slave shook hands and has cut its log to fit; it is sent what follows `end`.
    SlaveJoined {
        /// The connection.
        link: LinkId,
        /// Who.
        replica: ReplicaId,
        /// Up to where it has the log.
        end: i64,
        /// Whether it never joins the set.
        is_learner: bool,
    },
    /// As master: a slave that was sent a frame (a heartbeat counts) answered that it has everything in
    /// front of `end`. What says that it has more than it was sent is refused with
    /// [`Refusal::Beyond`] by whoever sent it, and not told.
    SlaveHas {
        /// The connection.
        link: LinkId,
        /// Behind the last byte that it has.
        end: i64,
    },
    /// As master: a slave answered a ping.
    Pong {
        /// The connection.
        link: LinkId,
        /// Which ping.
        number: u64,
    },
    /// As master: a connection ended.
    SlaveLeft(LinkId),

    /// As slave: a master shook hands.
    MasterHello {
        /// The connection.
        link: LinkId,
        /// Its epoch.
        epoch: Epoch,
        /// All its epochs.
        epochs: EpochTable,
        /// Where its log ends.
        log_end: i64,
    },
    /// As slave: what a frame of the log says of the master. The frame's bytes are written, and the
    /// frame is answered, only after what this asks for has been done.
    MasterSent {
        /// The connection.
        link: LinkId,
        /// Its epoch.
        epoch: Epoch,
        /// Epoch that the frame's bytes belong to, and where it begins.
        entry: crate::EpochEntry,
        /// What every member of the in-sync set has.
        confirmed: i64,
    },
    /// As slave: the master asks for a promise.
    Ping {
        /// The connection.
        link: LinkId,
        /// To be given back.
        number: u64,
    },
    /// As slave: the connection ended.
    MasterLost {
        /// The connection.
        link: LinkId,
        /// Whether the master's side closed it, which it does only when it acknowledges nothing more
        /// on account of this link.
        closed_by_master: bool,
    },

    /// The process was asked to stop, or an administrator wants it: give the lease back. It has when
    /// [`crate::Replica::role`] is neither `Master` nor `TakingOver`.
    Release,
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Read the record and tell it.
    Read,
    /// Replace the record if it still has `expected`.
    Write {
        /// To be told with the outcome.
        attempt: Attempt,
        /// Condition.
        expected: String,
        /// What it shall be.
        record: GroupRecord,
    },
    /// Prove the append path, then tell [`Input::Proven`]. If that fails nothing is told; it is asked
    /// for again after `retry_ms`, with another number.
    Probe(u64),

    /// Follow the master there: connect, shake hands, tell [`Input::MasterHello`]. Again after each
    /// loss until told otherwise.
    Follow {
        /// Of which epoch it is.
        epoch: Epoch,
        /// Where.
        ha_address: String,
        /// For metadata.
        broker_address: String,
    },
    /// Close the connection to the master, if any; from now on acknowledge nothing to it.
    Unfollow,
    /// Cut the log if it is longer, then make the epoch file hold `epochs`, in this order and durably;
    /// then tell [`Input::Truncated`].
    Truncate {
        /// Where the log shall end, at most.
        to: i64,
        /// How much of it is surplus that the master does not have, in bytes.
        surplus: i64,
        /// What the epoch file shall hold.
        epochs: EpochTable,
    },
    /// Append nothing from a master any more, cut the log behind its last whole message, flush it if
    /// flushing is synchronous; then tell [`Input::Truncated`].
    Seal,
    /// The handshake is done and the log fits: copy from here on.
    Copy {
        /// The connection.
        link: LinkId,
    },
    /// Make the epoch file hold this, durably, then tell [`Input::EpochRecorded`] with its last epoch.
    RecordEpochs(EpochTable),
    /// Answer a ping.
    Pong {
        /// The connection.
        link: LinkId,
        /// Which ping.
        number: u64,
    },

    /// Take messages in, register as master.
    Serve(Epoch),
    /// Take nothing in, acknowledge nothing, close slaves' connections; be a slave.
    StepDown(FencedBy),
    /// Everything in front of this offset may be shown to consumers and acknowledged. Never falls.
    Confirm(i64),
    /// Whether sends are taken in changed while it is master: None when they are.
    Fenced(Option<FencedBy>),
    /// Ask a slave for a promise.
    Ping {
        /// The connection.
        link: LinkId,
        /// To be given back.
        number: u64,
    },
    /// Close a slave's or the master's connection.
    Refuse {
        /// The connection.
        link: LinkId,
        /// Why.
        reason: Refusal,
    },
}
