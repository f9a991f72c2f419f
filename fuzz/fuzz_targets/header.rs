//! Bytes of a header in either encoding, read as the typed headers of the hot path.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rocketmq_fuzz::header::run(bytes));
