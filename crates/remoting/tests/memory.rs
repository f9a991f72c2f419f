//! What a peer can make the server allocate. Alone in its process, since it looks at resident memory.

mod common;

use common::{config, eventually, start};

#[test]
fn a_frame_that_announces_much_and_does_not_come_costs_little() {
    let server = start(config());
    let mut raws = (0..64).map(|_| server.connect()).collect::<Vec<_>>();
    let before = resident_bytes();
    for raw in &mut raws {
        raw.send(&16_000_000_i32.to_be_bytes());
        raw.send(&[0; 1000]);
    }
    eventually("all is read", || server.server.counters().snapshot().bytes_in == 64 * 1004);
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 64 * 1024 * 1024, "grew by {grown} bytes");
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let pages = statm.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok()).expect("pages");
    pages * 4096
}
