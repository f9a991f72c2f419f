//! Small files that are replaced as a whole: `config/*.json` and their like.
//!
//! One way of writing: the new text goes to `<name>.tmp` and is synced, the old file becomes
//! `<name>.bak`, the new one takes its place, the directory is synced. After a crash at any point
//! either the file or its `.bak` is whole. RocketMQ's `ConfigManager` reads the same two names.

use std::io;
use std::path::{Path, PathBuf};

use crate::directory::make_directory;
use crate::error::StoreError;
use crate::file_system::{FileSystem, OpenMode};

/// Largest file that is read into memory.
const BYTES_MAX: u64 = 1 << 30;

/// Replaces the contents of `path`, keeping the previous ones as `<path>.bak`.
///
/// The directory is made if it is missing.
///
/// # Errors
/// When any step fails; then the old contents are still there under one of the two names.
pub fn write_small_file(
    file_system: &dyn FileSystem,
    path: &Path,
    bytes: &[u8],
) -> Result<(), StoreError> {
    let directory = path.parent().unwrap_or(Path::new("."));
    make_directory(file_system, directory)?;
    let temporary = sibling(path, ".tmp");
    let file = file_system
        .open(&temporary, OpenMode::Empty)
        .map_err(StoreError::io("create", &temporary))?;
    file.write_at(bytes, 0).map_err(StoreError::io("write", &temporary))?;
    file.sync_data().map_err(StoreError::io("sync", &temporary))?;
    drop(file);
    match file_system.rename(path, &sibling(path, ".bak")) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(StoreError::io("rename", path)(error)),
    }
    file_system.rename(&temporary, path).map_err(StoreError::io("rename", &temporary))?;
    file_system.sync_directory(directory).map_err(StoreError::io("sync directory", directory))
}

/// What a small file held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmallFile<T> {
    /// What was read.
    pub value: T,
    /// Why the file itself could not be used, when `value` comes from its `.bak`.
    pub fallback: Option<String>,
}

/// Reads `path`, or its `.bak` when the file is missing, empty or not understood by `parse`.
///
/// `None` when neither of the two exists or both are empty.
///
/// # Errors
/// When a file cannot be read, or exists but neither it nor its `.bak` is understood: the caller
/// must not take that for an empty table.
pub fn read_small_file<T>(
    file_system: &dyn FileSystem,
    path: &Path,
    parse: impl Fn(&[u8]) -> Result<T, String>,
) -> Result<Option<SmallFile<T>>, StoreError> {
    let backup = sibling(path, ".bak");
    let read = |path: &Path| -> Result<Result<Option<T>, String>, StoreError> {
        match read_whole(file_system, path) {
            Ok(bytes) if bytes.is_empty() => Ok(Ok(None)),
            Ok(bytes) => Ok(parse(&bytes).map(Some)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Ok(None)),
            // Not a word about what it holds: an older file must not take its place.
            Err(error) => Err(StoreError::io("read", path)(error)),
        }
    };
    let reason = match read(path)? {
        Ok(Some(value)) => return Ok(Some(SmallFile { value, fallback: None })),
        Ok(None) => None,
        Err(reason) => Some(reason),
    };
    match (read(&backup)?, reason) {
        (Ok(Some(value)), reason) => {
            let fallback = reason.unwrap_or_else(|| "missing or empty".to_owned());
            Ok(Some(SmallFile { value, fallback: Some(fallback) }))
        }
        (Ok(None), None) => Ok(None),
        (Ok(None) | Err(_), Some(reason)) => {
            Err(StoreError::io("read", path)(io::Error::new(io::ErrorKind::InvalidData, reason)))
        }
        (Err(reason), None) => {
            Err(StoreError::io("read", &backup)(io::Error::new(io::ErrorKind::InvalidData, reason)))
        }
    }
}

/// Reads a whole file of at most 1 GiB.
///
/// # Errors
/// What the operating system says; also when it is no regular file, or larger.
pub fn read_whole(file_system: &dyn FileSystem, path: &Path) -> io::Result<Vec<u8>> {
    let file = file_system.open(path, OpenMode::ReadOnly)?;
    let len = file.len_bytes()?;
    if len > BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("file has {len} bytes, at most {BYTES_MAX} are read"),
        ));
    }
    let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_system::RealFileSystem;

    fn text(bytes: &[u8]) -> Result<String, String> {
        match std::str::from_utf8(bytes) {
            Ok(text) if text.ends_with('}') => Ok(text.to_owned()),
            _ => Err("not closed".to_owned()),
        }
    }

    #[test]
    fn the_previous_contents_stay_as_bak() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config/topics.json");
        assert_eq!(read_small_file(&RealFileSystem, &path, text).unwrap(), None);
        write_small_file(&RealFileSystem, &path, b"{1}").unwrap();
        write_small_file(&RealFileSystem, &path, b"{2}").unwrap();
        let read = read_small_file(&RealFileSystem, &path, text).unwrap().unwrap();
        assert_eq!(read, SmallFile { value: "{2}".to_owned(), fallback: None });
        assert_eq!(std::fs::read(sibling(&path, ".bak")).unwrap(), b"{1}");
        assert!(!sibling(&path, ".tmp").exists());
    }

    #[test]
    fn a_damaged_missing_or_empty_file_falls_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("topics.json");
        write_small_file(&RealFileSystem, &path, b"{1}").unwrap();
        write_small_file(&RealFileSystem, &path, b"{2}").unwrap();
        for damaged in [&b"{2"[..], b""] {
            std::fs::write(&path, damaged).unwrap();
            let read = read_small_file(&RealFileSystem, &path, text).unwrap().unwrap();
            assert_eq!(read.value, "{1}");
            assert!(read.fallback.is_some());
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read_small_file(&RealFileSystem, &path, text).unwrap().unwrap().value, "{1}");
    }

    #[test]
    fn a_pipe_in_a_files_place_is_an_error_and_does_not_hang() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("topics.json");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let error = read_small_file(&RealFileSystem, &path, text).unwrap_err().to_string();
        assert!(error.contains("topics.json") && error.contains("pipe"), "{error}");
    }

    #[test]
    fn damage_is_never_taken_for_empty() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("topics.json");
        std::fs::write(&path, b"{").unwrap();
        let error = read_small_file(&RealFileSystem, &path, text).unwrap_err().to_string();
        assert!(error.contains("topics.json") && error.contains("not closed"), "{error}");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(sibling(&path, ".bak"), b"{").unwrap();
        assert!(read_small_file(&RealFileSystem, &path, text).is_err());
    }
}
