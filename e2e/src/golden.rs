//! The store that a Java broker left behind, and what it says is in it.
//!
//! testdata/golden/README.md tells how it was made.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::environment;

/// Settings of the broker that wrote it; file sizes must be the same to read it.
pub const SETTINGS: &[(&str, &str)] = &[
    ("mappedFileSizeCommitLog", "65536"),
    ("maxMessageSize", "32768"),
    ("mappedFileSizeConsumeQueue", "160"),
    ("maxHashSlotNum", "100"),
    ("maxIndexNum", "150"),
    ("mappedFileSizeTimerLog", "65536"),
    ("enablePropertyFilter", "true"),
    // Its open transaction is not asked about while a test looks on.
    ("transactionTimeOut", "600000"),
    ("transactionCheckInterval", "600000"),
];

/// brokerName of the broker that wrote it.
pub const BROKER_NAME: &str = "golden-0";

/// testdata/golden.
pub fn directory() -> PathBuf {
    environment::source().join("testdata/golden")
}

/// Unpacks `clean` or `unclean`; the archive's own top directory is `store`.
pub fn unpack(name: &str, into: &Path) -> Result<()> {
    let path = directory().join(format!("{name}.tar.zst"));
    let file = File::open(&path).with_context(|| path.display().to_string())?;
    let stream = ruzstd::decoding::StreamingDecoder::new(BufReader::new(file))
        .map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
    tar::Archive::new(stream).unpack(into).with_context(|| path.display().to_string())?;
    Ok(())
}

/// manifest.json.
pub fn manifest() -> Result<Value> {
    let path = directory().join("manifest.json");
    let file = File::open(&path).with_context(|| path.display().to_string())?;
    Ok(serde_json::from_reader(BufReader::new(file))?)
}
