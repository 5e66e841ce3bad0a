//! The policy `Static`: guaranteed containers have memory of few NUMA nodes. Pure but for counters.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};

use super::reserved::{ByNode, ReservedError};
use super::state::{Block, MachineState, MemoryState, MemoryTable, NumaState};
use super::wanted::{self, Amounts};
use crate::cpu_manager::wanted::is_pod_level;
use crate::node::hardware::{Hardware, NumaNode};
use crate::pods::spec::{self, Qos};
use crate::resource_managers::{Assignment, Counters, Resource};
use crate::topology_manager::{Hint, Hints, MOST_NODES, NumaMask, all_masks};

/// The kind that is no huge pages.
const MEMORY: &str = "memory";

/// Why a container gets no memory; upstream's texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MemoryError {
    /// No nodes have enough.
    #[error(
        "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
    )]
    NoDefault,
    /// Only sets of nodes have it that are larger than needed.
    #[error("[memorymanager] failed to find the default preferred hint")]
    NoPreferredDefault,
    /// The nodes of the hint have too little, and no more nodes have enough.
    #[error("[memorymanager] failed to find NUMA nodes to extend the current topology hint")]
    NoExtension,
    /// Those that have enough are more than needed.
    #[error("[memorymanager] failed to find the extended preferred hint")]
    NoPreferredExtension,
    /// A node would give memory alone and together with others.
    #[error("[memorymanager] preferred hint violates NUMA node allocation")]
    Violation,
    /// Nothing would be left for containers that share the Pod's.
    #[error("pod rejected, pod has shared init containers but no {0} available for them")]
    EmptyInitPool(String),
    /// Nothing would be left for containers that share the Pod's.
    #[error(
        "pod rejected, sum of exclusive container {0} requests equals pod budget, leaving no memory for shared containers"
    )]
    EmptyPool(String),
}

impl MemoryError {
    /// Upstream's reason for a Pod that is refused; none where the error is not one of those that it foresees.
    pub(crate) fn reason(&self) -> Option<&'static str> {
        match self {
            Self::EmptyInitPool(_) | Self::EmptyPool(_) => Some("EmptyPodSharedPoolError"),
            _ => None,
        }
    }
}

/// State that does not fit the machine or the settings; upstream's texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemoryStateError {
    /// Containers have memory of no machine.
    #[error("[memorymanager] machine state can not be empty when it has memory assignments")]
    NoMachine,
    /// A container has memory of a node that is not there.
    #[error(
        "[memorymanager] (pod: {0}, container: {1}) the memory assignment uses the NUMA that does not exist"
    )]
    NoNode(String, String),
    /// A container has memory of a kind that is not there.
    #[error(
        "[memorymanager] (pod: {0}, container: {1}) the memory assignment uses memory resource that does not exist"
    )]
    NoKind(String, String),
    /// The machine is another one.
    #[error("[memorymanager] the expected machine state is different from the real one")]
    Different,
}

/// Why the policy cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemoryPolicyError {
    /// The reserved amounts do not fit the machine.
    #[error(transparent)]
    Reserved(#[from] ReservedError),
    /// There are too many NUMA nodes.
    #[error(
        "the memory manager's policy Static is unsupported on machines with more than {MOST_NODES} NUMA nodes"
    )]
    TooManyNodes,
}

/// Memory that may be taken over, by NUMA nodes and kinds.
type Reusable = BTreeMap<NumaMask, Amounts>;

/// The policy `Static`.
#[derive(Debug, Clone)]
pub(crate) struct StaticPolicy {
    nodes: Vec<NumaNode>,
    reserved: ByNode,
    pod_level: bool,
    /// The part that the containers of one Pod may take over from its init containers; the last Pod that got any.
    reusable: Option<(String, Reusable)>,
}

