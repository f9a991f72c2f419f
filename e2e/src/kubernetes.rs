//! A Kubernetes cluster as the tests see it: through `kubectl` and `helm`, as people do.
//!
//! `cargo xtask test kubernetes` provides the cluster and says where by environment variables.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::programs::{Client, Programs};
use crate::wait;

/// A pod, a volume or a condition may take this long on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(240);

/// Where the operator lives.
const OPERATOR_NAMESPACE: &str = "rocketmq-system";

/// The cluster.
pub struct Kubernetes {
    context: String,
    image_prefix: String,
    image_tag: String,
    charts: PathBuf,
}

/// A namespace of the cluster, removed when dropped.
pub struct Namespace<'k> {
    cluster: &'k Kubernetes,
    /// Its name.
    pub name: String,
}

fn variable(name: &str) -> Result<String> {
    std::env::var(name)
        .with_context(|| format!("run `cargo xtask test kubernetes`: {name} is not set"))
}

/// Runs a command; gives what it printed, or an error that holds all of it.
fn capture(command: &mut Command, input: Option<&str>) -> Result<String> {
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("start {command:?}"))?;
    if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
        stdin.write_all(text.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{command:?} ended with {}:\n{printed}{complaint}",
        output.status
    );
    Ok(printed)
}

impl Kubernetes {
    /// The cluster that the environment names.
    pub fn from_environment() -> Result<Kubernetes> {
        let chart = PathBuf::from(variable("ROCKETMQ_E2E_CHART")?);
        Ok(Kubernetes {
            context: variable("ROCKETMQ_E2E_CONTEXT")?,
            image_prefix: variable("ROCKETMQ_E2E_IMAGE_PREFIX")?,
            image_tag: variable("ROCKETMQ_E2E_IMAGE_TAG")?,
            charts: chart.parent().context("the chart has no directory")?.to_owned(),
        })
    }

    /// An image of ours.
    pub fn image(&self, name: &str) -> String {
        format!("{}{name}:{}", self.image_prefix, self.image_tag)
    }

    fn kubectl(&self) -> Command {
        let mut command = Command::new("kubectl");
        command.args(["--context", &self.context]);
        command
    }

    /// Runs `kubectl`.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        capture(self.kubectl().args(arguments), None)
    }

    /// Applies a manifest, as `kubectl apply -f` does.
    pub fn apply(&self, manifest: &str) -> Result<String> {
        capture(self.kubectl().args(["apply", "-f", "-"]), Some(manifest))
    }

    /// Installs the operator by its chart, with short route refreshes, and waits for it.
    pub fn install_operator(&self, client_refresh_seconds: u32) -> Result<()> {
        let helm = || {
            let mut helm = Command::new("helm");
            helm.args(["--kube-context", &self.context, "upgrade", "--install"]);
            helm
        };
        let namespace = ["--namespace", OPERATOR_NAMESPACE, "--create-namespace", "--wait"];
        let mut crds = helm();
        crds.arg("rocketmq-crds").arg(self.charts.join("rocketmq-crds")).args(namespace);
        capture(&mut crds, None)?;
        let mut operator = helm();
        operator
            .arg("rocketmq-operator")
            .arg(self.charts.join("rocketmq-operator"))
            .args(namespace)
            .args(["--timeout", "240s"])
            .args(["--set", &format!("clientRefreshSeconds={client_refresh_seconds}")]);
        for name in ["operator", "broker", "namesrv"] {
            operator.args(["--set", &format!("images.{name}={}", self.image(name))]);
        }
        capture(&mut operator, None)?;
        Ok(())
    }

    /// Makes a namespace whose pods must obey the restricted level.
    pub fn namespace(&self, name: &str) -> Result<Namespace<'_>> {
        // One that an interrupted run left behind would hold old data.
        self.run(&["delete", "namespace", name, "--ignore-not-found", "--wait"])?;
        self.apply(&format!(
            "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n  labels:\n    \
             pod-security.kubernetes.io/enforce: restricted\n"
        ))?;
        Ok(Namespace { cluster: self, name: name.to_owned() })
    }
}

