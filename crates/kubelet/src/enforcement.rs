//! How limits of Pods are enforced: the configuration's word, and what the machine can do.

use std::path::Path;

use crate::node::machine::Machine;

/// The period in microseconds in which a limit of cpu counts; the kernel's and upstream's default.
pub(crate) const QUOTA_PERIOD: i64 = 100_000;
/// The part of the memory between a container's request and its limit from which on it is slowed down; upstream's.
const THROTTLING: f64 = 0.9;

/// Whether containers may use swap; upstream's `memorySwap.swapBehavior`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Swap {
    /// None.
    #[default]
    NoSwap,
    /// Containers of burstable Pods have a part of it, as large as that of the memory that they ask for.
    LimitedSwap,
}

/// How memory is kept for containers, and how those are slowed down that take much; upstream's feature `MemoryQoS`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryQos {
    /// The part of the memory between a container's request and its limit from which on it is slowed down; upstream's
    /// `memoryThrottlingFactor`.
    pub throttling: f64,
    /// Whether requests are kept from others; upstream's `memoryReservationPolicy: TieredReservation`.
    pub reserves: bool,
}

impl Default for MemoryQos {
    /// Upstream's defaults.
    fn default() -> Self {
        Self { throttling: THROTTLING, reserves: false }
    }
}

/// How limits are enforced, by the configuration's word.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Enforcement {
    /// The period in microseconds in which a limit of cpu counts, none if limits of cpu are not enforced; upstream's
    /// `cpuCFSQuota` and `cpuCFSQuotaPeriod`.
    pub cpu_period: Option<i64>,
    /// Whether containers may use swap.
    pub swap: Swap,
    /// Whether the kernel ends one process alone of a container without memory, and not all of them; the kernel's way for the
    /// hierarchy if nothing is said. Upstream's `singleProcessOOMKill`.
    pub single_process_oom_kill: Option<bool>,
    /// How memory is kept for containers, if it is.
    pub memory_qos: Option<MemoryQos>,
    /// The percentage of the memory that Pods of a class ask for and Pods of lesser classes do not get; upstream's
    /// `qosReserved`.
    pub reserved_for_classes: Option<i64>,
    /// How many process ids a Pod may have, as many as the node has without; upstream's `podPidsLimit`.
    pub pod_pids_limit: Option<i64>,
}

impl Default for Enforcement {
    /// Upstream's defaults.
    fn default() -> Self {
        Self {
            cpu_period: Some(QUOTA_PERIOD),
            swap: Swap::default(),
            single_process_oom_kill: None,
            memory_qos: None,
            reserved_for_classes: None,
            pod_pids_limit: None,
        }
    }
}

/// How limits are enforced on this machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Limits {
    /// The configuration's word.
    pub(crate) by: Enforcement,
    /// The node's memory and swap in bytes, and the part of the memory that its Pods get.
    pub(crate) memory: i64,
    pub(crate) swap: i64,
    pub(crate) allocatable: i64,
    /// The sizes of huge pages in bytes.
    pub(crate) page_sizes: Vec<u64>,
    /// The size of a usual page in bytes.
    pub(crate) page: i64,
    /// Whether the machine has the unified hierarchy of cgroups.
    pub(crate) unified: bool,
    /// Whether cgroups count swap.
    pub(crate) counts_swap: bool,
}

impl Limits {
    /// Looks at a machine, whose hierarchy is mounted at `mount`; `reserved` of its memory, in bytes, is not for Pods.
    pub(crate) fn new(by: Enforcement, machine: &Machine, reserved: u64, mount: &Path) -> Self {
        let number = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self {
            by,
            memory: number(machine.memory),
            swap: number(machine.swap),
            allocatable: number(machine.memory.saturating_sub(reserved)),
            page_sizes: machine.hugepages.keys().copied().collect(),
            page: number(rustix::param::page_size() as u64),
            unified: is_unified(mount),
            counts_swap: counts_swap(mount, &own),
        }
    }

    /// Whether the kernel ends all processes of a container without memory.
    pub(crate) fn whole_containers(&self) -> bool {
        self.unified && !self.by.single_process_oom_kill.unwrap_or(false)
    }

    /// How memory is kept for containers, where the machine can.
    pub(crate) fn memory_qos(&self) -> Option<MemoryQos> {
        self.by.memory_qos.filter(|_| self.unified)
    }
}

/// Whether the hierarchy mounted there is the unified one.
pub(crate) fn is_unified(mount: &Path) -> bool {
    mount.join("cgroup.controllers").exists()
}

/// Whether cgroups count swap; `own` is `/proc/self/cgroup`. The root of the unified hierarchy does not tell.
fn counts_swap(mount: &Path, own: &str) -> bool {
    if !is_unified(mount) {
        return mount.join("memory/memory.memsw.limit_in_bytes").exists();
    }
    let own = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
    mount.join(own.trim_start_matches('/')).join("memory.swap.max").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_machine_can_do() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        };
        let machine = Machine { memory: 1 << 30, swap: 1 << 20, ..Machine::default() };
        let limits = |by: Enforcement| Limits::new(by, &machine, 1 << 29, dir.path());
        let by = Enforcement { memory_qos: Some(MemoryQos::default()), ..Enforcement::default() };
        let v1 = limits(by);
        assert_eq!((v1.unified, v1.counts_swap, v1.whole_containers()), (false, false, false));
        assert_eq!((v1.memory, v1.swap, v1.allocatable), (1 << 30, 1 << 20, 1 << 29));
        assert_eq!(v1.memory_qos(), None, "v1 has nothing of the kind");
        file("memory/memory.memsw.limit_in_bytes");
        assert!(limits(by).counts_swap);
        file("cgroup.controllers");
        let v2 = limits(by);
        assert_eq!((v2.unified, v2.whole_containers()), (true, true));
        assert_eq!(v2.memory_qos(), Some(MemoryQos::default()));
        assert!(!counts_swap(dir.path(), "0::/a/b\n"));
        file("a/b/memory.swap.max");
        assert!(counts_swap(dir.path(), "1:x:/c\n0::/a/b\n"));
        let one = Enforcement { single_process_oom_kill: Some(true), ..Enforcement::default() };
        assert!(!limits(one).whole_containers());
    }
}
