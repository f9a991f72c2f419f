//! Calls by address: one connection per address, made on first use and again after it ended.
//!
//! Owns connecting, the bound on what is in flight and the deadline of a whole call. Correlation, reading
//! and writing are those of [`Connection`]; answers may come in any order.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocketmq_protocol::code::RequestCode;
use rocketmq_protocol::frame::{self, Frame};
use rocketmq_protocol::response::Response;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio_util::task::TaskTracker;
use tracing::debug;

use crate::call::{CallError, Request, ResponseFrame};
use crate::connection::{Connection, Limits};
use crate::counters::SocketCounters;
use crate::driver::Driver;
use crate::input_budget::InputBudget;
use crate::output::Output;
use crate::server::{next_connection_id, tune};
use crate::service::Service;

/// Bounds and times of a client. The defaults are those of RocketMQ's NettyClientConfig.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// How long resolving and connecting may take.
    pub connect_timeout: Duration,
    /// A connection without read and write for so long is closed; the next call makes a new one.
    pub idle: Duration,
    /// Largest frame with its length word.
    pub frame_bytes_max: usize,
    /// Bytes of calls that wait for their answer, over all connections. A call counts as at least 1 KiB,
    /// so this bounds their number too. At the bound a call waits, within its own timeout.
    pub in_flight_bytes_max: usize,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(3),
            idle: Duration::from_secs(120),
            frame_bytes_max: frame::MAX_FRAME_BYTES,
            in_flight_bytes_max: 64 * 1024 * 1024,
        }
    }
}

/// Handles requests that servers send on our connections.
pub trait ClientRequestHandler: Send + Sync + 'static {
    /// Answers one request. `None` answers nothing, either because the request is one-way or because the
    /// answer follows by [`Connection::reply`]. Runs in the connection's task and must not block.
    fn handle(&self, conn: &Arc<Connection>, request: &Frame<'_>) -> Option<Response>;
}

/// Sends requests to any address. A clone is the same client; connections close with the last one.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    config: ClientConfig,
    adapter: Arc<Adapter>,
    counters: Arc<SocketCounters>,
    input_budget: Arc<InputBudget>,
    /// Units of [`UNIT_BYTES`].
    room: Semaphore,
    room_units: u32,
    peers: Mutex<Peers>,
    tasks: TaskTracker,
}

#[derive(Default)]
struct Peers {
    by_addr: HashMap<Arc<str>, Peer>,
    shut_down: bool,
}

enum Peer {
    Connecting(watch::Receiver<Option<Result<Arc<Connection>, CallError>>>),
    Connected(Arc<Connection>),
}

const UNIT_BYTES: usize = 1024;
/// What all connections may keep of large answers that have not arrived whole.
const INPUT_BYTES_MAX: usize = 512 * 1024 * 1024;
/// Calls that may wait on one connection (clientAsyncSemaphoreValue).
const CALLS_MAX: usize = 65_535;

impl Client {
    /// A client without connections. Requests from servers are answered "not supported" when there is no
    /// handler for them.
    pub fn new(config: ClientConfig, handler: Option<Arc<dyn ClientRequestHandler>>) -> Self {
        let units = (config.in_flight_bytes_max / UNIT_BYTES).clamp(1, Semaphore::MAX_PERMITS);
        let room_units = u32::try_from(units).unwrap_or(u32::MAX);
        Self {
            inner: Arc::new(Inner {
                config,
                adapter: Arc::new(Adapter { handler }),
                counters: Arc::default(),
                input_budget: Arc::new(InputBudget::new(INPUT_BYTES_MAX)),
                room: Semaphore::new(room_units as usize),
                room_units,
                peers: Mutex::default(),
                tasks: TaskTracker::new(),
            }),
        }
    }

    /// Sends `request` to `addr` (`host:port`) and waits for the answer, whatever its code; see
    /// [`ResponseFrame::into_ok`]. `timeout` covers connecting as well.
    ///
    /// # Errors
    /// All but [`CallError::Refused`].
    pub async fn call(
        &self,
        addr: &str,
        request: Request,
        timeout: Duration,
    ) -> Result<ResponseFrame, CallError> {
        let begun = Instant::now();
        let code = request.code;
        let late = || CallError::Timeout {
            addr: Arc::from(addr),
            code,
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        };
        let units = request.body.len().div_ceil(UNIT_BYTES).max(1);
        let units = u32::try_from(units).unwrap_or(u32::MAX).min(self.inner.room_units);
        let _room = tokio::time::timeout(timeout, self.inner.room.acquire_many(units))
            .await
            .map_err(|_| CallError::Busy {
                addr: Arc::from(addr),
                code,
                reason: format!(
                    "{} bytes of other calls wait for answers",
                    self.inner.config.in_flight_bytes_max
                ),
            })?;
        let left = timeout.saturating_sub(begun.elapsed());
        let conn =
            tokio::time::timeout(left, self.connection(addr, code)).await.map_err(|_| late())??;
        let left = timeout.saturating_sub(begun.elapsed());
        match conn.request(code, &request.ext, request.body, left).await {
            // The wait was shortened by connecting; the caller knows the whole.
            Err(CallError::Timeout { .. }) => Err(late()),
            done => done,
        }
    }

    /// Sends a request that is not answered; returns once it is queued on a connection.
    ///
    /// # Errors
    /// [`CallError::Connect`], [`CallError::Closed`], [`CallError::Busy`].
    pub async fn oneway(&self, addr: &str, request: Request) -> Result<(), CallError> {
        let conn = self.connection(addr, request.code).await?;
        conn.oneway(request.code, &request.ext, request.body)
    }

