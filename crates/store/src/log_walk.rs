//! What counts as a message of the CommitLog, for whoever walks it: recovery and inspection.

use rocketmq_protocol::message::record::{self, LogItem, MessageRecord};

/// What a disk writes as a whole, at least.
pub(crate) const SECTOR_BYTES: usize = 512;

/// What stands at a place of the log.
#[derive(Debug)]
pub(crate) enum Step<'a> {
    /// A message.
    Record(MessageRecord<'a>),
    /// Nothing more in this file; the log goes on in the next one.
    NextFile,
    /// Nothing was ever written here.
    End,
}

/// What stands at `position` of the log, of which `bytes` are the rest of the file that begins at
/// `file_start`.
///
/// # Errors
/// Why it counts as nothing of these.
pub(crate) fn verify(
    bytes: &[u8],
    position: u64,
    file_start: u64,
    check_crc: bool,
) -> Result<Step<'_>, String> {
    // A file that ends without a blank can only be one that is filled to the last byte.
    if bytes.is_empty() {
        return Ok(Step::NextFile);
    }
    if bytes.iter().take(record::BLANK_BYTES_MIN).all(|byte| *byte == 0) {
        return Ok(Step::End);
    }
    let record = match record::decode_log_item(bytes).map_err(|error| error.to_string())? {
        LogItem::Blank => return Ok(Step::NextFile),
        LogItem::Record(record) => record,
    };
    if record.physical_offset != position as i64 {
        return Err(format!("record says physical offset {}", record.physical_offset));
    }
    if record.topic.contains('\0') {
        return Err("topic holds a zero byte, so the record is torn".to_owned());
    }
    if record.queue_offset < 0 {
        return Err(format!("record says queue offset {}", record.queue_offset));
    }
    // The CRC covers the body alone. What was lost behind it reads as zeros, whole sectors or all to
    // the last byte of the record; `append` sees to it that no sound block looks so.
    let properties_at = position - file_start + (record.size - record.properties.len()) as u64;
    if record.properties.last() == Some(&0) || lacks_sector(record.properties, properties_at) {
        return Err("properties hold zeros where they cannot, so the record is torn".to_owned());
    }
    if check_crc && !record.body_matches_crc() {
        return Err(format!("body does not match its CRC {:#010x}", record.body_crc));
    }
    Ok(Step::Record(record))
}

/// Whether a property block, which begins at byte `at` of its file, has nothing but zeros in one of
/// the sectors that it lies in.
fn lacks_sector(properties: &[u8], at: u64) -> bool {
    // A remainder of the sector's length fits.
    let in_first = SECTOR_BYTES - (at % SECTOR_BYTES as u64) as usize;
    let (first, rest) = properties.split_at(in_first.min(properties.len()));
    std::iter::once(first)
        .filter(|part| !part.is_empty())
        .chain(rest.chunks(SECTOR_BYTES))
        .any(|part| part.iter().all(|byte| *byte == 0))
}
