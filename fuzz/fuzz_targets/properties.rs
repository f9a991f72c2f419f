//! A message's property string, as it comes from a client or a disk.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rocketmq_fuzz::properties::run(bytes));
