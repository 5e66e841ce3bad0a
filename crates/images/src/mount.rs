//! Mounting a root by the kernel's new interface: the file system is made and never attached, so no mount table of
//! this machine has it. Kernels before 6.13 or so cannot be given layers by descriptor or one by one; there, a thread
//! with a mount table of its own makes the mount, and takes it out of that table.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    self as sys, FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags,
    MoveMountFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_fd, fsconfig_set_flag, fsconfig_set_string,
};

use crate::root::{IdMap, MountError, Root};

/// The longest string that an option may have.
const MAX_OPTION: usize = 255;

/// overlayfs's options, whatever the kernel's defaults are: nothing in a layer leads to another place in a layer.
const OPTIONS: &[(&str, &str)] = &[("index", "off"), ("metacopy", "off"), ("redirect_dir", "nofollow")];

/// The option that names one layer.
const ONE_LAYER: &str = "lowerdir+";

/// Whether the kernel does not know [`ONE_LAYER`]. It is asked once: each refusal is a line in its log.
static OLD_KERNEL: AtomicBool = AtomicBool::new(false);

/// A failed step.
type Step = (&'static str, Errno);

/// A layer to be mounted: its path, and the mount with other ids if there is one.
struct Layer {
    path: PathBuf,
    mount: Option<OwnedFd>,
}

/// Mounts a root, with the ids of a user namespace.
pub(crate) fn mount(root: &Root, ids: Option<BorrowedFd<'_>>) -> Result<OwnedFd, MountError> {
    let failed =
        |(step, errno): Step| MountError::Failed { key: root.key.clone(), step, source: errno.into() };
    let layers = layers(root, ids).map_err(|(step, errno)| match errno {
        Errno::NOSYS => MountError::Unsupported { what: step, source: errno.into() },
        errno => failed((step, errno)),
    })?;
    let known = if OLD_KERNEL.load(Ordering::Relaxed) {
        Err((ONE_LAYER, Errno::INVAL))
    } else {
        direct(root, &layers)
    };
    match known {
        Ok(mount) => Ok(mount),
        // An older kernel: an option or a form of it that it does not know.
        Err((step, errno @ (Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::BADF))) => {
            let again = std::thread::scope(|scope| scope.spawn(|| apart(root, &layers)).join());
            match again {
                Ok(Ok(mount)) => {
                    // A layer by its path, which newer kernels take that refuse one by descriptor.
                    let by_path = layers.first().is_some_and(|layer| layer.mount.is_none());
                    if by_path && (step, errno) == (ONE_LAYER, Errno::INVAL) {
                        OLD_KERNEL.store(true, Ordering::Relaxed);
                    }
                    Ok(mount)
                }
                Ok(Err((what, errno @ (Errno::NOSYS | Errno::NODEV)))) => {
                    Err(MountError::Unsupported { what, source: errno.into() })
                }
                Ok(Err(step)) => Err(failed(step)),
                Err(_) => Err(failed(("the thread that mounts", Errno::INTR))),
            }
        }
        Err(step) => Err(failed(step)),
    }
}

/// The layers, the topmost first. A view has its own empty directory on top: the root directory's attributes, and a
/// second layer for images that have one.
fn layers(root: &Root, ids: Option<BorrowedFd<'_>>) -> Result<Vec<Layer>, Step> {
    let own = root.view.then(|| root.upper());
    let layer = |path: PathBuf| {
        let mount = match ids {
            None => None,
            Some(ids) => Some(with_ids(&path, ids)?),
        };
        Ok(Layer { path, mount })
    };
    own.into_iter().chain(root.layers.iter().cloned()).map(layer).collect()
}

/// A detached mount of a directory whose files belong to a user namespace's ids.
fn with_ids(path: &Path, ids: BorrowedFd<'_>) -> Result<OwnedFd, Step> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = sys::open_tree(CWD, path, flags).map_err(|e| ("opening a layer", e))?;
    set_ids(tree.as_fd(), ids).map_err(|e| ("mapping a layer's ids", e))?;
    Ok(tree)
}

fn descriptor_path(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

fn open_path(path: &Path) -> Result<OwnedFd, Step> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|e| ("opening a directory", e))
}

/// Names a directory to the file system in the making: by its path, which mount tables show, or by descriptor.
fn set_directory(fs: &OwnedFd, key: &'static str, path: &Path) -> Result<(), Step> {
    if path.as_os_str().len() <= MAX_OPTION {
        return fsconfig_set_string(fs, key, path).map_err(|e| (key, e));
    }
    let opened = open_path(path)?;
    fsconfig_set_string(fs, key, descriptor_path(&opened)).map_err(|e| (key, e))
}

