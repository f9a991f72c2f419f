//! Frames between a master that was appointed and its slaves: the bytes are what a slave sends, then what
//! a master sends. Each frame is written again and must read the same.

use rocketmq_broker::replication::appointed::stream::{MasterFrame, SlaveFrame};

/// What the target does with its input.
pub fn run(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some((frame, length))) = SlaveFrame::decode(rest) {
        let mut again = Vec::new();
        frame.encode(&mut again);
        assert_eq!(SlaveFrame::decode(&again), Ok(Some((frame, again.len()))));
        assert_eq!(again.len(), length);
        rest = &rest[length..];
    }
    let mut rest = bytes;
    while let Ok(Some((frame, length))) = MasterFrame::decode(rest) {
        let mut again = Vec::new();
        frame.encode(&mut again);
        assert_eq!(MasterFrame::decode(&again), Ok(Some((frame, again.len()))));
        // What is left of a table of epochs behind its last whole entry says nothing.
        assert!(again.len() <= length);
        rest = &rest[length..];
    }
}
