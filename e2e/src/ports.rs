//! Free ports for the programs under test.
//!
//! A broker takes three: the one it is given, two below it (brokers speak to
//! each other there) and one above it (replication).

use std::net::TcpListener;
use std::sync::Mutex;

use anyhow::{Result, bail};

/// Below the range the kernel takes outgoing ports from, so that a client's
/// connection never sits on a port between two starts of a broker.
const FIRST: u16 = 12_000;
const LAST: u16 = 31_000;
const STRIDE: u16 = 5;

static NEXT: Mutex<u16> = Mutex::new(0);

/// A port P such that P - 2 to P + 1 are free now and given to nobody else in this process.
pub fn allocate() -> Result<u16> {
    let mut next = NEXT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if *next == 0 {
        // Processes that run at the same time begin at different places.
        let places = u32::from((LAST - FIRST) / STRIDE);
        let place = (std::process::id().wrapping_mul(97) % places) as u16;
        *next = FIRST + place * STRIDE;
    }
    for _ in 0..(LAST - FIRST) / STRIDE {
        let port = *next + 2;
        *next = if *next + STRIDE >= LAST { FIRST } else { *next + STRIDE };
        if (port - 2..=port + 1).all(|port| TcpListener::bind(("0.0.0.0", port)).is_ok()) {
            return Ok(port);
        }
    }
    bail!("no four free ports in a row between {FIRST} and {LAST}")
}
