//! Namespaces of mounts that files keep, as `unshare --mount=FILE` and snapd make them.
//!
//! The kernel attaches no tree in which such a file lies to a newer namespace (`ELOOP`), since that could make a circle.
//! The container gets the tree without them, as from runc: a new namespace does not inherit them.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::error::{Doing, Error, Result};

/// Where namespaces of mounts are kept.
pub(crate) fn places() -> Result<Vec<PathBuf>> {
    let text = fs::read_to_string("/proc/self/mountinfo").doing(|| "read /proc/self/mountinfo")?;
    Ok(text.lines().filter_map(place).collect())
}

/// The place of a line of `/proc/self/mountinfo`, if a namespace of mounts is kept there.
fn place(line: &str) -> Option<PathBuf> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut fields = mount.split(' ').skip(3);
    let is_kept = fields.next()?.starts_with("mnt:[") && file_system.starts_with("nsfs ");
    let at = fields.next()?;
    // Four characters are written in octal.
    let plain = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    is_kept.then(|| plain.iter().fold(at.to_owned(), |text, (code, plain)| text.replace(code, plain)).into())
}

/// Whether one of the places lies in a directory.
pub(crate) fn lie_below(places: &[PathBuf], directory: &Path) -> bool {
    if places.is_empty() {
        return false;
    }
    let plain = directory.canonicalize();
    let directory = plain.as_deref().unwrap_or(directory);
    places.iter().any(|place| place.starts_with(directory))
}

/// Copies a tree of mounts as a new namespace inherits it, in a thread whose namespace ends with it.
pub(crate) fn without(copy: impl FnOnce() -> Result<OwnedFd> + Send) -> Result<OwnedFd> {
    let work = || {
        own_mount_table()?;
        copy()
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("mounts".into()).spawn_scoped(scope, work);
        let ended = |_| Error::Invalid("the thread that copies mounts ended".to_owned());
        thread.doing(|| "start a thread")?.join().map_err(ended)?
    })
}

#[allow(
    unsafe_code,
    reason = "unshare(2) is unsafe in rustix, since other flags than this one share memory otherwise"
)]
fn own_mount_table() -> Result<()> {
    // SAFETY: The flag changes this thread's mounts and its current directory; it touches no memory and no descriptor.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.doing(|| "make a namespace of mounts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_mountinfo() {
        let check = |line: &str, expected: Option<&str>| {
            assert_eq!(place(line), expected.map(PathBuf::from), "{line}");
        };
        check(
            "78 42 0:4 mnt:[4026532178] /run/snapd/ns/lxd.mnt rw - nsfs nsfs rw",
            Some("/run/snapd/ns/lxd.mnt"),
        );
        check("80 42 0:4 mnt:[1] /a\\040b\\134 rw shared:3 - nsfs nsfs rw", Some("/a b\\"));
        check("79 42 0:4 net:[4026532180] /run/netns/one rw - nsfs nsfs rw", None);
        check("26 1 254:0 / / rw,relatime - ext4 /dev/root rw", None);
        check("26 1 254:0 /mnt:[1] /x rw - ext4 /dev/root rw", None);
        check("26 1 254:0 mnt:[1] /x rw - ext4 nsfs rw", None);
        check("", None);
    }

    #[test]
    fn directories() {
        let places = [PathBuf::from("/run/snapd/ns/lxd.mnt")];
        for (directory, expected) in [
            ("/", true),
            ("/run", true),
            ("/proc/self/root/run/../run", true),
            ("/run/snap", false),
            ("/var", false),
        ] {
            assert_eq!(lie_below(&places, Path::new(directory)), expected, "{directory}");
        }
        assert!(!lie_below(&[], Path::new("/")));
    }
}
