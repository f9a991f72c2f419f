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
    /// Set once the API server serves the definitions. A standby is ready too: it can take over at any time.
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
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "the API server does not answer, or does not serve the definitions; see the log\n",
        )
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.expect("connected");
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        answer
    }

    #[tokio::test]
    async fn readiness_follows_the_api_server_and_the_server_stops() {
        let (shown, stop) = (Shown::default(), CancellationToken::new());
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let (address, server) =
            serve(anywhere, shown.clone(), stop.clone()).await.expect("listening");
        assert!(get(address, "/livez").await.starts_with("HTTP/1.1 200"));
        assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 503"));
        shown.ready.store(true, Ordering::Relaxed);
        assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 200"));
        shown.metrics.set_leader(true);
        assert!(get(address, "/metrics").await.contains("rocketmq_operator_leader 1"));
        stop.cancel();
        server.await.expect("joined").expect("served");
    }

    #[tokio::test]
    async fn a_taken_address_is_named() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = taken.local_addr().expect("an address");
        let error =
            serve(address, Shown::default(), CancellationToken::new()).await.expect_err("taken");
        assert!(format!("{error:#}").contains(&address.to_string()), "{error:#}");
    }
}
