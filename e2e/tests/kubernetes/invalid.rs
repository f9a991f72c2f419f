//! Manifests that cannot be right are refused by the API server, with the field, the value and the
//! rule.

use anyhow::{Result, bail, ensure};

use e2e::kubernetes::condition;

use crate::{cluster, cluster_manifest, topic_manifest};

#[test]
fn invalid_manifests_are_refused_with_field_value_and_rule() -> Result<()> {
    let (cluster, _turn) = cluster();
    let namespace = cluster.namespace("e2e-invalid")?;
    let refused = |manifest: &str, wanted: &[&str]| -> Result<()> {
        let Err(error) = namespace.apply(manifest) else { bail!("accepted: {manifest}") };
        let text = format!("{error:#}");
        for wanted in wanted {
            ensure!(text.contains(wanted), "{wanted:?} is not in: {text}");
        }
        Ok(())
    };
    let small = cluster_manifest("c", 1, "").replace("size: 1Gi", "size: 1Ki");
    refused(&small, &["storage.size", "1Ki", "64Mi"])?;
    let no_group = cluster_manifest("c", 0, "");
    refused(&no_group, &["brokers.groups", "0 is outside 1..256"])?;
    let owned = cluster_manifest("c", 1, "      brokerId: '3'\n");
    refused(&owned, &["brokerId"])?;
    let setting = cluster_manifest("c", 1, "      flushDiskType: BAD\n");
    refused(&setting, &["brokers.config.flushDiskType", "BAD", "ASYNC_FLUSH or SYNC_FLUSH"])?;
    let range = cluster_manifest("c", 1, "      deleteFileBatchMax: '0'\n");
    refused(&range, &["brokers.config.deleteFileBatchMax", "\"0\"", "1 to 2147483647"])?;
    refused(&topic_manifest("t", "c", 0), &["queuesPerGroup", "0 is outside 1..1024"])?;
    let unknown = topic_manifest("t", "c", 1) + "  colour: blue\n";
    refused(&unknown, &["colour"])?;
    let slash = topic_manifest("t", "c", 1) + "  topicName: a/b\n";
    refused(&slash, &["topicName", "a/b"])?;
    let system = topic_manifest("t", "c", 1) + "  topicName: TBW102\n";
    refused(&system, &["topicName", "TBW102", "reserved"])?;

    namespace.apply(&topic_manifest("kept", "c", 1))?;
    refused(&topic_manifest("kept", "other", 1), &["clusterRef", "other", "cannot move"])?;
    Ok(())
}

/// What the API server cannot know is told by conditions: a key of no program, an image that is
/// nowhere.
#[test]
fn what_does_not_run_is_named_in_conditions() -> Result<()> {
    let (cluster, _turn) = cluster();
    let namespace = cluster.namespace("e2e-degraded")?;
    let manifest = cluster_manifest("c", 1, "      flushDiskTyp: SYNC_FLUSH\n").replacen(
        "spec:\n",
        "spec:\n  image: {nameServer: 'rocketmq-rs/none:1', pullPolicy: Never}\n",
        1,
    );
    namespace.apply(&manifest)?;
    let object = "rocketmqcluster/c";
    let found = namespace.wait_for(object, "Degraded", |now| {
        condition(now, "Degraded").is_some_and(|found| found["status"] == "True")
    })?;
    let says = |kind: &str, reason: &str, text: &str| -> Result<()> {
        let told = condition(&found, kind).is_some_and(|condition| {
            condition["reason"] == reason
                && condition["message"].as_str().is_some_and(|message| message.contains(text))
        });
        ensure!(told, "{kind} is not {reason} {text:?}: {}", found["status"]["conditions"]);
        Ok(())
    };
    says("Degraded", "ImageNotPulled", "image rocketmq-rs/none:1 cannot be pulled")?;
    says("Ready", "InvalidSpec", "write flushDiskType")?;
    Ok(())
}
