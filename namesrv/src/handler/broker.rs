//! What brokers say of themselves: registration, heart-beat, leave, and the version of their topic
//! table.

use std::sync::Arc;

use rocketmq_protocol::body::data_version::DataVersion;
use rocketmq_protocol::body::kv::KVTable;
use rocketmq_protocol::body::registration::RegisterBrokerBody;
use rocketmq_protocol::body::route::GetBrokerMemberGroupBody;
use rocketmq_protocol::code::ResponseCode;
use rocketmq_protocol::fastjson;
use rocketmq_protocol::frame::Frame;
use rocketmq_protocol::header::registration::{
    BrokerHeartbeatRequest, GetBrokerMemberGroupRequest, QueryDataVersionRequest,
    QueryDataVersionResponse, RegisterBrokerRequest, RegisterBrokerResponse,
    UnregisterBrokerRequest,
};
use rocketmq_protocol::response::Response;
use rocketmq_remoting::connection::Connection;

use super::{State, UNREGISTERED, header};
use crate::kv_table::ORDER_TOPIC_CONFIG;
use crate::route_table::{RegisterRules, Registered, Registration};

/// REGISTER_BROKER.
pub(super) fn register(state: &State, conn: &Arc<Connection>, request: &Frame<'_>) -> Response {
    let registration = match read_registration(request) {
        Ok(registration) => registration,
        Err(refusal) => return refusal,
    };
    let config = state.settings.get();
    let rules =
        RegisterRules { delete_missing_topics: config.delete_topic_with_broker_registration };
    // Before the table changes, so that a close that comes next finds the connection.
    state.broker_connections.lock().insert(conn.id(), Arc::clone(conn));
    let registered = state.routes.write().register(&registration, rules, state.now_ms(), conn.id());
    match registered {
        Registered::Accepted { is_new, master_addr, ha_server_addr, min_id_change } => {
            if is_new {
                tracing::info!(
                    cluster = registration.cluster,
                    broker_name = registration.broker_name,
                    broker_id = registration.broker_id,
                    broker_addr = registration.broker_addr,
                    topics = registration.topics.len(),
                    "broker registered"
                );
            }
            if let Some(change) = min_id_change {
                state.notify(change);
            }
            state.count_routes();
            let header = RegisterBrokerResponse {
                ha_server_addr: ha_server_addr.map(Into::into),
                master_addr: master_addr.map(Into::into),
            };
            with_order_topics(state, Response::ok().with_header(&header))
        }
        Registered::Stale => {
            tracing::warn!(
                broker_name = registration.broker_name,
                broker_id = registration.broker_id,
                broker_addr = registration.broker_addr,
                "registration ignored: another address holds the id with a higher state version"
            );
            state.count_routes();
            Response::ok()
        }
        Registered::Partial => {
            tracing::info!(
                broker_name = registration.broker_name,
                broker_addr = registration.broker_addr,
                topic = registration.topics.keys().next(),
                "single topic refused: the broker has not registered its whole table yet"
            );
            Response::error(ResponseCode::SYSTEM_ERROR, "register broker failed")
        }
    }
}

