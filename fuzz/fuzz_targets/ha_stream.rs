//! Frames between a master that was appointed and its slaves: bytes of a slave, then of a master.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rocketmq_fuzz::ha_stream::run(bytes));
