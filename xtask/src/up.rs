//! `cargo xtask up`: from nothing to a message that went through, on a cluster
//! that stays. Running it again brings what is there up to date.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::cluster::{Choice, Cluster};
use crate::images::{self, Images};
use crate::process;
use crate::progress::{say, step};
use crate::workspace;

/// Where the operator lives.
pub const OPERATOR_NAMESPACE: &str = "rocketmq-system";
/// Where e2e/manifests puts its objects, and their names.
const NAMESPACE: &str = "rocketmq";
const NAMESRV: &str = "example-namesrv.rocketmq.svc:9876";
const TOPIC: &str = "orders";
const GROUP: &str = "billing";

/// Which cluster to bring up.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    cluster: Choice,
}

/// Does it all and prints what a person needs next.
pub fn run(options: &Options) -> Result<()> {
    let cluster = Cluster::provide(&options.cluster)?;
    let images = images::provide(&cluster, &options.cluster, false)?;
    step("install the operator", || install(&cluster, &images))?;
    step("apply the example cluster, topic and consumer group", || apply(&cluster))?;
    step("wait until they are Ready", || wait_ready(&cluster))?;
    step("send a message and receive it", || pass_a_message(&cluster, &images))?;
    say("up");
    println!("{}", next_steps(&cluster, &images));
    Ok(())
}

fn install(cluster: &Cluster, images: &Images) -> Result<()> {
    let charts = workspace::root().join("charts");
    // Helm never upgrades definitions that a chart merely carries, hence a chart of their own.
    process::capture(
        cluster
            .helm()?
            .args(["upgrade", "--install", "rocketmq-crds"])
            .arg(charts.join("rocketmq-crds"))
            .args(["--namespace", OPERATOR_NAMESPACE, "--create-namespace", "--wait"]),
    )?;
    let mut helm = cluster.helm()?;
    helm.args(["upgrade", "--install", "rocketmq-operator"])
        .arg(charts.join("rocketmq-operator"))
        .args(["--namespace", OPERATOR_NAMESPACE, "--wait", "--timeout", "180s"]);
    for name in ["operator", "broker", "namesrv"] {
        helm.arg("--set").arg(format!("images.{name}={}", images.exact(name)));
    }
    process::capture(&mut helm).map(drop)
}

fn apply(cluster: &Cluster) -> Result<()> {
    let manifests = workspace::root().join("e2e/manifests");
    process::capture(cluster.kubectl()?.args(["apply", "--server-side", "-f"]).arg(manifests))
        .map(drop)
}

fn wait_ready(cluster: &Cluster) -> Result<()> {
    let waited = process::capture(
        cluster
            .kubectl()?
            .args([
                "--namespace",
                NAMESPACE,
                "wait",
                "--for",
                "condition=Ready",
                "--timeout",
                "300s",
                "--all",
            ])
            .arg("rocketmqclusters.rocketmq.rs,topics.rocketmq.rs,consumergroups.rocketmq.rs"),
    );
    if waited.is_ok() {
        return Ok(());
    }
    let state = process::capture(
        cluster
            .kubectl()?
            .args(["--namespace", NAMESPACE, "get", "-o", "wide"])
            .arg("rocketmqclusters.rocketmq.rs,topics.rocketmq.rs,consumergroups.rocketmq.rs,pods,events"),
    )?;
    waited.map(drop).with_context(|| format!("namespace {NAMESPACE} holds:\n{state}"))
}

fn pass_a_message(cluster: &Cluster, images: &Images) -> Result<()> {
    let stamp = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .context("the clock stands before 1970")?
        .as_millis();
    let body = format!("hello {stamp}");
    rmq(cluster, images, &format!("up-send-{stamp}"), &["send", TOPIC, &body])?;
    // The group may have messages from before; ours is behind them.
    for attempt in 0..100 {
        let name = format!("up-consume-{stamp}-{attempt}");
        let received =
            rmq(cluster, images, &name, &["consume", TOPIC, "--group", GROUP, "--count", "1"])?;
        if received.contains(&body) {
            return Ok(());
        }
    }
    bail!("group {GROUP} received 100 messages of topic {TOPIC}, and {body:?} is not among them")
}

/// Runs `rmq` as a pod and returns what it printed.
fn rmq(cluster: &Cluster, images: &Images, name: &str, arguments: &[&str]) -> Result<String> {
    let mut kubectl = cluster.kubectl()?;
    kubectl
        .args([
            "--namespace",
            NAMESPACE,
            "run",
            name,
            "--restart",
            "Never",
            "--image-pull-policy",
            "IfNotPresent",
        ])
        .args(["--image", &images.exact("rmq"), "--env", &format!("NAMESRV_ADDR={NAMESRV}")])
        .args(["--override-type", "strategic", "--overrides", &restricted(name).to_string(), "--"])
        .args(arguments);
    process::capture(&mut kubectl)?;
    let ended = process::capture(cluster.kubectl()?.args(["--namespace", NAMESPACE]).args([
        "wait",
        "--for",
        "jsonpath={.status.phase}=Succeeded",
        "--timeout",
        "60s",
        &format!("pod/{name}"),
    ]));
    let printed =
        process::capture(cluster.kubectl()?.args(["--namespace", NAMESPACE, "logs", name]))
            .unwrap_or_else(|error| format!("no log: {error:#}"));
    process::capture(cluster.kubectl()?.args([
        "--namespace",
        NAMESPACE,
        "delete",
        "pod",
        name,
        "--wait=false",
    ]))?;
    ended.with_context(|| format!("`rmq {}` printed:\n{printed}", arguments.join(" ")))?;
    Ok(printed)
}

/// What the restricted Pod Security level asks of a pod of one container.
fn restricted(container: &str) -> serde_json::Value {
    serde_json::json!({
        "spec": {
            "automountServiceAccountToken": false,
            "securityContext": {
                "runAsNonRoot": true,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "containers": [{
                "name": container,
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "capabilities": { "drop": ["ALL"] },
                },
            }],
        },
    })
}

fn next_steps(cluster: &Cluster, images: &Images) -> String {
    let kubeconfig = cluster.kubeconfig.display();
    let tools = workspace::cache().join("bin");
    let rmq = images.exact("rmq");
    // Not in the namespace of the example: that one refuses pods that are not restricted.
    let run = format!(
        "kubectl -n default run rmq --rm -i --quiet --restart Never --image {rmq} --env NAMESRV_ADDR={NAMESRV} --"
    );
    let stop = match cluster.kind {
        Some(_) => "cargo xtask down".to_owned(),
        None => format!(
            "kubectl delete namespace {NAMESPACE}; helm -n {OPERATOR_NAMESPACE} uninstall rocketmq-operator rocketmq-crds"
        ),
    };
    format!(
        "
  Reach it
    export KUBECONFIG={kubeconfig} PATH={}:$PATH
    kubectl -n {NAMESPACE} get rocketmqclusters,topics,consumergroups,pods
  Send and receive, from inside the cluster
    {run} send {TOPIC} hello
    {run} consume {TOPIC} --group {GROUP} --count 1
  Connect a client in a pod
    its name server address is {NAMESRV}
  Stop and remove everything
    {stop}",
        tools.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pod_of_a_message_is_restricted() {
        let pod = restricted("x");
        assert_eq!(pod["spec"]["containers"][0]["name"], "x");
        assert_eq!(
            pod["spec"]["containers"][0]["securityContext"]["capabilities"]["drop"][0],
            "ALL"
        );
    }
}