    /// The open connection to `addr`, made if there is none.
    ///
    /// # Errors
    /// [`CallError::Connect`].
    pub async fn connect(&self, addr: &str) -> Result<Arc<Connection>, CallError> {
        self.connection(addr, RequestCode(0)).await
    }

    /// Addresses that are connected now.
    pub fn connected_addrs(&self) -> Vec<Arc<str>> {
        let peers = self.inner.peers.lock();
        let open = |peer: &Peer| matches!(peer, Peer::Connected(conn) if !conn.is_closed());
        peers.by_addr.iter().filter(|(_, peer)| open(peer)).map(|(a, _)| a.clone()).collect()
    }

    /// Closes the connection to `addr`, if any. Calls that wait on it fail with [`CallError::Closed`].
    pub fn disconnect(&self, addr: &str) {
        if let Some(Peer::Connected(conn)) = self.inner.peers.lock().by_addr.remove(addr) {
            conn.close();
        }
    }

    /// Socket reads, writes and frames of this client.
    pub fn counters(&self) -> &Arc<SocketCounters> {
        &self.inner.counters
    }

    /// Closes all connections, refuses further calls, and waits until every task has ended.
    pub async fn shutdown(&self) {
        let peers = {
            let mut peers = self.inner.peers.lock();
            peers.shut_down = true;
            std::mem::take(&mut peers.by_addr)
        };
        for peer in peers.into_values() {
            if let Peer::Connected(conn) = peer {
                conn.close();
            }
        }
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }

    async fn connection(
        &self,
        addr: &str,
        code: RequestCode,
    ) -> Result<Arc<Connection>, CallError> {
        let mut connecting = {
            let mut peers = self.inner.peers.lock();
            if peers.shut_down {
                return Err(CallError::ShutDown { addr: Arc::from(addr), code });
            }
            match peers.by_addr.get(addr) {
                Some(Peer::Connected(conn)) if !conn.is_closed() => return Ok(conn.clone()),
                Some(Peer::Connecting(connecting)) => connecting.clone(),
                _ => {
                    let (done, connecting) = watch::channel(None);
                    let addr = Arc::<str>::from(addr);
                    peers.by_addr.insert(addr.clone(), Peer::Connecting(connecting.clone()));
                    // A task of its own: when one caller gives up, the others still get the connection.
                    self.inner.tasks.spawn(connect(self.clone(), addr, done));
                    connecting
                }
            }
        };
        let closed = || CallError::Closed { addr: Arc::from(addr), code };
        let done = connecting.wait_for(Option::is_some).await.map_err(|_| closed())?;
        done.clone().unwrap_or_else(|| Err(closed()))
    }
}

/// Connects, enters the connection, and tells all who wait for it.
async fn connect(
    client: Client,
    addr: Arc<str>,
    done: watch::Sender<Option<Result<Arc<Connection>, CallError>>>,
) {
    let inner = &client.inner;
    let timeout = inner.config.connect_timeout;
    let opened = match tokio::time::timeout(timeout, open(&addr)).await {
        Ok(opened) => opened.map_err(|e| e.to_string()),
        Err(_) => Err(format!("no connection within {} ms", timeout.as_millis())),
    };
    let result = opened.map_err(|reason| CallError::Connect { addr: addr.clone(), reason }).map(
        |(socket, remote, local)| {
            let limits = Limits {
                frame_bytes_max: inner.config.frame_bytes_max,
                idle: inner.config.idle,
                in_flight_bytes_max: inner.config.in_flight_bytes_max,
                read_bytes_max: 256 * 1024,
                calls_max: CALLS_MAX,
                input_budget: inner.input_budget.clone(),
            };
            let id = next_connection_id();
            let conn = Arc::new(Connection::new(id, remote, local, 0, addr.clone(), limits));
            let (adapter, counters) = (inner.adapter.clone(), inner.counters.clone());
            let driver = Driver::new(conn.clone(), adapter, counters, socket, Box::new(()));
            inner.tasks.spawn(driver.run());
            conn
        },
    );
    {
        let mut peers = inner.peers.lock();
        match &result {
            Ok(conn) if peers.shut_down => conn.close(),
            Ok(conn) => {
                peers
                    .by_addr
                    .retain(|_, peer| !matches!(peer, Peer::Connected(conn) if conn.is_closed()));
                peers.by_addr.insert(addr.clone(), Peer::Connected(conn.clone()));
            }
            Err(error) => {
                debug!(%error, "no connection");
                peers.by_addr.remove(&addr);
            }
        }
    }
    done.send_replace(Some(result));
}

/// Resolves `addr` and connects to the first of its addresses that accepts.
async fn open(addr: &str) -> std::io::Result<(TcpStream, SocketAddr, SocketAddr)> {
    let socket = TcpStream::connect(addr).await?;
    tune(&socket)?;
    let (remote, local) = (socket.peer_addr()?, socket.local_addr()?);
    Ok((socket, remote, local))
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("connected", &self.connected_addrs()).finish()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for peer in self.peers.get_mut().by_addr.values() {
            if let Peer::Connected(conn) = peer {
                conn.close();
            }
        }
    }
}

/// Gives a connection's requests to the handler.
struct Adapter {
    handler: Option<Arc<dyn ClientRequestHandler>>,
}

impl Service for Adapter {
    fn serve(&self, conn: &Arc<Connection>, requests: &[Frame<'_>], out: &mut Output) {
        for request in requests {
            let Some(handler) = &self.handler else {
                out.reply_unsupported(request.ticket());
                continue;
            };
            if let Some(response) = handler.handle(conn, request) {
                out.reply(request.ticket(), &response);
            }
        }
    }
}
