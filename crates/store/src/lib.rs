//! RocketMQ's message store: CommitLog, ConsumeQueue, IndexFile, recovery.
//!
//! `docs/storage-format.md` draws each file to the byte.

pub mod append;
mod background;
pub mod checkpoint;
pub mod clock;
mod commit;
mod commit_log;
pub mod config;
pub mod consume_queue;
mod deleted_topics;
mod directory;
mod dispatch;
pub mod error;
pub mod file_system;
mod file_watch;
mod flush;
pub mod index;
pub mod inspect;
mod lock_file;
mod log_copy;
mod log_directories;
mod log_walk;
mod mapped_file_queue;
pub mod mapping;
pub mod offset;
mod preallocation;
mod queue_entries;
mod queue_table;
pub mod read;
mod recovery;
mod retention;
mod rewrite;
pub mod small_file;
mod store;
mod time_search;
mod topic_table;
mod writability;

pub use append::{AppendBatch, AppendOutcome, AppendResult};
pub use clock::{Clock, SystemClock};
pub use config::{FlushDiskType, StoreConfig};
pub use consume_queue::{ExtUnit, FilterBitMap};
pub use dispatch::{Arrival, ArrivalListener};
pub use error::{AppendError, MessageError, Refusal, StoreError};
pub use file_system::{FileSystem, RealFileSystem};
pub use flush::DurableOutcome;
pub use index::QueryResult;
pub use queue_entries::{OwnedExtUnit, QueueEntry};
pub use read::{GetLimits, GetResult, GetStatus, MatchAll, QueueFilter};
pub use recovery::RecoveryReport;
pub use store::{Environment, Store};
pub use time_search::Boundary;
