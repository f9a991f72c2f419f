//! How far the half topic and the op topic are done: the consumer offsets of the group
//! CID_RMQ_SYS_TRANS, in `consumerOffset.json`, where a Java broker keeps them too.
//!
//! They are set once the log that they rest on survives a loss of power and, where the master is
//! appointed, a change of the master. Otherwise a half message could count as settled whose copy, or
//! whose decision, was lost.

use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;
use rocketmq_protocol::names::{TRANS_GROUP, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC};

use super::half::QUEUE_ID;
use crate::metadata::consumer_offset::ConsumerOffsets;

/// Offsets of the half topic and of the op topic.
pub type Offsets = (i64, i64);

/// What is done, and what may be said to be done.
#[derive(Debug, Default)]
pub struct Progress {
    inner: Mutex<Inner>,
    /// The end of the newest copy or op message.
    appended: AtomicI64,
}

#[derive(Debug, Default)]
struct Inner {
    /// What is done by now.
    current: Option<Offsets>,
    /// What waits for the log in front of the physical offset to be safe.
    waiting: Option<(i64, Offsets)>,
    /// What was last set.
    published: Option<Offsets>,
}

/// The offsets that were written down last, by this broker or another one; none for a topic of which
/// nothing was done yet.
pub fn read(offsets: &ConsumerOffsets) -> (Option<i64>, Option<i64>) {
    let of = |topic| offsets.query(TRANS_GROUP, topic, QUEUE_ID);
    (of(TRANS_HALF_TOPIC), of(TRANS_OP_HALF_TOPIC))
}

impl Progress {
    /// Whether somebody else has set the offsets since this broker did: an administrator.
    pub fn is_overruled(&self, offsets: &ConsumerOffsets) -> bool {
        let published = self.inner.lock().published;
        published.is_some_and(|(half, op)| read(offsets) != (Some(half), Some(op)))
    }

    /// Forgets what this broker did; it goes on where the offsets say.
    pub fn clear(&self) {
        *self.inner.lock() = Inner::default();
    }

    /// A copy or an op message ends here in the log.
    pub fn appended(&self, end_physical_offset: i64) {
        self.appended.fetch_max(end_physical_offset, Ordering::AcqRel);
    }

    /// Everything in front of these offsets is done.
    pub fn set(&self, done: Offsets) {
        self.inner.lock().current = Some(done);
    }

    /// Sets what is safe by now. `written` is the end of the log, read before this call, `safe` the end
    /// of what no loss of power and no other master takes away.
    pub fn publish(&self, offsets: &ConsumerOffsets, written: i64, safe: i64) {
        // What waits in a write buffer is behind the end of the log.
        let rests_on = written.max(self.appended.load(Ordering::Acquire));
        let mut inner = self.inner.lock();
        if let Some((_, done)) = inner.waiting.take_if(|(end, _)| *end <= safe) {
            inner.publish(offsets, done);
        }
        if let Some(current) = inner.current
            && inner.waiting.is_none()
            && inner.published != Some(current)
        {
            inner.waiting = Some((rests_on, current));
        }
    }

    /// Sets everything; after the log was flushed.
    pub fn publish_all(&self, offsets: &ConsumerOffsets) {
        let mut inner = self.inner.lock();
        inner.waiting = None;
        if let Some(current) = inner.current {
            inner.publish(offsets, current);
        }
    }
}

impl Inner {
    fn publish(&mut self, offsets: &ConsumerOffsets, done: Offsets) {
        if self.published == Some(done) {
            return;
        }
        // The half topic first: a file written in between then leads to reading op messages again,
        // which are no news, and not to missing any.
        offsets.commit(TRANS_GROUP, TRANS_HALF_TOPIC, QUEUE_ID, done.0);
        offsets.commit(TRANS_GROUP, TRANS_OP_HALF_TOPIC, QUEUE_ID, done.1);
        self.published = Some(done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_set_once_what_they_rest_on_is_durable() {
        let directory = tempfile::tempdir().unwrap();
        let offsets = ConsumerOffsets::load(directory.path(), 500).unwrap();
        let progress = Progress::default();
        progress.publish(&offsets, 10, 10);
        assert_eq!(read(&offsets), (None, None));
        progress.set((5, 2));
        progress.publish(&offsets, 100, 0);
        progress.set((7, 3));
        progress.publish(&offsets, 200, 99);
        assert_eq!(read(&offsets), (None, None), "the log is durable to 99 only");
        progress.publish(&offsets, 200, 100);
        assert_eq!(read(&offsets), (Some(5), Some(2)));
        assert!(!progress.is_overruled(&offsets));
        progress.publish_all(&offsets);
        assert_eq!(read(&offsets), (Some(7), Some(3)));
        offsets.commit(TRANS_GROUP, TRANS_HALF_TOPIC, QUEUE_ID, 1);
        assert!(progress.is_overruled(&offsets));
        progress.clear();
        assert!(!progress.is_overruled(&offsets));
    }
}
