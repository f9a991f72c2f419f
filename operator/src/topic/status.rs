//! The status of a topic from what a pass found: pure.

use jiff::Timestamp;

use super::plan::{Observed, Plan, Wanted};
use crate::conditions::{self, Reason, Status, Verdict, merge};
use crate::crd::topic::{ResizeStatus, ResizeStep, TopicGroupStatus, TopicStatus};
use crate::crd::{DriftPolicy, Origin, Topic};
use crate::events::counted;
use crate::rocketmq::{AdminError, TopicSettings};

/// What a pass found out.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Summary; `Synced` when all is as wanted.
    pub reason: Reason,
    /// Text for people.
    pub message: String,
    /// The topic on the groups that answered, after this pass's writes.
    pub observed: Vec<Observed>,
    /// The change under way.
    pub resize: Option<ResizeStatus>,
    /// Differences nobody asked for, one text per group.
    pub drifted: Vec<String>,
    /// Who made the topic, when this pass found out.
    pub origin: Option<Origin>,
    /// Whether the next pass should follow at once.
    pub again: bool,
    /// Whether the topic was looked at.
    looked: bool,
}

impl Finding {
    /// Nothing was done, for this reason.
    pub fn stopped(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            observed: Vec::new(),
            resize: None,
            drifted: Vec::new(),
            origin: None,
            again: false,
            looked: false,
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

    /// Some groups do not answer and the rest may not be touched without them.
    pub fn unreachable(observed: Vec<Observed>, wanted: Wanted, failures: &[AdminError]) -> Self {
        Self::planned(observed, wanted, &Plan::default(), Vec::new(), failures)
    }

    /// Brokers differ and the policy leaves it so.
    pub fn drift(
        observed: Vec<Observed>,
        wanted: Wanted,
        drifted: Vec<String>,
        failures: &[AdminError],
    ) -> Self {
        let mut finding = Self::planned(observed, wanted, &Plan::default(), drifted, failures);
        if failures.is_empty() {
            finding.reason = Reason::DriftFound;
            finding.message = finding.drifted.join("; ");
        }
        finding
    }

    /// The plan's step is being taken.
    pub fn planned(
        observed: Vec<Observed>,
        wanted: Wanted,
        plan: &Plan,
        drifted: Vec<String>,
        failures: &[AdminError],
    ) -> Self {
        let mut finding = Self {
            observed,
            resize: plan.resize.clone(),
            drifted,
            looked: true,
            ..Self::stopped(Reason::Synced, "")
        };
        finding.settle(wanted);
        if let Some(failure) = failures.first() {
            finding.note_failure(failure);
        }
        finding
    }

    /// Records a write that succeeded.
    pub fn wrote(&mut self, group: &str, settings: &TopicSettings, wanted: Wanted) {
        for observed in &mut self.observed {
            if observed.group == group {
                observed.settings = Some(settings.clone());
            }
        }
        if matches!(self.reason, Reason::NotSynced | Reason::Synced | Reason::Resizing) {
            self.settle(wanted);
        }
    }

    /// Records a request that failed.
    pub fn note_failure(&mut self, error: &AdminError) {
        self.reason = Reason::ClusterNotReady;
        self.message = error.to_string();
    }

    fn settle(&mut self, wanted: Wanted) {
        let unsynced: Vec<&str> =
            self.observed.iter().filter(|o| !synced(o, wanted)).map(|o| o.group.as_str()).collect();
        (self.reason, self.message) = match (&self.resize, unsynced.is_empty()) {
            (Some(resize), _) => {
                let what = match resize.step {
                    // Who is connected is not asked: one that connects meanwhile has the old route.
                    ResizeStep::WaitForConsumers => {
                        "one route refresh, so that all consumers learn of the new queues"
                    }
                    ResizeStep::WaitForProducers => {
                        "two route refreshes, so that all producers leave the old queues"
                    }
                    ResizeStep::WaitForDrain => "consumer groups to empty the old queues",
                };
                let by = if resize.blocked_by.is_empty() {
                    String::new()
                } else {
                    format!(": {}", resize.blocked_by.join(", "))
                };
                let text = format!(
                    "{} to {}, waiting for {what}{by}",
                    counted(resize.from, "queue"),
                    resize.to
                );
                (Reason::Resizing, text)
            }
            (None, false) => {
                (Reason::NotSynced, format!("not as wanted on {}", unsynced.join(", ")))
            }
            (None, true) => (
                Reason::Synced,
                format!(
                    "{} on each of {} broker groups",
                    counted(wanted.queues, "queue"),
                    self.observed.len()
                ),
            ),
        };
    }
}

fn synced(observed: &Observed, wanted: Wanted) -> bool {
    observed.settings.as_ref().is_some_and(|s| {
        s.read_queues == wanted.queues
            && s.write_queues == wanted.queues
            && s.permission == wanted.permission
    })
}

/// What differs on groups that were as wanted for this very generation: somebody else wrote.
pub fn drifted(
    topic: &Topic,
    before: &TopicStatus,
    observed: &[Observed],
    wanted: Wanted,
) -> Vec<String> {
    let settled = conditions::find(&before.conditions, "Synced").is_some_and(|synced| {
        synced.observed_generation == topic.metadata.generation
            && (synced.status == "True" || synced.reason == Reason::DriftFound.as_str())
    });
    if !settled || before.resize.is_some() {
        return Vec::new();
    }
    observed
        .iter()
        .filter(|o| {
            before.groups.iter().any(|g| g.name == o.group && (g.synced || still_drifted(before)))
        })
        .filter(|o| !synced(o, wanted))
        .map(|o| match &o.settings {
            None => format!("{}: the topic is missing", o.group),
            Some(s) => format!(
                "{}: read {} write {} permission {} instead of read {} write {} permission {}",
                o.group,
                s.read_queues,
                s.write_queues,
                s.permission,
                wanted.queues,
                wanted.queues,
                wanted.permission
            ),
        })
        .collect()
}

fn still_drifted(before: &TopicStatus) -> bool {
    conditions::find(&before.conditions, "Synced")
        .is_some_and(|synced| synced.reason == Reason::DriftFound.as_str())
}

/// The status after a pass.
pub fn compute(topic: &Topic, finding: &Finding, now: Timestamp) -> TopicStatus {
    let before = topic.status.clone().unwrap_or_default();
    let wanted =
        Wanted { queues: topic.spec.queues_per_group, permission: topic.spec.permission.bits() };
    let groups = if finding.looked {
        // Groups that did not answer keep their last known state, as not synced.
        let answered = |name: &str| finding.observed.iter().any(|o| o.group == name);
        let mut groups: Vec<TopicGroupStatus> = before
            .groups
            .iter()
            .filter(|group| !answered(&group.name))
            .map(|group| TopicGroupStatus { synced: false, ..group.clone() })
            .chain(finding.observed.iter().filter_map(|o| {
                let settings = o.settings.as_ref()?;
                Some(TopicGroupStatus {
                    name: o.group.clone(),
                    read_queues: settings.read_queues,
                    write_queues: settings.write_queues,
                    permission: settings.permission,
                    synced: synced(o, wanted),
                })
            }))
            .collect();
        groups.sort_by(|a, b| a.name.cmp(&b.name));
        groups
    } else {
        before.groups.clone()
    };
    let resize = if finding.looked { finding.resize.clone() } else { before.resize.clone() };
    TopicStatus {
        observed_generation: topic.metadata.generation,
        conditions: merge(
            &before.conditions,
            &verdicts(topic, finding, resize.as_ref()),
            topic.metadata.generation,
            now,
        ),
        topic_name: Some(topic.topic_name().to_owned()),
        origin: finding.origin.or(before.origin),
        groups,
        resize,
    }
}

fn verdicts(topic: &Topic, finding: &Finding, resize: Option<&ResizeStatus>) -> Vec<Verdict> {
    let reason = finding.reason;
    let tolerated = reason == Reason::DriftFound && topic.spec.drift_policy == DriftPolicy::Ignore;
    let in_sync = reason == Reason::Synced || tolerated;
    let left_drifted = reason == Reason::DriftFound && !tolerated;
    let say = |holds: bool, otherwise: &str| {
        if holds { finding.message.clone() } else { otherwise.to_owned() }
    };
    vec![
        Verdict::new("Ready", in_sync, reason, finding.message.clone()),
        Verdict::new("Synced", in_sync, reason, finding.message.clone()),
        Verdict::new(
            "Drifted",
            if finding.looked { Status::from(left_drifted) } else { Status::Unknown },
            match (finding.looked, left_drifted) {
                (false, _) => Reason::NotEvaluated,
                (true, true) => Reason::DriftFound,
                (true, false) => Reason::NoDrift,
            },
            match (finding.looked, left_drifted) {
                (false, _) => "the brokers were not looked at".to_owned(),
                (true, true) => finding.drifted.join("; "),
                (true, false) => "nobody else has changed the topic".to_owned(),
            },
        ),
        Verdict::new(
            "Conflict",
            reason == Reason::Conflict,
            if reason == Reason::Conflict { Reason::Conflict } else { Reason::AsExpected },
            say(reason == Reason::Conflict, "no older Topic has this name"),
        ),
        Verdict::new(
            "ResizeInProgress",
            resize.is_some(),
            match resize {
                None => Reason::NoResize,
                Some(resize) if resize.step == ResizeStep::WaitForDrain => Reason::WaitingForDrain,
                Some(_) => Reason::Resizing,
            },
            say(resize.is_some(), "no queue count change is under way"),
        ),
        Verdict::new(
            "ReconciliationPaused",
            matches!(reason, Reason::Paused | Reason::Unmanaged),
            if matches!(reason, Reason::Paused | Reason::Unmanaged) {
                reason
            } else {
                Reason::AsExpected
            },
            say(matches!(reason, Reason::Paused | Reason::Unmanaged), "the topic is managed"),
        ),
    ]
}
