//! RocketMQ name server.
