//! A small disk of the test's own, to be filled and made read-only.
//!
//! It is a tmpfs, so root is needed; nothing else of the machine's disks is touched.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// A mounted file system; unmounted when dropped.
pub struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    /// Mounts an empty disk of `bytes` at `path`, which is made.
    pub fn mount(path: &Path, bytes: u64) -> Result<SmallDisk> {
        fs::create_dir_all(path)?;
        let size = format!("size={bytes}");
        run("mount", &["-t", "tmpfs", "-o", &size, "rocketmq-e2e"], path)?;
        Ok(SmallDisk { path: path.to_owned() })
    }

    /// Makes it read-only, or writable again. Nothing may have a file open for writing.
    pub fn set_read_only(&self, read_only: bool) -> Result<()> {
        run("mount", &["-o", if read_only { "remount,ro" } else { "remount,rw" }], &self.path)
    }

    /// Takes `bytes` of its space, until [`SmallDisk::give_back`].
    pub fn take(&self, bytes: u64) -> Result<()> {
        let mut file = File::create(self.ballast())?;
        let block = vec![1; 1024 * 1024];
        let mut left = bytes;
        while left > 0 {
            let part = left.min(block.len() as u64);
            file.write_all(&block[..part as usize])?;
            left -= part;
        }
        Ok(())
    }

    /// Used share, 0 to 1.
    pub fn used(&self) -> Result<f64> {
        let space = rustix::fs::statvfs(&self.path)?;
        Ok(1.0 - space.f_bavail as f64 / space.f_blocks as f64)
    }

    /// Gives back what [`SmallDisk::take`] took.
    pub fn give_back(&self) -> Result<()> {
        fs::remove_file(self.ballast())?;
        Ok(())
    }

    fn ballast(&self) -> PathBuf {
        self.path.join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a broker that still runs is killed after this.
        if let Err(error) = run("umount", &["-l"], &self.path) {
            eprintln!("{error:#}");
        }
    }
}

fn run(program: &str, arguments: &[&str], path: &Path) -> Result<()> {
    let output = Command::new(program)
        .args(arguments)
        .arg(path)
        .output()
        .with_context(|| format!("start {program}"))?;
    ensure!(
        output.status.success(),
        "{program} {} {}: {} (this test needs root)",
        arguments.join(" "),
        path.display(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
