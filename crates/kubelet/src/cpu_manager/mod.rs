//! Processors that containers have alone (upstream: `pkg/kubelet/cm/cpumanager`).
//!
//! The machine's processors and their places (`topology`) are shared by all containers, but those that guaranteed ones
//! ask for as a whole (`wanted`, `policy`), which are near to each other (`assignment`). A file says who has which
//! (`state`). Everything here is pure; `crate::resource_managers` reads, writes and tells the runtime.

mod assignment;
mod cpu_set;
mod options;
mod policy;
mod state;
mod topology;
pub(crate) mod wanted;

#[cfg(test)]
mod tests;

pub use self::cpu_set::{CpuSet, CpuSetError};
pub use self::options::CpuOptionError;
pub(crate) use self::options::CpuOptions;
pub use self::policy::{CpuPolicyError, CpuStateError};
pub(crate) use self::policy::{StaticPolicy, StaticSettings};
pub(crate) use self::state::{CpuState, FILE, decode, encode, is_old};
pub use self::topology::{CpuDetails, CpuInfo, CpuTopology, Level, TopologyError};

/// Whether containers get processors alone; upstream's `cpuManagerPolicy`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CpuPolicy {
    /// All share all.
    #[default]
    None,
    /// Guaranteed containers that ask for whole ones have them alone.
    Static,
}

impl CpuPolicy {
    /// Every policy with upstream's name of it.
    pub const ALL: [(Self, &'static str); 2] = [(Self::None, "none"), (Self::Static, "static")];

    /// The policy of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known)| *known == name).map(|(policy, _)| policy)
    }
    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(policy, _)| *policy == self).map_or("", |(_, name)| name)
    }
}
