//! What the store and the server get of the broker's configuration.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use rocketmq_protocol::config::ConfigError;
use rocketmq_remoting::server::ServerConfig;
use rocketmq_store::StoreConfig;
use rocketmq_store::config::FlushDiskType as StoreFlush;

use super::{BrokerConfig, BrokerRole, FlushDiskType, invalid};

impl BrokerConfig {
    /// The store's settings.
    ///
    /// # Errors
    /// When `deleteWhen` or `messageDelayLevel` cannot be understood.
    pub fn store_config(&self) -> Result<StoreConfig, ConfigError> {
        let mut store = StoreConfig::new(self.store_root());
        if !self.store_path_commit_log.is_empty() {
            store.commit_log_dirs = directories(&self.store_path_commit_log);
        }
        store.read_only_commit_log_dirs = directories(&self.read_only_commit_log_store_paths);
        store.commit_log_file_bytes = unsigned(self.mapped_file_size_commit_log);
        store.consume_queue_file_bytes = unsigned(self.mapped_file_size_consume_queue);
        store.batch_consume_queue_file_bytes = unsigned(self.mapper_file_size_batch_consume_queue);
        store.enable_consume_queue_ext = self.enable_consume_queue_ext;
        store.consume_queue_ext_file_bytes = unsigned(self.mapped_file_size_consume_queue_ext);
        store.consume_queue_ext_bit_map_bits = unsigned(self.bit_map_length_consume_queue_ext);
        store.message_bytes_max = size(self.max_message_size);
        store.auto_message_version_on_topic_len = self.auto_message_version_on_topic_len;
        store.message_index_enable = self.message_index_enable;
        store.index_slots = count(self.max_hash_slot_num);
        store.index_entries = count(self.max_index_num);
        store.query_count_max = size(self.max_msgs_num_batch);
        store.flush_disk_type = match self.flush_disk_type {
            FlushDiskType::AsyncFlush => StoreFlush::Async,
            FlushDiskType::SyncFlush => StoreFlush::Sync,
        };
        store.flush_interval_commit_log_ms = unsigned(self.flush_interval_commit_log);
        store.flush_commit_log_timed = self.flush_commit_log_timed;
        store.flush_commit_log_least_pages = unsigned(self.flush_commit_log_least_pages);
        store.flush_commit_log_thorough_interval_ms =
            unsigned(self.flush_commit_log_thorough_interval);
        store.transient_store_pool_enable = self.transient_store_pool_enable;
        store.transient_store_pool_size = unsigned(self.transient_store_pool_size);
        store.commit_interval_commit_log_ms = unsigned(self.commit_interval_commit_log);
        store.commit_commit_log_least_pages = unsigned(self.commit_commit_log_least_pages);
        store.commit_commit_log_thorough_interval_ms =
            unsigned(self.commit_commit_log_thorough_interval);
        store.wake_commit_when_put_message = self.wake_commit_when_put_message;
        store.warm_mapped_file_enable = self.warm_maped_file_enable;
        store.flush_least_pages_when_warm_mapped_file =
            unsigned(self.flush_least_pages_when_warm_maped_file);
        store.flush_interval_consume_queue_ms = unsigned(self.flush_interval_consume_queue);
        store.flush_consume_queue_least_pages = unsigned(self.flush_consume_queue_least_pages);
        store.flush_consume_queue_thorough_interval_ms =
            unsigned(self.flush_consume_queue_thorough_interval);
        store.check_crc_on_recover = self.check_crc_on_recover;
        store.file_reserved_hours = unsigned(self.file_reserved_time);
        store.delete_when_hours = delete_hours(&self.delete_when)?;
        store.disk_max_used_space_percent = percent(self.disk_max_used_space_ratio);
        store.disk_space_clean_forcibly_percent = percent(self.disk_space_clean_forcibly_ratio);
        store.disk_space_warning_level_percent = percent(self.disk_space_warning_level_ratio);
        store.clean_file_forcibly = self.clean_file_forcibly_enable;
        store.clean_resource_interval_ms = unsigned(self.clean_resource_interval);
        store.delete_file_batch_max = size(self.delete_file_batch_max);
        store.delete_commit_log_files_interval_ms = unsigned(self.delete_commit_log_files_interval);
        store.delete_consume_queue_files_interval_ms =
            unsigned(self.delete_consume_queue_files_interval);
        store.destroy_mapped_file_interval_forcibly_ms =
            unsigned(self.destroy_maped_file_interval_forcibly);
        store.redelete_hanged_file_interval_ms = unsigned(self.redelete_hanged_file_interval);
        store.transfer_bytes_max_in_memory = size(self.max_transfer_bytes_on_message_in_memory);
        store.transfer_count_max_in_memory = size(self.max_transfer_count_on_message_in_memory);
        store.transfer_bytes_max_on_disk = size(self.max_transfer_bytes_on_message_in_disk);
        store.transfer_count_max_on_disk = size(self.max_transfer_count_on_message_in_disk);
        store.access_message_in_memory_max_percent = percent(match self.broker_role {
            // As in Java: a slave's memory holds less of what is read.
            BrokerRole::Slave => (self.access_message_in_memory_max_ratio - 10).max(1),
            _ => self.access_message_in_memory_max_ratio,
        });
        store.filter_bytes_max = size(self.max_filter_message_size);
        store.delay_levels_ms = delay_levels_ms(&self.message_delay_level)?;
        Ok(store)
    }