impl StaticPolicy {
    /// Makes it; `pod_level` says whether Pods may say what they want as a whole.
    ///
    /// # Errors
    /// Nothing is kept for the system, or there are too many nodes.
    pub(crate) fn new(
        hardware: &Hardware,
        reserved: ByNode,
        pod_level: bool,
    ) -> Result<Self, MemoryPolicyError> {
        if reserved.values().filter_map(|all| all.get(MEMORY)).all(|bytes| *bytes == 0) {
            return Err(ReservedError::Nothing.into());
        }
        if hardware.nodes.len() > MOST_NODES {
            return Err(MemoryPolicyError::TooManyNodes);
        }
        Ok(Self { nodes: hardware.nodes.clone(), reserved, pod_level, reusable: None })
    }

    /// Takes the state of an earlier process, or makes a new one.
    ///
    /// # Errors
    /// The state does not fit the machine or the settings.
    pub(crate) fn start(&self, state: &mut MemoryState) -> Result<(), MemoryStateError> {
        if state.machine.is_empty() {
            if !state.containers.is_empty() {
                return Err(MemoryStateError::NoMachine);
            }
            state.machine = self.untouched();
            return Ok(());
        }
        let mut expected = self.untouched();
        for (pod, containers) in &state.containers {
            let whole = state.pods.get(pod).filter(|all| self.pod_level && !all.is_empty());
            if let Some(blocks) = whole {
                replay(&mut expected, blocks, pod, "")?;
                continue;
            }
            for (container, blocks) in containers {
                replay(&mut expected, blocks, pod, container)?;
            }
        }
        if same(&state.machine, &expected) { Ok(()) } else { Err(MemoryStateError::Different) }
    }

    /// The machine when nobody has anything.
    fn untouched(&self) -> MachineState {
        let one = |node: &NumaNode| {
            let kept = |kind: &str| {
                self.reserved.get(&node.id).and_then(|all| all.get(kind)).copied().unwrap_or_default()
            };
            let table = |total: u64, not_free: u64, system_reserved: u64| {
                let allocatable = total.saturating_sub(system_reserved).saturating_sub(not_free);
                MemoryTable { total, system_reserved, allocatable, reserved: 0, free: allocatable }
            };
            let mut memory_map = BTreeMap::new();
            let mut huge = 0_u64;
            for (size, count) in &node.hugepages {
                let (kind, total) = (hugepages(*size), size.saturating_mul(*count));
                huge = huge.saturating_add(total);
                memory_map.insert(kind.clone(), table(total, 0, kept(&kind)));
            }
            memory_map.insert(MEMORY.to_owned(), table(node.memory, huge, kept(MEMORY)));
            (node.id, NumaState { number_of_assignments: 0, memory_map, cells: vec![node.id] })
        };
        self.nodes.iter().map(one).collect()
    }

    /// The memory that containers can have of each node.
    pub(crate) fn allocatable(state: &MemoryState) -> Vec<Block> {
        let of = |(id, node): (&usize, &NumaState)| {
            let id = *id;
            let tables = node.memory_map.clone().into_iter().filter(|(_, t)| t.allocatable > 0);
            tables.map(move |(kind, t)| Block { numa_affinity: vec![id], kind, size: t.allocatable })
        };
        state.machine.iter().flat_map(of).collect()
    }

    /// Whether a Pod is passed over: it has no such class, or says what it wants as a whole.
    fn passes_over(&self, pod: &Pod) -> bool {
        spec::qos(pod) != Qos::Guaranteed || !self.pod_level && is_pod_level(pod)
    }

    fn reusable(&self, uid: &str, mask: NumaMask, kind: &str) -> u64 {
        let of_pod = self.reusable.as_ref().filter(|(of, _)| of == uid);
        of_pod.and_then(|(_, all)| all.get(&mask)?.get(kind).copied()).unwrap_or_default()
    }

