//! The Node object as those who run Pods need it.

use std::sync::Arc;

use client::Informer;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use objects::quantity::ResourceList;

use super::machine::meminfo_bytes;

/// This node: its object, and what the machine has.
#[derive(Clone)]
pub(crate) struct NodeView {
    name: String,
    nodes: Informer<Node>,
    cpus: usize,
    /// In bytes.
    memory: i64,
}

impl NodeView {
    /// The node of a name, which `nodes` knows.
    pub(crate) fn new(name: &str, nodes: Informer<Node>) -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let memory = meminfo_bytes(&meminfo, "MemTotal").and_then(|bytes| i64::try_from(bytes).ok());
        Self { name: name.to_owned(), nodes, cpus, memory: memory.unwrap_or(0) }
    }

    /// The Node object, once it is known.
    pub(crate) fn object(&self) -> Option<Arc<Node>> {
        self.nodes.get("", &self.name)
    }

    /// The resources that the node gives to Pods; all that the machine has, until the Node object says less.
    pub(crate) fn allocatable(&self) -> ResourceList {
        let known = self.object().and_then(|n| n.status.as_ref()?.allocatable.clone());
        known.unwrap_or_else(|| {
            ResourceList::from([
                ("cpu".to_owned(), Quantity(self.cpus.to_string())),
                ("memory".to_owned(), Quantity(self.memory.to_string())),
            ])
        })
    }

    /// Processors of this machine.
    pub(crate) fn cpus(&self) -> usize {
        self.cpus
    }

    /// Memory of this machine in bytes; 0 where the kernel does not say.
    pub(crate) fn memory(&self) -> i64 {
        self.memory
    }
}
