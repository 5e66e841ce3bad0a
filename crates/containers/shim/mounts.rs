//! Steps on file systems. Every path is one of the container, and is resolved by the kernel below its root: nothing that
//! an image holds leads elsewhere, and no magic link of /proc is followed.

use crate::nr;
use crate::plan::Fields;
use crate::sys::{self, Result};
use crate::wire::flag;

const F_EMPTY: usize = 4;
const T_EMPTY: usize = 0x40;
const TREE_CLONE: usize = 1;
const TREE_CLOEXEC: usize = 0o2_000_000;
const READ_ONLY: u32 = 1;
/// The longest path, as the kernel has it.
const PATH_MAX: usize = 4096;
/// How many links are followed where directories are made.
const LINKS: usize = 40;

const DEVPTS: u64 = 0x1cd1;

/// The container's root, opened by whoever looks.
fn in_root(path: *const u8, flags: u64, resolve: u64) -> Result<i32> {
    let root = sys::openat2(sys::AT_FDCWD, b"/\0".as_ptr(), sys::O_PATH | sys::O_DIRECTORY, 0, 0)?;
    let r = sys::openat2(root, path, flags, 0, resolve | sys::RESOLVE_IN_ROOT | sys::RESOLVE_NO_MAGICLINKS);
    sys::close(root);
    r
}

/// Attaches a detached mount as the root of this process's namespace of mounts; the old root is let go.
pub(crate) fn attach_root(mount: i32) -> Result<()> {
    let (empty, root, here) =
        (sys::EMPTY.as_ptr() as usize, b"/\0".as_ptr() as usize, b".\0".as_ptr() as usize);
    sys::call(nr::MOVE_MOUNT, &[sys::fd(mount), empty, sys::fd(sys::AT_FDCWD), root, F_EMPTY])?;
    sys::call(nr::FCHDIR, &[sys::fd(mount)])?;
    sys::call(nr::PIVOT_ROOT, &[here, here])?;
    const DETACH: usize = 2;
    sys::call(nr::UMOUNT2, &[here, DETACH])?;
    sys::call(nr::CHDIR, &[root]).map(|_| ())
}

/// Makes a mount that is attached already the root of this process. The old root, which is returned, stays the
/// namespace's.
pub(crate) fn enter_root(path: *const u8) -> Result<i32> {
    let (root, here) = (b"/\0".as_ptr(), b".\0".as_ptr() as usize);
    let old = sys::openat2(sys::AT_FDCWD, root, sys::O_PATH | sys::O_DIRECTORY, 0, 0)?;
    sys::call(nr::CHDIR, &[path as usize])?;
    sys::call(nr::CHROOT, &[here])?;
    sys::call(nr::CHDIR, &[root as usize])?;
    Ok(old)
}

/// Makes the root that was entered the namespace's own; the old one is let go.
pub(crate) fn leave_host(old: i32, path: *const u8) -> Result<()> {
    let (root, here) = (b"/\0".as_ptr() as usize, b".\0".as_ptr() as usize);
    const DETACH: usize = 2;
    sys::call(nr::FCHDIR, &[sys::fd(old)])?;
    sys::close(old);
    sys::call(nr::CHROOT, &[here])?;
    sys::call(nr::CHDIR, &[path as usize])?;
    sys::call(nr::PIVOT_ROOT, &[here, here])?;
    sys::call(nr::UMOUNT2, &[here, DETACH])?;
    sys::call(nr::CHDIR, &[root]).map(|_| ())
}

fn move_to(mount: i32, target: i32) -> Result<()> {
    let empty = sys::EMPTY.as_ptr() as usize;
    sys::call(nr::MOVE_MOUNT, &[sys::fd(mount), empty, sys::fd(target), empty, F_EMPTY | T_EMPTY]).map(|_| ())
}

/// Attaches a detached mount at a path, which is made if it is not there.
pub(crate) fn attach(mount: i32, path: &[u8], flags: u16) -> Result<()> {
    let directory = sys::fstat(mount)?.mode & sys::S_IFMT == sys::S_IFDIR;
    let target = target(path, directory, flags)?;
    let r = move_to(mount, target);
    sys::close(target);
    r
}

/// Opens a mount's target; makes it if it is not there.
fn target(path: &[u8], directory: bool, flags: u16) -> Result<i32> {
    let resolve = if flags & flag::NO_SYMLINKS != 0 { sys::RESOLVE_NO_SYMLINKS } else { 0 };
    let opened = match in_root(path.as_ptr(), sys::O_PATH, resolve) {
        Err(sys::ENOENT) if directory => make_directories(path, 0o755),
        Err(sys::ENOENT) => make_file(path),
        other => other,
    }?;
    let found = sys::fstat(opened)?;
    if (found.mode & sys::S_IFMT == sys::S_IFDIR) == directory {
        return Ok(opened);
    }
    sys::close(opened);
    Err(if directory { sys::ENOTDIR } else { sys::EISDIR })
}

