//! Where the programs under test and the foreign clients are.
//!
//! `cargo xtask test` builds everything and says where by environment
//! variables. Without them the binaries are those of the release profile, and
//! the clients are built here once, keyed by the content of their sources.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};

/// The directory of this crate in the source tree.
pub fn source() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A binary of ours by name: `namesrv`, `broker`, `operator`, `rmq`.
pub fn binary(name: &str) -> Result<PathBuf> {
    let directory = match variable("ROCKETMQ_E2E_BIN_DIR") {
        Some(directory) => directory,
        None => variable("CARGO_TARGET_DIR")
            .unwrap_or_else(|| source().join("../target"))
            .join("release"),
    };
    let path = directory.join(name);
    ensure!(
        path.is_file(),
        "{} is missing: run `cargo xtask test interop`, or `cargo build --release --bin {name}` first",
        path.display()
    );
    Ok(path)
}

/// Java libraries as e2e/java builds them: `4.9.8`, `5.3.3`, and such with `mqadmin-` and `peer-` before
/// a version.
pub fn java_library(name: &str) -> Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let directory = match variable("ROCKETMQ_E2E_JAVA_DIR") {
        Some(directory) => directory,
        None => built_once(&BUILT, build_java)?,
    };
    let library = directory.join("target").join(format!("lib-{name}"));
    ensure!(
        library.is_dir(),
        "{} is missing: run `mvn -q -B package` in {}",
        library.display(),
        directory.display()
    );
    Ok(library)
}

/// The Go client program.
pub fn go_program() -> Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match variable("ROCKETMQ_E2E_GO_PEER") {
        Some(program) => Ok(program),
        None => built_once(&BUILT, build_go),
    }
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn built_once(
    cell: &OnceLock<Result<PathBuf, String>>,
    build: fn() -> Result<PathBuf>,
) -> Result<PathBuf> {
    cell.get_or_init(|| build().map_err(|error| format!("{error:#}")))
        .clone()
        .map_err(anyhow::Error::msg)
}

fn build_java() -> Result<PathBuf> {
    cached("java", &source().join("java"), "target", |directory| {
        run(Command::new("mvn").args(["-q", "-B", "package"]).current_dir(directory))
    })
}

fn build_go() -> Result<PathBuf> {
    let directory = cached("go", &source().join("go"), "bin", |directory| {
        run(Command::new("go")
            .args(["build", "-trimpath", "-o", "bin/peer", "."])
            .current_dir(directory))
    })?;
    Ok(directory.join("bin/peer"))
}

/// A copy of `sources` in the cache, named after their content, in which `build` has run once.
fn cached(
    name: &str,
    sources: &Path,
    output: &str,
    build: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let cache = cache()?;
    fs::create_dir_all(&cache).with_context(|| format!("cache {}", cache.display()))?;
    let mut files = Vec::new();
    collect(sources, Path::new(""), output, &mut files)?;
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in &files {
        (file, fs::read(sources.join(file))?).hash(&mut hasher);
    }
    let directory = cache.join(format!("{name}-{:016x}", hasher.finish()));
    let lock = File::create(cache.join(format!("{name}.lock")))?;
    lock.lock()?;
    let done = directory.join(".built");
    if !done.exists() {
        for file in &files {
            let target = directory.join(file);
            if let Some(parent) = target.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::copy(sources.join(file), target)?;
        }
        build(&directory)?;
        remove_unused(&cache, name, SystemTime::now())?;
    }
    // Its age is how long the build has not been used.
    File::create(done)?.set_modified(SystemTime::now())?;
    Ok(directory)
}

/// How long a build of other sources is kept: another tree may be using it.
const UNUSED_FOR: Duration = Duration::from_secs(24 * 3600);

/// Removes the finished builds of `name` that nobody has used for a day; they would pile up with every
/// change of the sources.
fn remove_unused(cache: &Path, name: &str, now: SystemTime) -> Result<()> {
    for entry in fs::read_dir(cache)? {
        let path = entry?.path();
        let is_build = path
            .file_name()
            .and_then(|file| file.to_str()?.strip_prefix(name)?.strip_prefix('-'))
            .is_some_and(|hash| hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()));
        let Ok(used) = fs::metadata(path.join(".built")).and_then(|built| built.modified()) else {
            continue;
        };
        if is_build && now.duration_since(used).is_ok_and(|unused| unused > UNUSED_FOR) {
            fs::remove_dir_all(&path)
                .with_context(|| format!("remove the old build {}", path.display()))?;
        }
    }
    Ok(())
}

fn cache() -> Result<PathBuf> {
    let root = match variable("ROCKETMQ_E2E_CACHE").or_else(|| variable("ROCKETMQ_CACHE")) {
        Some(root) => root,
        None => variable("HOME").context("HOME is not set")?.join(".cache/rocketmq-rs"),
    };
    Ok(root.join("e2e"))
}

/// Every file under `root` but what a build puts there.
fn collect(root: &Path, under: &Path, output: &str, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(root.join(under))? {
        let entry = entry?;
        let path = under.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            if entry.file_name() != output {
                collect(root, &path, output, files)?;
            }
        } else {
            files.push(path);
        }
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("start {command:?}"))?;
    if !output.status.success() {
        bail!(
            "{command:?} ended with {}:\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_that_nobody_uses_are_removed() -> Result<()> {
        let cache = tempfile::tempdir()?;
        let [java, other, unfinished, go] =
            ["java-0123456789abcdef", "java-tools", "java-aaaaaaaaaaaaaaaa", "go-0123456789abcdef"]
                .map(|name| cache.path().join(name));
        for directory in [&java, &other, &unfinished, &go] {
            fs::create_dir(directory)?;
        }
        for directory in [&java, &other, &go] {
            File::create(directory.join(".built"))?;
        }
        let now = SystemTime::now();
        remove_unused(cache.path(), "java", now)?;
        ensure!(java.is_dir(), "a build of today is kept");
        remove_unused(cache.path(), "java", now + UNUSED_FOR + Duration::from_secs(60))?;
        ensure!(!java.exists(), "a build of the day before yesterday is removed");
        ensure!(other.is_dir() && unfinished.is_dir() && go.is_dir(), "and nothing else");
        Ok(())
    }
}
