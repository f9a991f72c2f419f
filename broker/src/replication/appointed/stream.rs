//! The bytes between a master that was appointed and its slaves: RocketMQ 5's stream of its controller
//! mode (`AutoSwitchHAConnection`, `AutoSwitchHAClient`).
//!
//! A slave says who it is; the master answers with its epochs and where its log ends; the slave cuts
//! its log to fit, says where it ends, and is sent what follows. Between brokers of this kind there is
//! more: a slave that says so can be asked for promises, and is told why it is turned away. Java's
//! brokers take a slave that says so for an ordinary one, and are never sent those frames.

use rocketmq_replication::{Epoch, EpochEntry, EpochFileError, EpochTable};

/// Bytes of a slave's handshake.
pub const HANDSHAKE_BYTES: usize = 16;
/// Bytes of a slave's report, and of its answer to a ping.
pub const REPORT_BYTES: usize = 12;
/// Bytes in front of a master's epochs, and of its other frames that carry no log.
pub const HELLO_HEADER_BYTES: usize = 20;
/// Bytes in front of a piece of the log.
pub const PIECE_HEADER_BYTES: usize = 36;
/// Longest piece that is taken from a master. Java's slaves take 4 MiB.
pub const PIECE_BYTES_MAX: usize = 4 << 20;
/// Most epochs that a master tells, the newest ones; Java's buffer has room for as many.
pub const EPOCHS_MAX: usize = 1_000;
/// Longest reason for which a slave is turned away.
pub const REASON_BYTES_MAX: usize = 1_024;

const EPOCH_BYTES: usize = 12;
const PING_BYTES: usize = 8;

/// States of a connection, as they stand in front of every frame (`HAConnectionState`).
mod state {
    pub(super) const HANDSHAKE: i32 = 1;
    pub(super) const TRANSFER: i32 = 2;
    /// Ours: a master asks for a promise, a slave gives it.
    pub(super) const PROMISE: i32 = 5;
    /// Ours: why a slave is turned away.
    pub(super) const REFUSED: i32 = 6;
}

/// Why bytes are no frames of this stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// Its first word is no state that a frame begins with here.
    #[error("a frame begins with {0}, which is no state of this stream")]
    State(i32),
    /// A number is out of range.
    #[error("{field} is {value}, allowed are {min} to {max}")]
    Range {
        /// Which one.
        field: &'static str,
        /// What it says.
        value: i64,
        /// Least.
        min: i64,
        /// Most.
        max: i64,
    },
    /// The epochs of a master are no table.
    #[error("a master's epochs: {0}")]
    Epochs(#[from] EpochFileError),
    /// A reason that is no text.
    #[error("the reason for which a slave is turned away is no UTF-8")]
    Reason,
}

/// What kind of slave it is (`isAsyncLearner`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlaveKind {
    /// An ordinary one.
    Plain,
    /// One that never joins the in-sync set.
    Learner,
    /// Ours: an ordinary one that can promise. It says which group it belongs to.
    Promises {
        /// [`group_mark`] of its group.
        group: u16,
    },
}

/// Which group a broker belongs to, in 14 bits: enough to notice a wrong address. Nobody's log is
/// taken for that of another group then.
pub fn group_mark(cluster: &str, group: &str) -> u16 {
    let mut hash = crc32fast::Hasher::new();
    hash.update(cluster.as_bytes());
    hash.update(&[0]);
    hash.update(group.as_bytes());
    // Fourteen bits fit.
    (hash.finalize() & 0x3FFF) as u16
}

/// The first words of a slave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// Whether an empty slave is content with the newest file of the log.
    pub is_sync_from_last_file: bool,
    /// What kind it is.
    pub kind: SlaveKind,
    /// Its id.
    pub replica: i64,
}

/// What a slave sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlaveFrame {
    /// Who it is.
    Handshake(Handshake),
    /// It has everything in front of this offset. The first one says where to begin, 0 for anywhere.
    Has(i64),
    /// Ours: it answers the ping of this number, and thereby promises.
    Pong(u64),
}

