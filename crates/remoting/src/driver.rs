//! The loop of one connection: read many frames, serve them inline, write all answers at once.
//!
//! Owns the socket and its buffers. One task per connection; no task, channel or allocation per message.
//! Order of one round: gather what other threads left, write, read, serve; then write again. It sleeps only
//! when the socket gives and takes nothing more.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rocketmq_protocol::frame::{self, Frame, FrameError};
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use tokio_util::io::poll_read_buf;
use tracing::{debug, error, warn};

use crate::connection::{Connection, Wish};
use crate::counters::SocketCounters;
use crate::output::Output;
use crate::service::Service;
use crate::write::poll_write;

/// Read buffer of a new or quiet connection.
const READ_BYTES_MIN: usize = 8 * 1024;
/// Frames handed over in one call of `serve`.
const BATCH_FRAMES_MAX: usize = 256;
/// Write buffer that a quiet connection may keep.
const KEEP_BYTES_MAX: usize = 64 * 1024;
/// How long a peer has to close its side after we closed ours.
const LINGER: Duration = Duration::from_millis(500);
/// A peer that takes nothing of its answers for so long does not hold up a graceful shutdown.
const DRAIN_STALL: Duration = Duration::from_secs(5);
/// First byte of a TLS ClientHello record.
const TLS_HANDSHAKE: u8 = 0x16;

pub(crate) struct Driver<S: Service> {
    conn: Arc<Connection>,
    service: Arc<S>,
    counters: Arc<SocketCounters>,
    socket: TcpStream,
    /// Bytes read and not yet handled: at most one partial frame between rounds.
    input: Vec<u8>,
    /// Bytes that the next read asks for; follows how much the peer sends at once.
    read_bytes: usize,
    out: Output,
    /// Kept between rounds for its allocation only.
    batch: Vec<Frame<'static>>,
    /// This connection's part of the input budget: what its read buffer has beyond the usual.
    input_share: usize,
    seen_bytes: bool,
    paused: bool,
    /// A graceful shutdown has begun.
    draining: bool,
    stage: Stage,
    tick: Pin<Box<Sleep>>,
    last_activity: Instant,
    _on_end: Box<dyn Send>,
}

/// How far the connection's end has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Serving,
    /// Nothing more is read; what is gathered still goes out.
    Finishing,
    /// Our side is shut. The peer's bytes are read and dropped for a moment: closing with unread bytes
    /// would reset the connection, and the peer could lose the answers.
    Lingering,
}

/// What a round of reading brought.
enum Read {
    Bytes,
    Nothing,
    End,
}

impl<S: Service> Driver<S> {
    /// `on_end` is dropped after the connection has ended and [`Service::closed`] returned.
    pub(crate) fn new(
        conn: Arc<Connection>,
        service: Arc<S>,
        counters: Arc<SocketCounters>,
        socket: TcpStream,
        on_end: Box<dyn Send>,
    ) -> Self {
        let now = Instant::now();
        let tick = Box::pin(tokio::time::sleep(conn.limits.idle / 4));
        SocketCounters::add(&counters.connections_opened, 1);
        Self {
            read_bytes: READ_BYTES_MIN.min(conn.limits.read_bytes_max),
            conn,
            service,
            counters,
            socket,
            input: Vec::new(),
            out: Output::new(),
            batch: Vec::new(),
            input_share: 0,
            seen_bytes: false,
            paused: false,
            draining: false,
            stage: Stage::Serving,
            tick,
            last_activity: now,
            _on_end: on_end,
        }
    }

