//! The sockets below a directory, and the watch for changes there.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The most sockets that are attended: a directory full of them must not take the kubelet's memory.
const MOST: usize = 1000;
/// The most directories that are searched, for the same reason.
const MOST_DIRS: usize = 1000;

/// A watch that says when something changed.
pub(super) type Watch = AsyncFd<OwnedFd>;

/// Tells a socket from another one that took its place: device, inode, and the time of its last change.
pub(super) type Stamp = (u64, u64, i64, i64);

/// Sockets with their stamps.
pub(super) type Found = BTreeMap<PathBuf, Stamp>;

/// A watch that no runtime waits for yet.
pub(super) struct Watched(OwnedFd);

impl Watched {
    /// Lets it be waited for.
    pub(super) fn ready(self) -> io::Result<Watch> {
        #[allow(deprecated, reason = "its successor is unsafe for the sake of other types than OwnedFd")]
        let watch = AsyncFd::with_interest(self.0, Interest::READABLE)?;
        Ok(watch)
    }
}

/// Watches a directory and those below it.
pub(super) fn watch(dir: &Path) -> io::Result<Watched> {
    let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    let flags = WatchFlags::CREATE
        | WatchFlags::MOVED_TO
        | WatchFlags::MOVED_FROM
        | WatchFlags::DELETE
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF
        | WatchFlags::ONLYDIR;
    inotify::add_watch(&fd, dir, flags)?;
    let mut dirs = vec![dir.to_owned()];
    let mut count = 1;
    while let Some(at) = dirs.pop() {
        for (path, kind) in entries(&at) {
            if kind.is_dir() && count < MOST_DIRS {
                count += 1;
                // It may have gone meanwhile; the one above it is watched and says so.
                let _ = inotify::add_watch(&fd, &path, flags);
                dirs.push(path);
            }
        }
    }
    Ok(Watched(fd))
}

/// Finds the sockets below a directory. Hidden names are passed over, as upstream does, and so is what cannot be read.
pub(super) fn find(dir: &Path) -> Found {
    let (mut found, mut dirs, mut count) = (Found::new(), vec![dir.to_owned()], 1);
    while let Some(at) = dirs.pop() {
        for (path, kind) in entries(&at) {
            if kind.is_dir() && count < MOST_DIRS {
                count += 1;
                dirs.push(path);
            } else if kind.is_socket()
                && found.len() < MOST
                && let Ok(meta) = std::fs::symlink_metadata(&path)
            {
                found.insert(path, (meta.dev(), meta.ino(), meta.ctime(), meta.ctime_nsec()));
            }
        }
    }
    found
}

fn entries(dir: &Path) -> Vec<(PathBuf, std::fs::FileType)> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let shown = entries.filter(|e| !e.file_name().as_encoded_bytes().starts_with(b"."));
    let mut all: Vec<_> = shown.filter_map(|e| Some((e.path(), e.file_type().ok()?))).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn sockets_below_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let names = || -> Vec<PathBuf> { find(dir.path()).into_keys().collect() };
        assert!(names().is_empty());
        assert!(find(&at("missing")).is_empty());
        std::fs::create_dir(at("below")).unwrap();
        std::fs::create_dir(at(".hidden")).unwrap();
        let _kept: Vec<_> = ["b.sock", "below/a.sock", ".c.sock", ".hidden/d.sock"]
            .iter()
            .map(|name| UnixListener::bind(at(name)).unwrap())
            .collect();
        std::fs::write(at("file"), "").unwrap();
        std::os::unix::fs::symlink(at("b.sock"), at("link")).unwrap();
        std::os::unix::fs::symlink(dir.path(), at("below/circle")).unwrap();
        assert_eq!(names(), [at("b.sock"), at("below/a.sock")]);
        let before = find(dir.path());
        std::fs::remove_file(at("b.sock")).unwrap();
        let _again = UnixListener::bind(at("b.sock")).unwrap();
        let after = find(dir.path());
        assert_ne!(before[&at("b.sock")], after[&at("b.sock")], "another socket at the same place");
        assert_eq!(before[&at("below/a.sock")], after[&at("below/a.sock")]);
    }
}
