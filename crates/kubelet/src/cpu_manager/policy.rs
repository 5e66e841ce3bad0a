//! The policy `static`: guaranteed containers that ask for whole processors have them alone. Pure but for counters.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Pod};

use super::assignment::{self, Sorting, TakeError};
use super::cpu_set::CpuSet;
use super::options::{CpuOptionError, CpuOptions};
use super::state::CpuState;
use super::topology::{CpuTopology, Level};
use super::wanted;
use crate::pods::spec;
use crate::resource_managers::{Assignment, Counters, Resource};
use crate::topology_manager::{Hint, Hints, NumaMask, PolicyKind, all_masks};

/// The resource's name.
const CPU: &str = "cpu";

/// Why a container gets no processors; upstream's texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CpuError {
    /// They cannot be found.
    #[error(transparent)]
    Take(#[from] TakeError),
    /// The container would share a core.
    #[error("SMT Alignment Error: requested {requested} cpus not multiple cpus per core = {per_core}")]
    NotWholeCores {
        /// How many it asks for.
        requested: usize,
        /// How many a core has.
        per_core: usize,
    },
    /// There are too few whole cores.
    #[error(
        "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {available}, requested CPUs = {requested}, CPUs per core = {per_core}"
    )]
    TooFewCores {
        /// How many are free.
        available: usize,
        /// How many it asks for.
        requested: usize,
        /// How many a core has.
        per_core: usize,
    },
    /// Nothing would be left for containers that share the Pod's.
    #[error("{0}")]
    EmptyPool(&'static str),
}

impl CpuError {
    /// Upstream's reason for a Pod that is refused; none where the error is not one of those that it foresees.
    pub(crate) fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Take(_) => None,
            Self::NotWholeCores { .. } | Self::TooFewCores { .. } => Some("SMTAlignmentError"),
            Self::EmptyPool(_) => Some("EmptyPodSharedPoolError"),
        }
    }
}

/// Why the policy cannot be had; upstream's texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CpuPolicyError {
    /// An option cannot be taken.
    #[error(transparent)]
    Option(#[from] CpuOptionError),
    /// Too few processors are kept for the system, or too many.
    #[error("[cpumanager] unable to reserve the required amount of CPUs (size of {0} did not equal {1})")]
    Reserve(CpuSet, usize),
    /// A processor that is to be kept for the system is not there.
    #[error(
        "[cpumanager] unable to build the reserved physical CPUs from the reserved set: unknown CPU ID: {0}"
    )]
    Unknown(usize),
}

/// State that does not fit the machine or the settings; upstream's texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CpuStateError {
    /// Everything is given.
    #[error("default cpuset cannot be empty")]
    NothingShared,
    /// Processors of the system are shared.
    #[error(
        "some of strictly reserved cpus: {} are present in defaultCpuSet: {}",
        api::go::quote(.0),
        api::go::quote(.1)
    )]
    StrictlyReserved(String, String),
    /// Processors of the system are not shared.
    #[error("not all reserved cpus: \"{0}\" are present in defaultCpuSet: \"{1}\"")]
    Reserved(String, String),
    /// Processors of a container are shared.
    #[error(
        "pod: {pod}, container: {container} cpuset: {} overlaps with default cpuset {}",
        api::go::quote(.cpus),
        api::go::quote(.shared)
    )]
    Overlap {
        /// The Pod's uid.
        pod: String,
        /// The container.
        container: String,
        /// Its processors.
        cpus: String,
        /// The shared ones.
        shared: String,
    },
    /// The machine has others.
    #[error("current set of available CPUs \"{0}\" doesn't match with CPUs in state \"{1}\"")]
    Others(String, String),
}

/// The texts of Pods whose shared containers would have nothing.
const NONE_FOR_INIT: &str = "pod rejected, pod has shared init containers but no cpus available for them";
const NONE_FOR_SHARED: &str = "pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers";

/// The facts that the policy is made from.
#[derive(Debug, Clone)]
pub(crate) struct StaticSettings {
    /// The machine's processors.
    pub(crate) topology: CpuTopology,
    /// How many are kept for the system.
    pub(crate) reserved_count: usize,
    /// Those that are; where there are none, the first ones are.
    pub(crate) reserved: CpuSet,
    /// The options.
    pub(crate) options: CpuOptions,
    /// The topology manager's policy.
    pub(crate) topology_policy: PolicyKind,
    /// Whether Pods may say what they want as a whole; upstream's gate `PodLevelResourceManagers`.
    pub(crate) pod_level: bool,
}

