//! Answers to sends: at once, or when the group commit, slaves, or a time-out end their wait.

use std::borrow::Cow;
use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::frame::Ticket;
use rocketmq_protocol::header::send::SendMessageResponse;
use rocketmq_protocol::message::id::OffsetMessageId;
use rocketmq_remoting::{InFlight, Output};
use rocketmq_store::{AppendError, AppendResult, DurableOutcome, Refusal};

use super::TopicPuts;
use super::copies::Copies;
use crate::config::BrokerConfig;
use crate::flush_waits::WaitEnd;
use crate::role;
use crate::state::BrokerState;

/// The fields that ride on every answer to a send, errors included.
pub(super) fn riders(config: &BrokerConfig) -> [(&'static str, &str); 2] {
    let trace_on = if config.trace_on { "true" } else { "false" };
    [("MSG_REGION", config.region_id.as_str()), ("TRACE_ON", trace_on)]
}

/// A send whose messages are in the append batch.
pub(super) struct PendingSend {
    pub(super) ticket: Ticket,
    pub(super) request: RequestCode,
    pub(super) queue_id: i32,
    /// Its messages in the append batch.
    pub(super) messages: Range<usize>,
    /// Its unique key in the batch's text; empty if it has none.
    pub(super) unique_key: Range<usize>,
    /// Whether its messages are one record.
    pub(super) is_inner_batch: bool,
    /// Whether the producer waits for the flush (property WAIT is not `false`).
    pub(super) waits: bool,
}

/// What is answered when an append failed.
pub(in crate::handler) fn append_error(error: &AppendError) -> (ResponseCode, String) {
    let code = match error {
        AppendError::Refused(_) => ResponseCode::SERVICE_NOT_AVAILABLE,
        _ => ResponseCode::SYSTEM_ERROR,
    };
    (code, error.to_string())
}

/// Sends whose append has ended, to be answered.
pub(super) struct Answers {
    pub(super) pending: Vec<PendingSend>,
    pub(super) unique_keys: String,
    /// What each queue gets of them.
    pub(super) puts: Vec<TopicPuts>,
    pub(super) error: Option<AppendError>,
    /// What all are told though their messages are in the log: it may go, with them.
    pub(super) withdrawn: Option<(ResponseCode, &'static str)>,
    /// When the read that brought them began.
    pub(super) began: Instant,
}

impl Answers {
    /// Withdraws what was stored if it may not be acknowledged: asked at the last moment, since this
    /// process may have stood still for any time.
    pub(super) fn withdraw_if_closed(
        &mut self,
        state: &BrokerState,
        places: &mut Vec<AppendResult>,
    ) {
        if !places.is_empty()
            && let Err(fenced) = state.role.may_acknowledge()
        {
            self.withdraw(role::refusal(fenced), places);
        }
    }

    fn withdraw(&mut self, told: (ResponseCode, &'static str), places: &mut Vec<AppendResult>) {
        self.withdrawn = Some(told);
        places.clear();
    }

    /// Answers every send with where its messages lie, or with why they were not stored. `places`
    /// has the messages that were; `code` is for producers who wait for the flush, the others only
    /// wanted them stored.
    pub(super) fn write(
        &self,
        state: &BrokerState,
        places: &[AppendResult],
        code: ResponseCode,
        out: &mut Output,
    ) {
        let config = state.config.load();
        let mut msg_id = String::new();
        if self.error.is_none() && self.withdrawn.is_none() {
            let latency_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
            for TopicPuts { topic, queues } in &self.puts {
                state.metrics.puts_answered(&topic.topic_name, queues, latency_ms);
            }
        }
        let mut counted = Counted::new(state, self.began);
        for send in &self.pending {
            let Some(stored) = places.get(send.messages.clone()) else {
                let (code, remark) = match (self.withdrawn, &self.error) {
                    (Some((code, remark)), _) => (code, remark.to_owned()),
                    (None, Some(error)) => append_error(error),
                    (None, None) => append_error(&AppendError::NotAppended),
                };
                out.reply_header(send.ticket, code, Some(&remark), &riders(&config));
                counted.add(send.request, code);
                continue;
            };
            msg_id.clear();
            for place in stored {
                if !msg_id.is_empty() {
                    msg_id.push(',');
                }
                let store_host = state.identity.store_host;
                let id = OffsetMessageId { store_host, physical_offset: place.physical_offset };
                // Writing to a String cannot fail.
                let _ = write!(msg_id, "{id}");
            }
            let unique_key = &self.unique_keys[send.unique_key.clone()];
            let header = SendMessageResponse {
                msg_id: Cow::Borrowed(&msg_id),
                queue_id: send.queue_id,
                queue_offset: stored.first().map_or(0, |place| place.queue_offset),
                batch_uniq_id: send.is_inner_batch.then_some(Cow::Borrowed(unique_key)),
                transaction_id: (!unique_key.is_empty()).then_some(Cow::Borrowed(unique_key)),
                msg_region: Some(Cow::Borrowed(&config.region_id)),
                trace_on: Some(config.trace_on),
                ..SendMessageResponse::default()
            };
            let code = if send.waits { code } else { ResponseCode::SUCCESS };
            out.reply_header(send.ticket, code, None, &header);
            counted.add(send.request, code);
        }
    }
}

/// Counts answers in `rocketmq_rpc_latency`, runs of equal ones at once.
struct Counted<'a> {
    state: &'a BrokerState,
    began: Instant,
    run: Option<(RequestCode, ResponseCode, u64)>,
}

impl<'a> Counted<'a> {
    fn new(state: &'a BrokerState, began: Instant) -> Counted<'a> {
        Counted { state, began, run: None }
    }

    fn add(&mut self, request: RequestCode, code: ResponseCode) {
        match &mut self.run {
            Some((of, answered, count)) if *of == request && *answered == code => *count += 1,
            _ => {
                self.end_run();
                self.run = Some((request, code, 1));
            }
        }
    }

    fn end_run(&mut self) {
        if let Some((request, code, count)) = self.run.take() {
            self.state.metrics.answered(request, code, false, self.began, count);
        }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.end_run();
    }
}

/// Sends that wait for the group commit, for copies, or for one after the other.
pub(super) struct StoredWait {
    pub(super) answers: Answers,
    pub(super) places: Vec<AppendResult>,
    pub(super) state: Arc<BrokerState>,
    pub(super) in_flight: InFlight,
    /// Behind the last message.
    pub(super) end: i64,
    /// Who must have them.
    pub(super) copies: Copies,
}

impl StoredWait {
    /// The wait for the disk has ended; may run on a thread of the store.
    pub(super) fn flushed(mut self, end: WaitEnd) {
        let code = match end {
            WaitEnd::Flushed(DurableOutcome::Durable) | WaitEnd::Copied => {
                return self.wait_for_copies();
            }
            WaitEnd::Flushed(DurableOutcome::Failed(reason)) => {
                // Nobody knows what is on disk: to the producer it was not stored.
                self.places.clear();
                self.answers.error = Some(AppendError::Refused(Refusal::SyncFailed(reason)));
                ResponseCode::SERVICE_NOT_AVAILABLE
            }
            // Stored, but perhaps not on disk.
            WaitEnd::TimedOut => ResponseCode::FLUSH_DISK_TIMEOUT,
            WaitEnd::SteppedDown(code) => return self.withdraw(code),
        };
        self.answer(code);
    }

    /// Answers once those who must have the messages do; they were copied while the disk was waited
    /// for.
    pub(super) fn wait_for_copies(self) {
        if self.copies == Copies::None {
            return self.answer(ResponseCode::SUCCESS);
        }
        let (state, end, copies) = (Arc::clone(&self.state), self.end, self.copies);
        let wait = state.copy_waits.add(Box::new(move |end| {
            let code = match end {
                WaitEnd::Copied | WaitEnd::Flushed(_) => ResponseCode::SUCCESS,
                // Stored here, but perhaps not by enough slaves.
                WaitEnd::TimedOut => ResponseCode::FLUSH_SLAVE_TIMEOUT,
                WaitEnd::SteppedDown(code) => return self.withdraw(code),
            };
            self.answer(code);
        }));
        copies.on_copied(&state, end, wait);
    }

    /// Answers that nothing was taken.
    fn withdraw(mut self, code: ResponseCode) {
        let (_, remark) = role::refusal(rocketmq_replication::FencedBy::Role);
        self.answers.withdraw((code, remark), &mut self.places);
        self.answer(code);
    }

    fn answer(mut self, code: ResponseCode) {
        let mut out = Output::new();
        self.answers.withdraw_if_closed(&self.state, &mut self.places);
        self.answers.write(&self.state, &self.places, code, &mut out);
        self.in_flight.connection().send(out);
    }
}
