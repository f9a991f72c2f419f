use std::convert::Infallible;
use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use rocketmq_replication::{Epoch, Holder, ReplicaId};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::*;

const TIMING: Timing = Timing {
    lease: Duration::from_millis(600),
    renew_deadline: Duration::from_millis(450),
    retry: Duration::from_millis(50),
};

/// One Lease behind the API, and what goes wrong with the next write.
#[derive(Clone, Default)]
struct ApiServer(Arc<Mutex<State>>, Arc<Notify>);

#[derive(Default)]
struct State {
    lease: Option<Value>,
    version: u64,
    fault: Fault,
    writes: usize,
    watches: usize,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Fault {
    #[default]
    None,
    /// It is stored, and the answer is an error.
    StoredButError,
    /// It is not answered.
    Silent,
    Forbidden,
}

impl ApiServer {
    fn record(&self) -> LeaseRecord {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        LeaseRecord::new(Client::new(service, "ns"), "ns", "broker-a", TIMING)
    }

    fn put(&self, mut lease: Value) {
        let mut state = self.0.lock();
        state.version += 1;
        lease["metadata"]["resourceVersion"] = json!(state.version.to_string());
        lease["metadata"]["name"] = json!("broker-a");
        lease["apiVersion"] = json!("coordination.k8s.io/v1");
        lease["kind"] = json!("Lease");
        state.lease = Some(lease);
        self.1.notify_waiters();
    }

    /// Returns once the server is as `wanted` says.
    async fn until(&self, wanted: impl Fn(&State) -> bool) {
        loop {
            let changed = self.1.notified();
            if wanted(&self.0.lock()) {
                return;
            }
            changed.await;
        }
    }

    fn put_record(&self, record: &GroupRecord) {
        let annotations = record.to_annotations();
        let metadata = json!({"annotations": annotations, "labels": {"kept": "yes"}});
        self.put(json!({"metadata": metadata, "spec": {"preferredHolder": "kept"}}));
    }

    fn lease(&self) -> Value {
        self.0.lock().lease.clone().expect("a lease")
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let path = request.uri().path().to_owned();
        assert!(path.starts_with("/apis/coordination.k8s.io/v1/namespaces/ns/leases"), "{path}");
        if !path.ends_with("/broker-a") {
            assert!(query.contains("fieldSelector=metadata.name%3Dbroker-a"), "{query}");
            return self.list_or_watch(query.contains("watch=true")).await;
        }
        if request.method() == Method::GET {
            let lease = self.0.lock().lease.clone();
            return match lease {
                Some(lease) => respond(StatusCode::OK, &lease),
                None => failure(StatusCode::NOT_FOUND),
            };
        }
        assert_eq!(request.method(), Method::PUT);
        let body = request.into_body().collect_bytes().await.expect("a body");
        let next: Value = serde_json::from_slice(&body).expect("JSON");
        let fault = {
            let mut state = self.0.lock();
            state.writes += 1;
            state.fault
        };
        let current = self.lease()["metadata"]["resourceVersion"].clone();
        match fault {
            Fault::Silent => std::future::pending().await,
            Fault::Forbidden => failure(StatusCode::FORBIDDEN),
            _ if next["metadata"]["resourceVersion"] != current => failure(StatusCode::CONFLICT),
            _ => {
                self.put(next);
                match fault {
                    Fault::StoredButError => failure(StatusCode::GATEWAY_TIMEOUT),
                    _ => respond(StatusCode::OK, &self.lease()),
                }
            }
        }
    }

    async fn list_or_watch(&self, is_watch: bool) -> Response<Body> {
        if !is_watch {
            let state = self.0.lock();
            let list = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "LeaseList",
                "metadata": {"resourceVersion": state.version.to_string()},
                "items": state.lease.iter().collect::<Vec<_>>(),
            });
            return respond(StatusCode::OK, &list);
        }
        let begun = {
            let mut state = self.0.lock();
            state.watches += 1;
            self.1.notify_waiters();
            state.version
        };
        self.until(|state| state.version > begun).await;
        let event = json!({"type": "MODIFIED", "object": self.lease()});
        Response::new(Body::from(format!("{event}\n").into_bytes()))
    }
}

fn respond(status: StatusCode, value: &Value) -> Response<Body> {
    let body = Body::from(serde_json::to_vec(value).expect("JSON"));
    Response::builder().status(status).body(body).expect("a response")
}

fn failure(status: StatusCode) -> Response<Body> {
    let code = status.as_u16();
    let reason = if status == StatusCode::NOT_FOUND { "NotFound" } else { "Test" };
    respond(
        status,
        &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "no", "reason": reason, "code": code}),
    )
}