impl SlaveFrame {
    /// Appends the frame's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            SlaveFrame::Handshake(handshake) => {
                let kind = match handshake.kind {
                    SlaveKind::Plain => 0,
                    SlaveKind::Learner => 1,
                    SlaveKind::Promises { group } => (group << 2) | 2,
                };
                out.extend_from_slice(&state::HANDSHAKE.to_be_bytes());
                let last_file = u16::from(handshake.is_sync_from_last_file);
                out.extend_from_slice(&last_file.to_be_bytes());
                out.extend_from_slice(&kind.to_be_bytes());
                out.extend_from_slice(&handshake.replica.to_be_bytes());
            }
            SlaveFrame::Has(end) => {
                out.extend_from_slice(&state::TRANSFER.to_be_bytes());
                out.extend_from_slice(&end.to_be_bytes());
            }
            SlaveFrame::Pong(number) => {
                out.extend_from_slice(&state::PROMISE.to_be_bytes());
                out.extend_from_slice(&number.to_be_bytes());
            }
        }
    }

    /// Reads the frame at the front of `bytes` and says how long it is; none if there are too few.
    ///
    /// # Errors
    /// When no frame begins like that.
    pub fn decode(bytes: &[u8]) -> Result<Option<(SlaveFrame, usize)>, StreamError> {
        let mut words = Words(bytes);
        let Some(first) = words.i32() else { return Ok(None) };
        match first {
            state::HANDSHAKE => {
                let (Some(last_file), Some(kind), Some(replica)) =
                    (words.u16(), words.u16(), words.i64())
                else {
                    return Ok(None);
                };
                let kind = match (kind, kind & 3) {
                    (1, _) => SlaveKind::Learner,
                    (_, 2) => SlaveKind::Promises { group: kind >> 2 },
                    // As Java reads it.
                    _ => SlaveKind::Plain,
                };
                check("the id of a slave", replica, 0, i64::MAX)?;
                let is_sync_from_last_file = last_file == 1;
                let handshake = Handshake { is_sync_from_last_file, kind, replica };
                Ok(Some((SlaveFrame::Handshake(handshake), HANDSHAKE_BYTES)))
            }
            state::TRANSFER => {
                let Some(end) = words.i64() else { return Ok(None) };
                check("the end of a slave's log", end, 0, i64::MAX)?;
                Ok(Some((SlaveFrame::Has(end), REPORT_BYTES)))
            }
            state::PROMISE => {
                let Some(number) = words.i64() else { return Ok(None) };
                Ok(Some((SlaveFrame::Pong(number.cast_unsigned()), REPORT_BYTES)))
            }
            other => Err(StreamError::State(other)),
        }
    }
}

/// What a master sends, in front of the log's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceHeader {
    /// Where the piece begins.
    pub physical_offset: i64,
    /// Its length; 0 as a sign of life.
    pub bytes: usize,
    /// The epoch that all of its bytes belong to.
    pub epoch: Epoch,
    /// Where that epoch began.
    pub epoch_start: i64,
    /// Everything in front of it is confirmed; negative if the master does not know.
    pub confirmed: i64,
}

impl PieceHeader {
    /// Its bytes.
    pub fn encode(&self) -> [u8; PIECE_HEADER_BYTES] {
        let mut out = [0; PIECE_HEADER_BYTES];
        out[..4].copy_from_slice(&state::TRANSFER.to_be_bytes());
        // A piece is bounded by a setting of 23 bits.
        out[4..8].copy_from_slice(&(self.bytes as u32).to_be_bytes());
        out[8..16].copy_from_slice(&self.physical_offset.to_be_bytes());
        out[16..20].copy_from_slice(&self.epoch.0.to_be_bytes());
        out[20..28].copy_from_slice(&self.epoch_start.to_be_bytes());
        out[28..].copy_from_slice(&self.confirmed.to_be_bytes());
        out
    }
}

