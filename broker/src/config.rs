//! The broker's configuration: RocketMQ's keys, defaults and meanings (BrokerConfig,
//! MessageStoreConfig, NettyServerConfig), read from a `broker.conf`.
//!
//! Owns the keys that have an effect here and how a file becomes a [`BrokerConfig`]. Keys that are
//! accepted without effect are listed in `config/known.rs`, values that ask for something this
//! broker does not have in `config/refused.rs`, what the store and the server get in
//! `config/mapping.rs`.

mod known;
mod mapping;
mod refused;

use std::path::{Path, PathBuf};

use rocketmq_protocol::config::{self, ConfigError};

use crate::error::StartError;
use crate::filter::bloom::BloomFilter;

pub use known::{is_known_without_effect, known_without_effect};

rocketmq_protocol::config_enum! {
    /// Whether a send waits until its message is on disk (FlushDiskType).
    pub enum FlushDiskType {
        /// Answer as soon as the message is written.
        AsyncFlush = "ASYNC_FLUSH",
        /// Answer after the message is synced.
        SyncFlush = "SYNC_FLUSH",
    }
}

rocketmq_protocol::config_enum! {
    /// What this broker is in its group (BrokerRole).
    pub enum BrokerRole {
        /// Master; sends do not wait for slaves.
        AsyncMaster = "ASYNC_MASTER",
        /// Master; sends wait for `inSyncReplicas` copies.
        SyncMaster = "SYNC_MASTER",
        /// Copies a master.
        Slave = "SLAVE",
    }
}

rocketmq_protocol::config_enum! {
    /// Who decides which broker of the group is master.
    pub enum CoordinatorKind {
        /// Nobody: it stays as `brokerRole` says.
        Static = "static",
        /// Whoever the group's Lease names: the operator appoints it.
        Kubernetes = "kubernetes",
    }
}

rocketmq_protocol::config_enum! {
    /// How metrics leave the broker (MetricsExporterType), as far as this broker has it.
    pub enum MetricsExporter {
        /// Not at all; probes are not served either.
        Disable = "DISABLE",
        /// Over HTTP for Prometheus, with the probes beside them.
        Prom = "PROM",
    }
}

/// The port of metrics and probes unless configured.
pub const METRICS_PORT_DEFAULT: u16 = 5557;

