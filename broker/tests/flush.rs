//! What a producer is told when the disk takes its time or messages wait in the write buffer.

mod common;

use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use common::{Peer, TestBroker, config, eventually, send_header, with_field};
use rocketmq_broker::Broker;
use rocketmq_broker::config::FlushDiskType;
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_store::file_system::{DirectoryEntry, DiskSpace, OpenMode, StoreFile};
use rocketmq_store::mapping::Mapping;
use rocketmq_store::{Environment, FileSystem, RealFileSystem};

/// The real file system, except that syncs of the commit log can be held up.
#[derive(Clone, Debug, Default)]
struct SlowDisk(Arc<(Mutex<bool>, Condvar)>);

impl SlowDisk {
    fn hold(&self, is_held: bool) {
        *self.0.0.lock().expect("not poisoned") = is_held;
        self.0.1.notify_all();
    }
}

#[derive(Debug)]
struct SlowFile {
    file: Arc<dyn StoreFile>,
    disk: Option<SlowDisk>,
}

impl FileSystem for SlowDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StoreFile>> {
        let file = RealFileSystem.open(path, mode)?;
        let is_log = path.to_string_lossy().contains("commitlog");
        Ok(Arc::new(SlowFile { file, disk: is_log.then(|| self.clone()) }))
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
    fn disk_space(&self, _: &Path) -> io::Result<DiskSpace> {
        Ok(DiskSpace { used_bytes: 1, available_bytes: 99 })
    }
    fn memory_bytes(&self) -> u64 {
        RealFileSystem.memory_bytes()
    }
}

impl StoreFile for SlowFile {
    fn len_bytes(&self) -> io::Result<u64> {
        self.file.len_bytes()
    }
    fn modified_ms(&self) -> io::Result<i64> {
        self.file.modified_ms()
    }
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
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
        if let Some(SlowDisk(gate)) = &self.disk {
            let mut is_held = gate.0.lock().expect("not poisoned");
            while *is_held {
                is_held = gate.1.wait(is_held).expect("not poisoned");
            }
        }
        self.file.sync_data()
    }
    fn map(&self, bytes: usize) -> io::Result<Mapping> {
        self.file.map(bytes)
    }
    fn try_lock(&self) -> io::Result<bool> {
        self.file.try_lock()
    }
}

fn send(peer: &mut Peer, body: &[u8], waits: bool) -> common::Answer {
    let mut header = send_header("flushed", "0");
    if !waits {
        header = with_field(header, "i", "WAIT\u{1}false\u{2}");
    }
    peer.call(RequestCode::SEND_MESSAGE_V2, &header, body)
}

#[test]
fn a_slow_sync_is_a_flush_disk_timeout_with_the_messages_place() {
    let dir = Arc::new(tempfile::tempdir().expect("temporary directory"));
    let disk = SlowDisk::default();
    let mut config = config(&dir);
    config.flush_disk_type = FlushDiskType::SyncFlush;
    config.sync_flush_timeout = 200;
    let environment = Environment { file_system: Arc::new(disk.clone()), ..Environment::default() };
    let broker = Broker::start_in(config, environment).expect("the broker starts");
    let broker = TestBroker { broker, dir };
    let mut peer = broker.connect();
    assert_eq!(send(&mut peer, b"quick", true).ok().field("queueOffset"), "0");

    disk.hold(true);
    let late = send(&mut peer, b"late", true);
    assert_eq!(late.code, ResponseCode::FLUSH_DISK_TIMEOUT.0, "{late:?}");
    assert_eq!((late.field("queueOffset"), late.field("queueId")), ("1", "0"));
    assert_eq!(late.field("msgId").len(), 32);
    // Who does not want to wait is not told of the disk.
    assert_eq!(send(&mut peer, b"does not wait", false).ok().field("queueOffset"), "2");

    disk.hold(false);
    assert_eq!(send(&mut peer, b"quick again", true).ok().field("queueOffset"), "3");
    assert_eq!(broker.state().store.max_queue_offset("flushed", 0), 4, "all of them are stored");
}

#[test]
fn what_waits_in_the_write_buffer_is_acknowledged_and_then_seen() {
    let broker = common::start_with(|config| {
        config.transient_store_pool_enable = true;
        config.commit_interval_commit_log = 1;
    });
    let mut peer = broker.connect();
    for offset in 0..3 {
        assert_eq!(peer.produce("buffered", 0, b"body").0, offset);
    }
    let store = &broker.state().store;
    eventually("the buffer is committed", || store.max_queue_offset("buffered", 0) == 3);
    let info = peer.call(RequestCode::GET_BROKER_RUNTIME_INFO, &[], b"").ok().text();
    assert!(info.contains("remainHowManyDataToCommit"), "{info}");
}
