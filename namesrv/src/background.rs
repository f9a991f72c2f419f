//! What happens without a request: silent brokers expire, brokers are told of a new lowest id,
//! probes and metrics are answered over HTTP. One thread with a small runtime of its own.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use rocketmq_protocol::code::RequestCode;
use rocketmq_protocol::header::registration::NotifyMinBrokerIdChangeRequest;
use rocketmq_remoting::call::Request;
use rocketmq_remoting::client::{Client, ClientConfig};
use rocketmq_remoting::monitoring::{self, Health};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::config::METRICS_PORT_DEFAULT;
use crate::handler::State;
use crate::namesrv::StartError;
use crate::route_table::MinIdChange;

/// How long connecting to one broker and sending it a notice may take.
const NOTICE_TIMEOUT: Duration = Duration::from_millis(300);
const THREAD_NAME: &str = "namesrv-background";

/// The running thread.
pub(crate) struct Background {
    http_addr: Option<SocketAddr>,
    stop: CancellationToken,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Background {
    /// Binds the HTTP port, when there is one, and starts the thread.
    pub(crate) fn start(
        state: Arc<State>,
        notices: mpsc::Receiver<MinIdChange>,
        http: Option<SocketAddr>,
    ) -> Result<Self, StartError> {
        let thread_error = |error| StartError::Thread { name: THREAD_NAME, error };
        let runtime = Builder::new_current_thread().enable_all().build().map_err(thread_error)?;
        let http = match http.map(|addr| (addr, serve_http(&runtime, addr, &state))) {
            None => None,
            Some((_, Ok(http))) => Some(http),
            // Two name servers on one machine need not be told apart by this port too.
            Some((addr, Err(error)))
                if addr.port() == METRICS_PORT_DEFAULT && error.kind() == ErrorKind::AddrInUse =>
            {
                tracing::warn!(
                    %error,
                    "health and metrics are not served, set metricsPromExporterPort"
                );
                None
            }
            Some((_, Err(error))) => return Err(StartError::Metrics(error)),
        };
        let http_addr = http.as_ref().map(monitoring::Monitoring::addr);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = stopped.cancelled() => {}
                    () = expire(&state) => {}
                    () = send_notices(notices) => {}
                }
                if let Some(http) = http {
                    http.shutdown().await;
                }
            });
        };
        let thread = std::thread::Builder::new()
            .name(THREAD_NAME.to_owned())
            .spawn(run)
            .map_err(thread_error)?;
        Ok(Self { http_addr, stop, thread: Mutex::new(Some(thread)) })
    }

    pub(crate) fn http_addr(&self) -> Option<SocketAddr> {
        self.http_addr
    }

    /// Ends the thread and waits for it. Later calls return at once.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("background thread ended by a panic");
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop();
    }
}

fn serve_http(
    runtime: &Runtime,
    addr: SocketAddr,
    state: &Arc<State>,
) -> std::io::Result<monitoring::Monitoring> {
    let mut registry = Registry::default();
    state.metrics.register(&mut registry);
    let health = Arc::new(NamesrvHealth(Arc::clone(state)));
    runtime.block_on(monitoring::serve(addr, Arc::new(registry), health))
}

/// Never returns. The interval is read anew each time, since a request may change it.
async fn expire(state: &State) {
    loop {
        let interval_ms = state.settings.get().scan_not_active_broker_interval;
        tokio::time::sleep(Duration::from_millis(u64::try_from(interval_ms).unwrap_or(1))).await;
        state.expire();
    }
}

/// Returns only when no one can send a notice any more.
async fn send_notices(mut notices: mpsc::Receiver<MinIdChange>) {
    let client = Client::new(ClientConfig::default(), None);
    while let Some(change) = notices.recv().await {
        let header = NotifyMinBrokerIdChangeRequest {
            min_broker_id: Some(change.min_broker_id),
            broker_name: None,
            min_broker_addr: Some(change.min_broker_addr.into()),
            offline_broker_addr: change.offline_broker_addr.map(Into::into),
            ha_broker_addr: change.ha_broker_addr.map(Into::into),
        };
        for addr in &change.tell {
            let request =
                Request::new(RequestCode::NOTIFY_MIN_BROKER_ID_CHANGE).with_header(&header);
            let sent = tokio::time::timeout(NOTICE_TIMEOUT, client.oneway(addr, request)).await;
            let problem = match sent {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("not sent within {} ms", NOTICE_TIMEOUT.as_millis()),
            };
            tracing::warn!(
                broker_addr = addr,
                broker_name = change.broker_name,
                problem,
                "broker not told of its group's new lowest id"
            );
        }
    }
    client.shutdown().await;
}

struct NamesrvHealth(Arc<State>);

impl Health for NamesrvHealth {
    fn live(&self) -> Result<(), String> {
        Ok(())
    }

    fn ready(&self) -> Result<(), String> {
        if self.0.is_serving() { Ok(()) } else { Err("not serving requests".to_owned()) }
    }
}
