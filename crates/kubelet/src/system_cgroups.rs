//! The cgroups of processes that are no Pod's: the kubelet's own, and one for those of the system that are in none.
//!
//! They are upstream's `kubeletCgroups` and `systemCgroups`: somebody may start a process at the root at any time, so it is
//! looked again every minute. As upstream, a cgroup is made by its name below each hierarchy's root, whatever driver the
//! runtime uses.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::enforcement::is_unified;
use crate::work::blocking;

/// How often processes are looked for; upstream's.
const PERIOD: Duration = Duration::from_mins(1);
/// How often the root is looked at again at once: processes that are being moved may start others. Upstream's.
const LOOKS: usize = 11;
/// Settings of a new cpuset without which it takes no process.
const CPUSET: [&str; 2] = ["cpuset.cpus", "cpuset.mems"];

/// Why the processes of the system cannot have a cgroup.
#[derive(Debug, thiserror::Error)]
pub enum SystemCgroupsError {
    /// All processes are in the root.
    #[error("system container cannot be root (\"/\")")]
    Root,
}

/// Why a process is not where it is to be.
#[derive(Debug, thiserror::Error)]
enum PlaceError {
    #[error("{path}: {source}", path = path.display())]
    Path {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("failed to move PID {pid} into the system container {name:?}: {source}")]
    Move {
        pid: u32,
        name: String,
        #[source]
        source: Box<PlaceError>,
    },
}

/// The cgroups of processes that are no Pod's.
#[derive(Debug, Clone)]
pub(crate) struct SystemCgroups {
    mount: PathBuf,
    proc: PathBuf,
    /// The kubelet's own, if it chooses it.
    kubelet: Option<String>,
    /// That of processes of the system.
    system: Option<String>,
}

impl SystemCgroups {
    /// The cgroups of these names below a mount; `proc` is `/proc`.
    ///
    /// # Errors
    /// The one of the system is the root.
    pub(crate) fn new(
        (mount, proc): (&Path, &Path),
        kubelet: Option<&str>,
        system: Option<&str>,
    ) -> Result<Self, SystemCgroupsError> {
        if system == Some("/") {
            return Err(SystemCgroupsError::Root);
        }
        let own = |name: Option<&str>| name.filter(|name| !name.is_empty()).map(str::to_owned);
        Ok(Self {
            mount: mount.to_owned(),
            proc: proc.to_owned(),
            kubelet: own(kubelet),
            system: own(system),
        })
    }

