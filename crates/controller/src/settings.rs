//! What may change while the controller runs, and who keeps it: the program whose configuration file
//! has the controller's keys.

use std::time::Duration;

use rocketmq_protocol::code::ResponseCode;

/// The settings that are read anew each time they matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunables {
    /// Whether, without a live member of the set, any replica may become master
    /// (`enableElectUncleanMaster`).
    pub unclean_elections: bool,
    /// Whether brokers are told of a new master (`notifyBrokerRoleChanged`); they ask every few
    /// seconds anyway.
    pub notify_brokers: bool,
    /// How often an election that did not reach a majority of the controllers is tried again at once
    /// (`electMasterMaxRetryCount`).
    pub election_attempts: u32,
    /// Time between two searches for silent brokers and for groups whose master is gone
    /// (`scanNotActiveBrokerInterval`, `scanInactiveMasterInterval`).
    pub scan_interval: Duration,
}

/// Why a change of the configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpdateRefused {
    /// RocketMQ's response code.
    pub code: ResponseCode,
    /// Names the key and what is allowed.
    pub remark: String,
}

/// The configuration as the controller's requests see it.
pub trait Settings: Send + Sync + 'static {
    /// What counts now.
    fn tunables(&self) -> Tunables;

    /// `key=value` lines of every key of the controller (GET_CONTROLLER_CONFIG).
    fn text(&self) -> String;

    /// Takes properties text, all of it or nothing, and writes it to the configuration file
    /// (UPDATE_CONTROLLER_CONFIG). May wait for the disk.
    ///
    /// # Errors
    /// The key that cannot be changed, or the file that cannot be written.
    fn update(&self, text: &[u8]) -> Result<(), UpdateRefused>;
}