rocketmq_protocol::config! {
    /// Every key that has an effect, with RocketMQ's default. Times in milliseconds and sizes in
    /// bytes unless the name says otherwise.
    pub struct BrokerConfig {
        /// Name of the cluster.
        pub broker_cluster_name: String = "DefaultCluster".to_owned() => "brokerClusterName";
        /// Name of the broker group; empty means the host name.
        pub broker_name: String = mapping::host_name() => "brokerName";
        /// 0 for the master of the group.
        pub broker_id: i64 = 0 => "brokerId", 0..=i64::MAX;
        /// Host advertised to clients, an IP address or a DNS name; empty means a local address.
        pub broker_ip1: String = String::new() => "brokerIP1";
        /// Host of the HA port advertised to slaves; empty means as `brokerIP1`.
        pub broker_ip2: String = String::new() => "brokerIP2";
        /// Main port; the fast ("VIP") port is two below. 0 takes any free port and no fast one.
        pub listen_port: u16 = 10911 => "listenPort";
        /// Address to listen on.
        pub bind_address: String = "0.0.0.0".to_owned() => "bindAddress";
        /// HA port advertised; 0 or less means `listenPort` + 1.
        pub ha_listen_port: i32 = 0 => "haListenPort", i32::MIN..=65535;
        /// Name servers, `host:port;host:port`; empty means none.
        pub namesrv_addr: String = String::new() => "namesrvAddr";
        /// Time between registrations; values outside 10000 to 60000 count as the nearer bound.
        pub register_name_server_period: i32 = 30_000 => "registerNameServerPeriod", 1..=i32::MAX;
        /// How long a registration may take at one name server.
        pub register_broker_timeout_mills: i32 = 24_000 => "registerBrokerTimeoutMills", 1..=i32::MAX;
        /// 4 read + 2 write: what clients may do with this broker.
        pub broker_permission: i32 = 6 => "brokerPermission", 0..=7;
        /// MSG_REGION of send answers.
        pub region_id: String = "DefaultRegion".to_owned() => "regionId";
        /// File that run-time changes are written to: the `-c` file.
        pub broker_config_path: String = String::new() => "brokerConfigPath";
        /// Keys that cannot be changed at run time, besides a built-in list.
        pub config_black_list: String = "configBlackList;brokerConfigPath".to_owned() => "configBlackList";
        /// Connections without traffic for this many seconds are closed.
        pub server_channel_max_idle_time_seconds: i32 = 120 => "serverChannelMaxIdleTimeSeconds", 1..=86_400;
        /// How long a stopping broker lets requests in flight finish, in seconds.
        pub shutdown_wait_time_seconds: i32 = 30 => "shutdownWaitTimeSeconds", 0..=3_600;

        /// Whether a SEND to an unknown topic creates it.
        pub auto_create_topic_enable: bool = true => "autoCreateTopicEnable";
        /// Queues of TBW102, and so the most that automatic creation makes.
        pub default_topic_queue_nums: i32 = 8 => "defaultTopicQueueNums", 1..=65_536;
        /// Whether the topic named as the cluster is readable and writable.
        pub cluster_topic_enable: bool = true => "clusterTopicEnable";
        /// Whether the topic named as the broker is readable and writable.
        pub broker_topic_enable: bool = true => "brokerTopicEnable";
        /// Whether an unknown group is created by its first use.
        pub auto_create_subscription_group: bool = true => "autoCreateSubscriptionGroup";
        /// Whether CID_RMQ_SYS_ groups are created even if others are not.
        pub enable_create_sys_group: bool = true => "enableCreateSysGroup";
        /// Whether administrators are kept from changing system topics.
        pub validate_system_topic_when_update_topic: bool = true => "validateSystemTopicWhenUpdateTopic";
        /// Whether topics may have `message.type` MIXED.
        pub enable_mixed_message_type: bool = false => "enableMixedMessageType";
        /// Whether the trace topic is created at start.
        pub trace_topic_enable: bool = false => "traceTopicEnable";
        /// Name of the trace topic.
        pub msg_trace_topic_name: String = "RMQ_SYS_TRACE_TOPIC".to_owned() => "msgTraceTopicName";
        /// TRACE_ON of send answers.
        pub trace_on: bool = true => "traceOn";
        /// Whether consumers are told at once when their group changes.
        pub notify_consumer_ids_changed_enable: bool = true => "notifyConsumerIdsChangedEnable";
        /// Time between writes of consumerOffset.json.
        pub flush_consumer_offset_interval: i32 = 5_000 => "flushConsumerOffsetInterval", 100..=i32::MAX;
        /// Commits after which the data version of the offsets grows.
        pub consumer_offset_update_version_step: i64 = 500 => "consumerOffsetUpdateVersionStep", 1..=i64::MAX;
        /// Whether a reply to a message is stored besides being handed to whoever waits for it.
        pub store_reply_message_enable: bool = true => "storeReplyMessageEnable";
        /// Whether the broker shares queues out among the members of a group that ask it to; otherwise
        /// each is given all of them.
        pub server_load_balancer_enable: bool = true => "serverLoadBalancerEnable";
        /// Whether a reset of offsets is kept by the broker until the next pull.
        pub use_server_side_reset_offset: bool = true => "useServerSideResetOffset";
        /// Whether pulls without a result wait as long as the client allows.
        pub long_polling_enable: bool = true => "longPollingEnable";
        /// How long such pulls wait when `longPollingEnable` is off.
        pub short_polling_time_mills: i64 = 1_000 => "shortPollingTimeMills", 1..=600_000;
        /// Whether LITE_PULL_MESSAGE is served.
        pub lite_pull_message_enable: bool = true => "litePullMessageEnable";
        /// Whether slow readers are sent to the broker their group's settings name.
        pub slave_read_enable: bool = false => "slaveReadEnable";
        /// Clients without a heart-beat for this long are removed.
        pub channel_expired_timeout: i64 = 120_000 => "channelExpiredTimeout", 1_000..=i64::MAX;
        /// Whether SQL92 filters are allowed.
        pub enable_property_filter: bool = false => "enablePropertyFilter";
        /// Whether messages of a retry topic are filtered by the group's filter of the topic they
        /// came from, when the retry topic is subscribed with an expression itself.
        pub filter_support_retry: bool = false => "filterSupportRetry";
        /// Whether new messages get bit maps that tell which groups' filters they pass; needs
        /// `enableConsumeQueueExt`.
        pub enable_calc_filter_bit_map: bool = false => "enableCalcFilterBitMap";
        /// Groups with filters that one message is expected to pass; more make bit maps longer.
        pub expect_consumer_num_use_filter: i32 = 32 => "expectConsumerNumUseFilter", 1..=25_000;
        /// Share of messages, in percent, that a bit map may wrongly let pass.
        pub max_error_rate_of_bloom_filter: i32 = 20 => "maxErrorRateOfBloomFilter", 1..=99;
        /// How long the filter of a group without members is kept.
        pub filter_data_clean_time_span: i64 = 86_400_000 => "filterDataCleanTimeSpan", 0..=i64::MAX;
        /// Whether transactional messages are refused with NO_PERMISSION.
        pub reject_transaction_message: bool = false => "rejectTransactionMessage";
        /// A half message younger than this is not asked about.
        pub transaction_time_out: i64 = 6_000 => "transactionTimeOut", 0..=i64::MAX;
        /// Checks of a half message before it is given up.
        pub transaction_check_max: i32 = 15 => "transactionCheckMax", 0..=i32::MAX;
        /// Time between rounds of checks.
        pub transaction_check_interval: i64 = 30_000 => "transactionCheckInterval", 1..=i64::MAX;
        /// Bytes at which decisions on half messages are written without delay.
        pub transaction_op_msg_max_size: i32 = 4_096 => "transactionOpMsgMaxSize", 1..=i32::MAX;
        /// How long decisions wait for others to be written with.
        pub transaction_op_batch_interval: i64 = 3_000 => "transactionOpBatchInterval", 0..=3_600_000;
        /// Time between writes of transactionMetrics.
        pub transaction_metric_flush_interval: i64 = 3_000 => "transactionMetricFlushInterval", 100..=i64::MAX;
        /// Delays of levels 1, 2, …
        pub message_delay_level: String =
            "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h".to_owned() => "messageDelayLevel";
        /// Time between writes of delayOffset.json.
        pub flush_delay_offset_interval: i64 = 10_000 => "flushDelayOffsetInterval", 100..=3_600_000;
        /// Whether the timer topic is created.
        pub timer_wheel_enable: bool = true => "timerWheelEnable";
        /// Queues of the revive topic.
        pub revive_queue_num: i32 = 8 => "reviveQueueNum", 1..=65_536;
        /// Sends before this time, milliseconds since 1970, are refused.
        pub start_accept_send_request_time_stamp: i64 = 0 => "startAcceptSendRequestTimeStamp", 0..=i64::MAX;

        /// Directory of the store; empty means `store` in the home directory.
        pub store_path_root_dir: String = String::new() => "storePathRootDir";
        /// Directories of the commit log, separated by `,`; empty means `commitlog` below the
        /// store.
        pub store_path_commit_log: String = String::new() => "storePathCommitLog";
        /// Directories whose commit log files are read and never written or removed, separated by
        /// `,`.
        pub read_only_commit_log_store_paths: String = String::new() => "readOnlyCommitLogStorePaths";
        /// Size of a commit log file.
        pub mapped_file_size_commit_log: i64 = 1_073_741_824 => "mappedFileSizeCommitLog", 4_096..=2_147_483_647;
        /// Size of a consume queue file, rounded up to a multiple of 20.
        pub mapped_file_size_consume_queue: i64 = 6_000_000 => "mappedFileSizeConsumeQueue", 20..=2_147_483_640;
        /// Size of a batch consume queue file, rounded up to a multiple of 46.
        pub mapper_file_size_batch_consume_queue: i64 = 13_800_000 => "mapperFileSizeBatchConsumeQueue", 46..=2_147_483_602;
        /// Whether new consume queue entries get a unit with room for a filter's bit map.
        pub enable_consume_queue_ext: bool = false => "enableConsumeQueueExt";
        /// Size of a file of such units.
        pub mapped_file_size_consume_queue_ext: i64 = 50_331_648 => "mappedFileSizeConsumeQueueExt", 32_771..=2_147_483_647;
        /// Bits of such a bit map. As in RocketMQ it follows from `expectConsumerNumUseFilter` and
        /// `maxErrorRateOfBloomFilter`, whatever the file says.
        pub bit_map_length_consume_queue_ext: i32 = 64 => "bitMapLengthConsumeQueueExt", 0..=262_000;
        /// Largest message body.
        pub max_message_size: i32 = 4_194_304 => "maxMessageSize", 1..=16_777_215;
        /// Whether messages can be found by key.
        pub message_index_enable: bool = true => "messageIndexEnable";
        /// Hash slots of an index file.
        pub max_hash_slot_num: i32 = 5_000_000 => "maxHashSlotNum", 1..=500_000_000;
        /// Entries of an index file; one fewer fit.
        pub max_index_num: i32 = 20_000_000 => "maxIndexNum", 2..=100_000_000;
        /// Messages that a query by key returns at most.
        pub max_msgs_num_batch: i32 = 64 => "maxMsgsNumBatch", 1..=i32::MAX;
        /// Messages that a query by unique key looks for.
        pub default_query_max_num: i32 = 32 => "defaultQueryMaxNum", 1..=i32::MAX;
        /// Whether a send waits for the disk.
        pub flush_disk_type: FlushDiskType = FlushDiskType::AsyncFlush => "flushDiskType";
        /// How long a send waits for the disk.
        pub sync_flush_timeout: i64 = 5_000 => "syncFlushTimeout", 1..=600_000;
        /// Time between flushes of the commit log.
        pub flush_interval_commit_log: i64 = 500 => "flushIntervalCommitLog", 1..=3_600_000;
        /// Pages (4 KiB) that a timed flush of the commit log waits for.
        pub flush_commit_log_least_pages: i32 = 4 => "flushCommitLogLeastPages", 0..=i32::MAX;
        /// After this time any number of pages is flushed.
        pub flush_commit_log_thorough_interval: i64 = 10_000 => "flushCommitLogThoroughInterval", 1..=3_600_000;
        /// Whether appends wait in a buffer of this process before they are written: fewer system
        /// calls, and a dying process loses what is in it.
        pub transient_store_pool_enable: bool = false => "transientStorePoolEnable";
        /// Bounds that buffer, in commit log files; it never takes more than 64 MiB.
        pub transient_store_pool_size: i32 = 5 => "transientStorePoolSize", 1..=i32::MAX;
        /// Time between commits of that buffer.
        pub commit_interval_commit_log: i64 = 200 => "commitIntervalCommitLog", 1..=3_600_000;
        /// Pages (4 KiB) that a commit waits for.
        pub commit_commit_log_least_pages: i32 = 4 => "commitCommitLogLeastPages", 0..=i32::MAX;
        /// After this time any number of bytes is committed.
        pub commit_commit_log_thorough_interval: i64 = 200 => "commitCommitLogThoroughInterval", 1..=3_600_000;
        /// Whether enough pages are committed before the interval is over.
        pub wake_commit_when_put_message: bool = true => "wakeCommitWhenPutMessage";
        /// Whether new commit log files are filled with zeros before they are used.
        pub warm_maped_file_enable: bool = false => "warmMapedFileEnable";
        /// Under SYNC_FLUSH, pages that are synced at a time meanwhile.
        pub flush_least_pages_when_warm_maped_file: i32 = 4_096 => "flushLeastPagesWhenWarmMapedFile", 1..=i32::MAX;
        /// Time between flushes of consume queues.
        pub flush_interval_consume_queue: i64 = 1_000 => "flushIntervalConsumeQueue", 1..=3_600_000;
        /// Pages that a timed flush of consume queues waits for.
        pub flush_consume_queue_least_pages: i32 = 2 => "flushConsumeQueueLeastPages", 0..=i32::MAX;
        /// After this time any number of pages is flushed.
        pub flush_consume_queue_thorough_interval: i64 = 60_000 => "flushConsumeQueueThoroughInterval", 1..=3_600_000;
        /// Whether timed flushes happen at the interval whatever arrives.
        pub flush_commit_log_timed: bool = true => "flushCommitLogTimed";
        /// Whether topics longer than 127 bytes are stored in the newer record format.
        pub auto_message_version_on_topic_len: bool = true => "autoMessageVersionOnTopicLen";
        /// Whether recovery checks the bodies' CRC.
        pub check_crc_on_recover: bool = true => "checkCRCOnRecover";
        /// The append lock held for longer than this refuses new sends.
        pub os_page_cache_busy_time_out_mills: i64 = 1_000 => "osPageCacheBusyTimeOutMills", 1..=600_000;
        /// Hours that commit log files are kept.
        pub file_reserved_time: i32 = 72 => "fileReservedTime", 0..=876_000;
        /// Hours of the day, separated by `;`, at which expired files are deleted.
        pub delete_when: String = "04".to_owned() => "deleteWhen";
        /// Above this disk use in percent expired files are deleted at any hour.
        pub disk_max_used_space_ratio: i32 = 75 => "diskMaxUsedSpaceRatio", 1..=99;
        /// Above this disk use in percent sends are refused.
        pub disk_space_warning_level_ratio: i32 = 90 => "diskSpaceWarningLevelRatio", 1..=99;
        /// Above this disk use in percent files are deleted even if they are not expired.
        pub disk_space_clean_forcibly_ratio: i32 = 85 => "diskSpaceCleanForciblyRatio", 1..=99;
        /// Whether files that are not expired may be deleted at all.
        pub clean_file_forcibly_enable: bool = true => "cleanFileForciblyEnable";
        /// Time between checks for files to delete.
        pub clean_resource_interval: i64 = 10_000 => "cleanResourceInterval", 100..=86_400_000;
        /// Pause between two deletions of commit log files.
        pub delete_commit_log_files_interval: i64 = 100 => "deleteCommitLogFilesInterval", 0..=3_600_000;
        /// Pause between two deletions of consume queue files.
        pub delete_consume_queue_files_interval: i64 = 100 => "deleteConsumeQueueFilesInterval", 0..=3_600_000;
        /// A deleted commit log file that is read for longer than this is reported; readers keep
        /// it.
        pub destroy_maped_file_interval_forcibly: i64 = 120_000 => "destroyMapedFileIntervalForcibly", 0..=86_400_000;
        /// Time between such reports.
        pub redelete_hanged_file_interval: i64 = 120_000 => "redeleteHangedFileInterval", 0..=86_400_000;
        /// Files deleted in one round.
        pub delete_file_batch_max: i32 = 10 => "deleteFileBatchMax", 1..=i32::MAX;
        /// Bytes of a pull from memory.
        pub max_transfer_bytes_on_message_in_memory: i32 = 262_144 => "maxTransferBytesOnMessageInMemory", 1..=i32::MAX;
        /// Messages of a pull from memory.
        pub max_transfer_count_on_message_in_memory: i32 = 32 => "maxTransferCountOnMessageInMemory", 1..=i32::MAX;
        /// Bytes of a pull from disk.
        pub max_transfer_bytes_on_message_in_disk: i32 = 65_536 => "maxTransferBytesOnMessageInDisk", 1..=i32::MAX;
        /// Messages of a pull from disk.
        pub max_transfer_count_on_message_in_disk: i32 = 8 => "maxTransferCountOnMessageInDisk", 1..=i32::MAX;
        /// Share of the machine's memory, in percent, that counts as holding the log's end.
        pub access_message_in_memory_max_ratio: i32 = 40 => "accessMessageInMemoryMaxRatio", 1..=100;
        /// Bytes of consume queue entries that one pull looks through.
        pub max_filter_message_size: i32 = 16_000 => "maxFilterMessageSize", 20..=i32::MAX;
        /// `host:port` of the log that a slave copies; empty means as the name servers say.
        pub ha_master_address: String = String::new() => "haMasterAddress";
        /// Time without a word after which master and slave send a sign of life.
        pub ha_send_heartbeat_interval: i64 = 5_000 => "haSendHeartbeatInterval", 10..=3_600_000;
        /// Time without a word after which they give the link up.
        pub ha_housekeeping_interval: i64 = 20_000 => "haHousekeepingInterval", 100..=3_600_000;
        /// Most bytes of the log in one frame to a slave; Java's slaves take 4194292 at most.
        pub ha_transfer_batch_size: i32 = 32_768 => "haTransferBatchSize", 1..=4_194_292;
        /// How far a slave may be behind and count as in sync, in bytes.
        pub ha_max_gap_not_in_sync: i64 = 268_435_456 => "haMaxGapNotInSync", 0..=i64::MAX;
        /// How long a send to a SYNC_MASTER waits for `inSyncReplicas` copies.
        pub slave_timeout: i64 = 3_000 => "slaveTimeout", 1..=600_000;
        /// Whether a slave without its master corrects the offset of a consumer that is ahead of it.
        pub offset_check_in_slave: bool = false => "offsetCheckInSlave";
        /// What this broker is in its group.
        pub broker_role: BrokerRole = BrokerRole::AsyncMaster => "brokerRole";
        /// Copies, this one included, that a SYNC_MASTER waits for.
        pub in_sync_replicas: i32 = 1 => "inSyncReplicas", 1..=i32::MAX;
        /// Members of the in-sync set, the master included, below which a master refuses sends.
        pub min_in_sync_replicas: i32 = 1 => "minInSyncReplicas", 1..=i32::MAX;
        /// Whether the log is sent to slaves no faster than `maxHaTransferByteInSecond`.
        pub ha_flow_control_enable: bool = false => "haFlowControlEnable";
        /// Bytes of the log that each slave is sent in a second under `haFlowControlEnable`.
        pub max_ha_transfer_byte_in_second: i64 = 104_857_600 => "maxHaTransferByteInSecond", 1..=i64::MAX;
        /// Whether a slave whose log is empty begins with the newest file of the master's log instead
        /// of the oldest.
        pub sync_from_last_file: bool = false => "syncFromLastFile";
        /// Where the epoch file is; empty means `epochFileCheckpoint` in the store's directory.
        pub store_path_epoch_file: String = String::new() => "storePathEpochFile";
        /// A member of the in-sync set that has not had everything for this long leaves it.
        pub ha_max_time_slave_not_catchup: i64 = 15_000 => "haMaxTimeSlaveNotCatchup", 100..=3_600_000;
        /// Whether this broker never joins the in-sync set, and so is never appointed.
        pub async_learner: bool = false => "asyncLearner";
        /// Ours: who decides which broker of the group is master.
        pub coordinator: CoordinatorKind = CoordinatorKind::Static => "coordinator";
        /// Ours: name of the Lease that holds the group's record; empty means `brokerName`.
        pub coordinator_lease: String = String::new() => "coordinatorLease";
        /// Brokers that the group is meant to have, this one included; only with a coordinator.
        pub total_replicas: i32 = 1 => "totalReplicas", 1..=64;
        /// Ours: how long the Lease holds for others after they saw it renewed, in seconds.
        pub lease_duration_seconds: i32 = 15 => "leaseDurationSeconds", 1..=3_600;
        /// Ours: how long the master relies on a renewal, in seconds; less than the Lease holds.
        pub lease_renew_deadline_seconds: i32 = 10 => "leaseRenewDeadlineSeconds", 1..=3_600;
        /// Ours: pause between renewals, in seconds.
        pub lease_retry_period_seconds: i32 = 2 => "leaseRetryPeriodSeconds", 1..=600;
        /// Ours: host under which the group's other brokers find this one; `$(NAME)` in it is replaced
        /// by the environment's NAME. Empty means as `brokerIP2`, else `brokerIP1`.
        pub replica_host: String = String::new() => "replicaHost";

        /// Whether `/metrics`, `/livez` and `/readyz` are served over HTTP. RocketMQ's default is
        /// DISABLE; here they are on, since a broker that nobody can probe is of no use in a pod.
        pub metrics_exporter_type: MetricsExporter = MetricsExporter::Prom => "metricsExporterType";
        /// Address of that HTTP port; empty means all.
        pub metrics_prom_exporter_host: String = String::new() => "metricsPromExporterHost";
        /// That HTTP port; 0 takes any free one. If the default port is taken the broker goes on
        /// without, if a configured one is, it stops.
        pub metrics_prom_exporter_port: u16 = METRICS_PORT_DEFAULT => "metricsPromExporterPort";
        /// Ours, not RocketMQ's: threads that own connections; 0 chooses by the number of CPUs.
        pub io_threads: u16 = 0 => "ioThreads", 0..=64;
        /// Ours: IP address written into records and message ids; empty means the environment's
        /// POD_IP, else what `brokerIP1` resolves to, else a local address.
        pub store_host: String = String::new() => "storeHost";
    }
}

