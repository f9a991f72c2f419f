//! Who must have a message, besides this broker, before it counts as stored.

use crate::config::{BrokerConfig, BrokerRole};
use crate::flush_waits::Wait;
use crate::state::BrokerState;

/// Whose copies are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::handler) enum Copies {
    /// Nobody's.
    None,
    /// Those of so many slaves, whichever.
    Slaves(usize),
    /// Those of the whole in-sync set: what is confirmed.
    InSyncSet,
}

impl Copies {
    /// With SYNC_MASTER as many as `inSyncReplicas` asks for besides the master; with 1, the default,
    /// RocketMQ does not wait either. Where the master is appointed, those of the in-sync set.
    pub(in crate::handler) fn waited_for(state: &BrokerState, config: &BrokerConfig) -> Copies {
        match config.broker_role {
            BrokerRole::AsyncMaster | BrokerRole::Slave => Copies::None,
            BrokerRole::SyncMaster if state.store.shows_confirmed_only() => Copies::InSyncSet,
            BrokerRole::SyncMaster => match usize::try_from(config.in_sync_replicas - 1) {
                Ok(slaves) if slaves > 0 => Copies::Slaves(slaves),
                _ => Copies::None,
            },
        }
    }

    /// Ends `wait` once they have everything in front of `end`. Nothing ends it where nobody is waited
    /// for.
    pub(in crate::handler) fn on_copied(self, state: &BrokerState, end: i64, wait: Wait) {
        match self {
            Copies::None => {}
            Copies::Slaves(slaves) => state.replication.on_copied(end, slaves, wait),
            Copies::InSyncSet => state.on_confirmed(end, wait),
        }
    }
}