/// Makes the mount by the new interface alone.
fn direct(root: &Root, layers: &[Layer]) -> Result<OwnedFd, Step> {
    let fs = sys::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).map_err(|e| ("fsopen", e))?;
    fsconfig_set_string(&fs, "source", "overlay").map_err(|e| ("source", e))?;
    for layer in layers {
        match &layer.mount {
            None => set_directory(&fs, ONE_LAYER, &layer.path)?,
            Some(mount) => fsconfig_set_fd(&fs, ONE_LAYER, mount.as_fd()).map_err(|e| (ONE_LAYER, e))?,
        }
    }
    if !root.view {
        set_directory(&fs, "upperdir", &root.directory.join("upper"))?;
        set_directory(&fs, "workdir", &root.directory.join("work"))?;
    }
    for (key, value) in OPTIONS {
        fsconfig_set_string(&fs, *key, *value).map_err(|e| ("an option", e))?;
    }
    if root.user_xattrs {
        fsconfig_set_flag(&fs, "userxattr").map_err(|e| ("userxattr", e))?;
    }
    fsconfig_create(&fs).map_err(|e| ("overlayfs", e))?;
    sys::fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes(root)).map_err(|e| ("fsmount", e))
}

/// A view can only be read, and nothing in it is a program or a device.
fn attributes(root: &Root) -> MountAttrFlags {
    if root.view {
        MountAttrFlags::MOUNT_ATTR_RDONLY
            | MountAttrFlags::MOUNT_ATTR_NOEXEC
            | MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
    } else {
        MountAttrFlags::empty()
    }
}

/// Makes the mount in a mount table of its own, which ends with this thread. Layers are bound to short names first,
/// so that many of them fit into the options.
fn apart(root: &Root, layers: &[Layer]) -> Result<OwnedFd, Step> {
    // The kernel gives a thread with its own mount table its own current directory, too.
    own_mount_table()?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    sys::mount_change("/", private).map_err(|e| ("making mounts private", e))?;
    bind_all(root, layers, &root.directory)
}

fn bind_all(root: &Root, layers: &[Layer], place: &Path) -> Result<OwnedFd, Step> {
    let own = open_path(place)?;
    sys::mount("tmpfs", place, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(c"size=1m,mode=700"))
        .map_err(|e| ("tmpfs", e))?;
    rustix::process::chdir(place).map_err(|e| ("changing the directory", e))?;
    let make =
        |name: &str| rustix::fs::mkdirat(CWD, name, Mode::from_raw_mode(0o700)).map_err(|e| ("mkdir", e));
    for name in ["r", "m"] {
        make(name)?;
    }
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let attach = |tree: &OwnedFd, name: &str| {
        sys::move_mount(tree, c"", CWD, name, flags).map_err(|e| ("attaching a layer", e))
    };
    let tree =
        sys::open_tree(&own, c"", clone | OpenTreeFlags::AT_EMPTY_PATH).map_err(|e| ("open_tree", e))?;
    attach(&tree, "r")?;
    let mut lower = String::new();
    for (number, layer) in layers.iter().enumerate() {
        let name = number.to_string();
        make(&name)?;
        if let Some(mount) = &layer.mount {
            attach(mount, &name)?;
        } else {
            let tree = match layer.path.strip_prefix(place) {
                // It is below what the tmpfs hides now.
                Ok(rest) => sys::open_tree(&own, rest, clone),
                Err(_) => sys::open_tree(CWD, &layer.path, clone),
            };
            attach(&tree.map_err(|e| ("opening a layer", e))?, &name)?;
        }
        lower = if lower.is_empty() { name } else { format!("{lower}:{name}") };
    }
    let mut options = format!("lowerdir={lower}");
    if !root.view {
        options.push_str(",upperdir=r/upper,workdir=r/work");
    }
    for (key, value) in OPTIONS {
        options = format!("{options},{key}={value}");
    }
    if root.user_xattrs {
        options.push_str(",userxattr");
    }
    let options = CString::new(options).map_err(|_| ("the options", Errno::INVAL))?;
    let mut flags = MountFlags::empty();
    if root.view {
        flags = MountFlags::RDONLY | MountFlags::NOEXEC | MountFlags::NOSUID | MountFlags::NODEV;
    }
    sys::mount("overlay", "m", "overlay", flags, Some(&*options)).map_err(|e| ("overlayfs", e))?;
    sys::open_tree(CWD, "m", clone).map_err(|e| ("open_tree", e))
}

#[allow(
    unsafe_code,
    reason = "unshare(2) is unsafe in rustix, since other flags than this one share memory otherwise"
)]
fn own_mount_table() -> Result<(), Step> {
    // SAFETY: the flag changes this thread's mounts and its current directory; it touches no memory and no descriptor.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.map_err(|e| ("unshare", e))
}

/// `struct mount_attr` of Linux.
#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;

