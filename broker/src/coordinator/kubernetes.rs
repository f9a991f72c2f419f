//! The record as a Lease: annotations hold it, the Lease's own fields show it to people.
//!
//! Writes are replacements that carry the resource version they rest on, so the API server takes one
//! of two that compete. They are never repeated by the client: a repeated one would meet its own first
//! try and call it a conflict.

use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, PostParams};
use kube::runtime::watcher;
use kube::{Client, Config};
use parking_lot::Mutex;
use rocketmq_replication::{GroupRecord, Versioned};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::{Coordinator, CoordinatorError, Replaced, Timing};

/// Pause before a watch that broke is begun anew.
const WATCH_RETRY: Duration = Duration::from_secs(1);

/// The Lease of one group.
pub struct LeaseRecord {
    api: Api<Lease>,
    name: String,
    timing: Timing,
    /// As it was last read or written: a replacement has to bring what others wrote into it, too.
    last: Mutex<Option<Lease>>,
}

impl LeaseRecord {
    /// How the API server is reached: that of KUBECONFIG, or of the cluster that this process runs in.
    ///
    /// # Errors
    /// When neither says it.
    pub async fn configuration(timing: Timing) -> Result<Config, CoordinatorError> {
        let config = Config::infer().await;
        let mut config =
            config.map_err(|error| CoordinatorError::Unreachable(error.to_string()))?;
        config.connect_timeout = Some(timing.call());
        config.write_timeout = Some(timing.call());
        // A watch is silent for long; every other call has a bound of its own.
        config.read_timeout = None;
        config.default_retry = false;
        Ok(config)
    }

    /// The Lease `name` in the namespace of this process: POD_NAMESPACE, or the one of the
    /// configuration. To be called in the runtime that is to do the work.
    ///
    /// # Errors
    /// When the configuration makes no client.
    pub fn connect(
        config: Config,
        name: &str,
        timing: Timing,
    ) -> Result<LeaseRecord, CoordinatorError> {
        let namespace = std::env::var("POD_NAMESPACE").unwrap_or_default();
        let namespace =
            if namespace.is_empty() { config.default_namespace.clone() } else { namespace };
        let client = Client::try_from(config);
        let client = client.map_err(|error| CoordinatorError::Unreachable(error.to_string()))?;
        Ok(LeaseRecord::new(client, &namespace, name, timing))
    }

    /// The Lease `name` in `namespace`. The client must not repeat requests by itself.
    pub fn new(client: Client, namespace: &str, name: &str, timing: Timing) -> LeaseRecord {
        LeaseRecord {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            timing,
            last: Mutex::default(),
        }
    }

