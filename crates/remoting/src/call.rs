//! A request to send, the answer that came back, and how a call fails.
//!
//! Owns the values only; correlation is in `pending.rs`, sockets are in `driver.rs`.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::ext::{self, ExtFields, ExtSource};
use rocketmq_protocol::fastjson;
use rocketmq_protocol::frame::Frame;
use rocketmq_protocol::header::Header;
use rocketmq_protocol::response::Response;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A request to be sent: code, extension fields, body. Opaque, language and version are set by the connection.
#[derive(Debug, Clone)]
pub struct Request {
    /// What is asked.
    pub code: RequestCode,
    /// Extension fields in the order they are written.
    pub ext: Vec<(Cow<'static, str>, String)>,
    /// Body bytes, may be empty.
    pub body: Bytes,
}

impl Request {
    /// A request without fields and body.
    pub fn new(code: RequestCode) -> Self {
        Self { code, ext: Vec::new(), body: Bytes::new() }
    }

    /// Adds every field that `header` writes.
    #[must_use]
    pub fn with_header(mut self, header: &dyn ExtSource) -> Self {
        self.ext.extend(ext::to_pairs(header));
        self
    }

    /// Adds one field.
    #[must_use]
    pub fn with_field(mut self, name: impl Into<Cow<'static, str>>, value: impl ToString) -> Self {
        self.ext.push((name.into(), value.to_string()));
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets the body to the compact JSON of `value`, as fastjson writes it.
    #[must_use]
    pub fn with_json<T: Serialize>(mut self, value: &T) -> Self {
        self.body = fastjson::to_vec(value).into();
        self
    }
}

/// An answer, owned, as it came from the peer.
#[derive(Debug, Clone)]
pub struct ResponseFrame {
    /// The code of the request that this answers.
    pub request: RequestCode,
    /// The peer's address, as it was asked for.
    pub addr: Arc<str>,
    /// Outcome; [`ResponseCode::SUCCESS`] or why not.
    pub code: ResponseCode,
    /// Text of the outcome. Means nothing on success, except the status names of pull.
    pub remark: Option<String>,
    /// Extension fields in the order they came.
    pub ext: Vec<(String, String)>,
    /// Body, may be empty.
    pub body: Bytes,
    /// The peer's version (ordinal of RocketMQ's MQVersion).
    pub version: i32,
}

/// Another one's answer as one's own.
impl From<ResponseFrame> for Response {
    fn from(answer: ResponseFrame) -> Response {
        let ext = answer.ext.into_iter().map(|(name, value)| (name.into(), value)).collect();
        Response { code: answer.code, remark: answer.remark, ext, body: answer.body }
    }
}

impl ResponseFrame {
    pub(crate) fn from_frame(frame: &Frame<'_>, request: RequestCode, addr: Arc<str>) -> Self {
        Self {
            request,
            addr,
            code: frame.response_code(),
            remark: frame.remark.as_deref().filter(|r| !r.is_empty()).map(str::to_owned),
            ext: frame.ext.iter().map(|(k, v)| (k.into_owned(), v.into_owned())).collect(),
            body: Bytes::copy_from_slice(frame.body),
            version: frame.version,
        }
    }

    /// The value of one field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.ext.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str())
    }

    /// Reads the extension fields into a typed header.
    ///
    /// # Errors
    /// [`CallError::Decode`] naming the field that is missing or invalid.
    pub fn header<'a, H: Header<'a>>(&'a self) -> Result<H, CallError> {
        H::decode(&ExtFields::from_pairs(&self.ext)).map_err(|e| self.decode_error(e))
    }

    /// Reads the body as JSON, as leniently as fastjson does.
    ///
    /// # Errors
    /// [`CallError::Decode`] when the body is not the expected JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, CallError> {
        fastjson::from_slice(&self.body).map_err(|e| self.decode_error(e))
    }

    /// Passes a success on; turns every other code into an error.
    ///
    /// # Errors
    /// [`CallError::Refused`] with the peer's code and remark.
    pub fn into_ok(self) -> Result<Self, CallError> {
        if self.code == ResponseCode::SUCCESS {
            return Ok(self);
        }
        Err(self.refused())
    }

    /// The error that stands for this answer.
    pub fn refused(self) -> CallError {
        CallError::Refused {
            addr: self.addr,
            request: self.request,
            code: self.code,
            remark: self.remark.unwrap_or_default(),
        }
    }

    fn decode_error(&self, error: impl std::fmt::Display) -> CallError {
        CallError::Decode {
            addr: self.addr.clone(),
            request: self.request,
            reason: error.to_string(),
        }
    }
}

/// How a call fails.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// No connection could be made.
    #[error("cannot connect to {addr}: {reason}")]
    Connect {
        /// Where to.
        addr: Arc<str>,
        /// What the system or the deadline said.
        reason: String,
    },
    /// The answer did not come in time.
    #[error("no answer from {addr} to {code} within {timeout_ms} ms")]
    Timeout {
        /// Who was asked.
        addr: Arc<str>,
        /// What was asked.
        code: RequestCode,
        /// The deadline that passed.
        timeout_ms: u64,
    },
    /// The connection ended before the answer came.
    #[error("connection to {addr} closed before {code} was answered")]
    Closed {
        /// Who was asked.
        addr: Arc<str>,
        /// What was asked.
        code: RequestCode,
    },
    /// More bytes or calls wait for this peer than its bound allows.
    #[error("{code} not sent to {addr}: {reason}")]
    Busy {
        /// Who was to be asked.
        addr: Arc<str>,
        /// What was to be asked.
        code: RequestCode,
        /// Which bound was met.
        reason: String,
    },
    /// The peer answered with a code other than success.
    #[error("{addr} refused {request}: {code} {remark}")]
    Refused {
        /// Who answered.
        addr: Arc<str>,
        /// What was asked.
        request: RequestCode,
        /// The peer's code.
        code: ResponseCode,
        /// The peer's text, may be empty.
        remark: String,
    },
    /// The answer has an unexpected form.
    #[error("answer of {addr} to {request} cannot be read: {reason}")]
    Decode {
        /// Who answered.
        addr: Arc<str>,
        /// What was asked.
        request: RequestCode,
        /// Field or place, and what was expected.
        reason: String,
    },
    /// The client was shut down.
    #[error("{code} not sent to {addr}: the client is shut down")]
    ShutDown {
        /// Who was to be asked.
        addr: Arc<str>,
        /// What was to be asked.
        code: RequestCode,
    },
}

impl CallError {
    /// The peer's code when it answered with a refusal.
    pub fn response_code(&self) -> Option<ResponseCode> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether the request may have reached the peer without us knowing the outcome.
    pub fn outcome_unknown(&self) -> bool {
        matches!(self, Self::Timeout { .. } | Self::Closed { .. } | Self::Decode { .. })
    }
}
