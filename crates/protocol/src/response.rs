//! An answer that is built whole before it is written: for everything that is not hot. Hot answers
//! are written straight into the output by [`crate::frame::encode_head`].

use std::borrow::Cow;

use bytes::Bytes;
use serde::Serialize;

use crate::code::ResponseCode;
use crate::ext::{self, ExtSource, ExtWriter};
use crate::fastjson;

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// How the request ended.
    pub code: ResponseCode,
    /// A text for people; of an error, what went wrong.
    pub remark: Option<String>,
    /// The extension fields.
    pub ext: Vec<(Cow<'static, str>, String)>,
    /// The body.
    pub body: Bytes,
}

impl Response {
    /// Success, with nothing more to say.
    pub fn ok() -> Response {
        Response { code: ResponseCode::SUCCESS, remark: None, ext: Vec::new(), body: Bytes::new() }
    }

    /// A failure; the remark names the thing, the value and the fix.
    pub fn error(code: ResponseCode, remark: impl Into<String>) -> Response {
        Response { code, remark: Some(remark.into()), ..Response::ok() }
    }

    /// Adds the fields of a header.
    pub fn with_header(mut self, header: &impl ExtSource) -> Response {
        self.ext.extend(ext::to_pairs(header));
        self
    }

    /// Adds one extension field.
    pub fn with_field(
        mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<String>,
    ) -> Response {
        self.ext.push((name.into(), value.into()));
        self
    }

    /// Sets the body.
    pub fn with_body(mut self, body: impl Into<Bytes>) -> Response {
        self.body = body.into();
        self
    }

    /// Sets the body to a value in fastjson's form.
    pub fn with_json(self, value: &impl Serialize) -> Response {
        self.with_body(fastjson::to_vec(value))
    }
}

impl ExtSource for Response {
    fn write_ext(&self, writer: &mut dyn ExtWriter) {
        self.ext.write_ext(writer);
    }
}
