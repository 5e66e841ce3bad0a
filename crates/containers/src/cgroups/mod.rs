//! Cgroups: limits, figures and the end of a container's processes, in version 1, hybrid and version 2.
//!
//! The place of a cgroup says who makes it: `/kubepods/…/ID` is a directory below the mount of each hierarchy, which is
//! made here (the cgroupfs driver), `SLICE:PREFIX:NAME` a scope that systemd is asked for (the systemd driver; `scope.rs`).
//! A scope is made around its first process, and gets everything that systemd does not manage by files. In a hybrid machine
//! (version 2 without controllers) the hierarchies of version 1 count alone, but that systemd finds the processes of its
//! units in version 2. Decisions (which file gets which figure) are pure, in `v1.rs` and `v2.rs`.

pub(crate) mod devices;
mod files;
mod scope;
mod stats;
#[cfg(test)]
mod tests;
mod v1;
mod v2;
mod write;

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use oci_spec::runtime::{LinuxDeviceCgroup, LinuxResources};
use rustix::fs::{Mode, OFlags};
use systemd::Units;

use self::scope::Scope;
pub(crate) use self::scope::is_scope;
use self::write::Write;
use crate::error::{Doing, Error, Result};
use crate::plan::Hierarchy as View;
use crate::spec::Stats;

/// A mounted hierarchy of version 1.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    /// The controllers, or `name=systemd`.
    controllers: Vec<String>,
    root: PathBuf,
}

/// The cgroups of the machine.
#[derive(Debug, Clone)]
pub struct Cgroups(Arc<Mounted>);

#[derive(Debug)]
struct Mounted {
    layout: Layout,
    /// Version 2 beside hierarchies of version 1.
    hybrid: Option<PathBuf>,
    /// The way to systemd.
    units: Units,
}

/// The name of the hierarchy of version 1 in which systemd alone puts processes.
const OF_SYSTEMD: &str = "name=systemd";

#[derive(Debug, PartialEq, Eq)]
enum Layout {
    V1(Vec<Hierarchy>),
    V2(PathBuf),
}

impl Cgroups {
    /// Finds out how cgroups are mounted. Without any there are no limits, and that is an error.
    pub fn detect() -> Result<Self> {
        Self::detect_with(Units::default())
    }

    /// The same, with the systemd behind another bus than the system's.
    pub fn detect_with(units: Units) -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").doing(|| "read /proc/self/mountinfo")?;
        let (layout, hybrid) = layout(&mounts).ok_or_else(|| {
            Error::Invalid("no cgroups are mounted below /sys/fs/cgroup: mount them first".to_owned())
        })?;
        Ok(Self(Arc::new(Mounted { layout, hybrid, units })))
    }

    /// Whether version 2 has the controllers.
    pub fn unified(&self) -> bool {
        matches!(self.0.layout, Layout::V2(_))
    }

    /// The cgroup of a place such as `/kubepods/pod1/container1` or `kubepods-pod1.slice:prefix:container1`.
    pub(crate) fn group(&self, path: &str) -> Result<Group> {
        if is_scope(path) {
            let scope = Scope::parse(path)?;
            let path = scope.path.clone();
            return Ok(Group { layout: self.clone(), path, scope: Some(Arc::new(scope)) });
        }
        let sane = path.split('/').all(|part| !matches!(part, "." | "..")) && !path.contains(['\0', '\n']);
        let path = path.trim_matches('/');
        if !sane || path.is_empty() {
            return Err(Error::Invalid(format!("{path:?} is no path of a cgroup")));
        }
        Ok(Group { layout: self.clone(), path: path.to_owned(), scope: None })
    }
}

/// The cgroup of version 2 in a process's list, if it is below another one.
fn below<'a>(above: &str, list: &'a str) -> Option<&'a str> {
    let path = list.lines().find_map(|line| line.strip_prefix("0::/"))?;
    // One that is gone, or that this process does not see.
    let known = !path.ends_with(" (deleted)") && !path.split('/').any(|part| part == "..");
    (known && path.strip_prefix(above)?.starts_with('/')).then_some(path)
}

