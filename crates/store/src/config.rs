//! The store's settings, with RocketMQ's meanings and defaults (`MessageStoreConfig`).
//!
//! Reading them from broker.conf is the broker's business.

use std::path::PathBuf;

use crate::consume_queue::{BATCH_UNIT_BYTES, QueueFormat, UNIT_BYTES};
use crate::error::StoreError;
use crate::index::file::Layout;
use crate::log_directories::LogDirectories;

/// When an append counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlushDiskType {
    /// When it is in the page cache; a flusher syncs from time to time.
    #[default]
    Async,
    /// When it is on disk; waiters are synced in groups.
    Sync,
}

/// Most that waits in the buffer of `transientStorePoolEnable`; an append that finds it full
/// commits it.
pub const WRITE_BUFFER_BYTES_MAX: usize = 64 << 20;

/// Settings of a store. Each field names its key in broker.conf.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// `storePathRootDir`.
    pub root_dir: PathBuf,
    /// `storePathCommitLog`: the directories that files of the log are made in.
    pub commit_log_dirs: Vec<PathBuf>,
    /// `readOnlyCommitLogStorePaths`: directories whose files are part of the log, but in which
    /// nothing is made, written, synced or removed.
    pub read_only_commit_log_dirs: Vec<PathBuf>,
    /// `mappedFileSizeCommitLog`, in bytes.
    pub commit_log_file_bytes: u64,
    /// `mappedFileSizeConsumeQueue`, in bytes; rounded up to a multiple of 20.
    pub consume_queue_file_bytes: u64,
    /// `mapperFileSizeBatchConsumeQueue`, in bytes; rounded up to a multiple of 46.
    pub batch_consume_queue_file_bytes: u64,
    /// `enableConsumeQueueExt`: new ConsumeQueue entries get a unit with room for a bit map.
    pub enable_consume_queue_ext: bool,
    /// `mappedFileSizeConsumeQueueExt`, in bytes.
    pub consume_queue_ext_file_bytes: u64,
    /// `bitMapLengthConsumeQueueExt`: bits that such a bit map is expected to have. The filters
    /// decide.
    pub consume_queue_ext_bit_map_bits: u64,
    /// `maxMessageSize`, in bytes.
    pub message_bytes_max: usize,
    /// `autoMessageVersionOnTopicLen`: topics over 127 bytes make V2 records.
    pub auto_message_version_on_topic_len: bool,
    /// `messageIndexEnable`: whether messages can be found by key.
    pub message_index_enable: bool,
    /// `maxHashSlotNum`: hash slots of an index file.
    pub index_slots: u32,
    /// `maxIndexNum`: entries of an index file; one fewer fit.
    pub index_entries: u32,
    /// `maxMsgsNumBatch`: most messages that one query by key returns.
    pub query_count_max: usize,
    /// `flushDiskType`.
    pub flush_disk_type: FlushDiskType,
    /// `flushIntervalCommitLog`, in ms.
    pub flush_interval_commit_log_ms: u64,
    /// `flushCommitLogTimed`: the interval is slept out, whatever arrives; else a full group of
    /// pages wakes the flusher.
    pub flush_commit_log_timed: bool,
    /// `flushCommitLogLeastPages`, pages of 4 KiB.
    pub flush_commit_log_least_pages: u64,
    /// `flushCommitLogThoroughInterval`, in ms.
    pub flush_commit_log_thorough_interval_ms: u64,
    /// `transientStorePoolEnable`: appends go to a buffer in memory, which is committed to the file
    /// from time to time. Only with [`FlushDiskType::Async`].
    pub transient_store_pool_enable: bool,
    /// `transientStorePoolSize`: with the length of a log file it bounds that buffer, and
    /// [`WRITE_BUFFER_BYTES_MAX`] does.
    pub transient_store_pool_size: u64,
    /// `commitIntervalCommitLog`, in ms.
    pub commit_interval_commit_log_ms: u64,
    /// `commitCommitLogLeastPages`, pages of 4 KiB.
    pub commit_commit_log_least_pages: u64,
    /// `commitCommitLogThoroughInterval`, in ms.
    pub commit_commit_log_thorough_interval_ms: u64,
    /// `wakeCommitWhenPutMessage`: enough pages in the buffer are committed before the interval is
    /// over.
    pub wake_commit_when_put_message: bool,
    /// `warmMapedFileEnable`: a new file of the log is filled with zeros before it is used.
    pub warm_mapped_file_enable: bool,
    /// `flushLeastPagesWhenWarmMapedFile`: with [`FlushDiskType::Sync`] so many pages of 4 KiB are
    /// synced at a time meanwhile.
    pub flush_least_pages_when_warm_mapped_file: u64,
    /// `flushIntervalConsumeQueue`, in ms.
    pub flush_interval_consume_queue_ms: u64,
    /// `flushConsumeQueueLeastPages`, pages of 4 KiB.
    pub flush_consume_queue_least_pages: u64,
    /// `flushConsumeQueueThoroughInterval`, in ms.
    pub flush_consume_queue_thorough_interval_ms: u64,
    /// `checkCRCOnRecover`.
    pub check_crc_on_recover: bool,
    /// `fileReservedTime`, in hours.
    pub file_reserved_hours: u64,
    /// `deleteWhen`: hours of the day, local time.
    pub delete_when_hours: Vec<u8>,
    /// `diskMaxUsedSpaceRatio`, in percent.
    pub disk_max_used_space_percent: u32,
    /// `diskSpaceCleanForciblyRatio`, in percent.
    pub disk_space_clean_forcibly_percent: u32,
    /// `diskSpaceWarningLevelRatio`, in percent.
    pub disk_space_warning_level_percent: u32,
    /// `cleanFileForciblyEnable`.
    pub clean_file_forcibly: bool,
    /// `cleanResourceInterval`, in ms.
    pub clean_resource_interval_ms: u64,
    /// `deleteFileBatchMax`.
    pub delete_file_batch_max: usize,
    /// `deleteCommitLogFilesInterval`, in ms.
    pub delete_commit_log_files_interval_ms: u64,
    /// `deleteConsumeQueueFilesInterval`, in ms.
    pub delete_consume_queue_files_interval_ms: u64,
    /// `destroyMapedFileIntervalForcibly`, in ms: a removed file that is read for longer is
    /// reported.
    pub destroy_mapped_file_interval_forcibly_ms: u64,
    /// `redeleteHangedFileInterval`, in ms: how often that is reported.
    pub redelete_hanged_file_interval_ms: u64,
    /// `maxTransferBytesOnMessageInMemory`.
    pub transfer_bytes_max_in_memory: usize,
    /// `maxTransferCountOnMessageInMemory`.
    pub transfer_count_max_in_memory: usize,
    /// `maxTransferBytesOnMessageInDisk`.
    pub transfer_bytes_max_on_disk: usize,
    /// `maxTransferCountOnMessageInDisk`.
    pub transfer_count_max_on_disk: usize,
    /// `accessMessageInMemoryMaxRatio`, in percent of the memory.
    pub access_message_in_memory_max_percent: u32,
    /// `maxFilterMessageSize`: bytes of ConsumeQueue that one read looks at.
    pub filter_bytes_max: usize,
    /// `messageDelayLevel`: the delay of level 1, 2, ..., in ms.
    pub delay_levels_ms: Vec<i64>,
}

