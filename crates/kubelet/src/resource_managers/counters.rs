//! Counters of what Pods are given; upstream's names.

use std::collections::BTreeMap;
use std::time::Duration;

use component::metrics::{Histogram, Page};
use parking_lot::Mutex;

/// A resource that is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Resource {
    /// Processors.
    Cpu,
    /// Memory.
    Memory,
}

impl Resource {
    fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
        }
    }
}

/// The kind of a container's part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Assignment {
    /// Its own part of the node.
    NodeExclusive,
    /// Its own part of what its Pod has.
    PodExclusive,
    /// The rest of its Pod's part.
    PodShared,
}

impl Assignment {
    fn name(self) -> &'static str {
        match self {
            Self::NodeExclusive => "node_exclusive",
            Self::PodExclusive => "pod_exclusive",
            Self::PodShared => "pod_shared",
        }
    }
}

type Labelled = BTreeMap<(&'static str, &'static str), u64>;

#[derive(Debug)]
struct Inner {
    pinnings: BTreeMap<Resource, u64>,
    failed: BTreeMap<Resource, u64>,
    /// By scope and boundary.
    aligned: Labelled,
    unaligned: Labelled,
    admissions: u64,
    refusals: u64,
    took: Histogram,
    allocations: Labelled,
    errors: Labelled,
    assignments: Labelled,
}

/// The counters.
#[derive(Debug)]
pub(crate) struct Counters(Mutex<Inner>);

/// Bounds in milliseconds; upstream's.
const MILLISECONDS: &[f64] =
    &[0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6, 819.2];

/// The amounts of processors that are told of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CpuGauges {
    /// Those that all share, but for the system's, in thousandths.
    pub(crate) shared_milli: usize,
    /// Those that containers have alone.
    pub(crate) exclusive: usize,
    /// The same by NUMA nodes.
    pub(crate) by_node: BTreeMap<usize, usize>,
}

impl Default for Counters {
    fn default() -> Self {
        Self(Mutex::new(Inner {
            pinnings: [(Resource::Cpu, 0), (Resource::Memory, 0)].into(),
            failed: [(Resource::Cpu, 0), (Resource::Memory, 0)].into(),
            aligned: Labelled::new(),
            unaligned: Labelled::new(),
            admissions: 0,
            refusals: 0,
            took: Histogram::new(MILLISECONDS),
            allocations: Labelled::new(),
            errors: Labelled::new(),
            assignments: Labelled::new(),
        }))
    }
}

impl Counters {
    /// A container or a Pod is to get a resource of its own.
    pub(crate) fn pinning(&self, resource: Resource) {
        *self.0.lock().pinnings.entry(resource).or_default() += 1;
    }
    /// It did not get it, of the `node` or of its `pod`.
    pub(crate) fn pinning_failed(&self, resource: Resource, source: &'static str) {
        let mut inner = self.0.lock();
        *inner.failed.entry(resource).or_default() += 1;
        *inner.errors.entry((resource.name(), source)).or_default() += 1;
    }
    /// A container got a resource of the `node` or of its `pod`.
    pub(crate) fn allocated(&self, resource: Resource, source: &'static str) {
        *self.0.lock().allocations.entry((resource.name(), source)).or_default() += 1;
    }
    /// A container has a part of a kind.
    pub(crate) fn assigned(&self, resource: Resource, assignment: Assignment) {
        *self.0.lock().assignments.entry((resource.name(), assignment.name())).or_default() += 1;
    }
    /// Resources of a scope are within a boundary, or cannot be.
    pub(crate) fn aligned(&self, scope: &'static str, boundary: &'static str, is: bool) {
        let mut inner = self.0.lock();
        let counts = if is { &mut inner.aligned } else { &mut inner.unaligned };
        *counts.entry((scope, boundary)).or_default() += 1;
    }
    /// Shows counts of a boundary although nothing was counted yet.
    pub(crate) fn shows(&self, scope: &'static str, boundary: &'static str, failures: bool) {
        let mut inner = self.0.lock();
        inner.aligned.entry((scope, boundary)).or_default();
        if failures {
            inner.unaligned.entry((scope, boundary)).or_default();
        }
    }
    /// A Pod was decided about.
    pub(crate) fn admitted(&self, took: Duration, taken: bool) {
        let mut inner = self.0.lock();
        inner.admissions += 1;
        inner.refusals += u64::from(!taken);
        inner.took.observe((took.as_millis() as f64).floor());
    }

