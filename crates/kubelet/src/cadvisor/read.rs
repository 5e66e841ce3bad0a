//! Reads a cgroup's figures from the kernel's files, as cAdvisor and runc's library read them.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::hierarchy::Hierarchy;
use super::sample::{
    Cpu, CpuLimits, Disk, Io, Link, Memory, MemoryLimits, Pressure, Processes, Sample, Waited,
};

/// The kernel's hundredths of a second in nanoseconds.
const TICK: u64 = 10_000_000;
/// The most descriptors of a cgroup that are looked at.
///
/// DIFFERENCE: upstream looks at each; a Pod that opens a million would hold up every scrape.
const DESCRIPTORS: u64 = 10_000;
/// Interfaces that are not told of: upstream's, and this cluster's own links to Pods.
const IGNORED: [&str; 5] = ["lo", "veth", "docker", "nerdctl", "fk-"];

fn text(dir: &Path, file: &str) -> Option<String> {
    std::fs::read_to_string(dir.join(file)).ok()
}

/// A file's single number; `max` is the largest.
fn number(dir: &Path, file: &str) -> Option<u64> {
    match text(dir, file)?.trim() {
        "max" => Some(u64::MAX),
        n => n.parse().ok(),
    }
}

/// The lines `key value` of a file.
fn table(text: &str) -> HashMap<&str, u64> {
    text.lines()
        .filter_map(|line| {
            let (key, value) = line.split_once(' ')?;
            Some((key, value.trim().parse().ok()?))
        })
        .collect()
}

/// The parts of a sample that a caller wants beside the cgroup's own figures.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wanted {
    /// The network of the cgroup's first process.
    pub(super) network: bool,
    pub(super) pressure: bool,
}

/// Reads a cgroup; `at` is now, in milliseconds since 1970. A cgroup that has gone meanwhile is empty.
pub(super) fn read(hierarchy: &Hierarchy, cgroup: &str, wanted: Wanted, at: i64) -> Sample {
    let dir = |controller: &str| hierarchy.dir(controller, cgroup);
    let root = cgroup == "/";
    let (cpu_dir, memory_dir) = (dir("cpu"), dir("memory"));
    let mut sample = Sample { created: created(hierarchy, cgroup), at, ..Sample::default() };
    let mut processes = processes(&hierarchy.proc, &cpu_dir);
    if !root {
        processes.threads = number(&dir("pids"), "pids.current").unwrap_or_default();
        let most = number(&dir("pids"), "pids.max").unwrap_or_default();
        processes.threads_max = if most == u64::MAX { 0 } else { most };
    }
    if hierarchy.unified {
        sample.cpu_limits = cpu_dir.is_dir().then(|| cpu_limits_v2(&cpu_dir));
        sample.cpu = cpu_v2(&text(&cpu_dir, "cpu.stat").unwrap_or_default());
        sample.memory_limits = memory_dir.join("memory.max").exists().then(|| MemoryLimits {
            limit: number(&memory_dir, "memory.max").unwrap_or_default(),
            swap: number(&memory_dir, "memory.swap.max").unwrap_or_default(),
            reservation: number(&memory_dir, "memory.min").unwrap_or_default(),
        });
        sample.memory = memory_v2(&hierarchy.proc, &memory_dir);
        sample.io = io_v2(&text(&dir("io"), "io.stat").unwrap_or_default());
        sample.oom_kills = oom_kills_v2(&memory_dir);
        if wanted.pressure {
            let of = |file| pressure(&text(&cpu_dir, file).unwrap_or_default());
            sample.pressure = [of("cpu.pressure"), of("memory.pressure"), of("io.pressure")];
        }
    } else {
        sample.cpu_limits = cpu_dir.is_dir().then(|| cpu_limits_v1(&cpu_dir));
        sample.cpu = cpu_v1(&cpu_dir, &dir("cpuacct"));
        sample.memory_limits = memory_dir.is_dir().then(|| MemoryLimits {
            limit: number(&memory_dir, "memory.limit_in_bytes").unwrap_or_default(),
            swap: number(&memory_dir, "memory.memsw.limit_in_bytes").unwrap_or_default(),
            reservation: number(&memory_dir, "memory.soft_limit_in_bytes").unwrap_or_default(),
        });
        sample.memory = memory_v1(&memory_dir);
        sample.io = io_v1(&dir("blkio"));
        let control = text(&memory_dir, "memory.oom_control").unwrap_or_default();
        sample.oom_kills = table(&control).get("oom_kill").copied().unwrap_or_default();
    }
    if wanted.network {
        // The machine's own, or that of the first process.
        let of = if root { Some("self".to_owned()) } else { processes.first.map(|pid| pid.to_string()) };
        let file = of.and_then(|of| text(&hierarchy.proc.join(of), "net/dev"));
        sample.links = links(&file.unwrap_or_default());
    }
    sample.processes = processes;
    sample
}

