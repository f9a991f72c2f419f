//! Records as pulls bring them, read by the format alone (IPv4 hosts, V1 magic).

use anyhow::{Context, Result, ensure};

/// Magic word of a V1 record.
pub const MAGIC: u32 = 0xdaa3_20a7;
/// Where the length of the body stands.
const BODY: usize = 84;

/// One message of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Place in its queue.
    pub queue_offset: i64,
    /// Place in the log.
    pub physical_offset: i64,
    /// Body.
    pub body: Vec<u8>,
    /// Property block.
    pub properties: String,
}

/// All records of `bytes`, back to back.
pub fn records(mut bytes: &[u8]) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let size = word(bytes, 0)? as usize;
        ensure!(word(bytes, 4)? == MAGIC, "magic {:#x}", word(bytes, 4)?);
        let body_end = BODY + 4 + word(bytes, BODY)? as usize;
        let body = bytes.get(BODY + 4..body_end).context("a body is cut short")?;
        let topic_bytes = *bytes.get(body_end).context("no topic")? as usize;
        let properties =
            bytes.get(body_end + 1 + topic_bytes + 2..size).context("no properties")?;
        records.push(Record {
            queue_offset: long(bytes, 20)?,
            physical_offset: long(bytes, 28)?,
            body: body.to_vec(),
            properties: String::from_utf8_lossy(properties).into_owned(),
        });
        bytes = &bytes[size..];
    }
    Ok(records)
}

/// The big-endian word at `at`.
pub fn word(bytes: &[u8], at: usize) -> Result<u32> {
    let word = bytes.get(at..).and_then(<[u8]>::first_chunk).context("a record is cut short")?;
    Ok(u32::from_be_bytes(*word))
}

fn long(bytes: &[u8], at: usize) -> Result<i64> {
    let long = bytes.get(at..).and_then(<[u8]>::first_chunk).context("a record is cut short")?;
    Ok(i64::from_be_bytes(*long))
}
