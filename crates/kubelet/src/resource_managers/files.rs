//! The files that say who has what.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;

use super::options::{ManagersError, Policies};
use super::{Counters, ResourceManagers, Stale, State};
use crate::checkpoint::{self, RecordError};
use crate::config::Config;
use crate::cpu_manager::{self, CpuPolicy, CpuState};
use crate::eviction::Signal;
use crate::listing::Listing;
use crate::memory_manager::{self, MemoryPolicy, MemoryState};
use crate::node_allocatable;
use crate::pods::labels;
use crate::pods::workers::Workers;
use crate::runtime::Runtime;
use crate::topology_manager::PolicyKind;
use crate::work::{to_end, try_blocking};

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Reads a file and understands it; what an absent one means is the default.
fn restore<T: Default, E: std::error::Error + Send + Sync + 'static>(
    path: &Path,
    decode: impl FnOnce(&[u8]) -> Result<T, E>,
) -> Result<T, Source> {
    match checkpoint::read(path)? {
        Some(bytes) => Ok(decode(&bytes)?),
        None => Ok(T::default()),
    }
}

impl ResourceManagers {
    /// Takes what an earlier process left.
    ///
    /// # Errors
    /// The settings do not fit the machine, or what was left does not fit them.
    pub(crate) async fn new(
        config: &Config,
        runtime: Runtime,
        workers: Arc<Workers>,
    ) -> Result<Arc<Self>, ManagersError> {
        let options = config.managers.clone();
        let evicting = config.kept_for_evictions(Signal::Memory, node_allocatable::machine(config).memory);
        let reserved = config.node.reserved;
        let kept_memory = evicting.saturating_add(reserved.memory);
        let Policies { topology, cpu, memory } =
            options.policies(Path::new("/"), reserved.milli_cpus, kept_memory)?;
        let (cpu_policy, memory_policy, pod_level) =
            (options.cpu.name(), options.memory.name(), options.pod_level());
        let path = config.root_dir.join(cpu_manager::FILE);
        let known = match checkpoint::read(&path) {
            Ok(Some(bytes)) if cpu_manager::is_old(&bytes) => {
                Listing::of(&runtime, &config.root_dir).await.unwrap_or_default()
            }
            _ => Listing::default(),
        };
        let find = |id: &str| {
            let container = known.containers.iter().find(|c| c.id == id)?;
            let label = |name: &str| container.labels.get(name).cloned();
            Some((label(labels::POD_UID)?, label(labels::CONTAINER_NAME)?))
        };
        let read = restore(&path, |b| cpu_manager::decode(b, cpu_policy, pod_level, &find));
        let mut cpus: CpuState = read.map_err(|error| ManagersError::Restore {
            manager: "cpu",
            name: "CPU",
            error,
            path: path.display().to_string(),
        })?;
        let path = config.root_dir.join(memory_manager::FILE);
        let read = restore(&path, |b| memory_manager::decode(b, memory_policy, pod_level));
        let mut blocks: MemoryState = read.map_err(|error| ManagersError::Restore {
            manager: "memory",
            name: "memory",
            error,
            path: path.display().to_string(),
        })?;
        if let Some(policy) = &cpu {
            policy.start(&mut cpus).map_err(ManagersError::CpuState)?;
        }
        if let Some(policy) = &memory {
            policy.start(&mut blocks).map_err(ManagersError::MemoryState)?;
        }
        let (hints, told) = (HashMap::new(), HashMap::new());
        let stale = Stale { cpus: true, blocks: true };
        let managers = Arc::new(Self {
            root_dir: config.root_dir.clone(),
            counters: counters(options.cpu, topology.kind),
            options,
            policy: topology,
            state: Mutex::new(State { cpu, cpus, memory, blocks, hints, told, stale }),
            turn: tokio::sync::Mutex::default(),
            writing: tokio::sync::Mutex::default(),
            workers,
            runtime,
            ready: AtomicBool::new(false),
        });
        managers.save().await;
        Ok(managers)
    }

    /// Writes what changed. A file that cannot be written is told of and written with the next change, as upstream does.
    pub(super) async fn save(self: &Arc<Self>) {
        {
            let stale = self.state.lock().stale;
            if !stale.cpus && !stale.blocks {
                return;
            }
        }
        let me = self.clone();
        let saved = to_end(async move { me.write().await }).await;
        let saved = saved.map_err(RecordError::from).and_then(|written| written);
        if let Err(error) = saved {
            tracing::error!(%error, "it is not kept which processors and memory containers have");
        }
    }

    async fn write(&self) -> Result<(), RecordError> {
        let _turn = self.writing.lock().await;
        let pod_level = self.options.pod_level();
        let (cpus, blocks) = {
            let mut state = self.state.lock();
            let stale = std::mem::take(&mut state.stale);
            (stale.cpus.then(|| state.cpus.clone()), stale.blocks.then(|| state.blocks.clone()))
        };
        let failed = Stale { cpus: cpus.is_some(), blocks: blocks.is_some() };
        let (cpu, memory): (CpuPolicy, MemoryPolicy) = (self.options.cpu, self.options.memory);
        let dir = self.root_dir.clone();
        let written = try_blocking(move || {
            if let Some(cpus) = cpus {
                let bytes = cpu_manager::encode(cpu.name(), &cpus, pod_level)?;
                checkpoint::write(&dir.join(cpu_manager::FILE), &bytes)?;
            }
            if let Some(blocks) = blocks {
                let bytes = memory_manager::encode(memory.name(), &blocks, pod_level)?;
                checkpoint::write(&dir.join(memory_manager::FILE), &bytes)?;
            }
            Ok::<_, RecordError>(())
        })
        .await;
        if written.is_err() {
            let mut state = self.state.lock();
            state.stale.cpus |= failed.cpus;
            state.stale.blocks |= failed.blocks;
        }
        written
    }
}

/// The counters, those shown that upstream shows from the start.
fn counters(cpu: CpuPolicy, topology: PolicyKind) -> Counters {
    let counters = Counters::default();
    if cpu == CpuPolicy::Static {
        counters.shows("container", "physical_cpu", true);
        counters.shows("container", "uncore_cache", false);
    }
    if topology != PolicyKind::None {
        counters.shows("container", "numa_node", true);
        counters.shows("pod", "numa_node", true);
    }
    counters
}
