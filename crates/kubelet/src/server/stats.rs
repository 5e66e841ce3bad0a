//! The use of resources by the node and its Pods, gathered from the runtime and the kernel, told as upstream's
//! summary API.

use super::served::Served;
use std::collections::{BTreeMap, HashMap};

use cri::runtime as pb;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::node::machine::{Filesystem, Pids, meminfo_bytes};
use crate::pods::labels;

/// The shortest time over which a rate means something.
const RATE_NANOS: i128 = 1_000_000_000;

/// The use of resources by a container, a Pod or the node. None where it is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Usage {
    pub(super) time: Timestamp,
    /// Processor time, nanoseconds.
    pub(super) cpu_nanos: Option<u64>,
    /// Processor time a second, nanoseconds.
    pub(super) cpu_rate: Option<u64>,
    pub(super) memory: Option<u64>,
    pub(super) working_set: Option<u64>,
    pub(super) rss: Option<u64>,
    pub(super) page_faults: Option<u64>,
    pub(super) major_page_faults: Option<u64>,
    pub(super) swap: Option<u64>,
}

impl Usage {
    fn of(
        cpu: Option<&pb::CpuUsage>,
        memory: Option<&pb::MemoryUsage>,
        swap: Option<&pb::SwapUsage>,
    ) -> Self {
        let value = |v: Option<&pb::UInt64Value>| v.map(|v| v.value);
        let nanos = cpu.map(|c| c.timestamp).or(memory.map(|m| m.timestamp)).unwrap_or_default();
        Self {
            time: Timestamp::from_nanosecond(i128::from(nanos)).unwrap_or_default(),
            cpu_nanos: cpu.and_then(|c| value(c.usage_core_nano_seconds.as_ref())),
            cpu_rate: cpu.and_then(|c| value(c.usage_nano_cores.as_ref())),
            memory: memory.and_then(|m| value(m.usage_bytes.as_ref())),
            working_set: memory.and_then(|m| value(m.working_set_bytes.as_ref())),
            rss: memory.and_then(|m| value(m.rss_bytes.as_ref())),
            page_faults: memory.and_then(|m| value(m.page_faults.as_ref())),
            major_page_faults: memory.and_then(|m| value(m.major_page_faults.as_ref())),
            swap: swap.and_then(|s| value(s.swap_usage_bytes.as_ref())),
        }
    }
    fn add(&mut self, other: &Self) {
        let add = |a: &mut Option<u64>, b: Option<u64>| {
            if let Some(b) = b {
                *a = Some(a.unwrap_or_default() + b);
            }
        };
        self.time = self.time.max(other.time);
        add(&mut self.cpu_nanos, other.cpu_nanos);
        add(&mut self.cpu_rate, other.cpu_rate);
        add(&mut self.memory, other.memory);
        add(&mut self.working_set, other.working_set);
        add(&mut self.rss, other.rss);
        add(&mut self.page_faults, other.page_faults);
        add(&mut self.major_page_faults, other.major_page_faults);
        add(&mut self.swap, other.swap);
    }
    fn cpu_json(&self) -> Value {
        some(vec![
            ("time", json!(objects::time::text(self.time))),
            ("usageNanoCores", json!(self.cpu_rate)),
            ("usageCoreNanoSeconds", json!(self.cpu_nanos)),
        ])
    }
    fn memory_json(&self, available: Option<u64>) -> Value {
        some(vec![
            ("time", json!(objects::time::text(self.time))),
            ("availableBytes", json!(available)),
            ("usageBytes", json!(self.memory)),
            ("workingSetBytes", json!(self.working_set)),
            ("rssBytes", json!(self.rss)),
            ("pageFaults", json!(self.page_faults)),
            ("majorPageFaults", json!(self.major_page_faults)),
        ])
    }
    fn swap_json(&self) -> Value {
        some(vec![("time", json!(objects::time::text(self.time))), ("swapUsageBytes", json!(self.swap))])
    }
}

