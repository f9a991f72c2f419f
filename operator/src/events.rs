//! Kubernetes events. Their reasons are API: a closed list, never renamed.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

use crate::metrics::Metrics;

macro_rules! happenings {
    ($($(#[$doc:meta])* $name:ident => $kind:ident,)+) => {
        /// What can happen to a resource.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Happening {
            $($(#[$doc])* $name,)+
        }

        impl Happening {
            /// The event's reason.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            fn kind(self) -> EventType {
                match self {
                    $(Self::$name => EventType::$kind,)+
                }
            }
        }
    };
}

happenings! {
    /// The operator saw a cluster for the first time.
    ClusterCreated => Normal,
    /// A broker group's children were made.
    GroupCreated => Normal,
    /// Pods begin to be replaced.
    RolloutStarted => Normal,
    /// Every pod runs the current template.
    RolloutCompleted => Normal,
    /// A replaced pod does not become ready.
    RolloutStuck => Warning,
    /// A name server's pod is replaced.
    NameServerRestarted => Normal,
    /// A broker's pod is replaced.
    BrokerRestarted => Normal,
    /// Fewer groups are asked for than exist.
    ScaleInBlocked => Warning,
    /// Volumes are enlarged.
    VolumeResized => Normal,
    /// A topic was created on the brokers.
    TopicCreated => Normal,
    /// A topic that was there was taken over.
    TopicAdopted => Normal,
    /// A queue count change began.
    QueuesResizing => Normal,
    /// A queue count change ended.
    QueuesResized => Normal,
    /// A topic was deleted from the brokers.
    TopicDeleted => Normal,
    /// A consumer group was created on the brokers.
    ConsumerGroupCreated => Normal,
    /// A consumer group that was there was taken over.
    ConsumerGroupAdopted => Normal,
    /// A consumer group was deleted from the brokers.
    ConsumerGroupDeleted => Normal,
    /// Brokers differ and stay so.
    DriftDetected => Warning,
    /// Brokers differed and were corrected.
    DriftCorrected => Warning,
    /// Another resource claims the same name.
    Conflict => Warning,
    /// A deletion did not succeed.
    DeletionFailed => Warning,
    /// A deletion waits for clients.
    InUse => Warning,
    /// A finalizer was released without asking the brokers.
    DeletionSkipped => Warning,
    /// The operator stopped writing for a cluster.
    Paused => Normal,
}

/// Sends events. A failure to send is logged and otherwise ignored: events are news, not state.
#[derive(Clone)]
pub struct Events {
    recorder: Recorder,
    metrics: Metrics,
}

impl Events {
    /// Events reported by `identity`.
    pub fn new(client: Client, identity: &str, metrics: Metrics) -> Self {
        let reporter = Reporter {
            controller: "rocketmq.rs/operator".to_owned(),
            instance: Some(identity.to_owned()),
        };
        Self { recorder: Recorder::new(client, reporter), metrics }
    }

    /// Sends one event about an object.
    pub async fn send(&self, about: &ObjectReference, what: Happening, note: impl Into<String>) {
        let mut note = note.into();
        // The API server refuses notes of more than a kilobyte.
        if note.len() > 1000 {
            let end = (0..=1000).rev().find(|i| note.is_char_boundary(*i)).unwrap_or(0);
            note.truncate(end);
        }
        let event = Event {
            type_: what.kind(),
            reason: what.as_str().to_owned(),
            note: Some(note),
            action: what.as_str().to_owned(),
            secondary: None,
        };
        match self.recorder.publish(&event, about).await {
            Ok(()) => self.metrics.wrote("Event"),
            Err(error) => tracing::warn!(%error, reason = what.as_str(), "event not sent"),
        }
    }
}
