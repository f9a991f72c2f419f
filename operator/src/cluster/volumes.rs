//! Volume growth: the claims are enlarged, then the StatefulSet is replaced without its pods, since
//! a claim template cannot change in place.

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{DeleteParams, PropagationPolicy};
use kube::{Resource, ResourceExt};
use serde_json::json;

use super::observe::World;
use crate::apply::{Objects, quantity};
use crate::build::{Tier, names};
use crate::context::Context;
use crate::crd::RocketMQCluster;
use crate::error::Error;
use crate::events::Happening;

/// Enlarges claims that are smaller than asked for, and removes (leaving its pods) each StatefulSet
/// whose template has the smaller size, so that it is made anew by the same pass.
///
/// # Errors
/// Fails when the API server does, for example because the storage class cannot grow.
pub async fn enlarge(
    objects: &Objects,
    ctx: &Context,
    cluster: &RocketMQCluster,
    world: &World,
) -> Result<(), Error> {
    let wanted = &cluster.spec.brokers.storage.size;
    let mut enlarged = Vec::new();
    for (name, claim) in &world.claims {
        if claim.metadata.deletion_timestamp.is_none() && smaller(requested(claim), wanted) {
            let patch = json!({"spec": {"resources": {"requests": {"storage": wanted}}}});
            objects.merge::<PersistentVolumeClaim>(name, &patch).await?;
            enlarged.push(name.clone());
        }
    }
    if !enlarged.is_empty() {
        let note = format!("{} to {wanted}", enlarged.join(", "));
        ctx.events.send(&cluster.object_ref(&()), Happening::VolumeResized, note).await;
    }
    let outdated: Vec<StatefulSet> = world
        .stateful_sets
        .values()
        .filter(|set| set.labels().get(names::TIER_LABEL).is_some_and(|t| t == names::BROKER_TIER))
        .filter(|set| set.metadata.deletion_timestamp.is_none())
        .filter(|set| smaller(template_size(&set.spec), wanted))
        .cloned()
        .collect();
    if let Some(set) = outdated.into_iter().next() {
        objects.delete(&set, leaving_pods()).await?;
        return Err(Error::NotYet(format!(
            "StatefulSet {} is replaced for its larger volume",
            set.name_any()
        )));
    }
    Ok(())
}

/// Removes (leaving its pods) the StatefulSet of a tier that differs in a field which cannot change: a
/// group that gets slaves starts them all at once. It is made anew by the next pass.
///
/// # Errors
/// Fails when the API server does, and with [`Error::NotYet`] when it removed one.
pub async fn replace_for(objects: &Objects, tier: &Tier, world: &World) -> Result<(), Error> {
    let name = tier.workload.name_any();
    let Some(live) = world.stateful_sets.get(&name) else { return Ok(()) };
    let wanted = tier.workload.spec.pod_management_policy.as_deref();
    let has = live.spec.pod_management_policy.as_deref();
    if wanted.is_none() || has == wanted || live.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    objects.delete(live, leaving_pods()).await?;
    Err(Error::NotYet(format!("StatefulSet {name} is replaced to start its pods at once")))
}

fn leaving_pods() -> DeleteParams {
    DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() }
}

/// The claim templates to send for a StatefulSet that exists: those it has.
pub fn templates_as_applied(
    wanted: &StatefulSetSpec,
    live: &StatefulSetSpec,
) -> Option<Vec<PersistentVolumeClaim>> {
    let mut templates = wanted.volume_claim_templates.clone()?;
    let live = live.volume_claim_templates.as_ref()?;
    for template in &mut templates {
        if let Some(live) = live.iter().find(|l| l.metadata.name == template.metadata.name) {
            template.metadata.labels.clone_from(&live.metadata.labels);
            if let (Some(wanted), Some(live)) = (&mut template.spec, &live.spec) {
                wanted.resources.clone_from(&live.resources);
                wanted.storage_class_name.clone_from(&live.storage_class_name);
                wanted.access_modes.clone_from(&live.access_modes);
            }
        }
    }
    Some(templates)
}

/// Claims whose volume has not the wanted size yet.
pub fn pending(world: &World, wanted: &str) -> Vec<String> {
    world
        .claims
        .iter()
        .filter(|(_, claim)| {
            let capacity = claim
                .status
                .as_ref()
                .and_then(|status| status.capacity.as_ref())
                .and_then(|capacity| capacity.get("storage"));
            capacity.is_none() || smaller(capacity, wanted)
        })
        .map(|(name, _)| name.clone())
        .collect()
}

fn requested(claim: &PersistentVolumeClaim) -> Option<&Quantity> {
    claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get("storage")
}

fn template_size(spec: &StatefulSetSpec) -> Option<&Quantity> {
    requested(spec.volume_claim_templates.as_ref()?.first()?)
}

fn smaller(size: Option<&Quantity>, wanted: &str) -> bool {
    match (size.and_then(|size| quantity(&size.0)), quantity(wanted)) {
        (Some(size), Some(wanted)) => size < wanted,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_compare_as_numbers() {
        assert!(smaller(Some(&Quantity("1Gi".into())), "2Gi"));
        assert!(!smaller(Some(&Quantity("1Gi".into())), "1024Mi"));
        assert!(!smaller(Some(&Quantity("3Gi".into())), "2Gi"));
        assert!(!smaller(None, "2Gi"));
    }
}
