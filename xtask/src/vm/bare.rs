//! A cluster on a machine with nothing but a kernel: the static binary, and busybox for the one who looks.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use testkit::image::Image;

use super::disk::Root;
use super::kernel::Kernel;
use super::machine::Machine;
use crate::setup;
use crate::step::{cargo, step, target};

const TARGET: &str = "x86_64-unknown-linux-musl";
const IMAGE: &str = "localhost/program:1";
/// The program of the image. Busybox does its work under names that begin with its own, and no other file has this one.
const PROGRAM: &str = "/busybox-of-the-image";
/// The time for any one step of the cluster, on a processor that is translated.
const LONG: Duration = Duration::from_mins(10);

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
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let net = format!("user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:6443");
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
    let kubeconfig = place.join("bare.kubeconfig");
    let mut seen = Seen::default();
    let mut tried = None;
    let ran = machine.run(3 * LONG, |line, input| {
        if let Some(text) = line.strip_prefix("KUBECONFIG ") {
            seen.kubeconfig.push_str(&format!("{text}\n"));
        } else if line == "KUBECONFIG-END" {
            // Its trace is wanted in any case.
            tried = Some(with_cluster(root, &seen.kubeconfig, &kubeconfig, port));
            go_on(input);
        } else {
            seen.take(line);
        }
    });
    fs::remove_file(&disk)?;
    ran.context("in the virtual machine")?;
    tried.context("there was no cluster")??;
    seen.judge()
}

fn go_on(input: &mut ChildStdin) {
    // A machine that is gone tells that by its end.
    let _ = input.write_all(b"end\n").and_then(|()| input.flush());
}

fn make_disk(binary: &Path, at: &Path, disk: &Path) -> Result<()> {
    let made = Root::new(at.to_owned())?;
    made.program(binary, "/ferrokube")?;
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

/// Uses the cluster from here, as its user does.
fn with_cluster(root: &Path, text: &str, kubeconfig: &Path, port: u16) -> Result<()> {
    fs::write(kubeconfig, text.replace(":6443", &format!(":{port}")))?;
    let manifest = kubeconfig.with_extension("yaml");
    fs::write(&manifest, MANIFEST)?;
    let kubectl = |args: &[&str]| {
        let mut command = Command::new(setup::tools(root).join("bin/kubectl"));
        let out = command.arg("--kubeconfig").arg(kubeconfig).args(args).output()?;
        ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr).trim());
        anyhow::Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
    };
    let begin = Instant::now();
    let until = |what: &str, holds: &dyn Fn() -> Result<bool>| {
        let first = Instant::now();
        loop {
            match holds() {
                Ok(true) => break println!("{what} after {:.0} s", begin.elapsed().as_secs_f64()),
                Err(e) if first.elapsed() > LONG => return Err(e.context(format!("waited for {what}"))),
                Ok(false) if first.elapsed() > LONG => bail!("waited for {what}"),
                _ => std::thread::sleep(Duration::from_millis(500)), // the pace of asking
            }
        }
        Ok(())
    };
    let ready = "jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}";
    until("a Ready node", &|| Ok(kubectl(&["get", "nodes", "-o", ready])? == "True"))?;
    let manifest = manifest.display().to_string();
    until("the objects", &|| kubectl(&["apply", "-f", &manifest]).map(|_| true))?;
    let ready = "jsonpath={.status.conditions[?(@.type=='Ready')].status}";
    until("a Ready Pod", &|| Ok(kubectl(&["get", "pod", "web", "-o", ready])? == "True"))?;
    ensure!(kubectl(&["logs", "web"])? == "serving", "the Pod's log");
    let own = [PROGRAM, "wget", "-q", "-O", "-"];
    let asked = |url: &str| kubectl(&[&["exec", "web", "--"], &own[..], &[url]].concat());
    let cluster = kubectl(&["get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"])?;
    until("an answer of the Service's address", &|| {
        Ok(asked(&format!("http://{cluster}/hello"))? == "hello from a bare machine")
    })?;
    kubectl(&["delete", "pod", "web", "--wait=true"])?;
    Ok(println!("the Pod was removed after {:.0} s", begin.elapsed().as_secs_f64()))
}

/// What the machine told.
#[derive(Default)]
struct Seen {
    kubeconfig: String,
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
        let known = |file: &&String| !OURS.contains(&file.as_str()) && *file != PROGRAM;
        let others: Vec<&String> = self.executed.iter().filter(known).collect();
        ensure!(others.is_empty(), "the cluster executed {others:?}");
        for wanted in [OURS[0], PROGRAM] {
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

/// The files from which our own program is executed: itself, and what it made of itself.
const OURS: [&str; 2] = ["/ferrokube", "/proc/self/exe"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_else_is_executed() {
        let check = |executed: &[&str], programs: &[&str], good: bool| {
            let mut seen = Seen::default();
            executed.iter().for_each(|file| seen.take(&format!("      3 EXECUTED {file}")));
            programs.iter().for_each(|file| seen.take(&format!("PROGRAM {file}")));
            assert_eq!(seen.judge().is_ok(), good, "{executed:?} {programs:?}");
        };
        let programs = ["/bin/busybox", "/ferrokube", "/init"];
        check(&["/ferrokube", PROGRAM], &programs, true);
        check(&["/ferrokube", PROGRAM, "/bin/busybox"], &programs, false);
        check(&["/ferrokube"], &programs, false);
        check(&["/ferrokube", PROGRAM], &["/bin/busybox", "/ferrokube", "/init", "/sbin/nft"], false);
    }
}
