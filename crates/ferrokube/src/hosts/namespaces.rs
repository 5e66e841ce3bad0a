//! The namespaces of a node: network, mounts, host name. Files keep them (`NAME.net`, `NAME.mnt`, `NAME.uts` below
//! `/run/ferrokube`), so that containers go on without any process of ours.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use anyhow::{Context, Result, anyhow};
use netlink::{LinkChange, Routing, namespace};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_change,
    mount_move, unmount,
};
use rustix::thread::{
    CpuSet, LinkNameSpaceType, UnshareFlags, gettid, move_into_link_name_space, sched_setaffinity,
    unshare_unsafe,
};

use super::plan::Host;
use crate::footprint;

/// The kinds of namespaces with their names below `/proc/PID/ns`, in the order in which they are entered.
const KINDS: [(&str, LinkNameSpaceType); 3] = [
    ("uts", LinkNameSpaceType::HostNameAndNISDomainName),
    ("net", LinkNameSpaceType::Network),
    ("mnt", LinkNameSpaceType::Mount),
];

/// The files that keep the namespaces of a cluster's nodes.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    dir: PathBuf,
}

impl Kept {
    /// Those of the cluster with this name.
    pub(super) fn of(id: &str) -> Self {
        Self { dir: footprint::namespaces(id) }
    }

    /// The beginning of the paths of a node's files, by which its process enters them.
    pub(super) fn prefix(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The file of a node's network namespace.
    pub(super) fn network(&self, name: &str) -> PathBuf {
        file(&self.prefix(name), "net")
    }

    /// Makes a node's namespaces unless they are there.
    pub(super) fn ensure(&self, host: &Host) -> Result<()> {
        self.ensure_dir().with_context(|| format!("{} can't be made; run as root", self.dir.display()))?;
        let prefix = self.prefix(&host.name);
        if KINDS.iter().all(|(kind, _)| is_kept(&file(&prefix, kind))) {
            return Ok(());
        }
        let failed = || format!("the namespaces of node {} can't be made", host.name);
        // A file keeps only a namespace of mounts with a greater number than the one that it lies in, and Linux 6.18 gives
        // each processor numbers of its own: those of the processor that made the outer one are greater.
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let mut last = self.make_and_keep(host, &prefix, None);
        for processor in 0..processors {
            if !last.as_ref().is_err_and(|error| error.root_cause().downcast_ref() == Some(&Errno::INVAL)) {
                break;
            }
            last = self.make_and_keep(host, &prefix, Some(processor));
        }
        last.with_context(failed)
    }

    /// Makes a node's namespaces on a processor, and lets files keep them.
    fn make_and_keep(&self, host: &Host, prefix: &Path, processor: Option<usize>) -> Result<()> {
        for (kind, _) in KINDS {
            let path = file(prefix, kind);
            let _ = unmount(&path, UnmountFlags::DETACH);
            File::create(&path).with_context(|| format!("{} can't be made", path.display()))?;
        }
        std::thread::scope(|scope| {
            let (made, is_made) = mpsc::channel();
            let (taken, is_taken) = mpsc::channel::<()>();
            let maker = scope.spawn(move || {
                if let Some(processor) = processor {
                    let mut only = CpuSet::new();
                    only.set(processor);
                    sched_setaffinity(None, &only)?;
                }
                self.make(host)?;
                let _ = made.send(gettid());
                // The namespaces last as long as this thread, until the files keep them.
                let _ = is_taken.recv();
                anyhow::Ok(())
            });
            let kept = is_made.recv().map(|thread| {
                let of = format!("/proc/self/task/{thread}/ns");
                KINDS
                    .iter()
                    .try_for_each(|(kind, _)| mount_bind(format!("{of}/{kind}").as_str(), file(prefix, kind)))
            });
            drop(taken);
            maker.join().unwrap_or_else(|_| Err(anyhow!("the thread panicked")))?;
            kept.map_err(|_| anyhow!("the thread ended"))?.context("files can't keep them")
        })
    }

    /// Makes the directory a file system of its own: namespaces of mounts can be kept only where mounts are private.
    fn ensure_dir(&self) -> io::Result<()> {
        fs::create_dir_all(&self.dir)?;
        if !is_mounted(&self.dir)? {
            let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
            mount("tmpfs", &self.dir, "tmpfs", flags, Some(c"mode=0700,size=64k"))?;
        }
        Ok(mount_change(&self.dir, MountPropagationFlags::PRIVATE)?)
    }

    /// Makes namespaces for this thread, with all that a node finds in them.
    fn make(&self, host: &Host) -> Result<()> {
        let flags = UnshareFlags::NEWNS | UnshareFlags::NEWNET | UnshareFlags::NEWUTS;
        // SAFETY: The flags share no file table anew, and this thread uses no path relative to its directory.
        #[expect(unsafe_code, reason = "no safe call makes a namespace of mounts for one thread")]
        unsafe {
            unshare_unsafe(flags)?;
        }
        rustix::system::sethostname(host.name.as_bytes())?;
        // The node sees what this machine mounts later, and this machine nothing of the node's.
        let all = MountPropagationFlags::REC;
        mount_change("/", MountPropagationFlags::DOWNSTREAM | all)
            .context("its mounts can't be made its own")?;
        // The namespaces of other nodes must not last as long as this one's.
        unmount(&self.dir, UnmountFlags::DETACH).context("the other nodes' namespaces can't be left")?;
        let resolv_conf = fs::canonicalize("/etc/resolv.conf").ok();
        own_sys(host).context("its /sys can't be mounted")?;
        mount("tmpfs", "/run", "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(c"mode=0755"))
            .context("its /run can't be mounted")?;
        for dir in ["/run/netns", "/run/lock"] {
            fs::create_dir(dir)?;
        }
        if let Some(at) = resolv_conf {
            if at.starts_with("/run") {
                fs::create_dir_all(at.parent().unwrap_or(&at))?;
                File::create(&at)?;
            }
            mount_bind(host.resolv_conf(), &at).context("its resolv.conf can't be mounted")?;
        }
        mount_change("/", MountPropagationFlags::SHARED | all)?;
        let mut routing = Routing::open()?;
        let loopback = routing.link("lo")?.context("there is no loopback")?;
        Ok(routing.change_link(loopback.index, &LinkChange { up: Some(true), ..LinkChange::default() })?)
    }

    /// The names of the nodes whose namespaces are kept.
    pub(super) fn names(&self) -> impl Iterator<Item = OsString> + use<> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.path().file_stem().map(OsStr::to_owned))
    }

