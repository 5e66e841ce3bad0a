//! The processors and the memory of this machine by NUMA nodes, read from `/sys` and `/proc` as upstream's cAdvisor reads
//! them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::machine::meminfo_bytes;
use crate::cpu_manager::CpuSet;

/// A level of caches from which on cores share one.
const SHARED: u32 = 3;

/// A core of a processor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Core {
    /// Its socket.
    pub socket: usize,
    /// The numbers of its logical processors.
    pub threads: Vec<usize>,
    /// The cache that it shares with some, but not all, of its node's cores; none if there is no such cache.
    pub uncore: Option<usize>,
}

/// A NUMA node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NumaNode {
    /// Its number.
    pub id: usize,
    /// Memory in bytes.
    pub memory: u64,
    /// Huge pages: size of a page in bytes to how many there are.
    pub hugepages: BTreeMap<u64, u64>,
    /// The distances to the nodes of the machine in the order of their numbers; none if the kernel tells none.
    pub distances: Option<Vec<u64>>,
    /// Its cores.
    pub cores: Vec<Core>,
}

/// The NUMA nodes of a machine, in the order of their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hardware {
    /// The nodes.
    pub nodes: Vec<NumaNode>,
}

fn text(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn number(path: &Path) -> Option<usize> {
    text(path)?.parse().ok()
}

/// The entries of a directory whose names are `prefix` with a number, in the order of the numbers.
fn numbered(dir: &Path, prefix: &str) -> Vec<(usize, PathBuf)> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let number = |entry: std::fs::DirEntry| {
        let id = entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?;
        Some((id, entry.path()))
    };
    let mut all: Vec<(usize, PathBuf)> = entries.filter_map(number).collect();
    all.sort();
    all
}

impl Hardware {
    /// Reads what is below `root`, which is `/` but in tests. Parts that cannot be read are left out.
    pub fn read(root: &Path) -> Self {
        let cpus = root.join("sys/devices/system/cpu");
        let dirs = numbered(&root.join("sys/devices/system/node"), "node");
        let nodes = if dirs.is_empty() {
            without_nodes(root, &cpus)
        } else {
            dirs.iter().map(|(id, dir)| node(*id, dir, &cpus)).collect()
        };
        Self { nodes }
    }

    /// All logical processors.
    pub fn cpus(&self) -> CpuSet {
        self.nodes.iter().flat_map(|n| &n.cores).flat_map(|c| c.threads.iter().copied()).collect()
    }
}

/// A machine whose kernel knows no NUMA nodes: all that it has is near to one.
///
/// DIFFERENCE: upstream makes a node of each socket then, without memory, so that its memory manager has none to give.
fn without_nodes(root: &Path, cpus: &Path) -> Vec<NumaNode> {
    let mut cores = cores(&numbered(cpus, "cpu"), cpus);
    share(&mut cores, cpus);
    let meminfo = text(&root.join("proc/meminfo")).unwrap_or_default();
    vec![NumaNode {
        id: 0,
        memory: meminfo_bytes(&meminfo, "MemTotal").unwrap_or_default(),
        hugepages: hugepages(&root.join("sys/kernel/mm/hugepages")),
        distances: None,
        cores,
    }]
}

fn node(id: usize, dir: &Path, cpus: &Path) -> NumaNode {
    let mut cores = cores(&numbered(dir, "cpu"), cpus);
    share(&mut cores, cpus);
    let distances = text(&dir.join("distance"));
    NumaNode {
        id,
        memory: memory(&text(&dir.join("meminfo")).unwrap_or_default()),
        hugepages: hugepages(&dir.join("hugepages")),
        distances: distances.and_then(|d| d.split_whitespace().map(|n| n.parse().ok()).collect()),
        cores,
    }
}

/// The memory of a node in bytes: its lines begin with `Node 0 `.
fn memory(meminfo: &str) -> u64 {
    let total = meminfo.lines().find_map(|line| {
        let (_, value) = line.split_once("MemTotal:")?;
        value.trim().trim_end_matches("kB").trim().parse::<u64>().ok()
    });
    total.unwrap_or_default().saturating_mul(1024)
}

