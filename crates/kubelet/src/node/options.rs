//! How the Node is registered and reported.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Taint;

use super::machine::{IdFiles, Machine};

/// Parts of the node that Pods do not get; upstream's `kubeReserved` and `systemReserved` together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reserved {
    /// Processors, in thousandths.
    pub milli_cpus: u64,
    /// Memory in bytes.
    pub memory: u64,
    /// Room of the disk in bytes.
    pub storage: u64,
    /// Process ids.
    pub pids: u64,
}

/// The owner of a part of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// The processes of the system.
    System,
    /// The parts of Kubernetes that are no Pods.
    Kube,
}

/// A cgroup that is held to a part of the node; upstream's `systemReservedCgroup` and `kubeReservedCgroup`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservedCgroup {
    /// Its owner.
    pub of: Others,
    /// Its name, such as `/system.slice`; somebody else makes it.
    pub name: String,
    /// Processors in thousandths, if there is a word on them.
    pub milli_cpus: Option<u64>,
    /// Memory in bytes, if there is a word on it.
    pub memory: Option<u64>,
    /// Process ids, if there is a word on them.
    pub pids: Option<u64>,
    /// Whether it is held to its processors alone.
    pub compressible: bool,
}

/// How the Node is registered.
#[derive(Debug, Clone)]
pub struct Options {
    /// The host name it reports; its own name without.
    pub hostname: Option<String>,
    /// The port of this kubelet's server.
    pub port: u16,
    /// More labels.
    pub labels: BTreeMap<String, String>,
    /// Taints of a new Node.
    pub taints: Vec<Taint>,
    /// Whether the Node is registered; otherwise somebody else makes it.
    pub register: bool,
    /// Whether the controller manager attaches volumes to the node, and not this kubelet; upstream's
    /// `enableControllerAttachDetach`.
    pub controller_attaches: bool,
    /// The identity of the machine at its cloud provider.
    pub provider_id: Option<String>,
    /// Whether a cloud provider outside the kubelet initializes the Node.
    pub external_cloud: bool,
    /// Whether the node's addresses were asked for, and not found.
    pub own_addresses: bool,
    /// How often the status is made, and how long a request may take that reports it; upstream's
    /// `nodeStatusUpdateFrequency`.
    pub update: Duration,
    /// A status that only its heartbeats differ in is sent this often; upstream's `nodeStatusReportFrequency`.
    pub report: Duration,
    /// How long the node counts as alive after a renewal of its Lease; upstream's `nodeLeaseDurationSeconds`.
    pub lease: Duration,
    /// The most images reported, all without; upstream's `nodeStatusMaxImages`.
    pub max_images: Option<usize>,
    /// The parts that Pods do not get.
    pub reserved: Reserved,
    /// Whether Pods together are held to what the node gives; upstream's `enforceNodeAllocatable`.
    pub enforce_allocatable: bool,
    /// The cgroups that are held to parts of the node.
    pub reserved_cgroups: Vec<ReservedCgroup>,
    /// Whether Pods do not get what evictions keep free; upstream's `--experimental-allocatable-ignore-eviction` is the
    /// opposite.
    pub kept_for_evictions: bool,
    /// The files that have the machine's identities.
    pub ids: IdFiles,
    /// The number of nodes that share this machine; each has an equal part of its processors and memory.
    pub nodes_of_machine: u32,
}

impl Options {
    /// The machine, or the part of it that the node has.
    pub(crate) fn machine(&self) -> Machine {
        Machine::read(&self.ids).shared_by(self.nodes_of_machine)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            hostname: None,
            port: 10250,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            register: true,
            controller_attaches: true,
            provider_id: None,
            external_cloud: false,
            own_addresses: false,
            update: Duration::from_secs(10),
            report: Duration::from_mins(5),
            lease: Duration::from_secs(40),
            max_images: Some(50),
            reserved: Reserved::default(),
            enforce_allocatable: true,
            reserved_cgroups: Vec::new(),
            kept_for_evictions: true,
            ids: IdFiles::default(),
            nodes_of_machine: 1,
        }
    }
}
