//! A broker in this process with a directory of its own, and raw sockets to it.

#![allow(dead_code)]

pub mod keeper;
pub mod transaction;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use rocketmq_broker::state::BrokerState;
use rocketmq_broker::{Broker, BrokerConfig};
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::frame::{self, Frame, Head, SerializeType};
use rocketmq_protocol::language::LanguageCode;
use rocketmq_protocol::version;

/// How long a test waits for what must happen.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A broker and its directory.
pub struct TestBroker {
    pub broker: Broker,
    pub dir: Arc<tempfile::TempDir>,
}

/// Settings that need no other process, no fixed port and little disk.
pub fn config(dir: &tempfile::TempDir) -> BrokerConfig {
    BrokerConfig {
        broker_name: "broker-a".into(),
        broker_ip1: "127.0.0.1".into(),
        bind_address: "127.0.0.1".into(),
        listen_port: 0,
        metrics_prom_exporter_port: 0,
        metrics_prom_exporter_host: "127.0.0.1".into(),
        namesrv_addr: String::new(),
        store_path_root_dir: dir.path().join("store").display().to_string(),
        mapped_file_size_commit_log: 1 << 20,
        mapped_file_size_consume_queue: 20_000,
        ..BrokerConfig::default()
    }
}

/// Starts a broker with default settings.
pub fn start() -> TestBroker {
    start_with(|_| ())
}

/// Starts a broker with some settings changed.
pub fn start_with(change: impl FnOnce(&mut BrokerConfig)) -> TestBroker {
    start_in(Arc::new(tempfile::tempdir().expect("temporary directory")), change)
}

/// Starts a broker in a directory that may have been used before.
pub fn start_in(dir: Arc<tempfile::TempDir>, change: impl FnOnce(&mut BrokerConfig)) -> TestBroker {
    let mut config = config(&dir);
    change(&mut config);
    TestBroker { broker: Broker::start(config).expect("the broker starts"), dir }
}

impl TestBroker {
    pub fn state(&self) -> &Arc<BrokerState> {
        self.broker.state()
    }

    pub fn connect(&self) -> Peer {
        Peer::connect(self.broker.addr())
    }

    /// Stops the broker and gives back its directory.
    pub fn stop(self) -> Arc<tempfile::TempDir> {
        self.broker.shutdown();
        self.dir
    }
}

/// What came over a socket, owned.
#[derive(Debug)]
pub struct Answer {
    pub code: i32,
    pub opaque: i32,
    pub remark: Option<String>,
    pub ext: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub is_response: bool,
    pub version: i32,
}

impl Answer {
    pub fn ok(self) -> Self {
        assert_eq!(self.code, ResponseCode::SUCCESS.0, "{self:?}");
        self
    }

    /// Asserts an error and that its remark says this.
    pub fn refused(self, code: ResponseCode, remark: &str) -> Self {
        assert_eq!(self.code, code.0, "{self:?}");
        let text = self.remark.as_deref().unwrap_or_default();
        assert!(text.contains(remark), "`{remark}` expected in `{text}`");
        self
    }

    pub fn field(&self, name: &str) -> &str {
        let found = self.ext.iter().find(|(key, _)| key == name);
        found.map_or_else(|| panic!("no field {name} in {self:?}"), |(_, value)| value)
    }

