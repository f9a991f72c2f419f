//! Values that ask for something this broker does not have, where going on without it would lose
//! messages, let strangers in, or write files that others cannot read. They stop the start.

use rocketmq_protocol::config::ConfigError;

use super::{BrokerConfig, BrokerRole, FlushDiskType, invalid};

/// Checks a single pair of the file.
///
/// # Errors
/// When the value asks for a missing feature.
pub(super) fn check(key: &str, value: &str) -> Result<(), ConfigError> {
    let value = value.trim();
    let on = value.eq_ignore_ascii_case("true");
    let allowed = match key {
        "aclEnable" | "authenticationEnabled" | "authorizationEnabled" if on => {
            "false: this broker has no access control yet and would let everybody in"
        }
        "enableDLegerCommitLog" | "enableControllerMode" | "enableSlaveActingMaster" if on => {
            "false: this broker replicates by brokerRole alone yet"
        }
        "duplicationEnable" if on => "false: this broker replicates by brokerRole alone",
        "enableLmq" | "enableMultiDispatch" if on => {
            "false: this broker has no multi-dispatch queues yet"
        }
        "metricsExporterType" if !matches!(value, "PROM" | "DISABLE") => {
            "PROM or DISABLE: this broker has no other exporter yet"
        }
        "storeType" if !matches!(value, "" | "default") => {
            "default: this broker has no RocksDB store"
        }
        _ => return Ok(()),
    };
    Err(invalid(key, value, allowed))
}

/// Checks keys that only together ask for a missing feature.
///
/// # Errors
/// When they do.
pub(super) fn check_combination(config: &BrokerConfig) -> Result<(), ConfigError> {
    let is_slave = config.broker_role == BrokerRole::Slave;
    if is_slave && config.broker_id <= 0 {
        return Err(invalid("brokerId", config.broker_id, "1 and above with brokerRole=SLAVE"));
    }
    if !is_slave && config.broker_id != 0 {
        return Err(invalid("brokerId", config.broker_id, "0 unless brokerRole=SLAVE"));
    }
    if config.min_in_sync_replicas > 1 {
        let allowed = "1: this broker does not choose among in-sync sets yet";
        return Err(invalid("minInSyncReplicas", config.min_in_sync_replicas, allowed));
    }
    if config.transient_store_pool_enable && config.flush_disk_type == FlushDiskType::SyncFlush {
        let allowed = "false, or true with flushDiskType=ASYNC_FLUSH: what waits in a buffer cannot \
                       be on disk";
        let value = "true with flushDiskType=SYNC_FLUSH";
        return Err(invalid("transientStorePoolEnable", value, allowed));
    }
    Ok(())
}
