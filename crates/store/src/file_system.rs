//! Every call to the operating system's files that the store makes, as a trait.
//!
//! Owns the real implementation. Tests put another one in its place that refuses calls, and a crash
//! simulator one that forgets what was not synced. Nothing else in this crate touches a file.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::Errno;

use crate::mapping::Mapping;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// It must exist.
    Existing,
    /// It must exist, and writing to it fails.
    ReadOnly,
    /// It must not exist.
    New,
    /// It is made if missing and kept as it is otherwise; a symbolic link is refused.
    Any,
    /// It is made if missing and emptied otherwise; a symbolic link is refused.
    Empty,
}

/// What a directory holds under one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Name inside the directory. A name that is not UTF-8 has its odd bytes replaced.
    pub name: String,
    /// Whether it is a directory, or a link to one.
    pub is_directory: bool,
    /// Whether it is neither a file nor a directory itself: a symbolic link, a pipe, a device.
    pub is_special: bool,
    /// Length of a file in bytes.
    pub bytes: u64,
}

/// Space on the file system that holds a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskSpace {
    /// What is in use, in bytes.
    pub used_bytes: u64,
    /// What an unprivileged process can still take, in bytes.
    pub available_bytes: u64,
}

impl DiskSpace {
    /// Used share of what can be used, 0 to 1, as RocketMQ and df count it: blocks that only root
    /// can take count as neither. 0 when nothing is known.
    pub fn used_ratio(&self) -> f64 {
        let usable_bytes = self.used_bytes.saturating_add(self.available_bytes);
        if usable_bytes == 0 { 0.0 } else { self.used_bytes as f64 / usable_bytes as f64 }
    }
}

/// A tree of files.
pub trait FileSystem: fmt::Debug + Send + Sync {
    /// Opens a file for reading and, unless `mode` says otherwise, writing.
    ///
    /// # Errors
    /// What the operating system says.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StoreFile>>;
    /// Makes a directory and its parents. Not durable before the parent is synced.
    ///
    /// # Errors
    /// What the operating system says.
    fn create_directory(&self, path: &Path) -> io::Result<()>;
    /// Makes creations, renames and removals inside a directory durable.
    ///
    /// # Errors
    /// What the operating system says.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
    /// Makes everything durable that was changed on the file system that holds `path`, by whomever.
    ///
    /// # Errors
    /// What the operating system says.
    fn sync_all(&self, path: &Path) -> io::Result<()>;
    /// Lists a directory, sorted by name.
    ///
    /// # Errors
    /// What the operating system says.
    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>>;
    /// Whether something exists at `path`.
    ///
    /// # Errors
    /// What the operating system says.
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Puts `from` in the place of `to`.
    ///
    /// # Errors
    /// What the operating system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    ///
    /// # Errors
    /// What the operating system says.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory with all it holds.
    ///
    /// # Errors
    /// What the operating system says.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;
    /// Space on the file system that holds `path`.
    ///
    /// # Errors
    /// What the operating system says.
    fn disk_space(&self, path: &Path) -> io::Result<DiskSpace>;
    /// Physical memory of the machine in bytes, which bounds what the page cache can hold.
    fn memory_bytes(&self) -> u64;
}

/// An open file.
pub trait StoreFile: fmt::Debug + Send + Sync {
    /// Length in bytes.
    ///
    /// # Errors
    /// What the operating system says.
    fn len_bytes(&self) -> io::Result<u64>;
    /// Last modification in ms since the epoch.
    ///
    /// # Errors
    /// What the operating system says.
    fn modified_ms(&self) -> io::Result<i64>;
    /// Writes all of `bytes` at `position`.
    ///
    /// # Errors
    /// What the operating system says; a part may have been written.
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()>;
    /// Fills `buffer` from `position`.
    ///
    /// # Errors
    /// What the operating system says; `UnexpectedEof` when the file ends before.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()>;
    /// Extends the file to `bytes` and reserves the space, so that writing there cannot find the
    /// disk full. Touches no page. Where the file system cannot reserve, it only extends.
    ///
    /// # Errors
    /// What the operating system says, a full disk among it.
    fn allocate(&self, bytes: u64) -> io::Result<()>;
    /// Sets the length without reserving space.
    ///
    /// # Errors
    /// What the operating system says.
    fn set_len(&self, bytes: u64) -> io::Result<()>;
    /// Makes `bytes` bytes from `position` read as zeros, without changing the length.
    ///
    /// # Errors
    /// What the operating system says.
    fn zero_range(&self, position: u64, bytes: u64) -> io::Result<()>;
    /// Makes the contents durable, and what is needed to read them back.
    ///
    /// # Errors
    /// What the operating system says. After a failure it is unknown what is durable.
    fn sync_data(&self) -> io::Result<()>;
    /// Maps the whole file for reading; its length must be `bytes` and never shrink.
    ///
    /// # Errors
    /// What the operating system says.
    fn map(&self, bytes: usize) -> io::Result<Mapping>;
    /// Takes the lock of the file together with others who take it so. False when someone holds the
    /// exclusive one. It is let go when the file is dropped, and the file may be open for reading
    /// only.
    ///
    /// # Errors
    /// What the operating system says.
    fn try_lock_shared(&self) -> io::Result<bool> {
        self.try_lock()
    }
    /// Takes the exclusive lock of the file. False when someone else holds it. It is let go when
    /// the file is dropped.
    ///
    /// # Errors
    /// What the operating system says.
    fn try_lock(&self) -> io::Result<bool>;
}

