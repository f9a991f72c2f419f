//! Start and stop of a broker, in the order that keeps every promise.
//!
//! Start: probes answer first (a long recovery must not look dead), then the store is locked,
//! opened and recovered, then metadata is read, then the ports open, then name servers are told.
//! Stop: nothing new is taken in, what is in flight is answered, name servers are told, metadata
//! and log are written, the checkpoint last.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rocketmq_protocol::frame::Frame;
use rocketmq_protocol::message::id::UniqueKeyMaker;
use rocketmq_protocol::message::properties::{self, name};
use rocketmq_remoting::counters::SocketCollector;
use rocketmq_remoting::monitoring::{self, Monitoring};
use rocketmq_remoting::{Client, ClientConfig, Connection, Output, Server, Service, server};
use rocketmq_store::{Environment, Store};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

use crate::address::{self, Hosts};
use crate::assignment::Assignments;
use crate::change_signal::ChangeSignal;
use crate::client_table::ClientTable;
use crate::clock::now_ms;
use crate::config::{
    BrokerConfig, BrokerRole, CoordinatorKind, LoadedConfig, METRICS_PORT_DEFAULT, MetricsExporter,
};
use crate::confirm_waits::ConfirmWaits;
use crate::coordinator::Coordination;
use crate::delay::DelayProgress;
use crate::error::StartError;
use crate::filter::ExpressionCache;
use crate::flush_waits::FlushWaits;
use crate::handler::{BrokerService, pull};
use crate::health::BrokerHealth;
use crate::housekeeping;
use crate::lock_table::LockTable;
use crate::long_poll::LongPolls;
use crate::metadata::consumer_filter::ConsumerFilters;
use crate::metadata::consumer_offset::ConsumerOffsets;
use crate::metadata::group::GroupTable;
use crate::metadata::topic::TopicTable;
use crate::metrics::{self, BrokerMetrics};
use crate::registration::Registration;
use crate::replication::appointed::driver::Driver;
use crate::replication::appointed::group::Group;
use crate::replication::appointed::member::{self, Membership};
use crate::replication::{self, Replication, ReplicationThread};
use crate::role::held_sends::HeldSends;
use crate::role::services::Services;
use crate::role::{Addresses, Role, RoleCell};
use crate::runtime_info::RuntimeStats;
use crate::state::{BrokerState, ConfigFile, Identity, StateSlot};
use crate::transaction::Transactions;

/// Threads for work that may block; more requests than these wait their turn.
const BLOCKING_THREADS: usize = 16;

/// Most pulls that wait at one time.
const HELD_PULLS_MAX: usize = 100_000;

/// How long tasks may take to end at a stop, after their work was told to end.
const TASKS_END: Duration = Duration::from_secs(10);

/// A running broker. Dropping it stops it as [`Broker::shutdown`] does.
pub struct Broker {
    state: Arc<BrokerState>,
    server: Server,
    addr: SocketAddr,
    metrics_addr: Option<SocketAddr>,
    tasks: TaskTracker,
    /// Ends housekeeping and waiting pulls.
    stop_tasks: CancellationToken,
    /// Ends registration, which unregisters.
    stop_registration: CancellationToken,
    registration_ended: Mutex<Option<mpsc::Receiver<()>>>,
    replication: ReplicationThread,
    /// What carries out the decisions about the group's master, where it is appointed.
    driver: Option<Driver>,
    worker: Worker,
    is_stopped: AtomicBool,
}

impl Broker {
    /// Starts a broker and returns when it serves. Blocks for the store's recovery.
    ///
    /// # Errors
    /// When a setting, the store, a metadata file or a port does not allow it.
    pub fn start(config: impl Into<LoadedConfig>) -> Result<Self, StartError> {
        Self::start_in(config, Environment::default())
    }

    /// As [`Broker::start`], with the store's files and clock by argument.
    ///
    /// # Errors
    /// As [`Broker::start`].
    pub fn start_in(
        config: impl Into<LoadedConfig>,
        environment: Environment,
    ) -> Result<Self, StartError> {
        Self::start_as(config.into(), environment, None)
    }

    /// As [`Broker::start_in`], with a keeper of the group's record in place of the one that
    /// `coordinator` names.
    ///
    /// # Errors
    /// As [`Broker::start`].
    pub fn start_coordinated(
        config: impl Into<LoadedConfig>,
        environment: Environment,
        coordination: Coordination,
    ) -> Result<Self, StartError> {
        Self::start_as(config.into(), environment, Some(coordination))
    }

