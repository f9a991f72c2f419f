//! The master's side of the stream: the HA port, and a link for each slave.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes};
use rocketmq_replication::{EpochEntry, Input, LinkId, Refusal, ReplicaId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::group::{Group, LinkCommand, Reign};
use super::stream::{Handshake, MasterFrame, PieceHeader, SlaveFrame, SlaveKind};
use super::{LinkError, no_word};
use crate::clock::{monotonic_ms, now_ms};
use crate::replication::accept;
use crate::replication::flow::Flow;
use crate::replication::throttle::Throttle;
use crate::replication::{LinkSettings, SlaveLink};
use crate::state::BrokerState;

/// How long a connection may take to say who it is.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long one that is turned away may take to read why.
const REFUSAL_TIMEOUT: Duration = Duration::from_millis(500);
/// A look for what is new without a wake-up: what was confirmed since, a record outside of queues.
const LOOK: Duration = Duration::from_millis(100);
/// What one read asks for; a slave's frames are short.
const READ_BYTES: usize = 4 << 10;

/// Serves slaves, whenever this broker is master, until `stop`.
pub(in crate::replication) async fn serve(
    state: Arc<BrokerState>,
    group: Arc<Group>,
    listener: TcpListener,
    stop: CancellationToken,
) {
    accept::each_slave(listener, stop, |socket, remote| {
        let (state, group) = (Arc::clone(&state), Arc::clone(&group));
        async move { serve_slave(&state, &group, socket, &remote).await }
    })
    .await;
}

async fn serve_slave(
    state: &BrokerState,
    group: &Group,
    socket: TcpStream,
    remote: &str,
) -> Result<(), LinkError> {
    socket.set_nodelay(true)?;
    let (reading, mut writing) = socket.into_split();
    let mut frames = SlaveFrames { reading, input: Vec::new() };
    let handshake = match frames.next(HANDSHAKE_TIMEOUT).await? {
        SlaveFrame::Handshake(handshake) => handshake,
        other => return Err(LinkError::OutOfOrder(format!("{other:?} before its handshake"))),
    };
    let reign = group.reign.borrow().clone();
    let reason = match &reign {
        None => Some(Refusal::NoMaster(group.status().epoch).to_string()),
        Some(_) => turned_away(group, &handshake),
    };
    let result = match (reason, reign) {
        (None, Some(reign)) => {
            follow_log(state, group, &reign, &handshake, frames, &mut writing, remote).await
        }
        (reason, _) => Err(LinkError::Refused(reason.unwrap_or_default())),
    };
    if let Err(LinkError::Refused(reason)) = &result
        && matches!(handshake.kind, SlaveKind::Promises { .. })
    {
        let mut out = Vec::new();
        MasterFrame::Refused(reason).encode(&mut out);
        // It is gone, or it reads.
        let _ = tokio::time::timeout(REFUSAL_TIMEOUT, writing.write_all(&out)).await;
    }
    result
}

/// Why a slave is not served that says this of itself.
fn turned_away(group: &Group, handshake: &Handshake) -> Option<String> {
    let own = group.settings.id;
    if handshake.replica == own.0 {
        return Some(Refusal::OwnId(own).to_string());
    }
    match handshake.kind {
        SlaveKind::Promises { group: theirs } if theirs != group.mark => Some(format!(
            "replica {} belongs to another cluster or broker name (its mark is {theirs:#06x}, this \
             group's is {:#06x})",
            handshake.replica, group.mark
        )),
        _ if handshake.replica < 1 => {
            Some(format!("a replica's id is {}, 1 and above expected", handshake.replica))
        }
        _ => None,
    }
}

/// Shakes hands, and sends the log for as long as this broker reigns.
async fn follow_log(
    state: &BrokerState,
    group: &Group,
    reign: &Reign,
    handshake: &Handshake,
    mut frames: SlaveFrames,
    writing: &mut OwnedWriteHalf,
    remote: &str,
) -> Result<(), LinkError> {
    let settings = LinkSettings::of(&state.config.load());
    let mut out = Vec::new();
    let log_end = state.store.written().0;
    MasterFrame::Hello { epoch: reign.epoch, log_end, epochs: group.epochs.table() }
        .encode(&mut out);
    let asked = tokio::select! {
        asked = async {
            writing.write_all(&out).await?;
            frames.next_end(settings.idle).await
        } => asked?,
        () = reign.ended.cancelled() => return Ok(()),
    };
    let next = begin(state, handshake, asked)?;
    let replica = ReplicaId(handshake.replica);
    info!(remote, %replica, asked, next, "slave connected");
    let (link, commands) = group.open_link();
    let status = Arc::new(SlaveLink {
        remote: remote.to_owned(),
        replica: Some(replica),
        acked: AtomicI64::new(asked),
        next: AtomicI64::new(next),
        sent: Flow::default(),
    });
    state.replication.slave_came(&status);
    // Also when this future is dropped, and in any case before the connection is closed.
    let _leave = Leave { state, group, link, status: &status };
    let is_learner = handshake.kind == SlaveKind::Learner;
    group.tell(Input::SlaveJoined { link, replica, end: next, is_learner });
    let can_promise = matches!(handshake.kind, SlaveKind::Promises { .. });
    let sender = Sender { state, group, link: &status, settings, can_promise };
    let answers = take_answers(state, group, link, &status, &mut frames, settings.idle, replica);
    tokio::select! {
        result = answers => result,
        result = sender.send(writing, commands) => result,
        () = reign.ended.cancelled() => Ok(()),
    }
}

struct Leave<'a> {
    state: &'a BrokerState,
    group: &'a Group,
    link: LinkId,
    status: &'a Arc<SlaveLink>,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.group.tell(Input::SlaveLeft(self.link));
        self.group.close_link(self.link);
        self.state.replication.slave_left(self.status);
    }
}

