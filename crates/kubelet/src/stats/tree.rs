//! How much of a file system a directory tree takes.
//!
//! The tree belongs to a Pod, which may change it meanwhile: links are not followed, other file systems not entered, and
//! neither a deep nor a wide tree costs more than a bounded number of descriptors and no stack.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::files;

/// How many directories are open at once.
const OPEN: usize = 32;
/// The unit of a file's blocks, in bytes.
const BLOCK: u64 = 512;

/// Room that files take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// In bytes on the disk.
    pub(crate) bytes: u64,
    /// Inodes.
    pub(crate) inodes: u64,
}

impl Taken {
    /// Adds more of it.
    pub(crate) fn add(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.inodes = self.inodes.saturating_add(other.inodes);
    }
}

/// The used part of a file system that is a volume's own.
pub(super) fn whole(path: &Path) -> Taken {
    let Ok(fs) = rustix::fs::statvfs(path) else { return Taken::default() };
    Taken {
        bytes: fs.f_blocks.saturating_sub(fs.f_bfree).saturating_mul(fs.f_frsize),
        inodes: fs.f_files.saturating_sub(fs.f_ffree),
    }
}

/// A directory on the way down.
struct Level {
    /// Closed while the walk is far below it.
    dir: Option<OwnedFd>,
    /// Device and inode, by which it is known again.
    id: (u64, u64),
    /// The directories in it that were not entered yet.
    left: Vec<OsString>,
}

#[derive(Default)]
struct Walk {
    taken: Taken,
    device: u64,
    /// Files with several names that were counted.
    linked: HashSet<u64>,
}

impl Walk {
    /// Counts an inode; false if it is of another file system or was counted before.
    fn count(&mut self, stat: &Stat) -> bool {
        if stat.st_dev != self.device {
            return false;
        }
        let directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if !directory && stat.st_nlink > 1 && !self.linked.insert(stat.st_ino) {
            return false;
        }
        let bytes = u64::try_from(stat.st_blocks).unwrap_or_default().saturating_mul(BLOCK);
        self.taken.add(Taken { bytes, inodes: 1 });
        true
    }

    /// Counts what is in a directory, but for what is in its own directories.
    fn enter(&mut self, dir: OwnedFd) -> io::Result<Level> {
        let mut left = Vec::new();
        for (name, _) in files::names(&dir)? {
            // A file may go meanwhile.
            let Ok(stat) = rustix::fs::statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            if self.count(&stat) && FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                left.push(name);
            }
        }
        let stat = rustix::fs::fstat(&dir)?;
        Ok(Level { dir: Some(dir), id: (stat.st_dev, stat.st_ino), left })
    }
}

fn flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// Opens a directory of a directory; none if it is not one any more.
fn open_below(dir: &OwnedFd, name: &OsStr) -> Option<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    rustix::fs::openat2(dir, name, flags(), Mode::empty(), resolve).ok()
}

/// Measures a tree with its top. Files with several names count once; what lies on other file systems does not.
///
/// # Errors
/// The top is not there, or is no directory. Changes meanwhile are counted as far as they are found.
pub(crate) fn measure(top: &Path) -> io::Result<Taken> {
    let dir = rustix::fs::open(top, flags(), Mode::empty())?;
    let stat = rustix::fs::fstat(&dir)?;
    let mut walk = Walk { device: stat.st_dev, ..Walk::default() };
    walk.count(&stat);
    let mut levels = vec![walk.enter(dir)?];
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.left.pop() else {
            ascend(&mut levels);
            continue;
        };
        let below = level.dir.as_ref().and_then(|dir| open_below(dir, &name));
        let Some(entered) = below.and_then(|dir| walk.enter(dir).ok()) else { continue };
        levels.push(entered);
        let far = levels.len().checked_sub(OPEN + 1);
        if let Some(far) = far.and_then(|far| levels.get_mut(far)) {
            far.dir = None;
        }
    }
    Ok(walk.taken)
}

/// Measures a single file; nothing if it is not there.
pub(crate) fn measure_file(path: &Path) -> Taken {
    let stat = rustix::fs::lstat(path);
    stat.map_or_else(
        |_: Errno| Taken::default(),
        |stat| {
            let bytes = u64::try_from(stat.st_blocks).unwrap_or_default().saturating_mul(BLOCK);
            Taken { bytes, inodes: 1 }
        },
    )
}

/// Leaves a directory. One above it that was closed is opened again by the way back; if that leads elsewhere by now,
/// somebody moved it, and the levels that cannot be found are given up.
fn ascend(levels: &mut Vec<Level>) {
    let Some(left) = levels.pop() else { return };
    if let Some(above) = levels.last_mut().filter(|above| above.dir.is_none()) {
        let back = left.dir.and_then(|dir| rustix::fs::openat(dir, "..", flags(), Mode::empty()).ok());
        let same = |dir: &OwnedFd| rustix::fs::fstat(dir).is_ok_and(|s| (s.st_dev, s.st_ino) == above.id);
        above.dir = back.filter(same);
    }
    while levels.last().is_some_and(|level| level.dir.is_none()) {
        levels.pop();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_are_counted_once_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (top, elsewhere) = (dir.path().join("top"), dir.path().join("elsewhere"));
        fs::create_dir_all(top.join("a/b")).unwrap();
        fs::create_dir(&elsewhere).unwrap();
        fs::write(elsewhere.join("big"), vec![1; 1 << 20]).unwrap();
        let empty = measure(&top).unwrap();
        assert_eq!(empty.inodes, 3);
        fs::write(top.join("a/b/file"), vec![1; 64 << 10]).unwrap();
        let one = measure(&top).unwrap();
        assert_eq!(one.inodes, 4);
        assert!(one.bytes >= empty.bytes + (64 << 10), "{one:?} {empty:?}");
        fs::hard_link(top.join("a/b/file"), top.join("a/again")).unwrap();
        symlink(&elsewhere, top.join("link")).unwrap();
        let linked = measure(&top).unwrap();
        assert_eq!(linked.inodes, 5, "the link itself");
        assert!(linked.bytes < one.bytes + (1 << 20));
        // A file that is written in part takes only its part.
        let sparse = fs::File::create(top.join("sparse")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        assert!(measure(&top).unwrap().bytes < 1 << 30);
        assert!(measure(&top.join("missing")).is_err());
        assert!(measure(&top.join("link")).is_err(), "not a directory");
        assert_eq!(measure_file(&top.join("missing")), Taken::default());
        assert_eq!(measure_file(&top.join("link")).inodes, 1);
    }

    #[test]
    fn a_deep_tree_is_counted_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        // Longer than any path may be.
        let depth = 3000;
        let mut at = rustix::fs::open(dir.path(), flags(), Mode::empty()).unwrap();
        for _ in 0..depth {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            rustix::fs::mkdirat(&at, "e", Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, "d", flags(), Mode::empty()).unwrap();
        }
        let taken = measure(dir.path()).unwrap();
        assert_eq!(taken.inodes, 2 * depth + 1);
        files::remove_tree(&dir.path().join("d")).unwrap();
    }
}
