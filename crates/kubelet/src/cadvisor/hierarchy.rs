//! The places of cgroups: the unified hierarchy, or one for each controller of version 1.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cri::runtime::CgroupDriver;

/// The controllers of version 1 that are read.
const CONTROLLERS: [&str; 5] = ["cpu", "cpuacct", "memory", "blkio", "pids"];
/// The most cgroups that one scrape tells of. Nearer ones come first: a container may make as many in its own as it likes.
const MOST: usize = 4096;
/// How far below its top a cgroup is looked for.
const DEPTH: usize = 8;

/// The directories in which the kernel shows cgroups and processes.
#[derive(Debug, Clone)]
pub(crate) struct Hierarchy {
    mount: PathBuf,
    /// `/proc`.
    pub(super) proc: PathBuf,
    /// Whether it is version 2.
    pub(super) unified: bool,
}

impl Hierarchy {
    /// The one below a mount. A hybrid one has its controllers in version 1.
    pub(crate) fn new(mount: &Path, proc: &Path) -> Self {
        let unified = mount.join("cgroup.controllers").exists();
        Self { mount: mount.to_owned(), proc: proc.to_owned(), unified }
    }

    /// The directory of a cgroup that has a controller's files.
    pub(super) fn dir(&self, controller: &str, cgroup: &str) -> PathBuf {
        let top = if self.unified { self.mount.clone() } else { self.mount.join(controller) };
        cgroup.split('/').filter(|part| !part.is_empty()).fold(top, |dir, part| dir.join(part))
    }

    /// All directories of a cgroup.
    pub(super) fn dirs(&self, cgroup: &str) -> Vec<PathBuf> {
        let all: &[&str] = if self.unified { &[""] } else { &CONTROLLERS };
        all.iter().map(|controller| self.dir(controller, cgroup)).collect()
    }

    /// Whether the kernel tells how long processes waited for resources: only in the unified hierarchy, as upstream reads.
    pub(super) fn has_pressure(&self) -> bool {
        std::fs::read(self.mount.join("cpu.pressure")).is_ok()
    }

    /// A cgroup and those below it, nearer ones first; nothing if it is not there.
    pub(super) fn tree(&self, top: &str) -> Vec<String> {
        let mut level: BTreeSet<String> =
            self.dirs(top).iter().any(|d| d.is_dir()).then(|| top.to_owned()).into_iter().collect();
        let mut found = Vec::new();
        for _ in 0..=DEPTH {
            let mut below = BTreeSet::new();
            for cgroup in level {
                if found.len() == MOST {
                    return found;
                }
                for dir in self.dirs(&cgroup) {
                    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
                    let dirs = entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
                    let names = dirs.filter_map(|e| e.file_name().into_string().ok());
                    below.extend(names.take(MOST).map(|name| format!("{cgroup}/{name}")));
                }
                found.push(cgroup);
            }
            level = below;
        }
        found
    }

    /// The cgroup that this process itself is in, where that is not the root.
    pub(super) fn own(&self) -> Option<String> {
        let text = std::fs::read_to_string(self.proc.join("self/cgroup")).ok()?;
        own_cgroup(&text, self.unified)
    }
}

/// The cgroup of a process, by its `/proc/PID/cgroup`; none for the root.
fn own_cgroup(text: &str, unified: bool) -> Option<String> {
    let wanted = |controllers: &str| {
        if unified { controllers.is_empty() } else { controllers.split(',').any(|c| c == "cpu") }
    };
    let path = text.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        wanted(controllers).then_some(path)
    })?;
    // A path that leads out of this process's view of the cgroups.
    (path != "/" && !path.contains("/..")).then(|| path.to_owned())
}

/// The cgroup of all Pods, `kubepods`, below a kubelet's root, as each driver names it.
pub(crate) fn kubepods(root: &str, driver: CgroupDriver) -> String {
    let parts = root.split('/').filter(|part| !part.is_empty()).chain(["kubepods"]);
    match driver {
        CgroupDriver::Cgroupfs => parts.flat_map(|part| ["/", part]).collect(),
        CgroupDriver::Systemd => {
            let mut slice = String::new();
            let mut path = String::new();
            for part in parts {
                if !slice.is_empty() {
                    slice.push('-');
                }
                slice.push_str(&part.replace('-', "_"));
                path.extend(["/", &slice, ".slice"]);
            }
            path
        }
    }
}

