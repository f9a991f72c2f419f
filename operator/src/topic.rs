//! One pass over a Topic: who owns the name, what the brokers have, the next safe step, status.

pub mod delete;
pub mod drain;
pub mod plan;
pub mod status;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::SignedDuration;
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use serde_json::json;

use crate::apply::Objects;
use crate::brokers::{self, Group};
use crate::conditions::{self, Reason};
use crate::context::{Context, namespace_of, resync};
use crate::crd::topic::{ResizeStep, TopicStatus};
use crate::crd::{
    AdoptPolicy, DeletionPolicy, DriftPolicy, FINALIZER, MANAGED_ANNOTATION, Origin,
    RocketMQCluster, Topic,
};
use crate::error::{Error, jittered};
use crate::events::{Happening, counted};
use crate::rocketmq::AdminError;
use plan::{Observed, Wanted};
use status::Finding;

/// How long a new broker group's topics wait for consumer groups that do not come.
const CONSUMER_GROUPS_WAIT: SignedDuration = SignedDuration::from_secs(60);

/// Brings one topic a step closer to its spec.
///
/// # Errors
/// Fails when the API server does; brokers that do not answer show in the status.
pub async fn reconcile(topic: Arc<Topic>, ctx: Arc<Context>) -> Result<Action, Error> {
    ctx.pass(&*topic, pass(&topic, &ctx)).await
}

async fn pass(cached: &Topic, ctx: &Context) -> Result<Action, Error> {
    ctx.caches_filled().await?;
    let namespace = namespace_of(cached);
    let objects = ctx.objects(&namespace);
    // The steps of a change are in the status, so it must not be an old copy.
    let Some(topic) = objects.get::<Topic>(&cached.name_any()).await? else {
        ctx.forget(cached);
        return Ok(Action::await_change());
    };
    let cluster = ctx
        .cluster(&namespace, &topic.spec.cluster_ref.name)
        .filter(|cluster| cluster.metadata.deletion_timestamp.is_none());
    let unmanaged = topic.annotations().get(MANAGED_ANNOTATION).is_some_and(|v| v == "false");
    let owner = owner(&topic, &ctx.topics.state());

    if topic.metadata.deletion_timestamp.is_some() {
        return delete::pass(ctx, &objects, &topic, cluster.as_deref(), unmanaged, owner).await;
    }
    if fix_finalizer(&objects, &topic, unmanaged).await? {
        return Ok(Action::requeue(Duration::ZERO));
    }
    let finding = if unmanaged {
        Finding::stopped(
            Reason::Unmanaged,
            format!("{MANAGED_ANNOTATION} is \"false\": the topic is left as it is"),
        )
    } else if let Some(owner) = owner {
        Finding::stopped(
            Reason::Conflict,
            format!("Topic {owner} is older and has the name {:?}", topic.topic_name()),
        )
    } else {
        match &cluster {
            None => Finding::stopped(
                Reason::ClusterNotFound,
                brokers::no_cluster(&namespace, &topic.spec.cluster_ref.name),
            ),
            Some(cluster) if cluster.spec.paused => {
                Finding::stopped(Reason::Paused, "the cluster is paused: nothing is changed")
            }
            Some(cluster) => sync(ctx, &topic, cluster).await,
        }
    };
    let status = status::compute(&topic, &finding, ctx.now());
    announce(ctx, &topic, &status, &finding).await;
    if topic.status.as_ref() != Some(&status) {
        objects.apply_status::<Topic>(&topic.name_any(), &status).await?;
    }
    Ok(next_look(ctx, &status, &finding))
}

