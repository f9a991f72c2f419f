//! Sends that came while a master hands over: they wait for the end of it instead of failing.
//!
//! If the handover is called off they are taken in as if they had just come. When it has succeeded they
//! go on to the new master (`forward`), as do those that come here all the same, until the address of the
//! group's master leads there; then connections are closed, so that clients connect anew. While nobody
//! knows the new master they wait for it. What waits is bounded in bytes and in time; beyond, the broker
//! is busy.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use rocketmq_protocol::code::ResponseCode;
use rocketmq_protocol::frame::{self, Frame, LENGTH_BYTES};
use rocketmq_remoting::{Connection, InFlight, Output};
use tokio::sync::Notify;

use crate::handler::send::SendBatch;
use crate::state::BrokerState;

/// Longest wait for the end of a handover. Producers give up after `sendMsgTimeout`, 3 s.
pub const HELD_TIME: Duration = Duration::from_secs(3);
/// Wait after it, in which the address is to move. A third of what a producer has, as it tries thrice.
pub(super) const ADDRESS_MOVES: Duration = Duration::from_secs(1);
/// For how long after a handover sends wait that come here; from then on they are refused.
pub(super) const AFTERMATH: Duration = Duration::from_secs(10);
/// Bytes of sends that wait, of all connections together.
pub const HELD_BYTES_MAX: usize = 64 << 20;

/// The sends that wait.
#[derive(Default)]
pub struct HeldSends {
    is_holding: AtomicBool,
    held: Mutex<Held>,
    /// There may be some that wait for the address.
    came: Notify,
}

/// What sends wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Holding {
    /// They do not.
    #[default]
    Nothing,
    /// The end of the handover.
    Handover,
    /// That the address has moved.
    Address {
        /// When the handover ended.
        since: Instant,
        /// Whether the connections that were there were closed since.
        is_closed: bool,
    },
}

#[derive(Default)]
struct Held {
    holding: Holding,
    sends: VecDeque<HeldSend>,
    bytes: usize,
}

/// A send with its connection, which it keeps in its in-flight bound.
pub(super) struct HeldSend {
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
        if held.holding == Holding::Nothing {
            return Hold::Released;
        }
        if held.bytes + frame.len() > HELD_BYTES_MAX {
            return Hold::Full;
        }
        held.bytes += frame.len();
        let in_flight = conn.hold(frame.len());
        held.sends.push_back(HeldSend { frame, in_flight, since: Instant::now() });
        let is_for_address = matches!(held.holding, Holding::Address { .. });
        drop(held);
        if is_for_address {
            self.came.notify_one();
        }
        Hold::Held
    }

    /// Changes what is waited for. Returns those that waited if it is for nothing any more.
    fn turn_to(&self, holding: Holding) -> VecDeque<HeldSend> {
        let mut held = self.held.lock();
        held.holding = holding;
        self.is_holding.store(holding != Holding::Nothing, Ordering::Release);
        if holding != Holding::Nothing {
            return VecDeque::new();
        }
        held.bytes = 0;
        std::mem::take(&mut held.sends)
    }

    /// Holds no more, and closes the connections of those that wait.
    pub(super) fn close_all(&self) {
        for send in self.turn_to(Holding::Nothing) {
            send.connection().close();
        }
    }

    /// The handover has succeeded, and this broker is a slave.
    pub(super) fn handed_over(&self) {
        self.turn_to(Holding::Address { since: Instant::now(), is_closed: false });
        self.came.notify_one();
    }

    /// Returns when there may be some to [take](HeldSends::take_all_for_address).
    pub(super) async fn came(&self) {
        self.came.notified().await;
    }

    /// Lets [`HeldSends::came`] return once more, if there are any.
    pub(super) fn look_again(&self) {
        let held = self.held.lock();
        if matches!(held.holding, Holding::Address { .. }) && !held.sends.is_empty() {
            self.came.notify_one();
        }
    }

    /// Takes those that wait for the address of the new master.
    pub(super) fn take_all_for_address(&self) -> VecDeque<HeldSend> {
        let mut held = self.held.lock();
        if !matches!(held.holding, Holding::Address { .. }) {
            return VecDeque::new();
        }
        held.bytes = 0;
        std::mem::take(&mut held.sends)
    }

    /// Does what is due by `now`: nobody waits for too long.
    pub(crate) fn end_expired(&self, state: &BrokerState, now: Instant) {
        let mut held = self.held.lock();
        match held.holding {
            Holding::Nothing => return,
            Holding::Handover => {}
            Holding::Address { since, .. } if now >= since + AFTERMATH => {
                drop(held);
                return self.close_all();
            }
            Holding::Address { since, is_closed: false } if now >= since + ADDRESS_MOVES => {
                held.holding = Holding::Address { since, is_closed: true };
                drop(held);
                return state.drain_clients();
            }
            Holding::Address { .. } => {}
        }
        drop(held);
        while let Some((send, waiting)) = self.take_expired(now) {
            match waiting {
                Some(waiting) => send.answer_busy(state, waiting),
                None => send.connection().close(),
            }
        }
    }

    /// The next that has waited for too long; with how many waited, if it is for a handover.
    fn take_expired(&self, now: Instant) -> Option<(HeldSend, Option<usize>)> {
        let mut held = self.held.lock();
        let (ended, limit) = match held.holding {
            Holding::Nothing => return None,
            Holding::Handover => (None, HELD_TIME),
            Holding::Address { since, .. } => (Some(since), ADDRESS_MOVES),
        };
        let waiting = ended.is_none().then_some(held.sends.len());
        let send = held.sends.pop_front_if(|send| {
            let from = ended.map_or(send.since, |ended| ended.max(send.since));
            now >= from + limit
        })?;
        held.bytes = held.bytes.saturating_sub(send.frame.len());
        Some((send, waiting))
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
    /// Where it came from.
    pub(super) fn connection(&self) -> &Arc<Connection> {
        self.in_flight.connection()
    }

    /// When it came.
    pub(super) fn since(&self) -> Instant {
        self.since
    }

    pub(super) fn decode(&self) -> Option<Frame<'_>> {
        // It was encoded from a frame.
        Frame::decode(self.frame.get(LENGTH_BYTES..)?).ok()
    }

    fn answer_busy(&self, state: &BrokerState, waiting: usize) {
        let Some(frame) = self.decode() else { return };
        let mut out = Output::new();
        let code = ResponseCode::SYSTEM_BUSY;
        out.reply_error(frame.ticket(), code, &busy_remark(self.since.elapsed(), waiting));
        self.connection().send(out);
        state.metrics.answered(frame.request_code(), code, false, self.since, 1);
    }
}

impl BrokerState {
    /// Holds sends from now on, or takes in those that were held. For the time of a planned handover;
    /// none waits longer than [`HELD_TIME`].
    pub fn hold_sends(self: &Arc<Self>, hold: bool) {
        let holding = if hold { Holding::Handover } else { Holding::Nothing };
        let released = self.held_sends.turn_to(holding);
        if released.is_empty() {
            return;
        }
        let state = Arc::clone(self);
        self.runtime.spawn_blocking(move || {
            let mut batch = SendBatch::new(&state);
            for send in released {
                let Some(frame) = send.decode() else { continue };
                let conn = send.connection();
                let mut out = Output::new();
                batch.begin(send.since);
                batch.add(&state, conn, &frame, &mut out);
                batch.finish(&state, conn, &mut out);
                conn.send(out);
            }
        });
    }
}
