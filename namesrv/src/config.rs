//! namesrv.conf: RocketMQ's keys and defaults (NamesrvConfig, NettyServerConfig), and a few of our
//! own.
//!
//! Keys that only tune the Java program's threads and buffers are known, kept and shown, and do
//! nothing.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use rocketmq_protocol::config::ConfigError;

use crate::controller;

/// The port of health and metrics unless configured: next to the broker's 5557, so that both fit on
/// one machine.
pub const METRICS_PORT_DEFAULT: u16 = 5558;

/// Keys that are accepted for compatibility and change nothing here.
const WITHOUT_EFFECT: [&str; 32] = [
    "clientRequestThreadPoolNums",
    "clientRequestThreadPoolQueueCapacity",
    "clusterTest",
    "controllerRequestThreadPoolQueueCapacity",
    "controllerThreadPoolNums",
    "defaultThreadPoolNums",
    "defaultThreadPoolQueueCapacity",
    "enableShutdownGracefully",
    "isProcessReadEvent",
    "jRaftControllerRPCAddr",
    "jRaftElectionTimeoutMs",
    "jRaftGroupId",
    "jRaftInitConf",
    "jRaftScanWaitTimeoutMs",
    "jRaftServerId",
    "jRaftSnapshotIntervalSecs",
    "mappedFileSize",
    "productEnvName",
    "serverAsyncSemaphoreValue",
    "serverCallbackExecutorThreads",
    "serverNettyWorkerGroupEnable",
    "serverOnewaySemaphoreValue",
    "serverPooledByteBufAllocatorEnable",
    "serverSelectorThreads",
    "serverSocketBacklog",
    "serverSocketRcvBufSize",
    "serverSocketSndBufSize",
    "serverWorkerThreads",
    "unRegisterBrokerQueueCapacity",
    "useEpollNativeSelector",
    "writeBufferHighWaterMark",
    "writeBufferLowWaterMark",
];

rocketmq_protocol::config_enum! {
    /// How metrics leave the process (`metricsExporterType`; RocketMQ's broker also has OTLP_GRPC
    /// and LOG).
    pub enum MetricsExporter {
        /// Not at all, and no health either.
        Disable = "DISABLE",
        /// Over HTTP, for Prometheus.
        Prom = "PROM",
    }
}

rocketmq_protocol::config_enum! {
    /// What agrees on masters (`controllerType`).
    pub enum ControllerType {
        /// A Raft group set up by the controllerDLeger keys. Not DLedger's own protocol.
        DLedger = "DLedger",
        /// RocketMQ's other one, which is not here.
        JRaft = "jRaft",
    }
}

