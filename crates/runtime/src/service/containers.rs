//! Containers: started, stopped, removed and changed. `create` makes them.

use std::sync::Arc;
use std::time::Duration;

use cri::runtime as pb;
use pb::ContainerEventType as Event;
use tokio::time::timeout;

use super::core::{Container, Core, NOT_STARTED, blocking, end, state_of};
use super::error::{CallError, at, io_at, whole};
use crate::store::{ContainerPhase, FindError};
use crate::translate::{merged, resources};

const KILL: i32 = 9;
/// The time after which it is told that a container that was killed is still there.
const PATIENCE: Duration = Duration::from_mins(1);

/// The container of an id, with its shim, if it runs.
pub(crate) fn running(core: &Core, id: &str) -> Result<(Arc<Container>, containers::Container), CallError> {
    let container = core.containers.find(id)?;
    let state = container.state();
    match container.live() {
        Some(live) if state == pb::ContainerState::ContainerRunning => Ok((container, live)),
        _ => {
            Err(CallError::State(format!("container {:?} is in {} state", container.id, state.as_str_name())))
        }
    }
}

/// Starts a container that is made.
pub(crate) async fn start(core: Arc<Core>, id: &str) -> Result<(), CallError> {
    let container = core.containers.find(id)?;
    let _turn = container.turn.lock().await;
    let state = container.state();
    let created = state == pb::ContainerState::ContainerCreated;
    let fault = container.record.lock().fault.clone();
    if created && !fault.is_empty() {
        let error = CallError::Start(fault);
        fail(&core, &container, whole(&error)).await?;
        return Err(error);
    }
    let live = match container.live() {
        Some(live) if created => live,
        _ => {
            let text = format!("container {:?} is in {} state", container.id, state.as_str_name());
            return Err(CallError::State(text));
        }
    };
    if !container.sandbox.is_ready() {
        return Err(CallError::State(format!("sandbox container {:?} is not running", container.sandbox.id)));
    }
    let now = core.now();
    // Both at once: the shim knows whether the process was started, also if this one dies before it is recorded.
    let recorded = core.change_container(&container, move |record| {
        record.started_at = now;
        record.set_phase(ContainerPhase::Started);
    });
    let (recorded, started) = tokio::join!(recorded, live.start());
    if let Err(error) = started {
        let error = CallError::Start(whole(&error));
        fail(&core, &container, whole(&error)).await?;
        return Err(error);
    }
    recorded?;
    core.tell(Event::ContainerStartedEvent, &container.id, &container.sandbox);
    Ok(())
}

/// Records that a container could not be started.
async fn fail(core: &Arc<Core>, container: &Arc<Container>, message: String) -> Result<(), CallError> {
    let now = core.now();
    core.change_container(container, move |record| {
        record.set_phase(ContainerPhase::Exited);
        record.finished_at = now.max(record.started_at);
        record.exit_code = NOT_STARTED;
        "StartError".clone_into(&mut record.reason);
        record.message = message;
    })
    .await?;
    core.tell(Event::ContainerStoppedEvent, &container.id, &container.sandbox);
    Ok(())
}

/// Stops a container by its signal, and after `grace` by force. One that does not run, or is not there, is no error.
pub(crate) async fn stop(core: Arc<Core>, id: &str, grace: Duration) -> Result<(), CallError> {
    let container = match core.containers.find(id) {
        Err(FindError::None(..)) => return Ok(()),
        other => other?,
    };
    let (state, live) = (container.state(), container.live());
    let Some(live) = live.filter(|_| state == pb::ContainerState::ContainerRunning) else { return Ok(()) };
    if !grace.is_zero() {
        let signal = container.record.lock().stop_signal;
        // One that ended meanwhile takes no signal; waiting shows it.
        if let Err(error) = live.kill(signal).await {
            tracing::debug!(container = container.id, error = whole(&error), "no stop signal");
        }
        if let Ok(exit) = timeout(grace, live.wait()).await {
            core.ended(&container, exit).await;
            return Ok(());
        }
    }
    kill(&core, &container).await
}

