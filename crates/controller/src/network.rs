//! Raft's messages between controllers: requests of our own, on the controllers' port beside RocketMQ's.
//!
//! Fields: `group` (controllerDLegerGroup), `from` and `to` (ids of controllers, `n0`). A controller
//! refuses what is not meant for it, so that an address that was given to another machine does no harm.
//! The body is the message as JSON, the answer's body is Raft's answer or its refusal.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use openraft::BasicNode;
use openraft::error::{Fatal, Unreachable};
use openraft::error::{InstallSnapshotError, NetworkError, RPCError, RaftError, RemoteError};
use openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use parking_lot::Mutex;
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::header;
use rocketmq_protocol::response::Response;
use rocketmq_remoting::call::Request;
use rocketmq_remoting::client::Client;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::peers::Peers;
use crate::raft::{Raft, Types};

/// Entries of the log, or a sign of the leader's life. RocketMQ has no codes between 3010 and 200050.
pub(crate) const RAFT_APPEND: RequestCode = RequestCode(30_101);
/// A candidate asks for a vote.
pub(crate) const RAFT_VOTE: RequestCode = RequestCode(30_102);
/// A part of the whole state.
pub(crate) const RAFT_SNAPSHOT: RequestCode = RequestCode(30_103);

header! {
    /// Who speaks to whom.
    pub(crate) struct PeerHeader<'a> {
        /// The group of controllers.
        group: Cow<'a, str> = "group", required;
        /// The sender.
        from: i64 = "from", required;
        /// The receiver.
        to: i64 = "to", required;
    }
}

/// Makes the way to each other controller.
#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) client: Client,
    pub(crate) group: Arc<str>,
    pub(crate) own_id: u64,
    pub(crate) peers: Arc<Peers>,
    /// Those that did not answer last time, so that it is logged once.
    pub(crate) silent: Arc<Mutex<BTreeSet<u64>>>,
}

/// The way to one controller.
pub(crate) struct Peer {
    network: Network,
    id: u64,
    address: String,
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, node: &BasicNode) -> Peer {
        // The configured address counts: a controller may move without the log knowing.
        let address = self.peers.address(target).unwrap_or(&node.addr).to_owned();
        Peer { network: self.clone(), id: target, address }
    }
}

type Failure<E> = RPCError<u64, BasicNode, RaftError<u64, E>>;

impl Peer {
    async fn call<E, A>(
        &self,
        code: RequestCode,
        message: &impl Serialize,
        timeout: Duration,
    ) -> Result<A, Failure<E>>
    where
        E: std::error::Error + DeserializeOwned,
        A: DeserializeOwned,
    {
        let number = |id: u64| i64::try_from(id).unwrap_or(-1);
        let header = PeerHeader {
            group: Cow::Borrowed(&*self.network.group),
            from: number(self.network.own_id),
            to: number(self.id),
        };
        let body =
            serde_json::to_vec(message).map_err(|e| RPCError::Network(NetworkError::new(&e)))?;
        let request = Request::new(code).with_header(&header).with_body(body);
        let answer = self.network.client.call(&self.address, request, timeout).await;
        let answer = answer.and_then(|answer| answer.into_ok()).map_err(|error| {
            if self.network.silent.lock().insert(self.id) {
                tracing::warn!(%error, "another controller does not answer");
            }
            if error.outcome_unknown() {
                RPCError::Network(NetworkError::new(&error))
            } else {
                RPCError::Unreachable(Unreachable::new(&error))
            }
        })?;
        if self.network.silent.lock().remove(&self.id) {
            tracing::info!(addr = self.address, "the other controller answers again");
        }
        let result: Result<A, RaftError<u64, E>> = serde_json::from_slice(&answer.body)
            .map_err(|error| RPCError::Network(NetworkError::new(&error)))?;
        result.map_err(|error| RPCError::RemoteError(RemoteError::new(self.id, error)))
    }
}

impl RaftNetwork<Types> for Peer {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, Failure<openraft::error::Infallible>> {
        self.call(RAFT_APPEND, &rpc, option.hard_ttl()).await
    }

    async fn install_snapshot(
        &mut self,
        rpc: InstallSnapshotRequest<Types>,
        option: RPCOption,
    ) -> Result<InstallSnapshotResponse<u64>, Failure<InstallSnapshotError>> {
        self.call(RAFT_SNAPSHOT, &rpc, option.hard_ttl()).await
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<u64>,
        option: RPCOption,
    ) -> Result<VoteResponse<u64>, Failure<openraft::error::Infallible>> {
        self.call(RAFT_VOTE, &rpc, option.hard_ttl()).await
    }
}

/// Answers a message of another controller.
pub(crate) async fn receive(raft: &Raft, code: RequestCode, body: &[u8]) -> Response {
    match code {
        RAFT_APPEND => match parse(code, body) {
            Ok(message) => said(raft.append_entries(message).await),
            Err(refusal) => refusal,
        },
        RAFT_VOTE => match parse(code, body) {
            Ok(message) => said(raft.vote(message).await),
            Err(refusal) => refusal,
        },
        _ => match parse(code, body) {
            Ok(message) => said(raft.install_snapshot(message).await),
            Err(refusal) => refusal,
        },
    }
}

fn parse<T: DeserializeOwned>(code: RequestCode, body: &[u8]) -> Result<T, Response> {
    serde_json::from_slice(body).map_err(|error| {
        let remark = format!("message {} between controllers not understood: {error}", code.0);
        Response::error(ResponseCode::CONTROLLER_INVALID_REQUEST, remark)
    })
}

fn said<A: Serialize, E: Serialize>(result: Result<A, RaftError<u64, E>>) -> Response {
    if let Err(RaftError::Fatal(Fatal::Stopped)) = &result {
        return Response::error(ResponseCode::SYSTEM_ERROR, "this controller is stopping");
    }
    match serde_json::to_vec(&result) {
        Ok(body) => Response::ok().with_body(body),
        Err(error) => Response::error(ResponseCode::SYSTEM_ERROR, error.to_string()),
    }
}