fn next_look(ctx: &Context, status: &TopicStatus, finding: &Finding) -> Action {
    if finding.again {
        return Action::requeue(Duration::ZERO);
    }
    if let Some(resize) = &status.resize {
        let wait = match resize.step {
            ResizeStep::WaitForDrain => Duration::from_secs(2),
            _ => ctx.settings.client_refresh().min(Duration::from_secs(10)) / 2,
        };
        return Action::requeue(jittered(wait.max(Duration::from_millis(500))));
    }
    match finding.reason {
        Reason::ClusterNotReady | Reason::WaitingForConsumerGroups | Reason::NotSynced => {
            Action::requeue(jittered(Duration::from_secs(1)))
        }
        // The owner of the name may go at any time.
        Reason::Conflict => Action::requeue(jittered(Duration::from_secs(5))),
        _ => resync(ctx.settings.topic_resync_seconds),
    }
}

/// The name of the live Topic that owns this one's name: the oldest, the smaller UID on a tie.
/// `None` when it is this one.
pub fn owner(topic: &Topic, all: &[Arc<Topic>]) -> Option<String> {
    let rank = |t: &Topic| (t.metadata.creation_timestamp.clone(), t.metadata.uid.clone());
    all.iter()
        .filter(|other| {
            other.namespace() == topic.namespace()
                && other.spec.cluster_ref == topic.spec.cluster_ref
                && other.topic_name() == topic.topic_name()
                && other.metadata.uid != topic.metadata.uid
                && other.metadata.deletion_timestamp.is_none()
                && other.annotations().get(MANAGED_ANNOTATION).is_none_or(|v| v != "false")
        })
        .filter(|other| topic.metadata.deletion_timestamp.is_some() || rank(other) < rank(topic))
        .min_by_key(|other| rank(other))
        .map(|other| other.name_any())
}

/// The finalizer is there exactly while it has something to do. Returns whether it was changed.
async fn fix_finalizer(objects: &Objects, topic: &Topic, unmanaged: bool) -> Result<bool, Error> {
    let wanted = topic.spec.deletion_policy == DeletionPolicy::Delete && !unmanaged;
    let Some(patch) = finalizer_patch(topic, wanted) else { return Ok(false) };
    objects.merge::<Topic>(&topic.name_any(), &patch).await?;
    Ok(true)
}

/// A patch that adds or removes the finalizer, `None` when it is as wanted. It holds the resource
/// version, so that finalizers of others that come meanwhile are not lost.
pub fn finalizer_patch<K: Resource>(object: &K, wanted: bool) -> Option<serde_json::Value> {
    let meta = object.meta();
    let mut finalizers = meta.finalizers.clone().unwrap_or_default();
    if finalizers.iter().any(|f| f == FINALIZER) == wanted {
        return None;
    }
    if wanted {
        finalizers.push(FINALIZER.to_owned());
    } else {
        finalizers.retain(|f| f != FINALIZER);
    }
    Some(json!({"metadata": {
        "finalizers": finalizers,
        "resourceVersion": meta.resource_version,
    }}))
}

