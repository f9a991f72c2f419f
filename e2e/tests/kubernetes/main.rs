//! The product on a real Kubernetes: installed by its charts, driven by `kubectl apply`, under
//! unmodified Java clients in pods of their own.
//!
//! The tests share the operator and take their turns: two clusters at a time would measure each
//! other.

mod data;
mod failover;
mod invalid;
mod load;
mod pods;
mod traffic;

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use e2e::kubernetes::Kubernetes;

/// Seconds after which the operator counts on clients to know a new route: what the client
/// programs of the tests poll at, too.
const CLIENT_REFRESH_SECONDS: u32 = 5;

/// The cluster with the operator installed, and the turn of one test.
fn cluster() -> (&'static Kubernetes, MutexGuard<'static, ()>) {
    static TURN: Mutex<()> = Mutex::new(());
    static CLUSTER: OnceLock<Kubernetes> = OnceLock::new();
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let cluster = CLUSTER.get_or_init(|| {
        let cluster = Kubernetes::from_environment().expect("a cluster to test on");
        cluster.install_operator(CLIENT_REFRESH_SECONDS).expect("the operator installs");
        cluster
    });
    (cluster, turn)
}

/// A cluster resource with small files, for small volumes.
fn cluster_manifest(name: &str, groups: u32, more_config: &str) -> String {
    format!(
        "apiVersion: rocketmq.rs/v1alpha1
kind: RocketMQCluster
metadata: {{name: {name}}}
spec:
  nameServers: {{replicas: 2}}
  brokers:
    groups: {groups}
    terminationGracePeriodSeconds: 30
    storage: {{size: 1Gi}}
    config:
      mappedFileSizeCommitLog: '67108864'
{more_config}"
    )
}

fn topic_manifest(name: &str, cluster: &str, queues: u32) -> String {
    format!(
        "apiVersion: rocketmq.rs/v1alpha1
kind: Topic
metadata: {{name: {name}}}
spec:
  clusterRef: {{name: {cluster}}}
  queuesPerGroup: {queues}
"
    )
}

fn group_manifest(name: &str, cluster: &str) -> String {
    format!(
        "apiVersion: rocketmq.rs/v1alpha1
kind: ConsumerGroup
metadata: {{name: {name}}}
spec:
  clusterRef: {{name: {cluster}}}
"
    )
}
