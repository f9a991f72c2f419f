//! Where things are: the tree, the cache outside it, the build directory.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use anyhow::{Context, Result};

use crate::process;

/// The root of the tree.
pub fn root() -> &'static Path {
    static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
        // Set by cargo for what it runs; the path at compile time serves a binary
        // that was started by hand.
        let package = env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        package.parent().map_or(package.clone(), Path::to_path_buf)
    });
    &ROOT
}

/// The cache that outlives a clone: `$ROCKETMQ_CACHE`, else a directory of the
/// user's cache. The scripts under e2e/cluster derive the same path.
pub fn cache() -> PathBuf {
    env::var_os("ROCKETMQ_CACHE").map_or_else(
        || {
            let home = env::var_os("HOME").unwrap_or_else(|| "/root".into());
            PathBuf::from(home).join(".cache/rocketmq-rs")
        },
        PathBuf::from,
    )
}

/// cargo's target directory, wherever the environment puts it.
pub fn target() -> Result<PathBuf> {
    let text = process::capture(cargo().args(["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&text).context("read cargo metadata")?;
    let directory =
        metadata["target_directory"].as_str().context("no target_directory in cargo metadata")?;
    Ok(PathBuf::from(directory))
}

/// The cargo that runs this, working in the root of the tree.
pub fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    // Of this crate, and no business of what it starts.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// `PATH` with the cache's own tools (kubectl, helm, kind) in front.
pub fn path_with_tools() -> Result<std::ffi::OsString> {
    let present = env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(cache().join("bin")).chain(env::split_paths(&present));
    env::join_paths(all)
        .context("the cache's path has a colon in it: set ROCKETMQ_CACHE to one without")
}
