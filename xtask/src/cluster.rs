//! The Kubernetes cluster that chores and tests work on: the one a person names,
//! else a kind cluster, which the scripts under e2e/cluster make and remove.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::process;
use crate::progress::say;
use crate::workspace;

/// The kind cluster's name, as e2e/cluster/lib.sh has it.
const KIND_CLUSTER: &str = "rocketmq";

/// Which cluster, and which images it can get.
#[derive(Args)]
pub struct Choice {
    /// Use the cluster of this kubeconfig context in place of a kind cluster
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,

    /// With --context: the prefix of images that cluster can pull, as in "registry.example/rocketmq-rs/"
    #[arg(long, value_name = "PREFIX", requires = "context")]
    pub image_prefix: Option<String>,

    /// With --image-prefix: the tag of those images
    #[arg(long, value_name = "TAG", default_value = "e2e", requires = "image_prefix")]
    pub image_tag: String,
}

/// A cluster that answers.
pub struct Cluster {
    /// The name of its kubeconfig context.
    pub context: String,
    /// A kubeconfig file whose current context is this cluster.
    pub kubeconfig: PathBuf,
    /// The name of the kind cluster it is, if it is one: its nodes are containers
    /// that images can be loaded into.
    pub kind: Option<String>,
}

impl Cluster {
    /// Starts or finds the chosen cluster.
    pub fn provide(choice: &Choice) -> Result<Self> {
        match &choice.context {
            Some(context) => Self::named(context),
            None => {
                say(format!("cluster {KIND_CLUSTER} on kind"));
                process::run(&mut script("cluster.sh", &["up"]))?;
                Ok(Self {
                    context: format!("kind-{KIND_CLUSTER}"),
                    kubeconfig: workspace::cache().join("run/kubeconfig"),
                    kind: Some(KIND_CLUSTER.to_owned()),
                })
            }
        }
    }

    fn named(context: &str) -> Result<Self> {
        process::run(&mut script("tools.sh", &[]))?;
        let kubeconfig =
            workspace::cache().join("run").join(format!("kubeconfig-{}", file_name(context)));
        // A copy with that context alone: what is started from here cannot stray
        // to another cluster of the same file.
        let minified = process::capture(
            Command::new("kubectl").env("PATH", workspace::path_with_tools()?).args([
                "config",
                "view",
                "--minify",
                "--flatten",
                "--context",
                context,
            ]),
        )
        .with_context(|| {
            format!(
                "no context {context:?} in the kubeconfig: `kubectl config get-contexts` lists them"
            )
        })?;
        fs::create_dir_all(workspace::cache().join("run"))?;
        fs::write(&kubeconfig, minified)
            .with_context(|| format!("write {}", kubeconfig.display()))?;
        let cluster = Self {
            context: context.to_owned(),
            kubeconfig,
            kind: context.strip_prefix("kind-").map(str::to_owned),
        };
        process::capture(cluster.kubectl()?.args(["--request-timeout", "10s", "version"]))
            .with_context(|| format!("the cluster of context {context:?} does not answer"))?;
        say(format!("cluster of context {context}"));
        Ok(cluster)
    }

    /// kubectl for this cluster.
    pub fn kubectl(&self) -> Result<Command> {
        self.tool("kubectl")
    }

    /// helm for this cluster.
    pub fn helm(&self) -> Result<Command> {
        self.tool("helm")
    }

    fn tool(&self, name: &str) -> Result<Command> {
        let mut command = Command::new(name);
        // Command looks a program up in the PATH that it is given.
        command.env("PATH", workspace::path_with_tools()?).env("KUBECONFIG", &self.kubeconfig);
        command.current_dir(workspace::root());
        Ok(command)
    }
}

/// Removes the kind cluster, and the Docker daemon where we started it.
pub fn down() -> Result<()> {
    process::run(&mut script("cluster.sh", &["down"]))?;
    let cache = workspace::cache();
    say(format!(
        "down; tools, images and test clients stay in {cache} for the next time (`rm -r {cache}` removes them)",
        cache = cache.display()
    ));
    Ok(())
}

/// Makes sure that there is a helm among the cache's tools.
pub fn provide_helm() -> Result<()> {
    process::run(&mut script("tools.sh", &["helm"]))
}

/// Whether `down` has something to remove, by what `up` leaves in the cache.
pub fn is_up() -> bool {
    workspace::cache().join("run/kubeconfig").exists()
        || workspace::cache().join("run/dockerd.pid").exists()
}

/// Loads images that this machine's Docker has into every node of a kind cluster.
pub fn load(kind: &str, images: &[String]) -> Result<()> {
    let mut command = Command::new("kind");
    command.env("PATH", workspace::path_with_tools()?);
    command.args(["load", "docker-image", "--name", kind]).args(images);
    process::capture(&mut command).map(drop)
}

fn script(name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(workspace::root().join("e2e/cluster").join(name));
    command.args(arguments);
    command
}

/// A context's name as part of a file name: it may be a URL or an ARN.
fn file_name(context: &str) -> String {
    context.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// Fails unless `path` is there, saying what it is for.
pub fn expect(path: &Path, what: &str) -> Result<()> {
    if !path.exists() {
        bail!("{what} is missing: {}", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_with_slashes_makes_one_file_name() {
        assert_eq!(file_name("arn:aws:eks:eu/prod"), "arn-aws-eks-eu-prod");
    }
}
