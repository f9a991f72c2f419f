//! The server: listeners, I/O threads, the bound on connections, graceful shutdown.
//!
//! Each I/O thread runs a single-threaded runtime that owns its connections; the first one also accepts
//! and gives each new connection to the thread that has the fewest.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::connection::{Connection, Limits};
use crate::counters::SocketCounters;
use crate::descriptors;
use crate::driver::Driver;
use crate::input_budget::InputBudget;
use crate::service::Service;

/// How a server listens, and its bounds. The defaults are RocketMQ's where it has one.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Addresses to listen on; port 0 takes a free one. A broker gives its main and its VIP port.
    pub listen: Vec<SocketAddr>,
    /// I/O threads. 0 chooses: one on up to 4 cores, then one more for every 4.
    pub io_threads: usize,
    /// What the threads are called, at most 12 characters.
    pub name: String,
    /// Largest frame with its length word. A larger one closes the connection.
    pub frame_bytes_max: usize,
    /// A connection without read and write for so long is closed (serverChannelMaxIdleTimeSeconds).
    pub idle: Duration,
    /// Connections at one time; one more is closed at once.
    pub connections_max: usize,
    /// Unwritten answers plus held requests of one connection; above it no more is read from it.
    pub in_flight_bytes_max: usize,
    /// Most bytes of one socket read, which is one batch.
    pub read_bytes_max: usize,
    /// Requests of ours to one client that may wait for their answer.
    pub calls_max: usize,
    /// What all connections together may keep of large frames that have not arrived whole; the
    /// connection that would exceed it is closed.
    pub input_bytes_max: usize,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            io_threads: 0,
            name: "remoting".to_owned(),
            frame_bytes_max: rocketmq_protocol::frame::MAX_FRAME_BYTES,
            idle: Duration::from_secs(120),
            connections_max: 20_000,
            in_flight_bytes_max: 16 * 1024 * 1024,
            read_bytes_max: 256 * 1024,
            calls_max: 4096,
            input_bytes_max: 512 * 1024 * 1024,
        }
    }
}

/// Gives each connection of the process its id.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
/// Pause after accepting failed, which mostly means that the process has no descriptor left.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// At most one log line in this time about refused connections.
const REFUSED_LOG_EVERY: Duration = Duration::from_secs(5);

/// A running server. Dropping it closes all connections at once; [`Server::shutdown`] is graceful.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    local_addrs: Vec<SocketAddr>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    counters: Arc<SocketCounters>,
    connections: Mutex<HashMap<u64, Arc<Connection>>>,
    connections_changed: Condvar,
    draining: AtomicBool,
    /// Ends the accept loops.
    stop_accepting: CancellationToken,
    /// Ends the I/O threads once their connections are gone.
    end: CancellationToken,
}

/// An I/O thread as the accept loop sees it.
struct IoThread {
    handle: Handle,
    tasks: TaskTracker,
    connections: Arc<AtomicUsize>,
}

/// Binds the listeners at once, so that port 0 is resolved and an occupied port is an error here, and
/// starts the I/O threads.
///
/// # Errors
/// When an address cannot be bound, or threads cannot be started; the text names which.
pub fn bind<S: Service>(config: ServerConfig, service: Arc<S>) -> io::Result<Server> {
    if config.listen.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no address to listen on"));
    }
    let listeners =
        config.listen.iter().map(|addr| listen(*addr)).collect::<io::Result<Vec<_>>>()?;
    let local_addrs = listeners.iter().map(|l| l.local_addr()).collect::<io::Result<Vec<_>>>()?;
    let shared = Arc::new(Shared {
        counters: Arc::default(),
        connections: Mutex::default(),
        connections_changed: Condvar::new(),
        draining: AtomicBool::new(false),
        stop_accepting: CancellationToken::new(),
        end: CancellationToken::new(),
    });
    // From here on an error drops the server, which ends the threads already started.
    let server = Server { shared: shared.clone(), local_addrs, threads: Mutex::default() };
    let io_threads = match config.io_threads {
        0 => std::thread::available_parallelism().map_or(1, |n| n.get().div_ceil(4)),
        n => n,
    };
    let mut threads = Vec::with_capacity(io_threads);
    for number in 0..io_threads {
        let (thread, join) = start_io_thread(&format!("{}-io-{number}", config.name), &shared)?;
        server.threads.lock().push(join);
        threads.push(thread);
    }
    let limits = Limits {
        frame_bytes_max: config.frame_bytes_max,
        idle: config.idle,
        in_flight_bytes_max: config.in_flight_bytes_max,
        read_bytes_max: config.read_bytes_max,
        calls_max: config.calls_max,
        input_budget: Arc::new(InputBudget::new(config.input_bytes_max)),
    };
    let acceptor = Arc::new(Acceptor {
        threads,
        shared,
        service,
        limits,
        connections_max: descriptors::connections_max(config.connections_max),
        last_refused_log: Mutex::new(None),
    });
    for (index, listener) in listeners.into_iter().enumerate() {
        let thread = &acceptor.threads[0];
        let accepting = acceptor.clone().accept(index, listener);
        thread.handle.spawn(thread.tasks.track_future(accepting));
    }
    Ok(server)
}

