//! The whole state on disk, from which a start begins; the log holds only what came after.
//!
//! ```text
//! 8 bytes   RMQCTLS1
//! u32       CRC-32 of all that follows, big-endian
//! u32       length of the meta data
//! meta data (JSON): the last log id and the membership in it, as openraft has them
//! groups    (JSON)
//! ```

use std::fs;
use std::io;
use std::path::Path;

use crate::groups::Groups;
use crate::journal::{StoreError, io_error, replace_file};
use crate::raft::SnapshotMeta;

const MAGIC: &[u8; 8] = b"RMQCTLS1";

/// A state and the place in the log that it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) meta: SnapshotMeta,
    /// JSON of [`Groups`]: what is sent to a controller that lacks too much of the log.
    pub(crate) data: Vec<u8>,
}

/// Reads the groups out of a snapshot's data.
pub(crate) fn parse_groups(data: &[u8]) -> Result<Groups, serde_json::Error> {
    serde_json::from_slice(data)
}

/// Replaces the file.
pub(crate) fn write(path: &Path, kept: &Kept) -> Result<(), StoreError> {
    let failed = |error: serde_json::Error| io_error("encode", path)(io::Error::other(error));
    let meta = serde_json::to_vec(&kept.meta).map_err(failed)?;
    let meta_bytes = u32::try_from(meta.len())
        .map_err(|_| io_error("encode", path)(io::Error::other("more than 4 GiB")))?;
    let mut content = meta_bytes.to_be_bytes().to_vec();
    content.extend_from_slice(&meta);
    content.extend_from_slice(&kept.data);
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&crc32fast::hash(&content).to_be_bytes());
    bytes.append(&mut content);
    replace_file(path, &bytes)
}

/// Reads the file; `None` if there is none.
pub(crate) fn read(path: &Path) -> Result<Option<(Kept, Groups)>, StoreError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_error("read", path)(error)),
    };
    parse(&bytes).map(Some).map_err(|(at, reason)| StoreError::Damaged {
        path: path.to_owned(),
        at,
        reason,
    })
}

fn parse(bytes: &[u8]) -> Result<(Kept, Groups), (u64, String)> {
    let short = |at: u64| (at, "it ends there".to_owned());
    let content = bytes
        .strip_prefix(MAGIC.as_slice())
        .ok_or_else(|| (0, "it does not begin with RMQCTLS1".to_owned()))?;
    let (crc, content) = content.split_first_chunk::<4>().ok_or_else(|| short(8))?;
    if crc32fast::hash(content) != u32::from_be_bytes(*crc) {
        return Err((8, "the content does not match its checksum".to_owned()));
    }
    let (length, rest) = content.split_first_chunk::<4>().ok_or_else(|| short(12))?;
    let length = u32::from_be_bytes(*length) as usize;
    let (meta, data) = rest.split_at_checked(length).ok_or_else(|| short(16))?;
    let meta = serde_json::from_slice(meta).map_err(|error| (16, error.to_string()))?;
    let groups = parse_groups(data).map_err(|error| (16 + length as u64, error.to_string()))?;
    Ok((Kept { meta, data: data.to_vec() }, groups))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::Command;

    #[test]
    fn a_snapshot_is_read_as_it_was_written_and_damage_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("snapshot");
        assert!(read(&path).unwrap().is_none());
        let mut groups = Groups::default();
        groups.apply(&Command::ApplyBrokerId {
            cluster: "c".to_owned(),
            broker_name: "b".to_owned(),
            broker_id: 1,
            register_check_code: "h:1;x".to_owned(),
        });
        let kept = Kept {
            meta: SnapshotMeta { snapshot_id: "1".to_owned(), ..SnapshotMeta::default() },
            data: serde_json::to_vec(&groups).unwrap(),
        };
        write(&path, &kept).unwrap();
        assert_eq!(read(&path).unwrap(), Some((kept, groups)));
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x40;
            fs::write(&path, &damaged).unwrap();
            assert!(read(&path).unwrap_err().to_string().contains("snapshot is damaged"), "{at}");
            fs::write(&path, &whole[..at]).unwrap();
            assert!(read(&path).is_err(), "{at}");
        }
    }
}
