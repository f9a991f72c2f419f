//! RocketMQ broker: takes messages from producers, keeps them, hands them to consumers.
//!
//! - [`broker`]: start and stop, in which order.
//! - [`state`]: what all handlers share.
//! - [`config`]: the keys of `broker.conf`.
//! - [`handler`]: one function a request code.
//! - [`delay`]: messages that wait for their time.
//! - [`transaction`]: messages that wait for their producer's decision.
//! - [`metadata`]: topics, groups, consumer offsets, and their files.
//! - [`client_table`], [`lock_table`], [`long_poll`], [`flush_waits`]: what is known only while it runs.
//! - [`registration`], [`change_signal`]: name servers.
//! - [`coordinator`]: the record that says who is master of the group.
//! - [`replication`]: copies of the log, as a master and as a slave.
//! - [`role`]: master or slave, and the switch between them.
//! - [`metrics`], [`runtime_info`], [`health`]: what people and probes are told.

#![forbid(unsafe_code)]

pub mod address;
pub mod assignment;
pub mod broker;
pub mod change_signal;
pub mod client_table;
pub mod clock;
pub mod config;
mod confirm_waits;
pub mod coordinator;
pub mod delay;
pub mod error;
pub mod filter;
pub mod flush_waits;
pub mod handler;
pub mod health;
mod housekeeping;
pub mod lock_table;
pub mod long_poll;
pub mod metadata;
pub mod metrics;
pub mod registration;
pub mod replication;
mod request;
pub mod role;
pub mod runtime_info;
pub mod state;
pub mod transaction;

pub use broker::Broker;
pub use config::{BrokerConfig, LoadedConfig};
pub use error::StartError;
