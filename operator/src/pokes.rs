//! Looks at objects of one kind that passes over another kind ask for, where no event of the API
//! server tells of the cause. A look that waits stands for all who ask for it meanwhile, so that no
//! more wait than there are objects.

use std::collections::{HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures::Stream;
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::runtime::reflector::ObjectRef;
use parking_lot::Mutex;

use crate::apply::Child;
use crate::crd::{ConsumerGroup, RocketMQCluster, Topic};

/// Asks for looks. Those that nobody waits for any more, while the process stops, are dropped.
#[derive(Clone)]
pub struct Pokes {
    clusters: Queue<RocketMQCluster>,
    topics: Queue<Topic>,
    consumer_groups: Queue<ConsumerGroup>,
    groups: Queue<StatefulSet>,
}

/// What was asked for, by kind.
pub struct Poked {
    /// Clusters.
    pub clusters: Looks<RocketMQCluster>,
    /// Topics.
    pub topics: Looks<Topic>,
    /// Consumer groups.
    pub consumer_groups: Looks<ConsumerGroup>,
    /// Broker groups, by their StatefulSets.
    pub groups: Looks<StatefulSet>,
}

/// The two ends.
pub fn pokes() -> (Pokes, Poked) {
    let pokes = Pokes {
        clusters: Queue::default(),
        topics: Queue::default(),
        consumer_groups: Queue::default(),
        groups: Queue::default(),
    };
    let poked = Poked {
        clusters: Looks(pokes.clusters.clone()),
        topics: Looks(pokes.topics.clone()),
        consumer_groups: Looks(pokes.consumer_groups.clone()),
        groups: Looks(pokes.groups.clone()),
    };
    (pokes, poked)
}

impl Pokes {
    /// Has a cluster looked at.
    pub fn cluster(&self, cluster: &RocketMQCluster) {
        self.clusters.ask(ObjectRef::from_obj(cluster));
    }

    /// Has a cluster looked at that only its name is known of.
    pub fn cluster_named(&self, cluster: ObjectRef<RocketMQCluster>) {
        self.clusters.ask(cluster);
    }

    /// Has a topic looked at.
    pub fn topic(&self, topic: &Topic) {
        self.topics.ask(ObjectRef::from_obj(topic));
    }

    /// Has a consumer group looked at.
    pub fn consumer_group(&self, group: &ConsumerGroup) {
        self.consumer_groups.ask(ObjectRef::from_obj(group));
    }

    /// Has a broker group looked at.
    pub fn group(&self, namespace: &str, broker: &str) {
        self.groups.ask(ObjectRef::new(broker).within(namespace));
    }
}

/// Looks that wait, each object once, the oldest first.
struct Queue<K: Child>(Arc<Mutex<Waiting<K>>>);

struct Waiting<K: Child> {
    order: VecDeque<ObjectRef<K>>,
    known: HashSet<ObjectRef<K>>,
    /// Who is woken by the next one.
    waker: Option<Waker>,
    is_closed: bool,
}

impl<K: Child> Default for Queue<K> {
    fn default() -> Self {
        let (order, known) = (VecDeque::new(), HashSet::new());
        Self(Arc::new(Mutex::new(Waiting { order, known, waker: None, is_closed: false })))
    }
}

impl<K: Child> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Child> Queue<K> {
    fn ask(&self, object: ObjectRef<K>) {
        let waker = {
            let mut waiting = self.0.lock();
            if waiting.is_closed || !waiting.known.insert(object.clone()) {
                return;
            }
            waiting.order.push_back(object);
            waiting.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The looks at objects of one kind, as a stream that one controller reads.
pub struct Looks<K: Child>(Queue<K>);

impl<K: Child> Stream for Looks<K> {
    type Item = ObjectRef<K>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<ObjectRef<K>>> {
        let mut waiting = self.0.0.lock();
        match waiting.order.pop_front() {
            Some(object) => {
                waiting.known.remove(&object);
                Poll::Ready(Some(object))
            }
            None => {
                waiting.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<K: Child> Drop for Looks<K> {
    fn drop(&mut self) {
        let mut waiting = self.0.0.lock();
        waiting.is_closed = true;
        waiting.order.clear();
        waiting.known.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{FutureExt as _, StreamExt as _};

    fn asked(looks: &mut Looks<StatefulSet>) -> Vec<String> {
        std::iter::from_fn(|| looks.next().now_or_never().flatten()).map(|look| look.name).collect()
    }

    #[test]
    fn a_look_that_waits_stands_for_all_who_ask_for_it() {
        let (pokes, mut poked) = pokes();
        for _ in 0..1000 {
            pokes.group("ns", "a");
            pokes.group("ns", "b");
        }
        assert_eq!(asked(&mut poked.groups), ["a", "b"]);
        pokes.group("ns", "a");
        assert_eq!(asked(&mut poked.groups), ["a"], "one that was taken can be asked for again");
    }

    #[tokio::test]
    async fn who_waits_is_woken() {
        let (pokes, mut poked) = pokes();
        let waiting = tokio::spawn(async move { poked.groups.next().await });
        tokio::task::yield_now().await;
        pokes.group("ns", "a");
        let look = waiting.await.expect("no panic").expect("a look");
        assert_eq!((look.name.as_str(), look.namespace.as_deref()), ("a", Some("ns")));
    }

    #[test]
    fn nothing_is_kept_for_a_reader_that_is_gone() {
        let (pokes, poked) = pokes();
        drop(poked);
        pokes.group("ns", "a");
        assert!(pokes.groups.0.lock().order.is_empty());
    }
}