    fn start_as(
        loaded: LoadedConfig,
        environment: Environment,
        coordination: Option<Coordination>,
    ) -> Result<Self, StartError> {
        let began = Instant::now();
        let mut config = loaded.config.clone();
        config.normalize()?;
        let membership = Membership::of(&config, coordination)?;
        for (key, _) in &loaded.unknown {
            warn!(key, "unknown configuration key");
        }
        let hosts = address::find_hosts(&config)?;
        let worker = Worker::start()?;
        let slot = StateSlot::default();
        let health = BrokerHealth::new(slot.clone());
        let late = Arc::new(LateService::default());
        let sockets = Arc::new(OnceLock::new());
        let metrics_addr = worker.serve_monitoring(&config, &slot, &health, &sockets)?;
        // The store makes bit maps with them, and is locked before their file is read.
        let filters = Arc::new(ConsumerFilters::new(&config.config_dir(), config.bloom_filter()));
        let environment = Environment { filter_bit_map: Some(filters.clone()), ..environment };
        let (store, recovery) = Store::open(config.store_config()?, environment)?;
        match &recovery.cut_reason {
            Some(reason) => warn!(?recovery, reason, "store opened, its log was cut"),
            None => info!(?recovery, "store opened"),
        }
        let is_member = membership.is_some();
        let load = || {
            filters.load(recovery.clean)?;
            let epochs = is_member.then(|| Membership::open(&config, &store)).transpose()?;
            let loaded = Parts::load_and_bind(&config, filters.clone(), &worker, &late)?;
            Ok((loaded, epochs))
        };
        let ((parts, server, ha_listener), epochs) = match load() {
            Ok(prepared) => prepared,
            Err(error) => {
                // Nothing was taken in: the next start need not recover.
                if let Err(error) = store.shutdown() {
                    error!(%error, "store not closed cleanly, the next start recovers it");
                }
                return Err(error);
            }
        };
        // Requests that already arrived wait for the service.
        let _ = sockets.set(SocketCollector(server.counters().clone()));
        let addr = server.local_addrs()[0];
        let ha_port = ha_listener.as_ref().and_then(|listener| listener.local_addr().ok());
        let ha_port = ha_port.map_or_else(|| config.ha_port(addr.port()), |addr| addr.port());
        let places = Places::find(&config, &hosts, membership.as_ref(), (addr, ha_port));
        let group = membership.zip(epochs).map(|(membership, epochs)| {
            membership.group(&config, &places.own, epochs, store.written().0)
        });
        let (group, joining) = group.transpose()?.unzip();
        let group = group.map(Arc::new);
        let state = parts.into_state(config, loaded, places, store, group.clone(), &worker);
        let state = Arc::new(state);
        slot.set(&state);
        if state.role.is_slave() {
            state.store.take_copies_only();
        }
        state.services.start(&state).map_err(StartError::system(
            "start the threads for delayed messages and transactions",
        ))?;
        let replication = ReplicationThread::start(&state, ha_listener)
            .map_err(StartError::system("start the thread for replication"))?;
        state.store.set_arrival_listener(Arc::new(pull::PullWaker::new(&state)));
        let driver = match (joining, &group) {
            (Some(joining), Some(group)) => {
                state.role.set_gate(group.clone());
                Some(joining.start(&state, group)?)
            }
            _ => None,
        };
        late.set(BrokerService::new(state.clone()));
        let (tasks, stop_tasks) = (TaskTracker::new(), CancellationToken::new());
        housekeeping::spawn(&state, &health, &tasks, &stop_tasks);
        let (waiting_pulls, stop) = (pull::answer_expired(state.clone()), stop_tasks.clone());
        tasks.spawn_on(
            async move {
                tokio::select! {
                    () = waiting_pulls => {}
                    () = stop.cancelled() => {}
                }
            },
            &worker.handle,
        );
        let stop_registration = CancellationToken::new();
        let (ended_sender, ended) = mpsc::channel();
        let registering = state.registration.clone().run(state.clone(), stop_registration.clone());
        tasks.spawn_on(
            async move {
                registering.await;
                // Nobody waits any more if the broker was dropped without a shutdown.
                let _ = ended_sender.send(());
            },
            &worker.handle,
        );
        info!(
            %addr,
            broker_addr = state.identity.broker_addr,
            store_host = %state.identity.store_host,
            took_ms = began.elapsed().as_millis(),
            "broker started"
        );
        Ok(Self {
            state,
            server,
            addr,
            metrics_addr,
            tasks,
            stop_tasks,
            stop_registration,
            registration_ended: Mutex::new(Some(ended)),
            replication,
            driver,
            worker,
            is_stopped: AtomicBool::new(false),
        })
    }

