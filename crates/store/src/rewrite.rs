//! Writing again what may be in the page cache alone.
//!
//! After a failed sync no other sync writes the pages that the failed one could not: for the kernel
//! they are clean. Only writing to them makes them dirty.

use std::path::Path;

use crate::error::StoreError;
use crate::file_system::StoreFile;

/// Bytes that are handled at a time.
const STEP_BYTES: u64 = 64 * 1024;

/// Writes the first `bytes` of a file over themselves. Zeros are made as such, so that a sparse
/// file stays one.
///
/// # Errors
/// What the operating system says.
pub(crate) fn rewrite(file: &dyn StoreFile, path: &Path, bytes: u64) -> Result<(), StoreError> {
    let mut buffer = Vec::new();
    let mut position = 0;
    while position < bytes {
        let step = STEP_BYTES.min(bytes - position);
        // At most STEP_BYTES.
        buffer.resize(step as usize, 0);
        file.read_at(&mut buffer, position).map_err(StoreError::io("read", path))?;
        let written = if buffer.iter().all(|byte| *byte == 0) {
            file.zero_range(position, step)
        } else {
            file.write_at(&buffer, position)
        };
        written.map_err(StoreError::io("write", path))?;
        position += step;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_system::{FileSystem, OpenMode, RealFileSystem};

    #[test]
    fn a_file_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let mut contents = vec![0; 200_000];
        contents[70_000..140_000].fill(7);
        std::fs::write(&path, &contents).unwrap();
        let file = RealFileSystem.open(&path, OpenMode::Existing).unwrap();
        rewrite(&*file, &path, 200_000).unwrap();
        assert!(std::fs::read(&path).unwrap() == contents);
        assert!(rewrite(&*file, &path, 200_001).is_err());
    }
}
