//! Dispatch to ConsumeQueue and index, against append on the same core.
//!
//! A slave's store takes the log that a master's has written: it verifies the records, writes and
//! dispatches them, on the caller's thread. What it takes without verifying and writing, which are
//! measured bare, is its dispatch, the reading of the records included.

use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rocketmq_protocol::message::record;
use rocketmq_store::StoreConfig;

use crate::bed::{Bed, Options, Result, fill, median};
use crate::limits;

const TURNS: usize = 5;
const BATCH: usize = 256;
const PIECE_BYTES: usize = 256 << 10;
const LOG_BYTES: i64 = 192 << 20;

/// Prints it.
pub fn against_append(options: &Options) -> Result {
    println!(
        "| dispatch, batches of {BATCH} | append ns/message | copy | bare write | verifying | dispatch | append / dispatch |\n\
         | --- | --- | --- | --- | --- | --- | --- |"
    );
    for body_bytes in [128, 1024] {
        let mut turns = [(); 4].map(|()| Vec::new());
        for _ in 0..TURNS {
            for (all, of_turn) in turns.iter_mut().zip(turn(options, body_bytes)?) {
                all.push(of_turn);
            }
        }
        let [append, copy, write, verify] = turns.map(|mut of_all| median(&mut of_all));
        let dispatch = copy - write - verify;
        println!(
            "| {body_bytes} B | {append:.0} | {copy:.0} | {write:.0} | {verify:.0} | {dispatch:.0} | {:.2} |",
            append / dispatch
        );
    }
    println!();
    Ok(())
}

/// Nanoseconds a message of an append, of its copy, and of what is in the copy beside dispatch.
fn turn(options: &Options, body_bytes: usize) -> Result<[f64; 4]> {
    let bed = Bed::new(&options.directory)?;
    let (master, _) = bed.open(|_| ())?;
    let (slave, _) = bed.open(|config| *config = StoreConfig::new(bed.path().join("slave")))?;
    slave.take_copies_only();
    let body = vec![b'x'; body_bytes];
    let (mut batch, mut messages, mut append) = (master.new_batch(), 0_usize, Duration::ZERO);
    while master.max_physical_offset() < LOG_BYTES {
        let began = Instant::now();
        fill(&mut batch, "Benchmark", 4, &body, BATCH)?;
        master.append(&mut batch)?;
        append += began.elapsed();
        messages += BATCH;
    }

    let plain = limits::preallocated(&bed, 1 << 30)?;
    let (mut copy, mut write, mut verify) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let mut waiting = Vec::new();
    let mut next = 0;
    while let Some(piece) = master.log_bytes(next, PIECE_BYTES) {
        next += piece.len() as i64;
        waiting.extend_from_slice(&piece);
        let start = next - waiting.len() as i64;
        let began = Instant::now();
        let taken = slave.append_copy(start, &waiting)?;
        copy += began.elapsed();
        let began = Instant::now();
        plain.write_all_at(&waiting[..taken], start as u64)?;
        write += began.elapsed();
        let began = Instant::now();
        // In front of the write, and again in front of the dispatch.
        for _ in 0..2 {
            for record in record::iter(black_box(&waiting[..taken])) {
                black_box(record?.body_matches_crc());
            }
        }
        verify += began.elapsed();
        waiting.drain(..taken);
    }
    master.shutdown()?;
    slave.shutdown()?;
    Ok([append, copy, write, verify].map(|time| time.as_nanos() as f64 / messages as f64))
}
