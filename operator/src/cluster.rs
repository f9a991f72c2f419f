//! One pass over a RocketMQCluster: read, build, apply, roll, prune, status.
//!
//! Each pass reads the world anew and takes the steps that are safe now; what has to wait is looked
//! at again by the next pass. Nothing is kept in the process.

mod group_status;
pub mod members;
pub mod observe;
mod replication_status;
mod requests;
pub mod rollout;
pub mod status;
pub mod trouble;
pub mod volumes;

use std::sync::Arc;
use std::time::Duration;

use kube::api::DeleteParams;
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};

use crate::apply::{Child, Objects};
use crate::build::pod::DATA_VOLUME;
use crate::build::{self, Defaults, Scale, Tier, names};
use crate::conditions::{Reason, find, is_true};
use crate::context::{Context, namespace_of, resync};
use crate::crd::RocketMQCluster;
use crate::crd::settings::Refused;
use crate::error::{Error, jittered};
use crate::events::{Happening, counted};
use crate::failover::lease;
use crate::failover::memory::Asked;
use observe::World;
use rollout::{Roll, TierView};

/// How soon a cluster that is not yet as wanted is looked at again, should no event come first.
/// Registration with a name server shows in no event.
const SETTLING: Duration = Duration::from_secs(1);

/// Brings one cluster a step closer to its spec.
///
/// # Errors
/// Fails when the API server does; brokers that do not answer only show in the status.
pub async fn reconcile(cluster: Arc<RocketMQCluster>, ctx: Arc<Context>) -> Result<Action, Error> {
    ctx.pass(&*cluster, pass(&cluster, &ctx)).await
}

async fn pass(cached: &RocketMQCluster, ctx: &Context) -> Result<Action, Error> {
    let namespace = namespace_of(cached);
    let objects = ctx.objects(&namespace);
    // The status decides on events, so it must not be an old copy.
    let Some(cluster) = objects.get::<RocketMQCluster>(&cached.name_any()).await? else {
        ctx.forget(cached);
        ctx.cluster_gone(&namespace, &cached.name_any());
        return Ok(Action::await_change());
    };
    if cluster.metadata.deletion_timestamp.is_some() {
        // Children go with their owner; volumes stay or go as the StatefulSet says.
        ctx.cluster_gone(&namespace, &cluster.name_any());
        return Ok(Action::await_change());
    }

    let mut world = observe::read(&objects, &cluster).await?;
    let scale = scale(&cluster, &world);
    let defaults = Defaults {
        broker_image: ctx.settings.broker_image.clone(),
        name_server_image: ctx.settings.namesrv_image.clone(),
    };
    let desired = build::children(&cluster, &scale, &defaults);

    let mut groups_created = Vec::new();
    // A tier whose configuration would not start stays as it is: finding that out by a pod would
    // cost the pod. The API server refuses most of it; what it cannot name is found here.
    let refused = Refused::of(&cluster.spec, !scale.appointed.is_empty());
    if !cluster.spec.paused {
        if refused.name_servers.is_empty() {
            apply_tier(&objects, &desired.name_servers, &mut world).await?;
        }
        if refused.brokers.is_empty() {
            groups_created = apply_brokers(ctx, &objects, &cluster, &desired, &mut world).await?;
        }
        requests::answer(ctx, &objects, &cluster, &scale).await?;
        prune(&objects, &cluster, &desired, &world).await?;
    }

    let (registrations, reports) = futures::join!(
        observe::registrations(ctx, &cluster, &world),
        observe::reports(ctx, &world),
    );
    let views = tier_views(ctx, &cluster, &desired, &world);
    let registered = status::all_registered(&cluster, &views, &registrations);
    let roll = rollout::plan(&views, registered, ctx.now());
    let troubles: Vec<_> =
        world.pods.values().filter_map(|pod| trouble::of(pod, ctx.now())).collect();
    let status = status::compute(
        &cluster,
        &status::Seen {
            world: &world,
            tiers: &views,
            registrations: &registrations,
            roll: &roll,
            refused: &refused,
            troubles: &troubles,
            reports: &reports,
            promotions: &promotions(ctx, &cluster, &scale),
            scale: &scale,
            version: build::image::version(&build::image::broker(&cluster.spec, &defaults)),
        },
        ctx.now(),
    );

    announce(ctx, &cluster, &status, &groups_created).await;
    if cluster.status.as_ref() != Some(&status) {
        objects.apply_status::<RocketMQCluster>(&cluster.name_any(), &status).await?;
    }
    let ready = is_true(&status.conditions, "Ready");
    ctx.metrics.set_cluster_ready(&namespace, &cluster.name_any(), ready);
    for group in &status.groups {
        ctx.metrics.set_group_writable(&namespace, &group.name, group.writable);
        if let Some(epoch) = group.master_epoch {
            ctx.metrics.set_group_epoch(&namespace, &group.name, epoch);
        }
    }

    if !cluster.spec.paused {
        match &roll {
            Roll::Replace { pod, reason } => {
                replace(ctx, &objects, &cluster, pod, *reason).await?;
            }
            Roll::Switchover { group, to, purpose } => {
                if let Some(to) = names::replica_of(group, to) {
                    let asked = Asked { to, reason: (*purpose).to_owned() };
                    ctx.groups.of(&cluster, group).lock().asked = Some(asked);
                    ctx.pokes.group(&namespace, group);
                }
            }
            Roll::Wait { .. } | Roll::Done => {}
        }
    }
    // What is refused stays so until the spec changes, and that is an event.
    let waits_for_people = cluster.spec.paused
        || (refused != Refused::default() && matches!(roll, Roll::Done) && troubles.is_empty());
    Ok(if !world.foreign_leases.is_empty() {
        // What becomes of them shows in no event.
        Action::requeue(jittered(lease::FOREIGN_RETRY))
    } else if ready || waits_for_people {
        resync(ctx.settings.cluster_resync_seconds)
    } else {
        Action::requeue(jittered(SETTLING))
    })
}

