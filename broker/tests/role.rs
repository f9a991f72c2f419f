//! A broker that becomes master and slave while it runs.

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{
    PATIENCE, Peer, TestBroker, eventually, pull_header, send_header, start_in, start_with,
    topic_header, with_field,
};
use parking_lot::Mutex;
use rocketmq_broker::config::{BrokerRole, FlushDiskType};
use rocketmq_broker::role::{AcknowledgeGate, Addresses, Names, Role};
use rocketmq_protocol::body::RegisterBrokerBody;
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::frame::Frame;
use rocketmq_protocol::header::registration::{RegisterBrokerRequest, UnregisterBrokerRequest};
use rocketmq_protocol::response::Response;
use rocketmq_remoting::{Connection, Output, Server, ServerConfig, Service, bind};
use rocketmq_replication::FencedBy;

const SEND: RequestCode = RequestCode::SEND_MESSAGE_V2;

fn send(peer: &mut Peer, body: &[u8]) -> i32 {
    peer.send(SEND, &send_header("orders", "0"), body, false)
}

fn pull(peer: &mut Peer, queue_offset: &str) -> common::Answer {
    peer.call(RequestCode::PULL_MESSAGE, &pull_header("readers", "orders", queue_offset), b"")
}

/// A pull that waits for messages.
fn held_pull(peer: &mut Peer, queue_offset: &str) -> i32 {
    let header = pull_header("readers", "orders", queue_offset);
    let header = with_field(header, "sysFlag", "6");
    let header = with_field(header, "suspendTimeoutMillis", "60000");
    peer.send(RequestCode::PULL_MESSAGE, &header, b"", false)
}

fn waits(broker: &TestBroker, pulls: usize) {
    eventually("pulls wait", || broker.state().long_polls.len() == pulls);
}

/// Takes the log of one broker into another one, as a slave does.
fn copy(from: &TestBroker, to: &TestBroker) {
    let (from, to) = (&from.state().store, &to.state().store);
    while let Some(piece) = from.log_bytes(to.written().0, 1 << 20) {
        to.append_copy(to.written().0, &piece).expect("it fits");
    }
}

#[test]
fn a_slave_that_becomes_master_goes_on_where_the_old_one_ended() {
    let old = start_with(|_| ());
    let mut producer = old.connect();
    for n in 0..7 {
        producer.produce("orders", 0, format!("message {n}").as_bytes());
    }
    let delayed = with_field(send_header("orders", "0"), "i", "DELAY\u{1}1\u{2}WAIT\u{1}true\u{2}");
    producer.call(SEND, &delayed, b"delayed").ok();

    let new = start_with(|_| ());
    new.state().become_slave(FencedBy::Role);
    copy(&old, &new);
    let mut peer = new.connect();
    let header = send_header("orders", "0");
    peer.call(SEND, &header, b"x").refused(ResponseCode::SERVICE_NOT_AVAILABLE, "slave");
    assert!(!new.state().topics.contains("orders"), "metadata was never copied");

    new.state().become_master(5).expect("it becomes master");
    assert_eq!(new.state().role.role(), Role::Master { epoch: 5 });
    let topic = new.state().topics.get("orders").expect("messages make their topic");
    assert_eq!((topic.read_queue_nums, topic.write_queue_nums), (1, 1));
    // Either the delayed one or this one comes first.
    let (queue_offset, _) = peer.produce("orders", 0, b"the first of the new master");
    assert!((7..=8).contains(&queue_offset), "{queue_offset}");
    eventually("the delayed message is delivered", || {
        new.state().store.max_queue_offset("orders", 0) == 9
    });
    let answer = pull(&mut peer, "0").ok();
    assert_eq!(answer.field("nextBeginOffset"), "9");
}

#[test]
fn all_queues_of_a_topic_without_settings_can_be_read() {
    let old = start_with(|_| ());
    let mut producer = old.connect();
    producer.call(RequestCode::UPDATE_AND_CREATE_TOPIC, &topic_header("wide", "6"), b"").ok();
    let batches = with_field(topic_header("batches", "2"), "attributes", "+queue.type=BatchCQ");
    producer.call(RequestCode::UPDATE_AND_CREATE_TOPIC, &batches, b"").ok();
    producer.call(SEND, &send_header("wide", "4"), b"in queue 4").ok();
    producer.call(SEND, &send_header("wide", "1"), b"in queue 1").ok();
    let new = start_with(|_| ());
    new.state().become_slave(FencedBy::Role);
    copy(&old, &new);
    new.state().become_master(1).expect("it becomes master");
    let topic = new.state().topics.get("wide").expect("it is made");
    assert_eq!((topic.read_queue_nums, topic.write_queue_nums, topic.perm), (5, 5, 6));
    assert!(!new.state().topics.contains("batches"), "it has no message");
    let dir = new.stop();
    let new = start_in(dir, |_| ());
    assert!(new.state().topics.contains("wide"), "it is on disk");
}

