//! Making directories whose names survive a loss of power.

use std::path::Path;

use crate::error::StoreError;
use crate::file_system::FileSystem;

/// Makes a directory with its parents, durably. It may exist.
///
/// An empty one is taken for new, whoever made it: a run that was killed may have made it without
/// coming to sync its name.
///
/// # Errors
/// What the operating system says.
pub(crate) fn make_directory(file_system: &dyn FileSystem, path: &Path) -> Result<(), StoreError> {
    file_system.create_directory(path).map_err(StoreError::io("create directory", path))?;
    if !file_system.list(path).map_err(StoreError::io("list", path))?.is_empty() {
        return Ok(());
    }
    for parent in path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
        match file_system.sync_directory(parent) {
            Ok(()) => {}
            // What we may not even read we did not make.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => break,
            Err(error) => return Err(StoreError::io("sync directory", parent)(error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_system::RealFileSystem;

    #[test]
    fn parents_are_made_and_an_existing_directory_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b/c");
        make_directory(&RealFileSystem, &path).unwrap();
        std::fs::write(path.join("file"), b"x").unwrap();
        make_directory(&RealFileSystem, &path).unwrap();
        assert!(path.join("file").exists());
        let error = make_directory(&RealFileSystem, &path.join("file/d")).unwrap_err();
        assert!(error.to_string().contains("file/d"), "{error}");
    }
}
