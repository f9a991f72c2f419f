//! Small files next to the store, replaced as a whole: after a crash the old one or the new one.

use std::path::{Path, PathBuf};

use rocketmq_store::small_file::{read_small_file, write_small_file};
use rocketmq_store::{FileSystem, StoreError};

use rocketmq_simulation::Random;

#[derive(Debug)]
pub struct Metadata {
    path: PathBuf,
    /// Version that was acknowledged, 0 for none.
    acknowledged: u64,
    /// Newest version that was written, with whatever success.
    tried: u64,
}

impl Metadata {
    pub fn new(path: PathBuf) -> Metadata {
        Metadata { path, acknowledged: 0, tried: 0 }
    }

    /// Writes the next version.
    pub fn write(&mut self, file_system: &dyn FileSystem) -> Result<(), StoreError> {
        self.tried += 1;
        write_small_file(file_system, &self.path, &contents(self.tried))?;
        self.acknowledged = self.tried;
        Ok(())
    }

    pub fn check(&self, file_system: &dyn FileSystem) -> Result<(), String> {
        let read = read_small_file(file_system, &self.path, version);
        let read = read.map_err(|error| error.to_string())?.map_or(0, |file| file.value);
        if (self.acknowledged..=self.tried).contains(&read) {
            return Ok(());
        }
        Err(format!(
            "{} holds version {read}, {} was acknowledged and {} tried",
            self.path.display(),
            self.acknowledged,
            self.tried
        ))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// A version is longer or shorter than the one before.
fn contents(version: u64) -> Vec<u8> {
    let bytes = Random::new(version).below(1500) as usize;
    format!("{version} {}.", "x".repeat(bytes)).into_bytes()
}

fn version(bytes: &[u8]) -> Result<u64, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let version = text.split(' ').next().and_then(|word| word.parse().ok()).ok_or("no version")?;
    if contents(version) == bytes { Ok(version) } else { Err("damaged".to_owned()) }
}
