//! What a controller does with the group's agreement: asks it, changes it, and, as the leader, looks for
//! masters that are gone and tells brokers of new ones.

use std::sync::Arc;
use std::time::{Duration, Instant};

use openraft::error::{CheckIsLeaderError, ClientWriteError, RaftError};
use parking_lot::Mutex;
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::header::controller::NotifyBrokerRoleChangedRequest;
use rocketmq_remoting::call::Request;
use rocketmq_remoting::client::Client;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::answer;
use crate::election::{Alive, Standing};
use crate::groups::{Applied, Command, Group, Groups, Mastership, Refusal};
use crate::liveness::Liveness;
use crate::raft::Raft;
use crate::settings::Settings;
use crate::state_store::StateStore;

/// How long a request may wait for a majority (`WAIT_TIMEOUT_OUT`).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long one attempt at an election may.
const ELECTION_TIMEOUT: Duration = Duration::from_secs(3);
/// How long connecting to a broker and telling it may take.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(3);
/// Time between two looks of one that leads by its own word alone.
const UNCONFIRMED_INTERVAL: Duration = Duration::from_millis(100);

/// Everything that requests and the leader's work share.
pub(crate) struct Core {
    pub(crate) raft: Raft,
    pub(crate) own_id: u64,
    pub(crate) state: StateStore,
    pub(crate) liveness: Mutex<Liveness>,
    pub(crate) settings: Arc<dyn Settings>,
    pub(crate) client: Client,
    pub(crate) tasks: TaskTracker,
    /// A leader that heard of no majority for so long may have a successor, and does not serve.
    pub(crate) quorum_silence_max: Duration,
    /// A broker's connection ended.
    pub(crate) lost: Notify,
    pub(crate) started: Instant,
    /// For how long after the start nobody is taken for dead who was not heard yet.
    pub(crate) listen_first: Duration,
}

impl Core {
    /// Milliseconds since the start: a clock that never jumps.
    pub(crate) fn now_ms(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    /// The leader, as far as this controller knows.
    pub(crate) fn leader(&self) -> Option<u64> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        metrics.running_state.as_ref().ok()?;
        let leader = metrics.current_leader?;
        if leader == self.own_id && metrics.membership_config.voter_ids().count() > 1 {
            let silence = metrics.millis_since_quorum_ack.map(Duration::from_millis);
            return (silence? <= self.quorum_silence_max).then_some(leader);
        }
        Some(leader)
    }

    /// Whether this controller is it.
    pub(crate) fn is_leader(&self) -> bool {
        self.leader() == Some(self.own_id)
    }

    /// Lets the group agree on a command and does what follows from it.
    pub(crate) async fn write(&self, command: Command) -> Result<Applied, Refusal> {
        self.write_within(command, REQUEST_TIMEOUT).await
    }

