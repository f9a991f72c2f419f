//! Questions about topics and clusters, and the administration of routes. Answered from memory.

use rocketmq_protocol::body::route::TopicRouteData;
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::fastjson;
use rocketmq_protocol::header::route::{
    AddWritePermOfBrokerRequest, AddWritePermOfBrokerResponse, DeleteTopicInNamesrvRequest,
    GetRouteinfoByTopicRequest, GetTopicsByClusterRequest, RegisterTopicInNamesrvRequest,
    WipeWritePermOfBrokerRequest, WipeWritePermOfBrokerResponse,
};
use rocketmq_protocol::response::Response;

use super::State;
use crate::kv_table::ORDER_TOPIC_CONFIG;
use crate::route_table::UnitTopics;

/// GET_ROUTEINFO_BY_TOPIC. The body is always strict JSON with quoted keys, which every client
/// reads.
pub(super) fn route(state: &State, head: &GetRouteinfoByTopicRequest<'_>) -> Response {
    let config = state.settings.get();
    let wait_ms = config.wait_seconds_for_service.saturating_mul(1000);
    if config.need_wait_for_service && state.now_ms() < wait_ms {
        return Response::error(ResponseCode::SYSTEM_ERROR, "name server not ready");
    }
    let topic = &*head.topic;
    let Some(mut route) = state.routes.read().route(topic, config.support_acting_master) else {
        // The Java name server's words, which tools search for; its second line is a link.
        return Response::error(
            ResponseCode::TOPIC_NOT_EXIST,
            format!("No topic route info in name server for the topic: {topic}"),
        );
    };
    if config.order_message_enable {
        route.order_topic_conf = state.kv.get(ORDER_TOPIC_CONFIG, topic);
    }
    Response::ok().with_json(&route)
}

/// GET_BROKER_CLUSTER_INFO.
pub(super) fn cluster_info(state: &State) -> Response {
    Response::ok().with_json(&state.routes.read().cluster_info())
}

/// WIPE_WRITE_PERM_OF_BROKER.
pub(super) fn wipe_write_perm(state: &State, head: &WipeWritePermOfBrokerRequest<'_>) -> Response {
    let wipe_topic_count = state.routes.write().wipe_write_perm(&head.broker_name);
    tracing::info!(
        broker_name = %head.broker_name,
        topics = wipe_topic_count,
        "write permission wiped"
    );
    Response::ok().with_header(&WipeWritePermOfBrokerResponse { wipe_topic_count })
}

/// ADD_WRITE_PERM_OF_BROKER.
pub(super) fn add_write_perm(state: &State, head: &AddWritePermOfBrokerRequest<'_>) -> Response {
    let add_topic_count = state.routes.write().add_write_perm(&head.broker_name);
    tracing::info!(
        broker_name = %head.broker_name,
        topics = add_topic_count,
        "write permission added"
    );
    Response::ok().with_header(&AddWritePermOfBrokerResponse { add_topic_count })
}

/// GET_ALL_TOPIC_LIST_FROM_NAMESERVER.
pub(super) fn all_topics(state: &State) -> Response {
    if !state.settings.get().enable_all_topic_list {
        return disabled();
    }
    Response::ok().with_json(&state.routes.read().topic_list())
}

/// GET_TOPICS_BY_CLUSTER.
pub(super) fn topics_of_cluster(state: &State, head: &GetTopicsByClusterRequest<'_>) -> Response {
    if !state.settings.get().enable_topic_list {
        return disabled();
    }
    Response::ok().with_json(&state.routes.read().topics_of_cluster(&head.cluster))
}

/// GET_SYSTEM_TOPIC_LIST_FROM_NS. Not subject to `enableTopicList`.
pub(super) fn system_topics(state: &State) -> Response {
    Response::ok().with_json(&state.routes.read().system_topic_list())
}

/// The three unit topic lists.
pub(super) fn unit_topics(state: &State, code: RequestCode) -> Response {
    if !state.settings.get().enable_topic_list {
        return disabled();
    }
    let which = match code {
        RequestCode::GET_UNIT_TOPIC_LIST => UnitTopics::Unit,
        RequestCode::GET_HAS_UNIT_SUB_TOPIC_LIST => UnitTopics::HasUnitSub,
        _ => UnitTopics::HasUnitSubUnunit,
    };
    Response::ok().with_json(&state.routes.read().unit_topic_list(which))
}

fn disabled() -> Response {
    Response::error(ResponseCode::SYSTEM_ERROR, "disable")
}

/// DELETE_TOPIC_IN_NAMESRV, in one cluster or everywhere.
pub(super) fn delete_topic(state: &State, head: &DeleteTopicInNamesrvRequest<'_>) -> Response {
    let cluster = head.cluster_name.as_deref().filter(|cluster| !cluster.is_empty());
    state.routes.write().delete_topic(&head.topic, cluster);
    tracing::info!(topic = %head.topic, cluster, "topic deleted");
    state.count_routes();
    Response::ok()
}

/// REGISTER_TOPIC_IN_NAMESRV. RocketMQ answers success and does nothing when a group is unknown;
/// here that is an error.
pub(super) fn register_topic(
    state: &State,
    head: &RegisterTopicInNamesrvRequest<'_>,
    body: &[u8],
) -> Response {
    let route: TopicRouteData = match fastjson::from_slice(body) {
        Ok(route) => route,
        Err(error) => {
            return Response::error(
                ResponseCode::SYSTEM_ERROR,
                format!("REGISTER_TOPIC_IN_NAMESRV body is no TopicRouteData: {error}"),
            );
        }
    };
    let registered = state.routes.write().register_topic(&head.topic, route.queue_datas);
    state.count_routes();
    match registered {
        Ok(()) => Response::ok(),
        Err(unknown) => Response::error(
            ResponseCode::SYSTEM_ERROR,
            format!(
                "topic {} not registered: broker {unknown} is not known here, \
                 register the broker first",
                head.topic
            ),
        ),
    }
}
