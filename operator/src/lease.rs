//! Leader election by a Lease. Writes are compare-and-swap on resourceVersion; deadlines are local
//! and monotonic. Another holder counts as gone only after its Lease was seen unchanged for the whole
//! lease duration, and this process counts its own time from when it sent a renewal, not from when
//! the answer came. So two processes never both believe to lead, whatever their clocks say.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::error::is_conflict;

/// How long a Lease holds without renewal.
pub const LEASE_DURATION: Duration = Duration::from_secs(15);
/// After how long without renewal the holder gives up; shorter than the lease, so that it stops
/// before another starts.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Pause between attempts.
pub const RETRY_PERIOD: Duration = Duration::from_secs(2);

/// How leadership ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The process was asked to stop; the Lease is free for the next one.
    Released,
    /// Renewal failed for too long, or another took the Lease.
    Lost,
}

/// A candidate for one Lease.
#[derive(Clone)]
pub struct Candidate {
    api: Api<Lease>,
    name: String,
    identity: String,
}

/// A Lease as last seen, and since when it has been so.
struct Seen {
    lease: Option<Lease>,
    since: Instant,
}

impl Candidate {
    /// A candidate that leads under `identity`, which is unique among candidates.
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity: identity.to_owned(),
        }
    }

    /// Waits until this process leads. Returns when the winning write was sent, `None` when `stop`
    /// came first.
    pub async fn acquire(&self, stop: &CancellationToken) -> Option<Instant> {
        let mut seen: Option<Seen> = None;
        loop {
            tokio::select! {
                () = stop.cancelled() => return None,
                won = self.try_acquire(&mut seen) => match won {
                    Ok(Some(sent)) => return Some(sent),
                    Ok(None) => {}
                    Err(error) => tracing::warn!(%error, "lease not acquired"),
                },
            }
            tokio::select! {
                () = stop.cancelled() => return None,
                () = sleep(RETRY_PERIOD) => {}
            }
        }
    }

    async fn try_acquire(&self, seen: &mut Option<Seen>) -> Result<Option<Instant>, kube::Error> {
        let current = self.api.get_opt(&self.name).await?;
        let now = Instant::now();
        let unchanged = seen
            .as_ref()
            .is_some_and(|s| s.lease.as_ref().map(version) == current.as_ref().map(version));
        if !unchanged {
            *seen = Some(Seen { lease: current.clone(), since: now });
        }
        let since = seen.as_ref().map_or(now, |s| s.since);
        if !self.may_take(current.as_ref(), now.duration_since(since)) {
            return Ok(None);
        }
        let sent = Instant::now();
        let next = self.held(current.as_ref(), true);
        let written = match &current {
            None => self.api.create(&PostParams::default(), &next).await,
            Some(_) => self.api.replace(&self.name, &PostParams::default(), &next).await,
        };
        match written {
            Ok(_) => Ok(Some(sent)),
            // Another was faster.
            Err(error) if is_conflict(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the Lease is free, ours already, or its holder silent for the whole duration.
    fn may_take(&self, lease: Option<&Lease>, unchanged_for: Duration) -> bool {
        let Some(spec) = lease.and_then(|lease| lease.spec.as_ref()) else { return true };
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        let duration = spec
            .lease_duration_seconds
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map_or(LEASE_DURATION, Duration::from_secs);
        holder.is_empty() || holder == self.identity || unchanged_for >= duration
    }

    /// Renews until `stop` or until leadership is lost. `sent` is when the last successful write was
    /// sent.
    pub async fn keep(&self, mut sent: Instant, stop: &CancellationToken) -> End {
        loop {
            tokio::select! {
                () = stop.cancelled() => {
                    self.release().await;
                    return End::Released;
                }
                () = sleep(RETRY_PERIOD) => {}
            }
            let deadline = sent + RENEW_DEADLINE;
            let left = deadline.saturating_duration_since(Instant::now());
            let attempt = Instant::now();
            match timeout(left, self.renew()).await {
                Ok(Ok(true)) => sent = attempt,
                Ok(Ok(false)) => {
                    tracing::error!("another process took the lease");
                    return End::Lost;
                }
                Ok(Err(error)) => tracing::warn!(%error, "lease not renewed"),
                Err(_) => tracing::warn!("lease renewal timed out"),
            }
            if Instant::now() >= sent + RENEW_DEADLINE {
                tracing::error!("lease not renewed within the deadline");
                return End::Lost;
            }
        }
    }

    /// Returns false when the Lease is not ours any more.
    async fn renew(&self) -> Result<bool, kube::Error> {
        let current = self.api.get(&self.name).await?;
        if current.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref())
            != Some(&self.identity)
        {
            return Ok(false);
        }
        let next = self.held(Some(&current), false);
        match self.api.replace(&self.name, &PostParams::default(), &next).await {
            Ok(_) => Ok(true),
            // Somebody wrote in between; who holds it shows at the next attempt.
            Err(error) => Err(error),
        }
    }

    async fn release(&self) {
        let released = async {
            let mut lease = self.api.get(&self.name).await?;
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() != Some(&self.identity) {
                return Ok(());
            }
            spec.holder_identity = Some(String::new());
            self.api.replace(&self.name, &PostParams::default(), &lease).await.map(|_| ())
        };
        match timeout(RETRY_PERIOD, released).await {
            Ok(Ok(())) => tracing::info!("lease released"),
            Ok(Err(error)) => tracing::warn!(%error, "lease not released"),
            Err(_) => tracing::warn!("lease release timed out"),
        }
    }

    /// `current` as held by this process from now on, at its resourceVersion.
    fn held(&self, current: Option<&Lease>, taking: bool) -> Lease {
        let now = MicroTime(Timestamp::now());
        let before = current.and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let changes_hands = taking && before.holder_identity.as_deref() != Some(&self.identity);
        Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                resource_version: current.and_then(|l| l.metadata.resource_version.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.clone()),
                lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
                acquire_time: if taking { Some(now.clone()) } else { before.acquire_time },
                renew_time: Some(now),
                lease_transitions: Some(
                    before.lease_transitions.unwrap_or(0).saturating_add(i32::from(changes_hands)),
                ),
                ..LeaseSpec::default()
            }),
        }
    }
}

fn version(lease: &Lease) -> Option<String> {
    lease.metadata.resource_version.clone()
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
