//! The suite of the operator: everything it makes, on a real cluster, with the
//! programs and the Java clients in images of their own.

use anyhow::Result;

use super::{Options, Tally, cargo_test, interop};
use crate::cluster::Cluster;
use crate::{clients, images, process, up, workspace};

/// Brings the cluster up with the images in it, then runs the tests.
pub fn run(options: &Options, tally: &mut Tally) -> Result<()> {
    let cluster = Cluster::provide(&options.cluster)?;
    let java = clients::java()?;
    let go = clients::go()?;
    let images = images::provide(&cluster, &options.cluster, true)?;
    // The tests name images by the tag that all builds share: an operator that runs
    // would go on with the build it was started from.
    process::capture(
        cluster
            .kubectl()?
            .args([
                "--namespace",
                up::OPERATOR_NAMESPACE,
                "delete",
                "deployment",
                "rocketmq-operator",
            ])
            .args(["--ignore-not-found", "--wait"]),
    )?;
    let programs = workspace::target()?.join("release");
    let path = workspace::path_with_tools()?;
    cargo_test(
        &["--package", "e2e", "--test", "kubernetes"],
        options.only.as_deref(),
        |command| {
            interop::environment(command, &programs, &java, &go);
            command
                .env("PATH", path)
                .env("KUBECONFIG", &cluster.kubeconfig)
                .env("ROCKETMQ_E2E_CONTEXT", &cluster.context)
                .env("ROCKETMQ_E2E_IMAGE_PREFIX", &images.prefix)
                .env("ROCKETMQ_E2E_IMAGE_TAG", &images.tag)
                .env("ROCKETMQ_E2E_CHART", workspace::root().join("charts/rocketmq-operator"));
            // The tests print what they timed.
            command.args(["--", "--show-output"]);
            match &cluster.kind {
                Some(name) => command.env("ROCKETMQ_E2E_KIND_CLUSTER", name),
                None => command.env_remove("ROCKETMQ_E2E_KIND_CLUSTER"),
            };
        },
        tally,
    )
}
