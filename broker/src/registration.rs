//! Registration at the name servers (BrokerOuterAPI): what makes clients find this broker.
//!
//! Each name server has a task of its own, so that a dead one delays nobody. A task registers at
//! start, every `registerNameServerPeriod`, at once when topics changed, when the connection to
//! its name server broke (it may have forgotten everything), and soon again after a failure.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rocketmq_protocol::body::route::TopicRouteData;
use rocketmq_protocol::body::{RegisterBrokerBody, TopicConfigSerializeWrapper};
use rocketmq_protocol::code::RequestCode;
use rocketmq_protocol::header::route::GetRouteinfoByTopicRequest;
use rocketmq_remoting::call::{CallError, Request};
use rocketmq_remoting::client::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::change_signal::ChangeSignal;
use crate::metadata::perm;
use crate::role::Standing;
use crate::state::BrokerState;

/// First and last pause after a failed registration.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_LAST: Duration = Duration::from_secs(10);

/// Time between registrations of a slave that has no master.
const MASTER_LOOK: Duration = Duration::from_secs(3);

/// How often a task looks whether its connection is still there.
const CONNECTION_CHECK: Duration = Duration::from_secs(1);

/// How long a name server may take to say where a topic is.
const ROUTE_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a stopping broker waits for a name server to take note.
const UNREGISTER_TIMEOUT: Duration = Duration::from_secs(3);

/// The registrations of this broker.
pub struct Registration {
    client: Client,
    changes: Arc<ChangeSignal>,
    name_servers: watch::Sender<Vec<String>>,
    /// Name servers that answered the last registration with success.
    registered: Mutex<HashMap<String, Registered>>,
    registered_changed: Condvar,
}

/// A successful registration.
#[derive(Clone, Copy, Debug)]
struct Registered {
    /// [`ChangeSignal::generation`] whose topics it told.
    generation: u64,
}

impl Registration {
    /// Prepares registration; [`Self::run`] does it. `changes` is the signal that the topic table
    /// raises.
    pub fn new(client: Client, changes: Arc<ChangeSignal>, name_servers: Vec<String>) -> Self {
        Self {
            client,
            changes,
            name_servers: watch::Sender::new(name_servers),
            registered: Mutex::default(),
            registered_changed: Condvar::new(),
        }
    }

    /// Registers at once everywhere under what the broker is known as now.
    pub fn identity_changed(&self) {
        self.changes.changed();
    }

    /// Replaces the name servers; registrations at those that went are left to expire.
    pub fn set_name_servers(&self, name_servers: Vec<String>) {
        self.name_servers.send_if_modified(|current| {
            let differs = *current != name_servers;
            *current = name_servers;
            differs
        });
    }

    /// Whether there is any name server to register at.
    pub fn has_name_servers(&self) -> bool {
        !self.name_servers.borrow().is_empty()
    }

