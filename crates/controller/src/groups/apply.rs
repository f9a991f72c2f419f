//! What each command does. The order of the checks and the texts are RocketMQ's: brokers and tools
//! act on the codes, people know the texts.

use std::collections::BTreeSet;

use rocketmq_protocol::code::ResponseCode;

use super::{Applied, FIRST_BROKER_ID, GROUPS_MAX, Group, Groups, REPLICAS_MAX, Refusal, Replica};
use crate::election::{self, Alive};

type Outcome = Result<Applied, Refusal>;

fn refuse(code: ResponseCode, remark: impl Into<String>) -> Outcome {
    Err(Refusal::new(code, remark))
}

/// Java's text of a number that may be null.
fn text(id: Option<i64>) -> String {
    id.map_or_else(|| "null".to_owned(), |id| id.to_string())
}

pub(super) fn alter_set(
    group: Option<&mut Group>,
    (master, master_epoch): (i64, i32),
    (set, set_epoch): (&BTreeSet<i64>, i32),
    alive: &Alive,
) -> Outcome {
    const FAILED: ResponseCode = ResponseCode::CONTROLLER_ALTER_SYNC_STATE_SET_FAILED;
    let rejected = |code, why: String| {
        refuse(code, format!("Rejecting alter syncStateSet request because the {why}"))
    };
    let Some(group) = group else {
        return refuse(FAILED, "Broker metadata is not existed");
    };
    if *set == group.sync_state_set {
        let same = "The newSyncStateSet is equal with oldSyncStateSet, no needed to update \
                    syncStateSet";
        return refuse(FAILED, same);
    }
    if group.master != Some(master) {
        let why = format!("current leader is:{{{}}}, not {{{master}}}", text(group.master));
        return rejected(ResponseCode::CONTROLLER_INVALID_MASTER, why);
    }
    if group.master_epoch != master_epoch {
        let why =
            format!("current master epoch is:{{{}}}, not {{{master_epoch}}}", group.master_epoch);
        return rejected(ResponseCode::CONTROLLER_FENCED_MASTER_EPOCH, why);
    }
    if group.sync_state_set_epoch != set_epoch {
        let current = group.sync_state_set_epoch;
        let why = format!("current syncStateSet epoch is:{{{current}}}, not {{{set_epoch}}}");
        return rejected(ResponseCode::CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, why);
    }
    for id in set {
        if !group.replicas.contains_key(id) {
            let why = format!("replicas {{{id}}} don't exist");
            return rejected(ResponseCode::CONTROLLER_INVALID_REPLICAS, why);
        }
        if !alive.contains_key(id) {
            let why = format!("replicas {{{id}}} don't alive");
            return rejected(ResponseCode::CONTROLLER_BROKER_NOT_ALIVE, why);
        }
    }
    if !set.contains(&master) {
        let why = format!("newSyncStateSet don't contains origin leader {{{master}}}");
        return rejected(FAILED, why);
    }
    group.set_sync_state_set(set.clone());
    Ok(Applied::SetAltered { set: set.clone(), epoch: group.sync_state_set_epoch })
}

pub(super) fn elect(
    group: Option<&mut Group>,
    broker_name: &str,
    broker_id: Option<i64>,
    designate: bool,
    alive: &Alive,
    unclean: bool,
) -> Outcome {
    let unregistered = |what: &str| {
        let code = ResponseCode::CONTROLLER_BROKER_NEED_TO_BE_REGISTERED;
        refuse(code, format!("{what} hasn't been registered"))
    };
    let Some(group) = group else {
        return unregistered("Broker");
    };
    // RocketMQ would take whoever asks first, known or not.
    if let Some(id) = broker_id.filter(|id| !group.replicas.contains_key(id)) {
        return unregistered(&format!("Broker {broker_name} with brokerId {id}"));
    }
    let first = broker_id.filter(|_| group.master_epoch == 0);
    let elected = first.or_else(|| {
        let all: Option<BTreeSet<i64>> = unclean.then(|| group.replicas.keys().copied().collect());
        let preferred = broker_id.filter(|_| designate);
        election::elect(&group.sync_state_set, all.as_ref(), alive, group.master, preferred)
    });
    match elected {
        Some(id) if group.master == Some(id) => Ok(Applied::MasterStays {
            now: group.mastership(broker_name),
            remark: format!(
                "The old master {id} is still alive, not need to elect new master for broker \
                 {broker_name}"
            ),
        }),
        Some(id) => {
            group.set_master(Some(id));
            group.set_sync_state_set(BTreeSet::from([id]));
            let address = |(id, replica): (&i64, &Replica)| (*id, replica.address.clone());
            let members = group.replicas.iter().map(address).collect();
            Ok(Applied::Elected { now: group.mastership(broker_name), members })
        }
        // The leader found the master gone: nobody is master until somebody qualifies. The set stays.
        None if broker_id.is_none() => {
            if group.master.is_some() {
                group.set_master(None);
            }
            let code = ResponseCode::CONTROLLER_MASTER_NOT_AVAILABLE;
            refuse(code, "Old master has down and failed to elect a new broker master")
        }
        None => {
            let code = ResponseCode::CONTROLLER_ELECT_MASTER_FAILED;
            refuse(code, "Failed to elect a new master")
        }
    }
}