impl Drop for Namespace<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // What the person who reads the failure wants to know first.
            for what in ["rocketmqclusters,topics,consumergroups,pods,pvc", "events"] {
                match self.run(&["get", what, "-o", "wide"]) {
                    Ok(text) => println!("{text}"),
                    Err(error) => println!("{error:#}"),
                }
            }
            return;
        }
        if let Err(error) = self.cluster.run(&["delete", "namespace", &self.name, "--wait=false"]) {
            println!("namespace {} stays: {error:#}", self.name);
        }
    }
}

impl Namespace<'_> {
    /// Runs `kubectl` in this namespace.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        let mut all = vec!["--namespace", self.name.as_str()];
        all.extend(arguments);
        self.cluster.run(&all)
    }

    /// Applies a manifest here.
    pub fn apply(&self, manifest: &str) -> Result<()> {
        let arguments = ["--namespace", &self.name, "apply", "-f", "-"];
        capture(self.cluster.kubectl().args(arguments), Some(manifest)).map(drop)
    }

    /// An object, for example `topic/orders`.
    pub fn get(&self, object: &str) -> Result<Value> {
        let text = self.run(&["get", object, "-o", "json"])?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Waits until an object is as `wanted` says; gives it.
    pub fn wait_for(
        &self,
        object: &str,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        wait::until(&format!("{object} {what}"), LIMIT, || {
            let found = self.get(object)?;
            ensure!(wanted(&found), "its status is {}", found["status"]);
            Ok(found)
        })
    }

    /// Waits until a resource of ours is Ready for its newest spec.
    pub fn wait_ready(&self, object: &str) -> Result<Value> {
        self.wait_for(object, "Ready", is_ready)
    }

    /// Waits until a pod is ready and is not the one with `old_uid`.
    pub fn wait_pod(&self, pod: &str, old_uid: Option<&str>) -> Result<Value> {
        self.wait_for(&format!("pod/{pod}"), "ready again", |found| {
            let uid = found["metadata"]["uid"].as_str();
            let is_new = old_uid.is_none() || uid != old_uid;
            is_new
                && found["metadata"]["deletionTimestamp"].is_null()
                && condition(found, "Ready").is_some_and(|ready| ready["status"] == "True")
        })
    }

    /// Starts a pod with the Java clients in it and one process of `client` in that pod.
    pub fn client_pod(&self, pod: &str, client: Client, log: &std::path::Path) -> Result<Programs> {
        let image = self.cluster.image("e2e-java");
        self.apply(&format!(
            "apiVersion: v1
kind: Pod
metadata: {{name: {pod}}}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  securityContext: {{runAsNonRoot: true, runAsUser: 65532, seccompProfile: {{type: RuntimeDefault}}}}
  containers:
  - name: {pod}
    image: {image}
    imagePullPolicy: IfNotPresent
    command: [sleep, '3600']
    securityContext: {{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {{drop: [ALL]}}}}
    volumeMounts: [{{name: tmp, mountPath: /tmp}}]
  volumes: [{{name: tmp, emptyDir: {{}}}}]
"
        ))?;
        self.wait_pod(pod, None)?;
        let library = match client {
            Client::Java49 => "lib-4.9.8",
            _ => "lib-5.3.3",
        };
        let mut command = self.cluster.kubectl();
        command.args(["--namespace", &self.name, "exec", "--stdin", pod, "--", "java"]);
        command
            .args(["-Xms64m", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"])
            .args(["-Duser.home=/tmp", "-Drocketmq.client.logRoot=/tmp"])
            .args(["-cp", &format!("/opt/e2e/{library}/*"), "rs.rocketmq.e2e.Main", "serve"]);
        Programs::start_command(client, command, &log.join(format!("{pod}.log")))
    }
}

/// A condition of an object, by type.
pub fn condition<'v>(object: &'v Value, kind: &str) -> Option<&'v Value> {
    object["status"]["conditions"].as_array()?.iter().find(|found| found["type"] == kind)
}

/// Whether a resource of ours is Ready for its newest spec.
pub fn is_ready(object: &Value) -> bool {
    let generation = &object["metadata"]["generation"];
    condition(object, "Ready").is_some_and(|ready| {
        ready["status"] == "True" && ready["observedGeneration"] == *generation
    })
}
