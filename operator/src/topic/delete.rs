//! Deletion of a topic whose resource is going: under `Delete`, from every broker group and then
//! from every name server; else nothing.

use std::time::Duration;

use jiff::Timestamp;
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};

use super::finalizer_patch;
use super::status::{Finding, compute};
use crate::apply::Objects;
use crate::brokers;
use crate::conditions::{self, Reason};
use crate::context::Context;
use crate::crd::{DeletionPolicy, FINALIZER, FORCE_DELETE_ANNOTATION, RocketMQCluster, Topic};
use crate::error::{Error, jittered};
use crate::events::Happening;
use crate::rocketmq::AdminError;

/// One pass over a Topic that is being deleted.
///
/// # Errors
/// Fails when the API server does.
pub(super) async fn pass(
    ctx: &Context,
    objects: &Objects,
    topic: &Topic,
    cluster: Option<&RocketMQCluster>,
    unmanaged: bool,
    heir: Option<String>,
) -> Result<Action, Error> {
    ctx.forget(topic);
    if !topic.finalizers().iter().any(|f| f == FINALIZER) {
        return Ok(Action::await_change());
    }
    let about = topic.object_ref(&());
    let deletes = topic.spec.deletion_policy == DeletionPolicy::Delete && !unmanaged;
    // A resource that never came to own the topic does not take it away.
    let owned = topic.status.as_ref().is_some_and(|status| status.origin.is_some());
    match (deletes && owned, heir, cluster) {
        (false, _, _) => {}
        (true, Some(heir), _) => {
            let note = format!("Topic {heir} takes over the topic {:?}", topic.topic_name());
            ctx.events.send(&about, Happening::DeletionSkipped, note).await;
        }
        (true, None, None) => {
            confirm_gone(objects, &topic.spec.cluster_ref.name).await?;
            let note = format!("the cluster of the topic {:?} is gone", topic.topic_name());
            ctx.events.send(&about, Happening::DeletionSkipped, note).await;
        }
        (true, None, Some(cluster)) => {
            if let Some((reason, message)) = delete(ctx, topic, cluster).await {
                return refuse(ctx, objects, topic, reason, message).await;
            }
            ctx.events.send(&about, Happening::TopicDeleted, topic.topic_name()).await;
        }
    }
    if let Some(patch) = finalizer_patch(topic, false) {
        objects.merge::<Topic>(&topic.name_any(), &patch).await?;
    }
    Ok(Action::await_change())
}

/// The cache says that a cluster is gone; before something is left undone for that, the API server is
/// asked.
pub(crate) async fn confirm_gone(objects: &Objects, cluster: &str) -> Result<(), Error> {
    match objects.get::<RocketMQCluster>(cluster).await? {
        Some(found) if found.metadata.deletion_timestamp.is_none() => {
            Err(Error::NotYet(format!("RocketMQCluster {cluster} is not in the cache yet")))
        }
        _ => Ok(()),
    }
}

async fn refuse(
    ctx: &Context,
    objects: &Objects,
    topic: &Topic,
    reason: Reason,
    message: String,
) -> Result<Action, Error> {
    let before = topic.status.clone().unwrap_or_default();
    let news =
        conditions::find(&before.conditions, "Ready").is_none_or(|c| c.reason != reason.as_str());
    if news {
        let happening = match reason {
            Reason::InUse => Happening::InUse,
            _ => Happening::DeletionFailed,
        };
        ctx.events.send(&topic.object_ref(&()), happening, message.clone()).await;
    }
    let status = compute(topic, &Finding::stopped(reason, message), ctx.now());
    if topic.status.as_ref() != Some(&status) {
        objects.apply_status::<Topic>(&topic.name_any(), &status).await?;
    }
    Ok(Action::requeue(jittered(Duration::from_secs(5))))
}

/// Deletes the topic everywhere; returns why that did not succeed.
async fn delete(
    ctx: &Context,
    topic: &Topic,
    cluster: &RocketMQCluster,
) -> Option<(Reason, String)> {
    let name = topic.topic_name();
    let forced = topic.annotations().get(FORCE_DELETE_ANNOTATION).is_some_and(|v| v == "true");
    if !forced {
        match in_use(ctx, name, cluster).await {
            Ok(None) => {}
            Ok(Some(why)) => {
                return Some((
                    Reason::InUse,
                    format!(
                        "{why}; annotate {FORCE_DELETE_ANNOTATION}=true to delete it nevertheless"
                    ),
                ));
            }
            Err(error) => return Some((Reason::DeletionFailed, error.to_string())),
        }
    }
    // Brokers first: one that still has the topic would register it again.
    for group in brokers::groups(cluster) {
        if let Err(error) = ctx.admin.delete_topic(&group.address, name).await {
            return Some((Reason::DeletionFailed, error.to_string()));
        }
    }
    for name_server in brokers::name_servers(cluster) {
        if let Err(error) = ctx.admin.forget_topic(&name_server, name).await {
            return Some((Reason::DeletionFailed, error.to_string()));
        }
    }
    None
}

/// Why the topic counts as in use: a message came within the last client refresh, or a consumer
/// group has messages to consume.
async fn in_use(
    ctx: &Context,
    name: &str,
    cluster: &RocketMQCluster,
) -> Result<Option<String>, AdminError> {
    for group in brokers::groups(cluster) {
        if ctx.admin.topic(&group.address, name).await?.is_none() {
            continue;
        }
        let queues = ctx.admin.queue_offsets(&group.address, name).await?;
        let last_ms = queues.values().map(|q| q.last_update_ms).max().unwrap_or(0);
        if last_ms > 0
            && let Ok(last) = Timestamp::from_millisecond(last_ms)
            && ctx.now().duration_since(last).as_secs()
                < i64::try_from(ctx.settings.client_refresh_seconds).unwrap_or(i64::MAX)
        {
            return Ok(Some(format!("topic {name:?} got a message on {} just now", group.name)));
        }
        for progress in ctx.admin.progress(&group.address, name).await? {
            let lags = queues.iter().any(|(queue, q)| {
                let consumed = progress.offsets.get(queue).copied().unwrap_or(0);
                consumed.max(q.min_queue_offset) < q.max_queue_offset
            });
            if lags {
                return Ok(Some(format!(
                    "consumer group {:?} has messages of topic {name:?} to consume on {}",
                    progress.group, group.name
                )));
            }
        }
    }
    Ok(None)
}