/// A path that is put together.
struct Path {
    bytes: [u8; PATH_MAX],
    len: usize,
}

impl Path {
    const fn new() -> Self {
        Self { bytes: [0; PATH_MAX], len: 0 }
    }
    fn push(&mut self, part: &[u8]) -> Result<()> {
        if self.len + part.len() + 2 > PATH_MAX {
            return Err(sys::ENAMETOOLONG);
        }
        self.bytes[self.len] = b'/';
        self.bytes[self.len + 1..=self.len + part.len()].copy_from_slice(part);
        self.len += part.len() + 1;
        self.bytes[self.len] = 0;
        Ok(())
    }
    fn cut(&mut self, len: usize) {
        self.len = len;
        self.bytes[len] = 0;
    }
    fn open(&self) -> Result<i32> {
        let at = if self.len == 0 { b"/\0".as_ptr() } else { self.bytes.as_ptr() };
        in_root(at, sys::O_PATH | sys::O_DIRECTORY, 0)
    }
}

/// The first part of a path, and the rest.
fn first(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = path.iter().position(|b| *b != b'/')?;
    let path = path.get(start..)?;
    let end = path.iter().position(|b| *b == b'/').unwrap_or(path.len());
    Some(path.split_at(end))
}

/// Makes a directory and those above it, and opens it. Links are followed below the root; where one leads to nothing,
/// that is made.
pub(crate) fn make_directories(path: &[u8], mode: u32) -> Result<i32> {
    let mut done = Path::new();
    walk(&mut done, path, mode, 0)?;
    done.open()
}

/// Follows or makes each part of `path` below `done`.
fn walk(done: &mut Path, path: &[u8], mode: u32, links: usize) -> Result<()> {
    let mut rest = path;
    while let Some((part, after)) = first(rest) {
        rest = after;
        let before = done.len;
        done.push(part)?;
        match done.open() {
            Ok(d) => {
                sys::close(d);
                continue;
            }
            Err(sys::ENOENT) => {}
            Err(e) => return Err(e),
        }
        done.cut(before);
        let parent = done.open()?;
        let r = make_one(done, parent, part, mode, links);
        sys::close(parent);
        r?;
    }
    Ok(())
}

/// Makes the directory `part` in `parent`, whose path `done` is, and appends it.
fn make_one(done: &mut Path, parent: i32, part: &[u8], mode: u32, links: usize) -> Result<()> {
    let mut name = [0u8; 256];
    if part.len() > 255 {
        return Err(sys::ENAMETOOLONG);
    }
    name[..part.len()].copy_from_slice(part);
    match sys::call(nr::MKDIRAT, &[sys::fd(parent), name.as_ptr() as usize, mode as usize]) {
        Ok(_) => return done.push(part),
        Err(sys::EEXIST) => {}
        Err(e) => return Err(e),
    }
    // Something that leads to nothing: a link.
    if links == LINKS {
        return Err(sys::ELOOP);
    }
    let mut link = [0u8; PATH_MAX];
    let len = read_link(parent, &name, &mut link)?;
    let to = &link[..len];
    if to.first() == Some(&b'/') {
        done.cut(0);
    }
    walk(done, to, mode, links + 1)
}

fn read_link(parent: i32, name: &[u8; 256], link: &mut [u8; PATH_MAX]) -> Result<usize> {
    let at = link.as_mut_ptr() as usize;
    let len = sys::call(nr::READLINKAT, &[sys::fd(parent), name.as_ptr() as usize, at, PATH_MAX])?;
    if len >= PATH_MAX { Err(sys::ENAMETOOLONG) } else { Ok(len) }
}

/// Opens the directory above a path, made if it is not there, and gives the last part.
fn above<'p>(path: &'p [u8], done: &mut Path, links: usize) -> Result<(i32, &'p [u8])> {
    let end = path.iter().rposition(|b| *b != b'/').map_or(0, |i| i + 1);
    let path = &path[..end];
    let start = path.iter().rposition(|b| *b == b'/').map_or(0, |i| i + 1);
    let name = &path[start..];
    if name.is_empty() || name == b"." || name == b".." || name.len() > 255 {
        return Err(sys::EINVAL);
    }
    walk(done, &path[..start], 0o755, links)?;
    Ok((done.open()?, name))
}

