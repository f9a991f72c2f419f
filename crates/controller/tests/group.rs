//! Controllers in one process over loopback: what a broker and a tool see of them, while some of them
//! come and go.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Caller, Cluster, Fixed, broker, wait_for};
use rocketmq_controller::{Controller, StartError};
use rocketmq_protocol::body::controller::{BrokerReplicasInfo, SyncStateSet};
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::header::controller::{
    AlterSyncStateSetRequest, ApplyBrokerIdRequest, CleanBrokerDataRequest, ElectMasterRequest,
    ElectMasterResponse, GetMetaDataResponse, GetNextBrokerIdRequest, GetNextBrokerIdResponse,
    GetReplicaInfoRequest, GetReplicaInfoResponse, RegisterBrokerToControllerRequest,
    RegisterBrokerToControllerResponse,
};
use rocketmq_protocol::header::registration::BrokerHeartbeatRequest;
use rocketmq_remoting::call::{Request, ResponseFrame};

const NOT_LEADER: ResponseCode = ResponseCode::CONTROLLER_NOT_LEADER;

fn apply_id(caller: &Caller, to: &str, id: i64, address: &str) -> ResponseCode {
    let header = ApplyBrokerIdRequest {
        cluster_name: "c".into(),
        broker_name: "b".into(),
        applied_broker_id: id,
        register_check_code: format!("{address};mark").into(),
    };
    caller.ask(to, RequestCode::CONTROLLER_APPLY_BROKER_ID, &header).code
}

fn beat(caller: &Caller, to: &str, id: i64, max_offset: i64, timeout_ms: Option<i64>) {
    let header = BrokerHeartbeatRequest {
        cluster_name: "c".into(),
        broker_name: "b".into(),
        broker_addr: "127.0.0.1:1".into(),
        broker_id: Some(id),
        epoch: Some(1),
        max_offset: Some(max_offset),
        heartbeat_timeout_mills: timeout_ms,
        ..BrokerHeartbeatRequest::default()
    };
    let answer = caller.ask(to, RequestCode::BROKER_HEARTBEAT, &header);
    assert_eq!(answer.code, ResponseCode::SUCCESS);
}

fn elect(caller: &Caller, to: &str, id: i64, designate_elect: bool) -> ResponseFrame {
    let header = ElectMasterRequest {
        cluster_name: "c".into(),
        broker_name: "b".into(),
        broker_id: id,
        designate_elect,
    };
    caller.ask(to, RequestCode::CONTROLLER_ELECT_MASTER, &header)
}

fn alter(caller: &Caller, to: &str, by: (i64, i32), set: &[i64], epoch: i32) -> ResponseFrame {
    let header = AlterSyncStateSetRequest {
        broker_name: "b".into(),
        master_broker_id: by.0,
        master_epoch: by.1,
    };
    let set =
        SyncStateSet { sync_state_set: set.iter().copied().collect(), sync_state_set_epoch: epoch };
    let request = Request::new(RequestCode::CONTROLLER_ALTER_SYNC_STATE_SET);
    caller.call(to, request.with_header(&header).with_json(&set))
}

fn replica_info(caller: &Caller, to: &str) -> ResponseFrame {
    let header = GetReplicaInfoRequest { broker_name: "b".into() };
    caller.ask(to, RequestCode::CONTROLLER_GET_REPLICA_INFO, &header)
}

/// Master, its epoch and the set, as the controller at `to` says.
fn state(caller: &Caller, to: &str) -> Option<(Option<i64>, i32, BTreeSet<i64>)> {
    let answer = replica_info(caller, to);
    if answer.code != ResponseCode::SUCCESS {
        return None;
    }
    let header: GetReplicaInfoResponse<'_> = answer.header().unwrap();
    let set: SyncStateSet = answer.json().unwrap();
    Some((header.master_broker_id, header.master_epoch.unwrap(), set.sync_state_set))
}