/// A `broker.conf` that was read: the effective configuration and what was left over.
#[derive(Clone, Debug, Default)]
pub struct LoadedConfig {
    /// The effective configuration.
    pub config: BrokerConfig,
    /// Keys of the file that are accepted without effect, with their values.
    pub without_effect: Vec<(String, String)>,
    /// Keys of the file that nobody knows, with their values.
    pub unknown: Vec<(String, String)>,
}

impl LoadedConfig {
    /// The configuration without a file: defaults and the environment.
    ///
    /// # Errors
    /// When the environment asks for something that is not allowed.
    pub fn without_file() -> Result<Self, ConfigError> {
        Self::from_pairs(&[])
    }

    /// Reads a `broker.conf`.
    ///
    /// # Errors
    /// When it cannot be read, or a value is invalid or asks for what this broker does not have.
    pub fn from_file(path: &Path) -> Result<Self, StartError> {
        let shown = path.display().to_string();
        let bytes = std::fs::read(path)
            .map_err(StartError::system(format!("read configuration file {shown}")))?;
        let pairs = config::parse_file(&bytes)
            .map_err(|source| StartError::ConfigText { path: shown.clone(), source })?;
        let mut loaded = Self::from_pairs(&pairs)
            .map_err(|source| StartError::ConfigFile { path: shown, source })?;
        if loaded.config.broker_config_path.is_empty() {
            loaded.config.broker_config_path = path.display().to_string();
        }
        Ok(loaded)
    }

