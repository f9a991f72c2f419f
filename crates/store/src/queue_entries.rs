//! Entries of a ConsumeQueue as they are, for people who look for what is wrong.

use crate::consume_queue::{ConsumeQueue, ExtReader, ExtUnit, Unit};
use crate::error::StoreError;

/// An entry with what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueEntry {
    /// Queue offset of its first message; in a batch queue it can have several.
    pub queue_offset: i64,
    /// The entry itself.
    pub unit: Unit,
    /// What its tags code is the address of, if it is one and something is there.
    pub ext: Option<OwnedExtUnit>,
}

/// An [`ExtUnit`] that stands for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedExtUnit {
    /// Hash of the tag, or deliver time in the schedule topic.
    pub tags_code: i64,
    /// When the message was stored, in ms since the epoch.
    pub msg_store_time_ms: i64,
    /// Bit i is bit i mod 8 of byte i / 8.
    pub filter_bit_map: Vec<u8>,
}

impl OwnedExtUnit {
    /// The unit, borrowed from here.
    pub fn borrowed(&self) -> ExtUnit<'_> {
        ExtUnit {
            tags_code: self.tags_code,
            msg_store_time_ms: self.msg_store_time_ms,
            filter_bit_map: &self.filter_bit_map,
        }
    }
}

impl From<ExtUnit<'_>> for OwnedExtUnit {
    fn from(unit: ExtUnit<'_>) -> Self {
        Self {
            tags_code: unit.tags_code,
            msg_store_time_ms: unit.msg_store_time_ms,
            filter_bit_map: unit.filter_bit_map.to_vec(),
        }
    }
}

/// Reads at most `count_max` entries of one file from `from` on; none outside of the queue, nor of
/// records that end behind `visible_end`.
///
/// # Errors
/// What the operating system says.
pub(crate) fn queue_entries(
    queue: &ConsumeQueue,
    visible_end: i64,
    from: i64,
    count_max: usize,
) -> Result<Vec<QueueEntry>, StoreError> {
    let mut entries = Vec::new();
    if from < queue.min_offset() || count_max == 0 {
        return Ok(entries);
    }
    let mut bytes = Vec::new();
    let mut reader = ExtReader::default();
    let first_index = queue.read(from, count_max, &mut bytes)?;
    for entry in queue.format().entries(&bytes, first_index) {
        let unit = entry.unit;
        if unit.end_offset() > visible_end {
            break;
        }
        let ext = match queue.ext() {
            Some(ext) => reader.unit(ext, unit.tags_code)?.map(OwnedExtUnit::from),
            None => None,
        };
        entries.push(QueueEntry { queue_offset: entry.queue_offset, unit, ext });
    }
    Ok(entries)
}
