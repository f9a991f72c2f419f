//! Pulling a hot queue, recovering after a crash, and what a store occupies.

use std::fs::File;
use std::hint::black_box;
use std::time::Instant;

use rocketmq_store::{Environment, GetLimits, MatchAll, Store, StoreConfig};

use crate::bed::{Bed, Options, Result, fill, status_mib};

const TOPIC: &str = "Benchmark";

/// Sequential pulls of 32 to a null sink.
pub fn pull(options: &Options) -> Result {
    let bed = Bed::new(&options.directory)?;
    let (store, _) = bed.open(|_| ())?;
    let mut batch = store.new_batch();
    for _ in 0..4000 {
        fill(&mut batch, TOPIC, 1, &[b'x'; 128], 256)?;
        store.append(&mut batch)?;
    }
    store.flush()?;
    let (started, mut offset, mut messages) = (Instant::now(), 0, 0_usize);
    let limits = GetLimits { count_max: 32, bytes_max: usize::MAX };
    while started.elapsed() < options.window {
        let found = store.get_messages(TOPIC, 0, offset, limits, &MatchAll)?;
        messages += found.message_count;
        offset = if found.message_count == 0 { 0 } else { found.next_begin_offset };
        black_box(found.messages);
    }
    let rate = messages as f64 / started.elapsed().as_secs_f64();
    store.shutdown()?;
    println!(
        "| pull of 32 from a hot queue, one core | |\n| --- | --- |\n\
         | messages a second | {:.2} million |\n",
        rate / 1e6
    );
    Ok(())
}

/// Opening a store that a crash left, with a warm page cache.
pub fn recovery(options: &Options) -> Result {
    println!(
        "| abnormal recovery, warm | GiB walked | seconds | GiB/s | messages/s |\n\
         | --- | --- | --- | --- | --- |"
    );
    for body_bytes in [128, 1024] {
        let bed = Bed::new(&options.directory)?;
        // No threads: nothing moves the checkpoint, so that the whole log is walked.
        let environment = || Environment { threads: false, ..Environment::default() };
        let config = || StoreConfig {
            commit_log_file_bytes: 256 << 20,
            ..StoreConfig::new(bed.path().join("store"))
        };
        let (store, _) = Store::open(config(), environment())?;
        let body = vec![b'x'; body_bytes];
        let mut batch = store.new_batch();
        while store.max_physical_offset() < 1 << 30 {
            fill(&mut batch, TOPIC, 4, &body, 256)?;
            store.append(&mut batch)?;
        }
        drop(store);
        // What is measured is reading, not writing out what the bench has just made.
        rustix::fs::syncfs(File::open(bed.path())?)?;
        let started = Instant::now();
        let (store, report) = Store::open(config(), environment())?;
        let elapsed = started.elapsed().as_secs_f64();
        drop(store);
        let gib = report.bytes_walked as f64 / f64::from(1 << 30);
        println!(
            "| {body_bytes} B | {gib:.2} | {elapsed:.2} | {:.2} | {:.0} |",
            gib / elapsed,
            report.records_walked as f64 / elapsed
        );
    }
    println!();
    Ok(())
}

/// Memory beyond the page cache with few and with very many queues, and the time to open them.
pub fn scale(options: &Options) -> Result {
    println!(
        "| queues | open s | RssAnon MiB | KiB a queue | open files | maps |\n\
         | --- | --- | --- | --- | --- | --- |"
    );
    for (topics, queues) in [(125, 8), (50_000, 8)] {
        let bed = Bed::new(&options.directory)?;
        let config = || StoreConfig {
            // Sparse, and one entry each is all they hold.
            consume_queue_file_bytes: 20 * 1000,
            ..StoreConfig::new(bed.path().join("store"))
        };
        let (store, _) = Store::open(config(), Environment::default())?;
        let mut batch = store.new_batch();
        for topic in 0..topics {
            fill(&mut batch, &format!("{TOPIC}{topic}"), queues, b"body", queues)?;
            store.append(&mut batch)?;
        }
        store.shutdown()?;
        drop(store);
        let before = status_mib("RssAnon")?;
        let started = Instant::now();
        let (store, _) = Store::open(config(), Environment::default())?;
        let opened = started.elapsed().as_secs_f64();
        store.flush()?;
        let anonymous = status_mib("RssAnon")?;
        let files = std::fs::read_dir("/proc/self/fd")?.count();
        let maps = std::fs::read_to_string("/proc/self/maps")?.lines().count();
        let count = topics * queues;
        println!(
            "| {count} | {opened:.2} | {anonymous:.1} | {:.2} | {files} | {maps} |",
            (anonymous - before).max(0.0) * 1024.0 / count as f64
        );
        store.shutdown()?;
    }
    println!();
    Ok(())
}
