//! The 20 bytes that say where a message lies.

/// Bytes of an entry.
pub const UNIT_BYTES: usize = 20;
/// Where the parts of an entry lie.
pub mod place {
    #![allow(missing_docs, reason = "the names are those of the fields")]

    pub const PHYSICAL_OFFSET: usize = 0;
    pub const SIZE: usize = 8;
    pub const TAGS_CODE: usize = 12;
}
/// Size in an entry that stands for no record: it fills the front of a first file.
pub const FILLER_SIZE: i32 = i32::MAX;
/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Where the record begins in the CommitLog.
    pub physical_offset: i64,
    /// Bytes of the record.
    pub size: i32,
    /// Hash of the tag, or deliver time in the schedule topic.
    pub tags_code: i64,
}

impl Unit {
    /// The entry that fills a gap.
    pub const FILLER: Unit = Unit { physical_offset: 0, size: FILLER_SIZE, tags_code: 0 };
    /// What a file holds where nothing was written.
    pub const UNWRITTEN: Unit = Unit { physical_offset: 0, size: 0, tags_code: 0 };

    /// Reads an entry.
    pub fn decode(bytes: &[u8; UNIT_BYTES]) -> Unit {
        let [p0, p1, p2, p3, p4, p5, p6, p7, s0, s1, s2, s3, t0, t1, t2, t3, t4, t5, t6, t7] =
            *bytes;
        Unit {
            physical_offset: i64::from_be_bytes([p0, p1, p2, p3, p4, p5, p6, p7]),
            size: i32::from_be_bytes([s0, s1, s2, s3]),
            tags_code: i64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]),
        }
    }

    /// The entry's bytes.
    pub fn encode(&self) -> [u8; UNIT_BYTES] {
        let mut bytes = [0; UNIT_BYTES];
        bytes[place::PHYSICAL_OFFSET..8].copy_from_slice(&self.physical_offset.to_be_bytes());
        bytes[place::SIZE..12].copy_from_slice(&self.size.to_be_bytes());
        bytes[place::TAGS_CODE..].copy_from_slice(&self.tags_code.to_be_bytes());
        bytes
    }

    /// Whether it fills a gap.
    pub fn is_filler(&self) -> bool {
        self.physical_offset == 0 && self.size == FILLER_SIZE
    }

    /// Whether it can have been written by a broker; zeros cannot.
    pub fn is_written(&self) -> bool {
        self.physical_offset >= 0 && self.size > 0
    }

    /// Where its record ends; a filler has none.
    pub fn end_offset(&self) -> i64 {
        if self.is_filler() { 0 } else { self.physical_offset.saturating_add(i64::from(self.size)) }
    }
}
