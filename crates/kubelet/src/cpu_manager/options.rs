//! `cpuManagerPolicyOptions`: upstream's rules and texts. Pure.

use std::collections::BTreeMap;

use api::{FeatureGates, Gate};

use super::topology::CpuTopology;
use crate::topology_manager::PolicyKind;

const FULL_CORES: &str = "full-pcpus-only";
const DISTRIBUTE_NUMA: &str = "distribute-cpus-across-numa";
const BY_SOCKET: &str = "align-by-socket";
const DISTRIBUTE_CORES: &str = "distribute-cpus-across-cores";
const STRICT: &str = "strict-cpu-reservation";
const BY_UNCORE: &str = "prefer-align-cpus-by-uncorecache";

/// Every option with the gate that hides it.
const ALL: [(&str, Option<Gate>); 6] = [
    (FULL_CORES, None),
    (STRICT, None),
    (BY_UNCORE, None),
    (DISTRIBUTE_NUMA, Some(Gate::CPUManagerPolicyBetaOptions)),
    (BY_SOCKET, Some(Gate::CPUManagerPolicyAlphaOptions)),
    (DISTRIBUTE_CORES, Some(Gate::CPUManagerPolicyAlphaOptions)),
];
/// Options that exclude each other, in upstream's order.
const EXCLUSIVE: [(&str, &str); 4] = [
    (FULL_CORES, DISTRIBUTE_CORES),
    (DISTRIBUTE_NUMA, DISTRIBUTE_CORES),
    (BY_UNCORE, DISTRIBUTE_CORES),
    (BY_UNCORE, DISTRIBUTE_NUMA),
];

/// The options of the static policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CpuOptions {
    /// A container gets whole cores, or nothing.
    pub(crate) full_cores: bool,
    /// Processors come evenly from NUMA nodes.
    pub(crate) distribute_numa: bool,
    /// Processors are near to each other if they are in one socket.
    pub(crate) by_socket: bool,
    /// Processors come from different cores.
    pub(crate) distribute_cores: bool,
    /// Nobody but the system uses what is kept for it.
    pub(crate) strict: bool,
    /// Processors share a cache if they can.
    pub(crate) by_uncore: bool,
}

/// An option that cannot be taken; upstream's texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CpuOptionError {
    /// There is no such option.
    #[error("unknown CPU Manager Policy option: {}", api::go::quote(.0))]
    Unknown(String),
    /// Its gate is off.
    #[error(
        "CPU Manager Policy {}-level Options not enabled, but option {} provided",
        .stage,
        api::go::quote(.name)
    )]
    Hidden {
        /// `Alpha` or `Beta`.
        stage: &'static str,
        /// The option.
        name: &'static str,
    },
    /// It is no boolean.
    #[error(
        "bad value for option {}: strconv.ParseBool: parsing {}: invalid syntax",
        api::go::quote(.0),
        api::go::quote(.1)
    )]
    NoBool(&'static str, String),
    /// Two exclude each other.
    #[error("static policy options {0} and {1} can not be used at the same time")]
    Exclusive(&'static str, &'static str),
    /// The topology manager has another measure.
    #[error(
        "Topolgy manager single-numa-node policy is incompatible with CPUManager {BY_SOCKET} policy option"
    )]
    SingleNumaNode,
    /// A NUMA node holds several sockets.
    #[error(
        "Align by socket is not compatible with hardware where number of sockets are more than number of NUMA"
    )]
    MoreSockets,
}

impl CpuOptions {
    /// Reads options by their names, behind the gates.
    ///
    /// # Errors
    /// One is none, is hidden, or excludes another one.
    pub(crate) fn parse(
        options: &BTreeMap<String, String>,
        gates: FeatureGates,
    ) -> Result<Self, CpuOptionError> {
        let mut on: Vec<&'static str> = Vec::new();
        for (name, value) in options {
            let known = ALL.iter().find(|(known, _)| known == name);
            let (name, gate) = known.copied().ok_or_else(|| CpuOptionError::Unknown(name.clone()))?;
            if let Some(gate) = gate.filter(|gate| !gates.enabled(*gate)) {
                let alpha = gate == Gate::CPUManagerPolicyAlphaOptions;
                return Err(CpuOptionError::Hidden { stage: if alpha { "Alpha" } else { "Beta" }, name });
            }
            let value = api::go::parse_bool(value).ok_or_else(|| CpuOptionError::NoBool(name, value.clone()));
            if value? {
                on.push(name);
            }
        }
        if let Some((a, b)) = EXCLUSIVE.into_iter().find(|(a, b)| on.contains(a) && on.contains(b)) {
            return Err(CpuOptionError::Exclusive(a, b));
        }
        let has = |name| on.contains(&name);
        Ok(Self {
            full_cores: has(FULL_CORES),
            distribute_numa: has(DISTRIBUTE_NUMA),
            by_socket: has(BY_SOCKET),
            distribute_cores: has(DISTRIBUTE_CORES),
            strict: has(STRICT),
            by_uncore: has(BY_UNCORE),
        })
    }

    /// Whether they fit the machine and the topology manager's policy.
    ///
    /// # Errors
    /// They do not.
    pub(crate) fn validate(self, topology: &CpuTopology, policy: PolicyKind) -> Result<(), CpuOptionError> {
        if self.by_socket && policy == PolicyKind::SingleNumaNode {
            return Err(CpuOptionError::SingleNumaNode);
        }
        if self.by_socket && topology.sockets > topology.numas {
            return Err(CpuOptionError::MoreSockets);
        }
        Ok(())
    }
}
