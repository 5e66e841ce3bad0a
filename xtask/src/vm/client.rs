//! The user of a cluster in a virtual machine: kubectl on this machine, through a port that qemu forwards.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::setup;

/// The time for any one step of a cluster, on a processor that is translated.
pub(super) const LONG: Duration = Duration::from_mins(10);

/// A condition of type Ready, in kubectl's language.
pub(super) const READY: &str = "jsonpath={.status.conditions[?(@.type=='Ready')].status}";

/// A free port of loopback, and the arguments by which qemu forwards it to the API server's.
pub(super) fn forwarded() -> Result<(u16, String)> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    Ok((port, format!("user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:6443")))
}

/// Collects a kubeconfig from the lines of a machine.
#[derive(Default)]
pub(super) struct Kubeconfig(String);

impl Kubeconfig {
    /// Takes a line that is part of it; says whether it is whole now. None if the line is no part of it.
    pub(super) fn take(&mut self, line: &str) -> Option<bool> {
        if let Some(text) = line.strip_prefix("KUBECONFIG ") {
            self.0.push_str(text);
            self.0.push('\n');
            return Some(false);
        }
        (line == "KUBECONFIG-END").then_some(true)
    }
}

/// kubectl with the kubeconfig of a cluster.
pub(super) struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    begin: Instant,
}

impl Kubectl {
    /// With a kubeconfig, which is kept in a file.
    pub(super) fn new(root: &Path, kubeconfig: &Kubeconfig, file: PathBuf, port: u16) -> Result<Self> {
        fs::write(&file, kubeconfig.0.replace(":6443", &format!(":{port}")))?;
        let program = setup::tools(root).join("bin/kubectl");
        Ok(Self { program, kubeconfig: file, begin: Instant::now() })
    }

    /// The output of a call.
    pub(super) fn run(&self, args: &[&str]) -> Result<String> {
        let out =
            Command::new(&self.program).arg("--kubeconfig").arg(&self.kubeconfig).args(args).output()?;
        ensure!(
            out.status.success(),
            "kubectl {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&out.stderr).trim()
        );
        Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
    }

    /// Waits until a call has an answer that fits, and tells how long the cluster has taken so far.
    pub(super) fn until(&self, what: &str, args: &[&str], fits: impl Fn(&str) -> bool) -> Result<String> {
        let first = Instant::now();
        loop {
            let last = match self.run(args) {
                Ok(answer) if fits(&answer) => {
                    println!("{what} after {:.0} s", self.begin.elapsed().as_secs_f64());
                    return Ok(answer);
                }
                Ok(answer) => answer,
                Err(e) => format!("{e:#}"),
            };
            if first.elapsed() > LONG {
                bail!("waited for {what}: {last}");
            }
            std::thread::sleep(Duration::from_millis(500)); // the pace of asking
        }
    }

    /// Applies a manifest, once the server takes it.
    pub(super) fn apply(&self, manifest: &str) -> Result<()> {
        let file = self.kubeconfig.with_extension("yaml");
        fs::write(&file, manifest)?;
        self.until("the objects", &["apply", "-f", &file.display().to_string()], |_| true).map(drop)
    }

    /// Waits until a Pod is Ready.
    pub(super) fn ready(&self, pod: &str) -> Result<()> {
        self.until(&format!("{pod} is Ready"), &["get", "pod", pod, "-o", READY], |a| a == "True").map(drop)
    }

    /// Waits until the only node is Ready.
    pub(super) fn node(&self) -> Result<()> {
        let ready = "jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}";
        self.until("the node is Ready", &["get", "nodes", "-o", ready], |a| a == "True").map(drop)
    }
}

/// Writes a line to a machine's second console.
pub(super) fn tell(input: &mut ChildStdin, line: &str) {
    // A machine that is gone tells that by its end.
    let _ = writeln!(input, "{line}").and_then(|()| input.flush());
}