    /// Writes all of them; `pod_level` says whether Pods may say what they want as a whole.
    pub(super) fn write(&self, page: &mut Page, cpus: &CpuGauges, pod_level: bool) {
        let inner = self.0.lock();
        let mut one = |name: &str, kind: &str, help: &str, value: f64| {
            page.metric(name, kind, help);
            page.value(name, &[], value);
        };
        let of = |counts: &BTreeMap<Resource, u64>, r| counts.get(&r).copied().unwrap_or_default() as f64;
        let (c, m) = (Resource::Cpu, Resource::Memory);
        let counters = [
            (
                "kubelet_cpu_manager_pinning_requests_total",
                "[ALPHA] The number of cpu core allocations which required pinning.",
                of(&inner.pinnings, c),
            ),
            (
                "kubelet_cpu_manager_pinning_errors_total",
                "[ALPHA] The number of cpu core allocations which required pinning failed.",
                of(&inner.failed, c),
            ),
            (
                "kubelet_memory_manager_pinning_requests_total",
                "[ALPHA] The number of memory pages allocations which required pinning.",
                of(&inner.pinnings, m),
            ),
            (
                "kubelet_memory_manager_pinning_errors_total",
                "[ALPHA] The number of memory pages allocations which required pinning that failed.",
                of(&inner.failed, m),
            ),
            (
                "kubelet_topology_manager_admission_requests_total",
                "[ALPHA] The number of admission requests where resources have to be aligned.",
                inner.admissions as f64,
            ),
            (
                "kubelet_topology_manager_admission_errors_total",
                "[ALPHA] The number of admission request failures where resources could not be aligned.",
                inner.refusals as f64,
            ),
        ];
        for (name, help, value) in counters {
            one(name, "counter", help, value);
        }
        one(
            "kubelet_cpu_manager_shared_pool_size_millicores",
            "gauge",
            "[ALPHA] The size of the shared CPU pool for non-guaranteed QoS pods, in millicores.",
            cpus.shared_milli as f64,
        );
        one(
            "kubelet_cpu_manager_exclusive_cpu_allocation_count",
            "gauge",
            "[ALPHA] The total number of CPUs exclusively allocated to containers running on this node",
            cpus.exclusive as f64,
        );
        let name = "kubelet_cpu_manager_allocation_per_numa";
        page.metric(name, "gauge", "[ALPHA] Number of CPUs allocated per NUMA node");
        for (node, count) in &cpus.by_node {
            page.value(name, &[("numa_node", &node.to_string())], *count as f64);
        }
        let name = "kubelet_topology_manager_admission_duration_ms";
        page.metric(name, "histogram", "[ALPHA] Duration in milliseconds to serve a pod admission request.");
        page.histogram(name, &[], &inner.took);
        inner.write_labelled(page, pod_level);
    }
}

impl Inner {
    fn write_labelled(&self, page: &mut Page, pod_level: bool) {
        let always = [
            (
                "kubelet_container_aligned_compute_resources_count",
                "[ALPHA] Cumulative number of aligned compute resources allocated to containers by alignment type.",
                ["scope", "boundary"],
                &self.aligned,
            ),
            (
                "kubelet_container_aligned_compute_resources_failure_count",
                "[ALPHA] Cumulative number of failures to allocate aligned compute resources to containers by alignment type.",
                ["scope", "boundary"],
                &self.unaligned,
            ),
        ];
        let gated = [
            (
                "resource_manager_allocations_total",
                "[ALPHA] Number of exclusive resource allocations performed by a resource manager.",
                ["resource_name", "source"],
                &self.allocations,
            ),
            (
                "resource_manager_allocation_errors_total",
                "[ALPHA] Number of errors encountered during exclusive resource allocation.",
                ["resource_name", "source"],
                &self.errors,
            ),
            (
                "resource_manager_container_assignments",
                "[ALPHA] Number of containers with a specific type of resource assignment.",
                ["resource_name", "assignment_type"],
                &self.assignments,
            ),
        ];
        for (name, help, labels, counts) in always.into_iter().chain(gated.into_iter().filter(|_| pod_level))
        {
            page.metric(name, "counter", help);
            for ((first, second), count) in counts {
                page.value(name, &[(labels[0], first), (labels[1], second)], *count as f64);
            }
        }
    }
}
