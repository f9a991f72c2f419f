//! Typed bodies: JSON in fastjson's form, by request family.
//!
//! Fields are in alphabetical order, as fastjson writes them. Absent fields take their defaults,
//! unknown ones are ignored.

pub mod assignment;
pub mod auth;
pub mod consume;
pub mod controller;
pub mod data_version;
pub mod group;
pub mod heartbeat;
pub mod kv;
pub mod lock;
pub mod message_queue;
pub mod offset;
pub mod queue_mapping;
pub mod registration;
pub mod replication;
pub mod route;
pub mod topic;

pub use data_version::DataVersion;
pub use group::SubscriptionGroupConfig;
pub use heartbeat::{ConsumerData, HeartbeatData, ProducerData};
pub use kv::KVTable;
pub use message_queue::MessageQueue;
pub use queue_mapping::TopicQueueMappingInfo;
pub use registration::RegisterBrokerBody;
pub use topic::{TopicConfig, TopicConfigSerializeWrapper};
