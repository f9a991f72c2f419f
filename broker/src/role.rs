//! What this broker is now: master or slave, under which id and addresses, and whether it may
//! acknowledge.
//!
//! Owns the answer, not the decision. With the classic roles it is what `brokerRole` and `brokerId` say
//! and never changes. Where the master is appointed, whoever knows the group's record switches it by
//! [`BrokerState::become_master`](crate::state::BrokerState::become_master) and its like, and leaves a
//! [gate](AcknowledgeGate) that is asked before each acknowledgement. The order of a switch is in
//! `switch`.

mod astray;
mod forward;
pub mod held_sends;
pub mod services;
mod switch;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use rocketmq_protocol::code::ResponseCode;
use rocketmq_replication::FencedBy;

use crate::config::{BrokerConfig, BrokerRole};

pub use switch::SwitchError;

/// Master or slave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Takes messages in.
    Master {
        /// In which epoch; 0 with the classic roles.
        epoch: i64,
    },
    /// Copies a master, or waits for one.
    Slave,
}

/// Where clients and other brokers of the group find this one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// `host:port` for requests.
    pub broker: String,
    /// `host:port` of the HA port.
    pub ha: String,
}

/// How the broker is known in each role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The `brokerId` of a registration as slave, 1 and up; a master has 0.
    pub slave_id: i64,
    /// Where it is found as master. Several brokers may advertise the same address here: that of
    /// whoever is master.
    pub as_master: Addresses,
    /// Where it is found as slave; its own alone.
    pub as_slave: Addresses,
}

/// What the broker is known as now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its role.
    pub role: Role,
    /// The `brokerId` of its registration.
    pub broker_id: i64,
    /// Where it is found.
    pub addresses: Addresses,
    /// The newest epoch that it was master in or heard of; the state version of its registration.
    pub epoch: i64,
}

/// Who says whether messages may be acknowledged.
pub trait AcknowledgeGate: Send + Sync {
    /// Asked after flush and copies, right before the answer: a process that was frozen meanwhile must
    /// not acknowledge late. Called often, on I/O threads; it must not block.
    ///
    /// # Errors
    /// Why not. The sender is told that its message was not taken.
    fn may_acknowledge(&self) -> Result<(), FencedBy>;
}

/// The role of this broker.
pub struct RoleCell {
    standing: ArcSwap<Standing>,
    names: Mutex<Names>,
    /// Why it takes no messages though it is master.
    fence: ArcSwapOption<FencedBy>,
    /// Whether it takes messages: a master without a fence. For the hot path.
    is_open: AtomicBool,
    gate: OnceLock<Arc<dyn AcknowledgeGate>>,
}

impl RoleCell {
    /// A broker with these names that begins as `role`.
    pub fn new(names: Names, role: Role) -> RoleCell {
        RoleCell {
            standing: ArcSwap::from_pointee(standing(&names, role, 0)),
            names: Mutex::new(names),
            fence: ArcSwapOption::empty(),
            is_open: AtomicBool::new(matches!(role, Role::Master { .. })),
            gate: OnceLock::new(),
        }
    }

    /// The role and id that the configuration fixes, under one address.
    pub fn of_config(config: &BrokerConfig, addresses: Addresses) -> RoleCell {
        let role = match config.broker_role {
            BrokerRole::Slave => Role::Slave,
            BrokerRole::AsyncMaster | BrokerRole::SyncMaster => Role::Master { epoch: 0 },
        };
        let as_slave = addresses.clone();
        RoleCell::new(Names { slave_id: config.broker_id, as_master: addresses, as_slave }, role)
    }

    /// What the broker is known as now.
    pub fn standing(&self) -> Arc<Standing> {
        self.standing.load_full()
    }

    /// Its role.
    pub fn role(&self) -> Role {
        self.standing.load().role
    }

    /// Whether it is a master.
    pub fn is_master(&self) -> bool {
        matches!(self.role(), Role::Master { .. })
    }

    /// Whether it is a slave.
    pub fn is_slave(&self) -> bool {
        !self.is_master()
    }

    /// Sets how it is known; what it is known as changes with it.
    pub fn set_names(&self, names: Names) {
        let mut current = self.names.lock();
        let old = self.standing();
        self.standing.store(Arc::new(standing(&names, old.role, old.epoch)));
        *current = names;
    }

    /// Notes a newer epoch of the group.
    pub fn heard_of_epoch(&self, epoch: i64) {
        let names = self.names.lock();
        let old = self.standing();
        if old.epoch < epoch {
            self.standing.store(Arc::new(standing(&names, old.role, epoch)));
        }
    }

    fn set_role(&self, role: Role) {
        let names = self.names.lock();
        let epoch = match role {
            Role::Master { epoch } => epoch,
            Role::Slave => 0,
        };
        let epoch = epoch.max(self.standing().epoch);
        self.standing.store(Arc::new(standing(&names, role, epoch)));
        self.is_open.store(self.is_master() && self.fence().is_none(), Ordering::Release);
    }