rocketmq_protocol::config! {
    /// The name server's configuration. Each field says what its key means; a value outside the
    /// range stops the start.
    pub struct NamesrvConfig {
        /// Address to listen on.
        pub bind_address: String = "0.0.0.0".to_owned() => "bindAddress";
        /// Port of the remoting protocol; 0 takes any free one.
        pub listen_port: u16 = 9876 => "listenPort", 0..=65535;
        /// Whether `/livez`, `/readyz` and `/metrics` are served over HTTP. The Java name server
        /// has none of it; the keys are those of the broker.
        pub metrics_exporter_type: MetricsExporter = MetricsExporter::Prom => "metricsExporterType";
        /// Address of that HTTP server.
        pub metrics_prom_exporter_host: String = "0.0.0.0".to_owned() => "metricsPromExporterHost";
        /// Its port; 0 takes any free one. When another process has the default port, there is no
        /// HTTP and a warning; a configured port must be free.
        pub metrics_prom_exporter_port: u16 =
            METRICS_PORT_DEFAULT => "metricsPromExporterPort", 0..=65535;
        /// Home directory of the installation; shown, not used.
        pub rocketmq_home: String =
            std::env::var("ROCKETMQ_HOME").unwrap_or_default() => "rocketmqHome";
        /// File of the key-value configuration.
        pub kv_config_path: String = in_home("kvConfig.json") => "kvConfigPath";
        /// File that a configuration change is written to; the `-c` file when there is one.
        pub config_store_path: String = in_home("namesrv.properties") => "configStorePath";
        /// Keys that UPDATE_NAMESRV_CONFIG refuses, separated by `;`.
        pub config_black_list: String =
            "configBlackList;configStorePath;kvConfigPath".to_owned() => "configBlackList";
        /// Whether routes carry the topic's entry of ORDER_TOPIC_CONFIG.
        pub order_message_enable: bool = false => "orderMessageEnable";
        /// Whether a registration is answered with all of ORDER_TOPIC_CONFIG.
        pub return_order_topic_config_to_broker: bool = true => "returnOrderTopicConfigToBroker";
        /// Milliseconds between two searches for silent brokers.
        pub scan_not_active_broker_interval: i64 =
            5_000 => "scanNotActiveBrokerInterval", 10..=3_600_000;
        /// Whether the lowest slave stands in for a missing master in routes.
        pub support_acting_master: bool = false => "supportActingMaster";
        /// Whether brokers are told of a new lowest id in their group.
        pub notify_min_broker_id_changed: bool = false => "notifyMinBrokerIdChanged";
        /// Whether GET_ALL_TOPIC_LIST_FROM_NAMESERVER is answered.
        pub enable_all_topic_list: bool = true => "enableAllTopicList";
        /// Whether the topic lists by cluster and by unit flag are answered.
        pub enable_topic_list: bool = true => "enableTopicList";
        /// Whether routes are refused for a time after the start.
        pub need_wait_for_service: bool = false => "needWaitForService";
        /// That time, in seconds.
        pub wait_seconds_for_service: i64 = 45 => "waitSecondsForService", 0..=86_400;
        /// Whether a whole registration drops the group's topics that it no longer lists.
        pub delete_topic_with_broker_registration: bool =
            false => "deleteTopicWithBrokerRegistration";
        /// Whether a controller, which appoints the masters of broker groups, runs in this process.
        pub enable_controller_in_namesrv: bool = false => "enableControllerInNamesrv";
        /// How controllers agree.
        pub controller_type: ControllerType = ControllerType::DLedger => "controllerType";
        /// Name of the group of controllers.
        pub controller_dleger_group: String = String::new() => "controllerDLegerGroup";
        /// All controllers, as `n0-host:port;n1-host:port`.
        pub controller_dleger_peers: String = String::new() => "controllerDLegerPeers";
        /// Which of them this one is, as `n0`.
        pub controller_dleger_self_id: String = String::new() => "controllerDLegerSelfId";
        /// Directory of the controller's files; empty: DLedgerController in the user's home.
        pub controller_store_path: String = String::new() => "controllerStorePath";
        /// Milliseconds between two searches for groups whose master is gone.
        pub scan_inactive_master_interval: i64 =
            5_000 => "scanInactiveMasterInterval", 10..=3_600_000;
        /// How often an election that reached no majority of the controllers is tried at once.
        pub elect_master_max_retry_count: i32 = 3 => "electMasterMaxRetryCount", 1..=100;
        /// Whether a replica that may lack acknowledged messages becomes master when no other lives.
        pub enable_elect_unclean_master: bool = false => "enableElectUncleanMaster";
        /// Whether brokers are told of a new master at once.
        pub notify_broker_role_changed: bool = true => "notifyBrokerRoleChanged";
        /// Seconds without traffic after which a connection is closed.
        pub server_channel_max_idle_time_seconds: u64 =
            120 => "serverChannelMaxIdleTimeSeconds", 1..=86_400;
        /// Ignored: the stop is always graceful.
        pub enable_shutdown_gracefully: bool = false => "enableShutdownGracefully";
        /// Seconds that answers in flight may take to leave at a stop.
        pub shutdown_wait_time_seconds: u64 = 30 => "shutdownWaitTimeSeconds", 0..=3_600;

        /// No effect: requests are not split over thread pools.
        pub client_request_thread_pool_nums: i32 = 8 => "clientRequestThreadPoolNums";
        /// No effect.
        pub client_request_thread_pool_queue_capacity: i32 =
            50_000 => "clientRequestThreadPoolQueueCapacity";
        /// No effect.
        pub cluster_test: bool = false => "clusterTest";
        /// No effect.
        pub controller_request_thread_pool_queue_capacity: i32 =
            50_000 => "controllerRequestThreadPoolQueueCapacity";
        /// No effect.
        pub controller_thread_pool_nums: i32 = 16 => "controllerThreadPoolNums";
        /// No effect.
        pub default_thread_pool_nums: i32 = 16 => "defaultThreadPoolNums";
        /// No effect.
        pub default_thread_pool_queue_capacity: i32 = 10_000 => "defaultThreadPoolQueueCapacity";
        /// No effect: what is read is always what a majority agreed on.
        pub is_process_read_event: bool = false => "isProcessReadEvent";
        /// No effect.
        pub jraft_controller_rpc_addr: String =
            "localhost:9770,localhost:9771,localhost:9772".to_owned() => "jRaftControllerRPCAddr";
        /// No effect.
        pub jraft_election_timeout_ms: i32 = 1_000 => "jRaftElectionTimeoutMs";
        /// No effect.
        pub jraft_group_id: String = "jRaft-Controller".to_owned() => "jRaftGroupId";
        /// No effect.
        pub jraft_init_conf: String =
            "localhost:9880,localhost:9881,localhost:9882".to_owned() => "jRaftInitConf";
        /// No effect.
        pub jraft_scan_wait_timeout_ms: i32 = 1_000 => "jRaftScanWaitTimeoutMs";
        /// No effect.
        pub jraft_server_id: String = "localhost:9880".to_owned() => "jRaftServerId";
        /// No effect.
        pub jraft_snapshot_interval_secs: i32 = 3_600 => "jRaftSnapshotIntervalSecs";
        /// No effect.
        pub mapped_file_size: i32 = 1_073_741_824 => "mappedFileSize";
        /// No effect.
        pub product_env_name: String = "center".to_owned() => "productEnvName";
        /// No effect.
        pub server_async_semaphore_value: i32 = 64 => "serverAsyncSemaphoreValue";
        /// No effect.
        pub server_callback_executor_threads: i32 = 0 => "serverCallbackExecutorThreads";
        /// No effect.
        pub server_netty_worker_group_enable: bool = true => "serverNettyWorkerGroupEnable";
        /// No effect.
        pub server_oneway_semaphore_value: i32 = 256 => "serverOnewaySemaphoreValue";
        /// No effect.
        pub server_pooled_byte_buf_allocator_enable: bool =
            true => "serverPooledByteBufAllocatorEnable";
        /// No effect.
        pub server_selector_threads: i32 = 3 => "serverSelectorThreads";
        /// No effect.
        pub server_socket_backlog: i32 = 1024 => "serverSocketBacklog";
        /// No effect.
        pub server_socket_rcv_buf_size: i32 = 0 => "serverSocketRcvBufSize";
        /// No effect.
        pub server_socket_snd_buf_size: i32 = 0 => "serverSocketSndBufSize";
        /// No effect.
        pub server_worker_threads: i32 = 8 => "serverWorkerThreads";
        /// No effect: a broker is taken out at once.
        pub un_register_broker_queue_capacity: i32 = 3_000 => "unRegisterBrokerQueueCapacity";
        /// No effect.
        pub use_epoll_native_selector: bool = false => "useEpollNativeSelector";
        /// No effect.
        pub write_buffer_high_water_mark: i32 = 0 => "writeBufferHighWaterMark";
        /// No effect.
        pub write_buffer_low_water_mark: i32 = 0 => "writeBufferLowWaterMark";
    }
}

