//! How a broker becomes a member of its group at the start.

use std::sync::Arc;

use rocketmq_protocol::config::ConfigError;
use rocketmq_replication::{MasterAddresses, Output};
use rocketmq_store::Store;
use tokio::runtime::Builder;
use tokio::sync::mpsc::UnboundedReceiver;
use tracing::info;

use super::driver::{Driver, Keeper};
use super::epoch_file::EpochFile;
use super::group::Group;
use super::stream::group_mark;
use crate::config::{BrokerConfig, CoordinatorKind};
use crate::coordinator::{self, Coordination, LeaseRecord, Timing};
use crate::error::StartError;
use crate::role::{Addresses, Names};
use crate::state::BrokerState;

/// What is known of a membership before the store is open.
pub(crate) struct Membership {
    keeper: Keeper,
    timing: Timing,
    /// Where the group's others find this broker; empty if nothing else than for clients.
    host: String,
}

/// A membership between the making of the group and its first step.
pub(crate) struct Joining {
    membership: Membership,
    wanted: UnboundedReceiver<Output>,
}

impl Membership {
    /// The membership that the configuration asks for, if any; `given` stands for the keeper that it
    /// names.
    ///
    /// # Errors
    /// When the broker's place in the group is not said, or the record's keeper is not configured.
    pub(crate) fn of(
        config: &BrokerConfig,
        given: Option<Coordination>,
    ) -> Result<Option<Membership>, StartError> {
        if config.coordinator == CoordinatorKind::Static {
            return Ok(None);
        }
        coordinator::replica_id(config)?;
        let host =
            coordinator::replica_host(&config.replica_host, |name| std::env::var(name).ok())?;
        let lease = match config.coordinator_lease.trim() {
            "" => config.broker_name.clone(),
            name => name.to_owned(),
        };
        let (keeper, timing) = match given {
            Some(Coordination { coordinator, timing }) => (Keeper::Given(coordinator), timing),
            None => {
                let timing = Timing::of(config);
                let runtime = Builder::new_current_thread().enable_all().build();
                let runtime = runtime.map_err(StartError::system("start a runtime"))?;
                let config = Box::new(runtime.block_on(LeaseRecord::configuration(timing))?);
                (Keeper::Lease { name: lease, config }, timing)
            }
        };
        Ok(Some(Membership { keeper, timing, host }))
    }

    /// Where the group's others find this broker; none if nothing is said.
    pub(crate) fn host(&self) -> Option<&str> {
        Some(self.host.as_str()).filter(|host| !host.is_empty())
    }

    /// Opens what is on disk for it. From then on the store shows what is confirmed, and nothing else.
    ///
    /// # Errors
    /// When the epoch file is damaged, or the checkpoint cannot be written.
    pub(crate) fn open(config: &BrokerConfig, store: &Store) -> Result<EpochFile, StartError> {
        let log_end = store.written().0;
        let epochs = EpochFile::open(config.epoch_file(), log_end)?;
        let confirmed = store.show_confirmed_only()?.0;
        let epoch = epochs.table().last().map(|last| last.epoch.0);
        info!(log_end, confirmed, epoch, "member of a group whose master is appointed");
        Ok(epochs)
    }

    /// Makes the group's member.
    ///
    /// # Errors
    /// When the broker's place in the group is not said.
    pub(crate) fn group(
        self,
        config: &BrokerConfig,
        own: &Addresses,
        epochs: EpochFile,
        log_end: i64,
    ) -> Result<(Group, Joining), ConfigError> {
        let addresses = MasterAddresses { broker: own.broker.clone(), ha: own.ha.clone() };
        let settings = coordinator::settings(config, self.timing, addresses)?;
        let mark = group_mark(&config.broker_cluster_name, &config.broker_name);
        let (group, wanted) = Group::new(settings, mark, epochs, log_end);
        Ok((group, Joining { membership: self, wanted }))
    }
}

/// How a member is known: as master where clients look for the group, as slave where it is itself.
pub(crate) fn names(group: &Group, as_master: String, own: &Addresses) -> Names {
    Names {
        slave_id: group.settings.id.0,
        as_master: Addresses { broker: as_master, ha: own.ha.clone() },
        as_slave: own.clone(),
    }
}

impl Joining {
    /// Begins to follow, and to serve when that is asked for.
    ///
    /// # Errors
    /// When the keeper's configuration makes no client, or the system has no thread to give.
    pub(crate) fn start(
        self,
        state: &Arc<BrokerState>,
        group: &Arc<Group>,
    ) -> Result<Driver, StartError> {
        let Membership { keeper, timing, .. } = self.membership;
        Driver::start(state, group, self.wanted, keeper, timing)
    }
}