fn read_registration(request: &Frame<'_>) -> Result<Registration, Response> {
    let head: RegisterBrokerRequest<'_> = header(request)?;
    for (field, value) in [
        ("brokerName", &head.broker_name),
        ("brokerAddr", &head.broker_addr),
        ("clusterName", &head.cluster_name),
    ] {
        if value.trim().is_empty() {
            return Err(Response::error(
                ResponseCode::SYSTEM_ERROR,
                format!(
                    "registration refused: {field} is empty, set it in the broker's configuration"
                ),
            ));
        }
    }
    let crc = crc32(request.body);
    if head.body_crc32 != 0 && head.body_crc32 != crc {
        return Err(Response::error(ResponseCode::SYSTEM_ERROR, "crc32 not match"));
    }
    let mut registration = Registration {
        cluster: head.cluster_name.into_owned(),
        broker_name: head.broker_name.into_owned(),
        broker_addr: head.broker_addr.into_owned(),
        broker_id: head.broker_id,
        ha_server_addr: head.ha_server_addr.into_owned(),
        zone_name: head.zone_name.map(Into::into),
        heartbeat_timeout_ms: head.heartbeat_timeout_millis,
        enable_acting_master: head.enable_acting_master,
        ..Registration::default()
    };
    if request.body.is_empty() {
        // A broker older than 3.0.11 registers without filter servers and may send no body at all.
        return Ok(registration);
    }
    let body = RegisterBrokerBody::decode(request.body, head.compressed, request.version).map_err(
        |error| {
            Response::error(
                ResponseCode::SYSTEM_ERROR,
                format!(
                    "registration body of {} not understood: {error}",
                    registration.broker_name
                ),
            )
        },
    )?;
    let table = body.topic_config_serialize_wrapper;
    registration.data_version = table.data_version;
    registration.topics = table.topic_config_table;
    registration.mappings = table.topic_queue_mapping_info_map;
    registration.filter_servers = body.filter_server_list;
    Ok(registration)
}

/// RocketMQ's UtilAll.crc32: the sign bit is dropped.
fn crc32(body: &[u8]) -> i32 {
    (crc32fast::hash(body) & 0x7fff_ffff) as i32
}

fn with_order_topics(state: &State, response: Response) -> Response {
    if !state.settings.get().return_order_topic_config_to_broker {
        return response;
    }
    match state.kv.namespace(ORDER_TOPIC_CONFIG) {
        Some(table) => response.with_json(&KVTable { table }),
        None => response,
    }
}

/// UNREGISTER_BROKER.
pub(super) fn unregister(
    state: &State,
    conn: &Arc<Connection>,
    head: &UnregisterBrokerRequest<'_>,
) -> Response {
    let removed = state.routes.write().unregister(&head.broker_name, &head.broker_addr, conn.id());
    match removed {
        Some(broker) => {
            state.after_removal(broker, UNREGISTERED);
            state.count_routes();
        }
        None => tracing::info!(
            broker_name = %head.broker_name,
            broker_addr = %head.broker_addr,
            "unregistration ignored: not registered, or registered again on a newer connection"
        ),
    }
    Response::ok()
}

/// BROKER_HEARTBEAT.
pub(super) fn heartbeat(state: &State, head: &BrokerHeartbeatRequest<'_>) -> Response {
    let now_ms = state.now_ms();
    state.routes.write().refresh(&head.cluster_name, &head.broker_addr, now_ms);
    Response::ok()
}

/// QUERY_DATA_VERSION: whether the broker needs to show its table again. Counts as a sign of life.
pub(super) fn query_data_version(
    state: &State,
    head: &QueryDataVersionRequest<'_>,
    body: &[u8],
) -> Response {
    let asked: DataVersion = match fastjson::from_slice(body) {
        Ok(version) => version,
        Err(error) => {
            return Response::error(
                ResponseCode::SYSTEM_ERROR,
                format!("QUERY_DATA_VERSION body is no DataVersion: {error}"),
            );
        }
    };
    let now_ms = state.now_ms();
    let recorded = {
        let mut routes = state.routes.write();
        routes.refresh(&head.cluster_name, &head.broker_addr, now_ms);
        routes.data_version(&head.cluster_name, &head.broker_addr)
    };
    let changed = recorded.as_ref() != Some(&asked);
    let response = Response::ok().with_header(&QueryDataVersionResponse { changed });
    match recorded {
        Some(version) => response.with_json(&version),
        None => response,
    }
}

/// GET_BROKER_MEMBER_GROUP.
pub(super) fn member_group(state: &State, head: &GetBrokerMemberGroupRequest<'_>) -> Response {
    let group = state.routes.read().member_group(&head.cluster_name, &head.broker_name);
    Response::ok().with_json(&GetBrokerMemberGroupBody { broker_member_group: group })
}
