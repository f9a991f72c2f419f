//! The running name server: which threads it has, in which order they start and stop.
//!
//! Threads: those of the controller, if there is one, one for I/O (all requests that need no disk),
//! `namesrv-admin` (requests that write a file, one at a time) and `namesrv-background` (expiry,
//! notices, HTTP). They stop in that order.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self as std_mpsc, Receiver, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use rocketmq_controller::Controller;
use rocketmq_protocol::config::ConfigError;
use rocketmq_remoting::counters::SocketCounters;
use rocketmq_remoting::server::{self, Server, ServerConfig};
use tokio::sync::mpsc;

use crate::background::Background;
use crate::config::NamesrvConfig;
use crate::controller::{self, StartFailed};
use crate::handler::{ADMIN_JOBS_MAX, AdminWork, Handler, NOTICES_MAX, State};
use crate::kv_table::KvTable;
use crate::metrics::Metrics;
use crate::safe_file::FileError;
use crate::settings::Settings;

/// Why a name server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A configuration value cannot be honoured.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The key-value file cannot be read.
    #[error(transparent)]
    KvConfig(#[from] FileError),
    /// The controller does not start.
    #[error(transparent)]
    Controller(#[from] rocketmq_controller::StartError),
    /// The remoting port cannot be had.
    #[error("{0}; set listenPort to a free port, or bindAddress to an address of this machine")]
    Listen(io::Error),
    /// The HTTP port cannot be had.
    #[error(
        "{0}; set metricsPromExporterPort to a free port, or metricsExporterType=DISABLE to do \
         without"
    )]
    Metrics(io::Error),
    /// The system gives no more threads.
    #[error("cannot start thread {name}: {error}")]
    Thread {
        /// Which thread.
        name: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

impl From<StartFailed> for StartError {
    fn from(failed: StartFailed) -> Self {
        match failed {
            StartFailed::Config(error) => Self::Config(error),
            StartFailed::Start(error) => Self::Controller(error),
        }
    }
}

/// A running name server. Dropping it stops it.
pub struct Namesrv {
    state: Arc<State>,
    addr: SocketAddr,
    server: Server,
    background: Background,
    admin: Mutex<Option<Admin>>,
    controller: Option<Controller>,
}

struct Admin {
    jobs: SyncSender<AdminWork>,
    thread: JoinHandle<()>,
}

impl Namesrv {
    /// Reads the key-value file, binds the ports and serves. Returns when requests are answered.
    ///
    /// # Errors
    /// What keeps it from starting; nothing is left running then.
    pub fn start(config: NamesrvConfig) -> Result<Self, StartError> {
        config.validate()?;
        let kv = KvTable::load(Path::new(&config.kv_config_path))?;
        let listen = config.listen_addr().expect("validate has parsed the address");
        let http = config.http_addr();
        let idle = Duration::from_secs(config.server_channel_max_idle_time_seconds);

        let metrics = Arc::new(Metrics::default());
        let (notices, notices_in) = mpsc::channel(NOTICES_MAX);
        let state = Arc::new(State::new(kv, Settings::new(config), Arc::clone(&metrics), notices));
        let background = Background::start(Arc::clone(&state), notices_in, http)?;
        let (jobs, jobs_in) = std_mpsc::sync_channel(ADMIN_JOBS_MAX);
        let admin = start_admin(Arc::clone(&state), jobs_in)?;
        let handler = Arc::new(Handler::new(Arc::clone(&state), jobs.clone()));
        let server_config = ServerConfig {
            listen: vec![listen],
            // All work is in memory and short; a second thread would only contend for the table.
            io_threads: 1,
            name: "namesrv".to_owned(),
            idle,
            ..ServerConfig::default()
        };
        let admin = Mutex::new(Some(Admin { jobs, thread: admin }));
        let served = server::bind(server_config, handler)
            .map_err(StartError::Listen)
            .and_then(|server| Ok((server, controller::start(&state)?)));
        let (server, controller) = match served {
            Ok(served) => served,
            Err(error) => {
                background.stop();
                stop_admin(&admin);
                return Err(error);
            }
        };
        let addr = server.local_addrs().first().copied().unwrap_or(listen);
        state.set_serving(true);
        tracing::info!(%addr, metrics_addr = ?background.http_addr(), "name server started");
        Ok(Self { state, addr, server, background, admin, controller })
    }

    /// Where requests are answered; with `listenPort=0` the port that was taken.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where health and metrics are served, unless `metricsExporterType` is DISABLE.
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.background.http_addr()
    }

    /// The controller in this process, if there is one.
    pub fn controller(&self) -> Option<&Controller> {
        self.controller.as_ref()
    }

    /// How many brokers are registered now.
    pub fn broker_count(&self) -> usize {
        self.state.routes.read().broker_count()
    }

    /// Socket reads, writes and frames since the start.
    pub fn counters(&self) -> &Arc<SocketCounters> {
        self.server.counters()
    }

    /// Stops: no new connection, answers in flight leave (at most `shutdownWaitTimeSeconds`), then
    /// the threads end. Blocks; later calls return at once.
    pub fn shutdown(&self) {
        self.state.set_serving(false);
        let deadline = Duration::from_secs(self.state.settings.get().shutdown_wait_time_seconds);
        if let Some(controller) = &self.controller {
            controller.shutdown(deadline);
        }
        self.server.shutdown(deadline);
        stop_admin(&self.admin);
        self.background.stop();
    }
}

impl Drop for Namesrv {
    fn drop(&mut self) {
        self.shutdown();
    }
}

fn start_admin(state: Arc<State>, jobs: Receiver<AdminWork>) -> Result<JoinHandle<()>, StartError> {
    let name = "namesrv-admin";
    let run = move || {
        while let Ok(AdminWork::Request(job)) = jobs.recv() {
            job.run(&state);
        }
    };
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map_err(|error| StartError::Thread { name, error })
}

fn stop_admin(admin: &Mutex<Option<Admin>>) {
    if let Some(Admin { jobs, thread }) = admin.lock().take() {
        // Queued behind what was accepted; fails only when the thread is gone already.
        let _ = jobs.send(AdminWork::Stop);
        if thread.join().is_err() {
            tracing::error!("admin thread ended by a panic");
        }
    }
}
