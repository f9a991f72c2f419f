//! Appending: against bare CRC32 and `pwrite` of the same bytes, under sustained writing, from many
//! threads, and under synchronous flush.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rocketmq_store::{DurableOutcome, FlushDiskType, Store};

use crate::bed::{Bed, Options, Result, fill, median, percentile};
use crate::limits;

/// Windows of the two sides take turns, so that both meet the same machine.
const TURNS: usize = 5;
const TOPIC: &str = "Benchmark";
const QUEUES: usize = 4;
/// Half a file of the log: the rest of a turn never waits for a new one.
const TURN_BYTES_MAX: u64 = 256 << 20;

/// Store against bare, for every body and batch size.
pub fn against_bare(options: &Options) -> Result {
    println!(
        "| append, async flush | store MB/s | bare CRC32 + pwrite MB/s | ratio | ns/message | writes/batch |\n\
         | --- | --- | --- | --- | --- | --- |"
    );
    for body_bytes in [128, 1024] {
        for batch_size in [1, 16, 256] {
            let (mut store, mut bare) = (Vec::new(), Vec::new());
            let (mut ns, mut writes) = (0.0, 0.0);
            for _ in 0..TURNS {
                let turn = store_turn(options, body_bytes, batch_size)?;
                (ns, writes) = (turn.ns_per_message, turn.writes_per_batch);
                store.push(turn.bytes_per_second);
                bare.push(bare_turn(options, body_bytes, batch_size)?);
            }
            let (store, bare) = (median(&mut store), median(&mut bare));
            println!(
                "| {body_bytes} B, batch of {batch_size} | {:.0} | {:.0} | {:.2} | {ns:.0} | {writes:.3} |",
                store / 1e6,
                bare / 1e6,
                store / bare,
            );
        }
    }
    println!();
    Ok(())
}

struct Turn {
    bytes_per_second: f64,
    ns_per_message: f64,
    writes_per_batch: f64,
}

fn store_turn(options: &Options, body_bytes: usize, batch_size: usize) -> Result<Turn> {
    let bed = Bed::new(&options.directory)?;
    let (store, calls) = bed.open(|_| ())?;
    let body = vec![b'x'; body_bytes];
    let mut batch = store.new_batch();
    for _ in 0..100 {
        fill(&mut batch, TOPIC, QUEUES, &body, batch_size)?;
        store.append(&mut batch)?;
    }
    let (first, writes) = (store.max_physical_offset(), calls.writes());
    let (started, mut batches) = (Instant::now(), 0_u64);
    while started.elapsed() < options.window
        && ((store.max_physical_offset() - first) as u64) < TURN_BYTES_MAX
    {
        for _ in 0..16 {
            fill(&mut batch, TOPIC, QUEUES, &body, batch_size)?;
            store.append(&mut batch)?;
            batches += 1;
        }
    }
    let elapsed = started.elapsed();
    let bytes = (store.max_physical_offset() - first) as f64;
    let turn = Turn {
        bytes_per_second: bytes / elapsed.as_secs_f64(),
        ns_per_message: elapsed.as_nanos() as f64 / (batches * batch_size as u64) as f64,
        writes_per_batch: (calls.writes() - writes) as f64 / batches as f64,
    };
    store.shutdown()?;
    Ok(turn)
}

/// The same bytes with nothing but what no store can leave out.
fn bare_turn(options: &Options, body_bytes: usize, batch_size: usize) -> Result<f64> {
    let bed = Bed::new(&options.directory)?;
    let (store, _) = bed.open(|_| ())?;
    let body = vec![b'x'; body_bytes];
    let mut batch = store.new_batch();
    fill(&mut batch, TOPIC, QUEUES, &body, batch_size)?;
    let bytes = vec![b'x'; batch.bytes()];
    store.shutdown()?;
    let file = limits::preallocated(&bed, 1 << 30)?;
    let (started, mut at) = (Instant::now(), 0);
    while started.elapsed() < options.window && at < TURN_BYTES_MAX {
        for _ in 0..16 {
            for _ in 0..batch_size {
                std::hint::black_box(crc32fast::hash(std::hint::black_box(&body)));
            }
            file.write_all_at(&bytes, at)?;
            at += bytes.len() as u64;
        }
    }
    Ok(at as f64 / started.elapsed().as_secs_f64())
}

