//! Kubernetes events. Their reasons are API: a closed list, never renamed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::{Api, PostParams};
use parking_lot::Mutex;

use crate::metrics::Metrics;

/// Who reports.
const CONTROLLER: &str = "rocketmq.rs/operator";
/// Longest note in bytes.
const NOTE_BYTES_MAX: usize = 1000;

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

            fn kind(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($kind),)+
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
    /// A pod crashes or cannot start.
    PodFailing => Warning,
    /// The configuration holds what a program would not start with, or does not know.
    ConfigRefused => Warning,
    /// A name server's pod is replaced.
    NameServerRestarted => Normal,
    /// A broker's pod is replaced.
    BrokerRestarted => Normal,
    /// A master was lost, and another is appointed.
    FailoverStarted => Warning,
    /// The replica that was appointed is at work.
    FailoverCompleted => Normal,
    /// A master was lost, and none can be appointed.
    FailoverBlocked => Warning,
    /// A replica is appointed that may lack acknowledged messages.
    UncleanElection => Warning,
    /// A master is asked to hand over.
    SwitchoverStarted => Normal,
    /// A master has handed over.
    SwitchoverCompleted => Normal,
    /// A master has not handed over, and goes on.
    SwitchoverAborted => Warning,
    /// A master was fenced by an administrator.
    MasterFenced => Warning,
    /// An annotation names what is not there, or cannot do what it asks for.
    RequestRefused => Warning,
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
    /// The cluster that a Topic or ConsumerGroup names is not there.
    ClusterNotFound => Warning,
    /// A deletion did not succeed.
    DeletionFailed => Warning,
    /// A deletion waits for clients.
    InUse => Warning,
    /// A finalizer was released without asking the brokers.
    DeletionSkipped => Warning,
    /// The operator stopped writing for a cluster.
    Paused => Normal,
}

/// An event is not sent again within this time: two passes may come to the same news.
const REPEAT_AFTER: Duration = Duration::from_secs(10);

/// Sends events. A failure to send is logged and otherwise ignored: events are news, not state.
#[derive(Clone)]
pub struct Events {
    client: Client,
    identity: String,
    metrics: Metrics,
    sent: Arc<Mutex<HashMap<String, Instant>>>,
}

impl Events {
    /// Events reported by `identity`.
    pub fn new(client: Client, identity: &str, metrics: Metrics) -> Self {
        Self { client, identity: identity.to_owned(), metrics, sent: Arc::default() }
    }

    /// Sends one event about an object.
    pub async fn send(&self, about: &ObjectReference, what: Happening, note: impl Into<String>) {
        let note = shortened(note.into());
        if !self.is_news(about, what, &note) {
            return;
        }
        let namespace = about.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let now = Timestamp::now();
        let event = Event {
            metadata: ObjectMeta {
                // As kubectl and client-go name them: the object and a time.
                name: Some(format!(
                    "{}.{:x}",
                    about.name.as_deref().unwrap_or_default(),
                    now.as_nanosecond()
                )),
                namespace: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            type_: Some(what.kind().to_owned()),
            reason: Some(what.as_str().to_owned()),
            action: Some(what.as_str().to_owned()),
            note: Some(note),
            regarding: Some(about.clone()),
            reporting_controller: Some(CONTROLLER.to_owned()),
            reporting_instance: Some(self.identity.clone()),
            ..Event::default()
        };
        let api: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        match api.create(&PostParams::default(), &event).await {
            Ok(_) => self.metrics.wrote("Event"),
            Err(error) => tracing::warn!(%error, reason = what.as_str(), "event not sent"),
        }
    }

    fn is_news(&self, about: &ObjectReference, what: Happening, note: &str) -> bool {
        let uid = about.uid.as_deref().unwrap_or_default();
        let key = format!("{uid} {} {note}", what.as_str());
        let now = Instant::now();
        let mut sent = self.sent.lock();
        sent.retain(|_, at| now.duration_since(*at) < REPEAT_AFTER);
        sent.insert(key, now).is_none()
    }
}

/// A count with its noun, for notes and messages.
pub fn counted(count: impl Into<i64>, noun: &str) -> String {
    match count.into() {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}

/// The API server refuses notes of more than a kilobyte.
fn shortened(mut note: String) -> String {
    if note.len() > NOTE_BYTES_MAX {
        let end = (0..=NOTE_BYTES_MAX).rev().find(|i| note.is_char_boundary(*i)).unwrap_or(0);
        note.truncate(end);
    }
    note
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_notes_are_cut_between_characters() {
        let note = shortened("é".repeat(1000));
        assert_eq!(note.len(), NOTE_BYTES_MAX);
        assert_eq!(shortened("short".to_owned()), "short");
    }

    #[test]
    fn one_is_no_plural() {
        assert_eq!([0, 1, 2].map(|n| counted(n, "queue")), ["0 queues", "1 queue", "2 queues"]);
    }

    #[test]
    fn kinds_are_those_of_kubernetes() {
        assert_eq!(Happening::TopicCreated.kind(), "Normal");
        assert_eq!(Happening::DeletionFailed.kind(), "Warning");
    }
}
