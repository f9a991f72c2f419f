//! The bound on what all connections of one server keep of frames that have not arrived whole.
//!
//! A frame may have 16 MiB, and a peer may send all of it but the last byte. Without a common bound
//! a few thousand such peers take the machine's memory. Ordinary read buffers do not count: they are
//! small and their number is bounded by the number of connections.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Shared by the connections of one server.
#[derive(Debug)]
pub(crate) struct InputBudget {
    bytes_max: usize,
    used_bytes: AtomicUsize,
}

impl InputBudget {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, used_bytes: AtomicUsize::new(0) }
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Changes one connection's share from `share` to `wanted` bytes. False, and nothing changed,
    /// when the connections together would keep more than the bound; giving back always works.
    pub(crate) fn resize(&self, share: &mut usize, wanted: usize) -> bool {
        if wanted <= *share {
            self.used_bytes.fetch_sub(*share - wanted, Relaxed);
        } else {
            let more = wanted - *share;
            if self.used_bytes.fetch_add(more, Relaxed).saturating_add(more) > self.bytes_max {
                self.used_bytes.fetch_sub(more, Relaxed);
                return false;
            }
        }
        *share = wanted;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_the_bound_and_come_back() {
        let budget = InputBudget::new(100);
        let (mut one, mut two) = (0, 0);
        assert!(budget.resize(&mut one, 60));
        assert!(!budget.resize(&mut two, 41));
        assert_eq!(two, 0, "a refused share is not taken");
        assert!(budget.resize(&mut two, 40));
        assert!(budget.resize(&mut one, 0));
        assert!(budget.resize(&mut two, 100));
        assert_eq!(budget.used_bytes.load(Relaxed), 100);
    }
}
