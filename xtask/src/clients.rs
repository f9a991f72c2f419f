//! The foreign clients that tests drive: Apache's Java clients and tools, and the
//! Go client, built from e2e/java and e2e/go; and a Java runtime small enough to
//! travel in an image.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::programs::require;
use crate::progress::step;
use crate::{process, workspace};

/// What e2e/java puts into its target directory for the pods of the tests.
pub const JAVA_LIBRARIES: [&str; 3] = ["lib-4.9.8", "lib-5.3.3", "lib-mqadmin-5.3.3"];

/// The modules of the JDK that Apache's clients and tools load.
const JAVA_MODULES: &str = "java.base,java.desktop,java.instrument,java.logging,java.management,java.naming,\
                            java.net.http,java.rmi,java.security.jgss,java.security.sasl,java.sql,java.xml,\
                            jdk.crypto.ec,jdk.management,jdk.unsupported";

fn java_directory() -> PathBuf {
    workspace::root().join("e2e/java")
}

/// Where the built Java programs are.
pub fn java_target() -> PathBuf {
    java_directory().join("target")
}

/// Builds the Java programs; returns e2e/java.
pub fn java() -> Result<PathBuf> {
    require("mvn", "maven")?;
    let directory = java_directory();
    step("build the Java clients", || {
        process::capture(Command::new("mvn").args(["-q", "-B", "package"]).current_dir(&directory))
    })?;
    Ok(directory)
}

/// Builds the Go program; returns its path.
pub fn go() -> Result<PathBuf> {
    let directory = workspace::root().join("e2e/go");
    let program = directory.join("bin/peer");
    step("build the Go client", || {
        process::capture(
            Command::new("go")
                .args(["build", "-trimpath", "-o"])
                .arg(&program)
                .arg(".")
                .current_dir(&directory),
        )
    })?;
    Ok(program)
}

/// A Java runtime with the modules the clients need, made once from this machine's JDK.
pub fn java_runtime() -> Result<PathBuf> {
    let version = process::capture(Command::new("java").arg("--version"))?;
    let number =
        version.split_whitespace().nth(1).context("`java --version` printed no version")?;
    let runtime = workspace::cache().join(format!("jre-{number}"));
    if runtime.exists() {
        return Ok(runtime);
    }
    require_jlink()?;
    let part = runtime.with_extension("part");
    if part.exists() {
        fs::remove_dir_all(&part)?;
    }
    step("make a small Java runtime", || {
        process::capture(
            Command::new("jlink")
                .args(["--add-modules", JAVA_MODULES, "--strip-java-debug-attributes"])
                .args(["--no-header-files", "--no-man-pages", "--output"])
                .arg(&part),
        )
    })?;
    fs::rename(&part, &runtime)?;
    Ok(runtime)
}

fn require_jlink() -> Result<()> {
    if process::succeeds(Command::new("jlink").arg("--version")) {
        return Ok(());
    }
    if Path::new("/usr/bin/apt-get").exists() {
        return require("jlink", "openjdk-17-jdk-headless");
    }
    bail!("`jlink` is missing: it comes with a JDK, not with a JRE")
}
