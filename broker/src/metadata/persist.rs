//! Loading and saving of the `config/*.json` files and their like: the rules for damaged ones live here, the
//! safe write itself (temporary file, sync, rename, `.bak`) is the store's.
//!
//! A file that cannot be parsed is never replaced by an empty table: the previous version is
//! taken, and if that is damaged too the broker does not start.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rocketmq_protocol::fastjson;
use rocketmq_store::{RealFileSystem, small_file};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::warn;

/// Why a metadata file could not be loaded or saved.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// Neither the file nor its previous version can be parsed.
    #[error(
        "metadata file {path} is damaged ({detail}) and {path}.bak cannot replace it ({backup}); \
         restore one of them from a copy, or delete both to start with an empty table"
    )]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong with it.
        detail: String,
        /// What is wrong with the `.bak` file.
        backup: String,
    },
    /// The file system refused.
    #[error("cannot {action} metadata file {path}: {source}")]
    Io {
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: String,
        /// The system's answer.
        source: io::Error,
    },
}

/// Reads the file, or its `.bak` if it is missing, empty or damaged; `None` if neither exists.
///
/// A damaged file is moved to `<name>.damaged`, so that the next write does not turn it into the
/// `.bak` and thereby lose the good version.
///
/// # Errors
/// When something is there but nothing can be used, or it cannot be read.
pub fn load<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, MetadataError> {
    let parse = |bytes: &[u8]| fastjson::from_slice(bytes).map_err(|error| error.to_string());
    let current = read(path)?;
    let detail = match current {
        Some(bytes) if bytes.is_empty() => "it is empty".to_owned(),
        Some(bytes) => match parse(&bytes) {
            Ok(value) => return Ok(Some(value)),
            Err(error) => error,
        },
        None => String::new(),
    };
    let missing = detail.is_empty();
    let backup_path = with_suffix(path, ".bak");
    let backup = match read(&backup_path)? {
        None if missing => return Ok(None),
        None => "it does not exist".to_owned(),
        Some(bytes) if bytes.is_empty() => "it is empty".to_owned(),
        Some(bytes) => match parse(&bytes) {
            Ok(value) => {
                warn!(
                    file = %path.display(),
                    reason = if missing { "missing" } else { detail.as_str() },
                    "metadata file replaced by its previous version"
                );
                if !missing {
                    let kept = with_suffix(path, ".damaged");
                    fs::rename(path, &kept).map_err(|source| io_error("write", path, source))?;
                }
                return Ok(Some(value));
            }
            Err(error) => error,
        },
    };
    let detail = if missing { "it is missing".to_owned() } else { detail };
    Err(MetadataError::Damaged { path: path.display().to_string(), detail, backup })
}

/// Reads a file, that is no JSON, whose previous version must not stand in for a damaged one. Where a
/// crash left no file but its `.bak`, that is read.
///
/// # Errors
/// When the file is damaged, or it cannot be read.
pub fn load_without_backup<T>(
    path: &Path,
    parse: impl Fn(&[u8]) -> Result<T, String>,
) -> Result<Option<T>, MetadataError> {
    for candidate in [path, &with_suffix(path, ".bak")] {
        if let Some(bytes) = read(candidate)? {
            return parse(&bytes).map(Some).map_err(|detail| MetadataError::Damaged {
                path: candidate.display().to_string(),
                detail,
                backup: "it is older, and may lack the newest that this file had".to_owned(),
            });
        }
    }
    Ok(None)
}

/// Writes the value as pretty-printed JSON; the old version stays as `.bak`.
///
/// # Errors
/// When it cannot be written; the old version is then still in place.
pub fn save<T: Serialize>(path: &Path, value: &T) -> Result<(), MetadataError> {
    save_bytes(path, &fastjson::to_vec_pretty(value))
}

/// As [`save`], for what is no JSON.
///
/// # Errors
/// As [`save`].
pub fn save_bytes(path: &Path, bytes: &[u8]) -> Result<(), MetadataError> {
    small_file::write_small_file(&RealFileSystem, path, bytes)
        .map_err(|source| io_error("write", path, io::Error::other(source)))
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, MetadataError> {
    match small_file::read_whole(&RealFileSystem, path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(io_error("read", path, source)),
    }
}

fn io_error(action: &'static str, path: &Path, source: io::Error) -> MetadataError {
    MetadataError::Io { action, path: path.display().to_string(), source }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    type Table = BTreeMap<String, i32>;

    fn table(value: i32) -> Table {
        Table::from([("a".to_owned(), value)])
    }

    #[test]
    fn nothing_there_is_a_first_start() {
        let dir = tempfile::tempdir().unwrap();
        assert!(load::<Table>(&dir.path().join("t.json")).unwrap().is_none());
    }

    #[test]
    fn a_damaged_file_is_replaced_by_its_backup_and_kept_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.json");
        save(&path, &table(1)).unwrap();
        save(&path, &table(2)).unwrap();
        assert_eq!(load(&path).unwrap(), Some(table(2)));
        fs::write(&path, b"{\"a\":").unwrap();
        assert_eq!(load(&path).unwrap(), Some(table(1)));
        assert!(dir.path().join("t.json.damaged").exists());
        save(&path, &table(3)).unwrap();
        assert_eq!(load(&path).unwrap(), Some(table(3)));
        fs::remove_file(&path).unwrap();
        assert_eq!(load(&path).unwrap(), Some(table(1)), "the good backup was not overwritten");
    }

    #[test]
    fn two_damaged_files_are_an_error_that_names_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.json");
        fs::write(&path, b"").unwrap();
        let error = load::<Table>(&path).unwrap_err().to_string();
        assert!(error.contains("t.json") && error.contains("it is empty"), "{error}");
        fs::write(dir.path().join("t.json.bak"), b"nonsense{").unwrap();
        fs::write(&path, b"{]").unwrap();
        assert!(matches!(load::<Table>(&path), Err(MetadataError::Damaged { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"{]", "evidence stays in place");
    }
}
