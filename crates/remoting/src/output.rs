//! Answers and requests gathered as bytes, to leave with one socket write.
//!
//! Owns the encoding of outgoing frames and the order of their chunks. Heads and small bodies are copied
//! into one buffer; large bodies stay the slices they are. The write itself is in `write.rs`.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::ext::ExtSource;
use rocketmq_protocol::frame::{self, Head, SerializeType, Ticket};
use rocketmq_protocol::response::Response;

/// Bodies up to this size are copied beside their heads: cheaper than one more slice in the write.
const COPY_BYTES_MAX: usize = 512;
/// An output of at most this size is copied when appended to another one.
const MERGE_BYTES_MAX: usize = 4096;

/// Bytes of whole frames on their way to one connection, in order.
#[derive(Debug, Default)]
pub struct Output {
    /// Chunks before `tail`.
    pub(crate) sealed: VecDeque<Bytes>,
    pub(crate) sealed_bytes: usize,
    /// Where heads and small bodies are written.
    pub(crate) tail: BytesMut,
    frames: u64,
}

impl Output {
    /// An empty output; allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes gathered.
    pub fn len_bytes(&self) -> usize {
        self.sealed_bytes + self.tail.len()
    }

    /// Whether nothing is gathered.
    pub fn is_empty(&self) -> bool {
        self.len_bytes() == 0
    }

    /// Takes what is gathered, leaving an empty output.
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Answers with everything a [`Response`] holds. Writes nothing for a one-way ticket.
    pub fn reply(&mut self, ticket: Ticket, response: &Response) {
        if ticket.oneway {
            return;
        }
        let remark = response.remark.as_deref();
        let body = &response.body;
        self.head(ticket, response.code, remark, &response.ext, body.len());
        self.body(body);
    }

    /// Answers with a typed header and no body. Writes nothing for a one-way ticket.
    pub fn reply_header(
        &mut self,
        ticket: Ticket,
        code: ResponseCode,
        remark: Option<&str>,
        ext: &dyn ExtSource,
    ) {
        if !ticket.oneway {
            self.head(ticket, code, remark, ext, 0);
        }
    }

    /// Answers with a typed header and a body made of slices, which are not copied unless small.
    /// Writes nothing for a one-way ticket.
    pub fn reply_slices(
        &mut self,
        ticket: Ticket,
        code: ResponseCode,
        remark: Option<&str>,
        ext: &dyn ExtSource,
        bodies: impl IntoIterator<Item = Bytes, IntoIter: Clone>,
    ) {
        if ticket.oneway {
            return;
        }
        let bodies = bodies.into_iter();
        let body_bytes = bodies.clone().map(|b| b.len()).sum();
        self.head(ticket, code, remark, ext, body_bytes);
        for body in bodies {
            self.body(&body);
        }
    }

    /// Answers an error without fields. Writes nothing for a one-way ticket.
    pub fn reply_error(&mut self, ticket: Ticket, code: ResponseCode, remark: &str) {
        self.reply_header(ticket, code, Some(remark), &());
    }

    /// Answers that the request code is not known, in the words of RocketMQ's NettyRemotingAbstract.
    pub fn reply_unsupported(&mut self, ticket: Ticket) {
        let remark = format!(" request type {} not supported", ticket.code);
        self.reply_error(ticket, ResponseCode::REQUEST_CODE_NOT_SUPPORTED, &remark);
    }

    /// Moves everything of `other` behind what is gathered here.
    pub fn append(&mut self, mut other: Output) {
        self.append_from(&mut other);
    }

    /// Like [`Output::append`], leaving `other` empty with its buffer for reuse where that is cheap.
    pub(crate) fn append_from(&mut self, other: &mut Output) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            std::mem::swap(self, other);
            return;
        }
        self.frames += std::mem::take(&mut other.frames);
        if other.sealed.is_empty() && other.tail.len() <= MERGE_BYTES_MAX {
            self.tail.extend_from_slice(&other.tail);
            other.tail.clear();
            return;
        }
        self.seal();
        self.sealed.append(&mut other.sealed);
        self.sealed_bytes += std::mem::take(&mut other.sealed_bytes);
        std::mem::swap(&mut self.tail, &mut other.tail);
    }

    /// Writes a request of ours.
    pub(crate) fn request(
        &mut self,
        opaque: i32,
        oneway: bool,
        code: RequestCode,
        ext: &dyn ExtSource,
        body: &Bytes,
    ) {
        let head = Head::request(code, opaque, oneway);
        frame::encode_head(&mut self.tail, SerializeType::Json, head, None, ext, body.len());
        self.frames += 1;
        self.body(body);
    }

    /// Frames begun since the last call.
    pub(crate) fn take_frames(&mut self) -> u64 {
        std::mem::take(&mut self.frames)
    }

    fn head(
        &mut self,
        ticket: Ticket,
        code: ResponseCode,
        remark: Option<&str>,
        ext: &dyn ExtSource,
        body_bytes: usize,
    ) {
        let head = Head::response(ticket, code);
        frame::encode_head(&mut self.tail, ticket.serialize, head, remark, ext, body_bytes);
        self.frames += 1;
    }

    fn body(&mut self, body: &Bytes) {
        if body.len() <= COPY_BYTES_MAX {
            self.tail.extend_from_slice(body);
            return;
        }
        self.seal();
        self.sealed_bytes += body.len();
        self.sealed.push_back(body.clone());
    }

    fn seal(&mut self) {
        if !self.tail.is_empty() {
            self.sealed_bytes += self.tail.len();
            self.sealed.push_back(self.tail.split().freeze());
        }
    }
}