/// When a cgroup was made, in seconds since 1970: the oldest time of its directories and of a file in each that is not
/// touched later; upstream's way.
fn created(hierarchy: &Hierarchy, cgroup: &str) -> u64 {
    let file = if hierarchy.unified { "cgroup.events" } else { "cgroup.clone_children" };
    let dirs = hierarchy.dirs(cgroup);
    let paths = dirs.iter().flat_map(|dir| [dir.clone(), dir.join(file)]);
    let times = paths.filter_map(|path| std::fs::metadata(path).ok()).map(|m| m.mtime());
    times.min().and_then(|t| u64::try_from(t).ok()).unwrap_or_default()
}

fn cpu_limits_v1(dir: &Path) -> CpuLimits {
    CpuLimits {
        period: number(dir, "cpu.cfs_period_us").unwrap_or_default(),
        // -1 is none, and no number here.
        quota: number(dir, "cpu.cfs_quota_us").unwrap_or_default(),
        shares: number(dir, "cpu.shares").unwrap_or_default(),
    }
}

fn cpu_limits_v2(dir: &Path) -> CpuLimits {
    let max = text(dir, "cpu.max").unwrap_or_default();
    let (quota, period) = max.trim().split_once(' ').unwrap_or_default();
    // From 1 to 10,000, to what version 1 has for it; upstream's sum.
    let weight = number(dir, "cpu.weight").filter(|w| (1..=10_000).contains(w));
    CpuLimits {
        period: period.parse().unwrap_or_default(),
        quota: quota.parse().unwrap_or_default(),
        shares: weight.map_or(0, |w| 2 + (w - 1) * 262_142 / 9_999),
    }
}

fn cpu_v1(cpu: &Path, cpuacct: &Path) -> Cpu {
    let (stat, acct) = (text(cpu, "cpu.stat").unwrap_or_default(), text(cpuacct, "cpuacct.stat"));
    let (stat, acct) = (table(&stat), acct.unwrap_or_default());
    let acct = table(&acct);
    let of = |key: &str| stat.get(key).copied().unwrap_or_default();
    let ticks = |key: &str| acct.get(key).copied().unwrap_or_default().saturating_mul(TICK);
    Cpu {
        total: number(cpuacct, "cpuacct.usage").unwrap_or_default(),
        user: ticks("user"),
        system: ticks("system"),
        periods: of("nr_periods"),
        throttled_periods: of("nr_throttled"),
        throttled: of("throttled_time"),
        burst_periods: of("nr_bursts"),
        burst: of("burst_time"),
    }
}

fn cpu_v2(stat: &str) -> Cpu {
    let stat = table(stat);
    let of = |key: &str| stat.get(key).copied().unwrap_or_default();
    let nanos = |key: &str| of(key).saturating_mul(1000);
    Cpu {
        total: nanos("usage_usec"),
        user: nanos("user_usec"),
        system: nanos("system_usec"),
        periods: of("nr_periods"),
        throttled_periods: of("nr_throttled"),
        throttled: nanos("throttled_usec"),
        burst_periods: of("nr_bursts"),
        burst: nanos("burst_usec"),
    }
}

