//! The types that openraft is used with.

use crate::groups::{Applied, Command};

openraft::declare_raft_types!(
    /// Commands in, what came of them out; a controller is a number and an address.
    pub(crate) Types:
        D = Command,
        R = Applied,
        NodeId = u64,
        Node = openraft::BasicNode,
        SnapshotData = std::io::Cursor<Vec<u8>>,
);

pub(crate) type Raft = openraft::Raft<Types>;
pub(crate) type Entry = openraft::Entry<Types>;
pub(crate) type LogId = openraft::LogId<u64>;
pub(crate) type Vote = openraft::Vote<u64>;
pub(crate) type Membership = openraft::StoredMembership<u64, openraft::BasicNode>;
pub(crate) type SnapshotMeta = openraft::SnapshotMeta<u64, openraft::BasicNode>;
pub(crate) type StorageError = openraft::StorageError<u64>;
