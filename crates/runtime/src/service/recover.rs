//! The start: what an earlier process left is taken over as it is now, and what it left half done is taken down.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use component::Shutdown;
use containers::{Event, State};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::containers::forget;
use super::core::{Container, Core, Sandbox};
use super::error::whole;
use crate::store::{ContainerPhase, ContainerRecord, SandboxPhase, SandboxRecord};

/// The pauses between looks whether the Pod network is there, for what it must collect.
const LOOK: Duration = Duration::from_secs(5);
const LOOKS: u32 = 60;

/// Takes over sandboxes and containers.
pub(crate) async fn take_over(
    core: &Arc<Core>,
    sandboxes: Vec<SandboxRecord>,
    containers: Vec<ContainerRecord>,
) {
    let mut shims: HashMap<String, containers::Sandbox> = HashMap::new();
    let mut lost = Vec::new();
    let adopted = core.shims.adopt_all().await.unwrap_or_else(|error| {
        tracing::error!(error = whole(&error), "the sandboxes that are there cannot be listed");
        Vec::new()
    });
    for (id, adopted) in adopted {
        match adopted {
            Ok(shim) => {
                shims.insert(id, shim);
            }
            Err(error) => {
                tracing::debug!(sandbox = id, error = whole(&error), "a sandbox's shim is gone");
                lost.push(id);
            }
        }
    }
    for mut record in sandboxes {
        let shim = shims.remove(&record.id);
        let alive = shim.as_ref().is_some_and(containers::Sandbox::alive);
        // One that was half made or half removed is not ready: whoever wanted it asks for its removal.
        if record.phase() == SandboxPhase::Starting || (record.phase() == SandboxPhase::Ready && !alive) {
            record.set_phase(SandboxPhase::Stopped);
        }
        let (id, name) = (record.id.clone(), record.name());
        if let Err(error) = core.sandboxes.reserve(&name, &id) {
            tracing::error!(%error, "two sandboxes have one name");
        }
        core.sandboxes.add(&id, Arc::new(Sandbox::new(record, shim)));
    }
    for record in containers {
        take_over_container(core, record).await;
    }
    // Shims and roots without a record belong to nobody.
    let unknown = |id: &String| core.sandboxes.find(id).is_err();
    for id in shims.into_keys().chain(lost).filter(unknown) {
        if let Err(error) = core.shims.remove(&id).await {
            tracing::warn!(
                sandbox = id,
                error = whole(&error),
                "a sandbox that nobody knows cannot be removed"
            );
        }
    }
    let mut known = HashSet::new();
    for container in core.containers.all() {
        known.insert(container.id.clone());
        known.extend(container.record.lock().views.clone());
    }
    for key in core.images.snapshots() {
        if !known.contains(&key)
            && let Err(error) = core.images.release(&key)
        {
            tracing::warn!(key, error = whole(&error), "a root that nobody knows cannot be removed");
        }
    }
}

async fn take_over_container(core: &Arc<Core>, record: ContainerRecord) {
    let Ok(sandbox) = core.sandboxes.find(&record.sandbox) else {
        tracing::error!(container = record.id, "a container's sandbox is unknown");
        let orphan = Arc::new(Sandbox::new(SandboxRecord::default(), None));
        let container = Arc::new(Container::new(record, orphan, None));
        if let Err(error) = forget(core, &container).await {
            tracing::warn!(container = container.id, error = whole(&error), "it cannot be removed");
        }
        return;
    };
    let live = sandbox.shim().and_then(|shim| shim.container(&record.id));
    let (id, phase, name) =
        (record.id.clone(), record.phase(), record.name(&sandbox.record.lock().metadata()));
    let container = Arc::new(Container::new(record, sandbox, live.clone()));
    if matches!(phase, ContainerPhase::Creating | ContainerPhase::Removing) {
        // Nobody was told of the one, and the other was to go.
        if let Err(error) = forget(core, &container).await {
            tracing::warn!(container = id, error = whole(&error), "a container cannot be removed");
        }
        return;
    }
    if let Err(error) = core.containers.reserve(&name, &id) {
        tracing::error!(%error, "two containers have one name");
    }
    core.containers.add(&id, container.clone());
    match live.as_ref().map(containers::Container::state) {
        None if is_faulty(&container) => {}
        None => core.lost(&container).await,
        Some(State::Exited(exit)) => core.ended(&container, exit).await,
        // The process before died between the start and its record, or between the record and the start.
        Some(State::Running) if phase == ContainerPhase::Created => {
            let started = live.and_then(|live| live.started_at()).map(super::core::nanos);
            let now = core.now();
            let changed = core.change_container(&container, move |record| {
                record.started_at = started.unwrap_or(now);
                record.set_phase(ContainerPhase::Started);
            });
            if let Err(error) = changed.await {
                tracing::error!(container = id, error = whole(&error), "a container's start is not recorded");
            }
        }
        Some(State::Created) if phase == ContainerPhase::Started => {
            let changed =
                core.change_container(&container, |record| record.set_phase(ContainerPhase::Created));
            if let Err(error) = changed.await {
                tracing::error!(container = id, error = whole(&error), "a container's state is not recorded");
            }
        }
        Some(_) => {}
    }
}

