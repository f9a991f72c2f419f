//! Sends that wait until what they stored is confirmed: until every member of the in-sync set has it.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::flush_waits::{Wait, WaitEnd};
use crate::state::BrokerState;

/// The waits, by the end of what they wait for.
#[derive(Default)]
pub struct ConfirmWaits {
    waits: Mutex<Waits>,
}

#[derive(Default)]
struct Waits {
    by_end: BTreeMap<(i64, u64), Wait>,
    next_number: u64,
}

impl ConfirmWaits {
    /// Lets `wait` end once everything in front of `end` is confirmed. The caller looks afterwards
    /// whether it is already.
    fn add(&self, end: i64, wait: Wait) {
        let mut waits = self.waits.lock();
        // Those that timed out meanwhile stay no longer than the ones in front of them.
        while waits.by_end.first_entry().is_some_and(|entry| entry.get().has_ended()) {
            waits.by_end.pop_first();
        }
        let number = waits.next_number;
        waits.next_number += 1;
        waits.by_end.insert((end, number), wait);
    }

    /// Ends the waits for what lies in front of `end`.
    fn confirmed(&self, end: i64) {
        let confirmed = {
            let mut waits = self.waits.lock();
            if waits.by_end.first_key_value().is_none_or(|((first, _), _)| *first > end) {
                return;
            }
            let later = waits.by_end.split_off(&(end.saturating_add(1), 0));
            std::mem::replace(&mut waits.by_end, later)
        };
        for wait in confirmed.into_values() {
            wait.end(WaitEnd::Copied);
        }
    }
}

impl BrokerState {
    /// Everything in front of `physical_offset` is confirmed: consumers may see it, and those who sent
    /// it are answered. Never goes back.
    pub fn confirm(self: &Arc<Self>, physical_offset: i64) {
        self.store.confirm(physical_offset);
        self.confirm_waits.confirmed(physical_offset);
    }

    /// Ends `wait` once everything in front of `end` is confirmed.
    pub(crate) fn on_confirmed(&self, end: i64, wait: Wait) {
        self.confirm_waits.add(end, wait);
        // A confirmation between the append and the call above ended nothing.
        self.confirm_waits.confirmed(self.store.confirmed().0);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::flush_waits::FlushWaits;

    #[test]
    fn a_wait_ends_when_all_in_front_of_it_is_confirmed() {
        let (waits, timeouts) = (ConfirmWaits::default(), FlushWaits::new(Duration::from_secs(5)));
        let ended: Arc<Mutex<Vec<i64>>> = Arc::default();
        let add = |end: i64| {
            let ended = Arc::clone(&ended);
            let on_end = move |how| {
                assert!(matches!(how, WaitEnd::Copied));
                ended.lock().push(end);
            };
            waits.add(end, timeouts.add(Box::new(on_end)));
        };
        for end in [30, 10, 20, 20] {
            add(end);
        }
        waits.confirmed(9);
        assert!(ended.lock().is_empty());
        waits.confirmed(20);
        assert_eq!(*ended.lock(), [10, 20, 20]);
        waits.confirmed(i64::MAX);
        assert_eq!(*ended.lock(), [10, 20, 20, 30]);
    }
}
