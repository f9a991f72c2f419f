//! RocketMQ remoting over sockets: server and client.
//!
//! - [`server`]: listeners and I/O threads; every connection is driven inline on one of them.
//! - [`service`]: what a server does with the requests of one socket read.
//! - [`connection`]: a connection as seen from any thread: answers, server-to-client requests, bounds.
//! - [`output`]: answers gathered for one socket write.
//! - [`client`]: calls by address, with reconnection.
//! - [`call`]: a request to send, its answer, and how a call fails.
//! - [`counters`]: socket reads, writes and frames, for metrics and benchmarks.
//! - [`monitoring`]: `/metrics`, `/livez` and `/readyz` over HTTP.
//!
//! TLS is not here yet: a TLS hello is answered by closing the connection with a log line.

#![forbid(unsafe_code)]

pub mod call;
pub mod client;
pub mod connection;
pub mod counters;
mod descriptors;
mod driver;
mod input_budget;
pub mod monitoring;
pub mod output;
mod pending;
pub mod server;
pub mod service;
mod write;

pub use call::{CallError, Request, ResponseFrame};
pub use client::{Client, ClientConfig, ClientRequestHandler};
pub use connection::{Connection, InFlight};
pub use counters::{SocketCounters, SocketCounts};
pub use output::Output;
pub use server::{Server, ServerConfig, bind};
pub use service::Service;
