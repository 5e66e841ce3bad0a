//! A runtime on a test host, and short ways to ask it.
#![allow(clippy::unwrap_used, reason = "a test ends with what is not there")]

use std::fs;
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use cri::runtime as pb;
use rustix::process::{Pid, Signal, kill_process};
use testkit::{Host, Image, binary};

pub(crate) const IMAGE: &str = "test.local/app:1";
/// How long anything may take on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_mins(3);
const LOOK: Duration = Duration::from_millis(20);

/// A runtime. Its containers end with its host.
pub(crate) struct Runtime {
    pub(crate) host: Host,
    process: Option<Child>,
    service: Option<(cri::Runtime, cri::Images)>,
    pub(crate) cgroup: String,
    /// Further flags of the process.
    flags: Vec<String>,
    /// The handler of sandboxes.
    handler: String,
}

impl Runtime {
    pub(crate) async fn start(name: &str) -> Result<Self> {
        Self::start_with(name, "", &[]).await
    }

    /// Starts a runtime with further flags, whose sandboxes have a handler.
    pub(crate) async fn start_with(name: &str, handler: &str, flags: &[&str]) -> Result<Self> {
        let host = Host::new(name)?;
        fs::create_dir(host.path("images"))?;
        let mut image = Image::busybox(IMAGE)?;
        image.texts.push(("data/file".into(), "of the image\n".into(), 0o644));
        image.config["Volumes"] = serde_json::json!({ "/data": {} });
        image.write(&host.path("images").join("app.tar"))?;
        let cgroup = format!("/ferrokube-test-{name}-{}", std::process::id());
        let flags = flags.iter().map(ToString::to_string).collect();
        let handler = handler.to_owned();
        let mut runtime = Self { host, process: None, service: None, cgroup, flags, handler };
        runtime.run().await?;
        let present = async || {
            let request = pb::ListImagesRequest { filter: None };
            Ok(!runtime.images().list_images(request).await?.into_inner().images.is_empty())
        };
        runtime.until("the image", present).await?;
        Ok(runtime)
    }

    fn socket(&self) -> PathBuf {
        self.host.path("cri.sock")
    }

