//! What a slave copies from its master besides the log: topics, groups, consumer offsets, progress of
//! delayed messages, how groups consume (RocketMQ's `SlaveSynchronize`).
//!
//! Where the master is appointed, messages of a topic that it does not have go. So who is asked must
//! know all topics of this log. A master whose log is being copied does: it has made those that it
//! lacked before it let anybody copy. One that was appointed a moment ago may not, and its answers are
//! not taken. A master by configuration may have lost all it had; what its slaves have may be the last
//! of it, and goes only when it is old.

use std::sync::Arc;
use std::time::Duration;

use rocketmq_protocol::body::TopicConfigSerializeWrapper;
use rocketmq_protocol::body::assignment::MessageRequestModeTable;
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::fastjson;
use rocketmq_remoting::{CallError, Client, ClientConfig, Request, ResponseFrame};
use serde::de::DeserializeOwned;
use tracing::{info, warn};

use super::Master;
use crate::delay::DelayOffsetTable;
use crate::metadata::consumer_offset::OffsetFile;
use crate::metadata::group::GroupFile;
use crate::state::BrokerState;

/// Time between rounds, as in RocketMQ 5.
const INTERVAL: Duration = Duration::from_secs(3);
const TIMEOUT: Duration = Duration::from_secs(3);

/// Copies again and again, for ever.
pub(crate) async fn follow(state: &Arc<BrokerState>) {
    let client = Client::new(ClientConfig::default(), None);
    let mut failed = false;
    loop {
        let master = state.replication.master();
        let may_ask = state.group.is_none() || state.replication.is_copying_from(&master);
        if may_ask && !master.broker.is_empty() {
            match copy(state, &client, &master).await {
                Ok(()) => {
                    if failed {
                        info!(
                            master = master.broker,
                            "topics, groups and offsets are copied again"
                        );
                    }
                    failed = false;
                }
                // Told once: a master that is gone is a state, not news every three seconds.
                Err(error) if !failed => {
                    warn!(
                        master = master.broker,
                        error, "topics, groups and offsets are not copied"
                    );
                    failed = true;
                }
                Err(_) => {}
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// One round.
async fn copy(state: &Arc<BrokerState>, client: &Client, master: &Master) -> Result<(), String> {
    let from = &*master.broker;
    let topics: TopicConfigSerializeWrapper =
        ask(client, from, RequestCode::GET_ALL_TOPIC_CONFIG).await?;
    let groups: GroupFile =
        ask(client, from, RequestCode::GET_ALL_SUBSCRIPTIONGROUP_CONFIG).await?;
    let offsets: OffsetFile = ask(client, from, RequestCode::GET_ALL_CONSUMER_OFFSET).await?;
    let delays: DelayOffsetTable = ask(client, from, RequestCode::GET_ALL_DELAY_OFFSET).await?;
    let modes: Option<MessageRequestModeTable> =
        ask_newer(client, from, RequestCode::GET_ALL_MESSAGE_REQUEST_MODE).await?;
    let (state, services, master) = (Arc::clone(state), Arc::clone(state), master.clone());
    let take = move || {
        let is_appointed = state.group.is_some();
        // What it says of now; it was copied from, too, when it was asked: its number is never used again.
        if is_appointed && !state.replication.is_copying_from(&master) {
            return Ok(());
        }
        let told = |error: crate::metadata::persist::MetadataError| error.to_string();
        let gone =
            state.topics.follow(topics.data_version, topics.topic_config_table).map_err(told)?;
        for topic in gone {
            info!(topic, "the master has deleted the topic");
            state.offsets.remove_topic(&topic);
            if is_appointed {
                state.store.delete_topic(&topic).map_err(|error| error.to_string())?;
            }
        }
        state.groups.follow(groups).map_err(told)?;
        state.offsets.follow(offsets);
        if let Some(modes) = modes {
            state.assignments.follow(modes).map_err(told)?;
        }
        state.delays.follow(&delays).map_err(told)
    };
    // A master has its own by now.
    let writing = tokio::task::spawn_blocking(move || services.services.take_metadata(take));
    writing.await.map_err(|error| error.to_string())?.unwrap_or(Ok(()))
}

/// As [`ask`]; none if the master's version does not know the request.
async fn ask_newer<T: DeserializeOwned>(
    client: &Client,
    master: &str,
    code: RequestCode,
) -> Result<Option<T>, String> {
    match call(client, master, code).await {
        Err(CallError::Refused { code, .. })
            if code == ResponseCode::REQUEST_CODE_NOT_SUPPORTED =>
        {
            Ok(None)
        }
        answer => decode(answer, master, code).map(Some),
    }
}

async fn ask<T: DeserializeOwned>(
    client: &Client,
    master: &str,
    code: RequestCode,
) -> Result<T, String> {
    decode(call(client, master, code).await, master, code)
}

async fn call(
    client: &Client,
    master: &str,
    code: RequestCode,
) -> Result<ResponseFrame, CallError> {
    client.call(master, Request::new(code), TIMEOUT).await.and_then(ResponseFrame::into_ok)
}

fn decode<T: DeserializeOwned>(
    answer: Result<ResponseFrame, CallError>,
    master: &str,
    code: RequestCode,
) -> Result<T, String> {
    let answer = answer.map_err(|error| error.to_string())?;
    fastjson::from_slice(&answer.body)
        .map_err(|error| format!("the answer of {master} to {code:?}: {error}"))
}