    /// Makes a configuration of the pairs of a file.
    ///
    /// # Errors
    /// When a value is invalid or asks for what this broker does not have.
    pub fn from_pairs(pairs: &[(String, String)]) -> Result<Self, ConfigError> {
        for (key, value) in pairs {
            refused::check(key, value)?;
        }
        let (mut config, leftover) = BrokerConfig::from_properties(pairs)?;
        let (without_effect, unknown) = pairs
            .iter()
            .filter(|(key, _)| leftover.contains(key))
            .cloned()
            .partition(|(key, _)| is_known_without_effect(key));
        if config.namesrv_addr.is_empty()
            && let Ok(from_environment) = std::env::var("NAMESRV_ADDR")
        {
            config.namesrv_addr = from_environment.trim().to_owned();
        }
        config.normalize()?;
        Ok(Self { config, without_effect, unknown })
    }
}

impl From<BrokerConfig> for LoadedConfig {
    fn from(config: BrokerConfig) -> Self {
        Self { config, ..Self::default() }
    }
}

impl BrokerConfig {
    /// Sets one key, refusing values that ask for what this broker does not have; `false` if there
    /// is no such key with an effect.
    ///
    /// # Errors
    /// When the value is not allowed; nothing is changed then.
    pub fn set_checked(&mut self, key: &str, value: &str) -> Result<bool, ConfigError> {
        refused::check(key, value)?;
        self.set(key, value)
    }

