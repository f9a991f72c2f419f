//! An index file: the bytes are one, of a layout that they choose; each chain ends and stays inside.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rocketmq_fuzz::index::run(bytes));
