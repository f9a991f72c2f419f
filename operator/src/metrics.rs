//! Metrics of the operator, prefix `rocketmq_operator_`.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

type Labels = Vec<(&'static str, String)>;

/// Counters and gauges, shared by everything in the process.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    reconciles: Family<Labels, Counter>,
    durations: Family<Labels, Histogram>,
    leader: Gauge,
    cluster_ready: Family<Labels, Gauge>,
    api_writes: Family<Labels, Counter>,
    drift_corrections: Family<Labels, Counter>,
    admin_errors: Family<Labels, Counter>,
    admin_seconds: Family<Labels, Counter<f64, AtomicU64>>,
    group_writable: Family<Labels, Gauge>,
    group_epoch: Family<Labels, Gauge>,
    failovers: Family<Labels, Counter>,
    failover_phases: Family<Labels, Histogram>,
    switchovers: Family<Labels, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        let reconciles = Family::default();
        let durations: Family<Labels, Histogram> =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 4.0, 8)));
        let leader = Gauge::default();
        let cluster_ready = Family::default();
        let api_writes = Family::default();
        let drift_corrections = Family::default();
        let admin_errors = Family::default();
        let admin_seconds = Family::default();
        let group_writable = Family::default();
        let group_epoch = Family::default();
        let failovers = Family::default();
        let failover_phases: Family<Labels, Histogram> =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.1, 2.0, 10)));
        let switchovers = Family::default();

        let mut registry = Registry::with_prefix("rocketmq_operator");
        registry.register("reconcile", "Passes by kind and result", reconciles.clone());
        registry.register(
            "reconcile_duration_seconds",
            "Duration of passes by kind",
            durations.clone(),
        );
        registry.register("leader", "1 while this process leads", leader.clone());
        registry.register("cluster_ready", "1 while the cluster is Ready", cluster_ready.clone());
        registry.register("api_writes", "Writes to the API server by kind", api_writes.clone());
        registry.register(
            "drift_corrections",
            "Differences on brokers that were undone, by kind",
            drift_corrections.clone(),
        );
        registry.register(
            "admin_request_errors",
            "Requests to brokers and name servers that failed, by operation",
            admin_errors.clone(),
        );
        registry.register(
            "admin_request_seconds",
            "Time spent in requests to brokers and name servers, by operation",
            admin_seconds.clone(),
        );
        registry.register(
            "group_writable",
            "1 while every ready name server knows the group's master",
            group_writable.clone(),
        );
        registry.register("group_epoch", "Epoch of the group's master", group_epoch.clone());
        registry.register(
            "failover",
            "Promotions for want of a master, by reason and result",
            failovers.clone(),
        );
        registry.register(
            "failover_phase_seconds",
            "Duration of the phases of a promotion",
            failover_phases.clone(),
        );
        registry.register(
            "switchover",
            "Planned changes of a master, by result",
            switchovers.clone(),
        );
        Self {
            registry: Arc::new(registry),
            reconciles,
            durations,
            leader,
            cluster_ready,
            api_writes,
            drift_corrections,
            admin_errors,
            admin_seconds,
            group_writable,
            group_epoch,
            failovers,
            failover_phases,
            switchovers,
        }
    }
}

impl Metrics {
    /// Counts a pass; `result` is `ok` or the class of its error.
    pub fn reconciled(&self, kind: &str, result: &str, seconds: f64) {
        let kind = ("kind", kind.to_owned());
        self.reconciles.get_or_create(&vec![kind.clone(), ("result", result.to_owned())]).inc();
        self.durations.get_or_create(&vec![kind]).observe(seconds);
    }

