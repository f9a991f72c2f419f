//! VIEW_MESSAGE_BY_ID: one message by its place in the log (QueryMessageProcessor).

use std::sync::Arc;

use rocketmq_protocol::code::ResponseCode;
use rocketmq_protocol::frame::Frame;
use rocketmq_protocol::header::message::ViewMessageByIdRequest;
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
