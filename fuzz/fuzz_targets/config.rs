//! A `.properties` file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rocketmq_protocol::config;

fuzz_target!(|file: &[u8]| {
    let pairs = config::parse_bytes(file);
    assert_eq!(config::parse(&config::write(&pairs)), pairs);
});
