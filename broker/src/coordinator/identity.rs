//! Who a broker is in its group, and how long it relies on what.

use std::time::Duration;

use rocketmq_protocol::config::ConfigError;
use rocketmq_replication::{MasterAddresses, ReplicaId, Settings};

use crate::config::{BrokerConfig, invalid};

/// The times of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long it holds for others after they saw it renewed.
    pub lease: Duration,
    /// How long its holder relies on a renewal.
    pub renew_deadline: Duration,
    /// Pause between renewals.
    pub retry: Duration,
}

impl Timing {
    /// As configured.
    pub fn of(config: &BrokerConfig) -> Timing {
        let seconds = |value: i32| Duration::from_secs(u64::try_from(value).unwrap_or(1));
        Timing {
            lease: seconds(config.lease_duration_seconds),
            renew_deadline: seconds(config.lease_renew_deadline_seconds),
            retry: seconds(config.lease_retry_period_seconds),
        }
    }

    /// How long one call to the record's keeper may take: two in a row leave time for a third before
    /// the deadline.
    pub fn call(&self) -> Duration {
        self.renew_deadline / 3
    }
}

/// The broker's number in its group: `brokerId`, or the ordinal of the pod plus one.
///
/// # Errors
/// When neither says it.
pub fn replica_id(config: &BrokerConfig) -> Result<ReplicaId, ConfigError> {
    if config.broker_id > 0 {
        return Ok(ReplicaId(config.broker_id));
    }
    let pod = std::env::var("POD_NAME").unwrap_or_default();
    let ordinal = pod.rsplit_once('-').and_then(|(_, ordinal)| ordinal.parse::<u32>().ok());
    ordinal.map(|ordinal| ReplicaId(i64::from(ordinal) + 1)).ok_or_else(|| {
        let allowed = "1 and above with coordinator=kubernetes, unless the environment's POD_NAME \
                       ends in a dash and a number";
        invalid("brokerId", config.broker_id, allowed)
    })
}

/// `replicaHost` with the environment's values in it; empty if it is not set.
///
/// # Errors
/// When it names something that the environment does not have.
pub fn replica_host(
    configured: &str,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<String, ConfigError> {
    let mut out = String::new();
    let mut rest = configured.trim();
    while let Some((before, after)) = rest.split_once("$(") {
        let refused = |allowed: &str| invalid("replicaHost", configured, allowed);
        let (name, behind) = after
            .split_once(')')
            .ok_or_else(|| refused("a host, in which each `$(` has its `)`"))?;
        let value = environment(name).ok_or_else(|| {
            refused(&format!("a host; the environment has no {name} to put in its place"))
        })?;
        out.push_str(before);
        out.push_str(&value);
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}

/// What decides about the group is told of this broker.
///
/// # Errors
/// When nothing says which number it has in its group.
pub fn settings(
    config: &BrokerConfig,
    timing: Timing,
    addresses: MasterAddresses,
) -> Result<Settings, ConfigError> {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Ok(Settings {
        id: replica_id(config)?,
        incarnation: incarnation(&std::env::var("POD_UID").unwrap_or_default()),
        addresses,
        min_in_sync: usize::try_from(config.min_in_sync_replicas).unwrap_or(1),
        renew_deadline_ms: ms(timing.renew_deadline),
        retry_ms: ms(timing.retry),
        catch_up_ms: u64::try_from(config.ha_max_time_slave_not_catchup).unwrap_or(15_000),
        // A slave keeps its word for as long as others take the lease to hold.
        promise_ms: ms(timing.lease),
    })
}

/// A name for this start of this process that no other start has: the pod's UID, if there is one, and
/// a random number.
fn incarnation(pod_uid: &str) -> String {
    let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '-';
    let uid: String = pod_uid.chars().filter(is_plain).take(64).collect();
    let uid = if uid.is_empty() { "process" } else { &uid };
    format!("{uid}:{:016x}", rand::random::<u64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_filled_from_the_environment() {
        let environment = |name: &str| (name == "POD_NAME").then(|| "rmq-0-1".to_owned());
        let host = |text: &str| replica_host(text, environment).map_err(|error| error.to_string());
        assert_eq!(host("$(POD_NAME).rmq.svc"), Ok("rmq-0-1.rmq.svc".to_owned()));
        assert_eq!(host(" plain "), Ok("plain".to_owned()));
        assert_eq!(host(""), Ok(String::new()));
        assert!(host("$(OTHER)").unwrap_err().contains("no OTHER"));
        assert!(host("$(POD_NAME").unwrap_err().contains("`)`"));
    }

    #[test]
    fn no_two_starts_have_one_name() {
        let (one, two) = (incarnation("6f1c-7"), incarnation("6f1c-7"));
        assert_ne!(one, two);
        assert!(one.starts_with("6f1c-7:") && one.len() < 128, "{one}");
        assert!(incarnation("").starts_with("process:"));
        assert!(incarnation(&"a/b".repeat(200)).len() < 128);
    }

    #[test]
    fn two_slow_calls_leave_time_for_a_third() {
        for deadline_ms in [1, 2, 3, 10, 1_000, 10_000, 3_600_000] {
            let renew_deadline = Duration::from_millis(deadline_ms);
            let timing = Timing { renew_deadline, ..Timing::of(&BrokerConfig::default()) };
            assert!(timing.call() * 2 < timing.renew_deadline, "{timing:?}");
        }
    }
}