    /// Fills in what depends on other keys, and checks what no single key shows.
    ///
    /// # Errors
    /// When keys contradict each other or ask for what this broker does not have.
    pub fn normalize(&mut self) -> Result<(), ConfigError> {
        if self.broker_name.is_empty() {
            self.broker_name = mapping::host_name();
        }
        // At most 261976.
        self.bit_map_length_consume_queue_ext = self.bloom_filter().bit_count() as i32;
        refused::check_combination(self)?;
        self.namesrv_addresses()?;
        mapping::delete_hours(&self.delete_when)?;
        mapping::delay_levels_ms(&self.message_delay_level)?;
        mapping::bind_ip(&self.bind_address)?;
        if self.listen_port != 0 && self.listen_port <= 2 {
            return Err(invalid("listenPort", self.listen_port, "0 or 3 to 65535"));
        }
        Ok(())
    }

    /// The name servers of `namesrvAddr`.
    ///
    /// # Errors
    /// When one of them is not `host:port`.
    pub fn namesrv_addresses(&self) -> Result<Vec<String>, ConfigError> {
        let addresses = self.namesrv_addr.split(';').map(str::trim).filter(|addr| !addr.is_empty());
        addresses
            .map(|addr| {
                let port = addr.rsplit_once(':').filter(|(host, _)| !host.is_empty());
                match port.and_then(|(_, port)| port.parse::<u16>().ok()) {
                    Some(1..) => Ok(addr.to_owned()),
                    _ => Err(invalid("namesrvAddr", addr, "host:port;host:port")),
                }
            })
            .collect()
    }