fn record(epoch: i32) -> GroupRecord {
    GroupRecord {
        epoch: Epoch(epoch),
        master: Some(ReplicaId(1)),
        in_sync: [ReplicaId(1)].into(),
        ..GroupRecord::default()
    }
}

async fn read(lease: &LeaseRecord) -> Versioned {
    lease.read().await.expect("it answers").expect("a record")
}

#[tokio::test]
async fn one_of_two_that_compete_writes_and_the_lease_shows_it_to_people() {
    let server = ApiServer::default();
    let (one, two) = (server.record(), server.record());
    assert_eq!(one.read().await.expect("it answers"), None);
    server.put_record(&record(1));
    let seen = read(&one).await;
    assert_eq!((seen.record.clone(), read(&two).await), (record(1), seen.clone()));
    let taken = GroupRecord {
        holder: Some(Holder { incarnation: "pod:1".to_owned(), renewals: 0 }),
        ..record(1)
    };
    let Replaced::Written(version) = one.replace(&seen.version, &taken).await else {
        panic!("not written");
    };
    assert_eq!(two.replace(&seen.version, &record(2)).await, Replaced::Conflict);
    assert_eq!(read(&two).await, Versioned { version: version.clone(), record: taken.clone() });
    let lease = server.lease();
    assert_eq!(lease["metadata"]["labels"]["kept"], "yes", "what others wrote stays");
    let spec = &lease["spec"];
    assert_eq!(
        (&spec["holderIdentity"], &spec["leaseTransitions"], &spec["preferredHolder"]),
        (&json!("pod:1"), &json!(1), &json!("kept"))
    );
    assert!(spec["renewTime"].is_string() && spec["acquireTime"].is_string(), "{spec}");
    assert!(matches!(one.replace(&version, &record(2)).await, Replaced::Written(_)));
    let lease = server.lease();
    assert_eq!(lease["spec"]["holderIdentity"], Value::Null);
    assert_eq!(lease["metadata"]["annotations"].get("rocketmq.rs/holder"), None);
}

#[tokio::test]
async fn an_outcome_that_nobody_knows_is_called_so() {
    let server = ApiServer::default();
    let lease = server.record();
    server.put_record(&record(1));
    let seen = read(&lease).await;
    server.0.lock().fault = Fault::StoredButError;
    let outcome = lease.replace(&seen.version, &record(2)).await;
    assert!(matches!(outcome, Replaced::Unknown(_)), "{outcome:?}");
    assert_eq!(server.0.lock().writes, 1, "it is not tried a second time");
    let seen = read(&lease).await;
    assert_eq!(seen.record, record(2));
    server.0.lock().fault = Fault::Silent;
    let outcome = lease.replace(&seen.version, &record(3)).await;
    assert!(matches!(&outcome, Replaced::Unknown(why) if why.contains("150 ms")), "{outcome:?}");
    server.0.lock().fault = Fault::Forbidden;
    assert_eq!(lease.replace(&seen.version, &record(3)).await, Replaced::Conflict);
}

#[tokio::test]
async fn a_damaged_record_is_not_taken_for_none() {
    let server = ApiServer::default();
    let lease = server.record();
    server.put(json!({"metadata": {"annotations": {"rocketmq.rs/epoch": "x"}}}));
    let error = lease.read().await.expect_err("damaged").to_string();
    assert!(error.contains("broker-a") && error.contains("rocketmq.rs/epoch"), "{error}");
}

#[tokio::test]
async fn changes_are_told() {
    let server = ApiServer::default();
    let lease = server.record();
    let (told, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let changed = move || {
        let _ = told.send(());
    };
    let watching = lease.watch(&changed);
    let test = async {
        assert_eq!(seen.recv().await, Some(()), "as it is at first");
        assert_eq!(lease.read().await.expect("it answers"), None);
        for epoch in 1..4 {
            let watches = server.0.lock().watches;
            server.put_record(&record(epoch));
            while read_or_none(&lease).await != Some(record(epoch)) {
                seen.recv().await.expect("told");
            }
            // The next change comes when it is watched again.
            server.until(|state| state.watches > watches).await;
        }
    };
    tokio::select! {
        () = watching => unreachable!("it watches for ever"),
        () = test => {}
    }
}

async fn read_or_none(lease: &LeaseRecord) -> Option<GroupRecord> {
    lease.read().await.expect("it answers").map(|versioned| versioned.record)
}
