//! One pass over a broker group whose master is appointed: see the record and the pods, move the
//! label of the master, do what people ask for, and appoint a master when there is none.
//!
//! The group's Lease is the truth; each write to it is conditional on the version that was looked at,
//! so that two operators, or an operator and a master, never both succeed. What is read comes from
//! caches that watches fill: an old look costs a conflict. Who decides what:
//! [`rocketmq_replication::Supervisor`] whether and whom to appoint, this module what is seen, said
//! and done about it.

pub mod lease;
pub mod memory;
pub mod request;
pub mod roles;
pub mod sight;
mod supervise;
mod switchover;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};
use parking_lot::Mutex;
use rocketmq_replication::{GroupRecord, Millis, ReplicaId, Versioned};
use serde_json::json;

use crate::apply::Objects;
use crate::build::names;
use crate::context::{Context, namespace_of, resync};
use crate::crd::RocketMQCluster;
use crate::error::{Error, is_conflict};
use crate::events::Happening;
use memory::{News, Remembered, TookOver};

/// Slaves that a group may have, and the master.
const REPLICAS_MAX: i64 = 9;
/// How soon a group is looked at again while something is awaited of which no event tells.
const SOON: Duration = Duration::from_millis(500);

/// Brings a group closer to having a master.
///
/// # Errors
/// Fails when the API server does; brokers that do not answer are what this is about.
pub async fn reconcile(set: Arc<StatefulSet>, ctx: Arc<Context>) -> Result<Action, Error> {
    ctx.pass(&*set, pass(&set, &ctx)).await
}

async fn pass(set: &StatefulSet, ctx: &Context) -> Result<Action, Error> {
    ctx.group_caches_filled().await?;
    let Some(group) = Group::of(set, ctx) else { return Ok(Action::await_change()) };
    if group.cluster.spec.paused {
        group.memory.lock().look_anew();
        return Ok(resync(ctx.settings.cluster_resync_seconds));
    }
    let Some(lease) = group.lease() else {
        return group.supervise(None).await;
    };
    let versioned = match lease::read(&lease) {
        Ok(versioned) => versioned,
        Err(error) => {
            let text = format!("the record in Lease {} is damaged: {error}", group.broker);
            group.blocked("RecordDamaged", text).await;
            return Ok(resync(ctx.settings.cluster_resync_seconds));
        }
    };
    if group.memory.lock().superseded.as_ref() == Some(&versioned.version) {
        // The watch has not brought what was written here.
        return Ok(Action::requeue(SOON));
    }
    let now = ctx.monotonic();
    let news = group.memory.lock().notice(now, &versioned.record);
    for one in news {
        group.tell(now, one).await;
    }
    group.move_label(&versioned.record).await?;
    if group.serve_people(&lease, &versioned, now).await? {
        return Ok(Action::requeue(SOON));
    }
    group.supervise(Some((&lease, &versioned))).await
}

/// A group, and what a pass needs to deal with it.
struct Group<'a> {
    ctx: &'a Context,
    objects: Objects,
    cluster: Arc<RocketMQCluster>,
    namespace: String,
    /// brokerName.
    broker: String,
    number: i32,
    /// Brokers that it is meant to have now.
    size: i32,
    pods: BTreeMap<ReplicaId, Arc<Pod>>,
    memory: Arc<Mutex<Remembered>>,
}

impl<'a> Group<'a> {
    /// The group that a StatefulSet runs; `None` for those whose master is not appointed, and while
    /// the cluster is not known or goes away.
    fn of(set: &StatefulSet, ctx: &'a Context) -> Option<Self> {
        let namespace = namespace_of(set);
        let broker = set.name_any();
        let name = set.labels().get(names::CLUSTER_LABEL)?;
        let number = names::broker_number(name, &broker)?;
        let cluster = ctx.cluster(&namespace, name)?;
        let owned =
            set.owner_references().iter().any(|o| Some(&o.uid) == cluster.meta().uid.as_ref());
        let template = set.spec.template.spec.as_ref()?;
        // Only brokers that are told to look at a Lease have an account for it.
        let appointed = template.service_account_name.as_deref() == Some(broker.as_str());
        let goes = [&cluster.metadata.deletion_timestamp, &set.metadata.deletion_timestamp]
            .into_iter()
            .any(Option::is_some);
        if !owned || !appointed || goes {
            ctx.groups.forget(&namespace, &broker);
            return None;
        }
        let pod = |id: ReplicaId| {
            let key = ObjectRef::new(&names::replica_pod(&broker, id)).within(&namespace);
            Some((id, ctx.pods.get(&key)?))
        };
        Some(Self {
            objects: ctx.objects(&namespace),
            number,
            size: set.spec.replicas.unwrap_or(1),
            pods: (1..=REPLICAS_MAX).map(ReplicaId).filter_map(pod).collect(),
            memory: ctx.groups.of(&cluster, &broker),
            ctx,
            cluster,
            namespace,
            broker,
        })
    }

