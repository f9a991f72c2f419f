//! Single messages, by place in the log and by key (QueryMessageProcessor). Both may read from the
//! disk, so they run on a blocking thread.

use std::sync::Arc;

use bytes::BytesMut;
use rocketmq_protocol::code::ResponseCode;
use rocketmq_protocol::frame::{Frame, MAX_FRAME_BYTES};
use rocketmq_protocol::header::message::{
    QueryMessageRequest, QueryMessageResponse, ViewMessageByIdRequest,
};
use rocketmq_protocol::response::Response;
use rocketmq_remoting::Connection;

use crate::request::header;
use crate::state::BrokerState;

/// VIEW_MESSAGE_BY_ID: the record at a physical offset, which is the second half of a message id.
pub fn view_message_by_id(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: ViewMessageByIdRequest<'_> = header!(frame);
    match state.store.message_at(request.offset) {
        Some(record) => Response::ok().with_body(record),
        None => {
            let remark = format!("can not find message by the offset, {}", request.offset);
            Response::error(ResponseCode::SYSTEM_ERROR, remark)
        }
    }
}

/// Bytes of the messages in one answer: clients refuse longer frames, so what is older is left out.
const QUERY_BYTES_MAX: usize = MAX_FRAME_BYTES - 64 * 1024;

/// QUERY_MESSAGE: the newest messages of a topic with a key, oldest of them first.
pub fn query_message(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: QueryMessageRequest<'_> = header!(frame);
    let max_num = match request.unique_key_query {
        true => state.config.load().default_query_max_num,
        false => request.max_num,
    };
    let found = state.store.query_messages(
        &request.topic,
        &request.key,
        request.begin_timestamp..=request.end_timestamp,
        usize::try_from(max_num).unwrap_or(0),
        QUERY_BYTES_MAX,
    );
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            tracing::error!(topic = %request.topic, key = %request.key, %error, "query failed");
            return Response::error(ResponseCode::SYSTEM_ERROR, error.to_string());
        }
    };
    let header = QueryMessageResponse {
        index_last_update_timestamp: found.index_last_update_timestamp_ms,
        index_last_update_phyoffset: found.index_last_update_physical_offset,
    };
    if found.messages.is_empty() {
        let remark = match state.store.config().message_index_enable {
            true => "can not find message, maybe time range not correct",
            false => "can not find message, the broker keeps no index (messageIndexEnable=false)",
        };
        return Response::error(ResponseCode::QUERY_NOT_FOUND, remark).with_header(&header);
    }
    let mut body =
        BytesMut::with_capacity(found.messages.iter().map(|message| message.len()).sum());
    for message in &found.messages {
        body.extend_from_slice(message);
    }
    Response::ok().with_header(&header).with_body(body)
}