/// Looks at every broker group and takes the next step.
async fn sync(ctx: &Context, topic: &Topic, cluster: &RocketMQCluster) -> Finding {
    let name = topic.topic_name();
    let wanted =
        Wanted { queues: topic.spec.queues_per_group, permission: topic.spec.permission.bits() };
    let groups = brokers::groups(cluster);
    if groups.is_empty() {
        return Finding::stopped(Reason::ClusterNotReady, "the cluster has no broker yet");
    }
    let answers = join_all(groups.iter().map(|group| ctx.admin.topic(&group.address, name))).await;
    let (observed, failures) = split(&groups, answers);
    let complete = failures.is_empty();
    let before = topic.status.clone().unwrap_or_default();

    let there: Vec<&Observed> = observed.iter().filter(|o| o.settings.is_some()).collect();
    let differs = there.iter().any(|o| o.settings.as_ref() != Some(&as_wanted(o, wanted)));
    if before.origin.is_none() {
        if !complete {
            return Finding::unreachable(observed, wanted, &failures);
        }
        let origin = if there.is_empty() { Origin::Created } else { Origin::Adopted };
        let refused = match topic.spec.adopt {
            AdoptPolicy::Never => origin == Origin::Adopted,
            AdoptPolicy::IfIdentical => origin == Origin::Adopted && differs,
            AdoptPolicy::Update => false,
        };
        if refused {
            return Finding::stopped(
                Reason::AdoptionRefused,
                format!(
                    "topic {name:?} is on {} already and adopt is {:?}: set adopt to Update, or delete the topic there",
                    join(there.iter().map(|o| o.group.as_str())),
                    topic.spec.adopt
                ),
            );
        }
        // The status is written before the first request to a broker: after a crash in between, the
        // next pass knows that the topic is its own.
        let happening = match origin {
            Origin::Created => Happening::TopicCreated,
            Origin::Adopted => Happening::TopicAdopted,
        };
        ctx.events.send(&topic.object_ref(&()), happening, name).await;
        return Finding::first_seen(origin);
    }

    if there
        .iter()
        .any(|o| o.settings.as_ref().is_some_and(|s| s.order && differs_in_queues(s, wanted)))
    {
        return Finding::stopped(
            Reason::OrderedResizeRefused,
            format!(
                "topic {name:?} is ordered: another queue count would send keys to other queues; set queuesPerGroup back"
            ),
        );
    }
    let drifted = status::drifted(topic, &before, &observed, wanted);
    if !drifted.is_empty() && topic.spec.drift_policy != DriftPolicy::Correct {
        return Finding::drift(observed, wanted, drifted, &failures);
    }
    if let Some(waiting) = consumer_groups_first(ctx, topic, &before, &observed) {
        return Finding::stopped(Reason::WaitingForConsumerGroups, waiting);
    }

    let retiring = if plan::shrinks(wanted, &observed) {
        Some(drain::look(ctx, topic, &groups, &observed, wanted, &before).await)
    } else {
        None
    };
    let planned = plan::plan(
        wanted,
        &observed,
        complete,
        before.resize.as_ref(),
        retiring.as_ref().and_then(|seen| seen.as_ref().ok()),
        ctx.now(),
        ctx.settings.client_refresh(),
    );
    let mut finding = Finding::planned(observed, wanted, &planned, drifted, &failures);
    if let Some(Err(error)) = retiring {
        finding.note_failure(&error);
    }
    for (group, settings) in &planned.writes {
        let Some(broker) = groups.iter().find(|g| g.name == *group) else { continue };
        tracing::info!(
            topic = name,
            broker = group,
            read = settings.read_queues,
            write = settings.write_queues,
            permission = settings.permission,
            "writing topic"
        );
        match ctx.admin.put_topic(&broker.address, name, settings).await {
            Ok(()) => finding.wrote(group, settings, wanted),
            Err(error) => {
                // The step stays open: what was waited for need not be waited for again.
                finding.resize = before.resize.clone().or_else(|| planned.resize.clone());
                finding.note_failure(&error);
            }
        }
    }
    if !finding.drifted.is_empty() {
        ctx.metrics.corrected_drift("Topic");
    }
    finding
}

fn differs_in_queues(settings: &crate::rocketmq::TopicSettings, wanted: Wanted) -> bool {
    settings.read_queues != wanted.queues || settings.write_queues != wanted.queues
}

fn as_wanted(observed: &Observed, wanted: Wanted) -> crate::rocketmq::TopicSettings {
    let base = observed.settings.clone().unwrap_or_else(|| plan::created(wanted));
    crate::rocketmq::TopicSettings {
        read_queues: wanted.queues,
        write_queues: wanted.queues,
        permission: wanted.permission,
        ..base
    }
}

fn split(
    groups: &[Group],
    answers: Vec<Result<Option<crate::rocketmq::TopicSettings>, AdminError>>,
) -> (Vec<Observed>, Vec<AdminError>) {
    let mut observed = Vec::new();
    let mut failures = Vec::new();
    for (group, answer) in groups.iter().zip(answers) {
        match answer {
            Ok(settings) => observed.push(Observed { group: group.name.clone(), settings }),
            Err(error) => failures.push(error),
        }
    }
    (observed, failures)
}