/// A group of brokers with `ids`, all alive and in the set, the first of them master.
fn group_of(caller: &Caller, cluster: &Cluster, ids: &[i64], addresses: &[String]) {
    let to = cluster.addr(cluster.leader());
    for (id, address) in ids.iter().zip(addresses) {
        assert_eq!(apply_id(caller, &to, *id, address), ResponseCode::SUCCESS);
        for every in 0..cluster.addresses.len() {
            beat(caller, &cluster.addr(every), *id, 100 * id, None);
        }
    }
    assert_eq!(elect(caller, &to, ids[0], false).code, ResponseCode::SUCCESS);
    assert_eq!(alter(caller, &to, (ids[0], 1), ids, 1).code, ResponseCode::SUCCESS);
}

fn nowhere(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("127.0.0.1:{}", n + 1)).collect()
}

#[test]
fn a_single_controller_serves_and_remembers() {
    let mut cluster = Cluster::start(1);
    let caller = Caller::new();
    let to = cluster.addr(cluster.leader());

    let header = GetNextBrokerIdRequest { cluster_name: "c".into(), broker_name: "b".into() };
    let answer = caller.ask(&to, RequestCode::CONTROLLER_GET_NEXT_BROKER_ID, &header);
    let next: GetNextBrokerIdResponse<'_> = answer.header().unwrap();
    assert_eq!(next.next_broker_id, Some(1));
    group_of(&caller, &cluster, &[1, 2], &nowhere(2));

    let register = RegisterBrokerToControllerRequest {
        cluster_name: "c".into(),
        broker_name: "b".into(),
        broker_id: 2,
        broker_address: "127.0.0.1:22".into(),
    };
    let answer = caller.ask(&to, RequestCode::CONTROLLER_REGISTER_BROKER, &register);
    let registered: RegisterBrokerToControllerResponse<'_> = answer.header().unwrap();
    assert_eq!(registered.master_broker_id, Some(1));
    assert_eq!(registered.master_address.as_deref(), Some("127.0.0.1:1"));
    assert_eq!((registered.master_epoch, registered.sync_state_set_epoch), (Some(1), Some(2)));
    let stays = elect(&caller, &to, 2, false);
    assert_eq!(stays.code, ResponseCode::CONTROLLER_MASTER_STILL_EXIST);
    assert_eq!(stays.header::<ElectMasterResponse<'_>>().unwrap().master_broker_id, Some(1));

    let names = Request::new(RequestCode::CONTROLLER_GET_SYNC_STATE_DATA).with_json(&["b", "x"]);
    let data: BrokerReplicasInfo = caller.call(&to, names).json().unwrap();
    let group = &data.replicas_info_table["b"];
    assert_eq!(data.replicas_info_table.len(), 1);
    assert_eq!((group.in_sync_replicas.len(), group.not_in_sync_replicas.len()), (2, 0));
    assert!(group.in_sync_replicas.iter().all(|replica| replica.alive));
    assert_eq!(group.in_sync_replicas[1].broker_address, "127.0.0.1:22");

    let before = state(&caller, &to).unwrap();
    assert_eq!(before, (Some(1), 1, BTreeSet::from([1, 2])));
    cluster.stop_one(0);
    caller.hang_up(&to);
    cluster.start_one(0);
    cluster.leader();
    assert_eq!(state(&caller, &to), Some(before));

    // After the restart nobody was heard yet, so nobody lives.
    let clean = CleanBrokerDataRequest {
        broker_name: "b".into(),
        broker_controller_ids_to_clean: Some("2".into()),
        ..CleanBrokerDataRequest::default()
    };
    let cleaned = caller.ask(&to, RequestCode::CLEAN_BROKER_DATA, &clean);
    assert_eq!(cleaned.code, ResponseCode::SUCCESS);
    assert_eq!(state(&caller, &to), Some((Some(1), 1, BTreeSet::from([1]))));
}

#[test]
fn every_controller_names_the_leader_and_only_the_leader_serves() {
    let cluster = Cluster::start(3);
    let caller = Caller::new();
    let leader = cluster.leader();
    for id in 0..3 {
        let to = cluster.addr(id);
        let answer = wait_for("the leader is known", || {
            let request = Request::new(RequestCode::CONTROLLER_GET_METADATA_INFO);
            let answer = caller.call(&to, request);
            let said: GetMetaDataResponse<'_> = answer.header().unwrap();
            said.controller_leader_id.is_some().then_some(answer)
        });
        let said: GetMetaDataResponse<'_> = answer.header().unwrap();
        assert_eq!(said.group.as_deref(), Some("g"));
        assert_eq!(said.controller_leader_id.as_deref(), Some(format!("n{leader}").as_str()));
        assert_eq!(said.controller_leader_address, Some(cluster.addr(leader).into()));
        assert_eq!(said.is_leader, Some(id == leader));
        assert_eq!(said.peers.unwrap().matches(';').count(), 3);
        if id != leader {
            let refused = replica_info(&caller, &to);
            assert_eq!(refused.code, NOT_LEADER);
            assert_eq!(refused.remark.as_deref(), Some("The controller is not in leader state"));
            assert_eq!(apply_id(&caller, &to, 1, "127.0.0.1:1"), NOT_LEADER);
        }
    }
}

#[test]
fn what_was_agreed_outlives_the_leader_and_reaches_whoever_was_away() {
    let mut cluster = Cluster::start(3);
    let caller = Caller::new();
    group_of(&caller, &cluster, &[1, 2], &nowhere(2));
    let first = cluster.leader();
    let before = state(&caller, &cluster.addr(first)).unwrap();
    let begun = Instant::now();
    cluster.stop_one(first);
    caller.hang_up(&cluster.addr(first));
    let second = cluster.leader();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_ne!(first, second);
    assert_eq!(state(&caller, &cluster.addr(second)), Some(before));

    // More than a snapshot's worth, so that the one that is away cannot catch up from the log alone.
    for id in 3..43 {
        let code = apply_id(&caller, &cluster.addr(second), id, "127.0.0.1:9");
        assert_eq!(code, ResponseCode::SUCCESS);
    }
    cluster.start_one(first);
    let third = (0..3).find(|id| *id != first && *id != second).unwrap();
    cluster.stop_one(third);
    caller.hang_up(&cluster.addr(third));
    // Now the two that are left have to agree, with what the returned one was told.
    wait_for("an agreement with the one that was away", || {
        let to = cluster.addr(cluster.leader());
        (apply_id(&caller, &to, 43, "127.0.0.1:9") == ResponseCode::SUCCESS).then_some(())
    });
    cluster.stop_one(second);
    caller.hang_up(&cluster.addr(second));
    cluster.start_one(third);
    let to = wait_for("a leader among those that were away", || {
        let to = cluster.addr(cluster.leader());
        state(&caller, &to).map(|_| to)
    });
    let names = Request::new(RequestCode::CONTROLLER_GET_SYNC_STATE_DATA).with_json(&["b"]);
    let data: BrokerReplicasInfo = caller.call(&to, names).json().unwrap();
    let group = &data.replicas_info_table["b"];
    assert_eq!(group.in_sync_replicas.len() + group.not_in_sync_replicas.len(), 43);
}

#[test]
fn a_minority_answers_nothing() {
    let mut cluster = Cluster::start(3);
    let caller = Caller::new();
    group_of(&caller, &cluster, &[1, 2], &nowhere(2));
    let leader = cluster.leader();
    for id in (0..3).filter(|id| *id != leader) {
        cluster.stop_one(id);
    }
    let to = cluster.addr(leader);
    // At once, although it has not noticed yet that it leads nobody.
    assert_eq!(replica_info(&caller, &to).code, NOT_LEADER);
    wait_for("it notices", || {
        let leader_now = cluster.running[leader].as_ref()?.leader();
        (leader_now != Some(leader as u64)).then_some(())
    });
    assert_eq!(apply_id(&caller, &to, 3, "127.0.0.1:3"), NOT_LEADER);
    assert_eq!(elect(&caller, &to, 2, true).code, NOT_LEADER);
    let metadata = caller.call(&to, Request::new(RequestCode::CONTROLLER_GET_METADATA_INFO));
    let said: GetMetaDataResponse<'_> = metadata.header().unwrap();
    assert_eq!(said.is_leader, Some(false));
}

#[test]
fn a_master_whose_connection_ends_is_succeeded_and_the_others_hear_of_it() {
    let cluster = Cluster::start(3);
    let (master, slave) = (Caller::new(), Caller::new());
    let (_servers, addresses, told): (Vec<_>, Vec<_>, Vec<_>) = (0..2).map(|_| broker()).fold(
        (Vec::new(), Vec::new(), Vec::new()),
        |mut all, (server, address, told)| {
            all.0.push(server);
            all.1.push(address);
            all.2.push(told);
            all
        },
    );
    group_of(&master, &cluster, &[1, 2], &addresses);
    let to = cluster.addr(cluster.leader());
    // From here on the slave's heart-beats come on connections of its own.
    for every in 0..3 {
        beat(&slave, &cluster.addr(every), 2, 200, None);
    }
    told.iter().for_each(|told| told.0.lock().clear());
    let begun = Instant::now();
    for every in 0..3 {
        master.hang_up(&cluster.addr(every));
    }
    let now =
        wait_for("another master", || state(&slave, &to).filter(|(master, ..)| *master == Some(2)));
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(now, (Some(2), 2, BTreeSet::from([2])));
    let (code, ext, body) = wait_for("the slave hears of it", || told[1].0.lock().pop());
    assert_eq!(code, RequestCode::NOTIFY_BROKER_ROLE_CHANGED.0);
    let field = |name: &str| ext.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    assert_eq!(field("masterBrokerId"), Some("2"));
    assert_eq!(field("masterAddress"), Some(addresses[1].as_str()));
    assert_eq!((field("masterEpoch"), field("syncStateSetEpoch")), (Some("2"), Some("3")));
    assert_eq!(body, br#"{"syncStateSet":[2],"syncStateSetEpoch":3}"#);
    assert!(told[0].0.lock().is_empty(), "who is gone is not called");

    // The old one comes back as a slave and is not preferred.
    beat(&master, &to, 1, 100, None);
    let stays = elect(&master, &to, 1, false);
    assert_eq!(stays.code, ResponseCode::CONTROLLER_MASTER_STILL_EXIST);
}

/// The master goes with the leader, so nobody hears its connection end who could elect then; and the next
/// search for such groups is a minute away.
#[test]
fn a_new_leader_looks_for_lost_masters_at_once() {
    let mut cluster = Cluster::start_with(3, Duration::from_secs(60));
    let (master, slave) = (Caller::new(), Caller::new());
    group_of(&master, &cluster, &[1, 2], &nowhere(2));
    for every in 0..3 {
        beat(&slave, &cluster.addr(every), 2, 200, None);
    }
    let begun = Instant::now();
    cluster.stop_one(cluster.leader());
    for every in 0..3 {
        master.hang_up(&cluster.addr(every));
    }
    let to = cluster.addr(cluster.leader());
    wait_for("another master", || state(&slave, &to).filter(|(master, ..)| *master == Some(2)));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[test]
fn a_silent_master_is_succeeded_also_by_the_next_leader() {
    let mut cluster = Cluster::start(3);
    let caller = Caller::new();
    group_of(&caller, &cluster, &[1, 2], &nowhere(2));
    let leader = cluster.leader();
    for every in 0..3 {
        beat(&caller, &cluster.addr(every), 1, 100, Some(1));
    }
    wait_for("another master", || {
        state(&caller, &cluster.addr(leader)).filter(|(master, ..)| *master == Some(2))
    });
    // The second master and the leader go together; nobody is left in the set but 2, so the group waits
    // for it without a master, and takes it when it is there again.
    for every in 0..3 {
        beat(&caller, &cluster.addr(every), 1, 100, None);
        beat(&caller, &cluster.addr(every), 2, 200, Some(1));
    }
    cluster.stop_one(leader);
    let to = cluster.addr(cluster.leader());
    let now = wait_for("nobody is master", || {
        state(&caller, &to).filter(|(master, ..)| master.is_none())
    });
    assert_eq!((now.1, now.2), (3, BTreeSet::from([2])));
    assert_eq!(elect(&caller, &to, 1, true).code, ResponseCode::CONTROLLER_ELECT_MASTER_FAILED);
    beat(&caller, &to, 2, 200, None);
    assert_eq!(elect(&caller, &to, 1, false).code, ResponseCode::SUCCESS);
    assert_eq!(state(&caller, &to), Some((Some(2), 4, BTreeSet::from([2]))));
}

#[test]
fn a_directory_is_used_only_by_whom_it_belongs_to() {
    let mut cluster = Cluster::start(1);
    cluster.leader();
    let start = |config| Controller::start(config, Arc::new(Fixed::default())).err();
    let used = start(cluster.config(0)).unwrap().to_string();
    assert!(used.contains("in use by another process"), "{used}");
    cluster.stop_one(0);

    let mut other = cluster.config(0);
    other.group = "h".to_owned();
    let foreign = start(other).unwrap().to_string();
    assert!(foreign.contains("controller n0 of group g, this is n0 of h"), "{foreign}");

    let mut more = cluster.config(0);
    let list = format!("{};n1-127.0.0.1:1", more.peers);
    more.peers = rocketmq_controller::peers::Peers::parse(&list).unwrap();
    let refused = start(more).unwrap();
    assert!(matches!(refused, StartError::OtherPeers { .. }));
    assert!(refused.to_string().contains("names n0, n1, but"), "{refused}");

    let journal = cluster.config(0).store_path.join("journal");
    let mut bytes = std::fs::read(&journal).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&journal, bytes).unwrap();
    let damaged = start(cluster.config(0)).unwrap().to_string();
    assert!(damaged.contains("journal is damaged at byte 8"), "{damaged}");
}

#[test]
fn what_is_not_understood_is_answered() {
    let cluster = Cluster::start(1);
    let caller = Caller::new();
    let to = cluster.addr(cluster.leader());
    let peer = |group: &str, to: i64| {
        Request::new(RequestCode(30_101))
            .with_field("group", group)
            .with_field("from", 1)
            .with_field("to", to)
            .with_body("{")
    };
    for (request, code, part) in [
        (Request::new(RequestCode(77_777)), ResponseCode::REQUEST_CODE_NOT_SUPPORTED, "77777"),
        (peer("other", 0), ResponseCode::CONTROLLER_INVALID_REQUEST, "controllerDLegerPeers"),
        (peer("g", 3), ResponseCode::CONTROLLER_INVALID_REQUEST, "this is controller n0"),
        (peer("g", 0), ResponseCode::CONTROLLER_INVALID_REQUEST, "not understood"),
        (
            Request::new(RequestCode::CONTROLLER_ELECT_MASTER),
            ResponseCode::SYSTEM_ERROR,
            "brokerName",
        ),
        (
            Request::new(RequestCode::CONTROLLER_GET_SYNC_STATE_DATA).with_body("nonsense"),
            ResponseCode::SYSTEM_ERROR,
            "body not understood",
        ),
        (
            Request::new(RequestCode::BROKER_HEARTBEAT)
                .with_field("clusterName", "c")
                .with_field("brokerName", "b")
                .with_field("brokerAddr", "h:1"),
            ResponseCode::CONTROLLER_INVALID_REQUEST,
            "Heart beat with empty brokerId",
        ),
        (
            Request::new(RequestCode::UPDATE_CONTROLLER_CONFIG).with_body("configBlackList=a"),
            ResponseCode::NO_PERMISSION,
            "configBlackList",
        ),
    ] {
        let answer = caller.call(&to, request);
        let remark = answer.remark.unwrap_or_default();
        assert_eq!(answer.code, code, "{remark}");
        assert!(remark.contains(part), "{remark}");
    }
    let text = caller.call(&to, Request::new(RequestCode::GET_CONTROLLER_CONFIG));
    assert_eq!(&text.body[..], b"controllerDLegerGroup=g\n");
}