/// What this process saw of promotions in each group.
fn promotions(ctx: &Context, cluster: &RocketMQCluster, scale: &Scale) -> status::Promotions {
    let name = cluster.name_any();
    let mut seen = status::Promotions::default();
    for number in scale.appointed.keys() {
        let broker = names::broker(&name, *number);
        let memory = ctx.groups.of(cluster, &broker);
        let memory = memory.lock();
        if let Some(last) = &memory.last_failover
            && seen.last.as_ref().is_none_or(|newest| newest.time < last.time)
        {
            seen.last = Some(last.clone());
        }
        if let Some(why) = &memory.blocked {
            seen.blocked.insert(broker, why.clone());
        }
    }
    seen
}

/// How many of each to run. Fewer groups than exist are never taken to mean removal, and name
/// servers go only after every broker has been told the shorter list.
fn scale(cluster: &RocketMQCluster, world: &World) -> Scale {
    let name = cluster.name_any();
    let listed = cluster.spec.name_servers.replicas.max(1);
    let existing = world
        .stateful_sets
        .get(&names::name_servers(&name))
        .and_then(|set| set.spec.replicas)
        .unwrap_or(0);
    let groups = world
        .stateful_sets
        .keys()
        .filter_map(|set| names::broker_number(&name, set))
        .map(|number| number + 1)
        .fold(cluster.spec.brokers.groups, i32::max);
    let name_server_pods =
        if existing > listed && world.a_broker_lists_more_name_servers(&name, listed) {
            existing
        } else {
            listed
        };
    let appointed = members::all_appointed(cluster, world, groups);
    Scale { name_servers_listed: listed, name_server_pods, groups, appointed }
}

/// Applies the broker groups; returns the names of those that are new.
async fn apply_brokers(
    ctx: &Context,
    objects: &Objects,
    cluster: &RocketMQCluster,
    desired: &build::Children,
    world: &mut World,
) -> Result<Vec<String>, Error> {
    volumes::enlarge(objects, ctx, cluster, world).await?;
    let listed = cluster.spec.name_servers.replicas.max(1);
    let name_servers_ready = world.name_servers_ready() >= listed;
    let mut created = Vec::new();
    for tier in &desired.brokers {
        // A broker starts with the complete list of name servers, all of them there.
        let exists = world.stateful_sets.contains_key(&tier.workload.name_any());
        if exists || name_servers_ready {
            volumes::replace_for(objects, tier, world).await?;
            record_new_group(objects, cluster, tier, world).await?;
            // Its brokers would wait for a record that nobody can make.
            if world.foreign_leases.contains(&tier.workload.name_any()) {
                continue;
            }
            apply_tier(objects, tier, world).await?;
            if !exists {
                created.push(tier.workload.name_any());
            }
        }
    }
    Ok(created)
}

