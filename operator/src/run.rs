//! The running operator: health, leader election, and one set of controllers per watched scope.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::future::{BoxFuture, FutureExt as _, join_all};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, DynamicObject, ListParams};
use kube::runtime::controller::{Config, Controller};
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt};
use tokio_util::sync::CancellationToken;

use crate::apply::Child;
use crate::build::names;
use crate::context::{Context, Stores};
use crate::crd::{ConsumerGroup, GROUP, RocketMQCluster, Topic, VERSION};
use crate::http::{self, Shown};
use crate::lease::{Candidate, End};
use crate::metrics::Metrics;
use crate::pokes::pokes;
use crate::rocketmq::BrokerAdmin;
use crate::settings::Settings;
use crate::{cluster, consumer_group, failover, topic};

/// Events that come within this time make one pass.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// Longest pause after a failed look at a broker group, which may be without a master.
const GROUP_RETRY: Duration = Duration::from_secs(2);
/// Broker groups that are looked at at a time, per namespace.
const GROUPS_AT_A_TIME: u16 = 256;
/// Pause between two looks for the definitions.
const DEFINITIONS_RETRY: Duration = Duration::from_secs(2);

/// Runs until `stop`, or until leadership is lost.
///
/// # Errors
/// Fails when the health port is taken or leadership is lost: the process then has to end, since
/// another one leads.
pub async fn run(
    settings: Settings,
    client: Client,
    admin: Arc<dyn BrokerAdmin>,
    metrics: Metrics,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let shown = Shown { metrics: metrics.clone(), ..Shown::default() };
    let (address, server) = http::serve(settings.http_address, shown.clone(), stop.clone()).await?;
    tracing::info!(%address, "health and metrics");
    let outcome = if !definitions_served(&client, &settings, &stop).await {
        Ok(())
    } else if settings.leader_election {
        shown.ready.store(true, Ordering::Relaxed);
        lead(settings, client, admin, metrics, &stop).await
    } else {
        shown.ready.store(true, Ordering::Relaxed);
        metrics.set_leader(true);
        controllers(&settings, &client, &admin, &metrics, &stop).await;
        Ok(())
    };
    stop.cancel();
    server.await.context("join the health server")?.context("serve health and metrics")?;
    outcome
}

async fn lead(
    settings: Settings,
    client: Client,
    admin: Arc<dyn BrokerAdmin>,
    metrics: Metrics,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let candidate = Candidate::new(
        client.clone(),
        &settings.lease_namespace,
        &settings.lease_name,
        &settings.identity,
    );
    tracing::info!(lease = settings.lease_name, identity = settings.identity, "waiting to lead");
    let Some(since) = candidate.acquire(stop).await else { return Ok(()) };
    tracing::info!(identity = settings.identity, "leading");
    metrics.set_leader(true);
    // Passes end before the lease is released; when it is lost they are cut off at once.
    let working = CancellationToken::new();
    let work = controllers(&settings, &client, &admin, &metrics, &working);
    tokio::pin!(work);
    let stopping = CancellationToken::new();
    let keep = candidate.keep(since, &stopping);
    tokio::pin!(keep);
    let end = tokio::select! {
        () = &mut work => bail!("the controllers ended without being asked to"),
        end = &mut keep => end,
        () = stop.cancelled() => {
            working.cancel();
            tokio::select! {
                end = &mut keep => end,
                () = &mut work => {
                    stopping.cancel();
                    keep.await
                }
            }
        }
    };
    metrics.set_leader(false);
    match end {
        End::Released => Ok(()),
        End::Lost => bail!("leadership of lease {} is lost", settings.lease_name),
    }
}

/// Waits until the API server answers and serves the definitions, and says meanwhile what is missing.
/// Neither is a reason to end: the definitions may be applied after the operator. Returns false when
/// `stop` came first.
async fn definitions_served(
    client: &Client,
    settings: &Settings,
    stop: &CancellationToken,
) -> bool {
    let namespace = settings.watch_namespaces.first().map(String::as_str);
    loop {
        let looked = async {
            served::<RocketMQCluster>(client, namespace).await?;
            served::<Topic>(client, namespace).await?;
            served::<ConsumerGroup>(client, namespace).await
        };
        tokio::select! {
            () = stop.cancelled() => return false,
            found = looked => match found {
                Ok(()) => return true,
                Err(error) => tracing::warn!(error = format!("{error:#}"), "not ready"),
            },
        }
        tokio::select! {
            () = stop.cancelled() => return false,
            () = tokio::time::sleep(DEFINITIONS_RETRY) => {}
        }
    }
}