impl Server {
    /// The bound addresses, in the order of `ServerConfig::listen`.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.local_addrs
    }

    /// Socket reads, writes and frames of all connections.
    pub fn counters(&self) -> &Arc<SocketCounters> {
        &self.shared.counters
    }

    /// All connections open now.
    pub fn connections(&self) -> Vec<Arc<Connection>> {
        self.shared.connections.lock().values().cloned().collect()
    }

    /// Stops accepting and reading, lets answers of requests already read go out, closes all connections
    /// and joins the threads. What is not answered within `deadline` is dropped.
    ///
    /// Requests count as unanswered while their [`crate::InFlight`] is alive. Blocks: call it from a plain
    /// thread or `spawn_blocking`, not from an I/O thread. Later calls return when the first one is done.
    pub fn shutdown(&self, deadline: Duration) {
        let mut threads = self.threads.lock();
        if threads.is_empty() {
            return;
        }
        self.shared.stop_accepting.cancel();
        self.shared.draining.store(true, SeqCst);
        let until = Instant::now() + deadline;
        for conn in self.connections() {
            conn.drain();
        }
        let mut connections = self.shared.connections.lock();
        while !connections.is_empty() {
            if self.shared.connections_changed.wait_until(&mut connections, until).timed_out() {
                break;
            }
        }
        let left = connections.values().cloned().collect::<Vec<_>>();
        drop(connections);
        if !left.is_empty() {
            warn!(
                connections = left.len(),
                held_requests = left.iter().map(|c| c.held_requests()).sum::<usize>(),
                "closing connections with unanswered requests at the shutdown deadline"
            );
        }
        self.end_threads(&mut threads);
    }

    fn end_threads(&self, threads: &mut Vec<JoinHandle<()>>) {
        self.shared.stop_accepting.cancel();
        self.shared.draining.store(true, SeqCst);
        self.shared.end.cancel();
        for conn in self.connections() {
            conn.close();
        }
        for thread in threads.drain(..) {
            // An I/O thread that drops the server would wait for itself.
            if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
                warn!("an i/o thread ended by a panic");
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut threads = std::mem::take(&mut *self.threads.lock());
        self.end_threads(&mut threads);
    }
}

fn listen(addr: SocketAddr) -> io::Result<std::net::TcpListener> {
    let bound = || {
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.bind(&addr.into())?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        io::Result::Ok(socket.into())
    };
    bound().map_err(|e| io::Error::new(e.kind(), format!("cannot listen on {addr}: {e}")))
}

fn start_io_thread(name: &str, shared: &Arc<Shared>) -> io::Result<(IoThread, JoinHandle<()>)> {
    let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
    let handle = runtime.handle().clone();
    let tasks = TaskTracker::new();
    let (end, own_tasks) = (shared.end.clone(), tasks.clone());
    let join = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        runtime.block_on(async move {
            end.cancelled().await;
            own_tasks.close();
            own_tasks.wait().await;
        });
    })?;
    Ok((IoThread { handle, tasks, connections: Arc::default() }, join))
}

