//! A Java producer and a Java consumer that run throughout a test, and the ledger that judges them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::kubernetes::{LIMIT, Namespace, condition};
use e2e::ledger::{GroupRules, Ledger, SendRules};
use e2e::line::Line;
use e2e::programs::{Client, Program};
use e2e::wait;
use serde_json::Value;

use crate::{group_manifest, topic_manifest};

/// The topic that is sent to.
pub const TOPIC: &str = "orders";
const GROUP: &str = "billing";
/// Below the client refresh that the operator is told of, 30 s in production on both sides.
const ROUTE_POLL_MS: &str = "2000";

/// Producer and consumer of one cluster.
pub struct Load {
    producer: Program,
    consumer: Program,
}

impl Load {
    /// Makes topic and consumer group of the cluster, which is Ready, and starts both programs in pods of
    /// their own; returns when sends are answered. `logs` is where they leave theirs.
    pub fn start(namespace: &Namespace<'_>, cluster: &str, logs: &Path) -> Result<Load> {
        namespace.apply(&topic_manifest(TOPIC, cluster, 4))?;
        namespace.apply(&group_manifest(GROUP, cluster))?;
        namespace.wait_ready(&format!("topic/{TOPIC}"))?;
        namespace.wait_ready(&format!("consumergroup/{GROUP}"))?;
        let namesrv = format!("{cluster}-namesrv.{}.svc:9876", namespace.name);
        let common = ["--topic", TOPIC, "--route-poll-ms", ROUTE_POLL_MS];
        let consumer = namespace.client_pod("consumer", Client::Java49, logs)?.consume(
            &namesrv,
            &[&common[..], &["--group", GROUP, "--heartbeat-ms", "1000"]].concat(),
        )?;
        consumer.wait_ready()?;
        let sends = ["--threads", "2", "--rate", "60", "--seconds", "3000", "--retries", "2"];
        let producer = namespace
            .client_pod("producer", Client::Java53, logs)?
            .produce(&namesrv, &[&common[..], &sends].concat())?;
        let load = Load { producer, consumer };
        load.flowing(60).context("at the start")?;
        Ok(load)
    }

    /// Waits until so many more sends are answered.
    pub fn flowing(&self, more: usize) -> Result<()> {
        self.flowing_within(more, LIMIT)
    }

    /// The same, for no longer than `limit`.
    pub fn flowing_within(&self, more: usize, limit: Duration) -> Result<()> {
        let before = self.producer.acknowledged();
        wait::until("answered sends", limit, || {
            let now = self.producer.acknowledged();
            ensure!(now >= before + more, "{} answered since", now - before);
            Ok(())
        })
    }

    /// What sends failed with after all their retries.
    pub fn errors(&self) -> Vec<String> {
        let text = |line| match line {
            Line::Error(failed) => Some(failed.error),
            _ => None,
        };
        self.producer.lines().into_iter().filter_map(text).collect()
    }

    /// Stops both and judges: every acknowledged message came, and none more often than `disturbances`
    /// allow.
    pub fn judge(self, disturbances: u32) -> Result<()> {
        let mut ledger = Ledger::new();
        ledger.sent(&self.producer.stop()?, SendRules { attempts: 3, ..SendRules::SEQUENTIAL });
        let rules = GroupRules { topic: TOPIC, disturbances, ..GroupRules::default() };
        let came = wait::until("every acknowledged message", LIMIT, || {
            match ledger.missing(&rules, &self.consumer.lines()) {
                0 => Ok(()),
                missing => Err(format!("{missing} are missing")),
            }
        });
        ledger.arrived(GROUP, &self.consumer.stop()?);
        println!("ledger: {}", ledger.check(GROUP, &rules)?);
        came
    }
}

/// The uid of a pod.
pub fn uid(namespace: &Namespace<'_>, pod: &str) -> Result<String> {
    let pod = namespace.get(&format!("pod/{pod}"))?;
    Ok(pod["metadata"]["uid"].as_str().context("a pod without uid")?.to_owned())
}

/// Does what makes the operator replace these pods, and sees it replace all of them, one at a time.
pub fn replaced_one_at_a_time(
    namespace: &Namespace<'_>,
    pods: &[&str],
    change: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let before: Vec<String> = pods.iter().map(|pod| uid(namespace, pod)).collect::<Result<_>>()?;
    change()?;
    let mut several_away = false;
    wait::until("the pods replaced", LIMIT * 2, || {
        // One list, so that all are seen at the same moment.
        let list = namespace.get("pods")?;
        let listed = list["items"].as_array().context("a list without items")?;
        let mut replaced = 0;
        let mut away = 0;
        for (name, old) in pods.iter().zip(&before) {
            let pod = listed.iter().find(|pod| pod["metadata"]["name"] == **name);
            let ready = pod.is_some_and(is_there);
            let is_new = pod.is_some_and(|pod| pod["metadata"]["uid"] != old.as_str());
            replaced += usize::from(ready && is_new);
            away += usize::from(!ready);
        }
        several_away |= away > 1;
        ensure!(replaced == pods.len(), "{replaced} of {} are new and ready", pods.len());
        anyhow::Ok(())
    })?;
    ensure!(!several_away, "more than one of {pods:?} was away at a time");
    Ok(())
}

/// Whether a pod is ready and is to stay.
fn is_there(pod: &Value) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready["status"] == "True")
        && pod["metadata"]["deletionTimestamp"].is_null()
}