    /// Starts the process, and waits until it answers.
    pub(crate) async fn run(&mut self) -> Result<()> {
        let mut command = self.host.command(binary());
        command.args(["cri-runtime", "--network=none", "--listen"]).arg(self.socket());
        command.arg("--root").arg(self.host.path("root")).arg("--images").arg(self.host.path("images"));
        command.args(&self.flags);
        self.process = Some(self.host.spawn("runtime", &mut command)?);
        let path = self.socket().display().to_string();
        let answers = async {
            loop {
                if let Ok(channel) = cri::connect(&path).await {
                    let runtime = cri::Runtime::new(channel.clone());
                    let request = pb::VersionRequest { version: "v1".into() };
                    if runtime.version(request).await.is_ok() {
                        return (runtime, cri::Images::new(channel));
                    }
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let service = tokio::time::timeout(PATIENCE, answers).await;
        self.service = Some(service.with_context(|| self.host.log("runtime"))?);
        Ok(())
    }

    /// Kills the process; its containers go on.
    pub(crate) fn kill(&mut self) -> Result<()> {
        let mut process = self.process.take().context("it does not run")?;
        let pid = Pid::from_raw(i32::try_from(Host::pid_of(&process)?)?).context("no process")?;
        kill_process(pid, Signal::KILL)?;
        process.wait()?;
        Ok(())
    }

    pub(crate) fn cri(&self) -> cri::Runtime {
        self.service.as_ref().map(|(runtime, _)| runtime.clone()).unwrap()
    }

    pub(crate) fn images(&self) -> cri::Images {
        self.service.as_ref().map(|(_, images)| images.clone()).unwrap()
    }

    /// A Pod of this name.
    pub(crate) fn pod(&self, name: &str) -> pb::PodSandboxConfig {
        pb::PodSandboxConfig {
            metadata: Some(pb::PodSandboxMetadata {
                name: name.into(),
                namespace: "default".into(),
                uid: format!("uid-{name}"),
                attempt: 0,
            }),
            hostname: name.into(),
            log_directory: self.host.path("logs").join(name).display().to_string(),
            linux: Some(pb::LinuxPodSandboxConfig {
                cgroup_parent: format!("{}/{name}", self.cgroup),
                security_context: Some(pb::LinuxSandboxSecurityContext {
                    namespace_options: Some(pb::NamespaceOption {
                        pid: pb::NamespaceMode::Container.into(),
                        ..Default::default()
                    }),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    /// Makes a sandbox.
    pub(crate) async fn sandbox(&self, pod: &pb::PodSandboxConfig) -> Result<String> {
        fs::create_dir_all(&pod.log_directory)?;
        let runtime_handler = self.handler.clone();
        let request = pb::RunPodSandboxRequest { config: Some(pod.clone()), runtime_handler };
        Ok(self.cri().run_pod_sandbox(request).await?.into_inner().pod_sandbox_id)
    }

    /// Makes a container and starts it.
    pub(crate) async fn container(
        &self,
        sandbox: &str,
        pod: &pb::PodSandboxConfig,
        config: pb::ContainerConfig,
    ) -> Result<String> {
        let request = pb::CreateContainerRequest {
            pod_sandbox_id: sandbox.into(),
            config: Some(config),
            sandbox_config: Some(pod.clone()),
        };
        let id = self.cri().create_container(request).await?.into_inner().container_id;
        self.cri().start_container(pb::StartContainerRequest { container_id: id.clone() }).await?;
        Ok(id)
    }

    /// Makes a Pod with one container that runs a script; the ids of both.
    pub(crate) async fn script(&self, name: &str, script: &str) -> Result<(String, String)> {
        let pod = self.pod(name);
        let sandbox = self.sandbox(&pod).await?;
        let container = self.container(&sandbox, &pod, container(script)).await?;
        Ok((sandbox, container))
    }

    pub(crate) async fn status(&self, id: &str) -> Result<pb::ContainerStatus> {
        let request = pb::ContainerStatusRequest { container_id: id.into(), verbose: false };
        self.cri().container_status(request).await?.into_inner().status.context("no status")
    }

    /// Waits for a container's end.
    pub(crate) async fn ended(&self, id: &str) -> Result<pb::ContainerStatus> {
        let end = async {
            loop {
                let status = self.status(id).await?;
                if status.state() == pb::ContainerState::ContainerExited {
                    return anyhow::Ok(status);
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(PATIENCE, end).await.context("it does not end")?
    }

    /// Runs a command in a container; its output, if it succeeds.
    pub(crate) async fn exec(&self, id: &str, command: &[&str]) -> Result<String> {
        let request = pb::ExecSyncRequest {
            container_id: id.into(),
            cmd: command.iter().map(ToString::to_string).collect(),
            timeout: 0,
        };
        let answer = self.cri().exec_sync(request).await?.into_inner();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ensure!(answer.exit_code == 0, "{command:?}: {} {}", answer.exit_code, text(&answer.stderr));
        Ok(text(&answer.stdout))
    }

    /// Waits until a condition holds.
    pub(crate) async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
        let waiting = async {
            while !holds().await? {
                tokio::time::sleep(LOOK).await;
            }
            anyhow::Ok(())
        };
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(done) => done,
            Err(_) => bail!("{what} did not happen: {}", self.host.log("runtime")),
        }
    }

    /// The lines of a container's log, without their times.
    pub(crate) fn log(&self, pod: &str) -> Result<Vec<String>> {
        let text = fs::read_to_string(self.host.path("logs").join(pod).join("c.log"))?;
        Ok(text.lines().filter_map(|line| Some(line.split_once(' ')?.1.to_owned())).collect())
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.host.log("runtime"));
        }
        // Processes, mounts and networks go with the host; cgroups are the machine's own.
        let _ = self.host.run("sh", &["-c", "kill -9 -1"]);
        let script = format!(
            "for i in 1 2 3 4 5 6 7 8 9; do find /sys/fs/cgroup -depth -path '*{0}*' -type d -exec rmdir {{}} + 2>/dev/null; \
             find /sys/fs/cgroup -maxdepth 2 -path '*{0}' | grep -q . || break; sleep 0.2; done",
            self.cgroup
        );
        let _ = std::process::Command::new("sh").args(["-c", &script]).output();
    }
}

/// The flag by which runc is a handler.
pub(crate) const RUNC: [&str; 1] = ["--runtime-handler=runc=/usr/sbin/runc"];

/// A container that runs a script.
pub(crate) fn container(script: &str) -> pb::ContainerConfig {
    pb::ContainerConfig {
        metadata: Some(pb::ContainerMetadata { name: "c".into(), attempt: 0 }),
        image: Some(pb::ImageSpec { image: IMAGE.into(), ..Default::default() }),
        command: ["sh", "-c", script].map(str::to_owned).to_vec(),
        log_path: "c.log".into(),
        linux: Some(pb::LinuxContainerConfig {
            security_context: Some(pb::LinuxContainerSecurityContext {
                namespace_options: Some(pb::NamespaceOption {
                    pid: pb::NamespaceMode::Container.into(),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            resources: None,
        }),
        ..Default::default()
    }
}

/// The security settings of a container.
pub(crate) fn context(config: &mut pb::ContainerConfig) -> &mut pb::LinuxContainerSecurityContext {
    config.linux.as_mut().and_then(|linux| linux.security_context.as_mut()).unwrap()
}
