//! What Prometheus is told: the counters, and gauges read from the broker's tables at that moment.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::names;
use rocketmq_protocol::subscription::{ConsumeType, MessageModel};
use rocketmq_protocol::version;
use rocketmq_remoting::counters::SocketCollector;
use rocketmq_replication::Role;

use super::{Histogram, MessageType};
use crate::clock::now_ms;
use crate::config::BrokerConfig;
use crate::state::{BrokerState, StateSlot};

type Labels = Vec<(&'static str, String)>;

/// The registry of this broker, with the labels that all its metrics carry. It is made before the
/// store is open, and empty until the slot is filled.
pub fn registry(
    config: &BrokerConfig,
    state: &StateSlot,
    sockets: &Arc<OnceLock<SocketCollector>>,
) -> Registry {
    let labels = [
        ("cluster".into(), config.broker_cluster_name.clone().into()),
        ("node_type".into(), "broker".into()),
        ("node_id".into(), config.broker_name.clone().into()),
    ];
    let mut registry = Registry::with_labels(labels.into_iter());
    registry.register_collector(Box::new(StateCollector(state.clone())));
    registry.register_collector(Box::new(LateSockets(sockets.clone())));
    registry
}

struct StateCollector(StateSlot);

impl fmt::Debug for StateCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StateCollector")
    }
}

impl Collector for StateCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(state) = self.0.get() else { return Ok(()) };
        let mut out = Out { encoder };
        messages(&state, &mut out)?;
        transactions(&state, &mut out)?;
        requests(&state, &mut out)?;
        clients(&state, &mut out)?;
        lag(&state, &mut out)?;
        broker_and_store(&state, &mut out)
    }
}

/// The server's counters, once it listens.
#[derive(Debug)]
struct LateSockets(Arc<OnceLock<SocketCollector>>);

impl Collector for LateSockets {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.get().map_or(Ok(()), |sockets| sockets.encode(encoder))
    }
}

/// Writes families.
struct Out<'a> {
    encoder: DescriptorEncoder<'a>,
}

impl Out<'_> {
    fn counters(&mut self, name: &str, help: &str, values: &[(Labels, u64)]) -> fmt::Result {
        let metric = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        each(metric, values, |value, encoder| ConstCounter::new(*value).encode(encoder))
    }

    fn gauges(&mut self, name: &str, help: &str, values: &[(Labels, f64)]) -> fmt::Result {
        let metric = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        each(metric, values, |value, encoder| ConstGauge::new(*value).encode(encoder))
    }

    fn histograms(
        &mut self,
        name: &str,
        help: &str,
        values: &[(Labels, Arc<Histogram>)],
    ) -> fmt::Result {
        let metric = self.encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        each(metric, values, |histogram, encoder| encode_histogram(histogram, encoder))
    }
}

fn encode_histogram(histogram: &Histogram, mut encoder: MetricEncoder<'_>) -> fmt::Result {
    let (sum, count, buckets) = histogram.read();
    encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
}

