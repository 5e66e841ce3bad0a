//! Another OCI runtime, runc, makes the containers of sandboxes whose handler names it.

use std::fs;

use anyhow::{Context, Result};
use cri::runtime as pb;

use crate::support::{IMAGE, RUNC, Runtime, container};

async fn runc(name: &str) -> Result<Runtime> {
    Runtime::start_with(name, "runc", &RUNC).await
}

/// The things on the machine that belong to a test: mounts, bundles, cgroups of containers. Those of Pods are the
/// kubelet's.
fn left(runtime: &Runtime) -> Result<(usize, usize, usize)> {
    let dir = runtime.host.path("root").display().to_string();
    let mounts = runtime.host.run("cat", &["/proc/self/mountinfo"])?;
    let mounts = mounts.lines().filter(|l| l.contains(&dir)).count();
    let bundles =
        runtime.host.run("sh", &["-c", &format!("ls -d {dir}/shims/*/bundles/* 2>/dev/null || true")])?;
    let script = format!("find /sys/fs/cgroup -path '*{}/*/*' -type d | wc -l", runtime.cgroup);
    let cgroups = runtime.host.run("sh", &["-c", &script])?;
    Ok((mounts, bundles.lines().count(), cgroups.trim().parse()?))
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_are_told_and_unknown_ones_refused() -> Result<()> {
    let runtime = runc("handlers").await?;
    let status = runtime.cri().status(pb::StatusRequest { verbose: false }).await?.into_inner();
    let names: Vec<&str> = status.runtime_handlers.iter().map(|h| h.name.as_str()).collect();
    assert_eq!(names, ["", "runc"]);
    let features = |place: usize| status.runtime_handlers[place].features.unwrap_or_default();
    assert!(features(0).recursive_read_only_mounts && features(1).recursive_read_only_mounts);
    let request =
        pb::RunPodSandboxRequest { config: Some(runtime.pod("unknown")), runtime_handler: "nosuch".into() };
    let said = runtime.cri().run_pod_sandbox(request).await.unwrap_err();
    assert!(said.message().ends_with("no runtime for \"nosuch\" is configured"), "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_lives_its_whole_life() -> Result<()> {
    let mut runtime = runc("life").await?;
    let pod = runtime.pod("life");
    let sandbox = runtime.sandbox(&pod).await?;
    let script = "echo out; echo err >&2; trap 'exit 4' TERM; while :; do sleep 0.1; done";
    let id = runtime.container(&sandbox, &pod, container(script)).await?;
    runtime
        .until("its log", async || {
            let log = runtime.log("life")?;
            Ok(["stdout F out", "stderr F err"].iter().all(|l| log.contains(&(*l).to_owned())))
        })
        .await?;
    // It is the runtime's: its state is runc's.
    let state = runtime
        .host
        .run("sh", &["-c", &format!("ls {}/shims/*/oci", runtime.host.path("root").display())])?;
    assert_eq!(state.trim(), id);
    let said =
        runtime.exec(&id, &["sh", "-c", "hostname; cat /data/file; ls /proc/self/fd | wc -l; id -u"]).await?;
    assert_eq!(said, "life\nof the image\n4\n0\n");
    for (command, expected) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)] {
        let cmd = ["sh", "-c", command].map(str::to_owned).to_vec();
        let request = pb::ExecSyncRequest { container_id: id.clone(), cmd, timeout: 0 };
        assert_eq!(runtime.cri().exec_sync(request).await?.into_inner().exit_code, expected, "{command}");
    }
    let request = pb::ExecSyncRequest { container_id: id.clone(), cmd: vec!["nosuch".into()], timeout: 0 };
    let said = runtime.cri().exec_sync(request).await.unwrap_err();
    assert!(said.message().ends_with("exec: \"nosuch\": executable file not found in $PATH"), "{said}");
    let linux = pb::LinuxContainerResources { memory_limit_in_bytes: 64 << 20, ..Default::default() };
    let change = pb::UpdateContainerResourcesRequest {
        container_id: id.clone(),
        linux: Some(linux),
        ..Default::default()
    };
    runtime.cri().update_container_resources(change).await?;
    let request = pb::ListContainerStatsRequest { filter: None };
    let stats = runtime.cri().list_container_stats(request).await?.into_inner().stats;
    assert!(stats[0].memory.as_ref().unwrap().working_set_bytes.unwrap().value > 0);
    // The next process of the runtime takes it over.
    runtime.kill()?;
    runtime.run().await?;
    assert_eq!(runtime.status(&id).await?.state(), pb::ContainerState::ContainerRunning);
    assert_eq!(runtime.exec(&id, &["echo", "on"]).await?, "on\n");
    let stop = pb::StopContainerRequest { container_id: id.clone(), timeout: 60 };
    runtime.cri().stop_container(stop).await?;
    assert_eq!(runtime.status(&id).await?.exit_code, 4);
    let remove = pb::RemovePodSandboxRequest { pod_sandbox_id: sandbox };
    runtime.cri().remove_pod_sandbox(remove).await?;
    assert_eq!(left(&runtime)?, (0, 0, 0), "mounts, bundles, cgroups");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ends_are_exact_while_the_runtime_is_dead() -> Result<()> {
    let mut runtime = runc("ends").await?;
    let (_, ends) = runtime.script("later", "until [ -f /tmp/go ]; do sleep 0.1; done; exit 7").await?;
    let pod = runtime.pod("made");
    let sandbox = runtime.sandbox(&pod).await?;
    let request = pb::CreateContainerRequest {
        pod_sandbox_id: sandbox,
        config: Some(container("exit 5")),
        sandbox_config: Some(pod),
    };
    let made = runtime.cri().create_container(request).await?.into_inner().container_id;
    runtime.exec(&ends, &["sh", "-c", "(sleep 1; touch /tmp/go) >/dev/null 2>&1 &"]).await?;
    runtime.kill()?;
    runtime.run().await?;
    assert_eq!(runtime.ended(&ends).await?.exit_code, 7);
    // It was made, and is started by the next process.
    assert_eq!(runtime.status(&made).await?.state(), pb::ContainerState::ContainerCreated);
    runtime.cri().start_container(pb::StartContainerRequest { container_id: made.clone() }).await?;
    assert_eq!(runtime.ended(&made).await?.exit_code, 5);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_are_told_at_the_start() -> Result<()> {
    let runtime = runc("faults").await?;
    let pod = runtime.pod("faults");
    let sandbox = runtime.sandbox(&pod).await?;
    let mut config = container("true");
    config.command = vec!["nosuch".into()];
    let failed = runtime.container(&sandbox, &pod, config).await.unwrap_err().to_string();
    assert!(failed.contains("OCI runtime create failed"), "{failed}");
    assert!(
        failed.contains("exec: \\\"nosuch\\\": executable file not found in $PATH")
            || failed.contains("exec: \"nosuch\": executable file not found in $PATH"),
        "{failed}"
    );
    let mut config = container("tail /dev/zero");
    config.metadata = Some(pb::ContainerMetadata { name: "oom".into(), attempt: 0 });
    config.linux.as_mut().unwrap().resources =
        Some(pb::LinuxContainerResources { memory_limit_in_bytes: 16 << 20, ..Default::default() });
    let id = runtime.container(&sandbox, &pod, config).await?;
    let status = runtime.ended(&id).await?;
    assert_eq!((status.exit_code, &status.reason[..]), (137, "OOMKilled"));
    let remove = pb::RemovePodSandboxRequest { pod_sandbox_id: sandbox };
    runtime.cri().remove_pod_sandbox(remove).await?;
    assert_eq!(left(&runtime)?, (0, 0, 0), "mounts, bundles, cgroups");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_and_shared_processes() -> Result<()> {
    let runtime = runc("shared").await?;
    let mut pod = runtime.pod("shared");
    let shared = pb::NamespaceOption { pid: pb::NamespaceMode::Pod.into(), ..Default::default() };
    let security = pod.linux.as_mut().and_then(|linux| linux.security_context.as_mut()).unwrap();
    security.namespace_options = Some(shared.clone());
    let sandbox = runtime.sandbox(&pod).await?;
    let mut config = container("tty; stty size; ps | wc -l; exit 3");
    config.tty = true;
    crate::support::context(&mut config).namespace_options = Some(shared);
    let id = runtime.container(&sandbox, &pod, config).await?;
    assert_eq!(runtime.ended(&id).await?.exit_code, 3);
    let log = runtime.log("shared")?.join("\n");
    assert!(log.contains("/dev/pts/0") || log.contains("/dev/console"), "{log}");
    let log_file = fs::read_to_string(runtime.host.path("logs").join("shared/c.log"))?;
    assert!(!log_file.contains(" stderr "), "{log_file}");
    Ok(())
}

/// Handlers share their images: one that is asked for with a handler is found, and is listed once and for all of them.
#[tokio::test(flavor = "multi_thread")]
async fn images_are_those_of_all_handlers() -> Result<()> {
    let runtime = runc("images").await?;
    let spec = |handler: &str| {
        Some(pb::ImageSpec { image: IMAGE.into(), runtime_handler: handler.into(), ..Default::default() })
    };
    let status = async |handler: &str| {
        let request = pb::ImageStatusRequest { image: spec(handler), verbose: false };
        anyhow::Ok(runtime.images().image_status(request).await?.into_inner().image)
    };
    let own = status("").await?.context("no image")?;
    assert_eq!(status("runc").await?, Some(own.clone()));
    assert_eq!(own.spec.unwrap_or_default().runtime_handler, "");
    let filter = |handler: &str| Some(pb::ImageFilter { image: spec(handler) });
    for filter in [filter(""), filter("runc"), None] {
        let listed =
            runtime.images().list_images(pb::ListImagesRequest { filter }).await?.into_inner().images;
        assert_eq!(listed.iter().map(|image| &image.id).collect::<Vec<_>>(), [&own.id]);
    }
    let pod = runtime.pod("images");
    let sandbox = runtime.sandbox(&pod).await?;
    let mut config = container("true");
    config.image = spec("runc");
    let id = runtime.container(&sandbox, &pod, config).await?;
    assert_eq!(runtime.ended(&id).await?.exit_code, 0);
    let remove = pb::RemovePodSandboxRequest { pod_sandbox_id: sandbox };
    runtime.cri().remove_pod_sandbox(remove).await?;
    runtime.images().remove_image(pb::RemoveImageRequest { image: spec("runc") }).await?;
    assert_eq!(status("").await?, None);
    Ok(())
}
