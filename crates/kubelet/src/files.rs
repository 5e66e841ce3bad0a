//! Files in places that others write to: whoever may put a link, a pipe or a device there must not
//! choose what this process reads, removes, or waits for.
//!
//! Paths are resolved by the kernel below a directory that was opened once, so a name that is
//! exchanged meanwhile leads to another file below it or nowhere. A file that is not regular is never
//! opened: neither does a pipe's other end hold anyone up, nor does a device hear of it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, DirEntry, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// How often a path is tried again whose resolution was disturbed by a rename.
const TRIES: usize = 128;

/// Where links may lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    /// Below the root; what leads out is an error.
    Beneath,
    /// The root is `/` to them, as it is to a process in a container.
    InRoot,
    /// Nowhere: there must be none.
    None,
}

/// Opens a directory below which others are opened. Links in its own path are followed.
pub(crate) fn root(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Opens what a path below `root` names.
pub(crate) fn open(root: impl AsFd, path: &Path, flags: OFlags, links: Links) -> io::Result<OwnedFd> {
    let resolve = match links {
        Links::Beneath => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
        Links::InRoot => ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
        Links::None => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
    };
    // An empty path is the root itself.
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let mut tries = 0;
    loop {
        match rustix::fs::openat2(&root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) if tries < TRIES => tries += 1,
            other => return Ok(other?),
        }
    }
}

/// Opens a regular file for reading.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for anything else than a regular file.
pub(crate) fn regular(root: impl AsFd, path: &Path, links: Links) -> io::Result<File> {
    readable(&open(root, path, OFlags::PATH, links)?)
}

/// The regular file that `found` refers to, opened for reading; see [`regular`].
pub(crate) fn readable(found: &OwnedFd) -> io::Result<File> {
    if kind(found)? != FileType::RegularFile {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(File::from(reopen(found, OFlags::RDONLY | OFlags::NONBLOCK)?))
}

/// The file of `found`, opened once more with these flags.
pub(crate) fn reopen(found: &OwnedFd, flags: OFlags) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    Ok(rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())?)
}

/// The kind of the file that `found` refers to.
pub(crate) fn kind(found: &OwnedFd) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(rustix::fs::statat(found, "", AtFlags::EMPTY_PATH)?.st_mode))
}

/// Reads a whole regular file of at most `limit` bytes.
///
/// # Errors
/// [`io::ErrorKind::FileTooLarge`] beyond the limit; what [`regular`] says.
pub(crate) fn read(root: impl AsFd, path: &Path, links: Links, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    regular(root, path, links)?.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// The names in a directory that was opened for reading, without `.` and `..`.
pub(crate) fn names(dir: &OwnedFd) -> io::Result<Vec<(std::ffi::OsString, FileType)>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        found.extend(name_of(&entry).map(|name| (name.to_owned(), entry.file_type())));
    }
    Ok(found)
}

/// An entry's name; none for `.` and `..`.
fn name_of(entry: &DirEntry) -> Option<&OsStr> {
    let name = entry.file_name().to_bytes();
    (name != b"." && name != b"..").then(|| OsStr::from_bytes(name))
}

/// Removes a directory and all that is in it; what is not there counts as removed. Links are removed,
/// not followed; a mount point in it is an error.
///
/// Directories that are not empty move up beside the others before they are emptied, so a chain of
/// any depth costs neither stack nor descriptors.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let parent = match root(parent) {
        Ok(parent) => parent,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    let top = match rustix::fs::openat(&parent, name, dir_flags(), Mode::empty()) {
        Ok(top) => top,
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return Ok(rustix::fs::unlinkat(&parent, name, AtFlags::empty())?);
        }
        Err(e) => return Err(e.into()),
    };
    let mut moved = 0_u64;
    loop {
        for entry in Dir::read_from(&top)? {
            if let Some(name) = name_of(&entry?) {
                empty(&top, name, &mut moved)?;
            }
        }
        match rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR) {
            // Files that moved up, or came meanwhile.
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
}