fn each<T>(
    mut metric: MetricEncoder<'_>,
    values: &[(Labels, T)],
    encode: impl Fn(&T, MetricEncoder<'_>) -> fmt::Result,
) -> fmt::Result {
    for (labels, value) in values {
        encode(value, metric.encode_family(labels)?)?;
    }
    Ok(())
}

fn messages(state: &BrokerState, out: &mut Out<'_>) -> fmt::Result {
    let (mut count_in, mut bytes_in, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
    for (topic, entry) in state.metrics.incoming.read().iter() {
        for kind in MessageType::ALL {
            let counters = &entry.kinds[kind as usize];
            let messages = counters.messages.load(Relaxed);
            if messages == 0 {
                continue;
            }
            let labels: Labels = vec![
                ("topic", topic.clone()),
                ("message_type", kind.label().to_owned()),
                ("is_system", state.topics.is_system(topic).to_string()),
            ];
            count_in.push((labels.clone(), messages));
            bytes_in.push((labels.clone(), counters.bytes.load(Relaxed)));
            sizes.push((labels, counters.clone()));
        }
    }
    out.counters("rocketmq_messages_in", "messages stored", &count_in)?;
    out.counters("rocketmq_throughput_in", "bytes of messages stored", &bytes_in)?;
    let metric = out.encoder.encode_descriptor(
        "rocketmq_message_size",
        "bytes of a stored message",
        None,
        MetricType::Histogram,
    )?;
    each(metric, &sizes, |counters, encoder| encode_histogram(&counters.sizes, encoder))?;
    let (mut count_out, mut bytes_out) = (Vec::new(), Vec::new());
    for (group, topics) in state.metrics.outgoing.read().iter() {
        for (topic, counters) in topics {
            let system = names::is_system_group(group) || state.topics.is_system(topic);
            let labels: Labels = vec![
                ("topic", topic.clone()),
                ("consumer_group", group.clone()),
                ("is_system", system.to_string()),
            ];
            count_out.push((labels.clone(), counters.messages.load(Relaxed)));
            bytes_out.push((labels, counters.bytes.load(Relaxed)));
        }
    }
    out.counters("rocketmq_messages_out", "messages handed to consumers", &count_out)?;
    out.counters("rocketmq_throughput_out", "bytes handed to consumers", &bytes_out)
}

fn transactions(state: &BrokerState, out: &mut Out<'_>) -> fmt::Result {
    let labels = |topic: String| -> Labels { vec![("topic", topic)] };
    let half: Vec<_> = state
        .transactions
        .counts
        .all()
        .into_iter()
        .map(|(topic, count)| (labels(topic), count as f64))
        .collect();
    out.gauges("rocketmq_half_messages", "half messages that nobody decided", &half)?;
    let transactions = state.metrics.transactions.read();
    let (mut committed, mut rolled_back) = (Vec::new(), Vec::new());
    for (topic, counters) in transactions.iter() {
        let count = counters.committed.read().1;
        if count > 0 {
            committed.push((labels(topic.clone()), count));
        }
        let count = counters.rolled_back.load(Relaxed);
        if count > 0 {
            rolled_back.push((labels(topic.clone()), count));
        }
    }
    out.counters("rocketmq_commit_messages", "half messages committed", &committed)?;
    out.counters("rocketmq_rollback_messages", "half messages rolled back", &rolled_back)?;
    // RocketMQ's name says milliseconds, its values are seconds.
    let metric = out.encoder.encode_descriptor(
        "rocketmq_finish_message_latency_milliseconds",
        "seconds from a half message to its commit",
        None,
        MetricType::Histogram,
    )?;
    let ages: Vec<(Labels, &Histogram)> = transactions
        .iter()
        .filter(|(_, counters)| counters.committed.read().1 > 0)
        .map(|(topic, counters)| (labels(topic.clone()), &counters.committed))
        .collect();
    each(metric, &ages, |histogram, encoder| encode_histogram(histogram, encoder))
}

fn requests(state: &BrokerState, out: &mut Out<'_>) -> fmt::Result {
    let latencies: Vec<_> = state
        .metrics
        .rpc
        .read()
        .iter()
        .map(|(&(request, response, was_held), histogram)| {
            let code = ResponseCode(response);
            let result =
                if code == ResponseCode::SUCCESS { "success" } else { "process_request_failed" };
            let labels: Labels = vec![
                ("protocol_type", "remoting".to_owned()),
                ("request_code", code_label(RequestCode(request).name(), request)),
                ("response_code", code_label(code.name(), response)),
                ("is_long_polling", was_held.to_string()),
                ("result", result.to_owned()),
            ];
            (labels, histogram.clone())
        })
        .collect();
    out.histograms("rocketmq_rpc_latency_milliseconds", "time to answer a request", &latencies)?;
    let creations = [
        (
            "rocketmq_topic_create_execution_time_milliseconds",
            "time to create a topic",
            &state.metrics.topic_creation,
        ),
        (
            "rocketmq_consumer_group_create_execution_time_milliseconds",
            "time to create a subscription group",
            &state.metrics.group_creation,
        ),
    ];
    for (name, help, times) in creations {
        let metric = out.encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        let values: Vec<(Labels, &Histogram)> =
            [(true, true), (true, false), (false, true), (false, false)]
                .into_iter()
                .map(|(succeeded, system)| {
                    let status = if succeeded { "success" } else { "failure" };
                    let labels = vec![
                        ("invocation_status", status.to_owned()),
                        ("is_system", system.to_string()),
                    ];
                    (labels, times.of(succeeded, system))
                })
                .filter(|(_, histogram)| histogram.read().1 > 0)
                .collect();
        each(metric, &values, |histogram, encoder| encode_histogram(histogram, encoder))?;
    }
    Ok(())
}

fn clients(state: &BrokerState, out: &mut Out<'_>) -> fmt::Result {
    let producers: Vec<(Labels, f64)> = state
        .clients
        .count_producers()
        .into_iter()
        .map(|((language, client_version), count)| {
            let labels: Labels = vec![
                ("language", language.name().to_lowercase()),
                ("version", version_label(client_version)),
                ("protocol_type", "remoting".to_owned()),
            ];
            (labels, count as f64)
        })
        .collect();
    let mut consumers: BTreeMap<Labels, f64> = BTreeMap::new();
    state.clients.for_each_consumer_group(|group, members| {
        let mode = match members.consume_type {
            ConsumeType::ConsumeActively => "pull",
            ConsumeType::ConsumePassively => "push",
            ConsumeType::ConsumePop => "pop",
        };
        for channel in members.channels() {
            let labels: Labels = vec![
                ("consumer_group", group.to_owned()),
                ("language", channel.language.name().to_lowercase()),
                ("version", version_label(channel.version)),
                ("consume_mode", mode.to_owned()),
                ("protocol_type", "remoting".to_owned()),
                ("is_system", names::is_system_group(group).to_string()),
            ];
            *consumers.entry(labels).or_default() += 1.0;
        }
    });
    let consumers: Vec<_> = consumers.into_iter().collect();
    out.gauges("rocketmq_producer_connections", "live producers", &producers)?;
    out.gauges("rocketmq_consumer_connections", "live consumers", &consumers)
}

/// How far groups are behind. Broadcast groups keep their offsets themselves and have no lag here.
fn lag(state: &BrokerState, out: &mut Out<'_>) -> fmt::Result {
    let (mut lags, mut latencies) = (Vec::new(), Vec::new());
    let now = now_ms();
    for (group, topic) in state.offsets.group_topics() {
        let broadcast = state
            .clients
            .with_consumers(&group, |members| members.message_model == MessageModel::Broadcasting);
        if broadcast == Some(true) {
            continue;
        }
        let Some(config) = state.topics.get(&topic) else { continue };
        let (mut behind, mut oldest) = (0_i64, 0_i64);
        for (queue_id, offset) in state.offsets.of_topic(&group, &topic) {
            if queue_id >= config.read_queue_nums {
                continue;
            }
            let max = state.store.max_queue_offset(&topic, queue_id);
            let next = offset.max(state.store.min_queue_offset(&topic, queue_id));
            if next >= max {
                continue;
            }
            behind += max - next;
            if let Some(stored) = state.store_time_at(&topic, queue_id, next) {
                oldest = oldest.max(now - stored);
            }
        }
        let system = names::is_system_group(&group) || state.topics.is_system(&topic);
        let labels: Labels = vec![
            ("consumer_group", group),
            ("is_retry", names::is_retry_topic(&topic).to_string()),
            ("is_system", system.to_string()),
            ("topic", topic),
        ];
        lags.push((labels.clone(), behind as f64));
        latencies.push((labels, oldest as f64));
    }
    out.gauges("rocketmq_consumer_lag_messages", "messages a group has yet to consume", &lags)?;
    out.gauges(
        "rocketmq_consumer_lag_latency_milliseconds",
        "age of the oldest message a group has yet to consume",
        &latencies,
    )
}

fn broker_and_store(state: &BrokerState, out: &mut Out<'_>) -> fmt::Result {
    let none = Labels::new;
    let store = &state.store;
    let permission = f64::from(state.config.load().broker_permission);
    out.gauges("rocketmq_broker_permission", "4 read + 2 write", &[(none(), permission)])?;
    let topics = state.topics.snapshot().len() as f64;
    out.gauges("rocketmq_topic_number", "topics", &[(none(), topics)])?;
    let groups = state.groups.snapshot().len() as f64;
    out.gauges("rocketmq_consumer_group_number", "subscription groups", &[(none(), groups)])?;
    let waiting = state.long_polls.len() as f64;
    out.gauges("rocketmq_broker_held_pulls", "pulls that wait for messages", &[(none(), waiting)])?;
    let labels = || -> Labels {
        vec![("storage_type", "local".to_owned()), ("storage_medium", "disk".to_owned())]
    };
    let (min, max) = (store.min_physical_offset(), store.max_physical_offset());
    let gauges = [
        ("rocketmq_storage_size_bytes", "bytes of the commit log", (max - min) as f64),
        (
            "rocketmq_storage_flush_behind_bytes",
            "bytes written but not synced",
            max.saturating_sub(store.durable().0) as f64,
        ),
        (
            "rocketmq_storage_dispatch_behind_bytes",
            "bytes written but not in a consume queue",
            store.dispatch_behind_bytes() as f64,
        ),
        (
            "rocketmq_storage_message_reserve_time_milliseconds",
            "age of the oldest message",
            store.earliest_message_time().map_or(0, |time| now_ms() - time).max(0) as f64,
        ),
    ];
    for (name, help, value) in gauges {
        out.gauges(name, help, &[(labels(), value)])?;
    }
    group(state, out)
}

/// The broker's group, where its master is appointed.
fn group(state: &BrokerState, out: &mut Out<'_>) -> fmt::Result {
    let Some(group) = &state.group else { return Ok(()) };
    let status = group.status();
    let behind = state.store.written().0.saturating_sub(status.confirmed);
    let roles = [
        ("waiting", matches!(status.role, Role::Waiting)),
        ("slave", matches!(status.role, Role::Slave(_))),
        ("taking_over", matches!(status.role, Role::TakingOver(_))),
        ("master", matches!(status.role, Role::Master(_))),
    ];
    let roles =
        roles.map(|(role, is_it)| (vec![("role", role.to_owned())], f64::from(u8::from(is_it))));
    out.gauges("rocketmq_group_role", "1 for what this broker is in its group", &roles)?;
    let gauges = [
        (
            "rocketmq_group_epoch",
            "newest epoch of the group that is known",
            f64::from(status.epoch.0),
        ),
        (
            "rocketmq_group_in_sync_replicas",
            "members of the in-sync set as last read from the group's record",
            status.in_sync.len() as f64,
        ),
        (
            "rocketmq_group_unconfirmed_bytes",
            "bytes of the log that not every member of the in-sync set is known to have",
            behind.max(0) as f64,
        ),
        (
            "rocketmq_group_fenced",
            "1 if this broker acknowledges no message",
            f64::from(u8::from(status.fenced.is_some())),
        ),
    ];
    for (name, help, value) in gauges {
        out.gauges(name, help, &[(Labels::new(), value)])?;
    }
    Ok(())
}

fn code_label(name: Option<&str>, code: i32) -> String {
    name.map_or_else(|| code.to_string(), str::to_lowercase)
}

fn version_label(number: i32) -> String {
    version::name_of(number).to_lowercase()
}
