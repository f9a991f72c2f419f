//! A `.properties` file.

use rocketmq_protocol::config;

/// What the target does with its input.
pub fn run(file: &[u8]) {
    let pairs = config::parse_bytes(file);
    assert_eq!(config::parse(&config::write(&pairs)), pairs);
}