    /// The bits of filters in bit maps.
    pub fn bloom_filter(&self) -> BloomFilter {
        BloomFilter::new(self.max_error_rate_of_bloom_filter, self.expect_consumer_num_use_filter)
    }

    /// Whether `key` may not be changed at run time.
    pub fn is_black_listed(&self, key: &str) -> bool {
        const ALWAYS: [&str; 3] = ["brokerConfigPath", "configBlackList", "rocketmqHome"];
        ALWAYS.contains(&key)
            || self.config_black_list.split(';').any(|listed| listed.trim() == key)
    }

    /// Whether `key` says which broker this is, or what its files on disk are like. Changed under a
    /// running broker it would hold by halves, and might keep the next start from succeeding.
    pub fn is_fixed_while_running(key: &str) -> bool {
        const FIXED: [&str; 30] = [
            "asyncLearner",
            "bindAddress",
            "brokerClusterName",
            "brokerIP1",
            "brokerIP2",
            "brokerId",
            "brokerName",
            "brokerRole",
            "coordinator",
            "coordinatorLease",
            "haListenPort",
            "haMasterAddress",
            "haMaxTimeSlaveNotCatchup",
            "leaseDurationSeconds",
            "leaseRenewDeadlineSeconds",
            "leaseRetryPeriodSeconds",
            "listenPort",
            "mappedFileSizeCommitLog",
            "mappedFileSizeConsumeQueue",
            "mappedFileSizeConsumeQueueExt",
            "maxHashSlotNum",
            "maxIndexNum",
            "minInSyncReplicas",
            "readOnlyCommitLogStorePaths",
            "replicaHost",
            "storeHost",
            "storePathCommitLog",
            "storePathEpochFile",
            "storePathRootDir",
            "totalReplicas",
        ];
        FIXED.contains(&key)
    }

