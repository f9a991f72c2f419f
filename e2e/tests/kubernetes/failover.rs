//! A group with a slave, under a Java producer and a Java consumer: its master is killed, deleted,
//! frozen, cut off and asked to hand over, and its settings roll; each time the group goes on with
//! another master, and the ledger stays clean.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::kubernetes::{LIMIT, Namespace};
use e2e::wait;
use rustix::process::Signal;
use serde_json::Value;

use crate::load::{Load, replaced_one_at_a_time};
use crate::{cluster, cluster_manifest, pods};

const GROUP: &str = "pair-broker-0";
/// Times a message may come once more: each change of the master, and what it makes of rebalances.
const DISTURBANCES: u32 = 50;
/// How long a new master of the group may take to show in the status.
const FAILOVER_LIMIT: Duration = Duration::from_secs(60);

/// What happens to a master, and what is promised of it (docs/operations.md, "When a master is lost").
/// Limits leave a busy machine some room.
struct Fault {
    name: &'static str,
    /// Time until sends are answered again.
    limit: Duration,
    /// Whether the same pod may be the next master: it is back at once, and may have more than the other.
    may_return: bool,
}

/// Its container is seen to have ended, and its return is waited for: 3 s.
const KILLED: Fault =
    Fault { name: "master killed", limit: Duration::from_secs(15), may_return: true };
/// It hands over when it is asked to stop.
const DELETED: Fault =
    Fault { name: "master's pod deleted", limit: Duration::from_secs(15), may_return: false };
/// The same, if it comes to that; else a younger process on its volume tells, or its lease of 15 s runs
/// out.
const FORCED: Fault = Fault {
    name: "master's pod deleted by force",
    limit: Duration::from_secs(25),
    may_return: true,
};
/// Its lease of 15 s runs out, and its return is waited for.
const FROZEN: Fault =
    Fault { name: "master frozen", limit: Duration::from_secs(30), may_return: false };
/// Its lease runs out, and it knows that itself.
const CUT_OFF: Fault =
    Fault { name: "master's network cut", limit: Duration::from_secs(30), may_return: false };
/// It hands over.
const SWITCHOVER: Fault =
    Fault { name: "switchover", limit: Duration::from_secs(15), may_return: false };

#[test]
fn a_slave_takes_over_and_nothing_acknowledged_is_lost() -> Result<()> {
    let (kubernetes, _turn) = cluster();
    let namespace = kubernetes.namespace("e2e-failover")?;
    let logs = tempfile::tempdir()?;
    namespace.apply(&manifest(""))?;
    namespace.wait_ready("rocketmqcluster/pair")?;
    let load = Load::start(&namespace, "pair", logs.path())?;

    let inflict = |fault: &Fault, inflict: &dyn Fn(&str) -> Result<()>| -> Result<()> {
        let Fault { name, limit, may_return } = *fault;
        let before = both_in_sync(&namespace).with_context(|| format!("before: {name}"))?;
        let failed = load.errors().len();
        let began = Instant::now();
        inflict(&before.pod).context(name)?;
        let after =
            another_epoch(&namespace, before.epoch).with_context(|| format!("after: {name}"))?;
        let elected = began.elapsed();
        load.flowing_within(20, limit.saturating_sub(elected))
            .with_context(|| format!("within {limit:?} after: {name}"))?;
        let answered = began.elapsed();
        ensure!(may_return || after.pod != before.pod, "{name}: {} is still the master", after.pod);
        let errors = load.errors();
        println!(
            "{name}: {} took over from {} after {:.1} s, sends answered again after {:.1} s, {} failed {:?}",
            after.pod,
            before.pod,
            elected.as_secs_f64(),
            answered.as_secs_f64(),
            errors.len() - failed,
            errors.last().filter(|_| errors.len() > failed)
        );
        Ok(())
    };
    let is_kind = std::env::var_os("ROCKETMQ_E2E_KIND_CLUSTER").is_some();
    if is_kind {
        inflict(&KILLED, &|pod| {
            pods::signal(&namespace.get(&format!("pod/{pod}"))?, Signal::KILL)
        })?;
    }
    inflict(&DELETED, &|pod| namespace.run(&["delete", "pod", pod, "--wait=false"]).map(drop))?;
    inflict(&FORCED, &|pod| {
        namespace
            .run(&["delete", "pod", pod, "--wait=false", "--force", "--grace-period=0"])
            .map(drop)
    })?;
    if is_kind {
        let frozen = both_in_sync(&namespace)?.pod;
        let object = namespace.get(&format!("pod/{frozen}"))?;
        inflict(&FROZEN, &|_| pods::signal(&object, Signal::STOP))?;
        // The liveness probe may have replaced it meanwhile.
        let _ = pods::signal(&object, Signal::CONT);
    }
    if is_kind {
        let object = namespace.get(&format!("pod/{}", both_in_sync(&namespace)?.pod))?;
        let network = pods::Network::of(&object)?;
        inflict(&CUT_OFF, &|_| network.cut(true))?;
        network.cut(false)?;
    }
    inflict(&SWITCHOVER, &|_| {
        let annotation = format!("rocketmq.rs/switchover={GROUP}");
        namespace.run(&["annotate", "rocketmqcluster/pair", &annotation, "--overwrite"]).map(drop)
    })?;

    roll(&namespace)?;
    load.flowing(60).context("after the roll")?;
    both_in_sync(&namespace).context("after the roll")?;

    load.judge(DISTURBANCES)
}

