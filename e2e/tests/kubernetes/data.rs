//! Messages outlive the cluster resource under the default retention.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::kubernetes::LIMIT;
use e2e::ledger::{GroupRules, Ledger, SendRules};
use e2e::programs::Client;
use e2e::wait;

use crate::{cluster, cluster_manifest, group_manifest, topic_manifest};

const MESSAGES: usize = 200;

#[test]
fn a_cluster_made_again_under_its_name_has_its_messages() -> Result<()> {
    let (kubernetes, _turn) = cluster();
    let namespace = kubernetes.namespace("e2e-retain")?;
    let logs = tempfile::tempdir()?;
    let namesrv = "kept-namesrv.e2e-retain.svc:9876";
    namespace.apply(&cluster_manifest("kept", 1, ""))?;
    namespace.apply(&topic_manifest("letters", "kept", 4))?;
    // Groups are not created by whoever comes, as topics are not.
    namespace.apply(&group_manifest("reader", "kept"))?;
    namespace.wait_ready("rocketmqcluster/kept")?;
    namespace.wait_ready("topic/letters")?;
    namespace.wait_ready("consumergroup/reader")?;
    let programs = namespace.client_pod("client", Client::Java49, logs.path())?;
    let mut ledger = Ledger::new();
    let count = MESSAGES.to_string();
    let producer =
        programs.produce(namesrv, &["--topic", "letters", "--count", &count, "--retries", "0"])?;
    ledger.sent(&producer.finish(LIMIT)?, SendRules::SEQUENTIAL);
    ensure!(ledger.acknowledged("letters") == MESSAGES, "not everything was acknowledged");

    namespace.run(&["delete", "topic/letters", "rocketmqcluster/kept", "--wait"])?;
    wait::until("the pods are gone", LIMIT, || {
        let left =
            namespace.run(&["get", "pods", "-l", "rocketmq.rs/cluster=kept", "-o", "name"])?;
        ensure!(left.trim().is_empty(), "there are still {left}");
        Ok(())
    })?;
    let volumes = namespace.run(&["get", "pvc", "-o", "name"])?;
    ensure!(volumes.contains("kept"), "no volume is left: {volumes}");

    namespace.apply(&cluster_manifest("kept", 1, ""))?;
    namespace.wait_ready("rocketmqcluster/kept").context("made again")?;
    // The services have new addresses; a Java process would look for the old ones for a while.
    let programs = namespace.client_pod("reader", Client::Java49, logs.path())?;
    let pull = programs
        .consume(namesrv, &["--topic", "letters", "--group", "reader", "--mode", "pull"])?;
    ledger.arrived("reader", &pull.finish(Duration::from_secs(120))?);
    let rules = GroupRules { topic: "letters", in_order: true, ..GroupRules::default() };
    let summary = ledger.check("reader", &rules)?;
    ledger.check_no_holes("reader")?;
    println!("made again: {summary}");
    Ok(())
}
