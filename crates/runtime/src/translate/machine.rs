//! The facts of a machine.

use std::collections::{BTreeSet, HashSet};

use oci_spec::runtime::Capability;

/// The facts of this machine on which containers depend.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    /// The kernel's version.
    pub kernel: (u32, u32),
    /// Whether there is cgroup v2 alone.
    pub unified: bool,
    /// Whether systemd makes cgroups: the cgroup driver.
    pub systemd: bool,
    /// Whether swap is counted.
    pub swap: bool,
    /// Whether huge pages are counted.
    pub hugetlb: bool,
    /// The capabilities that the runtime has.
    pub capabilities: HashSet<Capability>,
    /// The least OOM score that may be given; none if any may.
    pub least_oom_score: Option<i32>,
    /// The AppArmor profiles that are loaded; none without AppArmor.
    pub apparmor: Option<BTreeSet<String>>,
    /// Whether SELinux is on.
    pub selinux: bool,
}
