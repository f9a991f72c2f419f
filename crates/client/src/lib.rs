//! RocketMQ client: producer, consumer, admin calls.
