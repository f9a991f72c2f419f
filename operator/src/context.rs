//! What every reconciler of one namespace scope shares, and the frame of a pass: its span, its
//! metrics, its back-off.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::controller::Action;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Client, Resource, ResourceExt};
use parking_lot::Mutex;
use rocketmq_replication::Millis;
use tracing::Instrument as _;

use crate::apply::Objects;
use crate::crd::{ConsumerGroup, RocketMQCluster, Topic};
use crate::error::{Error, jittered};
use crate::events::Events;
use crate::failover::memory::Groups;
use crate::metrics::Metrics;
use crate::pokes::Pokes;
use crate::rocketmq::BrokerAdmin;
use crate::settings::Settings;

/// Shared by the reconcilers of one scope (one namespace, or all).
pub struct Context {
    /// API server.
    pub client: Client,
    /// Brokers and name servers.
    pub admin: Arc<dyn BrokerAdmin>,
    /// Events.
    pub events: Events,
    /// Metrics.
    pub metrics: Metrics,
    /// Settings.
    pub settings: Settings,
    /// Clusters as last seen.
    pub clusters: Store<RocketMQCluster>,
    /// Topics as last seen.
    pub topics: Store<Topic>,
    /// Consumer groups as last seen.
    pub consumer_groups: Store<ConsumerGroup>,
    /// Leases of broker groups as last seen.
    pub leases: Store<Lease>,
    /// Pods as last seen.
    pub pods: Store<Pod>,
    /// What this process remembers of broker groups.
    pub groups: Arc<Groups>,
    /// Wakes passes of other kinds.
    pub pokes: Pokes,
    failures: Mutex<HashMap<String, u32>>,
}

/// Caches that watches fill.
pub struct Stores {
    /// Clusters.
    pub clusters: Store<RocketMQCluster>,
    /// Topics.
    pub topics: Store<Topic>,
    /// Consumer groups.
    pub consumer_groups: Store<ConsumerGroup>,
    /// Leases of broker groups.
    pub leases: Store<Lease>,
    /// Pods.
    pub pods: Store<Pod>,
}

impl Context {
    /// A context over the given stores.
    pub fn new(
        client: Client,
        admin: Arc<dyn BrokerAdmin>,
        metrics: Metrics,
        settings: Settings,
        stores: Stores,
        groups: Arc<Groups>,
        pokes: Pokes,
    ) -> Self {
        let events = Events::new(client.clone(), &settings.identity, metrics.clone());
        Self {
            client,
            admin,
            events,
            metrics,
            settings,
            clusters: stores.clusters,
            topics: stores.topics,
            consumer_groups: stores.consumer_groups,
            leases: stores.leases,
            pods: stores.pods,
            groups,
            pokes,
            failures: Mutex::default(),
        }
    }

    /// Objects of a namespace.
    pub fn objects(&self, namespace: &str) -> Objects {
        Objects::new(self.client.clone(), namespace, self.metrics.clone())
    }

    /// Waits until every cache holds what the API server had when it was filled. Passes that conclude
    /// something from an absence begin with this; it holds them up only at the start of the process.
    ///
    /// # Errors
    /// Fails when a watch has ended, that is while the process stops.
    pub async fn caches_filled(&self) -> Result<(), Error> {
        let stopping = |_| Error::NotYet("the caches are being closed".to_owned());
        self.clusters.wait_until_ready().await.map_err(stopping)?;
        self.topics.wait_until_ready().await.map_err(stopping)?;
        self.consumer_groups.wait_until_ready().await.map_err(stopping)
    }

    /// The same for passes over broker groups.
    ///
    /// # Errors
    /// Fails when a watch has ended, that is while the process stops.
    pub async fn group_caches_filled(&self) -> Result<(), Error> {
        let stopping = |_| Error::NotYet("the caches are being closed".to_owned());
        self.clusters.wait_until_ready().await.map_err(stopping)?;
        self.leases.wait_until_ready().await.map_err(stopping)?;
        self.pods.wait_until_ready().await.map_err(stopping)
    }

