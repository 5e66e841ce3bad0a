//! Processors, memory and devices for Pods, from NUMA nodes that are near to each other (upstream: the managers of
//! `pkg/kubelet/cm`).
//!
//! The pure parts are `cpu_manager`, `memory_manager` and `topology_manager`; this is what they need of the machine: a
//! Pod is asked about when the node takes it (`admit`), containers that run follow what others get (`reconcile`), and two
//! files say who has what (`files`). The part of a Pod is free again once it uses the node no more.

mod admit;
mod counters;
mod files;
mod options;
mod reconcile;

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use component::metrics::Page;
use k8s_openapi::api::core::v1::{Container, Pod};
use parking_lot::Mutex;
use plugins::resources::{ContainerMemory, NumaNode, TopologyInfo};

use self::counters::CpuGauges;
pub(crate) use self::counters::{Assignment, Counters, Resource};
pub use self::options::{ManagersError, Options};
use crate::cpu_manager::{self, CpuSet, CpuState, wanted};
use crate::memory_manager::{self, Block, MemoryState};
use crate::pods::spec;
use crate::pods::workers::Workers;
use crate::runtime::Runtime;
use crate::topology_manager::{Hint, Policy, Scope};

/// The state that changes while the kubelet runs.
#[derive(Debug)]
struct State {
    /// The policy by which processors are given; none if all share all.
    cpu: Option<cpu_manager::StaticPolicy>,
    cpus: CpuState,
    /// The policy by which memory is given; none if it comes from anywhere.
    memory: Option<memory_manager::StaticPolicy>,
    blocks: MemoryState,
    /// Where containers' resources are to come from, by uids and names.
    hints: HashMap<String, HashMap<String, Hint>>,
    /// The processors that the runtime was told last, by uids and names.
    told: HashMap<String, HashMap<String, CpuSet>>,
    /// Whether a file is older than the state.
    stale: Stale,
}

#[derive(Debug, Clone, Copy, Default)]
struct Stale {
    cpus: bool,
    blocks: bool,
}

/// Gives Pods processors, memory and devices.
pub(crate) struct ResourceManagers {
    root_dir: PathBuf,
    options: Options,
    policy: Policy,
    /// The lock is held over decisions only, never over a call.
    state: Mutex<State>,
    /// Held while a Pod gets devices that are to be near to something: nobody else gets them between the question where
    /// there are some and their choice.
    turn: tokio::sync::Mutex<()>,
    /// Held while files are written, so that a later state is not replaced by an earlier one.
    writing: tokio::sync::Mutex<()>,
    counters: Counters,
    workers: Arc<Workers>,
    runtime: Runtime,
    /// Whether it is known which Pods there are.
    ready: AtomicBool,
}

impl ResourceManagers {
    fn scope(&self) -> Scope {
        self.options.scope
    }