/// Reads the mounts: the hierarchies that count, and version 2 beside version 1.
fn layout(mounts: &str) -> Option<(Layout, Option<PathBuf>)> {
    let mut v1: Vec<Hierarchy> = Vec::new();
    let mut v2 = None;
    for line in mounts.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let (mut left, mut right) = (left.split(' '), right.split(' '));
        let (Some(root), Some(at)) = (left.nth(3), left.next()) else { continue };
        let (kind, options) = (right.next(), right.nth(1).unwrap_or_default());
        // A bound part of a hierarchy is none.
        if root != "/" && !root.starts_with("/..") && kind != Some("cgroup2") {
            continue;
        }
        match kind {
            Some("cgroup2") if v2.is_none() && at.starts_with("/sys/fs/cgroup") => {
                v2 = Some(PathBuf::from(at));
            }
            Some("cgroup") if at.starts_with("/sys/fs/cgroup/") => {
                let known = |o: &&str| {
                    !matches!(
                        *o,
                        "rw" | "ro"
                            | "xattr"
                            | "clone_children"
                            | "noprefix"
                            | "favordynmods"
                            | "nofavordynmods"
                    ) && !o.starts_with("release_agent=")
                };
                let controllers: Vec<String> = options.split(',').filter(known).map(str::to_owned).collect();
                if !v1.iter().any(|h| h.controllers == controllers) {
                    v1.push(Hierarchy { controllers, root: PathBuf::from(at) });
                }
            }
            _ => {}
        }
    }
    if v1.iter().any(|h| h.controllers.iter().any(|c| c == "memory" || c == "cpu" || c == "pids")) {
        Some((Layout::V1(v1), v2))
    } else {
        Some((Layout::V2(v2?), None))
    }
}

/// The rules about devices, if there are any.
fn rules(resources: &LinuxResources) -> Option<&[LinuxDeviceCgroup]> {
    resources.devices().as_deref().filter(|rules| !rules.is_empty())
}

/// A cgroup: one directory in version 2, one in each hierarchy in version 1.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    layout: Cgroups,
    path: String,
    /// The unit that it is, if systemd makes it.
    scope: Option<Arc<Scope>>,
}

impl Group {
    /// The directories, with their hierarchies' controllers.
    fn directories(&self) -> Vec<(&[String], PathBuf)> {
        match &self.layout.0.layout {
            Layout::V1(all) => {
                let hybrid = self.hybrid().map(|directory| (&[][..], directory));
                let all = all.iter().map(|h| (&h.controllers[..], h.root.join(&self.path)));
                all.chain(hybrid).collect()
            }
            Layout::V2(root) => vec![(&[][..], root.join(&self.path))],
        }
    }

    /// Its directory in the version 2 of a hybrid machine, where systemd looks for the processes of a unit.
    fn hybrid(&self) -> Option<PathBuf> {
        self.scope.as_ref().and(self.layout.0.hybrid.as_ref()).map(|root| root.join(&self.path))
    }

    /// Whether it is made around its first process, by [`Group::start`], instead of before it.
    pub(crate) fn is_scope(&self) -> bool {
        self.scope.is_some()
    }

    /// The directory in which a controller's files are.
    fn directory(&self, controller: &str) -> Option<PathBuf> {
        match &self.layout.0.layout {
            Layout::V1(all) => {
                let found = all.iter().find(|h| h.controllers.iter().any(|c| c == controller));
                found.map(|h| h.root.join(&self.path))
            }
            Layout::V2(root) => Some(root.join(&self.path)),
        }
    }

