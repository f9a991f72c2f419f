//! Small helpers of the handlers: how a request that cannot be read is answered.

use rocketmq_protocol::code::ResponseCode;
use rocketmq_protocol::fastjson::JsonError;
use rocketmq_protocol::frame::Frame;
use rocketmq_protocol::response::Response;

/// Reads a frame's header, or returns the error from the handler.
macro_rules! header {
    ($frame:expr) => {
        match $frame.header() {
            Ok(header) => header,
            Err(error) => {
                return rocketmq_protocol::response::Response::error(
                    rocketmq_protocol::code::ResponseCode::SYSTEM_ERROR,
                    error.to_string(),
                );
            }
        }
    };
}

pub(crate) use header;

/// The answer to a body that is not what the request needs.
pub(crate) fn bad_body(frame: &Frame<'_>, error: &JsonError) -> Response {
    let remark = format!("the body of {} cannot be read: {error}", frame.request_code());
    Response::error(ResponseCode::SYSTEM_ERROR, remark)
}