#[test]
fn a_master_that_steps_down_refuses_and_lets_nobody_wait() {
    let broker = start_with(|config| {
        config.broker_role = BrokerRole::SyncMaster;
        config.in_sync_replicas = 2;
        config.slave_timeout = 60_000;
    });
    let (mut producer, mut consumer) = (broker.connect(), broker.connect());
    producer.heartbeat("client", "group", "orders");
    let no_wait = with_field(send_header("orders", "0"), "i", "WAIT\u{1}false\u{2}");
    producer.call(SEND, &no_wait, b"it does not wait").ok();
    let waiting = send(&mut producer, b"it waits for a slave that is not there");
    let pulling = held_pull(&mut consumer, "2");
    waits(&broker, 1);
    let lock = r#"{"consumerGroup":"readers","clientId":"c","mqSet":[{"topic":"orders",
        "brokerName":"broker-a","queueId":0}]}"#;
    consumer.call(RequestCode::LOCK_BATCH_MQ, &[], lock.as_bytes()).ok();

    broker.state().become_slave(FencedBy::Role);
    producer.answer_of(waiting).refused(ResponseCode::SERVICE_NOT_AVAILABLE, "master");
    assert_eq!(consumer.answer_of(pulling).code, ResponseCode::PULL_NOT_FOUND.0);
    // It looks for the master anew.
    producer.rest();
    let mut other = broker.connect();
    let header = send_header("orders", "0");
    other.call(SEND, &header, b"x").refused(ResponseCode::SERVICE_NOT_AVAILABLE, "slave");
    let other_lock = lock.replace("\"c\"", "\"other\"");
    broker.state().become_master(2).expect("it becomes master again");
    let locked = other.call(RequestCode::LOCK_BATCH_MQ, &[], other_lock.as_bytes()).ok();
    assert!(locked.text().contains("orders"), "the lock is free: {}", locked.text());
    // Stored, but never acknowledged.
    other.call(SEND, &no_wait, b"x").ok();
    assert_eq!(broker.state().store.max_queue_offset("orders", 0), 3);
}

struct Gate(AtomicBool);

impl AcknowledgeGate for Gate {
    fn may_acknowledge(&self) -> Result<(), FencedBy> {
        if self.0.load(Ordering::SeqCst) { Ok(()) } else { Err(FencedBy::Lease) }
    }
}

#[test]
fn nothing_is_acknowledged_while_the_gate_is_closed() {
    for flush_disk_type in [FlushDiskType::AsyncFlush, FlushDiskType::SyncFlush] {
        let broker = start_with(|config| config.flush_disk_type = flush_disk_type);
        let gate = Arc::new(Gate(AtomicBool::new(true)));
        broker.state().role.set_gate(gate.clone());
        let mut peer = broker.connect();
        peer.produce("orders", 0, b"one");
        gate.0.store(false, Ordering::SeqCst);
        let header = send_header("orders", "0");
        let answer = peer.call(SEND, &header, b"two");
        answer.refused(ResponseCode::SERVICE_NOT_AVAILABLE, "lease");
        assert_eq!(broker.state().store.max_queue_offset("orders", 0), 2, "it was stored");
        gate.0.store(true, Ordering::SeqCst);
        assert_eq!(peer.produce("orders", 0, b"three").0, 2);
    }
}

#[test]
fn sends_wait_for_a_handover_that_is_called_off() {
    let broker = start_with(|_| ());
    let mut peer = broker.connect();
    peer.produce("orders", 0, b"one");
    broker.state().set_fenced(Some(FencedBy::Handover));
    let held: Vec<i32> = (0..5).map(|n| send(&mut peer, &[b'0' + n])).collect();
    eventually("they wait", || broker.state().held_sends.len() == 5);
    assert!(!peer.was_answered(held[0]));
    assert_eq!(broker.state().store.max_queue_offset("orders", 0), 1);
    broker.state().set_fenced(None);
    for (n, opaque) in held.into_iter().enumerate() {
        let answer = peer.answer_of(opaque).ok();
        assert_eq!(answer.field("queueOffset"), (n + 1).to_string());
    }
    assert_eq!(peer.produce("orders", 0, b"last").0, 6);
}

