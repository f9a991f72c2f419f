//! Stand-ins for tests: an API server in memory that counts writes, the controllers that would run
//! pods, and brokers as tables.

mod api_server;
mod brokers;
mod replicas;

use std::sync::Arc;

use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

pub(crate) use api_server::ApiServer;
pub(crate) use brokers::{Brokers, address};
pub(crate) use replicas::{Replicas, labelled_master};

use crate::apply::Child;
use crate::context::{Context, Stores};
use crate::failover::memory::Groups;
use crate::metrics::Metrics;
use crate::pokes::{Poked, pokes};
use crate::settings::Settings;

/// Settings without waits between steps.
pub(crate) fn settings() -> Settings {
    Settings {
        watch_namespaces: Vec::new(),
        broker_image: "rocketmq-rs/broker:0.1.0".to_owned(),
        namesrv_image: "rocketmq-rs/namesrv:0.1.0".to_owned(),
        client_refresh_seconds: 0,
        cluster_resync_seconds: 120,
        topic_resync_seconds: 60,
        admin_timeout_ms: 1000,
        concurrency: 1,
        http_address: ([127, 0, 0, 1], 0).into(),
        leader_election: false,
        lease_namespace: "ns".to_owned(),
        lease_name: "lease".to_owned(),
        identity: "test".to_owned(),
    }
}

/// A context whose caches hold what the API server has now.
pub(crate) fn context(server: &ApiServer, brokers: &Brokers) -> Arc<Context> {
    context_with(server, brokers, Arc::default()).0
}

/// The same for a process that remembers `groups`, with what it pokes.
pub(crate) fn context_with(
    server: &ApiServer,
    brokers: &Brokers,
    groups: Arc<Groups>,
) -> (Arc<Context>, Poked) {
    let (pokes, poked) = pokes();
    let ctx = Context::new(
        server.client(),
        Arc::new(brokers.clone()),
        Metrics::default(),
        settings(),
        Stores {
            clusters: store(server.all()),
            topics: store(server.all()),
            consumer_groups: store(server.all()),
            leases: store(server.all()),
            pods: store(server.all()),
        },
        groups,
        pokes,
    );
    (Arc::new(ctx), poked)
}

fn store<K: Child>(objects: Vec<K>) -> Store<K> {
    let (store, mut writer) = reflector::store();
    writer.apply_watcher_event(&Event::Init);
    for object in objects {
        writer.apply_watcher_event(&Event::InitApply(object));
    }
    writer.apply_watcher_event(&Event::InitDone);
    store
}

/// A cluster manifest with two name servers and two groups.
pub(crate) fn cluster_manifest() -> Value {
    json!({
        "apiVersion": "rocketmq.rs/v1alpha1",
        "kind": "RocketMQCluster",
        "metadata": {"name": "demo", "namespace": "ns"},
        "spec": {
            "nameServers": {"replicas": 2},
            "brokers": {"groups": 2, "storage": {"size": "1Gi"}},
        },
    })
}