fn manifest(more_config: &str) -> String {
    cluster_manifest("pair", 1, more_config)
        .replace("    groups: 1\n", "    groups: 1\n    replicasPerGroup: 1\n")
}

/// Who is master.
struct Master {
    pod: String,
    epoch: i64,
}

fn group(cluster: &Value) -> Result<&Value> {
    let groups = cluster["status"]["groups"].as_array().context("no groups in the status")?;
    groups.iter().find(|group| group["name"] == GROUP).context("the group is not in the status")
}

fn master(cluster: &Value) -> Result<Master> {
    let group = group(cluster)?;
    ensure!(group["writable"] == true, "the group is not writable: {group}");
    let pod = group["master"].as_str().context("the group has no master")?.to_owned();
    let epoch = group["masterEpoch"].as_i64().context("the master has no epoch")?;
    Ok(Master { pod, epoch })
}

/// Waits until both replicas are ready and in sync: the next fault is a single one.
fn both_in_sync(namespace: &Namespace<'_>) -> Result<Master> {
    wait::until("both replicas in sync", LIMIT, || {
        let cluster = namespace.get("rocketmqcluster/pair")?;
        let group = group(&cluster)?;
        let replicas = group["replicas"].as_array().context("no replicas in the status")?;
        let whole = |replica: &&Value| replica["inSync"] == true && replica["ready"] == true;
        ensure!(replicas.iter().filter(whole).count() == 2, "the group is {group}");
        master(&cluster)
    })
}

/// Waits until a master of a newer epoch is writable.
fn another_epoch(namespace: &Namespace<'_>, epoch: i64) -> Result<Master> {
    wait::until("another master", FAILOVER_LIMIT, || {
        let master = master(&namespace.get("rocketmqcluster/pair")?)?;
        ensure!(master.epoch > epoch, "{} is the master of epoch {}", master.pod, master.epoch);
        Ok(master)
    })
}

/// Changes a setting that needs a restart, and sees both pods replaced, one at a time.
fn roll(namespace: &Namespace<'_>) -> Result<()> {
    replaced_one_at_a_time(namespace, &["pair-broker-0-0", "pair-broker-0-1"], || {
        namespace.apply(&manifest("      fileReservedTime: '24'\n"))
    })?;
    namespace.wait_ready("rocketmqcluster/pair").map(drop)
}
