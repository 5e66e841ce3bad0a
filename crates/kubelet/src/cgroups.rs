//! Cgroups of Pods: `kubepods`, a cgroup for each lesser class of service in it, and one for each Pod.
//!
//! Written for both hierarchies: the unified one, and v1 with a directory a controller.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use cri::runtime::CgroupDriver;
use k8s_openapi::api::core::v1::Pod;

use crate::pods::resources::{MIN_SHARES, PodCgroup, QUOTA_PERIOD, pod_cgroup, shares, weight};
use crate::pods::spec::{self, Qos};

const MOUNT: &str = "/sys/fs/cgroup";
/// A limit of memory from which on there is none; upstream's.
const UNLIMITED: u64 = 1 << 62;

/// The cgroups of one kubelet.
#[derive(Debug, Clone)]
pub(crate) struct Cgroups {
    mount: PathBuf,
    root: String,
    unified: bool,
    driver: CgroupDriver,
    /// How many process ids a Pod may have.
    pids: Option<i64>,
}

impl Cgroups {
    /// Below `root` of the machine's hierarchy, in the runtime's way of naming.
    pub(crate) fn new(root: &str, driver: CgroupDriver, pids: Option<i64>) -> Self {
        let mount = PathBuf::from(MOUNT);
        let unified = mount.join("cgroup.controllers").exists();
        Self { mount, root: root.trim_matches('/').to_owned(), unified, driver, pids }
    }

    /// Names of the cgroups from the root to the Pod's.
    fn names(&self, class: Qos, uid: Option<&str>) -> Vec<String> {
        let mut names: Vec<String> =
            self.root.split('/').filter(|p| !p.is_empty()).map(str::to_owned).collect();
        names.push("kubepods".into());
        match class {
            Qos::Guaranteed => {}
            Qos::Burstable => names.push("burstable".into()),
            Qos::BestEffort => names.push("besteffort".into()),
        }
        names.extend(uid.map(|uid| format!("pod{uid}")));
        names
    }

    /// The parent of a Pod's containers, as CRI is told.
    pub(crate) fn parent(&self, pod: &Pod) -> String {
        let names = self.names(spec::qos(pod), Some(spec::uid(pod)));
        match self.driver {
            CgroupDriver::Cgroupfs => format!("/{}", names.join("/")),
            CgroupDriver::Systemd => {
                let escaped: Vec<String> = names.iter().map(|n| n.replace('-', "_")).collect();
                format!("{}.slice", escaped.join("-"))
            }
        }
    }

    /// The directories of a cgroup: one, or one for each controller that is set here.
    fn dirs(&self, names: &[String]) -> Vec<PathBuf> {
        let below = |base: PathBuf| names.iter().fold(base, |dir, name| dir.join(name));
        if self.unified {
            return vec![below(self.mount.clone())];
        }
        ["cpu", "memory", "pids"]
            .iter()
            .map(|c| self.mount.join(c))
            .filter(|d| d.is_dir())
            .map(below)
            .collect()
    }

    fn create(&self, names: &[String]) -> io::Result<()> {
        for dir in self.dirs(names) {
            if self.unified {
                let mut at = self.mount.clone();
                for name in names {
                    delegate(&at);
                    at = at.join(name);
                    make(&at)?;
                }
            } else {
                std::fs::create_dir_all(&dir)?;
            }
        }
        Ok(())
    }

