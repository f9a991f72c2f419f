//! A Java producer and a Java consumer run throughout, while brokers die, name servers go, queues
//! grow and shrink, and a setting rolls the pods: the ledger stays clean.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use e2e::kubernetes::{LIMIT, Namespace, condition, is_ready};
use e2e::ledger::{GroupRules, Ledger, SendRules};
use e2e::programs::{Client, Program};
use e2e::wait;
use serde_json::Value;

use crate::{cluster, cluster_manifest, group_manifest, pods, topic_manifest};

const NAMESRV: &str = "shop-namesrv.e2e-traffic.svc:9876";
const TOPIC: &str = "orders";
/// Below the client refresh that the operator is told of, 30 s in production on both sides.
const ROUTE_POLL_MS: &str = "2000";
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
    namespace.apply(&topic_manifest(TOPIC, "shop", 4))?;
    namespace.apply(&group_manifest("billing", "shop"))?;
    namespace.wait_ready("topic/orders")?;
    namespace.wait_ready("consumergroup/billing")?;

    let producing = namespace.client_pod("producer", Client::Java53, logs.path())?;
    let consuming = namespace.client_pod("consumer", Client::Java49, logs.path())?;
    let consumer = consuming.consume(
        NAMESRV,
        &[
            "--topic",
            TOPIC,
            "--group",
            "billing",
            "--heartbeat-ms",
            "1000",
            "--route-poll-ms",
            ROUTE_POLL_MS,
        ],
    )?;
    consumer.wait_ready()?;
    let producer = producing.produce(
        NAMESRV,
        &[
            "--topic",
            TOPIC,
            "--threads",
            "2",
            "--rate",
            "60",
            "--seconds",
            "3000",
            "--retries",
            "2",
            "--route-poll-ms",
            ROUTE_POLL_MS,
        ],
    )?;
    let step = |name: &str| -> Result<()> {
        let began = Instant::now();
        flowing(&producer).with_context(|| format!("after: {name}"))?;
        println!("{name}: sends answered again after {:.1} s", began.elapsed().as_secs_f64());
        Ok(())
    };
    step("start")?;

    if std::env::var_os("ROCKETMQ_E2E_KIND_CLUSTER").is_some() {
        kill_process(&namespace, "shop-broker-0-0")?;
        step("broker process killed")?;
    }

    let uid = uid(&namespace, "shop-broker-1-0")?;
    let deleted = Instant::now();
    namespace.run(&["delete", "pod", "shop-broker-1-0", "--wait=false"])?;
    namespace.wait_pod("shop-broker-1-0", Some(&uid))?;
    wait_writable(&namespace)?;
    println!("broker pod deleted to writable again: {:.1} s", deleted.elapsed().as_secs_f64());
    step("broker pod deleted")?;

    let uid = self::uid(&namespace, "shop-namesrv-0")?;
    namespace.run(&["delete", "pod", "shop-namesrv-0", "--wait=false"])?;
    namespace.wait_pod("shop-namesrv-0", Some(&uid))?;
    step("name server pod deleted")?;

    resize(&namespace, 8)?;
    step("queues grown to 8")?;
    resize(&namespace, 2)?;
    step("queues shrunk to 2")?;

    roll(&namespace)?;
    step("setting changed")?;

    let mut ledger = Ledger::new();
    let rules = SendRules { attempts: 3, ..SendRules::SEQUENTIAL };
    ledger.sent(&producer.stop()?, rules);
    let rules = GroupRules { topic: TOPIC, disturbances: DISTURBANCES, ..GroupRules::default() };
    let came = wait::until("every acknowledged message", LIMIT, || {
        match ledger.missing(&rules, &consumer.lines()) {
            0 => Ok(()),
            missing => Err(format!("{missing} are missing")),
        }
    });
    ledger.arrived("billing", &consumer.stop()?);
    println!("ledger: {}", ledger.check("billing", &rules)?);
    came
}

/// Waits until sends are answered, on a cluster that may have lost a broker a moment ago.
fn flowing(producer: &Program) -> Result<()> {
    let before = producer.acknowledged();
    wait::until("answered sends", LIMIT, || {
        let now = producer.acknowledged();
        ensure!(now >= before + 60, "{} answered since", now - before);
        Ok(())
    })
}

fn uid(namespace: &Namespace<'_>, pod: &str) -> Result<String> {
    let pod = namespace.get(&format!("pod/{pod}"))?;
    Ok(pod["metadata"]["uid"].as_str().context("a pod without uid")?.to_owned())
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
    let pods = ["shop-broker-0-0", "shop-broker-1-0"];
    let before: Vec<String> = pods.iter().map(|pod| uid(namespace, pod)).collect::<Result<_>>()?;
    namespace.apply(&cluster_manifest("shop", 2, "      fileReservedTime: '24'\n"))?;
    let mut both_away = false;
    wait::until("both brokers replaced", LIMIT * 2, || {
        // One list, so that all are seen at the same moment.
        let list = namespace.get("pods")?;
        let listed = list["items"].as_array().context("a list without items")?;
        let mut replaced = 0;
        let mut away = 0;
        for (name, old) in pods.iter().zip(&before) {
            let pod = listed.iter().find(|pod| pod["metadata"]["name"] == **name);
            let ready = pod.is_some_and(|pod| {
                condition(pod, "Ready").is_some_and(|ready| ready["status"] == "True")
                    && pod["metadata"]["deletionTimestamp"].is_null()
            });
            let is_new = pod.is_some_and(|pod| pod["metadata"]["uid"] != old.as_str());
            replaced += usize::from(ready && is_new);
            away += usize::from(!ready);
        }
        both_away |= away > 1;
        ensure!(replaced == pods.len(), "{replaced} of {} are new and ready", pods.len());
        anyhow::Ok(())
    })?;
    ensure!(!both_away, "both broker groups were down at a time");
    namespace.wait_ready("rocketmqcluster/shop")?;
    Ok(())
}
