//! Noticing that a file of the log was changed from outside: truncated, removed or renamed.
//!
//! Looked for from time to time, so that appends are refused, with the file's name, before a reader
//! meets a page that is gone (see `mapping::fault`) or a write grows a truncated file with a hole
//! where messages were. What a restart makes of it is recovery's business.

use crate::commit_log::CommitLog;
use crate::error::{Refusal, StoreError};
use crate::file_system::FileSystem;
use crate::mapped_file_queue::MappedFile;

/// Which files are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// The newest one, by its length: one call.
    Newest,
    /// Every one, by length and name.
    All,
}

/// The first file that is not as the store made it.
///
/// # Errors
/// When a file cannot be asked.
pub(crate) fn changed_file(
    file_system: &dyn FileSystem,
    log: &CommitLog,
    look: Look,
) -> Result<Option<Refusal>, StoreError> {
    let files = log.files.snapshot();
    let first = match look {
        Look::Newest => files.len().saturating_sub(1),
        Look::All => 0,
    };
    for file in &files[first..] {
        let bytes = file.file().len_bytes().map_err(StoreError::io("measure", file.path()))?;
        let expected = file.end_offset() - file.base_offset();
        if bytes != expected {
            let found = format!("has {bytes} bytes, {expected} are expected");
            return Ok(Some(changed(file, found)));
        }
        if look == Look::All && is_gone(file_system, log, file)? {
            return Ok(Some(changed(file, "was removed or renamed".to_owned())));
        }
    }
    Ok(None)
}

fn changed(file: &MappedFile, found: String) -> Refusal {
    Refusal::FileChanged { path: file.path().to_owned(), found }
}

/// Whether nothing has the file's name any more, though the store did not remove it: its own
/// removals take a file out of the log first.
fn is_gone(
    file_system: &dyn FileSystem,
    log: &CommitLog,
    file: &MappedFile,
) -> Result<bool, StoreError> {
    let path = file.path();
    let exists = file_system.exists(path).map_err(StoreError::io("look for", path))?;
    Ok(!exists && log.files.find(file.base_offset()).is_some())
}