/// The huge pages of a directory: size of a page in bytes to how many there are.
fn hugepages(dir: &Path) -> BTreeMap<u64, u64> {
    let size = |name: &str| name.strip_suffix("kB")?.parse::<u64>().ok()?.checked_mul(1024);
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let one = |entry: std::fs::DirEntry| {
        let size = size(entry.file_name().to_str()?.strip_prefix("hugepages-")?)?;
        Some((size, text(&entry.path().join("nr_hugepages"))?.parse().ok()?))
    };
    entries.filter_map(one).collect()
}

/// The cores of the processors that are online: those with one number of one socket are one.
fn cores(found: &[(usize, PathBuf)], cpus: &Path) -> Vec<Core> {
    let mut cores: Vec<(usize, Core)> = Vec::new();
    for (cpu, _) in found {
        let dir = cpus.join(format!("cpu{cpu}"));
        // The first one often cannot be taken offline, and has no such file.
        if text(&dir.join("online")).is_some_and(|online| online == "0") {
            continue;
        }
        let (Some(id), Some(socket)) =
            (number(&dir.join("topology/core_id")), number(&dir.join("topology/physical_package_id")))
        else {
            continue;
        };
        match cores.iter_mut().find(|(known, core)| *known == id && core.socket == socket) {
            Some((_, core)) => core.threads.push(*cpu),
            None => cores.push((id, Core { socket, threads: vec![*cpu], uncore: None })),
        }
    }
    cores.into_iter().map(|(_, core)| core).collect()
}

