//! Controllers in this process, on loopback addresses of their own, and a caller.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocketmq_controller::peers::Peers;
use rocketmq_controller::{Controller, ControllerConfig, Settings, Tunables, UpdateRefused};
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::ext::ExtSource;
use rocketmq_protocol::frame::Frame;
use rocketmq_protocol::response::Response;
use rocketmq_remoting::call::{Request, ResponseFrame};
use rocketmq_remoting::client::{Client, ClientConfig};
use rocketmq_remoting::{Connection, Output, Server, ServerConfig, Service};
use tokio::runtime::Runtime;

/// Everything here happens well within it, unless it never does.
pub const LIMIT: Duration = Duration::from_secs(20);

/// Waits until something is there.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "not within {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// An address that nobody else has: of each process and call another one out of 127.0.0.0/8.
pub fn own_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let [.., a, b] = std::process::id().to_be_bytes();
    let ip = [127, a.max(1), b, NEXT.fetch_add(1, SeqCst) as u8];
    TcpListener::bind(SocketAddr::from((ip, 0))).unwrap().local_addr().unwrap()
}

#[derive(Debug)]
pub struct Fixed(pub Tunables);

impl Default for Fixed {
    fn default() -> Self {
        Self(Tunables {
            unclean_elections: false,
            notify_brokers: true,
            election_attempts: 3,
            scan_interval: Duration::from_millis(50),
        })
    }
}

impl Settings for Fixed {
    fn tunables(&self) -> Tunables {
        self.0
    }

    fn text(&self) -> String {
        "controllerDLegerGroup=g\n".to_owned()
    }

    fn update(&self, text: &[u8]) -> Result<(), UpdateRefused> {
        let remark = String::from_utf8_lossy(text).into_owned();
        Err(UpdateRefused { code: ResponseCode::NO_PERMISSION, remark })
    }
}

/// The addresses of `count` controllers, and the list of them.
pub fn peers(count: usize) -> (Vec<SocketAddr>, Peers) {
    let addresses: Vec<_> = (0..count).map(|_| own_address()).collect();
    let list: Vec<_> =
        addresses.iter().enumerate().map(|(id, address)| format!("n{id}-{address}")).collect();
    let peers = Peers::parse(&list.join(";")).unwrap();
    (addresses, peers)
}

pub fn config(id: usize, addresses: &[SocketAddr], peers: &Peers, dir: &Path) -> ControllerConfig {
    ControllerConfig {
        election_timeout: Duration::from_millis(800),
        heartbeat_interval: Duration::from_millis(100),
        listen_first: Duration::ZERO,
        snapshot_after: 20,
        ..ControllerConfig::new(
            "g".to_owned(),
            peers.clone(),
            id as u64,
            addresses[id],
            dir.join(format!("n{id}")),
        )
    }
}

/// A group of controllers whose members are stopped and started.
pub struct Cluster {
    dir: tempfile::TempDir,
    pub addresses: Vec<SocketAddr>,
    peers: Peers,
    pub running: Vec<Option<Controller>>,
    scan_interval: Duration,
}

impl Cluster {
    pub fn start(count: usize) -> Self {
        Self::start_with(count, Duration::from_millis(50))
    }

    pub fn start_with(count: usize, scan_interval: Duration) -> Self {
        let (addresses, peers) = peers(count);
        let dir = tempfile::tempdir().unwrap();
        let running = (0..count).map(|_| None).collect();
        let mut cluster = Self { dir, addresses, peers, running, scan_interval };
        for id in 0..count {
            cluster.start_one(id);
        }
        // Each of them wants to lead a new group; until all know who does, that may change.
        wait_for("all agree on a leader", || {
            let leader = cluster.leader() as u64;
            let agrees = |one: &Controller| one.leader() == Some(leader);
            cluster.running.iter().flatten().all(agrees).then_some(())
        });
        cluster
    }

    pub fn config(&self, id: usize) -> ControllerConfig {
        config(id, &self.addresses, &self.peers, self.dir.path())
    }

    pub fn start_one(&mut self, id: usize) {
        let settings = Fixed(Tunables { scan_interval: self.scan_interval, ..Fixed::default().0 });
        let started = Controller::start(self.config(id), Arc::new(settings));
        self.running[id] = Some(started.unwrap());
    }

    /// Ends one at once, as a crash does to those who speak with it.
    pub fn stop_one(&mut self, id: usize) {
        drop(self.running[id].take());
    }

    /// The one that leads and knows it.
    pub fn leader(&self) -> usize {
        wait_for("a leader", || {
            self.running.iter().position(|one| one.as_ref().is_some_and(Controller::is_leader))
        })
    }

    pub fn addr(&self, id: usize) -> String {
        self.addresses[id].to_string()
    }
}

/// Asks controllers, as brokers and tools do.
pub struct Caller {
    runtime: Runtime,
    client: Client,
}

impl Caller {
    pub fn new() -> Self {
        let runtime = Runtime::new().unwrap();
        Self { runtime, client: Client::new(ClientConfig::default(), None) }
    }

    pub fn call(&self, addr: &str, request: Request) -> ResponseFrame {
        self.runtime.block_on(self.client.call(addr, request, LIMIT)).unwrap()
    }

    pub fn ask(&self, addr: &str, code: RequestCode, header: &dyn ExtSource) -> ResponseFrame {
        self.call(addr, Request::new(code).with_header(header))
    }

    /// Closes the connection to an address, as the end of a process does.
    pub fn hang_up(&self, addr: &str) {
        self.client.disconnect(addr);
    }
}

/// A request: its code, fields and body.
pub type Notice = (i32, Vec<(String, String)>, Vec<u8>);

/// A port that keeps what it is told.
#[derive(Default)]
pub struct Told(pub Mutex<Vec<Notice>>);

impl Service for Told {
    fn serve(&self, _conn: &Arc<Connection>, requests: &[Frame<'_>], out: &mut Output) {
        for request in requests {
            let ext = request.ext.iter().map(|(k, v)| (k.into_owned(), v.into_owned())).collect();
            self.0.lock().push((request.request_code().0, ext, request.body.to_vec()));
            out.reply(request.ticket(), &Response::ok());
        }
    }
}

/// A broker's port.
pub fn broker() -> (Server, String, Arc<Told>) {
    let told = Arc::new(Told::default());
    let config =
        ServerConfig { listen: vec![own_address()], io_threads: 1, ..ServerConfig::default() };
    let server = rocketmq_remoting::bind(config, Arc::clone(&told)).unwrap();
    let addr = server.local_addrs()[0].to_string();
    (server, addr, told)
}