    /// The address it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address of `/metrics`, `/livez` and `/readyz`, if they are served.
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.metrics_addr
    }

    /// What its handlers share.
    pub fn state(&self) -> &Arc<BrokerState> {
        &self.state
    }

    /// Stops the broker and returns when everything is on disk. Further calls do nothing.
    pub fn shutdown(&self) {
        if self.is_stopped.swap(true, Ordering::AcqRel) {
            return;
        }
        info!("broker stops");
        if let Some(driver) = &self.driver {
            // While it still serves: another broker of the group takes over meanwhile.
            driver.release();
            driver.end();
        }
        self.state.stopping.store(true, Ordering::Release);
        let wait_s = self.state.config.load().shutdown_wait_time_seconds;
        let wait = Duration::from_secs(u64::try_from(wait_s).unwrap_or(30));
        self.end_requests(wait);
        self.stop_registration.cancel();
        if let Some(ended) = self.registration_ended.lock().take()
            && ended.recv_timeout(TASKS_END).is_err()
        {
            warn!("name servers were not told in time");
        }
        self.stop_tasks.cancel();
        self.worker.wait_for(&self.tasks);
        let state = &self.state;
        for written in [state.offsets.persist(), state.groups.persist(), state.filters.persist()] {
            if let Err(error) = written {
                error!(%error, "metadata not written at the stop");
            }
        }
        state.services.end();
        self.replication.end();
        match self.state.store.shutdown() {
            // Now that what was delivered and decided is on disk.
            Ok(()) => {
                let BrokerState { delays, transactions, offsets, .. } = &*self.state;
                if self.state.safe_end() < self.state.store.written().0 {
                    // The rest may be cut by another master.
                    delays.fall_back();
                    transactions.progress.clear();
                }
                transactions.progress.publish_all(offsets);
                let counts = transactions.counts.persist();
                for written in [delays.persist_all(), offsets.persist(), counts] {
                    if let Err(error) = written {
                        error!(%error, "progress not written at the stop");
                    }
                }
            }
            Err(error) => error!(%error, "store not closed cleanly, the next start recovers it"),
        }
        self.worker.stop();
        info!("broker stopped");
    }

    /// Closes the ports after the requests in flight are answered. Pulls that wait for messages are
    /// answered at once, those included that come while the ports close.
    fn end_requests(&self, wait: Duration) {
        std::thread::scope(|scope| {
            let closing = scope.spawn(|| self.server.shutdown(wait));
            while !closing.is_finished() {
                pull::answer_all(&self.state);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// What is loaded before the ports open.
struct Parts {
    topics: TopicTable,
    groups: GroupTable,
    delays: DelayProgress,
    transactions: Transactions,
    offsets: ConsumerOffsets,
    assignments: Assignments,
    filters: Arc<ConsumerFilters>,
    registration: Arc<Registration>,
}

impl Parts {
    /// Loads metadata, then opens the ports.
    fn load_and_bind(
        config: &BrokerConfig,
        filters: Arc<ConsumerFilters>,
        worker: &Worker,
        service: &Arc<LateService>,
    ) -> Result<(Self, Server, Option<std::net::TcpListener>), StartError> {
        let parts = Self::load(config, filters, worker)?;
        let server_config = config.server_config()?;
        let listen = format!("listen on {:?}", server_config.listen);
        let server =
            server::bind(server_config, service.clone()).map_err(StartError::system(listen))?;
        let ha_listener = bind_ha(config, server.local_addrs()[0])?;
        Ok((parts, server, ha_listener))
    }

    /// Loads metadata; the store is locked by now, so no other broker writes it.
    fn load(
        config: &BrokerConfig,
        filters: Arc<ConsumerFilters>,
        worker: &Worker,
    ) -> Result<Self, StartError> {
        filters.make_bit_maps(config.enable_calc_filter_bit_map);
        let dir = config.config_dir();
        let changes = Arc::new(ChangeSignal::default());
        let topics = TopicTable::load(&dir, config, changes.clone())?;
        let groups = GroupTable::load(&dir, config)?;
        let version_step = u64::try_from(config.consumer_offset_update_version_step).unwrap_or(1);
        let offsets = ConsumerOffsets::load(&dir, version_step)?;
        let delays = DelayProgress::load(&dir)?;
        let transactions = Transactions::load(&dir)?;
        let assignments = Assignments::load(&dir)?;
        let name_servers = config.namesrv_addresses()?;
        let client = {
            let _in_runtime = worker.handle.enter();
            Client::new(ClientConfig::default(), None)
        };
        let registration = Arc::new(Registration::new(client, changes, name_servers));
        Ok(Self {
            topics,
            groups,
            delays,
            transactions,
            offsets,
            assignments,
            filters,
            registration,
        })
    }

    fn into_state(
        self,
        config: BrokerConfig,
        loaded: LoadedConfig,
        Places { identity, own }: Places,
        store: Arc<Store>,
        group: Option<Arc<Group>>,
        worker: &Worker,
    ) -> BrokerState {
        let role = match &group {
            Some(group) => {
                let as_master = identity.broker_addr.clone();
                RoleCell::new(member::names(group, as_master, &own), Role::Slave)
            }
            None => RoleCell::of_config(&config, own),
        };
        let path = Some(config.broker_config_path.trim()).filter(|path| !path.is_empty());
        let config_file = ConfigFile {
            path: path.map(PathBuf::from),
            other: loaded.without_effect.into_iter().collect(),
            ..ConfigFile::default()
        };
        let timeout = |ms: i64| Duration::from_millis(u64::try_from(ms).unwrap_or(1));
        let flush_timeout = timeout(config.sync_flush_timeout);
        let copy_timeout = timeout(config.slave_timeout);
        BrokerState {
            broker_properties: broker_properties(&config),
            unique_keys: UniqueKeyMaker::new(
                identity.store_host.ip(),
                std::process::id(),
                rand::random(),
            ),
            config: ArcSwap::from_pointee(config),
            identity,
            store,
            topics: self.topics,
            groups: self.groups,
            delays: self.delays,
            transactions: self.transactions,
            offsets: self.offsets,
            assignments: self.assignments,
            filters: self.filters,
            expressions: ExpressionCache::default(),
            clients: ClientTable::default(),
            locks: LockTable::default(),
            flush_waits: FlushWaits::new(flush_timeout),
            copy_waits: FlushWaits::new(copy_timeout),
            confirm_waits: ConfirmWaits::default(),
            held_sends: HeldSends::default(),
            role,
            services: Services::default(),
            group,
            replication: Replication::default(),
            long_polls: LongPolls::new(HELD_PULLS_MAX),
            metrics: Arc::new(BrokerMetrics::default()),
            runtime_stats: RuntimeStats::default(),
            registration: self.registration,
            runtime: worker.handle.clone(),
            stopping: AtomicBool::new(false),
            config_update: Mutex::new(config_file),
        }
    }
}

/// Where a broker is found.
struct Places {
    identity: Identity,
    /// As itself: also where the group's master is known to clients by another address.
    own: Addresses,
}

impl Places {
    fn find(
        config: &BrokerConfig,
        hosts: &Hosts,
        membership: Option<&Membership>,
        (addr, ha_port): (SocketAddr, u16),
    ) -> Places {
        let own_host = membership.and_then(Membership::host);
        let ha_host = match config.broker_ip2.trim() {
            "" => hosts.advertised.as_str(),
            configured => configured,
        };
        let identity = Identity {
            broker_addr: address::host_port(&hosts.advertised, addr.port()),
            ha_addr: address::host_port(own_host.unwrap_or(ha_host), ha_port),
            store_host: SocketAddr::new(hosts.store_ip, addr.port()),
            boot_timestamp_ms: now_ms(),
        };
        let broker = match own_host {
            Some(host) => address::host_port(host, addr.port()),
            None => identity.broker_addr.clone(),
        };
        let own = Addresses { broker, ha: identity.ha_addr.clone() };
        Places { identity, own }
    }
}

/// Binds the HA port of a master. One that nobody configured may be taken: then nobody can follow this
/// broker, and it goes on.
fn bind_ha(
    config: &BrokerConfig,
    main: SocketAddr,
) -> Result<Option<std::net::TcpListener>, StartError> {
    if config.broker_role == BrokerRole::Slave {
        return Ok(None);
    }
    let is_configured = config.ha_listen_port > 0;
    // A broker on any free port has any free HA port.
    let port =
        if config.listen_port == 0 && !is_configured { 0 } else { config.ha_port(main.port()) };
    let addr = SocketAddr::new(main.ip(), port);
    match replication::bind(addr) {
        Ok(listener) => Ok(Some(listener)),
        Err(error)
            if !is_configured
                && config.in_sync_replicas <= 1
                && config.coordinator == CoordinatorKind::Static =>
        {
            warn!(%addr, %error, "no slave can follow this broker; set haListenPort to a free port");
            Ok(None)
        }
        Err(source) => {
            let action = format!("listen on {addr} for slaves (haListenPort)");
            Err(StartError::System { action, source })
        }
    }
}

/// The properties that the broker adds to every message.
fn broker_properties(config: &BrokerConfig) -> Vec<u8> {
    let mut block = Vec::new();
    properties::append(&mut block, name::MSG_REGION, &config.region_id);
    properties::append(&mut block, name::TRACE_ON, &config.trace_on.to_string());
    properties::append(&mut block, name::CLUSTER, &config.broker_cluster_name);
    block
}

/// Takes connections from the moment the port is bound, which is needed to know the port, and lets
/// their requests wait the instant until the service exists.
#[derive(Default)]
struct LateService(OnceLock<BrokerService>);

impl LateService {
    fn set(&self, service: BrokerService) {
        self.0.get_or_init(|| service);
    }
}

impl Service for LateService {
    fn connected(&self, conn: &Arc<Connection>) {
        self.0.wait().connected(conn);
    }

    fn closed(&self, conn: &Arc<Connection>) {
        self.0.wait().closed(conn);
    }

    fn serve(&self, conn: &Arc<Connection>, requests: &[Frame<'_>], out: &mut Output) {
        self.0.wait().serve(conn, requests, out);
    }
}

/// The runtime for everything but messages: one thread for timers and calls to name servers, and
/// a few for what may block.
struct Worker {
    handle: Handle,
    stop: CancellationToken,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Worker {
    fn start() -> Result<Self, StartError> {
        let runtime: Runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_name("broker-blocking")
            .build()
            .map_err(StartError::system("start the worker runtime"))?;
        let handle = runtime.handle().clone();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("broker-worker".to_owned())
            .spawn(move || {
                runtime.block_on(stopped.cancelled());
                runtime.shutdown_timeout(TASKS_END);
            })
            .map_err(StartError::system("start the worker thread"))?;
        Ok(Self { handle, stop, thread: Mutex::new(Some(thread)) })
    }

    /// Opens the HTTP port of metrics and probes.
    fn serve_monitoring(
        &self,
        config: &BrokerConfig,
        slot: &StateSlot,
        health: &Arc<BrokerHealth>,
        sockets: &Arc<OnceLock<SocketCollector>>,
    ) -> Result<Option<SocketAddr>, StartError> {
        if config.metrics_exporter_type == MetricsExporter::Disable {
            return Ok(None);
        }
        let ip = match config.metrics_prom_exporter_host.trim() {
            "" => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            host => host.parse().map_err(|_| {
                crate::config::invalid("metricsPromExporterHost", host, "an IP address")
            })?,
        };
        let addr = SocketAddr::new(ip, config.metrics_prom_exporter_port);
        let registry = Arc::new(metrics::registry(config, slot, sockets));
        let health = health.clone();
        let stop = self.stop.clone();
        let (sender, receiver) = mpsc::channel();
        self.handle.spawn(async move {
            match monitoring::serve(addr, registry, health).await {
                Ok(monitoring) => {
                    let _ = sender.send(Ok(monitoring.addr()));
                    hold_until(stop, monitoring).await;
                }
                Err(error) => {
                    let _ = sender.send(Err(error));
                }
            }
        });
        let bound = receiver.recv().unwrap_or_else(|_| Err(std::io::Error::other("worker ended")));
        match bound {
            Ok(addr) => Ok(Some(addr)),
            // Two brokers on one machine, neither configured: as with RocketMQ's, both start.
            Err(error) if config.metrics_prom_exporter_port == METRICS_PORT_DEFAULT => {
                warn!(%error, "no metrics and probes; set metricsPromExporterPort");
                Ok(None)
            }
            Err(source) => {
                let action = "serve metrics and probes (metricsPromExporterPort)".to_owned();
                Err(StartError::System { action, source })
            }
        }
    }

    /// Blocks until the tasks have ended, or too long.
    fn wait_for(&self, tasks: &TaskTracker) {
        tasks.close();
        let (sender, ended) = mpsc::channel();
        let tasks = tasks.clone();
        self.handle.spawn(async move {
            tasks.wait().await;
            let _ = sender.send(());
        });
        if ended.recv_timeout(TASKS_END).is_err() {
            warn!("tasks did not end in time");
        }
    }

    /// Ends the runtime and joins its thread.
    fn stop(&self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            error!("the worker thread panicked");
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn hold_until(stop: CancellationToken, monitoring: Monitoring) {
    stop.cancelled().await;
    monitoring.shutdown().await;
}