async fn served<K: Child>(client: &Client, namespace: Option<&str>) -> anyhow::Result<()> {
    let plural = K::plural(&());
    match api::<K>(client, namespace).list(&ListParams::default().limit(1)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => bail!(
            "the API server does not serve {plural}.{GROUP}/{VERSION}: apply the definitions (crds/, or `operator --crds | kubectl apply --server-side -f -`)"
        ),
        Err(error) => Err(error).with_context(|| format!("list {plural}.{GROUP}")),
    }
}

fn api<K: Child>(client: &Client, namespace: Option<&str>) -> Api<K> {
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Runs the controllers of every watched scope until `stop`.
async fn controllers(
    settings: &Settings,
    client: &Client,
    admin: &Arc<dyn BrokerAdmin>,
    metrics: &Metrics,
    stop: &CancellationToken,
) {
    let scopes: Vec<Option<&str>> = if settings.watch_namespaces.is_empty() {
        vec![None]
    } else {
        settings.watch_namespaces.iter().map(|namespace| Some(namespace.as_str())).collect()
    };
    join_all(scopes.into_iter().map(|scope| {
        let parts = (client.clone(), Arc::clone(admin), metrics.clone());
        scope_controllers(settings.clone(), parts, scope, stop)
    }))
    .await;
}

async fn scope_controllers(
    settings: Settings,
    (client, admin, metrics): (Client, Arc<dyn BrokerAdmin>, Metrics),
    scope: Option<&str>,
    stop: &CancellationToken,
) {
    let config = || Config::default().concurrency(settings.concurrency).debounce(DEBOUNCE);
    let all = watcher::Config::default;
    let ours = || {
        watcher::Config::default().labels(&format!(
            "{}={}",
            names::MANAGED_BY_LABEL,
            names::MANAGED_BY
        ))
    };
    let clusters = Controller::new(api::<RocketMQCluster>(&client, scope), all());
    let topics = Controller::new(api::<Topic>(&client, scope), all());
    let groups = Controller::new(api::<ConsumerGroup>(&client, scope), all());
    let (topic_store, group_store) = (topics.store(), groups.store());
    let (leases, leases_written) = reflector::store();
    let (pods, pods_written) = reflector::store();
    let leases_seen = watcher(api::<Lease>(&client, scope), ours())
        .default_backoff()
        .reflect(leases_written)
        .touched_objects();
    let (pokes, poked) = pokes();
    // One watch of pods: what is of concern to a group is so to its cluster.
    let clusters_of_pods = pokes.clone();
    let pods_seen = watcher(api::<Pod>(&client, scope), ours())
        .default_backoff()
        .reflect(pods_written)
        .touched_objects()
        .inspect_ok(move |pod| {
            if let Some(cluster) = cluster_of(pod) {
                clusters_of_pods.cluster_named(cluster);
            }
        });
    let ctx = Arc::new(Context::new(
        client.clone(),
        admin,
        metrics,
        settings.clone(),
        Stores {
            clusters: clusters.store(),
            topics: topics.store(),
            consumer_groups: groups.store(),
            leases,
            pods,
        },
        Arc::default(),
        pokes,
    ));

    let clusters = clusters
        .with_config(config())
        .owns(api::<StatefulSet>(&client, scope), ours())
        .owns(api::<Service>(&client, scope), ours())
        .owns(api::<ConfigMap>(&client, scope), ours())
        .owns(api::<PodDisruptionBudget>(&client, scope), ours())
        .watches(
            api::<PersistentVolumeClaim>(&client, scope),
            ours(),
            |claim: PersistentVolumeClaim| cluster_of(&claim),
        )
        .reconcile_on(poked.clusters)
        .graceful_shutdown_on(stop.clone().cancelled_owned())
        .run(cluster::reconcile, |o, error, ctx| ctx.after_error(&*o, error), Arc::clone(&ctx));
    // A lost master is no time to gather events, and a group that is asked for it must not wait for
    // others whose brokers do not answer.
    let brokers = Controller::new(api::<StatefulSet>(&client, scope), ours())
        .with_config(Config::default().concurrency(GROUPS_AT_A_TIME))
        .watches_stream(leases_seen, |lease: Lease| group_of(&lease))
        .watches_stream(pods_seen, |pod: Pod| group_of(&pod))
        .watches(api::<RocketMQCluster>(&client, scope), all(), |cluster: RocketMQCluster| {
            groups_of(&cluster)
        })
        .reconcile_on(poked.groups)
        .graceful_shutdown_on(stop.clone().cancelled_owned())
        .run(
            failover::reconcile,
            |o, error, ctx| ctx.after_error_within(&*o, error, GROUP_RETRY),
            Arc::clone(&ctx),
        );
    let topics = topics
        .with_config(config())
        .reconcile_on(poked.topics)
        .watches(api::<RocketMQCluster>(&client, scope), all(), move |cluster: RocketMQCluster| {
            let (name, namespace) = (cluster.name_any(), cluster.namespace());
            topic_store
                .state()
                .into_iter()
                .filter(|t| t.spec.cluster_ref.name == name && t.namespace() == namespace)
                .map(|t| ObjectRef::from_obj(&*t))
                .collect::<Vec<_>>()
        })
        .graceful_shutdown_on(stop.clone().cancelled_owned())
        .run(topic::reconcile, |o, error, ctx| ctx.after_error(&*o, error), Arc::clone(&ctx));
    let groups = groups
        .with_config(config())
        .reconcile_on(poked.consumer_groups)
        .watches(api::<RocketMQCluster>(&client, scope), all(), move |cluster: RocketMQCluster| {
            let (name, namespace) = (cluster.name_any(), cluster.namespace());
            group_store
                .state()
                .into_iter()
                .filter(|g| g.spec.cluster_ref.name == name && g.namespace() == namespace)
                .map(|g| ObjectRef::from_obj(&*g))
                .collect::<Vec<_>>()
        })
        .graceful_shutdown_on(stop.clone().cancelled_owned())
        .run(
            consumer_group::reconcile,
            |o, error, ctx| ctx.after_error(&*o, error),
            Arc::clone(&ctx),
        );

    let running: [BoxFuture<'_, ()>; 4] = [
        drive(clusters, |cluster| {
            ctx.cluster_gone(cluster.namespace.as_deref().unwrap_or_default(), &cluster.name);
        })
        .boxed(),
        drive(brokers, |_| ()).boxed(),
        drive(topics, |_| ()).boxed(),
        drive(groups, |_| ()).boxed(),
    ];
    join_all(running).await;
}

/// Passes log for themselves; what comes here is trouble of the watches, and objects that were to be
/// looked at and are gone.
async fn drive<T, E, W>(
    passes: impl futures::Stream<Item = Result<T, kube::runtime::controller::Error<E, W>>>,
    gone: impl Fn(&ObjectRef<DynamicObject>),
) where
    E: std::error::Error + 'static,
    W: std::error::Error + 'static,
{
    use kube::runtime::controller::Error;
    passes
        .for_each(|pass| {
            match pass {
                Ok(_) | Err(Error::ReconcilerFailed(..)) => {}
                Err(Error::ObjectNotFound(object)) => gone(&object),
                Err(error) => tracing::warn!(%error, "watch interrupted"),
            }
            std::future::ready(())
        })
        .await;
}

/// The broker group named by an object's label.
fn group_of<K: Child>(object: &K) -> Option<ObjectRef<StatefulSet>> {
    let name = object.labels().get(names::GROUP_LABEL)?;
    Some(ObjectRef::new(name).within(&object.namespace()?))
}

/// Every broker group of a cluster.
fn groups_of(cluster: &RocketMQCluster) -> Vec<ObjectRef<StatefulSet>> {
    let namespace = cluster.namespace().unwrap_or_default();
    (0..cluster.spec.brokers.groups)
        .map(|number| {
            ObjectRef::new(&names::broker(&cluster.name_any(), number)).within(&namespace)
        })
        .collect()
}

/// The cluster named by an object's label; pods and claims are owned by the StatefulSet.
fn cluster_of<K: Child>(object: &K) -> Option<ObjectRef<RocketMQCluster>> {
    let name = object.labels().get(names::CLUSTER_LABEL)?;
    Some(ObjectRef::new(name).within(&object.namespace()?))
}
