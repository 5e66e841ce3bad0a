//! Opens the descriptors that a plan needs. It may wait for a disk.

use std::cell::OnceCell;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxIdMapping, LinuxResources};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags};

use crate::cgroups::Group;
use crate::error::{Doing, Error, Result};
use crate::kept_namespaces;
use crate::plan::{Bind, Source};
use crate::raw::{self, Change, propagation};
use crate::spec::{IdMappings, Root};

/// Things that are there already.
#[derive(Debug, Default)]
pub(crate) struct Given {
    pub(crate) root: Option<Root>,
    pub(crate) mounts: Vec<OwnedFd>,
    /// The sandbox's user namespace and its mappings.
    pub(crate) user: Option<(OwnedFd, IdMappings)>,
    /// Further user namespaces, for mounts with mappings of their own.
    pub(crate) maps: Vec<(OwnedFd, IdMappings)>,
    pub(crate) process: Option<OwnedFd>,
    pub(crate) streams: [Option<OwnedFd>; 3],
    pub(crate) listen: Option<OwnedFd>,
    pub(crate) exits: Option<OwnedFd>,
    pub(crate) held: Vec<(&'static str, OwnedFd)>,
    pub(crate) cgroup: Vec<OwnedFd>,
    /// The scope around the process, which is made as soon as the process is there; its files are then [`Given::cgroup`].
    pub(crate) scope: Option<Box<(Group, Option<LinuxResources>)>>,
    /// Where namespaces of mounts are kept, once that was looked up.
    pub(crate) kept_namespaces: OnceCell<Vec<PathBuf>>,
}

impl Given {
    /// Whether a namespace of mounts is kept in a directory.
    fn keep_namespaces_in(&self, directory: &Path) -> Result<bool> {
        if self.kept_namespaces.get().is_none() {
            let _ = self.kept_namespaces.set(kept_namespaces::places()?);
        }
        Ok(self.kept_namespaces.get().is_some_and(|all| kept_namespaces::lie_below(all, directory)))
    }
}

/// The mappings of mounts that are not the sandbox's own.
pub(crate) fn foreign_maps(sources: &[Source], own: Option<&IdMappings>) -> Vec<IdMappings> {
    let mut out: Vec<IdMappings> = Vec::new();
    for source in sources {
        if let Source::Bind(Bind { idmap: Some((maps, _)), .. }) = source
            && own != Some(maps)
            && !out.contains(maps)
        {
            out.push(maps.clone());
        }
    }
    out
}

/// Opens all, in the plan's order.
pub(crate) fn open(sources: &[Source], given: Given) -> Result<Vec<OwnedFd>> {
    let mut given = given;
    sources.iter().map(|s| one(s, &mut given)).collect()
}

fn one(source: &Source, given: &mut Given) -> Result<OwnedFd> {
    let missing = || Error::Invalid(format!("a plan needs something that is not there: {source:?}"));
    let again = |d: &OwnedFd| d.try_clone().doing(|| "duplicate a descriptor");
    match source {
        Source::Root => match given.root.take().ok_or_else(missing)? {
            Root::Mount(mount) => Ok(mount),
            Root::Path(path) => whole_tree(&path),
        },
        Source::Empty => empty(),
        Source::Given(place, change) => {
            let mount = again(given.mounts.get(*place).ok_or_else(missing)?)?;
            if change.set | change.clear != 0 {
                raw::mount_setattr(mount.as_fd(), *change, None).doing(|| "set the options of a mount")?;
            }
            Ok(mount)
        }
        Source::Bind(b) => bind(b, given),
        Source::Null => tree(Path::new("/dev/null"), false),
        Source::User => again(&given.user.as_ref().ok_or_else(missing)?.0),
        Source::Process => again(given.process.as_ref().ok_or_else(missing)?),
        Source::Namespace(path) => file(path),
        Source::Held(name) => again(&given.held.iter().find(|(n, _)| n == name).ok_or_else(missing)?.1),
        Source::Stream(place) => given.streams[*place].as_ref().map_or_else(null, again),
        Source::Listen => again(given.listen.as_ref().ok_or_else(missing)?),
        Source::Exits => again(given.exits.as_ref().ok_or_else(missing)?),
        Source::Cgroup(place) => again(given.cgroup.get(*place).ok_or_else(missing)?),
    }
}

/// A directory with all that is mounted below it, as a private mount that is nowhere attached.
pub(crate) fn whole_tree(path: &Path) -> Result<OwnedFd> {
    let change = Change { propagation: propagation::PRIVATE, recursive: true, ..Change::default() };
    let bound = Bind { path: path.to_owned(), recursive: true, changes: vec![change], idmap: None };
    bind(&bound, &Given::default())
}

fn null() -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open("/dev/null", flags, Mode::empty()).doing(|| "open /dev/null")
}