    pub fn json<T: serde::de::DeserializeOwned>(&self) -> T {
        rocketmq_protocol::fastjson::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A client made of a socket.
pub struct Peer {
    socket: TcpStream,
    next_opaque: i32,
    /// The version and language that it claims.
    pub version: i32,
    pub language: LanguageCode,
    /// Frames that came while something else was waited for.
    pending: Vec<Answer>,
}

impl Peer {
    pub fn connect(addr: SocketAddr) -> Self {
        let socket = TcpStream::connect(addr).expect("connect");
        socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
        socket.set_nodelay(true).expect("no delay");
        let (version, language) = (version::CURRENT, LanguageCode::Java);
        Self { socket, next_opaque: 1, version, language, pending: Vec::new() }
    }

    /// Sends a request and waits for its answer.
    pub fn call(&mut self, code: RequestCode, ext: &[(&str, &str)], body: &[u8]) -> Answer {
        let opaque = self.send(code, ext, body, false);
        self.wait_for(|answer| answer.is_response && answer.opaque == opaque)
    }

    /// As [`Peer::call`]; none if the connection ends first.
    pub fn try_call(
        &mut self,
        code: RequestCode,
        ext: &[(&str, &str)],
        body: &[u8],
    ) -> Option<Answer> {
        let (opaque, out) = self.encode(code, ext, body, false);
        self.socket.write_all(&out).ok()?;
        loop {
            let frame = self.try_read()?;
            if frame.is_response && frame.opaque == opaque {
                return Some(frame);
            }
        }
    }

    /// Sends a request that is not answered.
    pub fn oneway(&mut self, code: RequestCode, ext: &[(&str, &str)], body: &[u8]) {
        self.send(code, ext, body, true);
    }

    pub fn send(
        &mut self,
        code: RequestCode,
        ext: &[(&str, &str)],
        body: &[u8],
        oneway: bool,
    ) -> i32 {
        let (opaque, out) = self.encode(code, ext, body, oneway);
        self.socket.write_all(&out).expect("send");
        opaque
    }

    fn encode(
        &mut self,
        code: RequestCode,
        ext: &[(&str, &str)],
        body: &[u8],
        oneway: bool,
    ) -> (i32, BytesMut) {
        let opaque = self.next_opaque;
        self.next_opaque += 1;
        let mut out = BytesMut::new();
        let (language, version) = (self.language, self.version);
        let head = Head { language, version, ..Head::request(code, opaque, oneway) };
        let ext: Vec<(&str, &str)> = ext.to_vec();
        frame::encode(&mut out, SerializeType::Json, head, None, &ext, body);
        (opaque, out)
    }

    /// Waits for the answer of a request that was sent.
    pub fn answer_of(&mut self, opaque: i32) -> Answer {
        self.wait_for(|answer| answer.is_response && answer.opaque == opaque)
    }

    /// Answers a request from the broker.
    pub fn respond(&mut self, request: &Answer, code: ResponseCode, remark: &str, body: &[u8]) {
        let mut out = BytesMut::new();
        let head = Head {
            code: code.0,
            language: self.language,
            version: self.version,
            opaque: request.opaque,
            flag: frame::FLAG_RESPONSE,
        };
        let remark = Some(remark).filter(|remark| !remark.is_empty());
        frame::encode(&mut out, SerializeType::Json, head, remark, &(), body);
        self.socket.write_all(&out).expect("send");
    }

    /// Whether a request was answered that is served in the order of the connection.
    pub fn was_answered(&mut self, opaque: i32) -> bool {
        self.call(RequestCode::GET_MAX_OFFSET, &[("topic", "none"), ("queueId", "0")], b"");
        self.pending.iter().any(|frame| frame.is_response && frame.opaque == opaque)
    }

    /// Waits until the broker closes the connection, and gives what came before.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.socket.read_to_end(&mut rest) {
            Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => {
                panic!("not closed: {error}")
            }
            _ => rest,
        }
    }

    /// Waits for a request from the broker.
    pub fn request(&mut self, code: RequestCode) -> Answer {
        self.wait_for(|frame| !frame.is_response && frame.code == code.0)
    }

    fn wait_for(&mut self, wanted: impl Fn(&Answer) -> bool) -> Answer {
        if let Some(index) = self.pending.iter().position(&wanted) {
            return self.pending.remove(index);
        }
        loop {
            let frame = self.read();
            if wanted(&frame) {
                return frame;
            }
            self.pending.push(frame);
        }
    }

    /// Whether a request of this kind came, given that everything sent so far was answered.
    pub fn got_request(&mut self, code: RequestCode) -> bool {
        // Answers and requests share one socket in order, so a later answer bounds the search.
        self.call(RequestCode::GET_MAX_OFFSET, &[("topic", "none"), ("queueId", "0")], b"");
        self.pending.iter().any(|frame| !frame.is_response && frame.code == code.0)
    }

    fn read(&mut self) -> Answer {
        self.try_read().expect("an answer")
    }

