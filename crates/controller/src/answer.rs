//! RocketMQ's answers from what came of commands and questions.

use std::collections::BTreeMap;

use rocketmq_protocol::body::controller::{
    BrokerReplicasInfo, ElectMasterResponseBody, ReplicaIdentity, ReplicasInfo, SyncStateSet,
};
use rocketmq_protocol::body::route::BrokerMemberGroup;
use rocketmq_protocol::code::ResponseCode;
use rocketmq_protocol::header::controller::{
    AlterSyncStateSetResponse, ApplyBrokerIdResponse, ElectMasterResponse, GetReplicaInfoResponse,
    RegisterBrokerToControllerResponse,
};
use rocketmq_protocol::response::Response;

use crate::election::Alive;
use crate::groups::{Applied, Group, Mastership, Refusal};

/// The answer to a request that was a command.
pub(crate) fn of_command(cluster: &str, broker_name: &str, applied: &Applied) -> Response {
    match applied {
        Applied::Nothing | Applied::Cleaned => Response::ok(),
        Applied::SetAltered { set, epoch } => Response::ok()
            .with_header(&AlterSyncStateSetResponse { new_sync_state_set_epoch: Some(*epoch) })
            .with_json(&SyncStateSet { sync_state_set: set.clone(), sync_state_set_epoch: *epoch }),
        Applied::Elected { now, members } => elected(now, Some(members)),
        Applied::MasterStays { now, remark } => Response {
            code: ResponseCode::CONTROLLER_MASTER_STILL_EXIST,
            remark: Some(remark.clone()),
            ..elected(now, None)
        },
        Applied::IdTaken => Response::ok().with_header(&ApplyBrokerIdResponse {
            cluster_name: Some(cluster.to_owned().into()),
            broker_name: Some(broker_name.to_owned().into()),
        }),
        Applied::Registered { now } => {
            let epoch = |epoch: i32| now.master.map(|_| epoch);
            Response::ok()
                .with_header(&RegisterBrokerToControllerResponse {
                    cluster_name: Some(cluster.to_owned().into()),
                    broker_name: Some(broker_name.to_owned().into()),
                    master_broker_id: now.master,
                    master_address: now.master_address.as_deref().map(Into::into),
                    master_epoch: epoch(now.master_epoch),
                    sync_state_set_epoch: epoch(now.sync_state_set_epoch),
                })
                .with_json(&sync_state_set(now))
        }
        Applied::Refused(refusal) => refused(refusal),
    }
}

/// A refusal.
pub(crate) fn refused(refusal: &Refusal) -> Response {
    Response::error(ResponseCode(refusal.code), refusal.remark.clone())
}

fn elected(now: &Mastership, members: Option<&BTreeMap<i64, String>>) -> Response {
    let group = |members: &BTreeMap<i64, String>| BrokerMemberGroup {
        broker_addrs: members.clone(),
        broker_name: now.broker_name.clone(),
        cluster: now.cluster.clone(),
    };
    Response::ok()
        .with_header(&ElectMasterResponse {
            master_broker_id: now.master,
            master_address: now.master_address.as_deref().map(Into::into),
            master_epoch: Some(now.master_epoch),
            sync_state_set_epoch: Some(now.sync_state_set_epoch),
        })
        .with_json(&ElectMasterResponseBody {
            broker_member_group: members.map(group),
            sync_state_set: now.sync_state_set.clone(),
        })
}

/// The answer to CONTROLLER_GET_REPLICA_INFO.
pub(crate) fn replica_info(now: &Mastership) -> Response {
    Response::ok()
        .with_header(&GetReplicaInfoResponse {
            master_broker_id: now.master,
            master_address: now.master_address.as_deref().map(Into::into),
            master_epoch: Some(now.master_epoch),
        })
        .with_json(&sync_state_set(now))
}

/// The set as brokers are told it.
pub(crate) fn sync_state_set(now: &Mastership) -> SyncStateSet {
    SyncStateSet {
        sync_state_set: now.sync_state_set.clone(),
        sync_state_set_epoch: now.sync_state_set_epoch,
    }
}

/// The answer to CONTROLLER_GET_SYNC_STATE_DATA.
pub(crate) fn sync_state_data<'a>(
    groups: impl Iterator<Item = (&'a str, &'a Group, Alive)>,
) -> Response {
    let mut info = BrokerReplicasInfo::default();
    for (name, group, alive) in groups {
        let identity = |(id, replica): (&i64, &crate::groups::Replica)| ReplicaIdentity {
            alive: alive.contains_key(id),
            broker_address: replica.address.clone(),
            broker_id: *id,
            broker_name: name.to_owned(),
        };
        let (inside, outside) = group
            .replicas
            .iter()
            .partition::<Vec<_>, _>(|(id, _)| group.sync_state_set.contains(id));
        let replicas = ReplicasInfo {
            in_sync_replicas: inside.into_iter().map(identity).collect(),
            master_address: group.master_address().map(str::to_owned),
            master_broker_id: group.master,
            master_epoch: group.master_epoch,
            not_in_sync_replicas: outside.into_iter().map(identity).collect(),
            sync_state_set_epoch: group.sync_state_set_epoch,
        };
        info.replicas_info_table.insert(name.to_owned(), replicas);
    }
    Response::ok().with_json(&info)
}
