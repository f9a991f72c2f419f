//! What the machine itself can do, in the same run: nothing here touches the store.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use crate::bed::{Bed, Options, Result};

/// The disk's own rate of syncs, of 4 KiB each.
pub fn syncs_per_second(bed: &Bed, window: Duration) -> Result<f64> {
    let file = preallocated(bed, 64 << 20)?;
    let block = [7; 4096];
    // The first sync also makes the file itself durable.
    file.write_all_at(&block, 0)?;
    file.sync_data()?;
    let (started, mut count) = (Instant::now(), 0_u64);
    while started.elapsed() < window {
        file.write_all_at(&block, (count * 4096) % (64 << 20))?;
        file.sync_data()?;
        count += 1;
    }
    Ok(count as f64 / started.elapsed().as_secs_f64())
}

/// A file with its space reserved.
pub fn preallocated(bed: &Bed, bytes: u64) -> Result<File> {
    let path = bed.path().join("plain");
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)?;
    Ok(file)
}

/// Prints them.
pub fn run(options: &Options) -> Result {
    let bed = Bed::new(&options.directory)?;
    println!("| the machine | |\n| --- | --- |");

    let source = vec![0x5a; 1 << 20];
    let mut target = vec![0; 1 << 20];
    let (started, mut bytes) = (Instant::now(), 0_u64);
    while started.elapsed() < options.window {
        target.copy_from_slice(black_box(&source));
        black_box(crc32fast::hash(black_box(&target)));
        bytes += source.len() as u64;
    }
    let rate = bytes as f64 / started.elapsed().as_secs_f64();
    println!("| memory copied and CRC32 taken | {:.1} GB/s |", rate / 1e9);

    for batch_bytes in [4 << 10, 64 << 10, 512 << 10] {
        let file_bytes = 1_u64 << 30;
        let file = preallocated(&bed, file_bytes)?;
        let block = &source[..batch_bytes];
        let (started, mut at) = (Instant::now(), 0);
        while at + block.len() as u64 <= file_bytes && started.elapsed() < options.window {
            file.write_all_at(block, at)?;
            at += block.len() as u64;
        }
        let elapsed = started.elapsed().as_secs_f64();
        let pages = at as f64 / 4096.0;
        println!(
            "| pwrite of {} KiB into a preallocated file | {:.2} GB/s, {:.0} ns a page |",
            batch_bytes >> 10,
            at as f64 / 1e9 / elapsed,
            elapsed * 1e9 / pages
        );
    }
    println!("| fdatasync of 4 KiB | {:.0} a second |\n", syncs_per_second(&bed, options.window)?);
    Ok(())
}
