//! The slave's side: follows the log of a master.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tracing::{info, warn};

use super::frame::{HEADER_BYTES, Header};
use super::{LinkSettings, Master};
use crate::clock::now_ms;
use crate::state::BrokerState;

/// How long a master may take to accept.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// First and last pause after a link was lost.
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_LAST: Duration = Duration::from_secs(5);
/// What one read asks for.
const READ_BYTES: usize = 256 << 10;

/// Follows whichever master is known, for ever.
pub(super) async fn follow(state: Arc<BrokerState>) {
    let mut masters = state.replication.master.subscribe();
    let mut retry = RETRY_FIRST;
    loop {
        let master = masters.borrow_and_update().clone();
        let ha = &*master.ha;
        if ha.is_empty() {
            // The sender lives in the state, so this fails never.
            let _ = masters.changed().await;
            continue;
        }
        let mut was_heard = false;
        let result = tokio::select! {
            result = follow_at(&state, &master, &mut was_heard) => result,
            _ = masters.changed() => {
                info!(master = ha, "another master, the link is closed");
                Ok(())
            }
        };
        state.replication.copying_ended();
        // One that turns this slave away accepts it first, and says nothing.
        if was_heard {
            retry = RETRY_FIRST;
        }
        if let Err(error) = result {
            warn!(master = ha, %error, "the log is not copied from the master");
            tokio::select! {
                () = tokio::time::sleep(retry) => {}
                _ = masters.changed() => {}
            }
            retry = (retry * 2).min(RETRY_LAST);
        }
    }
}

async fn follow_at(state: &BrokerState, master: &Master, was_heard: &mut bool) -> io::Result<()> {
    let ha = &*master.ha;
    let settings = LinkSettings::of(&state.config.load());
    let connecting = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(ha)).await;
    let mut socket = connecting.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    socket.set_nodelay(true)?;
    let following = &state.replication.following;
    let mut intake =
        Intake { next: state.store.written().0, input: Vec::new(), waiting: Vec::new() };
    let mut reported = intake.next;
    socket.write_all(&reported.to_be_bytes()).await?;
    info!(master = ha, from = reported, "following the master's log");
    state.replication.copying_began(master.number);
    let (mut last_read, mut last_write) = (Instant::now(), Instant::now());
    loop {
        intake.input.reserve(READ_BYTES);
        let report_at = last_write + settings.heartbeat;
        tokio::select! {
            read = socket.read_buf(&mut intake.input) => {
                if read? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                last_read = Instant::now();
                following.last_read_ms.store(now_ms(), Ordering::Release);
                let taken = intake.take(state)?;
                following.received.add(taken, now_ms());
                *was_heard = true;
            }
            () = tokio::time::sleep_until(report_at) => {}
            () = tokio::time::sleep_until(last_read + settings.idle) => {
                let text = format!("no word for {} ms (haHousekeepingInterval)", settings.idle.as_millis());
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
        }
        let written = state.store.written().0;
        if written > reported || Instant::now() >= report_at {
            reported = written;
            socket.write_all(&reported.to_be_bytes()).await?;
            last_write = Instant::now();
            following.last_write_ms.store(now_ms(), Ordering::Release);
        }
    }
}

/// What came from the master and is not in the log yet.
struct Intake {
    /// Where the next piece must begin.
    next: i64,
    /// Bytes of frames.
    input: Vec<u8>,
    /// Bytes of the log: the front of a record whose rest has not come.
    waiting: Vec<u8>,
}

impl Intake {
    /// Takes whole frames out of the input and puts whole records into the log. Returns the bytes of
    /// the pieces.
    fn take(&mut self, state: &BrokerState) -> io::Result<usize> {
        let mut at = 0;
        let mut taken = 0;
        while let Some(header) = Header::decode(&self.input[at..]).map_err(io::Error::other)? {
            let body = at + HEADER_BYTES;
            let Some(piece) = self.input.get(body..body + header.bytes) else { break };
            // An empty log begins where the master says.
            let may_begin = self.next == 0 && self.waiting.is_empty();
            if header.physical_offset != self.next && !may_begin {
                let text = format!(
                    "a piece of the log from {} on, {} is next",
                    header.physical_offset, self.next
                );
                return Err(io::Error::other(text));
            }
            if header.bytes > 0 {
                self.next = header.physical_offset + header.bytes as i64;
                self.waiting.extend_from_slice(piece);
            }
            taken += header.bytes;
            at = body + header.bytes;
        }
        self.input.drain(..at);
        if taken > 0 {
            let start = self.next - self.waiting.len() as i64;
            let whole = state.store.append_copy(start, &self.waiting).map_err(io::Error::other)?;
            self.waiting.drain(..whole);
        }
        Ok(taken)
    }
}
