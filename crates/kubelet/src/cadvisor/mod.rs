//! The metrics of cgroups and of the machine under cAdvisor's names, which upstream's kubelet serves at `/metrics/cadvisor`.
//!
//! Nothing is read or kept between scrapes. A scrape walks the cgroups of Pods once and asks the runtime once whose they
//! are; scrapes that come meanwhile share the next one. It does not matter which runtime it is: figures are the kernel's, and
//! names are CRI's.

mod from_runtime;
mod hierarchy;
mod machine;
mod page;
mod read;
mod sample;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::gate::Gate;
use bytes::Bytes;
use component::Clock;
use component::metrics::Page;
use cri::runtime as pb;
use tokio::sync::Mutex;

use self::hierarchy::id_of;
pub(crate) use self::hierarchy::{Hierarchy, kubepods, pod_of};
use self::machine::{Disks, file_systems, topology};
use self::page::{Entry, Labels, Scrape};
use self::read::{Wanted, read};
pub(crate) use self::sample::{Pressure, Sample, Waited};
use crate::config::Config;
use crate::listing::Listing;
use crate::node::machine::Machine;
use crate::pods::PodManager;
use crate::pods::{labels, spec};
use crate::runtime::Runtime;
use crate::work::blocking;

/// The kernel's directory of processors.
const CPUS: &str = "/sys/devices/system/cpu";

/// A page that scrapes still wait for, and how many had begun when it was made.
type Last = Option<(u64, Bytes)>;

/// Makes the page.
pub(crate) struct Cadvisor {
    config: Arc<Config>,
    clock: Clock,
    runtime: Runtime,
    pods: Arc<PodManager>,
    machine: Machine,
    hierarchy: Hierarchy,
    /// The cgroup of all Pods.
    pub(crate) kubepods: String,
    /// One scrape at a time.
    turn: Mutex<Last>,
    begun: std::sync::atomic::AtomicU64,
}

/// The owners of cgroups.
#[derive(Debug, Default)]
struct Names {
    /// By the ids of containers and sandboxes.
    things: HashMap<String, Labels>,
    sandboxes: BTreeSet<String>,
    /// Namespace and name of Pods, by uid.
    pods: HashMap<String, (String, String)>,
}

impl Names {
    fn new(listing: &Listing) -> Self {
        let mut names = Self::default();
        for sandbox in &listing.sandboxes {
            let Some(of) = &sandbox.metadata else { continue };
            names.sandboxes.insert(sandbox.id.clone());
            // DIFFERENCE: upstream asks containerd for the sandbox's image, of which CRI does not tell.
            let labels = Labels {
                name: sandbox.id.clone(),
                pod: of.name.clone(),
                namespace: of.namespace.clone(),
                ..Labels::default()
            };
            names.things.insert(sandbox.id.clone(), labels);
        }
        for container in &listing.containers {
            let label = |key: &str| container.labels.get(key).cloned().unwrap_or_default();
            let image = container.image.clone().unwrap_or_default();
            let image = [image.user_specified_image, image.image].into_iter().find(|image| !image.is_empty());
            let labels = Labels {
                name: container.id.clone(),
                image: image.unwrap_or_default(),
                container: label(labels::CONTAINER_NAME),
                pod: label(labels::POD_NAME),
                namespace: label(labels::POD_NAMESPACE),
                ..Labels::default()
            };
            names.things.insert(container.id.clone(), labels);
        }
        names
    }

    fn of(&self, cgroup: &str) -> Labels {
        let id = cgroup.to_owned();
        if let Some(labels) = id_of(cgroup).and_then(|id| self.things.get(id)) {
            return Labels { id, ..labels.clone() };
        }
        let pod = pod_of(cgroup).and_then(|uid| self.pods.get(&uid)).cloned();
        let (namespace, pod) = pod.unwrap_or_default();
        Labels { id, pod, namespace, ..Labels::default() }
    }

    fn is_sandbox(&self, cgroup: &str) -> bool {
        id_of(cgroup).is_some_and(|id| self.sandboxes.contains(id))
    }
}