/// Makes an empty file, and opens it. A link that leads to nothing is followed.
fn make_file(path: &[u8]) -> Result<i32> {
    let mut done = Path::new();
    let mut link = [0u8; PATH_MAX];
    let mut len = path.len();
    if len >= PATH_MAX {
        return Err(sys::ENAMETOOLONG);
    }
    link[..len].copy_from_slice(path);
    for links in 0..LINKS {
        let current = link;
        let (parent, part) = above(&current[..len], &mut done, links)?;
        let mut name = [0u8; 256];
        name[..part.len()].copy_from_slice(part);
        let mode = (sys::S_IFREG | 0o644) as usize;
        let made = sys::call(nr::MKNODAT, &[sys::fd(parent), name.as_ptr() as usize, mode, 0]);
        let next = match made {
            Ok(_) => {
                let r = sys::openat2(
                    parent,
                    name.as_ptr(),
                    sys::O_PATH | sys::O_NOFOLLOW,
                    0,
                    sys::RESOLVE_NO_SYMLINKS,
                );
                sys::close(parent);
                return r;
            }
            Err(sys::EEXIST) => read_link(parent, &name, &mut link),
            Err(e) => Err(e),
        };
        sys::close(parent);
        len = next?;
        if link[0] == b'/' {
            done.cut(0);
        }
    }
    Err(sys::ELOOP)
}

/// Makes a file system and attaches it.
pub(crate) fn new_fs(f: &mut Fields<'_>, flags: u16) -> Result<()> {
    let (kind, attributes, path) = (f.path()?, f.u32()?, f.text()?);
    let mount = make_fs(kind, attributes, f)?;
    let r = attach(mount, path, flags);
    sys::close(mount);
    r
}

/// Makes a file system, with the options that follow.
pub(crate) fn make_fs(kind: *const u8, attributes: u32, f: &mut Fields<'_>) -> Result<i32> {
    let fs = sys::call(nr::FSOPEN, &[kind as usize, 1])? as i32;
    let mut options = || {
        for _ in 0..f.u32()? {
            let (key, value) = (f.path()?, f.text()?);
            const FLAG: usize = 0;
            const STRING: usize = 1;
            let (what, value) = if value.is_empty() { (FLAG, 0) } else { (STRING, value.as_ptr() as usize) };
            sys::call(nr::FSCONFIG, &[sys::fd(fs), what, key as usize, value, 0])?;
        }
        const CREATE: usize = 6;
        sys::call(nr::FSCONFIG, &[sys::fd(fs), CREATE, 0, 0, 0])?;
        sys::call(nr::FSMOUNT, &[sys::fd(fs), 1, attributes as usize])
    };
    let mount = options();
    sys::close(fs);
    mount.map(|d| d as i32)
}

/// Hides a path, if it is there: a directory by an empty one, anything else by /dev/null.
pub(crate) fn mask(null: i32, path: *const u8) -> Result<()> {
    let target = match in_root(path, sys::O_PATH, 0) {
        Err(sys::ENOENT | sys::ENOTDIR) => return Ok(()),
        other => other?,
    };
    let found = sys::fstat(target)?;
    let r = if found.mode & sys::S_IFMT == sys::S_IFDIR { cover(target) } else { move_to(null, target) };
    sys::close(target);
    r
}

fn cover(target: i32) -> Result<()> {
    let fs = sys::call(nr::FSOPEN, &[b"tmpfs\0".as_ptr() as usize, 1])? as i32;
    let options =
        [(b"mode\0".as_slice(), b"755\0".as_slice()), (b"nr_blocks\0", b"1\0"), (b"nr_inodes\0", b"2\0")];
    let made = options
        .iter()
        .try_for_each(|(k, v)| {
            sys::call(nr::FSCONFIG, &[sys::fd(fs), 1, k.as_ptr() as usize, v.as_ptr() as usize, 0])
                .map(|_| ())
        })
        .and_then(|()| sys::call(nr::FSCONFIG, &[sys::fd(fs), 6, 0, 0, 0]))
        .and_then(|_| sys::call(nr::FSMOUNT, &[sys::fd(fs), 1, READ_ONLY as usize]));
    sys::close(fs);
    let mount = made? as i32;
    let r = move_to(mount, target);
    sys::close(mount);
    r
}

/// Makes a path read-only, with what is mounted below it, if it is there.
pub(crate) fn read_only(path: *const u8) -> Result<()> {
    let target = match in_root(path, sys::O_PATH, 0) {
        Err(sys::ENOENT | sys::ENOTDIR) => return Ok(()),
        other => other?,
    };
    let r = clone_tree(target, true).and_then(|mount| {
        let r = set(mount, READ_ONLY, 0, sys::AT_RECURSIVE).and_then(|()| move_to(mount, target));
        sys::close(mount);
        r
    });
    sys::close(target);
    r
}