/// The policy `static`.
#[derive(Debug, Clone)]
pub(crate) struct StaticPolicy {
    topology: CpuTopology,
    /// Those that nobody gets alone.
    reserved: CpuSet,
    /// The whole cores of them.
    reserved_cores: CpuSet,
    options: CpuOptions,
    pod_level: bool,
    /// The part that the containers of one Pod may take over from its init containers; the last Pod that got any.
    reusable: Option<(String, CpuSet)>,
}

impl StaticPolicy {
    /// Makes it.
    ///
    /// # Errors
    /// The options or what is kept for the system do not fit the machine.
    pub(crate) fn new(settings: StaticSettings) -> Result<Self, CpuPolicyError> {
        let StaticSettings { topology, reserved_count, reserved, options, topology_policy, pod_level } =
            settings;
        options.validate(&topology, topology_policy)?;
        let mut policy = Self {
            topology,
            reserved: CpuSet::new(),
            reserved_cores: CpuSet::new(),
            options,
            pod_level,
            reusable: None,
        };
        let details = &policy.topology.details;
        let reserved = if reserved.is_empty() {
            policy.take(&details.cpus(), reserved_count).unwrap_or_default()
        } else {
            reserved
        };
        if reserved.len() != reserved_count {
            return Err(CpuPolicyError::Reserve(reserved, reserved_count));
        }
        let core = |cpu: usize| details.0.get(&cpu).map(|info| info.core).ok_or(CpuPolicyError::Unknown(cpu));
        let cores = reserved.iter().map(core).collect::<Result<Vec<_>, _>>()?;
        policy.reserved_cores = details.cpus_in_any(Level::Core, &cores);
        policy.reserved = reserved;
        Ok(policy)
    }

    /// Takes the state of an earlier process, or makes a new one.
    ///
    /// # Errors
    /// The state does not fit the machine or the settings.
    pub(crate) fn start(&self, state: &mut CpuState) -> Result<(), CpuStateError> {
        let all = self.topology.details.cpus();
        let shared = &state.shared;
        if shared.is_empty() {
            if !state.containers.is_empty() {
                return Err(CpuStateError::NothingShared);
            }
            state.shared = if self.options.strict { all.difference(&self.reserved) } else { all };
            return Ok(());
        }
        let kept = self.reserved.intersection(shared);
        if self.options.strict && !kept.is_empty() {
            return Err(CpuStateError::StrictlyReserved(kept.to_string(), shared.to_string()));
        }
        if !self.options.strict && kept != self.reserved {
            return Err(CpuStateError::Reserved(self.reserved.to_string(), shared.to_string()));
        }
        let mut known = shared.clone();
        for (pod, containers) in &state.containers {
            for (container, cpus) in containers {
                if !shared.intersection(cpus).is_empty() {
                    return Err(CpuStateError::Overlap {
                        pod: pod.clone(),
                        container: container.clone(),
                        cpus: cpus.to_string(),
                        shared: shared.to_string(),
                    });
                }
                known = known.union(cpus);
            }
        }
        for cpus in state.pods.values().filter(|_| self.pod_level) {
            known = known.union(cpus);
        }
        let expected = if self.options.strict { all.difference(&self.reserved) } else { all };
        if known != expected {
            return Err(CpuStateError::Others(expected.to_string(), known.to_string()));
        }
        Ok(())
    }

    /// The processors that containers can have alone.
    pub(crate) fn allocatable(&self) -> CpuSet {
        self.topology.details.cpus().difference(&self.reserved)
    }

    /// Those of them that nobody has.
    pub(crate) fn available(&self, state: &CpuState) -> CpuSet {
        state.shared.difference(&self.reserved)
    }

    /// Whether a Pod is passed over: it says what it wants as a whole.
    fn passes_over(&self, pod: &Pod) -> bool {
        !self.pod_level && wanted::is_pod_level(pod)
    }

    fn take(&self, available: &CpuSet, count: usize) -> Result<CpuSet, TakeError> {
        let o = self.options;
        let sorting = if o.distribute_cores { Sorting::Spread } else { Sorting::Packed };
        if o.distribute_numa {
            let group = if o.full_cores { self.topology.per_core() } else { 1 };
            return assignment::distributed(&self.topology, available, count, group, sorting);
        }
        assignment::packed(&self.topology, available, count, sorting, o.by_uncore)
    }

    fn check_cores(&self, state: &CpuState, requested: usize) -> Result<(), CpuError> {
        let per_core = self.topology.per_core();
        if !self.options.full_cores {
            return Ok(());
        }
        if per_core > 0 && !requested.is_multiple_of(per_core) {
            return Err(CpuError::NotWholeCores { requested, per_core });
        }
        let available = state.shared.difference(&self.reserved_cores).len();
        if requested > available {
            return Err(CpuError::TooFewCores { available, requested, per_core });
        }
        Ok(())
    }

