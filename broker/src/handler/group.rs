//! Requests of administrators about subscription groups (AdminBrokerProcessor).

use std::sync::Arc;
use std::time::Instant;

use rocketmq_protocol::body::SubscriptionGroupConfig;
use rocketmq_protocol::body::group::{GroupForbidden, SubscriptionGroupList};
use rocketmq_protocol::code::ResponseCode;
use rocketmq_protocol::fastjson;
use rocketmq_protocol::frame::Frame;
use rocketmq_protocol::header::group::{
    DeleteSubscriptionGroupRequest, GetSubscriptionGroupConfigRequest,
    UpdateAndGetGroupForbiddenRequest,
};
use rocketmq_protocol::names;
use rocketmq_protocol::response::Response;
use rocketmq_remoting::Connection;

use crate::request::{bad_body, header};
use crate::state::BrokerState;

/// UPDATE_AND_CREATE_SUBSCRIPTIONGROUP.
pub fn update_and_create_group(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    match fastjson::from_slice::<SubscriptionGroupConfig>(frame.body) {
        Ok(group) => update(state, vec![group]),
        Err(error) => bad_body(frame, &error),
    }
}

/// UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: several at once, all or none.
pub fn update_and_create_group_list(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    match fastjson::from_slice::<SubscriptionGroupList>(frame.body) {
        Ok(list) => update(state, list.group_config_list),
        Err(error) => bad_body(frame, &error),
    }
}

fn update(state: &BrokerState, groups: Vec<SubscriptionGroupConfig>) -> Response {
    let began = Instant::now();
    let created: Vec<bool> = groups
        .iter()
        .filter(|group| state.groups.get(&group.group_name).is_none())
        .map(|group| names::is_system_group(&group.group_name))
        .collect();
    let updated = state.groups.update(groups);
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    for system in created {
        state.metrics.group_created(updated.is_ok(), system, took_ms);
    }
    match updated {
        Ok(()) => Response::ok(),
        Err(error) => Response::error(error.response_code(), error.to_string()),
    }
}

/// DELETE_SUBSCRIPTIONGROUP: the group, its locks, and its offsets if the request says so. An
/// unknown group is deleted already.
pub fn delete_group(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: DeleteSubscriptionGroupRequest<'_> = header!(frame);
    let group = &*request.group_name;
    let deleted = state.groups.delete(group).and_then(|_| {
        if request.clean_offset {
            state.offsets.remove_group(group);
            state.offsets.persist()?;
        }
        state.filters.remove_group(group);
        state.filters.persist()?;
        Ok(())
    });
    if let Err(error) = deleted {
        let remark = format!("group {group} is not deleted: {error}");
        return Response::error(ResponseCode::SYSTEM_ERROR, remark);
    }
    state.locks.remove_group(group);
    state.metrics.remove_group(group);
    Response::ok()
}

/// UPDATE_AND_GET_GROUP_FORBIDDEN: whether a group may read a topic, after setting it if the request
/// says so.
pub fn update_and_get_group_forbidden(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: UpdateAndGetGroupForbiddenRequest<'_> = header!(frame);
    let (group, topic) = (&*request.group, &*request.topic);
    if let Some(readable) = request.readable
        && let Err(error) = state.groups.forbid_read(group, topic, !readable)
    {
        return Response::error(ResponseCode::SYSTEM_ERROR, error.to_string());
    }
    Response::ok().with_json(&GroupForbidden {
        group: group.to_owned(),
        readable: !state.groups.is_read_forbidden(group, topic),
        topic: topic.to_owned(),
    })
}

/// GET_ALL_SUBSCRIPTIONGROUP_CONFIG: the whole table, as in the file.
pub fn get_all_groups(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    _frame: &Frame<'_>,
) -> Response {
    Response::ok().with_json(&state.groups.file())
}

/// GET_SUBSCRIPTIONGROUP_CONFIG: one group. As in RocketMQ an unknown group is created by the
/// question if groups are created at all.
pub fn get_group(state: &Arc<BrokerState>, _conn: &Arc<Connection>, frame: &Frame<'_>) -> Response {
    let request: GetSubscriptionGroupConfigRequest<'_> = header!(frame);
    match state.groups.get_or_create(&request.group) {
        Some(group) => Response::ok().with_json(&*group),
        None => {
            let remark = format!("No group in this broker. group: {}", request.group);
            Response::error(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        }
    }
}