/// A container's.
#[derive(Debug, Clone)]
pub(super) struct Container {
    pub(super) name: String,
    pub(super) id: String,
    pub(super) usage: Usage,
    pub(super) started: Option<Timestamp>,
    /// The writable layer: bytes and inodes.
    layer: Option<(u64, u64)>,
}

/// An interface's bytes and errors, received and sent.
#[derive(Debug, Clone, Default)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) rx: u64,
    pub(super) rx_errors: u64,
    pub(super) tx: u64,
    pub(super) tx_errors: u64,
}

/// A Pod's.
#[derive(Debug, Clone)]
pub(super) struct PodStats {
    pub(super) namespace: String,
    pub(super) name: String,
    uid: String,
    started: Option<Timestamp>,
    pub(super) containers: Vec<Container>,
    pub(super) usage: Usage,
    pub(super) interfaces: Vec<Interface>,
    processes: Option<u64>,
}

/// The node's and its Pods'.
#[derive(Debug, Clone)]
pub(super) struct Stats {
    pub(super) node: Usage,
    available: Option<u64>,
    started: Option<Timestamp>,
    interface: Option<Interface>,
    nodefs: Option<Filesystem>,
    imagefs: Option<(Filesystem, u64)>,
    pids: Option<Pids>,
    pub(super) pods: Vec<PodStats>,
}

/// Gathers; keeps what rates are made of.
#[derive(Default)]
pub(super) struct Collector {
    last: Mutex<Option<(Timestamp, u64, Option<u64>)>>,
}

impl Collector {
    /// The state of this moment.
    pub(super) async fn collect(&self, served: &Served) -> Result<Stats, tonic::Status> {
        let now = served.clock.now();
        let (runtime, images) = (served.runtime.service(), served.runtime.images());
        let (containers, sandboxes, imagefs) = tokio::join!(
            runtime.list_container_stats(pb::ListContainerStatsRequest { filter: None }),
            runtime.list_pod_sandbox_stats(pb::ListPodSandboxStatsRequest { filter: None }),
            images.image_fs_info(pb::ImageFsInfoRequest {}),
        );
        let containers = containers?.into_inner().stats;
        // Not every runtime knows these.
        let sandboxes = sandboxes.map(|s| s.into_inner().stats).unwrap_or_default();
        let imagefs = imagefs.ok().and_then(|i| i.into_inner().image_filesystems.into_iter().next());
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let mut node = node_usage(now, &meminfo, &stat);
        node.cpu_rate = self.rate(now, node.cpu_nanos);
        Ok(Stats {
            node,
            available: crate::node::machine::memory_available(&meminfo),
            started: boot_time(&stat),
            interface: std::fs::read_to_string("/proc/net/dev").ok().and_then(|dev| first_interface(&dev)),
            nodefs: Filesystem::of(&served.config.root_dir),
            imagefs: imagefs.and_then(|fs| {
                let of = Filesystem::of(std::path::Path::new(&fs.fs_id?.mountpoint))?;
                Some((of, fs.used_bytes.map(|v| v.value).unwrap_or_default()))
            }),
            pids: Pids::read(),
            pods: pods(served, containers, sandboxes),
        })
    }

    /// The node's processor time a second since the last call that was long enough ago.
    fn rate(&self, now: Timestamp, nanos: Option<u64>) -> Option<u64> {
        let nanos = nanos?;
        let mut last = self.last.lock();
        let Some((then, before, rate)) = *last else {
            *last = Some((now, nanos, None));
            return None;
        };
        let passed = now.as_nanosecond() - then.as_nanosecond();
        if passed < RATE_NANOS {
            return rate;
        }
        let used = i128::from(nanos.saturating_sub(before));
        let rate = u64::try_from(used * 1_000_000_000 / passed).ok();
        *last = Some((now, nanos, rate));
        rate
    }
}