impl StoreConfig {
    /// RocketMQ's defaults for a store in `root_dir`.
    pub fn new(root_dir: impl Into<PathBuf>) -> StoreConfig {
        let root_dir = root_dir.into();
        StoreConfig {
            commit_log_dirs: vec![root_dir.join("commitlog")],
            read_only_commit_log_dirs: Vec::new(),
            root_dir,
            commit_log_file_bytes: 1 << 30,
            consume_queue_file_bytes: 6_000_000,
            batch_consume_queue_file_bytes: 300_000 * BATCH_UNIT_BYTES as u64,
            enable_consume_queue_ext: false,
            consume_queue_ext_file_bytes: 48 << 20,
            consume_queue_ext_bit_map_bits: 64,
            message_bytes_max: 4 << 20,
            auto_message_version_on_topic_len: true,
            message_index_enable: true,
            index_slots: 5_000_000,
            index_entries: 20_000_000,
            query_count_max: 64,
            flush_disk_type: FlushDiskType::Async,
            flush_interval_commit_log_ms: 500,
            flush_commit_log_timed: true,
            flush_commit_log_least_pages: 4,
            flush_commit_log_thorough_interval_ms: 10_000,
            transient_store_pool_enable: false,
            transient_store_pool_size: 5,
            commit_interval_commit_log_ms: 200,
            commit_commit_log_least_pages: 4,
            commit_commit_log_thorough_interval_ms: 200,
            wake_commit_when_put_message: true,
            warm_mapped_file_enable: false,
            flush_least_pages_when_warm_mapped_file: 4_096,
            flush_interval_consume_queue_ms: 1_000,
            flush_consume_queue_least_pages: 2,
            flush_consume_queue_thorough_interval_ms: 60_000,
            check_crc_on_recover: true,
            file_reserved_hours: 72,
            delete_when_hours: vec![4],
            disk_max_used_space_percent: 75,
            disk_space_clean_forcibly_percent: 85,
            disk_space_warning_level_percent: 90,
            clean_file_forcibly: true,
            clean_resource_interval_ms: 10_000,
            delete_file_batch_max: 10,
            delete_commit_log_files_interval_ms: 100,
            delete_consume_queue_files_interval_ms: 100,
            destroy_mapped_file_interval_forcibly_ms: 120_000,
            redelete_hanged_file_interval_ms: 120_000,
            transfer_bytes_max_in_memory: 256 << 10,
            transfer_count_max_in_memory: 32,
            transfer_bytes_max_on_disk: 64 << 10,
            transfer_count_max_on_disk: 8,
            access_message_in_memory_max_percent: 40,
            filter_bytes_max: 16_000,
            delay_levels_ms: default_delay_levels_ms(),
        }
    }

