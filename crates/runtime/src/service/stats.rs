//! The use of resources by containers and Pods.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use containers::{Pressure, Stats};
use cri::runtime as pb;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::cgroup_stats::{self, Interface, interfaces};
use super::core::{Container, Core, Sandbox};
use super::error::CallError;
use crate::store::filter;

/// The shortest time over which a rate means something.
const RATE: Duration = Duration::from_secs(1);
/// How long the size of a writable layer is good: to know it, all its files are looked at.
const LAYER: Duration = Duration::from_secs(10);

/// A processor's time at a moment, and the rate of then.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    nanos: u64,
    rate: Option<u64>,
}

/// The figures that are kept from one look to the next, by id.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    cpu: Mutex<HashMap<String, Sample>>,
    layers: Mutex<HashMap<String, (Instant, images::Usage)>>,
}

impl Kept {
    /// The processor time a second since the last look that was long enough ago.
    fn rate(&self, id: &str, nanos: u64) -> Option<u64> {
        let (now, mut all) = (Instant::now(), self.cpu.lock());
        let Some(last) = all.get_mut(id) else {
            all.insert(id.to_owned(), Sample { at: now, nanos, rate: None });
            return None;
        };
        let passed = now.duration_since(last.at);
        if passed >= RATE {
            let used =
                u128::from(nanos.saturating_sub(last.nanos)) * 1_000_000_000 / passed.as_nanos().max(1);
            *last = Sample { at: now, nanos, rate: u64::try_from(used).ok() };
        }
        last.rate
    }

    async fn layer(&self, core: &Core, id: &str) -> Option<images::Usage> {
        let known = self.layers.lock().get(id).copied();
        if let Some((at, usage)) = known
            && at.elapsed() < LAYER
        {
            return Some(usage);
        }
        // A container that is being removed has none.
        let usage = core.images.usage_of(id).await.ok()?;
        self.layers.lock().insert(id.to_owned(), (Instant::now(), usage));
        Some(usage)
    }

    /// Forgets things that are gone.
    fn retain(&self, core: &Core) {
        let present = |id: &String| core.containers.find(id).is_ok() || core.sandboxes.find(id).is_ok();
        self.cpu.lock().retain(|id, _| present(id));
        self.layers.lock().retain(|id, _| present(id));
    }
}

fn some(value: Option<u64>) -> Option<pb::UInt64Value> {
    value.map(|value| pb::UInt64Value { value })
}

/// The pressure of a resource as CRI has it: shares in percent, the total in nanoseconds.
fn psi(pressure: Option<&Pressure>) -> Option<pb::PsiStats> {
    let data = |of: [u64; 4]| pb::PsiData {
        total: of[3] * 1000,
        avg10: of[0] as f64 / 100.0,
        avg60: of[1] as f64 / 100.0,
        avg300: of[2] as f64 / 100.0,
    };
    pressure.map(|of| pb::PsiStats { full: Some(data(of.full)), some: Some(data(of.some)) })
}

/// The memory that is free below the limit; none without a limit.
fn available(limit: Option<u64>, working_set: Option<u64>) -> Option<u64> {
    Some(limit?.saturating_sub(working_set.unwrap_or(0)))
}

