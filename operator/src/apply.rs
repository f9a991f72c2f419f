//! Writes to the API server: server-side apply with one field manager, only when something differs.
//!
//! A child is left alone when two things hold: its annotation says that exactly this was applied
//! last (so a field that is no longer wanted is taken back), and every wanted value is still there
//! (so a change made by somebody else is undone). What others add is theirs.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::build::{config, names};
use crate::error::Error;
use crate::metrics::Metrics;

/// The one field manager.
pub const FIELD_MANAGER: &str = "rocketmq-operator";

/// A namespaced object of a kind known at compile time.
pub trait Child:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
}

impl<T> Child for T where
    T: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
        + Send
        + Sync
        + 'static
{
}

/// Reads and writes objects of one namespace, and counts the writes.
#[derive(Clone)]
pub struct Objects {
    client: Client,
    namespace: String,
    metrics: Metrics,
}

impl Objects {
    /// Objects of `namespace`.
    pub fn new(client: Client, namespace: &str, metrics: Metrics) -> Self {
        Self { client, namespace: namespace.to_owned(), metrics }
    }

    fn api<K: Child>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Every object of a kind that carries the labels.
    ///
    /// # Errors
    /// Fails when the API server does.
    pub async fn list<K: Child>(&self, selector: &str) -> Result<Vec<K>, Error> {
        let list = self
            .api::<K>()
            .list(&ListParams::default().labels(selector))
            .await
            .map_err(Error::kubernetes(format!("list {} with {selector}", K::kind(&()))))?;
        Ok(list.items)
    }

    /// One object, read from the API server and no cache.
    ///
    /// # Errors
    /// Fails when the API server does.
    pub async fn get<K: Child>(&self, name: &str) -> Result<Option<K>, Error> {
        self.api::<K>()
            .get_opt(name)
            .await
            .map_err(Error::kubernetes(format!("get {} {name}", K::kind(&()))))
    }

    /// Brings a child to `desired`; `live` is what was read. Returns the child as it is afterwards
    /// and whether something was written.
    ///
    /// # Errors
    /// Fails when the API server does, and with [`Error::NotYet`] while a child of an earlier
    /// cluster of this name is still being removed.
    pub async fn apply<K: Child>(&self, desired: &K, live: Option<&K>) -> Result<(K, bool), Error> {
        let name = desired.name_any();
        let kind = K::kind(&());
        if let Some(live) = live
            && let Some(wait) = foreign(desired, live)
        {
            return Err(Error::NotYet(format!("{kind} {name}: {wait}")));
        }
        let body = stamped(desired)?;
        if let Some(live) = live {
            let before = to_value(live)?;
            if contains(&before, &body) {
                return Ok((live.clone(), false));
            }
        }
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let after = self
            .api::<K>()
            .patch(&name, &params, &Patch::Apply(&body))
            .await
            .map_err(Error::kubernetes(format!("apply {kind} {name}")))?;
        self.metrics.wrote(&kind);
        Ok((after, true))
    }

    /// Makes an object that is not there.
    ///
    /// # Errors
    /// Fails when the API server does, and with a conflict when it is there.
    pub async fn create<K: Child>(&self, object: &K) -> Result<K, Error> {
        let params = PostParams { field_manager: manager(), ..PostParams::default() };
        let (kind, name) = (K::kind(&()), object.name_any());
        let made = self
            .api::<K>()
            .create(&params, object)
            .await
            .map_err(Error::kubernetes(format!("create {kind} {name}")))?;
        self.metrics.wrote(&kind);
        Ok(made)
    }

    /// Puts `object` in the place of the one that it was read from.
    ///
    /// # Errors
    /// Fails when the API server does, and with a conflict when it has changed since it was read.
    pub async fn replace<K: Child>(&self, object: &K) -> Result<K, Error> {
        let params = PostParams { field_manager: manager(), ..PostParams::default() };
        let (kind, name) = (K::kind(&()), object.name_any());
        let replaced = self
            .api::<K>()
            .replace(&name, &params, object)
            .await
            .map_err(Error::kubernetes(format!("replace {kind} {name}")))?;
        self.metrics.wrote(&kind);
        Ok(replaced)
    }

