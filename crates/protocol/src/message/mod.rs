//! The message as bytes: CommitLog record, properties, ids, and the client's batch body.
//!
//! Owns the layouts only. Where records are kept is the store's business, and which messages are
//! acceptable is the broker's.

pub mod batch;
pub mod id;
pub mod properties;
pub mod record;
