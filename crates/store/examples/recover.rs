//! How fast recovery after a crash walks the log: GiB a second, warm and cold, next to what the
//! machine reads.
//!
//! `cargo run --release -p rocketmq-store --example recover [DIRECTORY] [GIB] [BODY_BYTES] [QUEUES]`

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rocketmq_protocol::message::record::{NewMessage, body_crc};
use rocketmq_store::{Environment, RecoveryReport, Store, StoreConfig};
use rustix::fs::Advice;

type Failure = Box<dyn std::error::Error>;

const GIB: f64 = (1u64 << 30) as f64;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let gib: f64 = arguments.next().map_or(Ok(2.0), |count| count.parse())?;
    let body_bytes: usize = arguments.next().map_or(Ok(1024), |count| count.parse())?;
    let queues: i32 = arguments.next().map_or(Ok(64), |count| count.parse())?;
    let root = directory.join(format!("rocketmq-recover-{}", std::process::id()));
    let measured = measure(&root, (gib * GIB) as i64, body_bytes, queues);
    std::fs::remove_dir_all(&root)?;
    measured
}

fn measure(root: &Path, bytes: i64, body_bytes: usize, queues: i32) -> Result<(), Failure> {
    fill(root, bytes, body_bytes, queues)?;
    println!("{:.2} GiB, bodies of {body_bytes} bytes, {queues} queues", bytes as f64 / GIB);
    read_all(root)?;
    show("warm: read and CRC, one thread", bytes, read_all(root)?);
    for _ in 0..3 {
        let report = recover(root)?;
        show("warm: recovery", report.bytes_walked as i64, report.elapsed);
        println!("    {report}");
    }
    std::fs::remove_dir_all(root.join("consumequeue"))?;
    let report = recover(root)?;
    show("warm: recovery, all queues lost", report.bytes_walked as i64, report.elapsed);
    forget(root)?;
    show("cold: read and CRC, one thread", bytes, read_all(root)?);
    forget(root)?;
    let report = recover(root)?;
    show("cold: recovery", report.bytes_walked as i64, report.elapsed);
    Ok(())
}

fn show(what: &str, bytes: i64, elapsed: Duration) {
    let rate = bytes as f64 / GIB / elapsed.as_secs_f64();
    println!("{what:<34} {rate:>7.2} GiB/s {:>8} ms", elapsed.as_millis());
}

fn quiet() -> Environment {
    Environment { threads: false, ..Environment::default() }
}

/// Makes a log and leaves it as kill -9 would.
fn fill(root: &Path, bytes: i64, body_bytes: usize, queues: i32) -> Result<(), Failure> {
    let (store, _) = Store::open(StoreConfig::new(root), quiet())?;
    let body: Vec<u8> = (0..body_bytes).map(|n| (n * 7) as u8).collect();
    let properties: [&[u8]; 1] =
        [b"UNIQ_KEY\x017F00000100002B670000000000000123\x02WAIT\x01true\x02TAGS\x01TagA\x02"];
    let mut batch = store.new_batch();
    let mut number = 0;
    while store.max_physical_offset() < bytes {
        batch.clear();
        for _ in 0..64 {
            batch.push(&NewMessage {
                topic: "BenchmarkTest",
                queue_id: number % queues,
                flag: 0,
                sys_flag: 0,
                born_timestamp_ms: 1_700_000_000_000,
                born_host: "127.0.0.1:41722".parse()?,
                store_host: "127.0.0.1:10911".parse()?,
                reconsume_times: 0,
                prepared_transaction_offset: 0,
                body: &body,
                properties: &properties,
            })?;
            number += 1;
        }
        store.append(&mut batch)?;
    }
    store.flush()?;
    Ok(())
}

/// Opens the directory as after a crash, with a checkpoint that vouches for nothing, so that the
/// whole log is walked.
fn recover(root: &Path) -> Result<RecoveryReport, Failure> {
    let checkpoint = root.join("checkpoint");
    if checkpoint.exists() {
        std::fs::remove_file(&checkpoint)?;
    }
    let (_store, report) = Store::open(StoreConfig::new(root), quiet())?;
    assert!(!report.clean && report.bytes_cut == 0, "{report}");
    Ok(report)
}

fn log_files(root: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(root.join("commitlog"))? {
        paths.push(entry?.path());
    }
    paths.sort();
    Ok(paths)
}

/// Reads the log with plain calls and takes the CRC of all of it.
fn read_all(root: &Path) -> Result<Duration, Failure> {
    let mut buffer = vec![0; 1 << 20];
    let started = Instant::now();
    let mut crc = 0;
    for path in log_files(root)? {
        let mut file = File::open(path)?;
        loop {
            let count = file.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            crc ^= body_crc(&buffer[..count]);
        }
    }
    std::hint::black_box(crc);
    Ok(started.elapsed())
}

/// Takes the log out of the page cache.
fn forget(root: &Path) -> Result<(), Failure> {
    for path in log_files(root)? {
        let file = File::open(path)?;
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}
