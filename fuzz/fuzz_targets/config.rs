//! A `.properties` file.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rocketmq_fuzz::config::run(bytes));
