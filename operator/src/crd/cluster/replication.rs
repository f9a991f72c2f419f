//! How a group's messages get to its slaves, and when one of them is promoted.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::yes;
use crate::crd::rule;

/// How messages get to the slaves. Counts include the master.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Replication {
    /// Whether a send is answered before its message is on the slaves.
    #[serde(default)]
    pub mode: ReplicationMode,

    /// Copies that a group should have: with fewer in sync, the condition `ReplicationHealthy` is
    /// false. All of a group's brokers when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rule(
        "self >= 1",
        "'brokers.replication.inSyncReplicas: %d is less than 1, the master'.format([self])"
    ))]
    pub in_sync_replicas: Option<i32>,

    /// Copies below which a group takes no messages in. With 1, the default, a master whose slaves
    /// are away goes on alone.
    #[serde(default = "one")]
    #[x_kube(validation = rule(
        "self >= 1",
        "'brokers.replication.minInSyncReplicas: %d is less than 1, the master'.format([self])"
    ))]
    pub min_in_sync_replicas: i32,
}

impl Default for Replication {
    fn default() -> Self {
        Self { mode: ReplicationMode::Sync, in_sync_replicas: None, min_in_sync_replicas: one() }
    }
}

fn one() -> i32 {
    1
}

/// Whether a send waits for slaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ReplicationMode {
    /// A send is answered when every slave in sync has its message: a promotion loses none that was
    /// acknowledged.
    #[default]
    Sync,
    /// A send is answered when the master has its message: a promotion loses the last ones.
    Async,
}

/// What is done when a master is lost.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[x_kube(validation = rule(
    "self.leaseDurationSeconds > self.renewDeadlineSeconds",
    "'failover.leaseDurationSeconds: %d is not more than renewDeadlineSeconds, %d: a master must stop before another is appointed'.format([self.leaseDurationSeconds, self.renewDeadlineSeconds])"
))]
#[x_kube(validation = rule(
    "self.renewDeadlineSeconds * 10 > self.retryPeriodSeconds * 12",
    "'failover.renewDeadlineSeconds: %d is not more than 1.2 times retryPeriodSeconds, %d: one late renewal would stop the master'.format([self.renewDeadlineSeconds, self.retryPeriodSeconds])"
))]
#[serde(rename_all = "camelCase")]
pub struct Failover {
    /// Whether a slave is promoted without being asked to.
    #[serde(default = "yes")]
    pub enabled: bool,

    /// Seconds that a lost master is waited for before a slave is promoted, on top of what it takes
    /// to be sure that it is lost.
    #[serde(default)]
    #[x_kube(validation = rule(
        "self >= 0 && self <= 3600",
        "'failover.delaySeconds: %d is outside 0..3600'.format([self])"
    ))]
    pub delay_seconds: i32,

    /// Seconds without a renewal of its Lease after which a master counts as lost.
    #[serde(default = "lease_duration_seconds")]
    #[x_kube(validation = rule(
        "self >= 2 && self <= 300",
        "'failover.leaseDurationSeconds: %d is outside 2..300'.format([self])"
    ))]
    pub lease_duration_seconds: i32,

    /// Seconds without a renewal after which a master stops by itself, unless its slaves have
    /// promised not to take over.
    #[serde(default = "renew_deadline_seconds")]
    #[x_kube(validation = rule(
        "self >= 1 && self <= 300",
        "'failover.renewDeadlineSeconds: %d is outside 1..300'.format([self])"
    ))]
    pub renew_deadline_seconds: i32,

    /// Seconds between two renewals.
    #[serde(default = "retry_period_seconds")]
    #[x_kube(validation = rule(
        "self >= 1 && self <= 60",
        "'failover.retryPeriodSeconds: %d is outside 1..60'.format([self])"
    ))]
    pub retry_period_seconds: i32,

    /// What comes first when both cannot be had.
    #[serde(default)]
    pub policy: FailoverPolicy,

    /// Whether a slave that lacks acknowledged messages may be promoted when no other is left, once
    /// it is proven that the old master has ended. Messages are lost then.
    #[serde(default)]
    pub allow_unclean: bool,
}

impl Default for Failover {
    fn default() -> Self {
        Self {
            enabled: true,
            delay_seconds: 0,
            lease_duration_seconds: lease_duration_seconds(),
            renew_deadline_seconds: renew_deadline_seconds(),
            retry_period_seconds: retry_period_seconds(),
            policy: FailoverPolicy::Durability,
            allow_unclean: false,
        }
    }
}

fn lease_duration_seconds() -> i32 {
    15
}

fn renew_deadline_seconds() -> i32 {
    10
}

fn retry_period_seconds() -> i32 {
    2
}

/// What comes first when both cannot be had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum FailoverPolicy {
    /// Keeping messages: where several brokers were lost at once, their return is awaited for a
    /// short time, and the one with the most messages is promoted.
    #[default]
    Durability,
    /// Serving: the first broker that may be promoted is.
    Availability,
}
