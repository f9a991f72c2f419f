//! The groups as openraft sees them: entries are applied to them in memory, snapshots of them are files.

use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use openraft::entry::EntryPayload;
use openraft::storage::{RaftStateMachine, Snapshot};
use openraft::{ErrorSubject, ErrorVerb, RaftSnapshotBuilder};
use parking_lot::{Mutex, RwLock};

use crate::groups::{Applied, Groups};
use crate::journal::StoreError;
use crate::raft::{Entry, LogId, Membership, SnapshotMeta, StorageError, Types};
use crate::snapshot::{self, Kept};

/// The state and the place in the log that it is of.
#[derive(Clone, Debug, Default)]
struct State {
    applied: Option<LogId>,
    membership: Membership,
    groups: Groups,
}

/// A handle to the state; clones are the same state.
#[derive(Clone, Debug)]
pub(crate) struct StateStore {
    state: Arc<RwLock<State>>,
    kept: Arc<Mutex<Option<Kept>>>,
    path: PathBuf,
}

impl StateStore {
    /// Begins with the snapshot, or with nothing.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let mut state = State::default();
        let kept = snapshot::read(path)?.map(|(kept, groups)| {
            state.applied = kept.meta.last_log_id;
            state.membership = kept.meta.last_membership.clone();
            state.groups = groups;
            kept
        });
        Ok(Self {
            state: Arc::new(RwLock::new(state)),
            kept: Arc::new(Mutex::new(kept)),
            path: path.to_owned(),
        })
    }

    /// Looks at the groups.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&Groups) -> T) -> T {
        look(&self.state.read().groups)
    }

    /// The last entry that is in the state.
    pub(crate) fn applied(&self) -> Option<LogId> {
        self.state.read().applied
    }

    /// The members, if an entry or snapshot named some.
    pub(crate) fn members(&self) -> Option<Vec<u64>> {
        let members: Vec<u64> = self.state.read().membership.voter_ids().collect();
        (!members.is_empty()).then_some(members)
    }

    /// Makes a snapshot the one that counts, unless a newer one does; on disk when this returns.
    async fn keep(&self, new: Kept) -> Result<(), StorageError> {
        let (path, kept) = (self.path.clone(), Arc::clone(&self.kept));
        let subject = ErrorSubject::Snapshot(Some(new.meta.signature()));
        let work = move || {
            // Held over the write: one that is built here and one that the leader sends may meet, and
            // the log may be gone already up to the newer one.
            let mut kept = kept.lock();
            if kept.as_ref().is_some_and(|old| old.meta.last_log_id > new.meta.last_log_id) {
                return Ok(());
            }
            snapshot::write(&path, &new)?;
            *kept = Some(new);
            Ok::<_, StoreError>(())
        };
        let written = tokio::task::spawn_blocking(work).await.map_err(std::io::Error::other);
        written.and_then(|done| done.map_err(std::io::Error::other)).map_err(|error| {
            tracing::error!(%error, "the controller cannot write its snapshot");
            StorageError::from_io_error(subject, ErrorVerb::Write, error)
        })
    }
}

fn opened(kept: Kept) -> Snapshot<Types> {
    Snapshot { meta: kept.meta, snapshot: Box::new(Cursor::new(kept.data)) }
}

impl RaftSnapshotBuilder<Types> for StateStore {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Types>, StorageError> {
        let state = self.state.read().clone();
        // Maps with string and integer keys only; encoding cannot fail.
        let data = serde_json::to_vec(&state.groups).expect("groups encode");
        let snapshot_id = state.applied.map_or_else(|| "empty".to_owned(), |id| id.to_string());
        let meta = SnapshotMeta {
            last_log_id: state.applied,
            last_membership: state.membership,
            snapshot_id,
        };
        let kept = Kept { meta, data };
        self.keep(kept.clone()).await?;
        Ok(opened(kept))
    }
}

impl RaftStateMachine<Types> for StateStore {
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, Membership), StorageError> {
        let state = self.state.read();
        Ok((state.applied, state.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Applied>, StorageError>
    where
        I: IntoIterator<Item = Entry> + Send,
        I::IntoIter: Send,
    {
        let mut state = self.state.write();
        let apply = |entry: Entry| {
            state.applied = Some(entry.log_id);
            match entry.payload {
                EntryPayload::Blank => Applied::Nothing,
                EntryPayload::Normal(command) => state.groups.apply(&command),
                EntryPayload::Membership(membership) => {
                    state.membership = Membership::new(Some(entry.log_id), membership);
                    Applied::Nothing
                }
            }
        };
        Ok(entries.into_iter().map(apply).collect())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Cursor<Vec<u8>>>, StorageError> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<(), StorageError> {
        let data = snapshot.into_inner();
        let groups = snapshot::parse_groups(&data).map_err(|error| {
            let subject = ErrorSubject::Snapshot(Some(meta.signature()));
            StorageError::from_io_error(subject, ErrorVerb::Read, std::io::Error::other(error))
        })?;
        self.keep(Kept { meta: meta.clone(), data }).await?;
        *self.state.write() =
            State { applied: meta.last_log_id, membership: meta.last_membership.clone(), groups };
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Types>>, StorageError> {
        Ok(self.kept.lock().clone().map(opened))
    }
}
