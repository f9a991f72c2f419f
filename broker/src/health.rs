//! What the probes are told.
//!
//! Alive: the worker loop turns and the store's append path can heal by itself. Never peers: a
//! lost name server must not restart a broker. Ready: recovered, listening, writable, and known to
//! at least one name server, if there is any. Where the master is appointed also: seen in the in-sync
//! set since it started. One that falls behind later stays ready, since others count on it and cannot
//! help it; one that has not caught up yet must count as missing, or a drain would take the next one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rocketmq_remoting::monitoring::Health;
use rocketmq_store::Refusal;

use crate::clock::monotonic_ms;
use crate::replication::appointed::group::Group;
use crate::state::StateSlot;

/// A worker loop that did not turn for this long hangs.
const LOOP_STUCK_MS: u64 = 30_000;

/// The broker's health.
pub struct BrokerHealth {
    state: StateSlot,
    /// When the worker loop last turned, monotonic; 0 before the first time.
    loop_turned_ms: AtomicU64,
    /// Whether it was a member of its group's in-sync set at some look.
    has_joined: AtomicBool,
}

impl BrokerHealth {
    /// Health of the broker whose state will be in the slot.
    pub fn new(state: StateSlot) -> Arc<Self> {
        let (loop_turned_ms, has_joined) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Self { state, loop_turned_ms, has_joined })
    }

    /// The worker loop turns.
    pub fn loop_turned(&self) {
        self.loop_turned_ms.store(monotonic_ms().max(1), Ordering::Relaxed);
    }

    /// A member has everything that was acknowledged, whether its master can be reached or not. A learner
    /// never becomes one.
    fn has_joined(&self, group: &Group, is_learner: bool) -> bool {
        if self.has_joined.load(Ordering::Relaxed) {
            return true;
        }
        let joined = is_learner || group.status().in_sync.contains(&group.settings.id);
        self.has_joined.store(joined, Ordering::Relaxed);
        joined
    }
}

impl Health for BrokerHealth {
    fn live(&self) -> Result<(), String> {
        let turned_ms = self.loop_turned_ms.load(Ordering::Relaxed);
        let silent_ms = monotonic_ms().saturating_sub(turned_ms);
        if turned_ms != 0 && silent_ms > LOOP_STUCK_MS {
            return Err(format!("the worker loop has not turned for {silent_ms} ms"));
        }
        match self.state.get() {
            Some(state) if !state.is_stopping() => match state.store.writable() {
                // Only opening the store again heals these; a full disk is no reason to restart.
                Err(refusal @ (Refusal::SyncFailed(_) | Refusal::WriteFailed(_))) => {
                    Err(refusal.to_string())
                }
                _ => Ok(()),
            },
            // Recovery may take long, and stopping may wait for requests; both are work.
            _ => Ok(()),
        }
    }

    fn ready(&self) -> Result<(), String> {
        let Some(state) = self.state.get() else {
            return Err("the broker recovers its store".to_owned());
        };
        if state.is_stopping() {
            return Err("the broker stops".to_owned());
        }
        if let Err(refusal) = state.store.writable() {
            return Err(format!("the store takes no message: {refusal}"));
        }
        if let Some(group) = &state.group
            && !self.has_joined(group, state.config.load().async_learner)
        {
            return Err("not in the in-sync set of its group since it started".to_owned());
        }
        let registration = &state.registration;
        if registration.has_name_servers() && registration.registered_at().is_empty() {
            let name_servers = state.config.load().namesrv_addr.clone();
            return Err(format!("not registered at any name server of {name_servers}"));
        }
        Ok(())
    }
}
