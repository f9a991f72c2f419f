//! Small files that must survive a crash while they are written: kvConfig.json and namesrv.conf.
//!
//! A write goes to a temporary file, is synced, and replaces the old file by rename; the old one
//! stays as `.bak` and is read when the first is missing or damaged. Knows nothing of what the
//! bytes mean.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Why a small file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The operating system refused.
    #[error(
        "cannot {action} {}: {error}; check that the directory exists and is writable",
        path.display()
    )]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Neither the file nor its `.bak` can be understood.
    #[error(
        "{} is damaged and no usable .bak stands beside it: {reason}; repair it, or remove it to \
         start empty",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        reason: String,
    },
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    move |error| FileError::Io { action, path: path.to_owned(), error }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// Replaces a file's content. After `Ok` the new content survives a power cut; at any moment
/// before, the old does.
///
/// # Errors
/// The step that failed. The old content is then still there, as the file or as its `.bak`.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    fs::create_dir_all(dir).map_err(io_error("create directory", dir))?;
    let temporary = with_suffix(path, ".tmp");
    let mut file = File::create(&temporary).map_err(io_error("create", &temporary))?;
    file.write_all(bytes).map_err(io_error("write", &temporary))?;
    file.sync_all().map_err(io_error("sync", &temporary))?;
    drop(file);
    match fs::rename(path, with_suffix(path, ".bak")) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(io_error("keep a .bak of", path)(error)),
    }
    fs::rename(&temporary, path).map_err(io_error("replace", path))?;
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io_error("sync directory", dir))
}

/// Reads and parses a file, or its `.bak` when the file is missing or does not parse. `None`:
/// neither exists.
///
/// # Errors
/// The system's, or `Damaged` when something is there and nothing of it parses: starting empty
/// would then lose it at the next write.
pub fn read<T>(
    path: &Path,
    parse: impl Fn(&[u8]) -> Result<T, String>,
) -> Result<Option<T>, FileError> {
    let main = read_if_exists(path)?;
    let reason = match main.as_deref().map(&parse) {
        Some(Ok(value)) => return Ok(Some(value)),
        Some(Err(reason)) => Some(reason),
        None => None,
    };
    let backup = with_suffix(path, ".bak");
    let from_backup = read_if_exists(&backup)?.as_deref().map(&parse);
    match (from_backup, reason) {
        (Some(Ok(value)), reason) => {
            tracing::warn!(
                file = %path.display(),
                reason,
                "file is missing or damaged, read its .bak"
            );
            Ok(Some(value))
        }
        (None, None) => Ok(None),
        (Some(Err(reason)), None) | (_, Some(reason)) => {
            Err(FileError::Damaged { path: path.to_owned(), reason })
        }
    }
}

fn read_if_exists(path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error("read", path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(bytes: &[u8]) -> Result<u32, String> {
        std::str::from_utf8(bytes)
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| "not a number".to_owned())
    }

    #[test]
    fn a_write_replaces_and_keeps_the_previous_as_bak() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sub/dir/n");
        assert_eq!(read(&path, number).unwrap(), None);
        write(&path, b"1").unwrap();
        write(&path, b"2").unwrap();
        assert_eq!(read(&path, number).unwrap(), Some(2));
        assert_eq!(fs::read(with_suffix(&path, ".bak")).unwrap(), b"1");
        assert!(!with_suffix(&path, ".tmp").exists());
    }

    #[test]
    fn a_damaged_or_missing_file_falls_back_to_its_bak() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("n");
        write(&path, b"1").unwrap();
        write(&path, b"2").unwrap();
        fs::write(&path, b"tor").unwrap();
        assert_eq!(read(&path, number).unwrap(), Some(1));
        fs::remove_file(&path).unwrap();
        assert_eq!(read(&path, number).unwrap(), Some(1), "as after a crash between the renames");
    }

    #[test]
    fn damage_without_a_bak_is_an_error_and_not_an_empty_start() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("n");
        fs::write(&path, b"tor").unwrap();
        let text = read(&path, number).unwrap_err().to_string();
        assert!(text.contains("/n is damaged") && text.contains("not a number"), "{text}");
        fs::write(with_suffix(&path, ".bak"), b"also").unwrap();
        assert!(matches!(read(&path, number), Err(FileError::Damaged { .. })));
    }

    #[test]
    fn an_unwritable_place_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), b"").unwrap();
        let path = dir.path().join("file/below");
        let text = write(&path, b"1").unwrap_err().to_string();
        assert!(text.contains("create directory") && text.contains("/file"), "{text}");
    }
}
