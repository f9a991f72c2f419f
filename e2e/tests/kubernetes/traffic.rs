//! A Java producer and a Java consumer run throughout, while brokers die, name servers go, queues
//! grow and shrink, and a setting rolls the pods: the ledger stays clean.

use std::time::Instant;

use anyhow::{Context, Result};
use e2e::kubernetes::{Namespace, condition, is_ready};
use serde_json::Value;

use crate::load::{Load, TOPIC, replaced_one_at_a_time, uid};
use crate::{cluster, cluster_manifest, pods};

/// Times a message may come once more: each event that takes a broker away, each rebalance.
const DISTURBANCES: u32 = 20;

#[test]
fn nothing_acknowledged_is_lost_through_deaths_rolls_and_resizes() -> Result<()> {
    let (kubernetes, _turn) = cluster();
    let namespace = kubernetes.namespace("e2e-traffic")?;
    let logs = tempfile::tempdir()?;

    let applied = Instant::now();
    namespace.apply(&cluster_manifest("shop", 2, ""))?;
    namespace.wait_ready("rocketmqcluster/shop")?;
    println!("kubectl apply to cluster Ready: {:.1} s", applied.elapsed().as_secs_f64());
    let load = Load::start(&namespace, "shop", logs.path())?;
    let step = |name: &str| -> Result<()> {
        let began = Instant::now();
        load.flowing(60).with_context(|| format!("after: {name}"))?;
        println!("{name}: sends answered again after {:.1} s", began.elapsed().as_secs_f64());
        Ok(())
    };

    if std::env::var_os("ROCKETMQ_E2E_KIND_CLUSTER").is_some() {
        kill_process(&namespace, "shop-broker-0-0")?;
        step("broker process killed")?;
    }

    let old = uid(&namespace, "shop-broker-1-0")?;
    let deleted = Instant::now();
    namespace.run(&["delete", "pod", "shop-broker-1-0", "--wait=false"])?;
    namespace.wait_pod("shop-broker-1-0", Some(&old))?;
    wait_writable(&namespace)?;
    println!("broker pod deleted to writable again: {:.1} s", deleted.elapsed().as_secs_f64());
    step("broker pod deleted")?;

    let old = uid(&namespace, "shop-namesrv-0")?;
    namespace.run(&["delete", "pod", "shop-namesrv-0", "--wait=false"])?;
    namespace.wait_pod("shop-namesrv-0", Some(&old))?;
    step("name server pod deleted")?;

    resize(&namespace, 8)?;
    step("queues grown to 8")?;
    resize(&namespace, 2)?;
    step("queues shrunk to 2")?;

    roll(&namespace)?;
    step("setting changed")?;

    load.judge(DISTURBANCES)
}

/// SIGKILL to a pod's process, from the machine that the nodes run on; waits for its restart.
fn kill_process(namespace: &Namespace<'_>, pod: &str) -> Result<()> {
    let restarts = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"].as_i64();
    let before = namespace.get(&format!("pod/{pod}"))?;
    pods::signal(&before, rustix::process::Signal::KILL)?;
    let count = restarts(&before);
    namespace.wait_for(&format!("pod/{pod}"), "restarted and ready", |now| {
        restarts(now) > count
            && condition(now, "Ready").is_some_and(|ready| ready["status"] == "True")
    })?;
    Ok(())
}

/// Waits until every group has a writable master at every name server.
fn wait_writable(namespace: &Namespace<'_>) -> Result<()> {
    namespace.wait_for("rocketmqcluster/shop", "Available", |cluster| {
        condition(cluster, "Available").is_some_and(|available| available["status"] == "True")
    })?;
    Ok(())
}

/// Changes the queue count of the topic and waits until the operator has carried it through.
fn resize(namespace: &Namespace<'_>, queues: i64) -> Result<()> {
    let patch = format!("{{\"spec\":{{\"queuesPerGroup\":{queues}}}}}");
    namespace.run(&["patch", "topic", TOPIC, "--type=merge", "-p", &patch])?;
    namespace.wait_for("topic/orders", &format!("at {queues} queues"), |topic| {
        let groups = topic["status"]["groups"].as_array();
        is_ready(topic)
            && topic["status"]["resize"].is_null()
            && groups.is_some_and(|groups| {
                !groups.is_empty()
                    && groups.iter().all(|group| {
                        group["readQueues"] == queues && group["writeQueues"] == queues
                    })
            })
    })?;
    Ok(())
}

/// Changes a setting that needs a restart, and sees every broker pod replaced, one at a time.
fn roll(namespace: &Namespace<'_>) -> Result<()> {
    replaced_one_at_a_time(namespace, &["shop-broker-0-0", "shop-broker-1-0"], || {
        namespace.apply(&cluster_manifest("shop", 2, "      fileReservedTime: '24'\n"))
    })?;
    namespace.wait_ready("rocketmqcluster/shop").map(drop)
}
