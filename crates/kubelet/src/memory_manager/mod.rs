//! Memory of few NUMA nodes for containers (upstream: `pkg/kubelet/cm/memorymanager`).
//!
//! Of each NUMA node something is kept for the system (`reserved`); guaranteed containers get memory and huge pages
//! (`wanted`) of as few nodes as can be (`policy`). A file says who has which (`state`). Everything here is pure;
//! `crate::resource_managers` reads and writes.

mod policy;
mod reserved;
mod state;
mod wanted;

#[cfg(test)]
mod tests;

pub(crate) use self::policy::StaticPolicy;
pub use self::policy::{MemoryPolicyError, MemoryStateError};
pub(crate) use self::reserved::by_node;
pub use self::reserved::{Reservation, ReservedError};
pub(crate) use self::state::{Block, FILE, MemoryState, decode, encode};

/// Whether containers get memory of few NUMA nodes; upstream's `memoryManagerPolicy`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MemoryPolicy {
    /// Of any.
    #[default]
    None,
    /// Guaranteed ones do.
    Static,
}

impl MemoryPolicy {
    /// Every policy with upstream's name of it.
    pub const ALL: [(Self, &'static str); 2] = [(Self::None, "None"), (Self::Static, "Static")];

    /// The policy of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known)| *known == name).map(|(policy, _)| policy)
    }
    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(policy, _)| *policy == self).map_or("", |(_, name)| name)
    }
}
