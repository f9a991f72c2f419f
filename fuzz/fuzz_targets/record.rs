//! Bytes of a CommitLog, of a pull's answer, of a client's batch; message ids.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rocketmq_fuzz::record::run(bytes));