    /// Notes what a container has: those after an init container may take it over.
    fn note_reusable(&mut self, pod: &Pod, container: &Container, blocks: &[Block]) {
        let uid = spec::uid(pod);
        let known = self.reusable.take().filter(|(of, _)| of == uid);
        let (_, mut all) = known.unwrap_or_else(|| (uid.to_owned(), Reusable::new()));
        let init = spec::init_containers(pod).iter().find(|c| c.name == container.name);
        let init = init.is_some_and(|c| !spec::is_sidecar(c));
        for block in blocks {
            let mask = NumaMask::of(block.numa_affinity.iter().copied());
            let bytes = all.entry(mask).or_default().entry(block.kind.clone()).or_default();
            *bytes = if init { (*bytes).max(block.size) } else { bytes.saturating_sub(block.size) };
        }
        self.reusable = Some((uid.to_owned(), all));
    }

    /// Gives a container its memory, if it has none yet; answers whether the state changed.
    ///
    /// # Errors
    /// It does not get it.
    pub(crate) fn allocate(
        &mut self,
        state: &mut MemoryState,
        pod: &Pod,
        container: &Container,
        hint: Hint,
        counters: &Counters,
    ) -> Result<bool, MemoryError> {
        if self.passes_over(pod) {
            return Ok(false);
        }
        counters.pinning(Resource::Memory);
        let given = self.allocate_counted(state, pod, container, hint, counters);
        if given.is_err() {
            counters.pinning_failed(Resource::Memory, "node");
        }
        given
    }

    fn allocate_counted(
        &mut self,
        state: &mut MemoryState,
        pod: &Pod,
        container: &Container,
        hint: Hint,
        counters: &Counters,
    ) -> Result<bool, MemoryError> {
        let uid = spec::uid(pod);
        if let Some(blocks) = state.of(uid, &container.name).cloned() {
            self.note_reusable(pod, container, &blocks);
            return Ok(false);
        }
        let wanted = wanted::of_container(pod, container, self.pod_level);
        let mask = self.best(&state.machine, uid, &wanted, hint)?;
        let nodes = mask.nodes();
        let mut blocks = Vec::new();
        for (kind, bytes) in wanted {
            let needed = bytes.saturating_sub(self.reusable(uid, mask, &kind));
            reserve(&mut state.machine, &nodes, &kind, needed);
            counters.allocated(Resource::Memory, "node");
            blocks.push(Block { numa_affinity: nodes.clone(), kind, size: bytes });
        }
        self.note_reusable(pod, container, &blocks);
        state.set(uid, &container.name, blocks.clone());
        take_over(state, pod, container, &blocks);
        counters.assigned(Resource::Memory, Assignment::NodeExclusive);
        Ok(true)
    }

    /// The nodes that give what is asked for: those of the hint, or more if they have too little.
    fn best(
        &self,
        machine: &MachineState,
        uid: &str,
        wanted: &Amounts,
        hint: Hint,
    ) -> Result<NumaMask, MemoryError> {
        let mut best = hint;
        let mask = if let Some(mask) = hint.affinity {
            mask
        } else {
            let found = self.best_of(machine, uid, wanted, None).ok_or(MemoryError::NoDefault)?;
            if !found.preferred && best.preferred {
                return Err(MemoryError::NoPreferredDefault);
            }
            best = found;
            found.affinity.ok_or(MemoryError::NoDefault)?
        };
        let mut mask = mask;
        if wanted.iter().any(|(kind, bytes)| free(machine, mask, kind) < *bytes) {
            let found = self.best_of(machine, uid, wanted, Some(mask)).ok_or(MemoryError::NoExtension)?;
            if !found.preferred && best.preferred {
                return Err(MemoryError::NoPreferredExtension);
            }
            mask = found.affinity.ok_or(MemoryError::NoExtension)?;
        }
        if violates(machine, mask) { Err(MemoryError::Violation) } else { Ok(mask) }
    }

