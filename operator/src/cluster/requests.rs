//! Answers to annotations that ask for what no group can do, because the names in them are nobody's. What
//! a group can do, or refuses, is answered by its own pass.

use kube::{Resource, ResourceExt};

use crate::apply::Objects;
use crate::build::Scale;
use crate::context::Context;
use crate::crd::{ALLOW_UNCLEAN_ANNOTATION, RocketMQCluster, SWITCHOVER_ANNOTATION};
use crate::error::Error;
use crate::events::Happening;
use crate::failover::request::{self, Named};

/// Answers one entry, and takes it away; that is an event, which brings the next pass.
///
/// # Errors
/// Fails when the API server does, and with a conflict when the annotations have changed meanwhile.
pub async fn answer(
    ctx: &Context,
    objects: &Objects,
    cluster: &RocketMQCluster,
    scale: &Scale,
) -> Result<(), Error> {
    for (annotation, named) in
        [(SWITCHOVER_ANNOTATION, Named::GroupsAndPods), (ALLOW_UNCLEAN_ANNOTATION, Named::Groups)]
    {
        let strangers = request::strangers(cluster, scale, annotation, named);
        let Some((entry, why)) = strangers.into_iter().next() else { continue };
        let note = format!("{annotation}={entry}: {why}");
        tracing::warn!(cluster = cluster.name_any(), note, "request refused");
        ctx.events.send(&cluster.object_ref(&()), Happening::RequestRefused, note).await;
        if let Some(patch) = request::answered(cluster, annotation, &entry, None) {
            objects.merge::<RocketMQCluster>(&cluster.name_any(), &patch).await?;
        }
        return Ok(());
    }
    Ok(())
}
