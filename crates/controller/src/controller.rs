//! The running controller: its files, threads and ports, and the order in which they start and stop.
//!
//! Threads: `controller` (Raft, the leader's work) and one for the port's I/O. What waits for the disk
//! is done on the runtime's blocking threads.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use openraft::error::{InitializeError, RaftError};
use openraft::{BasicNode, Config, SnapshotPolicy};
use parking_lot::Mutex;
use rocketmq_remoting::client::{Client, ClientConfig};
use rocketmq_remoting::server::{self, Server, ServerConfig};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::journal::{StoreError, io_error};
use crate::leader::Core;
use crate::liveness::{Liveness, TIMEOUT_DEFAULT_MS};
use crate::log_store::{LogStore, Owner};
use crate::network::Network;
use crate::peers::Peers;
use crate::raft::Raft;
use crate::service::Requests;
use crate::settings::Settings;
use crate::state_store::StateStore;

/// Bytes of a snapshot in one message; as JSON it is up to four times as many.
const SNAPSHOT_PART_BYTES: u64 = 512 * 1024;

/// How a controller is set up.
#[derive(Clone, Debug)]
pub struct ControllerConfig {
    /// Name of the group of controllers (`controllerDLegerGroup`).
    pub group: String,
    /// All of them (`controllerDLegerPeers`).
    pub peers: Peers,
    /// This one (`controllerDLegerSelfId`).
    pub own_id: u64,
    /// Where to listen; the port is that of its entry in `peers`.
    pub listen: SocketAddr,
    /// The directory of its files (`controllerStorePath`).
    pub store_path: PathBuf,
    /// Without traffic for so long a connection is closed.
    pub idle: Duration,
    /// For how long after the start a master that was not heard yet is taken to live.
    pub listen_first: Duration,
    /// A follower that hears nothing of a leader for between this and twice this time wants to lead.
    pub election_timeout: Duration,
    /// How often a leader gives a sign of life.
    pub heartbeat_interval: Duration,
    /// Entries of the log behind the last snapshot until there is another one. Half as many stay in
    /// the log, for controllers that are a little behind.
    pub snapshot_after: u64,
}

impl ControllerConfig {
    /// A controller with the times that suit a network of ours.
    pub fn new(
        group: String,
        peers: Peers,
        own_id: u64,
        listen: SocketAddr,
        store_path: PathBuf,
    ) -> Self {
        Self {
            group,
            peers,
            own_id,
            listen,
            store_path,
            idle: Duration::from_secs(120),
            listen_first: Duration::from_millis(TIMEOUT_DEFAULT_MS as u64),
            election_timeout: Duration::from_millis(1_000),
            heartbeat_interval: Duration::from_millis(250),
            snapshot_after: 1_000,
        }
    }
}

/// Why a controller does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its files cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The configured controllers are not those of the group.
    #[error(
        "controllerDLegerPeers names {configured}, but the group in controllerStorePath {} was \
         formed of {formed}; set the list back to these ids (addresses may differ)",
        path.display()
    )]
    OtherPeers {
        /// Ids in the configuration.
        configured: String,
        /// Ids in the files.
        formed: String,
        /// The directory.
        path: PathBuf,
    },
    /// The configuration does not fit Raft.
    #[error("the controller's times do not fit: {0}")]
    Times(String),
    /// The port cannot be had.
    #[error("{0}; the controller listens on the port of its entry in controllerDLegerPeers")]
    Listen(io::Error),
    /// The system gives no more threads.
    #[error("cannot start thread controller: {0}")]
    Thread(io::Error),
    /// Raft does not start on these files.
    #[error("the controller cannot take part in its group: {0}")]
    Raft(String),
}

/// A running controller. Dropping it stops it.
pub struct Controller {
    core: Arc<Core>,
    server: Server,
    addr: SocketAddr,
    stop: CancellationToken,
    running: Mutex<Option<Running>>,
}

struct Running {
    thread: JoinHandle<()>,
    /// Of the directory; held as long as its files are used.
    lock: File,
}

impl Controller {
    /// Reads the files, binds the port and takes part in the group. Returns when requests are answered,
    /// whether there is a leader yet or not.
    ///
    /// # Errors
    /// What keeps it from starting; nothing is left running then.
    pub fn start(
        config: ControllerConfig,
        settings: Arc<dyn Settings>,
    ) -> Result<Self, StartError> {
        let lock = lock_directory(&config.store_path)?;
        let owner = Owner { group: config.group.clone(), id: config.own_id };
        let log = LogStore::open(&config.store_path.join("journal"), &owner)?;
        let state = StateStore::open(&config.store_path.join("snapshot"))?;
        check_files(&config, &log, &state)?;
        let runtime = Builder::new_current_thread()
            .enable_all()
            .thread_name("controller-disk")
            .max_blocking_threads(4)
            .build()
            .map_err(StartError::Thread)?;
        let client = Client::new(ClientConfig::default(), None);
        let (group, peers) = (Arc::from(config.group.as_str()), Arc::new(config.peers.clone()));
        let network = Network {
            client: client.clone(),
            group: Arc::clone(&group),
            own_id: config.own_id,
            peers: Arc::clone(&peers),
            silent: Arc::default(),
        };
        let raft = start_raft(&runtime, &config, network, log, state.clone())?;
        let core = Arc::new(Core {
            raft,
            own_id: config.own_id,
            state,
            liveness: Mutex::new(Liveness::default()),
            settings,
            client,
            tasks: TaskTracker::new(),
            quorum_silence_max: config.election_timeout * 2,
            lost: Notify::new(),
            started: Instant::now(),
            listen_first: config.listen_first,
        });
        let requests = Requests::new(Arc::clone(&core), group, peers, runtime.handle().clone());
        let server_config = ServerConfig {
            listen: vec![config.listen],
            // Requests wait on the other thread.
            io_threads: 1,
            name: "controller".to_owned(),
            idle: config.idle,
            ..ServerConfig::default()
        };
        let server = server::bind(server_config, Arc::new(requests)).map_err(StartError::Listen)?;
        let addr = server.local_addrs().first().copied().unwrap_or(config.listen);
        let stop = CancellationToken::new();
        let thread = run(runtime, Arc::clone(&core), stop.clone()).map_err(StartError::Thread)?;
        tracing::info!(%addr, id = config.own_id, peers = %config.peers, "controller started");
        let running = Mutex::new(Some(Running { thread, lock }));
        Ok(Self { core, server, addr, stop, running })
    }

