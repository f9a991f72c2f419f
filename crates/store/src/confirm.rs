//! How far the log may be shown to consumers, where that is for somebody else to say.
//!
//! Owns the confirmed offset and the arrivals that are told only once it has passed them. Without an
//! appointed master nobody says anything, everything that is dispatched counts as confirmed, and all
//! this costs one load. With one, what lies at or behind the confirmed offset is hidden from every
//! reader but those who copy the log, since another master's log may take its place.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::background::Parts;
use crate::dispatch::Arrival;
use crate::error::StoreError;
use crate::offset::{Confirmed, Published};
use crate::store::Store;

/// Arrivals that wait one by one, about 2 MiB. Beyond, those of a queue become one.
const HELD_MAX: usize = 16 * 1024;

/// The confirmed offset of a log.
#[derive(Debug)]
pub(crate) struct Confirmation {
    is_required: AtomicBool,
    /// What was said, which may lie behind the end of a log that is being copied.
    said: Published<Confirmed>,
    held: Mutex<Held>,
}

/// Arrivals of records that are not confirmed.
#[derive(Debug, Default)]
struct Held {
    /// By where their records end.
    each: BTreeMap<i64, Arrival>,
    /// What did not fit there, by queue.
    merged: HashMap<(Arc<str>, i32), Merged>,
}

/// Arrivals of one queue.
#[derive(Debug)]
struct Merged {
    /// Where the records of the first and the last of them end.
    ends: (i64, i64),
    store_timestamp_ms: i64,
}

impl Held {
    fn put(&mut self, arrival: Arrival) {
        self.each.insert(arrival.end_physical_offset, arrival);
        if self.each.len() <= HELD_MAX {
            return;
        }
        for (end, arrival) in std::mem::take(&mut self.each) {
            let merged = self
                .merged
                .entry((arrival.topic, arrival.queue_id))
                .or_insert(Merged { ends: (end, end), store_timestamp_ms: 0 });
            merged.ends = (merged.ends.0.min(end), merged.ends.1.max(end));
            merged.store_timestamp_ms = merged.store_timestamp_ms.max(arrival.store_timestamp_ms);
        }
    }

    /// Takes what is confirmed up to `end`. `max_of` says what readers see of a queue then.
    fn take(&mut self, end: i64, max_of: impl Fn(&str, i32) -> i64) -> Vec<Arrival> {
        let later = self.each.split_off(&end.saturating_add(1));
        let mut taken: Vec<Arrival> =
            std::mem::replace(&mut self.each, later).into_values().collect();
        self.merged.retain(|(topic, queue_id), merged| {
            if merged.ends.0 > end {
                return true;
            }
            taken.push(Arrival {
                topic: Arc::clone(topic),
                queue_id: *queue_id,
                max_queue_offset: max_of(topic, *queue_id),
                // Several messages: any filter may want one of them.
                tags_code: None,
                store_timestamp_ms: merged.store_timestamp_ms,
                end_physical_offset: merged.ends.1.min(end),
            });
            merged.ends.0 = end.saturating_add(1);
            merged.ends.1 > end
        });
        taken
    }

    /// Forgets what ends behind `end`: it was cut.
    fn forget_behind(&mut self, end: i64) {
        self.each.split_off(&end.saturating_add(1));
        self.merged.retain(|_, merged| {
            merged.ends.1 = merged.ends.1.min(end);
            merged.ends.0 <= end
        });
    }
}

impl Confirmation {
    pub(crate) fn new() -> Confirmation {
        Confirmation {
            is_required: AtomicBool::new(false),
            said: Published::new(Confirmed(0)),
            held: Mutex::default(),
        }
    }

    pub(crate) fn is_required(&self) -> bool {
        self.is_required.load(Ordering::Acquire)
    }

    /// Where the part of the log ends that readers may see: nowhere, if nothing has to be confirmed.
    pub(crate) fn visible_end(&self) -> i64 {
        if self.is_required() { self.said.get().0 } else { i64::MAX }
    }

    /// Those of the arrivals that may be told now; the others wait.
    fn hold(&self, arrivals: &[Arrival]) -> Vec<Arrival> {
        let mut held = self.held.lock();
        // With the lock: whoever confirms more takes what is put here.
        let end = self.said.get().0;
        let mut now = Vec::new();
        for arrival in arrivals {
            if arrival.end_physical_offset <= end {
                now.push(arrival.clone());
            } else {
                held.put(arrival.clone());
            }
        }
        now
    }

    /// Moves the offset, and takes the arrivals that it has passed.
    fn confirm(&self, end: i64, max_of: impl Fn(&str, i32) -> i64) -> Vec<Arrival> {
        let mut held = self.held.lock();
        if end <= self.said.get().0 {
            return Vec::new();
        }
        self.said.publish(Confirmed(end));
        held.take(end, max_of)
    }

    /// The log was cut: what lay behind `end` is not waited for any more.
    pub(crate) fn log_was_cut(&self, end: i64) {
        self.held.lock().forget_behind(end);
    }
}