/// Whether a container has no process because it could not be made whole, which nobody was told of yet.
fn is_faulty(container: &Container) -> bool {
    let record = container.record.lock();
    record.phase() == ContainerPhase::Created && !record.fault.is_empty()
}

/// Records the ends of containers until `shutdown`.
pub(crate) async fn follow(core: Arc<Core>, mut events: broadcast::Receiver<Event>, shutdown: Shutdown) {
    while let Some(event) = shutdown.run(events.recv()).await {
        match event {
            Ok(Event::Exited { container, exit, .. }) => {
                if let Ok(container) = core.containers.find(&container) {
                    core.ended(&container, exit).await;
                }
            }
            Ok(Event::Lost { sandbox }) => {
                let Ok(sandbox) = core.sandboxes.find(&sandbox) else { continue };
                look_again(&core).await;
                core.sandbox_ended(&sandbox);
            }
            Ok(Event::Oom { sandbox, container }) => {
                tracing::info!(sandbox, container, "a process was killed because memory was out");
            }
            Err(RecvError::Lagged(_)) => look_again(&core).await,
            Err(RecvError::Closed) => return,
        }
    }
}

/// Looks at all containers: their ends may have been missed.
async fn look_again(core: &Arc<Core>) {
    for container in core.containers.all() {
        let alive = container.sandbox.shim().is_some_and(|shim| shim.alive());
        match container.live().map(|live| live.state()) {
            Some(State::Exited(exit)) => core.ended(&container, exit).await,
            Some(_) if alive => {}
            None if is_faulty(&container) => {}
            _ => core.lost(&container).await,
        }
    }
}

/// Lets the Pod network take out sandboxes that are no more, once it is there.
pub(crate) async fn collect_networks(core: Arc<Core>, shutdown: Shutdown) {
    for _ in 0..LOOKS {
        if core.network.status().await.is_ok() {
            let Some(_alone) = shutdown.run(core.joining.write()).await else { return };
            let attached = |one: &Arc<Sandbox>| one.record.lock().attached;
            let present: Vec<String> =
                core.sandboxes.all().iter().filter(|one| attached(one)).map(|one| one.id.clone()).collect();
            if let Err(error) = core.network.collect(&present).await {
                tracing::warn!(%error, "the Pod network cannot be tidied");
            }
            return;
        }
        if shutdown.run(tokio::time::sleep(LOOK)).await.is_none() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use cri::runtime as pb;

    use super::*;
    use crate::store::container_name;

    #[test]
    fn names() {
        let record = ContainerRecord {
            config: Some(pb::ContainerConfig {
                metadata: Some(pb::ContainerMetadata { name: "app".into(), attempt: 2 }),
                ..Default::default()
            }),
            ..Default::default()
        };
        let pod =
            pb::PodSandboxMetadata { name: "p".into(), namespace: "n".into(), uid: "u".into(), attempt: 1 };
        assert_eq!(record.name(&pod), container_name(&record.metadata(), &pod));
        assert_eq!(record.name(&pod), "app_p_n_u_2");
    }
}
