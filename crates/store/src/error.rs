//! What can go wrong in the store, by what the caller does about it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rocketmq_protocol::message::batch::BatchError;

/// Why a store cannot be opened or operated.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The operating system refused a call.
    #[error("{action} {path}: {source}{}", remedy(source))]
    Io {
        /// What was being done, as a verb.
        action: &'static str,
        /// To what.
        path: PathBuf,
        /// What the operating system said.
        source: Arc<io::Error>,
    },
    /// Another process works in the directory.
    #[error(
        "store directory {directory} is in use by another process (lock file {lock}); \
         stop that process or choose another storePathRootDir"
    )]
    Locked {
        /// The store's root directory.
        directory: PathBuf,
        /// Its lock file.
        lock: PathBuf,
    },
    /// A file has a length that the configuration does not allow for.
    #[error(
        "file {path} has {bytes} bytes, {expected} are expected; set {key} to the size that the \
         directory was made with, or take the file out of the directory"
    )]
    FileSize {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
        /// The configured length.
        expected: u64,
        /// The configuration key.
        key: &'static str,
    },
    /// Something that is no file has the name of one.
    #[error(
        "{path} is {found}, a file is expected; it is not followed, so put the file itself in its \
         place or take it out of the directory"
    )]
    NotAFile {
        /// What it is called.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// A file is missing between two others.
    #[error("file {path} is missing, though files before and behind it exist; restore it")]
    MissingFile {
        /// The file that should be there.
        path: PathBuf,
    },
    /// A directory of the log is missing, though others exist.
    #[error(
        "directory {path} of {key} does not exist; mount its disk, or make the directory if it is \
         a new one"
    )]
    MissingDirectory {
        /// The directory.
        path: PathBuf,
        /// The configuration key that names it.
        key: &'static str,
    },
    /// Two directories hold a file for the same part of the log.
    #[error(
        "files {first} and {second} are for the same part of the log; take the one that does not \
         belong out of its directory"
    )]
    DuplicateFile {
        /// One of them.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// Recovery would have to change a file in a directory that must not be written.
    #[error(
        "the log ends in or in front of file {path} ({reason}), which would have to be cut, but \
         its directory is in readOnlyCommitLogStorePaths; move the file to a directory of \
         storePathCommitLog"
    )]
    ReadOnlyFile {
        /// The file.
        path: PathBuf,
        /// Why the log ends there.
        reason: String,
    },
    /// There are queues with messages and no log.
    #[error(
        "no file of the commit log is in {log}, though the queues in {queues} hold messages; mount \
         the disk of storePathCommitLog or restore its files (to begin anew without them, remove \
         {queues})"
    )]
    LogMissing {
        /// Where the log should be.
        log: PathBuf,
        /// The directory of the queues.
        queues: PathBuf,
    },
    /// A file's name says a place where no file can begin.
    #[error(
        "file {path} begins at a place that is no multiple of {file_bytes}; set {key} to the size \
         that the directory was made with, or take the file out of the directory"
    )]
    FileName {
        /// The file.
        path: PathBuf,
        /// The configured file size.
        file_bytes: u64,
        /// The configuration key.
        key: &'static str,
    },
    /// A value of the configuration is out of range.
    #[error("{key} is {value}, allowed is {allowed}")]
    Config {
        /// The configuration key.
        key: &'static str,
        /// Its value.
        value: String,
        /// What would do.
        allowed: &'static str,
    },
}

/// What helps, where the system's own words do not say it.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free space on its disk",
        io::ErrorKind::ReadOnlyFilesystem => "; mount its disk writable",
        io::ErrorKind::PermissionDenied => "; let the broker's user write there",
        _ => "",
    }
}

impl StoreError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
        let path = path.to_owned();
        move |source| StoreError::Io { action, path, source: Arc::new(source) }
    }
}

