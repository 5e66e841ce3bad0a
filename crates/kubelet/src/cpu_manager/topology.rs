//! Where processors are in the machine. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::cpu_set::CpuSet;
use crate::node::hardware::Hardware;

/// A part of the machine that holds processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// A NUMA node.
    Numa,
    /// A socket.
    Socket,
    /// The last cache that some cores share.
    Uncore,
    /// A core, which has one or more processors.
    Core,
}

/// The place of a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuInfo {
    /// The NUMA node.
    pub numa: usize,
    /// The socket.
    pub socket: usize,
    /// The core: the least number of its processors.
    pub core: usize,
    /// The cache.
    pub uncore: usize,
}

impl CpuInfo {
    /// The part of a level that holds the processor.
    pub fn at(&self, level: Level) -> usize {
        match level {
            Level::Numa => self.numa,
            Level::Socket => self.socket,
            Level::Uncore => self.uncore,
            Level::Core => self.core,
        }
    }
}

/// Processors with their places.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuDetails(pub BTreeMap<usize, CpuInfo>);

impl CpuDetails {
    /// All of them.
    pub fn cpus(&self) -> CpuSet {
        self.0.keys().copied().collect()
    }
    /// Those among `cpus`.
    #[must_use]
    pub fn keep_only(&self, cpus: &CpuSet) -> Self {
        Self(self.0.iter().filter(|(cpu, _)| cpus.contains(**cpu)).map(|(c, i)| (*c, *i)).collect())
    }
    /// The parts of a level that hold any.
    pub fn parts(&self, level: Level) -> BTreeSet<usize> {
        self.0.values().map(|info| info.at(level)).collect()
    }
    /// The parts of a level that hold any that are in a part of another level, too.
    pub fn parts_in(&self, level: Level, outer: Level, part: usize) -> BTreeSet<usize> {
        self.0.values().filter(|info| info.at(outer) == part).map(|info| info.at(level)).collect()
    }
    /// Those in a part of the machine.
    pub fn cpus_in(&self, level: Level, part: usize) -> CpuSet {
        self.0.iter().filter(|(_, info)| info.at(level) == part).map(|(cpu, _)| *cpu).collect()
    }
    /// Those in any of some parts.
    pub fn cpus_in_any(&self, level: Level, parts: &[usize]) -> CpuSet {
        self.0.iter().filter(|(_, info)| parts.contains(&info.at(level))).map(|(cpu, _)| *cpu).collect()
    }
    /// How many are in a part of the machine.
    pub fn count_in(&self, level: Level, part: usize) -> usize {
        self.0.values().filter(|info| info.at(level) == part).count()
    }
}

/// The processors of a machine, and how many parts of each kind it has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuTopology {
    /// Processors.
    pub cpus: usize,
    /// Cores.
    pub cores: usize,
    /// Caches that some cores share.
    pub uncores: usize,
    /// Sockets.
    pub sockets: usize,
    /// NUMA nodes with processors.
    pub numas: usize,
    /// The processors.
    pub details: CpuDetails,
}

/// Why the processors are not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// There are none.
    #[error("could not detect number of cpus")]
    NoCpus,
}

impl CpuTopology {
    /// The topology of a machine.
    ///
    /// # Errors
    /// No processor was found.
    pub fn of(hardware: &Hardware) -> Result<Self, TopologyError> {
        let mut details = BTreeMap::new();
        let mut cores = 0;
        for node in &hardware.nodes {
            cores += node.cores.len();
            for core in &node.cores {
                let Some(first) = core.threads.iter().min() else { continue };
                let uncore = core.uncore.unwrap_or(core.socket);
                let info = CpuInfo { numa: node.id, socket: core.socket, core: *first, uncore };
                details.extend(core.threads.iter().map(|cpu| (*cpu, info)));
            }
        }
        if details.is_empty() {
            return Err(TopologyError::NoCpus);
        }
        let details = CpuDetails(details);
        let count = |level| details.parts(level).len();
        Ok(Self {
            cpus: details.0.len(),
            cores,
            uncores: count(Level::Uncore),
            sockets: count(Level::Socket),
            numas: count(Level::Numa),
            details,
        })
    }

    /// Processors of each core; upstream's rule, which takes all for equal.
    pub fn per_core(&self) -> usize {
        self.cpus.checked_div(self.cores).unwrap_or_default()
    }
    /// Processors of each socket.
    pub fn per_socket(&self) -> usize {
        self.cpus.checked_div(self.sockets).unwrap_or_default()
    }
    /// Processors of each cache.
    pub fn per_uncore(&self) -> usize {
        self.cpus.checked_div(self.uncores).unwrap_or_default()
    }

    /// Whether processors share one cache; one that is not known shares none.
    pub fn is_aligned_by_uncore(&self, cpus: &CpuSet) -> bool {
        if cpus.len() <= 1 {
            return true;
        }
        let all: Option<BTreeSet<usize>> =
            cpus.iter().map(|cpu| Some(self.details.0.get(&cpu)?.uncore)).collect();
        all.is_some_and(|caches| caches.len() == 1)
    }
}
