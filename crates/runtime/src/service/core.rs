//! The state that all calls share: sandboxes and containers, their records, and the parts that do the work.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use component::Clock;
use containers::{Exit, Sandboxes, State};
use cri::runtime as pb;
use images::Images;
use parking_lot::Mutex;
use tokio::sync::broadcast;

use super::error::{CallError, io_at, whole};
use crate::handlers::Known;
use crate::network::{Network, Pod};
use crate::store::{ContainerPhase, ContainerRecord, Index, Records, SandboxPhase, SandboxRecord};
use crate::translate::Machine;

/// The exit code of a container whose end nobody saw, and of one that could not start; containerd's.
pub(crate) const UNKNOWN: i32 = 255;
pub(crate) const NOT_STARTED: i32 = 128;

/// A sandbox.
#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) id: String,
    pub(crate) record: Mutex<SandboxRecord>,
    /// One change at a time.
    pub(crate) turn: tokio::sync::Mutex<()>,
    /// The shim; none if it is gone.
    pub(crate) shim: Mutex<Option<containers::Sandbox>>,
    /// Whether an event has told its end.
    end_told: AtomicBool,
}

/// A container.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) id: String,
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) record: Mutex<ContainerRecord>,
    /// One change at a time, but for stopping.
    pub(crate) turn: tokio::sync::Mutex<()>,
    /// The container with its shim; none if that is gone.
    pub(crate) live: Mutex<Option<containers::Container>>,
}

/// An event, before its statuses are put beside it.
#[derive(Debug, Clone)]
pub(crate) struct Happened {
    pub(crate) kind: pb::ContainerEventType,
    /// The container, or the sandbox itself.
    pub(crate) container: String,
    pub(crate) sandbox: Arc<Sandbox>,
    /// Nanoseconds since 1970.
    pub(crate) at: i64,
}

/// The shared state.
pub(crate) struct Core {
    /// The directory of everything.
    pub(crate) root: PathBuf,
    pub(crate) machine: Machine,
    pub(crate) images: Images,
    pub(crate) shims: Sandboxes,
    pub(crate) network: Arc<dyn Network>,
    /// Taken for reading by sandboxes that come, until they are in the index, and for writing by the tidying of the
    /// network: it takes out whoever it does not know, which one that has just joined must not be.
    pub(crate) joining: tokio::sync::RwLock<()>,
    /// The handlers besides the own one, by their names.
    pub(crate) handlers: BTreeMap<String, Known>,
    pub(crate) sandboxes: Index<Sandbox>,
    pub(crate) containers: Index<Container>,
    pub(crate) sandbox_records: Records<SandboxRecord>,
    pub(crate) container_records: Records<ContainerRecord>,
    pub(crate) events: broadcast::Sender<Happened>,
    pub(crate) clock: Clock,
}

impl Sandbox {
    pub(crate) fn new(record: SandboxRecord, shim: Option<containers::Sandbox>) -> Self {
        Self {
            id: record.id.clone(),
            record: Mutex::new(record),
            turn: tokio::sync::Mutex::default(),
            shim: Mutex::new(shim),
            end_told: AtomicBool::new(false),
        }
    }

    /// Whether containers may be made in it.
    pub(crate) fn is_ready(&self) -> bool {
        self.record.lock().phase() == SandboxPhase::Ready
            && self.shim.lock().as_ref().is_some_and(containers::Sandbox::alive)
    }

    pub(crate) fn shim(&self) -> Option<containers::Sandbox> {
        self.shim.lock().clone()
    }

    /// The Pod as its network knows it.
    pub(crate) fn pod(&self) -> Pod {
        let shim = self.shim();
        let record = self.record.lock();
        let config = record.config.clone().unwrap_or_default();
        let metadata = record.metadata();
        Pod {
            id: record.id.clone(),
            namespace: metadata.namespace,
            name: metadata.name,
            uid: metadata.uid,
            netns: shim.filter(containers::Sandbox::alive).map(|shim| shim.netns()),
            ports: config.port_mappings,
            annotations: config.annotations,
            dns: config.dns_config.unwrap_or_default(),
            cgroup_parent: config.linux.map(|linux| linux.cgroup_parent).unwrap_or_default(),
        }
    }
}

impl Container {
    pub(crate) fn new(
        record: ContainerRecord,
        sandbox: Arc<Sandbox>,
        live: Option<containers::Container>,
    ) -> Self {
        Self {
            id: record.id.clone(),
            sandbox,
            record: Mutex::new(record),
            turn: tokio::sync::Mutex::default(),
            live: Mutex::new(live),
        }
    }