    /// Most bytes of the buffer of `transientStorePoolEnable`; none if there is no buffer.
    pub(crate) fn write_buffer_bytes_max(&self) -> Option<usize> {
        let pool_bytes =
            self.transient_store_pool_size.max(1).saturating_mul(self.commit_log_file_bytes);
        let bytes_max =
            usize::try_from(pool_bytes).unwrap_or(usize::MAX).min(WRITE_BUFFER_BYTES_MAX);
        self.transient_store_pool_enable.then_some(bytes_max)
    }

    /// Length of the files of queues of this format.
    pub(crate) fn queue_file_bytes(&self, format: QueueFormat) -> u64 {
        match format {
            QueueFormat::Simple => self.consume_queue_file_bytes,
            QueueFormat::Batch => self.batch_consume_queue_file_bytes,
        }
    }

    /// The size of index files.
    pub(crate) fn index_layout(&self) -> Layout {
        Layout { slots: self.index_slots, entries: self.index_entries }
    }

    /// Checks ranges and rounds what RocketMQ rounds.
    ///
    /// # Errors
    /// Names the key, its value and what is allowed.
    pub(crate) fn validated(mut self) -> Result<StoreConfig, StoreError> {
        let in_range = |key, value: u64, allowed, range: std::ops::RangeInclusive<u64>| {
            if range.contains(&value) {
                return Ok(());
            }
            Err(StoreError::Config { key, value: value.to_string(), allowed })
        };
        in_range(
            "mappedFileSizeCommitLog",
            self.commit_log_file_bytes,
            "4096 to 1099511627776",
            4096..=1 << 40,
        )?;
        in_range(
            "mappedFileSizeConsumeQueue",
            self.consume_queue_file_bytes,
            "20 to 4294967296",
            20..=1 << 32,
        )?;
        in_range(
            "mapperFileSizeBatchConsumeQueue",
            self.batch_consume_queue_file_bytes,
            "46 to 4294967296",
            46..=1 << 32,
        )?;
        in_range(
            "mappedFileSizeConsumeQueueExt",
            self.consume_queue_ext_file_bytes,
            "32771 to 4294967296",
            32_771..=1 << 32,
        )?;
        in_range("maxMessageSize", self.message_bytes_max as u64, "1 to 1073741824", 1..=1 << 30)?;
        if self.transient_store_pool_enable && self.flush_disk_type == FlushDiskType::Sync {
            return Err(StoreError::Config {
                key: "transientStorePoolEnable",
                value: "true with flushDiskType=SYNC_FLUSH".to_owned(),
                allowed: "false, or true with flushDiskType=ASYNC_FLUSH: what waits in a buffer \
                          cannot be on disk",
            });
        }
        if LogDirectories::of(&self).writable().is_empty() {
            return Err(StoreError::Config {
                key: "storePathCommitLog",
                value: if self.commit_log_dirs.is_empty() { "empty" } else { "read-only" }.into(),
                allowed: "at least one directory that is not in readOnlyCommitLogStorePaths",
            });
        }
        in_range("maxHashSlotNum", self.index_slots.into(), "1 to 500000000", 1..=500_000_000)?;
        in_range("maxIndexNum", self.index_entries.into(), "2 to 100000000", 2..=100_000_000)?;
        // Java maps the file, which it can do up to this length.
        let index_bytes = self.index_layout().file_bytes();
        if index_bytes > i32::MAX as u64 {
            return Err(StoreError::Config {
                key: "maxHashSlotNum * 4 + maxIndexNum * 20 + 40",
                value: index_bytes.to_string(),
                allowed: "2147483647 bytes of an index file at most",
            });
        }
        if let Some(hour) = self.delete_when_hours.iter().find(|hour| **hour > 23) {
            return Err(StoreError::Config {
                key: "deleteWhen",
                value: hour.to_string(),
                allowed: "hours from 00 to 23, separated by ;",
            });
        }
        self.consume_queue_file_bytes =
            self.consume_queue_file_bytes.next_multiple_of(UNIT_BYTES as u64);
        self.batch_consume_queue_file_bytes =
            self.batch_consume_queue_file_bytes.next_multiple_of(BATCH_UNIT_BYTES as u64);
        self.disk_max_used_space_percent = self.disk_max_used_space_percent.clamp(10, 95);
        self.disk_space_clean_forcibly_percent =
            self.disk_space_clean_forcibly_percent.clamp(30, 85);
        self.disk_space_warning_level_percent = self.disk_space_warning_level_percent.clamp(35, 90);
        Ok(self)
    }
}