fn memory_v1(dir: &Path) -> Memory {
    let stat = text(dir, "memory.stat").unwrap_or_default();
    let stat = table(&stat);
    let of = |key: &str| stat.get(key).copied().unwrap_or_default();
    let hierarchical = number(dir, "memory.use_hierarchy") != Some(0);
    let with_children = |key: &str| if hierarchical { of(&format!("total_{key}")) } else { of(key) };
    let usage = number(dir, "memory.usage_in_bytes").unwrap_or_default();
    let inactive_file = of("total_inactive_file");
    Memory {
        usage,
        max_usage: number(dir, "memory.max_usage_in_bytes").unwrap_or_default(),
        working_set: usage.saturating_sub(inactive_file),
        rss: with_children("rss"),
        cache: with_children("cache"),
        swap: with_children("swap"),
        mapped_file: with_children("mapped_file"),
        kernel: number(dir, "memory.kmem.usage_in_bytes").unwrap_or_default(),
        active_file: of("total_active_file"),
        inactive_file,
        failures: number(dir, "memory.failcnt").unwrap_or_default(),
        page_faults: of("pgfault"),
        major_page_faults: of("pgmajfault"),
    }
}

fn memory_v2(proc: &Path, dir: &Path) -> Memory {
    let stat = text(dir, "memory.stat").unwrap_or_default();
    let stat = table(&stat);
    let of = |key: &str| stat.get(key).copied().unwrap_or_default();
    // The root has no numbers of its own: what version 1 had for it is summed up.
    let usage = number(dir, "memory.current").unwrap_or_else(|| of("anon").saturating_add(of("file")));
    let swap = number(dir, "memory.swap.current")
        .unwrap_or_else(|| if dir.join("memory.current").exists() { 0 } else { machine_swap(proc) });
    let inactive_file = of("inactive_file");
    Memory {
        usage,
        max_usage: number(dir, "memory.peak").unwrap_or_default(),
        working_set: usage.saturating_sub(inactive_file),
        rss: of("anon"),
        cache: of("file"),
        swap,
        mapped_file: of("file_mapped"),
        // DIFFERENCE: upstream knows it in version 1 only, and says 0.
        kernel: of("kernel"),
        active_file: of("active_file"),
        inactive_file,
        // The kernel has no such counter in version 2.
        failures: 0,
        page_faults: of("pgfault"),
        major_page_faults: of("pgmajfault"),
    }
}

fn machine_swap(proc: &Path) -> u64 {
    let meminfo = text(proc, "meminfo").unwrap_or_default();
    let of = |key| crate::node::machine::meminfo_bytes(&meminfo, key).unwrap_or_default();
    of("SwapTotal").saturating_sub(of("SwapFree"))
}

