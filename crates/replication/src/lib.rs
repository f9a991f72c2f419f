//! Who is master of a broker group, what of its log is acknowledged, and who may follow: every
//! decision of replication, without I/O, clock or randomness of its own.
//!
//! Brokers and the operator run this code, and so does the simulation that breaks networks, clocks and
//! disks under it. `docs/replication.md` is the protocol with its argument.

mod epoch;
mod event;
mod record;
mod replica;
mod supervisor;

pub use epoch::{Epoch, EpochEntry, EpochFileError, EpochTable};
pub use event::{Attempt, FencedBy, Input, LinkId, Millis, Output, Refusal, Role, Settings};
pub use record::{GroupRecord, Holder, MasterAddresses, RecordError, Versioned};
pub use replica::{HANDOVER_MS, Replica};
pub use supervisor::{Decision, Policy, Reason, Report, Seen, Supervisor, elect};

use std::fmt;

/// A replica of a broker group, for life: 1 and up. On Kubernetes it is the pod's ordinal plus one.
///
/// It is not the `brokerId` of a registration, which is 0 for whoever is master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplicaId(pub i64);

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
