//! Requests about live clients: heart-beats, good-byes, who is in which group, and the notice that
//! a group's members get when it changes (ClientManageProcessor, ConsumerManageProcessor).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use rocketmq_protocol::body::consume::{
    Connection as ConnectionInfo, ConsumerConnection, ConsumerIdList, ProducerConnection,
    ProducerInfo, ProducerTableInfo,
};
use rocketmq_protocol::body::group::QuerySubscriptionResponseBody;
use rocketmq_protocol::body::heartbeat::{CheckClientRequestBody, ConsumerData, HeartbeatData};
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::fastjson;
use rocketmq_protocol::frame::Frame;
use rocketmq_protocol::header::client::{
    GetConsumerConnectionListRequest, GetConsumerListByGroupRequest,
    GetProducerConnectionListRequest, HeartBeatResponse, NotifyConsumerIdsChangedRequest,
    UnregisterClientRequest,
};
use rocketmq_protocol::header::group::QuerySubscriptionByConsumerRequest;
use rocketmq_protocol::names;
use rocketmq_protocol::response::Response;
use rocketmq_protocol::subscription::{MessageModel, SubscriptionData};
use rocketmq_remoting::Connection;
use tracing::{debug, warn};

use crate::client_table::{Changes, ClientChannel, Sender};
use crate::clock::{monotonic_ms, now_ms};
use crate::filter;
use crate::handler::retry;
use crate::metadata::perm;
use crate::request::{bad_body, header};
use crate::state::BrokerState;

/// HEART_BEAT: registers the client in its groups, creates groups and their retry topics.
pub fn heart_beat(state: &Arc<BrokerState>, conn: &Arc<Connection>, frame: &Frame<'_>) -> Response {
    let heartbeat: HeartbeatData = match fastjson::from_slice(frame.body) {
        Ok(heartbeat) => heartbeat,
        Err(error) => return bad_body(frame, &error),
    };
    if heartbeat.client_id.is_empty() {
        return Response::error(ResponseCode::SYSTEM_ERROR, "the heart-beat has no clientID");
    }
    let is_v2 = heartbeat.heartbeat_fingerprint != 0;
    let sender = Sender {
        connection: conn,
        language: frame.language,
        version: frame.version,
        timestamp_ms: now_ms(),
        monotonic_ms: monotonic_ms(),
    };
    let without_sub = heartbeat.without_sub;
    let changes = state.clients.heartbeat(&sender, heartbeat, |consumer| {
        let is_admitted = admit(state, consumer);
        // In front of the subscription: a pull that finds that finds the filter, too.
        if is_admitted && !without_sub {
            state.filters.register(&consumer.group_name, &consumer.subscription_data_set, || {
                state.store.newest_message_time()
            });
        }
        is_admitted
    });
    let subscription_changed = changes.subscription_changed;
    members_changed(state, changes);
    // This runs beside the I/O thread: the connection may have ended in the meantime, and nobody
    // would ever take the client out again.
    if conn.is_closed() {
        connection_closed(state, conn);
    }
    Response::ok().with_header(&HeartBeatResponse {
        is_sub_change: !is_v2 || subscription_changed,
        is_support_heart_beat_v2: true,
    })
}

/// Whether a consumer's group exists or can be created; makes the group's retry topic.
fn admit(state: &BrokerState, consumer: &ConsumerData) -> bool {
    let Some(group) = state.groups.get_or_create(&consumer.group_name) else {
        debug!(group = consumer.group_name, "heart-beat of a group that may not be created");
        return false;
    };
    let retry_topic = names::retry_topic(&consumer.group_name);
    if group.retry_queue_nums > 0 && retry::is_storable(&retry_topic) {
        let rw = perm::READ | perm::WRITE;
        let created = state.topics.create_internal(&retry_topic, group.retry_queue_nums, rw);
        if let Err(error) = created {
            warn!(topic = retry_topic, %error, "cannot create retry topic");
        }
    }
    true
}

/// UNREGISTER_CLIENT: the client leaves the groups it names.
pub fn unregister_client(
    state: &Arc<BrokerState>,
    conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: UnregisterClientRequest<'_> = header!(frame);
    let changes = state.clients.unregister(
        conn.id(),
        request.producer_group.as_deref(),
        request.consumer_group.as_deref(),
    );
    members_changed(state, changes);
    Response::ok()
}

/// The connection ended: its client leaves every group, the others are told.
pub fn connection_closed(state: &BrokerState, conn: &Connection) {
    members_changed(state, state.clients.connection_closed(conn.id()));
}

/// Does what follows from a change of groups: those that lost their last member leave their filters,
/// the members of the others are told.
pub fn members_changed(state: &BrokerState, changes: Changes) {
    for group in &changes.groups {
        if !state.clients.is_online(group) {
            state.filters.leave(group);
        }
    }
    notify_consumer_ids_changed(state, changes);
}

/// Tells the members of changed groups to share out the queues again. Broadcast groups share
/// nothing and are left in peace.
fn notify_consumer_ids_changed(state: &BrokerState, changes: Changes) {
    if !state.config.load().notify_consumer_ids_changed_enable {
        return;
    }
    for group in changes.groups {
        let wanted = state.groups.get(&group).is_none_or(|g| g.notify_consumer_ids_changed_enable);
        let broadcast = state
            .clients
            .with_consumers(&group, |members| members.message_model == MessageModel::Broadcasting);
        if !wanted || broadcast != Some(false) {
            continue;
        }
        let notice = NotifyConsumerIdsChangedRequest { consumer_group: group.as_str().into() };
        for connection in state.clients.consumer_connections(&group) {
            let code = RequestCode::NOTIFY_CONSUMER_IDS_CHANGED;
            if let Err(error) = connection.oneway(code, &notice, Bytes::new()) {
                debug!(group, %error, "member not notified");
            }
        }
    }
}

