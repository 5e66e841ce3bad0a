//! The use of resources by the node, its Pods and their containers, gathered from the runtime, the kernel and the disks.

pub(crate) mod collect;
pub(crate) mod disks;
mod network;
mod probes;
pub(crate) mod room;
pub(crate) mod summary;
pub(crate) mod tree;
pub(crate) mod usage;

use jiff::Timestamp;

use self::disks::VolumeUse;
pub(crate) use self::network::Interface;
use self::tree::Taken;
use self::usage::Usage;
use crate::node::machine::{Filesystem, Pids};

/// A container's.
#[derive(Debug, Clone, Default)]
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) usage: Usage,
    pub(crate) started: Option<Timestamp>,
    /// The writable layer.
    pub(crate) layer: Option<Taken>,
    /// The logs.
    pub(crate) logs: Option<Taken>,
}

/// A Pod's.
#[derive(Debug, Clone, Default)]
pub(crate) struct PodStats {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) started: Option<Timestamp>,
    pub(crate) containers: Vec<Container>,
    pub(crate) usage: Usage,
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) processes: Option<u64>,
    /// When volumes and logs were measured, if they were.
    pub(crate) measured: Option<Timestamp>,
    /// The volumes that are measured here.
    pub(crate) volumes: Vec<VolumeUse>,
    /// The room that the Pod as a whole takes of the node's disk beside containers and volumes.
    pub(crate) others: Taken,
}

impl PodStats {
    /// The room that the Pod takes of the node's disks: layers, logs, and volumes that go with it; upstream's sum.
    pub(crate) fn ephemeral_storage(&self) -> Taken {
        let mut total = self.others;
        for container in &self.containers {
            // Upstream counts no logs of a container whose layer is not known.
            if let Some(layer) = container.layer {
                total.add(layer);
                total.add(container.logs.unwrap_or_default());
            }
        }
        for volume in self.volumes.iter().filter(|v| v.ephemeral) {
            total.add(volume.taken);
        }
        total
    }
}

/// The node's and its Pods'.
#[derive(Debug, Clone)]
pub(crate) struct Stats {
    pub(crate) node: Usage,
    /// Memory that Pods can still get, in bytes.
    pub(crate) available: Option<u64>,
    pub(crate) started: Option<Timestamp>,
    pub(crate) interfaces: Vec<Interface>,
    /// Cgroups of the system: upstream's names for them, when they began, and their use.
    pub(crate) system: Vec<(&'static str, Option<Timestamp>, Usage)>,
    pub(crate) nodefs: Option<Filesystem>,
    /// The file system of images, and what they take of it.
    pub(crate) imagefs: Option<(Filesystem, Taken)>,
    /// The file system of containers, and what they take of it.
    pub(crate) containerfs: Option<(Filesystem, Taken)>,
    pub(crate) pids: Option<Pids>,
    /// Memory that all Pods together may still take, in bytes, where they have a limit.
    pub(crate) pods_available: Option<u64>,
    pub(crate) pods: Vec<PodStats>,
}
