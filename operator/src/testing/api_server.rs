//! An API server in memory: get, list by labels, create, replace, apply, merge, delete; resource
//! versions, generations, finalizers. It knows no schema and no admission.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::apply::Child;
use crate::build::{config, names};

type Key = (String, String);

#[derive(Default)]
struct State {
    /// By plural and name.
    objects: BTreeMap<Key, Value>,
    version: u64,
    writes: Vec<String>,
    events: Vec<String>,
    notes: Vec<String>,
    refuse_writes_to: Option<String>,
}

/// The server; clones are the same one.
#[derive(Clone, Default)]
pub(crate) struct ApiServer {
    state: Arc<Mutex<State>>,
}

impl ApiServer {
    /// A client of this server.
    pub(crate) fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        Client::new(service, "ns")
    }

    /// Puts an object there as a user would.
    pub(crate) fn put(&self, manifest: Value) {
        let plural = plural_of(manifest["kind"].as_str().expect("a kind"));
        let name = manifest["metadata"]["name"].as_str().expect("a name").to_owned();
        self.state.lock().store((plural, name), manifest);
    }

    /// Changes an object as a user would; the generation follows the spec.
    pub(crate) fn edit(&self, plural: &str, name: &str, edit: impl FnOnce(&mut Value)) {
        let mut state = self.state.lock();
        let key = (plural.to_owned(), name.to_owned());
        let mut object = state.objects.get(&key).cloned().expect("an object to edit");
        edit(&mut object);
        state.store(key, object);
    }

    /// Asks for a deletion as a user would.
    pub(crate) fn delete(&self, plural: &str, name: &str) {
        self.state.lock().delete((plural.to_owned(), name.to_owned()));
    }

    /// An object as JSON.
    pub(crate) fn value(&self, plural: &str, name: &str) -> Option<Value> {
        self.state.lock().objects.get(&(plural.to_owned(), name.to_owned())).cloned()
    }

    /// An object.
    pub(crate) fn get<K: Child>(&self, name: &str) -> Option<K> {
        let value = self.value(&K::plural(&()), name)?;
        Some(serde_json::from_value(value).expect("an object of its kind"))
    }

    /// Every object of a kind.
    pub(crate) fn all<K: Child>(&self) -> Vec<K> {
        self.names(&K::plural(&())).iter().filter_map(|name| self.get(name)).collect()
    }

    /// Names of the objects of a kind.
    pub(crate) fn names(&self, plural: &str) -> Vec<String> {
        let state = self.state.lock();
        state.objects.keys().filter(|(p, _)| p == plural).map(|(_, n)| n.clone()).collect()
    }

    /// Writes since the last call, as `VERB plural/name`; events are not among them.
    pub(crate) fn take_writes(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().writes)
    }

    /// Reasons of the events since the last call.
    pub(crate) fn take_events(&self) -> Vec<String> {
        let mut state = self.state.lock();
        state.notes.clear();
        std::mem::take(&mut state.events)
    }

    /// Notes of the events since the last call of this or of [`ApiServer::take_events`].
    pub(crate) fn take_notes(&self) -> Vec<String> {
        let mut state = self.state.lock();
        state.events.clear();
        std::mem::take(&mut state.notes)
    }

    /// Answers 500 to writes of a kind from now on.
    pub(crate) fn refuse_writes_to(&self, plural: Option<&str>) {
        self.state.lock().refuse_writes_to = plural.map(str::to_owned);
    }

    /// Does what the StatefulSet controller, scheduler and kubelet would: claims, pods, readiness.
    pub(crate) fn run_workloads(&self) {
        let mut state = self.state.lock();
        let sets: Vec<(Key, Value)> = state
            .objects
            .iter()
            .filter(|((plural, _), _)| plural == "statefulsets")
            .map(|(key, set)| (key.clone(), set.clone()))
            .collect();
        for ((_, name), mut set) in sets {
            let revision = config::checksum(&set["spec"]["template"].to_string());
            let hash = format!("{name}-{}", &revision[..10]);
            set["status"] = json!({
                "observedGeneration": set["metadata"]["generation"],
                "updateRevision": hash,
                "replicas": set["spec"]["replicas"],
            });
            for ordinal in 0..set["spec"]["replicas"].as_i64().expect("replicas") {
                let pod_name = format!("{name}-{ordinal}");
                for template in set["spec"]["volumeClaimTemplates"].as_array().into_iter().flatten()
                {
                    let claim = format!(
                        "{}-{pod_name}",
                        template["metadata"]["name"].as_str().expect("name")
                    );
                    let key = ("persistentvolumeclaims".to_owned(), claim.clone());
                    let mut object =
                        state.objects.get(&key).cloned().unwrap_or_else(|| template.clone());
                    object["metadata"]["name"] = json!(claim);
                    object["metadata"]["namespace"] = json!("ns");
                    object["status"] =
                        json!({"capacity": object["spec"]["resources"]["requests"].clone()});
                    state.store(key, object);
                }
                let key = ("pods".to_owned(), pod_name.clone());
                if !state.objects.contains_key(&key) {
                    let mut pod = set["spec"]["template"].clone();
                    pod["apiVersion"] = json!("v1");
                    pod["kind"] = json!("Pod");
                    pod["metadata"]["name"] = json!(pod_name);
                    pod["metadata"]["namespace"] = json!("ns");
                    pod["metadata"]["labels"]["controller-revision-hash"] = json!(hash);
                    pod["metadata"]["labels"][names::POD_NAME_LABEL] = json!(pod_name);
                    pod["status"] = json!({
                        "conditions": [{"type": "Ready", "status": "True"}],
                        // Each pod answers under its own name.
                        "podIP": pod_name,
                    });
                    state.store(key, pod);
                }
            }
            let replicas = set["spec"]["replicas"].as_i64().expect("replicas");
            for surplus in replicas..replicas + 9 {
                let key = ("pods".to_owned(), format!("{name}-{surplus}"));
                state.objects.remove(&key);
            }
            state.objects.insert(("statefulsets".to_owned(), name), set);
        }
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let bytes = body.collect_bytes().await.expect("a body");
        let body: Value = if bytes.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&bytes).expect("a JSON body")
        };
        let apply = parts
            .headers
            .get(http::header::CONTENT_TYPE)
            .is_some_and(|v| v.to_str().is_ok_and(|v| v.contains("apply-patch")));
        let (status, value) = self.state.lock().answer(
            &parts.method,
            parts.uri.path(),
            parts.uri.query().unwrap_or_default(),
            &body,
            apply,
        );
        Response::builder()
            .status(status)
            .body(Body::from(value.to_string().into_bytes()))
            .expect("a response")
    }
}

