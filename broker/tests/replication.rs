//! A master and its slaves: the log, topics and offsets are copied, and sends wait for copies.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{
    PATIENCE, Peer, TestBroker, eventually, heartbeat, pull_header, send_header, start_in,
    start_with, topic_header, with_field,
};
use rocketmq_broker::BrokerConfig;
use rocketmq_broker::config::BrokerRole;
use rocketmq_protocol::body::assignment::SetMessageRequestModeRequestBody;
use rocketmq_protocol::code::{RequestCode, ResponseCode};

/// Links that notice quickly; pieces that cut records.
fn quick(config: &mut BrokerConfig) {
    config.ha_send_heartbeat_interval = 50;
    config.ha_housekeeping_interval = 2_000;
    config.ha_transfer_batch_size = 777;
}

fn start_slave(master: &TestBroker, change: impl FnOnce(&mut BrokerConfig)) -> TestBroker {
    let dir = Arc::new(tempfile::tempdir().expect("temporary directory"));
    let slave = start_slave_in(dir, &master.state().identity.ha_addr, change);
    slave.state().replication.master_found(&master.broker.addr().to_string(), "");
    slave
}

fn start_slave_in(
    dir: Arc<tempfile::TempDir>,
    ha: &str,
    change: impl FnOnce(&mut BrokerConfig),
) -> TestBroker {
    start_in(dir, |config| {
        quick(config);
        config.broker_role = BrokerRole::Slave;
        config.broker_id = 1;
        config.slave_read_enable = true;
        config.ha_master_address = ha.to_owned();
        change(config);
    })
}

fn caught_up(master: &TestBroker, slave: &TestBroker) {
    eventually("the slave has the whole log", || {
        slave.state().store.written() == master.state().store.written()
            && slave.state().store.dispatched().0 == master.state().store.written().0
    });
}

fn pull(peer: &mut Peer, queue_offset: &str) -> common::Answer {
    let header = pull_header("readers", "orders", queue_offset);
    peer.call(RequestCode::PULL_MESSAGE, &header, b"")
}

/// Waits until the slave knows the topic, which comes by another way than the log.
fn knows_topic(slave: &TestBroker) {
    eventually("the slave knows the topic", || slave.state().topics.contains("orders"));
}

#[test]
fn a_slave_copies_how_groups_consume() {
    let master = start_with(quick);
    let mode = SetMessageRequestModeRequestBody {
        consumer_group: "g".into(),
        mode: "PULL".into(),
        topic: "orders".into(),
        ..SetMessageRequestModeRequestBody::default()
    };
    master.state().assignments.set_mode(mode).unwrap();
    let slave = start_slave(&master, |_| ());
    eventually("the slave knows the modes", || {
        slave.state().assignments.modes() == master.state().assignments.modes()
    });
}

#[test]
fn a_slave_copies_the_log_and_serves_it_when_the_master_is_gone() {
    let master = start_with(quick);
    let slave = start_slave(&master, |_| ());
    let mut producer = master.connect();
    let bodies: Vec<Vec<u8>> = (0..200_u32).map(|n| vec![n as u8; 10 + n as usize * 5]).collect();
    for body in &bodies {
        producer.produce("orders", 0, body);
    }
    caught_up(&master, &slave);
    knows_topic(&slave);
    let mut consumer = slave.connect();
    // With the master alive: messages are served, and the consumer is sent back.
    let found = pull(&mut consumer, "0").ok();
    assert_eq!(found.field("suggestWhichBrokerId"), "0");
    let ahead = pull(&mut consumer, "1000");
    assert_eq!(ahead.code, ResponseCode::PULL_RETRY_IMMEDIATELY.0);
    assert_eq!(ahead.field("nextBeginOffset"), "1000", "a slave moves nobody");
    consumer
        .call(RequestCode::SEND_MESSAGE_V2, &send_header("orders", "0"), b"x")
        .refused(ResponseCode::SERVICE_NOT_AVAILABLE, "slave");
    assert!(!slave.state().topics.contains("unknown"));
    consumer
        .call(RequestCode::SEND_MESSAGE_V2, &send_header("unknown", "0"), b"x")
        .refused(ResponseCode::SERVICE_NOT_AVAILABLE, "slave");

    let of_master = master.state().store.written();
    drop(producer);
    drop(master);
    eventually("the slave notices", || !slave.state().replication.is_following());
    let mut next = 0_i64;
    let mut count = 0;
    while next < bodies.len() as i64 {
        let found = pull(&mut consumer, &next.to_string());
        let found = found.ok();
        let begin: i64 = found.field("nextBeginOffset").parse().expect("an offset");
        count += begin - next;
        next = begin;
    }
    assert_eq!(count, bodies.len() as i64);
    let ahead = pull(&mut consumer, "1000");
    assert_eq!(ahead.code, ResponseCode::PULL_NOT_FOUND.0);
    assert_eq!(ahead.field("nextBeginOffset"), "1000");
    assert_eq!(slave.state().store.written(), of_master);
}

