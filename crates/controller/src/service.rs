//! The controllers' port: RocketMQ's requests of brokers and tools, and Raft's messages.

use std::sync::Arc;

use rocketmq_protocol::body::controller::SyncStateSet;
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::fastjson;
use rocketmq_protocol::frame::{Frame, Ticket};
use rocketmq_protocol::header::Header;
use rocketmq_protocol::header::controller::{
    AlterSyncStateSetRequest, ApplyBrokerIdRequest, CleanBrokerDataRequest, ElectMasterRequest,
    GetMetaDataResponse, GetNextBrokerIdRequest, GetNextBrokerIdResponse, GetReplicaInfoRequest,
    RegisterBrokerToControllerRequest,
};
use rocketmq_protocol::header::registration::BrokerHeartbeatRequest;
use rocketmq_protocol::response::Response;
use rocketmq_remoting::connection::Connection;
use rocketmq_remoting::output::Output;
use rocketmq_remoting::service::Service;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::answer;
use crate::groups::{Command, TEXT_BYTES_MAX};
use crate::leader::Core;
use crate::liveness::{Beat, Identity};
use crate::network::{self, PeerHeader, RAFT_APPEND, RAFT_SNAPSHOT, RAFT_VOTE};
use crate::peers::Peers;

/// Requests that may wait for the group at one time; more are answered SYSTEM_BUSY.
const WAITING_MAX: usize = 4096;
/// Broker groups that one question may name.
const NAMES_MAX: usize = 10_000;

/// See the module's text.
pub(crate) struct Requests {
    core: Arc<Core>,
    group: Arc<str>,
    peers: Arc<Peers>,
    runtime: Handle,
    room: Arc<Semaphore>,
}

/// What is to be done with a request.
enum Work {
    /// It is answered.
    Done(Response),
    /// The group is to agree on it. With it the cluster and the group it is about.
    Write(Command, String, String),
    /// The group is to be asked.
    Read(Question),
    /// The configuration is to be changed.
    Configure(Vec<u8>),
    /// Another controller speaks.
    Peer(RequestCode, Vec<u8>),
}

enum Question {
    ReplicaInfo(String),
    SyncStateData(Vec<String>),
    NextBrokerId { cluster: String, broker_name: String },
}

impl Requests {
    pub(crate) fn new(
        core: Arc<Core>,
        group: Arc<str>,
        peers: Arc<Peers>,
        runtime: Handle,
    ) -> Self {
        Self { core, group, peers, runtime, room: Arc::new(Semaphore::new(WAITING_MAX)) }
    }