    /// The best set of nodes that can give what is asked for, with all those of `with` in it.
    fn best_of(
        &self,
        machine: &MachineState,
        uid: &str,
        wanted: &Amounts,
        with: Option<NumaMask>,
    ) -> Option<Hint> {
        let hints = self.hints_of(machine, uid, wanted);
        // Those of all kinds are the same.
        let hints = hints.get(MEMORY).or_else(|| hints.values().next())?.as_ref()?;
        let fits = |h: &&Hint| with.is_none_or(|with| h.affinity.is_some_and(|a| a.and(with) == with));
        let better = |best: Hint, hint: Hint| {
            let narrower = matches!((hint.affinity, best.affinity), (Some(a), Some(b)) if a.is_narrower(b));
            let takes = hint.preferred && !best.preferred || hint.preferred == best.preferred && narrower;
            if takes { hint } else { best }
        };
        hints.iter().filter(fits).copied().reduce(better)
    }

    /// Whether something is left for the containers of a Pod that share what the Pod has.
    pub(super) fn validate_pool(&self, pod: &Pod) -> Result<(), MemoryError> {
        let total = wanted::of_pod(pod, self.pod_level);
        let mut alone = Amounts::new();
        let mut shared = false;
        let full = |alone: &Amounts| {
            let used = |kind: &String| alone.get(kind).copied().unwrap_or_default();
            total.iter().find(|(kind, bytes)| used(kind) >= **bytes).map(|(kind, _)| kind.clone())
        };
        let add = |alone: &mut Amounts, own: Amounts| {
            for (kind, bytes) in own {
                let sum = alone.entry(kind).or_default();
                *sum = sum.saturating_add(bytes);
            }
        };
        for container in spec::init_containers(pod) {
            let own = wanted::of_container(pod, container, self.pod_level);
            if spec::is_sidecar(container) {
                shared |= own.is_empty();
                add(&mut alone, own);
            } else if own.is_empty()
                && let Some(kind) = full(&alone)
            {
                return Err(MemoryError::EmptyInitPool(kind));
            }
        }
        for container in spec::containers(pod) {
            let own = wanted::of_container(pod, container, self.pod_level);
            shared |= own.is_empty();
            add(&mut alone, own);
        }
        match full(&alone).filter(|_| shared) {
            Some(kind) => Err(MemoryError::EmptyPool(kind)),
            None => Ok(()),
        }
    }

    /// Gives a Pod that says what it wants as a whole its memory, and each container its part of it.
    ///
    /// # Errors
    /// It does not get it.
    pub(crate) fn allocate_pod(
        &mut self,
        state: &mut MemoryState,
        pod: &Pod,
        hint: Hint,
        counters: &Counters,
    ) -> Result<bool, MemoryError> {
        // DIFFERENCE: upstream gives a Pod that has memory already more of it after a restart.
        if spec::qos(pod) != Qos::Guaranteed || state.pods.contains_key(spec::uid(pod)) {
            return Ok(false);
        }
        counters.pinning(Resource::Memory);
        let given = self.allocate_whole(state, pod, hint, counters);
        if given.is_err() {
            counters.pinning_failed(Resource::Memory, "pod");
        }
        given.map(|()| true)
    }