/// What a master sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MasterFrame<'a> {
    /// Its epochs, the newest ones if there are many.
    Hello {
        /// The newest of them; −1 if there is none.
        epoch: Epoch,
        /// Where its log ends.
        log_end: i64,
        /// All that it tells.
        epochs: EpochTable,
    },
    /// Bytes of the log.
    Piece(PieceHeader, &'a [u8]),
    /// Ours: it asks for a promise.
    Ping(u64),
    /// Ours: why it closes the connection now.
    Refused(&'a str),
}

impl<'a> MasterFrame<'a> {
    /// Appends the frame's bytes. Of more than [`EPOCHS_MAX`] epochs the newest are told, of a longer
    /// reason than [`REASON_BYTES_MAX`] the beginning.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let header = |out: &mut Vec<u8>, state: i32, bytes: usize, offset: i64, epoch: i32| {
            out.extend_from_slice(&state.to_be_bytes());
            // All of these are bounded by constants of this file.
            out.extend_from_slice(&(bytes as u32).to_be_bytes());
            out.extend_from_slice(&offset.to_be_bytes());
            out.extend_from_slice(&epoch.to_be_bytes());
        };
        match self {
            MasterFrame::Hello { epoch, log_end, epochs } => {
                let entries = epochs.entries();
                let newest = &entries[entries.len().saturating_sub(EPOCHS_MAX)..];
                header(out, state::HANDSHAKE, newest.len() * EPOCH_BYTES, *log_end, epoch.0);
                for entry in newest {
                    out.extend_from_slice(&entry.epoch.0.to_be_bytes());
                    out.extend_from_slice(&entry.start.to_be_bytes());
                }
            }
            MasterFrame::Piece(header, bytes) => {
                out.extend_from_slice(&PieceHeader { bytes: bytes.len(), ..*header }.encode());
                out.extend_from_slice(bytes);
            }
            MasterFrame::Ping(number) => {
                header(out, state::PROMISE, PING_BYTES, 0, 0);
                out.extend_from_slice(&number.to_be_bytes());
            }
            MasterFrame::Refused(reason) => {
                let reason = &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)];
                header(out, state::REFUSED, reason.len(), 0, 0);
                out.extend_from_slice(reason.as_bytes());
            }
        }
    }

    /// Reads the frame at the front of `bytes` and says how long it is; none if there are too few.
    ///
    /// # Errors
    /// When no frame begins like that.
    pub fn decode(bytes: &'a [u8]) -> Result<Option<(MasterFrame<'a>, usize)>, StreamError> {
        let mut words = Words(bytes);
        let Some(first) = words.i32() else { return Ok(None) };
        let (body_min, body_max) = match first {
            state::HANDSHAKE => (0, EPOCHS_MAX * EPOCH_BYTES),
            state::TRANSFER => (0, PIECE_BYTES_MAX),
            state::PROMISE => (PING_BYTES, PING_BYTES),
            state::REFUSED => (0, REASON_BYTES_MAX),
            other => return Err(StreamError::State(other)),
        };
        let (Some(body_bytes), Some(offset), Some(epoch)) = (words.i32(), words.i64(), words.i32())
        else {
            return Ok(None);
        };
        check("the length of a frame", body_bytes.into(), body_min as i64, body_max as i64)?;
        // Not negative, as was checked.
        let body_bytes = body_bytes as usize;
        if first != state::TRANSFER {
            let Some(body) = words.0.get(..body_bytes) else { return Ok(None) };
            let frame = match first {
                state::HANDSHAKE => hello(epoch, offset, body)?,
                state::PROMISE => {
                    let number = Words(body).i64().unwrap_or_default();
                    MasterFrame::Ping(number.cast_unsigned())
                }
                _ => {
                    let text = std::str::from_utf8(body).map_err(|_| StreamError::Reason)?;
                    MasterFrame::Refused(text)
                }
            };
            return Ok(Some((frame, HELLO_HEADER_BYTES + body_bytes)));
        }
        let (Some(epoch_start), Some(confirmed)) = (words.i64(), words.i64()) else {
            return Ok(None);
        };
        check("the offset of a piece", offset, 0, i64::MAX - PIECE_BYTES_MAX as i64)?;
        check("the epoch of a piece", epoch.into(), 0, i32::MAX.into())?;
        check("the start of an epoch", epoch_start, 0, i64::MAX)?;
        let Some(body) = words.0.get(..body_bytes) else { return Ok(None) };
        let header = PieceHeader {
            physical_offset: offset,
            bytes: body_bytes,
            epoch: Epoch(epoch),
            epoch_start,
            confirmed,
        };
        Ok(Some((MasterFrame::Piece(header, body), PIECE_HEADER_BYTES + body_bytes)))
    }
}

fn hello(epoch: i32, log_end: i64, body: &[u8]) -> Result<MasterFrame<'static>, StreamError> {
    check("the end of a master's log", log_end, 0, i64::MAX)?;
    check("the epoch of a master", epoch.into(), -1, i32::MAX.into())?;
    let mut words = Words(body);
    let mut epochs = EpochTable::default();
    // What is left of a length that is no multiple of an entry's says nothing, as with Java.
    while let (Some(epoch), Some(start)) = (words.i32(), words.i64()) {
        epochs.push(EpochEntry { epoch: Epoch(epoch), start })?;
    }
    Ok(MasterFrame::Hello { epoch: Epoch(epoch), log_end, epochs })
}

fn check(field: &'static str, value: i64, min: i64, max: i64) -> Result<(), StreamError> {
    match (min..=max).contains(&value) {
        true => Ok(()),
        false => Err(StreamError::Range { field, value, min, max }),
    }
}

/// Big-endian words, one after the other; none once there are too few bytes.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (word, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*word)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.take().map(i32::from_be_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.take().map(i64::from_be_bytes)
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
