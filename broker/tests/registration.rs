//! Registration at name servers, probes and metrics.

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use common::{eventually, http, start_with, topic_header};
use parking_lot::Mutex;
use rocketmq_protocol::body::RegisterBrokerBody;
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::frame::Frame;
use rocketmq_protocol::header::registration::{RegisterBrokerRequest, UnregisterBrokerRequest};
use rocketmq_protocol::response::Response;
use rocketmq_remoting::{Connection, Output, Server, ServerConfig, Service, bind};

/// What a name server was told.
#[derive(Clone, Debug, Default)]
struct Told {
    registrations: usize,
    broker_addr: String,
    ha_addr: String,
    body: RegisterBrokerBody,
    is_unregistered: bool,
}

#[derive(Default)]
struct NameServer {
    told: Mutex<Told>,
    refuses: bool,
}

impl Service for NameServer {
    fn serve(&self, _conn: &Arc<Connection>, requests: &[Frame<'_>], out: &mut Output) {
        for request in requests {
            let mut told = self.told.lock();
            match request.request_code() {
                RequestCode::REGISTER_BROKER if self.refuses => {
                    out.reply_error(request.ticket(), ResponseCode::SYSTEM_ERROR, "not now");
                    continue;
                }
                RequestCode::REGISTER_BROKER => {
                    let header: RegisterBrokerRequest<'_> = request.header().expect("header");
                    let crc = crc32fast::hash(request.body) & 0x7FFF_FFFF;
                    assert_eq!(header.body_crc32, i32::try_from(crc).expect("31 bits"));
                    let decoded = RegisterBrokerBody::decode(
                        request.body,
                        header.compressed,
                        request.version,
                    );
                    told.registrations += 1;
                    told.broker_addr = header.broker_addr.into_owned();
                    told.ha_addr = header.ha_server_addr.into_owned();
                    told.body = decoded.expect("body");
                }
                RequestCode::UNREGISTER_BROKER => {
                    let header: UnregisterBrokerRequest<'_> = request.header().expect("header");
                    assert_eq!(header.broker_addr, told.broker_addr);
                    told.is_unregistered = true;
                }
                other => panic!("unexpected {other}"),
            }
            out.reply(request.ticket(), &Response::ok());
        }
    }
}

fn name_server(addr: SocketAddr, refuses: bool) -> (Server, Arc<NameServer>, SocketAddr) {
    let service = Arc::new(NameServer { refuses, ..NameServer::default() });
    let config = ServerConfig { listen: vec![addr], ..ServerConfig::default() };
    let server = bind(config, service.clone()).expect("bind");
    let addr = server.local_addrs()[0];
    (server, service, addr)
}

fn any() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

#[test]
fn every_name_server_is_told_at_start_at_changes_and_at_the_end() {
    let (_s1, first, addr1) = name_server(any(), false);
    let (_s2, second, addr2) = name_server(any(), false);
    let broker = start_with(|config| {
        config.namesrv_addr = format!("{addr1};{addr2}");
        config.broker_ip1 = "broker-a.brokers.svc".into();
        config.store_host = "127.0.0.1".into();
    });
    for name_server in [&first, &second] {
        eventually("registered", || name_server.told.lock().registrations > 0);
    }
    let port = broker.broker.addr().port();
    let told = first.told.lock().clone();
    assert_eq!(told.broker_addr, format!("broker-a.brokers.svc:{port}"), "the name as it is");
    // Of a broker on any free port the HA port is any free one as well.
    let ha_port: u16 =
        told.ha_addr.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    assert_eq!(told.ha_addr, format!("broker-a.brokers.svc:{ha_port}"));
    std::net::TcpStream::connect(("127.0.0.1", ha_port)).expect("slaves can connect");
    let table = told.body.topic_config_serialize_wrapper;
    assert_eq!(table.topic_config_table["TBW102"].perm, 7);
    let version = table.data_version.counter;
    // Once the answer is there, the route is there.
    let mut peer = broker.connect();
    let code = RequestCode::UPDATE_AND_CREATE_TOPIC;
    peer.call(code, &topic_header("orders", "4"), b"").ok();
    for name_server in [&first, &second] {
        let told = name_server.told.lock();
        let table = &told.body.topic_config_serialize_wrapper;
        assert!(table.topic_config_table.contains_key("orders"));
        assert!(table.data_version.counter > version);
    }
    peer.call(RequestCode::UPDATE_BROKER_CONFIG, &[], b"brokerPermission=4\n").ok();
    eventually("the permission is told", || {
        let told = first.told.lock();
        told.body.topic_config_serialize_wrapper.topic_config_table["orders"].perm == 4
    });
    broker.stop();
    assert!(first.told.lock().is_unregistered && second.told.lock().is_unregistered);
}

#[test]
fn a_dead_name_server_delays_neither_start_nor_changes() {
    let (_server, alive, addr) = name_server(any(), false);
    let (dead, _, dead_addr) = name_server(any(), false);
    drop(dead);
    let broker = start_with(|config| config.namesrv_addr = format!("{dead_addr};{addr}"));
    eventually("registered", || alive.told.lock().registrations > 0);
    let began = std::time::Instant::now();
    let mut peer = broker.connect();
    peer.call(RequestCode::UPDATE_AND_CREATE_TOPIC, &topic_header("orders", "4"), b"").ok();
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(broker.state().registration.registered_at(), [addr.to_string()]);
}

#[test]
fn a_restarted_name_server_is_told_again_at_once() {
    let (server, first, addr) = name_server(any(), false);
    let broker = start_with(|config| config.namesrv_addr = addr.to_string());
    eventually("registered", || first.told.lock().registrations > 0);
    server.shutdown(Duration::from_secs(1));
    drop(server);
    let (_server, second, _) = name_server(addr, false);
    // Far below the period of 30 s.
    let began = std::time::Instant::now();
    eventually("registered again", || second.told.lock().registrations > 0);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    drop(broker);
}

#[test]
fn name_servers_can_be_changed_at_run_time() {
    let (_s1, first, addr1) = name_server(any(), false);
    let (_s2, second, addr2) = name_server(any(), false);
    let broker = start_with(|config| config.namesrv_addr = addr1.to_string());
    eventually("registered", || first.told.lock().registrations > 0);
    let change = format!("namesrvAddr={addr2}\n");
    broker.connect().call(RequestCode::UPDATE_BROKER_CONFIG, &[], change.as_bytes()).ok();
    eventually("registered at the new one", || second.told.lock().registrations > 0);
    eventually("forgotten at the old one", || {
        broker.state().registration.registered_at() == [addr2.to_string()]
    });
}

#[test]
fn ready_means_registered_if_there_is_a_name_server() {
    let (_server, _, addr) = name_server(any(), true);
    let broker = start_with(|config| config.namesrv_addr = addr.to_string());
    let http_addr = broker.broker.metrics_addr().expect("probes");
    assert_eq!(http(http_addr, "/livez").0, 200);
    let (status, why) = http(http_addr, "/readyz");
    assert_eq!(status, 503);
    assert!(why.contains("not registered") && why.contains(&addr.to_string()), "{why}");
    let (_server, _, good) = name_server(any(), false);
    let change = format!("namesrvAddr={addr};{good}\n");
    broker.connect().call(RequestCode::UPDATE_BROKER_CONFIG, &[], change.as_bytes()).ok();
    eventually("ready", || http(http_addr, "/readyz").0 == 200);
}

#[test]
fn metrics_have_rocketmqs_names_and_labels() {
    let broker = start_with(|_| ());
    let http_addr = broker.broker.metrics_addr().expect("probes");
    assert_eq!(http(http_addr, "/readyz").0, 200, "no name server is configured");
    let mut peer = broker.connect();
    for _ in 0..3 {
        peer.produce("orders", 0, b"body");
    }
    peer.heartbeat("c1", "g", "orders");
    let commit =
        [("consumerGroup", "g"), ("topic", "orders"), ("queueId", "0"), ("commitOffset", "1")];
    peer.call(RequestCode::UPDATE_CONSUMER_OFFSET, &commit, b"").ok();
    let (status, text) = http(http_addr, "/metrics");
    assert_eq!(status, 200);
    let value = |name: &str, labels: &[&str]| -> f64 {
        let wanted = format!("{name}{{");
        let line = text
            .lines()
            .find(|line| line.starts_with(&wanted) && labels.iter().all(|l| line.contains(l)))
            .unwrap_or_else(|| panic!("no {name} {labels:?} in\n{text}"));
        for common in
            [r#"cluster="DefaultCluster""#, r#"node_type="broker""#, r#"node_id="broker-a""#]
        {
            assert!(line.contains(common), "{line}");
        }
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let orders = r#"topic="orders""#;
    assert_eq!(value("rocketmq_messages_in_total", &[orders, r#"is_system="false""#]), 3.0);
    assert!(value("rocketmq_throughput_in_total", &[orders, r#"message_type="normal""#]) > 0.0);
    assert_eq!(value("rocketmq_message_size_count", &[orders]), 3.0);
    let lag = [orders, r#"consumer_group="g""#, r#"is_retry="false""#];
    assert_eq!(value("rocketmq_consumer_lag_messages", &lag), 2.0);
    let heartbeats = [r#"request_code="heart_beat""#, r#"response_code="success""#];
    assert_eq!(value("rocketmq_rpc_latency_milliseconds_count", &heartbeats), 1.0);
    let sends = [r#"request_code="send_message_v2""#, r#"is_long_polling="false""#];
    assert_eq!(value("rocketmq_rpc_latency_milliseconds_count", &sends), 3.0);
    assert_eq!(value("rocketmq_broker_permission", &[]), 6.0);
    assert!(value("rocketmq_topic_number", &[]) > 10.0);
    assert!(value("rocketmq_consumer_group_number", &[]) > 5.0);
    let push = [r#"consume_mode="push""#, r#"language="java""#, r#"version="v5_3_3""#];
    assert_eq!(value("rocketmq_consumer_connections", &push), 1.0);
    assert_eq!(value("rocketmq_producer_connections", &[r#"protocol_type="remoting""#]), 1.0);
    let disk = [r#"storage_type="local""#, r#"storage_medium="disk""#];
    assert!(value("rocketmq_storage_size_bytes", &disk) > 0.0);
    assert_eq!(value("rocketmq_storage_dispatch_behind_bytes", &disk), 0.0);
    assert!(value("rocketmq_remoting_reads_total", &[]) >= 5.0);
}
