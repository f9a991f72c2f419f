//! `cargo xtask crds`: the custom resource definitions as files, from the Rust
//! types of the operator; and what else is generated of them and the chart.
//!
//! The operator prints them; this writes one file a kind under crds/ for kubectl,
//! and the same with Helm's keep annotation into the chart, so that removing the
//! chart never removes everyone's clusters.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::progress::say;
use crate::{plain, process, workspace};

const PLAIN: &str = "crds";
const CHART: &str = "charts/rocketmq-crds/templates";
const KEEP: &str = "    helm.sh/resource-policy: keep\n";

/// What to do with the definitions.
#[derive(Args)]
pub struct Options {
    /// Write nothing; fail if a file differs from what would be written
    #[arg(long)]
    check: bool,
}

/// Writes or checks the files.
pub fn run(options: &Options) -> Result<()> {
    let printed = process::capture(workspace::cargo().args([
        "run",
        "--quiet",
        "--package",
        "rocketmq-operator",
        "--bin",
        "operator",
        "--",
        "--crds",
    ]))?;
    let mut files = files(&printed)?;
    files.push(plain::operator()?);
    let stale: Vec<_> = files
        .iter()
        .filter(|(path, text)| {
            fs::read_to_string(workspace::root().join(path)).ok().as_deref() != Some(text)
        })
        .collect();
    if options.check {
        if let Some((path, _)) = stale.first() {
            bail!(
                "{} is not what the operator's types and chart say: run `cargo xtask crds` and commit the result",
                path.display()
            );
        }
        say(format!("{} generated files are up to date", files.len()));
        return Ok(());
    }
    for (path, text) in stale {
        let path = workspace::root().join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        say(format!("wrote {}", path.display()));
    }
    Ok(())
}

/// The files that the operator's output becomes, relative to the root.
fn files(printed: &str) -> Result<Vec<(PathBuf, String)>> {
    let mut files = Vec::new();
    for document in printed.split("---\n").map(str::trim).filter(|document| !document.is_empty()) {
        let plural = document
            .lines()
            .find_map(|line| line.strip_prefix("    plural: "))
            .context("a document of `operator --crds` has no spec.names.plural")?;
        files.push((PathBuf::from(format!("{PLAIN}/{plural}.yaml")), format!("{document}\n")));
        files.push((PathBuf::from(format!("{CHART}/{plural}.yaml")), annotated(document)?));
    }
    if files.is_empty() {
        bail!("`operator --crds` printed no document");
    }
    Ok(files)
}

/// The chart's copy: annotated, and with no brace pair that Helm would expand.
fn annotated(document: &str) -> Result<String> {
    if document.contains("{{") {
        bail!("a definition contains \"{{{{\", which Helm would take for a template");
    }
    let metadata = "\nmetadata:\n";
    let at = document.find(metadata).context("a definition has no metadata")? + metadata.len();
    let (head, tail) = document.split_at(at);
    Ok(match tail.strip_prefix("  annotations:\n") {
        Some(rest) => format!("{head}  annotations:\n{KEEP}{rest}\n"),
        None => format!("{head}  annotations:\n{KEEP}{tail}\n"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFINITION: &str = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: topics.rocketmq.rs\nspec:\n  names:\n    plural: topics\n";

    #[test]
    fn each_document_becomes_a_plain_file_and_a_kept_one() {
        let files =
            files(&format!("{DEFINITION}---\n{}", DEFINITION.replace("topics", "rocks"))).unwrap();
        let names: Vec<_> = files.iter().map(|(path, _)| path.to_str().unwrap()).collect();
        assert_eq!(
            names,
            [
                "crds/topics.yaml",
                "charts/rocketmq-crds/templates/topics.yaml",
                "crds/rocks.yaml",
                "charts/rocketmq-crds/templates/rocks.yaml"
            ]
        );
        assert_eq!(files[0].1, DEFINITION);
        assert!(files[1].1.contains(
            "metadata:\n  annotations:\n    helm.sh/resource-policy: keep\n  name: topics"
        ));
    }

    #[test]
    fn annotations_that_are_there_stay() {
        let text = annotated("kind: X\nmetadata:\n  annotations:\n    a: b\n  name: x").unwrap();
        assert_eq!(
            text,
            "kind: X\nmetadata:\n  annotations:\n    helm.sh/resource-policy: keep\n    a: b\n  name: x\n"
        );
    }

    #[test]
    fn output_that_is_no_definition_is_refused() {
        assert!(files("").is_err());
        assert!(files("hello").is_err());
        assert!(annotated("kind: X\nmetadata:\n  name: \"{{x}}\"").is_err());
    }
}
