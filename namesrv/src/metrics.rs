//! What the name server counts, for Prometheus. The Java name server has no metrics of its own;
//! these names are ours.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use rocketmq_protocol::code::{RequestCode, ResponseCode};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    request_code: &'static str,
    response_code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

/// Handles to the counters; cheap to update from any thread.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    requests: Family<RequestLabels, Counter>,
    removed: Family<ReasonLabels, Counter>,
    pub(crate) connections: Gauge,
    brokers: Gauge,
    groups: Gauge,
    topics: Gauge,
}

impl Metrics {
    /// Makes the metrics known to a registry under their public names.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let mut add = |name: &str, help: &str, gauge: &Gauge| {
            registry.register(name, help, gauge.clone());
        };
        add("rocketmq_namesrv_connections", "Open connections", &self.connections);
        add("rocketmq_namesrv_brokers", "Registered brokers", &self.brokers);
        add("rocketmq_namesrv_broker_groups", "Broker groups with a live broker", &self.groups);
        add("rocketmq_namesrv_topics", "Topics with a route", &self.topics);
        registry.register(
            "rocketmq_namesrv_requests",
            "Requests answered, by request and response code",
            self.requests.clone(),
        );
        registry.register(
            "rocketmq_namesrv_brokers_removed",
            "Brokers taken out, by reason",
            self.removed.clone(),
        );
    }

    /// Counts an answer.
    pub(crate) fn answered(&self, request_code: i32, response: ResponseCode) {
        let labels = RequestLabels {
            request_code: RequestCode(request_code).name().unwrap_or("unknown"),
            response_code: response.name().unwrap_or("unknown"),
        };
        self.requests.get_or_create(&labels).inc();
    }

    /// Counts a broker that was taken out.
    pub(crate) fn removed(&self, reason: &'static str) {
        self.removed.get_or_create(&ReasonLabels { reason }).inc();
    }

    /// Sets the sizes of the route table.
    pub(crate) fn table(&self, brokers: usize, groups: usize, topics: usize) {
        for (gauge, size) in
            [(&self.brokers, brokers), (&self.groups, groups), (&self.topics, topics)]
        {
            gauge.set(i64::try_from(size).unwrap_or(i64::MAX));
        }
    }
}