    fn allocate_whole(
        &mut self,
        state: &mut MemoryState,
        pod: &Pod,
        hint: Hint,
        counters: &Counters,
    ) -> Result<(), MemoryError> {
        self.validate_pool(pod)?;
        let (uid, total) = (spec::uid(pod), wanted::of_pod(pod, self.pod_level));
        let mask = self.best(&state.machine, uid, &total, hint)?;
        let nodes = mask.nodes();
        let blocks = |amounts: &Amounts| -> Vec<Block> {
            let some = amounts.iter().filter(|(_, bytes)| **bytes > 0);
            let one = |(kind, size): (&String, &u64)| (nodes.clone(), kind.clone(), *size);
            some.map(one).map(|(numa_affinity, kind, size)| Block { numa_affinity, kind, size }).collect()
        };
        let mut pool = total.clone();
        let subtract = |pool: &mut Amounts, own: &Amounts| {
            for (kind, bytes) in own {
                if let Some(left) = pool.get_mut(kind) {
                    *left = left.saturating_sub(*bytes);
                }
            }
        };
        let mut parts: BTreeMap<String, (Vec<Block>, Assignment)> = BTreeMap::new();
        for container in spec::init_containers(pod) {
            counters.pinning(Resource::Memory);
            let own = wanted::of_container(pod, container, self.pod_level);
            let sidecar = spec::is_sidecar(container);
            let part = match (own.is_empty(), sidecar) {
                (true, true) => continue,
                (true, false) => (blocks(&pool), Assignment::PodShared),
                (false, _) => (blocks(&own), Assignment::PodExclusive),
            };
            if sidecar {
                subtract(&mut pool, &own);
            }
            parts.insert(container.name.clone(), part);
        }
        for container in spec::containers(pod) {
            let own = wanted::of_container(pod, container, self.pod_level);
            if !own.is_empty() {
                counters.pinning(Resource::Memory);
                subtract(&mut pool, &own);
                parts.insert(container.name.clone(), (blocks(&own), Assignment::PodExclusive));
            }
        }
        for container in spec::init_containers(pod).iter().chain(spec::containers(pod)) {
            let shared = || (blocks(&pool), Assignment::PodShared);
            parts.entry(container.name.clone()).or_insert_with(shared);
        }
        for (kind, bytes) in &total {
            reserve(&mut state.machine, &nodes, kind, *bytes);
        }
        let whole = |(kind, size): (&String, &u64)| Block {
            numa_affinity: nodes.clone(),
            kind: kind.clone(),
            size: *size,
        };
        state.pods.insert(uid.to_owned(), total.iter().map(whole).collect());
        for (name, (blocks, assignment)) in parts {
            state.set(uid, &name, blocks);
            counters.assigned(Resource::Memory, assignment);
            counters.allocated(Resource::Memory, "pod");
        }
        Ok(())
    }

    /// Takes back what a container has; answers whether the state changed.
    pub(crate) fn remove(&self, state: &mut MemoryState, uid: &str, container: &str) -> bool {
        let taken = state.take(uid, container);
        if self.pod_level && state.pods.contains_key(uid) {
            if !state.containers.contains_key(uid)
                && let Some(whole) = state.pods.remove(uid)
            {
                release(&mut state.machine, &whole);
            }
            return true;
        }
        let Some(blocks) = taken else { return false };
        release(&mut state.machine, &blocks);
        true
    }

    /// The hints of a container.
    pub(crate) fn hints(&self, state: &MemoryState, pod: &Pod, container: &Container) -> Hints {
        if self.passes_over(pod) {
            return Hints::new();
        }
        let uid = spec::uid(pod);
        let wanted = wanted::of_container(pod, container, self.pod_level);
        match state.of(uid, &container.name) {
            Some(blocks) => again(blocks, &wanted),
            None => self.hints_of(&state.machine, uid, &wanted),
        }
    }

    /// The hints of a Pod as a whole.
    pub(crate) fn pod_hints(&self, state: &MemoryState, pod: &Pod) -> Hints {
        if self.passes_over(pod) {
            return Hints::new();
        }
        let (uid, wanted) = (spec::uid(pod), wanted::of_pod(pod, self.pod_level));
        let whole = self.pod_level && is_pod_level(pod);
        if whole && self.validate_pool(pod).is_err() {
            return wanted.into_keys().map(|kind| (kind, Some(Vec::new()))).collect();
        }
        if wanted.is_empty() {
            return Hints::new();
        }
        if let Some(blocks) = state.pods.get(uid).filter(|_| whole) {
            // DIFFERENCE: upstream looks at what the first container has, which is not what the Pod asks for.
            return again(blocks, &wanted);
        }
        let mut all = spec::init_containers(pod).iter().chain(spec::containers(pod));
        match all.find_map(|c| state.of(uid, &c.name)) {
            Some(blocks) => again(blocks, &wanted),
            None => self.hints_of(&state.machine, uid, &wanted),
        }
    }

