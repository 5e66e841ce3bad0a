//! Names and trees on the disk, whoever made them: nothing here follows a link, or goes as deep as a tree does.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{self as sys, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::layer::action::may_set;
use crate::layer::tar::Kind;
use crate::settings::Usage;

/// Names themselves, not where they lead; no name is the open file itself.
const ITSELF: AtFlags = AtFlags::SYMLINK_NOFOLLOW.union(AtFlags::EMPTY_PATH);

/// The kind of a name, itself.
pub(crate) fn kind(directory: impl AsFd, name: &[u8]) -> Result<FileType, Errno> {
    let facts = sys::statat(directory, name, ITSELF)?;
    Ok(FileType::from_raw_mode(facts.st_mode))
}

/// Whether a name is overlayfs's sign of a name that is gone: the character device 0, 0.
pub(crate) fn is_whiteout(directory: impl AsFd, name: &[u8]) -> bool {
    sys::statat(directory, name, ITSELF).is_ok_and(|facts| {
        FileType::from_raw_mode(facts.st_mode) == FileType::CharacterDevice && facts.st_rdev == 0
    })
}

/// A name in an open directory as a path, for the system calls that take no directory; no name is the open file.
pub(crate) fn proc_path(directory: impl AsFd, name: &[u8]) -> PathBuf {
    let path = Path::new("/proc/self/fd").join(directory.as_fd().as_raw_fd().to_string());
    if name.is_empty() { path } else { path.join(OsStr::from_bytes(name)) }
}

/// Sets an extended attribute of a name; attributes that a layer may not set, or the file system does not have, are
/// left out, as containerd does.
pub(crate) fn set_xattr(
    directory: impl AsFd,
    name: &[u8],
    key: &[u8],
    value: &[u8],
    kind: Kind,
) -> Result<(), Errno> {
    if !may_set(key) {
        return Ok(());
    }
    match sys::lsetxattr(&*proc_path(directory, name), key, value, sys::XattrFlags::empty()) {
        Err(Errno::OPNOTSUPP) => Ok(()),
        // Only files and directories have attributes of users.
        Err(Errno::PERM) if key.starts_with(b"user.") && !matches!(kind, Kind::File | Kind::Directory) => {
            Ok(())
        }
        other => other,
    }
}

/// A name that no other in this process has.
pub(crate) fn unique() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Removes a directory of a tree in the making, by way of the trash.
pub(crate) fn discard(parent: impl AsFd, name: &[u8], trash: &Path) -> io::Result<()> {
    let there = trash.join(unique());
    sys::renameat(parent, name, sys::CWD, &there)?;
    remove(&there, trash)
}

/// Removes a file or a tree of any depth, links and mounts left alone. Directories in it are moved up into `trash`
/// one by one, so neither memory nor paths grow with the depth.
pub(crate) fn remove(path: &Path, trash: &Path) -> io::Result<()> {
    let mut todo = vec![path.to_owned()];
    while let Some(path) = todo.pop() {
        match fs::remove_file(&path) {
            Ok(()) => continue,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) if fs::symlink_metadata(&path).is_ok_and(|f| !f.is_dir()) => return Err(e),
            Err(_) => {}
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = match sys::open(&path, flags, Mode::empty()) {
            Err(Errno::NOENT) => continue,
            other => other?,
        };
        // Removing while reading may miss names: it is read again until nothing is left.
        loop {
            let mut any = false;
            for entry in sys::Dir::read_from(&directory)? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if matches!(name, b"." | b"..") {
                    continue;
                }
                any = true;
                match sys::unlinkat(&directory, name, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => continue,
                    Err(Errno::ISDIR | Errno::PERM) => {}
                    Err(e) => return Err(e.into()),
                }
                match sys::unlinkat(&directory, name, AtFlags::REMOVEDIR) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(Errno::NOTEMPTY | Errno::EXIST) => {
                        let there = trash.join(unique());
                        sys::renameat(&directory, name, sys::CWD, &there)?;
                        todo.push(there);
                    }
                    Err(e) => return Err(e.into()),
                }
            }
            if !any {
                break;
            }
        }
        match fs::remove_dir(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

/// The disk that a tree takes. Writers make no error of it meanwhile; directories whose path is longer
/// than the kernel takes are counted without what is in them.
pub(crate) fn usage(path: &Path) -> io::Result<Usage> {
    let mut sum = Usage::default();
    let mut todo = vec![path.to_owned()];
    // Several names of one file count once.
    let mut linked = std::collections::HashSet::new();
    let mut add = |facts: &fs::Metadata| {
        if facts.is_dir() || facts.nlink() == 1 || linked.insert(facts.ino()) {
            sum.bytes += facts.blocks() * 512;
            sum.inodes += 1;
        }
    };
    add(&fs::symlink_metadata(path)?);
    while let Some(directory) = todo.pop() {
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(e) if directory == path => return Err(e),
            Err(_) => continue,
        };
        for entry in entries {
            let Ok(entry) = entry else { break };
            let Ok(facts) = entry.metadata() else { continue };
            add(&facts);
            if facts.is_dir() {
                todo.push(entry.path());
            }
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_of_any_depth_goes() {
        let root = tempfile::tempdir().unwrap();
        let trash = root.path().join("trash");
        fs::create_dir(&trash).unwrap();
        let tree = root.path().join("tree");
        fs::create_dir(&tree).unwrap();
        let outside = root.path().join("outside");
        fs::write(&outside, "stays").unwrap();
        // Three times as deep as a path can be long.
        let mut directory = sys::open(&tree, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..60 {
            let name = "d".repeat(200);
            sys::mkdirat(&directory, &name, Mode::from_raw_mode(0o755)).unwrap();
            sys::symlinkat("/", &directory, "link").unwrap();
            sys::linkat(sys::CWD, &outside, &directory, "hard", AtFlags::empty()).unwrap();
            directory =
                sys::openat(&directory, &name, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
        assert!(usage(&tree).unwrap().inodes > 15);
        remove(&tree, &trash).unwrap();
        assert!(!tree.exists());
        assert_eq!(fs::read_dir(&trash).unwrap().count(), 0);
        assert_eq!(fs::read_to_string(&outside).unwrap(), "stays");
        // Removing what is gone is no error.
        remove(&tree, &trash).unwrap();
    }
}