    /// `None`: an unknown code.
    fn look(&self, conn: &Connection, request: &Frame<'_>) -> Result<Option<Work>, Response> {
        Ok(Some(match request.request_code() {
            RequestCode::BROKER_HEARTBEAT => Work::Done(self.heartbeat(conn, &header(request)?)),
            RequestCode::CONTROLLER_ALTER_SYNC_STATE_SET => {
                let head: AlterSyncStateSetRequest<'_> = header(request)?;
                let wanted: SyncStateSet = body(request)?;
                let name = head.broker_name.into_owned();
                let command = Command::AlterSyncStateSet {
                    alive: self.core.alive(&name),
                    broker_name: name.clone(),
                    master: head.master_broker_id,
                    master_epoch: head.master_epoch,
                    set: wanted.sync_state_set,
                    set_epoch: wanted.sync_state_set_epoch,
                };
                Work::Write(command, String::new(), name)
            }
            RequestCode::CONTROLLER_ELECT_MASTER => {
                let head: ElectMasterRequest<'_> = header(request)?;
                let name = head.broker_name.into_owned();
                let command = Command::ElectMaster {
                    alive: self.core.alive(&name),
                    unclean: self.core.settings.tunables().unclean_elections,
                    broker_name: name.clone(),
                    broker_id: (head.broker_id != -1).then_some(head.broker_id),
                    designate: head.designate_elect,
                };
                Work::Write(command, head.cluster_name.into_owned(), name)
            }
            RequestCode::CONTROLLER_REGISTER_BROKER => {
                let head: RegisterBrokerToControllerRequest<'_> = header(request)?;
                let name = head.broker_name.into_owned();
                let command = Command::RegisterBroker {
                    alive: self.core.alive(&name),
                    broker_name: name.clone(),
                    broker_id: head.broker_id,
                    address: head.broker_address.into_owned(),
                };
                Work::Write(command, head.cluster_name.into_owned(), name)
            }
            RequestCode::CONTROLLER_APPLY_BROKER_ID => {
                let head: ApplyBrokerIdRequest<'_> = header(request)?;
                let cluster = head.cluster_name.into_owned();
                let name = head.broker_name.into_owned();
                let command = Command::ApplyBrokerId {
                    cluster: cluster.clone(),
                    broker_name: name.clone(),
                    broker_id: head.applied_broker_id,
                    register_check_code: head.register_check_code.into_owned(),
                };
                Work::Write(command, cluster, name)
            }
            RequestCode::CLEAN_BROKER_DATA => {
                let head: CleanBrokerDataRequest<'_> = header(request)?;
                let name = head.broker_name.into_owned();
                let command = Command::CleanBrokerData {
                    alive: self.core.alive(&name),
                    broker_name: name.clone(),
                    ids: head.broker_controller_ids_to_clean.unwrap_or_default().into_owned(),
                    living_too: head.is_clean_living_broker,
                };
                Work::Write(command, head.cluster_name.unwrap_or_default().into_owned(), name)
            }
            RequestCode::CONTROLLER_GET_REPLICA_INFO => {
                let head: GetReplicaInfoRequest<'_> = header(request)?;
                Work::Read(Question::ReplicaInfo(head.broker_name.into_owned()))
            }
            RequestCode::CONTROLLER_GET_SYNC_STATE_DATA => {
                let mut names: Vec<String> = body(request)?;
                names.truncate(NAMES_MAX);
                Work::Read(Question::SyncStateData(names))
            }
            RequestCode::CONTROLLER_GET_NEXT_BROKER_ID => {
                let head: GetNextBrokerIdRequest<'_> = header(request)?;
                Work::Read(Question::NextBrokerId {
                    cluster: head.cluster_name.into_owned(),
                    broker_name: head.broker_name.into_owned(),
                })
            }
            RequestCode::CONTROLLER_GET_METADATA_INFO => Work::Done(self.metadata()),
            RequestCode::GET_CONTROLLER_CONFIG => {
                Work::Done(Response::ok().with_body(self.core.settings.text()))
            }
            RequestCode::UPDATE_CONTROLLER_CONFIG => Work::Configure(request.body.to_vec()),
            code @ (RAFT_APPEND | RAFT_VOTE | RAFT_SNAPSHOT) => {
                let head: PeerHeader<'_> = header(request)?;
                let meant = u64::try_from(head.to).ok() == Some(self.core.own_id);
                if head.group != *self.group || !meant {
                    let remark = format!(
                        "this is controller n{} of group {}, not n{} of {}; check \
                         controllerDLegerPeers",
                        self.core.own_id, self.group, head.to, head.group
                    );
                    let code = ResponseCode::CONTROLLER_INVALID_REQUEST;
                    return Err(Response::error(code, remark));
                }
                Work::Peer(code, request.body.to_vec())
            }
            _ => return Ok(None),
        }))
    }

    fn heartbeat(&self, conn: &Connection, head: &BrokerHeartbeatRequest<'_>) -> Response {
        let Some(broker_id) = head.broker_id else {
            let code = ResponseCode::CONTROLLER_INVALID_REQUEST;
            return Response::error(code, "Heart beat with empty brokerId");
        };
        for name in [&head.cluster_name, &head.broker_name] {
            if name.len() > TEXT_BYTES_MAX {
                let remark =
                    format!("a name has {} bytes, {TEXT_BYTES_MAX} are allowed", name.len());
                return Response::error(ResponseCode::CONTROLLER_INVALID_REQUEST, remark);
            }
        }
        let who = Identity {
            cluster: head.cluster_name.to_string(),
            broker_name: head.broker_name.to_string(),
            broker_id,
        };
        let beat = Beat {
            timeout_ms: head.heartbeat_timeout_mills,
            epoch: head.epoch,
            max_offset: head.max_offset,
            priority: head.election_priority,
        };
        if !self.core.liveness.lock().beat(who, beat, conn.id(), self.core.now_ms()) {
            let remark = "[OVERLOAD]too many brokers send heart-beats to this controller";
            return Response::error(ResponseCode::SYSTEM_BUSY, remark);
        }
        Response { remark: Some("Heart beat success".to_owned()), ..Response::ok() }
    }

    fn metadata(&self) -> Response {
        let leader = self.core.leader();
        let address = leader.and_then(|id| self.peers.address(id));
        Response::ok().with_header(&GetMetaDataResponse {
            group: Some((*self.group).into()),
            controller_leader_id: leader.map(|id| format!("n{id}").into()),
            controller_leader_address: address.map(Into::into),
            is_leader: Some(leader == Some(self.core.own_id)),
            peers: Some(self.peers.metadata_text().into()),
        })
    }

