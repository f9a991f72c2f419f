//! The thread that replication runs on: its traffic is as large as that of all producers, so it has a
//! runtime of its own.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::appointed::group::Group;
use super::appointed::{follow, serve};
use super::{master, slave};
use crate::config::BrokerRole;
use crate::state::BrokerState;

/// Replication of one broker, running. Dropping it ends it.
pub struct ReplicationThread {
    stop: CancellationToken,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl ReplicationThread {
    /// Starts a master's or a slave's side. `listener` is the master's HA port; a master without one
    /// has no slaves.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn start(
        state: &Arc<BrokerState>,
        listener: Option<std::net::TcpListener>,
    ) -> io::Result<ReplicationThread> {
        let stop = CancellationToken::new();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (state, stopped) = (Arc::clone(state), stop.clone());
        let thread = std::thread::Builder::new().name("broker-ha".to_owned()).spawn(move || {
            runtime.block_on(async move {
                if let Some(group) = state.group.clone() {
                    return appointed_master_or_slave(state, group, listener, stopped).await;
                }
                let config = state.config.load_full();
                if config.broker_role == BrokerRole::Slave {
                    state.replication.master_found("", &config.ha_master_address);
                    tokio::select! {
                        () = slave::follow(Arc::clone(&state)) => {}
                        () = stopped.cancelled() => {}
                    }
                    return;
                }
                let Some(listener) = listener else { return stopped.cancelled().await };
                match TcpListener::from_std(listener) {
                    Ok(listener) => master::serve(state, listener, stopped).await,
                    Err(error) => error!(%error, "cannot watch the HA port"),
                }
            });
        })?;
        Ok(ReplicationThread { stop, thread: Mutex::new(Some(thread)) })
    }

    /// Closes all links and joins the thread.
    pub fn end(&self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            error!("the replication thread panicked");
        }
    }
}

impl Drop for ReplicationThread {
    fn drop(&mut self) {
        self.end();
    }
}

/// Serves slaves whenever this broker is master, and follows a master whenever there is one.
async fn appointed_master_or_slave(
    state: Arc<BrokerState>,
    group: Arc<Group>,
    listener: Option<std::net::TcpListener>,
    stop: CancellationToken,
) {
    let serving = async {
        let listener = listener.map(TcpListener::from_std).transpose();
        match listener {
            Ok(Some(listener)) => {
                let (state, group) = (Arc::clone(&state), Arc::clone(&group));
                serve::serve(state, group, listener, stop.clone()).await;
            }
            Ok(None) => {}
            Err(error) => error!(%error, "cannot watch the HA port"),
        }
        stop.cancelled().await;
    };
    tokio::select! {
        () = follow::follow(Arc::clone(&state), Arc::clone(&group)) => {}
        () = serving => {}
    }
}

/// Binds the HA port of a master.
///
/// # Errors
/// When the port is taken.
pub fn bind(addr: SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(addr)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