/// Where a slave that has everything in front of `asked` goes on. An empty one begins where the log
/// does, or with its newest file if it is content with that.
fn begin(state: &BrokerState, handshake: &Handshake, asked: i64) -> Result<i64, LinkError> {
    let (start, end) = (state.store.min_physical_offset(), state.store.written().0);
    if asked == 0 {
        let file_bytes = state.store.config().commit_log_file_bytes as i64;
        return Ok(match handshake.is_sync_from_last_file {
            true => (end - end % file_bytes).max(start),
            false => start,
        });
    }
    if asked > end {
        let replica = ReplicaId(handshake.replica);
        return Err(LinkError::Refused(Refusal::Beyond { replica, said: asked, end }.to_string()));
    }
    if asked < start {
        return Err(LinkError::Refused(format!(
            "it has the log to {asked}, and the master's begins at {start} by now (retention); empty \
             the slave's store, it is then copied anew"
        )));
    }
    Ok(asked)
}

/// Frames of a slave.
struct SlaveFrames {
    reading: OwnedReadHalf,
    input: Vec<u8>,
}

impl SlaveFrames {
    async fn next(&mut self, idle: Duration) -> Result<SlaveFrame, LinkError> {
        loop {
            if let Some((frame, bytes)) = SlaveFrame::decode(&self.input)? {
                self.input.drain(..bytes);
                return Ok(frame);
            }
            self.input.reserve(READ_BYTES);
            let read = tokio::time::timeout(idle, self.reading.read_buf(&mut self.input)).await;
            if read.map_err(|_| no_word(idle))?? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
    }

    async fn next_end(&mut self, idle: Duration) -> Result<i64, LinkError> {
        match self.next(idle).await? {
            SlaveFrame::Has(end) => Ok(end),
            other => {
                Err(LinkError::OutOfOrder(format!("{other:?} before it said where its log ends")))
            }
        }
    }
}

/// Takes what a slave says until it says something wrong.
async fn take_answers(
    state: &BrokerState,
    group: &Group,
    link: LinkId,
    status: &SlaveLink,
    frames: &mut SlaveFrames,
    idle: Duration,
    replica: ReplicaId,
) -> Result<(), LinkError> {
    loop {
        match frames.next(idle).await? {
            SlaveFrame::Has(said) => {
                let end = status.next.load(Ordering::Acquire);
                if said > end {
                    let reason = Refusal::Beyond { replica, said, end };
                    return Err(LinkError::Refused(reason.to_string()));
                }
                state.replication.slave_acked(status, said);
                group.tell(Input::SlaveHas { link, end: said });
            }
            SlaveFrame::Pong(number) => group.tell(Input::Pong { link, number }),
            SlaveFrame::Handshake(_) => {
                return Err(LinkError::OutOfOrder("a second handshake".to_owned()));
            }
        }
    }
}

/// What sends the log to one slave.
struct Sender<'a> {
    state: &'a BrokerState,
    group: &'a Group,
    link: &'a SlaveLink,
    settings: LinkSettings,
    can_promise: bool,
}

