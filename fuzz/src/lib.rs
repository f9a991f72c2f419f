//! What each fuzz target does with its input. Tests of the crates that own the code run the same on
//! the kept corpus.

pub mod config;
pub mod consume_queue_ext;
pub mod fastjson;
pub mod frame;
pub mod ha_stream;
pub mod header;
pub mod index;
pub mod properties;
pub mod record;
pub mod sql_filter;
