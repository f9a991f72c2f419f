//! Looks at objects of one kind that passes over another kind ask for, where no event of the API
//! server tells of the cause.

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::runtime::reflector::ObjectRef;

use crate::crd::{ConsumerGroup, RocketMQCluster, Topic};

/// Asks for looks. Those that nobody waits for any more, while the process stops, are dropped.
#[derive(Clone)]
pub struct Pokes {
    clusters: UnboundedSender<ObjectRef<RocketMQCluster>>,
    topics: UnboundedSender<ObjectRef<Topic>>,
    consumer_groups: UnboundedSender<ObjectRef<ConsumerGroup>>,
    groups: UnboundedSender<ObjectRef<StatefulSet>>,
}

/// What was asked for, by kind.
pub struct Poked {
    /// Clusters.
    pub clusters: UnboundedReceiver<ObjectRef<RocketMQCluster>>,
    /// Topics.
    pub topics: UnboundedReceiver<ObjectRef<Topic>>,
    /// Consumer groups.
    pub consumer_groups: UnboundedReceiver<ObjectRef<ConsumerGroup>>,
    /// Broker groups, by their StatefulSets.
    pub groups: UnboundedReceiver<ObjectRef<StatefulSet>>,
}

/// The two ends.
pub fn pokes() -> (Pokes, Poked) {
    let (clusters, clusters_poked) = unbounded();
    let (topics, topics_poked) = unbounded();
    let (consumer_groups, consumer_groups_poked) = unbounded();
    let (groups, groups_poked) = unbounded();
    let poked = Poked {
        clusters: clusters_poked,
        topics: topics_poked,
        consumer_groups: consumer_groups_poked,
        groups: groups_poked,
    };
    (Pokes { clusters, topics, consumer_groups, groups }, poked)
}

impl Pokes {
    /// Has a cluster looked at.
    pub fn cluster(&self, cluster: &RocketMQCluster) {
        let _ = self.clusters.unbounded_send(ObjectRef::from_obj(cluster));
    }

    /// Has a topic looked at.
    pub fn topic(&self, topic: &Topic) {
        let _ = self.topics.unbounded_send(ObjectRef::from_obj(topic));
    }

    /// Has a consumer group looked at.
    pub fn consumer_group(&self, group: &ConsumerGroup) {
        let _ = self.consumer_groups.unbounded_send(ObjectRef::from_obj(group));
    }

    /// Has a broker group looked at.
    pub fn group(&self, namespace: &str, broker: &str) {
        let _ = self.groups.unbounded_send(ObjectRef::new(broker).within(namespace));
    }
}
