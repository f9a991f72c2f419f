//! The master's side: the HA port, and a link for each slave.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Buf;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::accept;
use super::flow::Flow;
use super::frame::{Header, newest_report};
use super::throttle::Throttle;
use super::{LinkSettings, SlaveLink};
use crate::clock::{monotonic_ms, now_ms};
use crate::state::BrokerState;

/// A look for new bytes without a wake-up: a record outside of queues wakes nobody.
const LOOK: Duration = Duration::from_millis(100);

/// Serves slaves until `stop`.
pub(super) async fn serve(state: Arc<BrokerState>, listener: TcpListener, stop: CancellationToken) {
    accept::each_slave(listener, stop, |socket, remote| {
        let state = Arc::clone(&state);
        async move { serve_slave(&state, socket, &remote).await }
    })
    .await;
}

async fn serve_slave(state: &BrokerState, socket: TcpStream, remote: &str) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let settings = LinkSettings::of(&state.config.load());
    let (mut reading, writing) = socket.into_split();
    let mut reports = Vec::new();
    let asked = next_report(&mut reading, &mut reports, settings.idle).await?;
    let next = begin(state, asked)?;
    info!(remote, asked, next, "slave connected");
    let link = Arc::new(SlaveLink {
        remote: remote.to_owned(),
        replica: None,
        acked: AtomicI64::new(asked),
        next: AtomicI64::new(next),
        sent: Flow::default(),
    });
    state.replication.slave_came(&link);
    // Also when this future is dropped.
    let _leave = Leave { state, link: &link };
    let acks = async {
        loop {
            let acked = next_report(&mut reading, &mut reports, settings.idle).await?;
            state.replication.slave_acked(&link, acked);
        }
    };
    tokio::select! {
        result = acks => result,
        result = send_log(state, &link, writing, settings) => result,
    }
}

struct Leave<'a> {
    state: &'a BrokerState,
    link: &'a Arc<SlaveLink>,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.state.replication.slave_left(self.link);
    }
}

/// Where a slave that has everything in front of `asked` goes on. An empty one begins with the newest
/// file of the log, as with RocketMQ: it need not hold what is older.
fn begin(state: &BrokerState, asked: i64) -> io::Result<i64> {
    let (start, end) = (state.store.min_physical_offset(), state.store.max_physical_offset());
    if asked == 0 {
        let file_bytes = state.store.config().commit_log_file_bytes as i64;
        return Ok((end - end % file_bytes).max(start));
    }
    if (start..=end).contains(&asked) {
        return Ok(asked);
    }
    Err(io::Error::other(format!(
        "it has the log to {asked}, which is not within {start} to {end} that this master has; empty \
         the slave's store, it is then copied anew"
    )))
}

async fn next_report(
    reading: &mut OwnedReadHalf,
    bytes: &mut Vec<u8>,
    idle: Duration,
) -> io::Result<i64> {
    loop {
        if let Some(report) = newest_report(bytes) {
            return Ok(report);
        }
        let read = tokio::time::timeout(idle, reading.read_buf(bytes)).await;
        let read = read.map_err(|_| {
            let text = format!("no word for {} ms (haHousekeepingInterval)", idle.as_millis());
            io::Error::new(io::ErrorKind::TimedOut, text)
        })?;
        if read? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Sends what the log has from `link.next` on, as it grows.
async fn send_log(
    state: &BrokerState,
    link: &SlaveLink,
    mut writing: OwnedWriteHalf,
    settings: LinkSettings,
) -> io::Result<()> {
    let mut next = link.next.load(Ordering::Acquire);
    let mut last_write = Instant::now();
    let mut throttle = Throttle::default();
    loop {
        // Before the look: growth between it and the wait is not missed.
        let grew = state.replication.grew.notified();
        let piece = state.store.log_bytes(next, settings.batch_bytes);
        let Some(piece) = piece else {
            if next < state.store.min_physical_offset() {
                let text = format!("its next byte {next} was removed from the log (retention)");
                return Err(io::Error::other(text));
            }
            if last_write.elapsed() >= settings.heartbeat {
                let header = Header { physical_offset: next, bytes: 0 };
                writing.write_all(&header.encode()).await?;
                last_write = Instant::now();
            }
            tokio::select! {
                () = grew => {}
                () = tokio::time::sleep(LOOK) => {}
            }
            continue;
        };
        let limit = state.config.load().ha_bytes_per_second();
        let piece = match throttle.take(limit, piece.len(), monotonic_ms()) {
            Ok(bytes) => piece.slice(..bytes),
            Err(wait) => {
                tokio::time::sleep(wait).await;
                continue;
            }
        };
        let header = Header { physical_offset: next, bytes: piece.len() };
        let bytes = piece.len();
        next += bytes as i64;
        let head = header.encode();
        writing.write_all_buf(&mut Buf::chain(head.as_slice(), piece)).await?;
        link.next.store(next, Ordering::Release);
        link.sent.add(bytes, now_ms());
        last_write = Instant::now();
    }
}
