//! The Raft log and the vote, in memory and in the [`Journal`].

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;

use openraft::storage::{LogFlushed, LogState, RaftLogStorage};
use openraft::{ErrorSubject, ErrorVerb, RaftLogReader};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::journal::{Found, Journal, StoreError};
use crate::raft::{Entry, LogId, StorageError, Types, Vote};

/// Who writes a journal; its first record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) group: String,
    pub(crate) id: u64,
}

/// A record of the journal.
#[derive(Debug, Serialize, Deserialize)]
enum Record {
    Owner(Owner),
    Vote(Vote),
    Append(Vec<Entry>),
    /// Entries from this index on are gone.
    Truncate(u64),
    /// Entries up to this one are gone; the snapshot has them.
    Purge(LogId),
}

#[derive(Debug)]
struct Log {
    journal: Journal,
    owner: Owner,
    vote: Option<Vote>,
    purged: Option<LogId>,
    entries: BTreeMap<u64, Entry>,
}

/// A handle to the log; clones are the same log.
#[derive(Clone, Debug)]
pub(crate) struct LogStore {
    log: Arc<Mutex<Log>>,
}

impl LogStore {
    /// Opens the journal, as that of `owner`.
    pub(crate) fn open(path: &Path, owner: &Owner) -> Result<Self, StoreError> {
        let (journal, Found { records, cut_bytes }) = Journal::open(path)?;
        if cut_bytes > 0 {
            tracing::warn!(
                file = %path.display(),
                cut_bytes,
                "the end of the controller's journal was torn and is cut off"
            );
        }
        let mut log = Log {
            journal,
            owner: owner.clone(),
            vote: None,
            purged: None,
            entries: BTreeMap::new(),
        };
        if records.is_empty() {
            log.write(&Record::Owner(owner.clone()))?;
        }
        for (number, (at, payload)) in records.iter().enumerate() {
            log.replay(number, payload).map_err(|reason| match reason {
                Unfit::Damaged(reason) => StoreError::Damaged {
                    path: path.to_owned(),
                    at: *at,
                    reason: format!("record {number}: {reason}"),
                },
                Unfit::Foreign(reason) => {
                    StoreError::Foreign { path: path.parent().unwrap_or(path).to_owned(), reason }
                }
            })?;
        }
        Ok(Self { log: Arc::new(Mutex::new(log)) })
    }

    /// The last log id up to which entries are gone.
    pub(crate) fn purged(&self) -> Option<LogId> {
        self.log.lock().purged
    }

    /// The members in the newest entry that has some.
    pub(crate) fn members(&self) -> Option<Vec<u64>> {
        use openraft::entry::RaftPayload;
        let log = self.log.lock();
        let newest = log.entries.values().rev().find_map(|entry| entry.get_membership().cloned());
        newest.map(|membership| membership.voter_ids().collect())
    }

    /// Does something that waits for the disk, off the runtime's thread.
    async fn blocking(
        &self,
        what: (ErrorSubject<u64>, ErrorVerb),
        work: impl FnOnce(&mut Log) -> Result<(), StoreError> + Send + 'static,
    ) -> Result<(), StorageError> {
        let log = Arc::clone(&self.log);
        let done = tokio::task::spawn_blocking(move || work(&mut log.lock())).await;
        let done = done.map_err(std::io::Error::other);
        done.and_then(|done| done.map_err(std::io::Error::other)).map_err(|error| {
            tracing::error!(%error, "the controller cannot write and leaves its group");
            StorageError::from_io_error(what.0, what.1, error)
        })
    }
}

/// Why a record cannot be used.
enum Unfit {
    Damaged(String),
    Foreign(String),
}

impl Log {
    fn write(&mut self, record: &Record) -> Result<(), StoreError> {
        // These types have string keys only and no failing serializer, so encoding cannot fail.
        let payload = serde_json::to_vec(record).expect("records encode");
        self.journal.append(&payload)
    }

    fn replay(&mut self, number: usize, payload: &[u8]) -> Result<(), Unfit> {
        let record =
            serde_json::from_slice(payload).map_err(|error| Unfit::Damaged(error.to_string()))?;
        match record {
            Record::Owner(owner) if owner == self.owner => {}
            Record::Owner(owner) => {
                return Err(Unfit::Foreign(format!(
                    "belongs to controller n{} of group {}, this is n{} of {}; set \
                     controllerDLegerSelfId and controllerDLegerGroup back, or give it another \
                     directory",
                    owner.id, owner.group, self.owner.id, self.owner.group
                )));
            }
            _ if number == 0 => {
                return Err(Unfit::Damaged("the first record does not name the owner".to_owned()));
            }
            Record::Vote(vote) => self.vote = Some(vote),
            Record::Append(entries) => {
                for entry in entries {
                    self.insert(entry).map_err(Unfit::Damaged)?;
                }
            }
            Record::Truncate(index) => drop(self.entries.split_off(&index)),
            Record::Purge(log_id) => self.purge(log_id),
        }
        Ok(())
    }

    fn insert(&mut self, entry: Entry) -> Result<(), String> {
        let index = entry.log_id.index;
        let next = self.last().map_or(0, |last| last.index + 1);
        if index != next {
            return Err(format!("it holds entry {index} where {next} is to follow"));
        }
        self.entries.insert(index, entry);
        Ok(())
    }

    fn purge(&mut self, log_id: LogId) {
        self.entries = self.entries.split_off(&(log_id.index + 1));
        self.purged = self.purged.max(Some(log_id));
    }

    fn last(&self) -> Option<LogId> {
        self.entries.last_key_value().map(|(_, entry)| entry.log_id).or(self.purged)
    }

