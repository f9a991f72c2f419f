//! The file `checkpoint`: up to which store time each part is known to be on disk.
//!
//! 4096 bytes, five 64-bit words, the rest zero (RocketMQ's `StoreCheckpoint`). It decides where
//! recovery after a crash begins, so a word is written only after what it speaks of was synced.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::StoreError;
use crate::file_system::{FileSystem, OpenMode, StoreFile};

/// Name of the file.
const NAME: &str = "checkpoint";
/// Length of the file.
pub const FILE_BYTES: usize = 4096;
/// Where the words lie.
pub mod place {
    #![allow(missing_docs, reason = "the names are those of the fields")]

    pub const PHYSIC_MSG_TIMESTAMP: usize = 0;
    pub const LOGICS_MSG_TIMESTAMP: usize = 8;
    pub const INDEX_MSG_TIMESTAMP: usize = 16;
    pub const MASTER_FLUSHED_OFFSET: usize = 24;
    pub const CONFIRM_PHY_OFFSET: usize = 32;
}
/// How far before the checkpoint recovery begins, in ms.
const MARGIN_MS: i64 = 3_000;

/// The words of the checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointWords {
    /// Store time up to which the CommitLog is synced, in ms.
    pub physic_msg_timestamp_ms: i64,
    /// Store time up to which the ConsumeQueues are synced, in ms.
    pub logics_msg_timestamp_ms: i64,
    /// Store time up to which the index is synced, in ms.
    pub index_msg_timestamp_ms: i64,
    /// What the master had synced, as a slave last heard.
    pub master_flushed_offset: i64,
    /// What was confirmed.
    pub confirm_phy_offset: i64,
}

impl CheckpointWords {
    /// Reads the words; bytes that are missing count as zero.
    pub fn decode(bytes: &[u8]) -> CheckpointWords {
        let word = |at: usize| {
            let chunk = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>());
            chunk.map_or(0, |chunk| i64::from_be_bytes(*chunk))
        };
        CheckpointWords {
            physic_msg_timestamp_ms: word(place::PHYSIC_MSG_TIMESTAMP),
            logics_msg_timestamp_ms: word(place::LOGICS_MSG_TIMESTAMP),
            index_msg_timestamp_ms: word(place::INDEX_MSG_TIMESTAMP),
            master_flushed_offset: word(place::MASTER_FLUSHED_OFFSET),
            confirm_phy_offset: word(place::CONFIRM_PHY_OFFSET),
        }
    }

    /// The file's contents.
    pub fn encode(&self) -> [u8; FILE_BYTES] {
        let mut bytes = [0; FILE_BYTES];
        let mut put = |at: usize, word: i64| {
            bytes[at..at + 8].copy_from_slice(&word.to_be_bytes());
        };
        put(place::PHYSIC_MSG_TIMESTAMP, self.physic_msg_timestamp_ms);
        put(place::LOGICS_MSG_TIMESTAMP, self.logics_msg_timestamp_ms);
        put(place::INDEX_MSG_TIMESTAMP, self.index_msg_timestamp_ms);
        put(place::MASTER_FLUSHED_OFFSET, self.master_flushed_offset);
        put(place::CONFIRM_PHY_OFFSET, self.confirm_phy_offset);
        bytes
    }

    /// Recovery after a crash begins in the newest file whose first message is not younger.
    pub fn recovery_timestamp_ms(&self) -> i64 {
        let older = self.physic_msg_timestamp_ms.min(self.logics_msg_timestamp_ms);
        older.saturating_sub(MARGIN_MS).max(0)
    }

    /// Index entries of messages up to this time are not looked at again after a crash.
    pub fn index_recovery_timestamp_ms(&self) -> i64 {
        self.index_msg_timestamp_ms.saturating_sub(MARGIN_MS).max(0)
    }
}

/// The open checkpoint.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    path: PathBuf,
    file: Arc<dyn StoreFile>,
    words: Mutex<Words>,
}

#[derive(Debug)]
struct Words {
    now: CheckpointWords,
    on_disk: CheckpointWords,
}

impl Checkpoint {
    /// Whether the directory has one: a store makes it once its directories are made.
    pub(crate) fn exists(
        file_system: &dyn FileSystem,
        root_dir: &Path,
    ) -> Result<bool, StoreError> {
        let path = root_dir.join(NAME);
        file_system.exists(&path).map_err(StoreError::io("look for", &path))
    }