    pub(crate) fn live(&self) -> Option<containers::Container> {
        self.live.lock().clone()
    }

    /// Its record of now: what its shim knows is in it.
    pub(crate) fn now(&self) -> ContainerRecord {
        let mut record = self.record.lock().clone();
        if let Some(exit) = self.unrecorded() {
            end(&mut record, &exit);
        }
        record
    }

    /// The end that its shim knows and its record does not.
    pub(crate) fn unrecorded(&self) -> Option<Exit> {
        let live = self.live()?;
        let State::Exited(exit) = live.state() else { return None };
        let open = self.record.lock().phase() < ContainerPhase::Exited;
        (open && !self.never_started()).then_some(exit)
    }

    /// Whether it was made and not told to start, as far as its record and its shim know.
    fn never_started(&self) -> bool {
        let started = self.live().and_then(|live| live.started_at());
        self.record.lock().phase() == ContainerPhase::Created && started.is_none()
    }

    /// Its state as CRI has it.
    pub(crate) fn state(&self) -> pb::ContainerState {
        match self.unrecorded() {
            Some(_) => pb::ContainerState::ContainerExited,
            None => state_of(&self.record.lock()),
        }
    }
}

/// The state of a record that says everything.
pub(crate) fn state_of(record: &ContainerRecord) -> pb::ContainerState {
    match record.phase() {
        ContainerPhase::Creating | ContainerPhase::Created => pb::ContainerState::ContainerCreated,
        ContainerPhase::Started => pb::ContainerState::ContainerRunning,
        // One that never ended is none that ended well, while it is being removed.
        ContainerPhase::Removing if record.finished_at == 0 => pb::ContainerState::ContainerCreated,
        ContainerPhase::Exited | ContainerPhase::Removing => pb::ContainerState::ContainerExited,
    }
}

/// Writes the end of a container into its record.
pub(crate) fn end(record: &mut ContainerRecord, exit: &Exit) {
    record.set_phase(ContainerPhase::Exited);
    record.exit_code = exit.code;
    record.finished_at = nanos(exit.finished_at);
    if exit.oom_killed {
        "OOMKilled".clone_into(&mut record.reason);
    }
}

/// Writes into a record that nobody saw its container's end.
pub(crate) fn lose(record: &mut ContainerRecord, now: i64) {
    record.set_phase(ContainerPhase::Exited);
    record.exit_code = UNKNOWN;
    record.finished_at = now;
    "ContainerStatusUnknown".clone_into(&mut record.reason);
    "The container's end was not seen: the machine was started anew, or its shim was killed"
        .clone_into(&mut record.message);
}

/// A time in nanoseconds since 1970.
pub(crate) fn nanos(time: jiff::Timestamp) -> i64 {
    i64::try_from(time.as_nanosecond()).unwrap_or_default()
}

impl Core {
    /// The OCI runtime of a handler; none for the own one, which has no name.
    pub(crate) fn handler(&self, name: &str) -> Result<Option<&Known>, CallError> {
        if name.is_empty() {
            return Ok(None);
        }
        self.handlers.get(name).map(Some).ok_or_else(|| CallError::NoHandler(name.to_owned()))
    }

    /// The time of now.
    pub(crate) fn now(&self) -> i64 {
        nanos(self.clock.now())
    }

    /// The directory of the images.
    pub(crate) fn images_root(&self) -> PathBuf {
        self.root.join("images")
    }

    /// The directory of a sandbox's files.
    pub(crate) fn sandbox_dir(&self, id: &str) -> PathBuf {
        self.root.join("sandboxes").join(id)
    }

    /// The directory of a container's own volumes.
    pub(crate) fn container_dir(&self, id: &str) -> PathBuf {
        self.root.join("containers").join(id)
    }

    /// The containers of a sandbox.
    pub(crate) fn containers_of(&self, sandbox: &str) -> Vec<Arc<Container>> {
        self.containers.all().into_iter().filter(|one| one.sandbox.id == sandbox).collect()
    }

