//! The one object of a Kubernetes API server that a broker group needs: its Lease, with
//! compare-and-swap and watches, over HTTP on loopback.
//!
//! Each broker is given an address of its own, so that one of them can be cut off from it.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use axum::body::{Body, Bytes};
use axum::extract::{Path as UrlPath, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use futures::stream;
use rocketmq_replication::{GroupRecord, Versioned};
use serde_json::{Value, json};
use tokio::sync::watch;

/// Namespace of every Lease here.
pub const NAMESPACE: &str = "e2e";

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases";

/// The server. Dropping it ends it.
pub struct LeaseServer {
    leases: Arc<Leases>,
    runtime: tokio::runtime::Runtime,
}

/// The way of one client to the server.
pub struct Road {
    kubeconfig: PathBuf,
    is_cut: Arc<AtomicBool>,
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct Leases {
    state: Mutex<Objects>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct Objects {
    by_name: BTreeMap<String, Value>,
    version: u64,
}

#[derive(Clone)]
struct Client {
    leases: Arc<Leases>,
    is_cut: Arc<AtomicBool>,
    cut: watch::Receiver<()>,
}

impl LeaseServer {
    /// Starts one without any Lease.
    pub fn start() -> Result<LeaseServer> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("lease-server")
            .enable_all()
            .build()?;
        Ok(LeaseServer { leases: Arc::default(), runtime })
    }

    /// A way for one client, with a kubeconfig that leads there in `directory`.
    pub fn road(&self, directory: &Path) -> Result<Road> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let kubeconfig = directory.join("kubeconfig");
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "e2e",
            "clusters": [{"name": "e2e", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "e2e", "user": {}}],
            "contexts": [{
                "name": "e2e",
                "context": {"cluster": "e2e", "user": "e2e", "namespace": NAMESPACE},
            }],
        });
        std::fs::write(&kubeconfig, text.to_string())
            .with_context(|| format!("write {}", kubeconfig.display()))?;
        let is_cut = Arc::new(AtomicBool::new(false));
        let (changed, cut) = watch::channel(());
        let client = Client { leases: Arc::clone(&self.leases), is_cut: Arc::clone(&is_cut), cut };
        let router = Router::new()
            .route(LEASES, get(list))
            .route(&format!("{LEASES}/{{name}}"), get(read).put(replace))
            .with_state(client);
        self.runtime.spawn(async move {
            if let Ok(listener) = tokio::net::TcpListener::from_std(listener) {
                // It ends with the runtime.
                let _ = axum::serve(listener, router).await;
            }
        });
        Ok(Road { kubeconfig, is_cut, changed })
    }

    /// The record of a group, if there is one.
    pub fn record(&self, group: &str) -> Result<Option<Versioned>> {
        let objects = self.leases.lock();
        let Some(lease) = objects.by_name.get(group) else { return Ok(None) };
        let annotations: BTreeMap<String, String> =
            serde_json::from_value(lease["metadata"]["annotations"].clone())?;
        let version = lease["metadata"]["resourceVersion"].as_str().context("no version")?;
        let record = GroupRecord::from_annotations(&annotations)?;
        Ok(Some(Versioned { version: version.to_owned(), record }))
    }

    /// Writes a record as whoever supervises the group does: on the condition that it still has
    /// `version`, or that there is none yet. False if the condition does not hold.
    pub fn write(&self, group: &str, version: Option<&str>, record: &GroupRecord) -> bool {
        let mut objects = self.leases.lock();
        let current = objects.by_name.get(group);
        let found = current.and_then(|lease| lease["metadata"]["resourceVersion"].as_str());
        if found != version {
            return false;
        }
        let mut lease = current.cloned().unwrap_or_else(|| {
            json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": group, "namespace": NAMESPACE, "uid": group},
                "spec": {},
            })
        });
        lease["metadata"]["annotations"] = json!(record.to_annotations());
        objects.put(group, lease);
        self.leases.changed.send_replace(objects.version);
        true
    }
}

impl Road {
    /// Where a client reads how to get to the server (`KUBECONFIG`).
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Cuts the way, or mends it: while it is cut requests stay without an answer, as with a network
    /// that loses every packet.
    pub fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Release);
        self.changed.send_replace(());
    }
}