    /// Opens the file, or makes it with zeros.
    pub(crate) fn open(
        file_system: &dyn FileSystem,
        root_dir: &Path,
    ) -> Result<Checkpoint, StoreError> {
        let path = root_dir.join(NAME);
        let file = file_system.open(&path, OpenMode::Any).map_err(StoreError::io("open", &path))?;
        let len = file.len_bytes().map_err(StoreError::io("measure", &path))?;
        let len = usize::try_from(len).unwrap_or(FILE_BYTES).min(FILE_BYTES);
        let mut bytes = [0; FILE_BYTES];
        file.read_at(&mut bytes[..len], 0).map_err(StoreError::io("read", &path))?;
        if len < FILE_BYTES {
            file.set_len(FILE_BYTES as u64).map_err(StoreError::io("extend", &path))?;
        }
        let words = CheckpointWords::decode(&bytes);
        Ok(Checkpoint { path, file, words: Mutex::new(Words { now: words, on_disk: words }) })
    }

    pub(crate) fn words(&self) -> CheckpointWords {
        self.words.lock().now
    }

    /// Changes words in memory; [`Checkpoint::persist`] writes them.
    pub(crate) fn update(&self, change: impl FnOnce(&mut CheckpointWords)) {
        change(&mut self.words.lock().now);
    }

    /// Lowers the words to the time of the newest message that is left, durably. Messages that come
    /// may be older than those that were lost, and must not count as synced before they are.
    pub(crate) fn lower_to(&self, timestamp_ms: i64) -> Result<(), StoreError> {
        self.update(|words| {
            for word in [
                &mut words.physic_msg_timestamp_ms,
                &mut words.logics_msg_timestamp_ms,
                &mut words.index_msg_timestamp_ms,
            ] {
                *word = timestamp_ms.min(*word);
            }
        });
        let is_lower = {
            let Words { now, on_disk } = &*self.words.lock();
            now.physic_msg_timestamp_ms < on_disk.physic_msg_timestamp_ms
                || now.logics_msg_timestamp_ms < on_disk.logics_msg_timestamp_ms
                || now.index_msg_timestamp_ms < on_disk.index_msg_timestamp_ms
        };
        if is_lower { self.persist() } else { Ok(()) }
    }

    /// Writes the words that the disk may not have, though they were read from the file.
    pub(crate) fn rewrite(&self) -> Result<(), StoreError> {
        let words = self.words.lock();
        self.file.write_at(&words.now.encode(), 0).map_err(StoreError::io("write", &self.path))?;
        self.file.sync_data().map_err(StoreError::io("sync", &self.path))
    }

    /// Writes the words if they changed.
    pub(crate) fn persist(&self) -> Result<(), StoreError> {
        let mut words = self.words.lock();
        if words.now == words.on_disk {
            return Ok(());
        }
        let now = words.now;
        self.file.write_at(&now.encode(), 0).map_err(StoreError::io("write", &self.path))?;
        self.file.sync_data().map_err(StoreError::io("sync", &self.path))?;
        words.on_disk = now;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_system::RealFileSystem;
    use proptest::prelude::*;

    #[test]
    fn it_is_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let checkpoint = Checkpoint::open(&RealFileSystem, directory.path()).unwrap();
        assert_eq!(checkpoint.words(), CheckpointWords::default());
        checkpoint.update(|words| words.physic_msg_timestamp_ms = 10_000);
        checkpoint.update(|words| words.logics_msg_timestamp_ms = 9_000);
        checkpoint.persist().unwrap();
        let again = Checkpoint::open(&RealFileSystem, directory.path()).unwrap();
        assert_eq!(again.words(), checkpoint.words());
        assert_eq!(again.words().recovery_timestamp_ms(), 6_000);
        let bytes = std::fs::read(directory.path().join("checkpoint")).unwrap();
        assert_eq!(bytes.len(), FILE_BYTES);
        assert_eq!(bytes[8..16], 9_000i64.to_be_bytes());
    }

    #[test]
    fn a_short_file_is_extended() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("checkpoint"), 5_000i64.to_be_bytes()).unwrap();
        let checkpoint = Checkpoint::open(&RealFileSystem, directory.path()).unwrap();
        assert_eq!(checkpoint.words().physic_msg_timestamp_ms, 5_000);
        assert_eq!(checkpoint.words().recovery_timestamp_ms(), 0);
        let bytes = std::fs::read(directory.path().join("checkpoint")).unwrap();
        assert_eq!(bytes.len(), FILE_BYTES);
    }

    proptest! {
        #[test]
        fn identity(words in any::<(i64, i64, i64, i64, i64)>()) {
            let words = CheckpointWords {
                physic_msg_timestamp_ms: words.0,
                logics_msg_timestamp_ms: words.1,
                index_msg_timestamp_ms: words.2,
                master_flushed_offset: words.3,
                confirm_phy_offset: words.4,
            };
            prop_assert_eq!(CheckpointWords::decode(&words.encode()), words);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = CheckpointWords::decode(&bytes).recovery_timestamp_ms();
        }
    }
}