    /// The processors that the containers of a Pod may take over.
    fn reusable(&self, uid: &str) -> CpuSet {
        self.reusable.as_ref().filter(|(of, _)| of == uid).map(|(_, cpus)| cpus.clone()).unwrap_or_default()
    }

    /// Notes what a container has: those after an init container may take it over.
    fn note_reusable(&mut self, pod: &Pod, container: &Container, cpus: &CpuSet) {
        let uid = spec::uid(pod);
        let before = self.reusable(uid);
        let init = spec::init_containers(pod).iter().find(|c| c.name == container.name);
        let free = if init.is_some_and(|c| !spec::is_sidecar(c)) {
            before.union(cpus)
        } else {
            before.difference(cpus)
        };
        self.reusable = Some((uid.to_owned(), free));
    }

    /// Takes processors out of those that are shared, near to some NUMA nodes if there are any.
    pub(super) fn allocate_cpus(
        &self,
        state: &mut CpuState,
        count: usize,
        near: Option<NumaMask>,
        reusable: &CpuSet,
    ) -> Result<CpuSet, TakeError> {
        let free = self.available(state).union(reusable);
        let mut taken = CpuSet::new();
        if let Some(mask) = near {
            let aligned = self.near(mask, &free);
            taken = self.take(&aligned, count.min(aligned.len()))?;
        }
        let more = self.take(&free.difference(&taken), count - taken.len())?;
        taken = taken.union(&more);
        state.shared = state.shared.difference(&taken);
        Ok(taken)
    }

    /// Those of some processors that are near to NUMA nodes.
    fn near(&self, mask: NumaMask, of: &CpuSet) -> CpuSet {
        let details = &self.topology.details;
        let nodes = mask.nodes();
        if self.options.by_socket {
            let sockets: Vec<usize> =
                nodes.iter().flat_map(|n| details.parts_in(Level::Socket, Level::Numa, *n)).collect();
            return of.intersection(&details.cpus_in_any(Level::Socket, &sockets));
        }
        of.intersection(&details.cpus_in_any(Level::Numa, &nodes))
    }

    /// Gives a container its processors, if it asks for some alone and has none yet; answers whether the state changed.
    ///
    /// # Errors
    /// It does not get them.
    pub(crate) fn allocate(
        &mut self,
        state: &mut CpuState,
        pod: &Pod,
        container: &Container,
        near: Option<NumaMask>,
        counters: &Counters,
    ) -> Result<bool, CpuError> {
        let count = wanted::of_container(pod, container, self.pod_level);
        if count == 0 || self.passes_over(pod) {
            return Ok(false);
        }
        counters.pinning(Resource::Cpu);
        let given = self.allocate_counted(state, pod, container, (count, near), counters);
        if given.is_err() {
            counters.pinning_failed(Resource::Cpu, "node");
        }
        if self.options.full_cores {
            counters.aligned("container", "physical_cpu", given.is_ok());
        }
        given
    }

    fn allocate_counted(
        &mut self,
        state: &mut CpuState,
        pod: &Pod,
        container: &Container,
        (count, near): (usize, Option<NumaMask>),
        counters: &Counters,
    ) -> Result<bool, CpuError> {
        let uid = spec::uid(pod);
        self.check_cores(state, count)?;
        if let Some(cpus) = state.of(uid, &container.name).cloned() {
            self.note_reusable(pod, container, &cpus);
            return Ok(false);
        }
        let cpus = self.allocate_cpus(state, count, near, &self.reusable(uid))?;
        self.note_reusable(pod, container, &cpus);
        if self.topology.is_aligned_by_uncore(&cpus) {
            counters.aligned("container", "uncore_cache", true);
        }
        state.set(uid, &container.name, cpus);
        counters.allocated(Resource::Cpu, "node");
        counters.assigned(Resource::Cpu, Assignment::NodeExclusive);
        Ok(true)
    }

    /// Whether something is left for the containers of a Pod that share what the Pod has.
    pub(super) fn validate_pool(&self, pod: &Pod) -> Result<(), CpuError> {
        let total = wanted::of_pod(pod, self.pod_level);
        let (mut shared, mut alone) = (false, 0_usize);
        for container in spec::init_containers(pod) {
            let own = wanted::of_container(pod, container, self.pod_level);
            if spec::is_sidecar(container) {
                shared |= own == 0;
                alone = alone.saturating_add(own);
            } else if own == 0 && alone >= total {
                return Err(CpuError::EmptyPool(NONE_FOR_INIT));
            }
        }
        for container in spec::containers(pod) {
            let own = wanted::of_container(pod, container, self.pod_level);
            shared |= own == 0;
            alone = alone.saturating_add(own);
        }
        if shared && alone >= total { Err(CpuError::EmptyPool(NONE_FOR_SHARED)) } else { Ok(()) }
    }