/// RocketMQ keeps its files under the user's home; without one, under the working directory.
fn in_home(file: &str) -> String {
    let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("."), PathBuf::from);
    home.join("namesrv").join(file).to_string_lossy().into_owned()
}

impl NamesrvConfig {
    /// Checks what a single key's range cannot say.
    ///
    /// # Errors
    /// The key whose value cannot be honoured.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let refuse = |key: &str, value: &str, allowed: &str| {
            Err(ConfigError {
                key: key.to_owned(),
                value: value.to_owned(),
                allowed: allowed.to_owned(),
            })
        };
        for (key, address) in [
            ("bindAddress", &self.bind_address),
            ("metricsPromExporterHost", &self.metrics_prom_exporter_host),
        ] {
            if address.parse::<IpAddr>().is_err() {
                return refuse(
                    key,
                    address,
                    "an IPv4 or IPv6 address of this machine, 0.0.0.0 for all",
                );
            }
        }
        let http = self.metrics_exporter_type == MetricsExporter::Prom;
        if http && self.listen_port != 0 && self.metrics_prom_exporter_port == self.listen_port {
            return refuse(
                "metricsPromExporterPort",
                &self.listen_port.to_string(),
                "another port than listenPort",
            );
        }
        if self.enable_controller_in_namesrv {
            controller::config(self)?;
        }
        for (key, path) in
            [("kvConfigPath", &self.kv_config_path), ("configStorePath", &self.config_store_path)]
        {
            if path.is_empty() {
                return refuse(key, path, "the path of a file");
            }
        }
        Ok(())
    }

    /// Where to listen; `None` for an address that `validate` refuses.
    pub fn listen_addr(&self) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.bind_address.parse().ok()?, self.listen_port))
    }

    /// Where to serve HTTP; `None` when that is switched off.
    pub fn http_addr(&self) -> Option<SocketAddr> {
        if self.metrics_exporter_type == MetricsExporter::Disable {
            return None;
        }
        let ip: IpAddr = self.metrics_prom_exporter_host.parse().ok()?;
        Some(SocketAddr::new(ip, self.metrics_prom_exporter_port))
    }

    /// Keys that differ from their default and do nothing here.
    pub fn changed_without_effect(&self) -> Vec<&'static str> {
        let default = Self::default();
        WITHOUT_EFFECT.into_iter().filter(|key| self.get(key) != default.get(key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_those_of_rocketmq() {
        let config = NamesrvConfig::default();
        config.validate().unwrap();
        assert_eq!(config.listen_port, 9876);
        assert_eq!(config.scan_not_active_broker_interval, 5_000);
        assert!(config.kv_config_path.ends_with("namesrv/kvConfig.json"));
    }

    #[test]
    fn every_key_without_effect_exists() {
        for key in WITHOUT_EFFECT {
            assert!(NamesrvConfig::KEYS.contains(&key), "{key}");
        }
    }

    #[test]
    fn every_key_is_documented_with_its_default_and_whether_it_has_an_effect() {
        let page = include_str!("../../docs/configuration.md");
        let (_, part) = page.split_once("## Name server").unwrap();
        let rows = part.lines().filter(|line| line.starts_with("| `"));
        let rows: std::collections::BTreeMap<&str, Vec<&str>> = rows
            .map(|row| row.split('|').map(str::trim).collect::<Vec<_>>())
            .map(|cells| (cells[1].trim_matches('`'), cells))
            .collect();
        let keys: std::collections::BTreeSet<_> = NamesrvConfig::KEYS.iter().copied().collect();
        let documented: std::collections::BTreeSet<_> = rows.keys().copied().collect();
        assert_eq!(documented, keys, "bring docs/configuration.md up to date");
        for (key, value) in NamesrvConfig::default().to_properties() {
            // Those depend on the environment.
            if !["rocketmqHome", "kvConfigPath", "configStorePath"].contains(&key) {
                assert_eq!(rows[key][2].trim_matches('`'), value, "default of {key}");
            }
            let is_idle = ["No effect", "Ignored"].iter().any(|no| rows[key][4].starts_with(no));
            assert_eq!(is_idle, WITHOUT_EFFECT.contains(&key), "{key}");
        }
    }

    /// What a Java 5.3.3 name server prints for getNamesrvConfig; each key must be ours too.
    #[test]
    fn every_key_of_the_java_name_server_is_known() {
        let keys = "bindAddress clientRequestThreadPoolNums clientRequestThreadPoolQueueCapacity \
            clusterTest configBlackList configStorePath defaultThreadPoolNums \
            defaultThreadPoolQueueCapacity deleteTopicWithBrokerRegistration enableAllTopicList \
            enableControllerInNamesrv enableShutdownGracefully enableTopicList kvConfigPath \
            listenPort needWaitForService notifyMinBrokerIdChanged orderMessageEnable \
            productEnvName returnOrderTopicConfigToBroker rocketmqHome \
            scanNotActiveBrokerInterval serverAsyncSemaphoreValue serverCallbackExecutorThreads \
            serverChannelMaxIdleTimeSeconds serverNettyWorkerGroupEnable \
            serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable serverSelectorThreads \
            serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize \
            serverWorkerThreads shutdownWaitTimeSeconds supportActingMaster \
            unRegisterBrokerQueueCapacity useEpollNativeSelector waitSecondsForService \
            writeBufferHighWaterMark writeBufferLowWaterMark";
        // And what a Java 5.3.3 controller prints for getControllerConfig, but for its metrics.
        let of_the_controller = "configBlackList configStorePath controllerDLegerGroup \
            controllerDLegerPeers controllerDLegerSelfId controllerRequestThreadPoolQueueCapacity \
            controllerStorePath controllerThreadPoolNums controllerType electMasterMaxRetryCount \
            enableElectUncleanMaster isProcessReadEvent mappedFileSize notifyBrokerRoleChanged \
            rocketmqHome scanInactiveMasterInterval scanNotActiveBrokerInterval";
        for key in keys.split_whitespace().chain(of_the_controller.split_whitespace()) {
            assert!(NamesrvConfig::KEYS.contains(&key), "{key}");
        }
    }

    #[test]
    fn what_cannot_be_honoured_is_refused_by_name() {
        let refused = |key: &str, value: &str| {
            let mut config = NamesrvConfig::default();
            match config.set(key, value) {
                Err(error) => error.to_string(),
                Ok(known) => {
                    assert!(known, "{key}");
                    config.validate().unwrap_err().to_string()
                }
            }
        };
        for (key, value) in [
            ("bindAddress", "everywhere"),
            ("controllerType", "Paxos"),
            ("electMasterMaxRetryCount", "0"),
            ("kvConfigPath", ""),
            ("listenPort", "70000"),
            ("metricsExporterType", "OTLP_GRPC"),
            ("metricsPromExporterPort", "9876"),
            ("scanNotActiveBrokerInterval", "0"),
        ] {
            let text = refused(key, value);
            assert!(text.contains(key) && text.contains(value), "{text}");
        }
    }
}
