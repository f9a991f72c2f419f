//! An SQL92 filter as a client writes it, and a message's property string: the text ends at the first
//! zero byte.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rocketmq_fuzz::sql_filter::run(bytes));
