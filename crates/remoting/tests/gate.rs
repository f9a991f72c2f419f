//! The structure of the hot path, seen in socket reads and writes per message.
//!
//! What arrives together must be served together: one read, one write. How much arrives together depends
//! on clients and scheduling, so the gate in figures (0.4 at 64 synchronous threads, 0.2 at 512 in flight)
//! is the benchmark's, on an idle machine. Here stands what no scheduling excuses.

mod common;

use common::{config, echo, start};

/// Sends `frames` echo requests in one write, waits for all answers, does it again and again, and returns
/// socket reads plus writes per message.
fn operations_per_message(frames: usize, rounds: usize) -> f64 {
    let server = start(config());
    let mut raw = server.connect();
    let batch: Vec<u8> = (0..frames)
        .flat_map(|number| echo(i32::try_from(number).expect("small"), &[0; 128]))
        .collect();
    let before = server.server.counters().snapshot();
    for _ in 0..rounds {
        raw.send(&batch);
        for number in 0..frames {
            assert_eq!(raw.answer().opaque as usize, number, "answers come in order");
        }
    }
    let used = server.server.counters().snapshot() - before;
    let total = frames * rounds;
    assert_eq!(used.frames_in, total as u64);
    // One write for everything that one read brought; a few more when the peer is slow to read.
    assert!(used.writes <= used.reads + used.reads / 20 + 5, "{used:?}");
    let per_message = (used.reads + used.writes) as f64 / total as f64;
    println!("{frames} frames together: {per_message:.3} operations per message");
    per_message
}

#[test]
fn what_arrives_together_shares_a_read_and_a_write() {
    // Two would do; the system may hand a write over in parts.
    assert!(operations_per_message(64, 300) < 8.0 / 64.0);
}

#[test]
fn much_that_arrives_together_shares_them_as_well() {
    assert!(operations_per_message(512, 40) < 0.1);
}
