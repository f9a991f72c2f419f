//! The replicated state: every broker group with its replicas, master and sync state set
//! (`ReplicasInfoManager`), and the commands that change it.
//!
//! A command holds everything that its outcome depends on beside the state: the time never, but who
//! lived when the leader asked, and whether unclean elections were allowed then. So each controller that
//! applies the log comes to the same state. Who lives is judged by the leader alone ([`crate::liveness`]).
//!
//! Beyond RocketMQ: a group that lost every member of its set by CLEAN_BROKER_DATA stays known, with an
//! empty set, so that nobody is elected who lacks messages; sizes are bounded.

mod apply;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use rocketmq_protocol::code::ResponseCode;
use serde::{Deserialize, Serialize};

use crate::election::Alive;

/// The id of the first broker of a group (`FIRST_BROKER_CONTROLLER_ID`).
pub const FIRST_BROKER_ID: i64 = 1;
/// Broker groups that may be known.
pub const GROUPS_MAX: usize = 10_000;
/// Replicas of one group.
pub const REPLICAS_MAX: usize = 256;
/// Bytes of a name, an address or a check code.
pub const TEXT_BYTES_MAX: usize = 1024;

/// Everything that the controllers agree on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Groups {
    groups: BTreeMap<String, Group>,
}

/// A broker group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The cluster it was first registered in.
    pub cluster: String,
    /// By broker id.
    pub replicas: BTreeMap<i64, Replica>,
    /// The lowest id that nobody was given yet.
    pub next_broker_id: i64,
    /// The master, if there is one. Always in the set.
    pub master: Option<i64>,
    /// How often the master changed, also to nobody; 0 before the first election.
    pub master_epoch: i32,
    /// The replicas that have every acknowledged message.
    pub sync_state_set: BTreeSet<i64>,
    /// How often the set changed.
    pub sync_state_set_epoch: i32,
}

/// A broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    /// Where clients reach it, as `host:port`.
    pub address: String,
    /// By which it may ask for its id again.
    pub register_check_code: String,
}

impl Group {
    fn new(cluster: String) -> Self {
        Self {
            cluster,
            replicas: BTreeMap::new(),
            next_broker_id: FIRST_BROKER_ID,
            master: None,
            master_epoch: 0,
            sync_state_set: BTreeSet::new(),
            sync_state_set_epoch: 0,
        }
    }

    /// The address of a replica.
    pub fn address(&self, id: i64) -> Option<&str> {
        self.replicas.get(&id).map(|replica| replica.address.as_str())
    }

    /// The master's address.
    pub fn master_address(&self) -> Option<&str> {
        self.address(self.master?)
    }

    fn set_master(&mut self, master: Option<i64>) {
        self.master = master;
        self.master_epoch = self.master_epoch.saturating_add(1);
    }

    fn set_sync_state_set(&mut self, set: BTreeSet<i64>) {
        self.sync_state_set = set;
        self.sync_state_set_epoch = self.sync_state_set_epoch.saturating_add(1);
    }

    fn mastership(&self, broker_name: &str) -> Mastership {
        Mastership {
            cluster: self.cluster.clone(),
            broker_name: broker_name.to_owned(),
            master: self.master,
            master_address: self.master_address().map(str::to_owned),
            master_epoch: self.master_epoch,
            sync_state_set: self.sync_state_set.clone(),
            sync_state_set_epoch: self.sync_state_set_epoch,
        }
    }
}

/// Something that changes the state. One entry of the Raft log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// A master asks for another sync state set.
    AlterSyncStateSet {
        /// The group.
        broker_name: String,
        /// The master.
        master: i64,
        /// The epoch it is master of.
        master_epoch: i32,
        /// The set it wants.
        set: BTreeSet<i64>,
        /// The epoch of the set it wants to replace.
        set_epoch: i32,
        /// Who lives.
        alive: Alive,
    },
    /// A broker, an administrator or the leader wants an election.
    ElectMaster {
        /// The group.
        broker_name: String,
        /// Who asks; `None`: the leader, because the master is gone.
        broker_id: Option<i64>,
        /// Whether the one named shall be master.
        designate: bool,
        /// Who lives.
        alive: Alive,
        /// Whether, without a live member of the set, any replica may become master.
        unclean: bool,
    },
    /// A broker takes an id.
    ApplyBrokerId {
        /// Its cluster.
        cluster: String,
        /// Its group.
        broker_name: String,
        /// The id.
        broker_id: i64,
        /// `host:port;` and its mark.
        register_check_code: String,
    },
    /// A broker with an id is there, perhaps at another address.
    RegisterBroker {
        /// Its group.
        broker_name: String,
        /// Its id.
        broker_id: i64,
        /// Its address.
        address: String,
        /// Who lives.
        alive: Alive,
    },
    /// An administrator wants brokers to be forgotten.
    CleanBrokerData {
        /// The group.
        broker_name: String,
        /// Which, separated by `;`; empty: the whole group.
        ids: String,
        /// Whether they may live.
        living_too: bool,
        /// Who lives.
        alive: Alive,
    },
}