/// Finds out which caches are shared by some of a node's cores.
fn share(cores: &mut [Core], cpus: &Path) {
    let count = cores.len();
    for core in cores {
        let (Some(first), threads) = (core.threads.first(), core.threads.len()) else { continue };
        for (_, dir) in numbered(&cpus.join(format!("cpu{first}/cache")), "index") {
            let level: u32 = text(&dir.join("level")).and_then(|l| l.parse().ok()).unwrap_or_default();
            let shared: CpuSet =
                text(&dir.join("shared_cpu_list")).and_then(|l| l.parse().ok()).unwrap_or_default();
            if level >= SHARED && shared.len() != count * threads {
                core.uncore = core.uncore.or_else(|| number(&dir.join("id")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu_manager::{CpuTopology, Level};

    /// Writes what the kernel shows of a processor: its core, its socket, and the processors with which it shares the
    /// cache of a number.
    fn cpu(root: &Path, cpu: usize, core: usize, socket: usize, cache: (usize, &str)) {
        let dir = root.join(format!("sys/devices/system/cpu/cpu{cpu}"));
        let write = |path: &str, text: String| {
            let path = dir.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text + "\n").unwrap();
        };
        write("topology/core_id", core.to_string());
        write("topology/physical_package_id", socket.to_string());
        for (index, level) in [(0, 1), (1, 1), (2, 2)] {
            write(&format!("cache/index{index}/level"), level.to_string());
            write(&format!("cache/index{index}/shared_cpu_list"), cpu.to_string());
        }
        write("cache/index3/level", "3".into());
        write("cache/index3/id", cache.0.to_string());
        write("cache/index3/shared_cpu_list", cache.1.to_owned());
    }

    fn node(root: &Path, id: usize, cpus: &[usize], kib: u64, distances: &str) {
        let dir = root.join(format!("sys/devices/system/node/node{id}"));
        std::fs::create_dir_all(dir.join("hugepages/hugepages-2048kB")).unwrap();
        for cpu in cpus {
            std::fs::create_dir_all(dir.join(format!("cpu{cpu}"))).unwrap();
        }
        std::fs::write(dir.join("cpulist"), "").unwrap();
        let meminfo = format!("Node {id} MemTotal:       {kib} kB\nNode {id} MemFree:        1 kB\n");
        std::fs::write(dir.join("meminfo"), meminfo).unwrap();
        std::fs::write(dir.join("hugepages/hugepages-2048kB/nr_hugepages"), format!("{}\n", id + 3)).unwrap();
        std::fs::write(dir.join("distance"), distances.to_owned() + "\n").unwrap();
    }

    /// Two sockets, each a NUMA node of four cores with two threads, two of which share a cache.
    fn two_sockets(root: &Path) {
        for n in 0..8 {
            let (socket, core, cache) = (n / 4, n % 4, n / 2);
            let (a, b) = (cache * 2, cache * 2 + 1);
            let shared = format!("{a}-{b},{}-{}", a + 8, b + 8);
            for thread in [n, n + 8] {
                cpu(root, thread, core, socket, (cache, &shared));
            }
        }
        node(root, 0, &[0, 1, 2, 3, 8, 9, 10, 11], 1000, "10 21");
        node(root, 1, &[4, 5, 6, 7, 12, 13, 14, 15], 2000, "21 10");
    }

    #[test]
    fn sockets_nodes_threads_and_caches() {
        let dir = tempfile::tempdir().unwrap();
        two_sockets(dir.path());
        std::fs::write(dir.path().join("sys/devices/system/cpu/cpu15/online"), "1\n").unwrap();
        let hardware = Hardware::read(dir.path());
        assert_eq!(hardware.cpus().to_string(), "0-15");
        let second = &hardware.nodes[1];
        assert_eq!(
            (second.id, second.memory, second.hugepages.clone()),
            (1, 2000 << 10, [(2 << 20, 4)].into())
        );
        assert_eq!(second.distances, Some(vec![21, 10]));
        assert_eq!(second.cores[1], Core { socket: 1, threads: vec![5, 13], uncore: Some(2) });
        let topology = CpuTopology::of(&hardware).unwrap();
        assert_eq!((topology.cpus, topology.cores, topology.uncores), (16, 8, 4));
        assert_eq!((topology.sockets, topology.numas, topology.per_core()), (2, 2, 2));
        assert_eq!(topology.details.cpus_in(Level::Uncore, 3).to_string(), "6-7,14-15");
        assert_eq!(topology.details.cpus_in(Level::Core, 4).to_string(), "4,12");
    }

    #[test]
    fn a_processor_that_is_offline_is_not_there() {
        let dir = tempfile::tempdir().unwrap();
        two_sockets(dir.path());
        std::fs::write(dir.path().join("sys/devices/system/cpu/cpu15/online"), "0\n").unwrap();
        let hardware = Hardware::read(dir.path());
        assert_eq!(hardware.cpus().to_string(), "0-14");
        assert_eq!(hardware.nodes[1].cores[3].threads, [7]);
    }

    /// Two NUMA nodes of one socket whose cache is that of each node: that one says nothing more than the node.
    #[test]
    fn a_cache_of_a_whole_node_is_the_sockets() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..4 {
            cpu(dir.path(), n, n, 0, (n / 2, if n < 2 { "0-1" } else { "2-3" }));
        }
        node(dir.path(), 0, &[0, 1], 10, "10 12");
        node(dir.path(), 1, &[2, 3], 10, "12 10");
        let topology = CpuTopology::of(&Hardware::read(dir.path())).unwrap();
        assert_eq!((topology.uncores, topology.sockets, topology.numas, topology.per_core()), (1, 1, 2, 1));
    }

    #[test]
    fn a_machine_without_nodes_is_one() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..2 {
            cpu(dir.path(), n, n, 0, (0, "0-1"));
        }
        std::fs::create_dir_all(dir.path().join("proc")).unwrap();
        std::fs::write(dir.path().join("proc/meminfo"), "MemTotal:  100 kB\n").unwrap();
        let hardware = Hardware::read(dir.path());
        assert_eq!((hardware.nodes.len(), hardware.nodes[0].memory), (1, 100 << 10));
        assert_eq!(hardware.cpus().to_string(), "0-1");
        assert_eq!(
            CpuTopology::of(&Hardware::read(&dir.path().join("nothing"))),
            Err(super::super::super::cpu_manager::TopologyError::NoCpus)
        );
    }

    #[test]
    fn this_machine() {
        let hardware = Hardware::read(Path::new("/"));
        assert!(!hardware.cpus().is_empty() && hardware.nodes.iter().any(|n| n.memory > 0), "{hardware:?}");
    }
}
