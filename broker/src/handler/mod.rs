//! Which handler serves a request code, and on which thread.
//!
//! Sends and pulls, offsets, locks and consumer lists run inline on the connection's I/O thread: they
//! touch memory only. Everything else (administration, heart-beats that may create a group, reads of
//! old messages) leaves the loop for a blocking thread, so that it cannot hold up messages; see
//! `lanes`.

pub mod client;
pub mod config;
pub mod group;
mod lanes;
pub mod lock;
pub mod message;
pub mod offset;
pub mod pull;
pub mod retention;
pub mod retry;
pub mod send;
pub mod stats;
pub mod topic;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::frame::{self, Frame, LENGTH_BYTES};
use rocketmq_protocol::response::Response;
use rocketmq_remoting::{Connection, Output, Service};

use crate::state::BrokerState;
use lanes::Lanes;
use send::SendBatch;

/// A handler of one request code.
type Handler = fn(&Arc<BrokerState>, &Arc<Connection>, &Frame<'_>) -> Response;

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
            | RequestCode::SEND_BATCH_MESSAGE => sends.add(&self.state, conn, frame, out),
            RequestCode::PULL_MESSAGE => pull::pull(&self.state, conn, frame, out),
            RequestCode::LITE_PULL_MESSAGE if self.state.config.load().lite_pull_message_enable => {
                pull::pull(&self.state, conn, frame, out);
            }
            RequestCode::LITE_PULL_MESSAGE => {
                let remark = "lite pull is forbidden here (litePullMessageEnable=false)";
                out.reply_error(frame.ticket(), ResponseCode::NO_PERMISSION, remark);
            }
            code => match (quick_handler(code), slow_handler(code), later_work(code)) {
                (Some(handler), ..) => {
                    let began = Instant::now();
                    let response = handler(&self.state, conn, frame);
                    self.state.metrics.answered(code, response.code, false, began, 1);
                    out.reply(frame.ticket(), &response);
                }
                (_, Some(handler), _) => self.run_elsewhere(handler, conn, frame),
                (.., Some(what)) => {
                    let remark =
                        format!("request {code} is not supported by this broker version: {what}");
                    let code = ResponseCode::REQUEST_CODE_NOT_SUPPORTED;
                    out.reply_error(frame.ticket(), code, &remark);
                }
                _ => out.reply_unsupported(frame.ticket()),
            },
        }
    }

    fn run_elsewhere(&self, handler: Handler, conn: &Arc<Connection>, frame: &Frame<'_>) {
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
                Ok(frame) => handler(&state, conn, &frame),
                Err(error) => Response::error(ResponseCode::SYSTEM_ERROR, error.to_string()),
            };
            // With the time that the request waited for a thread.
            state.metrics.answered(code, response.code, false, began, 1);
            conn.reply(ticket, &response);
        });
        self.lanes.run(&self.state.runtime, conn, job);
    }
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
        RequestCode::GET_EARLIEST_MSG_STORETIME => offset::get_earliest_msg_storetime,
        RequestCode::SEARCH_OFFSET_BY_TIMESTAMP => offset::search_offset_by_timestamp,
        RequestCode::GET_ALL_CONSUMER_OFFSET => offset::get_all_consumer_offset,
        RequestCode::GET_ALL_DELAY_OFFSET => offset::get_all_delay_offset,
        RequestCode::INVOKE_BROKER_TO_RESET_OFFSET => offset::invoke_broker_to_reset_offset,
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
        RequestCode::GET_BROKER_CONFIG => config::get_broker_config,
        RequestCode::UPDATE_BROKER_CONFIG => config::update_broker_config,
        RequestCode::VIEW_MESSAGE_BY_ID => message::view_message_by_id,
        RequestCode::QUERY_MESSAGE => message::query_message,
        RequestCode::GET_BROKER_RUNTIME_INFO => stats::get_broker_runtime_info,
        RequestCode::GET_CONSUME_STATS => stats::get_consume_stats,
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

/// What a client asks for when it sends a request that RocketMQ has and this broker does not have
/// yet; the answer says so.
fn later_work(code: RequestCode) -> Option<&'static str> {
    Some(match code {
        RequestCode::END_TRANSACTION => "it has no transactions",
        RequestCode::SEND_REPLY_MESSAGE | RequestCode::SEND_REPLY_MESSAGE_V2 => {
            "it has no request-reply"
        }
        RequestCode::POP_MESSAGE
        | RequestCode::ACK_MESSAGE
        | RequestCode::BATCH_ACK_MESSAGE
        | RequestCode::PEEK_MESSAGE
        | RequestCode::CHANGE_MESSAGE_INVISIBLETIME
        | RequestCode::NOTIFICATION
        | RequestCode::POLLING_INFO
        | RequestCode::SET_MESSAGE_REQUEST_MODE => {
            "it has no POP consumption; use a pull or push consumer"
        }
        RequestCode::RECALL_MESSAGE => "it has no timed messages",
        RequestCode::GET_BROKER_HA_STATUS
        | RequestCode::EXCHANGE_BROKER_HA_INFO
        | RequestCode::GET_BROKER_EPOCH_CACHE => "it has no replication",
        _ => return None,
    })
}