/// `1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h`.
fn default_delay_levels_ms() -> Vec<i64> {
    const SECONDS: [i64; 18] =
        [1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200];
    SECONDS.iter().map(|seconds| seconds * 1_000).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_are_named() {
        let mut config = StoreConfig::new("/x");
        config.commit_log_file_bytes = 10;
        let error = config.validated().unwrap_err();
        assert_eq!(
            error.to_string(),
            "mappedFileSizeCommitLog is 10, allowed is 4096 to 1099511627776"
        );
        let mut config = StoreConfig::new("/x");
        config.delete_when_hours = vec![4, 24];
        assert!(config.validated().unwrap_err().to_string().starts_with("deleteWhen is 24"));
        let mut config = StoreConfig::new("/x");
        config.transient_store_pool_enable = true;
        config.flush_disk_type = FlushDiskType::Sync;
        let error = config.validated().unwrap_err().to_string();
        assert!(error.contains("transientStorePoolEnable") && error.contains("ASYNC_FLUSH"));
        let mut config = StoreConfig::new("/x");
        config.read_only_commit_log_dirs.clone_from(&config.commit_log_dirs);
        let error = config.validated().unwrap_err().to_string();
        assert!(error.starts_with("storePathCommitLog is read-only"), "{error}");
        let mut config = StoreConfig::new("/x");
        config.index_entries = 1;
        assert!(config.validated().unwrap_err().to_string().starts_with("maxIndexNum is 1"));
        let mut config = StoreConfig::new("/x");
        config.index_slots = 500_000_000;
        assert!(config.validated().unwrap_err().to_string().contains("is 2400000040"));
    }

    #[test]
    fn sizes_and_ratios_are_brought_into_shape() {
        let mut config = StoreConfig::new("/x");
        config.consume_queue_file_bytes = 161;
        config.batch_consume_queue_file_bytes = 93;
        config.disk_space_warning_level_percent = 99;
        let config = config.validated().unwrap();
        assert_eq!(config.consume_queue_file_bytes, 180);
        assert_eq!(config.batch_consume_queue_file_bytes, 138);
        assert_eq!(config.disk_space_warning_level_percent, 90);
    }
}
