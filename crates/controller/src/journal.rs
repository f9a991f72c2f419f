//! An append-only file of records, each of them on disk before the call returns. What the records mean
//! is the caller's.
//!
//! ```text
//! 8 bytes   RMQCTLJ1
//! each record:
//!   u32     length of the payload, big-endian, at least 2
//!   u32     CRC-32 of the payload
//!   payload
//! ```
//!
//! One record is one write and one sync, so only the last one can be torn by a crash: what does not add up
//! at the end of the file is cut off, as long as no whole record stands behind it. If one does, the file
//! was damaged later, and is refused. The file is begun, and made shorter, by replacing it as a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"RMQCTLJ1";
const RECORD_HEAD_BYTES: usize = 8;
/// Bytes of one record's payload.
const PAYLOAD_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Why the controller's files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The operating system refused.
    #[error("cannot {action} {}: {error}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The file is not what this program wrote.
    #[error(
        "{} is damaged at byte {at}: {reason}; while all other controllers are up, \
         controllerStorePath may be emptied, and this one catches up",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        at: u64,
        /// What is wrong.
        reason: String,
    },
    /// The directory belongs to another controller, or to another group of them.
    #[error("controllerStorePath {} {reason}", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Whose it is, and what to do.
        reason: String,
    },
}

pub(crate) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    move |error| StoreError::Io { action, path: path.to_owned(), error }
}

/// The open file.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// A write or sync failed: what the disk holds is not known, so nothing more is written.
    failed: bool,
}

/// What [`Journal::open`] found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// All whole records, in order: at which byte they begin, and their payload.
    pub records: Vec<(u64, Vec<u8>)>,
    /// Bytes of a torn record that were cut off.
    pub cut_bytes: u64,
}

impl Journal {
    /// Opens the file, or begins it, and reads all of it.
    ///
    /// # Errors
    /// The system's, or the place where the file is damaged.
    pub fn open(path: &Path) -> Result<(Self, Found), StoreError> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                replace_file(path, MAGIC)?;
                MAGIC.to_vec()
            }
            Err(error) => return Err(io_error("read", path)(error)),
        };
        let damaged = |at: usize, reason: &str| StoreError::Damaged {
            path: path.to_owned(),
            at: at as u64,
            reason: reason.to_owned(),
        };
        if !bytes.starts_with(MAGIC) {
            return Err(damaged(0, "it does not begin with RMQCTLJ1"));
        }
        let mut found = Found::default();
        let mut at = MAGIC.len();
        while let Some(payload) = record_at(&bytes, at) {
            found.records.push((at as u64, payload.to_vec()));
            at += RECORD_HEAD_BYTES + payload.len();
        }
        if (at + 1..bytes.len()).any(|later| record_at(&bytes, later).is_some()) {
            return Err(damaged(at, "a record does not match its checksum, later ones do"));
        }
        found.cut_bytes = (bytes.len() - at) as u64;
        let file = OpenOptions::new().write(true).open(path).map_err(io_error("open", path))?;
        let mut journal = Self { path: path.to_owned(), file, failed: false };
        if found.cut_bytes > 0 {
            let cut = journal.file.set_len(at as u64).and_then(|()| journal.file.sync_all());
            cut.map_err(io_error("cut the torn end of", path))?;
        }
        journal.file.seek(SeekFrom::End(0)).map_err(io_error("open", path))?;
        Ok((journal, found))
    }

    /// Adds a record; it is on disk when this returns.
    ///
    /// # Errors
    /// The system's. From then on every call fails: the file has to be opened anew.
    pub fn append(&mut self, payload: &[u8]) -> Result<(), StoreError> {
        self.check()?;
        let record = record(payload);
        let written = self.file.write_all(&record).and_then(|()| self.file.sync_data());
        self.failed = written.is_err();
        written.map_err(io_error("write", &self.path))
    }

    /// Replaces the file by one that has these records alone.
    ///
    /// # Errors
    /// The system's; as with [`Journal::append`].
    pub fn replace<'a>(
        &mut self,
        payloads: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(), StoreError> {
        self.check()?;
        let mut bytes = MAGIC.to_vec();
        for payload in payloads {
            bytes.extend_from_slice(&record(payload));
        }
        self.failed = true;
        replace_file(&self.path, &bytes)?;
        let path = &self.path;
        let mut file = OpenOptions::new().write(true).open(path).map_err(io_error("open", path))?;
        file.seek(SeekFrom::End(0)).map_err(io_error("open", path))?;
        self.file = file;
        self.failed = false;
        Ok(())
    }

    fn check(&self) -> Result<(), StoreError> {
        if self.failed {
            let error = io::Error::other("an earlier write failed; restart to read it again");
            return Err(io_error("write", &self.path)(error));
        }
        Ok(())
    }
}

