//! One pass over a ConsumerGroup: the same settings on every broker group. Stock clients resend a
//! failed message through any broker, so the group has to be on all of them.

pub mod status;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};

use crate::apply::Objects;
use crate::brokers;
use crate::conditions::{self, Reason};
use crate::context::{Context, namespace_of, resync};
use crate::crd::{
    AdoptPolicy, ConsumerGroup, DeletionPolicy, DriftPolicy, FINALIZER, FORCE_DELETE_ANNOTATION,
    MANAGED_ANNOTATION, Origin, RocketMQCluster,
};
use crate::error::{Error, jittered};
use crate::events::Happening;
use crate::rocketmq::GroupSettings;
use crate::topic::delete::confirm_gone;
use crate::topic::finalizer_patch;
use status::{Finding, Observed};

/// Brings one consumer group to its spec.
///
/// # Errors
/// Fails when the API server does; brokers that do not answer show in the status.
pub async fn reconcile(group: Arc<ConsumerGroup>, ctx: Arc<Context>) -> Result<Action, Error> {
    ctx.pass(&*group, pass(&group, &ctx)).await
}

async fn pass(cached: &ConsumerGroup, ctx: &Context) -> Result<Action, Error> {
    ctx.caches_filled().await?;
    let namespace = namespace_of(cached);
    let objects = ctx.objects(&namespace);
    let Some(group) = objects.get::<ConsumerGroup>(&cached.name_any()).await? else {
        ctx.forget(cached);
        return Ok(Action::await_change());
    };
    let cluster = ctx
        .cluster(&namespace, &group.spec.cluster_ref.name)
        .filter(|cluster| cluster.metadata.deletion_timestamp.is_none());
    let unmanaged = group.annotations().get(MANAGED_ANNOTATION).is_some_and(|v| v == "false");
    let owner = owner(&group, &ctx.consumer_groups.state());

    if group.metadata.deletion_timestamp.is_some() {
        return delete(ctx, &objects, &group, cluster.as_deref(), unmanaged, owner).await;
    }
    let wants_finalizer = group.spec.deletion_policy == DeletionPolicy::Delete && !unmanaged;
    if let Some(patch) = finalizer_patch(&group, wants_finalizer) {
        objects.merge::<ConsumerGroup>(&group.name_any(), &patch).await?;
        return Ok(Action::requeue(Duration::ZERO));
    }
    let finding = if unmanaged {
        Finding::stopped(
            Reason::Unmanaged,
            format!("{MANAGED_ANNOTATION} is \"false\": the consumer group is left as it is"),
        )
    } else if let Some(owner) = owner {
        Finding::stopped(
            Reason::Conflict,
            format!("ConsumerGroup {owner} is older and has the name {:?}", group.group_name()),
        )
    } else {
        match &cluster {
            None => Finding::stopped(
                Reason::ClusterNotFound,
                brokers::no_cluster(&namespace, &group.spec.cluster_ref.name),
            ),
            Some(cluster) if cluster.spec.paused => {
                Finding::stopped(Reason::Paused, "the cluster is paused: nothing is changed")
            }
            Some(cluster) => sync(ctx, &group, cluster).await,
        }
    };
    let status = status::compute(&group, &finding, ctx.now());
    announce(ctx, &group, &finding).await;
    if group.status.as_ref() != Some(&status) {
        objects.apply_status::<ConsumerGroup>(&group.name_any(), &status).await?;
    }
    Ok(match finding.reason {
        _ if finding.again => Action::requeue(Duration::ZERO),
        Reason::ClusterNotReady | Reason::NotSynced => {
            Action::requeue(jittered(Duration::from_secs(1)))
        }
        // The owner of the name may go at any time.
        Reason::Conflict => Action::requeue(jittered(Duration::from_secs(5))),
        _ => resync(ctx.settings.topic_resync_seconds),
    })
}

/// The name of the live ConsumerGroup that owns this one's name, `None` when it is this one.
pub fn owner(group: &ConsumerGroup, all: &[Arc<ConsumerGroup>]) -> Option<String> {
    let rank = |g: &ConsumerGroup| (g.metadata.creation_timestamp.clone(), g.metadata.uid.clone());
    all.iter()
        .filter(|other| {
            other.namespace() == group.namespace()
                && other.spec.cluster_ref == group.spec.cluster_ref
                && other.group_name() == group.group_name()
                && other.metadata.uid != group.metadata.uid
                && other.metadata.deletion_timestamp.is_none()
                && other.annotations().get(MANAGED_ANNOTATION).is_none_or(|v| v != "false")
        })
        .filter(|other| group.metadata.deletion_timestamp.is_some() || rank(other) < rank(group))
        .min_by_key(|other| rank(other))
        .map(|other| other.name_any())
}