    /// Where requests are answered.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Whether this controller leads its group, as far as it knows.
    pub fn is_leader(&self) -> bool {
        self.core.is_leader()
    }

    /// The leader's id, as far as this controller knows.
    pub fn leader(&self) -> Option<u64> {
        self.core.leader()
    }

    /// Whether it takes part in its group: false once its files could not be written.
    pub fn is_sound(&self) -> bool {
        self.core.raft.metrics().borrow().running_state.is_ok()
    }

    /// Stops: no new request, answers in flight leave (at most for `deadline`), then the threads end.
    /// Blocks; later calls return at once.
    pub fn shutdown(&self, deadline: Duration) {
        let Some(Running { thread, lock }) = self.running.lock().take() else {
            return;
        };
        self.server.shutdown(deadline);
        self.stop.cancel();
        if thread.join().is_err() {
            tracing::error!("controller thread ended by a panic");
        }
        drop(lock);
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.shutdown(Duration::ZERO);
    }
}

fn lock_directory(path: &Path) -> Result<File, StoreError> {
    fs::create_dir_all(path).map_err(io_error("create directory", path))?;
    let file = path.join("lock");
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&file)
        .map_err(io_error("open", &file))?;
    lock.try_lock().map_err(|error| match error {
        fs::TryLockError::WouldBlock => StoreError::Foreign {
            path: path.to_owned(),
            reason: "is in use by another process; stop it, or give this controller another \
                     directory"
                .to_owned(),
        },
        fs::TryLockError::Error(error) => io_error("lock", &file)(error),
    })?;
    Ok(lock)
}

fn check_files(
    config: &ControllerConfig,
    log: &LogStore,
    state: &StateStore,
) -> Result<(), StartError> {
    let path = &config.store_path;
    if log.purged() > state.applied() {
        return Err(StartError::Store(StoreError::Damaged {
            path: path.join("snapshot"),
            at: 0,
            reason: "the journal begins behind the snapshot, or there is none".to_owned(),
        }));
    }
    let configured: BTreeSet<u64> = config.peers.ids().collect();
    let formed = log.members().or_else(|| state.members());
    let Some(formed) = formed.map(BTreeSet::from_iter).filter(|formed| *formed != configured)
    else {
        return Ok(());
    };
    let text =
        |ids: &BTreeSet<u64>| ids.iter().map(|id| format!("n{id}")).collect::<Vec<_>>().join(", ");
    Err(StartError::OtherPeers {
        configured: text(&configured),
        formed: text(&formed),
        path: path.clone(),
    })
}

fn start_raft(
    runtime: &Runtime,
    config: &ControllerConfig,
    network: Network,
    log: LogStore,
    state: StateStore,
) -> Result<Raft, StartError> {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let raft_config = Config {
        cluster_name: config.group.clone(),
        election_timeout_min: ms(config.election_timeout),
        election_timeout_max: ms(config.election_timeout * 2),
        heartbeat_interval: ms(config.heartbeat_interval),
        snapshot_policy: SnapshotPolicy::LogsSinceLast(config.snapshot_after),
        max_in_snapshot_log_to_keep: config.snapshot_after / 2,
        snapshot_max_chunk_size: SNAPSHOT_PART_BYTES,
        install_snapshot_timeout: 5_000,
        ..Config::default()
    };
    let raft_config =
        raft_config.validate().map_err(|error| StartError::Times(error.to_string()))?;
    let members: BTreeMap<u64, BasicNode> = config
        .peers
        .ids()
        .map(|id| (id, BasicNode::new(config.peers.address(id).unwrap_or_default())))
        .collect();
    runtime.block_on(async {
        let failed = |error: &dyn std::fmt::Display| StartError::Raft(error.to_string());
        let raft = Raft::new(config.own_id, Arc::new(raft_config), network, log, state)
            .await
            .map_err(|error| failed(&error))?;
        // Each controller does this with the same members; the first entry of all logs is the same.
        match raft.initialize(members).await {
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(raft),
            Err(error) => Err(failed(&error)),
        }
    })
}

/// The thread that all of the controller's tasks run on, until `stop`.
fn run(runtime: Runtime, core: Arc<Core>, stop: CancellationToken) -> io::Result<JoinHandle<()>> {
    let work = move || {
        runtime.block_on(async {
            core.watch(stop).await;
            core.tasks.close();
            core.tasks.wait().await;
            if let Err(error) = core.raft.shutdown().await {
                tracing::error!(%error, "raft did not end in order");
            }
            core.client.shutdown().await;
        });
    };
    std::thread::Builder::new().name("controller".to_owned()).spawn(work)
}
