//! The response table: our requests that wait for an answer, by opaque.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rocketmq_protocol::code::RequestCode;
use rocketmq_protocol::frame::Frame;
use tokio::sync::oneshot;

use crate::call::ResponseFrame;

/// Requests of ours on one connection that wait for an answer.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    calls: Mutex<Calls>,
}

#[derive(Debug, Default)]
struct Calls {
    by_opaque: HashMap<i32, Waiting>,
    next_opaque: i32,
    closed: bool,
}

#[derive(Debug)]
struct Waiting {
    code: RequestCode,
    answer: oneshot::Sender<ResponseFrame>,
}

/// One waiting request; leaves the table when dropped, so an abandoned call holds nothing.
#[derive(Debug)]
pub(crate) struct PendingCall<'a> {
    table: &'a Pending,
    pub(crate) opaque: i32,
    pub(crate) answer: oneshot::Receiver<ResponseFrame>,
}

/// Why a request could not be entered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotEntered {
    Closed,
    Full,
}

impl Pending {
    /// Enters a request under a fresh opaque.
    pub(crate) fn enter(
        &self,
        code: RequestCode,
        calls_max: usize,
    ) -> Result<PendingCall<'_>, NotEntered> {
        let mut calls = self.calls.lock();
        if calls.closed {
            return Err(NotEntered::Closed);
        }
        if calls.by_opaque.len() >= calls_max {
            return Err(NotEntered::Full);
        }
        // After 2^32 requests an opaque may still belong to a waiting one.
        let mut opaque = calls.next_opaque;
        while calls.by_opaque.contains_key(&opaque) {
            opaque = opaque.wrapping_add(1);
        }
        calls.next_opaque = opaque.wrapping_add(1);
        let (sender, answer) = oneshot::channel();
        calls.by_opaque.insert(opaque, Waiting { code, answer: sender });
        Ok(PendingCall { table: self, opaque, answer })
    }

    /// An opaque for a request that waits for nothing.
    pub(crate) fn oneway_opaque(&self) -> i32 {
        let mut calls = self.calls.lock();
        let opaque = calls.next_opaque;
        calls.next_opaque = opaque.wrapping_add(1);
        opaque
    }

    /// Gives an answer to who waits for it. False when nobody does (any more).
    pub(crate) fn resolve(&self, frame: &Frame<'_>, addr: &Arc<str>) -> bool {
        let Some(waiting) = self.calls.lock().by_opaque.remove(&frame.opaque) else {
            return false;
        };
        let response = ResponseFrame::from_frame(frame, waiting.code, addr.clone());
        waiting.answer.send(response).is_ok()
    }

    /// Fails every waiting request and all to come.
    pub(crate) fn close(&self) {
        let mut calls = self.calls.lock();
        calls.closed = true;
        calls.by_opaque.clear();
    }

    /// Requests that wait.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.calls.lock().by_opaque.len()
    }
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        self.table.calls.lock().by_opaque.remove(&self.opaque);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opaques_wrap_and_skip_those_in_use() {
        let pending = Pending::default();
        pending.calls.lock().next_opaque = i32::MAX;
        let last = pending.enter(RequestCode(10), 10).expect("room");
        let wrapped = pending.enter(RequestCode(10), 10).expect("room");
        assert_eq!((last.opaque, wrapped.opaque), (i32::MAX, i32::MIN));
        pending.calls.lock().next_opaque = i32::MAX;
        let skipping = pending.enter(RequestCode(10), 10).expect("room");
        assert_eq!(skipping.opaque, i32::MIN + 1);
    }

    #[test]
    fn a_full_or_closed_table_refuses_and_a_dropped_call_leaves() {
        let pending = Pending::default();
        let call = pending.enter(RequestCode(10), 1).expect("room");
        assert_eq!(pending.enter(RequestCode(10), 1).err(), Some(NotEntered::Full));
        drop(call);
        assert_eq!(pending.len(), 0);
        let mut call = pending.enter(RequestCode(10), 1).expect("room");
        pending.close();
        assert!(call.answer.try_recv().is_err());
        assert_eq!(pending.enter(RequestCode(10), 1).err(), Some(NotEntered::Closed));
    }
}
