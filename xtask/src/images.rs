//! Container images without a registry: an empty base, a program, the libraries
//! it is linked to, and a user who is not root.
//!
//! Where a registry is at hand the Dockerfile makes the same images.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::cluster::{self, Choice, Cluster};
use crate::process;
use crate::progress::{say, step};
use crate::{clients, workspace};

/// Images made here are called so, whatever registry they may be copied to.
const PREFIX: &str = "rocketmq-rs/";
/// The tag that manifests and tests use.
const TAG: &str = "e2e";
/// A label with the digest of an image's files. Docker's own id changes with the
/// time of the import, and a changed id would be loaded again.
const DIGEST_LABEL: &str = "rs.rocketmq.files";
/// Who runs in the images, as a number: Kubernetes cannot tell whether a name is root.
const USER: &str = "65532:65532";

/// The product's programs.
pub const PROGRAMS: [(&str, &str); 4] = [
    ("namesrv", "rocketmq-namesrv"),
    ("broker", "rocketmq-broker"),
    ("operator", "rocketmq-operator"),
    ("rmq", "rocketmq-cli"),
];

/// Images as a cluster knows them.
pub struct Images {
    /// What every name starts with, with its slash.
    pub prefix: String,
    /// The tag all of them carry.
    pub tag: String,
    /// For images made here: a tag per program that changes with its contents, so
    /// that a new build rolls the pods that run the old one.
    exact: Vec<(String, String)>,
}

impl Images {
    /// The image of a program. Of those made here, the exact build.
    pub fn exact(&self, name: &str) -> String {
        let tag =
            self.exact.iter().find(|(known, _)| known == name).map_or(&self.tag, |(_, tag)| tag);
        format!("{}{name}:{tag}", self.prefix)
    }
}

/// `cargo xtask images`: the images of this tree in the cluster, for whoever works
/// on one test or one manifest.
pub fn run(choice: &Choice) -> Result<()> {
    let cluster = Cluster::provide(choice)?;
    clients::java()?;
    provide(&cluster, choice, true).map(drop)
}

/// Builds the release programs; returns the directory they are in.
pub fn programs() -> Result<PathBuf> {
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--release"]);
    for (_, package) in PROGRAMS {
        cargo.args(["--package", package]);
    }
    let release = workspace::target()?.join("release");
    let what = if release.join("deps").exists() {
        "build the programs (seconds to minutes, by what has changed)"
    } else {
        "build the programs (about 10 minutes on two cores, the first time)"
    };
    step(what, || process::run(&mut cargo))?;
    Ok(release)
}

/// Makes the images of the programs, and of the Java clients if asked, and gets
/// them to the cluster's nodes.
pub fn provide(cluster: &Cluster, choice: &Choice, with_java: bool) -> Result<Images> {
    if let Some(prefix) = &choice.image_prefix {
        say(format!("images {prefix}*:{}", choice.image_tag));
        return Ok(Images {
            prefix: prefix.clone(),
            tag: choice.image_tag.clone(),
            exact: Vec::new(),
        });
    }
    let Some(kind) = &cluster.kind else {
        bail!(
            "context {:?} is no kind cluster, so images cannot be loaded into it: build them (`docker build --target \
             broker -t REGISTRY/broker:TAG .`, and so for namesrv, operator, rmq), push them, and name them with \
             --image-prefix REGISTRY/ --image-tag TAG",
            cluster.context
        );
    };
    let directory = programs()?;
    let mut exact = Vec::new();
    let mut names = Vec::new();
    for (program, _) in PROGRAMS {
        let tag = step(&format!("image {PREFIX}{program}"), || program_image(&directory, program))?;
        names.push(format!("{PREFIX}{program}:{TAG}"));
        names.push(format!("{PREFIX}{program}:{tag}"));
        exact.push((program.to_owned(), tag));
    }
    if with_java {
        let tag = step(&format!("image {PREFIX}e2e-java"), java_image)?;
        names.push(format!("{PREFIX}e2e-java:{TAG}"));
        exact.push(("e2e-java".to_owned(), tag));
    }
    step("load the images into the nodes", || cluster::load(kind, &names))?;
    Ok(Images { prefix: PREFIX.to_owned(), tag: TAG.to_owned(), exact })
}

fn program_image(directory: &Path, program: &str) -> Result<String> {
    let root = Root::new(program)?;
    let mut sources = Vec::new();
    for name in [program].iter().chain(company(program)) {
        let place = format!("usr/local/bin/{name}");
        let source = directory.join(name);
        root.copy(&source, &place)?;
        // Line tables are for the machine that builds; they are two thirds of the file.
        process::capture(Command::new("strip").arg("--strip-debug").arg(root.path.join(&place)))?;
        sources.push(source);
    }
    root.copy_libraries(&sources)?;
    root.import(program, &[format!("ENTRYPOINT [\"/usr/local/bin/{program}\"]")])
}

/// What goes into a program's image beside it, as in the Dockerfile: `rmq` for people, who then need
/// nothing but `kubectl exec`.
fn company(program: &str) -> &'static [&'static str] {
    match program {
        "namesrv" => &["rmq"],
        _ => &[],
    }
}

fn java_image() -> Result<String> {
    let root = Root::new("e2e-java")?;
    let runtime = clients::java_runtime()?;
    copy_tree(&runtime, &root.path.join("opt/java"))?;
    for library in clients::JAVA_LIBRARIES {
        copy_tree(&clients::java_target().join(library), &root.path.join("opt/e2e").join(library))?;
    }
    let mut linked = vec![runtime.join("bin/java")];
    for directory in ["lib", "lib/server"] {
        for entry in fs::read_dir(runtime.join(directory))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "so") {
                linked.push(path);
            }
        }
    }
    root.copy_libraries(&linked)?;
    root.copy(Path::new("/bin/busybox"), "bin/busybox")?;
    for applet in process::capture(Command::new("/bin/busybox").arg("--list"))?.lines() {
        if applet != "busybox" {
            std::os::unix::fs::symlink("busybox", root.path.join("bin").join(applet))?;
        }
    }
    root.import(
        "e2e-java",
        &["ENV PATH=/opt/java/bin:/usr/local/bin:/bin JAVA_HOME=/opt/java".to_owned()],
    )
}

