//! Masters that are appointed: RocketMQ 5's stream of its controller mode, and what is on disk for it.
//!
//! - [`stream`]: the bytes between a master and its slaves.
//! - [`epoch_file`]: where in the log each epoch began.

pub mod epoch_file;
pub mod stream;