    /// The server's settings: the main port first, then the fast one (`listenPort` − 2).
    ///
    /// # Errors
    /// When `bindAddress` is not an IP address.
    pub fn server_config(&self) -> Result<ServerConfig, ConfigError> {
        let ip = bind_ip(&self.bind_address)?;
        let mut listen = vec![SocketAddr::new(ip, self.listen_port)];
        if let Some(fast_port) = self.listen_port.checked_sub(2).filter(|port| *port > 0) {
            listen.push(SocketAddr::new(ip, fast_port));
        }
        Ok(ServerConfig {
            listen,
            io_threads: usize::from(self.io_threads),
            name: "broker".to_owned(),
            idle: Duration::from_secs(unsigned(self.server_channel_max_idle_time_seconds)),
            ..ServerConfig::default()
        })
    }
}

/// The name of this machine; RocketMQ's fallback when it has none.
pub(super) fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "DEFAULT_BROKER".to_owned() } else { name }
}

/// The address of `bindAddress`.
pub(super) fn bind_ip(text: &str) -> Result<IpAddr, ConfigError> {
    text.trim().parse().map_err(|_| invalid("bindAddress", text, "an IP address"))
}

/// The directories of a list separated by commas.
fn directories(text: &str) -> Vec<PathBuf> {
    text.split(',').map(str::trim).filter(|path| !path.is_empty()).map(PathBuf::from).collect()
}

/// The hours of `deleteWhen`.
pub(super) fn delete_hours(text: &str) -> Result<Vec<u8>, ConfigError> {
    let hours = text.split(';').map(str::trim).filter(|hour| !hour.is_empty());
    hours
        .map(|hour| {
            let parsed = hour.parse::<u8>().ok().filter(|hour| *hour <= 23);
            parsed.ok_or_else(|| invalid("deleteWhen", hour, "hours 0 to 23, separated by `;`"))
        })
        .collect()
}

/// The delays of `messageDelayLevel` in milliseconds.
pub(super) fn delay_levels_ms(text: &str) -> Result<Vec<i64>, ConfigError> {
    let allowed = "numbers with a unit s, m, h or d, separated by blanks, such as `1s 5m 2h`";
    text.split_whitespace()
        .map(|level| {
            let refused = || invalid("messageDelayLevel", level, allowed);
            let unit_ms = match level.chars().last() {
                Some('s') => 1_000,
                Some('m') => 60_000,
                Some('h') => 3_600_000,
                Some('d') => 86_400_000,
                _ => return Err(refused()),
            };
            let number: i64 = level[..level.len() - 1].parse().map_err(|_| refused())?;
            let delay_ms = number.checked_mul(unit_ms).filter(|delay_ms| *delay_ms >= 0);
            delay_ms.ok_or_else(refused)
        })
        .collect()
}

// The ranges of the keys keep all numbers from being negative.
fn unsigned(number: impl Into<i64>) -> u64 {
    u64::try_from(number.into()).unwrap_or(0)
}

fn size(number: i32) -> usize {
    usize::try_from(number).unwrap_or(0)
}

fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

fn percent(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_the_stores_own() {
        let config = BrokerConfig { store_path_root_dir: "/x".into(), ..BrokerConfig::default() };
        let (ours, stores) = (config.store_config().unwrap(), StoreConfig::new("/x"));
        assert_eq!(format!("{ours:?}"), format!("{stores:?}"));
    }

    #[test]
    fn directories_are_separated_by_commas() {
        let config = BrokerConfig {
            store_path_commit_log: "/a, /b,".into(),
            read_only_commit_log_store_paths: "/c".into(),
            ..BrokerConfig::default()
        };
        let store = config.store_config().unwrap();
        assert_eq!(store.commit_log_dirs, [PathBuf::from("/a"), PathBuf::from("/b")]);
        assert_eq!(store.read_only_commit_log_dirs, [PathBuf::from("/c")]);
    }

    #[test]
    fn levels_and_hours_are_understood_or_named() {
        assert_eq!(
            delay_levels_ms("1s 2m 3h 1d").unwrap(),
            [1_000, 120_000, 10_800_000, 86_400_000]
        );
        for text in ["1x", "s", "1", "-1s", "9223372036854775807d"] {
            assert!(delay_levels_ms(text).is_err(), "{text}");
        }
        assert_eq!(delete_hours("04;16").unwrap(), [4, 16]);
        assert!(delete_hours("4;24").is_err());
    }

    #[test]
    fn the_fast_port_is_two_below() {
        let config = BrokerConfig { listen_port: 10911, ..BrokerConfig::default() };
        let ports: Vec<u16> =
            config.server_config().unwrap().listen.iter().map(SocketAddr::port).collect();
        assert_eq!(ports, [10911, 10909]);
        let config = BrokerConfig { listen_port: 0, ..config };
        assert_eq!(config.server_config().unwrap().listen.len(), 1);
        let config = BrokerConfig { bind_address: "here".into(), ..config };
        assert!(config.server_config().unwrap_err().to_string().contains("bindAddress"));
    }
}
