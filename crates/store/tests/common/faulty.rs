//! The real file system with calls that can be made to fail, and a disk as full as a test wants.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rocketmq_store::file_system::{DirectoryEntry, DiskSpace, OpenMode, StoreFile};
use rocketmq_store::mapping::Mapping;
use rocketmq_store::{FileSystem, RealFileSystem};

const ENOSPC: i32 = 28;
const EIO: i32 = 5;
const EROFS: i32 = 30;

/// The file system.
#[derive(Clone, Debug, Default)]
pub struct Faulty(pub Arc<Faults>);

#[derive(Debug, Default)]
pub struct Faults {
    /// Part of the path that is concerned; all if empty.
    pub path: Mutex<String>,
    pub create: AtomicBool,
    pub allocate: AtomicBool,
    pub write: AtomicBool,
    pub zero: AtomicBool,
    pub sync: AtomicBool,
    /// Held by who lets syncs hang for as long.
    pub hang: Mutex<()>,
    pub read: AtomicBool,
    /// Nothing can be changed, nor opened for that.
    pub read_only: AtomicBool,
    pub syncs: AtomicU64,
    pub used_percent: AtomicU64,
    /// Of paths that hold a text, in place of `used_percent`.
    pub used_percent_of: Mutex<Vec<(String, u64)>>,
}

impl Faulty {
    pub fn concern(&self, part: &str) {
        *self.0.path.lock().unwrap() = part.to_owned();
    }

    fn fail(&self, fault: &AtomicBool, path: &str, errno: i32) -> io::Result<()> {
        if fault.load(Ordering::SeqCst) && path.contains(&*self.0.path.lock().unwrap()) {
            return Err(io::Error::from_raw_os_error(errno));
        }
        Ok(())
    }
}

#[derive(Debug)]
struct FaultyFile {
    file: Arc<dyn StoreFile>,
    path: String,
    faulty: Faulty,
}

impl FileSystem for Faulty {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StoreFile>> {
        let name = path.display().to_string();
        if mode != OpenMode::ReadOnly {
            self.fail(&self.0.read_only, &name, EROFS)?;
        }
        if !matches!(mode, OpenMode::Existing | OpenMode::ReadOnly) {
            self.fail(&self.0.create, &name, ENOSPC)?;
        }
        let file = RealFileSystem.open(path, mode)?;
        Ok(Arc::new(FaultyFile { file, path: name, faulty: self.clone() }))
    }
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.fail(&self.0.create, &path.display().to_string(), ENOSPC)?;
        self.fail(&self.0.read_only, &path.display().to_string(), EROFS)?;
        RealFileSystem.create_directory(path)
    }
    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.fail(&self.0.read_only, &path.display().to_string(), EROFS)?;
        RealFileSystem.sync_directory(path)
    }
    fn sync_all(&self, _: &Path) -> io::Result<()> {
        // It would wait for what other programs write; these tests lose no power.
        Ok(())
    }
    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        RealFileSystem.list(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        RealFileSystem.exists(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.fail(&self.0.read_only, &from.display().to_string(), EROFS)?;
        RealFileSystem.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.fail(&self.0.read_only, &path.display().to_string(), EROFS)?;
        RealFileSystem.remove_file(path)
    }
    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.fail(&self.0.read_only, &path.display().to_string(), EROFS)?;
        RealFileSystem.remove_directory(path)
    }
    fn disk_space(&self, path: &Path) -> io::Result<DiskSpace> {
        let of = self.0.used_percent_of.lock().unwrap();
        let path = path.display().to_string();
        let used = match of.iter().find(|(part, _)| path.contains(part)) {
            Some((_, used)) => *used,
            None => self.0.used_percent.load(Ordering::SeqCst),
        };
        Ok(DiskSpace { used_bytes: used, available_bytes: 100 - used })
    }
    fn memory_bytes(&self) -> u64 {
        RealFileSystem.memory_bytes()
    }
}

impl StoreFile for FaultyFile {
    fn len_bytes(&self) -> io::Result<u64> {
        self.file.len_bytes()
    }
    fn modified_ms(&self) -> io::Result<i64> {
        self.file.modified_ms()
    }
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let result = self.faulty.fail(&self.faulty.0.write, &self.path, ENOSPC);
        if result.is_err() {
            // As the kernel does: a part gets there.
            self.file.write_at(&bytes[..bytes.len() / 2], position)?;
        }
        result?;
        self.file.write_at(bytes, position)
    }
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        self.faulty.fail(&self.faulty.0.read, &self.path, EIO)?;
        self.file.read_at(buffer, position)
    }
    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.faulty.fail(&self.faulty.0.allocate, &self.path, ENOSPC)?;
        self.file.allocate(bytes)
    }
    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }
    fn zero_range(&self, position: u64, bytes: u64) -> io::Result<()> {
        self.faulty.fail(&self.faulty.0.zero, &self.path, EIO)?;
        self.file.zero_range(position, bytes)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.faulty.0.syncs.fetch_add(1, Ordering::SeqCst);
        drop(self.faulty.0.hang.lock().unwrap());
        self.faulty.fail(&self.faulty.0.sync, &self.path, EIO)?;
        self.file.sync_data()
    }
    fn map(&self, bytes: usize) -> io::Result<Mapping> {
        self.file.map(bytes)
    }
    fn try_lock_shared(&self) -> io::Result<bool> {
        self.file.try_lock_shared()
    }
    fn try_lock(&self) -> io::Result<bool> {
        self.file.try_lock()
    }
}