    /// Name servers that know this broker, sorted.
    pub fn registered_at(&self) -> Vec<String> {
        let mut names: Vec<String> = self.registered.lock().keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// Blocks until every name server that knows this broker also knows the changes made before
    /// this call, or the time is over. Says whether they do. For administrators, whose next step
    /// is often to ask for the route of the topic they just made.
    pub fn wait_until_known(&self, timeout: Duration) -> bool {
        let generation = self.changes.generation();
        let deadline = Instant::now() + timeout;
        let mut registered = self.registered.lock();
        while registered.values().any(|at| at.generation < generation) {
            if self.registered_changed.wait_until(&mut registered, deadline).timed_out() {
                return false;
            }
        }
        true
    }

    /// Where a topic is, by the first name server that answers.
    ///
    /// # Errors
    /// What the last name server said, or that there is none.
    pub async fn topic_route(&self, topic: &str) -> Result<TopicRouteData, CallError> {
        let name_servers = self.name_servers.borrow().clone();
        let mut failed = CallError::Connect {
            addr: "a name server".into(),
            reason: "none is configured (namesrvAddr)".to_owned(),
        };
        for addr in name_servers {
            let header = GetRouteinfoByTopicRequest { topic: topic.into(), ..Default::default() };
            let request = Request::new(RequestCode::GET_ROUTEINFO_BY_TOPIC).with_header(&header);
            match self.client.call(&addr, request, ROUTE_TIMEOUT).await {
                // A refusal is an answer, too: the others would say the same.
                Ok(answer) => return answer.into_ok()?.json(),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Keeps the broker registered until `stop`, then unregisters it everywhere.
    pub async fn run(self: Arc<Self>, state: Arc<BrokerState>, stop: CancellationToken) {
        let mut name_servers = self.name_servers.subscribe();
        let mut tasks = JoinSet::new();
        let mut running: HashMap<String, CancellationToken> = HashMap::new();
        while !stop.is_cancelled() {
            let wanted = name_servers.borrow_and_update().clone();
            running.retain(|addr, token| {
                let keep = wanted.contains(addr);
                if !keep {
                    info!(name_server = addr, "name server no longer configured");
                    token.cancel();
                }
                keep
            });
            for addr in wanted {
                if running.contains_key(&addr) {
                    continue;
                }
                let token = stop.child_token();
                running.insert(addr.clone(), token.clone());
                tasks.spawn(self.clone().serve(addr, state.clone(), token));
            }
            // The sender lives in self, so `changed` fails never.
            tokio::select! {
                _ = name_servers.changed() => {}
                () = stop.cancelled() => {}
            }
        }
        while tasks.join_next().await.is_some() {}
        let mut leaving = JoinSet::new();
        for addr in running.into_keys() {
            leaving.spawn(self.clone().unregister(addr, state.clone()));
        }
        while leaving.join_next().await.is_some() {}
    }

    /// Keeps the broker registered at one name server.
    async fn serve(
        self: Arc<Self>,
        addr: String,
        state: Arc<BrokerState>,
        stop: CancellationToken,
    ) {
        let mut changes = self.changes.subscribe();
        let mut retry = RETRY_FIRST;
        let mut was_registered = false;
        // As what the name server knows this broker, for as long as that is so.
        let mut known: Option<Arc<Standing>> = None;
        while !stop.is_cancelled() {
            let generation = *changes.borrow_and_update();
            let standing = state.role.standing();
            let result = tokio::select! {
                result = self.register(&addr, &state, &standing) => result,
                () = stop.cancelled() => break,
            };
            if result.is_ok() {
                let before = known.replace(Arc::clone(&standing));
                self.leave_behind(&addr, &state, before.as_deref(), &standing).await;
            }
            let pause = match result {
                Ok(()) => {
                    if !was_registered {
                        info!(name_server = addr, "registered");
                    }
                    was_registered = true;
                    retry = RETRY_FIRST;
                    self.registered.lock().insert(addr.clone(), Registered { generation });
                    register_period(&state)
                }
                Err(error) => {
                    if was_registered || retry == RETRY_FIRST {
                        warn!(name_server = addr, %error, "registration failed");
                    } else {
                        debug!(name_server = addr, %error, "registration failed");
                    }
                    was_registered = false;
                    self.registered.lock().remove(&addr);
                    let pause = retry;
                    retry = (retry * 2).min(RETRY_LAST);
                    pause
                }
            };
            self.registered_changed.notify_all();
            tokio::select! {
                _ = changes.changed() => {}
                () = self.connection_lost(&addr), if was_registered => {
                    debug!(name_server = addr, "connection lost, registering again");
                }
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled() => {}
            }
        }
        self.registered.lock().remove(&addr);
        self.registered_changed.notify_all();
    }

    /// Takes a slave's registration out that the broker left behind by becoming master. That of a master
    /// stays until the next master's takes its place: both may have the same address, and taking it out
    /// late would take out the new one.
    async fn leave_behind(
        &self,
        addr: &str,
        state: &BrokerState,
        before: Option<&Standing>,
        now: &Standing,
    ) {
        let Some(before) = before.filter(|before| before.broker_id != 0) else { return };
        if before.addresses.broker == now.addresses.broker {
            // The name server knows each address once.
            return;
        }
        let request = identified(Request::new(RequestCode::UNREGISTER_BROKER), state, before);
        let answer = self.client.call(addr, request, UNREGISTER_TIMEOUT).await;
        if let Err(error) = answer.and_then(|answer| answer.into_ok().map(drop)) {
            // It expires there by itself.
            debug!(name_server = addr, %error, "earlier registration not taken out");
        }
    }

    async fn connection_lost(&self, addr: &str) {
        while self.client.connected_addrs().iter().any(|connected| &**connected == addr) {
            tokio::time::sleep(CONNECTION_CHECK).await;
        }
    }

    async fn register(
        &self,
        addr: &str,
        state: &BrokerState,
        standing: &Standing,
    ) -> Result<(), CallError> {
        let config = state.config.load();
        let (mut data_version, topics) = state.topics.versioned_snapshot();
        // Name servers let no master of an older epoch take the place of a newer one.
        data_version.state_version = data_version.state_version.max(standing.epoch);
        const RW: i32 = perm::READ | perm::WRITE;
        let is_restricted = config.broker_permission & RW != RW;
        let topic_config_table = topics
            .values()
            .map(|topic| {
                let mut topic = (**topic).clone();
                // What the broker does not allow, the route must not promise. A broker that allows
                // both leaves other bits alone: TBW102 shows that it is inherited from.
                if is_restricted {
                    topic.perm &= config.broker_permission;
                }
                (topic.topic_name.clone(), topic)
            })
            .collect();
        let body = RegisterBrokerBody {
            topic_config_serialize_wrapper: TopicConfigSerializeWrapper {
                data_version,
                topic_config_table,
                ..TopicConfigSerializeWrapper::default()
            },
            ..RegisterBrokerBody::default()
        };
        let body = body.encode(false);
        let request = identified(Request::new(RequestCode::REGISTER_BROKER), state, standing)
            .with_field("haServerAddr", &standing.addresses.ha)
            .with_field("compressed", false)
            // As in Java the sign bit is cut off, since the field is a signed number.
            .with_field("bodyCrc32", crc32fast::hash(&body) & 0x7FFF_FFFF)
            .with_body(body);
        let timeout_ms = u64::try_from(config.register_broker_timeout_mills).unwrap_or(24_000);
        let is_slave = standing.broker_id != 0;
        let fixed_ha = config.ha_master_address.clone();
        drop(config);
        let timeout = Duration::from_millis(timeout_ms);
        let answer = self.client.call(addr, request, timeout).await?.into_ok()?;
        // Where the master is appointed, the group's record says where it is.
        if is_slave && state.group.is_none() {
            let field = |name: &str| {
                let found = answer.ext.iter().find(|(key, _)| key == name);
                found.map_or("", |(_, value)| value.as_str())
            };
            let ha = if fixed_ha.is_empty() { field("haServerAddr") } else { fixed_ha.as_str() };
            state.replication.master_found(field("masterAddr"), ha);
        }
        Ok(())
    }

    async fn unregister(self: Arc<Self>, addr: String, state: Arc<BrokerState>) {
        let standing = state.role.standing();
        let request = identified(Request::new(RequestCode::UNREGISTER_BROKER), &state, &standing);
        let answer = self.client.call(&addr, request, UNREGISTER_TIMEOUT).await;
        match answer.and_then(|answer| answer.into_ok().map(drop)) {
            Ok(()) => info!(name_server = addr, "unregistered"),
            Err(error) => warn!(name_server = addr, %error, "cannot unregister"),
        }
    }
}

/// Adds the fields that say who this broker is.
fn identified(request: Request, state: &BrokerState, standing: &Standing) -> Request {
    let config = state.config.load();
    request
        .with_field("brokerName", &config.broker_name)
        .with_field("brokerAddr", &standing.addresses.broker)
        .with_field("clusterName", &config.broker_cluster_name)
        .with_field("brokerId", standing.broker_id)
}

/// The period between registrations; Java clamps it to 10 to 60 seconds. A slave that does not know
/// its master asks more often: the answer names it.
fn register_period(state: &BrokerState) -> Duration {
    let config = state.config.load();
    if state.role.is_slave() && !state.replication.is_following() {
        return MASTER_LOOK;
    }
    let period_ms = config.register_name_server_period.clamp(10_000, 60_000);
    Duration::from_millis(u64::try_from(period_ms).unwrap_or(30_000))
}
