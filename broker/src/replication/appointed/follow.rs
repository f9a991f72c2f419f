//! The slave's side of the stream: follows the log of whichever master it is told to.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rocketmq_replication::{EpochEntry, Input, LinkId};
use rocketmq_store::DurableOutcome;
use rocketmq_store::config::FlushDiskType;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;
use tracing::{info, warn};

use super::group::{Group, LinkCommand, Target};
use super::stream::{Handshake, MasterFrame, SlaveFrame, SlaveKind};
use super::{LinkError, end_that_counts, no_word};
use crate::clock::now_ms;
use crate::replication::LinkSettings;
use crate::state::BrokerState;

/// How long a master may take to accept, and to shake hands.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// First and last pause after a link was lost.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LAST: Duration = Duration::from_secs(2);
/// What one read asks for.
const READ_BYTES: usize = 256 << 10;

/// Follows for ever.
pub(in crate::replication) async fn follow(state: Arc<BrokerState>, group: Arc<Group>) {
    let mut targets = group.target.subscribe();
    let mut retry = RETRY_FIRST;
    loop {
        let target = targets.borrow_and_update().clone();
        let Some(target) = target else {
            retry = RETRY_FIRST;
            // The sender lives in the group, so this fails never.
            let _ = targets.changed().await;
            continue;
        };
        let mut was_heard = false;
        let result = tokio::select! {
            result = follow_at(&state, &group, &target, &mut was_heard) => result,
            _ = targets.changed() => {
                info!(master = target.ha_address, "followed no more, the link is closed");
                Ok(())
            }
        };
        state.replication.copying_ended();
        if was_heard {
            retry = RETRY_FIRST;
        }
        if let Err(error) = result {
            warn!(master = target.ha_address, %error, "the log is not copied from the master");
            tokio::select! {
                () = tokio::time::sleep(retry) => {}
                _ = targets.changed() => {}
            }
            retry = (retry * 2).min(RETRY_LAST);
        }
    }
}

async fn follow_at(
    state: &Arc<BrokerState>,
    group: &Group,
    target: &Target,
    was_heard: &mut bool,
) -> Result<(), LinkError> {
    let ha = &target.ha_address;
    let connecting = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(ha)).await;
    let mut socket = connecting.map_err(|_| no_word(CONNECT_TIMEOUT))??;
    socket.set_nodelay(true)?;
    let config = state.config.load_full();
    let kind = match config.async_learner {
        true => SlaveKind::Learner,
        false => SlaveKind::Promises { group: group.mark },
    };
    let handshake = Handshake {
        is_sync_from_last_file: config.sync_from_last_file,
        kind,
        replica: group.settings.id.0,
    };
    let mut out = Vec::new();
    SlaveFrame::Handshake(handshake).encode(&mut out);
    socket.write_all(&out).await?;
    let (link, commands) = group.open_link();
    let mut follower = Follower {
        state,
        group,
        target,
        settings: LinkSettings::of(&config),
        is_sync: state.store.config().flush_disk_type == FlushDiskType::Sync,
        socket,
        input: Vec::new(),
        commands,
        lost: Lost { group, link, was_told: false, closed_by_master: false },
        epoch: target.epoch,
        flushes: Arc::default(),
        reported: -1,
        owes_answer: false,
        last_read: Instant::now(),
        last_write: Instant::now(),
    };
    let result = follower.run(link, was_heard).await;
    if let Err(LinkError::Io(error)) = &result
        && error.kind() == io::ErrorKind::UnexpectedEof
    {
        follower.lost.closed_by_master = true;
    }
    result
}

/// Tells that the link is gone once the master was heard on it, also when the future is dropped.
struct Lost<'a> {
    group: &'a Group,
    link: LinkId,
    was_told: bool,
    closed_by_master: bool,
}

impl Drop for Lost<'_> {
    fn drop(&mut self) {
        self.group.close_link(self.link);
        if self.was_told {
            let Lost { link, closed_by_master, .. } = *self;
            self.group.tell(Input::MasterLost { link, closed_by_master });
        }
    }
}

/// What became of the flushes that a link asked for.
#[derive(Default)]
struct Flushes {
    /// More of the log is on disk, or will never be.
    moved: Notify,
    failure: OnceLock<String>,
}

impl Flushes {
    fn ended(&self, outcome: DurableOutcome) {
        if let DurableOutcome::Failed(error) = outcome {
            self.failure.get_or_init(|| error);
        }
        self.moved.notify_one();
    }

    fn check(&self) -> io::Result<()> {
        let failed = |error| io::Error::other(format!("the log cannot be flushed: {error}"));
        self.failure.get().map_or(Ok(()), |error| Err(failed(error)))
    }
}