    /// Changes a sandbox's record and writes it.
    pub(crate) async fn change_sandbox(
        self: &Arc<Self>,
        sandbox: &Arc<Sandbox>,
        change: impl FnOnce(&mut SandboxRecord) + Send + 'static,
    ) -> Result<(), CallError> {
        let (core, sandbox) = (self.clone(), sandbox.clone());
        blocking(move || {
            // The file is written under the lock, so that it is never older than what was answered.
            let mut record = sandbox.record.lock();
            let mut new = record.clone();
            change(&mut new);
            core.sandbox_records.put(&new).map_err(io_at("the sandbox cannot be recorded"))?;
            *record = new;
            Ok(())
        })
        .await
    }

    /// Changes a container's record and writes it.
    pub(crate) async fn change_container(
        self: &Arc<Self>,
        container: &Arc<Container>,
        change: impl FnOnce(&mut ContainerRecord) + Send + 'static,
    ) -> Result<(), CallError> {
        let (core, container) = (self.clone(), container.clone());
        blocking(move || {
            let mut record = container.record.lock();
            let mut new = record.clone();
            change(&mut new);
            core.container_records.put(&new).map_err(io_at("the container cannot be recorded"))?;
            *record = new;
            Ok(())
        })
        .await
    }

    /// Tells those who listen.
    pub(crate) fn tell(&self, kind: pb::ContainerEventType, container: &str, sandbox: &Arc<Sandbox>) {
        let happened =
            Happened { kind, container: container.to_owned(), sandbox: sandbox.clone(), at: self.now() };
        // Nobody need listen.
        let _ = self.events.send(happened);
    }

    /// Records a container's end, once, and tells of it. One that never started has no end, as in containerd: a Pod's
    /// status would tell of a container that ended and began in 1970.
    pub(crate) async fn ended(self: &Arc<Self>, container: &Arc<Container>, exit: Exit) {
        if container.record.lock().phase() >= ContainerPhase::Exited || container.never_started() {
            return;
        }
        let told = Arc::new(Mutex::new(false));
        let first = told.clone();
        let changed = self.change_container(container, move |record| {
            if record.phase() < ContainerPhase::Exited {
                end(record, &exit);
                *first.lock() = true;
            }
        });
        if let Err(error) = changed.await {
            // The shim has the record of the end, too; the next look finds it there.
            tracing::error!(
                container = container.id,
                error = whole(&error),
                "a container's end is not recorded"
            );
        }
        let first = *told.lock();
        if first {
            let kind = pb::ContainerEventType::ContainerStoppedEvent;
            self.tell(kind, &container.id, &container.sandbox);
        }
    }

    /// Tells a sandbox's end, unless it is told already: a sandbox that is stopped loses its shim, too.
    pub(crate) fn sandbox_ended(&self, sandbox: &Arc<Sandbox>) {
        if !sandbox.end_told.swap(true, Ordering::Relaxed) {
            self.tell(pb::ContainerEventType::ContainerStoppedEvent, &sandbox.id, sandbox);
        }
    }

    /// Records that a container's end was not seen.
    pub(crate) async fn lost(self: &Arc<Self>, container: &Arc<Container>) {
        let now = self.now();
        if container.record.lock().phase() >= ContainerPhase::Exited {
            return;
        }
        let changed = self.change_container(container, move |record| lose(record, now));
        if let Err(error) = changed.await {
            tracing::error!(
                container = container.id,
                error = whole(&error),
                "a container's end is not recorded"
            );
        }
        self.tell(pb::ContainerEventType::ContainerStoppedEvent, &container.id, &container.sandbox);
    }
}

/// Runs work that blocks.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CallError> + Send + 'static,
) -> Result<T, CallError> {
    component::blocking(work).await?
}

/// Runs a change to its end, also when its caller goes away.
pub(crate) async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, CallError>> + Send + 'static,
) -> Result<T, CallError> {
    tokio::spawn(component::boxed(work)).await?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_that_never_ran_has_not_ended_while_it_is_removed() {
        fn check(phase: ContainerPhase, finished_at: i64, expected: pb::ContainerState) {
            let mut record = ContainerRecord { finished_at, ..ContainerRecord::default() };
            record.set_phase(phase);
            assert_eq!(state_of(&record), expected, "{phase:?}, ended at {finished_at}");
        }
        check(ContainerPhase::Created, 0, pb::ContainerState::ContainerCreated);
        check(ContainerPhase::Started, 0, pb::ContainerState::ContainerRunning);
        check(ContainerPhase::Exited, 7, pb::ContainerState::ContainerExited);
        check(ContainerPhase::Removing, 7, pb::ContainerState::ContainerExited);
        check(ContainerPhase::Removing, 0, pb::ContainerState::ContainerCreated);
    }
}