impl Command {
    /// Looks whether it is small enough for the log, which has refused commands too.
    ///
    /// # Errors
    /// The field that is too long.
    pub fn check(&self) -> Result<(), Refusal> {
        let (name, texts) = match self {
            Self::AlterSyncStateSet { broker_name, .. } | Self::ElectMaster { broker_name, .. } => {
                (broker_name, vec![])
            }
            Self::ApplyBrokerId { cluster, broker_name, register_check_code, .. } => {
                let code = ("registerCheckCode", register_check_code);
                (broker_name, vec![("clusterName", cluster), code])
            }
            Self::RegisterBroker { broker_name, address, .. } => {
                (broker_name, vec![("brokerAddress", address)])
            }
            Self::CleanBrokerData { broker_name, ids, .. } => {
                (broker_name, vec![("brokerControllerIdsToClean", ids)])
            }
        };
        let refused = |what: String| {
            let code = ResponseCode::CONTROLLER_INVALID_REQUEST;
            Err(Refusal::new(code, what))
        };
        for (field, text) in texts.into_iter().chain([("brokerName", name)]) {
            let bytes = text.len();
            if bytes > TEXT_BYTES_MAX {
                return refused(format!("{field} has {bytes} bytes, {TEXT_BYTES_MAX} are allowed"));
            }
        }
        match self {
            Self::AlterSyncStateSet { set, .. } if set.len() > REPLICAS_MAX => refused(format!(
                "syncStateSet names {} brokers, {REPLICAS_MAX} are allowed",
                set.len()
            )),
            _ => Ok(()),
        }
    }
}

/// Who is master of a group, and who is in its set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mastership {
    /// The cluster.
    pub cluster: String,
    /// The group.
    pub broker_name: String,
    /// The master.
    pub master: Option<i64>,
    /// Its address.
    pub master_address: Option<String>,
    /// The newest epoch.
    pub master_epoch: i32,
    /// The set.
    pub sync_state_set: BTreeSet<i64>,
    /// How often it changed.
    pub sync_state_set_epoch: i32,
}

/// What came of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Applied {
    /// An entry of Raft's own, which is nobody's request.
    Nothing,
    /// The set was replaced.
    SetAltered {
        /// The new set.
        set: BTreeSet<i64>,
        /// Its epoch.
        epoch: i32,
    },
    /// Another master was elected. All replicas are to hear of it.
    Elected {
        /// The new state.
        now: Mastership,
        /// Address of each replica.
        members: BTreeMap<i64, String>,
    },
    /// The old master stays; nothing was changed.
    MasterStays {
        /// The state.
        now: Mastership,
        /// Says so.
        remark: String,
    },
    /// The id is the broker's.
    IdTaken,
    /// The broker is registered.
    Registered {
        /// The state; without a master if it does not live.
        now: Mastership,
    },
    /// The brokers are forgotten.
    Cleaned,
    /// Nothing was done, or (for an election by the leader) no master was found.
    Refused(Refusal),
}

/// Why a request is refused, in RocketMQ's words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// RocketMQ's response code.
    pub code: i32,
    /// For people.
    pub remark: String,
}

impl Refusal {
    pub(crate) fn new(code: ResponseCode, remark: impl Into<String>) -> Self {
        Self { code: code.0, remark: remark.into() }
    }
}

impl Groups {
    /// A group.
    pub fn get(&self, broker_name: &str) -> Option<&Group> {
        self.groups.get(broker_name)
    }

    /// All groups by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Group)> {
        self.groups.iter().map(|(name, group)| (name.as_str(), group))
    }

    /// The id that the next new broker of a group is to take.
    pub fn next_broker_id(&self, broker_name: &str) -> i64 {
        self.get(broker_name).map_or(FIRST_BROKER_ID, |group| group.next_broker_id)
    }

    /// Who is master of a group.
    ///
    /// # Errors
    /// The group is not known.
    pub fn mastership(&self, broker_name: &str) -> Result<Mastership, Refusal> {
        self.get(broker_name).map(|group| group.mastership(broker_name)).ok_or_else(|| {
            let code = ResponseCode::CONTROLLER_BROKER_METADATA_NOT_EXIST;
            Refusal::new(code, "Broker metadata is not existed")
        })
    }

    /// Does what a command asks for, or says why not.
    pub fn apply(&mut self, command: &Command) -> Applied {
        let applied = match command {
            Command::AlterSyncStateSet {
                broker_name,
                master,
                master_epoch,
                set,
                set_epoch,
                alive,
            } => apply::alter_set(
                self.groups.get_mut(broker_name),
                (*master, *master_epoch),
                (set, *set_epoch),
                alive,
            ),
            Command::ElectMaster { broker_name, broker_id, designate, alive, unclean } => {
                let group = self.groups.get_mut(broker_name);
                let broker_id = broker_id.filter(|id| *id != -1);
                apply::elect(group, broker_name, broker_id, *designate, alive, *unclean)
            }
            Command::ApplyBrokerId { cluster, broker_name, broker_id, register_check_code } => {
                self.take_id(cluster, broker_name, *broker_id, register_check_code)
            }
            Command::RegisterBroker { broker_name, broker_id, address, alive } => {
                let group = self.groups.get_mut(broker_name);
                apply::register(group, broker_name, *broker_id, address, alive)
            }
            Command::CleanBrokerData { broker_name, ids, living_too, alive } => {
                self.clean(broker_name, ids, *living_too, alive)
            }
        };
        applied.unwrap_or_else(Applied::Refused)
    }
}
