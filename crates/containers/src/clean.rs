//! The parts of a container outside its process: those that it leaves are removed.

use std::sync::Arc;
use std::time::Duration;

use crate::cgroups::Group;
use crate::core::Core;
use crate::hooks::{self, Moment, Of};
use crate::oci::{Bundle, Outer};
use crate::records::{ContainerRecord, Directory};
use crate::shim::link::Ask;
use crate::shim::wire::request;

/// How long processes get to end once they are killed.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// The container as another OCI runtime knows it.
pub(crate) fn outer_of(core: &Core, record: &ContainerRecord) -> Option<Outer> {
    Outer::of(&core.directory, record)
}

/// Whether another runtime has started a container that the shim does not know to be started.
pub(crate) async fn is_started(core: &Core, record: &ContainerRecord) -> bool {
    let Some(outer) = outer_of(core, record) else { return false };
    match Box::pin(outer.is_created()).await {
        Ok(created) if created => return false,
        Ok(_) => {}
        Err(e) => {
            tracing::warn!(container = record.id, "its runtime does not tell its state: {e}");
            return false;
        }
    }
    let ask = Ask { op: request::START, slot: record.slot, ..Ask::default() };
    let _ = core.ask(ask, || "mark a container as started".to_owned()).await;
    true
}

/// Removes what is left of a container: processes, cgroup, records.
pub(crate) async fn clean_up(core: &Arc<Core>, record: &ContainerRecord, group: Option<&Group>) {
    if let Some(outer) = outer_of(core, record)
        && let Err(e) = Box::pin(outer.delete()).await
    {
        tracing::warn!(container = record.id, "{e}");
    }
    if let Some(group) = group {
        group.kill(PATIENCE).await;
        if let Err(e) = group.remove(PATIENCE).await {
            tracing::warn!(container = record.id, "{e}");
        }
    }
    Box::pin(after_end(&core.directory, record)).await;
    core.directory.remove_container(&record.id, record.slot);
}

/// Runs the hooks that follow the end of a container, and removes its bundle.
async fn after_end(directory: &Directory, record: &ContainerRecord) {
    if record.runtime.is_some() || !hooks::any(&record.spec) {
        return;
    }
    let bundle = Bundle::of(directory, &record.id);
    let of = Of { id: &record.id, spec: &record.spec, bundle: &bundle.0 };
    let ran = of.run(Moment::Poststop, None).await;
    if let Err(e) = ran.and_then(|()| bundle.remove()).or_else(|e| bundle.remove().and(Err(e))) {
        tracing::warn!(container = record.id, "{e}");
    }
}

/// Removes the parts of a container that a lost sandbox left outside its cgroups.
pub(crate) async fn remove_outside(directory: &Directory, record: &ContainerRecord) {
    if let Some(outer) = Outer::of(directory, record)
        && let Err(e) = outer.delete().await
    {
        tracing::warn!(container = record.id, "{e}");
    }
    after_end(directory, record).await;
}
