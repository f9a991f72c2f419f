//! Metrics and health over HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use prometheus_client::registry::Registry;
use rocketmq_remoting::counters::SocketCollector;
use rocketmq_remoting::monitoring::{Health, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[derive(Default)]
struct Switch(AtomicBool);

impl Health for Switch {
    fn live(&self) -> Result<(), String> {
        Ok(())
    }
    fn ready(&self) -> Result<(), String> {
        if self.0.load(SeqCst) { Ok(()) } else { Err("recovering".to_owned()) }
    }
}

async fn get(addr: std::net::SocketAddr, path: &str) -> String {
    let mut socket = TcpStream::connect(addr).await.expect("connect");
    let ask = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    socket.write_all(ask.as_bytes()).await.expect("write");
    let mut text = String::new();
    socket.read_to_string(&mut text).await.expect("read");
    text
}

#[tokio::test]
async fn metrics_and_probes_are_served() {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(SocketCollector(Arc::default())));
    let health = Arc::new(Switch::default());
    let monitoring = serve(([127, 0, 0, 1], 0).into(), Arc::new(registry), health.clone()).await;
    let monitoring = monitoring.expect("serving");
    let addr = monitoring.addr();
    assert!(get(addr, "/livez").await.starts_with("HTTP/1.1 200"));
    let not_ready = get(addr, "/readyz").await;
    assert!(not_ready.starts_with("HTTP/1.1 503") && not_ready.ends_with("recovering\n"));
    health.0.store(true, SeqCst);
    assert!(get(addr, "/readyz").await.starts_with("HTTP/1.1 200"));
    let metrics = get(addr, "/metrics").await;
    assert!(metrics.contains("\nrocketmq_remoting_reads_total 0\n"), "{metrics}");
    assert!(metrics.contains("\nrocketmq_remoting_connections 0\n"), "{metrics}");
    assert!(get(addr, "/other").await.starts_with("HTTP/1.1 404"));
    let taken = serve(addr, Arc::new(Registry::default()), health).await.expect_err("in use");
    assert!(taken.to_string().contains(&addr.to_string()), "{taken}");
    monitoring.shutdown().await;
    assert!(TcpStream::connect(addr).await.is_err());
}

#[tokio::test]
async fn silent_peers_take_no_more_than_their_share() {
    let health = Arc::new(Switch::default());
    let monitoring = serve(([127, 0, 0, 1], 0).into(), Arc::new(Registry::default()), health).await;
    let monitoring = monitoring.expect("serving");
    let addr = monitoring.addr();
    let mut silent = Vec::new();
    for _ in 0..64 {
        silent.push(TcpStream::connect(addr).await.expect("connect"));
    }
    // One more is closed without a word.
    let mut surplus = TcpStream::connect(addr).await.expect("connect");
    assert_eq!(surplus.read(&mut [0; 16]).await.ok().unwrap_or(0), 0);
    drop(silent.pop());
    let probed = async {
        loop {
            let mut socket = TcpStream::connect(addr).await.expect("connect");
            let ask = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            let mut text = String::new();
            // A refused connection may end in a reset.
            if socket.write_all(ask).await.is_ok()
                && socket.read_to_string(&mut text).await.is_ok()
                && text.starts_with("HTTP/1.1 200")
            {
                return;
            }
        }
    };
    let limit = std::time::Duration::from_secs(10);
    tokio::time::timeout(limit, probed).await.expect("room again once one of them is gone");
    monitoring.shutdown().await;
}