/// A connection to a master.
struct Follower<'a> {
    state: &'a Arc<BrokerState>,
    group: &'a Group,
    target: &'a Target,
    settings: LinkSettings,
    /// Whether only what is on disk counts.
    is_sync: bool,
    socket: TcpStream,
    /// Bytes of frames.
    input: Vec<u8>,
    commands: UnboundedReceiver<LinkCommand>,
    lost: Lost<'a>,
    /// The master's.
    epoch: rocketmq_replication::Epoch,
    flushes: Arc<Flushes>,
    /// What the master was told last.
    reported: i64,
    /// Whether the master waits for an answer, though the log did not grow: it knows by it that the
    /// epoch file has its epoch.
    owes_answer: bool,
    last_read: Instant,
    last_write: Instant,
}

impl Follower<'_> {
    async fn run(&mut self, link: LinkId, was_heard: &mut bool) -> Result<(), LinkError> {
        self.hello(link).await?;
        loop {
            let command = self.commands.recv().await;
            if self.obey(command).await? {
                break;
            }
        }
        *was_heard = true;
        let written = self.state.store.written().0;
        // What a master sends follows the end that it is told, so all that is there must count.
        self.wait_for_disk(written).await?;
        info!(master = self.target.ha_address, from = written, "following the master's log");
        self.state.replication.copying_began(self.target.generation);
        let mut intake = Intake { next: written, waiting: Vec::new(), entry: None };
        self.report(written).await?;
        loop {
            // Whoever wakes this does not pay for it.
            tokio::task::coop::consume_budget().await;
            self.copy(link, &mut intake).await?;
            self.report_growth().await?;
            self.input.reserve(READ_BYTES);
            let report_at = self.last_write + self.settings.heartbeat;
            tokio::select! {
                read = self.socket.read_buf(&mut self.input) => self.was_read(read)?,
                command = self.commands.recv() => {
                    self.obey(command).await?;
                }
                () = self.flushes.moved.notified() => self.flushes.check()?,
                () = tokio::time::sleep_until(report_at) => {
                    self.report(end_that_counts(&self.state.store)).await?;
                }
                () = tokio::time::sleep_until(self.last_read + self.settings.idle) => {
                    return Err(no_word(self.settings.idle).into());
                }
            }
        }
    }

    /// Waits for the master's handshake and passes it on.
    async fn hello(&mut self, link: LinkId) -> Result<(), LinkError> {
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        loop {
            if let Some((frame, bytes)) = MasterFrame::decode(&self.input)? {
                match frame {
                    MasterFrame::Hello { epoch, log_end, epochs } => {
                        self.epoch = epoch;
                        self.input.drain(..bytes);
                        self.lost.was_told = true;
                        self.group.tell(Input::MasterHello { link, epoch, epochs, log_end });
                        return Ok(());
                    }
                    MasterFrame::Refused(reason) => {
                        return Err(LinkError::TurnedAway(reason.to_owned()));
                    }
                    MasterFrame::Ping(_) | MasterFrame::Piece(..) => {
                        return Err(LinkError::OutOfOrder(
                            "a frame before its handshake".to_owned(),
                        ));
                    }
                }
            }
            self.input.reserve(READ_BYTES);
            let read = self.socket.read_buf(&mut self.input);
            let read = tokio::time::timeout_at(deadline, read).await;
            let read = read.map_err(|_| no_word(CONNECT_TIMEOUT))?;
            self.was_read(read)?;
        }
    }

    fn was_read(&mut self, read: io::Result<usize>) -> Result<(), LinkError> {
        if read? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        self.last_read = Instant::now();
        self.state.replication.following.last_read_ms.store(now_ms(), Ordering::Release);
        Ok(())
    }

    /// Does as it is told; says whether that is to copy.
    async fn obey(&mut self, command: Option<LinkCommand>) -> Result<bool, LinkError> {
        match command {
            Some(LinkCommand::Copy) => return Ok(true),
            Some(LinkCommand::Pong(number)) => self.write(SlaveFrame::Pong(number)).await?,
            Some(LinkCommand::Refuse(reason)) => return Err(LinkError::Refused(reason)),
            Some(LinkCommand::Ping(_)) => {}
            // The sender is in the table until this link ends.
            None => return Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
        }
        Ok(false)
    }

    async fn write(&mut self, frame: SlaveFrame) -> Result<(), LinkError> {
        let mut out = Vec::new();
        frame.encode(&mut out);
        self.socket.write_all(&out).await?;
        self.last_write = Instant::now();
        self.state.replication.following.last_write_ms.store(now_ms(), Ordering::Release);
        Ok(())
    }

    async fn report(&mut self, end: i64) -> Result<(), LinkError> {
        self.reported = end;
        self.write(SlaveFrame::Has(end)).await
    }

    async fn report_growth(&mut self) -> Result<(), LinkError> {
        let end = end_that_counts(&self.state.store);
        if end > self.reported || std::mem::take(&mut self.owes_answer) {
            self.report(end).await?;
        }
        if self.is_sync {
            self.flush_up_to(self.state.store.written().0);
        }
        Ok(())
    }

    /// Has the log flushed, and is woken when it is.
    fn flush_up_to(&self, end: i64) {
        if self.state.store.durable().0 >= end {
            return;
        }
        let flushes = Arc::clone(&self.flushes);
        self.state.store.on_durable(end, Box::new(move |outcome| flushes.ended(outcome)));
    }

    async fn wait_for_disk(&self, end: i64) -> Result<(), LinkError> {
        if !self.is_sync || self.state.store.durable().0 >= end {
            return Ok(());
        }
        self.flush_up_to(end);
        self.flushes.moved.notified().await;
        Ok(self.flushes.check()?)
    }

    /// Takes whole frames out of the input and puts whole records into the log.
    async fn copy(&mut self, link: LinkId, intake: &mut Intake) -> Result<(), LinkError> {
        let input = std::mem::take(&mut self.input);
        let mut at = 0;
        let mut received = 0;
        let mut newest = None;
        while let Some((frame, bytes)) = MasterFrame::decode(&input[at..])? {
            at += bytes;
            match frame {
                MasterFrame::Piece(header, piece) => {
                    let entry = EpochEntry { epoch: header.epoch, start: header.epoch_start };
                    let sent = Input::MasterSent {
                        link,
                        epoch: self.epoch,
                        entry,
                        confirmed: header.confirmed.max(0),
                    };
                    if intake.entry != Some(entry) {
                        // What came before belongs to another epoch.
                        self.append(intake)?;
                        self.group.tell(sent);
                        // The epoch's bytes are never on disk before the epoch file knows it.
                        self.wait_for_epoch(entry, header.physical_offset).await?;
                        intake.entry = Some(entry);
                        self.owes_answer = true;
                    } else {
                        newest = Some(sent);
                    }
                    intake.take(header.physical_offset, piece)?;
                    received += piece.len();
                }
                MasterFrame::Ping(number) => self.group.tell(Input::Ping { link, number }),
                MasterFrame::Refused(reason) => {
                    return Err(LinkError::TurnedAway(reason.to_owned()));
                }
                MasterFrame::Hello { .. } => {
                    return Err(LinkError::OutOfOrder("a second handshake".to_owned()));
                }
            }
        }
        self.append(intake)?;
        if let Some(sent) = newest {
            self.group.tell(sent);
        }
        self.state.replication.following.received.add(received, now_ms());
        self.input = input;
        self.input.drain(..at);
        Ok(())
    }

    /// Returns when the epoch file says that the bytes from `offset` on belong to `entry`.
    async fn wait_for_epoch(&mut self, entry: EpochEntry, offset: i64) -> Result<(), LinkError> {
        let deadline = Instant::now() + self.settings.idle;
        loop {
            tokio::select! {
                () = self.group.epochs.has(entry.epoch) => break,
                command = self.commands.recv() => {
                    self.obey(command).await?;
                }
                () = tokio::time::sleep_until(deadline) => {
                    return Err(no_word(self.settings.idle).into());
                }
            }
        }
        match self.group.epochs.at(offset) {
            Some((known, _)) if known == entry => Ok(()),
            known => Err(LinkError::OutOfOrder(format!(
                "the byte at {offset} is of epoch {} that began at {}, this log's epochs say {known:?}",
                entry.epoch, entry.start
            ))),
        }
    }

    fn append(&self, intake: &mut Intake) -> Result<(), LinkError> {
        if intake.waiting.is_empty() {
            return Ok(());
        }
        let start = intake.next - intake.waiting.len() as i64;
        let appending = self.group.appending.lock();
        if *appending != self.target.generation {
            return Err(LinkError::Refused("it is followed no more".to_owned()));
        }
        let whole = self
            .state
            .store
            .append_copy(start, &intake.waiting)
            .map_err(|error| LinkError::Append(error.to_string()))?;
        drop(appending);
        intake.waiting.drain(..whole);
        if whole > 0 {
            self.group.log_moved();
        }
        Ok(())
    }
}

/// What came from the master and is not in the log yet.
struct Intake {
    /// Where the next piece must begin.
    next: i64,
    /// Bytes of the log: the front of a record whose rest has not come.
    waiting: Vec<u8>,
    /// The epoch that the newest piece belongs to.
    entry: Option<EpochEntry>,
}

impl Intake {
    fn take(&mut self, physical_offset: i64, piece: &[u8]) -> Result<(), LinkError> {
        // An empty log begins where the master says.
        let may_begin = self.next == 0 && self.waiting.is_empty();
        if physical_offset != self.next && !may_begin {
            return Err(LinkError::OutOfOrder(format!(
                "a piece of the log from {physical_offset} on, {} is next",
                self.next
            )));
        }
        if !piece.is_empty() {
            self.next = physical_offset + piece.len() as i64;
            self.waiting.extend_from_slice(piece);
        }
        Ok(())
    }
}
