//! Which handler serves a request code, and on which thread.
//!
//! Sends and pulls, offsets, locks and consumer lists run inline on the connection's I/O thread: they
//! touch memory only. Everything else (administration, heart-beats that may create a group, reads of
//! old messages) leaves the loop for a blocking thread, so that it cannot hold up messages; see
//! `lanes`. What a client has to answer first is prepared there too and then waits without a
//! thread; see [`relay`].

pub mod assignment;
pub mod client;
pub mod config;
pub mod group;
mod lanes;
pub mod lock;
pub mod message;
pub mod offset;
pub mod pull;
pub mod queue;
pub mod relay;
pub mod replication;
pub mod reset;
pub mod retention;
pub mod retry;
pub mod send;
pub mod stats;
pub mod topic;
pub mod transaction;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use futures::FutureExt as _;
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::frame::{self, Frame, LENGTH_BYTES};
use rocketmq_protocol::response::Response;
use rocketmq_remoting::{Connection, Output, Service};

use crate::state::BrokerState;
use lanes::Lanes;
use relay::Later;
use send::SendBatch;
use transaction::Place;

/// A handler of one request code.
type Handler = fn(&Arc<BrokerState>, &Arc<Connection>, &Frame<'_>) -> Response;

/// A handler whose answer depends on a client.
type LaterHandler = fn(&Arc<BrokerState>, &Arc<Connection>, &Frame<'_>) -> Later;

/// What is done with a request beside the connection's loop.
enum Elsewhere {
    Answer(Handler),
    Wait(LaterHandler),
}

/// What a broker does with requests.
pub struct BrokerService {
    state: Arc<BrokerState>,
    lanes: Lanes,
}

thread_local! {
    /// The sends of the read being served. One a thread: an I/O thread belongs to one broker, and
    /// serves one read at a time.
    static SENDS: RefCell<Option<SendBatch>> = const { RefCell::new(None) };
}

impl BrokerService {
    /// The service of this broker.
    pub fn new(state: Arc<BrokerState>) -> BrokerService {
        BrokerService { state, lanes: Lanes::default() }
    }

    fn route(
        &self,
        conn: &Arc<Connection>,
        frame: &Frame<'_>,
        sends: &mut SendBatch,
        out: &mut Output,
    ) {
        match frame.request_code() {
            RequestCode::SEND_MESSAGE
            | RequestCode::SEND_MESSAGE_V2
            | RequestCode::SEND_BATCH_MESSAGE => sends.take_in(&self.state, conn, frame, out),
            RequestCode::PULL_MESSAGE => pull::pull(&self.state, conn, frame, out),
            RequestCode::LITE_PULL_MESSAGE if self.state.config.load().lite_pull_message_enable => {
                pull::pull(&self.state, conn, frame, out);
            }
            RequestCode::LITE_PULL_MESSAGE => {
                let remark = "lite pull is forbidden here (litePullMessageEnable=false)";
                out.reply_error(frame.ticket(), ResponseCode::NO_PERMISSION, remark);
            }
            RequestCode::CONSUMER_SEND_MSG_BACK if retry::is_quick(&self.state, frame) => {
                self.run_here(retry::consumer_send_msg_back, conn, frame, out);
            }
            RequestCode::END_TRANSACTION => match transaction::place_of(&self.state, frame) {
                // Still undecided: nothing to do, and no answer.
                Place::Nowhere => {}
                Place::Here => self.run_here(transaction::end_transaction, conn, frame, out),
                Place::Elsewhere => {
                    let work = Elsewhere::Answer(transaction::end_transaction);
                    self.run_elsewhere(work, conn, frame);
                }
            },
            code => match (quick_handler(code), elsewhere(code), refusal(code)) {
                (Some(handler), ..) => self.run_here(handler, conn, frame, out),
                (_, Some(work), _) => self.run_elsewhere(work, conn, frame),
                (.., Some((answer, what))) => {
                    let remark =
                        format!("request {code} is not supported by this broker version: {what}");
                    out.reply_error(frame.ticket(), answer, &remark);
                }
                _ => out.reply_unsupported(frame.ticket()),
            },
        }
    }

    fn run_here(
        &self,
        handler: Handler,
        conn: &Arc<Connection>,
        frame: &Frame<'_>,
        out: &mut Output,
    ) {
        let began = Instant::now();
        let response = handler(&self.state, conn, frame);
        self.state.metrics.answered(frame.request_code(), response.code, false, began, 1);
        out.reply(frame.ticket(), &response);
    }

    fn run_elsewhere(&self, work: Elsewhere, conn: &Arc<Connection>, frame: &Frame<'_>) {
        let mut copy = BytesMut::new();
        frame::encode(
            &mut copy,
            frame.serialize,
            frame.head(),
            frame.remark.as_deref(),
            &frame.ext,
            frame.body,
        );
        let copy = copy.freeze();
        let in_flight = conn.hold(copy.len());
        let state = Arc::clone(&self.state);
        let ticket = frame.ticket();
        let (code, began) = (frame.request_code(), Instant::now());
        let job = Box::new(move || {
            let conn = in_flight.connection();
            let response = match Frame::decode(copy.get(LENGTH_BYTES..).unwrap_or_default()) {
                Ok(frame) => match work {
                    Elsewhere::Answer(handler) => answer(code, || handler(&state, conn, &frame)),
                    Elsewhere::Wait(handler) => {
                        let later = answer_later(code, || handler(&state, conn, &frame));
                        let runtime = state.runtime.clone();
                        // It ends with the client's answer, its time-out, or its connection.
                        runtime.spawn(async move {
                            let response = later.await;
                            state.metrics.answered(code, response.code, false, began, 1);
                            in_flight.connection().reply(ticket, &response);
                        });
                        return;
                    }
                },
                Err(error) => Response::error(ResponseCode::SYSTEM_ERROR, error.to_string()),
            };
            // With the time that the request waited for a thread.
            state.metrics.answered(code, response.code, false, began, 1);
            conn.reply(ticket, &response);
        });
        self.lanes.run(&self.state.runtime, conn, job);
    }
}

/// What a handler answers. One that panics is a defect of ours: the client is told so at once, as by
/// a Java broker whose processor threw, instead of waiting in vain. Locks are free again after a panic.
fn answer(code: RequestCode, handler: impl FnOnce() -> Response) -> Response {
    catch_unwind(AssertUnwindSafe(handler)).unwrap_or_else(|_| faulty(code))
}

/// The same for one whose answer comes later: neither its preparation nor its wait may go unanswered.
fn answer_later(code: RequestCode, handler: impl FnOnce() -> Later) -> Later {
    match catch_unwind(AssertUnwindSafe(handler)) {
        Ok(later) => {
            let waiting = AssertUnwindSafe(later).catch_unwind();
            Box::pin(waiting.map(move |ended| ended.unwrap_or_else(|_| faulty(code))))
        }
        Err(_) => relay::at_once(faulty(code)),
    }
}

fn faulty(code: RequestCode) -> Response {
    tracing::error!(%code, "handler panicked");
    let remark = format!("{code} failed by a fault of the broker; its log says more");
    Response::error(ResponseCode::SYSTEM_ERROR, remark)
}

impl Service for BrokerService {
    fn closed(&self, conn: &Arc<Connection>) {
        client::connection_closed(&self.state, conn);
    }

    fn serve(&self, conn: &Arc<Connection>, requests: &[Frame<'_>], out: &mut Output) {
        SENDS.with_borrow_mut(|sends| {
            let sends = sends.get_or_insert_with(|| SendBatch::new(&self.state));
            sends.begin(Instant::now());
            for frame in requests {
                self.route(conn, frame, sends, out);
            }
            sends.finish(&self.state, conn, out);
        });
    }
}

/// Handlers that touch memory only.
fn quick_handler(code: RequestCode) -> Option<Handler> {
    Some(match code {
        RequestCode::QUERY_CONSUMER_OFFSET => offset::query_consumer_offset,
        RequestCode::UPDATE_CONSUMER_OFFSET => offset::update_consumer_offset,
        RequestCode::GET_MAX_OFFSET => offset::get_max_offset,
        RequestCode::GET_MIN_OFFSET => offset::get_min_offset,
        RequestCode::GET_CONSUMER_LIST_BY_GROUP => client::get_consumer_list_by_group,
        RequestCode::LOCK_BATCH_MQ => lock::lock_batch_mq,
        RequestCode::UNLOCK_BATCH_MQ => lock::unlock_batch_mq,
        _ => return None,
    })
}

/// What is done beside the connection's loop.
fn elsewhere(code: RequestCode) -> Option<Elsewhere> {
    let answer = slow_handler(code).map(Elsewhere::Answer);
    answer.or_else(|| later_handler(code).map(Elsewhere::Wait))
}

/// Handlers that wait for a client or a name server.
fn later_handler(code: RequestCode) -> Option<LaterHandler> {
    Some(match code {
        RequestCode::SEND_REPLY_MESSAGE | RequestCode::SEND_REPLY_MESSAGE_V2 => {
            send::reply::send_reply_message
        }
        RequestCode::QUERY_ASSIGNMENT => assignment::query_assignment,
        RequestCode::GET_CONSUMER_RUNNING_INFO => relay::get_consumer_running_info,
        RequestCode::CONSUME_MESSAGE_DIRECTLY => relay::consume_message_directly,
        RequestCode::INVOKE_BROKER_TO_GET_CONSUMER_STATUS => {
            relay::invoke_broker_to_get_consumer_status
        }
        _ => return None,
    })
}

/// Handlers that may write a file, read cold pages, or walk a table.
fn slow_handler(code: RequestCode) -> Option<Handler> {
    Some(match code {
        RequestCode::CONSUMER_SEND_MSG_BACK => retry::consumer_send_msg_back,
        RequestCode::HEART_BEAT => client::heart_beat,
        RequestCode::UNREGISTER_CLIENT => client::unregister_client,
        RequestCode::CHECK_CLIENT_CONFIG => client::check_client_config,
        RequestCode::GET_CONSUMER_CONNECTION_LIST => client::get_consumer_connection_list,
        RequestCode::GET_PRODUCER_CONNECTION_LIST => client::get_producer_connection_list,
        RequestCode::GET_ALL_PRODUCER_INFO => client::get_all_producer_info,
        RequestCode::QUERY_SUBSCRIPTION_BY_CONSUMER => client::query_subscription_by_consumer,
        RequestCode::GET_EARLIEST_MSG_STORETIME => offset::get_earliest_msg_storetime,
        RequestCode::SEARCH_OFFSET_BY_TIMESTAMP => offset::search_offset_by_timestamp,
        RequestCode::GET_ALL_CONSUMER_OFFSET => offset::get_all_consumer_offset,
        RequestCode::CLONE_GROUP_OFFSET => offset::clone_group_offset,
        RequestCode::QUERY_CORRECTION_OFFSET => offset::query_correction_offset,
        RequestCode::GET_ALL_DELAY_OFFSET => offset::get_all_delay_offset,
        RequestCode::INVOKE_BROKER_TO_RESET_OFFSET => reset::invoke_broker_to_reset_offset,
        RequestCode::UPDATE_AND_CREATE_TOPIC => topic::update_and_create_topic,
        RequestCode::UPDATE_AND_CREATE_TOPIC_LIST => topic::update_and_create_topic_list,
        RequestCode::DELETE_TOPIC_IN_BROKER => topic::delete_topic_in_broker,
        RequestCode::GET_ALL_TOPIC_CONFIG => topic::get_all_topic_config,
        RequestCode::GET_TOPIC_CONFIG => topic::get_topic_config,
        RequestCode::GET_SYSTEM_TOPIC_LIST_FROM_BROKER => topic::get_system_topic_list,
        RequestCode::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP => group::update_and_create_group,
        RequestCode::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST => {
            group::update_and_create_group_list
        }
        RequestCode::DELETE_SUBSCRIPTIONGROUP => group::delete_group,
        RequestCode::GET_ALL_SUBSCRIPTIONGROUP_CONFIG => group::get_all_groups,
        RequestCode::GET_SUBSCRIPTIONGROUP_CONFIG => group::get_group,
        RequestCode::UPDATE_AND_GET_GROUP_FORBIDDEN => group::update_and_get_group_forbidden,
        RequestCode::SET_MESSAGE_REQUEST_MODE => assignment::set_message_request_mode,
        RequestCode::GET_ALL_MESSAGE_REQUEST_MODE => assignment::get_all_message_request_mode,
        RequestCode::GET_BROKER_CONFIG => config::get_broker_config,
        RequestCode::UPDATE_BROKER_CONFIG => config::update_broker_config,
        RequestCode::RESUME_CHECK_HALF_MESSAGE => transaction::resume_check_half_message,
        RequestCode::VIEW_MESSAGE_BY_ID => message::view_message_by_id,
        RequestCode::QUERY_MESSAGE => message::query_message,
        RequestCode::GET_BROKER_RUNTIME_INFO => stats::get_broker_runtime_info,
        RequestCode::GET_BROKER_HA_STATUS => replication::get_broker_ha_status,
        RequestCode::GET_BROKER_EPOCH_CACHE => replication::get_broker_epoch_cache,
        RequestCode::GET_CONSUME_STATS => stats::get_consume_stats,
        RequestCode::GET_BROKER_CONSUME_STATS => stats::get_broker_consume_stats,
        RequestCode::VIEW_BROKER_STATS_DATA => stats::view_broker_stats_data,
        RequestCode::QUERY_CONSUME_QUEUE => queue::query_consume_queue,
        RequestCode::GET_TOPIC_STATS_INFO => stats::get_topic_stats_info,
        RequestCode::QUERY_TOPIC_CONSUME_BY_WHO => stats::query_topic_consume_by_who,
        RequestCode::QUERY_TOPICS_BY_CONSUMER => stats::query_topics_by_consumer,
        RequestCode::CLEAN_EXPIRED_CONSUMEQUEUE => retention::clean_expired_consume_queue,
        RequestCode::DELETE_EXPIRED_COMMITLOG => retention::delete_expired_commit_log,
        RequestCode::CLEAN_UNUSED_TOPIC => retention::clean_unused_topic,
        RequestCode::QUERY_CONSUME_TIME_SPAN => stats::query_consume_time_span,
        _ => return None,
    })
}

/// How a request is answered that RocketMQ has and this broker refuses: with the code of a Java
/// broker on which the feature is off, if that is an error, else REQUEST_CODE_NOT_SUPPORTED.
fn refusal(code: RequestCode) -> Option<(ResponseCode, &'static str)> {
    let off = match code {
        RequestCode::NOTIFY_BROKER_ROLE_CHANGED => "it is not in controller mode",
        RequestCode::GET_TIMER_CHECK_POINT | RequestCode::GET_TIMER_METRICS => {
            "it has no timed messages"
        }
        RequestCode::AUTH_CREATE_USER
        | RequestCode::AUTH_UPDATE_USER
        | RequestCode::AUTH_DELETE_USER
        | RequestCode::AUTH_GET_USER
        | RequestCode::AUTH_LIST_USER
        | RequestCode::AUTH_CREATE_ACL
        | RequestCode::AUTH_UPDATE_ACL
        | RequestCode::AUTH_DELETE_ACL
        | RequestCode::AUTH_GET_ACL
        | RequestCode::AUTH_LIST_ACL => "it has no access control",
        _ => {
            let what = later_work(code)?;
            return Some((ResponseCode::REQUEST_CODE_NOT_SUPPORTED, what));
        }
    };
    Some((ResponseCode::SYSTEM_ERROR, off))
}

/// What a client asks for when it sends a request that RocketMQ has and this broker does not have
/// yet; the answer says so.
fn later_work(code: RequestCode) -> Option<&'static str> {
    Some(match code {
        RequestCode::POP_MESSAGE
        | RequestCode::ACK_MESSAGE
        | RequestCode::BATCH_ACK_MESSAGE
        | RequestCode::PEEK_MESSAGE
        | RequestCode::CHANGE_MESSAGE_INVISIBLETIME
        | RequestCode::NOTIFICATION
        | RequestCode::POLLING_INFO
        | RequestCode::POP_ROLLBACK => "it has no POP consumption; use a pull or push consumer",
        RequestCode::RECALL_MESSAGE => "it has no timed messages",
        RequestCode::EXCHANGE_BROKER_HA_INFO
        | RequestCode::RESET_MASTER_FLUSH_OFFSET
        | RequestCode::NOTIFY_MIN_BROKER_ID_CHANGE => "it replicates by brokerRole alone",
        RequestCode::UPDATE_AND_CREATE_STATIC_TOPIC => {
            "it has no static topics; make an ordinary one with UPDATE_AND_CREATE_TOPIC"
        }
        RequestCode::UPDATE_COLD_DATA_FLOW_CTR_CONFIG
        | RequestCode::REMOVE_COLD_DATA_FLOW_CTR_CONFIG
        | RequestCode::GET_COLD_DATA_FLOW_CTR_INFO => {
            "it does not limit reads of cold data; they run beside the I/O threads"
        }
        RequestCode::SET_COMMITLOG_READ_MODE => {
            "it leaves read-ahead of the commit log to the operating system"
        }
        RequestCode::CHECK_ROCKSDB_CQ_WRITE_PROGRESS
        | RequestCode::EXPORT_ROCKSDB_CONFIG_TO_JSON => "it has no RocksDB store",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those that `route` names itself.
    const INLINE: [RequestCode; 6] = [
        RequestCode::SEND_MESSAGE,
        RequestCode::SEND_MESSAGE_V2,
        RequestCode::SEND_BATCH_MESSAGE,
        RequestCode::PULL_MESSAGE,
        RequestCode::LITE_PULL_MESSAGE,
        RequestCode::END_TRANSACTION,
    ];

    #[test]
    fn a_handler_that_panics_is_answered_for() {
        let response = answer(RequestCode::GET_BROKER_CONFIG, || unreachable!("a fault"));
        assert_eq!(response.code, ResponseCode::SYSTEM_ERROR);
        let remark = response.remark.expect("a remark");
        assert!(remark.starts_with("GET_BROKER_CONFIG(26) failed"), "{remark}");
        assert_eq!(answer(RequestCode::GET_BROKER_CONFIG, Response::ok), Response::ok());
    }

    #[tokio::test]
    async fn a_handler_that_panics_before_or_during_its_wait_is_answered_for() {
        let code = RequestCode::QUERY_ASSIGNMENT;
        let before = answer_later(code, || unreachable!("a fault")).await;
        let during =
            answer_later(code, || Box::pin(async { unreachable!("a fault while it waits") })).await;
        for response in [before, during] {
            assert_eq!(response.code, ResponseCode::SYSTEM_ERROR);
        }
        let answered = answer_later(code, || relay::at_once(Response::ok())).await;
        assert_eq!(answered, Response::ok());
    }

    /// Rows of the table of requests: code, name, to whom, state.
    fn documented() -> Vec<(i32, &'static str, &'static str, &'static str)> {
        let text = include_str!("../../../docs/compatibility.md");
        let rows = text.lines().filter_map(|line| {
            let cells: Vec<&str> =
                line.trim().trim_matches('|').split('|').map(str::trim).collect();
            match *cells {
                [code, name, to, state] => Some((code.parse().ok()?, name, to, state)),
                _ => None,
            }
        });
        rows.collect()
    }

    #[test]
    fn every_request_is_documented_as_it_is_routed() {
        let rows = documented();
        let codes: Vec<RequestCode> = rows.iter().map(|row| RequestCode(row.0)).collect();
        assert_eq!(codes, RequestCode::ALL, "the table has every code once, in order");
        for (code, name, to, state) in rows {
            let code = RequestCode(code);
            assert_eq!(code.name(), Some(name));
            let is_served = INLINE.contains(&code)
                || quick_handler(code).is_some()
                || elsewhere(code).is_some();
            let routed = match (is_served, refusal(code).is_some()) {
                (true, false) => "served",
                (false, true) => "refused",
                (false, false) => "unknown",
                (true, true) => panic!("{code} is served and refused"),
            };
            let documented = if to == "broker" { state } else { "unknown" };
            assert!(documented.starts_with(routed), "{code} is {routed}, documented is {state}");
        }
    }
}
