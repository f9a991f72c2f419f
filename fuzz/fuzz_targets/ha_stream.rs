//! Frames between a master that was appointed and its slaves: bytes of a slave, then of a master.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rocketmq_broker::replication::appointed::stream::{MasterFrame, SlaveFrame};

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    while let Ok(Some((frame, bytes))) = SlaveFrame::decode(rest) {
        let mut again = Vec::new();
        frame.encode(&mut again);
        assert_eq!(SlaveFrame::decode(&again), Ok(Some((frame, again.len()))));
        assert_eq!(again.len(), bytes);
        rest = &rest[bytes..];
    }
    let mut rest = data;
    while let Ok(Some((frame, bytes))) = MasterFrame::decode(rest) {
        let mut again = Vec::new();
        frame.encode(&mut again);
        assert_eq!(MasterFrame::decode(&again), Ok(Some((frame, again.len()))));
        assert!(again.len() <= bytes);
        rest = &rest[bytes..];
    }
});
