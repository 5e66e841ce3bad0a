//! The Node object as those who run Pods need it.

use std::sync::{Arc, OnceLock};

use client::Informer;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use objects::quantity::ResourceList;

use super::machine::{IdFiles, Machine};
use super::status::processors;

/// This node: its object, and what the machine has.
#[derive(Clone)]
pub(crate) struct NodeView {
    name: String,
    nodes: Informer<Node>,
    milli_cpus: u64,
    /// In bytes.
    memory: i64,
    /// The Node as this kubelet would register it.
    local: Arc<OnceLock<Arc<Node>>>,
}

impl NodeView {
    /// The node of a name, which `nodes` knows, one of so many that share this machine.
    pub(crate) fn new(name: &str, nodes: Informer<Node>, nodes_of_machine: u32) -> Self {
        let machine = Machine::read(&IdFiles::default()).shared_by(nodes_of_machine);
        let memory = i64::try_from(machine.memory).unwrap_or(i64::MAX);
        Self { name: name.to_owned(), nodes, milli_cpus: machine.milli_cpus, memory, local: Arc::default() }
    }

    /// Waits until it is known whether the API has the Node.
    pub(crate) async fn known(&self) {
        self.nodes.synced().await;
    }

    /// The Node object as the API has it.
    pub(crate) fn registered(&self) -> Option<Arc<Node>> {
        self.nodes.get("", &self.name)
    }

    /// The Node object, as the API has it, or as this kubelet would register it.
    pub(crate) fn object(&self) -> Option<Arc<Node>> {
        self.registered().or_else(|| self.local.get().cloned())
    }

    /// Takes the Node as this kubelet would register it.
    pub(crate) fn would_be(&self, node: Node) {
        // The first one counts; there is no other.
        let _ = self.local.set(Arc::new(node));
    }

    /// The resources that the node gives to Pods; all that the machine has, until the Node object says less.
    pub(crate) fn allocatable(&self) -> ResourceList {
        let known = self.object().and_then(|n| n.status.as_ref()?.allocatable.clone());
        known.unwrap_or_else(|| {
            ResourceList::from([
                ("cpu".to_owned(), processors(self.milli_cpus)),
                ("memory".to_owned(), Quantity(self.memory.to_string())),
            ])
        })
    }
}
