//! A cluster on a machine with nothing but a kernel: the static binary, and busybox for the one who looks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use supplies::Image;

use super::client::{Kubeconfig, Kubectl, LONG, forwarded, tell};
use super::disk::Root;
use super::kernel::Kernel;
use super::machine::Machine;
use crate::step::{cargo, step, target};

const TARGET: &str = "x86_64-unknown-linux-musl";
const IMAGE: &str = "localhost/program:1";
/// The program of the image. Busybox does its work under names that begin with its own, and no other file has this one.
const PROGRAM: &str = "/busybox-of-the-image";
/// The place of the binary.
const BINARY: &str = "/ferrokube";

/// The Pod and the Service that are tried.
const MANIFEST: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: web
    image: localhost/program:1
    command: [/busybox-of-the-image, sh, -c, "echo serving; exec /busybox-of-the-image httpd -f -p 80 -h /data"]
    readinessProbe: {httpGet: {port: 80, path: /hello}, periodSeconds: 2, timeoutSeconds: 30}
    resources: {limits: {memory: 64Mi, cpu: 500m}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
"#;

/// Builds the static binary, in a place of its own: the other builds would wait for it.
pub(super) fn build(root: &Path) -> Result<PathBuf> {
    ensure!(
        Command::new("musl-gcc").arg("--version").output().is_ok_and(|o| o.status.success()),
        "the static build needs the package musl-tools"
    );
    let place = target(root).join("static");
    let mut command = cargo(root);
    command.args([
        "build",
        "--profile",
        "up",
        "--target",
        TARGET,
        "--package",
        "ferrokube",
        "--bin",
        "ferrokube",
    ]);
    step(
        &format!("static build (it needs `rustup target add {TARGET}`)"),
        command.arg("--target-dir").arg(&place),
    )?;
    Ok(place.join(TARGET).join("up/ferrokube"))
}

/// Runs a cluster and looks at what was executed.
pub(super) fn run(root: &Path, place: &Path) -> Result<()> {
    let binary = build(root)?;
    eprintln!("xtask: a cluster on a machine with nothing but a kernel");
    let kernel = Kernel::find(root)?;
    let start = place.join("start.cpio");
    fs::write(&start, kernel.start(include_str!("start.sh"))?.finish())?;
    let disk = place.join("bare.img");
    make_disk(&binary, &place.join("bare"), &disk)?;
    let (port, net) = forwarded()?;
    let machine = Machine {
        kernel: &kernel.image,
        start: &start,
        disk: Some(&disk),
        log: &place.join("bare.log"),
        memory: "2G",
        processors: 2,
        more: &["-netdev", &net, "-device", "virtio-net-pci,netdev=net,romfile="],
        words: "",
    };
    let (mut seen, mut kubeconfig, mut tried) = (Seen::default(), Kubeconfig::default(), None);
    let ran = machine.run(3 * LONG, |line, input| match kubeconfig.take(line) {
        Some(false) => {}
        Some(true) => {
            let kubectl = Kubectl::new(root, &kubeconfig, place.join("bare.kubeconfig"), port);
            // The trace is wanted in any case.
            tried = Some(kubectl.and_then(|kubectl| with_cluster(&kubectl)));
            tell(input, "end");
        }
        None => seen.take(line),
    });
    fs::remove_file(&disk)?;
    ran.context("in the virtual machine")?;
    tried.context("there was no cluster")??;
    seen.judge()
}

fn make_disk(binary: &Path, at: &Path, disk: &Path) -> Result<()> {
    let made = Root::new(at.to_owned())?;
    made.program(binary, BINARY)?;
    made.program(Path::new("/bin/busybox"), "/bin/busybox")?;
    made.script("/init", include_str!("bare.sh"))?;
    fs::create_dir(made.path("/images"))?;
    let program = (PROGRAM.trim_start_matches('/').to_owned(), "/bin/busybox".into(), 0o755);
    let image = Image {
        reference: IMAGE.to_owned(),
        files: vec![program],
        texts: vec![("data/hello".into(), "hello from a bare machine\n".into(), 0o644)],
        links: Vec::new(),
        config: serde_json::json!({}),
    };
    image.write(&made.path("/images/program.tar"))?;
    made.disk(disk, 2048)
}

/// Uses the cluster as its user does.
fn with_cluster(kubectl: &Kubectl) -> Result<()> {
    kubectl.node()?;
    kubectl.apply(MANIFEST)?;
    kubectl.ready("web")?;
    ensure!(kubectl.run(&["logs", "web"])? == "serving", "the Pod's log");
    let cluster = kubectl.run(&["get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"])?;
    let url = format!("http://{cluster}/hello");
    let ask = ["exec", "web", "--", PROGRAM, "wget", "-q", "-O", "-", &url];
    kubectl.until("the Service answers", &ask, |answer| answer == "hello from a bare machine")?;
    kubectl.until("the Pod is gone", &["delete", "pod", "web", "--wait=true"], |_| true).map(drop)
}

/// The lines of the machine that matter.
#[derive(Default)]
struct Seen {
    /// Files that were executed, by the cluster and all that came of it.
    executed: Vec<String>,
    /// Programs of the machine.
    programs: Vec<String>,
}

impl Seen {
    fn take(&mut self, line: &str) {
        println!("{line}");
        if let Some((_, file)) = line.split_once("EXECUTED ") {
            self.executed.push(file.to_owned());
        } else if let Some(file) = line.strip_prefix("PROGRAM ") {
            self.programs.push(file.to_owned());
        }
    }

    /// Fails if something was executed that is neither ours nor the image's, or if the machine had other programs.
    fn judge(&self) -> Result<()> {
        let known = |file: &&String| !is_ours(file) && *file != PROGRAM;
        let others: Vec<&String> = self.executed.iter().filter(known).collect();
        ensure!(others.is_empty(), "the cluster executed {others:?}");
        for wanted in [BINARY, PROGRAM] {
            ensure!(self.executed.iter().any(|file| file == wanted), "the trace has no {wanted}");
        }
        ensure!(
            self.programs == ["/bin/busybox", "/ferrokube", "/init"],
            "the machine had the programs {:?}",
            self.programs
        );
        Ok(())
    }
}

/// Whether a file is our own program: itself, or the first process of a sandbox, which it has in memory and executes by a
/// descriptor. No other program could be behind one: the machine has none.
fn is_ours(file: &str) -> bool {
    file == BINARY || file.strip_prefix("/proc/self/fd/").is_some_and(|fd| fd.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_else_is_executed() {
        let check = |executed: &[&str], programs: &[&str], good: bool| {
            let mut seen = Seen::default();
            for file in executed {
                seen.take(&format!("      3 EXECUTED {file}"));
            }
            for file in programs {
                seen.take(&format!("PROGRAM {file}"));
            }
            assert_eq!(seen.judge().is_ok(), good, "{executed:?} {programs:?}");
        };
        let programs = ["/bin/busybox", "/ferrokube", "/init"];
        check(&["/ferrokube", "/proc/self/fd/13", PROGRAM], &programs, true);
        check(&["/ferrokube", PROGRAM, "/bin/busybox"], &programs, false);
        check(&["/ferrokube"], &programs, false);
        check(&["/ferrokube", PROGRAM], &["/bin/busybox", "/ferrokube", "/init", "/sbin/nft"], false);
    }
}
