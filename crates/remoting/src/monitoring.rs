//! Metrics and health over HTTP: `/metrics`, `/livez`, `/readyz`.
//!
//! Owns the HTTP side only. What is measured is in the caller's registry, what healthy means is in the
//! caller's [`Health`].

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::warn;

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
    let stopped = stop.clone().cancelled_owned();
    let task = tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, routes).with_graceful_shutdown(stopped).await {
            warn!(%error, "metrics and health are no longer served");
        }
    });
    Ok(Monitoring { addr, stop, task: Some(task) })
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