/// GET_CONSUMER_LIST_BY_GROUP: ids of the group's live consumers.
pub fn get_consumer_list_by_group(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: GetConsumerListByGroupRequest<'_> = header!(frame);
    let consumer_id_list = state.clients.consumer_ids(&request.consumer_group);
    if consumer_id_list.is_empty() {
        let remark = format!("no consumer for this group, {}", request.consumer_group);
        return Response::error(ResponseCode::SYSTEM_ERROR, remark);
    }
    Response::ok().with_json(&ConsumerIdList { consumer_id_list })
}

/// CHECK_CLIENT_CONFIG: whether the broker can filter as a consumer wants.
pub fn check_client_config(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: CheckClientRequestBody = match fastjson::from_slice(frame.body) {
        Ok(request) => request,
        Err(error) => return bad_body(frame, &error),
    };
    let Some(subscription) = request.subscription_data else { return Response::ok() };
    let expression_type = &subscription.expression_type;
    if subscription.is_tag_type() {
        return Response::ok();
    }
    if !state.config.load().enable_property_filter {
        let remark =
            format!("The broker does not support consumer to filter message by {expression_type}");
        return Response::error(ResponseCode::SYSTEM_ERROR, remark);
    }
    match filter::compile(expression_type, &subscription.sub_string) {
        Ok(_) => Response::ok(),
        Err(error) => Response::error(ResponseCode::SUBSCRIPTION_PARSE_FAILED, error.to_string()),
    }
}

/// GET_CONSUMER_CONNECTION_LIST: the group's live consumers and their subscriptions.
pub fn get_consumer_connection_list(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: GetConsumerConnectionListRequest<'_> = header!(frame);
    let connections = state.clients.with_consumers(&request.consumer_group, |members| {
        let subscription_table: BTreeMap<String, SubscriptionData> = members
            .subscriptions
            .iter()
            .map(|(topic, subscription)| (topic.clone(), subscription.data.clone()))
            .collect();
        ConsumerConnection {
            connection_set: connection_set(members.channels()),
            subscription_table,
            consume_type: members.consume_type,
            message_model: members.message_model,
            consume_from_where: members.consume_from_where,
        }
    });
    match connections {
        Some(connections) => Response::ok().with_json(&connections),
        None => {
            let remark = format!("the consumer group[{}] not online", request.consumer_group);
            Response::error(ResponseCode::CONSUMER_NOT_ONLINE, remark)
        }
    }
}

/// QUERY_SUBSCRIPTION_BY_CONSUMER: what a group subscribes to of a topic; nothing if it is offline.
pub fn query_subscription_by_consumer(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: QuerySubscriptionByConsumerRequest<'_> = header!(frame);
    let (group, topic) = (request.group, request.topic.unwrap_or_default());
    let found = state.clients.subscription(&group, &topic).and_then(|found| found.subscription);
    Response::ok().with_json(&QuerySubscriptionResponseBody {
        group: group.into_owned(),
        subscription_data: found.map(|registered| registered.data.clone()),
        topic: topic.into_owned(),
    })
}

/// GET_PRODUCER_CONNECTION_LIST: the group's live producers.
pub fn get_producer_connection_list(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: GetProducerConnectionListRequest<'_> = header!(frame);
    let producers = state.clients.producers(&request.producer_group);
    if producers.is_empty() {
        let remark = format!("the producer group[{}] not exist", request.producer_group);
        return Response::error(ResponseCode::SYSTEM_ERROR, remark);
    }
    let connection_set = connection_set(producers.iter());
    Response::ok().with_json(&ProducerConnection { connection_set })
}

/// GET_ALL_PRODUCER_INFO: every live producer by group.
pub fn get_all_producer_info(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    _frame: &Frame<'_>,
) -> Response {
    let data = state
        .clients
        .all_producers()
        .into_iter()
        .map(|(group, producers)| (group, producers.iter().map(producer_info).collect()))
        .collect();
    Response::ok().with_json(&ProducerTableInfo { data })
}

fn producer_info(channel: &ClientChannel<Connection>) -> ProducerInfo {
    ProducerInfo {
        client_id: channel.client_id.to_string(),
        // As Java writes an address.
        remote_ip: format!("/{}", channel.connection.remote_text()),
        language: channel.language.name().to_owned(),
        version: channel.version,
        last_update_timestamp: channel.heartbeat_timestamp_ms,
    }
}

/// A set without order on the wire; sorted here, so that people see it the same twice.
fn connection_set<'a>(
    channels: impl Iterator<Item = &'a ClientChannel<Connection>>,
) -> Vec<ConnectionInfo> {
    let sorted: BTreeSet<(String, String, &str, i32)> = channels
        .map(|channel| {
            let addr = channel.connection.remote_text().to_owned();
            (channel.client_id.to_string(), addr, channel.language.name(), channel.version)
        })
        .collect();
    sorted
        .into_iter()
        .map(|(client_id, client_addr, language, version)| ConnectionInfo {
            client_id,
            client_addr,
            language: language.to_owned(),
            version,
        })
        .collect()
}
