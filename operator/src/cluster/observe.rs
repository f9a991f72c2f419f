//! What a pass reads: the children of a cluster from the API server, and who is registered from
//! each name server.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;
use rocketmq_replication::Report;

use crate::apply::{Child, Objects};
use crate::build::{config, names};
use crate::context::{Context, namespace_of};
use crate::crd::RocketMQCluster;
use crate::error::Error;
use crate::failover::{lease, sight};

/// Everything that carries the cluster's label.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// By name.
    pub stateful_sets: BTreeMap<String, StatefulSet>,
    /// By name.
    pub services: BTreeMap<String, Service>,
    /// By name.
    pub config_maps: BTreeMap<String, ConfigMap>,
    /// By name.
    pub budgets: BTreeMap<String, PodDisruptionBudget>,
    /// By name.
    pub pods: BTreeMap<String, Pod>,
    /// By name.
    pub claims: BTreeMap<String, PersistentVolumeClaim>,
    /// Records of the groups whose masters are appointed, by brokerName.
    pub leases: BTreeMap<String, Lease>,
    /// Groups of whose name there is a Lease that is not their record.
    pub foreign_leases: BTreeSet<String>,
    /// By name.
    pub accounts: BTreeMap<String, ServiceAccount>,
    /// By name.
    pub roles: BTreeMap<String, Role>,
    /// By name.
    pub bindings: BTreeMap<String, RoleBinding>,
}

/// Reads the world.
///
/// # Errors
/// Fails when the API server does.
pub async fn read(objects: &Objects, cluster: &RocketMQCluster) -> Result<World, Error> {
    let selector = names::selector_text(&cluster.name_any(), None);
    let (stateful_sets, services, config_maps, budgets, pods, claims, leases) = futures::try_join!(
        objects.list(&selector),
        objects.list(&selector),
        objects.list(&selector),
        objects.list(&selector),
        objects.list(&selector),
        objects.list(&selector),
        objects.list(&selector),
    )?;
    let leases: BTreeMap<String, Lease> = by_name(leases);
    let name = cluster.name_any();
    let is_foreign = |(broker, lease): (&String, &Lease)| {
        let is_group = names::broker_number(&name, broker).is_some();
        (is_group && !lease::is_record(lease, &name, broker)).then(|| broker.clone())
    };
    let foreign_leases = leases.iter().filter_map(is_foreign).collect();
    // Most clusters that have neither never will.
    let (accounts, roles, bindings) =
        if cluster.spec.brokers.replicas_per_group > 0 || !leases.is_empty() {
            futures::try_join!(
                objects.list(&selector),
                objects.list(&selector),
                objects.list(&selector),
            )?
        } else {
            Default::default()
        };
    Ok(World {
        stateful_sets: by_name(stateful_sets),
        services: by_name(services),
        config_maps: by_name(config_maps),
        budgets: by_name(budgets),
        pods: by_name(pods),
        claims: by_name(claims),
        leases,
        foreign_leases,
        accounts: by_name(accounts),
        roles: by_name(roles),
        bindings: by_name(bindings),
    })
}

fn by_name<K: Child>(items: Vec<K>) -> BTreeMap<String, K> {
    items.into_iter().map(|item| (item.name_any(), item)).collect()
}

impl World {
    /// Pods of one tier.
    pub fn tier<'a>(&'a self, tier: &'a str) -> impl Iterator<Item = &'a Pod> {
        self.pods
            .values()
            .filter(move |pod| pod.labels().get(names::TIER_LABEL).is_some_and(|t| t == tier))
    }

    /// Name server pods that are ready.
    pub fn name_servers_ready(&self) -> i32 {
        let ready = self.tier(names::NAME_SERVER_TIER).filter(|pod| is_ready(pod)).count();
        i32::try_from(ready).unwrap_or(i32::MAX)
    }

    /// Whether a broker pod may still use a name server beyond the first `listed`: its pod runs a
    /// configuration other than the one in its ConfigMap, or that one still names it.
    pub fn a_broker_lists_more_name_servers(&self, cluster: &str, listed: i32) -> bool {
        let beyond = format!("{}-{listed}.", names::name_servers(cluster));
        self.tier(names::BROKER_TIER).any(|pod| {
            let text = pod
                .labels()
                .get(names::GROUP_LABEL)
                .and_then(|group| self.config_maps.get(group))
                .and_then(|map| map.data.as_ref())
                .and_then(|data| data.get(config::BROKER_FILE));
            let runs = pod.annotations().get(names::CONFIG_ANNOTATION);
            text.is_none_or(|text| {
                text.contains(&beyond) || runs != Some(&config::restart_checksum(text))
            })
        })
    }
}

/// Whether a pod is ready and meant to stay.
pub fn is_ready(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none()
        && pod.status.as_ref().and_then(|status| status.conditions.as_ref()).is_some_and(
            |conditions| conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True"),
        )
}

/// Asks every broker of the groups whose masters are appointed what it has; by the name of its pod.
/// Those that do not answer are left out.
pub async fn reports(ctx: &Context, world: &World) -> BTreeMap<String, Report> {
    let asked = world
        .tier(names::BROKER_TIER)
        .filter(|pod| {
            let group = pod.labels().get(names::GROUP_LABEL);
            group.is_some_and(|group| world.leases.contains_key(group))
        })
        .filter_map(|pod| Some((pod.name_any(), sight::address(pod)?)))
        .map(|(pod, address)| async move { Some((pod, ctx.admin.replica(&address).await.ok()?)) });
    join_all(asked).await.into_iter().flatten().collect()
}

/// What one name server said.
#[derive(Clone, Debug)]
pub struct Registration {
    /// Name of its pod.
    pub name_server: String,
    /// brokerName and master address, or why it did not answer.
    pub masters: Result<BTreeMap<String, String>, String>,
}

/// Asks every ready name server which masters it knows.
pub async fn registrations(
    ctx: &Context,
    cluster: &RocketMQCluster,
    world: &World,
) -> Vec<Registration> {
    let name = cluster.name_any();
    let namespace = namespace_of(cluster);
    let set = names::name_servers(&name);
    let asked = world
        .tier(names::NAME_SERVER_TIER)
        .filter(|pod| is_ready(pod))
        .filter_map(|pod| {
            let pod = pod.name_any();
            let ordinal = pod.strip_prefix(&set)?.strip_prefix('-')?.parse().ok()?;
            Some((pod, names::name_server_address(&name, &namespace, ordinal)))
        })
        .map(|(name_server, address)| {
            let name = &name;
            async move {
                let masters =
                    ctx.admin.masters(&address, name).await.map_err(|error| error.to_string());
                if let Err(error) = &masters {
                    tracing::debug!(name_server, error, "name server does not answer");
                }
                Registration { name_server, masters }
            }
        });
    join_all(asked).await
}