/// Makes the record of a group that gets slaves for the first time, before they start: so far the first
/// replica has all there is. A group that had slaves before, which its volumes or the status show, is
/// left to `failover`: its replicas have to be asked.
async fn record_new_group(
    objects: &Objects,
    cluster: &RocketMQCluster,
    tier: &Tier,
    world: &mut World,
) -> Result<(), Error> {
    let broker = tier.workload.name_any();
    let is_there = world.leases.contains_key(&broker) || world.foreign_leases.contains(&broker);
    if tier.access.is_none() || is_there {
        return Ok(());
    }
    let status = cluster.status.as_ref();
    let known = status.is_some_and(|status| {
        status.groups.iter().any(|group| group.name == broker && group.master_epoch.is_some())
    });
    let has_slaves = world.claims.keys().any(|claim| {
        let pod = claim.strip_prefix(DATA_VOLUME).and_then(|pod| pod.strip_prefix('-'));
        pod.and_then(|pod| names::replica_of(&broker, pod)).is_some_and(|id| id.0 > 1)
    });
    let number = names::broker_number(&cluster.name_any(), &broker);
    if let (false, false, Some(number)) = (known, has_slaves, number) {
        let record = lease::record_of_new_group();
        match lease::create(objects, cluster, number, &record).await? {
            lease::Created::Made(made) => {
                world.leases.insert(broker, *made);
            }
            lease::Created::Foreign => {
                world.foreign_leases.insert(broker);
            }
            lease::Created::Known => {
                return Err(Error::NotYet(format!("the record of {broker} was made meanwhile")));
            }
        }
    }
    Ok(())
}

async fn apply_tier(objects: &Objects, tier: &Tier, world: &mut World) -> Result<(), Error> {
    let name = tier.config.name_any();
    objects.apply(&tier.config, world.config_maps.get(&name)).await?;
    for service in &tier.services {
        objects.apply(service, world.services.get(&service.name_any())).await?;
    }
    if let Some(budget) = &tier.budget {
        objects.apply(budget, world.budgets.get(&budget.name_any())).await?;
    }
    let name = tier.workload.name_any();
    if let Some(access) = &tier.access {
        objects.apply(&access.account, world.accounts.get(&name)).await?;
        objects.apply(&access.role, world.roles.get(&name)).await?;
        objects.apply(&access.binding, world.bindings.get(&name)).await?;
    }
    let live = world.stateful_sets.get(&name);
    // Claim templates cannot change in place; `volumes` replaces the StatefulSet when its size does.
    let mut workload = tier.workload.clone();
    if let Some(live) = live.filter(|set| set.spec.volume_claim_templates.is_some()) {
        workload.spec.volume_claim_templates =
            volumes::templates_as_applied(&workload.spec, &live.spec);
    }
    let (after, _) = objects.apply(&workload, live).await?;
    world.stateful_sets.insert(name, after);
    Ok(())
}

/// Deletes children of this very cluster that are no longer wanted. StatefulSets are never among
/// them: [`scale`] keeps every group that exists.
async fn prune(
    objects: &Objects,
    cluster: &RocketMQCluster,
    desired: &build::Children,
    world: &World,
) -> Result<(), Error> {
    let tiers = || std::iter::once(&desired.name_servers).chain(&desired.brokers);
    for (name, service) in &world.services {
        if !tiers().any(|t| t.services.iter().any(|s| s.name_any() == *name)) {
            delete_own(objects, cluster, service).await?;
        }
    }
    for (name, config) in &world.config_maps {
        if !tiers().any(|t| t.config.name_any() == *name) {
            delete_own(objects, cluster, config).await?;
        }
    }
    for (name, budget) in &world.budgets {
        if !tiers().any(|t| t.budget.as_ref().is_some_and(|b| b.name_any() == *name)) {
            delete_own(objects, cluster, budget).await?;
        }
    }
    Ok(())
}

async fn delete_own<K: Child>(
    objects: &Objects,
    cluster: &RocketMQCluster,
    object: &K,
) -> Result<(), Error> {
    let ours = object.owner_references().iter().any(|owner| {
        owner.controller == Some(true) && Some(&owner.uid) == cluster.metadata.uid.as_ref()
    });
    if ours && object.meta().deletion_timestamp.is_none() {
        objects.delete(object, DeleteParams::background()).await?;
    }
    Ok(())
}