fn clone_tree(of: i32, recursive: bool) -> Result<i32> {
    let how = TREE_CLONE | TREE_CLOEXEC | sys::AT_EMPTY_PATH | if recursive { sys::AT_RECURSIVE } else { 0 };
    sys::call(nr::OPEN_TREE, &[sys::fd(of), sys::EMPTY.as_ptr() as usize, how]).map(|d| d as i32)
}

/// Changes the mount at a path.
pub(crate) fn change(f: &mut Fields<'_>) -> Result<()> {
    let (path, attributes, propagation) = (f.path()?, f.u32()?, f.u32()?);
    let mount = in_root(path, sys::O_PATH, 0)?;
    let r = set(mount, attributes, propagation, 0);
    sys::close(mount);
    r
}

/// Changes attributes and the propagation of a mount.
fn set(mount: i32, attributes: u32, propagation: u32, how: usize) -> Result<()> {
    let words = [u64::from(attributes), 0, u64::from(propagation), 0];
    let (empty, how) = (sys::EMPTY.as_ptr() as usize, sys::AT_EMPTY_PATH | how);
    sys::call(nr::MOUNT_SETATTR, &[sys::fd(mount), empty, how, words.as_ptr() as usize, 32]).map(|_| ())
}

/// Makes a device node; one that is there already is left.
pub(crate) fn node(f: &mut Fields<'_>) -> Result<()> {
    let path = f.text()?;
    let (mode, device, user, group) = (f.u32()?, f.u64()?, f.u32()?, f.u32()?);
    let (parent, part) = above(path, &mut Path::new(), 0)?;
    let mut name = [0u8; 256];
    name[..part.len()].copy_from_slice(part);
    let r =
        sys::call(nr::MKNODAT, &[sys::fd(parent), name.as_ptr() as usize, mode as usize, device as usize]);
    let r = match r {
        Err(sys::EEXIST) => Ok(()),
        Err(e) => Err(e),
        Ok(_) => own(parent, &name, mode, user, group),
    };
    sys::close(parent);
    r
}

/// Gives a new node its owner and its whole mode, which the process's mask has narrowed.
fn own(parent: i32, name: &[u8; 256], mode: u32, user: u32, group: u32) -> Result<()> {
    let at = name.as_ptr() as usize;
    let nofollow = sys::AT_SYMLINK_NOFOLLOW;
    sys::call(nr::FCHOWNAT, &[sys::fd(parent), at, user as usize, group as usize, nofollow])?;
    sys::call(nr::FCHMODAT, &[sys::fd(parent), at, (mode & 0o7777) as usize]).map(|_| ())
}

/// Makes a symbolic link; anything that is there already is left.
pub(crate) fn link(f: &mut Fields<'_>) -> Result<()> {
    let to = f.path()?;
    let path = f.text()?;
    let (parent, part) = above(path, &mut Path::new(), 0)?;
    let mut name = [0u8; 256];
    name[..part.len()].copy_from_slice(part);
    let r = sys::call(nr::SYMLINKAT, &[to as usize, sys::fd(parent), name.as_ptr() as usize]);
    sys::close(parent);
    match r {
        Err(sys::EEXIST) => Ok(()),
        other => other.map(|_| ()),
    }
}

/// Enters a directory.
pub(crate) fn enter(path: *const u8) -> Result<()> {
    let d = in_root(path, sys::O_PATH | sys::O_DIRECTORY, 0)?;
    let r = sys::call(nr::FCHDIR, &[sys::fd(d)]);
    sys::close(d);
    r.map(|_| ())
}

/// Opens the master of a new terminal of the container's own devpts.
pub(crate) fn open_master() -> Result<i32> {
    let flags = sys::O_RDWR | sys::O_NOCTTY;
    let master = in_root(b"/dev/pts/ptmx\0".as_ptr(), flags, sys::RESOLVE_NO_SYMLINKS)?;
    let found = sys::fstat(master)?;
    // 5:2 in the kernel's form.
    if sys::fs_type(master)? != DEVPTS || found.mode & sys::S_IFMT != sys::S_IFCHR || found.rdev != 5 << 8 | 2
    {
        sys::close(master);
        return Err(sys::ENOTTY);
    }
    Ok(master)
}

/// Binds a terminal at /dev/console.
pub(crate) fn console(slave: i32) -> Result<()> {
    let mount = clone_tree(slave, false)?;
    let r = attach(mount, b"/dev/console\0".split_last().map_or(&[][..], |(_, path)| path), 0);
    sys::close(mount);
    r
}
