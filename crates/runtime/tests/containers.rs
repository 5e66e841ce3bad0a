//! Containers run, end, are stopped and removed.

use anyhow::{Result, ensure};
use cri::runtime as pb;

use crate::support::{IMAGE, Runtime, container, context};

#[tokio::test(flavor = "multi_thread")]
async fn a_container_from_its_start_to_its_end() -> Result<()> {
    let runtime = Runtime::start("ends").await?;
    let (sandbox, id) = runtime.script("ends", "echo out; echo err >&2; hostname; exit 3").await?;
    let status = runtime.ended(&id).await?;
    assert_eq!((status.exit_code, &status.reason[..]), (3, "Error"));
    assert!(status.created_at > 0 && status.started_at >= status.created_at, "{status:?}");
    assert!(status.finished_at >= status.started_at, "{status:?}");
    assert_eq!(status.image.unwrap().image, IMAGE);
    let lines = runtime.log("ends")?;
    for line in ["stdout F out", "stderr F err", "stdout F ends"] {
        assert!(lines.iter().any(|known| known == line), "{lines:?}");
    }
    let list = |filter: pb::ContainerFilter| {
        let cri = runtime.cri();
        async move {
            let request = pb::ListContainersRequest { filter: Some(filter) };
            anyhow::Ok(cri.list_containers(request).await?.into_inner().containers)
        }
    };
    assert_eq!(list(pb::ContainerFilter { id: id[..8].into(), ..Default::default() }).await?.len(), 1);
    let state = Some(pb::ContainerStateValue { state: pb::ContainerState::ContainerRunning.into() });
    assert!(list(pb::ContainerFilter { state, ..Default::default() }).await?.is_empty());
    for _ in 0..2 {
        let stop = pb::StopPodSandboxRequest { pod_sandbox_id: sandbox.clone() };
        runtime.cri().stop_pod_sandbox(stop).await?;
    }
    let request = pb::PodSandboxStatusRequest { pod_sandbox_id: sandbox.clone(), verbose: true };
    let stopped = runtime.cri().pod_sandbox_status(request).await?.into_inner().status.unwrap();
    assert_eq!(stopped.state(), pb::PodSandboxState::SandboxNotready);
    for _ in 0..2 {
        let remove = pb::RemovePodSandboxRequest { pod_sandbox_id: sandbox.clone() };
        runtime.cri().remove_pod_sandbox(remove).await?;
    }
    assert!(list(pb::ContainerFilter::default()).await?.is_empty());
    let root = runtime.host.path("root");
    for dir in ["records/sandboxes", "records/containers", "sandboxes", "shims"] {
        let left: Vec<_> = std::fs::read_dir(root.join(dir))?.flatten().map(|e| e.file_name()).collect();
        ensure!(left.is_empty(), "{dir}: {left:?}");
    }
    let mounts = runtime.host.run("cat", &["/proc/self/mountinfo"])?;
    ensure!(!mounts.contains("/root/"), "{mounts}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_never_started_does_not_end() -> Result<()> {
    let runtime = Runtime::start("unstarted").await?;
    let pod = runtime.pod("unstarted");
    let sandbox = runtime.sandbox(&pod).await?;
    let request = pb::CreateContainerRequest {
        pod_sandbox_id: sandbox.clone(),
        config: Some(container("true")),
        sandbox_config: Some(pod),
    };
    let id = runtime.cri().create_container(request).await?.into_inner().container_id;
    let stop = pb::StopPodSandboxRequest { pod_sandbox_id: sandbox };
    runtime.cri().stop_pod_sandbox(stop).await?;
    let status = runtime.status(&id).await?;
    assert_eq!(status.state(), pb::ContainerState::ContainerCreated);
    assert_eq!((status.started_at, status.finished_at, status.exit_code), (0, 0, 0));
    let start = pb::StartContainerRequest { container_id: id.clone() };
    assert!(runtime.cri().start_container(start).await.is_err(), "its sandbox is gone");
    let log = runtime.host.path("logs").join("unstarted/c.log");
    assert!(log.exists());
    runtime.cri().remove_container(pb::RemoveContainerRequest { container_id: id.clone() }).await?;
    assert!(runtime.status(&id).await.is_err());
    assert!(!log.exists(), "a kubelet would count a start by it");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_by_signal_then_by_force() -> Result<()> {
    let runtime = Runtime::start("stops").await?;
    let stop = |id: &str, timeout: i64| {
        let (cri, container_id) = (runtime.cri(), id.to_owned());
        async move { cri.stop_container(pb::StopContainerRequest { container_id, timeout }).await }
    };
    let ready = "touch /ready; while :; do sleep 0.1; done";
    let is_ready = async |id: &str| {
        runtime.until("ready", async || Ok(runtime.exec(id, &["test", "-f", "/ready"]).await.is_ok())).await
    };
    let (_, polite) = runtime.script("polite", &format!("trap 'exit 5' TERM; {ready}")).await?;
    is_ready(&polite).await?;
    stop(&polite, 120).await?;
    assert_eq!(runtime.status(&polite).await?.exit_code, 5);
    stop(&polite, 120).await?;
    let (_, deaf) = runtime.script("deaf", &format!("trap '' TERM; {ready}")).await?;
    is_ready(&deaf).await?;
    stop(&deaf, 1).await?;
    let status = runtime.status(&deaf).await?;
    assert_eq!((status.exit_code, &status.reason[..]), (137, "Error"));
    let gone = pb::RemoveContainerRequest { container_id: deaf.clone() };
    runtime.cri().remove_container(gone.clone()).await?;
    runtime.cri().remove_container(gone).await?;
    stop(&deaf, 1).await?;
    assert!(runtime.status(&deaf).await.is_err());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_container_sees() -> Result<()> {
    let runtime = Runtime::start("sees").await?;
    let mut pod = runtime.pod("sees");
    pod.dns_config = Some(pb::DnsConfig { servers: vec!["192.0.2.53".into()], ..Default::default() });
    let sandbox = runtime.sandbox(&pod).await?;
    let volume = runtime.host.path("volume");
    std::fs::create_dir(&volume)?;
    std::fs::write(volume.join("file"), "of the host\n")?;
    let mut config = container("sleep 1000");
    config.envs = vec![pb::KeyValue { key: "KEY".into(), value: "value".into() }];
    config.mounts = vec![pb::Mount {
        container_path: "/volume".into(),
        host_path: volume.display().to_string(),
        readonly: true,
        ..Default::default()
    }];
    let settings = context(&mut config);
    settings.run_as_user = Some(pb::Int64Value { value: 1000 });
    settings.run_as_group = Some(pb::Int64Value { value: 2000 });
    settings.supplemental_groups = vec![3000];
    settings.masked_paths = vec!["/proc/kcore".into()];
    settings.readonly_paths = vec!["/proc/sys".into()];
    let id = runtime.container(&sandbox, &pod, config).await?;
    for (command, expected) in [
        ("cat /volume/file", "of the host"),
        ("cat /data/file", "of the image"),
        ("cat /etc/resolv.conf", "nameserver 192.0.2.53"),
        ("echo $KEY", "value"),
        ("id -u; id -g; id -G", "1000\n2000\n2000 3000"),
        ("touch /volume/new 2>/dev/null || echo refused", "refused"),
        ("echo 1 2>/dev/null > /proc/sys/kernel/panic || echo refused", "refused"),
        ("head -c 1 /proc/kcore | wc -c", "0"),
        ("cat /proc/1/comm", "sleep"),
        ("df /dev/shm | tail -1 | awk '{print $2}'", "65536"),
        ("ls /sys/class/net", "lo"),
    ] {
        let said = runtime.exec(&id, &["sh", "-c", command]).await?;
        assert_eq!(said.trim(), expected, "{command}");
    }
    let user = runtime.status(&id).await?.user.unwrap().linux.unwrap();
    assert_eq!((user.uid, user.gid, user.supplemental_groups), (1000, 2000, vec![2000, 3000]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_leaves_nothing() -> Result<()> {
    let runtime = Runtime::start("refuses").await?;
    let pod = runtime.pod("refuses");
    let sandbox = runtime.sandbox(&pod).await?;
    let again = runtime.sandbox(&pod).await.unwrap_err().to_string();
    assert!(again.contains("is reserved for"), "{again}");
    let mut unknown = container("true");
    unknown.image = Some(pb::ImageSpec { image: "test.local/none:1".into(), ..Default::default() });
    let said = runtime.container(&sandbox, &pod, unknown).await.unwrap_err().to_string();
    assert!(said.contains("failed to resolve image"), "{said}");
    let mut privileged = container("true");
    context(&mut privileged).privileged = true;
    let said = runtime.container(&sandbox, &pod, privileged).await.unwrap_err().to_string();
    assert!(said.contains("no privileged container allowed in sandbox"), "{said}");
    let mut missing = container("true");
    missing.command = vec!["/no-such-program".into()];
    let said = runtime.container(&sandbox, &pod, missing).await.unwrap_err().to_string();
    assert!(said.contains("no-such-program"), "{said}");
    // A container whose start failed is one that ended; whoever made it looks for the reason there, and removes it.
    let list = || async {
        let request = pb::ListContainersRequest { filter: None };
        anyhow::Ok(runtime.cri().list_containers(request).await?.into_inner().containers)
    };
    let left = list().await?;
    let id = left.first().map(|c| c.id.clone()).unwrap_or_default();
    assert_eq!((left.len(), left[0].state()), (1, pb::ContainerState::ContainerExited), "{left:?}");
    runtime.cri().remove_container(pb::RemoveContainerRequest { container_id: id }).await?;
    assert!(list().await?.is_empty());
    let remove = pb::RemovePodSandboxRequest { pod_sandbox_id: sandbox };
    runtime.cri().remove_pod_sandbox(remove).await?;
    runtime.sandbox(&pod).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn images_are_listed_and_removed() -> Result<()> {
    let runtime = Runtime::start("images").await?;
    let list = || {
        let images = runtime.images();
        async move {
            let request = pb::ListImagesRequest { filter: None };
            anyhow::Ok(images.list_images(request).await?.into_inner().images)
        }
    };
    let all = list().await?;
    assert_eq!((all.len(), &all[0].repo_tags[..]), (1, &[IMAGE.to_owned()][..]));
    let info = runtime.images().image_fs_info(pb::ImageFsInfoRequest {}).await?.into_inner();
    assert!(info.image_filesystems[0].used_bytes.unwrap().value > 500_000, "{info:?}");
    let image = Some(pb::ImageSpec { image: IMAGE.into(), ..Default::default() });
    for _ in 0..2 {
        runtime.images().remove_image(pb::RemoveImageRequest { image: image.clone() }).await?;
    }
    assert!(list().await?.is_empty());
    let status = pb::ImageStatusRequest { image, verbose: false };
    assert!(runtime.images().image_status(status).await?.into_inner().image.is_none());
    Ok(())
}