impl State {
    fn answer(
        &mut self,
        method: &Method,
        path: &str,
        query: &str,
        body: &Value,
        apply: bool,
    ) -> (StatusCode, Value) {
        let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
        let at = segments.iter().position(|s| *s == "namespaces").expect("a namespaced path");
        let plural = segments[at + 2];
        let name = segments.get(at + 3).copied();
        let subresource = segments.get(at + 4).copied();
        let key = (plural.to_owned(), name.unwrap_or_default().to_owned());
        if plural == "events" {
            self.events.push(body["reason"].as_str().unwrap_or_default().to_owned());
            self.notes.push(body["note"].as_str().unwrap_or_default().to_owned());
            return (StatusCode::CREATED, body.clone());
        }
        if *method != Method::GET {
            if self.refuse_writes_to.as_deref() == Some(plural) {
                return refused(StatusCode::INTERNAL_SERVER_ERROR, "InternalError");
            }
            let target = name.or(body["metadata"]["name"].as_str()).unwrap_or_default();
            let subresource = subresource.map(|s| format!("/{s}")).unwrap_or_default();
            self.writes.push(format!("{method} {plural}/{target}{subresource}"));
        }
        match (method.as_str(), name) {
            ("GET", Some(_)) => match self.objects.get(&key) {
                Some(object) => (StatusCode::OK, object.clone()),
                None => refused(StatusCode::NOT_FOUND, "NotFound"),
            },
            ("GET", None) => self.list(plural, query),
            ("POST", None) => {
                let name = body["metadata"]["name"].as_str().expect("a name").to_owned();
                let key = (plural.to_owned(), name);
                if self.objects.contains_key(&key) {
                    return refused(StatusCode::CONFLICT, "AlreadyExists");
                }
                (StatusCode::CREATED, self.store(key, body.clone()))
            }
            ("PUT", Some(_)) => match self.objects.get(&key) {
                None => refused(StatusCode::NOT_FOUND, "NotFound"),
                Some(old) if conflicts(old, body) => refused(StatusCode::CONFLICT, "Conflict"),
                Some(_) => (StatusCode::OK, self.store(key, body.clone())),
            },
            ("PATCH", Some(_)) => self.patch(key, body, apply, subresource),
            ("DELETE", Some(_)) => {
                let uid = &body["preconditions"]["uid"];
                match self.objects.get(&key) {
                    None => refused(StatusCode::NOT_FOUND, "NotFound"),
                    Some(old) if uid.is_string() && *uid != old["metadata"]["uid"] => {
                        refused(StatusCode::CONFLICT, "Conflict")
                    }
                    Some(old) => {
                        let old = old.clone();
                        self.delete(key);
                        (StatusCode::OK, old)
                    }
                }
            }
            other => panic!("{other:?} {path} is not known to this server"),
        }
    }