fn tier_views<'a>(
    ctx: &Context,
    cluster: &RocketMQCluster,
    desired: &build::Children,
    world: &'a World,
) -> Vec<TierView<'a>> {
    let now = ctx.monotonic();
    let view = |tier: &Tier, number: Option<i32>| {
        let name = tier.workload.name_any();
        let members = number.and_then(|number| {
            let may_ask = ctx.groups.of(cluster, &name).lock().may_ask(now);
            members::Members::of(cluster, world, number, may_ask)
        });
        let sets = &world.stateful_sets;
        TierView::new(name, number.is_none(), &tier.workload, sets, &world.pods)
            .with_members(members)
    };
    let brokers = (0..).zip(&desired.brokers);
    std::iter::once(view(&desired.name_servers, None))
        .chain(brokers.map(|(number, tier)| view(tier, Some(number))))
        .collect()
}

async fn replace(
    ctx: &Context,
    objects: &Objects,
    cluster: &RocketMQCluster,
    pod: &rollout::PodView<'_>,
    reason: rollout::RestartReason,
) -> Result<(), Error> {
    let what =
        if pod.name_server { Happening::NameServerRestarted } else { Happening::BrokerRestarted };
    tracing::info!(pod = pod.name, reason = reason.as_str(), "replacing pod");
    objects.delete(pod.pod, DeleteParams::default()).await?;
    ctx.events
        .send(&cluster.object_ref(&()), what, format!("{}: {}", pod.name, reason.as_str()))
        .await;
    Ok(())
}

/// Events for what changed between the last status and this one.
async fn announce(
    ctx: &Context,
    cluster: &RocketMQCluster,
    now: &crate::crd::cluster::RocketMQClusterStatus,
    groups_created: &[String],
) {
    let about = cluster.object_ref(&());
    let before = cluster.status.clone().unwrap_or_default();
    if cluster.status.is_none() {
        let note = format!(
            "creating {} and {}",
            counted(cluster.spec.name_servers.replicas, "name server"),
            counted(cluster.spec.brokers.groups, "broker group")
        );
        ctx.events.send(&about, Happening::ClusterCreated, note).await;
    }
    for group in groups_created {
        ctx.events.send(&about, Happening::GroupCreated, group.clone()).await;
    }
    match (&before.rollout, &now.rollout) {
        (None, Some(rollout)) => {
            let note =
                format!("{} of {} pods to replace", rollout.total - rollout.updated, rollout.total);
            ctx.events.send(&about, Happening::RolloutStarted, note).await;
        }
        (Some(_), None) => {
            ctx.events.send(&about, Happening::RolloutCompleted, "every pod is current").await;
        }
        _ => {}
    }
    let became = |kind: &str| {
        let found = find(&now.conditions, kind)?;
        (found.status == "True" && !is_true(&before.conditions, kind))
            .then(|| found.message.clone())
    };
    if let Some(note) = became("ScaleInBlocked") {
        ctx.events.send(&about, Happening::ScaleInBlocked, note).await;
    }
    // Also when one fault takes the place of another.
    if let Some(degraded) = find(&now.conditions, "Degraded")
        && degraded.status == "True"
        && find(&before.conditions, "Degraded").is_none_or(|old| old.reason != degraded.reason)
    {
        let what = if degraded.reason == Reason::RolloutStuck.as_str() {
            Happening::RolloutStuck
        } else {
            Happening::PodFailing
        };
        ctx.events.send(&about, what, degraded.message.clone()).await;
    }
    if let Some(config) = find(&now.conditions, "ConfigApplied")
        && config.reason == Reason::InvalidSpec.as_str()
        && find(&before.conditions, "ConfigApplied")
            .is_none_or(|old| (&old.reason, &old.message) != (&config.reason, &config.message))
    {
        ctx.events.send(&about, Happening::ConfigRefused, config.message.clone()).await;
    }
    let not_fenced = |conditions| {
        find(conditions, "Fenced")
            .and_then(|fenced| replication_status::not_fenced(&fenced.message))
    };
    if let Some(note) = not_fenced(&now.conditions)
        && not_fenced(&before.conditions) != Some(note)
    {
        ctx.events.send(&about, Happening::RequestRefused, note).await;
    }
    if let Some(note) = became("ReconciliationPaused") {
        ctx.events.send(&about, Happening::Paused, note).await;
    }
}

#[cfg(test)]
#[path = "cluster/tests.rs"]
mod tests;