fn pods(
    served: &Served,
    containers: Vec<pb::ContainerStats>,
    sandboxes: Vec<pb::PodSandboxStats>,
) -> Vec<PodStats> {
    let mut by_uid: BTreeMap<String, PodStats> = BTreeMap::new();
    let mut newest: HashMap<(String, String), Timestamp> = HashMap::new();
    for stats in containers {
        let Some(attributes) = stats.attributes else { continue };
        let label = |key: &str| attributes.labels.get(key).cloned().unwrap_or_default();
        let (uid, namespace, pod) =
            (label(labels::POD_UID), label(labels::POD_NAMESPACE), label(labels::POD_NAME));
        let Some(found) = served.pods.get(&namespace, &pod, Some(&uid)) else { continue };
        let name = label(labels::CONTAINER_NAME);
        let started = found.status.as_ref().and_then(|s| {
            let running = s
                .container_statuses
                .iter()
                .flatten()
                .chain(s.init_container_statuses.iter().flatten())
                .chain(s.ephemeral_container_statuses.iter().flatten())
                .filter(|c| c.container_id.as_deref().is_some_and(|id| id.ends_with(&attributes.id)));
            running
                .filter_map(|c| c.state.as_ref()?.running.as_ref()?.started_at.as_ref())
                .map(|t| t.0)
                .next()
        });
        let usage = Usage::of(stats.cpu.as_ref(), stats.memory.as_ref(), stats.swap.as_ref());
        let entry = by_uid.entry(uid.clone()).or_insert_with(|| PodStats {
            namespace,
            name: pod,
            uid: uid.clone(),
            started: found.status.as_ref().and_then(|s| s.start_time.as_ref()).map(|t| t.0),
            containers: Vec::new(),
            usage: Usage::default(),
            interfaces: Vec::new(),
            processes: None,
        });
        // A container that ended is still listed beside its successor.
        let last = newest.entry((uid, name.clone())).or_insert(usage.time);
        if *last > usage.time {
            continue;
        }
        *last = usage.time;
        entry.containers.retain(|c| c.name != name);
        let value = |v: Option<pb::UInt64Value>| v.map(|v| v.value).unwrap_or_default();
        entry.containers.push(Container {
            name,
            id: attributes.id,
            usage,
            started,
            layer: stats.writable_layer.map(|l| (value(l.used_bytes), value(l.inodes_used))),
        });
    }
    for stats in sandboxes {
        let Some(uid) = stats.attributes.and_then(|a| a.metadata).map(|m| m.uid) else { continue };
        let (Some(pod), Some(linux)) = (by_uid.get_mut(&uid), stats.linux) else { continue };
        pod.usage = Usage::of(linux.cpu.as_ref(), linux.memory.as_ref(), None);
        pod.processes = linux.process.and_then(|p| p.process_count).map(|v| v.value);
        if let Some(network) = linux.network {
            let value = |v: Option<pb::UInt64Value>| v.map(|v| v.value).unwrap_or_default();
            pod.interfaces = network
                .default_interface
                .into_iter()
                .chain(network.interfaces)
                .map(|i| Interface {
                    name: i.name,
                    rx: value(i.rx_bytes),
                    rx_errors: value(i.rx_errors),
                    tx: value(i.tx_bytes),
                    tx_errors: value(i.tx_errors),
                })
                .collect();
        }
    }
    let mut all: Vec<PodStats> = by_uid.into_values().collect();
    for pod in &mut all {
        if pod.usage.cpu_nanos.is_none() {
            for container in &pod.containers {
                pod.usage.add(&container.usage);
            }
        }
    }
    all
}

fn node_usage(now: Timestamp, meminfo: &str, stat: &str) -> Usage {
    let used = meminfo_bytes(meminfo, "MemTotal")
        .zip(meminfo_bytes(meminfo, "MemFree"))
        .map(|(total, free)| total.saturating_sub(free));
    let inactive = meminfo_bytes(meminfo, "Inactive(file)").unwrap_or_default();
    let swap = meminfo_bytes(meminfo, "SwapTotal")
        .zip(meminfo_bytes(meminfo, "SwapFree"))
        .map(|(total, free)| total.saturating_sub(free));
    Usage {
        time: now,
        cpu_nanos: cpu_nanos(stat),
        memory: used,
        working_set: used.map(|used| used.saturating_sub(inactive)),
        rss: meminfo_bytes(meminfo, "AnonPages"),
        swap,
        ..Usage::default()
    }
}