    /// The namespaces that are kept, as `/proc/PID/ns` shows them.
    pub(super) fn identities(&self) -> Vec<String> {
        use std::os::unix::fs::MetadataExt;
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let identity = |path: PathBuf| {
            let kind = path.extension()?.to_str()?.to_owned();
            Some(format!("{kind}:[{}]", fs::metadata(&path).ok()?.ino()))
        };
        entries.map(|entry| entry.path()).filter(|path| is_kept(path)).filter_map(identity).collect()
    }

    /// Keeps them no longer.
    pub(super) fn remove(&self) -> io::Result<()> {
        if !self.dir.exists() {
            return Ok(());
        }
        for entry in fs::read_dir(&self.dir)?.flatten() {
            while is_kept(&entry.path()) {
                unmount(entry.path(), UnmountFlags::DETACH)?;
            }
        }
        while is_mounted(&self.dir)? {
            unmount(&self.dir, UnmountFlags::DETACH)?;
        }
        fs::remove_dir_all(&self.dir)
    }
}

/// Gives the node a `/sys` that shows its own network; its cgroups are the machine's.
fn own_sys(host: &Host) -> Result<()> {
    let at = host.dir.join("sys");
    fs::create_dir_all(&at)?;
    mount("sysfs", &at, "sysfs", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, None)?;
    mount_bind_recursive("/sys/fs/cgroup", at.join("fs/cgroup")).context("its cgroups")?;
    mount_move(&at, "/sys").context("in its place")?;
    Ok(fs::remove_dir(at)?)
}

fn file(prefix: &Path, kind: &str) -> PathBuf {
    let mut name = prefix.as_os_str().to_owned();
    name.push(".");
    name.push(kind);
    name.into()
}

/// Whether a file keeps a namespace.
fn is_kept(path: &Path) -> bool {
    namespace::open(path).is_ok()
}

/// Whether something is mounted there.
fn is_mounted(path: &Path) -> io::Result<bool> {
    let at = path.to_string_lossy();
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(mounts.lines().any(|line| line.split(' ').nth(4) == Some(&*at)))
}

/// Moves this process, which has one thread yet, into the namespaces that these files keep.
pub(crate) fn enter(prefix: &Path) -> Result<()> {
    // All are opened first: afterwards the paths are those of the node.
    let opened = KINDS.map(|(kind, namespace)| (file(prefix, kind), namespace));
    let opened: Vec<(File, LinkNameSpaceType)> = opened
        .into_iter()
        .map(|(path, kind)| {
            let file = File::open(&path);
            Ok((file.with_context(|| format!("{} can't be opened", path.display()))?, kind))
        })
        .collect::<Result<_>>()?;
    for (file, kind) in opened {
        move_into_link_name_space(file.as_fd(), Some(kind))
            .with_context(|| format!("the namespaces {} can't be entered", prefix.display()))?;
    }
    Ok(std::env::set_current_dir("/")?)
}
