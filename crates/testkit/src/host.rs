//! A host for one test, made of namespaces.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::network::Network;

/// The script of the host's first process: private mounts, loopback up, then reaping of orphans. Nodes have mounts on
/// directories below `/var/lib`, and a directory that another host removes takes its mounts with it. Pods' logs are the
/// host's own.
const INIT: &str = "set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir /run/changes /run/changes/upper /run/changes/work
mount -t overlay -o lowerdir=/var/lib,upperdir=/run/changes/upper,workdir=/run/changes/work overlay /var/lib
for logs in /var/log/pods /var/log/containers; do
    mkdir -p $logs
    mount -t tmpfs tmpfs $logs
done
hostname \"$1\"
ip link set lo up
echo ready
sleep infinity &
wait";

/// Namespaces with a directory. Dropping them, or the death of the test, ends every process in them.
pub struct Host {
    init: Child,
    /// The id of the first process inside, as seen from outside.
    pid: u32,
    dir: TempDir,
    name: String,
}

impl Host {
    /// Makes a host. `name` becomes its host name.
    pub fn new(name: &str) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("ferrokube-").tempdir()?;
        let log = fs::File::create(dir.path().join("init.log"))?;
        let mut init = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", "unshare", "--pid", "--mount", "--net", "--uts", "--ipc"])
            .args(["--fork", "--kill-child=KILL", "--mount-proc", "--", "sh", "-c", INIT, "sh", name])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .context("starting a test host (needs root and util-linux)")?;
        let mut line = String::new();
        if let Some(out) = init.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        let why = || fs::read_to_string(dir.path().join("init.log")).unwrap_or_default();
        ensure!(line.trim() == "ready", "the test host did not start: {}", why());
        let unshared = init.id();
        let pid = Self::pid_of(&init).with_context(|| format!("below process {unshared}"))?;
        Ok(Self { init, pid, dir, name: name.to_owned() })
    }

    /// Gives the host an address and a default route, which leads nowhere.
    pub fn connect(&self) -> Result<()> {
        for args in [
            &["link", "add", "eth0", "type", "veth", "peer", "name", "uplink"][..],
            &["link", "set", "uplink", "up"],
            &["address", "add", "192.0.2.10/24", "dev", "eth0"],
            &["link", "set", "eth0", "up"],
            &["route", "add", "default", "via", "192.0.2.1"],
        ] {
            self.run("ip", args)?;
        }
        Ok(())
    }

    /// The host's own directory; it goes with the host.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The id of the host's first process, as seen from outside.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The file of the host's network namespace.
    pub fn network(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.pid).into()
    }

    /// The host's network, to be entered.
    pub fn inside(&self) -> Result<Network> {
        Network::at(&self.network())
    }

    /// Makes a link of this host, whose other end is the other host's `eth0`; both are down.
    pub fn link_to(&self, name: &str, other: &Self) -> Result<()> {
        // The process ids are those outside, so the command stays there but for the network.
        let (network, pid) = (format!("--net={}", self.network().display()), other.pid.to_string());
        let add = ["link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", &pid];
        let out = Command::new("nsenter").arg(network).args(["--", "ip"]).args(add).output()?;
        ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr).trim());
        Ok(())
    }

    /// The host's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A file or directory below [`Host::dir`].
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A command that will run on the host.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut c = Command::new("nsenter");
        c.args(["--all", "--target", &self.pid.to_string(), "--"]).arg(program);
        c.current_dir("/");
        c
    }

    /// Starts a program on the host in the background, its output in `NAME.log`.
    pub fn spawn(&self, name: &str, command: &mut Command) -> Result<Child> {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path(&format!("{name}.log")))?;
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {name}"))
    }

    /// The id of the process that a command made by [`Host::command`] runs: `nsenter` forks to enter the PID namespace.
    pub fn pid_of(child: &Child) -> Result<u32> {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id()))?;
        children.split_whitespace().next().context("the program has ended")?.parse().context("no process id")
    }

    /// The end of a background program's output, for messages.
    pub fn log(&self, name: &str) -> String {
        let text = fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    /// Runs a command on the host and returns its standard output; fails with its standard error.
    pub fn run(&self, program: &str, args: &[&str]) -> Result<String> {
        let out = self.command(program).args(args).output()?;
        ensure!(
            out.status.success(),
            "{program} {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&out.stderr).trim()
        );
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The end of `unshare` kills the first process inside, and with it the whole PID namespace.
        let _ = self.init.kill();
        let _ = self.init.wait();
    }
}
