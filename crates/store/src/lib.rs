//! RocketMQ's message store: CommitLog, ConsumeQueue, recovery.
