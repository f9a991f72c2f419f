//! Metrics and health over HTTP: `/metrics`, `/livez`, `/readyz`.
//!
//! Owns the HTTP side only. What is measured is in the caller's registry, what healthy means is in the
//! caller's [`Health`].

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

/// Connections at one time; one more is closed at once. Probes and a few scrapers need no more.
const CONNECTIONS_MAX: usize = 64;
/// How long a peer has for the head of its request, and a connection may stay without one.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a whole connection lasts. A peer that does not read its answer holds it no longer.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause after accepting failed, which mostly means that the process has no descriptor left.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// What a probe is told.
pub trait Health: Send + Sync + 'static {
    /// Whether the process works at all; an error restarts it.
    ///
    /// # Errors
    /// Why it does not, in words for the person who reads the probe's answer.
    fn live(&self) -> Result<(), String>;

    /// Whether it may be given work now.
    ///
    /// # Errors
    /// What it waits for.
    fn ready(&self) -> Result<(), String>;
}

/// The running HTTP server. Dropping it stops it without waiting.
#[derive(Debug)]
pub struct Monitoring {
    addr: SocketAddr,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

#[derive(Clone)]
struct Shared {
    registry: Arc<Registry>,
    health: Arc<dyn Health>,
}

/// Listens on `addr` (port 0 takes a free one) and serves in a task of the caller's runtime.
///
/// # Errors
/// When the address cannot be bound; the text names it.
pub async fn serve(
    addr: SocketAddr,
    registry: Arc<Registry>,
    health: Arc<dyn Health>,
) -> io::Result<Monitoring> {
    let named = |e: io::Error| {
        io::Error::new(e.kind(), format!("cannot serve metrics and health on {addr}: {e}"))
    };
    let listener = TcpListener::bind(addr).await.map_err(named)?;
    let addr = listener.local_addr()?;
    let routes = Router::new()
        .route("/metrics", get(metrics))
        .route(
            "/livez",
            get(|State(shared): State<Shared>| async move { probe(shared.health.live()) }),
        )
        .route(
            "/readyz",
            get(|State(shared): State<Shared>| async move { probe(shared.health.ready()) }),
        )
        .with_state(Shared { registry, health });
    let stop = CancellationToken::new();
    let task = tokio::spawn(accept(listener, routes, stop.clone()));
    Ok(Monitoring { addr, stop, task: Some(task) })
}

/// Accepts until stopped, then waits for the requests in progress.
async fn accept(listener: TcpListener, routes: Router, stop: CancellationToken) {
    let (room, connections) = (Arc::new(Semaphore::new(CONNECTIONS_MAX)), TaskTracker::new());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((socket, _)) => {
                // Without room the socket is dropped, which closes it.
                if let Ok(place) = room.clone().try_acquire_owned() {
                    let serving = serve_connection(socket, routes.clone(), stop.clone());
                    connections.spawn(async move {
                        serving.await;
                        drop(place);
                    });
                }
            }
            Err(error) => {
                warn!(%error, "cannot accept a connection for metrics and health");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
    connections.close();
    connections.wait().await;
}

async fn serve_connection(socket: TcpStream, routes: Router, stop: CancellationToken) {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    let service = TowerToHyperService::new(routes);
    let mut connection = std::pin::pin!(server.serve_connection(TokioIo::new(socket), service));
    let served = tokio::time::timeout(CONNECTION_TIMEOUT, async {
        tokio::select! {
            served = connection.as_mut() => return served,
            () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        connection.as_mut().await
    });
    match served.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "connection for metrics and health lost"),
        Err(_) => debug!("connection for metrics and health closed after its time"),
    }
}

impl Monitoring {
    /// The bound address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Stops serving after the requests in progress.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            // A probe that keeps its connection open must not delay the stop.
            let abort = task.abort_handle();
            if tokio::time::timeout(std::time::Duration::from_secs(1), task).await.is_err() {
                abort.abort();
            }
        }
    }
}

impl Drop for Monitoring {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

async fn metrics(State(shared): State<Shared>) -> Response {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &shared.registry) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => {
            let text = format!("metrics cannot be written: {error}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
        }
    }
}

fn probe(state: Result<(), String>) -> Response {
    match state {
        Ok(()) => "ok\n".into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}
