//! Pages of hierarchies that lie in a directory.

use std::fs;
use std::path::PathBuf;

use cri::runtime as pb;

use super::*;
use crate::pods::labels::{CONTAINER_NAME, POD_NAME, POD_NAMESPACE};

const POD: &str = "/kubepods/burstable/podu-1";

/// A machine in a directory: `/sys/fs/cgroup` and `/proc`.
struct Fake(tempfile::TempDir);

impl Fake {
    fn new(files: &[(&str, &str)]) -> Self {
        let fake = Self(tempfile::tempdir().unwrap());
        for (path, text) in files {
            let path = fake.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        fake
    }

    fn source(&self) -> Source {
        let at = |path: &str| self.0.path().join(path);
        Source {
            hierarchy: Hierarchy::new(&at("cgroup"), &at("proc")),
            kubepods: "/kubepods".into(),
            others: Vec::new(),
            machine: Machine {
                milli_cpus: 4000,
                memory: 1 << 30,
                machine_id: "m".into(),
                system_uuid: "s".into(),
                boot_id: "b".into(),
                kernel: "6.1".into(),
                os_image: "Debian".into(),
                ..Machine::default()
            },
            without: vec![PathBuf::from("/var/lib/kubelet")],
            cpus: at("cpus"),
        }
    }
}

fn names() -> Names {
    let metadata =
        pb::PodSandboxMetadata { name: "web".into(), namespace: "shop".into(), ..Default::default() };
    let sandbox = pb::PodSandbox { id: "box".into(), metadata: Some(metadata), ..Default::default() };
    let labels = [(CONTAINER_NAME, "c"), (POD_NAME, "web"), (POD_NAMESPACE, "shop")];
    let container = pb::Container {
        id: "ctr".into(),
        pod_sandbox_id: "box".into(),
        image: Some(pb::ImageSpec {
            image: "sha256:1".into(),
            user_specified_image: "busybox:1".into(),
            ..Default::default()
        }),
        labels: labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        ..Default::default()
    };
    let mut names = Names::new(&Listing { sandboxes: vec![sandbox], containers: vec![container] });
    names.pods.insert("u-1".into(), ("shop".into(), "web".into()));
    names
}

const NET: &str = "Inter-|\n face |\n    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n  eth0: 10 2 3 4 0 0 0 0 20 5 6 7 0 0 0 0\nvethx: 1 1 1 1 0 0 0 0 1 1 1 1 0 0 0 0\n";

/// The page of a machine, which has each of these lines; `$POD`, `$BOX` and `$CTR` are labels of theirs.
fn check(fake: &Fake, lines: &[&str]) -> String {
    let page = page::page(&fake.source().scrape(&names(), false, 5000));
    let of = |id: &str, container: &str, image: &str, name: &str, extra: &str| {
        let middle = if extra.is_empty() { String::new() } else { format!("{extra},") };
        format!(
            "container=\"{container}\",{middle}id=\"{id}\",image=\"{image}\",name=\"{name}\",namespace=\"shop\",pod=\"web\""
        )
    };
    for line in lines {
        let line = line
            .replace("$POD", &of(POD, "", "", "", ""))
            .replace("$BOX", &of(&format!("{POD}/box"), "", "", "box", ""))
            .replace("$CPU", &of(&format!("{POD}/ctr"), "c", "busybox:1", "ctr", "cpu=\"total\""))
            .replace("$CTR", &of(&format!("{POD}/ctr"), "c", "busybox:1", "ctr", ""))
            .replace("$DEV", &of(&format!("{POD}/ctr"), "c", "busybox:1", "ctr", "device=\"/dev/vda\""));
        assert!(page.lines().any(|l| l == line), "{line}\n{page}");
    }
    page
}

fn v2() -> Vec<(String, String)> {
    let own = |name: &str, text: &str| (format!("cgroup{POD}/ctr/{name}"), text.to_owned());
    let mut files = vec![
        ("cgroup/cgroup.controllers".to_owned(), "cpu memory".to_owned()),
        ("cgroup/cpu.pressure".into(), "some avg10=0 avg60=0 avg300=0 total=5\n".into()),
        ("cgroup/cpu.stat".into(), "usage_usec 7000000\nuser_usec 5000000\nsystem_usec 2000000\n".into()),
        ("cgroup/memory.stat".into(), "anon 100\nfile 50\ninactive_file 20\n".into()),
        (format!("cgroup{POD}/box/cgroup.procs"), "11\n".into()),
        ("proc/11/net/dev".into(), NET.into()),
        ("proc/self/net/dev".into(), NET.into()),
        ("proc/meminfo".into(), "SwapTotal: 10 kB\nSwapFree: 4 kB\n".into()),
        ("proc/diskstats".into(), "254 0 vda 1 2 3 4 5 6 7 8 9 10 11\n".into()),
        ("proc/12/limits".into(), "Limit Soft Hard Units\nMax open files            1024                 4096                 files\n".into()),
        ("cpus/cpu0/topology/physical_package_id".into(), "0".into()),
        ("cpus/cpu0/topology/core_id".into(), "0".into()),
    ];
    files.extend([
        own("cgroup.procs", "12\n13\n"),
        own("pids.current", "3\n"),
        own("pids.max", "max\n"),
        own("cpu.max", "50000 100000\n"),
        own("cpu.weight", "100\n"),
        own("cpu.stat", "usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\nnr_periods 10\nnr_throttled 4\nthrottled_usec 250000\nnr_bursts 1\nburst_usec 1000\n"),
        own("cpu.pressure", "some avg10=1.50 avg60=0 avg300=0 total=2000000\nfull avg10=0 avg60=0 avg300=0 total=1000000\n"),
        own("memory.current", "1000\n"),
        own("memory.peak", "3000\n"),
        own("memory.max", "max\n"),
        own("memory.min", "10\n"),
        own("memory.swap.current", "30\n"),
        own("memory.swap.max", "0\n"),
        own("memory.stat", "anon 400\nfile 300\nkernel 7\nfile_mapped 60\ninactive_file 250\nactive_file 50\npgfault 9\npgmajfault 2\n"),
        own("memory.events", "oom_kill 9\n"),
        own("memory.events.local", "low 0\noom_kill 2\n"),
        own("io.stat", "254:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0 cost.usage=5000000\nbad\n"),
    ]);
    files
}

#[test]
fn a_unified_hierarchy() {
    let files = v2();
    let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
    let page = check(
        &Fake::new(&files),
        &[
            "container_cpu_usage_seconds_total{$CPU} 1.5 5000",
            "container_cpu_user_seconds_total{$CTR} 1 5000",
            "container_cpu_cfs_periods_total{$CTR} 10 5000",
            "container_cpu_cfs_throttled_periods_total{$CTR} 4 5000",
            "container_cpu_cfs_throttled_seconds_total{$CTR} 0.25 5000",
            "container_spec_cpu_quota{$CTR} 50000",
            "container_spec_cpu_period{$CTR} 100000",
            "container_spec_cpu_shares{$CTR} 2597",
            "container_spec_memory_limit_bytes{$CTR} 0",
            "container_spec_memory_reservation_limit_bytes{$CTR} 10",
            "container_memory_usage_bytes{$CTR} 1000 5000",
            "container_memory_working_set_bytes{$CTR} 750 5000",
            "container_memory_rss{$CTR} 400 5000",
            "container_memory_cache{$CTR} 300 5000",
            "container_memory_swap{$CTR} 30 5000",
            "container_memory_max_usage_bytes{$CTR} 3000 5000",
            "container_memory_mapped_file{$CTR} 60 5000",
            "container_memory_kernel_usage{$CTR} 7 5000",
            "container_oom_events_total{$CTR} 2 5000",
            "container_processes{$CTR} 2 5000",
            "container_threads{$CTR} 3 5000",
            "container_threads_max{$CTR} 0 5000",
            "container_fs_reads_bytes_total{$DEV} 4096 5000",
            "container_fs_writes_total{$DEV} 2 5000",
            "container_fs_io_cost_usage_seconds_total{$DEV} 5 5000",
            "container_pressure_cpu_waiting_seconds_total{$CTR} 2 5000",
            "container_pressure_cpu_stalled_seconds_total{$CTR} 1 5000",
            "container_last_seen{$CTR} 5 5000",
            "container_memory_usage_bytes{container=\"\",id=\"/\",image=\"\",name=\"\",namespace=\"\",pod=\"\"} 150 5000",
            "container_memory_swap{container=\"\",id=\"/\",image=\"\",name=\"\",namespace=\"\",pod=\"\"} 6144 5000",
            "container_spec_memory_limit_bytes{container=\"\",id=\"/\",image=\"\",name=\"\",namespace=\"\",pod=\"\"} 1073741824",
            "machine_cpu_cores{boot_id=\"b\",machine_id=\"m\",system_uuid=\"s\"} 4 5000",
            "machine_cpu_physical_cores{boot_id=\"b\",machine_id=\"m\",system_uuid=\"s\"} 1 5000",
            "container_scrape_error 0",
        ],
    );
    let has = |start: &str| page.lines().filter(|l| l.starts_with(start)).count();
    assert_eq!(has("container_network_receive_bytes_total{"), 2, "the machine's and the sandbox's\n{page}");
    assert!(page.contains(&format!(
        "container_network_transmit_packets_dropped_total{{container=\"\",id=\"{POD}/box\",image=\"\",interface=\"eth0\",name=\"box\",namespace=\"shop\",pod=\"web\"}} 7 5000\n"
    )));
    assert!(page.contains("ulimit=\"max_open_files\"} 1024 5000\n"));
    assert!(page.contains("\"/kubepods/burstable\"") && page.contains("\"/kubepods\""), "classes, too");
    assert_eq!(has("container_cpu_cfs_periods_total{"), 1, "only where there is a quota");
}

#[test]
fn version_1_without_cgroups_of_sandboxes() {
    let own = |name: &str, text: &'static str| {
        let controller = name.split('.').next().unwrap();
        (format!("cgroup/{controller}{POD}/ctr/{name}"), text)
    };
    let mut files = vec![
        ("cgroup/unified/cgroup.controllers".to_owned(), ""),
        (format!("cgroup/cpu{POD}/ctr/cgroup.procs"), "12\n"),
        ("proc/12/net/dev".into(), NET),
        ("proc/diskstats".into(), "254 0 vda 1 2 3 4 5 6 7 8 9 10 11\n"),
    ];
    files.extend([
        own("cpu.cfs_quota_us", "-1\n"),
        own("cpu.cfs_period_us", "100000\n"),
        own("cpu.shares", "102\n"),
        own("cpu.stat", "nr_periods 10\nnr_throttled 4\nthrottled_time 250000000\n"),
        own("cpuacct.usage", "1500000000\n"),
        own("cpuacct.stat", "user 100\nsystem 50\n"),
        own("memory.usage_in_bytes", "1000\n"),
        own("memory.max_usage_in_bytes", "3000\n"),
        own("memory.limit_in_bytes", "9223372036854771712\n"),
        own("memory.memsw.limit_in_bytes", "2000\n"),
        own("memory.soft_limit_in_bytes", "9223372036854771712\n"),
        own("memory.kmem.usage_in_bytes", "7\n"),
        own("memory.failcnt", "8\n"),
        own("memory.use_hierarchy", "1\n"),
        own("memory.stat", "rss 1\ncache 2\ntotal_rss 400\ntotal_cache 300\ntotal_swap 30\ntotal_mapped_file 60\ntotal_inactive_file 250\ntotal_active_file 50\npgfault 9\npgmajfault 2\n"),
        own("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
        own("blkio.throttle.io_serviced", "254:0 Read 1\n254:0 Write 2\n254:0 Total 3\nTotal 3\n"),
        own("blkio.throttle.io_service_bytes", "254:0 Read 4096\n254:0 Write 8192\nTotal 3\n"),
        own("blkio.bfq.io_serviced_recursive", "Total 0\n"),
        own("pids.current", "3\n"),
        own("pids.max", "50\n"),
    ]);
    let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), *t)).collect();
    let page = check(
        &Fake::new(&files),
        &[
            "container_cpu_usage_seconds_total{$CPU} 1.5 5000",
            "container_cpu_user_seconds_total{$CTR} 1 5000",
            "container_spec_cpu_shares{$CTR} 102",
            "container_spec_memory_limit_bytes{$CTR} 0",
            "container_spec_memory_swap_limit_bytes{$CTR} 2000",
            "container_memory_working_set_bytes{$CTR} 750 5000",
            "container_memory_rss{$CTR} 400 5000",
            "container_memory_failcnt{$CTR} 8 5000",
            "container_oom_events_total{$CTR} 2 5000",
            "container_threads_max{$CTR} 50 5000",
            "container_fs_reads_bytes_total{$DEV} 4096 5000",
            "container_fs_writes_total{$DEV} 2 5000",
        ],
    );
    assert!(!page.contains("container_pressure"), "version 1 has none");
    assert!(!page.lines().any(|l| l.starts_with("container_spec_cpu_quota{")), "no quota");
    // No sandbox has a cgroup: the network stands with the Pod.
    assert!(page.contains(&format!(
        "container_network_receive_bytes_total{{container=\"\",id=\"{POD}\",image=\"\",interface=\"eth0\",name=\"\",namespace=\"shop\",pod=\"web\"}} 10 5000\n"
    )));
}

/// The metrics of upstream's kubelet by default, with pressure.
const UPSTREAM: &str = include_str!("upstream.tsv");

#[test]
fn all_of_upstreams_metrics_are_there() {
    let files = v2();
    let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
    let page = check(&Fake::new(&files), &[]);
    let mut ours: Vec<String> = Vec::new();
    for line in page.lines().filter_map(|l| l.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        ours.push(format!("{name}\t{kind}"));
    }
    let mut theirs: Vec<&str> = UPSTREAM.lines().collect();
    theirs.sort_unstable();
    assert_eq!(ours, theirs);
}