/// On a broker group that is new to a topic, consumer groups are made before the topic: a message
/// must not arrive before those who want it may read. Returns what is waited for.
fn consumer_groups_first(
    ctx: &Context,
    topic: &Topic,
    before: &TopicStatus,
    observed: &[Observed],
) -> Option<String> {
    let new: Vec<&str> = observed
        .iter()
        .filter(|o| o.settings.is_none() && before.groups.iter().all(|g| g.name != o.group))
        .map(|o| o.group.as_str())
        .collect();
    if new.is_empty() {
        return None;
    }
    let synced = conditions::find(&before.conditions, "Synced");
    if let Some(condition) = synced
        && condition.reason == Reason::WaitingForConsumerGroups.as_str()
        && ctx.now().duration_since(condition.last_transition_time.0) > CONSUMER_GROUPS_WAIT
    {
        return None;
    }
    let missing: Vec<String> = ctx
        .consumer_groups
        .state()
        .iter()
        .filter(|group| {
            group.namespace() == topic.namespace()
                && group.spec.cluster_ref == topic.spec.cluster_ref
                && group.metadata.deletion_timestamp.is_none()
                && group.annotations().get(MANAGED_ANNOTATION).is_none_or(|v| v != "false")
        })
        .filter(|group| {
            let status = group.status.clone().unwrap_or_default();
            let given_up = conditions::find(&status.conditions, "Ready").is_some_and(|ready| {
                [Reason::Conflict, Reason::AdoptionRefused]
                    .iter()
                    .any(|reason| reason.as_str() == ready.reason)
            });
            !given_up
                && new.iter().any(|name| !status.groups.iter().any(|g| g.name == *name && g.synced))
        })
        .map(|group| group.group_name().to_owned())
        .collect();
    (!missing.is_empty())
        .then(|| format!("consumer groups first on {}: {}", new.join(", "), missing.join(", ")))
}

async fn announce(ctx: &Context, topic: &Topic, now: &TopicStatus, finding: &Finding) {
    let about = topic.object_ref(&());
    let before = topic.status.clone().unwrap_or_default();
    match (&before.resize, &now.resize) {
        (None, Some(resize)) => {
            let note = format!("{} to {}", counted(resize.from, "queue"), resize.to);
            ctx.events.send(&about, Happening::QueuesResizing, note).await;
        }
        (Some(resize), None) => {
            ctx.events.send(&about, Happening::QueuesResized, counted(resize.to, "queue")).await;
        }
        _ => {}
    }
    let reason_was = |kind: &str, reason: Reason| {
        conditions::find(&before.conditions, kind).is_some_and(|c| c.reason == reason.as_str())
    };
    if finding.reason == Reason::Conflict && !reason_was("Conflict", Reason::Conflict) {
        ctx.events.send(&about, Happening::Conflict, finding.message.clone()).await;
    }
    if finding.reason == Reason::ClusterNotFound && !reason_was("Ready", Reason::ClusterNotFound) {
        ctx.events.send(&about, Happening::ClusterNotFound, finding.message.clone()).await;
    }
    if !finding.drifted.is_empty() {
        let corrects = topic.spec.drift_policy == DriftPolicy::Correct;
        if corrects {
            let note = finding.drifted.join("; ");
            ctx.events.send(&about, Happening::DriftCorrected, note).await;
        } else if topic.spec.drift_policy == DriftPolicy::Warn
            && !conditions::is_true(&before.conditions, "Drifted")
        {
            ctx.events.send(&about, Happening::DriftDetected, finding.drifted.join("; ")).await;
        }
    }
}

fn join<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
#[path = "topic/tests.rs"]
mod tests;