/// Why a message is not taken into a batch. It concerns this message alone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The body is over the limit.
    #[error("message body is {bytes} bytes, maxMessageSize allows {max}")]
    BodyTooLarge {
        /// Its length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// Body, topic and properties together are over the limit.
    #[error("message with its properties is {bytes} bytes, {max} are allowed")]
    RecordTooLarge {
        /// The record's length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The property block is longer than a record can hold.
    #[error("message properties are {bytes} bytes, {max} are allowed")]
    PropertiesTooLong {
        /// The block's length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// Zeros in the property block look like a part that never reached the disk.
    #[error("message properties hold {bytes} zero bytes in a row, {max} are allowed")]
    PropertiesZeros {
        /// Their number.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The topic is too long.
    #[error("topic is {bytes} bytes, {max} are allowed")]
    TopicTooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The topic cannot be the name of a directory.
    #[error("topic {topic:?} is empty, or holds a slash or a zero byte, or is a path of dots")]
    TopicName {
        /// The topic.
        topic: String,
    },
    /// The queue number is negative.
    #[error("queue id {queue_id} is negative")]
    QueueId {
        /// The number.
        queue_id: i32,
    },
    /// A batch body cannot be read.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// A batch body holds no message.
    #[error("batch holds no message")]
    BatchEmpty,
    /// An inner batch holds more messages than its entry can say.
    #[error("batch holds {count} messages, {max} are allowed")]
    BatchTooLong {
        /// How many.
        count: i64,
        /// The limit.
        max: i16,
    },
    /// A single message says that it is an inner batch.
    #[error("system flag {sys_flag:#x} says inner batch (0x80), which a single message is not")]
    InnerBatch {
        /// Its system flag.
        sys_flag: i32,
    },
    /// A batch is over the limit as a whole.
    #[error("batch is {bytes} bytes as records, {max} are allowed")]
    BatchTooLarge {
        /// The records' length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
}

/// Why nothing can be appended for now, or ever again.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// The disk is fuller than the warning level. Lifted when space returns.
    #[error(
        "disk of {path} is {used_percent} % full, diskSpaceWarningLevelRatio allows \
         {limit_percent} %; free space and writing resumes"
    )]
    DiskFull {
        /// The directory.
        path: PathBuf,
        /// Used share.
        used_percent: u32,
        /// The warning level.
        limit_percent: u32,
    },
    /// ConsumeQueue entries could not be written. Lifted when it works again.
    #[error("consume queue cannot be written ({0}); writing resumes when that works again")]
    ConsumeQueue(String),
    /// What waits in the write buffer could not be written to the log. Lifted when it works again.
    #[error(
        "the write buffer cannot be committed ({0}); writing resumes when that works again, what is \
         in the buffer is lost if the broker stops before"
    )]
    Commit(String),
    /// So many index entries wait in memory that no more can, since they could not be written.
    /// Lifted when it works again.
    #[error("index cannot be written ({0}); writing resumes when that works again")]
    Index(String),
    /// A sync failed, so it is unknown what is on disk. Final until the store is opened again.
    #[error("a sync failed ({0}); restart the broker to recover from what is on disk")]
    SyncFailed(String),
    /// A write failed and its remains could not be wiped. Final until the store is opened again.
    #[error("a write failed ({0}); restart the broker to recover from what is on disk")]
    WriteFailed(String),
    /// A file of the log was changed from outside. Final until the store is opened again.
    #[error("commit log file {path} {found}; stop the broker and run rmq store check")]
    FileChanged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        found: String,
    },
    /// The store is a copy of another one, which takes the messages.
    #[error("this broker is a slave; messages are put to the master")]
    Copy,
    /// The store takes messages of its own, and no copies.
    #[error("this broker is a master; it copies no other broker's log")]
    NoCopy,
    /// The store takes nothing for now.
    #[error("this broker takes no messages for now")]
    Paused,
    /// The store is shutting down.
    #[error("the store is shut down")]
    ShutDown,
}

/// Why messages were not appended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AppendError {
    /// The store takes nothing.
    #[error("store is not writable: {0}")]
    Refused(#[from] Refusal),
    /// A new CommitLog file could not be made.
    #[error("create commit log file: {0}")]
    CreateFile(StoreError),
    /// The CommitLog could not be written; nothing of the failed part counts.
    #[error("append to the commit log: {0}")]
    Write(StoreError),
    /// What was to be copied does not begin where the log ends.
    #[error("bytes of the log from {physical_offset} on do not continue it, it ends at {expected}")]
    NotNext {
        /// Where they begin.
        physical_offset: i64,
        /// Where the log ends.
        expected: i64,
    },
    /// What was to be copied is no log.
    #[error("bytes from {physical_offset} of the log on are damaged: {reason}")]
    Damaged {
        /// Where the first record that is none lies.
        physical_offset: i64,
        /// What is wrong with it.
        reason: String,
    },
    /// A queue exists with the other format.
    #[error(
        "queue {queue_id} of topic {topic} is in {directory}, but the message belongs to a queue \
         of the other kind; delete the topic and make it with the queue.type it shall have"
    )]
    QueueFormat {
        /// The topic.
        topic: String,
        /// The queue.
        queue_id: i32,
        /// Where queues of its format are.
        directory: &'static str,
    },
    /// The batch was not handed to the log yet, or holds no such message.
    #[error("message was not handed to the log")]
    NotAppended,
}
