//! FerroKube on a test host, with its built-in container runtime or a containerd of its own.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Output};

use anyhow::{Context, Result, bail, ensure};
pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};
use serde_json::Value;
use supplies::{Image, PAUSE, containerd_config, eventually, nodes_containerd_config};

use crate::host::Host;
use crate::{binary, tool};

/// The search path with the tools first.
fn tools_path() -> String {
    let bin = tool("containerd");
    format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", bin.parent().unwrap_or(&bin).display())
}

/// The options of a cluster.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Further flags of `ferrokube up`.
    pub flags: Vec<String>,
    /// Images that are in the runtime before the first Pod.
    pub images: Vec<Image>,
    /// Whether the host has no network but loopback.
    pub offline: bool,
    /// Whether to start only the control plane: `ferrokube server`, no containerd.
    pub control_plane_only: bool,
    /// With `control_plane_only`, a containerd all the same, for a kubelet that the test starts.
    pub runtime: bool,
    /// The binary to start; by default [`binary`].
    pub binary: Option<PathBuf>,
    /// Whether the runtime is a containerd of the cluster's own; by default it is the built-in one. The environment
    /// variable `FERROKUBE_TEST_RUNTIME=containerd` gives one to every cluster.
    pub containerd: bool,
    /// The number of nodes that FerroKube makes of namespaces (`--nodes`); 0 for one node, the host itself.
    pub nodes: usize,
}

impl Options {
    fn has_containerd(&self) -> bool {
        let chosen = std::env::var("FERROKUBE_TEST_RUNTIME").is_ok_and(|runtime| runtime == "containerd");
        self.containerd || self.runtime || chosen
    }
}

/// A running cluster.
pub struct Cluster {
    host: Host,
    containerd: Option<Child>,
    ferrokube: Option<Child>,
    options: Options,
}

impl Cluster {
    /// Chooses the flags of the next start.
    pub fn set_flags(&mut self, flags: &[&str]) {
        self.options.flags = flags.iter().map(ToString::to_string).collect();
    }

    /// Starts a cluster and waits until its node is Ready.
    pub fn start(name: &str, options: Options) -> Result<Self> {
        let host = Host::new(name)?;
        if !options.offline {
            host.connect()?;
        }
        Self::start_on(host, options)
    }

    /// Starts a cluster on a host that has its network, and waits until its node is Ready.
    pub fn start_on(host: Host, options: Options) -> Result<Self> {
        let mut cluster = Self { host, containerd: None, ferrokube: None, options };
        if cluster.options.nodes > 0 {
            cluster.prepare_nodes()?;
        } else if cluster.options.runtime
            || (cluster.options.has_containerd() && !cluster.options.control_plane_only)
        {
            cluster.start_containerd()?;
        } else if !cluster.options.control_plane_only {
            cluster.write_images()?;
        }
        cluster.start_ferrokube()?;
        cluster.wait_ready()?;
        Ok(cluster)
    }

    /// Starts a containerd alone on a host that has its network, for a node that joins another's cluster by
    /// [`Cluster::join`].
    pub fn runtime_on(host: Host, images: Vec<Image>) -> Result<Self> {
        let options = Options { images, control_plane_only: true, runtime: true, ..Options::default() };
        let mut cluster = Self { host, containerd: None, ferrokube: None, options };
        cluster.start_containerd()?;
        Ok(cluster)
    }

    /// The flags of a node on this host, whose data are in a directory of this name.
    pub fn node_flags(&self, dir: &str, name: &str) -> Vec<String> {
        let path = |name: &str| self.host.path(name).display().to_string();
        vec![
            format!("--data-dir={}", path(dir)),
            format!("--container-runtime-endpoint={}", self.socket().display()),
            format!("--cni-conf-dir={}", path("cni")),
            format!("--cni-bin-dir={}", path("cni-bin")),
            format!("--node-name={name}"),
            "--eviction-hard=memory.available<10Mi,nodefs.available<1%,imagefs.available<1%".to_owned(),
        ]
    }

    /// Starts `ferrokube agent` on this host, with the token that `token create` printed in the cluster that it is to join.
    pub fn join(&mut self, printed: &str) -> Result<()> {
        let words = printed.split_whitespace().skip(1);
        let mut command = self.host.command(self.binary());
        command.args(words).args(self.node_flags("data", self.host.name()));
        self.ferrokube = Some(self.host.spawn("ferrokube", &mut command)?);
        Ok(())
    }

