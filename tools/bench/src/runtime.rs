//! Container runtimes over CRI: a Pod with one container, and a command in it, by the built-in runtime and by containerd
//! with runc, in turn.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use cri::runtime as pb;
use testkit::{Cluster, Host, Image};

use crate::table::{Table, figure};
use crate::{build, requests};

const IMAGE: &str = "test.local/app:1";
/// How long a runtime may take to start.
const PATIENCE: Duration = Duration::from_mins(1);

/// The load.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The binary to measure [default: a release build, made first]
    #[arg(long, value_name = "FILE")]
    bin: Option<PathBuf>,
    /// Pods, one after the other
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(5..=10_000))]
    pods: u32,
    /// Leave containerd out
    #[arg(long)]
    alone: bool,
}

/// A runtime at its socket.
struct Runtime {
    name: &'static str,
    socket: PathBuf,
    logs: PathBuf,
    cri: cri::Runtime,
}

/// Measures both, and prints a table.
pub(crate) async fn run(args: &Args, root: &Path) -> Result<()> {
    let bin = match &args.bin {
        Some(bin) => bin.canonicalize().with_context(|| format!("no binary at {}", bin.display()))?,
        None => build(root)?,
    };
    let ours = Host::new("built-in")?;
    let _process = start(&ours, &bin)?;
    let mut all = vec![Runtime::connect("built-in", ours.path("cri.sock"), &ours).await?];
    let theirs = if args.alone {
        None
    } else {
        Some(Cluster::runtime_on(Host::new("containerd")?, vec![Image::busybox(IMAGE)?])?)
    };
    if let Some(theirs) = &theirs {
        all.push(Runtime::connect("containerd", theirs.socket(), theirs.host()).await?);
    }
    let mut table = Table::new(&["ms", "p50", "p90", "worst"]);
    for runtime in &all {
        eprintln!("bench: {} at {}", runtime.name, runtime.socket.display());
        let (mut pods, mut execs, mut removals) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..args.pods {
            let (pod, exec, removal) = runtime.pod(number).await?;
            pods.push(pod);
            execs.push(exec);
            removals.push(removal);
        }
        for (what, times) in
            [("sandbox + create + start", pods), ("exec", execs), ("stop + remove", removals)]
        {
            let mut times: Vec<f64> = times.iter().map(|time: &Duration| time.as_secs_f64() * 1e3).collect();
            times.sort_by(f64::total_cmp);
            let at = |share: f64| figure(requests::quantile(&times, share));
            table.row([format!("{}: {what}", runtime.name), at(0.5), at(0.9), at(1.0)]);
        }
    }
    print!("{table}");
    Ok(())
}

fn start(host: &Host, bin: &Path) -> Result<Child> {
    let images = host.path("images");
    fs::create_dir(&images)?;
    Image::busybox(IMAGE)?.write(&images.join("app.tar"))?;
    let mut command = host.command(bin);
    command.args(["cri-runtime", "--network=none", "--listen"]).arg(host.path("cri.sock"));
    command.arg("--root").arg(host.path("root")).arg("--images").arg(images);
    host.spawn("runtime", &mut command)
}

impl Runtime {
    async fn connect(name: &'static str, socket: PathBuf, host: &Host) -> Result<Self> {
        let began = Instant::now();
        let channel = loop {
            match cri::connect(&socket.to_string_lossy()).await {
                Ok(channel) => break channel,
                Err(error) if began.elapsed() > PATIENCE => return Err(error.into()),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        let logs = host.path("logs");
        fs::create_dir(&logs)?;
        Ok(Self { name, socket, logs, cri: cri::Runtime::new(channel) })
    }

    /// Makes a Pod with the machine's network and removes it; the times of making, of a command and of the removal.
    async fn pod(&self, number: u32) -> Result<(Duration, Duration, Duration)> {
        let options = pb::NamespaceOption {
            network: pb::NamespaceMode::Node.into(),
            pid: pb::NamespaceMode::Container.into(),
            ..Default::default()
        };
        let pod = pb::PodSandboxConfig {
            metadata: Some(pb::PodSandboxMetadata {
                name: format!("p{number}"),
                namespace: "default".into(),
                uid: format!("u{number}"),
                attempt: 0,
            }),
            log_directory: self.logs.display().to_string(),
            linux: Some(pb::LinuxPodSandboxConfig {
                cgroup_parent: format!("/ferrokube-bench-{}", std::process::id()),
                security_context: Some(pb::LinuxSandboxSecurityContext {
                    namespace_options: Some(options.clone()),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        };
        let config = pb::ContainerConfig {
            metadata: Some(pb::ContainerMetadata { name: "c".into(), attempt: 0 }),
            image: Some(pb::ImageSpec { image: IMAGE.into(), ..Default::default() }),
            command: vec!["sleep".into(), "1000".into()],
            log_path: format!("{number}.log"),
            linux: Some(pb::LinuxContainerConfig {
                security_context: Some(pb::LinuxContainerSecurityContext {
                    namespace_options: Some(options),
                    ..Default::default()
                }),
                resources: None,
            }),
            ..Default::default()
        };
        let began = Instant::now();
        let request = pb::RunPodSandboxRequest { config: Some(pod.clone()), ..Default::default() };
        let sandbox = self.cri.run_pod_sandbox(request).await?.into_inner().pod_sandbox_id;
        let request = pb::CreateContainerRequest {
            pod_sandbox_id: sandbox.clone(),
            config: Some(config),
            sandbox_config: Some(pod),
        };
        let container_id = self.cri.create_container(request).await?.into_inner().container_id;
        self.cri.start_container(pb::StartContainerRequest { container_id: container_id.clone() }).await?;
        let made = began.elapsed();
        let began = Instant::now();
        let request =
            pb::ExecSyncRequest { container_id: container_id.clone(), cmd: vec!["true".into()], timeout: 0 };
        self.cri.exec_sync(request).await?;
        let exec = began.elapsed();
        let began = Instant::now();
        self.cri.stop_container(pb::StopContainerRequest { container_id, timeout: 0 }).await?;
        self.cri.stop_pod_sandbox(pb::StopPodSandboxRequest { pod_sandbox_id: sandbox.clone() }).await?;
        self.cri.remove_pod_sandbox(pb::RemovePodSandboxRequest { pod_sandbox_id: sandbox }).await?;
        Ok((made, exec, began.elapsed()))
    }
}