/// The settings a spec asks for.
pub fn wanted(group: &ConsumerGroup) -> GroupSettings {
    let spec = &group.spec;
    GroupSettings {
        consume_enabled: spec.consume_enabled,
        broadcast_enabled: spec.broadcast_enabled,
        consume_from_min: spec.consume_from_min,
        notify_on_membership_change: spec.notify_on_membership_change,
        retry_queues: spec.retry_queues,
        max_retries: spec.max_retries,
    }
}

async fn sync(ctx: &Context, group: &ConsumerGroup, cluster: &RocketMQCluster) -> Finding {
    let name = group.group_name();
    let wanted = wanted(group);
    let brokers = brokers::groups(cluster);
    if brokers.is_empty() {
        return Finding::stopped(Reason::ClusterNotReady, "the cluster has no broker yet");
    }
    let answers = join_all(brokers.iter().map(|b| ctx.admin.group(&b.address, name))).await;
    let mut observed = Vec::new();
    let mut failure = None;
    for (broker, answer) in brokers.iter().zip(answers) {
        match answer {
            Ok(settings) => observed.push(Observed { broker: broker.name.clone(), settings }),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    let before = group.status.clone().unwrap_or_default();
    if before.origin.is_none() {
        if let Some(error) = &failure {
            return Finding::looked(observed, &wanted, Vec::new(), Some(error));
        }
        return adopt(ctx, group, &observed, &wanted).await;
    }
    let drifted = status::drifted(group, &before, &observed, &wanted);
    if !drifted.is_empty() && group.spec.drift_policy != DriftPolicy::Correct {
        let mut finding = Finding::looked(observed, &wanted, drifted, failure.as_ref());
        if failure.is_none() {
            finding.reason = Reason::DriftFound;
            finding.message = finding.drifted.join("; ");
        }
        return finding;
    }
    for seen in &mut observed {
        if seen.settings.as_ref() == Some(&wanted) {
            continue;
        }
        let Some(broker) = brokers.iter().find(|b| b.name == seen.broker) else { continue };
        tracing::info!(consumer_group = name, broker = broker.name, "writing consumer group");
        match ctx.admin.put_group(&broker.address, name, &wanted).await {
            Ok(()) => seen.settings = Some(wanted.clone()),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    if !drifted.is_empty() {
        ctx.metrics.corrected_drift("ConsumerGroup");
    }
    Finding::looked(observed, &wanted, drifted, failure.as_ref())
}

/// The first look: whether the consumer group may be taken over. The status records the answer before
/// the next pass sends the first request that changes a broker.
async fn adopt(
    ctx: &Context,
    group: &ConsumerGroup,
    observed: &[Observed],
    wanted: &GroupSettings,
) -> Finding {
    let name = group.group_name();
    let there: Vec<&Observed> = observed.iter().filter(|o| o.settings.is_some()).collect();
    let origin = if there.is_empty() { Origin::Created } else { Origin::Adopted };
    let differs = there.iter().any(|o| o.settings.as_ref() != Some(wanted));
    let refused = match group.spec.adopt {
        AdoptPolicy::Never => origin == Origin::Adopted,
        AdoptPolicy::IfIdentical => origin == Origin::Adopted && differs,
        AdoptPolicy::Update => false,
    };
    if refused {
        let on = there.iter().map(|o| o.broker.as_str()).collect::<Vec<_>>().join(", ");
        return Finding::stopped(
            Reason::AdoptionRefused,
            format!(
                "consumer group {name:?} is on {on} already and adopt is {:?}: set adopt to Update, or delete the group there",
                group.spec.adopt
            ),
        );
    }
    let happening = match origin {
        Origin::Created => Happening::ConsumerGroupCreated,
        Origin::Adopted => Happening::ConsumerGroupAdopted,
    };
    ctx.events.send(&group.object_ref(&()), happening, name).await;
    Finding::first_seen(origin)
}

async fn delete(
    ctx: &Context,
    objects: &Objects,
    group: &ConsumerGroup,
    cluster: Option<&RocketMQCluster>,
    unmanaged: bool,
    heir: Option<String>,
) -> Result<Action, Error> {
    ctx.forget(group);
    if !group.finalizers().iter().any(|f| f == FINALIZER) {
        return Ok(Action::await_change());
    }
    let about = group.object_ref(&());
    let name = group.group_name();
    let deletes = group.spec.deletion_policy == DeletionPolicy::Delete && !unmanaged;
    let owned = group.status.as_ref().is_some_and(|status| status.origin.is_some());
    match (deletes && owned, heir, cluster) {
        (false, _, _) => {}
        (true, Some(heir), _) => {
            let note = format!("ConsumerGroup {heir} takes over {name:?}");
            ctx.events.send(&about, Happening::DeletionSkipped, note).await;
        }
        (true, None, None) => {
            confirm_gone(objects, &group.spec.cluster_ref.name).await?;
            let note = format!("the cluster of the consumer group {name:?} is gone");
            ctx.events.send(&about, Happening::DeletionSkipped, note).await;
        }
        (true, None, Some(cluster)) => {
            if let Some((reason, message)) = delete_everywhere(ctx, group, cluster).await {
                return refuse(ctx, objects, group, reason, message).await;
            }
            ctx.events.send(&about, Happening::ConsumerGroupDeleted, name).await;
        }
    }
    if let Some(patch) = finalizer_patch(group, false) {
        objects.merge::<ConsumerGroup>(&group.name_any(), &patch).await?;
    }
    Ok(Action::await_change())
}

async fn delete_everywhere(
    ctx: &Context,
    group: &ConsumerGroup,
    cluster: &RocketMQCluster,
) -> Option<(Reason, String)> {
    let name = group.group_name();
    let brokers = brokers::groups(cluster);
    let forced = group.annotations().get(FORCE_DELETE_ANNOTATION).is_some_and(|v| v == "true");
    if !forced {
        for broker in &brokers {
            match ctx.admin.has_members(&broker.address, name).await {
                Ok(false) => {}
                Ok(true) => {
                    return Some((
                        Reason::InUse,
                        format!(
                            "consumer group {name:?} has members on {}; annotate {FORCE_DELETE_ANNOTATION}=true to delete it nevertheless",
                            broker.name
                        ),
                    ));
                }
                Err(error) => return Some((Reason::DeletionFailed, error.to_string())),
            }
        }
    }
    for broker in &brokers {
        let clean = group.spec.clean_offsets_on_delete;
        if let Err(error) = ctx.admin.delete_group(&broker.address, name, clean).await {
            return Some((Reason::DeletionFailed, error.to_string()));
        }
    }
    None
}

async fn refuse(
    ctx: &Context,
    objects: &Objects,
    group: &ConsumerGroup,
    reason: Reason,
    message: String,
) -> Result<Action, Error> {
    let before = group.status.clone().unwrap_or_default();
    let known =
        conditions::find(&before.conditions, "Ready").is_some_and(|c| c.reason == reason.as_str());
    if !known {
        let happening = match reason {
            Reason::InUse => Happening::InUse,
            _ => Happening::DeletionFailed,
        };
        ctx.events.send(&group.object_ref(&()), happening, message.clone()).await;
    }
    let status = status::compute(group, &Finding::stopped(reason, message), ctx.now());
    if group.status.as_ref() != Some(&status) {
        objects.apply_status::<ConsumerGroup>(&group.name_any(), &status).await?;
    }
    Ok(Action::requeue(jittered(Duration::from_secs(5))))
}

async fn announce(ctx: &Context, group: &ConsumerGroup, finding: &Finding) {
    let about = group.object_ref(&());
    let before = group.status.clone().unwrap_or_default();
    let was = |kind: &str| conditions::is_true(&before.conditions, kind);
    if finding.reason == Reason::Conflict && !was("Conflict") {
        ctx.events.send(&about, Happening::Conflict, finding.message.clone()).await;
    }
    let known = conditions::find(&before.conditions, "Ready")
        .is_some_and(|ready| ready.reason == Reason::ClusterNotFound.as_str());
    if finding.reason == Reason::ClusterNotFound && !known {
        ctx.events.send(&about, Happening::ClusterNotFound, finding.message.clone()).await;
    }
    if finding.drifted.is_empty() {
        return;
    }
    let note = finding.drifted.join("; ");
    match group.spec.drift_policy {
        DriftPolicy::Correct => {
            ctx.events.send(&about, Happening::DriftCorrected, note).await;
        }
        DriftPolicy::Warn if !was("Drifted") => {
            ctx.events.send(&about, Happening::DriftDetected, note).await;
        }
        _ => {}
    }
}

#[cfg(test)]
#[path = "consumer_group/tests.rs"]
mod tests;