    /// Why it takes no messages though it is master, if so.
    pub fn fence(&self) -> Option<FencedBy> {
        self.fence.load().as_deref().copied()
    }

    fn set_fence(&self, fence: Option<FencedBy>) {
        let _names = self.names.lock();
        self.fence.store(fence.map(Arc::new));
        self.is_open.store(self.is_master() && fence.is_none(), Ordering::Release);
    }

    /// Sets who is asked before each acknowledgement. The first one stays; without one a master
    /// acknowledges.
    pub fn set_gate(&self, gate: Arc<dyn AcknowledgeGate>) {
        self.gate.get_or_init(|| gate);
    }

    /// Whether a message may be acknowledged now.
    ///
    /// # Errors
    /// Why not.
    pub fn may_acknowledge(&self) -> Result<(), FencedBy> {
        if self.is_slave() {
            return Err(FencedBy::Role);
        }
        self.gate.get().map_or(Ok(()), |gate| gate.may_acknowledge())
    }

    /// Whether messages are taken in now.
    ///
    /// # Errors
    /// What a sender is told.
    pub fn takes_messages(&self) -> Result<(), (ResponseCode, &'static str)> {
        if self.is_open.load(Ordering::Acquire) {
            return Ok(());
        }
        let fenced = self.fence().filter(|_| self.is_master());
        Err(refusal(fenced.unwrap_or(FencedBy::Role)))
    }
}

fn standing(names: &Names, role: Role, epoch: i64) -> Standing {
    let (broker_id, addresses) = match role {
        Role::Master { .. } => (0, &names.as_master),
        Role::Slave => (names.slave_id, &names.as_slave),
    };
    Standing { role, broker_id, addresses: addresses.clone(), epoch }
}

/// What a sender is told. Producers try again with each of these codes, at another broker if there is
/// one.
pub fn refusal(fenced: FencedBy) -> (ResponseCode, &'static str) {
    match fenced {
        FencedBy::Role => (
            ResponseCode::SERVICE_NOT_AVAILABLE,
            "this broker is a slave; messages are put to the master",
        ),
        FencedBy::Lease => {
            (ResponseCode::SERVICE_NOT_AVAILABLE, "this broker's lease on being master has run out")
        }
        // As the Java broker says it (IN_SYNC_REPLICAS_NOT_ENOUGH).
        FencedBy::InSyncSet => {
            (ResponseCode::SYSTEM_ERROR, "in-sync replicas not enough (minInSyncReplicas)")
        }
        FencedBy::Handover => (
            ResponseCode::SERVICE_NOT_AVAILABLE,
            "this broker hands over to another one of its group",
        ),
        FencedBy::Administrator => {
            (ResponseCode::SERVICE_NOT_AVAILABLE, "this broker was fenced by an administrator")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell() -> RoleCell {
        let at = |host: &str| Addresses { broker: format!("{host}:1"), ha: format!("{host}:2") };
        let names = Names { slave_id: 3, as_master: at("group"), as_slave: at("pod") };
        RoleCell::new(names, Role::Slave)
    }

    #[test]
    fn id_and_addresses_go_with_the_role() {
        let cell = cell();
        let standing = cell.standing();
        assert_eq!((standing.broker_id, &*standing.addresses.broker), (3, "pod:1"));
        cell.set_role(Role::Master { epoch: 7 });
        let standing = cell.standing();
        assert_eq!((standing.broker_id, &*standing.addresses.broker), (0, "group:1"));
        assert_eq!(standing.epoch, 7);
        cell.set_role(Role::Slave);
        cell.heard_of_epoch(6);
        assert_eq!(cell.standing().epoch, 7, "it never goes back");
        cell.heard_of_epoch(8);
        assert_eq!((cell.standing().epoch, cell.role()), (8, Role::Slave));
    }

    #[test]
    fn the_gate_is_asked_of_a_master_alone() {
        struct Closed;
        impl AcknowledgeGate for Closed {
            fn may_acknowledge(&self) -> Result<(), FencedBy> {
                Err(FencedBy::Lease)
            }
        }
        let cell = cell();
        assert_eq!(cell.may_acknowledge(), Err(FencedBy::Role));
        cell.set_role(Role::Master { epoch: 1 });
        assert_eq!(cell.may_acknowledge(), Ok(()));
        cell.set_gate(Arc::new(Closed));
        assert_eq!(cell.may_acknowledge(), Err(FencedBy::Lease));
        assert!(cell.takes_messages().is_ok(), "acknowledging is another matter");
        cell.set_fence(Some(FencedBy::InSyncSet));
        assert_eq!(cell.takes_messages().unwrap_err().0, ResponseCode::SYSTEM_ERROR);
    }
}