#[test]
fn reads_are_refused_unless_slaves_may_serve_them() {
    let master = start_with(quick);
    let slave = start_slave(&master, |config| config.slave_read_enable = false);
    master.connect().produce("orders", 0, b"one");
    caught_up(&master, &slave);
    let answer = pull(&mut slave.connect(), "0");
    assert_eq!(answer.code, ResponseCode::PULL_RETRY_IMMEDIATELY.0);
    assert_eq!((answer.field("suggestWhichBrokerId"), answer.field("nextBeginOffset")), ("0", "0"));
}

fn ha_status(broker: &TestBroker) -> serde_json::Value {
    broker.connect().call(RequestCode::GET_BROKER_HA_STATUS, &[], b"").ok().json()
}

#[test]
fn a_send_to_a_sync_master_waits_for_its_slaves() {
    let master = start_with(|config| {
        quick(config);
        config.broker_role = BrokerRole::SyncMaster;
        config.in_sync_replicas = 2;
        config.slave_timeout = 200;
    });
    let mut producer = master.connect();
    let send = |producer: &mut Peer, properties: &str| {
        let header = with_field(send_header("orders", "0"), "i", properties);
        producer.call(RequestCode::SEND_MESSAGE_V2, &header, b"x")
    };
    let alone = send(&mut producer, "WAIT\u{1}true\u{2}");
    assert_eq!(alone.code, ResponseCode::FLUSH_SLAVE_TIMEOUT.0);
    assert_eq!(alone.field("queueOffset"), "0", "it is stored all the same");
    assert_eq!(send(&mut producer, "WAIT\u{1}false\u{2}").ok().field("queueOffset"), "1");
    let slave = start_slave(&master, |_| ());
    caught_up(&master, &slave);
    for offset in 2..50 {
        assert_eq!(send(&mut producer, "").ok().field("queueOffset"), offset.to_string());
        // Answered means copied.
        assert_eq!(slave.state().store.written(), master.state().store.written());
    }
    let status = ha_status(&master);
    assert_eq!(
        (&status["master"], &status["inSyncSlaveNums"]),
        (&true.into(), &1.into()),
        "{status}"
    );
    let status = ha_status(&slave);
    assert_eq!(status["master"], false, "{status}");
    let is_counted = |link: &serde_json::Value| link["transferredByteInSecond"].as_i64() > Some(0);
    eventually("both count bytes a second", || {
        send(&mut producer, "").ok();
        is_counted(&ha_status(&master)["haConnectionInfo"][0])
            && is_counted(&ha_status(&slave)["haClientRuntimeInfo"])
    });
    slave.stop();
    let alone = send(&mut producer, "");
    assert_eq!(alone.code, ResponseCode::FLUSH_SLAVE_TIMEOUT.0);
}