    async fn call<T>(
        &self,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<Result<T, kube::Error>, String> {
        let limit = self.timing.call();
        match timeout(limit, call).await {
            Ok(answer) => Ok(answer),
            Err(_) => Err(format!("no answer within {} ms", limit.as_millis())),
        }
    }

    async fn fetch(&self) -> Result<Option<Lease>, CoordinatorError> {
        match self.call(self.api.get_opt(&self.name)).await {
            Ok(Ok(lease)) => {
                self.last.lock().clone_from(&lease);
                Ok(lease)
            }
            Ok(Err(error)) => Err(CoordinatorError::Unreachable(error.to_string())),
            Err(error) => Err(CoordinatorError::Unreachable(error)),
        }
    }

    fn record(&self, lease: Option<&Lease>) -> Result<Option<Versioned>, CoordinatorError> {
        let Some(lease) = lease else { return Ok(None) };
        let annotations = lease.metadata.annotations.clone().unwrap_or_default();
        let record = GroupRecord::from_annotations(&annotations)
            .map_err(|source| CoordinatorError::Damaged { name: self.name.clone(), source })?;
        Ok(Some(Versioned { version: version(lease).unwrap_or_default(), record }))
    }

    /// `lease` with another record.
    fn with_record(&self, mut lease: Lease, record: &GroupRecord) -> Lease {
        let annotations = lease.metadata.annotations.get_or_insert_default();
        for key in GroupRecord::annotation_keys() {
            annotations.remove(key);
        }
        annotations.extend(record.to_annotations());
        lease.metadata.managed_fields = None;
        let before = lease.spec.take().unwrap_or_default();
        let now = MicroTime(Timestamp::now());
        let holder = record.holder.as_ref().map(|holder| holder.incarnation.clone());
        let changes_hands = before.holder_identity != holder;
        lease.spec = Some(LeaseSpec {
            acquire_time: match changes_hands {
                true => holder.as_ref().map(|_| now.clone()),
                false => before.acquire_time,
            },
            renew_time: if holder.is_some() { Some(now) } else { before.renew_time },
            lease_duration_seconds: i32::try_from(self.timing.lease.as_secs().max(1)).ok(),
            lease_transitions: Some(
                before
                    .lease_transitions
                    .unwrap_or(0)
                    .saturating_add(i32::from(changes_hands && holder.is_some())),
            ),
            holder_identity: holder,
            ..before
        });
        lease
    }

    async fn try_replace(
        &self,
        expected: &str,
        record: &GroupRecord,
    ) -> Result<Replaced, CoordinatorError> {
        let is_expected = |lease: &Lease| version(lease).as_deref() == Some(expected);
        let last = self.last.lock().clone().filter(is_expected);
        let current = match last {
            Some(lease) => Some(lease),
            None => self.fetch().await?.filter(is_expected),
        };
        let Some(lease) = current else { return Ok(Replaced::Conflict) };
        let next = self.with_record(lease, record);
        let params = PostParams::default();
        let answer = self.call(self.api.replace(&self.name, &params, &next)).await;
        Ok(match answer {
            Ok(Ok(written)) => match version(&written) {
                Some(version) => {
                    *self.last.lock() = Some(written);
                    Replaced::Written(version)
                }
                None => Replaced::Unknown("the answer names no version".to_owned()),
            },
            Ok(Err(kube::Error::Api(status))) if is_refusal(status.code) => {
                if status.code != CONFLICT {
                    warn!(
                        lease = self.name,
                        code = status.code,
                        reason = status.message,
                        "the API server does not take the group's record"
                    );
                }
                Replaced::Conflict
            }
            Ok(Err(error)) => Replaced::Unknown(error.to_string()),
            Err(error) => Replaced::Unknown(error),
        })
    }

    async fn watch_for_ever(&self, changed: &(dyn Fn() + Send + Sync)) {
        // A holder renews all the time; silence for longer may be a connection that is dead.
        let silence = self.timing.lease * 2;
        loop {
            let changes = watcher::watch_object(self.api.clone(), &self.name);
            let mut changes = std::pin::pin!(changes);
            loop {
                match timeout(silence, changes.next()).await {
                    Ok(Some(Ok(_))) => changed(),
                    Ok(Some(Err(error))) => {
                        debug!(lease = self.name, %error, "watch broken");
                        break;
                    }
                    Ok(None) | Err(_) => break,
                }
            }
            tokio::time::sleep(WATCH_RETRY.min(self.timing.retry)).await;
        }
    }
}

impl Coordinator for LeaseRecord {
    fn read(&self) -> BoxFuture<'_, Result<Option<Versioned>, CoordinatorError>> {
        async { self.record(self.fetch().await?.as_ref()) }.boxed()
    }

    fn replace<'a>(
        &'a self,
        expected: &'a str,
        record: &'a GroupRecord,
    ) -> BoxFuture<'a, Replaced> {
        async move {
            // Nothing was sent if it failed before.
            self.try_replace(expected, record)
                .await
                .unwrap_or_else(|error| Replaced::Unknown(error.to_string()))
        }
        .boxed()
    }

    fn watch<'a>(&'a self, changed: &'a (dyn Fn() + Send + Sync)) -> BoxFuture<'a, ()> {
        self.watch_for_ever(changed).boxed()
    }
}

const CONFLICT: u16 = 409;

/// Whether a status says that the write was not done: the request was at fault, or lost to another.
/// "Too many requests" and "time-out" say nothing certain behind a proxy.
fn is_refusal(code: u16) -> bool {
    (400..500).contains(&code) && code != 408 && code != 429
}

fn version(lease: &Lease) -> Option<String> {
    lease.metadata.resource_version.clone().filter(|version| !version.is_empty())
}

#[cfg(test)]
#[path = "kubernetes_tests.rs"]
mod tests;
