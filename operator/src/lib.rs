//! Kubernetes operator for RocketMQ: custom resource types and their reconcilers.

pub mod admin;
pub mod apply;
pub mod brokers;
pub mod build;
pub mod cluster;
pub mod conditions;
pub mod consumer_group;
pub mod context;
pub mod crd;
pub mod error;
pub mod events;
pub mod failover;
pub mod http;
pub mod lease;
pub mod metrics;
pub mod pokes;
pub mod rocketmq;
pub mod run;
pub mod settings;
pub mod topic;

#[cfg(test)]
mod testing;
