//! Gathers the use of resources.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use component::Clock;
use cri::runtime as pb;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;

use super::disks::Disks;
use super::network::interfaces;
use super::room::Room;
use super::tree::Taken;
use super::usage::Usage;
use super::{Container, PodStats, Stats};
use crate::cadvisor::{Cadvisor, Pressure};
use crate::cgroups::Cgroups;
use crate::config::Config;
use crate::health::Health;
use crate::node::machine::{Machine, meminfo_bytes};
use crate::pods::{PodManager, labels};
use crate::runtime::Runtime;

/// The shortest time over which a rate means something.
const RATE_NANOS: i128 = 1_000_000_000;

/// When the node's processor time was looked at, the time, and the rate since the look before.
type Looked = Option<(Timestamp, u64, Option<u64>)>;

/// Gathers; keeps what rates are made of.
pub(crate) struct Collector {
    pub(crate) config: Arc<Config>,
    pub(crate) clock: Clock,
    pub(crate) runtime: Runtime,
    pub(crate) pods: Arc<PodManager>,
    pub(crate) health: Arc<Health>,
    pub(crate) cgroups: Cgroups,
    pub(crate) disks: Arc<Disks>,
    pub(crate) machine: Machine,
    /// The metrics of cgroups.
    pub(crate) cadvisor: Cadvisor,
    /// When this kubelet started.
    started: Timestamp,
    last: Mutex<BTreeMap<&'static str, Looked>>,
}

impl Collector {
    /// Keeps nothing yet.
    pub(crate) fn new(
        (config, clock): (Arc<Config>, Clock),
        (runtime, health): (Runtime, Arc<Health>),
        pods: Arc<PodManager>,
        cgroups: Cgroups,
        disks: Arc<Disks>,
    ) -> Self {
        let machine = config.node.machine();
        let told = (config.clone(), clock);
        let cadvisor = Cadvisor::new(told, runtime.clone(), pods.clone(), machine.clone());
        let last = Mutex::default();
        let started = clock.now();
        Self { config, clock, runtime, pods, health, cgroups, disks, machine, cadvisor, started, last }
    }

    /// The room that is left on the node.
    pub(crate) fn room(&self) -> Room {
        Room::read(&self.config, &self.health, &self.cgroups, self.machine.memory)
    }

    /// The state of this moment.
    ///
    /// # Errors
    /// The runtime does not answer.
    pub(crate) async fn collect(&self) -> Result<Stats, tonic::Status> {
        let now = self.clock.now();
        let images = self.runtime.images();
        let (pods, filesystems) = tokio::join!(self.pods(), images.image_fs_info(pb::ImageFsInfoRequest {}));
        let filesystems = filesystems.map(tonic::Response::into_inner).unwrap_or_default();
        let taken = |all: Vec<pb::FilesystemUsage>| {
            let value = |v: Option<pb::UInt64Value>| v.map(|v| v.value).unwrap_or_default();
            let first = all.into_iter().next()?;
            Some(Taken { bytes: value(first.used_bytes), inodes: value(first.inodes_used) })
        };
        let of_images = taken(filesystems.image_filesystems);
        let of_containers = taken(filesystems.container_filesystems).or(of_images);
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let mut node = node_usage(now, &meminfo, &stat);
        node.cpu_rate = rate(self.last.lock().entry("node").or_default(), now, node.cpu_nanos);
        let pressure = self.cadvisor.has_pressure();
        if pressure && let Some(root) = self.cadvisor.cgroup("/".to_owned()).await {
            node.pressure = Usage::of_cgroup(&root, true).pressure;
        }
        let system = self.system(now, pressure).await;
        let room = self.room();
        Ok(Stats {
            node,
            available: room.memory.map(|(_, available)| available),
            started: boot_time(&stat),
            interfaces: interfaces(&std::fs::read_to_string("/proc/net/dev").unwrap_or_default()),
            system,
            nodefs: room.nodefs,
            imagefs: room.imagefs.zip(of_images),
            containerfs: room.containerfs.zip(of_containers),
            pids: room.pids,
            pods_available: room.pods_memory.map(|(_, available)| available),
            pods: pods?,
        })
    }

