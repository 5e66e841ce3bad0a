//! Cgroups of Pods: `kubepods`, a cgroup for each lesser class of service in it, and one for each Pod.
//!
//! Written for both hierarchies: the unified one, and v1 with a directory a controller. With systemd's driver a cgroup is a
//! slice, which systemd is asked for; what it has no word for is written into files beside that, as in runc.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use cri::runtime::CgroupDriver;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;

use crate::cadvisor::pod_of;
use crate::enforcement::{Limits, QUOTA_PERIOD, is_unified};
use crate::metrics::{self, Metrics};
use crate::pods::pod_level::Figures;
use crate::pods::resources::{MIN_SHARES, PodCgroup, page_name, pod_cgroup, shares, weight};
use crate::pods::spec::{self, Qos};
use crate::slices::{Slices, properties};

pub(crate) const MOUNT: &str = "/sys/fs/cgroup";
/// A limit of memory from which on there is none; upstream's.
const UNLIMITED: u64 = 1 << 62;

/// The cgroups of one kubelet.
#[derive(Debug, Clone)]
pub(crate) struct Cgroups {
    mount: PathBuf,
    root: String,
    unified: bool,
    driver: CgroupDriver,
    /// The way to systemd, if it is the one who makes cgroups.
    slices: Option<Arc<Slices>>,
    /// Whether cgroups are made at all.
    made: bool,
    /// How limits are enforced here.
    limits: Arc<Limits>,
    /// The memory that guaranteed Pods and burstable ones have kept for them, in bytes.
    kept: Arc<Mutex<(i64, i64)>>,
    metrics: Metrics,
}

/// The part of the node that processes outside Pods have; what there is none of is left alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Reservation {
    /// cpu shares in v1's units.
    pub(crate) shares: Option<u64>,
    /// Memory in bytes.
    pub(crate) memory: Option<i64>,
    /// Process ids.
    pub(crate) pids: Option<i64>,
}

impl Cgroups {
    /// Below `root` of the machine's hierarchy, in the runtime's way of naming.
    pub(crate) fn new(root: &str, driver: CgroupDriver, limits: Limits) -> Self {
        let slices = (driver == CgroupDriver::Systemd).then(Arc::default);
        Self { slices, ..Self::at(PathBuf::from(MOUNT), root, driver, limits) }
    }

    fn at(mount: PathBuf, root: &str, driver: CgroupDriver, limits: Limits) -> Self {
        let unified = is_unified(&mount);
        let (root, limits) = (root.trim_matches('/').to_owned(), Arc::new(limits));
        let (kept, metrics) = (Arc::default(), Metrics::default());
        Self { mount, root, unified, driver, slices: None, made: true, limits, kept, metrics }
    }

    /// Makes none, unless they are wanted.
    pub(crate) fn if_wanted(mut self, wanted: bool) -> Self {
        self.made = wanted;
        self
    }

    /// The memory that guaranteed Pods and burstable ones have kept for them together, in bytes; none where nobody has any.
    pub(crate) fn kept_memory(&self) -> Option<(i64, i64)> {
        self.limits.memory_qos().map(|_| *self.kept.lock())
    }

    /// How limits are enforced here.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The same; its work is counted there.
    #[must_use]
    pub(crate) fn counted_by(mut self, metrics: &Metrics) -> Self {
        self.metrics = metrics.clone();
        self
    }

