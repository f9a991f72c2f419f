//! One connection as every thread may see it.
//!
//! Owns what crosses threads: the outbox, the response table, the count of bytes in flight. The socket and
//! its buffers belong to the `driver.rs` task on the connection's I/O thread.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rocketmq_protocol::code::RequestCode;
use rocketmq_protocol::ext::ExtSource;
use rocketmq_protocol::frame::Ticket;
use rocketmq_protocol::response::Response;

use crate::call::{CallError, ResponseFrame};
use crate::input_budget::InputBudget;
use crate::output::Output;
use crate::pending::{NotEntered, Pending};

/// Bounds of one connection.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// Largest frame, counted with its length word.
    pub frame_bytes_max: usize,
    /// Close after this long without a read or a write.
    pub idle: Duration,
    /// Answers not yet written plus held requests; reading pauses above.
    pub in_flight_bytes_max: usize,
    /// Most bytes of one socket read.
    pub read_bytes_max: usize,
    /// Requests of ours that may wait for an answer.
    pub calls_max: usize,
    /// What all connections may keep of frames that have not arrived whole.
    pub input_budget: Arc<InputBudget>,
}

/// One TCP connection. All methods may be called from any thread.
#[derive(Debug)]
pub struct Connection {
    id: u64,
    remote: SocketAddr,
    local: SocketAddr,
    listener: usize,
    /// The peer as errors name it: for a client the address that was asked for.
    addr: Arc<str>,
    remote_ip_text: String,
    pub(crate) limits: Limits,
    outbox: Mutex<Outbox>,
    pub(crate) pending: Pending,
    held_bytes: AtomicUsize,
    held_requests: AtomicUsize,
    /// The driver waits for held requests to be released (it paused reading, or drains).
    wants_release: AtomicBool,
    /// Bytes the driver took over and the socket did not yet take.
    unwritten_bytes: AtomicUsize,
    attachment: OnceLock<Arc<dyn Any + Send + Sync>>,
}

/// What other threads leave for the driver.
#[derive(Debug, Default)]
struct Outbox {
    out: Output,
    /// The driver was woken and has not looked yet: one wake-up for many answers.
    notified: bool,
    waker: Option<Waker>,
    wish: Wish,
    closed: bool,
}

/// What the driver is asked to do with the connection; only ever moves down this list.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wish {
    #[default]
    Serve,
    /// Read nothing more, close when held requests are answered.
    Drain,
    /// Close after one attempt to write what is gathered.
    Close,
}

impl Connection {
    pub(crate) fn new(
        id: u64,
        remote: SocketAddr,
        local: SocketAddr,
        listener: usize,
        addr: Arc<str>,
        limits: Limits,
    ) -> Self {
        Self {
            id,
            remote,
            local,
            listener,
            addr,
            remote_ip_text: remote.ip().to_canonical().to_string(),
            limits,
            outbox: Mutex::default(),
            pending: Pending::default(),
            held_bytes: AtomicUsize::new(0),
            held_requests: AtomicUsize::new(0),
            wants_release: AtomicBool::new(false),
            unwritten_bytes: AtomicUsize::new(0),
            attachment: OnceLock::new(),
        }
    }

    /// A number that no other connection of this process has.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The peer's address.
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Our own address on this connection.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Which entry of `ServerConfig::listen` accepted it; 0 for a client's connection.
    pub fn listener(&self) -> usize {
        self.listener
    }

    /// The peer's IP address as text, an IPv4 address never in its IPv6 form.
    pub fn remote_ip_text(&self) -> &str {
        &self.remote_ip_text
    }

    /// The peer's `ip:port`, or the `host:port` that a client asked for.
    pub fn remote_text(&self) -> &str {
        &self.addr
    }

    pub(crate) fn remote_arc(&self) -> &Arc<str> {
        &self.addr
    }

    /// Keeps per-connection state of the connection's user. The first call wins; false for later ones.
    pub fn set_attachment(&self, attachment: Arc<dyn Any + Send + Sync>) -> bool {
        self.attachment.set(attachment).is_ok()
    }

