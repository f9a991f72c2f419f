//! GET_BROKER_HA_STATUS: who copies this broker, or whom it copies (AdminBrokerProcessor).

use std::sync::Arc;

use rocketmq_protocol::frame::Frame;
use rocketmq_protocol::response::Response;
use rocketmq_remoting::Connection;

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
    let gap_bytes = config.ha_max_gap_not_in_sync;
    Response::ok().with_json(&state.replication.runtime_info(is_master, log_end, gap_bytes))
}
