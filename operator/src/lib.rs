//! Kubernetes operator for RocketMQ.
