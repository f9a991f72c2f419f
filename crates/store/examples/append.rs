//! What an append costs, dispatch to queues and index included: ns and system calls a message, by
//! keys, batch size and body size. The time of the thread that appends is one figure, that of the
//! whole process, with the threads that write index and queues, another.
//!
//! `cargo run --release -p rocketmq-store --example append [DIRECTORY] [MESSAGES]`

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rocketmq_protocol::message::record::NewMessage;
use rocketmq_store::file_system::{DirectoryEntry, DiskSpace, OpenMode, StoreFile};
use rocketmq_store::mapping::Mapping;
use rocketmq_store::{Environment, FileSystem, RealFileSystem, Store, StoreConfig};

/// The real file system, counting the calls that write.
#[derive(Debug, Default)]
struct Counting {
    writes: Arc<AtomicU64>,
}

#[derive(Debug)]
struct CountingFile {
    file: Arc<dyn StoreFile>,
    writes: Arc<AtomicU64>,
}

impl FileSystem for Counting {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StoreFile>> {
        let file = RealFileSystem.open(path, mode)?;
        Ok(Arc::new(CountingFile { file, writes: Arc::clone(&self.writes) }))
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
        self.writes.fetch_add(1, Ordering::Relaxed);
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
        self.file.sync_data()
    }
    fn map(&self, bytes: usize) -> io::Result<Mapping> {
        self.file.map(bytes)
    }
    fn try_lock(&self) -> io::Result<bool> {
        self.file.try_lock()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let messages: usize = arguments.next().map_or(Ok(500_000), |count| count.parse())?;
    println!("{messages} messages a row, 4 queues, in {}", directory.display());
    println!(
        "{:>10} {:>6} {:>6} {:>10} {:>10} {:>10} {:>10} {:>12}",
        "keys", "body", "batch", "ns/message", "thread ns", "process ns", "MB/s", "writes/msg"
    );
    for keys in [Keys::NoIndex, Keys::None, Keys::Unique, Keys::Four] {
        for body_bytes in [128, 1024] {
            for batch_size in [1, 32, 256] {
                measure(&directory, keys, body_bytes, batch_size, messages)?;
            }
        }
    }
    Ok(())
}

/// What of a message is indexed.
#[derive(Clone, Copy, Debug)]
enum Keys {
    /// Anything, but there is no index.
    NoIndex,
    None,
    Unique,
    /// A unique key and three words.
    Four,
}

/// Time that all threads of this process ran on a processor.
fn process_cpu_ns() -> Result<u64, Box<dyn std::error::Error>> {
    let mut sum = 0;
    for thread in std::fs::read_dir("/proc/self/task")? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        sum += text.split_whitespace().next().unwrap_or("0").parse::<u64>()?;
    }
    Ok(sum)
}

/// Time this thread ran on a processor, which a busy machine disturbs less than the clock.
fn thread_cpu_ns() -> Result<u64, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split_whitespace().next().unwrap_or("0").parse()?)
}

fn measure(
    directory: &Path,
    keys: Keys,
    body_bytes: usize,
    batch_size: usize,
    messages: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let root = directory.join(format!("rocketmq-append-{}", std::process::id()));
    let file_system = Arc::new(Counting::default());
    let writes = Arc::clone(&file_system.writes);
    let environment = Environment { file_system, ..Environment::default() };
    let mut config = StoreConfig::new(&root);
    config.message_index_enable = !matches!(keys, Keys::NoIndex);
    let (store, _) = Store::open(config, environment)?;
    let body = vec![b'x'; body_bytes];
    let ours: &[u8] =
        b"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02";
    let mut number: u64 = 0;
    let mut text = String::new();
    let born_host = "127.0.0.1:41722".parse()?;
    let store_host = "127.0.0.1:10911".parse()?;
    let mut batch = store.new_batch();
    let mut append = |count: usize| -> Result<(), Box<dyn std::error::Error>> {
        for first in (0..count).step_by(batch_size) {
            batch.clear();
            for n in first..first + batch_size {
                number += 1;
                text.clear();
                match keys {
                    Keys::None => write!(text, "NOT_INDEXED\x017F00000100002B67{number:016X}\x02")?,
                    Keys::NoIndex | Keys::Unique => {
                        write!(text, "UNIQ_KEY\x017F00000100002B67{number:016X}\x02")?;
                    }
                    Keys::Four => write!(
                        text,
                        "UNIQ_KEY\x017F00000100002B67{number:016X}\x02KEYS\x01order-{number} \
                         customer-{} shop-{}\x02",
                        number % 50_000,
                        number % 100,
                    )?,
                }
                text.push_str("WAIT\x01true\x02TAGS\x01TagA\x02");
                batch.push(&NewMessage {
                    topic: "BenchmarkTest",
                    queue_id: (n % 4) as i32,
                    flag: 0,
                    sys_flag: 0,
                    born_timestamp_ms: 1_700_000_000_000,
                    born_host,
                    store_host,
                    reconsume_times: 0,
                    prepared_transaction_offset: 0,
                    body: &body,
                    properties: &[text.as_bytes(), ours],
                })?;
            }
            store.append(&mut batch)?;
        }
        Ok(())
    };
    append(batch_size * 100)?;
    let (before, bytes) = (writes.load(Ordering::Relaxed), store.max_physical_offset());
    let (process, cpu, started) = (process_cpu_ns()?, thread_cpu_ns()?, Instant::now());
    append(messages)?;
    let (cpu, elapsed) = (thread_cpu_ns()? - cpu, started.elapsed());
    // What waits in memory is written as well.
    store.tick()?;
    let process = process_cpu_ns()? - process;
    let count = messages.div_ceil(batch_size) * batch_size;
    let bytes = store.max_physical_offset() - bytes;
    println!(
        "{:>10} {body_bytes:>6} {batch_size:>6} {:>10.0} {:>10.0} {:>10.0} {:>10.0} {:>12.4}",
        format!("{keys:?}"),
        elapsed.as_nanos() as f64 / count as f64,
        cpu as f64 / count as f64,
        process as f64 / count as f64,
        bytes as f64 / 1e6 / elapsed.as_secs_f64(),
        (writes.load(Ordering::Relaxed) - before) as f64 / count as f64,
    );
    store.shutdown()?;
    drop(store);
    std::fs::remove_dir_all(&root)?;
    Ok(())
}