impl Parts {
    /// Tells the listener that the log has grown, and of arrivals that readers may see. No lock may be
    /// held.
    pub(crate) fn tell(&self, arrivals: &[Arrival]) {
        if arrivals.is_empty() {
            return;
        }
        let listener = self.listener.read();
        let Some(listener) = listener.as_ref() else { return };
        listener.log_grew();
        if !self.confirmation.is_required() {
            return listener.arrived(arrivals);
        }
        let confirmed = self.confirmation.hold(arrivals);
        if !confirmed.is_empty() {
            listener.arrived(&confirmed);
        }
    }

    /// The offset behind the newest message of a queue that readers may see; its minimum if the queue
    /// cannot be read.
    pub(crate) fn visible_max(&self, topic: &str, queue_id: i32) -> i64 {
        let Some(queue) = self.table.find(topic, queue_id) else { return 0 };
        queue.max_offset_in_front_of(self.confirmation.visible_end()).unwrap_or_else(|error| {
            tracing::warn!(topic, queue_id, %error, "newest entries of the queue cannot be read");
            queue.min_offset()
        })
    }
}

impl Store {
    /// From now on readers see only what [`Store::confirm`] has passed. For a store whose messages
    /// others have to have before they count; to be called before anybody reads. Begins with what an
    /// earlier run of the store noted in the checkpoint, and returns it.
    ///
    /// # Errors
    /// When the log ends in front of what was noted, and that could not be written down.
    pub fn show_confirmed_only(&self) -> Result<Confirmed, StoreError> {
        let written = self.written().0;
        let noted = self.parts.checkpoint.words().confirm_phy_offset;
        if noted > written {
            // What takes the place of the lost part is not confirmed.
            self.parts.checkpoint.update(|words| words.confirm_phy_offset = written);
            self.parts.checkpoint.persist()?;
        }
        let confirmation = &self.parts.confirmation;
        confirmation.confirm(noted.clamp(0, written), |_, _| 0);
        confirmation.is_required.store(true, Ordering::Release);
        Ok(self.confirmed())
    }

    /// Whether readers see only what was confirmed; see [`Store::show_confirmed_only`].
    pub fn shows_confirmed_only(&self) -> bool {
        self.parts.confirmation.is_required()
    }

    /// Everything in front of `physical_offset` may be shown: wakes those who wait for it. It may lie
    /// behind the end of a log that is being copied, and then counts as the log grows. Never goes back.
    /// Does nothing unless [`Store::show_confirmed_only`] was called.
    pub fn confirm(&self, physical_offset: i64) {
        let parts = &self.parts;
        if !parts.confirmation.is_required() {
            return;
        }
        let max_of = |topic: &str, queue_id| parts.visible_max(topic, queue_id);
        let arrivals = parts.confirmation.confirm(physical_offset, max_of);
        if !arrivals.is_empty()
            && let Some(listener) = parts.listener.read().as_ref()
        {
            listener.arrived(&arrivals);
        }
    }

    /// The end of what consumers may see.
    pub fn confirmed(&self) -> Confirmed {
        Confirmed(self.parts.confirmation.visible_end().min(self.dispatched().0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(queue_id: i32, end: i64) -> Arrival {
        Arrival {
            topic: Arc::from("A"),
            queue_id,
            max_queue_offset: end / 10,
            tags_code: Some(7),
            store_timestamp_ms: end,
            end_physical_offset: end,
        }
    }

    fn ends(arrivals: &[Arrival]) -> Vec<i64> {
        arrivals.iter().map(|arrival| arrival.end_physical_offset).collect()
    }

    #[test]
    fn an_arrival_waits_until_its_record_is_confirmed() {
        let confirmation = Confirmation::new();
        assert_eq!(ends(&confirmation.confirm(100, |_, _| 0)), [0; 0]);
        let now = confirmation.hold(&[arrival(0, 90), arrival(0, 100), arrival(0, 110)]);
        assert_eq!(ends(&now), [90, 100]);
        // Two appends may tell in either order.
        assert!(confirmation.hold(&[arrival(0, 130)]).is_empty());
        assert!(confirmation.hold(&[arrival(0, 120)]).is_empty());
        assert_eq!(ends(&confirmation.confirm(120, |_, _| 0)), [110, 120]);
        assert!(confirmation.confirm(110, |_, _| 0).is_empty(), "it never goes back");
        confirmation.log_was_cut(125);
        assert!(confirmation.confirm(200, |_, _| 0).is_empty(), "what was cut never arrives");
    }

    #[test]
    fn more_than_fits_is_told_by_queue() {
        let confirmation = Confirmation::new();
        let last = HELD_MAX as i64 + 10;
        for end in 1..=last {
            confirmation.hold(&[arrival((end % 2) as i32, end)]);
        }
        {
            let held = confirmation.held.lock();
            assert_eq!((held.merged.len(), held.each.len()), (2, 9));
        }
        let told = confirmation.confirm(100, |_, queue_id| 50 + i64::from(queue_id));
        let mut told: Vec<_> =
            told.iter().map(|a| (a.queue_id, a.max_queue_offset, a.tags_code)).collect();
        told.sort_unstable();
        assert_eq!(told, [(0, 50, None), (1, 51, None)]);
        assert_eq!(confirmation.confirm(last, |_, _| 1).len(), 2 + 9);
        let held = confirmation.held.lock();
        assert!(held.each.is_empty() && held.merged.is_empty());
    }
}