    fn lease(&self) -> Option<Arc<Lease>> {
        let found = self.ctx.leases.get(&ObjectRef::new(&self.broker).within(&self.namespace))?;
        lease::is_record(&found, &self.cluster.name_any(), &self.broker).then_some(found)
    }

    fn pod_name(&self, id: ReplicaId) -> String {
        names::replica_pod(&self.broker, id)
    }

    /// Ids of the brokers that the group is meant to have.
    fn ids(&self) -> impl Iterator<Item = ReplicaId> + use<> {
        (1..=i64::from(self.size)).map(ReplicaId)
    }

    async fn event(&self, what: Happening, note: String) {
        tracing::info!(group = self.broker, event = what.as_str(), note, "group");
        self.ctx.events.send(&self.cluster.object_ref(&()), what, note).await;
    }

    /// Replaces the record that was looked at. Returns whether it was; else it has changed since.
    async fn replace(
        &self,
        (lease, versioned): (&Lease, &Versioned),
        record: &GroupRecord,
    ) -> Result<bool, Error> {
        let written = self.objects.replace(&lease::replaced(lease, record)).await;
        if changed_hands(written)? {
            self.memory.lock().superseded = Some(versioned.version.clone());
            return Ok(true);
        }
        Ok(false)
    }

    async fn move_label(&self, record: &GroupRecord) -> Result<(), Error> {
        let pods = self.pods.iter().map(|(id, pod)| (*id, &**pod)).collect();
        for (pod, role) in roles::changes(record, &pods) {
            let patch = json!({"metadata": {"labels": {names::ROLE_LABEL: role}}});
            match self.objects.merge::<Pod>(&pod, &patch).await {
                // It went away meanwhile.
                Err(Error::Kubernetes { source, .. }) if is_not_found(&source) => {}
                other => other?,
            }
        }
        Ok(())
    }

    async fn tell(&self, now: Millis, news: News) {
        match news {
            News::Changed => self.ctx.pokes.cluster(&self.cluster),
            News::TookOver(over) => self.took_over(now, over).await,
            News::Aborted(to) => {
                self.ctx.metrics.switched_over("aborted");
                let note = format!(
                    "{}: the master goes on, {} was not ready to take over in time",
                    self.broker,
                    self.pod_name(to)
                );
                self.event(Happening::SwitchoverAborted, note).await;
                self.answer(to).await;
            }
        }
    }

    /// A new master is at work: what the operator keeps equal on brokers may be missing there.
    async fn took_over(&self, now: Millis, over: TookOver) {
        let (to, epoch) = (self.pod_name(over.to), over.epoch);
        let from = over.from.map(|from| self.pod_name(from));
        self.ctx.metrics.set_group_epoch(&self.namespace, &self.broker, epoch.0);
        match over.loss {
            Some(loss) => self.failed_over(now, over.to, epoch.0, from, &loss).await,
            None if over.from == Some(over.to) => {
                tracing::info!(group = self.broker, %epoch, "the master took over again");
            }
            None => {
                self.ctx.metrics.switched_over("completed");
                let note = format!("{}, epoch {epoch}", self.is_master(&to, from.as_deref()));
                self.event(Happening::SwitchoverCompleted, note).await;
            }
        }
        self.answer(over.to).await;
        if over.from != Some(over.to) {
            let address =
                names::broker_address(&self.cluster.name_any(), &self.namespace, self.number);
            self.ctx.admin.forget(&address);
            self.ctx.reassert(&self.cluster);
        }
        self.ctx.pokes.cluster(&self.cluster);
    }

    /// Says who is master now.
    fn is_master(&self, to: &str, from: Option<&str>) -> String {
        match from {
            Some(from) if from == to => format!("{}: {to} is master again", self.broker),
            Some(from) => format!("{}: {to} is master instead of {from}", self.broker),
            None => format!("{}: {to} is master", self.broker),
        }
    }

    /// Notes why there can be no master; told once.
    async fn blocked(&self, reason: &str, why: String) {
        let known = self.memory.lock().blocked.replace(why.clone());
        if known.as_ref() != Some(&why) {
            self.ctx.metrics.failed_over(reason, "blocked");
            self.event(Happening::FailoverBlocked, format!("{}: {why}", self.broker)).await;
            self.ctx.pokes.cluster(&self.cluster);
        }
    }
}

/// Whether a write took place; a conflict means that it did not.
fn changed_hands<T>(written: Result<T, Error>) -> Result<bool, Error> {
    match written {
        Ok(_) => Ok(true),
        Err(Error::Kubernetes { source, .. }) if is_conflict(&source) => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

#[cfg(test)]
#[path = "failover/tests.rs"]
mod tests;

#[cfg(test)]
#[path = "failover/request_tests.rs"]
mod request_tests;
