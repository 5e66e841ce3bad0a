//! The figures of a Pod's own cgroup: the parent of its containers', which the kubelet makes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use containers::Pressure;

/// The mount point of cgroups.
const MOUNT: &str = "/sys/fs/cgroup";

/// The use of a cgroup. Figures that the kernel does not give are none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Processor time in nanoseconds.
    pub(crate) cpu: Option<u64>,
    /// Memory with page cache, in bytes.
    pub(crate) memory: Option<u64>,
    /// Memory without inactive page cache.
    pub(crate) working_set: Option<u64>,
    /// Anonymous memory.
    pub(crate) rss: Option<u64>,
    /// Page faults, all and major ones.
    pub(crate) faults: Option<(u64, u64)>,
    /// Tasks.
    pub(crate) tasks: Option<u64>,
    /// The limit of memory.
    pub(crate) limit: Option<u64>,
    /// Pressure of processor, memory and disks, which version 2 alone has.
    pub(crate) pressure: BTreeMap<&'static str, Pressure>,
}

/// The directory of a cgroup as CRI names it, below a hierarchy.
fn relative(parent: &str) -> PathBuf {
    let slice = parent.strip_suffix(".slice").filter(|bare| !bare.contains('/'));
    let Some(bare) = slice else { return parent.trim_start_matches('/').into() };
    // A slice's name holds those above it: a-b.slice is below a.slice.
    let mut path = PathBuf::new();
    for (at, _) in bare.match_indices('-') {
        path.push(format!("{}.slice", &bare[..at]));
    }
    path.join(parent)
}

/// Reads the use of a Pod's cgroup; nothing if it is not there.
pub(crate) fn read(parent: &str, unified: bool) -> Usage {
    if parent.is_empty() { Usage::default() } else { below(Path::new(MOUNT), &relative(parent), unified) }
}

fn below(mount: &Path, at: &Path, unified: bool) -> Usage {
    let text = |dir: &Path, name: &str| fs::read_to_string(dir.join(name)).ok();
    let number = |dir: &Path, name: &str| text(dir, name)?.trim().parse::<u64>().ok();
    if unified {
        let dir = mount.join(at);
        let stat = text(&dir, "memory.stat").unwrap_or_default();
        let memory = number(&dir, "memory.current");
        let pressure = ["cpu", "memory", "io"].into_iter().filter_map(|resource| {
            Some((resource, Pressure::parse(&text(&dir, &format!("{resource}.pressure"))?)))
        });
        return Usage {
            pressure: pressure.collect(),
            cpu: text(&dir, "cpu.stat").and_then(|all| value(&all, "usage_usec")).map(|micros| micros * 1000),
            memory,
            working_set: memory.map(|all| all.saturating_sub(value(&stat, "inactive_file").unwrap_or(0))),
            rss: value(&stat, "anon"),
            faults: value(&stat, "pgfault").zip(value(&stat, "pgmajfault")),
            tasks: number(&dir, "pids.current"),
            limit: number(&dir, "memory.max"),
        };
    }
    let (memory_dir, cpu_dir) = (mount.join("memory").join(at), mount.join("cpuacct").join(at));
    let stat = text(&memory_dir, "memory.stat").unwrap_or_default();
    let memory = number(&memory_dir, "memory.usage_in_bytes");
    Usage {
        cpu: number(&cpu_dir, "cpuacct.usage")
            .or_else(|| number(&mount.join("cpu").join(at), "cpuacct.usage")),
        memory,
        working_set: memory.map(|all| all.saturating_sub(value(&stat, "total_inactive_file").unwrap_or(0))),
        rss: value(&stat, "total_rss"),
        faults: value(&stat, "total_pgfault").zip(value(&stat, "total_pgmajfault")),
        tasks: number(&mount.join("pids").join(at), "pids.current"),
        limit: number(&memory_dir, "memory.limit_in_bytes").filter(|limit| *limit < 1 << 62),
        pressure: BTreeMap::new(),
    }
}

fn value(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// The traffic of an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) rx_bytes: u64,
    pub(crate) rx_packets: u64,
    pub(crate) rx_errors: u64,
    pub(crate) rx_dropped: u64,
    pub(crate) tx_bytes: u64,
    pub(crate) tx_packets: u64,
    pub(crate) tx_errors: u64,
    pub(crate) tx_dropped: u64,
}

/// The interfaces of `/proc/PID/net/dev`, without loopback.
pub(crate) fn interfaces(dev: &str) -> Vec<Interface> {
    dev.lines()
        .filter_map(|line| {
            let (name, rest) = line.split_once(':')?;
            let n: Vec<u64> = rest.split_whitespace().map_while(|field| field.parse().ok()).collect();
            let name = name.trim();
            if name == "lo" || n.len() < 12 {
                return None;
            }
            Some(Interface {
                name: name.to_owned(),
                rx_bytes: n[0],
                rx_packets: n[1],
                rx_errors: n[2],
                rx_dropped: n[3],
                tx_bytes: n[8],
                tx_packets: n[9],
                tx_errors: n[10],
                tx_dropped: n[11],
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_slices() {
        for (parent, expected) in [
            ("/kubepods/podx", "kubepods/podx"),
            ("kubepods.slice", "kubepods.slice"),
            (
                "kubepods-burstable-podx.slice",
                "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podx.slice",
            ),
        ] {
            assert_eq!(relative(parent), Path::new(expected));
        }
    }

    #[test]
    fn both_hierarchies() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("p/memory.current", "1000\n");
        write("p/memory.stat", "anon 300\ninactive_file 200\npgfault 7\npgmajfault 1\n");
        write("p/cpu.stat", "usage_usec 5\nuser_usec 1\n");
        write("p/memory.max", "max\n");
        write("p/memory.pressure", "some avg10=1.50 avg60=0.00 avg300=0.00 total=7\n");
        let v2 = below(dir.path(), Path::new("p"), true);
        assert_eq!(
            (v2.cpu, v2.memory, v2.working_set, v2.rss),
            (Some(5000), Some(1000), Some(800), Some(300))
        );
        assert_eq!((v2.faults, v2.limit, v2.tasks), (Some((7, 1)), None, None));
        assert_eq!((v2.pressure.len(), v2.pressure["memory"].some), (1, [150, 0, 0, 7]));
        write("memory/p/memory.usage_in_bytes", "1000\n");
        write("memory/p/memory.stat", "total_rss 300\ntotal_inactive_file 100\n");
        write("cpuacct/p/cpuacct.usage", "9\n");
        let v1 = below(dir.path(), Path::new("p"), false);
        assert_eq!((v1.cpu, v1.working_set, v1.rss, v1.faults), (Some(9), Some(900), Some(300), None));
        assert_eq!(below(dir.path(), Path::new("none"), true), Usage::default());
    }

    #[test]
    fn interfaces_of_a_pod() {
        let dev = "Inter-| x\n face | y\n    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n  eth0: 10 2 3 4 0 0 0 0 20 5 6 7 0 0 0 0\n";
        let all = interfaces(dev);
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].rx_bytes, all[0].rx_dropped, all[0].tx_bytes, all[0].tx_errors), (10, 4, 20, 6));
    }
}