/// The use of one container.
pub(crate) async fn of_container(core: &Core, kept: &Kept, container: &Container) -> pb::ContainerStats {
    let running = container.state() == pb::ContainerState::ContainerRunning;
    let live = container.live().filter(|_| running);
    let used = live.map(|live| live.stats()).unwrap_or_default();
    let layer = kept.layer(core, &container.id).await;
    let now = core.now();
    let config = container.record.lock().config.clone().unwrap_or_default();
    let Stats { cpu_usage, memory_usage, memory_working_set, memory_rss, memory_limit, page_faults, .. } =
        used;
    let swap_free = used.swap_limit.map(|limit| limit.saturating_sub(used.swap_usage.unwrap_or(0)));
    pb::ContainerStats {
        attributes: Some(pb::ContainerAttributes {
            id: container.id.clone(),
            metadata: config.metadata,
            labels: config.labels,
            annotations: config.annotations,
        }),
        cpu: cpu_usage.map(|nanos| pb::CpuUsage {
            timestamp: now,
            usage_core_nano_seconds: some(cpu_usage),
            usage_nano_cores: some(kept.rate(&container.id, nanos)),
            psi: psi(used.pressure.get("cpu")),
        }),
        memory: memory_usage.map(|_| pb::MemoryUsage {
            timestamp: now,
            working_set_bytes: some(memory_working_set),
            available_bytes: some(available(memory_limit, memory_working_set)),
            usage_bytes: some(memory_usage),
            rss_bytes: some(memory_rss),
            page_faults: some(page_faults.map(|(all, _)| all)),
            major_page_faults: some(page_faults.map(|(_, major)| major)),
            psi: psi(used.pressure.get("memory")),
        }),
        writable_layer: layer.map(|usage| pb::FilesystemUsage {
            timestamp: now,
            fs_id: Some(pb::FilesystemIdentifier { mountpoint: core.images_root().display().to_string() }),
            used_bytes: some(Some(usage.bytes)),
            inodes_used: some(Some(usage.inodes)),
        }),
        swap: used.swap_usage.map(|usage| pb::SwapUsage {
            timestamp: now,
            swap_available_bytes: some(swap_free),
            swap_usage_bytes: some(Some(usage)),
        }),
        io: used.pressure.get("io").map(|pressure| pb::IoUsage { timestamp: now, psi: psi(Some(pressure)) }),
    }
}

/// The use of the containers that run and that a filter shows.
pub(crate) async fn of_containers(
    core: &Core,
    kept: &Kept,
    filter: Option<&pb::ContainerStatsFilter>,
) -> Vec<pb::ContainerStats> {
    kept.retain(core);
    let mut all = Vec::new();
    for container in core.containers.all() {
        let labels = container.record.lock().config.as_ref().map(|c| c.labels.clone()).unwrap_or_default();
        if container.state() == pb::ContainerState::ContainerRunning
            && filter::container_stats((&container.id, &container.sandbox.id), &labels, filter)
        {
            all.push(of_container(core, kept, &container).await);
        }
    }
    all
}

/// The interfaces of a sandbox; none of one that has the machine's.
pub(crate) fn interfaces_of(sandbox: &Sandbox) -> Vec<Interface> {
    if sandbox.record.lock().namespaces().network() == pb::NamespaceMode::Node {
        return Vec::new();
    }
    let Some(shim) = sandbox.shim() else { return Vec::new() };
    let dev = std::fs::read_to_string(format!("/proc/{}/net/dev", shim.shim_pid()));
    interfaces(&dev.unwrap_or_default())
}