    /// Directory of the store.
    pub fn store_root(&self) -> PathBuf {
        if self.store_path_root_dir.is_empty() {
            let home = std::env::var_os("HOME").unwrap_or_else(|| "/".into());
            return Path::new(&home).join("store");
        }
        PathBuf::from(&self.store_path_root_dir)
    }

    /// Directory of topics.json, consumerOffset.json and the like.
    pub fn config_dir(&self) -> PathBuf {
        self.store_root().join("config")
    }

    /// Bytes of the log that each slave may be sent in a second.
    pub fn ha_bytes_per_second(&self) -> Option<u64> {
        let limit = u64::try_from(self.max_ha_transfer_byte_in_second).unwrap_or(1);
        self.ha_flow_control_enable.then_some(limit)
    }

    /// The epoch file.
    pub fn epoch_file(&self) -> PathBuf {
        match self.store_path_epoch_file.trim() {
            "" => self.store_root().join("epochFileCheckpoint"),
            path => PathBuf::from(path),
        }
    }

    /// Port that slaves connect to.
    pub fn ha_port(&self, listen_port: u16) -> u16 {
        match u16::try_from(self.ha_listen_port) {
            Ok(port @ 1..) => port,
            _ => listen_port.saturating_add(1),
        }
    }
}

pub(crate) fn invalid(key: &str, value: impl ToString, allowed: &str) -> ConfigError {
    ConfigError { key: key.to_owned(), value: value.to_string(), allowed: allowed.to_owned() }
}

#[cfg(test)]
mod tests;