    fn wait(&self, conn: &Arc<Connection>, ticket: Ticket, held: usize, work: Work) {
        let (core, conn) = (Arc::clone(&self.core), Arc::clone(conn));
        let permit = match &work {
            // Messages of the group are never turned away for requests' sake.
            Work::Peer(..) => None,
            _ => match Arc::clone(&self.room).try_acquire_owned() {
                Ok(permit) => Some(permit),
                Err(_) => {
                    let busy = "[OVERLOAD]system busy: too many requests wait for the controllers";
                    conn.reply(ticket, &Response::error(ResponseCode::SYSTEM_BUSY, busy));
                    return;
                }
            },
        };
        let in_flight = conn.hold(held);
        let run = async move {
            let response = carry_out(&core, work).await;
            conn.reply(ticket, &response);
            drop((in_flight, permit));
        };
        self.core.tasks.spawn_on(run, &self.runtime);
    }
}

async fn carry_out(core: &Arc<Core>, work: Work) -> Response {
    match work {
        Work::Done(response) => response,
        Work::Write(command, cluster, broker_name) => match core.write(command).await {
            Ok(applied) => answer::of_command(&cluster, &broker_name, &applied),
            Err(refusal) => answer::refused(&refusal),
        },
        Work::Read(question) => ask(core, question).await,
        Work::Configure(text) => {
            let settings = Arc::clone(&core.settings);
            match tokio::task::spawn_blocking(move || settings.update(&text)).await {
                Ok(Ok(())) => Response::ok(),
                Ok(Err(refused)) => Response::error(refused.code, refused.remark),
                Err(error) => Response::error(ResponseCode::SYSTEM_ERROR, error.to_string()),
            }
        }
        Work::Peer(code, body) => network::receive(&core.raft, code, &body).await,
    }
}

async fn ask(core: &Arc<Core>, question: Question) -> Response {
    let asked = match question {
        Question::ReplicaInfo(name) => {
            core.read(|groups| match groups.mastership(&name) {
                Ok(now) => answer::replica_info(&now),
                Err(refusal) => answer::refused(&refusal),
            })
            .await
        }
        Question::SyncStateData(names) => {
            core.read(|groups| {
                let known = names.iter().filter_map(|name| Some((name, groups.get(name)?)));
                let known =
                    known.map(|(name, group)| (name.as_str(), group, core.alive_of(name, group)));
                answer::sync_state_data(known)
            })
            .await
        }
        Question::NextBrokerId { cluster, broker_name } => {
            core.read(|groups| {
                Response::ok().with_header(&GetNextBrokerIdResponse {
                    next_broker_id: Some(groups.next_broker_id(&broker_name)),
                    cluster_name: Some(cluster.into()),
                    broker_name: Some(broker_name.clone().into()),
                })
            })
            .await
        }
    };
    asked.unwrap_or_else(|refusal| answer::refused(&refusal))
}

impl Service for Requests {
    fn closed(&self, conn: &Arc<Connection>) {
        let lost = self.core.liveness.lock().connection_closed(conn.id());
        if lost.is_empty() {
            return;
        }
        for broker in lost {
            tracing::warn!(
                broker_name = broker.broker_name,
                broker_id = broker.broker_id,
                "connection to the broker ended"
            );
        }
        self.core.lost.notify_one();
    }

    fn serve(&self, conn: &Arc<Connection>, requests: &[Frame<'_>], out: &mut Output) {
        for request in requests {
            let ticket = request.ticket();
            match self.look(conn, request) {
                Ok(None) => out.reply_unsupported(ticket),
                Ok(Some(Work::Done(response))) | Err(response) => out.reply(ticket, &response),
                Ok(Some(work)) => self.wait(conn, ticket, request.body.len(), work),
            }
        }
    }
}

fn header<'a, H: Header<'a>>(request: &Frame<'a>) -> Result<H, Response> {
    request.header::<H>().map_err(|error| {
        let remark = format!("{} header not understood: {error}", request.request_code());
        Response::error(ResponseCode::SYSTEM_ERROR, remark)
    })
}

fn body<T: serde::de::DeserializeOwned>(request: &Frame<'_>) -> Result<T, Response> {
    fastjson::from_slice(request.body).map_err(|error| {
        let remark = format!("{} body not understood: {error}", request.request_code());
        Response::error(ResponseCode::SYSTEM_ERROR, remark)
    })
}