    fn set(&self, names: &[String], want: &PodCgroup) -> io::Result<()> {
        for dir in self.dirs(names) {
            if self.unified {
                write(&dir, "cpu.weight", weight(want.shares))?;
                let max = want.quota.map_or("max".to_owned(), |q| q.to_string());
                write(&dir, "cpu.max", format!("{max} {QUOTA_PERIOD}"))?;
                write(&dir, "memory.max", want.memory.map_or("max".to_owned(), |m| m.to_string()))?;
                if let Some(pids) = want.pids {
                    write(&dir, "pids.max", pids)?;
                }
                continue;
            }
            match dir.strip_prefix(&self.mount).ok().and_then(|d| d.iter().next()).and_then(|c| c.to_str()) {
                Some("cpu") => {
                    write(&dir, "cpu.shares", want.shares)?;
                    if want.quota.is_some() || dir.join("cpu.cfs_quota_us").exists() {
                        write(&dir, "cpu.cfs_period_us", QUOTA_PERIOD)?;
                        write(&dir, "cpu.cfs_quota_us", want.quota.unwrap_or(-1))?;
                    }
                }
                Some("memory") => write(&dir, "memory.limit_in_bytes", want.memory.unwrap_or(-1))?,
                Some("pids") => want.pids.map_or(Ok(()), |pids| write(&dir, "pids.max", pids))?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes `kubepods` and the classes' cgroups; `milli_cpus` is how many thousandths of a processor the node has, and
    /// `memory` how much all its Pods may have, if less than the machine.
    pub(crate) fn ensure_root(&self, milli_cpus: i64, memory: Option<i64>) -> io::Result<()> {
        if self.driver == CgroupDriver::Systemd {
            tracing::warn!(
                "the container runtime uses systemd's cgroup driver: limits of whole Pods and the shares of their classes are not set with it"
            );
            return Ok(());
        }
        for class in [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort] {
            let names = self.names(class, None);
            self.create(&names)?;
            let milli = if class == Qos::Guaranteed { milli_cpus } else { 0 };
            let wanted = PodCgroup { shares: shares(milli), ..PodCgroup::default() };
            self.set(&names, &wanted)?;
            if class == Qos::Guaranteed
                && memory.is_some()
                && let Err(error) = self.set(&names, &PodCgroup { memory, ..wanted })
            {
                // Pods that run have more already.
                tracing::warn!(%error, "the memory of the node's Pods is not limited to the node's");
            }
        }
        Ok(())
    }

    /// The memory that all Pods may have together, and what is left of it, in bytes; none where it is not limited.
    pub(crate) fn memory_of_pods(&self) -> Option<(u64, u64)> {
        let names = self.names(Qos::Guaranteed, None);
        let dir = self
            .dirs(&names)
            .into_iter()
            .find(|dir| self.unified || dir.starts_with(self.mount.join("memory")))?;
        let text = |file: &str| std::fs::read_to_string(dir.join(file)).ok();
        let number = |file: &str| text(file)?.trim().parse::<u64>().ok();
        let (limit, used, inactive) = if self.unified {
            ("memory.max", "memory.current", "inactive_file ")
        } else {
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ")
        };
        // The kernel's word for no limit is a number that no machine has.
        let limit = number(limit).filter(|limit| *limit < UNLIMITED)?;
        let cache = text("memory.stat")?
            .lines()
            .find_map(|l| l.strip_prefix(inactive)?.trim().parse::<u64>().ok())?;
        let working_set = number(used)?.saturating_sub(cache);
        Some((limit, limit.saturating_sub(working_set)))
    }

    /// Gives the burstable class the shares that its Pods ask for together.
    pub(crate) fn balance(&self, pods: &[std::sync::Arc<Pod>]) {
        if self.driver == CgroupDriver::Systemd {
            return;
        }
        let milli: i64 = pods
            .iter()
            .filter(|p| spec::qos(p) == Qos::Burstable)
            .filter(|p| !matches!(spec::status(p).phase.as_deref(), Some("Succeeded" | "Failed")))
            .map(|p| spec::pod_request(p, "cpu"))
            .sum();
        let want = PodCgroup { shares: shares(milli).max(MIN_SHARES), ..PodCgroup::default() };
        if let Err(error) = self.set(&self.names(Qos::Burstable, None), &want) {
            tracing::debug!(%error, "burstable cgroup");
        }
    }

    /// Whether a Pod's cgroup is there.
    pub(crate) fn exists(&self, pod: &Pod) -> bool {
        self.driver == CgroupDriver::Systemd
            || self.dirs(&self.names(spec::qos(pod), Some(spec::uid(pod)))).iter().all(|d| d.is_dir())
    }

    /// Makes a Pod's cgroup, or sets it anew; `unlimited` says whether its time on processors is not limited.
    pub(crate) fn ensure(&self, pod: &Pod, unlimited: bool) -> io::Result<()> {
        if self.driver == CgroupDriver::Systemd {
            return Ok(());
        }
        let names = self.names(spec::qos(pod), Some(spec::uid(pod)));
        self.create(&names)?;
        let mut wanted = PodCgroup { pids: self.pids, ..pod_cgroup(pod) };
        wanted.quota = wanted.quota.filter(|_| !unlimited);
        self.set(&names, &wanted)
    }

    /// Every hierarchy's root: the runtime makes a Pod's cgroup in each of them.
    fn bases(&self) -> Vec<PathBuf> {
        if self.unified {
            return vec![self.mount.clone()];
        }
        let entries = std::fs::read_dir(&self.mount).into_iter().flatten().flatten();
        entries.map(|e| e.path()).filter(|p| p.is_dir() && !p.is_symlink()).collect()
    }

    /// Removes everything below the root, and the root itself if it is this kubelet's own.
    ///
    /// # Errors
    /// The last one; what could be removed is removed.
    pub(crate) fn remove_all(&self) -> io::Result<()> {
        let mut result = Ok(());
        let own = self.names(Qos::Guaranteed, None);
        let depth = if own.len() > 1 { own.len() - 1 } else { 1 };
        for base in self.bases() {
            let dir = own.iter().take(depth).fold(base, |d, n| d.join(n));
            if dir.is_dir() {
                result = remove_tree(&dir).and(result);
            }
        }
        result
    }

    /// Removes a Pod's cgroup from every hierarchy, whatever its class was.
    ///
    /// # Errors
    /// The last one; what could be removed is removed.
    pub(crate) fn remove(&self, uid: &str) -> io::Result<()> {
        if self.driver == CgroupDriver::Systemd {
            return Ok(());
        }
        let mut result = Ok(());
        for base in self.bases() {
            for class in [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort] {
                let dir = self.names(class, Some(uid)).iter().fold(base.clone(), |d, n| d.join(n));
                if dir.is_dir() {
                    result = remove_tree(&dir).and(result);
                }
            }
        }
        result
    }

    /// uids of the Pods that have a cgroup in any hierarchy.
    pub(crate) fn pods(&self) -> BTreeSet<String> {
        if self.driver == CgroupDriver::Systemd {
            return BTreeSet::new();
        }
        let classes = [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort];
        let dirs = self.bases().into_iter().flat_map(|base| {
            classes.map(|class| self.names(class, None).iter().fold(base.clone(), |d, n| d.join(n)))
        });
        dirs.filter_map(|dir| std::fs::read_dir(dir).ok())
            .flat_map(|entries| entries.flatten())
            .filter(|entry| entry.file_type().is_ok_and(|t| t.is_dir()))
            .filter_map(|entry| entry.file_name().to_str()?.strip_prefix("pod").map(str::to_owned))
            .collect()
    }
}

/// Lets the children of a cgroup have its controllers. A setting reports by itself what the kernel refuses.
fn delegate(dir: &Path) {
    for controller in ["cpuset", "cpu", "io", "memory", "hugetlb", "pids"] {
        let _ = std::fs::write(dir.join("cgroup.subtree_control"), format!("+{controller}"));
    }
}

fn make(dir: &Path) -> io::Result<()> {
    match std::fs::create_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

fn write(dir: &Path, file: &str, value: impl ToString) -> io::Result<()> {
    let path = dir.join(file);
    std::fs::write(&path, value.to_string())
        .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
}

/// Removes a cgroup and those in it; a directory of cgroupfs goes by rmdir with its files in it.
fn remove_tree(dir: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            // A cgroup that stays keeps its parent, whose removal tells of it.
            let _ = remove_tree(&entry.path());
        }
    }
    match std::fs::remove_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
