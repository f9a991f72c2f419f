//! Health and metrics of the operator over HTTP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// What the endpoints show.
#[derive(Clone, Default)]
pub struct Shown {
    /// Metrics.
    pub metrics: Metrics,
    /// Set once the API server has answered. A standby is ready too: it can take over at any time.
    pub ready: Arc<AtomicBool>,
}

/// Listens on `address`; returns the bound address and the server, which ends with `stop`.
///
/// # Errors
/// Fails when the address cannot be bound.
pub async fn serve(
    address: SocketAddr,
    shown: Shown,
    stop: CancellationToken,
) -> anyhow::Result<(SocketAddr, tokio::task::JoinHandle<std::io::Result<()>>)> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("listen on {address} for health and metrics"))?;
    let bound = listener.local_addr().context("read the bound address")?;
    let router = Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(shown);
    let server = tokio::spawn(async move {
        axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await
    });
    Ok((bound, server))
}

async fn readyz(State(shown): State<Shown>) -> impl IntoResponse {
    if shown.ready.load(Ordering::Relaxed) {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the API server has not answered yet\n")
    }
}

async fn metrics(State(shown): State<Shown>) -> impl IntoResponse {
    match shown.metrics.text() {
        Ok(text) => (
            StatusCode::OK,
            [(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")],
            text,
        )
            .into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