fn dir_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// Removes an entry of `top`; of a directory, what is not empty in it becomes an entry of `top`.
fn empty(top: &OwnedFd, name: &OsStr, moved: &mut u64) -> io::Result<()> {
    if remove_one(top, name)? {
        return Ok(());
    }
    // Files below a mount belong to something else.
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let dir = match rustix::fs::openat2(top, name, dir_flags(), Mode::empty(), resolve) {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::XDEV) => return Err(Errno::BUSY.into()),
        Err(e) => return Err(e.into()),
    };
    for entry in Dir::read_from(&dir)? {
        let entry = entry?;
        let Some(entry) = name_of(&entry) else { continue };
        if remove_one(&dir, entry)? {
            continue;
        }
        loop {
            *moved += 1;
            let aside = format!("..removed-{moved}");
            let flags = rustix::fs::RenameFlags::NOREPLACE;
            match rustix::fs::renameat_with(&dir, entry, top, aside, flags) {
                Ok(()) | Err(Errno::NOENT) => break,
                Err(Errno::EXIST) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
    remove_one(top, name).map(drop)
}

/// Removes a file or an empty directory; false for a directory that is not empty.
fn remove_one(dir: &OwnedFd, name: &OsStr) -> io::Result<bool> {
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(true),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(e) => return Err(e.into()),
    }
    match rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// A pipe that nobody writes to.
    fn fifo(path: &Path) {
        rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap();
    }

    #[test]
    fn only_regular_files_below_the_root_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, secret) = (dir.path().join("inside"), dir.path().join("secret"));
        fs::create_dir_all(inside.join("d")).unwrap();
        fs::write(&secret, "secret").unwrap();
        fs::write(inside.join("d/f"), "f").unwrap();
        symlink("d/f", inside.join("link")).unwrap();
        symlink("/d/f", inside.join("rooted")).unwrap();
        symlink("../secret", inside.join("out")).unwrap();
        symlink(&secret, inside.join("far")).unwrap();
        symlink("/proc/self/root/etc/passwd", inside.join("magic")).unwrap();
        symlink("loop", inside.join("loop")).unwrap();
        fifo(&inside.join("fifo"));
        let huge = fs::File::create(inside.join("huge")).unwrap();
        huge.set_len(10 << 30).unwrap();
        let root = root(&inside).unwrap();
        let check = |path: &str, beneath: Option<&str>, in_root: Option<&str>| {
            for (links, want) in [(Links::Beneath, beneath), (Links::InRoot, in_root)] {
                let got = read(&root, Path::new(path), links, 1 << 10).ok();
                assert_eq!(got.as_deref(), want.map(str::as_bytes), "{path} {links:?}");
            }
        };
        check("d/f", Some("f"), Some("f"));
        check("link", Some("f"), Some("f"));
        check("rooted", None, Some("f"));
        check("d/../d/f", Some("f"), Some("f"));
        for path in ["out", "far", "magic", "loop", "fifo", "huge", "d", "none", "../secret"] {
            check(path, None, None);
        }
        assert!(read(&root, Path::new("link"), Links::None, 9).is_err());
        assert_eq!(
            read(&root, Path::new("huge"), Links::Beneath, 9).unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );
    }

    #[test]
    fn a_name_exchanged_meanwhile_leads_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, outside) = (dir.path().join("inside"), dir.path().join("outside"));
        fs::create_dir_all(inside.join("real")).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(inside.join("real/f"), "mine").unwrap();
        fs::write(outside.join("f"), "secret").unwrap();
        symlink(&outside, inside.join("out")).unwrap();
        fifo(&inside.join("pipe"));
        fs::write(inside.join("file"), "mine").unwrap();
        let over = Arc::new(AtomicBool::new(false));
        // `real` and `out`, `file` and `pipe` exchange their names without end.
        let attack = |a: PathBuf, b: PathBuf, over: Arc<AtomicBool>| {
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    rustix::fs::renameat_with(
                        rustix::fs::CWD,
                        &a,
                        rustix::fs::CWD,
                        &b,
                        rustix::fs::RenameFlags::EXCHANGE,
                    )
                    .unwrap();
                }
            })
        };
        let racers = [
            attack(inside.join("real"), inside.join("out"), over.clone()),
            attack(inside.join("file"), inside.join("pipe"), over.clone()),
        ];
        let root = root(&inside).unwrap();
        let mut read_some = false;
        for _ in 0..5_000 {
            for path in ["real/f", "file"] {
                if let Ok(bytes) = read(&root, Path::new(path), Links::Beneath, 100) {
                    assert_eq!(bytes, b"mine");
                    read_some = true;
                }
            }
        }
        over.store(true, Ordering::Relaxed);
        for racer in racers {
            racer.join().unwrap();
        }
        assert!(read_some);
    }

    #[test]
    fn trees_are_removed_whatever_their_shape() {
        let dir = tempfile::tempdir().unwrap();
        let (tree, outside) = (dir.path().join("tree"), dir.path().join("outside"));
        fs::create_dir_all(&tree).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("keep"), "").unwrap();
        symlink(&outside, tree.join("link")).unwrap();
        fs::write(tree.join("..removed-1"), "a name that is taken").unwrap();
        fifo(&tree.join("pipe"));
        // Deeper than a stack or a table of descriptors would take, and than any path can say.
        let mut at = root(&tree).unwrap();
        for _ in 0..5_000 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = open(&at, Path::new("d"), OFlags::PATH, Links::None).unwrap();
        }
        drop(at);
        for a in 0..20 {
            for b in 0..20 {
                fs::create_dir_all(tree.join(format!("w{a}/x{b}"))).unwrap();
                fs::write(tree.join(format!("w{a}/x{b}/f")), "").unwrap();
            }
        }
        remove_tree(&tree).unwrap();
        assert!(fs::symlink_metadata(&tree).is_err());
        assert!(outside.join("keep").exists(), "a link is not followed");
        remove_tree(&tree).unwrap();
        // A link in the place of the tree goes alone.
        symlink(&outside, &tree).unwrap();
        remove_tree(&tree).unwrap();
        assert!(fs::symlink_metadata(&tree).is_err() && outside.join("keep").exists());
    }
}
