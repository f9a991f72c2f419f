//! GET_BROKER_HA_STATUS: who copies this broker, or whom it copies; GET_BROKER_EPOCH_CACHE: the epochs
//! of its log (AdminBrokerProcessor).

use std::sync::Arc;

use rocketmq_protocol::body::replication::{EpochEntry, EpochEntryCache};
use rocketmq_protocol::code::ResponseCode;
use rocketmq_protocol::frame::Frame;
use rocketmq_protocol::response::Response;
use rocketmq_remoting::Connection;

use crate::replication::InSync;
use crate::state::BrokerState;

/// GET_BROKER_HA_STATUS.
pub fn get_broker_ha_status(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    _frame: &Frame<'_>,
) -> Response {
    let config = state.config.load();
    let is_master = state.role.is_master();
    let log_end = state.store.max_physical_offset();
    let in_sync = match &state.group {
        Some(group) => InSync::Members(group.status().in_sync),
        None => InSync::Within(config.ha_max_gap_not_in_sync),
    };
    Response::ok().with_json(&state.replication.runtime_info(is_master, log_end, &in_sync))
}

/// GET_BROKER_EPOCH_CACHE. Besides what RocketMQ answers, the field `incarnation` says which start of
/// which process it is, as the group's record names the holder of its lease.
pub fn get_broker_epoch_cache(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    _frame: &Frame<'_>,
) -> Response {
    let Some(group) = &state.group else {
        let remark = "this broker's role is fixed by its configuration (coordinator=static), its log \
                      has no epochs";
        return Response::error(ResponseCode::SYSTEM_ERROR, remark);
    };
    let config = state.config.load();
    let table = group.epochs.table();
    let entries = table.entries();
    let epoch_list = entries.iter().enumerate().map(|(index, entry)| EpochEntry {
        epoch: entry.epoch.0,
        start_offset: entry.start,
        // The newest one has no end yet.
        end_offset: entries.get(index + 1).map_or(i64::MAX, |next| next.start),
    });
    let cache = EpochEntryCache {
        broker_id: group.settings.id.0,
        broker_name: config.broker_name.clone(),
        cluster_name: config.broker_cluster_name.clone(),
        epoch_list: epoch_list.collect(),
        max_offset: state.store.max_physical_offset(),
    };
    Response::ok().with_field("incarnation", &group.settings.incarnation).with_json(&cache)
}