#[allow(unsafe_code, reason = "rustix has no mount_setattr(2)")]
fn set_ids(tree: BorrowedFd<'_>, ids: BorrowedFd<'_>) -> Result<(), Errno> {
    let user_namespace = u64::try_from(ids.as_raw_fd()).map_err(|_| Errno::BADF)?;
    let attr = MountAttr { set: MOUNT_ATTR_IDMAP, clear: 0, propagation: 0, user_namespace };
    // SAFETY: the structure is the kernel's, its size is told, the path is an empty C string, and both live longer
    // than the call, which only reads them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Makes a user namespace with a map of ids. A child holds it open until the map is written.
pub(crate) fn user_namespace(ids: &IdMap) -> io::Result<OwnedFd> {
    let (wait, hold) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let child = hold_namespace(&wait, &hold)?;
    drop(wait);
    let made = (|| {
        let process = PathBuf::from(format!("/proc/{}", child.as_raw_nonzero()));
        let lines = |part: &[oci_spec::runtime::LinuxIdMapping]| {
            let line = |m: &oci_spec::runtime::LinuxIdMapping| {
                format!("{} {} {}\n", m.container_id(), m.host_id(), m.size())
            };
            part.iter().map(line).collect::<String>()
        };
        fs::write(process.join("uid_map"), lines(&ids.uids))?;
        fs::write(process.join("gid_map"), lines(&ids.gids))?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(process.join("ns/user"), flags, Mode::empty())?)
    })();
    drop(hold);
    reap(child);
    made
}

/// Starts a child in a new user namespace, which ends when `hold` is closed here.
#[allow(unsafe_code, reason = "only a new process can have a new user namespace in a process with threads")]
fn hold_namespace(wait: &OwnedFd, hold: &OwnedFd) -> io::Result<rustix::process::Pid> {
    let (wait, hold) = (wait.as_raw_fd(), hold.as_raw_fd());
    // SAFETY: without CLONE_VM the child has a copy of the memory, and this thread alone. It makes three system calls
    // without touching memory that another thread may have been changing, takes no lock, and never returns. It has no
    // exit signal, so no handler here sees it; it is waited for by `reap`.
    let child = unsafe {
        let child = libc::syscall(libc::SYS_clone, libc::CLONE_NEWUSER, 0, 0, 0, 0);
        if child == 0 {
            let mut byte = 0_u8;
            libc::syscall(libc::SYS_close, hold);
            libc::syscall(libc::SYS_read, wait, &raw mut byte, 1);
            libc::syscall(libc::SYS_exit_group, 0);
        }
        child
    };
    let pid = i32::try_from(child).ok().filter(|pid| *pid > 0).and_then(rustix::process::Pid::from_raw);
    pid.ok_or_else(io::Error::last_os_error)
}

/// Waits for the child, which has no exit signal and so is nobody's by accident.
#[allow(unsafe_code, reason = "rustix cannot wait for a child without an exit signal")]
fn reap(child: rustix::process::Pid) {
    loop {
        // SAFETY: the call writes nothing, since it is given no place for a status.
        let done = unsafe { libc::waitpid(child.as_raw_nonzero().get(), std::ptr::null_mut(), libc::__WALL) };
        if done >= 0 || last_error() != Errno::INTR {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use oci_spec::runtime::LinuxIdMappingBuilder;

    use super::*;

    /// Older kernels are not at hand: their way is taken on this one.
    #[test]
    fn a_mount_is_made_apart() {
        let directory = tempfile::tempdir().unwrap();
        let (own, layers) = (directory.path().join("root"), ["a", "b"].map(|n| directory.path().join(n)));
        for path in layers.iter().chain([&own.join("upper"), &own.join("work")]) {
            fs::create_dir_all(path).unwrap();
        }
        fs::write(layers[0].join("file"), "above").unwrap();
        fs::write(layers[1].join("file"), "below").unwrap();
        fs::write(layers[1].join("other"), "below").unwrap();
        let part = LinuxIdMappingBuilder::default().container_id(0_u32).host_id(500_000_u32).size(10_u32);
        let part = vec![part.build().unwrap()];
        let ids = IdMap { uids: part.clone(), gids: part };
        let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap().matches("overlay").count();
        let before = mounts();
        for (view, mapped) in [(false, false), (false, true), (true, false), (true, true)] {
            let root = Root {
                key: "test".to_owned(),
                image: crate::Digest::of(b""),
                directory: own.clone(),
                layers: layers.to_vec(),
                id_map: None,
                view,
                user_xattrs: false,
            };
            let namespace = mapped.then(|| user_namespace(&ids).unwrap());
            let list = super::layers(&root, namespace.as_ref().map(AsFd::as_fd)).unwrap();
            let mount =
                std::thread::scope(|scope| scope.spawn(|| apart(&root, &list)).join()).unwrap().unwrap();
            let path = |name: &str| PathBuf::from(descriptor_path(&mount)).join(name);
            assert_eq!(fs::read_to_string(path("file")).unwrap(), "above");
            assert_eq!(fs::read_to_string(path("other")).unwrap(), "below");
            let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(path("file")).unwrap());
            assert_eq!(owner, if mapped { 500_000 } else { 0 });
            let name = format!("new-{mapped}");
            assert_eq!(fs::write(path(&name), "x").is_ok(), !view);
            assert_eq!(mounts(), before);
        }
        assert_eq!(fs::read_dir(own.join("upper")).unwrap().count(), 2);
    }
}