impl Leases {
    fn lock(&self) -> MutexGuard<'_, Objects> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Objects {
    fn put(&mut self, name: &str, mut lease: Value) {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.by_name.insert(name.to_owned(), lease);
    }
}

impl Client {
    /// Comes back when the way is not cut.
    async fn pass(&self) {
        let mut cut = self.cut.clone();
        while self.is_cut.load(Ordering::Acquire) {
            if cut.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

fn failure(code: StatusCode, reason: &str, message: String) -> Response {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code.as_u16(),
        "reason": reason, "message": message,
    });
    (code, Json(status)).into_response()
}

async fn read(
    State(client): State<Client>,
    UrlPath((_, name)): UrlPath<(String, String)>,
) -> Response {
    client.pass().await;
    let found = client.leases.lock().by_name.get(&name).cloned();
    client.pass().await;
    match found {
        Some(lease) => Json(lease).into_response(),
        None => failure(StatusCode::NOT_FOUND, "NotFound", format!("leases {name:?} not found")),
    }
}

async fn replace(
    State(client): State<Client>,
    UrlPath((_, name)): UrlPath<(String, String)>,
    body: Bytes,
) -> Response {
    client.pass().await;
    let answer = {
        let mut objects = client.leases.lock();
        match checked(objects.by_name.get(&name), &body) {
            Ok(lease) => {
                objects.put(&name, lease);
                client.leases.changed.send_replace(objects.version);
                Json(objects.by_name[&name].clone()).into_response()
            }
            Err((code, reason, message)) => failure(code, reason, message),
        }
    };
    client.pass().await;
    answer
}

fn checked(
    current: Option<&Value>,
    body: &[u8],
) -> Result<Value, (StatusCode, &'static str, String)> {
    let current =
        current.ok_or((StatusCode::NOT_FOUND, "NotFound", "lease not found".to_owned()))?;
    let lease: Value = serde_json::from_slice(body)
        .map_err(|error| (StatusCode::BAD_REQUEST, "BadRequest", error.to_string()))?;
    if lease["metadata"]["resourceVersion"] != current["metadata"]["resourceVersion"] {
        let message = "the object has been modified".to_owned();
        return Err((StatusCode::CONFLICT, "Conflict", message));
    }
    Ok(lease)
}

/// A list or, with `watch`, what changes from then on.
async fn list(
    State(client): State<Client>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    client.pass().await;
    let name = query
        .get("fieldSelector")
        .and_then(|selector| selector.strip_prefix("metadata.name="))
        .map(str::to_owned);
    if query.get("watch").is_none_or(|watch| watch != "true" && watch != "1") {
        let objects = client.leases.lock();
        let items: Vec<&Value> = objects
            .by_name
            .iter()
            .filter(|(found, _)| name.as_ref().is_none_or(|name| name == *found))
            .map(|(_, lease)| lease)
            .collect();
        let list = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "LeaseList",
            "metadata": {"resourceVersion": objects.version.to_string()},
            "items": items,
        });
        return Json(list).into_response();
    }
    let from = query.get("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or(0);
    let changed = client.leases.changed.subscribe();
    let events = stream::unfold((client, changed, from), move |(client, mut changed, from)| {
        let name = name.clone();
        async move {
            loop {
                client.pass().await;
                let newer = newest(&client.leases, name.as_deref(), from);
                client.pass().await;
                if let Some((version, event)) = newer {
                    return Some((Ok::<_, Infallible>(event), (client, changed, version)));
                }
                changed.changed().await.ok()?;
            }
        }
    });
    Body::from_stream(events).into_response()
}

/// The oldest state of an object that is newer than `from`, as a line of a watch.
fn newest(leases: &Leases, name: Option<&str>, from: u64) -> Option<(u64, String)> {
    let objects = leases.lock();
    let version = |lease: &Value| -> u64 {
        let text = lease["metadata"]["resourceVersion"].as_str();
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    };
    let (_, lease) = objects
        .by_name
        .iter()
        .filter(|(found, lease)| name.is_none_or(|name| name == *found) && version(lease) > from)
        .min_by_key(|(_, lease)| version(lease))?;
    let event = json!({"type": "MODIFIED", "object": lease});
    Some((version(lease), format!("{event}\n")))
}