/// The places that a scrape reads.
struct Source {
    hierarchy: Hierarchy,
    kubepods: String,
    /// Other cgroups that the kubelet looks after, with what is in them.
    others: Vec<String>,
    machine: Machine,
    /// Directories whose mounts are Pods'.
    without: Vec<PathBuf>,
    cpus: PathBuf,
}

impl Source {
    /// Reads everything; `at` is now, in milliseconds since 1970.
    fn scrape(&self, names: &Names, failed: bool, at: i64) -> Scrape {
        let proc = |file: &str| std::fs::read_to_string(self.hierarchy.proc.join(file)).unwrap_or_default();
        let pressure = self.hierarchy.has_pressure();
        let disks = Disks::parse(&proc("diskstats"));
        let mut cgroups = vec!["/".to_owned()];
        let of_pods = self.hierarchy.tree(&self.kubepods);
        let others = self.others.iter().flat_map(|top| self.hierarchy.tree(top));
        let others: BTreeSet<String> = others.chain(self.hierarchy.own()).collect();
        cgroups.extend(others.into_iter().filter(|other| !of_pods.contains(other)));
        cgroups.extend(of_pods);
        // A Pod's network is told where its sandbox is; without a cgroup of that, where the Pod is.
        let with_sandbox: BTreeSet<&str> = cgroups
            .iter()
            .filter(|cgroup| names.is_sandbox(cgroup))
            .filter_map(|cgroup| Some(cgroup.rsplit_once('/')?.0))
            .collect();
        let entry = |cgroup: &String| {
            let network = cgroup == "/" || names.is_sandbox(cgroup);
            let mut sample = read(&self.hierarchy, cgroup, Wanted { network, pressure }, at);
            if cgroup == "/" {
                let without: Vec<&Path> = self.without.iter().map(PathBuf::as_path).collect();
                sample.mounted = file_systems(&proc("self/mountinfo"), &without, &disks);
                sample.memory_limits = Some(sample::MemoryLimits {
                    limit: self.machine.memory,
                    swap: self.machine.swap,
                    reservation: sample.memory_limits.map_or(0, |l| l.reservation),
                });
            }
            Entry { labels: names.of(cgroup), sample }
        };
        let mut entries: Vec<Entry> = cgroups.iter().map(entry).collect();
        let lonely = |cgroup: &str| pod_of(cgroup).is_some() && !with_sandbox.contains(cgroup);
        for cgroup in cgroups.iter().filter(|cgroup| lonely(cgroup)) {
            let inside = format!("{cgroup}/");
            let mut below = entries.iter().filter(|e| e.labels.id.starts_with(&inside));
            let pid = below.find_map(|e| e.sample.processes.first.filter(|_| !e.labels.container.is_empty()));
            let dev = pid.map(|pid| proc(&format!("{pid}/net/dev"))).unwrap_or_default();
            if let Some(entry) = entries.iter_mut().find(|e| e.labels.id == *cgroup) {
                entry.sample.links = read::links(&dev);
            }
        }
        let topology = topology(&self.cpus);
        Scrape { machine: self.machine.clone(), topology, disks, pressure, entries, failed, at }
    }
}

impl Cadvisor {
    /// Reads nothing yet.
    pub(crate) fn new(
        (config, clock): (Arc<Config>, Clock),
        runtime: Runtime,
        pods: Arc<PodManager>,
        machine: Machine,
    ) -> Self {
        let hierarchy = Hierarchy::new(Path::new("/sys/fs/cgroup"), Path::new("/proc"));
        let kubepods = kubepods(&config.cgroup_root, runtime.cgroup_driver);
        Self {
            config,
            clock,
            runtime,
            pods,
            machine,
            hierarchy,
            kubepods,
            turn: Mutex::default(),
            begun: std::sync::atomic::AtomicU64::default(),
        }
    }

