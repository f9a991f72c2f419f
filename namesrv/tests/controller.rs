//! The controller in a name server: its keys, its requests on a port of its own, its files over a restart.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod raw;

use std::net::TcpListener;

use raw::{Raw, config, eventually};
use rocketmq_namesrv::Namesrv;
use rocketmq_protocol::code::{RequestCode, ResponseCode};

fn controller_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn a_name_server_with_a_controller_gives_ids_and_masters_and_keeps_them() {
    let dir = tempfile::tempdir().unwrap();
    let port = controller_port();
    let peers = format!("n0-127.0.0.1:{port}");
    let files = dir.path().join("controller").to_string_lossy().into_owned();
    let pairs = [
        ("enableControllerInNamesrv", "true"),
        ("controllerDLegerGroup", "group-a"),
        ("controllerDLegerPeers", peers.as_str()),
        ("controllerDLegerSelfId", "n0"),
        ("controllerStorePath", files.as_str()),
    ];
    let namesrv = Namesrv::start(config(&dir, &pairs)).unwrap();
    let addr = namesrv.controller().unwrap().addr();
    assert_eq!(addr.port(), port);
    let mut raw = Raw::connect(addr);
    eventually("it leads", || {
        let metadata = raw.call(RequestCode::CONTROLLER_GET_METADATA_INFO, &[], b"").ok();
        assert_eq!(metadata.ext["group"], "group-a");
        metadata.ext["isLeader"] == "true"
    });

    let broker = [("clusterName", "c"), ("brokerName", "b"), ("brokerId", "1")];
    let apply = [
        ("clusterName", "c"),
        ("brokerName", "b"),
        ("appliedBrokerId", "1"),
        ("registerCheckCode", "10.0.0.1:10911;mark"),
    ];
    raw.call(RequestCode::CONTROLLER_APPLY_BROKER_ID, &apply, b"").ok();
    let elect = raw.call(RequestCode::CONTROLLER_ELECT_MASTER, &broker, b"").ok();
    assert_eq!(elect.ext["masterAddress"], "10.0.0.1:10911");
    assert_eq!(elect.json()["brokerMemberGroup"]["brokerAddrs"]["1"], "10.0.0.1:10911");

    let update = b"enableElectUncleanMaster=true\nconfigStorePath=/elsewhere";
    let refused = raw.call(RequestCode::UPDATE_CONTROLLER_CONFIG, &[], update);
    assert_eq!(refused.code, ResponseCode::NO_PERMISSION);
    let update = b"enableElectUncleanMaster=true";
    raw.call(RequestCode::UPDATE_CONTROLLER_CONFIG, &[], update).ok();
    let shown = raw.call(RequestCode::GET_CONTROLLER_CONFIG, &[], b"").ok();
    let text = String::from_utf8(shown.body).unwrap();
    assert!(text.contains("enableElectUncleanMaster=true\n"), "{text}");
    assert!(!text.contains("\nkvConfigPath="), "keys of the controller alone: {text}");
    let file = std::fs::read_to_string(dir.path().join("namesrv.conf")).unwrap();
    assert!(file.contains("enableElectUncleanMaster=true\n") && file.contains("kvConfigPath="));

    let used = Namesrv::start(config(&dir, &pairs)).err().unwrap().to_string();
    assert!(used.contains("controllerStorePath") && used.contains("in use"), "{used}");
    // The name server's own port does not answer for the controller.
    let mut routes = Raw::connect(namesrv.addr());
    let elsewhere = routes.call(RequestCode::CONTROLLER_GET_METADATA_INFO, &[], b"");
    assert_eq!(elsewhere.code, ResponseCode::REQUEST_CODE_NOT_SUPPORTED);
    namesrv.shutdown();

    let again = Namesrv::start(config(&dir, &pairs)).unwrap();
    let mut raw = Raw::connect(addr);
    eventually("it remembers", || {
        let info = raw.call(RequestCode::CONTROLLER_GET_REPLICA_INFO, &broker, b"");
        info.code == ResponseCode::SUCCESS && info.ext["masterBrokerId"] == "1"
    });
    again.shutdown();
}