/// Processor time of the machine that was not idle, from the first line of `/proc/stat` in hundredths of a second.
fn cpu_nanos(stat: &str) -> Option<u64> {
    let fields: Vec<u64> = stat
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_ascii_whitespace()
        .filter_map(|f| f.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq steal; guest times are part of user and nice.
    let busy: u64 = [0, 1, 2, 5, 6, 7].iter().filter_map(|i| fields.get(*i)).sum();
    Some(busy * 10_000_000)
}

fn boot_time(stat: &str) -> Option<Timestamp> {
    let seconds = stat.lines().find_map(|l| l.strip_prefix("btime "))?.trim().parse().ok()?;
    Timestamp::from_second(seconds).ok()
}

/// The first interface of `/proc/net/dev` that is neither the loopback nor made for Pods.
fn first_interface(dev: &str) -> Option<Interface> {
    dev.lines().skip(2).find_map(|line| {
        let (name, rest) = line.split_once(':')?;
        let name = name.trim();
        if name == "lo" || ["veth", "fk-", "cni", "docker"].iter().any(|p| name.starts_with(p)) {
            return None;
        }
        let n: Vec<u64> = rest.split_ascii_whitespace().filter_map(|f| f.parse().ok()).collect();
        Some(Interface {
            name: name.to_owned(),
            rx: *n.first()?,
            rx_errors: *n.get(2)?,
            tx: *n.get(8)?,
            tx_errors: *n.get(10)?,
        })
    })
}

/// An object of the fields that are known.
fn some(fields: Vec<(&str, Value)>) -> Value {
    Value::Object(
        fields
            .into_iter()
            .filter(|(_, v)| !v.is_null())
            .map(|(k, v)| (k.to_owned(), v))
            .collect::<Map<_, _>>(),
    )
}

fn filesystem(fs: &Filesystem, used: Option<u64>, time: Timestamp) -> Value {
    json!({
        "time": objects::time::text(time),
        "availableBytes": fs.available,
        "capacityBytes": fs.capacity,
        "usedBytes": used.unwrap_or(fs.capacity.saturating_sub(fs.available)),
        "inodesFree": fs.inodes_free,
        "inodes": fs.inodes,
        "inodesUsed": fs.inodes.saturating_sub(fs.inodes_free),
    })
}

fn network(interfaces: &[Interface], time: Timestamp) -> Value {
    let one = |i: &Interface| {
        json!({
            "name": i.name, "rxBytes": i.rx, "rxErrors": i.rx_errors, "txBytes": i.tx, "txErrors": i.tx_errors,
        })
    };
    let Some(first) = interfaces.first() else { return Value::Null };
    let mut network = one(first);
    network["time"] = json!(objects::time::text(time));
    network["interfaces"] = interfaces.iter().map(one).collect();
    network
}

/// Upstream's `Summary`.
pub(super) fn summary(stats: &Stats, node: &str, only_cpu_and_memory: bool) -> Value {
    let now = stats.node.time;
    let full = |value: Value| if only_cpu_and_memory { Value::Null } else { value };
    let pods: Vec<Value> =
        stats.pods.iter().map(|pod| pod_summary(stats, pod, only_cpu_and_memory)).collect();
    json!({
        "node": some(vec![
            ("nodeName", json!(node)),
            ("systemContainers", json!([{
                "name": "pods",
                "startTime": stats.started.map(objects::time::text),
                "cpu": total(stats).cpu_json(),
                "memory": total(stats).memory_json(None),
            }])),
            ("startTime", json!(stats.started.map(objects::time::text))),
            ("cpu", stats.node.cpu_json()),
            ("memory", stats.node.memory_json(stats.available)),
            ("network", full(network(stats.interface.as_slice(), now))),
            ("fs", full(stats.nodefs.map(|fs| filesystem(&fs, None, now)).unwrap_or_default())),
            ("runtime", full(stats.imagefs.map(|(fs, used)| {
                json!({ "imageFs": filesystem(&fs, Some(used), now) })
            }).unwrap_or_default())),
            ("rlimit", full(stats.pids.map(|p| {
                json!({ "time": objects::time::text(now), "maxpid": p.max, "curproc": p.used })
            }).unwrap_or_default())),
            ("swap", full(stats.node.swap_json())),
        ]),
        "pods": pods,
    })
}

/// The use of all Pods together.
fn total(stats: &Stats) -> Usage {
    let mut total = Usage { time: stats.node.time, ..Usage::default() };
    for pod in &stats.pods {
        total.add(&pod.usage);
    }
    total
}

fn pod_summary(stats: &Stats, pod: &PodStats, only_cpu_and_memory: bool) -> Value {
    let now = stats.node.time;
    let full = |value: Value| if only_cpu_and_memory { Value::Null } else { value };
    let of_layer = |layer: (u64, u64)| match stats.imagefs {
        None => Value::Null,
        Some((fs, _)) => {
            let mut value = filesystem(&fs, Some(layer.0), now);
            value["inodesUsed"] = layer.1.into();
            value
        }
    };
    let containers: Vec<Value> = pod
        .containers
        .iter()
        .map(|c| {
            some(vec![
                ("name", json!(c.name)),
                ("startTime", json!(c.started.map(objects::time::text))),
                ("cpu", c.usage.cpu_json()),
                ("memory", c.usage.memory_json(None)),
                ("rootfs", full(c.layer.map(of_layer).unwrap_or_default())),
                ("swap", full(c.usage.swap_json())),
            ])
        })
        .collect();
    let layers: u64 = pod.containers.iter().filter_map(|c| c.layer).map(|l| l.0).sum();
    some(vec![
        ("podRef", json!({ "name": pod.name, "namespace": pod.namespace, "uid": pod.uid })),
        ("startTime", json!(pod.started.map(objects::time::text))),
        ("containers", json!(containers)),
        ("cpu", pod.usage.cpu_json()),
        ("memory", pod.usage.memory_json(None)),
        ("network", full(network(&pod.interfaces, now))),
        (
            "ephemeral-storage",
            full(stats.nodefs.map(|fs| filesystem(&fs, Some(layers), now)).unwrap_or_default()),
        ),
        ("process_stats", full(pod.processes.map(|n| json!({ "process_count": n })).unwrap_or_default())),
        ("swap", full(pod.usage.swap_json())),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_files() {
        assert_eq!(cpu_nanos("cpu  1 2 3 100 100 4 5 6 7 7\ncpu0 1"), Some(210_000_000));
        assert_eq!(boot_time("cpu 1\nbtime 60\n"), Timestamp::from_second(60).ok());
        let dev = "a\nb\n lo: 1 0 0 0 0 0 0 0 1 0 0\n eth0: 10 1 2 0 0 0 0 0 20 1 3 0\n";
        let eth0 = first_interface(dev).unwrap();
        assert_eq!(
            (eth0.name.as_str(), eth0.rx, eth0.rx_errors, eth0.tx, eth0.tx_errors),
            ("eth0", 10, 2, 20, 3)
        );
        assert!(first_interface("").is_none());
    }

    #[test]
    fn rates() {
        let collector = Collector::default();
        let at = |ms| Timestamp::from_millisecond(ms).unwrap();
        assert_eq!(collector.rate(at(0), Some(0)), None);
        assert_eq!(collector.rate(at(2000), Some(1_000_000_000)), Some(500_000_000));
        assert_eq!(collector.rate(at(2100), Some(9_000_000_000)), Some(500_000_000), "too short a time");
        assert_eq!(collector.rate(at(4000), Some(1_000_000_000)), Some(0));
    }

    #[test]
    fn sums() {
        let mut sum = Usage::default();
        sum.add(&Usage { cpu_nanos: Some(1), ..Usage::default() });
        sum.add(&Usage { cpu_nanos: Some(2), memory: Some(3), ..Usage::default() });
        assert_eq!((sum.cpu_nanos, sum.memory, sum.swap), (Some(3), Some(3), None));
    }
}