    /// The use by the cgroups of the system that are known: the kubelet's own, that of the system's processes, and that of
    /// all Pods.
    ///
    /// DIFFERENCE: there is no `runtime`: which cgroup a container runtime is in is its own affair, and upstream knows it
    /// by a flag alone. One that is in this process is in the kubelet's.
    async fn system(&self, now: Timestamp, pressure: bool) -> Vec<(&'static str, Option<Timestamp>, Usage)> {
        let own = || self.cadvisor.own().unwrap_or_else(|| "/".to_owned());
        let named = |name: &str| (!name.is_empty()).then(|| format!("/{}", name.trim_matches('/')));
        let kubelet = named(&self.config.kubelet_cgroups).unwrap_or_else(own);
        let misc = named(&self.config.system_cgroups).map(|cgroup| ("misc", cgroup));
        let known = [("kubelet", kubelet), ("pods", self.cadvisor.kubepods.clone())];
        let mut all = Vec::new();
        for (name, cgroup) in known.into_iter().chain(misc) {
            let Some(sample) = self.cadvisor.cgroup(cgroup).await else { continue };
            let mut usage = Usage::of_cgroup(&sample, pressure);
            usage.cpu_rate = rate(self.last.lock().entry(name).or_default(), now, usage.cpu_nanos);
            let created = i64::try_from(sample.created).ok().and_then(|at| Timestamp::from_second(at).ok());
            let started = if name == "kubelet" { Some(self.started) } else { created };
            all.push((name, started, usage));
        }
        all
    }

    /// The use by Pods.
    ///
    /// # Errors
    /// The runtime does not answer.
    pub(crate) async fn pods(&self) -> Result<Vec<PodStats>, tonic::Status> {
        let runtime = self.runtime.service();
        let (containers, sandboxes) = tokio::join!(
            runtime.list_container_stats(pb::ListContainerStatsRequest { filter: None }),
            runtime.list_pod_sandbox_stats(pb::ListPodSandboxStatsRequest { filter: None }),
        );
        // Not every runtime knows these.
        let sandboxes = sandboxes.map(|s| s.into_inner().stats).unwrap_or_default();
        let mut all = pods(&self.pods, containers?.into_inner().stats, sandboxes);
        let pressure = self.cadvisor.has_pressure();
        for pod in &mut all {
            // A runtime may tell of its containers' alone.
            if pressure && pod.usage.pressure[0].is_none() {
                pod.usage.pressure = self.pressure_of(pod).await.unwrap_or_default();
            }
            if let Some(found) = self.disks.of(&pod.uid) {
                pod.measured = Some(found.at);
                pod.volumes.clone_from(&found.volumes);
                pod.others = found.others;
                for container in &mut pod.containers {
                    container.logs = found.logs.get(&container.name).copied();
                }
            }
        }
        Ok(all)
    }

    /// How long the processes of a Pod waited, as its cgroup says.
    async fn pressure_of(&self, pod: &PodStats) -> Option<[Option<Pressure>; 3]> {
        let found = self.pods.get(&pod.namespace, &pod.name, Some(&pod.uid))?;
        let sample = self.cadvisor.cgroup(self.cgroups.path(&found)).await?;
        Some(Usage::of_cgroup(&sample, true).pressure)
    }
}

/// The node's processor time a second since the last call that was long enough ago.
fn rate(last: &mut Looked, now: Timestamp, nanos: Option<u64>) -> Option<u64> {
    let nanos = nanos?;
    let Some((then, before, rate)) = *last else {
        *last = Some((now, nanos, None));
        return None;
    };
    let passed = now.as_nanosecond() - then.as_nanosecond();
    if passed < RATE_NANOS {
        return rate;
    }
    // A counter that began anew says nothing.
    let used = nanos.checked_sub(before).map(i128::from);
    let rate = used.and_then(|used| u64::try_from(used * 1_000_000_000 / passed).ok());
    *last = Some((now, nanos, rate));
    rate
}

