//! A body from a client or a configuration file of a broker.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rocketmq_fuzz::fastjson::run(bytes));