    /// Drives the connection until it ends.
    pub(crate) async fn run(mut self) {
        let told = catch_unwind(AssertUnwindSafe(|| self.service.connected(&self.conn)));
        if let Err(panic) = told {
            self.report_panic("a connection was being accepted", &*panic);
            return;
        }
        std::future::poll_fn(|cx| self.poll(cx)).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            // Before gathering: an answer is queued before its request is released.
            let none_held = self.conn.held_requests() == 0;
            let wish = self.conn.collect(cx.waker(), &mut self.out);
            if let Err(error) = self.write(cx) {
                debug!(remote = self.conn.remote_text(), %error, "connection lost in a write");
                return Poll::Ready(());
            }
            if wish == Wish::Drain && !self.draining {
                self.draining = true;
                self.last_activity = Instant::now();
                self.tick.as_mut().reset(self.last_activity + DRAIN_STALL);
            }
            match wish {
                Wish::Serve => {}
                Wish::Drain if self.stage == Stage::Serving => {
                    self.conn.want_release(true);
                    if none_held {
                        self.stage = Stage::Finishing;
                    } else if self.conn.held_requests() == 0 {
                        continue;
                    }
                }
                Wish::Drain => {}
                Wish::Close => return Poll::Ready(()),
            }
            if self.stage == Stage::Finishing && self.out.is_empty() {
                self.linger(cx);
            }
            if self.stage == Stage::Lingering {
                return self.poll_linger(cx);
            }
            let serving = wish == Wish::Serve && self.stage == Stage::Serving;
            let read = if serving && self.may_read() { self.read(cx) } else { Read::Nothing };
            match read {
                Read::Bytes => continue,
                Read::End => return Poll::Ready(()),
                Read::Nothing => {}
            }
            if self.tick.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if !self.keep_alive() {
                return Poll::Ready(());
            }
        }
    }

    fn linger(&mut self, cx: &mut Context<'_>) {
        // Shutting a socket down does not wait, and when it fails there is nothing to linger for.
        let _ = Pin::new(&mut self.socket).poll_shutdown(cx);
        self.stage = Stage::Lingering;
        self.tick.as_mut().reset(Instant::now() + LINGER);
    }

    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            self.input.clear();
            self.input.reserve(READ_BYTES_MIN);
            match poll_read_buf(Pin::new(&mut self.socket), cx, &mut self.input) {
                Poll::Ready(Ok(n)) if n > 0 => {}
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return self.tick.as_mut().poll(cx),
            }
        }
    }

    /// Writes until everything is written or the socket takes no more.
    fn write(&mut self, cx: &mut Context<'_>) -> std::io::Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        SocketCounters::add(&self.counters.frames_out, self.out.take_frames());
        while !self.out.is_empty() {
            let Poll::Ready(written) = poll_write(&mut self.socket, cx, &mut self.out) else {
                break;
            };
            let written = written?;
            if written == 0 {
                return Err(std::io::ErrorKind::WriteZero.into());
            }
            SocketCounters::add(&self.counters.writes, 1);
            SocketCounters::add(&self.counters.bytes_out, written as u64);
            self.last_activity = Instant::now();
        }
        self.conn.set_unwritten_bytes(self.out.len_bytes());
        Ok(())
    }

    /// Whether less is in flight than the bound; resumes at half of it.
    fn may_read(&mut self) -> bool {
        let bound = if self.paused {
            self.conn.resume_bytes()
        } else {
            self.conn.limits.in_flight_bytes_max
        };
        let in_flight = |this: &Self| this.out.len_bytes() + this.conn.held_bytes();
        if in_flight(self) <= bound {
            if self.paused {
                self.paused = false;
                self.conn.want_release(false);
            }
            return true;
        }
        if !self.paused {
            self.paused = true;
            SocketCounters::add(&self.counters.read_pauses, 1);
        }
        self.conn.want_release(true);
        // A request released between the look and the wish would wake nobody.
        if in_flight(self) <= self.conn.resume_bytes() {
            self.paused = false;
            self.conn.want_release(false);
            return true;
        }
        false
    }

    /// One socket read, and everything that it brought served.
    fn read(&mut self, cx: &mut Context<'_>) -> Read {
        let left_bytes = self.input.len();
        if self.input.capacity() - left_bytes < self.read_bytes / 2 {
            // Doubles at most what has really arrived, whatever length a frame announces.
            let more_bytes = self.read_bytes.max(left_bytes);
            if !self.take_input_share(left_bytes + more_bytes) {
                return Read::End;
            }
            self.input.reserve_exact(more_bytes);
        }
        let room_bytes = self.input.capacity() - left_bytes;
        match poll_read_buf(Pin::new(&mut self.socket), cx, &mut self.input) {
            Poll::Pending => {
                self.shrink_input();
                return Read::Nothing;
            }
            Poll::Ready(Err(error)) => {
                debug!(remote = self.conn.remote_text(), %error, "connection lost in a read");
                return Read::End;
            }
            Poll::Ready(Ok(0)) => {
                SocketCounters::add(&self.counters.reads, 1);
                if left_bytes > 0 {
                    let remote = self.conn.remote_text();
                    debug!(remote, left_bytes, "connection ended within a frame");
                }
                return Read::End;
            }
            Poll::Ready(Ok(n)) => {
                SocketCounters::add(&self.counters.reads, 1);
                SocketCounters::add(&self.counters.bytes_in, n as u64);
                if n == room_bytes && self.read_bytes < self.conn.limits.read_bytes_max {
                    self.read_bytes = (self.read_bytes * 4).min(self.conn.limits.read_bytes_max);
                }
            }
        }
        self.last_activity = Instant::now();
        if !self.seen_bytes {
            self.seen_bytes = true;
            if self.input[0] == TLS_HANDSHAKE {
                let remote = self.conn.remote_text();
                warn!(remote, "closing connection: the client speaks tls, which is not enabled");
                return Read::End;
            }
        }
        self.serve_input()
    }

    /// Counts a read buffer of so many bytes. False when large frames that have not arrived whole
    /// fill the bound of all connections: this one must end.
    fn take_input_share(&mut self, buffer_bytes: usize) -> bool {
        let beyond_usual = buffer_bytes.saturating_sub(2 * self.conn.limits.read_bytes_max);
        let budget = &self.conn.limits.input_budget;
        let taken = budget.resize(&mut self.input_share, beyond_usual);
        if !taken {
            SocketCounters::add(&self.counters.frames_broken, 1);
            warn!(
                remote = self.conn.remote_text(),
                buffer_bytes,
                limit_bytes = budget.bytes_max(),
                "closing connection: too many bytes of unfinished frames on all connections"
            );
        }
        taken
    }

    /// Serves all whole frames of the input and keeps what follows them.
    fn serve_input(&mut self) -> Read {
        let Self { conn, service, counters, input, out, .. } = self;
        let limit = conn.limits.frame_bytes_max;
        let mut batch = recycle(std::mem::take(&mut self.batch));
        let (mut at, mut frames) = (0, 0);
        let mut broken = None;
        let mut healthy = true;
        while healthy {
            let (frame, n) = match next_frame(&input[at..], limit) {
                Ok(Some(found)) => found,
                Ok(None) => break,
                Err(error) => {
                    broken = Some(error);
                    break;
                }
            };
            at += n;
            let Some(frame) = frame else { continue };
            frames += 1;
            if !frame.is_response() {
                batch.push(frame);
                if batch.len() == BATCH_FRAMES_MAX {
                    healthy = serve(service.as_ref(), conn, &mut batch, out, counters);
                }
            } else if !conn.pending.resolve(&frame, conn.remote_arc()) {
                let (remote, opaque) = (conn.remote_text(), frame.opaque);
                debug!(remote, opaque, "answer that nobody waits for");
            }
        }
        if healthy && !batch.is_empty() {
            healthy = serve(service.as_ref(), conn, &mut batch, out, counters);
        }
        SocketCounters::add(&counters.frames_in, frames);
        self.batch = recycle(batch);
        if !healthy {
            return Read::End;
        }
        if let Some(error) = broken {
            self.report_broken(at, &error);
            // Answers of the whole frames before the broken one still go out.
            self.stage = Stage::Finishing;
        }
        if at == self.input.len() {
            self.input.clear();
        } else if at > 0 {
            self.input.drain(..at);
        }
        Read::Bytes
    }

    fn report_broken(&self, at: usize, error: &FrameError) {
        SocketCounters::add(&self.counters.frames_broken, 1);
        let length = self.input[at..].first_chunk().map(|word| i32::from_be_bytes(*word));
        warn!(
            remote = self.conn.remote_text(),
            length,
            limit_bytes = self.conn.limits.frame_bytes_max,
            %error,
            "closing connection: broken frame"
        );
    }

    fn report_panic(&self, doing: &str, panic: &(dyn std::any::Any + Send)) {
        SocketCounters::add(&self.counters.panics, 1);
        let (remote, panic) = (self.conn.remote_text(), panic_text(panic));
        error!(remote, panic, "panic while {doing}");
    }

    /// Gives back what one large frame made the buffer grow to.
    fn shrink_input(&mut self) {
        if self.input.is_empty() && self.input.capacity() > 2 * self.conn.limits.read_bytes_max {
            self.drop_input();
        }
    }

    fn drop_input(&mut self) {
        self.input = Vec::new();
        self.conn.limits.input_budget.resize(&mut self.input_share, 0);
    }

    /// At every quarter of the idle time: false when the connection was idle for all of it. A quiet
    /// connection gives its buffers back.
    fn keep_alive(&mut self) -> bool {
        let idle = self.conn.limits.idle;
        let quiet = self.last_activity.elapsed();
        if quiet >= idle {
            let remote = self.conn.remote_text();
            debug!(remote, idle_s = idle.as_secs(), "closing idle connection");
            return false;
        }
        if quiet >= idle / 8 {
            if self.input.is_empty() {
                self.drop_input();
                self.read_bytes = READ_BYTES_MIN.min(self.conn.limits.read_bytes_max);
            }
            if self.out.is_empty() && self.out.tail.capacity() > KEEP_BYTES_MAX {
                self.out = Output::new();
            }
            self.batch = Vec::new();
        }
        if self.draining && quiet >= DRAIN_STALL && !self.out.is_empty() {
            let remote = self.conn.remote_text();
            warn!(
                remote,
                unwritten_bytes = self.out.len_bytes(),
                "closing connection at the shutdown: the peer does not read its answers"
            );
            return false;
        }
        let pause = if self.draining { DRAIN_STALL } else { idle / 4 };
        let next = (self.last_activity + idle).min(Instant::now() + pause);
        self.tick.as_mut().reset(next);
        true
    }
}

