//! Looks at the machine.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::Path;

use oci_spec::runtime::Capability;

use crate::translate::Machine;

/// The mount point of cgroups.
const CGROUPS: &str = "/sys/fs/cgroup";

/// All capabilities, by their numbers.
const CAPABILITIES: [Capability; 41] = [
    Capability::Chown,
    Capability::DacOverride,
    Capability::DacReadSearch,
    Capability::Fowner,
    Capability::Fsetid,
    Capability::Kill,
    Capability::Setgid,
    Capability::Setuid,
    Capability::Setpcap,
    Capability::LinuxImmutable,
    Capability::NetBindService,
    Capability::NetBroadcast,
    Capability::NetAdmin,
    Capability::NetRaw,
    Capability::IpcLock,
    Capability::IpcOwner,
    Capability::SysModule,
    Capability::SysRawio,
    Capability::SysChroot,
    Capability::SysPtrace,
    Capability::SysPacct,
    Capability::SysAdmin,
    Capability::SysBoot,
    Capability::SysNice,
    Capability::SysResource,
    Capability::SysTime,
    Capability::SysTtyConfig,
    Capability::Mknod,
    Capability::Lease,
    Capability::AuditWrite,
    Capability::AuditControl,
    Capability::Setfcap,
    Capability::MacOverride,
    Capability::MacAdmin,
    Capability::Syslog,
    Capability::WakeAlarm,
    Capability::BlockSuspend,
    Capability::AuditRead,
    Capability::Perfmon,
    Capability::Bpf,
    Capability::CheckpointRestore,
];

/// The facts of this machine; `systemd` is the cgroup driver.
pub(crate) fn look(systemd: bool) -> Machine {
    let cgroups = Path::new(CGROUPS);
    let controllers = fs::read_to_string(cgroups.join("cgroup.controllers"));
    let unified = controllers.is_ok();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let capabilities = effective(&status);
    let may_lower = capabilities.contains(&Capability::SysResource);
    let score = fs::read_to_string("/proc/self/oom_score_adj").ok().and_then(|text| text.trim().parse().ok());
    Machine {
        kernel: kernel(&rustix::system::uname().release().to_string_lossy()),
        unified,
        systemd,
        swap: if unified {
            swap_of_v2(cgroups)
        } else {
            cgroups.join("memory/memory.memsw.limit_in_bytes").exists()
        },
        hugetlb: match &controllers {
            Ok(all) => all.split_whitespace().any(|one| one == "hugetlb"),
            Err(_) => cgroups.join("hugetlb").is_dir(),
        },
        capabilities,
        least_oom_score: if may_lower { None } else { score },
        apparmor: None,
        selinux: Path::new("/sys/fs/selinux/enforce").exists(),
    }
}

/// The AppArmor profiles that are loaded now; none without AppArmor.
pub(crate) fn apparmor() -> Option<BTreeSet<String>> {
    let enabled = fs::read_to_string("/sys/module/apparmor/parameters/enabled").ok()?;
    if !enabled.starts_with('Y') {
        return None;
    }
    let text = fs::read_to_string("/sys/kernel/security/apparmor/profiles").unwrap_or_default();
    Some(text.lines().filter_map(|line| Some(line.rsplit_once(" (")?.0.to_owned())).collect())
}

/// Whether a cgroup of the unified hierarchy counts swap; that of the root does not tell.
fn swap_of_v2(cgroups: &Path) -> bool {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let has = |dir: &Path| dir.join("memory.swap.max").exists();
    has(&cgroups.join(own))
        || fs::read_dir(cgroups).into_iter().flatten().flatten().any(|entry| has(&entry.path()))
}

/// The first two numbers of a kernel's version.
fn kernel(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// The effective capabilities by the text of `/proc/PID/status`.
fn effective(status: &str) -> HashSet<Capability> {
    let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap_or_default();
    let set = u64::from_str_radix(hex.trim(), 16).unwrap_or_default();
    CAPABILITIES
        .iter()
        .enumerate()
        .filter(|(number, _)| set & (1 << number) != 0)
        .map(|(_, one)| *one)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_kernel() {
        assert_eq!(kernel("6.1.0-13-amd64"), (6, 1));
        assert_eq!(kernel("5.15-rc1"), (5, 15));
        assert_eq!(kernel(""), (0, 0));
        let all = effective("Name:\tx\nCapEff:\t0000000000200001\n");
        assert_eq!(all, [Capability::Chown, Capability::SysAdmin].into());
        assert!(effective("").is_empty());
        assert!(look(false).kernel >= (5, 0));
    }
}