fn record(payload: &[u8]) -> Vec<u8> {
    // Callers write entries of at most some megabytes; a larger one would be refused at the next start.
    debug_assert!((2..=PAYLOAD_BYTES_MAX).contains(&payload.len()));
    let mut record = Vec::with_capacity(RECORD_HEAD_BYTES + payload.len());
    record.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    record.extend_from_slice(&crc32fast::hash(payload).to_be_bytes());
    record.extend_from_slice(payload);
    record
}

/// The payload of the whole record that begins at a byte.
fn record_at(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let rest = bytes.get(at..)?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (crc, rest) = rest.split_first_chunk::<4>()?;
    let length = u32::from_be_bytes(*length) as usize;
    if !(2..=PAYLOAD_BYTES_MAX).contains(&length) {
        return None;
    }
    let payload = rest.get(..length)?;
    (crc32fast::hash(payload) == u32::from_be_bytes(*crc)).then_some(payload)
}

/// Replaces a file: at any moment the old or the new content is there, after `Ok` the new one, whatever
/// happens to the power. Without a `.bak`: an older state of these files must never be taken for the
/// newest.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let temporary = path.with_extension("tmp");
    let mut file = File::create(&temporary).map_err(io_error("create", &temporary))?;
    file.write_all(bytes).map_err(io_error("write", &temporary))?;
    file.sync_all().map_err(io_error("sync", &temporary))?;
    drop(file);
    fs::rename(&temporary, path).map_err(io_error("replace", path))?;
    let dir = path.parent().unwrap_or(Path::new("."));
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io_error("sync directory", dir))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn open(path: &Path) -> (Journal, Found) {
        Journal::open(path).unwrap()
    }

    fn payloads(found: Found) -> Vec<Vec<u8>> {
        found.records.into_iter().map(|(_, payload)| payload).collect()
    }

    fn written(payloads: &[&[u8]]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let (mut journal, found) = open(&path);
        assert_eq!(found, Found::default());
        for payload in payloads {
            journal.append(payload).unwrap();
        }
        (dir, path)
    }

    #[test]
    fn records_are_there_again_and_go_on_behind_the_last() {
        let (_dir, path) = written(&[b"one", b"two"]);
        let (mut journal, found) = open(&path);
        assert_eq!(payloads(found), [b"one", b"two"]);
        journal.append(b"three").unwrap();
        assert_eq!(open(&path).1.records.len(), 3);
        journal.replace([b"only".as_slice()]).unwrap();
        journal.append(b"next").unwrap();
        assert_eq!(payloads(open(&path).1), [b"only", b"next"]);
        assert!(!path.with_extension("tmp").exists());
    }

    #[test]
    fn a_torn_end_is_cut_wherever_the_write_stopped() {
        let (_dir, path) = written(&[b"first record", b"second record"]);
        let whole = fs::read(&path).unwrap();
        let second = whole.len() - 8 - b"second record".len();
        for len in second..whole.len() {
            for zeros in [0, 4096] {
                let mut torn = whole[..len].to_vec();
                torn.resize(len + zeros, 0);
                fs::write(&path, &torn).unwrap();
                let (mut journal, found) = open(&path);
                assert_eq!(found.cut_bytes as usize, len - second + zeros);
                assert_eq!(payloads(found), [b"first record"], "{len}");
                journal.append(b"after").unwrap();
                assert_eq!(payloads(open(&path).1), [b"first record".as_slice(), b"after"]);
            }
        }
    }

    #[test]
    fn damage_in_front_of_whole_records_is_refused_with_its_place() {
        let (_dir, path) = written(&[b"first record", b"second record", b"third record"]);
        let whole = fs::read(&path).unwrap();
        let third = whole.len() - 8 - b"third record".len();
        for at in 8..third {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            fs::write(&path, &damaged).unwrap();
            let text = Journal::open(&path).unwrap_err().to_string();
            assert!(text.contains("journal is damaged at byte"), "{at}: {text}");
        }
        fs::write(&path, b"RMQ").unwrap();
        assert!(Journal::open(&path).unwrap_err().to_string().contains("RMQCTLJ1"));
    }

    #[test]
    fn after_a_failed_write_nothing_is_written_any_more() {
        let (_dir, path) = written(&[b"one"]);
        let (mut journal, _) = open(&path);
        // A handle that cannot be written to stands for a disk that cannot.
        journal.file = File::open(&path).unwrap();
        assert!(journal.append(b"two").is_err());
        journal.file = OpenOptions::new().append(true).open(&path).unwrap();
        let text = journal.append(b"three").unwrap_err().to_string();
        assert!(text.contains("earlier write failed"), "{text}");
        assert_eq!(payloads(open(&path).1), [b"one"]);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(tail in proptest::collection::vec(any::<u8>(), 0..300)) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("journal");
            let bytes = [MAGIC.as_slice(), &tail].concat();
            fs::write(&path, bytes).unwrap();
            let _ = Journal::open(&path);
        }
    }
}
