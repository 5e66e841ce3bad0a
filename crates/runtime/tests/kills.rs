//! The runtime is killed at random moments while much is going on: every container is accounted for, and nothing is left
//! of those that were removed.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use cri::runtime as pb;
use parking_lot::Mutex;
use testkit::Numbers;

use crate::support::{RUNC, Runtime, container};

/// The clients that make and remove Pods all the time.
const CLIENTS: u64 = 4;
/// How long a thing may take on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_mins(3);

/// The things that all clients share.
struct Shared {
    service: Mutex<Option<cri::Runtime>>,
    over: AtomicBool,
    /// Containers whose end was seen.
    ends: AtomicU32,
    cgroup: String,
    logs: std::path::PathBuf,
}

impl Shared {
    /// The runtime, once it is there.
    async fn cri(&self) -> cri::Runtime {
        loop {
            if let Some(service) = self.service.lock().clone() {
                return service;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn pod(&self, name: &str) -> pb::PodSandboxConfig {
        pb::PodSandboxConfig {
            metadata: Some(pb::PodSandboxMetadata {
                name: name.into(),
                namespace: "kills".into(),
                uid: format!("uid-{name}"),
                attempt: 0,
            }),
            hostname: name.into(),
            log_directory: self.logs.join(name).display().to_string(),
            linux: Some(pb::LinuxPodSandboxConfig {
                cgroup_parent: format!("{}/{name}", self.cgroup),
                ..Default::default()
            }),
            ..Default::default()
        }
    }
}

/// The container of a client, with the Pod's own processes.
fn of_pod(script: &str) -> pb::ContainerConfig {
    let mut config = container(script);
    config.linux = None;
    config
}

/// A Pod from its beginning to its end; an error is one of a runtime that was killed, or one that counts.
async fn life(shared: &Shared, name: &str, handler: &str, code: i32) -> Result<()> {
    let pod = shared.pod(name);
    let request = pb::RunPodSandboxRequest { config: Some(pod.clone()), runtime_handler: handler.to_owned() };
    let sandbox = shared.cri().await.run_pod_sandbox(request).await?.into_inner().pod_sandbox_id;
    let request = pb::CreateContainerRequest {
        pod_sandbox_id: sandbox,
        config: Some(of_pod(&format!("echo begun; exit {code}"))),
        sandbox_config: Some(pod),
    };
    let id = shared.cri().await.create_container(request).await?.into_inner().container_id;
    let request = pb::StartContainerRequest { container_id: id.clone() };
    let started = shared.cri().await.start_container(request).await;
    if let Err(status) = &started {
        ensure!(is_dead(status), "{name}: it does not start: {status}");
    }
    // The start that broke off has happened or not; whoever comes next sees which.
    end(shared, &id, code).await
}

/// Sees a container to its end, whatever happens to the runtime meanwhile.
async fn end(shared: &Shared, id: &str, code: i32) -> Result<()> {
    let seen = async {
        loop {
            let request = pb::ContainerStatusRequest { container_id: id.into(), verbose: false };
            match shared.cri().await.container_status(request).await {
                Ok(answer) => {
                    let status = answer.into_inner().status.context("no status")?;
                    match status.state() {
                        pb::ContainerState::ContainerExited => {
                            ensure!(status.exit_code == code, "{id} should end with {code}: {status:?}");
                            shared.ends.fetch_add(1, Ordering::Relaxed);
                            return Ok(());
                        }
                        pb::ContainerState::ContainerCreated => {
                            let request = pb::StartContainerRequest { container_id: id.into() };
                            let started = shared.cri().await.start_container(request).await;
                            if let Err(status) = started {
                                let state = status.message().contains("state");
                                ensure!(is_dead(&status) || state, "{id} does not start: {status}");
                            }
                        }
                        _ => {}
                    }
                }
                Err(status) if is_dead(&status) => {}
                Err(status) => bail!("{id} was made and is not known: {status}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, seen).await.with_context(|| format!("{id} does not end"))?
}

/// Whether an error says that the runtime went away.
fn is_dead(status: &tonic::Status) -> bool {
    use tonic::Code;
    matches!(status.code(), Code::Unavailable | Code::Cancelled)
        || (status.code() == Code::Unknown
            && ["transport", "h2 protocol error"].iter().any(|of| status.message().contains(of)))
        || (status.code() == Code::Internal && status.message().contains("h2"))
}

/// Removes a Pod, however far it has come.
async fn remove(shared: &Shared, name: &str) -> Result<()> {
    let gone = async {
        loop {
            let service = shared.cri().await;
            let listed = service.list_pod_sandbox(pb::ListPodSandboxRequest { filter: None }).await;
            let Ok(listed) = listed else {
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            };
            let all = listed.into_inner().items;
            let mine: Vec<_> =
                all.iter().filter(|s| s.metadata.as_ref().is_some_and(|m| m.name == name)).collect();
            if mine.is_empty() {
                return Ok(());
            }
            for one in mine {
                let request = pb::RemovePodSandboxRequest { pod_sandbox_id: one.id.clone() };
                if let Err(status) = service.remove_pod_sandbox(request).await {
                    ensure!(is_dead(&status), "{name} cannot be removed: {status}");
                }
            }
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.with_context(|| format!("{name} does not go"))?
}

async fn client(shared: Arc<Shared>, number: u64) -> Result<()> {
    let handler = if number == 0 { "runc" } else { "" };
    for round in 0.. {
        if shared.over.load(Ordering::Relaxed) {
            return Ok(());
        }
        let name = format!("p{number}-{round}");
        let code = 1 + (number as i32) * 10 + round % 10;
        match life(&shared, &name, handler, code).await {
            Ok(()) => {}
            Err(error) => match error.downcast_ref::<tonic::Status>() {
                Some(status) if is_dead(status) => {}
                _ => return Err(error),
            },
        }
        remove(&shared, &name).await?;
    }
    Ok(())
}

/// All that a runtime has on its machine: entries of its directories, mounts, cgroups and shims.
fn holdings(runtime: &Runtime) -> Result<String> {
    let root = runtime.host.path("root");
    let mut told = String::new();
    for part in
        ["shims", "sandboxes", "containers", "records/sandboxes", "records/containers", "images/roots"]
    {
        let count = std::fs::read_dir(Path::new(&root).join(part)).map_or(0, Iterator::count);
        write!(told, "{part} {count}, ")?;
    }
    let mounts = runtime.host.run("cat", &["/proc/self/mountinfo"])?;
    let below = root.display().to_string();
    write!(told, "mounts {}, ", mounts.lines().filter(|l| l.contains(&below)).count())?;
    let script = format!(
        "find /sys/fs/cgroup -path '*{}/*/*' -type d | wc -l; \
         grep -l ferrokube-shim /proc/[0-9]*/comm 2>/dev/null | wc -l; \
         ls -l /proc/[0-9]*/ns/net 2>/dev/null | sed 's/.*-> //' | sort -u | wc -l",
        runtime.cgroup
    );
    let counted = runtime.host.run("sh", &["-c", &script])?;
    let names = ["cgroups", "shims", "networks"];
    for (name, count) in names.iter().zip(counted.lines()) {
        write!(told, "{name} {}, ", count.trim())?;
    }
    Ok(told)
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_at_any_moment_lose_and_leave_nothing() -> Result<()> {
    let kills: u32 = std::env::var("FERROKUBE_RUNTIME_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(10);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_nanos() as u64;
    let seed =
        std::env::var("FERROKUBE_RUNTIME_KILL_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(now | 1);
    eprintln!("FERROKUBE_RUNTIME_KILL_SEED={seed}");
    let mut numbers = Numbers::new(seed);
    let mut runtime = Runtime::start_with("kills", "", &RUNC).await?;
    let before = holdings(&runtime)?;
    let (stays, container) = runtime.script("stays", "while :; do sleep 0.1; done").await?;
    let started_at = runtime.status(&container).await?.started_at;
    let shared = Arc::new(Shared {
        service: Mutex::new(Some(runtime.cri())),
        over: AtomicBool::new(false),
        ends: AtomicU32::new(0),
        cgroup: runtime.cgroup.clone(),
        logs: runtime.host.path("logs"),
    });
    let mut clients: Vec<_> =
        (0..CLIENTS).map(|number| tokio::spawn(client(shared.clone(), number))).collect();
    for kill in 0..kills {
        tokio::time::sleep(Duration::from_millis(numbers.below(700))).await;
        *shared.service.lock() = None;
        runtime.kill()?;
        runtime.run().await?;
        *shared.service.lock() = Some(runtime.cri());
        let status = runtime.status(&container).await?;
        let running = status.state() == pb::ContainerState::ContainerRunning;
        ensure!(running && status.started_at == started_at, "after kill {kill}: {status:?}");
        if let Some(ended) = clients.iter().position(|client| client.is_finished()) {
            let why = clients.swap_remove(ended).await?;
            bail!("client {ended} ended after kill {kill}: {why:?}\n{}", runtime.host.log("runtime"));
        }
    }
    // Each client sees at least one more container to its end.
    let seen = shared.ends.load(Ordering::Relaxed);
    let more = || shared.ends.load(Ordering::Relaxed) > seen;
    runtime
        .until("further containers end", async || Ok(more() || clients.iter().any(|c| c.is_finished())))
        .await?;
    shared.over.store(true, Ordering::Relaxed);
    for client in clients {
        client.await??;
    }
    runtime.cri().remove_pod_sandbox(pb::RemovePodSandboxRequest { pod_sandbox_id: stays }).await?;
    let listed =
        runtime.cri().list_containers(pb::ListContainersRequest { filter: None }).await?.into_inner();
    assert!(listed.containers.is_empty(), "{listed:?}");
    assert_eq!(holdings(&runtime)?, before);
    eprintln!("{} containers were seen to their end over {kills} kills", shared.ends.load(Ordering::Relaxed));
    Ok(())
}