/// The kills of the cgroup's own processes.
///
/// DIFFERENCE: upstream reads the kernel's log, which it may not see, and loses what happened before it started. The
/// kernel's own counter stands with the cgroup whose process was killed, upstream's with the one whose limit was met.
fn oom_kills_v2(dir: &Path) -> u64 {
    let events = text(dir, "memory.events.local").or_else(|| text(dir, "memory.events"));
    table(&events.unwrap_or_default()).get("oom_kill").copied().unwrap_or_default()
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=0` and the same of `full`.
fn pressure(text: &str) -> Pressure {
    let mut pressure = Pressure::default();
    for line in text.lines() {
        let mut fields = line.split_ascii_whitespace();
        let waited = match fields.next() {
            Some("some") => &mut pressure.some,
            Some("full") => &mut pressure.full,
            _ => continue,
        };
        let of: HashMap<&str, &str> = fields.filter_map(|field| field.split_once('=')).collect();
        let share = |key: &str| of.get(key).and_then(|v| v.parse().ok()).unwrap_or_default();
        *waited = Waited {
            total: of.get("total").and_then(|v| v.parse().ok()).unwrap_or_default(),
            avg10: share("avg10"),
            avg60: share("avg60"),
            avg300: share("avg300"),
        };
    }
    pressure
}

fn add(disks: &mut Vec<Disk>, (major, minor): (u64, u64), operation: &str, value: u64) {
    let at = disks.iter().position(|d| (d.major, d.minor) == (major, minor)).unwrap_or_else(|| {
        disks.push(Disk { major, minor, ..Disk::default() });
        disks.len() - 1
    });
    disks[at].counts.insert(operation.to_owned(), value);
}

fn device(text: &str) -> Option<(u64, u64)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn io_v2(stat: &str) -> Io {
    let mut io = Io::default();
    for line in stat.lines() {
        let mut fields = line.split_ascii_whitespace();
        let Some(device) = fields.next().and_then(device) else { continue };
        for (key, value) in fields.filter_map(|f| f.split_once('=')) {
            let Ok(value) = value.parse() else { continue };
            let (disks, operation) = match key {
                "rbytes" => (&mut io.bytes, "Read"),
                "wbytes" => (&mut io.bytes, "Write"),
                "rios" => (&mut io.operations, "Read"),
                "wios" => (&mut io.operations, "Write"),
                "cost.usage" => (&mut io.cost[0], "Count"),
                "cost.wait" => (&mut io.cost[1], "Count"),
                "cost.indebt" => (&mut io.cost[2], "Count"),
                "cost.indelay" => (&mut io.cost[3], "Count"),
                _ => continue,
            };
            add(disks, device, operation, value);
        }
    }
    io
}

/// The lines `MAJOR:MINOR [OPERATION] VALUE` of a file of version 1; none if it is not there or says nothing.
fn blkio(dir: &Path, file: &str) -> Option<Vec<Disk>> {
    let mut disks = Vec::new();
    for line in text(dir, file)?.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let Some(device) = fields.first().and_then(|d| device(d)) else { continue };
        let (operation, value) = match fields.as_slice() {
            [_, operation, value] => (*operation, value.parse()),
            [_, value] => ("Count", value.parse()),
            _ => continue,
        };
        if let Ok(value) = value {
            add(&mut disks, device, operation, value);
        }
    }
    (!disks.is_empty()).then_some(disks)
}

/// From the first scheduler of disks that tells something: BFQ, CFQ, then what every one has.
fn io_v1(dir: &Path) -> Io {
    const LAYERS: [(&str, &str); 4] = [
        ("blkio.bfq.", "_recursive"),
        ("blkio.", "_recursive"),
        ("blkio.throttle.", "_recursive"),
        ("blkio.throttle.", ""),
    ];
    let mut io = Io::default();
    for (prefix, suffix) in LAYERS {
        let of = |name: &str| blkio(dir, &format!("{prefix}{name}{suffix}")).unwrap_or_default();
        io.operations = of("io_serviced");
        if io.operations.is_empty() {
            continue;
        }
        io.bytes = of("io_service_bytes");
        io.sectors = of("sectors");
        io.time = of("io_service_time");
        io.merged = of("io_merged");
        io.queued = of("io_queued");
        break;
    }
    io
}

/// The processes of a cgroup itself, not of those below it, as upstream counts them.
fn processes(proc: &Path, dir: &Path) -> Processes {
    let text = text(dir, "cgroup.procs").unwrap_or_default();
    let pids: Vec<u32> = text.lines().filter_map(|pid| pid.parse().ok()).collect();
    let mut processes = Processes {
        count: pids.len() as u64,
        // A process that this one cannot see has the number 0.
        first: pids.first().copied().filter(|pid| *pid != 0),
        ..Processes::default()
    };
    for pid in &pids {
        let entries = std::fs::read_dir(proc.join(pid.to_string()).join("fd"));
        for entry in entries.into_iter().flatten().flatten() {
            if processes.descriptors == DESCRIPTORS {
                break;
            }
            processes.descriptors += 1;
            let link = std::fs::read_link(entry.path()).unwrap_or_default();
            processes.sockets += u64::from(link.as_os_str().as_encoded_bytes().starts_with(b"socket"));
        }
    }
    let limits = processes.first.and_then(|pid| self::text(&proc.join(pid.to_string()), "limits"));
    processes.open_files = limits.and_then(|limits| open_files(&limits));
    processes
}

fn open_files(limits: &str) -> Option<i64> {
    let line = limits.lines().find_map(|l| l.strip_prefix("Max open files"))?;
    match line.split_ascii_whitespace().next()? {
        "unlimited" => Some(-1),
        n => n.parse().ok(),
    }
}

/// The interfaces of `/proc/PID/net/dev`, but for the loopback and ends of Pods' links.
pub(super) fn links(dev: &str) -> Vec<Link> {
    let mut links = Vec::new();
    for line in dev.lines().skip(2) {
        let Some((name, rest)) = line.split_once(':') else { continue };
        let name = name.trim();
        if IGNORED.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        let n: Vec<u64> = rest.split_ascii_whitespace().filter_map(|f| f.parse().ok()).collect();
        let (Some(received), Some(sent)) = (n.first_chunk::<4>(), n.get(8..12)) else { continue };
        let sent = sent.try_into().unwrap_or_default();
        links.push(Link { name: name.to_owned(), received: *received, sent });
    }
    links
}