    fn try_read(&mut self) -> Option<Answer> {
        let mut length = [0; 4];
        self.socket.read_exact(&mut length).ok()?;
        let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
        self.socket.read_exact(&mut bytes).ok()?;
        let frame = Frame::decode(&bytes).expect("a frame");
        Some(Answer {
            code: frame.code,
            opaque: frame.opaque,
            remark: frame.remark.as_deref().map(str::to_owned),
            ext: frame.ext.iter().map(|(k, v)| (k.into_owned(), v.into_owned())).collect(),
            body: frame.body.to_vec(),
            is_response: frame.is_response(),
            version: frame.version,
        })
    }

    /// Sends a message and returns its place: queue offset and message id.
    pub fn produce(&mut self, topic: &str, queue_id: i32, body: &[u8]) -> (i64, String) {
        let queue_id = queue_id.to_string();
        let answer =
            self.call(RequestCode::SEND_MESSAGE_V2, &send_header(topic, &queue_id), body).ok();
        let offset = answer.field("queueOffset").parse().expect("an offset");
        (offset, answer.field("msgId").to_owned())
    }

    /// Heart-beats as a consumer of one group and topic.
    pub fn heartbeat(&mut self, client_id: &str, group: &str, topic: &str) -> Answer {
        let body = heartbeat(client_id, group, topic);
        self.call(RequestCode::HEART_BEAT, &[], body.as_bytes()).ok()
    }
}

pub fn heartbeat(client_id: &str, group: &str, topic: &str) -> String {
    format!(
        r#"{{"clientID":"{client_id}","consumerDataSet":[{{"consumeFromWhere":
        "CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"{group}",
        "messageModel":"CLUSTERING","subscriptionDataSet":[{{"classFilterMode":false,"codeSet":[],
        "expressionType":"TAG","subString":"*","subVersion":1,"tagsSet":[],"topic":"{topic}"}}],
        "unitMode":false}}],"heartbeatFingerprint":0,"producerDataSet":[{{"groupName":
        "CLIENT_INNER_PRODUCER"}}],"withoutSub":false}}"#
    )
}

/// The fields of a send.
pub fn send_header<'a>(topic: &'a str, queue_id: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        ("a", "producers"),
        ("b", topic),
        ("c", "TBW102"),
        ("d", "4"),
        ("e", queue_id),
        ("f", "0"),
        ("g", "1700000000000"),
        ("h", "0"),
        ("i", "WAIT\u{1}true\u{2}"),
        ("j", "0"),
        ("k", "false"),
        ("m", "false"),
    ]
}

/// The fields of UPDATE_AND_CREATE_TOPIC.
pub fn topic_header<'a>(topic: &'a str, queues: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        ("topic", topic),
        ("defaultTopic", "TBW102"),
        ("readQueueNums", queues),
        ("writeQueueNums", queues),
        ("perm", "6"),
        ("topicFilterType", "SINGLE_TAG"),
        ("topicSysFlag", "0"),
        ("order", "false"),
    ]
}

/// The fields of a PULL_MESSAGE of queue 0 that does not wait.
pub fn pull_header<'a>(
    group: &'a str,
    topic: &'a str,
    queue_offset: &'a str,
) -> Vec<(&'a str, &'a str)> {
    vec![
        ("consumerGroup", group),
        ("topic", topic),
        ("queueId", "0"),
        ("queueOffset", queue_offset),
        ("maxMsgNums", "32"),
        ("sysFlag", "4"),
        ("commitOffset", "0"),
        ("suspendTimeoutMillis", "0"),
        ("subscription", "*"),
        ("subVersion", "0"),
    ]
}

/// The fields with another value of one.
pub fn with_field<'a>(
    mut header: Vec<(&'a str, &'a str)>,
    name: &'a str,
    value: &'a str,
) -> Vec<(&'a str, &'a str)> {
    header.retain(|(known, _)| *known != name);
    header.push((name, value));
    header
}

/// Waits until a condition holds.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "did not happen: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Status and body of an HTTP GET.
pub fn http(addr: SocketAddr, path: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(addr).expect("connect");
    socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
    write!(socket, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("ask");
    let mut text = String::new();
    socket.read_to_string(&mut text).expect("answer");
    let (head, body) = text.split_once("\r\n\r\n").expect("an answer with a body");
    let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
    (status, body.to_owned())
}