    fn list(&self, plural: &str, query: &str) -> (StatusCode, Value) {
        let selector = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("labelSelector="))
            .unwrap_or_default()
            .replace("%3D", "=")
            .replace("%2F", "/")
            .replace("%2C", ",");
        let items: Vec<&Value> = self
            .objects
            .iter()
            .filter(|((p, _), _)| p == plural)
            .map(|(_, object)| object)
            .filter(|object| {
                selector.split(',').filter(|s| !s.is_empty()).all(|pair| {
                    let (key, value) = pair.split_once('=').expect("key=value");
                    object["metadata"]["labels"][key] == json!(value)
                })
            })
            .collect();
        let list = json!({
            "apiVersion": "v1", "kind": "List",
            "metadata": {"resourceVersion": self.version.to_string()},
            "items": items,
        });
        (StatusCode::OK, list)
    }

    fn patch(
        &mut self,
        key: Key,
        body: &Value,
        apply: bool,
        subresource: Option<&str>,
    ) -> (StatusCode, Value) {
        let Some(old) = self.objects.get(&key).cloned() else {
            if apply && subresource.is_none() {
                return (StatusCode::CREATED, self.store(key, body.clone()));
            }
            return refused(StatusCode::NOT_FOUND, "NotFound");
        };
        if conflicts(&old, body) {
            return refused(StatusCode::CONFLICT, "Conflict");
        }
        let mut object = old;
        if subresource == Some("status") {
            object["status"] = body["status"].clone();
        } else {
            merge(&mut object, body);
        }
        let stored = self.store(key.clone(), object);
        let finalizers = stored["metadata"]["finalizers"].as_array().map_or(0, Vec::len);
        if stored["metadata"]["deletionTimestamp"].is_string() && finalizers == 0 {
            self.objects.remove(&key);
        }
        (StatusCode::OK, stored)
    }

    /// Stores an object with the metadata a server keeps.
    fn store(&mut self, key: Key, mut object: Value) -> Value {
        self.version += 1;
        let version = self.version;
        let old = self.objects.get(&key);
        let generation = match old {
            None => 1,
            Some(old) if old["spec"] == object["spec"] => {
                old["metadata"]["generation"].as_i64().unwrap_or(1)
            }
            Some(old) => old["metadata"]["generation"].as_i64().unwrap_or(1) + 1,
        };
        let meta = &mut object["metadata"];
        meta["resourceVersion"] = json!(version.to_string());
        meta["generation"] = json!(generation);
        if !meta["uid"].is_string() {
            meta["uid"] = json!(format!("uid-{version}"));
        }
        if !meta["creationTimestamp"].is_string() {
            // A second apart, so that age orders objects.
            let age = i64::try_from(version).expect("few writes");
            let created = Timestamp::from_second(Timestamp::now().as_second() + age);
            meta["creationTimestamp"] = json!(created.expect("in range").to_string());
        }
        self.objects.insert(key, object.clone());
        object
    }

    fn delete(&mut self, key: Key) {
        let Some(object) = self.objects.get_mut(&key) else { return };
        if object["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty()) {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
        } else {
            self.objects.remove(&key);
        }
    }
}

fn conflicts(old: &Value, body: &Value) -> bool {
    let version = &body["metadata"]["resourceVersion"];
    version.is_string() && *version != old["metadata"]["resourceVersion"]
}

fn refused(status: StatusCode, reason: &str) -> (StatusCode, Value) {
    let body = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure",
        "message": reason, "reason": reason, "code": status.as_u16(),
    });
    (status, body)
}

/// JSON merge patch, which is near enough to an apply by the only manager.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

fn plural_of(kind: &str) -> String {
    format!("{}s", kind.to_lowercase())
}

#[test]
fn the_selector_label_is_the_one_that_is_listed_by() {
    assert_eq!(names::selector_text("a", None), "rocketmq.rs/cluster=a");
}