/// When a container of a Pod started, as the Pod's status says.
fn started(pod: &Pod, id: &str) -> Option<Timestamp> {
    let status = pod.status.as_ref()?;
    let lists =
        [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
    let all = lists.into_iter().flatten().flatten();
    let mut own = all.filter(|c| c.container_id.as_deref().is_some_and(|of| of.ends_with(id)));
    own.find_map(|c| c.state.as_ref()?.running.as_ref()?.started_at.as_ref()).map(|t| t.0)
}

fn pods(
    known: &PodManager,
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
        let Some(found) = known.get(&namespace, &pod, Some(&uid)) else { continue };
        let name = label(labels::CONTAINER_NAME);
        let usage = Usage::of(stats.cpu.as_ref(), stats.memory.as_ref(), stats.swap.as_ref())
            .with_io(stats.io.as_ref());
        let entry = by_uid.entry(uid.clone()).or_insert_with(|| PodStats {
            namespace,
            name: pod,
            uid: uid.clone(),
            started: found.status.as_ref().and_then(|s| s.start_time.as_ref()).map(|t| t.0),
            ..PodStats::default()
        });
        // A container that ended is still listed beside its successor.
        let last = newest.entry((uid, name.clone())).or_insert(usage.time);
        if *last > usage.time {
            continue;
        }
        *last = usage.time;
        entry.containers.retain(|c| c.name != name);
        let value = |v: Option<pb::UInt64Value>| v.map(|v| v.value).unwrap_or_default();
        let layer =
            |l: pb::FilesystemUsage| Taken { bytes: value(l.used_bytes), inodes: value(l.inodes_used) };
        entry.containers.push(Container {
            started: started(&found, &attributes.id),
            name,
            usage,
            layer: stats.writable_layer.map(layer),
            logs: None,
        });
    }
    for stats in sandboxes {
        let Some(uid) = stats.attributes.and_then(|a| a.metadata).map(|m| m.uid) else { continue };
        let (Some(pod), Some(linux)) = (by_uid.get_mut(&uid), stats.linux) else { continue };
        pod.usage = Usage::of(linux.cpu.as_ref(), linux.memory.as_ref(), None).with_io(linux.io.as_ref());
        for container in &pod.containers {
            pod.usage.add_swap(&container.usage);
        }
        pod.processes = linux.process.and_then(|p| p.process_count).map(|v| v.value);
        if let Some(network) = linux.network {
            let all = network.default_interface.into_iter().chain(network.interfaces);
            pod.interfaces = all.map(Into::into).collect();
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
    let bytes = |key: &str| meminfo_bytes(meminfo, key);
    let used = bytes("MemTotal").zip(bytes("MemFree")).map(|(total, free)| total.saturating_sub(free));
    let inactive = bytes("Inactive(file)").unwrap_or_default();
    let swap = bytes("SwapTotal").zip(bytes("SwapFree")).map(|(total, free)| total.saturating_sub(free));
    Usage {
        time: now,
        cpu_nanos: cpu_nanos(stat),
        memory: used,
        working_set: used.map(|used| used.saturating_sub(inactive)),
        rss: bytes("AnonPages"),
        swap,
        swap_available: bytes("SwapFree"),
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

pub(crate) fn boot_time(stat: &str) -> Option<Timestamp> {
    let seconds = stat.lines().find_map(|l| l.strip_prefix("btime "))?.trim().parse().ok()?;
    Timestamp::from_second(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_files() {
        assert_eq!(cpu_nanos("cpu  1 2 3 100 100 4 5 6 7 7\ncpu0 1"), Some(210_000_000));
        assert_eq!(boot_time("cpu 1\nbtime 60\n"), Timestamp::from_second(60).ok());
        let dev = "a\nb\n lo: 1 0 0 0 0 0 0 0 1 0 0\n eth0: 10 1 2 0 0 0 0 0 20 1 3 0\n";
        let found = interfaces(&format!("{dev} ens1: 1 0 0 0 0 0 0 0 1 0 0\n fk-1: 1 0 0 0 0 0 0 0 1 0 0\n"));
        let eth0 = &found[0];
        assert_eq!(
            (eth0.name.as_str(), eth0.rx, eth0.rx_errors, eth0.tx, eth0.tx_errors),
            ("eth0", 10, 2, 20, 3)
        );
        assert_eq!((found.len(), found[1].name.as_str()), (2, "ens1"));
        assert!(interfaces("").is_empty());
    }

    #[test]
    fn rates() {
        let mut last = None;
        let at = |ms| Timestamp::from_millisecond(ms).unwrap();
        assert_eq!(rate(&mut last, at(0), Some(0)), None);
        assert_eq!(rate(&mut last, at(2000), Some(1_000_000_000)), Some(500_000_000));
        assert_eq!(rate(&mut last, at(2100), Some(9_000_000_000)), Some(500_000_000), "too short a time");
        assert_eq!(rate(&mut last, at(4000), Some(1_000_000_000)), Some(0));
    }

    // `TestCadvisorListPodStats` and its siblings put figures into a fake of cAdvisor, of which there is none: figures here
    // are the runtime's and the kernel's.

    /// Upstream's cases of `TestGetContainerUsageNanoCores`; times are a second apart where upstream's are a nanosecond, which
    /// is too short here.
    #[test]
    fn rates_of_counters() {
        let check = |before: Option<u64>, now: Option<u64>, expected: Option<u64>| {
            let at = |ms| Timestamp::from_millisecond(ms).unwrap();
            let mut last = before.map(|nanos| (at(0), nanos, None));
            assert_eq!(rate(&mut last, at(1000), now), expected, "{before:?} {now:?}");
        };
        check(None, None, None);
        check(None, Some(10_000_000_000), None);
        check(Some(10_000_000_000), Some(10_000_000_000), Some(0));
        check(Some(10_000_000_000), Some(20_000_000_000), Some(10_000_000_000));
        check(Some(67_983_588_375_722), Some(68_172_016_162_105), Some(188_427_786_383));
        check(Some(10_000_000_000), Some(0), None);
    }
}
