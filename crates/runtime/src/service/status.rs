//! Sandboxes and containers as CRI shows them.

use std::collections::HashMap;

use cri::runtime as pb;
use serde_json::{Value, json};

use super::core::{Container, Core, Sandbox, state_of};
use super::error::CallError;
use crate::store::filter;
use crate::translate::to_cri;

fn sandbox_state(sandbox: &Sandbox) -> pb::PodSandboxState {
    if sandbox.is_ready() { pb::PodSandboxState::SandboxReady } else { pb::PodSandboxState::SandboxNotready }
}

/// The sandboxes that a filter shows.
pub(crate) fn list_sandboxes(core: &Core, filter: Option<&pb::PodSandboxFilter>) -> Vec<pb::PodSandbox> {
    let none = pb::PodSandboxConfig::default();
    let shown = core.sandboxes.all().into_iter().filter_map(|sandbox| {
        let state = sandbox_state(&sandbox);
        let record = sandbox.record.lock();
        let config = record.config.as_ref().unwrap_or(&none);
        // Each Pod asks for its own, so the others are not copied.
        filter::sandbox(&record.id, state, &config.labels, filter).then(|| pb::PodSandbox {
            id: record.id.clone(),
            metadata: config.metadata.clone(),
            state: state.into(),
            created_at: record.created_at,
            labels: config.labels.clone(),
            annotations: config.annotations.clone(),
            runtime_handler: record.handler.clone(),
        })
    });
    shown.collect()
}

/// The status of a sandbox.
pub(crate) fn sandbox_status(sandbox: &Sandbox) -> pb::PodSandboxStatus {
    let state = sandbox_state(sandbox);
    let record = sandbox.record.lock();
    let none = pb::PodSandboxConfig::default();
    let config = record.config.as_ref().unwrap_or(&none);
    let mut ips = record.ips.iter().cloned();
    let network = ips.next().map(|ip| pb::PodSandboxNetworkStatus {
        ip,
        additional_ips: ips.map(|ip| pb::PodIp { ip }).collect(),
    });
    pb::PodSandboxStatus {
        id: record.id.clone(),
        metadata: config.metadata.clone(),
        state: state.into(),
        created_at: record.created_at,
        network: Some(network.unwrap_or_default()),
        linux: Some(pb::LinuxPodSandboxStatus {
            namespaces: Some(pb::Namespace { options: Some(record.namespaces()) }),
        }),
        labels: config.labels.clone(),
        annotations: config.annotations.clone(),
        runtime_handler: record.handler.clone(),
    }
}

/// More about a sandbox, for people.
pub(crate) fn sandbox_info(sandbox: &Sandbox) -> HashMap<String, String> {
    let shim = sandbox.shim();
    let record = sandbox.record.lock();
    info(&json!({
        "pid": shim.as_ref().map(containers::Sandbox::shim_pid),
        "netNamespace": shim.as_ref().map(|shim| shim.netns().display().to_string()),
        "runtimeHandler": record.handler,
        "phase": format!("{:?}", record.phase()),
    }))
}

fn info(value: &Value) -> HashMap<String, String> {
    [("info".to_owned(), value.to_string())].into()
}

/// The image of a container: its name, its reference by digest, and its id.
fn image(core: &Core, container: &pb::ContainerConfig, id: &str) -> (pb::ImageSpec, String) {
    let mut spec = container.image.clone().unwrap_or_default();
    let mut reference = id.to_owned();
    if let Some(image) = core.images.find(id) {
        if let Some(tag) = image.tags.first() {
            spec = pb::ImageSpec { image: tag.clone(), ..pb::ImageSpec::default() };
        }
        if let Some(digest) = image.digests.first() {
            digest.clone_into(&mut reference);
        }
    }
    (spec, reference)
}

/// The containers that a filter shows.
pub(crate) fn list_containers(core: &Core, filter: Option<&pb::ContainerFilter>) -> Vec<pb::Container> {
    let none = pb::ContainerConfig::default();
    let shown = core.containers.all().into_iter().filter_map(|container| {
        let state = container.state();
        let record = container.record.lock();
        let config = record.config.as_ref().unwrap_or(&none);
        // Each Pod asks for its own, so the others are not copied.
        filter::container((&record.id, &record.sandbox), state, &config.labels, filter).then(|| {
            pb::Container {
                state: state.into(),
                id: record.id.clone(),
                pod_sandbox_id: record.sandbox.clone(),
                metadata: config.metadata.clone(),
                image: config.image.clone(),
                image_ref: record.image.clone(),
                created_at: record.created_at,
                labels: config.labels.clone(),
                annotations: config.annotations.clone(),
                image_id: record.image.clone(),
            }
        })
    });
    shown.collect()
}

