//! JSON as fastjson 1.x speaks it, for bodies and for the broker's `config/*.json` files.
//!
//! The reader takes what fastjson takes: unquoted names, integer and object-literal keys, single
//! quotes, extra commas, references. The writer writes what fastjson writes by default, except that
//! integer keys are quoted, which fastjson and strict readers both take. An object-literal key
//! (`{{"topic":"t"}:1}`) is written for any map whose key is a struct.

mod ser;

pub use ser::{to_vec, to_vec_pretty};