#[test]
fn connections_of_held_sends_are_closed_when_the_handover_is_done() {
    let broker = start_with(|_| ());
    let mut peer = broker.connect();
    peer.produce("orders", 0, b"one");
    broker.state().hold_sends(true);
    send(&mut peer, b"two");
    eventually("it waits", || broker.state().held_sends.len() == 1);
    let handed_over = Instant::now();
    broker.state().become_slave(FencedBy::Handover);
    assert!(peer.rest().is_empty(), "closed without an answer");
    let held = handed_over.elapsed();
    assert!(held >= Duration::from_secs(1), "closed after {held:?}, when nobody may be found yet");
    // One that comes back too soon.
    let (mut early, came) = (broker.connect(), Instant::now());
    send(&mut early, b"three");
    assert!(early.rest().is_empty(), "closed without an answer");
    assert!(came.elapsed() >= Duration::from_secs(1), "closed after {:?}", came.elapsed());
    assert!(broker.state().held_sends.is_empty());
    // As soon as the broker is master again nobody waits.
    let mut back = broker.connect();
    let opaque = send(&mut back, b"four");
    eventually("it waits", || broker.state().held_sends.len() == 1);
    broker.state().become_master(2).expect("it is master");
    assert_eq!(back.answer_of(opaque).ok().field("queueOffset"), "1");
}

#[test]
fn a_handover_that_takes_too_long_makes_the_broker_busy() {
    let broker = start_with(|_| ());
    let mut peer = broker.connect();
    peer.produce("orders", 0, b"one");
    broker.state().hold_sends(true);
    let begun = Instant::now();
    let opaque = send(&mut peer, b"two");
    peer.answer_of(opaque).refused(ResponseCode::SYSTEM_BUSY, "broker busy");
    assert!(begun.elapsed() >= Duration::from_secs(3));
    assert!(broker.state().held_sends.is_empty());
}

#[test]
fn a_fenced_master_says_why() {
    let broker = start_with(|_| ());
    let mut peer = broker.connect();
    let header = send_header("orders", "0");
    peer.produce("orders", 0, b"one");
    broker.state().set_fenced(Some(FencedBy::InSyncSet));
    peer.call(SEND, &header, b"x").refused(ResponseCode::SYSTEM_ERROR, "in-sync replicas");
    broker.state().set_fenced(Some(FencedBy::Lease));
    peer.call(SEND, &header, b"x").refused(ResponseCode::SERVICE_NOT_AVAILABLE, "lease");
    assert_eq!(pull(&mut peer, "0").ok().field("nextBeginOffset"), "1", "it is read on");
    broker.state().set_fenced(None);
    assert_eq!(peer.produce("orders", 0, b"two").0, 1);
}

#[test]
fn a_send_is_answered_and_shown_once_it_is_confirmed() {
    let broker = start_with(|config| config.broker_role = BrokerRole::SyncMaster);
    let state = broker.state();
    state.store.show_confirmed_only().expect("it is written down");
    let (mut producer, mut consumer) = (broker.connect(), broker.connect());
    let no_wait = with_field(send_header("orders", "0"), "i", "WAIT\u{1}false\u{2}");
    producer.call(SEND, &no_wait, b"it does not wait").ok();
    let opaque = send(&mut producer, b"one");
    eventually("both are stored", || {
        let first = state.store.written_message_at(0);
        first.is_some_and(|first| state.store.written_message_at(first.len() as i64).is_some())
    });
    let pulling = held_pull(&mut consumer, "0");
    waits(&broker, 1);
    assert!(!producer.was_answered(opaque) && !consumer.was_answered(pulling));
    let first = state.store.written_message_at(0).expect("it is there").len() as i64;
    state.confirm(first);
    assert_eq!(consumer.answer_of(pulling).ok().field("nextBeginOffset"), "1");
    assert!(!producer.was_answered(opaque));
    state.confirm(state.store.written().0);
    assert_eq!(producer.answer_of(opaque).ok().field("queueOffset"), "1");
    assert_eq!(pull(&mut consumer, "1").ok().field("nextBeginOffset"), "2");

    // A slave of such a group lets who sends to it look for the master.
    state.become_slave(FencedBy::Role);
    let mut lost = broker.connect();
    let header = send_header("orders", "0");
    lost.call(SEND, &header, b"x").refused(ResponseCode::SERVICE_NOT_AVAILABLE, "slave");
    assert!(lost.rest().is_empty(), "closed");
}

