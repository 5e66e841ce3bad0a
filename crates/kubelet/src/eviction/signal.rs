//! The signals by which the kubelet sees that the node runs short of something.

use std::fmt;
use std::str::FromStr;

/// A signal: what is looked at, and of what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Signal {
    /// Memory of the node.
    Memory,
    /// Memory that all Pods may have together.
    AllocatableMemory,
    /// Bytes of the file system of the kubelet's directory.
    NodeFs,
    /// Inodes of the file system of the kubelet's directory.
    NodeFsInodes,
    /// Bytes of the file system of images.
    ImageFs,
    /// Inodes of the file system of images.
    ImageFsInodes,
    /// Bytes of the file system of containers' layers.
    ContainerFs,
    /// Inodes of the file system of containers' layers.
    ContainerFsInodes,
    /// Process ids.
    Pids,
}

/// All of them, by upstream's names.
const NAMES: [(Signal, &str); 9] = [
    (Signal::Memory, "memory.available"),
    (Signal::AllocatableMemory, "allocatableMemory.available"),
    (Signal::NodeFs, "nodefs.available"),
    (Signal::NodeFsInodes, "nodefs.inodesFree"),
    (Signal::ImageFs, "imagefs.available"),
    (Signal::ImageFsInodes, "imagefs.inodesFree"),
    (Signal::ContainerFs, "containerfs.available"),
    (Signal::ContainerFsInodes, "containerfs.inodesFree"),
    (Signal::Pids, "pid.available"),
];

/// Text that names no signal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unsupported eviction signal {0}")]
pub struct UnknownSignal(String);

impl FromStr for Signal {
    type Err = UnknownSignal;

    fn from_str(text: &str) -> Result<Self, UnknownSignal> {
        let found = NAMES.iter().find(|(_, name)| *name == text);
        found.map(|(signal, _)| *signal).ok_or_else(|| UnknownSignal(text.to_owned()))
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A shortage of the node, as its conditions tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Condition {
    Disk,
    Memory,
    Pid,
}

impl Condition {
    /// The type of the Node's condition.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Disk => "DiskPressure",
            Self::Memory => "MemoryPressure",
            Self::Pid => "PIDPressure",
        }
    }
}

impl Signal {
    /// Upstream's name.
    pub fn name(self) -> &'static str {
        // Each signal is in the table; a test looks.
        NAMES.iter().find(|(signal, _)| *signal == self).map_or("", |(_, name)| name)
    }

    /// The condition of the Node that it stands for.
    pub(crate) fn condition(self) -> Condition {
        match self {
            Self::Memory | Self::AllocatableMemory => Condition::Memory,
            Self::Pids => Condition::Pid,
            _ => Condition::Disk,
        }
    }

    /// The resource that is short, as messages name it.
    pub(crate) fn resource(self) -> &'static str {
        match self {
            Self::Memory | Self::AllocatableMemory => "memory",
            Self::NodeFs | Self::ImageFs | Self::ContainerFs => "ephemeral-storage",
            Self::NodeFsInodes | Self::ImageFsInodes | Self::ContainerFsInodes => "inodes",
            Self::Pids => "pids",
        }
    }

    /// Whether amounts are bytes.
    pub(crate) fn is_bytes(self) -> bool {
        !matches!(self, Self::NodeFsInodes | Self::ImageFsInodes | Self::ContainerFsInodes | Self::Pids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (signal, name) in NAMES {
            assert_eq!((name.parse(), signal.name()), (Ok(signal), name));
        }
        assert!("mem.available".parse::<Signal>().is_err());
    }
}