/// The uid of the Pod whose cgroup this is, if it is one: `pod…` or `…-pod….slice`.
pub(crate) fn pod_of(cgroup: &str) -> Option<String> {
    let name = cgroup.rsplit('/').next()?;
    if let Some(slice) = name.strip_suffix(".slice") {
        return slice.rsplit('-').next()?.strip_prefix("pod").map(|uid| uid.replace('_', "-"));
    }
    name.strip_prefix("pod").map(str::to_owned)
}

/// The id of the container or sandbox whose cgroup may be this one: `ID`, `cri-containerd-ID.scope` or `crio-ID.scope`.
pub(super) fn id_of(cgroup: &str) -> Option<&str> {
    let name = cgroup.rsplit('/').next()?;
    Some(name.strip_suffix(".scope").map_or(name, |scope| scope.rsplit('-').next().unwrap_or(scope)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let check = |root: &str, driver, expected: &str| assert_eq!(kubepods(root, driver), expected);
        check("/", CgroupDriver::Cgroupfs, "/kubepods");
        check("/a/b", CgroupDriver::Cgroupfs, "/a/b/kubepods");
        check("/", CgroupDriver::Systemd, "/kubepods.slice");
        check("/a-b", CgroupDriver::Systemd, "/a_b.slice/a_b-kubepods.slice");
        for (cgroup, pod, id) in [
            ("/kubepods/burstable/podu-1", Some("u-1"), "podu-1"),
            ("/kubepods.slice/kubepods-podu_1.slice", Some("u-1"), "kubepods-podu_1.slice"),
            ("/kubepods.slice/kubepods-burstable.slice", None, "kubepods-burstable.slice"),
            ("/kubepods/podu/abc", None, "abc"),
            ("/x.slice/cri-containerd-abc.scope", None, "abc"),
            ("/x.slice/crio-abc.scope", None, "abc"),
        ] {
            assert_eq!(pod_of(cgroup).as_deref(), pod, "{cgroup}");
            assert_eq!(id_of(cgroup), Some(id), "{cgroup}");
        }
    }

    #[test]
    fn a_container_with_many_cgroups_hides_nobody() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("cgroup.controllers"), "").unwrap();
        let at = |path: &str| dir.path().join(path);
        for n in 0..MOST + 10 {
            std::fs::create_dir_all(at("kubepods/poda/evil").join(n.to_string())).unwrap();
        }
        std::fs::create_dir_all(at("kubepods/podb/c")).unwrap();
        std::fs::create_dir_all(at(&format!("kubepods/{}", "deep/".repeat(20)))).unwrap();
        let hierarchy = Hierarchy::new(dir.path(), Path::new("/proc"));
        let found = hierarchy.tree("/kubepods");
        let has = |cgroup: &str| found.iter().any(|c| c == cgroup);
        assert_eq!(found.len(), MOST);
        assert!(has("/kubepods/poda/evil") && has("/kubepods/podb/c"), "nearer ones come first");
        assert!(!has(&format!("/kubepods{}", "/deep".repeat(DEPTH + 1))), "not deeper than that");
        assert_eq!(hierarchy.tree("/missing"), Vec::<String>::new());
    }

    #[test]
    fn the_cgroup_of_a_process() {
        let check = |text: &str, unified, expected: Option<&str>| {
            assert_eq!(own_cgroup(text, unified).as_deref(), expected, "{text}");
        };
        check("0::/system.slice/kubelet.service\n", true, Some("/system.slice/kubelet.service"));
        check("0::/\n", true, None);
        check("0::/../a\n", true, None);
        check("4:memory:/m\n3:cpu,cpuacct:/c\n0::/u\n", false, Some("/c"));
        check("4:memory:/m\n", false, None);
    }
}