    /// Gives a Pod that says what it wants as a whole its processors, and each container its part of them.
    ///
    /// # Errors
    /// It does not get them.
    pub(crate) fn allocate_pod(
        &mut self,
        state: &mut CpuState,
        pod: &Pod,
        near: Option<NumaMask>,
        counters: &Counters,
    ) -> Result<bool, CpuError> {
        let count = wanted::of_pod(pod, self.pod_level);
        if count == 0 {
            return Ok(false);
        }
        let given = self.allocate_whole(state, pod, count, near, counters);
        if given.is_err() {
            counters.pinning_failed(Resource::Cpu, "pod");
        }
        given.map(|()| true)
    }

    fn allocate_whole(
        &mut self,
        state: &mut CpuState,
        pod: &Pod,
        count: usize,
        near: Option<NumaMask>,
        counters: &Counters,
    ) -> Result<(), CpuError> {
        self.validate_pool(pod)?;
        self.check_cores(state, count)?;
        let uid = spec::uid(pod);
        if state.pods.contains_key(uid) {
            // DIFFERENCE: upstream gives a Pod that has processors already more of them after a restart.
            return Ok(());
        }
        let whole = self.allocate_cpus(state, count, near, &CpuSet::new())?;
        if self.topology.is_aligned_by_uncore(&whole) {
            counters.aligned("container", "uncore_cache", true);
        }
        state.pods.insert(uid.to_owned(), whole.clone());
        let parts = self.parts(pod, &whole, counters)?;
        for (name, (cpus, assignment)) in parts {
            state.set(uid, &name, cpus);
            counters.assigned(Resource::Cpu, assignment);
            counters.allocated(Resource::Cpu, "pod");
        }
        Ok(())
    }

    /// The part of each container of what its Pod has.
    fn parts(
        &self,
        pod: &Pod,
        whole: &CpuSet,
        counters: &Counters,
    ) -> Result<BTreeMap<String, (CpuSet, Assignment)>, CpuError> {
        let (mut parts, mut sidecars) = (BTreeMap::new(), CpuSet::new());
        let alone = |pool: &CpuSet, count| {
            counters.pinning(Resource::Cpu);
            self.take(pool, count)
        };
        for container in spec::init_containers(pod) {
            let pool = whole.difference(&sidecars);
            let count = wanted::of_container(pod, container, self.pod_level);
            let part = match (count, spec::is_sidecar(container)) {
                (0, true) => continue,
                (0, false) => (pool, Assignment::PodShared),
                (count, sidecar) => {
                    let cpus = alone(&pool, count)?;
                    if sidecar {
                        sidecars = sidecars.union(&cpus);
                    }
                    (cpus, Assignment::PodExclusive)
                }
            };
            parts.insert(container.name.clone(), part);
        }
        let mut pool = whole.difference(&sidecars);
        for container in spec::containers(pod) {
            let count = wanted::of_container(pod, container, self.pod_level);
            if count > 0 {
                let cpus = alone(&pool, count)?;
                pool = pool.difference(&cpus);
                parts.insert(container.name.clone(), (cpus, Assignment::PodExclusive));
            }
        }
        for container in spec::init_containers(pod).iter().chain(spec::containers(pod)) {
            let shared = || (pool.clone(), Assignment::PodShared);
            parts.entry(container.name.clone()).or_insert_with(shared);
        }
        Ok(parts)
    }

    /// Takes back what a container has; answers whether the state changed.
    pub(crate) fn remove(&self, state: &mut CpuState, uid: &str, container: &str) -> bool {
        let Some(cpus) = state.take(uid, container) else { return false };
        if self.pod_level
            && let Some(whole) = state.pods.get(uid)
        {
            if !state.containers.contains_key(uid) {
                state.shared = state.shared.union(whole);
                state.pods.remove(uid);
            }
            return true;
        }
        let siblings = state.containers.get(uid).into_iter().flat_map(BTreeMap::values);
        let in_use = siblings.fold(CpuSet::new(), |all, cpus| all.union(cpus));
        state.shared = state.shared.union(&cpus.difference(&in_use));
        true
    }