    /// Sets the status of a custom resource; fields left out are removed.
    ///
    /// # Errors
    /// Fails when the API server does.
    pub async fn apply_status<K: Child>(
        &self,
        name: &str,
        status: &impl Serialize,
    ) -> Result<(), Error> {
        let body = serde_json::json!({
            "apiVersion": K::api_version(&()),
            "kind": K::kind(&()),
            "metadata": { "name": name },
            "status": status,
        });
        let params = PatchParams::apply(FIELD_MANAGER).force();
        self.api::<K>()
            .patch_status(name, &params, &Patch::Apply(&body))
            .await
            .map_err(Error::kubernetes(format!("set status of {} {name}", K::kind(&()))))?;
        self.metrics.wrote(&K::kind(&()));
        Ok(())
    }

    /// Merges a patch into an object.
    ///
    /// # Errors
    /// Fails when the API server does.
    pub async fn merge<K: Child>(&self, name: &str, patch: &Value) -> Result<(), Error> {
        let params = PatchParams { field_manager: manager(), ..PatchParams::default() };
        self.api::<K>()
            .patch(name, &params, &Patch::Merge(patch))
            .await
            .map_err(Error::kubernetes(format!("patch {} {name}", K::kind(&()))))?;
        self.metrics.wrote(&K::kind(&()));
        Ok(())
    }

    /// Deletes exactly the object that was read: a namesake made since then stays. An object that
    /// is gone counts as deleted.
    ///
    /// # Errors
    /// Fails when the API server does.
    pub async fn delete<K: Child>(&self, object: &K, params: DeleteParams) -> Result<(), Error> {
        let name = object.name_any();
        let params = DeleteParams {
            preconditions: Some(kube::api::Preconditions {
                uid: object.uid(),
                resource_version: None,
            }),
            ..params
        };
        match self.api::<K>().delete(&name, &params).await {
            Ok(_) => self.metrics.wrote(&K::kind(&())),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => {
                return Err(Error::kubernetes(format!("delete {} {name}", K::kind(&())))(error));
            }
        }
        Ok(())
    }
}

fn manager() -> Option<String> {
    Some(FIELD_MANAGER.to_owned())
}

/// Why `live` may not be touched yet: it is going away, or belongs to another owner of this name.
fn foreign<K: Child>(desired: &K, live: &K) -> Option<&'static str> {
    if live.meta().deletion_timestamp.is_some() {
        return Some("is being removed");
    }
    let controller = |object: &K| {
        object
            .owner_references()
            .iter()
            .find(|owner| owner.controller == Some(true))
            .map(|owner| owner.uid.clone())
    };
    match (controller(desired), controller(live)) {
        (Some(ours), Some(theirs)) if ours != theirs => Some("belongs to another owner"),
        _ => None,
    }
}

/// `desired` as JSON with the hash of itself in an annotation.
fn stamped<K: Child>(desired: &K) -> Result<Value, Error> {
    let mut body = to_value(desired)?;
    // serde_json's maps are sorted, so equal objects are equal texts.
    let hash = config::checksum(&body.to_string());
    body["metadata"]["annotations"][names::APPLIED_ANNOTATION] = Value::String(hash);
    Ok(body)
}

fn to_value<K: Child>(object: &K) -> Result<Value, Error> {
    serde_json::to_value(object).map_err(|source| Error::Json {
        what: format!("{} {}", K::kind(&()), object.name_any()),
        source,
    })
}

/// Whether every value of `wanted` is in `live`.
fn contains(live: &Value, wanted: &Value) -> bool {
    contains_at(live, wanted, false)
}