#[test]
fn a_consumer_that_reached_a_slave_by_the_masters_address_connects_anew() {
    let master = start_with(|config| config.ha_send_heartbeat_interval = 50);
    let ha = master.state().identity.ha_addr.clone();
    let slave = start_with(|config| {
        config.broker_role = BrokerRole::Slave;
        config.broker_id = 1;
        config.slave_read_enable = true;
        config.ha_master_address = ha;
    });
    let state = slave.state();
    state.store.show_confirmed_only().expect("it is written down");
    state.replication.master_found(&master.broker.addr().to_string(), "");
    master.connect().produce("orders", 0, b"one");
    eventually("the slave has the message and its topic", || {
        state.confirm(state.store.written().0);
        state.topics.contains("orders") && state.store.max_queue_offset("orders", 0) == 1
    });
    // One that means a slave commits no offset with its pull.
    let mut consumer = slave.connect();
    pull(&mut consumer, "0").ok();
    let header = with_field(pull_header("readers", "orders", "0"), "sysFlag", "5");
    let answer = consumer.call(RequestCode::PULL_MESSAGE, &header, b"");
    answer.refused(ResponseCode::PULL_RETRY_IMMEDIATELY, "connect anew");
    assert!(consumer.rest().is_empty(), "closed");
    assert_eq!(state.offsets.query("readers", "orders", 0), None, "nothing is committed here");
}

/// What a name server was told: id, address, state version; a removal has no version.
type Told = (i64, String, Option<i64>);

#[derive(Default)]
struct NameServer(Mutex<Vec<Told>>);

impl Service for NameServer {
    fn serve(&self, _conn: &Arc<Connection>, requests: &[Frame<'_>], out: &mut Output) {
        for request in requests {
            let told = match request.request_code() {
                RequestCode::REGISTER_BROKER => {
                    let header: RegisterBrokerRequest<'_> = request.header().expect("header");
                    let body = RegisterBrokerBody::decode(request.body, false, request.version);
                    let wrapper = body.expect("body").topic_config_serialize_wrapper;
                    let version = wrapper.data_version.state_version;
                    (header.broker_id, header.broker_addr.into_owned(), Some(version))
                }
                RequestCode::UNREGISTER_BROKER => {
                    let header: UnregisterBrokerRequest<'_> = request.header().expect("header");
                    (header.broker_id, header.broker_addr.into_owned(), None)
                }
                other => panic!("unexpected {other}"),
            };
            self.0.lock().push(told);
            out.reply(request.ticket(), &Response::ok());
        }
    }
}

fn name_server() -> (Server, Arc<NameServer>, SocketAddr) {
    let service = Arc::new(NameServer::default());
    let listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    let config = ServerConfig { listen, ..ServerConfig::default() };
    let server = bind(config, service.clone()).expect("bind");
    let addr = server.local_addrs()[0];
    (server, service, addr)
}

#[test]
fn name_servers_hear_at_once_who_it_is_now() {
    let (_server, service, addr) = name_server();
    let broker = start_with(|config| config.namesrv_addr = addr.to_string());
    let state = broker.state();
    // Within less than the time between two registrations.
    let period_ms = u128::try_from(state.config.load().register_name_server_period);
    assert!(period_ms.is_ok_and(|period_ms| period_ms > PATIENCE.as_millis()));
    let heard = |told: Told| {
        eventually("the name server is told", || service.0.lock().contains(&told));
        service.0.lock().clear();
    };
    heard((0, state.identity.broker_addr.clone(), Some(0)));
    let at = |host: &str| Addresses { broker: format!("{host}:1"), ha: format!("{host}:2") };
    let names = Names { slave_id: 2, as_master: at("group"), as_slave: at("pod-2") };
    state.role.set_names(names);
    state.become_slave(FencedBy::Role);
    heard((2, "pod-2:1".into(), Some(0)));
    state.become_master(7).expect("it becomes master");
    // The slave's registration goes, once the master's is there.
    eventually("the slave is taken out", || service.0.lock().len() >= 2);
    let told = std::mem::take(&mut *service.0.lock());
    assert_eq!(told[..2], [(0, "group:1".into(), Some(7)), (2, "pod-2:1".into(), None)]);
    state.become_slave(FencedBy::Handover);
    heard((2, "pod-2:1".into(), Some(7)));
    broker.stop();
    let told = service.0.lock().clone();
    assert_eq!(told.last(), Some(&(2, "pod-2:1".into(), None)));
    assert!(!told.iter().any(|(id, ..)| *id == 0), "the master's place is the next master's");
}