/// The spread of one batch's time while the log rolls and the flusher works.
pub fn sustained(options: &Options) -> Result {
    const BATCH: usize = 16;
    let bed = Bed::new(&options.directory)?;
    // Kept in bounds by removing the oldest files as they come.
    let (store, _) = bed.open(|config| {
        config.commit_log_file_bytes = 256 << 20;
        config.file_reserved_hours = 0;
        config.delete_commit_log_files_interval_ms = 0;
    })?;
    let body = vec![b'x'; 1024];
    let mut batch = store.new_batch();
    let (started, mut times, mut last_clean) = (Instant::now(), Vec::new(), Instant::now());
    while started.elapsed() < options.sustained {
        fill(&mut batch, TOPIC, QUEUES, &body, BATCH)?;
        let began = Instant::now();
        store.append(&mut batch)?;
        times.push(began.elapsed().as_nanos() as u64);
        if last_clean.elapsed() > Duration::from_secs(1) {
            last_clean = Instant::now();
            store.remove_old_files(true)?;
        }
    }
    let bytes = store.max_physical_offset();
    store.shutdown()?;
    times.sort_unstable();
    let (middle, p99) = (percentile(&times, 0.5), percentile(&times, 0.99));
    println!(
        "| sustained for {} s, 16 x 1 KiB | median us | p99 us | p99.9 us | max ms | p99 / median | GB written |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n\
         | | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} |\n",
        options.sustained.as_secs(),
        middle as f64 / 1e3,
        p99 as f64 / 1e3,
        percentile(&times, 0.999) as f64 / 1e3,
        percentile(&times, 1.0) as f64 / 1e6,
        p99 as f64 / middle as f64,
        bytes as f64 / 1e9,
    );
    Ok(())
}

/// One thread against eight.
pub fn threads(options: &Options) -> Result {
    println!("| append, 16 x 128 B | messages/s |\n| --- | --- |");
    let mut rates = Vec::new();
    for threads in [1, 8] {
        let mut turns = Vec::new();
        for _ in 0..TURNS {
            let bed = Bed::new(&options.directory)?;
            let (store, _) = bed.open(|_| ())?;
            turns.push(from_threads(&store, threads, options.window)?);
            store.shutdown()?;
        }
        let rate = median(&mut turns);
        println!("| {threads} threads | {rate:.0} |");
        rates.push(rate);
    }
    println!("| eight to one | {:.2} |\n", rates[1] / rates[0]);
    Ok(())
}

fn from_threads(store: &Store, threads: usize, window: Duration) -> Result<f64> {
    const BATCH: usize = 16;
    let (stop, count, failed) = (AtomicBool::new(false), AtomicU64::new(0), AtomicBool::new(false));
    let started = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (stop, count, failed) = (&stop, &count, &failed);
            scope.spawn(move || {
                let topic = format!("{TOPIC}{thread}");
                let mut batch = store.new_batch();
                while !stop.load(Ordering::Relaxed) {
                    let filled = fill(&mut batch, &topic, QUEUES, &[b'x'; 128], BATCH);
                    if filled.is_err() || store.append(&mut batch).is_err() {
                        failed.store(true, Ordering::Relaxed);
                        return;
                    }
                    count.fetch_add(BATCH as u64, Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(window);
        stop.store(true, Ordering::Relaxed);
    });
    if failed.into_inner() {
        return Err("an append failed".into());
    }
    Ok(count.into_inner() as f64 / started.elapsed().as_secs_f64())
}

/// Writers that each wait until their message is on disk.
pub fn sync_flush(options: &Options) -> Result {
    const WRITERS: usize = 64;
    let bed = Bed::new(&options.directory)?;
    let limit = limits::syncs_per_second(&bed, options.window)?;
    let (store, calls) = bed.open(|config| config.flush_disk_type = FlushDiskType::Sync)?;
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let (syncs, started) = (calls.syncs(), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            let (stop, count, store) = (&stop, &count, &store);
            scope.spawn(move || {
                let mut batch = store.new_batch();
                while !stop.load(Ordering::Relaxed) {
                    let filled = fill(&mut batch, TOPIC, QUEUES, &[b'x'; 128], 1);
                    let (done, wait) = mpsc::sync_channel(1);
                    let appended = filled.is_ok().then(|| store.append(&mut batch).ok()).flatten();
                    let Some(appended) = appended else { return };
                    // The receiver waits below.
                    let told = move |outcome| drop(done.send(outcome));
                    store.on_durable(appended.end_physical_offset, Box::new(told));
                    if wait.recv() != Ok(DurableOutcome::Durable) {
                        return;
                    }
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(options.window);
        stop.store(true, Ordering::Relaxed);
    });
    let elapsed = started.elapsed().as_secs_f64();
    let (syncs, count) = ((calls.syncs() - syncs) as f64, count.into_inner() as f64);
    store.shutdown()?;
    println!(
        "| sync flush, 64 writers of 128 B | |\n| --- | --- |\n\
         | messages a second | {:.0} |\n| messages a sync | {:.1} |\n\
         | syncs a second, of the disk's own | {:.0} of {limit:.0} = {:.2} |\n",
        count / elapsed,
        count / syncs,
        syncs / elapsed,
        syncs / elapsed / limit
    );
    Ok(())
}
