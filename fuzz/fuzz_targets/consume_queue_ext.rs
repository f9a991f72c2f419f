//! A unit of a ConsumeQueueExt file.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rocketmq_fuzz::consume_queue_ext::run(bytes));
