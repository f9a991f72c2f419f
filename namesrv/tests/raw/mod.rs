//! A name server on free ports and a client that speaks raw frames to it.

#![allow(dead_code, reason = "each test program uses its part")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use rocketmq_namesrv::{Namesrv, NamesrvConfig};
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::fastjson;
use rocketmq_protocol::frame::{self, Frame, Head, SerializeType};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A running name server and the directory of its files.
pub struct Server {
    pub namesrv: Namesrv,
    pub dir: TempDir,
}

impl Server {
    pub fn start(pairs: &[(&str, &str)]) -> Server {
        let dir = tempfile::tempdir().unwrap();
        let namesrv = Namesrv::start(config(&dir, pairs)).unwrap();
        Server { namesrv, dir }
    }

    pub fn connect(&self) -> Raw {
        Raw::connect(self.namesrv.addr())
    }
}

pub fn config(dir: &TempDir, pairs: &[(&str, &str)]) -> NamesrvConfig {
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let mut config = NamesrvConfig {
        bind_address: "127.0.0.1".to_owned(),
        listen_port: 0,
        metrics_prom_exporter_host: "127.0.0.1".to_owned(),
        metrics_prom_exporter_port: 0,
        kv_config_path: path("namesrv/kvConfig.json"),
        config_store_path: path("namesrv.conf"),
        shutdown_wait_time_seconds: 1,
        ..NamesrvConfig::default()
    };
    for (key, value) in pairs {
        assert!(config.set(key, value).unwrap(), "{key}");
    }
    config
}

/// One connection.
pub struct Raw {
    stream: TcpStream,
    opaque: i32,
    pub serialize: SerializeType,
    pub version: i32,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub code: ResponseCode,
    pub opaque: i32,
    pub remark: Option<String>,
    pub ext: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        fastjson::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    pub fn ok(self) -> Answer {
        assert_eq!(self.code, ResponseCode::SUCCESS, "{:?}", self.remark);
        self
    }

    pub fn remark(&self) -> &str {
        self.remark.as_deref().unwrap_or_default()
    }
}

impl Raw {
    pub fn connect(addr: SocketAddr) -> Raw {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.set_nodelay(true).unwrap();
        Raw { stream, opaque: 0, serialize: SerializeType::Json, version: 479 }
    }

    /// Writes a request and returns its number.
    pub fn send(&mut self, code: RequestCode, ext: &[(&str, &str)], body: &[u8], flag: i32) -> i32 {
        self.opaque += 1;
        let head = Head { version: self.version, flag, ..Head::request(code, self.opaque, false) };
        let mut out = BytesMut::new();
        frame::encode(&mut out, self.serialize, head, None, &ext, body);
        self.write(&out);
        self.opaque
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub fn receive(&mut self) -> Answer {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).unwrap();
        let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut bytes).unwrap();
        let frame = Frame::decode(&bytes).unwrap();
        assert!(frame.is_response());
        Answer {
            code: frame.response_code(),
            opaque: frame.opaque,
            remark: frame.remark.as_deref().map(str::to_owned),
            ext: frame.ext.iter().map(|(k, v)| (k.into_owned(), v.into_owned())).collect(),
            body: frame.body.to_vec(),
        }
    }

    pub fn call(&mut self, code: RequestCode, ext: &[(&str, &str)], body: &[u8]) -> Answer {
        let opaque = self.send(code, ext, body, 0);
        let answer = self.receive();
        assert_eq!(answer.opaque, opaque);
        answer
    }

    /// Whether the server has closed the connection.
    pub fn is_closed_within(&mut self, time: Duration) -> bool {
        self.stream.set_read_timeout(Some(time)).unwrap();
        matches!(self.stream.read(&mut [0]), Ok(0))
    }

    pub fn route(&mut self, topic: &str) -> Answer {
        self.call(RequestCode::GET_ROUTEINFO_BY_TOPIC, &[("topic", topic)], b"")
    }

    pub fn register(&mut self, broker: &Broker) -> Answer {
        let body = broker.body();
        let ext = broker.ext();
        let ext: Vec<(&str, &str)> = ext.iter().map(|(k, v)| (*k, v.as_str())).collect();
        self.call(RequestCode::REGISTER_BROKER, &ext, &body)
    }
}

/// A broker that registers.
#[derive(Clone)]
pub struct Broker {
    pub name: &'static str,
    pub id: i64,
    pub addr: String,
    pub topics: Vec<&'static str>,
    pub counter: i64,
    pub more: Vec<(&'static str, String)>,
}

impl Broker {
    pub fn new(name: &'static str, id: i64, addr: &str) -> Broker {
        let topics = vec!["TBW102", "SELF_TEST_TOPIC", "T"];
        Broker { name, id, addr: addr.to_owned(), topics, counter: 1, more: Vec::new() }
    }

    pub fn ext(&self) -> Vec<(&'static str, String)> {
        let mut ext = vec![
            ("brokerName", self.name.to_owned()),
            ("brokerAddr", self.addr.clone()),
            ("clusterName", "DefaultCluster".to_owned()),
            ("haServerAddr", format!("{}2", self.addr)),
            ("brokerId", self.id.to_string()),
            ("enableActingMaster", "false".to_owned()),
        ];
        ext.extend(self.more.clone());
        ext
    }

    pub fn version(&self) -> Value {
        json!({"counter": self.counter, "stateVersion": 0, "timestamp": 1_700_000_000_000_i64})
    }

    pub fn body(&self) -> Vec<u8> {
        let topics: serde_json::Map<String, Value> = self
            .topics
            .iter()
            .map(|topic| {
                let config = json!({"attributes": {}, "order": false, "perm": 6, "readQueueNums": 8,
                    "topicFilterType": "SINGLE_TAG", "topicName": topic, "topicSysFlag": 0,
                    "writeQueueNums": 8});
                ((*topic).to_owned(), config)
            })
            .collect();
        let body = json!({"filterServerList": [], "topicConfigSerializeWrapper":
            {"dataVersion": self.version(), "topicConfigTable": topics}});
        serde_json::to_vec(&body).unwrap()
    }
}

/// Waits for a condition that another thread brings about.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "not within 10 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// One HTTP request; returns status line and body.
pub fn http_get(addr: SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(addr).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap_or_default().to_owned(), body.to_owned())
}