/// Opens a file of a namespace, or anything else to be read.
pub(crate) fn file(path: &Path) -> Result<OwnedFd> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .doing(|| format!("open {}", path.display()))
}

fn tree(path: &Path, recursive: bool) -> Result<OwnedFd> {
    let all = if recursive { OpenTreeFlags::AT_RECURSIVE } else { OpenTreeFlags::empty() };
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | all;
    rustix::mount::open_tree(CWD, path, flags).doing(|| format!("bind {:?}", path.display().to_string()))
}

fn bind(b: &Bind, given: &Given) -> Result<OwnedFd> {
    let mount = if b.recursive && b.path.is_dir() && given.keep_namespaces_in(&b.path)? {
        kept_namespaces::without(|| tree(&b.path, true))?
    } else {
        tree(&b.path, b.recursive)?
    };
    let deed = || format!("set the options of the mount of {:?}", b.path.display().to_string());
    if let Some((maps, recursive)) = &b.idmap {
        let mut known = given.user.iter().chain(&given.maps);
        let user = known
            .find(|(_, m)| m == maps)
            .ok_or_else(|| Error::Invalid("a mapping has no namespace".to_owned()))?;
        let change = Change { recursive: *recursive, ..Change::default() };
        raw::mount_setattr(mount.as_fd(), change, Some(user.0.as_fd()))
            .doing(|| format!("map the owners of the mount of {:?}", b.path.display().to_string()))?;
    }
    for change in &b.changes {
        raw::mount_setattr(mount.as_fd(), *change, None).doing(deed)?;
    }
    Ok(mount)
}

/// An empty file system that nobody can write.
fn empty() -> Result<OwnedFd> {
    let made = || {
        let fs = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_set_string(fs.as_fd(), "mode", "555")?;
        rustix::mount::fsconfig_set_string(fs.as_fd(), "nr_inodes", "2")?;
        rustix::mount::fsconfig_create(fs.as_fd())?;
        rustix::mount::fsmount(fs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_RDONLY)
    };
    made().doing(|| "make an empty file system")
}

/// The user namespace to which another namespace belongs.
pub(crate) fn owner(namespace: BorrowedFd<'_>) -> Result<OwnedFd> {
    raw::user_namespace(namespace).doing(|| "find a sandbox's user namespace")
}

/// Writes the mappings of a process's new user namespace.
pub(crate) fn write_mappings(pid: i32, maps: &IdMappings) -> Result<()> {
    for (file, list) in [("uid_map", &maps.uids), ("gid_map", &maps.gids)] {
        let line = |m: &LinuxIdMapping| format!("{} {} {}", m.container_id(), m.host_id(), m.size());
        let lines = list.iter().map(line).collect::<Vec<_>>().join("\n");
        let path = format!("/proc/{pid}/{file}");
        fs::write(&path, &lines).doing(|| format!("write the mappings {lines:?} to {path}"))?;
    }
    Ok(())
}

/// A user or group of the host, by its number inside.
pub(crate) fn outside(list: &[LinuxIdMapping], inside: u32) -> Option<u32> {
    list.iter().find_map(|m| {
        let offset = inside.checked_sub(m.container_id())?;
        (offset < m.size()).then(|| m.host_id() + offset)
    })
}