/// The operating system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFileSystem;

#[derive(Debug)]
struct RealFile {
    file: File,
    path: PathBuf,
    locked: AtomicBool,
}

impl Drop for RealFile {
    /// A child that is being started has the file open for a moment, and with it the lock; letting go
    /// of the lock itself does not wait for that.
    fn drop(&mut self) {
        if self.locked.load(Ordering::Relaxed)
            && let Err(error) = rustix::fs::flock(&self.file, FlockOperation::Unlock)
        {
            tracing::warn!(path = %self.path.display(), %error, "lock is not let go of");
        }
    }
}

impl FileSystem for RealFileSystem {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StoreFile>> {
        let mut options = OpenOptions::new();
        // Without waiting: opening a pipe that somebody put in a file's place would hang.
        options.read(true).write(mode != OpenMode::ReadOnly).custom_flags(libc::O_NONBLOCK);
        match mode {
            OpenMode::Existing | OpenMode::ReadOnly => {}
            OpenMode::New => {
                options.create_new(true);
            }
            // What may be made or emptied must not lie elsewhere.
            OpenMode::Any => {
                options
                    .create(true)
                    .truncate(false)
                    .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW);
            }
            OpenMode::Empty => {
                options
                    .create(true)
                    .truncate(true)
                    .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW);
            }
        }
        let file = options.open(path).map_err(|error| match error.raw_os_error() {
            Some(libc::ELOOP) => io::Error::new(
                error.kind(),
                "it is a symbolic link, which is not followed; put the file itself in its place",
            ),
            _ => error,
        })?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is a directory, a pipe or a device; put a file in its place",
            ));
        }
        Ok(Arc::new(RealFile { file, path: path.to_owned(), locked: AtomicBool::new(false) }))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir_all(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn sync_all(&self, path: &Path) -> io::Result<()> {
        Ok(rustix::fs::syncfs(File::open(path)?)?)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            // Follows a link, so that a linked directory counts as one.
            let (is_directory, bytes) = match std::fs::metadata(entry.path()) {
                Ok(metadata) => (metadata.is_dir(), metadata.len()),
                // A link that leads nowhere is there all the same.
                Err(_) if kind.is_symlink() => (false, 0),
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            entries.push(DirectoryEntry {
                name: entry.file_name().to_string_lossy().into_owned(),
                is_directory,
                is_special: !kind.is_file() && !kind.is_dir(),
                bytes,
            });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir_all(path)
    }

    fn disk_space(&self, path: &Path) -> io::Result<DiskSpace> {
        let space = rustix::fs::statvfs(path)?;
        Ok(DiskSpace {
            used_bytes: space.f_blocks.saturating_sub(space.f_bfree).saturating_mul(space.f_frsize),
            available_bytes: space.f_bavail.saturating_mul(space.f_frsize),
        })
    }

    fn memory_bytes(&self) -> u64 {
        let info = rustix::system::sysinfo();
        (info.totalram as u64).saturating_mul(u64::from(info.mem_unit.max(1)))
    }
}

/// Zeros for file systems that cannot make a hole, and for files that must hold blocks.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

impl RealFile {
    fn lock_open_file(&self, operation: FlockOperation) -> io::Result<bool> {
        match rustix::fs::flock(&self.file, operation) {
            Ok(()) => {
                self.locked.store(true, Ordering::Relaxed);
                Ok(true)
            }
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl StoreFile for RealFile {
    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn modified_ms(&self) -> io::Result<i64> {
        let metadata = self.file.metadata()?;
        Ok(metadata.mtime().saturating_mul(1000).saturating_add(metadata.mtime_nsec() / 1_000_000))
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, position)
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, position)
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        loop {
            match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, bytes) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return self.file.set_len(bytes),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn zero_range(&self, position: u64, bytes: u64) -> io::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // Zeroing keeps the space reserved; a hole is the next best and what tmpfs can do. Neither
        // touches a page.
        for way in [FallocateFlags::ZERO_RANGE, FallocateFlags::PUNCH_HOLE] {
            match rustix::fs::fallocate(
                &self.file,
                way | FallocateFlags::KEEP_SIZE,
                position,
                bytes,
            ) {
                Ok(()) => return Ok(()),
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let (mut position, mut left) = (position, bytes);
        let mut found = vec![0; ZEROS.len()];
        while left > 0 {
            let step = left.min(ZEROS.len() as u64);
            let found = &mut found[..step as usize];
            self.file.read_exact_at(found, position)?;
            if found.iter().any(|byte| *byte != 0) {
                self.file.write_all_at(&ZEROS[..step as usize], position)?;
            }
            position += step;
            left -= step;
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn map(&self, bytes: usize) -> io::Result<Mapping> {
        Mapping::of_file(&self.file, &self.path, bytes)
    }

    fn try_lock_shared(&self) -> io::Result<bool> {
        // Both kinds, as for the exclusive one below.
        match rustix::fs::fcntl_lock(&self.file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {}
            Err(Errno::AGAIN | Errno::ACCESS) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        self.lock_open_file(FlockOperation::NonBlockingLockShared)
    }

    fn try_lock(&self) -> io::Result<bool> {
        // A record lock, as Java's FileChannel.tryLock takes it, keeps a Java broker away. It does
        // not tell apart two stores of one process, so the lock of the open file is taken as well.
        // (The system lets go of a process's record locks when it closes any descriptor of the
        // file: after a second attempt from this very process only the other lock is left.)
        match rustix::fs::fcntl_lock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::AGAIN | Errno::ACCESS) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        self.lock_open_file(FlockOperation::NonBlockingLockExclusive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_allocated_written_zeroed_and_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = RealFileSystem.open(&path, OpenMode::New).unwrap();
        file.allocate(10_000).unwrap();
        assert_eq!(file.len_bytes().unwrap(), 10_000);
        file.write_at(&[7; 100], 50).unwrap();
        file.zero_range(60, 20).unwrap();
        let mut read = [9; 100];
        file.read_at(&mut read, 0).unwrap();
        assert_eq!((read[49], read[50], read[60], read[79], read[80]), (0, 7, 0, 0, 7));
        file.sync_data().unwrap();
        assert!(file.read_at(&mut read, 9_950).is_err());
        let reader = RealFileSystem.open(&path, OpenMode::ReadOnly).unwrap();
        reader.read_at(&mut read, 0).unwrap();
        assert!(reader.write_at(b"x", 0).is_err());
        assert!(RealFileSystem.open(&path, OpenMode::New).is_err());
        assert!(file.modified_ms().unwrap() > 0);
    }

    #[test]
    fn the_lock_is_exclusive_within_a_process_too() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let first = RealFileSystem.open(&path, OpenMode::Any).unwrap();
        assert!(first.try_lock().unwrap());
        let second = RealFileSystem.open(&path, OpenMode::Any).unwrap();
        assert!(!second.try_lock().unwrap());
        drop(first);
        assert!(second.try_lock().unwrap());
    }

    #[test]
    fn the_lock_ends_with_the_file_though_a_child_has_it_open() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let file = File::options().create_new(true).write(true).open(&path).unwrap();
        let of_child = file.try_clone().unwrap();
        let first = RealFile { file, path: path.clone(), locked: AtomicBool::new(false) };
        assert!(first.try_lock().unwrap());
        drop(first);
        assert!(RealFileSystem.open(&path, OpenMode::Any).unwrap().try_lock().unwrap());
        drop(of_child);
    }

    #[test]
    fn used_ratio_stays_in_range() {
        let space = DiskSpace { used_bytes: 30, available_bytes: 10 };
        assert!((space.used_ratio() - 0.75).abs() < 1e-9);
        assert!(DiskSpace::default().used_ratio() == 0.0);
        assert!(RealFileSystem.disk_space(Path::new("/")).unwrap().used_bytes > 0);
        assert!(RealFileSystem.memory_bytes() > 1 << 20);
    }
}