    /// Notes whether this process leads.
    pub fn set_leader(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// Notes whether a cluster is Ready.
    pub fn set_cluster_ready(&self, namespace: &str, name: &str, ready: bool) {
        self.cluster_ready.get_or_create(&cluster_labels(namespace, name)).set(i64::from(ready));
    }

    /// Forgets a cluster that is gone.
    pub fn remove_cluster(&self, namespace: &str, name: &str) {
        self.cluster_ready.remove(&cluster_labels(namespace, name));
    }

    /// Notes whether every ready name server knows a group's master.
    pub fn set_group_writable(&self, namespace: &str, group: &str, writable: bool) {
        self.group_writable.get_or_create(&group_labels(namespace, group)).set(writable.into());
    }

    /// Notes the epoch of a group's master.
    pub fn set_group_epoch(&self, namespace: &str, group: &str, epoch: i32) {
        self.group_epoch.get_or_create(&group_labels(namespace, group)).set(epoch.into());
    }

    /// Forgets a group that is gone.
    pub fn remove_group(&self, namespace: &str, group: &str) {
        self.group_writable.remove(&group_labels(namespace, group));
        self.group_epoch.remove(&group_labels(namespace, group));
    }

    /// Counts a promotion, or one that cannot be made.
    pub fn failed_over(&self, reason: &str, result: &str) {
        let labels = vec![("reason", reason.to_owned()), ("result", result.to_owned())];
        self.failovers.get_or_create(&labels).inc();
    }

    /// Notes how long a phase of a promotion took.
    pub fn failover_phase(&self, phase: &str, seconds: f64) {
        self.failover_phases.get_or_create(&vec![("phase", phase.to_owned())]).observe(seconds);
    }

    /// Counts a planned change of a master, or one that was aborted.
    pub fn switched_over(&self, result: &str) {
        self.switchovers.get_or_create(&vec![("result", result.to_owned())]).inc();
    }

    /// Counts a write to the API server.
    pub fn wrote(&self, kind: &str) {
        self.api_writes.get_or_create(&vec![("kind", kind.to_owned())]).inc();
    }

    /// Writes to the API server so far, of every kind named.
    pub fn writes(&self, kinds: &[&str]) -> u64 {
        kinds
            .iter()
            .map(|kind| self.api_writes.get_or_create(&vec![("kind", (*kind).to_owned())]).get())
            .sum()
    }

    /// Counts a corrected difference.
    pub fn corrected_drift(&self, kind: &str) {
        self.drift_corrections.get_or_create(&vec![("kind", kind.to_owned())]).inc();
    }

    /// Counts a request to a broker or name server.
    pub fn asked(&self, operation: &str, seconds: f64, failed: bool) {
        let labels = vec![("op", operation.to_owned())];
        self.admin_seconds.get_or_create(&labels).inc_by(seconds);
        if failed {
            self.admin_errors.get_or_create(&labels).inc();
        }
    }

    /// Everything in Prometheus' text form.
    ///
    /// # Errors
    /// Fails only when memory runs out.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

fn cluster_labels(namespace: &str, name: &str) -> Labels {
    vec![("namespace", namespace.to_owned()), ("cluster", name.to_owned())]
}

fn group_labels(namespace: &str, group: &str) -> Labels {
    vec![("namespace", namespace.to_owned()), ("group", group.to_owned())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_the_documented_names() {
        let metrics = Metrics::default();
        metrics.reconciled("Topic", "ok", 0.01);
        metrics.set_leader(true);
        metrics.wrote("StatefulSet");
        metrics.set_group_epoch("ns", "demo-broker-0", 3);
        metrics.failed_over("LeaseExpired", "completed");
        metrics.switched_over("aborted");
        let text = metrics.text().expect("text");
        for name in [
            "rocketmq_operator_reconcile_total{kind=\"Topic\",result=\"ok\"} 1",
            "rocketmq_operator_leader 1",
            "rocketmq_operator_api_writes_total{kind=\"StatefulSet\"} 1",
            "rocketmq_operator_reconcile_duration_seconds_count",
            "rocketmq_operator_group_epoch{namespace=\"ns\",group=\"demo-broker-0\"} 3",
            "rocketmq_operator_failover_total{reason=\"LeaseExpired\",result=\"completed\"} 1",
            "rocketmq_operator_switchover_total{result=\"aborted\"} 1",
        ] {
            assert!(text.contains(name), "{name} is not in\n{text}");
        }
    }
}
