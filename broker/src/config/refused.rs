//! Values that ask for something this broker does not have, where going on without it would lose
//! messages, let strangers in, or write files that others cannot read. They stop the start.

use rocketmq_protocol::config::ConfigError;

use super::{BrokerConfig, BrokerRole, CoordinatorKind, FlushDiskType, invalid};

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
            "false: who is master follows from brokerRole, or from the key coordinator"
        }
        "duplicationEnable" if on => {
            "false: who is master follows from brokerRole, or from the key coordinator"
        }
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
    match config.coordinator {
        CoordinatorKind::Static => check_static(config)?,
        CoordinatorKind::Kubernetes => check_appointed(config)?,
    }
    if config.transient_store_pool_enable && config.flush_disk_type == FlushDiskType::SyncFlush {
        let allowed = "false, or true with flushDiskType=ASYNC_FLUSH: what waits in a buffer cannot \
                       be on disk";
        let value = "true with flushDiskType=SYNC_FLUSH";
        return Err(invalid("transientStorePoolEnable", value, allowed));
    }
    Ok(())
}

/// Roles as the configuration says.
fn check_static(config: &BrokerConfig) -> Result<(), ConfigError> {
    let is_slave = config.broker_role == BrokerRole::Slave;
    if is_slave && config.broker_id <= 0 {
        return Err(invalid("brokerId", config.broker_id, "1 and above with brokerRole=SLAVE"));
    }
    if !is_slave && config.broker_id != 0 {
        let allowed = "0 unless brokerRole=SLAVE or coordinator=kubernetes";
        return Err(invalid("brokerId", config.broker_id, allowed));
    }
    if config.min_in_sync_replicas > 1 {
        let allowed = "1: without a coordinator there are no in-sync sets";
        return Err(invalid("minInSyncReplicas", config.min_in_sync_replicas, allowed));
    }
    Ok(())
}

/// A master that is appointed.
fn check_appointed(config: &BrokerConfig) -> Result<(), ConfigError> {
    if config.broker_role == BrokerRole::Slave {
        let allowed = "SYNC_MASTER or ASYNC_MASTER with coordinator=kubernetes: it says how a master \
                       answers, and who is master is appointed";
        return Err(invalid("brokerRole", "SLAVE", allowed));
    }
    if config.min_in_sync_replicas > config.total_replicas {
        let allowed = format!("1 to totalReplicas, which is {}", config.total_replicas);
        return Err(invalid("minInSyncReplicas", config.min_in_sync_replicas, &allowed));
    }
    let (lease, renew) = (config.lease_duration_seconds, config.lease_renew_deadline_seconds);
    if renew >= lease {
        let allowed = format!("less than leaseDurationSeconds, which is {lease}");
        return Err(invalid("leaseRenewDeadlineSeconds", renew, &allowed));
    }
    let retry = config.lease_retry_period_seconds;
    if i64::from(retry) * 12 >= i64::from(renew) * 10 {
        let allowed = format!(
            "less than leaseRenewDeadlineSeconds, which is {renew}, divided by 1.2: there must be \
             time for a second attempt"
        );
        return Err(invalid("leaseRetryPeriodSeconds", retry, &allowed));
    }
    if config.ha_send_heartbeat_interval > config.ha_max_time_slave_not_catchup / 2 {
        let allowed = format!(
            "at most half of haMaxTimeSlaveNotCatchup, which is {}: a slave that is silent for longer \
             leaves the in-sync set",
            config.ha_max_time_slave_not_catchup
        );
        return Err(invalid(
            "haSendHeartbeatInterval",
            config.ha_send_heartbeat_interval,
            &allowed,
        ));
    }
    if config.transient_store_pool_enable {
        let allowed = "false with coordinator=kubernetes: what waits in a buffer is on no slave";
        return Err(invalid("transientStorePoolEnable", true, allowed));
    }
    Ok(())
}