    /// The version of the hierarchy.
    pub(crate) fn version(&self) -> u8 {
        if self.unified { 2 } else { 1 }
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

    /// The parent of a Pod's containers, as CRI is told: none where Pods have no cgroups.
    pub(crate) fn parent(&self, pod: &Pod) -> String {
        if self.made { self.place(pod) } else { String::new() }
    }

    /// The name of a Pod's cgroup in the driver's words.
    fn place(&self, pod: &Pod) -> String {
        let names = self.names(spec::qos(pod), Some(spec::uid(pod)));
        match self.driver {
            CgroupDriver::Cgroupfs => format!("/{}", names.join("/")),
            CgroupDriver::Systemd => unit(&names),
        }
    }

    /// The path of a Pod's cgroup below the mount of a hierarchy.
    pub(crate) fn path(&self, pod: &Pod) -> String {
        let parent = self.place(pod);
        match self.driver {
            CgroupDriver::Cgroupfs => parent,
            CgroupDriver::Systemd => slices(&parent).iter().flat_map(|part| ["/", part]).collect(),
        }
    }

    /// The directories of a cgroup: one, or one for each controller that is set here.
    fn dirs(&self, names: &[String]) -> Vec<PathBuf> {
        let below = |base: PathBuf| self.below(base, names);
        if self.unified {
            return vec![below(self.mount.clone())];
        }
        ["cpu", "memory", "pids", "hugetlb"]
            .iter()
            .map(|c| self.mount.join(c))
            .filter(|d| d.is_dir())
            .map(below)
            .collect()
    }

    /// The directories on the way to a cgroup, and itself.
    fn parts(&self, names: &[String]) -> Vec<String> {
        match self.driver {
            CgroupDriver::Cgroupfs => names.to_vec(),
            CgroupDriver::Systemd => slices(&unit(names)),
        }
    }

    fn below(&self, base: PathBuf, names: &[String]) -> PathBuf {
        self.parts(names).iter().fold(base, |dir, part| dir.join(part))
    }

    /// The path of the cgroup below which Pods' are.
    pub(crate) fn root(&self) -> String {
        let all = self.names(Qos::Guaranteed, None);
        let path = self.below(PathBuf::from("/"), &all[..all.len() - 1]);
        path.to_string_lossy().into_owned()
    }

    fn create(&self, names: &[String]) -> io::Result<()> {
        if let Some(slices) = &self.slices {
            slices.start(&unit(names))?;
        }
        for dir in self.dirs(names) {
            if self.unified {
                let mut at = self.mount.clone();
                for name in self.parts(names) {
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
        let period = if want.period > 0 { want.period } else { QUOTA_PERIOD };
        if let Some(slices) = &self.slices {
            slices.set(&unit(names), &properties(want, QUOTA_PERIOD, self.unified))?;
        }
        for dir in self.dirs(names) {
            if self.unified {
                write(&dir, "cpu.weight", weight(want.shares))?;
                let max = want.quota.map_or("max".to_owned(), |q| q.to_string());
                write(&dir, "cpu.max", format!("{max} {period}"))?;
                write(&dir, "memory.max", want.memory.map_or("max".to_owned(), |m| m.to_string()))?;
                if let Some(pids) = want.pids {
                    write(&dir, "pids.max", pids)?;
                }
                for (file, value) in &want.unified {
                    write(&dir, file, value)?;
                }
                set_hugepages(&dir, "max", want)?;
                continue;
            }
            match self.controller(&dir) {
                Some("cpu") => {
                    write(&dir, "cpu.shares", want.shares)?;
                    if want.quota.is_some() || dir.join("cpu.cfs_quota_us").exists() {
                        write(&dir, "cpu.cfs_period_us", period)?;
                        write(&dir, "cpu.cfs_quota_us", want.quota.unwrap_or(-1))?;
                    }
                }
                Some("memory") => write(&dir, "memory.limit_in_bytes", want.memory.unwrap_or(-1))?,
                Some("pids") => want.pids.map_or(Ok(()), |pids| write(&dir, "pids.max", pids))?,
                Some("hugetlb") => set_hugepages(&dir, "limit_in_bytes", want)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// The controller whose hierarchy of v1 a directory is in.
    fn controller<'d>(&self, dir: &'d Path) -> Option<&'d str> {
        dir.strip_prefix(&self.mount).ok()?.iter().next()?.to_str()
    }

    /// Makes `kubepods` and the classes' cgroups; `milli_cpus` is how many thousandths of a processor all Pods have.
    pub(crate) fn ensure_root(&self, milli_cpus: i64) -> io::Result<()> {
        if !self.made {
            return Ok(());
        }
        // Within what all Pods have, a class has as many huge pages as its Pods ask for.
        let unbounded: BTreeMap<u64, u64> = self.limits.page_sizes.iter().map(|s| (*s, UNLIMITED)).collect();
        for class in [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort] {
            let names = self.names(class, None);
            self.create(&names)?;
            let (milli, hugepages) =
                if class == Qos::Guaranteed { (milli_cpus, BTreeMap::new()) } else { (0, unbounded.clone()) };
            self.set(&names, &PodCgroup { shares: shares(milli), hugepages, ..PodCgroup::default() })?;
        }
        Ok(())
    }

    /// Holds all Pods together to what the node gives them.
    ///
    /// # Errors
    /// The kernel refuses: Pods that run may have more already.
    pub(crate) fn limit_pods(&self, wanted: &PodCgroup) -> io::Result<()> {
        if !self.made {
            return Ok(());
        }
        self.set(&self.names(Qos::Guaranteed, None), wanted)
    }

    /// The cgroup of all Pods, as upstream's Events write it.
    pub(crate) fn name_of_pods(&self) -> String {
        format!("{:?}", self.names(Qos::Guaranteed, None)).replace(", ", " ")
    }

    /// Gives a cgroup that somebody else made its part of the node.
    ///
    /// # Errors
    /// It is not there, or the kernel refuses.
    pub(crate) fn reserve(&self, name: &str, want: &Reservation) -> io::Result<()> {
        let names: Vec<String> = name.split('/').filter(|n| !n.is_empty()).flat_map(slices).collect();
        let dirs = self.dirs(&names);
        let missing: Vec<String> =
            dirs.iter().filter(|d| !d.is_dir()).map(|d| d.display().to_string()).collect();
        if !missing.is_empty() || names.is_empty() {
            let text = format!("cgroup {names:?} has some missing paths: {}", missing.join(", "));
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        for dir in dirs {
            let controller = self.controller(&dir).filter(|_| !self.unified);
            let has = |name: &str| self.unified || controller == Some(name);
            if let Some(shares) = want.shares.filter(|_| has("cpu")) {
                if self.unified {
                    write(&dir, "cpu.weight", weight(shares))?;
                } else {
                    write(&dir, "cpu.shares", shares)?;
                }
            }
            if let Some(memory) = want.memory.filter(|_| has("memory")) {
                write(&dir, if self.unified { "memory.max" } else { "memory.limit_in_bytes" }, memory)?;
                if self.limits.memory_qos().is_some() {
                    write(&dir, "memory.min", memory)?;
                }
            }
            if let Some(pids) = want.pids.filter(|_| has("pids")) {
                write(&dir, "pids.max", pids)?;
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

    /// Gives the classes what their Pods ask for together: shares of cpu, and where the configuration says so the memory that
    /// is kept for them.
    pub(crate) fn balance(&self, pods: &[Arc<Pod>]) {
        if !self.made {
            return;
        }
        let asked = |class: Qos, name: &str| -> i64 {
            pods.iter()
                .filter(|p| spec::qos(p) == class)
                .filter(|p| !matches!(spec::status(p).phase.as_deref(), Some("Succeeded" | "Failed")))
                .map(|p| spec::pod_request(p, name))
                .fold(0, i64::saturating_add)
        };
        let cpu = asked(Qos::Burstable, "cpu");
        let memory = (asked(Qos::Guaranteed, "memory"), asked(Qos::Burstable, "memory"));
        let mut burstable = PodCgroup { shares: shares(cpu).max(MIN_SHARES), ..PodCgroup::default() };
        let mut best_effort = PodCgroup { shares: MIN_SHARES, ..PodCgroup::default() };
        if let Some(percent) = self.limits.by.reserved_for_classes {
            let (first, second) = of_classes(self.limits.allocatable, memory, percent);
            (burstable.memory, best_effort.memory) = (Some(first), Some(second));
            self.set_class(Qos::BestEffort, &best_effort);
        }
        if let Some(qos) = self.limits.memory_qos() {
            let (all, low) =
                if qos.reserves { (memory.0.saturating_add(memory.1), memory.1) } else { (0, 0) };
            *self.kept.lock() = if qos.reserves { memory } else { (0, 0) };
            burstable.unified.insert("memory.low", low);
            for dir in self.dirs(&self.names(Qos::Guaranteed, None)) {
                if let Err(error) = write(&dir, "memory.min", all) {
                    tracing::debug!(%error, "the memory of Pods is not kept for them");
                }
            }
        }
        self.set_class(Qos::Burstable, &burstable);
    }

    /// Sets the cgroup of a class. Where its Pods have more memory already than it gets, they get no more.
    fn set_class(&self, class: Qos, want: &PodCgroup) {
        let names = self.names(class, None);
        let Err(error) = self.set(&names, want) else { return };
        tracing::debug!(%error, class = class.as_str(), "cgroup of a class");
        let usage = if self.unified { "memory.current" } else { "memory.usage_in_bytes" };
        let used = self
            .dirs(&names)
            .iter()
            .find_map(|dir| std::fs::read_to_string(dir.join(usage)).ok()?.trim().parse::<i64>().ok());
        if want.memory.zip(used).is_some_and(|(memory, used)| used > memory)
            && let Err(error) = self.set(&names, &PodCgroup { memory: used, ..want.clone() })
        {
            tracing::debug!(%error, class = class.as_str(), "cgroup of a class");
        }
    }

    /// Whether a Pod's cgroup is there.
    pub(crate) fn exists(&self, pod: &Pod) -> bool {
        !self.made || self.dirs(&self.names(spec::qos(pod), Some(spec::uid(pod)))).iter().all(|d| d.is_dir())
    }

    /// Makes a Pod's cgroup, or sets it anew; `unlimited` says whether its time on processors is not limited.
    pub(crate) fn ensure(&self, pod: &Pod, unlimited: bool) -> io::Result<()> {
        if !self.made {
            return Ok(());
        }
        let (operation, began) = (if self.exists(pod) { "update" } else { "create" }, Instant::now());
        let names = self.names(spec::qos(pod), Some(spec::uid(pod)));
        self.create(&names)?;
        let mut wanted = pod_cgroup(pod, &self.limits);
        wanted.quota = wanted.quota.filter(|_| !unlimited);
        self.set(&names, &wanted)?;
        self.metrics.took(&metrics::CGROUP_MANAGER_DURATION_SECONDS, &[operation], began.elapsed());
        Ok(())
    }

    /// Sets a Pod's cgroup, which is there.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn apply(&self, pod: &Pod, wanted: &PodCgroup) -> io::Result<()> {
        if !self.made {
            return Ok(());
        }
        self.set(&self.names(spec::qos(pod), Some(spec::uid(pod))), wanted)
    }

    /// The content of a file of a Pod's cgroup: that of a controller in the older hierarchy, or that of the unified one.
    fn read(&self, pod: &Pod, controller: &str, v1: &str, v2: &str) -> Option<String> {
        let names = self.names(spec::qos(pod), Some(spec::uid(pod)));
        let (base, file) =
            if self.unified { (self.mount.clone(), v2) } else { (self.mount.join(controller), v1) };
        std::fs::read_to_string(self.below(base, &names).join(file)).ok()
    }

    /// The figures of a Pod's cgroup; none where it cannot be read.
    pub(crate) fn figures(&self, pod: &Pod) -> Option<Figures> {
        if !self.made {
            return None;
        }
        let number = |text: &str| text.trim().parse::<i64>().ok();
        let part = self.read(pod, "cpu", "cpu.shares", "cpu.weight")?.trim().parse().ok()?;
        let (quota, period) = if self.unified {
            let text = self.read(pod, "cpu", "", "cpu.max")?;
            let (quota, period) = text.trim().split_once(' ')?;
            (number(quota), number(period)?)
        } else {
            // A kernel without quotas has no such file.
            let quota = self.read(pod, "cpu", "cpu.cfs_quota_us", "").and_then(|text| number(&text));
            let period = self.read(pod, "cpu", "cpu.cfs_period_us", "").and_then(|text| number(&text));
            (quota.filter(|quota| *quota > 0), period.unwrap_or(QUOTA_PERIOD))
        };
        let memory = self.read(pod, "memory", "memory.limit_in_bytes", "memory.max")?;
        // The kernel's word for no limit is one, or a number that no machine has.
        let memory =
            number(&memory).filter(|bytes| u64::try_from(*bytes).is_ok_and(|bytes| bytes < UNLIMITED));
        Some(Figures { part, unified: self.unified, quota, period, memory, page: self.limits.page })
    }

    /// How much memory a Pod uses, in bytes.
    pub(crate) fn memory_used(&self, pod: &Pod) -> Option<u64> {
        self.read(pod, "memory", "memory.usage_in_bytes", "memory.current")?.trim().parse().ok()
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
        let own = self.names(Qos::Guaranteed, None);
        let depth = if own.len() > 1 { own.len() - 1 } else { 1 };
        self.remove_from_all(&own[..depth])
    }

    /// Removes a cgroup with those in it from every hierarchy.
    fn remove_from_all(&self, names: &[String]) -> io::Result<()> {
        let all = self.bases().into_iter().map(|base| self.below(base, names));
        let there: Vec<PathBuf> = all.filter(|dir| dir.is_dir()).collect();
        let mut result = Ok(());
        if let Some(slices) = self.slices.as_ref().filter(|_| !there.is_empty()) {
            result = slices.stop(&unit(names));
        }
        for dir in there {
            result = remove_tree(&dir).and(result);
        }
        result
    }

    /// Removes a Pod's cgroup from every hierarchy, whatever its class was.
    ///
    /// # Errors
    /// The last one; what could be removed is removed.
    pub(crate) fn remove(&self, uid: &str) -> io::Result<()> {
        let began = Instant::now();
        let mut result = Ok(());
        for class in [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort] {
            result = self.remove_from_all(&self.names(class, Some(uid))).and(result);
        }
        self.metrics.took(&metrics::CGROUP_MANAGER_DURATION_SECONDS, &["destroy"], began.elapsed());
        result
    }

    /// uids of the Pods that have a cgroup in any hierarchy.
    pub(crate) fn pods(&self) -> BTreeSet<String> {
        let classes = [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort];
        let dirs = self
            .bases()
            .into_iter()
            .flat_map(|base| classes.map(|class| self.below(base.clone(), &self.names(class, None))));
        dirs.filter_map(|dir| std::fs::read_dir(dir).ok())
            .flat_map(|entries| entries.flatten())
            .filter(|entry| entry.file_type().is_ok_and(|t| t.is_dir()))
            .filter_map(|entry| pod_of(entry.file_name().to_str()?))
            .collect()
    }
}

/// The slice of a cgroup, as upstream names it: its name holds those above it, and each name's own dashes are others.
fn unit(names: &[String]) -> String {
    let escaped: Vec<String> = names.iter().map(|name| name.replace('-', "_")).collect();
    format!("{}.slice", escaped.join("-"))
}

/// The memory that burstable Pods and those below them may have, in bytes, of what all may: a percentage of what the classes
/// above them ask for is kept from each. Upstream's rule.
fn of_classes(all: i64, (guaranteed, burstable): (i64, i64), percent: i64) -> (i64, i64) {
    let kept = |asked: i64| (i128::from(asked) * i128::from(percent) / 100) as i64;
    let first = all.saturating_sub(kept(guaranteed));
    (first, first.saturating_sub(kept(burstable)))
}

/// The directories of a cgroup by its name: systemd has `a-b.slice` in `a.slice`.
fn slices(name: &str) -> Vec<String> {
    let Some(parts) = name.strip_suffix(".slice") else { return vec![name.to_owned()] };
    let ends = parts.match_indices('-').map(|(at, _)| at).chain([parts.len()]);
    ends.map(|end| format!("{}.slice", &parts[..end])).collect()
}

/// Sets limits of huge pages, of the sizes that the kernel counts; `file` is the end of the file's name.
fn set_hugepages(dir: &Path, file: &str, want: &PodCgroup) -> io::Result<()> {
    for (size, limit) in &want.hugepages {
        let file = format!("hugetlb.{}.{file}", page_name(*size));
        if dir.join(&file).exists() {
            write(dir, &file, limit)?;
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests;
