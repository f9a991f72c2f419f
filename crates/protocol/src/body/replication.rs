//! State of a broker group's replicas, for people (`HARuntimeInfo`, `EpochEntryCache`).

use serde::{Deserialize, Serialize};

/// A slave's view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HaClientRuntimeInfo {
    /// When it last read, in ms.
    pub last_read_timestamp: i64,
    /// When it last wrote, in ms.
    pub last_write_timestamp: i64,
    /// Its master.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master_addr: Option<String>,
    /// Up to where the master's log is durable; 0 where the protocol does not say.
    pub master_flush_offset: i64,
    /// End of its log.
    pub max_offset: i64,
    /// Bytes of the log in the last second.
    pub transferred_byte_in_second: i64,
}

/// A master's view of a slave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HaConnectionRuntimeInfo {
    /// The slave.
    pub addr: String,
    /// Bytes it is behind.
    pub diff: i64,
    /// Whether it keeps up.
    pub in_sync: bool,
    /// Up to where it has the log.
    pub slave_ack_offset: i64,
    /// Where the next bytes for it begin.
    pub transfer_from_where: i64,
    /// Bytes of the log in the last second.
    pub transferred_byte_in_second: i64,
}

/// Answer to GET_BROKER_HA_STATUS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HaRuntimeInfo {
    /// As a slave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ha_client_runtime_info: Option<HaClientRuntimeInfo>,
    /// As a master, by slave.
    pub ha_connection_info: Vec<HaConnectionRuntimeInfo>,
    /// How many slaves keep up.
    pub in_sync_slave_nums: i32,
    /// Whether it is the master.
    pub master: bool,
    /// End of the master's log.
    pub master_commit_log_max_offset: i64,
}

/// A master's time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EpochEntry {
    /// Where it ended.
    pub end_offset: i64,
    /// Its number.
    pub epoch: i32,
    /// Where it began.
    pub start_offset: i64,
}

/// Answer to GET_BROKER_EPOCH_CACHE.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EpochEntryCache {
    /// The broker's id.
    pub broker_id: i64,
    /// The broker group.
    pub broker_name: String,
    /// The cluster.
    pub cluster_name: String,
    /// The epochs.
    pub epoch_list: Vec<EpochEntry>,
    /// End of the log.
    pub max_offset: i64,
}
