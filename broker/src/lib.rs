//! RocketMQ broker.
