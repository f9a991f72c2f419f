//! The bytes between a master and its slaves (`DefaultHAConnection`, `DefaultHAClient`).
//!
//! A slave sends the offset behind the last byte that it has: 8 bytes, first to say where to begin,
//! then after each piece and as a sign of life. A master sends frames: the offset of a piece (8 bytes),
//! its length (4), and the piece; one of length 0 is a sign of life.

/// Bytes of a slave's report.
pub(super) const REPORT_BYTES: usize = 8;
/// Bytes in front of a piece of the log.
pub(super) const HEADER_BYTES: usize = 12;
/// Longest piece that is taken from a master. Java's sends 32 KiB, and its slaves take 4 MiB.
pub(super) const PIECE_BYTES_MAX: usize = 32 << 20;

/// What stands in front of a piece of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Where the piece begins.
    pub(super) physical_offset: i64,
    /// Its length.
    pub(super) bytes: usize,
}

impl Header {
    pub(super) fn encode(self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..8].copy_from_slice(&self.physical_offset.to_be_bytes());
        // A piece is bounded by a 31-bit setting.
        out[8..].copy_from_slice(&(self.bytes as u32).to_be_bytes());
        out
    }

    /// Reads a header; none if there are too few bytes.
    ///
    /// # Errors
    /// When it says an impossible offset or length.
    pub(super) fn decode(bytes: &[u8]) -> Result<Option<Header>, String> {
        let Some((head, rest)) = bytes.split_first_chunk::<8>() else { return Ok(None) };
        let Some(length) = rest.first_chunk::<4>() else { return Ok(None) };
        let (physical_offset, length) = (i64::from_be_bytes(*head), i32::from_be_bytes(*length));
        let bytes = usize::try_from(length).ok().filter(|bytes| *bytes <= PIECE_BYTES_MAX);
        match bytes {
            Some(bytes) if physical_offset >= 0 => Ok(Some(Header { physical_offset, bytes })),
            _ => Err(format!(
                "a frame of {length} bytes from {physical_offset} on, allowed are 0 to \
                 {PIECE_BYTES_MAX}"
            )),
        }
    }
}

/// The newest whole report among the bytes that a slave sent, which are cut behind it.
pub(super) fn newest_report(bytes: &mut Vec<u8>) -> Option<i64> {
    let (reports, _) = bytes.as_chunks::<REPORT_BYTES>();
    let newest = reports.last().map(|report| i64::from_be_bytes(*report));
    let whole = reports.len() * REPORT_BYTES;
    bytes.drain(..whole);
    newest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_are_those_of_java() {
        let header = Header { physical_offset: 0x0102, bytes: 3 };
        assert_eq!(header.encode(), [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3]);
        assert_eq!(Header::decode(&header.encode()[..11]), Ok(None));
        for bad in [[0xFF; 12], [0, 0, 0, 0, 0, 0, 0, 0, 0x7F, 0, 0, 0]] {
            assert!(Header::decode(&bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn of_several_reports_the_newest_counts_and_half_ones_wait() {
        let mut bytes = [7_i64.to_be_bytes(), 9_i64.to_be_bytes()].concat();
        bytes.extend_from_slice(&[0, 0, 0]);
        assert_eq!(newest_report(&mut bytes), Some(9));
        assert_eq!(bytes, [0, 0, 0]);
        assert_eq!(newest_report(&mut bytes), None);
        bytes.extend_from_slice(&[0, 0, 0, 0, 5]);
        assert_eq!(newest_report(&mut bytes), Some(5));
        assert!(bytes.is_empty());
    }

    proptest! {
        #[test]
        fn identity(physical_offset in 0..i64::MAX, bytes in 0..=PIECE_BYTES_MAX) {
            let header = Header { physical_offset, bytes };
            prop_assert_eq!(Header::decode(&header.encode()), Ok(Some(header)));
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = Header::decode(&bytes);
            let _ = newest_report(&mut bytes);
            prop_assert!(bytes.len() < REPORT_BYTES);
        }
    }
}