    /// Writes the journal anew, without what is gone.
    fn compact(&mut self) -> Result<(), StoreError> {
        let records = [
            Some(Record::Owner(self.owner.clone())),
            self.vote.map(Record::Vote),
            self.purged.map(Record::Purge),
            Some(Record::Append(self.entries.values().cloned().collect())),
        ];
        let encode = |record| serde_json::to_vec(&record).expect("records encode");
        let payloads: Vec<_> = records.into_iter().flatten().map(encode).collect();
        self.journal.replace(payloads.iter().map(Vec::as_slice))
    }
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, StorageError> {
        Ok(self.log.lock().entries.range(range).map(|(_, entry)| entry.clone()).collect())
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, StorageError> {
        let log = self.log.lock();
        Ok(LogState { last_purged_log_id: log.purged, last_log_id: log.last() })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        let vote = *vote;
        let work = move |log: &mut Log| {
            log.write(&Record::Vote(vote))?;
            log.vote = Some(vote);
            Ok(())
        };
        self.blocking((ErrorSubject::Vote, ErrorVerb::Write), work).await
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        Ok(self.log.lock().vote)
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: LogFlushed<Types>,
    ) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + Send,
        I::IntoIter: Send,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let work = move |log: &mut Log| {
            let record = Record::Append(entries);
            log.write(&record)?;
            if let Record::Append(entries) = record {
                log.entries.extend(entries.into_iter().map(|entry| (entry.log_id.index, entry)));
            }
            Ok(())
        };
        self.blocking((ErrorSubject::Logs, ErrorVerb::Write), work).await?;
        callback.log_io_completed(Ok(()));
        Ok(())
    }

    async fn truncate(&mut self, log_id: LogId) -> Result<(), StorageError> {
        let work = move |log: &mut Log| {
            log.write(&Record::Truncate(log_id.index))?;
            drop(log.entries.split_off(&log_id.index));
            Ok(())
        };
        self.blocking((ErrorSubject::Log(log_id), ErrorVerb::Delete), work).await
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), StorageError> {
        let work = move |log: &mut Log| {
            log.purge(log_id);
            log.compact()
        };
        self.blocking((ErrorSubject::Log(log_id), ErrorVerb::Delete), work).await
    }
}

#[cfg(test)]
mod tests {
    use openraft::storage::RaftLogStorageExt;
    use openraft::testing::{StoreBuilder, Suite, blank_ent};

    use super::*;
    use crate::raft::Types;
    use crate::state_store::StateStore;

    fn owner() -> Owner {
        Owner { group: "g".to_owned(), id: 0 }
    }

    struct Build;

    impl StoreBuilder<Types, LogStore, StateStore, tempfile::TempDir> for Build {
        async fn build(&self) -> Result<(tempfile::TempDir, LogStore, StateStore), StorageError> {
            let dir = tempfile::tempdir().unwrap();
            let log = LogStore::open(&dir.path().join("journal"), &owner()).unwrap();
            let state = StateStore::open(&dir.path().join("snapshot")).unwrap();
            Ok((dir, log, state))
        }
    }

    /// What openraft expects of a log and a state, by its own tests.
    #[test]
    fn log_and_state_are_what_raft_expects() {
        Suite::test_all(Build).unwrap();
    }

    #[tokio::test]
    async fn everything_is_there_again_after_each_kind_of_change() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let mut log = LogStore::open(&path, &owner()).unwrap();
        let indexes = |log: &LogStore| log.log.lock().entries.keys().copied().collect::<Vec<_>>();
        let again = || LogStore::open(&path, &owner()).unwrap();

        log.save_vote(&Vote::new(3, 1)).await.unwrap();
        log.blocking_append((0..6).map(|index| blank_ent(1, 0, index))).await.unwrap();
        assert_eq!(
            (indexes(&again()), again().log.lock().vote),
            (vec![0, 1, 2, 3, 4, 5], Some(Vote::new(3, 1)))
        );
        log.truncate(blank_ent::<Types>(1, 0, 4).log_id).await.unwrap();
        log.blocking_append([blank_ent(2, 0, 4)]).await.unwrap();
        assert_eq!(indexes(&again()), [0, 1, 2, 3, 4]);
        assert_eq!(again().log.lock().entries[&4], blank_ent(2, 0, 4));
        log.purge(blank_ent::<Types>(1, 0, 2).log_id).await.unwrap();
        log.blocking_append([blank_ent(2, 0, 5)]).await.unwrap();
        let mut last = again();
        assert_eq!((indexes(&last), last.purged()), (vec![3, 4, 5], log.purged()));
        assert_eq!(last.read_vote().await.unwrap(), Some(Vote::new(3, 1)));
        // A snapshot that is ahead of the log takes its place.
        log.purge(blank_ent::<Types>(2, 0, 9).log_id).await.unwrap();
        log.blocking_append([blank_ent(2, 0, 10)]).await.unwrap();
        assert_eq!(indexes(&again()), [10]);
    }

    #[test]
    fn records_that_cannot_follow_each_other_are_refused() {
        let encode = |record: &Record| serde_json::to_vec(record).unwrap();
        let owned = encode(&Record::Owner(owner()));
        let hole = encode(&Record::Append(vec![blank_ent(1, 0, 7)]));
        let vote = encode(&Record::Vote(Vote::new(1, 0)));
        for (records, part) in [
            (vec![&owned, &hole], "holds entry 7 where 0 is to follow"),
            (vec![&vote], "the first record does not name the owner"),
            (vec![&owned, &b"{}".to_vec()], "record 1:"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("journal");
            let (mut journal, _) = Journal::open(&path).unwrap();
            records.into_iter().for_each(|record| journal.append(record).unwrap());
            let text = LogStore::open(&path, &owner()).unwrap_err().to_string();
            assert!(text.contains(part), "{text}");
        }
    }
}