pub(super) fn register(
    group: Option<&mut Group>,
    broker_name: &str,
    broker_id: i64,
    address: &str,
    alive: &Alive,
) -> Outcome {
    let unregistered = |what: String| {
        let code = ResponseCode::CONTROLLER_BROKER_NEED_TO_BE_REGISTERED;
        refuse(code, what)
    };
    let Some(group) = group else {
        return unregistered(format!(
            "Broker-set: {broker_name} hasn't been registered in controller"
        ));
    };
    let Some(replica) = group.replicas.get_mut(&broker_id) else {
        return unregistered(format!(
            "BrokerId: {broker_id} hasn't been registered in broker-set: {broker_name}"
        ));
    };
    if address.is_empty() {
        return missing("brokerAddress");
    }
    if replica.address != address {
        address.clone_into(&mut replica.address);
    }
    let mut now = group.mastership(broker_name);
    if !now.master.is_some_and(|master| alive.contains_key(&master)) {
        (now.master, now.master_address) = (None, None);
    }
    Ok(Applied::Registered { now })
}

fn missing(field: &str) -> Outcome {
    refuse(ResponseCode::CONTROLLER_INVALID_REQUEST, format!("{field} is empty"))
}

impl Groups {
    pub(super) fn take_id(
        &mut self,
        cluster: &str,
        broker_name: &str,
        broker_id: i64,
        check_code: &str,
    ) -> Outcome {
        for (field, value) in [("brokerName", broker_name), ("registerCheckCode", check_code)] {
            if value.is_empty() {
                return missing(field);
            }
        }
        let not_valid = |why: String| refuse(ResponseCode::CONTROLLER_BROKER_ID_INVALID, why);
        if !self.groups.contains_key(broker_name) {
            if broker_id != FIRST_BROKER_ID {
                return not_valid(format!(
                    "Broker-set: {broker_name} hasn't been registered in controller, but broker try \
                     to apply brokerId: {broker_id}"
                ));
            }
            if self.groups.len() >= GROUPS_MAX {
                return not_valid(format!("{GROUPS_MAX} broker-sets are registered already"));
            }
        }
        let group = self
            .groups
            .entry(broker_name.to_owned())
            .or_insert_with(|| Group::new(cluster.to_owned()));
        let fail = || format!("Fail to apply brokerId: {broker_id} in broker-set: {broker_name}");
        match group.replicas.get(&broker_id) {
            Some(replica) if replica.register_check_code == check_code => {
                return Ok(Applied::IdTaken);
            }
            Some(_) => return not_valid(fail()),
            None => {}
        }
        // Ids begin at 1; RocketMQ would take any number, and run into it again later.
        if broker_id < FIRST_BROKER_ID || broker_id == i64::MAX {
            return not_valid(fail());
        }
        if group.replicas.len() >= REPLICAS_MAX {
            return not_valid(format!("{}: it has {REPLICAS_MAX} brokers already", fail()));
        }
        let address = check_code.split(';').next().unwrap_or_default().to_owned();
        let replica = Replica { address, register_check_code: check_code.to_owned() };
        group.replicas.insert(broker_id, replica);
        group.next_broker_id = group.next_broker_id.max(broker_id + 1);
        Ok(Applied::IdTaken)
    }

    pub(super) fn clean(
        &mut self,
        broker_name: &str,
        ids: &str,
        living_too: bool,
        alive: &Alive,
    ) -> Outcome {
        let not_valid =
            |why: String| refuse(ResponseCode::CONTROLLER_INVALID_CLEAN_BROKER_METADATA, why);
        let Some(group) = self.groups.get_mut(broker_name) else {
            return not_valid(format!(
                "Broker {broker_name} is not existed,clean broker data failure."
            ));
        };
        let ids = ids.trim();
        let parsed: Result<BTreeSet<i64>, _> = ids
            .split(';')
            .filter(|id| !id.trim().is_empty())
            .map(|id| id.trim().parse::<i64>())
            .collect();
        let Ok(ids) = parsed else {
            return not_valid(format!(
                "Please set the option <brokerControllerIdsToClean> according to the format, \
                 exception: `{ids}` is not a list of numbers like 1;2"
            ));
        };
        if !living_too {
            if ids.is_empty() && group.master.is_some() {
                return not_valid(format!("Broker {broker_name} is still alive, clean up failure"));
            }
            if let Some(id) = ids.iter().find(|id| alive.contains_key(id)) {
                return not_valid(format!(
                    "Broker [{broker_name},  {id}] is still alive, clean up failure"
                ));
            }
        }
        group.replicas.retain(|id, _| !ids.is_empty() && !ids.contains(id));
        if group.replicas.is_empty() {
            self.groups.remove(broker_name);
            return Ok(Applied::Cleaned);
        }
        if group.sync_state_set.iter().any(|id| ids.contains(id)) {
            let left = group.sync_state_set.difference(&ids).copied().collect();
            group.set_sync_state_set(left);
        }
        if group.master.is_some_and(|master| ids.contains(&master)) {
            group.set_master(None);
        }
        Ok(Applied::Cleaned)
    }
}