/// The file system of an image in the making.
struct Root {
    path: PathBuf,
}

impl Root {
    fn new(name: &str) -> Result<Self> {
        let path =
            workspace::cache().join("tmp").join(format!("image-{name}-{}", std::process::id()));
        for directory in ["etc", "tmp"] {
            fs::create_dir_all(path.join(directory))?;
        }
        fs::set_permissions(path.join("tmp"), fs::Permissions::from_mode(0o1777))?;
        fs::write(path.join("etc/passwd"), "root:x:0:0::/root:\nrocketmq:x:65532:65532::/tmp:\n")?;
        fs::write(path.join("etc/group"), "root:x:0:\nrocketmq:x:65532:\n")?;
        fs::write(path.join("etc/nsswitch.conf"), "hosts: files dns\n")?;
        Ok(Self { path })
    }

    fn copy(&self, from: &Path, to: &str) -> Result<()> {
        let to = self.path.join(to.trim_start_matches('/'));
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::copy(from, &to)
            .with_context(|| format!("copy {} to {}", from.display(), to.display()))?;
        Ok(())
    }

    /// Copies what the dynamic loader will look for, under the names it uses.
    fn copy_libraries(&self, programs: &[PathBuf]) -> Result<()> {
        let mut libraries = BTreeSet::new();
        for program in programs {
            let text = process::capture(Command::new("ldd").arg(program))?;
            for library in linked_libraries(&text) {
                // A program's private libraries travel with it.
                if !programs.iter().any(|private| {
                    private.ends_with(Path::new(library).file_name().unwrap_or_default())
                }) {
                    libraries.insert(library.to_owned());
                }
            }
        }
        for library in libraries {
            self.copy(Path::new(&library), &library)?;
        }
        Ok(())
    }

    /// Makes the image, unless Docker has one of the same files. Returns the tag
    /// that stands for these files; the common tag is moved to it as well.
    fn import(&self, name: &str, changes: &[String]) -> Result<String> {
        let archive = self.path.with_extension("tar");
        process::capture(
            Command::new("tar")
                .args([
                    "--sort=name",
                    "--mtime=@0",
                    "--owner=0",
                    "--group=0",
                    "--numeric-owner",
                    "-cf",
                ])
                .arg(&archive)
                .arg("-C")
                .arg(&self.path)
                .arg("."),
        )?;
        let digest = process::capture(Command::new("sha256sum").arg(&archive))?;
        let tag = format!("{TAG}-{}", digest.get(..12).context("sha256sum printed no digest")?);
        let image = format!("{PREFIX}{name}:{tag}");
        if !process::succeeds(Command::new("docker").args(["image", "inspect", &image])) {
            let mut import = Command::new("docker");
            import.arg("import");
            for change in changes
                .iter()
                .map(String::as_str)
                .chain([&*format!("USER {USER}"), &*format!("LABEL {DIGEST_LABEL}={tag}")])
            {
                import.args(["--change", change]);
            }
            import.arg(&archive).arg(&image).stdout(Stdio::null());
            process::run(&mut import)?;
        }
        process::capture(Command::new("docker").args([
            "tag",
            &image,
            &format!("{PREFIX}{name}:{TAG}"),
        ]))?;
        forget_others(name, &tag)?;
        fs::remove_file(&archive)?;
        Ok(tag)
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        // What cannot be removed is found under tmp in the cache; the image is made.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the images of earlier builds from Docker; nodes keep what they run.
fn forget_others(name: &str, tag: &str) -> Result<()> {
    let repository = format!("{PREFIX}{name}");
    let tags = process::capture(Command::new("docker").args([
        "images",
        "--format",
        "{{.Tag}}",
        &repository,
    ]))?;
    for other in tags.lines().filter(|other| other.starts_with("e2e-") && *other != tag) {
        process::capture(Command::new("docker").args(["rmi", &format!("{repository}:{other}")]))?;
    }
    Ok(())
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    cluster::expect(from, "a directory of the image")?;
    fs::create_dir_all(to)?;
    // cp keeps links and modes, which fs::copy does not.
    process::capture(Command::new("cp").arg("-a").arg(from.join(".")).arg(to)).map(drop)
}

/// The paths in `ldd`'s output: `name => /path (address)` or `/path (address)`.
fn linked_libraries(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let (place, _address) = line.trim().rsplit_once(" (")?;
        let path = place.rsplit_once("=> ").map_or(place, |(_, path)| path);
        path.starts_with('/').then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ldd_names_the_files_that_are_needed() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd1)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f1)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f2)\n\tlibgone.so => not found\n";
        assert_eq!(
            linked_libraries(text).collect::<Vec<_>>(),
            ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]
        );
        assert_eq!(linked_libraries("\tstatically linked\n").count(), 0);
    }

    #[test]
    fn a_program_without_an_exact_build_has_the_common_tag() {
        let images = Images {
            prefix: "x/".to_owned(),
            tag: "1".to_owned(),
            exact: vec![("broker".to_owned(), "e2e-ab".to_owned())],
        };
        assert_eq!(images.exact("broker"), "x/broker:e2e-ab");
        assert_eq!(images.exact("namesrv"), "x/namesrv:1");
    }
}
