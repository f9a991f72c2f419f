//! RocketMQ's controller: it gives the brokers of each group their ids, appoints their master and
//! keeps the set of replicas that have every acknowledged message. Several controllers agree by Raft.
//!
//! Pure, without I/O and clock:
//! - [`groups`] – the replicated state and the commands that change it
//! - [`election`] – who becomes master
//! - [`liveness`] – whose heart-beats arrive; each controller's own, never replicated
//! - [`peers`] – the list of controllers as it is configured
//!
//! Around it:
//! - [`journal`] – the Raft log and the vote on disk; [`snapshot`] – the state on disk
//! - `log_store`, `state_store`, `network` – what openraft asks for, on top of those
//! - `answer`, `service` – RocketMQ's requests; `leader` – what only the leader does
//! - [`controller`] – the running controller, its threads and its stop

#![forbid(unsafe_code)]

mod answer;
pub mod controller;
pub mod election;
pub mod groups;
pub mod journal;
mod leader;
pub mod liveness;
mod log_store;
mod network;
pub mod peers;
mod raft;
mod service;
pub mod settings;
pub mod snapshot;
mod state_store;

pub use controller::{Controller, ControllerConfig, StartError};
pub use settings::{Settings, Tunables, UpdateRefused};