#[test]
fn topics_groups_and_offsets_are_copied() {
    let master = start_with(quick);
    let slave = start_slave(&master, |_| ());
    let mut admin = master.connect();
    admin.call(RequestCode::UPDATE_AND_CREATE_TOPIC, &topic_header("orders", "3"), b"").ok();
    admin.call(RequestCode::UPDATE_AND_CREATE_TOPIC, &topic_header("other", "1"), b"").ok();
    admin.call(RequestCode::HEART_BEAT, &[], heartbeat("c1", "billing", "orders").as_bytes()).ok();
    let commit = [
        ("consumerGroup", "billing"),
        ("topic", "orders"),
        ("queueId", "2"),
        ("commitOffset", "17"),
    ];
    admin.call(RequestCode::UPDATE_CONSUMER_OFFSET, &commit, b"").ok();
    let state = slave.state();
    eventually("offsets came", || state.offsets.query("billing", "orders", 2) == Some(17));
    eventually("topics came", || {
        state.topics.get("orders").is_some_and(|topic| topic.write_queue_nums == 3)
            && state.topics.contains("other")
    });
    eventually("groups came", || state.groups.get("billing").is_some());
    let (of_master, _) = master.state().topics.versioned_snapshot();
    assert_eq!(state.topics.versioned_snapshot().0, of_master);
    admin.call(RequestCode::DELETE_TOPIC_IN_BROKER, &[("topic", "other")], b"").ok();
    eventually("the topic is gone", || !state.topics.contains("other"));
}

#[test]
fn both_sides_go_on_after_restarts() {
    let master = start_with(quick);
    let slave = start_slave(&master, |_| ());
    let mut sent = 0;
    let mut produce = |broker: &TestBroker, count: usize| {
        let mut producer = broker.connect();
        for _ in 0..count {
            producer.produce("orders", 0, &vec![7; 2_000]);
            sent += 1;
        }
        sent
    };
    produce(&master, 300);
    caught_up(&master, &slave);
    let ha = master.state().identity.ha_addr.clone();
    let slave_dir = slave.stop();
    // More than a file of the log meanwhile.
    produce(&master, 700);
    let slave = start_slave_in(slave_dir, &ha, |_| ());
    caught_up(&master, &slave);
    let master_dir = master.stop();
    let ha_port: i32 = ha.rsplit_once(':').expect("a port").1.parse().expect("a port");
    let master = start_in(master_dir, |config| {
        quick(config);
        config.ha_listen_port = ha_port;
    });
    let count = produce(&master, 50);
    caught_up(&master, &slave);
    assert_eq!(slave.state().store.max_queue_offset("orders", 0), i64::from(count));
}

#[test]
fn a_slave_with_another_log_is_turned_away() {
    let master = start_with(quick);
    master.connect().produce("orders", 0, b"one");
    let longer = start_with(|_| ());
    for _ in 0..10 {
        longer.connect().produce("orders", 0, b"another");
    }
    let written = longer.state().store.written();
    let dir = longer.stop();
    // The test stands between the two, to see that the slave asks and what it is told.
    let between = TcpListener::bind("127.0.0.1:0").expect("bind");
    let ha = between.local_addr().expect("an address").to_string();
    let slave = start_slave_in(dir, &ha, |_| ());
    let (mut from_slave, _) = between.accept().expect("it connects");
    let mut asked = [0; 8];
    from_slave.read_exact(&mut asked).expect("where it goes on");
    assert_eq!(i64::from_be_bytes(asked), written.0);
    let mut to_master = TcpStream::connect(&master.state().identity.ha_addr).expect("connect");
    to_master.set_read_timeout(Some(PATIENCE)).expect("timeout");
    to_master.write_all(&asked).expect("write");
    let mut told = Vec::new();
    to_master.read_to_end(&mut told).expect("closed");
    assert!(told.is_empty(), "{told:?}");
    assert_eq!(master.state().replication.copies(0), 0);
    // Turned away, it tries again, and keeps what it has.
    drop(from_slave);
    between.accept().expect("it connects again");
    assert_eq!(slave.state().store.written(), written);
}

#[test]
fn garbage_at_the_ha_port_harms_nobody() {
    let master = start_with(quick);
    let ha = master.state().identity.ha_addr.clone();
    for bytes in [&[0xFF; 64][..], b"GET / HTTP/1.1\r\n\r\n", &[0; 3], &i64::MAX.to_be_bytes()] {
        let mut socket = TcpStream::connect(&ha).expect("connect");
        socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
        socket.write_all(bytes).expect("write");
        // Closed at once, or for want of a word.
        let begun = Instant::now();
        let mut rest = Vec::new();
        let _ = socket.read_to_end(&mut rest);
        assert!(begun.elapsed() < Duration::from_secs(15));
    }
    let slave = start_slave(&master, |_| ());
    master.connect().produce("orders", 0, b"one");
    caught_up(&master, &slave);
}
