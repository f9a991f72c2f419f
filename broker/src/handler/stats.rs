//! Figures for people and their tools: of the broker, of topics, of groups (AdminBrokerProcessor).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rocketmq_protocol::body::consume::{
    BrokerStatsData, BrokerStatsItem, ConsumeStats, ConsumeStatsList, OffsetWrapper,
    QueryConsumeTimeSpanBody, QueueTimeSpan,
};
use rocketmq_protocol::body::group::GroupList;
use rocketmq_protocol::body::route::TopicList;
use rocketmq_protocol::body::topic::{TopicOffset, TopicStatsTable};
use rocketmq_protocol::body::{KVTable, MessageQueue, TopicConfig};
use rocketmq_protocol::code::ResponseCode;
use rocketmq_protocol::frame::Frame;
use rocketmq_protocol::header::group::QueryTopicsByConsumerRequest;
use rocketmq_protocol::header::stats::{
    GetBrokerConsumeStatsRequest, GetConsumeStatsRequest, QueryConsumeTimeSpanRequest,
    ViewBrokerStatsDataRequest,
};
use rocketmq_protocol::header::topic::{GetTopicStatsInfoRequest, QueryTopicConsumeByWhoRequest};
use rocketmq_protocol::response::Response;
use rocketmq_remoting::Connection;

use crate::clock::{now_ms, time_text};
use crate::metrics::Figures;
use crate::request::header;
use crate::runtime_info;
use crate::state::BrokerState;

/// GET_BROKER_RUNTIME_INFO: what `clusterList` and `brokerStatus` show.
pub fn get_broker_runtime_info(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    _frame: &Frame<'_>,
) -> Response {
    Response::ok().with_json(&KVTable { table: runtime_info::table(state) })
}

/// GET_TOPIC_STATS_INFO: bounds and newest message of each queue of a topic.
pub fn get_topic_stats_info(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: GetTopicStatsInfoRequest<'_> = header!(frame);
    let topic = &*request.topic;
    let Some(config) = state.topics.get(topic) else { return no_topic(topic) };
    let broker_name = &state.config.load().broker_name;
    let offset_table = (0..config.read_queue_nums.max(config.write_queue_nums))
        .map(|queue_id| {
            let max_offset = state.store.max_queue_offset(topic, queue_id).max(0);
            let min_offset = state.store.min_queue_offset(topic, queue_id).max(0);
            let newest = (max_offset > min_offset)
                .then(|| state.store_time_at(topic, queue_id, max_offset - 1))
                .flatten();
            let offset =
                TopicOffset { last_update_timestamp: newest.unwrap_or(0), max_offset, min_offset };
            (queue(topic, broker_name, queue_id), offset)
        })
        .collect();
    let topic_put_tps = state.metrics.topic_put_tps(topic);
    Response::ok().with_json(&TopicStatsTable { offset_table, topic_put_tps })
}

/// GET_CONSUME_STATS: where a group stands in each queue of its topics.
pub fn get_consume_stats(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: GetConsumeStatsRequest<'_> = header!(frame);
    let group = &*request.consumer_group;
    let given = [request.topic.as_deref(), request.topic_list.as_deref()];
    let mut topics: Vec<String> = given
        .into_iter()
        .flatten()
        .flat_map(|list| list.split(';'))
        .map(str::trim)
        .filter(|topic| !topic.is_empty())
        .map(str::to_owned)
        .collect();
    if topics.is_empty() {
        topics = state.offsets.topics_of(group);
    }
    let broker_name = &state.config.load().broker_name;
    let mut stats = ConsumeStats::default();
    for topic in &topics {
        let Some(config) = state.topics.get(topic) else { continue };
        if !state.clients.has_left(group, topic) {
            add_progress(state, &mut stats, group, &config, broker_name);
        }
    }
    Response::ok().with_json(&stats)
}

/// GET_BROKER_CONSUME_STATS: where every group stands, topic by topic.
pub fn get_broker_consume_stats(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: GetBrokerConsumeStatsRequest = header!(frame);
    let broker_name = &state.config.load().broker_name;
    let mut groups: Vec<_> = state.groups.snapshot().keys().cloned().collect();
    groups.sort_unstable();
    let mut list = ConsumeStatsList {
        broker_addr: Some(state.identity.broker_addr.clone()),
        ..ConsumeStatsList::default()
    };
    for group in groups {
        let mut of_group = Vec::new();
        for topic in state.offsets.topics_of(&group) {
            let Some(config) = state.topics.get(&topic) else { continue };
            if (request.is_order && !config.order) || state.clients.has_left(&group, &topic) {
                continue;
            }
            let mut stats = ConsumeStats::default();
            add_progress(state, &mut stats, &group, &config, broker_name);
            for progress in stats.offset_table.values() {
                list.total_diff += progress.broker_offset - progress.consumer_offset;
                list.total_inflight_diff += progress.pull_offset - progress.consumer_offset;
            }
            of_group.push(stats);
        }
        list.consume_stats_list.push(BTreeMap::from([(group.to_string(), of_group)]));
    }
    Response::ok().with_json(&list)
}