    /// The sets of NUMA nodes that have what is asked for, those that are as small as can be preferred.
    fn hints_of(&self, machine: &MachineState, uid: &str, wanted: &Amounts) -> Hints {
        let nodes: Vec<usize> = machine.keys().copied().collect();
        let mut smallest = nodes.len();
        let mut masks = Vec::new();
        for mask in all_masks(&nodes) {
            let all = |kind: &str| sum(machine, mask, kind, |t| t.allocatable);
            if wanted.iter().any(|(kind, bytes)| all(kind) < *bytes) {
                continue;
            }
            smallest = smallest.min(mask.count());
            let single = mask.count() == 1;
            let grouped = mask.nodes().iter().filter_map(|n| machine.get(n)).any(|n| n.cells.len() > 1);
            if single && grouped || violates(machine, mask) {
                continue;
            }
            let has = |kind: &str| free(machine, mask, kind).saturating_add(self.reusable(uid, mask, kind));
            if wanted.iter().all(|(kind, bytes)| has(kind) >= *bytes) {
                masks.push(mask);
            }
        }
        if masks.is_empty() {
            return Hints::new();
        }
        let preferred = |mask: NumaMask| mask.count() == smallest;
        let hints: Vec<Hint> =
            masks.into_iter().map(|m| Hint { affinity: Some(m), preferred: preferred(m) }).collect();
        wanted.keys().map(|kind| (kind.clone(), Some(hints.clone()))).collect()
    }
}

/// The kind of huge pages of a size in bytes.
fn hugepages(size: u64) -> String {
    let (size, unit) = match size.trailing_zeros() {
        30.. => (size >> 30, "Gi"),
        20.. => (size >> 20, "Mi"),
        10.. => (size >> 10, "Ki"),
        _ => (size, ""),
    };
    format!("hugepages-{size}{unit}")
}

/// An amount of a kind of some nodes together.
fn sum(machine: &MachineState, mask: NumaMask, kind: &str, of: impl Fn(&MemoryTable) -> u64) -> u64 {
    let tables =
        machine.iter().filter(|(id, _)| mask.contains(**id)).filter_map(|(_, n)| n.memory_map.get(kind));
    tables.map(of).fold(0, u64::saturating_add)
}

fn free(machine: &MachineState, mask: NumaMask, kind: &str) -> u64 {
    sum(machine, mask, kind, |t| t.free)
}

/// Whether several nodes cannot give memory together: one gives some alone, or with others.
pub(super) fn violates(machine: &MachineState, mask: NumaMask) -> bool {
    let nodes = mask.nodes();
    let bound = |node: &NumaState| {
        let mut cells = node.cells.clone();
        cells.sort_unstable();
        node.number_of_assignments > 0 && (cells.len() == 1 || cells != nodes)
    };
    nodes.len() > 1 && nodes.iter().filter_map(|n| machine.get(n)).any(bound)
}

/// Takes memory of a kind from nodes, as much as each has.
fn reserve(machine: &mut MachineState, nodes: &[usize], kind: &str, mut bytes: u64) {
    for id in nodes {
        let Some(node) = machine.get_mut(id) else { continue };
        node.number_of_assignments += 1;
        node.cells = nodes.to_vec();
        if let Some(table) = node.memory_map.get_mut(kind) {
            let part = bytes.min(table.free);
            table.reserved = table.reserved.saturating_add(part);
            table.free -= part;
            bytes -= part;
        }
    }
}