    /// What was attached, when it is a `T`.
    pub fn attachment<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.attachment.get()?.downcast_ref()
    }

    /// Queues bytes behind everything sent before and wakes the connection's loop, which gathers what
    /// came meanwhile into one write. Dropped without a word when the connection has ended.
    pub fn send(&self, mut out: Output) {
        if !out.is_empty() {
            self.leave(|outbox| outbox.out.append_from(&mut out));
        }
    }

    /// Answers one request. Writes nothing for a one-way ticket.
    pub fn reply(&self, ticket: Ticket, response: &Response) {
        if !ticket.oneway {
            self.leave(|outbox| outbox.out.reply(ticket, response));
        }
    }

    /// Closes the connection. What was queued before is written as far as the socket takes it at once.
    pub fn close(&self) {
        self.wish(Wish::Close);
    }

    /// Stops reading and closes once held requests are answered.
    pub fn drain(&self) {
        self.wish(Wish::Drain);
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.outbox.lock().closed
    }

    /// Counts a request that waits elsewhere for its answer. While the held bytes and the unwritten
    /// answers exceed the connection's bound, no more is read from it; and a graceful shutdown waits for
    /// held requests. Send the answer before dropping the guard.
    pub fn hold(self: &Arc<Self>, bytes: usize) -> InFlight {
        self.held_bytes.fetch_add(bytes, SeqCst);
        self.held_requests.fetch_add(1, SeqCst);
        InFlight { conn: self.clone(), bytes }
    }

    /// Sends a request of ours to the peer and waits for its answer, whatever its code.
    ///
    /// The request is queued before this returns; the future only waits.
    ///
    /// # Errors
    /// [`CallError::Timeout`], [`CallError::Closed`], and [`CallError::Busy`] when the peer reads too
    /// slowly or too many requests wait for it already.
    pub fn request(
        &self,
        code: RequestCode,
        ext: &dyn ExtSource,
        body: Bytes,
        timeout: Duration,
    ) -> impl Future<Output = Result<ResponseFrame, CallError>> + Send + use<'_> {
        let entered = self.check_room(code).and_then(|()| {
            self.pending.enter(code, self.limits.calls_max).map_err(|why| match why {
                NotEntered::Closed => self.closed_error(code),
                NotEntered::Full => CallError::Busy {
                    addr: self.addr.clone(),
                    code,
                    reason: format!("{} calls wait already", self.limits.calls_max),
                },
            })
        });
        if let Ok(call) = &entered {
            self.leave(|outbox| outbox.out.request(call.opaque, false, code, ext, &body));
        }
        async move {
            let mut call = entered?;
            match tokio::time::timeout(timeout, &mut call.answer).await {
                Ok(Ok(answer)) => Ok(answer),
                Ok(Err(_)) => Err(self.closed_error(code)),
                Err(_) => {
                    let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
                    Err(CallError::Timeout { addr: self.addr.clone(), code, timeout_ms })
                }
            }
        }
    }

    /// Sends a request that is not answered.
    ///
    /// # Errors
    /// [`CallError::Closed`] or [`CallError::Busy`]; nothing is known of what happens after sending.
    pub fn oneway(
        &self,
        code: RequestCode,
        ext: &dyn ExtSource,
        body: Bytes,
    ) -> Result<(), CallError> {
        self.check_room(code)?;
        let opaque = self.pending.oneway_opaque();
        if self.leave(|outbox| outbox.out.request(opaque, true, code, ext, &body)) {
            return Ok(());
        }
        Err(self.closed_error(code))
    }

    /// Answers and requests that the socket did not take yet.
    pub fn unwritten_bytes(&self) -> usize {
        self.unwritten_bytes.load(SeqCst) + self.outbox.lock().out.len_bytes()
    }

    fn check_room(&self, code: RequestCode) -> Result<(), CallError> {
        let waiting_bytes = self.unwritten_bytes();
        if waiting_bytes <= self.limits.in_flight_bytes_max {
            return Ok(());
        }
        Err(CallError::Busy {
            addr: self.addr.clone(),
            code,
            reason: format!(
                "the peer reads too slowly, {waiting_bytes} bytes wait, the bound is {}",
                self.limits.in_flight_bytes_max
            ),
        })
    }

    fn closed_error(&self, code: RequestCode) -> CallError {
        CallError::Closed { addr: self.addr.clone(), code }
    }

    fn wish(&self, wish: Wish) {
        self.leave(|outbox| outbox.wish = outbox.wish.max(wish));
    }

    /// Changes the outbox and wakes the driver unless it is awake already. False after the end.
    fn leave(&self, change: impl FnOnce(&mut Outbox)) -> bool {
        let mut outbox = self.outbox.lock();
        if outbox.closed {
            return false;
        }
        change(&mut outbox);
        let waker = if outbox.notified { None } else { outbox.waker.clone() };
        outbox.notified = true;
        drop(outbox);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// The driver's side: moves everything queued behind `out` and says where to be woken next.
    pub(crate) fn collect(&self, waker: &Waker, out: &mut Output) -> Wish {
        let mut outbox = self.outbox.lock();
        outbox.notified = false;
        if !outbox.waker.as_ref().is_some_and(|w| w.will_wake(waker)) {
            outbox.waker = Some(waker.clone());
        }
        out.append_from(&mut outbox.out);
        outbox.wish
    }

    /// The driver's side: the connection has ended.
    pub(crate) fn mark_closed(&self) {
        let mut outbox = self.outbox.lock();
        outbox.closed = true;
        outbox.out = Output::new();
        outbox.waker = None;
        drop(outbox);
        self.pending.close();
    }

    pub(crate) fn set_unwritten_bytes(&self, bytes: usize) {
        self.unwritten_bytes.store(bytes, SeqCst);
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes.load(SeqCst)
    }

    pub(crate) fn held_requests(&self) -> usize {
        self.held_requests.load(SeqCst)
    }

    /// Asks for a wake-up when held requests fall to the level at which reading resumes.
    /// The caller looks at the counts again afterwards, since a release may just have happened.
    pub(crate) fn want_release(&self, wanted: bool) {
        self.wants_release.store(wanted, SeqCst);
    }

    /// In-flight bytes at which paused reading resumes.
    pub(crate) fn resume_bytes(&self) -> usize {
        self.limits.in_flight_bytes_max / 2
    }
}

/// A request that is answered later; see [`Connection::hold`].
#[derive(Debug)]
#[must_use = "dropping it says that the request is answered"]
pub struct InFlight {
    conn: Arc<Connection>,
    bytes: usize,
}

impl InFlight {
    /// The connection whose request is held.
    pub fn connection(&self) -> &Arc<Connection> {
        &self.conn
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let conn = &self.conn;
        let bytes_left = conn.held_bytes.fetch_sub(self.bytes, SeqCst) - self.bytes;
        let requests_left = conn.held_requests.fetch_sub(1, SeqCst) - 1;
        let low = requests_left == 0 || bytes_left <= conn.resume_bytes();
        if low && conn.wants_release.load(SeqCst) {
            conn.leave(|_| ());
        }
    }
}
