//! The log as bytes: what a master hands to its slaves, and what a slave takes from its master.
//!
//! A piece of the stream may end anywhere, in the middle of a record too. A slave's log takes whole
//! records and whole blanks only, each with its place and CRC verified, so that at every moment it is
//! a log that could be opened and served; the rest of a piece waits with whoever receives it.

use bytes::Bytes;
use rocketmq_protocol::message::record::{
    BLANK_BYTES_MIN, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, MessageRecord, place,
};

use crate::error::AppendError;
use crate::store::Store;

/// Longest record, or blank in front of one that did not fit, that is waited for.
pub const COPY_ITEM_BYTES_MAX: usize = 32 << 20;

impl Store {
    /// Bytes of the log from `physical_offset` on: at most `bytes_max`, all of one file. None where
    /// nothing is written, or not any more.
    pub fn log_bytes(&self, physical_offset: i64, bytes_max: usize) -> Option<Bytes> {
        // Read first: all in front of it is published.
        let written = u64::try_from(self.written().0).ok()?;
        let offset = u64::try_from(physical_offset).ok().filter(|offset| *offset < written)?;
        let file = self.parts.log.files.find(offset)?;
        let bytes = usize::try_from(file.end_offset().min(written) - offset).ok()?;
        let bytes = bytes.min(bytes_max);
        let end = physical_offset.saturating_add(bytes as i64);
        self.parts.share_written(end, || file.shared_slice(offset, bytes))
    }

    /// Takes bytes of another log that begin at `physical_offset`, which is where this one ends, or,
    /// if it never held anything, where a file begins. Whole records and blanks are appended and made
    /// visible to readers; returns how many bytes that were.
    ///
    /// # Errors
    /// [`AppendError::NotNext`] when they do not begin where this log ends, [`AppendError::Damaged`]
    /// when they are no log, or why they could not be written. What lies in front of the fault is
    /// in the log then: see [`Store::written`]. Refused unless the store
    /// [takes copies only](Store::take_copies_only).
    pub fn append_copy(&self, physical_offset: i64, bytes: &[u8]) -> Result<usize, AppendError> {
        self.parts.writability.check()?;
        let log = &self.parts.log;
        let mut appender = log.lock();
        // Whoever shuts down takes the lock after refusing appends, whoever turns the intake with it.
        self.parts.writability.check()?;
        self.intake.check_copies()?;
        log.go_on_at(&mut appender, physical_offset)?;
        let file_bytes = self.parts.config.commit_log_file_bytes;
        let start = physical_offset.unsigned_abs();
        let (whole, damage) = walk(bytes, start, file_bytes, |_| {});
        let written = log.append_copy(&mut appender, &bytes[..whole], &self.parts.writability);
        if let Err(error) = &written {
            self.parts.settle_failed_write(&appender, error);
        }
        // Files and records end together, so what was written are whole records.
        let taken = (log.written().0 - physical_offset).max(0) as usize;
        let turn = self.parts.dispatcher.turn();
        let mut arrivals = Vec::new();
        walk(&bytes[..taken.min(whole)], start, file_bytes, |record| {
            // In front of its dispatch: what is dispatched is never newer than the newest message.
            log.note_time(&mut appender, record.store_timestamp_ms);
            self.parts.dispatch_record(record, &mut arrivals);
        });
        self.parts.dispatcher.publish(&turn, log.written().0);
        drop((turn, appender));
        self.parts.tell(&arrivals);
        written?;
        match damage {
            Some(reason) => {
                let physical_offset = physical_offset + whole as i64;
                Err(AppendError::Damaged { physical_offset, reason })
            }
            None => Ok(taken),
        }
    }
}

/// Goes through whole records and blanks at the front of `bytes`, which begin at `start` of the log.
/// Returns where the last one ends, and why it does not go on there if not for want of bytes.
fn walk(
    bytes: &[u8],
    start: u64,
    file_bytes: u64,
    mut each: impl FnMut(&MessageRecord<'_>),
) -> (usize, Option<String>) {
    let mut at = 0;
    loop {
        let rest = &bytes[at..];
        let position = start + at as u64;
        let in_file = position % file_bytes;
        let left = file_bytes - in_file;
        let (Some(size), Some(magic)) = (word(rest, place::TOTAL_SIZE), word(rest, place::MAGIC))
        else {
            return (at, None);
        };
        let item_bytes = match magic {
            MAGIC_BLANK => left,
            MAGIC_V1 | MAGIC_V2 => u64::from(size),
            _ => return (at, Some(format!("{magic:#010x} is no magic of a record"))),
        };
        // A wrong length must not be waited for.
        if item_bytes < BLANK_BYTES_MIN as u64
            || item_bytes > left
            || item_bytes > COPY_ITEM_BYTES_MAX as u64
        {
            let reason = format!("{item_bytes} bytes, of which {left} are left in its file");
            return (at, Some(reason));
        }
        let item_bytes = item_bytes as usize;
        if rest.len() < item_bytes {
            return (at, None);
        }
        if magic != MAGIC_BLANK {
            match MessageRecord::decode(&rest[..item_bytes]) {
                Ok(record) if record.physical_offset.unsigned_abs() != position => {
                    let said = record.physical_offset;
                    return (at, Some(format!("record says physical offset {said}")));
                }
                Ok(record) if !record.body_matches_crc() => {
                    let reason = format!("body does not match its CRC {:#010x}", record.body_crc);
                    return (at, Some(reason));
                }
                Ok(record) => each(&record),
                Err(error) => return (at, Some(error.to_string())),
            }
        }
        at += item_bytes;
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk::<4>().map(|word| u32::from_be_bytes(*word))
}