    /// The hints of a container.
    pub(crate) fn hints(&self, state: &CpuState, pod: &Pod, container: &Container) -> Hints {
        let count = wanted::of_container(pod, container, self.pod_level);
        if count == 0 || self.passes_over(pod) {
            return Hints::new();
        }
        let uid = spec::uid(pod);
        let hints = match state.of(uid, &container.name) {
            Some(cpus) if cpus.len() != count => Vec::new(),
            Some(cpus) => self.hints_of(cpus, &CpuSet::new(), count),
            None => self.hints_of(&self.available(state), &self.reusable(uid), count),
        };
        [(CPU.to_owned(), Some(hints))].into()
    }

    /// The hints of a Pod as a whole.
    pub(crate) fn pod_hints(&self, state: &CpuState, pod: &Pod) -> Hints {
        let count = wanted::of_pod(pod, self.pod_level);
        if count == 0 || self.passes_over(pod) {
            return Hints::new();
        }
        let some = |hints| [(CPU.to_owned(), Some(hints))].into();
        let whole = self.pod_level && wanted::is_pod_level(pod);
        if whole && self.validate_pool(pod).is_err() {
            return some(Vec::new());
        }
        let uid = spec::uid(pod);
        if let Some(cpus) = state.pods.get(uid).filter(|_| whole) {
            // DIFFERENCE: upstream looks at what the containers have, which is not what each asks for: its Pods of this
            // kind are refused after a restart of the kubelet.
            return some(if cpus.len() == count {
                self.hints_of(cpus, &CpuSet::new(), count)
            } else {
                Vec::new()
            });
        }
        let mut assigned = CpuSet::new();
        for container in spec::init_containers(pod).iter().chain(spec::containers(pod)) {
            if let Some(cpus) = state.of(uid, &container.name) {
                if cpus.len() != wanted::of_container(pod, container, self.pod_level) {
                    return some(Vec::new());
                }
                assigned = assigned.union(cpus);
            }
        }
        if assigned.len() == count {
            return some(self.hints_of(&assigned, &CpuSet::new(), count));
        }
        let reusable = self.reusable(uid).union(&assigned);
        some(self.hints_of(&self.available(state), &reusable, count))
    }

    /// The sets of NUMA nodes that have so many processors; all those to be reused are in each.
    fn hints_of(&self, available: &CpuSet, reusable: &CpuSet, count: usize) -> Vec<Hint> {
        let details = &self.topology.details;
        let nodes: Vec<usize> = details.parts(Level::Numa).into_iter().collect();
        let by_node = |cpus: &CpuSet| {
            let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
            for info in cpus.iter().filter_map(|cpu| details.0.get(&cpu)) {
                *counts.entry(info.numa).or_default() += 1;
            }
            counts
        };
        let (all, free, kept) = (by_node(&details.cpus()), by_node(available), by_node(reusable));
        let sum = |counts: &BTreeMap<usize, usize>, mask: NumaMask| -> usize {
            counts.iter().filter(|(node, _)| mask.contains(**node)).map(|(_, n)| n).sum()
        };
        let mut smallest = nodes.len();
        let mut masks = Vec::new();
        for mask in all_masks(&nodes) {
            if sum(&all, mask) >= count {
                smallest = smallest.min(mask.count());
            }
            let keeps_all = kept.keys().all(|node| mask.contains(*node));
            if keeps_all && sum(&free, mask) + sum(&kept, mask) >= count {
                masks.push(mask);
            }
        }
        let preferred = |mask: NumaMask| {
            mask.count() == smallest || self.options.by_socket && self.is_by_socket(mask, smallest)
        };
        masks.into_iter().map(|m| Hint { affinity: Some(m), preferred: preferred(m) }).collect()
    }

    /// Whether NUMA nodes are in as few sockets as can be.
    fn is_by_socket(&self, mask: NumaMask, smallest: usize) -> bool {
        let per_socket = self.topology.numas.checked_div(self.topology.sockets).unwrap_or_default();
        let details = &self.topology.details;
        let sockets: BTreeSet<usize> =
            mask.nodes().iter().flat_map(|n| details.parts_in(Level::Socket, Level::Numa, *n)).collect();
        per_socket > 0 && sockets.len() == smallest.div_ceil(per_socket)
    }

    /// How many processors containers have of each NUMA node.
    pub(crate) fn by_node(&self, state: &CpuState) -> BTreeMap<usize, usize> {
        let details = &self.topology.details;
        let mut counts: BTreeMap<usize, usize> =
            details.parts(Level::Numa).into_iter().map(|node| (node, 0)).collect();
        for cpu in &state.exclusive() {
            if let Some(info) = details.0.get(&cpu) {
                *counts.entry(info.numa).or_default() += 1;
            }
        }
        counts
    }
}