/// `quantities`: whether texts below are Kubernetes quantities, which the API server rewrites
/// (`1024Mi` comes back as `1Gi`).
fn contains_at(live: &Value, wanted: &Value, quantities: bool) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => wanted.iter().all(|(key, value)| {
            let quantities = quantities || key == "requests" || key == "limits";
            live.get(key).is_some_and(|found| contains_at(found, value, quantities))
                // The API server drops empty maps and lists.
                || (!live.contains_key(key) && is_empty(value))
        }),
        (Value::Array(live), Value::Array(wanted)) => match wanted.first().and_then(merge_key) {
            Some(merge_key) => wanted.iter().all(|item| {
                live.iter()
                    .find(|candidate| candidate.get(merge_key) == item.get(merge_key))
                    .is_some_and(|found| contains_at(found, item, quantities))
            }),
            None => {
                live.len() == wanted.len()
                    && live.iter().zip(wanted).all(|(l, w)| contains_at(l, w, quantities))
            }
        },
        (Value::String(live), Value::String(wanted)) if quantities => {
            live == wanted || same_quantity(live, wanted)
        }
        _ => live == wanted,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

/// The field by which the API server treats a list as a map.
fn merge_key(item: &Value) -> Option<&'static str> {
    ["uid", "mountPath", "name"].into_iter().find(|key| item.get(key).is_some_and(Value::is_string))
}

/// Whether two quantities are the same number.
pub fn same_quantity(a: &str, b: &str) -> bool {
    match (quantity(a), quantity(b)) {
        (Some(a), Some(b)) => (a - b).abs() <= f64::EPSILON * a.abs().max(b.abs()),
        _ => false,
    }
}

/// The number a Kubernetes quantity stands for.
pub fn quantity(text: &str) -> Option<f64> {
    let split = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-')))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let number: f64 = number.parse().ok()?;
    let factor = match suffix {
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1024.0_f64.powi(2),
        "Gi" => 1024.0_f64.powi(3),
        "Ti" => 1024.0_f64.powi(4),
        "Pi" => 1024.0_f64.powi(5),
        "Ei" => 1024.0_f64.powi(6),
        exponent => {
            let power: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            10.0_f64.powi(power)
        }
    };
    Some(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_others_add_is_no_difference() {
        let live = json!({
            "metadata": {"labels": {"a": "1", "theirs": "x"}, "resourceVersion": "7"},
            "spec": {"containers": [
                {"name": "sidecar", "image": "s"},
                {"name": "broker", "image": "b", "imagePullPolicy": "Always"},
            ]},
        });
        let wanted = json!({
            "metadata": {"labels": {"a": "1"}},
            "spec": {"containers": [{"name": "broker", "image": "b"}]},
        });
        assert!(contains(&live, &wanted));
    }

    #[test]
    fn a_changed_or_missing_value_is_a_difference() {
        let wanted = json!({"spec": {"replicas": 1, "args": ["-c", "x"]}});
        assert!(!contains(&json!({"spec": {"replicas": 2, "args": ["-c", "x"]}}), &wanted));
        assert!(!contains(&json!({"spec": {"replicas": 1, "args": ["-c", "x", "y"]}}), &wanted));
        assert!(!contains(&json!({"spec": {"replicas": 1}}), &wanted));
    }

    #[test]
    fn quantities_are_compared_as_numbers_where_they_are_quantities() {
        let live = json!({"resources": {"requests": {"memory": "1Gi"}}, "data": {"a": "1k"}});
        assert!(contains(&live, &json!({"resources": {"requests": {"memory": "1024Mi"}}})));
        assert!(!contains(&live, &json!({"resources": {"requests": {"memory": "1025Mi"}}})));
        assert!(!contains(&live, &json!({"data": {"a": "1000"}})));
    }

    #[test]
    fn quantities_parse_as_kubernetes_writes_them() {
        assert_eq!(quantity("100m"), Some(0.1));
        assert_eq!(quantity("20Gi"), Some(21_474_836_480.0));
        assert_eq!(quantity("1e3"), Some(1000.0));
        assert_eq!(quantity("20GB"), None);
        assert_eq!(quantity(""), None);
    }
}
