//! JSON as fastjson 1.x speaks it, for bodies and for the broker's `config/*.json` files.
//!
//! The reader takes what fastjson takes: unquoted names, integer and object-literal keys, single
//! quotes, extra commas, comments, references. It turns the text into strict JSON in one pass (see
//! `normalize`) and leaves the rest to serde_json. A member that is null counts as absent, since
//! that is what it means to Java. The writer writes what fastjson writes by default, except that
//! integer keys are quoted, which fastjson and strict readers both take. An object-literal key
//! (`{{"topic":"t"}:1}`) is written for any map whose key is a struct.

mod normalize;
mod reference;
mod ser;

use serde::de::DeserializeOwned;
use thiserror::Error;

pub use normalize::normalize;
pub use ser::{to_vec, to_vec_pretty};

/// How deep objects and arrays may nest.
pub const DEPTH_MAX: usize = 64;

/// Why a text is not the JSON it should be.
#[derive(Debug, Error)]
pub enum JsonError {
    /// The text is no JSON, not even by fastjson's standards.
    #[error("not JSON: {expected} expected at byte {at}")]
    Syntax {
        /// Byte offset in the text.
        at: usize,
        /// What would have been right there.
        expected: &'static str,
    },
    /// The text is not UTF-8.
    #[error("JSON text is not UTF-8 at byte {at}")]
    Utf8 {
        /// Byte offset in the text.
        at: usize,
    },
    /// It is JSON, but not of the shape asked for.
    #[error("JSON of another shape: {0}")]
    Shape(#[from] serde_json::Error),
}

/// Reads a value.
///
/// # Errors
///
/// The text is not UTF-8, not JSON by fastjson's standards, or of another shape.
pub fn from_slice<T: DeserializeOwned>(text: &[u8]) -> Result<T, JsonError> {
    let text = std::str::from_utf8(text).map_err(|e| JsonError::Utf8 { at: e.valid_up_to() })?;
    from_str(text)
}

/// Reads a value.
///
/// # Errors
///
/// The text is not JSON by fastjson's standards, or of another shape.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, JsonError> {
    let normal = normalize(text)?;
    if normal.has_references {
        let mut value = serde_json::from_str(&normal.json)?;
        reference::resolve(&mut value);
        return Ok(serde_json::from_value(value)?);
    }
    Ok(serde_json::from_str(&normal.json)?)
}

#[cfg(test)]
mod tests;
