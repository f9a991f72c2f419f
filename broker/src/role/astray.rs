//! Clients that mean the master and have reached a slave.
//!
//! Where the master is appointed, all brokers of a group may advertise one address as master, which
//! leads to whoever is master; but a connection that was made earlier, or a moment too soon, leads to
//! where it led then. To close it is the way to make its client connect anew.

use rocketmq_protocol::header::pull::{PullMessageRequest, SYS_FLAG_COMMIT_OFFSET};

use crate::state::BrokerState;

impl BrokerState {
    /// Whether a sender's connection is to be closed after it was refused: it meant the master.
    pub fn is_sender_astray(&self) -> bool {
        self.role.is_slave() && self.store.shows_confirmed_only()
    }

    /// Whether a pull was meant for the master. Clients leave the flag away that commits an offset when
    /// they pull from a slave (`PullAPIWrapper.pullKernelImpl`). Without a master a slave serves all.
    pub fn is_pull_astray(&self, request: &PullMessageRequest<'_>) -> bool {
        self.is_sender_astray()
            && request.has_flag(SYS_FLAG_COMMIT_OFFSET)
            && self.replication.is_following()
    }
}
