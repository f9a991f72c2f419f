//! Conditions: the closed list of reasons, and the rule that a transition time moves only when the
//! status does. Pure; who decides a verdict is elsewhere.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It was not evaluated.
    Unknown,
}

impl Status {
    /// The text Kubernetes uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Status {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// Why a condition has its status. The names are API: they are never renamed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Reason {
            $($(#[$doc])* $name,)+
        }

        impl Reason {
            /// The name as shown.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }
        }
    };
}

reasons! {
    /// Everything that is meant holds.
    AsExpected,
    /// Not evaluated yet.
    NotEvaluated,
    /// Some name servers are not ready.
    NameServersNotReady,
    /// Some brokers are not ready.
    BrokersNotReady,
    /// A ready broker is not known to every ready name server.
    MastersNotRegistered,
    /// Children are being created.
    Creating,
    /// Pods are being replaced one at a time.
    RollingOut,
    /// A pod that was replaced does not become ready.
    RolloutStuck,
    /// A container of a pod ended with an error and has not become ready since.
    PodCrashing,
    /// An image cannot be pulled.
    ImageNotPulled,
    /// The kubelet cannot start a container.
    PodNotStarted,
    /// No node takes a pod.
    PodUnschedulable,
    /// A group has fewer copies than it takes to take messages in.
    TooFewInSync,
    /// A group has fewer copies than it should have.
    ReplicasNotInSync,
    /// No master can be appointed.
    FailoverBlocked,
    /// A Lease of a group's name is not the record that the operator made.
    ForeignLease,
    /// A master is appointed in place of one that was lost.
    FailingOver,
    /// A master hands over.
    SwitchingOver,
    /// Groups have one broker: what is on a volume that is lost is lost.
    SingleReplica,
    /// As many copies are required as there are: sends fail while any broker is away.
    NoSpareReplica,
    /// Brokers are fenced by an administrator.
    FencedByAdministrator,
    /// An annotation names what cannot be fenced.
    FenceRefused,
    /// Volumes are being enlarged.
    VolumesResizing,
    /// Some pods run an older configuration or image.
    ConfigOutdated,
    /// Fewer groups are asked for than exist.
    ScaleInNotSupported,
    /// Topics or consumer groups are created by clients without a resource.
    AutoCreateEnabled,
    /// The operator writes nothing for this object.
    Paused,
    /// The annotation `rocketmq.rs/managed: "false"` is set.
    Unmanaged,
    /// The spec is refused.
    InvalidSpec,
    /// The cluster named by clusterRef does not exist or is being deleted.
    ClusterNotFound,
    /// The cluster has no broker yet, or a broker does not answer.
    ClusterNotReady,
    /// Another, older resource claims the same name on the same cluster.
    Conflict,
    /// What is on the brokers may not be taken over.
    AdoptionRefused,
    /// It is on every broker group as wanted.
    Synced,
    /// A broker group lacks it or differs.
    NotSynced,
    /// Brokers differed and are corrected.
    DriftCorrected,
    /// Brokers differ, and the policy leaves it so.
    DriftFound,
    /// No difference.
    NoDrift,
    /// A queue count change is under way.
    Resizing,
    /// A queue count change waits for consumer groups.
    WaitingForDrain,
    /// No queue count change is under way.
    NoResize,
    /// An ordered topic's queue count is not changed, since keys would be remapped.
    OrderedResizeRefused,
    /// Consumer groups come first on a new broker group.
    WaitingForConsumerGroups,
    /// Deletion waits, since clients use it.
    InUse,
    /// A broker or name server refused the deletion.
    DeletionFailed,
}

/// What a pass found out about one condition type.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Condition type.
    pub kind: &'static str,
    /// Status.
    pub status: Status,
    /// Reason.
    pub reason: Reason,
    /// Text for people. Holds no fast-moving numbers, which would make every pass a write.
    pub message: String,
}

impl Verdict {
    /// A verdict.
    pub fn new(
        kind: &'static str,
        status: impl Into<Status>,
        reason: Reason,
        message: impl Into<String>,
    ) -> Self {
        Self { kind, status: status.into(), reason, message: message.into() }
    }
}

/// The conditions after a pass, in the order of `verdicts`. Types without a verdict are dropped, so
/// a pass states all of them.
pub fn merge(
    old: &[Condition],
    verdicts: &[Verdict],
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    verdicts
        .iter()
        .map(|verdict| {
            let status = verdict.status.as_str();
            let since = find(old, verdict.kind)
                .filter(|before| before.status == status)
                .map_or(Time(whole_seconds(now)), |before| before.last_transition_time.clone());
            Condition {
                type_: verdict.kind.to_owned(),
                status: status.to_owned(),
                reason: verdict.reason.as_str().to_owned(),
                message: verdict.message.clone(),
                observed_generation: generation,
                last_transition_time: since,
            }
        })
        .collect()
}

/// The condition of a type.
pub fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// Whether a condition is `True`.
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    find(conditions, kind).is_some_and(|condition| condition.status == "True")
}

/// The API server keeps whole seconds: a finer time would differ from itself after a round trip.
pub fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    #[test]
    fn transition_time_moves_only_with_the_status() {
        let first = merge(
            &[],
            &[Verdict::new("Ready", false, Reason::Creating, "creating")],
            Some(1),
            at(100),
        );
        let second = merge(
            &first,
            &[Verdict::new("Ready", false, Reason::BrokersNotReady, "waiting")],
            Some(2),
            at(200),
        );
        assert_eq!(second[0].last_transition_time.0, at(100));
        assert_eq!(second[0].reason, "BrokersNotReady");
        assert_eq!(second[0].observed_generation, Some(2));
        let third = merge(
            &second,
            &[Verdict::new("Ready", true, Reason::AsExpected, "")],
            Some(2),
            at(300),
        );
        assert_eq!(third[0].last_transition_time.0, at(300));
    }

    #[test]
    fn times_are_whole_seconds() {
        let now = Timestamp::from_millisecond(1_500).expect("in range");
        let made = merge(&[], &[Verdict::new("Ready", true, Reason::AsExpected, "")], None, now);
        assert_eq!(made[0].last_transition_time.0, at(1));
    }
}