    /// Time of the clock by which broker groups are watched.
    pub fn monotonic(&self) -> Millis {
        self.groups.now()
    }

    /// Has every Topic and ConsumerGroup of a cluster looked at again now.
    pub fn reassert(&self, cluster: &RocketMQCluster) {
        let (name, namespace) = (cluster.name_any(), cluster.namespace());
        for topic in self.topics.state() {
            if topic.spec.cluster_ref.name == name && topic.namespace() == namespace {
                self.pokes.topic(&topic);
            }
        }
        for group in self.consumer_groups.state() {
            if group.spec.cluster_ref.name == name && group.namespace() == namespace {
                self.pokes.consumer_group(&group);
            }
        }
    }

    /// A cluster by name, as last seen.
    pub fn cluster(&self, namespace: &str, name: &str) -> Option<Arc<RocketMQCluster>> {
        self.clusters.get(&ObjectRef::new(name).within(namespace))
    }

    /// The present. The one place where passes read the clock.
    pub fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    /// Runs one pass in its span and counts it.
    ///
    /// # Errors
    /// Hands on the pass's error.
    pub async fn pass<K, F>(&self, object: &K, pass: F) -> Result<Action, Error>
    where
        K: Resource<DynamicType = ()>,
        F: Future<Output = Result<Action, Error>>,
    {
        let kind = K::kind(&());
        let span = tracing::info_span!(
            "pass",
            %kind,
            namespace = object.namespace().unwrap_or_default(),
            name = object.name_any(),
            generation = object.meta().generation.unwrap_or_default(),
        );
        let started = Instant::now();
        let result = pass.instrument(span).await;
        let class = result.as_ref().map_or_else(Error::class, |_| "ok");
        self.metrics.reconciled(&kind, class, started.elapsed().as_secs_f64());
        if result.is_ok() {
            self.failures.lock().remove(&key(object));
        }
        result
    }

    /// When a failed pass is tried again.
    pub fn after_error<K: Resource<DynamicType = ()>>(&self, object: &K, error: &Error) -> Action {
        self.after_error_within(object, error, Duration::MAX)
    }

    /// The same, after `longest` at most.
    pub fn after_error_within<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        error: &Error,
        longest: Duration,
    ) -> Action {
        let failures = {
            let mut failures = self.failures.lock();
            let count = failures.entry(key(object)).or_insert(0);
            *count = count.saturating_add(1);
            *count - 1
        };
        let wait = jittered(error.retry_after(failures).min(longest));
        let (kind, name) = (K::kind(&()), object.name_any());
        let namespace = object.namespace().unwrap_or_default();
        match error {
            Error::NotYet(_) => tracing::debug!(%kind, namespace, name, %error, "pass waits"),
            _ => {
                tracing::warn!(%kind, namespace, name, %error, failures, retry_ms = wait.as_millis() as u64, "pass failed");
            }
        }
        Action::requeue(wait)
    }

    /// Forgets a cluster that is gone, with its groups and their metrics.
    pub fn cluster_gone(&self, namespace: &str, name: &str) {
        self.metrics.remove_cluster(namespace, name);
        for broker in self.groups.forget_all(namespace, name) {
            self.metrics.remove_group(namespace, &broker);
        }
    }

    /// Forgets an object that is gone.
    pub fn forget<K: Resource<DynamicType = ()>>(&self, object: &K) {
        self.failures.lock().remove(&key(object));
    }
}

/// The next look at an object that does not change.
pub fn resync(seconds: u64) -> Action {
    Action::requeue(jittered(Duration::from_secs(seconds)))
}

fn key<K: Resource<DynamicType = ()>>(object: &K) -> String {
    format!("{}/{}/{}", K::kind(&()), object.namespace().unwrap_or_default(), object.name_any())
}

/// Namespace of an object; custom resources are namespaced, so the API server always sets it.
pub fn namespace_of<K: Resource<DynamicType = ()>>(object: &K) -> String {
    object.namespace().unwrap_or_else(|| "default".to_owned())
}
