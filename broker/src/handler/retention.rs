//! CLEAN_EXPIRED_CONSUMEQUEUE, DELETE_EXPIRED_COMMITLOG and CLEAN_UNUSED_TOPIC: removing by hand
//! what the store removes by itself, and what is left of topics that are no more
//! (AdminBrokerProcessor).

use std::sync::Arc;

use rocketmq_protocol::code::ResponseCode;
use rocketmq_protocol::frame::Frame;
use rocketmq_protocol::response::Response;
use rocketmq_remoting::Connection;
use rocketmq_store::StoreError;
use tracing::info;

use crate::state::BrokerState;

/// Multi-dispatch queues belong to no topic of the table.
const LMQ_PREFIX: &str = "%LMQ%";

/// DELETE_EXPIRED_COMMITLOG: expired files go in the next rounds, at any hour.
pub fn delete_expired_commit_log(
    state: &Arc<BrokerState>,
    conn: &Arc<Connection>,
    _frame: &Frame<'_>,
) -> Response {
    info!(client = conn.remote_text(), "removal of expired commit log files asked for");
    state.store.remove_expired_files_soon();
    Response::ok()
}

/// CLEAN_EXPIRED_CONSUMEQUEUE: files of queues in front of the log's beginning go, and of topics
/// that do not exist whole queues that have nothing else. RocketMQ removes whole queues of existing
/// topics as well; their offsets then begin again at 0, below what their groups have committed.
pub fn clean_expired_consume_queue(
    state: &Arc<BrokerState>,
    conn: &Arc<Connection>,
    _frame: &Frame<'_>,
) -> Response {
    let clean = || -> Result<usize, StoreError> {
        state.store.remove_expired_queue_files()?;
        let remove = |topic: &str| state.store.remove_expired_queues(topic);
        let mut removed = 0;
        for topic in topics_of_nobody(state) {
            removed += state.topics.if_absent(&topic, || remove(&topic)).transpose()?.unwrap_or(0);
        }
        Ok(removed)
    };
    match clean() {
        Ok(queues) => {
            info!(queues, client = conn.remote_text(), "expired consume queues removed");
            Response::ok()
        }
        Err(error) => Response::error(ResponseCode::SYSTEM_ERROR, error.to_string()),
    }
}

/// CLEAN_UNUSED_TOPIC: the queues and offsets of topics that do not exist go.
pub fn clean_unused_topic(
    state: &Arc<BrokerState>,
    conn: &Arc<Connection>,
    _frame: &Frame<'_>,
) -> Response {
    let mut topics = Vec::new();
    for topic in topics_of_nobody(state) {
        match state.topics.if_absent(&topic, || state.store.delete_topic(&topic)) {
            Some(Ok(_)) => {
                state.offsets.remove_topic(&topic);
                state.filters.remove_topic(&topic);
                state.metrics.remove_topic(&topic);
                state.transactions.counts.remove(&topic);
                topics.push(topic);
            }
            Some(Err(error)) => {
                let remark = format!("topic {topic} is not removed: {error}");
                return Response::error(ResponseCode::SYSTEM_ERROR, remark);
            }
            None => {}
        }
    }
    if !topics.is_empty()
        && let Err(error) = state.offsets.persist()
    {
        return Response::error(ResponseCode::SYSTEM_ERROR, error.to_string());
    }
    info!(?topics, client = conn.remote_text(), "queues of unknown topics removed");
    Response::ok()
}

/// Topics that have queues and are not in the table.
fn topics_of_nobody(state: &BrokerState) -> Vec<Arc<str>> {
    let mut topics = state.store.topics();
    topics.retain(|topic| {
        !state.topics.contains(topic)
            && !state.topics.is_system(topic)
            && !topic.starts_with(LMQ_PREFIX)
    });
    topics
}
