//! What the broker knows besides messages, each in one `config/*.json` file of RocketMQ's shape.

pub mod attributes;
pub mod consumer_filter;
pub mod consumer_offset;
pub mod group;
pub mod perm;
pub mod persist;
pub mod topic;