impl<S: Service> Drop for Driver<S> {
    fn drop(&mut self) {
        self.conn.mark_closed();
        self.conn.limits.input_budget.resize(&mut self.input_share, 0);
        SocketCounters::add(&self.counters.connections_closed, 1);
        let closed = catch_unwind(AssertUnwindSafe(|| self.service.closed(&self.conn)));
        if let Err(panic) = closed {
            self.report_panic("a connection was being closed", &*panic);
        }
    }
}

/// The next frame and its bytes; no frame for one of length zero, which is skipped; nothing yet when more
/// bytes are needed.
#[allow(clippy::type_complexity)]
fn next_frame(
    input: &[u8],
    limit: usize,
) -> Result<Option<(Option<Frame<'_>>, usize)>, FrameError> {
    let Some(n) = frame::frame_len(input, limit)? else { return Ok(None) };
    if n <= frame::LENGTH_BYTES {
        return Ok(Some((None, n)));
    }
    Ok(Some((Some(Frame::decode(&input[frame::LENGTH_BYTES..n])?), n)))
}

/// Serves and empties one batch. False when that panicked; its answers must not be sent then, since the
/// last one may be half written.
fn serve<S: Service>(
    service: &S,
    conn: &Arc<Connection>,
    batch: &mut Vec<Frame<'_>>,
    out: &mut Output,
    counters: &SocketCounters,
) -> bool {
    let served = catch_unwind(AssertUnwindSafe(|| service.serve(conn, batch, out)));
    if let Err(panic) = served {
        SocketCounters::add(&counters.panics, 1);
        let mut codes = batch.iter().map(|f| f.code).collect::<Vec<_>>();
        codes.dedup();
        error!(
            remote = conn.remote_text(),
            ?codes,
            panic = panic_text(&*panic),
            "closing connection: panic while serving requests"
        );
        return false;
    }
    batch.clear();
    true
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}

/// Empties a batch and gives its allocation to frames of another buffer.
fn recycle<'b>(mut batch: Vec<Frame<'_>>) -> Vec<Frame<'b>> {
    batch.clear();
    batch.into_iter().map(|_| -> Frame<'b> { unreachable!("the batch was emptied") }).collect()
}
