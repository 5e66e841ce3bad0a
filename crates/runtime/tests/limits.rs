//! Limits, namespaces and filters that hold.

use anyhow::{Context, Result};
use cri::runtime as pb;

use crate::support::{Runtime, container, context};

#[tokio::test(flavor = "multi_thread")]
async fn memory_that_is_out() -> Result<()> {
    let runtime = Runtime::start("oom").await?;
    let pod = runtime.pod("oom");
    let sandbox = runtime.sandbox(&pod).await?;
    let mut config = container("tail /dev/zero");
    config.linux.as_mut().unwrap().resources =
        Some(pb::LinuxContainerResources { memory_limit_in_bytes: 16 << 20, ..Default::default() });
    let id = runtime.container(&sandbox, &pod, config).await?;
    let status = runtime.ended(&id).await?;
    assert_eq!((status.exit_code, &status.reason[..]), (137, "OOMKilled"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_change_and_use_is_told() -> Result<()> {
    let runtime = Runtime::start("limits").await?;
    let (_, id) =
        runtime.script("limits", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; sleep 1000").await?;
    let linux = pb::LinuxContainerResources {
        memory_limit_in_bytes: 64 << 20,
        cpu_shares: 512,
        ..Default::default()
    };
    let change = pb::UpdateContainerResourcesRequest {
        container_id: id.clone(),
        linux: Some(linux),
        ..Default::default()
    };
    runtime.cri().update_container_resources(change).await?;
    let resources = runtime.status(&id).await?.resources.unwrap().linux.unwrap();
    assert_eq!((resources.memory_limit_in_bytes, resources.cpu_shares), (64 << 20, 512));
    runtime
        .until("figures", async || {
            let request = pb::ListContainerStatsRequest { filter: None };
            let all = runtime.cri().list_container_stats(request).await?.into_inner().stats;
            let Some(stats) = all.first() else { return Ok(false) };
            let cpu = stats.cpu.as_ref().and_then(|cpu| cpu.usage_core_nano_seconds).map_or(0, |v| v.value);
            let memory = stats.memory.as_ref().and_then(|m| m.working_set_bytes).map_or(0, |v| v.value);
            let layer = stats.writable_layer.is_some();
            Ok(cpu > 1_000_000 && memory > 0 && layer)
        })
        .await?;
    let request = pb::ListPodSandboxStatsRequest { filter: None };
    let pods = runtime.cri().list_pod_sandbox_stats(request).await?.into_inner().stats;
    assert_eq!(pods.len(), 1);
    assert_eq!(pods[0].linux.as_ref().unwrap().containers.len(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn system_calls_that_are_filtered() -> Result<()> {
    let runtime = Runtime::start("seccomp").await?;
    let pod = runtime.pod("seccomp");
    let sandbox = runtime.sandbox(&pod).await?;
    let file = runtime.host.path("profile.json");
    std::fs::write(
        &file,
        r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mkdir","mkdirat"],"action":"SCMP_ACT_ERRNO"}]}"#,
    )?;
    use pb::security_profile::ProfileType;
    for (number, (kind, script, expected)) in [
        (
            ProfileType::RuntimeDefault,
            "unshare -U true 2>/dev/null || echo refused; mkdir /made && echo made",
            "refused\nmade",
        ),
        (ProfileType::Unconfined, "mkdir /made && echo made", "made"),
        (ProfileType::Localhost, "mkdir /made 2>/dev/null || echo refused", "refused"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut config = container("sleep 1000");
        config.metadata = Some(pb::ContainerMetadata { name: format!("c{number}"), attempt: 0 });
        context(&mut config).seccomp = Some(pb::SecurityProfile {
            profile_type: kind.into(),
            localhost_ref: if kind == ProfileType::Localhost {
                file.display().to_string()
            } else {
                String::new()
            },
        });
        let id = runtime.container(&sandbox, &pod, config).await?;
        let said = runtime.exec(&id, &["sh", "-c", script]).await?;
        assert_eq!(said.trim(), expected, "{kind:?}");
    }
    Ok(())
}

/// Runs a container with users of its own in this network; its id.
async fn with_own_users(runtime: &Runtime, network: pb::NamespaceMode) -> Result<String> {
    let one = pb::IdMapping { host_id: 1 << 20, container_id: 0, length: 65536 };
    let options = pb::NamespaceOption {
        network: network.into(),
        pid: pb::NamespaceMode::Container.into(),
        userns_options: Some(pb::UserNamespace {
            mode: pb::NamespaceMode::Pod.into(),
            uids: vec![one],
            gids: vec![one],
        }),
        ..Default::default()
    };
    let mut pod = runtime.pod("users");
    let security = pod.linux.as_mut().and_then(|linux| linux.security_context.as_mut());
    let security = security.context("the sandbox has no security context")?;
    security.namespace_options = Some(options.clone());
    let sandbox = runtime.sandbox(&pod).await?;
    let mut config = container("sleep 1000");
    context(&mut config).namespace_options = Some(options);
    runtime.container(&sandbox, &pod, config).await
}

/// A container's root sees the machine's network, and has no rights over it.
#[tokio::test(flavor = "multi_thread")]
async fn users_of_their_own_in_the_hosts_network() -> Result<()> {
    let runtime = Runtime::start("host-users").await?;
    runtime.host.run("ip", &["link", "add", "seen", "type", "veth", "peer", "name", "other"])?;
    let id = with_own_users(&runtime, pb::NamespaceMode::Node).await?;
    let network = runtime.host.run("readlink", &["/proc/self/ns/net"])?;
    for (command, expected) in [
        ("id -u", "0"),
        ("awk '{print $1, $2, $3}' /proc/self/uid_map", "0 1048576 65536"),
        ("readlink /proc/self/ns/net", network.trim()),
        ("busybox ip link show seen > /dev/null && echo seen", "seen"),
        ("busybox ip link set seen up 2> /dev/null || echo refused", "refused"),
        ("cat /sys/class/net/lo/ifindex", "1"),
        ("awk '$5 == \"/sys\" && $6 ~ /^ro,/ {print \"ro\"}' /proc/self/mountinfo", "ro"),
        ("touch /new && stat -c %u /new", "0"),
    ] {
        let said = runtime.exec(&id, &["sh", "-c", command]).await?;
        assert_eq!(said.trim(), expected, "{command}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn users_of_their_own() -> Result<()> {
    let runtime = Runtime::start("users").await?;
    let id = with_own_users(&runtime, pb::NamespaceMode::Pod).await?;
    for (command, expected) in [
        ("id -u", "0"),
        ("awk '{print $1, $2, $3}' /proc/self/uid_map", "0 1048576 65536"),
        ("stat -c %u /bin/busybox", "0"),
        ("touch /new && stat -c %u /new", "0"),
        ("cat /data/file", "of the image"),
        ("touch /data/new && echo made", "made"),
    ] {
        let said = runtime.exec(&id, &["sh", "-c", command]).await?;
        assert_eq!(said.trim(), expected, "{command}");
    }
    Ok(())
}