    /// The part of its cgroup that a container sees.
    pub(crate) fn view(&self) -> Vec<View> {
        match &self.layout.0.layout {
            Layout::V1(all) => {
                let one = |h: &Hierarchy| View {
                    name: h.root.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned()),
                    option: Some(h.controllers.join(",")),
                    path: h.root.join(&self.path),
                };
                all.iter().map(one).collect()
            }
            Layout::V2(root) => {
                vec![View { name: String::new(), option: None, path: root.join(&self.path) }]
            }
        }
    }

    /// Makes the cgroup with those above it, and sets its limits. A scope is made by [`Group::start`].
    pub(crate) fn create(&self, resources: Option<&LinuxResources>) -> Result<()> {
        if self.is_scope() {
            return Ok(());
        }
        self.make_directories()?;
        resources.map_or(Ok(()), |r| self.apply(r, true))
    }

    /// Has systemd make the scope around its first process, with its limits; the process waits meanwhile. One that is no
    /// scope is there already.
    pub(crate) fn start(&self, process: i32, resources: Option<&LinuxResources>) -> Result<()> {
        let Some(scope) = &self.scope else { return Ok(()) };
        let deed = || format!("start the unit {}", scope.unit);
        let units = &self.layout.0.units;
        let mut writes = Vec::new();
        let mut limits = Vec::new();
        if let Some(resources) = resources {
            writes = self.writes(resources)?;
            limits = scope::properties(&writes, units.version().doing(deed)?)?;
            if !self.unified()
                && let Some(rules) = rules(resources)
            {
                limits.extend(scope::devices(&devices::rules(rules)));
            }
        }
        let asked = systemd::Scope {
            unit: &scope.unit,
            slice: &scope.slice,
            description: &scope.description,
            process: process.unsigned_abs(),
            unified: self.unified(),
        };
        units.start_scope(&asked, &limits).doing(deed)?;
        // systemd makes those of the controllers that it manages.
        self.make_directories()?;
        resources.map_or(Ok(()), |resources| self.write_limits(&writes, resources, true))
    }

    fn make_directories(&self) -> Result<()> {
        for (controllers, directory) in self.directories() {
            if controllers.iter().any(|c| c == "cpuset") {
                self.make_cpuset(&directory)?;
            } else {
                fs::create_dir_all(&directory)
                    .doing(|| format!("make the cgroup {}", directory.display()))?;
            }
        }
        if let Layout::V2(root) = &self.layout.0.layout {
            v2::delegate(root, &self.path)?;
        }
        Ok(())
    }

    /// A cpuset of version 1 has no processors before it is told so.
    fn make_cpuset(&self, directory: &Path) -> Result<()> {
        let Some(root) = directory.ancestors().nth(self.path.split('/').count()) else { return Ok(()) };
        let mut at = root.to_owned();
        for part in self.path.split('/') {
            let above = at.clone();
            at.push(part);
            if let Err(e) = fs::create_dir(&at)
                && e.kind() != io::ErrorKind::AlreadyExists
            {
                return Err(Error::io(format!("make the cgroup {}", at.display()), e));
            }
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let own = fs::read_to_string(at.join(file)).unwrap_or_default();
                if own.trim().is_empty() {
                    let from = fs::read_to_string(above.join(file)).unwrap_or_default();
                    let path = at.join(file);
                    fs::write(&path, from.trim()).doing(|| format!("write {}", path.display()))?;
                }
            }
        }
        Ok(())
    }

    /// Sets limits. `new`: also those of devices, which an update does not have.
    pub(crate) fn apply(&self, resources: &LinuxResources, new: bool) -> Result<()> {
        let writes = self.writes(resources)?;
        if let Some(scope) = &self.scope {
            let deed = || format!("set the limits of the unit {}", scope.unit);
            let units = &self.layout.0.units;
            let limits = scope::properties(&writes, units.version().doing(deed)?)?;
            if !limits.is_empty() {
                units.set(&scope.unit, &limits).doing(deed)?;
            }
        }
        self.write_limits(&writes, resources, new)
    }

    /// The files of limits and their values.
    fn writes(&self, resources: &LinuxResources) -> Result<Vec<Write>> {
        let writes = match &self.layout.0.layout {
            Layout::V1(_) => v1::writes(resources)?,
            Layout::V2(_) => v2::writes(resources)?,
        };
        Ok(if self.is_scope() { scope::rounded(writes) } else { writes })
    }

    fn write_limits(&self, writes: &[Write], resources: &LinuxResources, new: bool) -> Result<()> {
        let growing = self.grows(writes);
        self.write_all(&growing)?;
        let Some(rules) = rules(resources).filter(|_| new) else { return Ok(()) };
        match &self.layout.0.layout {
            Layout::V1(_) => self.write_all(&devices::v1(rules)),
            Layout::V2(root) => devices::load(&root.join(&self.path), rules)
                .doing(|| format!("load the device program of {}", self.path)),
        }
    }

    /// Memory of version 1: the limit must stay below that of memory with swap, so the order is the direction's.
    fn grows(&self, writes: &[Write]) -> Vec<Write> {
        let mut out = writes.to_vec();
        let place = |file: &str| writes.iter().position(|w| w.file == file);
        if let (Some(limit), Some(swap)) =
            (place("memory.limit_in_bytes"), place("memory.memsw.limit_in_bytes"))
            && let Some(directory) = self.directory("memory")
        {
            let now = files::number(&directory.join("memory.memsw.limit_in_bytes"));
            let wanted = writes[swap].value.parse::<i64>().unwrap_or(-1);
            if wanted < 0 || now.is_some_and(|now| wanted as u64 > now) {
                out.swap(limit, swap);
            }
        }
        out
    }

    fn write_all(&self, writes: &[Write]) -> Result<()> {
        for write in writes {
            let Some(directory) = self.directory(write.controller) else {
                if write.optional {
                    continue;
                }
                return Err(Error::Invalid(format!(
                    "the machine has no cgroup controller {:?} for {}",
                    write.controller, write.file
                )));
            };
            let path = directory.join(&write.file);
            match fs::write(&path, &write.value) {
                Ok(()) => {}
                Err(e)
                    if write.optional
                        && matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {}
                Err(e) => return Err(Error::io(format!("write {:?} to {}", write.value, path.display()), e)),
            }
        }
        Ok(())
    }

    /// The files into which a process writes `0` to join the cgroup.
    pub(crate) fn join_files(&self) -> Result<Vec<OwnedFd>> {
        let (unified, hybrid) = (self.unified(), self.hybrid());
        let file = |directory: PathBuf| {
            let whole = unified || hybrid.as_ref() == Some(&directory);
            directory.join(if whole { "cgroup.procs" } else { "tasks" })
        };
        self.directories().into_iter().map(|(_, directory)| open_to_join(&file(directory))).collect()
    }

    /// The files into which the first process writes `0`: systemd has put that of a scope into its own hierarchy and into
    /// version 2.
    pub(crate) fn join_files_of_first(&self) -> Result<Vec<OwnedFd>> {
        if !self.is_scope() {
            return self.join_files();
        }
        self.left_to_first().map(|h| open_to_join(&h.root.join(&self.path).join("tasks"))).collect()
    }

    /// The number of those files. The cgroup need not be there.
    pub(crate) fn joins_of_first(&self) -> usize {
        if self.is_scope() { self.left_to_first().count() } else { self.directories().len() }
    }

    /// The hierarchies that a scope's first process joins by itself. It may be in some already: systemd manages a few.
    fn left_to_first(&self) -> impl Iterator<Item = &Hierarchy> {
        let all: &[Hierarchy] = match &self.layout.0.layout {
            Layout::V1(all) => all,
            Layout::V2(_) => &[],
        };
        all.iter().filter(|h| !h.controllers.iter().any(|c| c == OF_SYSTEMD))
    }

    /// The cgroup for a further process of a container whose first one has this number. A container that gives controllers
    /// to cgroups below its own (systemd, another container runtime) may have no process in its own any more (version 2),
    /// so a further one is beside the first, as in runc.
    pub(crate) fn beside(&self, first: i32) -> Self {
        let Layout::V2(root) = &self.layout.0.layout else { return self.clone() };
        let given = fs::read_to_string(root.join(&self.path).join("cgroup.subtree_control"));
        if given.is_ok_and(|given| given.trim().is_empty()) {
            return self.clone();
        }
        let text = fs::read_to_string(format!("/proc/{first}/cgroup")).unwrap_or_default();
        let path = below(&self.path, &text).unwrap_or(&self.path);
        Self { path: path.to_owned(), ..self.clone() }
    }

    /// The directory in which processes can be born; version 2 alone has that.
    pub(crate) fn born_in(&self) -> Result<Option<OwnedFd>> {
        let Layout::V2(root) = &self.layout.0.layout else { return Ok(None) };
        let path = root.join(&self.path);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let d = rustix::fs::open(&path, flags, Mode::empty()).doing(|| format!("open {}", path.display()))?;
        Ok(Some(d))
    }

    /// The processes in the cgroup and those below it.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let directory = match &self.layout.0.layout {
            // Every hierarchy has them; the first that there is will do.
            Layout::V1(all) => all.iter().map(|h| h.root.join(&self.path)).find(|d| d.is_dir()),
            Layout::V2(root) => Some(root.join(&self.path)),
        };
        let mut out = Vec::new();
        let mut open: Vec<PathBuf> = directory.into_iter().collect();
        while let Some(directory) = open.pop() {
            let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
            out.extend(text.lines().filter_map(|l| l.parse::<i32>().ok()));
            open.extend(files::below(&directory));
        }
        out
    }

    /// Kills every process, and waits until none is left, for `patience` at most. Says whether none is left.
    pub(crate) async fn kill(&self, patience: Duration) -> bool {
        let end = tokio::time::Instant::now() + patience;
        let mut pause = Duration::from_millis(1);
        loop {
            let processes = self.processes();
            if processes.is_empty() {
                return true;
            }
            if !self.kill_at_once() {
                // Frozen processes do not multiply while they are killed, but a frozen one does not die.
                self.freeze(true);
                for pid in self.processes() {
                    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                    }
                }
                self.freeze(false);
            }
            if tokio::time::Instant::now() >= end {
                return false;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }

    fn kill_at_once(&self) -> bool {
        match &self.layout.0.layout {
            Layout::V2(root) => fs::write(root.join(&self.path).join("cgroup.kill"), "1").is_ok(),
            Layout::V1(_) => false,
        }
    }

    /// Lets processes go on that a runtime froze to kill them, and was killed itself.
    pub(crate) fn thaw(&self) {
        self.freeze(false);
    }

    fn freeze(&self, freeze: bool) {
        let (controller, file, value) = match (&self.layout.0.layout, freeze) {
            (Layout::V1(_), true) => ("freezer", "freezer.state", "FROZEN"),
            (Layout::V1(_), false) => ("freezer", "freezer.state", "THAWED"),
            (Layout::V2(_), _) => ("", "cgroup.freeze", if freeze { "1" } else { "0" }),
        };
        if let Some(directory) = self.directory(controller) {
            let _ = fs::write(directory.join(file), value);
        }
    }

    /// Removes the cgroup with those below it. Processes that end meanwhile hold it for a while.
    pub(crate) async fn remove(&self, patience: Duration) -> Result<()> {
        if let Some(scope) = self.scope.clone() {
            let layout = self.layout.clone();
            let stop = move || layout.0.units.stop(&scope.unit).map_err(|e| (scope.unit.clone(), e));
            let stopped = component::blocking(stop).await;
            // Its cgroups go in any case: a unit without any ends by itself.
            if let Ok(Err((unit, e))) = stopped {
                tracing::warn!("cannot stop the unit {unit}: {e}");
            }
        }
        let end = tokio::time::Instant::now() + patience;
        let mut pause = Duration::from_millis(1);
        loop {
            let failed =
                self.directories().iter().find_map(|(_, d)| files::remove(d).err().map(|e| (d.clone(), e)));
            let Some((directory, e)) = failed else { return Ok(()) };
            if tokio::time::Instant::now() >= end {
                return Err(Error::io(format!("remove the cgroup {}", directory.display()), e));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }

    /// How many processes the kernel killed because memory was out.
    pub(crate) fn oom_kills(&self) -> u64 {
        let file = match &self.layout.0.layout {
            Layout::V1(_) => self.directory("memory").map(|d| d.join("memory.oom_control")),
            Layout::V2(root) => Some(root.join(&self.path).join("memory.events")),
        };
        file.and_then(|f| files::field(&f, "oom_kill")).unwrap_or(0)
    }

    /// The file that is polled for processes killed because memory was out (v2), or the directory of memory (v1).
    pub(crate) fn memory_directory(&self) -> Option<PathBuf> {
        self.directory("memory")
    }

    /// Whether version 2 has the controllers.
    pub(crate) fn unified(&self) -> bool {
        self.layout.unified()
    }

    /// The figures.
    pub(crate) fn stats(&self) -> Stats {
        stats::read(self.layout.unified(), |controller| self.directory(controller))
    }
}

/// Opens a file into which processes write to join a cgroup.
fn open_to_join(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).doing(|| format!("open {}", path.display()))
}

impl Group {
    /// Opens a file of the memory controller.
    pub(crate) fn open_memory(&self, file: &str) -> io::Result<OwnedFd> {
        let directory = self.memory_directory().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(directory.join(file), flags, Mode::empty())?)
    }
    /// Has the kernel count into `event` whenever memory is out (v1).
    pub(crate) fn tell_oom(&self, event: impl AsFd) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        let directory = self.memory_directory().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let control = self.open_memory("memory.oom_control")?;
        let words = format!("{} {}", event.as_fd().as_raw_fd(), control.as_raw_fd());
        fs::write(directory.join("cgroup.event_control"), words)
    }
}
