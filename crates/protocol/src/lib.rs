//! RocketMQ's wire and record formats: bytes only, no I/O.
