//! The settings of the managers, and the errors for which they cannot start.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use api::{FeatureGates, Gate};

use crate::cpu_manager::{
    CpuOptions, CpuPolicy, CpuPolicyError, CpuSet, CpuStateError, CpuTopology, StaticPolicy, StaticSettings,
    TopologyError,
};
use crate::memory_manager::{self, MemoryPolicy, MemoryPolicyError, MemoryStateError, Reservation, by_node};
use crate::node::hardware::Hardware;
use crate::topology_manager::{self, MOST_NODES, Policy, PolicyKind, Scope, TopologyPolicyError};

/// The settings of the managers, by upstream's fields.
#[derive(Debug, Clone)]
pub struct Options {
    /// `cpuManagerPolicy`.
    pub cpu: CpuPolicy,
    /// `cpuManagerPolicyOptions`.
    pub cpu_options: BTreeMap<String, String>,
    /// `cpuManagerReconcilePeriod`.
    pub reconcile: Duration,
    /// `reservedSystemCPUs`.
    pub reserved_cpus: CpuSet,
    /// `memoryManagerPolicy`.
    pub memory: MemoryPolicy,
    /// `reservedMemory`.
    pub reserved_memory: Vec<Reservation>,
    /// `topologyManagerPolicy`.
    pub topology: PolicyKind,
    /// `topologyManagerPolicyOptions`.
    pub topology_options: BTreeMap<String, String>,
    /// `topologyManagerScope`.
    pub scope: Scope,
    /// The gates that hide options and change what the managers do.
    pub gates: FeatureGates,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cpu: CpuPolicy::default(),
            cpu_options: BTreeMap::new(),
            reconcile: Duration::from_secs(10),
            reserved_cpus: CpuSet::new(),
            memory: MemoryPolicy::default(),
            reserved_memory: Vec::new(),
            topology: PolicyKind::default(),
            topology_options: BTreeMap::new(),
            scope: Scope::default(),
            gates: FeatureGates::default(),
        }
    }
}

/// Why the managers cannot start; upstream's texts.
#[derive(Debug, thiserror::Error)]
pub enum ManagersError {
    /// The NUMA nodes do not fit the topology manager.
    #[error(transparent)]
    Topology(#[from] TopologyPolicyError),
    /// The processors are not known.
    #[error(transparent)]
    Cpus(#[from] TopologyError),
    /// Processors that are to be kept for the system are not there.
    #[error("reserved-cpus: {reserved} is not a subset of online-cpus: {online}")]
    Offline {
        /// Those to be kept.
        reserved: CpuSet,
        /// Those that are there.
        online: CpuSet,
    },
    /// Options without a policy that has any.
    #[error("new none policy error: None policy: received unsupported options={0}")]
    OptionsOfNone(String),
    /// No processors are kept for the system.
    #[error("[cpumanager] unable to determine reserved CPU resources for static policy")]
    NoReservedCpus,
    /// The static policy cannot be had.
    #[error("new static policy error: {0}")]
    CpuPolicy(CpuPolicyError),
    /// Memory cannot be given.
    #[error(transparent)]
    MemoryPolicy(#[from] MemoryPolicyError),
    /// A file cannot be used.
    #[error(
        "start {manager} manager error: could not restore state from checkpoint: {error}, please drain this node and delete the {name} manager checkpoint file {} before restarting Kubelet",
        api::go::quote(.path)
    )]
    Restore {
        /// `cpu` or `memory`.
        manager: &'static str,
        /// `CPU` or `memory`.
        name: &'static str,
        /// Why.
        error: Box<dyn std::error::Error + Send + Sync>,
        /// The file.
        path: String,
    },
    /// The processors of a file do not fit the machine.
    #[error("start cpu manager error: {0}")]
    CpuState(CpuStateError),
    /// The memory of a file does not fit the machine.
    #[error("start memory manager error: {0}")]
    MemoryState(MemoryStateError),
}

/// The policies of a machine.
pub(super) struct Policies {
    pub(super) topology: Policy,
    pub(super) cpu: Option<StaticPolicy>,
    pub(super) memory: Option<memory_manager::StaticPolicy>,
}

impl Options {
    /// Whether Pods may say what they want as a whole.
    pub(super) fn pod_level(&self) -> bool {
        self.gates.enabled(Gate::PodLevelResourceManagers) && self.gates.enabled(Gate::PodLevelResources)
    }

