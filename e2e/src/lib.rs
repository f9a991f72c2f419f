//! What the end-to-end tests share: programs of ours and of others as child
//! processes, and the ledger that judges what they report.
//!
//! The tests themselves are under tests/. Kubernetes is known to `kubernetes` alone.

pub mod admin;
pub mod appointed;
pub mod chance;
pub mod disk;
pub mod environment;
pub mod golden;
pub mod kubernetes;
pub mod lease_server;
pub mod ledger;
pub mod line;
pub mod peer;
pub mod ports;
pub mod process;
pub mod programs;
pub mod raw;
pub mod record;
pub mod transcript;
pub mod wait;
