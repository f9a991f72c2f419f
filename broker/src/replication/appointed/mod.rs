//! Masters that are appointed: RocketMQ 5's stream of its controller mode, and what carries out the
//! decisions of `rocketmq_replication`.
//!
//! - [`stream`]: the bytes between a master and its slaves.
//! - [`epoch_file`]: where in the log each epoch began.
//! - [`group`]: the replica that decides, and what it is told.
//! - `member`: how a broker becomes a member of its group at the start.
//! - `driver`, `work`: what does as it says, quickly or in its own time.
//! - `serve`, `follow`: the two ends of a link.

pub(crate) mod driver;
pub mod epoch_file;
pub(super) mod follow;
pub mod group;
pub(crate) mod member;
pub(super) mod serve;
pub mod stream;
mod work;

use std::io;
use std::time::Duration;

use rocketmq_store::Store;
use rocketmq_store::config::FlushDiskType;

/// Up to where the log of this broker counts, for acknowledging and as a copy: what is written, or with
/// synchronous flush what is on disk.
fn end_that_counts(store: &Store) -> i64 {
    let written = store.written().0;
    match store.config().flush_disk_type {
        FlushDiskType::Sync => store.durable().0.min(written),
        FlushDiskType::Async => written,
    }
}

/// Why a link ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    /// The connection.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Bytes that are no frames.
    #[error(transparent)]
    Stream(#[from] stream::StreamError),
    /// A frame that does not belong there.
    #[error("the other side sent {0}")]
    OutOfOrder(String),
    /// This side does not go on.
    #[error("turned away: {0}")]
    Refused(String),
    /// The other side does not go on, and says why.
    #[error("turned away by the master: {0}")]
    TurnedAway(String),
    /// The log takes no more of it.
    #[error("cannot be appended: {0}")]
    Append(String),
}

fn no_word(idle: Duration) -> io::Error {
    let text = format!("no word for {} ms", idle.as_millis());
    io::Error::new(io::ErrorKind::TimedOut, text)
}
