//! A server in this process, and raw sockets to it.

#![allow(dead_code)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::frame::{self, Frame, Head, SerializeType, Ticket};
use rocketmq_protocol::response::Response;
use rocketmq_remoting::{Connection, InFlight, Output, Server, ServerConfig, Service, bind};

/// Answers with the request's field `a` and its body.
pub const ECHO: i32 = 1001;
/// Is held until the test releases it.
pub const HELD: i32 = 1002;
/// Panics.
pub const PANIC: i32 = 1003;
/// Answers with `n` bytes of body.
pub const LARGE: i32 = 1004;
/// Is answered from another thread.
pub const ELSEWHERE: i32 = 1005;

/// A request as the service saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub code: i32,
    pub opaque: i32,
    pub ext: Vec<(String, String)>,
    pub body: Vec<u8>,
}

#[derive(Default)]
pub struct TestService {
    pub seen: Mutex<Vec<Seen>>,
    pub held: Mutex<Vec<(Ticket, InFlight)>>,
    pub connected: AtomicUsize,
    pub closed: AtomicUsize,
    pub batches: AtomicUsize,
}

impl Service for TestService {
    fn connected(&self, conn: &Arc<Connection>) {
        self.connected.fetch_add(1, SeqCst);
        assert!(conn.set_attachment(Arc::new(conn.id())));
    }

    fn closed(&self, conn: &Arc<Connection>) {
        assert_eq!(conn.attachment::<u64>(), Some(&conn.id()));
        assert!(conn.is_closed());
        self.closed.fetch_add(1, SeqCst);
    }

    fn serve(&self, conn: &Arc<Connection>, requests: &[Frame<'_>], out: &mut Output) {
        self.batches.fetch_add(1, SeqCst);
        for request in requests {
            let ext = request.ext.iter().map(|(k, v)| (k.into_owned(), v.into_owned()));
            let ext = ext.collect::<Vec<_>>();
            self.seen.lock().push(Seen {
                code: request.code,
                opaque: request.opaque,
                ext: ext.clone(),
                body: request.body.to_vec(),
            });
            let ticket = request.ticket();
            match request.code {
                ECHO => {
                    let mut answer = Response::ok().with_body(request.body.to_vec());
                    answer.ext = ext.into_iter().map(|(k, v)| (k.into(), v)).collect();
                    out.reply(ticket, &answer);
                }
                HELD => {
                    let bytes = request.body.len();
                    self.held.lock().push((ticket, conn.hold(bytes)));
                }
                PANIC => panic!("asked to"),
                LARGE => {
                    let n = request.ext.get("n").and_then(|n| n.parse().ok()).unwrap_or(0);
                    let bodies = [Bytes::from(vec![7; n / 2]), Bytes::from(vec![8; n - n / 2])];
                    out.reply_slices(ticket, ResponseCode::SUCCESS, None, &(), bodies);
                }
                ELSEWHERE => {
                    let conn = conn.clone();
                    std::thread::spawn(move || conn.reply(ticket, &Response::ok()));
                }
                _ => out.reply_unsupported(ticket),
            }
        }
    }
}

impl TestService {
    /// Answers everything held, newest first.
    pub fn release(&self) {
        for (ticket, guard) in self.held.lock().drain(..).rev() {
            guard.connection().reply(ticket, &Response::ok());
        }
    }
}

pub struct TestServer {
    pub server: Server,
    pub service: Arc<TestService>,
}

pub fn config() -> ServerConfig {
    ServerConfig { listen: vec![([127, 0, 0, 1], 0).into()], ..ServerConfig::default() }
}

pub fn start(config: ServerConfig) -> TestServer {
    let service = Arc::new(TestService::default());
    TestServer { server: bind(config, service.clone()).expect("bind"), service }
}

impl TestServer {
    pub fn addr(&self) -> SocketAddr {
        self.server.local_addrs()[0]
    }

    pub fn connect(&self) -> Raw {
        Raw::connect(self.addr())
    }
}

/// A blocking client that knows frames and nothing more.
pub struct Raw {
    pub socket: TcpStream,
    input: Vec<u8>,
}

/// An answer, owned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub code: i32,
    pub opaque: i32,
    pub is_response: bool,
    pub remark: Option<String>,
    pub ext: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Raw {
    pub fn connect(addr: SocketAddr) -> Self {
        let socket = TcpStream::connect(addr).expect("connect");
        socket.set_nodelay(true).expect("nodelay");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("timeout");
        Self { socket, input: Vec::new() }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("write");
    }

    /// The next frame; `None` at the end of the stream.
    pub fn receive(&mut self) -> Option<Answer> {
        let mut chunk = vec![0; 256 * 1024];
        loop {
            let n = frame::frame_len(&self.input, frame::MAX_FRAME_BYTES).expect("valid length");
            if let Some(n) = n {
                let frame = Frame::decode(&self.input[4..n]).expect("valid frame");
                let ext = frame.ext.iter().map(|(k, v)| (k.into_owned(), v.into_owned()));
                let answer = Answer {
                    code: frame.code,
                    opaque: frame.opaque,
                    is_response: frame.is_response(),
                    remark: frame.remark.as_deref().map(str::to_owned),
                    ext: ext.collect(),
                    body: frame.body.to_vec(),
                };
                drop(frame);
                self.input.drain(..n);
                return Some(answer);
            }
            let n = match self.socket.read(&mut chunk) {
                Ok(n) => n,
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => 0,
                Err(e) => panic!("no frame: {e}"),
            };
            if n == 0 {
                assert!(self.input.is_empty(), "the stream ended within a frame");
                return None;
            }
            self.input.extend_from_slice(&chunk[..n]);
        }
    }

    pub fn answer(&mut self) -> Answer {
        self.receive().expect("an answer, not the end of the stream")
    }
}

pub fn request(code: i32, opaque: i32, flag: i32, ext: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    let head = Head { opaque, flag, ..Head::request(RequestCode(code), opaque, false) };
    frame::encode(&mut out, SerializeType::Json, head, None, &ext, body);
    out.to_vec()
}

pub fn echo(opaque: i32, body: &[u8]) -> Vec<u8> {
    request(ECHO, opaque, 0, &[("a", "1")], body)
}

/// Waits until `condition` holds; fails after ten seconds.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < until, "not within ten seconds: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
