//! The status of a consumer group from what a pass found: pure.

use jiff::Timestamp;

use crate::conditions::{self, Reason, Status, Verdict, merge};
use crate::crd::consumer_group::{ConsumerGroupStatus, SyncedGroup};
use crate::crd::{ConsumerGroup, DriftPolicy, Origin};
use crate::rocketmq::{AdminError, GroupSettings};

/// A consumer group on one broker group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// brokerName.
    pub broker: String,
    /// The consumer group there, if it is there.
    pub settings: Option<GroupSettings>,
}

/// What a pass found out.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Summary; `Synced` when all is as wanted.
    pub reason: Reason,
    /// Text for people.
    pub message: String,
    /// Differences nobody asked for, one text per group.
    pub drifted: Vec<String>,
    /// Who made the consumer group, when this pass found out.
    pub origin: Option<Origin>,
    /// Whether the next pass should follow at once.
    pub again: bool,
    groups: Option<Vec<SyncedGroup>>,
}

impl Finding {
    /// Nothing was done, for this reason.
    pub fn stopped(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            drifted: Vec::new(),
            origin: None,
            again: false,
            groups: None,
        }
    }

    /// The name is this resource's; the next pass begins to write.
    pub fn first_seen(origin: Origin) -> Self {
        Self {
            origin: Some(origin),
            again: true,
            ..Self::stopped(Reason::NotSynced, "not on the brokers yet")
        }
    }

    /// Brokers were looked at, and perhaps written to; `observed` is how they are afterwards.
    pub fn looked(
        observed: Vec<Observed>,
        wanted: &GroupSettings,
        drifted: Vec<String>,
        failure: Option<&AdminError>,
    ) -> Self {
        let groups: Vec<SyncedGroup> = observed
            .iter()
            .filter(|o| o.settings.is_some())
            .map(|o| SyncedGroup {
                name: o.broker.clone(),
                synced: o.settings.as_ref() == Some(wanted),
            })
            .collect();
        let unsynced: Vec<&str> = observed
            .iter()
            .filter(|o| o.settings.as_ref() != Some(wanted))
            .map(|o| o.broker.as_str())
            .collect();
        let (reason, message) = match (failure, unsynced.is_empty()) {
            (Some(error), _) => (Reason::ClusterNotReady, error.to_string()),
            (None, false) => {
                (Reason::NotSynced, format!("not as wanted on {}", unsynced.join(", ")))
            }
            (None, true) => {
                (Reason::Synced, format!("on each of {} broker groups", observed.len()))
            }
        };
        Self { drifted, groups: Some(groups), ..Self::stopped(reason, message) }
    }
}

/// What differs on broker groups that were as wanted for this very generation.
pub fn drifted(
    group: &ConsumerGroup,
    before: &ConsumerGroupStatus,
    observed: &[Observed],
    wanted: &GroupSettings,
) -> Vec<String> {
    let settled = conditions::find(&before.conditions, "Synced").filter(|synced| {
        synced.observed_generation == group.metadata.generation
            && (synced.status == "True" || synced.reason == Reason::DriftFound.as_str())
    });
    let Some(settled) = settled else { return Vec::new() };
    let known_drift = settled.reason == Reason::DriftFound.as_str();
    observed
        .iter()
        .filter(|o| before.groups.iter().any(|g| g.name == o.broker && (g.synced || known_drift)))
        .filter(|o| o.settings.as_ref() != Some(wanted))
        .map(|o| match &o.settings {
            None => format!("{}: the consumer group is missing", o.broker),
            Some(settings) => format!("{}: {}", o.broker, difference(settings, wanted)),
        })
        .collect()
}

fn difference(found: &GroupSettings, wanted: &GroupSettings) -> String {
    let fields = [
        ("consumeEnabled", found.consume_enabled.to_string(), wanted.consume_enabled.to_string()),
        (
            "broadcastEnabled",
            found.broadcast_enabled.to_string(),
            wanted.broadcast_enabled.to_string(),
        ),
        ("consumeFromMin", found.consume_from_min.to_string(), wanted.consume_from_min.to_string()),
        (
            "notifyOnMembershipChange",
            found.notify_on_membership_change.to_string(),
            wanted.notify_on_membership_change.to_string(),
        ),
        ("retryQueues", found.retry_queues.to_string(), wanted.retry_queues.to_string()),
        ("maxRetries", found.max_retries.to_string(), wanted.max_retries.to_string()),
    ];
    fields
        .iter()
        .filter(|(_, found, wanted)| found != wanted)
        .map(|(name, found, wanted)| format!("{name} {found} instead of {wanted}"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The status after a pass.
pub fn compute(group: &ConsumerGroup, finding: &Finding, now: Timestamp) -> ConsumerGroupStatus {
    let before = group.status.clone().unwrap_or_default();
    let groups = match &finding.groups {
        None => before.groups.clone(),
        Some(seen) => {
            // Groups that did not answer keep their place, as not synced.
            let missing = before
                .groups
                .iter()
                .filter(|old| {
                    finding.reason == Reason::ClusterNotReady
                        && seen.iter().all(|new| new.name != old.name)
                })
                .map(|old| SyncedGroup { synced: false, ..old.clone() });
            let mut groups: Vec<SyncedGroup> = seen.iter().cloned().chain(missing).collect();
            groups.sort_by(|a, b| a.name.cmp(&b.name));
            groups
        }
    };
    ConsumerGroupStatus {
        observed_generation: group.metadata.generation,
        conditions: merge(
            &before.conditions,
            &verdicts(group, finding),
            group.metadata.generation,
            now,
        ),
        group_name: Some(group.group_name().to_owned()),
        origin: finding.origin.or(before.origin),
        groups,
    }
}

fn verdicts(group: &ConsumerGroup, finding: &Finding) -> Vec<Verdict> {
    let reason = finding.reason;
    let looked = finding.groups.is_some();
    let tolerated = reason == Reason::DriftFound && group.spec.drift_policy == DriftPolicy::Ignore;
    let in_sync = reason == Reason::Synced || tolerated;
    let left_drifted = reason == Reason::DriftFound && !tolerated;
    let when = |holds: bool, reason: Reason| if holds { reason } else { Reason::AsExpected };
    let say = |holds: bool, otherwise: &str| {
        if holds { finding.message.clone() } else { otherwise.to_owned() }
    };
    let stopped = matches!(reason, Reason::Paused | Reason::Unmanaged);
    let conflict = reason == Reason::Conflict;
    vec![
        Verdict::new("Ready", in_sync, reason, finding.message.clone()),
        Verdict::new("Synced", in_sync, reason, finding.message.clone()),
        Verdict::new(
            "Drifted",
            if looked { Status::from(left_drifted) } else { Status::Unknown },
            match (looked, left_drifted) {
                (false, _) => Reason::NotEvaluated,
                (true, true) => Reason::DriftFound,
                (true, false) => Reason::NoDrift,
            },
            match (looked, left_drifted) {
                (false, _) => "the brokers were not looked at".to_owned(),
                (true, true) => finding.message.clone(),
                (true, false) => "nobody else has changed the consumer group".to_owned(),
            },
        ),
        Verdict::new(
            "Conflict",
            conflict,
            when(conflict, reason),
            say(conflict, "no older ConsumerGroup has this name"),
        ),
        Verdict::new(
            "ReconciliationPaused",
            stopped,
            when(stopped, reason),
            say(stopped, "the consumer group is managed"),
        ),
    ]
}