impl Sender<'_> {
    /// Sends what the log has from `link.next` on, as it grows, and what is confirmed of it.
    async fn send(
        &self,
        writing: &mut OwnedWriteHalf,
        mut commands: UnboundedReceiver<LinkCommand>,
    ) -> Result<(), LinkError> {
        let mut next = self.link.next.load(Ordering::Acquire);
        let mut throttle = Throttle::default();
        let mut told_confirmed = -1;
        // The first frame is sent at once, be it empty: its answer is what a slave counts from.
        let mut last_write: Option<Instant> = None;
        loop {
            while let Ok(command) = commands.try_recv() {
                self.obey(writing, command).await?;
            }
            // Before the look: growth between it and the wait is not missed.
            let grew = self.state.replication.grew.notified();
            let confirmed = self.group.confirmed();
            if let Some((entry, piece)) = self.piece(next)? {
                let limit = self.state.config.load().ha_bytes_per_second();
                let sent = match throttle.take(limit, piece.len(), monotonic_ms()) {
                    Ok(bytes) => piece.slice(..bytes),
                    Err(wait) => {
                        tokio::time::sleep(wait).await;
                        continue;
                    }
                };
                let bytes = sent.len();
                // Said before it is sent: the answer may be faster than what follows here.
                self.link.next.store(next + bytes as i64, Ordering::Release);
                let head = header(next, bytes, entry, confirmed).encode();
                writing.write_all_buf(&mut Buf::chain(head.as_slice(), sent)).await?;
                next += bytes as i64;
                self.link.sent.add(bytes, now_ms());
                (last_write, told_confirmed) = (Some(Instant::now()), confirmed);
                continue;
            }
            let is_due = last_write.is_none_or(|at| at.elapsed() >= self.settings.heartbeat);
            if is_due || confirmed > told_confirmed {
                let (entry, _) = self.group.epochs.at(next).ok_or_else(|| no_epoch(next))?;
                writing.write_all(&header(next, 0, entry, confirmed).encode()).await?;
                (last_write, told_confirmed) = (Some(Instant::now()), confirmed);
                continue;
            }
            tokio::select! {
                command = commands.recv() => {
                    if let Some(command) = command {
                        self.obey(writing, command).await?;
                    }
                }
                () = grew => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    async fn obey(
        &self,
        writing: &mut OwnedWriteHalf,
        command: LinkCommand,
    ) -> Result<(), LinkError> {
        match command {
            LinkCommand::Ping(number) if self.can_promise => {
                let mut out = Vec::new();
                MasterFrame::Ping(number).encode(&mut out);
                writing.write_all(&out).await?;
                Ok(())
            }
            LinkCommand::Refuse(reason) => Err(LinkError::Refused(reason)),
            // One that promises nothing is not asked; the others are for slaves.
            LinkCommand::Ping(_) | LinkCommand::Copy | LinkCommand::Pong(_) => Ok(()),
        }
    }

    /// Bytes of the log from `next` on, all of one file and one epoch; none where it ends.
    fn piece(&self, next: i64) -> Result<Option<(EpochEntry, Bytes)>, LinkError> {
        let store = &self.state.store;
        let Some(piece) = store.log_bytes(next, self.settings.batch_bytes) else {
            let start = store.min_physical_offset();
            if next < start {
                return Err(LinkError::Refused(format!(
                    "its next byte {next} was removed from the master's log, which begins at {start} \
                     by now (retention)"
                )));
            }
            return Ok(None);
        };
        let (entry, end) = self.group.epochs.at(next).ok_or_else(|| no_epoch(next))?;
        let in_epoch = end.map_or(usize::MAX, |end| usize::try_from(end - next).unwrap_or(0));
        Ok(Some((entry, piece.slice(..piece.len().min(in_epoch)))))
    }
}

fn header(physical_offset: i64, bytes: usize, entry: EpochEntry, confirmed: i64) -> PieceHeader {
    let EpochEntry { epoch, start: epoch_start } = entry;
    PieceHeader { physical_offset, bytes, epoch, epoch_start, confirmed }
}

fn no_epoch(offset: i64) -> LinkError {
    LinkError::Refused(format!("the byte at {offset} belongs to no epoch of the master"))
}