    /// Whether the time of containers on processors of their own is not limited.
    pub(super) fn lifts_quota(&self) -> bool {
        self.gates.enabled(Gate::DisableCPUQuotaWithExclusiveCPUs)
    }

    /// The resources that guaranteed Pods keep as they are, each with upstream's name of what holds it.
    pub(super) fn holds(&self) -> Vec<(&'static str, &'static str)> {
        let mut all = Vec::new();
        let on = |gate| self.gates.enabled(gate);
        if self.cpu == CpuPolicy::Static && !on(Gate::InPlacePodVerticalScalingExclusiveCPUs) {
            all.push(("cpu", "CPU Manager policy \"static\""));
        }
        if self.memory == MemoryPolicy::Static && !on(Gate::InPlacePodVerticalScalingExclusiveMemory) {
            all.push(("memory", "Memory Manager policy \"Static\""));
        }
        all
    }

    /// The policies that these settings mean on a machine below `root`, which keeps processors (in thousandths) and
    /// bytes of memory from Pods.
    ///
    /// # Errors
    /// They do not fit it.
    pub(super) fn policies(
        &self,
        root: &Path,
        kept_milli: u64,
        kept_memory: u64,
    ) -> Result<Policies, ManagersError> {
        let all_none = self.cpu == CpuPolicy::None
            && self.memory == MemoryPolicy::None
            && self.topology == PolicyKind::None
            && self.reserved_cpus.is_empty();
        let hardware = if all_none { Hardware::default() } else { Hardware::read(root) };
        let topology = topology_manager::policy(self.topology, &self.topology_options, &hardware)?;
        let online = hardware.cpus();
        if !self.reserved_cpus.is_subset(&online) {
            return Err(ManagersError::Offline { reserved: self.reserved_cpus.clone(), online });
        }
        Ok(Policies {
            topology,
            cpu: self.cpus(&hardware, kept_milli)?,
            memory: self.blocks(&hardware, kept_memory)?,
        })
    }

    fn cpus(&self, hardware: &Hardware, milli: u64) -> Result<Option<StaticPolicy>, ManagersError> {
        if self.cpu == CpuPolicy::None {
            if self.cpu_options.is_empty() {
                return Ok(None);
            }
            let all: Vec<String> = self.cpu_options.iter().map(|(k, v)| format!("{k}:{v}")).collect();
            return Err(ManagersError::OptionsOfNone(format!("map[{}]", all.join(" "))));
        }
        let topology = CpuTopology::of(hardware)?;
        if self.topology != PolicyKind::None && topology.numas > MOST_NODES {
            return Err(TopologyPolicyError::TooManyNodes(MOST_NODES).into());
        }
        let reserved_count = usize::try_from(milli.div_ceil(1000)).unwrap_or(usize::MAX);
        if milli == 0 {
            return Err(ManagersError::NoReservedCpus);
        }
        let options = CpuOptions::parse(&self.cpu_options, self.gates)
            .map_err(|error| ManagersError::CpuPolicy(error.into()))?;
        let settings = StaticSettings {
            topology,
            reserved_count,
            reserved: self.reserved_cpus.clone(),
            options,
            topology_policy: self.topology,
            pod_level: self.pod_level(),
        };
        StaticPolicy::new(settings).map(Some).map_err(ManagersError::CpuPolicy)
    }

    fn blocks(
        &self,
        hardware: &Hardware,
        kept: u64,
    ) -> Result<Option<memory_manager::StaticPolicy>, ManagersError> {
        if self.memory == MemoryPolicy::None {
            return Ok(None);
        }
        let machine = [("memory".to_owned(), kept)].into_iter().filter(|(_, bytes)| *bytes > 0).collect();
        let reserved = by_node(hardware, &machine, &self.reserved_memory).map_err(MemoryPolicyError::from)?;
        Ok(Some(memory_manager::StaticPolicy::new(hardware, reserved, self.pod_level())?))
    }
}