    async fn write_within(&self, command: Command, limit: Duration) -> Result<Applied, Refusal> {
        if !self.is_leader() {
            return Err(not_leader());
        }
        command.check()?;
        let written = tokio::time::timeout(limit, self.raft.client_write(command)).await;
        let applied = match written {
            Ok(Ok(written)) => written.data,
            Ok(Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_)))) => {
                return Err(not_leader());
            }
            Ok(Err(error)) => return Err(failed(&error)),
            Err(_) => {
                let code = ResponseCode::SYSTEM_ERROR;
                let text = format!(
                    "no majority of the controllers answered within {} ms; whether it was done is \
                     not known, ask again",
                    limit.as_millis()
                );
                return Err(Refusal::new(code, text));
            }
        };
        if let Applied::Elected { now, members } = &applied {
            tracing::info!(
                broker_name = now.broker_name,
                master = now.master,
                epoch = now.master_epoch,
                "master elected"
            );
            self.notify(now, members.iter().map(|(id, address)| (*id, address.as_str())));
        }
        Ok(applied)
    }

    /// Looks at the groups once it is certain that this controller leads and has all that was agreed.
    pub(crate) async fn read<T>(&self, look: impl FnOnce(&Groups) -> T) -> Result<T, Refusal> {
        let sure = tokio::time::timeout(REQUEST_TIMEOUT, self.raft.ensure_linearizable()).await;
        match sure {
            Ok(Ok(_)) => Ok(self.state.read(look)),
            Ok(Err(RaftError::APIError(
                CheckIsLeaderError::ForwardToLeader(_) | CheckIsLeaderError::QuorumNotEnough(_),
            )))
            | Err(_) => Err(not_leader()),
            Ok(Err(error)) => Err(failed(&error)),
        }
    }

    /// Who of a group lives.
    pub(crate) fn alive(&self, broker_name: &str) -> Alive {
        self.state.read(|groups| {
            groups.get(broker_name).map_or_else(Alive::new, |g| self.alive_of(broker_name, g))
        })
    }

    pub(crate) fn alive_of(&self, broker_name: &str, group: &Group) -> Alive {
        let (now_ms, ids) = (self.now_ms(), group.replicas.keys().copied());
        let mut alive = self.liveness.lock().alive(&group.cluster, broker_name, ids, now_ms);
        if let Some(master) = group.master
            && self.started.elapsed() < self.listen_first
        {
            // It cannot have been heard yet, and is not to lose its place for that.
            let unknown = Standing { epoch: -1, max_offset: -1, priority: i32::MAX };
            alive.entry(master).or_insert(unknown);
        }
        alive
    }

    /// Tells the live replicas of a group who is master now, without waiting.
    fn notify<'a>(&self, now: &Mastership, members: impl Iterator<Item = (i64, &'a str)>) {
        if !self.settings.tunables().notify_brokers {
            return;
        }
        let alive = self.alive(&now.broker_name);
        let request = Request::new(RequestCode::NOTIFY_BROKER_ROLE_CHANGED)
            .with_header(&NotifyBrokerRoleChangedRequest {
                master_address: now.master_address.as_deref().map(Into::into),
                master_epoch: Some(now.master_epoch),
                sync_state_set_epoch: Some(now.sync_state_set_epoch),
                master_broker_id: now.master,
            })
            .with_json(&answer::sync_state_set(now));
        for (_, address) in members.filter(|(id, _)| alive.contains_key(id)) {
            let (client, address) = (self.client.clone(), address.to_owned());
            let request = request.clone();
            self.tasks.spawn(async move {
                let told = client.oneway(&address, request);
                match tokio::time::timeout(NOTICE_TIMEOUT, told).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::warn!(%error, "broker not told of its new master"),
                    Err(_) => tracing::warn!(address, "broker not told of its new master in time"),
                }
            });
        }
    }

    async fn elect_for_lost_master(&self, broker_name: &str) {
        let tunables = self.settings.tunables();
        for _ in 0..tunables.election_attempts.max(1) {
            let command = Command::ElectMaster {
                broker_name: broker_name.to_owned(),
                broker_id: None,
                designate: false,
                alive: self.alive(broker_name),
                unclean: tunables.unclean_elections,
            };
            let error = match self.write_within(command, ELECTION_TIMEOUT).await {
                Ok(Applied::Refused(refusal)) => {
                    tracing::warn!(broker_name, remark = refusal.remark, "no master elected");
                    return;
                }
                Ok(_) => return,
                Err(error) => error,
            };
            tracing::warn!(broker_name, remark = error.remark, "election not carried out");
            if error.code == ResponseCode::CONTROLLER_NOT_LEADER.0 {
                return;
            }
        }
    }

    /// Groups whose master is gone while at least one replica lives.
    fn without_live_master(&self) -> Vec<String> {
        self.state.read(|groups| {
            let needs = |(name, group): &(&str, &Group)| {
                let alive = self.alive_of(name, group);
                group.master.is_some_and(|id| !alive.contains_key(&id)) && !alive.is_empty()
            };
            groups.iter().filter(needs).map(|(name, _)| name.to_owned()).collect()
        })
    }

    /// A new leader looks as soon as a majority has confirmed it: the master may be gone with the leader
    /// before.
    fn until_next_look(&self) -> Duration {
        let interval = self.settings.tunables().scan_interval;
        let claims = self.raft.metrics().borrow().current_leader == Some(self.own_id);
        if claims && !self.is_leader() { interval.min(UNCONFIRMED_INTERVAL) } else { interval }
    }

    /// Looks for lost brokers, until `stop`. Every controller does, so that each knows who lives when it
    /// becomes the leader; only the leader elects.
    pub(crate) async fn watch(&self, stop: CancellationToken) {
        let mut standing = self.raft.server_metrics();
        let mut leader = None;
        let mut sound = true;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.lost.notified() => {}
                changed = standing.changed(), if sound => sound = changed.is_ok(),
                () = tokio::time::sleep(self.until_next_look()) => {}
            }
            if !sound && leader.take().is_some() {
                tracing::error!("the controller takes no part in its group any more, restart it");
            }
            let now = self.leader();
            if sound && now != leader {
                leader = now;
                match leader {
                    Some(id) => {
                        tracing::info!(leader = %format_args!("n{id}"), "controllers have a leader")
                    }
                    None => tracing::warn!("controllers have no leader"),
                }
            }
            let silent = self.liveness.lock().expire(self.now_ms());
            for broker in silent {
                tracing::warn!(
                    broker_name = broker.broker_name,
                    broker_id = broker.broker_id,
                    "no heart-beat of the broker any more"
                );
            }
            if !self.is_leader() {
                continue;
            }
            for broker_name in self.without_live_master() {
                self.elect_for_lost_master(&broker_name).await;
            }
        }
    }
}

/// RocketMQ's words for it.
pub(crate) fn not_leader() -> Refusal {
    let code = ResponseCode::CONTROLLER_NOT_LEADER;
    Refusal::new(code, "The controller is not in leader state")
}

fn failed(error: &impl std::fmt::Display) -> Refusal {
    tracing::error!(%error, "the controller has stopped taking part in its group");
    Refusal::new(ResponseCode::SYSTEM_ERROR, format!("this controller has failed: {error}"))
}
