//! RocketMQ's wire and record formats: bytes only, no I/O.
//!
//! `docs/wire-protocol.md` draws the frame to the byte and says where each header is declared.

pub mod body;
pub mod code;
pub mod config;
pub mod ext;
pub mod fastjson;
pub mod frame;
pub mod hash;
pub mod header;
mod json_scan;
pub mod language;
pub mod message;
pub mod names;
pub mod response;
pub mod subscription;
pub mod version;
