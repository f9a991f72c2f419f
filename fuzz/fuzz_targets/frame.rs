//! Bytes from a socket: frames are split off, decoded, written again and must read the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rocketmq_fuzz::frame::run(bytes));
