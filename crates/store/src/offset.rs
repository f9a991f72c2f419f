//! The four offsets that say how far the log has come, each a type of its own.
//!
//! All are physical offsets: bytes of the CommitLog, exclusive ends. Each is published by one
//! owner: written by the appender, dispatched by the dispatcher, durable by the flusher, confirmed
//! by whoever decides what consumers may see; where nobody does, it is dispatched.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicI64, Ordering};

macro_rules! physical_offset {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub i64);

        impl From<i64> for $name {
            fn from(physical_offset: i64) -> $name {
                $name(physical_offset)
            }
        }

        impl From<$name> for i64 {
            fn from(offset: $name) -> i64 {
                offset.0
            }
        }
    };
}

physical_offset!(
    /// Everything below has been written to the log's files.
    Written
);
physical_offset!(
    /// Everything below has its entries in the ConsumeQueues.
    Dispatched
);
physical_offset!(
    /// Everything below survives a loss of power.
    Durable
);
physical_offset!(
    /// Everything below may be shown to consumers.
    Confirmed
);

/// An offset that one owner moves and anyone reads.
#[derive(Debug)]
pub struct Published<T> {
    offset: AtomicI64,
    kind: PhantomData<T>,
}

impl<T: From<i64> + Into<i64>> Published<T> {
    /// Starts at `offset`.
    pub fn new(offset: T) -> Published<T> {
        Published { offset: AtomicI64::new(offset.into()), kind: PhantomData }
    }

    /// Whatever happened before the offset was published is visible to the reader.
    pub fn get(&self) -> T {
        T::from(self.offset.load(Ordering::Acquire))
    }

    /// For the owner alone.
    pub(crate) fn publish(&self, offset: T) {
        self.offset.store(offset.into(), Ordering::Release);
    }
}