/// Takes new connections and places them.
struct Acceptor<S> {
    threads: Vec<IoThread>,
    shared: Arc<Shared>,
    service: Arc<S>,
    limits: Limits,
    connections_max: usize,
    last_refused_log: Mutex<Option<Instant>>,
}

impl<S: Service> Acceptor<S> {
    async fn accept(self: Arc<Self>, index: usize, listener: std::net::TcpListener) {
        let stop = self.shared.stop_accepting.clone();
        let listener = match TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => {
                warn!(%error, "cannot watch a listener");
                return;
            }
        };
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.cancelled() => return,
            };
            match accepted {
                Ok((socket, remote)) => {
                    if let Err(error) = self.place(index, socket, remote) {
                        info!(%remote, %error, "connection lost while it was accepted");
                    }
                }
                Err(error) => {
                    warn!(%error, "cannot accept a connection");
                    tokio::select! {
                        () = tokio::time::sleep(ACCEPT_RETRY) => {}
                        () = stop.cancelled() => return,
                    }
                }
            }
        }
    }

    fn place(&self, index: usize, socket: TcpStream, remote: SocketAddr) -> io::Result<()> {
        if self.shared.connections.lock().len() >= self.connections_max {
            self.refuse(remote);
            return Ok(());
        }
        let local = socket.local_addr()?;
        tune(&socket)?;
        let Some((number, thread)) =
            self.threads.iter().enumerate().min_by_key(|(_, t)| t.connections.load(SeqCst))
        else {
            return Ok(());
        };
        let id = NEXT_ID.fetch_add(1, SeqCst);
        let addr =
            Arc::from(SocketAddr::new(remote.ip().to_canonical(), remote.port()).to_string());
        let limits = self.limits.clone();
        let conn = Arc::new(Connection::new(id, remote, local, index, addr, limits));
        let entry = Entry::new(self.shared.clone(), conn.clone(), thread.connections.clone());
        let (service, counters) = (self.service.clone(), self.shared.counters.clone());
        if number == 0 {
            // This thread: the socket is already watched by its runtime.
            let driver = Driver::new(conn, service, counters, socket, Box::new(entry));
            thread.tasks.spawn_on(driver.run(), &thread.handle);
            return Ok(());
        }
        let socket = socket.into_std()?;
        let start = async move {
            match TcpStream::from_std(socket) {
                Ok(socket) => {
                    Driver::new(conn, service, counters, socket, Box::new(entry)).run().await;
                }
                Err(error) => info!(%remote, %error, "connection lost while it was accepted"),
            }
        };
        thread.tasks.spawn_on(start, &thread.handle);
        Ok(())
    }

    fn refuse(&self, remote: SocketAddr) {
        SocketCounters::add(&self.shared.counters.connections_refused, 1);
        let mut last = self.last_refused_log.lock();
        if last.is_none_or(|at| at.elapsed() >= REFUSED_LOG_EVERY) {
            *last = Some(Instant::now());
            let connections_max = self.connections_max;
            warn!(%remote, connections_max, "refusing connections: the bound is reached");
        }
    }
}

/// Membership of one connection in the server's list; leaves it when dropped.
struct Entry {
    shared: Arc<Shared>,
    conn: Arc<Connection>,
    on_thread: Arc<AtomicUsize>,
}

impl Entry {
    fn new(shared: Arc<Shared>, conn: Arc<Connection>, on_thread: Arc<AtomicUsize>) -> Self {
        shared.connections.lock().insert(conn.id(), conn.clone());
        on_thread.fetch_add(1, SeqCst);
        if shared.draining.load(SeqCst) {
            // Accepted while the shutdown went through the list.
            conn.close();
        }
        Self { shared, conn, on_thread }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.on_thread.fetch_sub(1, SeqCst);
        self.shared.connections.lock().remove(&self.conn.id());
        self.shared.connections_changed.notify_all();
    }
}

/// Socket options that both ends set: answers leave at once, and a dead peer is noticed.
pub(crate) fn tune(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(60));
    SockRef::from(socket).set_tcp_keepalive(&keepalive)
}

/// The next connection id, for connections that a client opens.
pub(crate) fn next_connection_id() -> u64 {
    NEXT_ID.fetch_add(1, SeqCst)
}
