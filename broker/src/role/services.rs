//! What a broker does by itself in one role and not in the other: a master delivers delayed messages
//! and asks about transactions, a slave copies topics, groups and offsets, and forwards what was meant
//! for the master that it was.

use std::io;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use super::forward::forward;
use crate::delay::Delivery;
use crate::replication;
use crate::state::BrokerState;
use crate::transaction::CheckService;

/// What runs.
#[derive(Default)]
pub struct Services {
    running: Mutex<Running>,
    /// Whether what a master said of topics, groups and offsets may still be taken over. Held while it
    /// is.
    may_copy_metadata: Mutex<bool>,
}

/// The work of one role; for who holds the lock.
#[derive(Default)]
pub(super) struct Running {
    delivery: Option<Delivery>,
    checks: Option<CheckService>,
    following: Option<CancellationToken>,
    is_ended: bool,
}

impl Services {
    /// Takes the right to switch: one at a time does.
    pub(super) fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock()
    }

    /// Begins the work of the role that the broker has.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn start(&self, state: &Arc<BrokerState>) -> io::Result<()> {
        let mut running = self.lock();
        if state.role.is_master() {
            running.start_master(state)
        } else {
            self.allow_metadata(true);
            running.start_slave(state);
            Ok(())
        }
    }

    /// Ends all for good and waits for it. What was delivered and decided is noted.
    pub fn end(&self) {
        let mut running = self.lock();
        running.is_ended = true;
        running.end_master();
        running.end_slave();
        self.allow_metadata(false);
    }

    /// Allows or forbids that metadata of a master is taken over; when forbidden, none is any more once
    /// this returns.
    pub(super) fn allow_metadata(&self, allowed: bool) {
        *self.may_copy_metadata.lock() = allowed;
    }

    /// Takes over what a master said, unless that is forbidden by now.
    pub fn take_metadata<T>(&self, take: impl FnOnce() -> T) -> Option<T> {
        let allowed = self.may_copy_metadata.lock();
        allowed.then(take)
    }
}

impl Running {
    /// Whether the broker has stopped its work.
    pub(super) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Begins what a master does.
    ///
    /// # Errors
    /// When the system has no thread to give; nothing of it runs then.
    pub(super) fn start_master(&mut self, state: &Arc<BrokerState>) -> io::Result<()> {
        self.end_master();
        let delivery = Delivery::start(state)?;
        match CheckService::start(state) {
            Ok(checks) => {
                self.delivery = Some(delivery);
                self.checks = Some(checks);
                Ok(())
            }
            Err(error) => {
                delivery.end();
                Err(error)
            }
        }
    }

    /// Ends what a master does, and waits for it.
    pub(super) fn end_master(&mut self) {
        if let Some(delivery) = self.delivery.take() {
            delivery.end();
        }
        if let Some(checks) = self.checks.take() {
            checks.end();
        }
    }

    /// Begins what a slave does.
    pub(super) fn start_slave(&mut self, state: &Arc<BrokerState>) {
        self.end_slave();
        let stop = CancellationToken::new();
        self.following = Some(stop.clone());
        let following = Arc::clone(state);
        state.runtime.spawn(async move {
            tokio::select! {
                () = replication::follow_metadata(&following) => {}
                () = forward(&following) => {}
                () = stop.cancelled() => {}
            }
        });
    }

    /// Ends what a slave does.
    pub(super) fn end_slave(&mut self) {
        if let Some(stop) = self.following.take() {
            stop.cancel();
        }
    }
}