    /// Puts the processes where they are to be, again and again.
    pub(crate) async fn keep(self) {
        if self.kubelet.is_none() && self.system.is_none() {
            return;
        }
        loop {
            let places = self.clone();
            blocking(move || places.place(std::process::id())).await.ok();
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Puts the processes where they are to be. A failure is told, and tried again later.
    pub(crate) fn place(&self, own: u32) {
        // The kubelet's own comes last: it may be at the root, too.
        if let Some(name) = &self.system
            && let Err(error) = self.place_system(name)
        {
            tracing::warn!(container_name = name, %error, "Failed to ensure state");
        }
        if let Some(name) = &self.kubelet
            && let Err(error) = self.place_process(name, own)
        {
            tracing::warn!(container_name = name, %error, "Failed to ensure state");
        }
    }

    /// Moves the processes at the root into a cgroup, without the first one and the kernel's.
    fn place_system(&self, name: &str) -> Result<(), PlaceError> {
        let mut result = Ok(());
        for _ in 0..LOOKS {
            let found = self.at_root()?;
            // Those of other process namespaces have no number here.
            let movable = |pid: &u32| *pid > 1 && !self.is_kernels(*pid);
            let found: Vec<u32> = found.into_iter().filter(movable).collect();
            if found.is_empty() {
                return Ok(());
            }
            result = Ok(());
            for pid in found {
                if let Err(source) = self.join(name, pid) {
                    let (name, source) = (name.to_owned(), Box::new(source));
                    result = Err(PlaceError::Move { pid, name, source });
                }
            }
        }
        result
    }

    /// Moves a process into a cgroup, unless it is there.
    fn place_process(&self, name: &str, pid: u32) -> Result<(), PlaceError> {
        let wanted = format!("/{}", name.trim_matches('/'));
        if self.cgroup_of(pid).as_deref() == Some(&*wanted) { Ok(()) } else { self.join(name, pid) }
    }

    /// The processes at the root. In version 1 those of the hierarchy of devices count, as upstream counts.
    fn at_root(&self) -> Result<Vec<u32>, PlaceError> {
        let top = if is_unified(&self.mount) { self.mount.clone() } else { self.mount.join("devices") };
        let path = top.join("cgroup.procs");
        let text = std::fs::read_to_string(&path).map_err(|source| PlaceError::Path { path, source })?;
        Ok(text.lines().filter_map(|line| line.trim().parse().ok()).collect())
    }

    /// Whether a process is the kernel's: those have no program.
    fn is_kernels(&self, pid: u32) -> bool {
        let program = std::fs::read_link(self.proc.join(pid.to_string()).join("exe"));
        program.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// The cgroup of a process; none if it is not one in the hierarchies of processors and of memory.
    fn cgroup_of(&self, pid: u32) -> Option<String> {
        let text = std::fs::read_to_string(self.proc.join(pid.to_string()).join("cgroup")).ok()?;
        let of = |controller: &str| {
            text.lines().find_map(|line| {
                let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
                controllers.split(',').any(|c| c == controller).then(|| path.to_owned())
            })
        };
        if is_unified(&self.mount) {
            return of("");
        }
        let cpu = of("cpu")?;
        (of("memory")? == cpu).then(|| of("name=systemd").unwrap_or(cpu))
    }

    /// Moves a process into a cgroup of every hierarchy, which is made if it is not there.
    fn join(&self, name: &str, pid: u32) -> Result<(), PlaceError> {
        let at = |path: PathBuf| |source| PlaceError::Path { path, source };
        for top in self.tops() {
            let mut dir = top.clone();
            for part in name.split('/').filter(|part| !part.is_empty() && *part != "..") {
                let above = dir.clone();
                dir = dir.join(part);
                match std::fs::create_dir(&dir) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(at(dir)(error));
                    }
                    _ => inherit(&above, &dir),
                }
            }
            let procs = dir.join("cgroup.procs");
            std::fs::write(&procs, pid.to_string()).map_err(at(procs))?;
        }
        Ok(())
    }

    /// The roots of the hierarchies: one, or all of version 1. The unified part of a hybrid has no controllers, and upstream
    /// leaves processes where they are in it.
    fn tops(&self) -> Vec<PathBuf> {
        if is_unified(&self.mount) {
            return vec![self.mount.clone()];
        }
        let entries = std::fs::read_dir(&self.mount).into_iter().flatten().flatten();
        let dirs = entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path());
        dirs.filter(|dir| dir.join("cgroup.procs").exists() && !is_unified(dir)).collect()
    }
}