/// VIEW_BROKER_STATS_DATA: one figure over the last minute, hour and day.
pub fn view_broker_stats_data(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: ViewBrokerStatsDataRequest<'_> = header!(frame);
    let (name, key) = (&*request.stats_name, &*request.stats_key);
    let cluster = &state.config.load().broker_cluster_name;
    let Some([minute, hour, day]) = state.metrics.stats(name, key, cluster) else {
        let remark = format!("The stats <{name}> <{key}> not exist");
        return Response::error(ResponseCode::SYSTEM_ERROR, remark);
    };
    let item = |figures: Figures| BrokerStatsItem {
        avgpt: figures.per_time,
        sum: i64::try_from(figures.sum).unwrap_or(i64::MAX),
        tps: figures.per_second,
    };
    Response::ok().with_json(&BrokerStatsData {
        stats_day: item(day),
        stats_hour: item(hour),
        stats_minute: item(minute),
    })
}

/// Adds where a group stands in a topic.
fn add_progress(
    state: &BrokerState,
    stats: &mut ConsumeStats,
    group: &str,
    config: &TopicConfig,
    broker_name: &str,
) {
    let topic = &config.topic_name;
    for queue_id in 0..config.read_queue_nums {
        let progress = progress(state, group, topic, queue_id);
        stats.offset_table.insert(queue(topic, broker_name, queue_id), progress);
    }
    stats.consume_tps += state.metrics.group_get_tps(group, topic);
}

fn progress(state: &BrokerState, group: &str, topic: &str, queue_id: i32) -> OffsetWrapper {
    let consumer_offset = state.offsets.query(group, topic, queue_id).unwrap_or(0);
    let pull_offset = state.offsets.pull_offset(group, topic, queue_id).unwrap_or(0);
    let last_timestamp = (consumer_offset > 0)
        .then(|| state.store_time_at(topic, queue_id, consumer_offset - 1))
        .flatten();
    OffsetWrapper {
        broker_offset: state.store.max_queue_offset(topic, queue_id).max(0),
        consumer_offset,
        last_timestamp: last_timestamp.unwrap_or(0),
        pull_offset: pull_offset.max(consumer_offset),
    }
}

/// QUERY_TOPIC_CONSUME_BY_WHO: groups that subscribe to a topic now or have offsets in it.
pub fn query_topic_consume_by_who(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: QueryTopicConsumeByWhoRequest<'_> = header!(frame);
    let mut groups: BTreeSet<String> =
        state.clients.groups_of_topic(&request.topic).into_iter().collect();
    groups.extend(state.offsets.groups_of(&request.topic));
    Response::ok().with_json(&GroupList { group_list: groups.into_iter().collect() })
}

/// QUERY_TOPICS_BY_CONSUMER: topics in which a group has offsets.
pub fn query_topics_by_consumer(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: QueryTopicsByConsumerRequest<'_> = header!(frame);
    Response::ok().with_json(&TopicList {
        broker_addr: Some(state.identity.broker_addr.clone()),
        topic_list: state.offsets.topics_of(&request.group),
    })
}

/// QUERY_CONSUME_TIME_SPAN: which time each queue covers and how late a group is in it.
pub fn query_consume_time_span(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: QueryConsumeTimeSpanRequest<'_> = header!(frame);
    let (topic, group) = (&*request.topic, &*request.group);
    let Some(config) = state.topics.get(topic) else { return no_topic(topic) };
    let broker_name = &state.config.load().broker_name;
    let time_at = |queue_id, offset| state.store_time_at(topic, queue_id, offset);
    let spans = (0..config.write_queue_nums)
        .map(|queue_id| {
            let min = state.store.min_queue_offset(topic, queue_id).max(0);
            let max = state.store.max_queue_offset(topic, queue_id).max(0);
            let consumed = state.offsets.query(group, topic, queue_id).unwrap_or(0);
            let first = time_at(queue_id, min).unwrap_or(-1);
            let last = (max > min).then(|| time_at(queue_id, max - 1)).flatten().unwrap_or(-1);
            let reached = if consumed > min { time_at(queue_id, consumed - 1) } else { None };
            let next = if consumed < max { time_at(queue_id, consumed.max(min)) } else { None };
            let reached = reached.unwrap_or(first);
            QueueTimeSpan {
                message_queue: queue(topic, broker_name, queue_id),
                min_time_stamp: first,
                min_time_stamp_str: Some(time_text(first)),
                max_time_stamp: last,
                max_time_stamp_str: Some(time_text(last)),
                consume_time_stamp: reached,
                consume_time_stamp_str: Some(time_text(reached)),
                delay_time: next.map_or(0, |stored| (now_ms() - stored).max(0)),
            }
        })
        .collect();
    Response::ok().with_json(&QueryConsumeTimeSpanBody { consume_time_span_set: spans })
}

fn queue(topic: &str, broker_name: &str, queue_id: i32) -> MessageQueue {
    MessageQueue { topic: topic.to_owned(), broker_name: broker_name.to_owned(), queue_id }
}

fn no_topic(topic: &str) -> Response {
    Response::error(ResponseCode::TOPIC_NOT_EXIST, format!("topic[{topic}] not exist"))
}
