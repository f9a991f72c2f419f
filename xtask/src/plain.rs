//! deploy/rocketmq-operator.yaml: the operator as plain objects, for those who
//! install with kubectl alone. Rendered from the chart, so that there is one source.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::{cluster, process, workspace};

const PATH: &str = "deploy/rocketmq-operator.yaml";

/// What the chart leaves to `helm install --create-namespace`.
const HEAD: &str = "\
# The operator as plain objects, made of charts/rocketmq-operator with its default values by `cargo xtask crds`.
#
#   kubectl apply -f crds/ -f deploy/rocketmq-operator.yaml
apiVersion: v1
kind: Namespace
metadata:
  name: rocketmq-system
  labels:
    pod-security.kubernetes.io/enforce: restricted
";

/// The file's path from the root, and what it should hold.
pub fn operator() -> Result<(PathBuf, String)> {
    cluster::provide_helm()?;
    let rendered = process::capture(
        Command::new("helm")
            .env("PATH", workspace::path_with_tools()?)
            .current_dir(workspace::root())
            .args(["template", "rocketmq-operator", "charts/rocketmq-operator"])
            // Of the oldest Kubernetes that is supported: without one, helm takes its own.
            .args(["--namespace", "rocketmq-system", "--kube-version", "1.34.0"]),
    )?;
    Ok((PathBuf::from(PATH), format!("{HEAD}{rendered}")))
}