/// Ends a container by force, if it is there and has not ended, and waits for its end.
pub(crate) async fn kill(core: &Arc<Core>, container: &Arc<Container>) -> Result<(), CallError> {
    let Some(live) = container.live() else { return Ok(()) };
    if container.state() != pb::ContainerState::ContainerRunning {
        return Ok(());
    }
    let signalled = live.kill(KILL).await;
    if let Ok(exit) = timeout(PATIENCE, live.wait()).await {
        core.ended(container, exit).await;
        return Ok(());
    }
    signalled.map_err(at("failed to kill container"))?;
    Err(CallError::Late(format!("container {:?} was killed and does not end", container.id)))
}

/// Removes a container; one that runs is ended first, one that is not there is no error.
pub(crate) async fn remove(core: Arc<Core>, id: &str) -> Result<(), CallError> {
    let container = match core.containers.find(id) {
        Err(FindError::None(..)) => return Ok(()),
        other => other?,
    };
    let _turn = container.turn.lock().await;
    if core.containers.find(&container.id).is_err() {
        return Ok(());
    }
    kill(&core, &container).await?;
    // Its end may not have been heard of yet.
    let exit = container.unrecorded();
    core.change_container(&container, move |record| {
        if let Some(exit) = &exit {
            end(record, exit);
        }
        record.set_phase(ContainerPhase::Removing);
    })
    .await?;
    forget(&core, &container).await?;
    core.tell(Event::ContainerDeletedEvent, &container.id, &container.sandbox);
    Ok(())
}

/// Removes what is left of a container that does not run; its record goes last. The log of one that never ran goes, too:
/// a kubelet that finds it would count a start.
pub(crate) async fn forget(core: &Arc<Core>, container: &Arc<Container>) -> Result<(), CallError> {
    if container.live().is_some()
        && let Some(shim) = container.sandbox.shim()
    {
        shim.delete(&container.id).await.map_err(at("failed to delete container"))?;
    }
    *container.live.lock() = None;
    let (all, id, views) = (core.clone(), container.id.clone(), container.record.lock().views.clone());
    let unused_log = {
        let record = container.record.lock();
        (record.started_at == 0 && !record.log_path.is_empty()).then(|| record.log_path.clone())
    };
    blocking(move || {
        if let Some(log) = unused_log
            && let Ok(found) = std::fs::symlink_metadata(&log)
            && found.is_file()
            && found.len() == 0
        {
            // The kubelet removes it with its Pod otherwise.
            let _ = std::fs::remove_file(log);
        }
        for key in views.iter().chain([&id]) {
            all.images.release(key)?;
        }
        let dir = all.container_dir(&id);
        match std::fs::remove_dir_all(dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(io_at("the container's volumes cannot be removed")(error));
            }
            _ => {}
        }
        all.container_records.remove(&id).map_err(io_at("the container's record cannot be removed"))
    })
    .await?;
    core.containers.remove(&container.id);
    Ok(())
}

/// Changes a container's limits.
pub(crate) async fn update(
    core: Arc<Core>,
    id: &str,
    change: pb::LinuxContainerResources,
) -> Result<(), CallError> {
    let container = core.containers.find(id)?;
    let _turn = container.turn.lock().await;
    let now = container.now();
    let state = state_of(&now);
    let live = match container.live() {
        Some(live) if state != pb::ContainerState::ContainerExited => live,
        _ => {
            let text = format!("container {:?} is in {} state", container.id, state.as_str_name());
            return Err(CallError::State(text));
        }
    };
    let new = merged(&now.resources.unwrap_or_default(), &change);
    let limits = resources(&new, &core.machine)?;
    live.update(&limits).await.map_err(at("failed to update resources"))?;
    core.change_container(&container, move |record| record.resources = Some(new)).await
}

/// Opens a container's log anew, after it was put aside.
pub(crate) async fn reopen_log(core: &Core, id: &str) -> Result<(), CallError> {
    let (_, live) = running(core, id).map_err(|error| match error {
        CallError::State(_) => CallError::State("container is not running".to_owned()),
        other => other,
    })?;
    live.reopen_log().await.map_err(at("failed to reopen the log"))
}
