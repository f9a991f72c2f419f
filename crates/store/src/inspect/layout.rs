//! How long the files of a directory are, as they themselves say.

use std::collections::BTreeMap;
use std::path::Path;

use crate::config::StoreConfig;
use crate::consume_queue::QueueFormat;
use crate::error::StoreError;
use crate::file_system::FileSystem;
use crate::mapped_file_queue::parse_file_name;

/// Settings for a directory whose broker.conf is not at hand: RocketMQ's defaults, and the lengths
/// that most files have.
///
/// # Errors
/// When `root_dir` does not exist or a directory cannot be listed.
pub fn found_config(
    file_system: &dyn FileSystem,
    root_dir: &Path,
) -> Result<StoreConfig, StoreError> {
    let mut config = StoreConfig::new(root_dir);
    // Says by name when there is no such directory.
    file_system.list(root_dir).map_err(StoreError::io("list", root_dir))?;
    let mut lengths = Lengths::default();
    for directory in super::log_directories(&config) {
        lengths.count(file_system, directory)?;
    }
    // A file cannot be shorter than a page of the smallest setting, or begin off its length.
    if let Some(bytes) = lengths.most_frequent(4096) {
        config.commit_log_file_bytes = bytes;
    }
    config.consume_queue_file_bytes = queue_file_bytes(file_system, &config, QueueFormat::Simple)?;
    config.batch_consume_queue_file_bytes =
        queue_file_bytes(file_system, &config, QueueFormat::Batch)?;
    // The length of an index file does not tell its slots from its entries. Files of another length
    // than the default are left alone; the next start of the broker brings them to agree with the log.
    let mut lengths = Lengths::default();
    let index = root_dir.join("index");
    lengths.count_if(file_system, &index, crate::index::is_file_name)?;
    let default = config.index_layout().file_bytes();
    let is_default = |bytes: &u64| *bytes == default;
    config.message_index_enable = !lengths.0.is_empty() && lengths.0.keys().all(is_default);
    Ok(config)
}

/// The length that most files of queues of this format have; that of `config` if there are none.
fn queue_file_bytes(
    file_system: &dyn FileSystem,
    config: &StoreConfig,
    format: QueueFormat,
) -> Result<u64, StoreError> {
    let mut lengths = Lengths::default();
    for topic in directories(file_system, &config.root_dir.join(format.directory_name()))? {
        for queue in directories(file_system, &topic)? {
            lengths.count(file_system, &queue)?;
        }
    }
    let found = lengths.most_frequent(format.unit_bytes() as u64);
    Ok(found.unwrap_or_else(|| config.queue_file_bytes(format)))
}

/// The directories in a directory, which need not exist.
pub(super) fn directories(
    file_system: &dyn FileSystem,
    path: &Path,
) -> Result<Vec<std::path::PathBuf>, StoreError> {
    if !file_system.exists(path).map_err(StoreError::io("look for", path))? {
        return Ok(Vec::new());
    }
    let entries = file_system.list(path).map_err(StoreError::io("list", path))?;
    Ok(entries
        .into_iter()
        .filter(|entry| entry.is_directory)
        .map(|entry| path.join(entry.name))
        .collect())
}

/// How many files have which length.
#[derive(Debug, Default)]
struct Lengths(BTreeMap<u64, usize>);

impl Lengths {
    fn count(&mut self, file_system: &dyn FileSystem, path: &Path) -> Result<(), StoreError> {
        self.count_if(file_system, path, |name| parse_file_name(name).is_some())
    }

    fn count_if(
        &mut self,
        file_system: &dyn FileSystem,
        path: &Path,
        is_counted: impl Fn(&str) -> bool,
    ) -> Result<(), StoreError> {
        if !file_system.exists(path).map_err(StoreError::io("look for", path))? {
            return Ok(());
        }
        for entry in file_system.list(path).map_err(StoreError::io("list", path))? {
            if is_counted(&entry.name) && !entry.is_directory && !entry.is_special {
                *self.0.entry(entry.bytes).or_default() += 1;
            }
        }
        Ok(())
    }

    /// The length of most files, the longest of several; only lengths from `min` on count.
    fn most_frequent(&self, min: u64) -> Option<u64> {
        let counted = self.0.range(min..).max_by_key(|(bytes, count)| (**count, **bytes));
        counted.map(|(bytes, _)| *bytes)
    }
}
