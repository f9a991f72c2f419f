//! Sends that came while a master hands over: they wait for the end of it instead of failing.
//!
//! If the handover is called off they are taken in as if they had just come. A moment after it has
//! succeeded, or at once when the broker becomes a slave otherwise, their connections are closed:
//! producers then send again, to the new master. What waits is bounded in bytes and in time; beyond, the broker is busy.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use rocketmq_protocol::code::ResponseCode;
use rocketmq_protocol::frame::{self, Frame, LENGTH_BYTES};
use rocketmq_remoting::{Connection, InFlight, Output};

use crate::handler::send::SendBatch;
use crate::state::BrokerState;

/// Longest wait. Producers give up after `sendMsgTimeout`, 3 s.
pub const HELD_TIME: Duration = Duration::from_secs(3);
/// Bytes of sends that wait, of all connections together.
pub const HELD_BYTES_MAX: usize = 64 << 20;

/// The sends that wait.
#[derive(Default)]
pub struct HeldSends {
    is_holding: AtomicBool,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    is_holding: bool,
    sends: VecDeque<HeldSend>,
    bytes: usize,
}

/// A send with its connection, which it keeps in its in-flight bound.
struct HeldSend {
    frame: Bytes,
    in_flight: InFlight,
    since: Instant,
}

/// What became of a send that was to be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// It waits.
    Held,
    /// Nothing is held any more: it is to be taken in.
    Released,
    /// Too much waits already.
    Full,
}

impl HeldSends {
    /// Whether sends are held. Costs one load.
    pub fn is_holding(&self) -> bool {
        self.is_holding.load(Ordering::Acquire)
    }

    /// Lets a send wait.
    pub fn hold(&self, conn: &Arc<Connection>, frame: &Frame<'_>) -> Hold {
        let mut copy = BytesMut::new();
        let remark = frame.remark.as_deref();
        frame::encode(&mut copy, frame.serialize, frame.head(), remark, &frame.ext, frame.body);
        let frame = copy.freeze();
        let mut held = self.held.lock();
        if !held.is_holding {
            return Hold::Released;
        }
        if held.bytes + frame.len() > HELD_BYTES_MAX {
            return Hold::Full;
        }
        held.bytes += frame.len();
        let in_flight = conn.hold(frame.len());
        held.sends.push_back(HeldSend { frame, in_flight, since: Instant::now() });
        Hold::Held
    }

    fn set_holding(&self, holding: bool) -> VecDeque<HeldSend> {
        let mut held = self.held.lock();
        held.is_holding = holding;
        self.is_holding.store(holding, Ordering::Release);
        if holding {
            return VecDeque::new();
        }
        held.bytes = 0;
        std::mem::take(&mut held.sends)
    }

    /// Holds no more, and closes the connections of those that wait.
    pub(super) fn close_all(&self) {
        let sends = self.set_holding(false);
        if !sends.is_empty() {
            tracing::info!(sends = sends.len(), "connections of sends that were held are closed");
        }
        for send in sends {
            send.in_flight.connection().close();
        }
    }

    /// Answers those that have waited for too long by `now`.
    pub(crate) fn end_expired(&self, state: &BrokerState, now: Instant) {
        loop {
            let mut held = self.held.lock();
            let waiting = held.sends.len();
            let is_over = |send: &mut HeldSend| now.duration_since(send.since) >= HELD_TIME;
            let Some(send) = held.sends.pop_front_if(is_over) else { return };
            held.bytes = held.bytes.saturating_sub(send.frame.len());
            drop(held);
            send.answer_busy(state, waiting);
        }
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.held.lock().sends.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a sender is told for whom there is no time or room, in the words of the Java broker
/// (`BrokerFastFailure`).
pub fn busy_remark(waited: Duration, waiting: usize) -> String {
    format!(
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: {}ms, \
         size of queue: {waiting}",
        waited.as_millis()
    )
}

impl HeldSend {
    fn decode(&self) -> Option<Frame<'_>> {
        // It was encoded from a frame.
        Frame::decode(self.frame.get(LENGTH_BYTES..)?).ok()
    }

    fn answer_busy(&self, state: &BrokerState, waiting: usize) {
        let Some(frame) = self.decode() else { return };
        let mut out = Output::new();
        let code = ResponseCode::SYSTEM_BUSY;
        out.reply_error(frame.ticket(), code, &busy_remark(self.since.elapsed(), waiting));
        self.in_flight.connection().send(out);
        state.metrics.answered(frame.request_code(), code, false, self.since, 1);
    }
}

impl BrokerState {
    /// Holds sends from now on, or takes in those that were held. For the time of a planned handover;
    /// none waits longer than [`HELD_TIME`].
    pub fn hold_sends(self: &Arc<Self>, hold: bool) {
        let released = self.held_sends.set_holding(hold);
        if released.is_empty() {
            return;
        }
        let state = Arc::clone(self);
        self.runtime.spawn_blocking(move || {
            let mut batch = SendBatch::new(&state);
            for send in released {
                let Some(frame) = send.decode() else { continue };
                let conn = send.in_flight.connection();
                let mut out = Output::new();
                batch.begin(send.since);
                batch.add(&state, conn, &frame, &mut out);
                batch.finish(&state, conn, &mut out);
                conn.send(out);
            }
        });
    }
}