/// Gives a new cpuset of version 1 what the one above it has. Others have no such files, and what is set stays.
fn inherit(above: &Path, dir: &Path) {
    for file in CPUSET {
        let read = |dir: &Path| std::fs::read_to_string(dir.join(file)).map(|text| text.trim().to_owned());
        if let (Ok(given), Ok(own)) = (read(above), read(dir))
            && own.is_empty()
        {
            // Moving the process reports what is missing.
            let _ = std::fs::write(dir.join(file), given);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Directories in place of the kernel's, with processes: pid, whether it has a program, and `/proc/PID/cgroup`.
    struct Machine(tempfile::TempDir);

    const OWN: u32 = 50;

    impl Machine {
        fn new(hierarchies: &[&str], unified: bool, processes: &[(u32, bool)]) -> Self {
            let machine = Self(tempfile::tempdir().unwrap());
            for name in hierarchies {
                let dir = machine.mount().join(name);
                std::fs::create_dir_all(&dir).unwrap();
                let pids = processes.iter().map(|(pid, _)| pid.to_string()).collect::<Vec<_>>().join("\n");
                std::fs::write(dir.join("cgroup.procs"), pids).unwrap();
            }
            if unified {
                std::fs::write(machine.mount().join("cgroup.controllers"), "cpu memory").unwrap();
            }
            for (pid, program) in processes {
                let dir = machine.proc().join(pid.to_string());
                std::fs::create_dir_all(&dir).unwrap();
                if *program {
                    std::os::unix::fs::symlink("/bin/x", dir.join("exe")).unwrap();
                }
            }
            machine
        }

        fn mount(&self) -> PathBuf {
            self.0.path().join("cgroup")
        }

        fn proc(&self) -> PathBuf {
            self.0.path().join("proc")
        }

        fn of(&self, kubelet: Option<&str>, system: Option<&str>) -> SystemCgroups {
            SystemCgroups::new((&self.mount(), &self.proc()), kubelet, system).unwrap()
        }

        /// The process that was moved last into a cgroup; files keep one, where the kernel's would have them all.
        fn last(&self, cgroup: &str) -> Option<String> {
            std::fs::read_to_string(self.mount().join(cgroup).join("cgroup.procs")).ok()
        }
    }

    #[test]
    fn the_kubelet_goes_into_its_cgroup_in_every_hierarchy() {
        let check = |hierarchies: &[&str], unified: bool, expected: &[&str], without: &[&str]| {
            let machine = Machine::new(hierarchies, unified, &[(OWN, true)]);
            machine.of(Some("/kubelet/own"), None).place(OWN);
            for cgroup in expected {
                assert_eq!(machine.last(cgroup).as_deref(), Some("50"), "{cgroup}");
            }
            for cgroup in without {
                assert_eq!(machine.last(cgroup), None, "{cgroup}");
            }
        };
        check(&[""], true, &["kubelet/own"], &["cpu/kubelet/own"]);
        let first = ["cpu", "memory", "devices", "cpuset", "systemd"];
        check(
            &first,
            false,
            &["cpu/kubelet/own", "memory/kubelet/own", "systemd/kubelet/own"],
            &["kubelet/own"],
        );
    }

    #[test]
    fn a_hybrid_keeps_its_unified_part() {
        let machine = Machine::new(&["cpu", "memory", "devices", "unified"], false, &[(OWN, true)]);
        std::fs::write(machine.mount().join("unified/cgroup.controllers"), "").unwrap();
        machine.of(Some("kubelet"), None).place(OWN);
        assert_eq!(machine.last("cpu/kubelet").as_deref(), Some("50"));
        assert_eq!(machine.last("unified/kubelet"), None);
    }

    #[test]
    fn a_process_that_is_there_is_left_alone() {
        let check = |cgroup: &str, moved: bool| {
            let machine = Machine::new(&["cpu", "memory", "devices"], false, &[(OWN, true)]);
            std::fs::write(machine.proc().join("50/cgroup"), cgroup).unwrap();
            machine.of(Some("/kubelet"), None).place(OWN);
            assert_eq!(machine.last("cpu/kubelet").is_some(), moved, "{cgroup}");
        };
        check("2:memory:/kubelet\n1:cpu,cpuacct:/kubelet\n", false);
        check("3:name=systemd:/kubelet\n2:memory:/a\n1:cpu:/a\n", false);
        check("3:name=systemd:/a\n2:memory:/kubelet\n1:cpu:/kubelet\n", true);
        check("2:memory:/kubelet\n1:cpu:/a\n", true);
        check("2:memory:/\n1:cpu:/\n", true);
    }

    #[test]
    fn processes_of_the_system_are_moved_but_the_first_and_the_kernels() {
        let check = |processes: &[(u32, bool)], expected: Option<&str>| {
            let machine = Machine::new(&["devices", "cpu"], false, processes);
            machine.of(None, Some("/system")).place(OWN);
            assert_eq!(machine.last("cpu/system").as_deref(), expected, "{processes:?}");
            assert_eq!(machine.last("devices/system").as_deref(), expected, "{processes:?}");
        };
        check(&[(1, true)], None);
        check(&[(1, true), (2, false)], None);
        check(&[(1, true), (2, false), (7, true)], Some("7"));
        let machine = Machine::new(&[""], true, &[(1, true), (7, true), (8, false)]);
        machine.of(None, Some("/system")).place(OWN);
        assert_eq!(machine.last("system").as_deref(), Some("7"));
    }

    #[test]
    fn a_new_cpuset_has_what_the_one_above_has() {
        let machine = Machine::new(&["cpuset", "cpu"], false, &[(OWN, true)]);
        let dir = machine.mount().join("cpuset");
        let write = |path: &str, text: &str| {
            std::fs::create_dir_all(dir.join(path).parent().unwrap()).unwrap();
            std::fs::write(dir.join(path), text).unwrap();
        };
        write("cpuset.cpus", "0-3\n");
        write("kubelet/cpuset.cpus", "\n");
        write("cpuset.mems", "0\n");
        write("kubelet/cpuset.mems", "1\n");
        machine.of(Some("/kubelet"), None).place(OWN);
        let read = |path: &str| std::fs::read_to_string(dir.join(path)).unwrap();
        assert_eq!(
            (read("kubelet/cpuset.cpus").as_str(), read("kubelet/cpuset.mems").as_str()),
            ("0-3", "1\n")
        );
    }

    #[test]
    fn the_root_is_no_cgroup_of_the_system() {
        let root = SystemCgroups::new((Path::new("/c"), Path::new("/p")), None, Some("/"));
        assert_eq!(root.unwrap_err().to_string(), "system container cannot be root (\"/\")");
        let machine = Machine::new(&["devices"], false, &[(7, true)]);
        machine.of(Some(""), Some("")).place(OWN);
        assert_eq!(std::fs::read_dir(machine.mount().join("devices")).unwrap().count(), 1);
    }
}