    /// The host on which the cluster runs.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The cluster's data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.host.path("data")
    }

    /// The admin's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.host.path("admin.kubeconfig")
    }

    /// Whether the runtime is a containerd.
    pub fn has_containerd(&self) -> bool {
        self.containerd.is_some()
    }

    /// The socket of containerd, if the cluster has one.
    pub fn socket(&self) -> PathBuf {
        self.host.path("containerd.sock")
    }

    fn start_containerd(&mut self) -> Result<()> {
        let h = &self.host;
        let bin = tool("containerd");
        ensure!(bin.exists(), "{} is missing: run `cargo xtask setup`", bin.display());
        let config = containerd_config(h.dir());
        fs::write(h.path("containerd.toml"), config)?;
        fs::create_dir_all(h.path("cni"))?;
        let mut command = h.command(&bin);
        command.arg("--config").arg(h.path("containerd.toml")).env("PATH", tools_path());
        self.containerd = Some(h.spawn("containerd", &mut command)?);
        let h = &self.host;
        eventually("containerd", || {
            self.ctr(&["version"])?;
            Ok(Some(()))
        })
        .with_context(|| h.log("containerd"))?;
        self.import(&Image::pause(PAUSE)?)?;
        for image in &self.options.images {
            self.import(image)?;
        }
        Ok(())
    }

    /// Writes what the runtimes of nodes on one host have: archives of images, and the settings of containerds.
    fn prepare_nodes(&self) -> Result<()> {
        self.write_images()?;
        if self.options.has_containerd() {
            fs::write(self.host.path("containerd.toml"), nodes_containerd_config())?;
            Image::pause(PAUSE)?.write(&self.host.path("images").join("pause.tar"))?;
        }
        Ok(())
    }

    /// Writes the archives of images that the runtime finds at its start.
    fn write_images(&self) -> Result<()> {
        let images = self.host.path("images");
        fs::create_dir_all(&images)?;
        for (number, image) in self.options.images.iter().enumerate() {
            image.write(&images.join(format!("{number}.tar")))?;
        }
        Ok(())
    }

    /// Sends a signal to containerd, such as `STOP` and `CONT`.
    pub fn signal_containerd(&self, signal: Signal) -> Result<()> {
        let child = self.containerd.as_ref().context("containerd is not running")?;
        let process = |pid: u32| Pid::from_raw(i32::try_from(pid).ok()?);
        let pid = process(Host::pid_of(child)?).context("no process has this id")?;
        kill_process(pid, signal)?;
        // nsenter stops with its child, and does not go on by itself.
        if signal == Signal::CONT {
            kill_process(process(child.id()).context("no process has this id")?, signal)?;
        }
        Ok(())
    }

    /// Runs `ctr` in the namespace of the node's containers.
    pub fn ctr(&self, args: &[&str]) -> Result<String> {
        let (ctr, sock) = (tool("ctr"), self.socket());
        let mut all = vec!["--address", sock.to_str().unwrap_or_default(), "--namespace", "k8s.io"];
        all.extend(args);
        self.host.run(ctr.to_str().unwrap_or_default(), &all)
    }

    /// Puts an image into the node's runtime.
    pub fn import(&self, image: &Image) -> Result<()> {
        let tar = self.host.path("image.tar");
        image.write(&tar)?;
        if self.containerd.is_none() {
            let (dir, file) = (self.data_dir(), tar.to_string_lossy().into_owned());
            let args = ["image", "import", "--data-dir", dir.to_str().unwrap_or_default(), &file];
            self.host.run(self.binary().to_str().unwrap_or_default(), &args)?;
            return Ok(fs::remove_file(tar)?);
        }
        self.ctr(&["images", "import", "--local", tar.to_str().unwrap_or_default()])?;
        Ok(fs::remove_file(tar)?)
    }

    /// Starts (again) the FerroKube process; it must not be running.
    pub fn start_ferrokube(&mut self) -> Result<()> {
        let h = &self.host;
        let bin = self.binary();
        ensure!(bin.exists(), "{} is missing: run `cargo build`", bin.display());
        let mut command = h.command(&bin);
        command.arg(if self.options.control_plane_only { "server" } else { "up" });
        command.arg("--data-dir").arg(self.data_dir());
        command.arg("--write-kubeconfig").arg(self.kubeconfig());
        if self.options.nodes > 0 {
            command.env("PATH", tools_path()).arg("--nodes").arg(self.options.nodes.to_string());
            if self.options.has_containerd() {
                command.arg("--containerd").arg(tool("containerd"));
                command.arg("--containerd-config").arg(h.path("containerd.toml"));
            }
            command.arg("--images").arg(h.path("images"));
            command.args(["--node-name", h.name()]);
        } else if !self.options.control_plane_only {
            if self.containerd.is_some() {
                command.arg("--container-runtime-endpoint").arg(self.socket());
            } else {
                command.arg("--images").arg(h.path("images"));
            }
            command.arg("--cni-conf-dir").arg(h.path("cni"));
            command.arg("--cni-bin-dir").arg(h.path("cni-bin"));
            command.args(["--node-name", h.name()]);
        }
        command.args(&self.options.flags);
        self.ferrokube = Some(h.spawn("ferrokube", &mut command)?);
        Ok(())
    }

    fn binary(&self) -> PathBuf {
        self.options.binary.clone().unwrap_or_else(binary)
    }

    /// The id of the FerroKube process, as seen from outside the host.
    pub fn pid(&self) -> Result<u32> {
        Host::pid_of(self.ferrokube.as_ref().context("ferrokube is not running")?)
    }

    /// Waits until the API server is ready and, if there is a node, until it is ready, too.
    pub fn wait_ready(&mut self) -> Result<()> {
        let what = if self.options.control_plane_only { "the API server" } else { "a Ready node" };
        let mut ended = None;
        let result = eventually(what, || {
            ended = self.ferrokube.as_mut().and_then(|f| f.try_wait().ok().flatten());
            if ended.is_some() {
                return Ok(Some(()));
            }
            if self.options.control_plane_only {
                return Ok((self.kubectl(&["get", "--raw", "/readyz"])? == "ok").then_some(()));
            }
            let ready = self.kubectl(&[
                "get",
                "nodes",
                "-o",
                "jsonpath={.items[*].status.conditions[?(@.type==\"Ready\")].status}",
            ])?;
            let expected = vec!["True"; self.options.nodes.max(1)].join(" ");
            Ok((ready == expected).then_some(()))
        });
        if let Some(status) = ended {
            bail!("ferrokube ended with {status}: {}", self.host.log("ferrokube"));
        }
        result.with_context(|| self.host.log("ferrokube"))
    }

    /// Ends the FerroKube process with a signal and waits for its end.
    pub fn stop_ferrokube(&mut self, signal: Signal) -> Result<()> {
        let mut child = self.ferrokube.take().context("ferrokube is not running")?;
        let pid = Host::pid_of(&child)?;
        let pid = Pid::from_raw(i32::try_from(pid)?).context("no process has this id")?;
        kill_process(pid, signal)?;
        child.wait()?;
        Ok(())
    }

    /// Runs kubectl with the admin's kubeconfig; returns its whole output.
    pub fn kubectl_output(&self, args: &[&str]) -> Result<Output> {
        let kubectl = tool("kubectl");
        Ok(self
            .host
            .command(&kubectl)
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .args(args)
            .env("HOME", self.host.dir())
            .output()?)
    }

    /// Runs kubectl; returns its standard output, or its standard error as the failure.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        let out = self.kubectl_output(args)?;
        ensure!(
            out.status.success(),
            "kubectl {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&out.stderr).trim()
        );
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }

    /// Reads an object as JSON.
    pub fn get(&self, kind: &str, name: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.kubectl(&["get", kind, name, "-o", "json"])?)?)
    }

    /// Runs `kubectl apply` on a manifest.
    pub fn apply(&self, manifest: &str) -> Result<String> {
        let file = self.host.path("manifest.yaml");
        fs::write(&file, manifest)?;
        self.kubectl(&["apply", "-f", file.to_str().unwrap_or_default()])
    }

    /// The state of the cluster, for the message of a failed test: objects, events and the ends of the logs.
    pub fn report(&self) -> String {
        let ask = |args: &[&str]| self.kubectl(args).unwrap_or_else(|e| e.to_string());
        format!(
            "--- pods\n{}\n--- events\n{}\n--- ferrokube\n{}\n--- containerd\n{}",
            ask(&["get", "pods", "-A", "-o", "wide"]),
            ask(&["get", "events", "-A", "--sort-by=.metadata.creationTimestamp"]),
            self.host.log("ferrokube"),
            self.host.log("containerd"),
        )
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.report());
        }
        if self.options.control_plane_only && !self.data_dir().join("footprint.json").exists() {
            return;
        }
        // Processes, mounts and networks go with the host; cgroups are the machine's own.
        // A program that has ended, or was not started, cannot be stopped.
        let _ = self.stop_ferrokube(Signal::KILL);
        let mut down = self.host.command(self.binary());
        match down.arg("down").arg("--data-dir").arg(self.data_dir()).output() {
            Ok(out) if out.status.success() => {}
            other => eprintln!("the cluster was not removed: {other:?}"),
        }
    }
}