/// The use of a Pod.
pub(crate) async fn of_sandbox(core: &Core, kept: &Kept, sandbox: &Arc<Sandbox>) -> pb::PodSandboxStats {
    let config = sandbox.record.lock().config.clone().unwrap_or_default();
    let parent = config.linux.as_ref().map(|linux| linux.cgroup_parent.clone()).unwrap_or_default();
    let used = cgroup_stats::read(&parent, core.machine.unified);
    let now = core.now();
    let mut containers = Vec::new();
    for container in core.containers_of(&sandbox.id) {
        if container.state() == pb::ContainerState::ContainerRunning {
            containers.push(of_container(core, kept, &container).await);
        }
    }
    let shown: Vec<pb::NetworkInterfaceUsage> = interfaces_of(sandbox)
        .into_iter()
        .map(|one| pb::NetworkInterfaceUsage {
            name: one.name,
            rx_bytes: some(Some(one.rx_bytes)),
            rx_errors: some(Some(one.rx_errors)),
            tx_bytes: some(Some(one.tx_bytes)),
            tx_errors: some(Some(one.tx_errors)),
        })
        .collect();
    pb::PodSandboxStats {
        attributes: Some(pb::PodSandboxAttributes {
            id: sandbox.id.clone(),
            metadata: config.metadata,
            labels: config.labels,
            annotations: config.annotations,
        }),
        linux: Some(pb::LinuxPodSandboxStats {
            cpu: used.cpu.map(|nanos| pb::CpuUsage {
                timestamp: now,
                usage_core_nano_seconds: some(used.cpu),
                usage_nano_cores: some(kept.rate(&sandbox.id, nanos)),
                psi: psi(used.pressure.get("cpu")),
            }),
            memory: used.memory.map(|_| pb::MemoryUsage {
                timestamp: now,
                working_set_bytes: some(used.working_set),
                available_bytes: some(available(used.limit, used.working_set)),
                usage_bytes: some(used.memory),
                rss_bytes: some(used.rss),
                page_faults: some(used.faults.map(|(all, _)| all)),
                major_page_faults: some(used.faults.map(|(_, major)| major)),
                psi: psi(used.pressure.get("memory")),
            }),
            network: (!shown.is_empty()).then(|| pb::NetworkUsage {
                timestamp: now,
                default_interface: shown.first().cloned(),
                interfaces: shown.into_iter().skip(1).collect(),
            }),
            process: used
                .tasks
                .map(|count| pb::ProcessUsage { timestamp: now, process_count: some(Some(count)) }),
            containers,
            io: used.pressure.get("io").map(|of| pb::IoUsage { timestamp: now, psi: psi(Some(of)) }),
        }),
        windows: None,
    }
}

/// The use of the sandboxes that are ready and that a filter shows.
pub(crate) async fn of_sandboxes(
    core: &Core,
    kept: &Kept,
    filter: Option<&pb::PodSandboxStatsFilter>,
) -> Vec<pb::PodSandboxStats> {
    kept.retain(core);
    let mut all = Vec::new();
    for sandbox in core.sandboxes.all() {
        let labels = sandbox.record.lock().config.as_ref().map(|c| c.labels.clone()).unwrap_or_default();
        if sandbox.is_ready() && filter::sandbox_stats(&sandbox.id, &labels, filter) {
            all.push(of_sandbox(core, kept, &sandbox).await);
        }
    }
    all
}

/// The disk that images and containers take.
pub(crate) async fn of_images(core: &Core) -> Result<pb::ImageFsInfoResponse, CallError> {
    let used = core.images.usage().await?;
    let now = core.now();
    let one = |usage: images::Usage| pb::FilesystemUsage {
        timestamp: now,
        fs_id: Some(pb::FilesystemIdentifier { mountpoint: used.path.display().to_string() }),
        used_bytes: some(Some(usage.bytes)),
        inodes_used: some(Some(usage.inodes)),
    };
    Ok(pb::ImageFsInfoResponse {
        image_filesystems: vec![one(used.images)],
        container_filesystems: vec![one(used.roots)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn rates() {
        let kept = Kept::default();
        assert_eq!(kept.rate("a", 100), None);
        tokio::time::advance(RATE / 2).await;
        assert_eq!(kept.rate("a", 200), None, "too soon");
        tokio::time::advance(RATE * 3 / 2).await;
        assert_eq!(kept.rate("a", 1100), Some(500));
        assert_eq!(kept.rate("a", 1100), Some(500), "the last one stays");
    }

    #[test]
    fn pressures() {
        let made = psi(Some(&Pressure { some: [150, 0, 0, 7], full: [0; 4] })).unwrap();
        let some = made.some.unwrap();
        assert_eq!((some.avg10, some.total), (1.5, 7000));
        assert_eq!((available(Some(5), Some(2)), available(None, Some(2))), (Some(3), None));
    }
}