/// The status of a container.
pub(crate) fn container_status(core: &Core, container: &Container) -> pb::ContainerStatus {
    let mut record = container.now();
    let config = record.config.take().unwrap_or_default();
    let state = state_of(&record);
    let (image, image_ref) = image(core, &config, &record.image);
    let exited = state == pb::ContainerState::ContainerExited;
    let reason = match (exited, record.reason.is_empty(), record.exit_code) {
        (false, ..) => String::new(),
        (true, false, _) => record.reason.clone(),
        (true, true, 0) => "Completed".to_owned(),
        (true, true, _) => "Error".to_owned(),
    };
    let created = state == pb::ContainerState::ContainerCreated;
    pb::ContainerStatus {
        id: record.id,
        metadata: config.metadata,
        state: state.into(),
        created_at: record.created_at,
        started_at: if created { 0 } else { record.started_at },
        finished_at: if exited { record.finished_at } else { 0 },
        exit_code: if exited { record.exit_code } else { 0 },
        image: Some(image),
        image_ref,
        reason,
        message: record.message,
        labels: config.labels,
        annotations: config.annotations,
        mounts: config.mounts,
        log_path: record.log_path,
        resources: Some(pb::ContainerResources { linux: record.resources, windows: None }),
        image_id: record.image,
        user: Some(pb::ContainerUser { linux: record.user }),
        stop_signal: to_cri(record.stop_signal).into(),
    }
}

/// More about a container, for people.
pub(crate) fn container_info(container: &Container) -> HashMap<String, String> {
    let live = container.live();
    let record = container.record.lock();
    info(&json!({
        "sandboxID": record.sandbox,
        "pid": live.as_ref().map(containers::Container::pid),
        "snapshotKey": record.id,
        "phase": format!("{:?}", record.phase()),
        "runtimeSpec": live.as_ref().and_then(|live| serde_json::to_value(live.spec()).ok()),
    }))
}

/// An event with the statuses of its Pod.
pub(crate) fn event(core: &Core, happened: &super::core::Happened) -> pb::ContainerEventResponse {
    let all = core.containers_of(&happened.sandbox.id);
    pb::ContainerEventResponse {
        container_id: happened.container.clone(),
        container_event_type: happened.kind.into(),
        created_at: happened.at,
        pod_sandbox_status: Some(sandbox_status(&happened.sandbox)),
        containers_statuses: all.iter().map(|one| container_status(core, one)).collect(),
    }
}

/// The state of the runtime.
pub(crate) async fn runtime(core: &Core, verbose: bool) -> Result<pb::StatusResponse, CallError> {
    let condition = |kind: &str, why: Option<(&str, String)>| pb::RuntimeCondition {
        r#type: kind.to_owned(),
        status: why.is_none(),
        reason: why.as_ref().map(|(reason, _)| (*reason).to_owned()).unwrap_or_default(),
        message: why.map(|(_, message)| message).unwrap_or_default(),
    };
    let network = core.network.status().await.err();
    let network =
        network.map(|why| ("NetworkPluginNotReady", format!("Network plugin returns error: {why}")));
    // mount_setattr(2) came with Linux 5.12, and overlayfs with mapped users with 5.19.
    let own = pb::RuntimeHandlerFeatures {
        recursive_read_only_mounts: core.machine.kernel >= (5, 12),
        user_namespaces: core.machine.kernel >= (5, 19),
    };
    let handler =
        |name: &str, features| pb::RuntimeHandler { name: name.to_owned(), features: Some(features) };
    let mut handlers = vec![handler("", own)];
    handlers.extend(core.handlers.iter().map(|(name, known)| {
        let recursive_read_only_mounts = known.features.recursive_read_only_mounts;
        let user_namespaces = known.features.user_namespaces;
        handler(name, pb::RuntimeHandlerFeatures { recursive_read_only_mounts, user_namespaces })
    }));
    let about = json!({
        "root": core.root.display().to_string(),
        "cgroupV2": core.machine.unified,
        "systemdCgroup": core.machine.systemd,
        "sandboxes": core.sandboxes.all().len(),
        "containers": core.containers.all().len(),
    });
    Ok(pb::StatusResponse {
        status: Some(pb::RuntimeStatus {
            conditions: vec![condition("RuntimeReady", None), condition("NetworkReady", network)],
        }),
        info: if verbose { [("config".to_owned(), about.to_string())].into() } else { HashMap::new() },
        runtime_handlers: handlers,
        features: Some(pb::RuntimeFeatures {
            supplemental_groups_policy: true,
            user_namespaces_host_network: true,
        }),
    })
}
