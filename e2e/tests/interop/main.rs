//! Our plain binaries under unmodified foreign clients and tools, under kill -9,
//! on the store of a Java broker, on bad disks, and under bad input.
//!
//! `ROCKETMQ_E2E_PEER=java` runs the same tests against Apache's broker.

mod bad_input;
mod batch_queues;
mod clients;
mod controller;
mod delays;
mod disk;
mod failover;
mod filters;
mod golden;
mod groups;
mod kills;
mod mqadmin;
mod mqadmin_groups;
mod mqadmin_table;
mod replication;
mod request_reply;
mod restarts;
mod takeover;
mod transactions;
