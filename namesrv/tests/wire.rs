//! The name server over raw sockets: each request as a broker, client or tool sends it.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod raw;

use std::io::Write as _;
use std::time::Duration;

use raw::{Broker, Raw, Server, eventually, http_get};
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::frame::SerializeType;
use serde_json::json;

#[test]
fn a_route_is_what_was_registered_in_compact_json_with_quoted_keys() {
    let server = Server::start(&[]);
    let mut raw = server.connect();
    let answer = raw.register(&Broker::new("broker-a", 0, "10.0.0.1:10911")).ok();
    assert!(answer.body.is_empty(), "no ordered topics yet");
    let route = raw.route("T").ok();
    let expected = json!({
        "brokerDatas": [{"brokerAddrs": {"0": "10.0.0.1:10911"}, "brokerName": "broker-a",
            "cluster": "DefaultCluster", "enableActingMaster": false}],
        "filterServerTable": {},
        "queueDatas": [{"brokerName": "broker-a", "perm": 6, "readQueueNums": 8,
            "topicSysFlag": 0, "writeQueueNums": 8}],
    });
    // Strict JSON, since the Go client reads it strictly; no blanks, since it splits the addresses'
    // text.
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&route.body).unwrap(), expected);
    let text = String::from_utf8(route.body).unwrap();
    assert!(text.contains(r#""brokerAddrs":{"0":"10.0.0.1:10911"}"#), "{text}");

    let missing = raw.route("nowhere");
    assert_eq!(missing.code, ResponseCode::TOPIC_NOT_EXIST);
    let start = "No topic route info in name server for the topic: nowhere";
    assert!(missing.remark().starts_with(start), "{missing:?}");
}

#[test]
fn both_encodings_are_answered_on_one_connection() {
    let server = Server::start(&[]);
    let mut raw = server.connect();
    raw.register(&Broker::new("a", 0, "h:1")).ok();
    raw.serialize = SerializeType::Binary;
    raw.route("T").ok();
    raw.serialize = SerializeType::Json;
    raw.route("T").ok();
}

#[test]
fn a_checksum_that_does_not_match_is_refused() {
    let server = Server::start(&[]);
    let mut raw = server.connect();
    let mut broker = Broker::new("a", 0, "h:1");
    broker.more = vec![("bodyCrc32", "12345".to_owned())];
    let answer = raw.register(&broker);
    assert_eq!((answer.code, answer.remark()), (ResponseCode::SYSTEM_ERROR, "crc32 not match"));
    let crc = crc32fast::hash(&broker.body()) & 0x7fff_ffff;
    broker.more = vec![("bodyCrc32", crc.to_string())];
    raw.register(&broker).ok();
}

/// As a 5.x broker writes it: zlib over lengths, the version's JSON, a line for each topic, filter
/// servers, mappings.
#[test]
fn a_compressed_registration_is_understood() {
    let broker = Broker::new("a", 0, "h:1");
    let mut plain = Vec::new();
    let mut part = |bytes: &[u8]| {
        plain.extend_from_slice(&u32::try_from(bytes.len()).unwrap().to_be_bytes());
        plain.extend_from_slice(bytes);
    };
    part(broker.version().to_string().as_bytes());
    plain.extend_from_slice(&2_u32.to_be_bytes());
    let mut part = |bytes: &[u8]| {
        plain.extend_from_slice(&u32::try_from(bytes.len()).unwrap().to_be_bytes());
        plain.extend_from_slice(bytes);
    };
    part(br#"Ordinary 4 6 6 SINGLE_TAG {"message.type":"NORMAL"}"#);
    part(b"Old 1 1 7 SINGLE_TAG");
    part(b"[]");
    plain.extend_from_slice(&0_u32.to_be_bytes());
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    zlib.write_all(&plain).unwrap();
    let body = zlib.finish().unwrap();

    let server = Server::start(&[]);
    let mut raw = server.connect();
    let mut ext = broker.ext();
    ext.push(("compressed", "true".to_owned()));
    let ext: Vec<(&str, &str)> = ext.iter().map(|(k, v)| (*k, v.as_str())).collect();
    raw.call(RequestCode::REGISTER_BROKER, &ext, &body).ok();
    let route = raw.route("Ordinary").ok().json();
    let queue = &route["queueDatas"][0];
    assert_eq!((&queue["readQueueNums"], &queue["writeQueueNums"]), (&json!(4), &json!(6)));
    assert_eq!(raw.route("Old").ok().json()["queueDatas"][0]["perm"], json!(7));

    let refused = raw.call(RequestCode::REGISTER_BROKER, &ext, &body[..body.len() / 2]);
    assert_eq!(refused.code, ResponseCode::SYSTEM_ERROR);
    assert!(refused.remark().contains("registration body of a not understood"), "{refused:?}");
    raw.route("Ordinary").ok();
}

#[test]
fn a_missing_or_malformed_field_is_named_and_the_connection_goes_on() {
    let server = Server::start(&[]);
    let mut raw = server.connect();
    let answer = raw.call(RequestCode::GET_ROUTEINFO_BY_TOPIC, &[], b"");
    assert_eq!(answer.code, ResponseCode::SYSTEM_ERROR);
    assert!(answer.remark().contains("topic"), "{answer:?}");
    let mut broker = Broker::new("a", 0, "h:1");
    broker.more = vec![("brokerId", "99999999999999999999".to_owned())];
    let answer = raw.register(&broker);
    assert!(answer.remark().contains("brokerId"), "{answer:?}");
    let answer = raw.register(&Broker::new("", 0, "h:1"));
    assert!(answer.remark().contains("brokerName"), "{answer:?}");
    let answer = raw.call(RequestCode(4711), &[], b"");
    assert_eq!(answer.code, ResponseCode::REQUEST_CODE_NOT_SUPPORTED);
    assert!(answer.remark().contains("4711"), "{answer:?}");
    raw.register(&Broker::new("a", 0, "h:1")).ok();
}

#[test]
fn a_oneway_request_is_done_and_not_answered() {
    let server = Server::start(&[]);
    let mut raw = server.connect();
    raw.register(&Broker::new("a", 0, "h:1")).ok();
    raw.send(RequestCode::DELETE_TOPIC_IN_NAMESRV, &[("topic", "T")], b"", 2);
    raw.send(
        RequestCode::PUT_KV_CONFIG,
        &[("namespace", "n"), ("key", "k"), ("value", "v")],
        b"",
        2,
    );
    assert_eq!(raw.route("T").code, ResponseCode::TOPIC_NOT_EXIST);
    let mut other = server.connect();
    eventually("the value is there", || {
        let code = RequestCode::GET_KV_CONFIG;
        other.call(code, &[("namespace", "n"), ("key", "k")], b"").code == ResponseCode::SUCCESS
    });
}

#[test]
fn a_single_topic_right_after_a_restart_hides_nothing() {
    let server = Server::start(&[]);
    let mut raw = server.connect();
    let mut broker = Broker::new("a", 0, "h:1");
    broker.topics = vec!["New"];
    let refused = raw.register(&broker);
    assert_eq!(
        (refused.code, refused.remark()),
        (ResponseCode::SYSTEM_ERROR, "register broker failed")
    );
    let version = broker.version().to_string();
    let ext = broker.ext();
    let ext: Vec<(&str, &str)> = ext.iter().map(|(k, v)| (*k, v.as_str())).collect();
    let asked = raw.call(RequestCode::QUERY_DATA_VERSION, &ext, version.as_bytes()).ok();
    assert_eq!(asked.ext["changed"], "true");
    assert!(asked.body.is_empty());

    raw.register(&Broker::new("a", 0, "h:1")).ok();
    raw.register(&broker).ok();
    raw.route("New").ok();
    raw.route("T").ok();
    let asked = raw.call(RequestCode::QUERY_DATA_VERSION, &ext, version.as_bytes()).ok();
    assert_eq!(asked.ext["changed"], "false");
    assert_eq!(asked.json()["counter"], json!(1));
    broker.counter = 2;
    let version = broker.version().to_string();
    let asked = raw.call(RequestCode::QUERY_DATA_VERSION, &ext, version.as_bytes()).ok();
    assert_eq!(asked.ext["changed"], "true");
}

#[test]
fn a_slave_is_told_its_master_and_shares_its_group() {
    let server = Server::start(&[]);
    let (mut master, mut slave) = (server.connect(), server.connect());
    master.register(&Broker::new("a", 0, "h:1")).ok();
    let answer = slave.register(&Broker::new("a", 1, "h:5")).ok();
    assert_eq!(answer.ext["masterAddr"], "h:1");
    assert_eq!(answer.ext["haServerAddr"], "h:12");
    let group = slave
        .call(
            RequestCode::GET_BROKER_MEMBER_GROUP,
            &[("clusterName", "DefaultCluster"), ("brokerName", "a")],
            b"",
        )
        .ok()
        .json();
    assert_eq!(group["brokerMemberGroup"]["brokerAddrs"], json!({"0": "h:1", "1": "h:5"}));
    let info = slave.call(RequestCode::GET_BROKER_CLUSTER_INFO, &[], b"").ok().json();
    assert_eq!(info["clusterAddrTable"], json!({"DefaultCluster": ["a"]}));
    assert_eq!(info["brokerAddrTable"]["a"]["brokerAddrs"], json!({"0": "h:1", "1": "h:5"}));

    drop(master);
    eventually("the master's close is seen", || {
        slave.route("T").ok().json()["brokerDatas"][0]["brokerAddrs"] == json!({"1": "h:5"})
    });
}

#[test]
fn a_closed_channel_takes_its_broker_at_once_but_not_a_newer_registration() {
    let server = Server::start(&[]);
    let (mut old, mut new, mut client) = (server.connect(), server.connect(), server.connect());
    old.register(&Broker::new("a", 0, "h:1")).ok();
    old.register(&Broker::new("b", 0, "h:2")).ok();
    new.register(&Broker::new("a", 0, "h:1")).ok();
    let ext = Broker::new("a", 0, "h:1").ext();
    let ext: Vec<(&str, &str)> = ext.iter().map(|(k, v)| (*k, v.as_str())).collect();
    old.call(RequestCode::UNREGISTER_BROKER, &ext, b"").ok();
    drop(old);
    eventually("the old channel's other broker is gone", || {
        client.route("T").ok().json()["queueDatas"].as_array().unwrap().len() == 1
    });
    assert_eq!(client.route("T").ok().json()["queueDatas"][0]["brokerName"], json!("a"));
    new.call(RequestCode::UNREGISTER_BROKER, &ext, b"").ok();
    assert_eq!(client.route("T").code, ResponseCode::TOPIC_NOT_EXIST);
}

#[test]
fn a_silent_broker_expires_and_its_connection_is_closed_while_heartbeats_keep_another() {
    let server = Server::start(&[("scanNotActiveBrokerInterval", "10")]);
    let (mut silent, mut beating, mut client) =
        (server.connect(), server.connect(), server.connect());
    let timed = |name, addr: &str| {
        let mut broker = Broker::new(name, 0, addr);
        broker.more = vec![("heartbeatTimeoutMillis", "400".to_owned())];
        broker
    };
    silent.register(&timed("silent", "h:1")).ok();
    let kept = timed("kept", "h:2");
    beating.register(&kept).ok();
    let ext = kept.ext();
    let ext: Vec<(&str, &str)> = ext.iter().map(|(k, v)| (*k, v.as_str())).collect();
    eventually("the silent one is gone", || {
        beating.call(RequestCode::BROKER_HEARTBEAT, &ext, b"").ok();
        client.route("T").ok().json()["queueDatas"].as_array().unwrap().len() == 1
    });
    assert_eq!(client.route("T").ok().json()["queueDatas"][0]["brokerName"], json!("kept"));
    assert!(silent.is_closed_within(Duration::from_secs(5)));
}

#[test]
fn write_permission_is_wiped_until_it_is_added_or_the_table_changes() {
    let server = Server::start(&[]);
    let mut raw = server.connect();
    let mut broker = Broker::new("a", 0, "h:1");
    raw.register(&broker).ok();
    let perm = |raw: &mut Raw| raw.route("T").ok().json()["queueDatas"][0]["perm"].clone();
    let wiped = raw.call(RequestCode::WIPE_WRITE_PERM_OF_BROKER, &[("brokerName", "a")], b"").ok();
    assert_eq!(wiped.ext["wipeTopicCount"], "3");
    assert_eq!(perm(&mut raw), json!(4));
    raw.register(&broker).ok();
    assert_eq!(perm(&mut raw), json!(4));
    let added = raw.call(RequestCode::ADD_WRITE_PERM_OF_BROKER, &[("brokerName", "a")], b"").ok();
    assert_eq!(added.ext["addTopicCount"], "3");
    assert_eq!(perm(&mut raw), json!(6));
    let none = raw.call(RequestCode::WIPE_WRITE_PERM_OF_BROKER, &[("brokerName", "x")], b"").ok();
    assert_eq!(none.ext["wipeTopicCount"], "0");
    raw.call(RequestCode::WIPE_WRITE_PERM_OF_BROKER, &[("brokerName", "a")], b"").ok();
    broker.counter = 2;
    raw.register(&broker).ok();
    assert_eq!(perm(&mut raw), json!(6));
}

#[test]
fn topic_lists_and_their_switches() {
    let server = Server::start(&[]);
    let mut raw = server.connect();
    raw.register(&Broker::new("a", 0, "h:1")).ok();
    let all = raw.call(RequestCode::GET_ALL_TOPIC_LIST_FROM_NAMESERVER, &[], b"").ok().json();
    assert_eq!(all["topicList"], json!(["SELF_TEST_TOPIC", "T", "TBW102"]));
    let mut of = |cluster| {
        let code = RequestCode::GET_TOPICS_BY_CLUSTER;
        raw.call(code, &[("cluster", cluster)], b"").ok().json()["topicList"].clone()
    };
    assert_eq!(of("DefaultCluster"), json!(["SELF_TEST_TOPIC", "T", "TBW102"]));
    assert_eq!(of("other"), json!([]));
    let system = raw.call(RequestCode::GET_SYSTEM_TOPIC_LIST_FROM_NS, &[], b"").ok().json();
    assert_eq!(system, json!({"brokerAddr": "h:1", "topicList": ["DefaultCluster", "a"]}));
    for code in [
        RequestCode::GET_UNIT_TOPIC_LIST,
        RequestCode::GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode::GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    ] {
        assert_eq!(raw.call(code, &[], b"").ok().json()["topicList"], json!([]));
    }

    let update = b"enableAllTopicList=false\nenableTopicList=false\n";
    raw.call(RequestCode::UPDATE_NAMESRV_CONFIG, &[], update).ok();
    for (code, ext) in [
        (RequestCode::GET_ALL_TOPIC_LIST_FROM_NAMESERVER, [("x", "")]),
        (RequestCode::GET_TOPICS_BY_CLUSTER, [("cluster", "DefaultCluster")]),
        (RequestCode::GET_UNIT_TOPIC_LIST, [("x", "")]),
    ] {
        let answer = raw.call(code, &ext, b"");
        assert_eq!((answer.code, answer.remark()), (ResponseCode::SYSTEM_ERROR, "disable"));
    }
    raw.call(RequestCode::GET_SYSTEM_TOPIC_LIST_FROM_NS, &[], b"").ok();
}

#[test]
fn topics_are_deleted_and_registered_without_a_broker() {
    let server = Server::start(&[]);
    let mut raw = server.connect();
    raw.register(&Broker::new("a", 0, "h:1")).ok();
    let delete = RequestCode::DELETE_TOPIC_IN_NAMESRV;
    raw.call(delete, &[("topic", "T"), ("clusterName", "other")], b"").ok();
    raw.route("T").ok();
    raw.call(delete, &[("topic", "T")], b"").ok();
    assert_eq!(raw.route("T").code, ResponseCode::TOPIC_NOT_EXIST);

    let register = RequestCode::REGISTER_TOPIC_IN_NAMESRV;
    let queues = |name: &str| {
        let queue = json!({"brokerName": name, "perm": 6, "readQueueNums": 3,
            "topicSysFlag": 0, "writeQueueNums": 3});
        json!({"brokerDatas": [], "filterServerTable": {}, "queueDatas": [queue]}).to_string()
    };
    let refused = raw.call(register, &[("topic", "X")], queues("ghost").as_bytes());
    assert!(refused.remark().contains("ghost"), "{refused:?}");
    raw.call(register, &[("topic", "X")], queues("a").as_bytes()).ok();
    assert_eq!(raw.route("X").ok().json()["queueDatas"][0]["readQueueNums"], json!(3));
}

#[test]
fn ordered_topics_go_to_brokers_and_with_the_switch_to_clients() {
    let server = Server::start(&[]);
    let mut raw = server.connect();
    let entry = [("namespace", "ORDER_TOPIC_CONFIG"), ("key", "T"), ("value", "a:4;b:4")];
    raw.call(RequestCode::PUT_KV_CONFIG, &entry, b"").ok();
    let registered = raw.register(&Broker::new("a", 0, "h:1")).ok();
    assert_eq!(registered.json(), json!({"table": {"T": "a:4;b:4"}}));
    assert!(raw.route("T").ok().json().get("orderTopicConf").is_none());
    raw.call(RequestCode::UPDATE_NAMESRV_CONFIG, &[], b"orderMessageEnable=true").ok();
    assert_eq!(raw.route("T").ok().json()["orderTopicConf"], json!("a:4;b:4"));
    assert!(raw.route("TBW102").ok().json().get("orderTopicConf").is_none());
    raw.call(RequestCode::UPDATE_NAMESRV_CONFIG, &[], b"returnOrderTopicConfigToBroker=false").ok();
    assert!(raw.register(&Broker::new("a", 0, "h:1")).ok().body.is_empty());
}

#[test]
fn key_value_configuration_survives_a_restart() {
    let server = Server::start(&[]);
    let mut raw = server.connect();
    let of = |raw: &mut Raw, namespace, key| {
        raw.call(RequestCode::GET_KV_CONFIG, &[("namespace", namespace), ("key", key)], b"")
    };
    let missing = of(&mut raw, "n", "k");
    assert_eq!(missing.code, ResponseCode::QUERY_NOT_FOUND);
    assert!(missing.remark().contains("Namespace: n Key: k"), "{missing:?}");
    for value in ["1", "2"] {
        let ext = [("namespace", "n"), ("key", "k"), ("value", value)];
        raw.call(RequestCode::PUT_KV_CONFIG, &ext, b"").ok();
    }
    let path = server.dir.path().join("namesrv/kvConfig.json");
    let content = std::fs::read_to_string(path).unwrap();
    assert_eq!(content, r#"{"configTable":{"n":{"k":"2"}}}"#);

    server.namesrv.shutdown();
    let config = raw::config(&server.dir, &[]);
    let again = rocketmq_namesrv::Namesrv::start(config).unwrap();
    let mut raw = Raw::connect(again.addr());
    assert_eq!(of(&mut raw, "n", "k").ok().ext["value"], "2");
    let list = |raw: &mut Raw, namespace| {
        raw.call(RequestCode::GET_KVLIST_BY_NAMESPACE, &[("namespace", namespace)], b"")
    };
    assert_eq!(list(&mut raw, "n").ok().json(), json!({"table": {"k": "2"}}));
    assert_eq!(list(&mut raw, "m").code, ResponseCode::QUERY_NOT_FOUND);
    raw.call(RequestCode::DELETE_KV_CONFIG, &[("namespace", "n"), ("key", "k")], b"").ok();
    assert_eq!(of(&mut raw, "n", "k").code, ResponseCode::QUERY_NOT_FOUND);
}

#[test]
fn configuration_is_shown_changed_written_and_guarded() {
    let server = Server::start(&[]);
    let mut raw = server.connect();
    let text = |raw: &mut Raw| {
        let answer = raw.call(RequestCode::GET_NAMESRV_CONFIG, &[], b"").ok();
        String::from_utf8(answer.body).unwrap()
    };
    let before = text(&mut raw);
    assert!(before.contains("orderMessageEnable=false\n"), "{before}");
    let lines: Vec<&str> = before.lines().collect();
    assert!(lines.is_sorted());

    let update = |raw: &mut Raw, text: &str| {
        raw.call(RequestCode::UPDATE_NAMESRV_CONFIG, &[], text.as_bytes())
    };
    update(&mut raw, "orderMessageEnable=true\nnoSuchKey=1\n").ok();
    assert!(text(&mut raw).contains("orderMessageEnable=true\n"));
    update(&mut raw, "waitSecondsForService=7").ok();
    let path = server.dir.path().join("namesrv.conf");
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(
        written.contains("waitSecondsForService=7\n")
            && written.contains("orderMessageEnable=true\n")
    );
    let previous = std::fs::read_to_string(path.with_extension("conf.bak")).unwrap();
    assert!(previous.contains("waitSecondsForService=45\n"), "{previous}");

    for key in ["kvConfigPath", "configStorePath", "configBlackList", "rocketmqHome"] {
        let refused = update(&mut raw, &format!("orderMessageEnable=false\n{key}=/tmp/x"));
        assert_eq!(refused.code, ResponseCode::NO_PERMISSION, "{key}");
        assert!(refused.remark().contains(key), "{refused:?}");
    }
    let refused = update(&mut raw, "orderMessageEnable=false\nscanNotActiveBrokerInterval=soon");
    assert_eq!(refused.code, ResponseCode::SYSTEM_ERROR);
    let remark = refused.remark();
    assert!(remark.contains("scanNotActiveBrokerInterval") && remark.contains("soon"), "{remark}");
    assert!(text(&mut raw).contains("orderMessageEnable=true\n"), "all or nothing");
}

#[test]
fn routes_are_refused_while_it_waits_for_brokers() {
    let server = Server::start(&[("needWaitForService", "true"), ("waitSecondsForService", "1")]);
    let mut raw = server.connect();
    raw.register(&Broker::new("a", 0, "h:1")).ok();
    let answer = raw.route("T");
    // On a machine that slept for a second in between it is ready already.
    if answer.code != ResponseCode::SUCCESS {
        assert_eq!(
            (answer.code, answer.remark()),
            (ResponseCode::SYSTEM_ERROR, "name server not ready")
        );
    }
    eventually("the time is over", || raw.route("T").code == ResponseCode::SUCCESS);
}

#[test]
fn brokers_are_told_of_a_new_lowest_id_when_asked_for() {
    let server = Server::start(&[("notifyMinBrokerIdChanged", "true")]);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let slave_addr = listener.local_addr().unwrap().to_string();
    let acting = |id, addr: &str| {
        let mut broker = Broker::new("a", id, addr);
        broker.more = vec![("enableActingMaster", "true".to_owned())];
        broker
    };
    let (mut master, mut slave) = (server.connect(), server.connect());
    master.register(&acting(0, "127.0.0.1:1")).ok();
    slave.register(&acting(1, &slave_addr)).ok();
    drop(master);
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut length = [0; 4];
    std::io::Read::read_exact(&mut stream, &mut length).unwrap();
    let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
    std::io::Read::read_exact(&mut stream, &mut bytes).unwrap();
    let frame = rocketmq_protocol::frame::Frame::decode(&bytes).unwrap();
    assert_eq!(frame.request_code(), RequestCode::NOTIFY_MIN_BROKER_ID_CHANGE);
    assert!(frame.is_oneway());
    assert_eq!(frame.ext.get("minBrokerId").as_deref(), Some("1"));
    assert_eq!(frame.ext.get("minBrokerAddr").as_deref(), Some(slave_addr.as_str()));
    assert_eq!(frame.ext.get("offlineBrokerAddr").as_deref(), Some("127.0.0.1:1"));
}

#[test]
fn health_and_metrics_over_http() {
    let server = Server::start(&[]);
    let mut raw = server.connect();
    raw.register(&Broker::new("a", 0, "h:1")).ok();
    raw.route("T").ok();
    raw.route("nowhere");
    let http = server.namesrv.metrics_addr().unwrap();
    for path in ["/livez", "/readyz"] {
        let (status, _) = http_get(http, path);
        assert!(status.contains("200"), "{path}: {status}");
    }
    let (_, metrics) = http_get(http, "/metrics");
    for line in [
        "rocketmq_namesrv_brokers 1",
        "rocketmq_namesrv_topics 3",
        "rocketmq_namesrv_connections 1",
        r#"rocketmq_namesrv_requests_total{request_code="GET_ROUTEINFO_BY_TOPIC",response_code="TOPIC_NOT_EXIST"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line} not in\n{metrics}");
    }
}

#[test]
fn a_port_that_is_taken_is_an_error_with_port_and_key() {
    let server = Server::start(&[]);
    let port = server.namesrv.addr().port().to_string();
    let dir = tempfile::tempdir().unwrap();
    let problem = |key: &str, port: &str| {
        let config = raw::config(&dir, &[(key, port)]);
        match rocketmq_namesrv::Namesrv::start(config) {
            Ok(_) => panic!("started on a port that is taken"),
            Err(error) => error.to_string(),
        }
    };
    let text = problem("listenPort", &port);
    assert!(text.contains(&port) && text.contains("listenPort"), "{text}");
    let http = server.namesrv.metrics_addr().unwrap().port().to_string();
    let text = problem("metricsPromExporterPort", &http);
    assert!(text.contains(&http) && text.contains("metricsPromExporterPort"), "{text}");
}

#[test]
fn garbage_closes_its_own_connection_only() {
    let server = Server::start(&[]);
    let (mut good, mut bad) = (server.connect(), server.connect());
    good.register(&Broker::new("a", 0, "h:1")).ok();
    bad.write(&[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    assert!(bad.is_closed_within(Duration::from_secs(5)));
    let mut bad = server.connect();
    bad.write(&[0, 0, 0, 9, 0, 0xff, 0xff, 0xff, b'{', b'{', b'{', b'{', b'{']);
    assert!(bad.is_closed_within(Duration::from_secs(5)));
    good.route("T").ok();
}

/// The table of requests in docs/compatibility.md says what is served; the broker has the same test.
#[test]
fn every_request_is_documented_as_it_is_answered() {
    let server = Server::start(&[]);
    let mut raw = server.connect();
    let text = include_str!("../../docs/compatibility.md");
    let mut seen = 0;
    for line in text.lines() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let [code, name, to, state] = *cells else { continue };
        let Ok(code) = code.parse() else { continue };
        let answer = raw.call(RequestCode(code), &[], b"");
        let is_answered = answer.code != ResponseCode::REQUEST_CODE_NOT_SUPPORTED;
        let is_documented = to == "name server" && state == "served";
        assert_eq!(is_answered, is_documented, "{name}: {state}, answered {answer:?}");
        seen += 1;
    }
    assert_eq!(seen, RequestCode::ALL.len(), "every request is in the table");
}