    /// The page of this moment. One is made at a time, and those who wait meanwhile get the next one together.
    pub(crate) async fn page(&self) -> Bytes {
        use std::sync::atomic::Ordering::SeqCst;
        let mine = self.begun.fetch_add(1, SeqCst) + 1;
        let mut last = self.turn.lock().await;
        let (seen, page) = match last.take() {
            Some(shared) if shared.0 >= mine => shared,
            _ => {
                let seen = self.begun.load(SeqCst);
                (seen, self.scrape().await)
            }
        };
        // The last one that it is for leaves nothing behind.
        if seen > mine {
            *last = Some((seen, page.clone()));
        }
        page
    }

    /// The figures of one cgroup; none if it is not there.
    pub(crate) async fn cgroup(&self, cgroup: String) -> Option<Sample> {
        let (hierarchy, at) = (self.hierarchy.clone(), self.clock.now().as_millisecond());
        let look = move || {
            let there = hierarchy.dirs(&cgroup).iter().any(|dir| dir.is_dir());
            let wanted = Wanted { network: false, pressure: hierarchy.has_pressure() };
            there.then(|| read(&hierarchy, &cgroup, wanted, at))
        };
        blocking(look).await.ok().flatten()
    }

    /// The cgroup that this process is in, but for the root.
    pub(crate) fn own(&self) -> Option<String> {
        self.hierarchy.own()
    }

    /// Whether the kernel tells of pressure.
    pub(crate) fn has_pressure(&self) -> bool {
        self.hierarchy.has_pressure()
    }

    /// The page where the runtime tells of Pods; upstream's gate `PodAndContainerStatsFromCRI`.
    async fn told_by_runtime(&self) -> Bytes {
        let service = self.runtime.service();
        let (described, told, listing) = tokio::join!(
            service.list_metric_descriptors(pb::ListMetricDescriptorsRequest {}),
            service.list_pod_sandbox_metrics(pb::ListPodSandboxMetricsRequest {}),
            Listing::of(&self.runtime, &self.config.root_dir),
        );
        for error in [described.as_ref().err(), told.as_ref().err()].into_iter().flatten() {
            tracing::warn!(error = error.message(), "the container runtime tells no metrics of Pods");
        }
        let described = described.map(|answer| answer.into_inner().descriptors).unwrap_or_default();
        let mut pods = told.map(|answer| answer.into_inner().pod_metrics).unwrap_or_default();
        let own: BTreeSet<String> =
            listing.unwrap_or_default().sandboxes.into_iter().map(|sandbox| sandbox.id).collect();
        pods.retain(|pod| own.contains(&pod.pod_sandbox_id));
        let (machine, at) = (self.machine.clone(), self.clock.now().as_millisecond());
        let made = blocking(move || {
            let topology = topology(Path::new(CPUS));
            let mut page = Page::default();
            page::machine(&mut page, &Scrape { machine, topology, at, ..Scrape::default() });
            from_runtime::write(&mut page, &described, &pods);
            page.text()
        });
        made.await.unwrap_or_default().into()
    }

    async fn scrape(&self) -> Bytes {
        if self.config.gates.enabled(Gate::PodAndContainerStatsFromCRI) {
            return self.told_by_runtime().await;
        }
        let listing = Listing::of(&self.runtime, &self.config.root_dir).await;
        let failed = listing.is_err();
        let mut names = Names::new(&listing.unwrap_or_default());
        let pods = self.pods.pods();
        names.pods = pods
            .iter()
            .map(|p| (spec::uid(p).to_owned(), (spec::namespace(p).to_owned(), spec::name(p).to_owned())))
            .collect();
        let source = Source {
            hierarchy: self.hierarchy.clone(),
            kubepods: self.kubepods.clone(),
            others: [&self.config.kubelet_cgroups, &self.config.system_cgroups]
                .into_iter()
                .filter(|name| !name.is_empty())
                .map(|name| format!("/{}", name.trim_matches('/')))
                .collect(),
            machine: self.machine.clone(),
            without: vec![
                self.config.root_dir.clone(),
                PathBuf::from("/run/containerd"),
                PathBuf::from("/run/netns"),
            ],
            cpus: PathBuf::from(CPUS),
        };
        let at = self.clock.now().as_millisecond();
        let made = blocking(move || page::page(&source.scrape(&names, failed, at))).await;
        // The kubelet ends.
        made.unwrap_or_default().into()
    }
}