/// Gives memory back to nodes.
fn release(machine: &mut MachineState, blocks: &[Block]) {
    for block in blocks {
        let mut bytes = block.size;
        for id in &block.numa_affinity {
            let Some(node) = machine.get_mut(id) else { continue };
            node.number_of_assignments -= 1;
            if node.number_of_assignments == 0 {
                node.cells = vec![*id];
            }
            if let Some(table) = node.memory_map.get_mut(&block.kind) {
                let part = bytes.min(table.reserved);
                table.reserved -= part;
                table.free = table.free.saturating_add(part);
                bytes -= part;
            }
        }
    }
}

/// Takes what a container has from a machine that nobody has anything of.
fn replay(
    machine: &mut MachineState,
    blocks: &[Block],
    pod: &str,
    container: &str,
) -> Result<(), MemoryStateError> {
    for block in blocks {
        for id in &block.numa_affinity {
            let (pod, container) = (pod.to_owned(), container.to_owned());
            match machine.get(id) {
                None => return Err(MemoryStateError::NoNode(pod, container)),
                Some(node) if !node.memory_map.contains_key(&block.kind) => {
                    return Err(MemoryStateError::NoKind(pod, container));
                }
                Some(_) => {}
            }
        }
        reserve(machine, &block.numa_affinity, &block.kind, block.size);
    }
    Ok(())
}

/// Whether two states of a machine say the same. How much each of several nodes gives that give together does not matter.
pub(super) fn same(a: &MachineState, b: &MachineState) -> bool {
    let sorted = |cells: &[usize]| {
        let mut cells = cells.to_vec();
        cells.sort_unstable();
        cells
    };
    let node = |(id, a): (&usize, &NumaState)| {
        let Some(other) = b.get(id) else { return false };
        let table = |(kind, t): (&String, &MemoryTable)| {
            let Some(u) = other.memory_map.get(kind) else { return false };
            (t.total, t.system_reserved, t.allocatable) == (u.total, u.system_reserved, u.allocatable)
        };
        a.number_of_assignments == other.number_of_assignments
            && sorted(&a.cells) == sorted(&other.cells)
            && a.memory_map.len() == other.memory_map.len()
            && a.memory_map.iter().all(table)
    };
    let together = |node: &NumaState| {
        let mask = NumaMask::of(node.cells.iter().copied());
        node.memory_map.keys().all(|kind| {
            let both = |of: fn(&MemoryTable) -> u64| sum(a, mask, kind, of) == sum(b, mask, kind, of);
            both(|t| t.free) && both(|t| t.reserved)
        })
    };
    a.len() == b.len() && a.iter().all(node) && a.values().all(together)
}

/// The hints of what a container has already; none if that is not what it asks for.
fn again(blocks: &[Block], wanted: &Amounts) -> Hints {
    if blocks.len() != wanted.len() || blocks.iter().any(|b| wanted.get(&b.kind) != Some(&b.size)) {
        return Hints::new();
    }
    let one = |b: &Block| {
        let affinity = Some(NumaMask::of(b.numa_affinity.iter().copied()));
        (b.kind.clone(), Some(vec![Hint { affinity, preferred: true }]))
    };
    blocks.iter().map(one).collect()
}

/// Takes from init containers what a container took over from them, so that what all have is what the Pod has.
fn take_over(state: &mut MemoryState, pod: &Pod, container: &Container, blocks: &[Block]) {
    let Some(containers) = state.containers.get_mut(spec::uid(pod)) else { return };
    for block in blocks {
        let mut left = block.size;
        let mask = NumaMask::of(block.numa_affinity.iter().copied());
        for init in spec::init_containers(pod).iter().take_while(|c| c.name != container.name) {
            if spec::is_sidecar(init) {
                continue;
            }
            let own = containers.get_mut(&init.name).into_iter().flatten();
            for of_init in own.filter(|b| b.kind == block.kind) {
                if NumaMask::of(of_init.numa_affinity.iter().copied()) == mask {
                    let part = left.min(of_init.size);
                    of_init.size -= part;
                    left -= part;
                }
            }
        }
    }
}
