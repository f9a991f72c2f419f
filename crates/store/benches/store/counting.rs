//! The real file system, counting the calls that write and sync.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rocketmq_store::file_system::{DirectoryEntry, DiskSpace, OpenMode, StoreFile};
use rocketmq_store::mapping::Mapping;
use rocketmq_store::{FileSystem, RealFileSystem};

/// How often the system was asked so far.
#[derive(Debug, Default)]
pub struct Calls {
    writes: AtomicU64,
    syncs: AtomicU64,
}

impl Calls {
    /// Writes into files.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// Syncs of files' contents.
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Counting(pub Arc<Calls>);

#[derive(Debug)]
struct CountingFile {
    file: Arc<dyn StoreFile>,
    calls: Arc<Calls>,
}

impl FileSystem for Counting {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StoreFile>> {
        let file = RealFileSystem.open(path, mode)?;
        Ok(Arc::new(CountingFile { file, calls: Arc::clone(&self.0) }))
    }
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        RealFileSystem.create_directory(path)
    }
    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        RealFileSystem.sync_directory(path)
    }
    fn sync_all(&self, path: &Path) -> io::Result<()> {
        RealFileSystem.sync_all(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        RealFileSystem.list(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        RealFileSystem.exists(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFileSystem.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        RealFileSystem.remove_file(path)
    }
    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        RealFileSystem.remove_directory(path)
    }
    fn disk_space(&self, path: &Path) -> io::Result<DiskSpace> {
        RealFileSystem.disk_space(path)
    }
    fn memory_bytes(&self) -> u64 {
        RealFileSystem.memory_bytes()
    }
}

impl StoreFile for CountingFile {
    fn len_bytes(&self) -> io::Result<u64> {
        self.file.len_bytes()
    }
    fn modified_ms(&self) -> io::Result<i64> {
        self.file.modified_ms()
    }
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.calls.writes.fetch_add(1, Ordering::Relaxed);
        self.file.write_at(bytes, position)
    }
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        self.file.read_at(buffer, position)
    }
    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.file.allocate(bytes)
    }
    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }
    fn zero_range(&self, position: u64, bytes: u64) -> io::Result<()> {
        self.file.zero_range(position, bytes)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.calls.syncs.fetch_add(1, Ordering::Relaxed);
        self.file.sync_data()
    }
    fn map(&self, bytes: usize) -> io::Result<Mapping> {
        self.file.map(bytes)
    }
    fn try_lock(&self) -> io::Result<bool> {
        self.file.try_lock()
    }
}
