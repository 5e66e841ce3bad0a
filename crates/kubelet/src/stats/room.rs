//! The room that is left on the node, read from the kernel alone: no call to the runtime is needed to see a shortage.

use std::path::{Path, PathBuf};

use crate::cgroups::Cgroups;
use crate::config::Config;
use crate::health::Health;
use crate::node::machine::{Filesystem, Pids, memory_available};

/// A resource's capacity and what is left of it, in bytes.
pub(crate) type Left = (u64, u64);

/// The room that is left. None where it cannot be measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// The node's memory.
    pub(crate) memory: Option<Left>,
    /// The memory that all Pods may have together.
    pub(crate) pods_memory: Option<Left>,
    /// The file system of the kubelet's directory.
    pub(crate) nodefs: Option<Filesystem>,
    /// The file system of the images.
    pub(crate) imagefs: Option<Filesystem>,
    /// The file system of the containers' layers.
    pub(crate) containerfs: Option<Filesystem>,
    /// Process ids.
    pub(crate) pids: Option<Pids>,
}

impl Room {
    /// Reads it; `memory` is how much the node has.
    pub(crate) fn read(config: &Config, health: &Health, cgroups: &Cgroups, memory: u64) -> Self {
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let (images, containers) = health.file_systems();
        let of = |path: Option<PathBuf>| path.as_deref().and_then(Filesystem::of);
        let imagefs = of(images);
        Self {
            // A machine that is short of memory is so for each of its nodes.
            memory: memory_available(&meminfo).map(|available| (memory, available.min(memory))),
            pods_memory: cgroups.memory_of_pods(),
            nodefs: Filesystem::of(existing(&config.root_dir)),
            imagefs,
            containerfs: of(containers).or(imagefs),
            pids: Pids::read(),
        }
    }
}

/// The nearest directory above a path that is there.
pub(crate) fn existing(path: &Path) -> &Path {
    path.ancestors().find(|p| p.exists()).unwrap_or(path)
}