    /// It is known which Pods there are: what others have is free.
    pub(crate) fn ready(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    /// Frees what Pods have that use the node no more.
    fn free_orphans(&self) {
        if !self.ready.load(Ordering::Relaxed) {
            return;
        }
        let known: BTreeSet<String> = {
            let state = self.state.lock();
            let (cpus, blocks) = (state.cpus.containers.keys(), state.blocks.containers.keys());
            cpus.chain(blocks).chain(state.hints.keys()).cloned().collect()
        };
        // Without the lock: whoever looks at a Pod's state may look at what it has meanwhile.
        let active = |uid: &String| self.workers.get(uid).is_some_and(|w| w.active());
        let gone: Vec<String> = known.into_iter().filter(|uid| !active(uid)).collect();
        if gone.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        for uid in &gone {
            state.forget(uid);
        }
    }

    /// Whether any container of a Pod has processors or memory.
    fn has(&self, uid: &str) -> bool {
        let state = self.state.lock();
        state.cpus.containers.contains_key(uid) || state.blocks.containers.contains_key(uid)
    }

    /// The processors and the NUMA nodes of a container, as the runtime is told of them; empty where it may have any.
    pub(crate) fn sets(&self, uid: &str, container: &str) -> (String, String) {
        let state = self.state.lock();
        let blocks = state.blocks.of(uid, container).into_iter().flatten();
        let nodes: BTreeSet<usize> = blocks.flat_map(|b| b.numa_affinity.iter().copied()).collect();
        let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
        (state.cpus.of_or_shared(uid, container).to_string(), nodes.join(","))
    }

    /// A container is about to start: its processors are those that the runtime was told, and what init containers had
    /// that have ended is free.
    pub(crate) async fn starts(self: &Arc<Self>, pod: &Pod, container: &Container) {
        let uid = spec::uid(pod);
        {
            let mut state = self.state.lock();
            let state = &mut *state;
            let told = state.told.entry(uid.to_owned()).or_default();
            match state.cpus.of(uid, &container.name) {
                Some(cpus) => drop(told.insert(container.name.clone(), cpus.clone())),
                // The shared set may have changed since it was made.
                None => drop(told.remove(&container.name)),
            }
            let inits = spec::init_containers(pod).iter().take_while(|c| c.name != container.name);
            for init in inits.filter(|c| !spec::is_sidecar(c)) {
                if let Some(policy) = &state.memory {
                    state.stale.blocks |= policy.remove(&mut state.blocks, uid, &init.name);
                }
            }
        }
        self.save().await;
    }

    /// Whether a container has processors alone, so that its time on them is not limited.
    pub(crate) fn is_exclusive(&self, pod: &Pod, container: &Container) -> bool {
        self.options.lifts_quota() && self.is_alone(&self.state.lock(), pod, container)
    }

    fn is_alone(&self, state: &State, pod: &Pod, container: &Container) -> bool {
        let Some(cpus) = state.cpus.of(spec::uid(pod), &container.name) else { return false };
        if self.options.pod_level() && wanted::is_pod_level(pod) {
            return wanted::of_container(pod, container, true) > 0;
        }
        !cpus.is_empty()
    }

    /// Whether the time of a whole Pod on processors is not limited: a container of it has some alone, and all have if
    /// the Pod says what it wants as a whole.
    pub(crate) fn is_unlimited(&self, pod: &Pod) -> bool {
        if !self.options.lifts_quota() {
            return false;
        }
        let state = self.state.lock();
        let mut all = spec::init_containers(pod).iter().chain(spec::containers(pod));
        if self.options.pod_level() && wanted::is_pod_level(pod) {
            return all.all(|c| self.is_alone(&state, pod, c));
        }
        all.any(|c| self.is_alone(&state, pod, c))
    }

    /// Whether guaranteed Pods cannot be resized: by the names of the resource and of the policy that holds it.
    pub(crate) fn holds(&self) -> Vec<(&'static str, &'static str)> {
        self.options.holds()
    }

    /// The processors that a container has alone, for agents on the node.
    pub(crate) fn cpu_ids(&self, uid: &str, container: &str) -> Vec<i64> {
        let state = self.state.lock();
        state.cpus.of(uid, container).map(ids).unwrap_or_default()
    }

    /// The memory that a container has, for agents on the node.
    pub(crate) fn memory(&self, uid: &str, container: &str) -> Vec<ContainerMemory> {
        let state = self.state.lock();
        state.blocks.of(uid, container).into_iter().flatten().map(told).collect()
    }

    /// The processors and the memory that containers can have, for agents on the node.
    pub(crate) fn allocatable(&self) -> (Vec<i64>, Vec<ContainerMemory>) {
        let state = self.state.lock();
        let cpus = state.cpu.as_ref().map(|policy| ids(&policy.allocatable())).unwrap_or_default();
        let blocks = || memory_manager::StaticPolicy::allocatable(&state.blocks);
        let memory = state.memory.as_ref().map(|_| blocks());
        (cpus, memory.unwrap_or_default().iter().map(told).collect())
    }

    /// Writes the metrics.
    pub(crate) fn write_metrics(&self, page: &mut Page) {
        let gauges = {
            let state = self.state.lock();
            state.cpu.as_ref().map_or_else(CpuGauges::default, |policy| CpuGauges {
                shared_milli: policy.available(&state.cpus).len() * 1000,
                exclusive: state.cpus.exclusive().len(),
                by_node: policy.by_node(&state.cpus),
            })
        };
        self.counters.write(page, &gauges, self.options.pod_level());
    }
}

impl State {
    /// Notes where a container's resources are to come from.
    fn note(&mut self, pod: &Pod, container: &Container, hint: Hint) {
        self.hints.entry(spec::uid(pod).to_owned()).or_default().insert(container.name.clone(), hint);
    }

    /// Frees all that a Pod has.
    fn forget(&mut self, uid: &str) {
        self.hints.remove(uid);
        self.told.remove(uid);
        if let Some(policy) = &self.cpu {
            let names = self.cpus.containers.get(uid).map(|all| all.keys().cloned().collect::<Vec<_>>());
            for name in names.into_iter().flatten() {
                self.stale.cpus |= policy.remove(&mut self.cpus, uid, &name);
            }
        }
        if let Some(policy) = &self.memory {
            let names = self.blocks.containers.get(uid).map(|all| all.keys().cloned().collect::<Vec<_>>());
            for name in names.into_iter().flatten() {
                self.stale.blocks |= policy.remove(&mut self.blocks, uid, &name);
            }
        }
    }
}

fn ids(cpus: &CpuSet) -> Vec<i64> {
    cpus.iter().filter_map(|cpu| i64::try_from(cpu).ok()).collect()
}

fn told(block: &Block) -> ContainerMemory {
    let nodes = block.numa_affinity.iter().filter_map(|n| i64::try_from(*n).ok());
    ContainerMemory {
        memory_type: block.kind.clone(),
        size: block.size,
        topology: Some(TopologyInfo { nodes: nodes.map(|id| NumaNode { id }).collect() }),
    }
}
