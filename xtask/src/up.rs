//! `cargo xtask up`: from nothing to a message that went through, on a cluster
//! that stays. Running it again brings what is there up to date.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::cluster::{Choice, Cluster};
use crate::images::{self, Images};
use crate::process;
use crate::progress::{say, seconds, step};
use crate::workspace;

/// Where the operator lives.
pub const OPERATOR_NAMESPACE: &str = "rocketmq-system";
/// Where e2e/manifests puts its objects, and their names.
const NAMESPACE: &str = "rocketmq";
const NAMESRV: &str = "example-namesrv.rocketmq.svc:9876";
const TOPIC: &str = "orders";
const GROUP: &str = "billing";
const EXAMPLE: [&str; 3] = [
    "rocketmqcluster.rocketmq.rs/example",
    "topic.rocketmq.rs/orders",
    "consumergroup.rocketmq.rs/billing",
];

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
    println!("{}", next_steps(&cluster));
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

/// How long the example may take; volumes and images of a slow machine are in it.
const READY_WITHIN: Duration = Duration::from_secs(300);

/// Waits for the objects of e2e/manifests and no others: what else people have in the namespace may
/// have its reasons not to be Ready.
fn wait_ready(cluster: &Cluster) -> Result<()> {
    let deadline = Instant::now() + READY_WITHIN;
    let mut said = Vec::new();
    loop {
        let mut kubectl = cluster.kubectl()?;
        kubectl.args(["--namespace", NAMESPACE, "get", "--output", "json"]).args(EXAMPLE);
        let found = process::capture(&mut kubectl)?;
        let missing = not_ready(&serde_json::from_str(&found).context("kubectl printed no JSON")?);
        if missing.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!(
                "not Ready after {}: {}\nsee `kubectl -n {NAMESPACE} describe {}`",
                seconds(READY_WITHIN),
                missing.join("; "),
                EXAMPLE.join(" ")
            );
        }
        // A crash or a refusal is worth knowing before the time is over.
        if missing != said {
            say(format!("  {}", missing.join("; ")));
            said = missing;
        }
        thread::sleep(Duration::from_secs(2));
    }
}

/// Of a list of our resources, those that are not Ready for their newest spec, each with the reason
/// and the message of its condition.
fn not_ready(list: &serde_json::Value) -> Vec<String> {
    let items = list["items"].as_array().into_iter().flatten();
    items
        .filter_map(|object| {
            let name = format!(
                "{} {}",
                object["kind"].as_str().unwrap_or_default(),
                object["metadata"]["name"].as_str().unwrap_or_default()
            );
            let conditions = object["status"]["conditions"].as_array();
            let ready = conditions.and_then(|all| all.iter().find(|c| c["type"] == "Ready"));
            let Some(ready) = ready else {
                return Some(format!("{name} (the operator has not looked at it yet)"));
            };
            if ready["observedGeneration"] != object["metadata"]["generation"] {
                return Some(format!("{name} (the operator has not seen its newest spec yet)"));
            }
            let text = |field: &str| ready[field].as_str().unwrap_or_default().to_owned();
            (ready["status"] != "True")
                .then(|| format!("{name} ({}: {})", text("reason"), text("message")))
        })
        .collect()
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

fn next_steps(cluster: &Cluster) -> String {
    let kubeconfig = cluster.kubeconfig.display();
    let tools = workspace::cache().join("bin");
    // Not `kubectl run --rm -i`: it attaches to a program that runs already, and loses what one that
    // ends soon has printed before.
    let rmq = format!("kubectl -n {NAMESPACE} exec example-namesrv-0 -- rmq");
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
  Send and receive, from a name server's pod
    {rmq} topic list
    {rmq} send {TOPIC} hello
    {rmq} consume {TOPIC} --group {GROUP} --count 1
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
    fn the_example_is_what_the_manifests_hold() {
        let folder = workspace::root().join("e2e/manifests");
        let text: String = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
            .collect();
        let named = text.lines().filter(|line| line.starts_with("kind: ")).count();
        // The namespace is not waited for.
        assert_eq!(named, EXAMPLE.len() + 1);
        for object in EXAMPLE {
            let name = object.split_once('/').unwrap().1;
            assert!(text.contains(&format!("\n  name: {name}\n")), "{object}");
        }
    }

    #[test]
    fn what_is_not_ready_is_named_with_its_reason() {
        let ready = |status: &str, generation: u32| {
            serde_json::json!({"conditions": [{
                "type": "Ready", "status": status, "reason": "BrokersNotReady",
                "message": "not ready: example-broker-0", "observedGeneration": generation,
            }]})
        };
        let object = |name: &str, status: serde_json::Value| {
            serde_json::json!({
                "kind": "Topic", "metadata": {"name": name, "generation": 2}, "status": status,
            })
        };
        let list = serde_json::json!({"items": [
            object("fine", ready("True", 2)),
            object("broken", ready("False", 2)),
            object("changed", ready("True", 1)),
            object("new", serde_json::Value::Null),
        ]});
        assert_eq!(
            not_ready(&list),
            [
                "Topic broken (BrokersNotReady: not ready: example-broker-0)",
                "Topic changed (the operator has not seen its newest spec yet)",
                "Topic new (the operator has not looked at it yet)",
            ]
        );
        assert!(not_ready(&serde_json::json!({"items": []})).is_empty());
    }

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
