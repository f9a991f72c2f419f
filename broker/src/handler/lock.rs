//! LOCK_BATCH_MQ and UNLOCK_BATCH_MQ: queue locks of ordered consumers
//! (AdminBrokerProcessor over RebalanceLockManager).

use std::sync::Arc;

use rocketmq_protocol::body::lock::{LockBatchRequestBody, LockBatchResponseBody};
use rocketmq_protocol::fastjson;
use rocketmq_protocol::frame::Frame;
use rocketmq_protocol::response::Response;
use rocketmq_remoting::Connection;

use crate::clock::monotonic_ms;
use crate::request::bad_body;
use crate::state::BrokerState;

/// LOCK_BATCH_MQ: answers the queues that the client holds now.
pub fn lock_batch_mq(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: LockBatchRequestBody = match fastjson::from_slice(frame.body) {
        Ok(request) => request,
        Err(error) => return bad_body(frame, &error),
    };
    let lock_ok_mq_set = state.locks.lock_batch(
        &request.consumer_group,
        &request.client_id,
        request.mq_set,
        monotonic_ms(),
    );
    Response::ok().with_json(&LockBatchResponseBody { lock_ok_mq_set })
}

/// UNLOCK_BATCH_MQ: gives queues back.
pub fn unlock_batch_mq(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: LockBatchRequestBody = match fastjson::from_slice(frame.body) {
        Ok(request) => request,
        Err(error) => return bad_body(frame, &error),
    };
    state.locks.unlock_batch(&request.consumer_group, &request.client_id, &request.mq_set);
    Response::ok()
}
