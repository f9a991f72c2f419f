//! RocketMQ's name server: brokers register here, clients ask where a topic's queues are.
//!
//! - [`config`] – namesrv.conf
//! - `controller` – the controller in this process, and what it is told by namesrv.conf
//! - [`namesrv`] – the running server, its threads and its stop
//! - `handler` – requests, by code
//! - [`route_table`] – who is where (pure)
//! - [`kv_table`] – key-value configuration and its file
//! - `settings` – the running configuration
//! - `background` – expiry, notices, health and metrics
//! - [`safe_file`] – small files that survive a crash

#![forbid(unsafe_code)]

mod background;
pub mod config;
mod controller;
mod handler;
pub mod kv_table;
mod metrics;
pub mod namesrv;
pub mod route_table;
pub mod safe_file;
mod settings;

pub use config::NamesrvConfig;
pub use namesrv::{Namesrv, StartError};
